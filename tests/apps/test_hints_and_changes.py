"""Hints in an app: tools that may change something, whose comments are shown, and what is recorded as shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langgraph_toolmem import Entries, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import MemoryState, Recorder, SGAPlanner, SITSummary, messages_with_hints
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

NAMES: Final = ("Ann Lee", "Bob Roy", "Cem Kaya", "Dana Fox")
READS: Final = {"find_customer", "list_orders"}
NEXT: Final = ("Likely next tools", "Steps that worked")
"""Beginnings of the headings under which a tool is proposed."""


@tool
def find_customer(name: str) -> dict[str, str]:
    """Look up a customer by name."""
    return {"customer_id": f"C-{NAMES.index(name) + 1}", "name": name}


@tool
def list_orders(customer_id: str) -> list[dict[str, str]]:
    """List the orders of a customer."""
    return [{"order_id": f"O-{customer_id[2:]}{at}", "status": status} for at, status in enumerate(("lost", "sent"))]


@tool
def refund_order(order_id: str, reason: str) -> str:
    """Give the money for an order back."""
    return "refunded"


TOOLS: Final[list[BaseTool]] = [find_customer, list_orders, refund_order]


def script(messages: list[BaseMessage], _: Any) -> AIMessage:
    said = next(message.text for message in reversed(messages) if asks(message))
    number = next(at for at, name in enumerate(NAMES, 1) if name in said)
    steps = [call_tool("find_customer", name=NAMES[number - 1]), call_tool("list_orders", customer_id=f"C-{number}")]
    if "money" in said:
        steps.append(call_tool("refund_order", order_id=f"O-{number}0", reason="lost"))
    done = sum(isinstance(message, ToolMessage) for message in messages)
    return [*steps, AIMessage("Done.")][done]


def asks(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and "toolmem" not in message.additional_kwargs


def request(number: int) -> str:
    form = ("What did {} order?", "Give {} the money back")[number % 3 == 0]
    return form.format(NAMES[number % len(NAMES)])


def agent(memory: ToolMemory, model: Any) -> Any:
    hints = tool_memory_middleware(memory, shortcut=False, recall=True, suggest=True, planning=True, reflect=True)
    return create_agent(model, TOOLS, system_prompt="You are a clerk.", middleware=hints)


def graph(memory: ToolMemory, model: Any) -> Any:
    recorder = Recorder(memory)
    nodes = {"sit": SITSummary(memory, summary_tool=False), "sga": SGAPlanner(memory, tools=TOOLS)}
    builder = StateGraph(MemoryState)
    for name, node in nodes.items():
        builder.add_node(name, node)
    builder.add_node("model", lambda state: {"messages": [model.invoke(messages_with_hints(state, model))]})
    builder.add_node("recorder", recorder)
    builder.add_node("tools", ToolNode(TOOLS, wrap_tool_call=recorder.wrap_tool_call))
    builder.add_edge(START, "sit")
    builder.add_edge("sit", "sga")
    builder.add_edge("sga", "model")
    builder.add_edge("model", "recorder")
    builder.add_conditional_edges("recorder", tools_condition, ["tools", END])
    builder.add_edge("tools", "sit")
    return builder.compile()


def prompts(
    memory: ToolMemory, make: Callable[..., Any], requests: int = 24
) -> Iterator[tuple[str, list[BaseMessage]]]:
    """Yield each model call's request and messages."""
    model = ScriptedChatModel(script=script)
    app = make(memory, model)
    for number in range(requests):
        before, said = len(model.calls), request(number)
        app.invoke({"messages": [("user", said)]}, {"configurable": {"thread_id": str(number), "user_id": "u"}})
        memory.feedback(str(number), score=1.0)
        assert memory.flush()
        for call in model.calls[before:]:
            yield said, call.messages


def parts_of(text: str) -> dict[str, list[str]]:
    """Return the lines of a hint by their heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("- "):
            found.setdefault(heading, []).append(line)
        else:
            heading = line
    return found


@pytest.mark.parametrize("make", [agent, graph])
def test_a_change_is_never_proposed_and_only_part_of_a_past_record(make: Callable[..., Any]) -> None:
    named = proposed = 0
    with ToolMemory.ephemeral(reads=READS, tools=TOOLS) as memory:
        for said, messages in prompts(memory, make):
            made = any(isinstance(message, ToolMessage) and message.text == "refunded" for message in messages)
            systems = [message.text for message in messages if message.type == "system"]
            for heading, lines in parts_of("\n".join(systems)).items():
                text = "\n".join(lines)
                proposed += heading.startswith(NEXT)
                if "refund_order" not in text:
                    continue
                named += 1
                assert not heading.startswith(NEXT), (said, text)
                assert not made, "it was made for this request"
                assert "refund_order(order_id=…, reason=…)" in text
    assert proposed, "look-ups are proposed"
    assert bool(named) is (make is agent), "past runs name it where they are recalled"


@pytest.mark.parametrize("make", [agent, graph])
def test_what_is_recorded_as_shown_stood_in_the_prompt(make: Callable[..., Any]) -> None:
    stood = {"sit": 0, "atoms": 0}
    with ToolMemory.ephemeral(reads=READS, tools=TOOLS) as memory:
        for _, messages in prompts(memory, make):
            text = "\n".join(message.text for message in messages if message.type == "system")
            stood["sit"] += NEXT[0] in text
            stood["atoms"] += NEXT[1] in text
        shown = {name: memory.core.ledger.figures(name)["shown"] for name in stood}
        followed = {name: memory.core.ledger.figures(name)["followed"] for name in stood}
    assert shown == stood
    assert stood["sit"] > 0
    assert all(followed[name] <= stood[name] for name in stood)


@pytest.mark.parametrize(
    ("writer", "reader", "share", "seen"),
    [(None, None, False, False), (None, None, True, True), ("ann", "bob", False, False), ("ann", "ann", False, True)],
)
def test_a_comment_is_shown_to_the_user_who_wrote_it(
    writer: str | None, reader: str | None, share: bool, seen: bool
) -> None:
    with ToolMemory.ephemeral(methods=default_methods(Entries(share_comments=share)), reads=READS) as memory:
        model = ScriptedChatModel(script=script)
        app = create_agent(
            model, TOOLS, middleware=tool_memory_middleware(memory, shortcut=False, recall=True, reflect=True)
        )
        for number in range(3):
            who = {} if writer is None else {"user_id": writer}
            app.invoke({"messages": [("user", request(1))]}, {"configurable": {"thread_id": str(number), **who}})
            memory.feedback(str(number), score=0.0, comment="My password is Hunter2", user_id=writer)
        assert memory.flush()
        who = {} if reader is None else {"user_id": reader}
        app.invoke({"messages": [("user", request(1))]}, {"configurable": {"thread_id": "now", **who}})
        assert ("Hunter2" in str(model.calls[-1].messages)) is seen
