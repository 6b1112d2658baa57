"""Tools that change something in real apps: nothing is done without the model unless the developer names it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from desk import assert_answered, call_id, shortcuts, thread
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from langgraph_toolmem import Inertia, InertiaPolicy, Prefetch, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition
from langgraph_toolmem.testing import ScriptedChatModel

RUNS = 30
FINDS = {"find_account", "find_order"}
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


def memory_with(policy: InertiaPolicy, path: Path | None = None, reads: Any = FINDS, **options: Any) -> ToolMemory:
    methods, options = default_methods(Inertia(policy)), {"reads": reads, **options}
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
async def test_what_nobody_declared_is_never_called(asynchronous: bool, second: str) -> None:
    """The second case: never told at all. A name is no declaration."""
    tools = pair("find_account", second)
    with memory_with(FREE, reads=()) as memory:
        model = ScriptedChatModel(script=two_steps("find_account", second))
        assert await made(graph_of(memory, tools, model, None, True), asynchronous) == {}
        assert set(memory.report()["inertia"]["never_skipped"]) == {"find_account", second}


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
        assert memory.report()["inertia"]["undeclared"] == ["refund_payment"]
    with memory_with(FREE.with_(may_write={"refund_payment"})) as memory:
        assert (await made(app(memory), asynchronous, "Give the money back to"))["refund_payment"] > 0


@pytest.mark.parametrize(
    ("second", "more"),
    [
        ("get_or_create_account", {}),
        ("transfer_to_bob", {}),
        ("get_next", {"return_direct": True, "tags": ["read_only"]}),
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


async def test_what_is_undeclared_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    tools = pair("find_account", "get_balance")
    with memory_with(FREE, reads=()) as memory:
        model = ScriptedChatModel(script=two_steps("find_account", "get_balance"))
        assert await made(graph_of(memory, tools, model, None, False), False) == {}
        line = '2 tools are never called: undeclared. If they only read: reads={"find_account", "get_balance"}'
        assert line in str(memory.report())
    told = [(r.levelno, r.getMessage()) for r in caplog.records if r.name == LOGGER]
    assert told == [(logging.WARNING, line)]


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


# --- names that mislead ---

MISLEADING = {
    "get_refund": "Get the customer a refund for an order.",
    "fetch_payment": "Captures the authorized payment.",
    "query_payment": "Payment of an order.",
    "check_job": "Retries a failed job.",
    "get_or_create_cart": "The cart of a user.",
    "find_cart": "The cart of a user; makes one if there is none.",
    "read_receipt": "Receipt of a message.",
    "check_in_guest": "Guest of a hotel.",
    "check_out_book": "Book of the library.",
    "list_for_sale": "An item of the shop.",
    "show_door": "Opens the door of the building.",
    "view_once": "Message that is gone once it was seen.",
    "get_rid_of_file": "File of a project.",
    "get_next_ticket": "Takes the next number from the queue.",
    "get_token": "Token of a user; older ones become void.",
    "fetch_and_reset": "Counter of a meter.",
    "read_and_archive": "Mail of the inbox.",
    "search_and_replace": "Text of a page.",
    "count_down": "Starts the countdown of a launch.",
    "compare_and_swap": "Value of a key.",
    "estimate_and_invoice": "Costs of a job.",
    "retrieve_card": "Keeps the card of a customer in the machine.",
    "get_lock": "Lock of a door.",
    "find_seat": "Seat in a train, held for an hour.",
    "preview_campaign": "Mail to all customers.",
    "is_paid": "An order.",
    "has_left": "An employee.",
    "explain_to_customer": "Bill of a customer.",
    "get_session": "Session of a user.",
    "lookup_and_block": "Card of a customer.",
    "describe_to_press": "News of the company.",
    "calculate_bonus": "Bonus of an employee, on the next payroll.",
    "inspect_recall": "Products that come back.",
    "get_well_card": "Card by post for a customer.",
    "detect_and_quarantine": "Files of a machine.",
    "browse_as_user": "Page of a user.",
}
ALIKE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)


def undeclared_world(done: list[str]) -> list[BaseTool]:
    def named(name: str, about: str) -> BaseTool:
        def act(id: str) -> str:  # noqa: A002
            done.append(name)
            return f"{name}: ok"

        return tool(name, description=about)(act)

    return [named(name, about) for name, about in MISLEADING.items()]


def asked_for(name: str, number: int) -> str:
    return f"Now {name.replace('_', ' ')} with number A{number}"


@pytest.mark.parametrize("declared", [False, True], ids=["undeclared", "declared"])
@pytest.mark.parametrize("how", ["shortcut", "prefetch"])
def test_names_that_mislead_lead_to_nothing_unasked(how: str, declared: bool) -> None:
    """A record that is as sure as it gets: each tool was called 12 times of 12. Now the model only talks."""
    from langchain.agents import create_agent

    done: list[str] = []
    tools = undeclared_world(done)
    names = sorted(MISLEADING)
    shortcut = ALIKE if how == "shortcut" else False
    prefetch = Prefetch(min_probability=0.5) if how == "prefetch" else False
    reads = names if declared else ()
    with ToolMemory.ephemeral(reads=reads, methods=[Inertia(ALIKE, background=False)]) as memory:
        for number in range(12):
            for name in names:
                ask = HumanMessage(asked_for(name, number), id=f"{name}-{number}")
                call: Any = {
                    "name": name,
                    "args": {"id": f"A{number}"},
                    "id": f"c-{name}-{number}",
                    "type": "tool_call",
                }
                answer = ToolMessage(f"{name}: ok", tool_call_id=call["id"], name=name)
                memory.finish([ask, AIMessage("", tool_calls=[call]), answer, AIMessage("Done.")], thread_id=ask.id)
        agent = create_agent(
            ScriptedChatModel(script=lambda *_: AIMessage("Let me think.")),
            tools,
            middleware=tool_memory_middleware(memory, shortcut=shortcut, prefetch=prefetch),
            checkpointer=InMemorySaver(),
        )
        for name in names:
            ask = HumanMessage(asked_for(name, 77), id=f"now-{name}")
            agent.invoke({"messages": [ask]}, thread(f"now-{name}"))
    assert len(names) >= 36
    if declared:
        assert len(set(done)) > len(names) / 2, "the record is sure: nothing but the declaration holds it back"
    else:
        assert done == []
