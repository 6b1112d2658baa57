"""A graph that only the test of ``langgraph dev`` exposes: the decider in the office, which asks back and waits."""

from __future__ import annotations

from examples.office.agent import PROMPT
from examples.office.decider import make_decider
from examples.office.office import Office
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.nodes import create_navi_subgraph

_tools = Office(0).tools()
graph = create_navi_subgraph(make_decider(), _tools, ToolMemory.ephemeral(tools=_tools), instructions=PROMPT)
