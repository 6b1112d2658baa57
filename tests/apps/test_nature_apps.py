"""Tools that change something in real apps: nothing is done without the model unless the developer names it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from desk import assert_answered, call_id, shortcuts, thread
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition
from langgraph_toolmem.testing import ScriptedChatModel

RUNS = 30
FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)
LOGGER = "langgraph_toolmem.inertia"


def two_steps(first: str, second: str) -> Callable[..., AIMessage]:
    """A model that looks a name up and then does something with the id it found."""

    def script(messages: list[BaseMessage], tools: Any) -> AIMessage:
        at = max(i for i, m in enumerate(messages) if isinstance(m, HumanMessage))
        name, answers = str(messages[at].content).split()[-1], messages[at + 2 :: 2]
        if len(answers) == 2:
            return AIMessage("Done.")
        args = {"name": name} if not answers else {"id": json.loads(str(answers[0].content))["id"]}
        made = {
            "name": second if answers else first,
            "args": args,
            "id": call_id(str(messages[at].id), len(messages)),
            "type": "tool_call",
        }
        return AIMessage("", tool_calls=[made])  # type: ignore[arg-type]

    return script


def pair(first: str, second: str, returns: Any = str, about: str = "Of an account.", **marks: Any) -> list[BaseTool]:
    """A tool that looks something up, and one that does something, with marks."""

    def look(name: str) -> str:
        return json.dumps({"id": f"id-{name}"})

    def act(id: str) -> str:  # noqa: A002
        return "ok"

    act.__annotations__["return"] = returns
    tools = [tool(first, description="Finds by name.")(look), tool(second, description=about)(act)]
    for field, value in marks.items():
        setattr(tools[1], field, value)
    return tools


def graph_of(memory: ToolMemory, tools: list[BaseTool], model: Any, policy: InertiaPolicy | None, hidden: bool) -> Any:
    """The graph of the README; `hidden`: its tools stand where nobody finds them, and no model is bound to them."""
    node = ToolNode(tools)

    def run_tools(state: MessagesState, run: Any = node.invoke) -> Any:
        return run(state)

    builder = StateGraph(MessagesState)
    builder.add_node("inertia", InertiaShortcut(memory, policy=policy))
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", run_tools if hidden else node)
    builder.add_node("recorder", Recorder(memory))
    builder.add_edge(START, "inertia")
    builder.add_edge("tools", "inertia")
    builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "recorder"})
    return builder.compile(checkpointer=InMemorySaver())


async def made(graph: Any, asynchronous: bool, ask: str = "Please see to", runs: int = RUNS) -> dict[str, int]:
    """Calls made without the model, by tool, over many requests that go the same way."""
    counted: dict[str, int] = {}
    for i in range(runs):
        feed = {"messages": [HumanMessage(f"{ask} Name{i}", id=call_id(ask, i))]}
        state = (
            await graph.ainvoke(feed, thread(f"{ask}{i}")) if asynchronous else graph.invoke(feed, thread(f"{ask}{i}"))
        )
        assert_answered(state["messages"])
        for message in shortcuts(state["messages"]):
            name = message.tool_calls[0]["name"]
            counted[name] = counted.get(name, 0) + 1
    return counted


def memory_with(policy: InertiaPolicy, path: Path | None = None, **options: Any) -> ToolMemory:
    methods = default_methods(Inertia(policy))
    if path is None:
        return ToolMemory.ephemeral(methods=methods, **options)
    return ToolMemory(path, methods=methods, **options)


WAYS = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@WAYS
async def test_a_folder_that_knows_what_destroys_is_believed_without_tools(tmp_path: Path, asynchronous: bool) -> None:
    """The first case: the folder knows ``destructive: True``, the node sees no tools."""
    tools = pair("find_account", "account_action", metadata={"destructive": True})
    with memory_with(FREE, tmp_path, tools=tools):
        pass
    bare = pair("find_account", "account_action")
    model = ScriptedChatModel(script=two_steps("find_account", "account_action"))
    policy = FREE.with_(may_write={"account_action"})
    with memory_with(policy, tmp_path) as memory:
        graph = graph_of(memory, bare, model, None, True)
        counted = await made(graph, asynchronous)
        assert set(counted) == {"find_account"}, "its schema and name are known from the folder"
        why = memory.report()["inertia"]["never_skipped"]["account_action"]
        assert why == "account_action is destructive (it is marked destructive) and not named in allow_destructive"
    both = policy.with_(allow_destructive={"account_action"})
    with memory_with(both, tmp_path) as memory:
        graph = graph_of(memory, bare, model, None, True)
        assert (await made(graph, asynchronous, "Kindly see to"))["account_action"] > 0, "named in both"


@WAYS
@pytest.mark.parametrize("second", ["wipe_account", "read_account", "account_action"])
async def test_what_nobody_ever_described_is_never_called(asynchronous: bool, second: str) -> None:
    """The second case: never told at all. A name is no description."""
    tools = pair("find_account", second)
    with memory_with(FREE) as memory:
        model = ScriptedChatModel(script=two_steps("find_account", second))
        assert await made(graph_of(memory, tools, model, None, True), asynchronous) == {}
        assert memory.report()["inertia"]["read_by_name"] == []
        never = memory.report()["inertia"]["never_skipped"]
        assert set(never) == {"find_account", second}
        assert "nobody described it" in never["find_account"]


@WAYS
@pytest.mark.parametrize("told", [True, False], ids=["tools=", "graph"])
@pytest.mark.parametrize("tag", ["Destructive", "DESTRUCTIVE", "destructive"])
async def test_a_tag_counts_in_any_case(asynchronous: bool, tag: str, told: bool) -> None:
    """The third case, as the memory is told and as the graph alone knows."""
    tools = pair("find_account", "read_account", tags=[tag])
    with memory_with(FREE, tools=tools if told else None) as memory:
        model = ScriptedChatModel(script=two_steps("find_account", "read_account"))
        counted = await made(graph_of(memory, tools, model, None, False), asynchronous)
        assert set(counted) == {"find_account"}


@WAYS
@pytest.mark.parametrize("shell", ["graph", "agent"])
async def test_a_refund_desk_pays_nothing_back_unless_it_is_named(asynchronous: bool, shell: str) -> None:
    tools = pair("find_order", "refund_payment", about="Pays the money back.")

    def app(memory: ToolMemory) -> Any:
        model = ScriptedChatModel(script=two_steps("find_order", "refund_payment"))
        if shell == "graph":
            return graph_of(memory, tools, model, None, False)
        from langchain.agents import create_agent

        return create_agent(model, tools, middleware=tool_memory_middleware(memory), checkpointer=InMemorySaver())

    with memory_with(FREE) as memory:
        graph = app(memory)
        counted = await made(graph, asynchronous, "Give the money back to")
        assert set(counted) == {"find_order"}
        for ask in ("Please never give the money back to", "Should we give the money back to"):
            assert "refund_payment" not in await made(graph, asynchronous, ask, 4)
        assert memory.report()["inertia"]["read_by_name"] == ["find_order"]
    with memory_with(FREE.with_(may_write={"refund_payment"})) as memory:
        assert (await made(app(memory), asynchronous, "Give the money back to"))["refund_payment"] > 0


@pytest.mark.parametrize(
    ("second", "more"),
    [
        ("get_or_create_account", {}),
        ("fetch_account", {"about": "Fetches an account and marks it as seen."}),
        ("transfer_to_bob", {}),
        ("get_next", {"return_direct": True}),
        ("get_route", {"returns": Command}),
        ("get_route", {"returns": "Command[str]"}),
        ("purge_account", {}),
    ],
)
async def test_tools_in_a_graph_that_do_not_only_read(second: str, more: dict[str, Any]) -> None:
    tools = pair("find_account", second, **more)
    with memory_with(FREE) as memory:
        model = ScriptedChatModel(script=two_steps("find_account", second))
        counted = await made(graph_of(memory, tools, model, None, False), False)
        assert set(counted) <= {"find_account"}
        assert second in memory.report()["inertia"]["never_skipped"]


@pytest.mark.parametrize("policy", [FREE, InertiaPolicy.paper(max_share=None, window=1)], ids=["calibrated", "paper"])
async def test_no_policy_calls_what_is_not_named(policy: InertiaPolicy) -> None:
    tools = pair("find_account", "close_account")
    with memory_with(policy, tools=tools) as memory:
        model = ScriptedChatModel(script=two_steps("find_account", "close_account"))
        assert "close_account" not in await made(graph_of(memory, tools, model, policy, False), False)
        named = policy.with_(may_write={"close_account"})
        assert "close_account" in await made(graph_of(memory, tools, model, named, False), False, "Once more see to")


async def test_who_sees_names_trusted_is_told_once_and_can_switch_it_off(caplog: pytest.LogCaptureFixture) -> None:
    tools = pair("find_account", "get_balance")
    model = ScriptedChatModel(script=two_steps("find_account", "get_balance"))
    with memory_with(FREE) as memory:
        graph = graph_of(memory, tools, model, None, False)
        assert set(await made(graph, False)) == {"find_account", "get_balance"}
        report = memory.report()
        assert report["inertia"]["read_by_name"] == ["find_account", "get_balance"]
        assert "trust_names=False" in str(report)
    told = [r for r in caplog.records if r.name == LOGGER]
    assert [r.levelno for r in told] == [logging.WARNING]
    assert "find_account, get_balance" in told[0].getMessage()
    assert "trust_names=False" in told[0].getMessage()

    caplog.clear()
    with memory_with(FREE.with_(trust_names=False)) as memory:
        graph = graph_of(memory, tools, model, None, False)
        assert await made(graph, False) == {}
        assert "names are not trusted" in memory.report()["inertia"]["never_skipped"]["get_balance"]
        asked = [HumanMessage("Please see to Zoe")]
        assert "names are not trusted" in memory.inertia.explain(asked).reason
    assert not [r for r in caplog.records if r.name == LOGGER]


async def test_models_bound_with_dicts_do_not_wash_marks_away(tmp_path: Path) -> None:
    """The dicts of a bound model have a schema and no tags; what the folder says of the tool stays."""
    tools = pair("find_account", "read_account", tags=["destructive"])
    with memory_with(FREE, tmp_path, tools=tools):
        pass
    bare = pair("find_account", "read_account")
    for _ in range(2):
        with memory_with(FREE, tmp_path) as memory:
            model = ScriptedChatModel(script=two_steps("find_account", "read_account")).bind_tools(bare)
            counted = await made(graph_of(memory, bare, model, None, True), False)
            assert set(counted) == {"find_account"}


async def test_the_latest_graph_does_not_hide_what_another_one_said() -> None:
    marked = pair("find_account", "read_account", tags=["destructive"])
    bare = pair("find_account", "read_account")
    with memory_with(FREE) as memory:
        model = ScriptedChatModel(script=two_steps("find_account", "read_account"))
        one, other = (graph_of(memory, tools, model, None, False) for tools in (marked, bare))
        await made(one, False, runs=2)
        assert set(await made(other, False, "Also see to")) == {"find_account"}
