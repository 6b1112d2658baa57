"""A graph that only the test of ``langgraph dev`` exposes: its memory is in a folder beside this file.

The server runs a file once for each graph that it exposes, and a folder is open only once: so one graph.
"""

from __future__ import annotations

from pathlib import Path

from desk import warm
from studio_graphs import TOOLS, make_graph

from langgraph_toolmem import ToolMemory

memory = ToolMemory(Path(__file__).parent / "kept", tools=TOOLS)
warm(memory, 24)
graph = make_graph(memory)
