"""Tools that change something in real apps: nothing is done without the model unless the developer names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import histories as h
import pytest
from desk import assert_answered, build, call_id, calling, shortcuts, thread
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from shells import agent_of
from trained import trained

from langgraph_toolmem import Inertia, InertiaPolicy, Prefetch, ToolMemory
from langgraph_toolmem.testing import ScriptedChatModel

RUNS = 30
FINDS = {"find_account", "find_order"}
FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)


def two_steps(first: str, second: str) -> Callable[..., AIMessage]:
    """A model that looks a name up and then does something with the id it found."""

    def script(messages: list[BaseMessage], tools: Any) -> AIMessage:
        at = max(i for i, m in enumerate(messages) if isinstance(m, HumanMessage))
        name, answers = str(messages[at].content).split()[-1], messages[at + 2 :: 2]
        if len(answers) == 2:
            return AIMessage("Done.")
        args = {"name": name} if not answers else {"id": json.loads(str(answers[0].content))["id"]}
        return calling(second if answers else first, args, str(messages[at].id), len(messages))

    return script


def pair(first: str, second: str, about: str = "Of an account.") -> list[BaseTool]:
    """A tool that looks something up, and one that does something."""

    def look(name: str) -> str:
        return json.dumps({"id": f"id-{name}"})

    def act(id: str) -> str:  # noqa: A002
        return "ok"

    return [tool(first, description="Finds by name.")(look), tool(second, description=about)(act)]


def graph_of(memory: ToolMemory, tools: list[BaseTool], model: Any, policy: InertiaPolicy | None = None) -> Any:
    return build(memory, tools, model, policy=policy, checkpointer=InMemorySaver())[0]


def made(graph: Any, ask: str = "Please see to", runs: int = RUNS) -> dict[str, int]:
    """Calls made without the model, by tool, over many requests that go the same way."""
    counted: dict[str, int] = {}
    for i in range(runs):
        feed = {"messages": [HumanMessage(f"{ask} Name{i}", id=call_id(ask, i))]}
        state = graph.invoke(feed, thread(f"{ask}{i}"))
        assert_answered(state["messages"])
        for message in shortcuts(state["messages"]):
            name = message.tool_calls[0]["name"]
            counted[name] = counted.get(name, 0) + 1
    return counted


def memory_with(policy: InertiaPolicy, path: Path | None = None, reads: Any = FINDS, **options: Any) -> ToolMemory:
    methods, options = [Inertia(policy)], {"reads": reads, **options}
    if path is None:
        return ToolMemory.ephemeral(methods=methods, **options)
    return ToolMemory(path, methods=methods, **options)


def test_a_folder_that_knows_what_destroys_is_believed(tmp_path: Path) -> None:
    """The folder knows ``destructive: True``, the tools of this process do not say it."""
    bare, marked = pair("find_account", "account_action"), pair("find_account", "account_action")
    marked[1].metadata = {"destructive": True}
    with memory_with(FREE, tmp_path, tools=marked):
        pass
    model = ScriptedChatModel(script=two_steps("find_account", "account_action"))
    policy = FREE.with_(may_write={"account_action"})
    with memory_with(policy, tmp_path) as memory:
        graph = graph_of(memory, bare, model)
        counted = made(graph)
        assert set(counted) == {"find_account"}, "its schema and name are known from the folder"
        assert "allow_destructive" in memory.report()["inertia"]["never_skipped"]["account_action"]
    both = policy.with_(allow_destructive={"account_action"})
    with memory_with(both, tmp_path) as memory:
        graph = graph_of(memory, bare, model)
        assert (made(graph, "Kindly see to"))["account_action"] > 0, "named in both"


@pytest.mark.parametrize("shell", ["graph", "agent"])
def test_a_refund_desk_pays_nothing_back_unless_it_is_named(shell: str) -> None:
    tools = pair("find_order", "refund_payment", about="Pays the money back.")

    def app(memory: ToolMemory) -> Any:
        model = ScriptedChatModel(script=two_steps("find_order", "refund_payment"))
        if shell == "graph":
            return graph_of(memory, tools, model)
        return agent_of(memory, SimpleNamespace(tools=tools), model, shortcut=True).graph

    with memory_with(FREE) as memory:
        graph = app(memory)
        counted = made(graph, "Give the money back to")
        assert set(counted) == {"find_order"}
        for ask in ("Please never give the money back to", "Should we give the money back to"):
            assert "refund_payment" not in made(graph, ask, 4)
        assert memory.report()["inertia"]["undeclared"] == ["refund_payment"]
    with memory_with(FREE.with_(may_write={"refund_payment"})) as memory:
        assert (made(app(memory), "Give the money back to"))["refund_payment"] > 0


# --- names that mislead ---

MISLEADING = {
    "get_refund": "Get the customer a refund for an order.",
    "check_job": "Retries a failed job.",
    "read_receipt": "Receipt of a message.",
    "list_for_sale": "An item of the shop.",
    "get_rid_of_file": "File of a project.",
    "fetch_and_reset": "Counter of a meter.",
    "count_down": "Starts the countdown of a launch.",
    "retrieve_card": "Keeps the card of a customer in the machine.",
    "preview_campaign": "Mail to all customers.",
    "explain_to_customer": "Bill of a customer.",
    "describe_to_press": "News of the company.",
    "get_well_card": "Card by post for a customer.",
}


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
async def test_names_that_mislead_lead_to_nothing_unasked(how: str, declared: bool) -> None:
    """A record that is as sure as it gets: each tool was called 12 times of 12. Now the model only talks."""
    done: list[str] = []
    desk = SimpleNamespace(tools=undeclared_world(done))
    names = sorted(MISLEADING)
    shortcut = FREE if how == "shortcut" else False
    prefetch = Prefetch(min_probability=0.5) if how == "prefetch" else False
    reads = names if declared else ()

    def teach(memory: ToolMemory) -> None:
        for number in range(12):
            for name in names:
                called = h.call(name, {"id": f"A{number}"}, f"{name}: ok")
                run = h.history(h.user(asked_for(name, number)), called, h.words())
                memory.finish(run, thread_id=f"{name}-{number}")

    def make(folder: Path) -> ToolMemory:
        return ToolMemory(folder, reads=reads, methods=[Inertia(FREE)])

    with trained(("misleading names", declared), make, teach) as memory:
        app = agent_of(memory, desk, lambda *_: AIMessage("Let me think."), shortcut=shortcut, prefetch=prefetch)
        for name in names:
            await app.ask(asked_for(name, 77), thread=f"now-{name}")
    if declared:
        assert len(set(done)) > len(names) / 2, "the record is sure: nothing but the declaration holds it back"
    else:
        assert done == []


def test_the_papers_policy_too_calls_nothing_that_is_not_named() -> None:
    tools, policy = pair("find_account", "close_account"), InertiaPolicy.paper(max_share=None, window=1)
    with memory_with(policy, tools=tools) as memory:
        model = ScriptedChatModel(script=two_steps("find_account", "close_account"))
        assert "close_account" not in made(graph_of(memory, tools, model, policy))
        named = policy.with_(may_write={"close_account"})
        assert "close_account" in made(graph_of(memory, tools, model, named), "Once more see to")


@pytest.mark.parametrize("shell", ["graph", "agent"])
def test_an_undeclared_tool_gets_no_permission_from_another_agents_tool_of_its_name(shell: str) -> None:
    closed: list[str] = []

    def acts(account_id: str) -> str:
        closed.append(account_id)
        return "closed"

    shows = tool("account_action", description="Show an account.")(lambda account_id: "shown")
    shows.tags = ["read_only"]
    closes = tool("account_action", description="Close an account for good.")(acts)

    def looks(messages: list[BaseMessage], _: Any) -> AIMessage:
        if not isinstance(messages[-1], HumanMessage):
            return AIMessage("Done.")
        return calling("account_action", {"account_id": messages[-1].text.split()[-1]}, str(messages[-1].id), 1)

    with memory_with(FREE, reads=()) as memory:

        def app(offered: BaseTool, script: Any) -> Any:
            model = ScriptedChatModel(script=script)
            if shell == "graph":
                return graph_of(memory, [offered], model)
            return agent_of(memory, SimpleNamespace(tools=[offered]), model, shortcut=True).graph

        shown = app(shows, looks)
        careful = app(closes, lambda messages, _: AIMessage("Do you really want that?"))
        assert made(shown, "Look at the account") != {}
        assert made(careful, "Look at the account of", 20) == {}
        assert closed == []
        assert made(shown, "Look at the account", 5) != {}, "its own permission stands"
