"""An order desk with three tools and a scripted agent, for tests of the memory in real LangGraph apps."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition
from langgraph_toolmem.testing import ScriptedChatModel

NAMES = ("Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gita", "Hugo", "Iris", "Jona", "Kaya", "Levi")
EAGER = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)
"""Acts as soon as the record of a call is good, without the budget and the audits."""


class Desk:
    """Tools with effects of their own, written down in `done`.

    All of them are declared to only read: what is tested with them is not what tools do.
    """

    def __init__(self) -> None:
        self.done: list[tuple[str, dict[str, Any]]] = []
        self._lock = threading.Lock()

    def did(self, tool_name: str, /, **args: Any) -> None:
        with self._lock:
            self.done.append((tool_name, args))

    def find_customer(self, name: str) -> str:
        """Find a customer by name."""
        self.did("find_customer", name=name)
        return json.dumps({"customer_id": f"C-{number(name)}"})

    def latest_order(self, customer_id: str) -> str:
        """The latest order of a customer."""
        self.did("latest_order", customer_id=customer_id)
        return json.dumps({"order_id": customer_id.replace("C-", "O-"), "state": "shipped"})

    def add_note(self, order_id: str, note: str) -> str:
        """Add a note to an order."""
        self.did("add_note", order_id=order_id, note=note)
        return json.dumps({"saved": True})

    @cached_property
    def tools(self) -> list[BaseTool]:
        return [
            made.model_copy(update={"func": getattr(self, made.name), "tags": ["read_only"]}) for made in _made_tools()
        ]


@cache
def _made_tools() -> list[BaseTool]:
    """The tools of a desk; making them, pydantic's models of their arguments above all, takes longer than most runs."""
    desk = Desk()
    return [tool(each) for each in (desk.find_customer, desk.latest_order, desk.add_note)]


def number(name: str) -> int:
    """A number that stands for a name."""
    return int(hashlib.blake2b(name.encode(), digest_size=4).hexdigest(), 16)


def request(name: str) -> str:
    """What a user says."""
    return f"Please check the order of {name} and mark it as checked"


def expected(name: str) -> list[tuple[str, dict[str, Any]]]:
    """What has to be done for it."""
    return [
        ("find_customer", {"name": name}),
        ("latest_order", {"customer_id": f"C-{number(name)}"}),
        ("add_note", {"order_id": f"O-{number(name)}", "note": "checked"}),
    ]


def this_turn(messages: Sequence[BaseMessage]) -> tuple[HumanMessage, list[ToolMessage]]:
    """The latest user message and the tool answers after it."""
    last = max(i for i, m in enumerate(messages) if isinstance(m, HumanMessage))
    user = messages[last]
    assert isinstance(user, HumanMessage)
    return user, [m for m in messages[last:] if isinstance(m, ToolMessage)]


def call_id(*parts: Any) -> str:
    """A call id as providers draw them, but the same for the same parts."""
    return "call_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def calling(name: str, args: dict[str, Any], *parts: Any) -> AIMessage:
    """A message with one call."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": call_id(name, *parts), "type": "tool_call"}])


def script(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """The agent: the next of the three calls, then an answer. It reads nothing but the messages."""
    user, answers = this_turn(messages)
    name = user.text.split(" order of ")[1].split()[0]
    steps = expected(name)
    if len(answers) == len(steps):
        return AIMessage(f"The order of {name} is checked.")
    wanted, args = steps[len(answers)]
    made = {"name": wanted, "args": args, "id": call_id(user.id, user.text, len(messages)), "type": "tool_call"}
    usage = {"input_tokens": 90, "output_tokens": 10, "total_tokens": 100}
    return AIMessage("", tool_calls=[made], usage_metadata=usage)  # type: ignore[arg-type]


def build(
    memory: ToolMemory,
    tools: Sequence[BaseTool],
    model: Any = None,
    *,
    policy: InertiaPolicy | None = None,
    recorder: bool = True,
    prefetch: Any = False,
    watched: bool = False,
    context_schema: Any = None,
    **compile_options: Any,
) -> tuple[Any, Any]:
    """The graph of the README: inertia before the model, a recorder at the end. Returns it and the model.

    With `watched`, the `ToolNode` reports each call to the recorder.
    """
    model = model or ScriptedChatModel(script=script)
    told = Recorder(memory)
    watch: Any = {"wrap_tool_call": told.wrap_tool_call, "awrap_tool_call": told.awrap_tool_call} if watched else {}
    builder = StateGraph(MessagesState, context_schema=context_schema)
    builder.add_node("inertia", InertiaShortcut(memory, tools, policy=policy, prefetch=prefetch))
    builder.add_node("agent", asker(model.bind_tools(tools)))
    builder.add_node("tools", ToolNode(tools, **watch))
    builder.add_edge(START, "inertia")
    builder.add_edge("tools", "inertia")
    builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
    if recorder:
        builder.add_node("recorder", told)
        builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "recorder"})
        builder.add_edge("recorder", END)
    else:
        builder.add_conditional_edges("agent", tools_condition)
    return builder.compile(**compile_options), model


def asker(bound: Any) -> Callable[[MessagesState], dict[str, Any]]:
    """The node that calls the model."""

    def agent(state: MessagesState) -> dict[str, Any]:
        return {"messages": [bound.invoke(state["messages"])]}

    return agent


def thread(name: Any) -> dict[str, Any]:
    """A config with a thread id."""
    return {"configurable": {"thread_id": str(name)}}


def run(graph: Any, number_: int, **options: Any) -> dict[str, Any]:
    """One request; the name goes round."""
    name = NAMES[number_ % len(NAMES)]
    config = options.pop("config", None) or thread(f"thread-{number_}")
    user = HumanMessage(request(name), id=call_id("user", number_))
    state: dict[str, Any] = graph.invoke({"messages": [user]}, config, **options)
    return state


def warm(memory: ToolMemory, runs: int = 12, tools: Sequence[BaseTool] | None = None, first: int = 1000) -> None:
    """Teaches a memory that many finished runs, without a graph."""
    for i in range(first, first + runs):
        memory.finish(history(i), thread_id=f"warm-{i}")


def history(number_: int, name: str | None = None) -> list[BaseMessage]:
    """A whole run as the graph would leave it."""
    name = name or NAMES[number_ % len(NAMES)]
    messages: list[BaseMessage] = [HumanMessage(request(name), id=call_id("user", number_))]
    while True:
        answer = script(messages, [])
        answer.id = call_id("answer", number_, len(messages))
        messages.append(answer)
        if not answer.tool_calls:
            return messages
        for call in answer.tool_calls:
            result = _functions()[call["name"]](**call["args"])
            messages.append(ToolMessage(result, tool_call_id=call["id"], name=call["name"]))


@cache
def _functions() -> dict[str, Callable[..., str]]:
    """What the tools do; making tools anew for each of thousands of past runs takes minutes."""
    return {made.name: made.func for made in Desk().tools}  # type: ignore[attr-defined]


def shortcuts(messages: Sequence[BaseMessage]) -> list[AIMessage]:
    """The messages that no model made."""
    return [m for m in messages if isinstance(m, AIMessage) and "toolmem" in m.additional_kwargs]


def assert_answered(messages: Sequence[BaseMessage]) -> None:
    """Every tool call is answered, once, right behind its message: what every provider asks for."""
    i = 0
    while i < len(messages):
        message = messages[i]
        assert not isinstance(message, ToolMessage), f"an answer to nothing at {i}"
        calls = [c["id"] for c in message.tool_calls] if isinstance(message, AIMessage) else []
        answers = messages[i + 1 : i + 1 + len(calls)]
        assert all(isinstance(a, ToolMessage) for a in answers), f"unanswered calls at {i}"
        assert sorted(a.tool_call_id for a in answers if isinstance(a, ToolMessage)) == sorted(calls)
        i += 1 + len(calls)
