"""A graph that only the test of ``langgraph dev`` exposes: a human approves the memory's refund."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from order_desk import POLICY, TOOLS, make_model, warm_memory

from langgraph_toolmem.middleware import tool_memory_middleware

_gate: Any = HumanInTheLoopMiddleware({"refund": {"allowed_decisions": ["approve", "edit", "reject"]}})
_policy = POLICY.with_(never={"find_customer", "latest_order"})
_middleware = tool_memory_middleware(warm_memory(), inside=[_gate], shortcut=_policy)
graph = create_agent(make_model(), TOOLS, middleware=_middleware)
