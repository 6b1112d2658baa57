"""Planning: single steps of past runs help with other requests, on tools that have other names.

Run it: ``python -m examples.planning``. Past runs looked up orders and paid money back. What is kept of them are atoms:
one step each, without the customers and amounts of the day. The new agent's tools do the same under other names. Its
model has never seen them and knows nothing but its prompt, so without the hints it gives up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from examples.desk import NAMES, TOOLS, calling, number, past_run, show
from langgraph_toolmem import Atoms, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel as Model

REQUEST = "Refund the order of Zoe"


@tool
def crm_customer(name: str) -> dict[str, str]:
    """Find a customer by name in the CRM."""
    return {"customer_id": f"C-{number(name)}", "name": name}


@tool
def newest_order(customer_id: str) -> dict[str, Any]:
    """Get the latest order of a customer."""
    return {"order_id": customer_id.replace("C-", "O-"), "state": "shipped", "total": 35}


@tool
def pay_back(order_id: str, amount: int) -> dict[str, Any]:
    """Pay money back to a customer for an order."""
    return {"refunded": amount, "order_id": order_id}


OTHER_TOOLS: list[BaseTool] = [crm_customer, newest_order, pay_back]


def reply(messages: list[BaseMessage], _: Sequence[dict[str, Any]]) -> AIMessage:
    """The model: makes the first call that its hints name, and fills in what it reads in the conversation."""
    results = [m for m in messages if isinstance(m, ToolMessage)]
    if results and "refunded" in results[-1].text:
        return AIMessage("The money is on its way.")
    hint = next((m.text for m in messages if m.type == "system"), "")
    found = re.search(r"^- .*?(\w+)\((.*)\)$", hint, re.MULTILINE)
    if found is None or (results and results[-1].status == "error"):
        return AIMessage("I do not know how to do that.")
    args = dict(part.split("=", 1) for part in found[2].split(", "))
    asked = next(m.text for m in messages if isinstance(m, HumanMessage))
    known = {name: json.loads(value) if value[0] != "<" else asked.split()[-1] for name, value in args.items()}
    return calling(found[1], **known)


def make_agent(memory: ToolMemory | None, checkpointer: BaseCheckpointSaver[str] | None = None) -> tuple[Any, Model]:
    """An agent on the other tools, and its model."""
    model = Model(script=reply)
    middleware = [] if memory is None else tool_memory_middleware(memory, planning=True, shortcut=False)
    return create_agent(model, OTHER_TOOLS, middleware=middleware, checkpointer=checkpointer), model


def learned() -> ToolMemory:
    """A memory that knows past runs."""
    reads = {"crm_customer", "newest_order"}
    memory = ToolMemory.ephemeral(tools=TOOLS, reads=reads, methods=default_methods(Atoms(keep=True)))
    for name in NAMES:
        run = past_run(f"Refund the order of {name}")
        memory.finish(run, thread_id=f"past-{name}", success=True)  # only successful runs give atoms
    memory.flush()  # only here: atoms are stored in the background
    return memory


graph = make_agent(learned())[0]
"""For LangGraph Studio."""


def main() -> None:
    """Gives two agents the same request, one of them with a memory."""
    with learned() as memory:
        print(f"What is kept of {len(NAMES)} past runs:")
        for hit in memory.atoms.search("refund an order"):
            print(f"  to {hit.atom.goal}: {hit.atom.tool}({dict(hit.atom.arguments)})")
        for title, agent_memory in (("without hints", None), ("with hints", memory)):
            agent, model = make_agent(agent_memory, InMemorySaver())
            print(f"\n--- {title}")
            config = {"configurable": {"thread_id": title}}
            show(agent.invoke({"messages": [("user", REQUEST)]}, config)["messages"])
        print(f"\nWhat the model was shown before its second call:\n\n{model.calls[1].messages[0].text}")
        memory.feedback("with hints", score=1.0)  # the hints led to success
        memory.flush()
        print(f"\n{memory.report()}")


if __name__ == "__main__":
    main()
