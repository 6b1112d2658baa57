"""An order desk with three tools and a scripted model, for the graphs that tests show in LangGraph Studio."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.tools import BaseTool, tool

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.testing import ScriptedChatModel

NAMES = ("Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gita", "Hugo", "Iris", "Jona", "Kaya")
DONE: list[tuple[str, dict[str, Any]]] = []
"""What the tools really did, in order."""


@tool
def find_customer(name: str) -> dict[str, str]:
    """Find a customer by name."""
    DONE.append(("find_customer", {"name": name}))
    return {"customer_id": f"C-{number(name)}"}


@tool
def latest_order(customer_id: str) -> dict[str, Any]:
    """The latest order of a customer."""
    DONE.append(("latest_order", {"customer_id": customer_id}))
    return {"order_id": customer_id.replace("C-", "O-"), "state": "shipped", "total": 20 + number(customer_id) % 80}


@tool
def refund(order_id: str, amount: int) -> dict[str, Any]:
    """Pay money back for an order."""
    DONE.append(("refund", {"order_id": order_id, "amount": amount}))
    return {"refunded": amount}


# Say which tools only look; MCP tools say so themselves. All others are called without the model only if you name them.
find_customer.tags = latest_order.tags = ["read_only"]
TOOLS: list[BaseTool] = [find_customer, latest_order, refund]
POLICY = InertiaPolicy(may_write=frozenset({"refund"}))


def number(text: str) -> int:
    """Four digits that stand for a text."""
    return 1000 + zlib.crc32(text.encode()) % 9000


def requests(count: int) -> list[str]:
    """What users ask for: each third time a refund."""
    wordings = ("Where is the order of {}?", "Please look up the order of {}", "Refund the order of {}")
    return [wordings[i % 3].format(NAMES[i % len(NAMES)]) for i in range(count)]


def reply(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]] = ()) -> AIMessage:
    """The model: the next call of the request, or the answer. It goes on from whatever results are there."""
    start = max(i for i, m in enumerate(messages) if m.type == "human")
    found = re.search(r"\border of (\w+)", messages[start].text)
    results = [m for m in messages[start:] if isinstance(m, ToolMessage)]
    if found is None:
        answer = AIMessage('Try "Where is the order of Ann?" or "Refund the order of Ann".')
    elif any(m.status == "error" for m in results):
        answer = AIMessage("Then I leave it.")
    else:
        answer = next_message(found[1], "refund" in messages[start].text.lower(), [m.text for m in results])
    read = (sum(len(m.text) for m in messages) + len(json.dumps(list(tools)))) // 4
    said = (len(answer.text) + len(json.dumps([call["args"] for call in answer.tool_calls]))) // 4
    usage: Any = {"input_tokens": read, "output_tokens": said, "total_tokens": read + said}
    answer.usage_metadata = usage
    return answer


def next_message(name: str, wants_refund: bool, results: Sequence[str]) -> AIMessage:
    """What comes after so many results."""
    if not results:
        return calling("find_customer", name=name)
    if len(results) == 1:
        return calling("latest_order", customer_id=json.loads(results[0])["customer_id"])
    order = json.loads(results[1])
    if wants_refund and len(results) == 2:
        return calling("refund", order_id=order["order_id"], amount=order["total"])
    return AIMessage(f"The order of {name} is {'refunded' if wants_refund else order['state']}.")


def calling(tool_name: str, /, **args: Any) -> AIMessage:
    """A message with one tool call."""
    return AIMessage("", tool_calls=[tool_call(name=tool_name, args=args, id=f"call_{uuid4().hex[:24]}")])


def make_model() -> ScriptedChatModel:
    """The scripted model; `.calls` lists what it was asked."""
    return ScriptedChatModel(script=reply)


def past_run(text: str) -> list[BaseMessage]:
    """A finished run of an agent without a memory."""
    by_name = {t.name: t for t in TOOLS}
    messages: list[BaseMessage] = [HumanMessage(text)]
    while True:
        answer = reply(messages)
        messages.append(answer)
        if not answer.tool_calls:
            return messages
        messages += [by_name[call["name"]].invoke({**call}) for call in answer.tool_calls]


def warm_memory(runs: int = 120) -> ToolMemory:
    """A memory that has seen past runs. It audits nothing, so that a demonstration goes the same way each time."""
    memory = ToolMemory.ephemeral(tools=TOOLS, methods=default_methods(Inertia(POLICY.with_(audit_rate=0.0))))
    for i, text in enumerate(requests(runs)):
        memory.finish(past_run(text), thread_id=f"past-{i}")
    DONE.clear()
    return memory
