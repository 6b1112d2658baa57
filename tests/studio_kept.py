"""A graph that only the test of ``langgraph dev`` exposes: its memory is in a folder beside this file.

The server runs a file once for each graph that it exposes, and a folder is open only once: so one graph.
"""

from __future__ import annotations

from pathlib import Path

from order_desk import TOOLS, make_model, past_run, requests
from studio_settings import make_graph

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory, default_methods

memory = ToolMemory(
    Path(__file__).parent / "kept", tools=TOOLS, methods=default_methods(Inertia(InertiaPolicy(audit_rate=0.0)))
)
for i, text in enumerate(requests(120)):
    memory.finish(past_run(text), thread_id=f"past-{i}")

graph = make_graph(make_model(), memory)
