"""The memory in the shapes that agents come in: to-do lists, structured answers, two agents, subgraphs, streams."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from agents import WAYS, Agent, asked, both, build_agent, same_calls
from desk import (
    EAGER,
    NAMES,
    WARM_RUNS,
    Desk,
    assert_answered,
    call_id,
    expected,
    number,
    request,
    script,
    shortcuts,
    this_turn,
    thread,
    warm,
)
from langchain.agents.middleware import TodoListMiddleware
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import BaseModel

from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")

SHADOW = InertiaPolicy(shadow=True)


def calls_in(state: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every tool call in a history, whoever made it."""
    return [(c["name"], c["args"]) for m in state["messages"] if isinstance(m, AIMessage) for c in m.tool_calls]


def call(name: str, args: dict[str, Any], *parts: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": call_id(name, *parts), "type": "tool_call"}])


# --- TodoListMiddleware ---


def planner(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """Writes a to-do list, does the three things, ticks them off."""
    user, answers = this_turn(messages)
    steps = expected(user.text.split(" order of ")[1].split()[0])
    if len(answers) in (0, 4):
        status = "completed" if answers else "pending"
        todos = [{"content": name, "status": status} for name, _ in steps]
        return call("write_todos", {"todos": todos}, user.id, len(messages))
    return call(*steps[len(answers) - 1], user.id, len(messages)) if len(answers) < 4 else AIMessage("All done.")


@pytest.mark.parametrize("way", WAYS)
async def test_todo_lists(way: str) -> None:
    memory, policy = ToolMemory.ephemeral(), EAGER.with_(may_write={"write_todos"})
    todos = lambda: [TodoListMiddleware()]  # noqa: E731
    ours, theirs = both(todos, memory=memory, policy=policy, model=lambda: ScriptedChatModel(script=planner))
    made: Counter[str] = Counter()
    for i in range(18):
        state, plain = await ours.run(i, way), await theirs.run(i, way)
        assert calls_in(state) == calls_in(plain)
        assert state["todos"] == plain["todos"]
        assert state["todos"][0] == {"content": "find_customer", "status": "completed"}
        assert_answered(state["messages"])
        made.update(m.tool_calls[0]["name"] for m in shortcuts(state["messages"]))
    same_calls(ours.desk, theirs.desk)
    assert made["add_note"] > 0
    assert made["write_todos"] == 0, "a tool that returns a Command steers the run, also if it is named"
    assert memory.report().skipped == sum(made.values()) == 18 * 6 - ours.model_calls


# --- structured output ---


class Verdict(BaseModel):
    """What came of it."""

    name: str
    checked: bool


def judge(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """The desk's script with a structured answer: through its tool if there is one, else as JSON text."""
    answer = script(messages, tools)
    if answer.tool_calls:
        return answer
    user, _ = this_turn(messages)
    verdict = {"name": user.text.split(" order of ")[1].split()[0], "checked": True}
    if any(t["function"]["name"] == "Verdict" for t in tools):
        return call("Verdict", verdict, user.id, len(messages))
    return AIMessage(json.dumps(verdict))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy])
async def test_structured_answers(way: str, strategy: Any) -> None:
    memory = ToolMemory.ephemeral()
    options = {"model": lambda: ScriptedChatModel(script=judge), "response_format": strategy(Verdict)}
    ours, theirs = both(memory=memory, **options)
    made: Counter[str] = Counter()
    for i in range(20):
        state, plain = await ours.run(i, way), await theirs.run(i, way)
        assert state["structured_response"] == plain["structured_response"] == Verdict(name=NAMES[i % 12], checked=True)
        assert calls_in(state) == calls_in(plain)
        assert_answered(state["messages"])
        made.update(m.tool_calls[0]["name"] for m in shortcuts(state["messages"]))
    same_calls(ours.desk, theirs.desk)
    assert set(made) == {"find_customer", "latest_order", "add_note"}
    assert theirs.model_calls == 80
    assert ours.model_calls == 80 - sum(made.values())


@pytest.mark.parametrize("way", WAYS)
async def test_a_structured_answer_is_not_left_over_in_the_next_turn(way: str) -> None:
    memory = ToolMemory.ephemeral()
    options = {"model": lambda: ScriptedChatModel(script=judge), "response_format": ToolStrategy(Verdict)}
    ours, theirs = both(memory=memory, **options)
    for i in range(20):
        state = await ours.run(i, way, config=thread("one"))
        await theirs.run(i, way, config=thread("one"))
        assert state["structured_response"].name == NAMES[i % 12]
    same_calls(ours.desk, theirs.desk)
    assert len(shortcuts(state["messages"])) == 80 - ours.model_calls > 0


# --- two agents, one memory ---


class Warehouse(Desk):
    """Tools of another agent; one is called like one of the desk's and takes something else."""

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def find_customer(number_: int) -> str:
            """Find a customer by number."""
            self.did("find_customer", number_=number_)
            return json.dumps({"shelf": number_ % 97})

        @tool
        def count_shelf(shelf: int) -> str:
            """Count what is on a shelf."""
            self.did("count_shelf", shelf=shelf)
            return json.dumps({"left": shelf % 7})

        find_customer.tags = count_shelf.tags = ["read_only"]
        return [find_customer, count_shelf]


def storeman(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    user, answers = this_turn(messages)
    which = number(user.text.split(" order of ")[1].split()[0])
    steps = [("find_customer", {"number_": which}), ("count_shelf", {"shelf": which % 97})]
    return call(*steps[len(answers)], user.id, len(messages)) if len(answers) < 2 else AIMessage("Counted.")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("declared", [True, False])
async def test_two_agents_share_one_memory(way: str, declared: bool) -> None:
    memory = ToolMemory.ephemeral(tools=Desk().tools if declared else None)
    desk_model, store_model = ScriptedChatModel(script=script), ScriptedChatModel(script=storeman)
    pairs = [
        (build_agent(memory, Desk(), model=desk_model), build_agent(None, Desk())),
        (
            build_agent(memory, Warehouse(), model=store_model),
            build_agent(None, Warehouse(), model=ScriptedChatModel(script=storeman)),
        ),
    ]
    made: list[Counter[str]] = [Counter(), Counter()]
    for i in range(30):
        for which, (ours, theirs) in enumerate(pairs):
            config = thread(f"{which}-{i}")
            state = await ours.ask(asked(100 * which + i), config, way)
            plain = await theirs.ask(asked(100 * which + i), config, way)
            assert calls_in(state) == calls_in(plain)
            made[which].update(m.tool_calls[0]["name"] for m in shortcuts(state["messages"]))
    for ours, theirs in pairs:
        same_calls(ours.desk, theirs.desk)
    assert made[0]["add_note"] >= 5
    assert made[1]["count_shelf"] >= 5, "each agent has its own tools at hand"
    assert set(made[1]) <= {"find_customer", "count_shelf"}
    report = memory.report()
    assert report.skipped == made[0].total() + made[1].total()
    assert report.turns == 30 * 4 + 30 * 3
    assert report.skipped_failed == 0


# --- an agent inside a graph ---


def as_node(agent: Agent) -> Any:
    """A graph whose only node is the agent; they share the thread."""
    builder = StateGraph(MessagesState)
    builder.add_node("clerk", agent.graph)
    builder.add_edge(START, "clerk")
    builder.add_edge("clerk", END)
    return builder.compile(checkpointer=InMemorySaver())


def called_by_a_node(agent: Agent) -> Any:
    """A graph whose node calls the agent in a thread of its own."""

    def inner(config: RunnableConfig) -> dict[str, Any]:
        return thread("clerk of " + config["configurable"]["thread_id"])

    def ask(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": agent.graph.invoke({"messages": state["messages"][-1:]}, inner(config))["messages"]}

    async def aask(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        found = await agent.graph.ainvoke({"messages": state["messages"][-1:]}, inner(config))
        return {"messages": found["messages"]}

    builder = StateGraph(MessagesState)
    builder.add_node("clerk", RunnableLambda(ask, aask))
    builder.add_edge(START, "clerk")
    builder.add_edge("clerk", END)
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("place", "own"), [(as_node, None), (as_node, True), (called_by_a_node, InMemorySaver)])
async def test_an_agent_as_a_subgraph(way: str, place: Any, own: Any) -> None:
    memory = ToolMemory.ephemeral()
    agents = []
    for mine in (memory, None):
        agent = build_agent(mine, Desk(), checkpointer=own() if callable(own) else own)
        agents.append((agent, place(agent)))
    for i in range(20):
        for _, graph in agents:
            config = thread(f"thread-{i % 5}")  # four turns in each thread
            state = await graph.ainvoke(asked(i), config) if way == "async" else graph.invoke(asked(i), config)
            assert_answered(state["messages"])
            assert len([m for m in state["messages"] if isinstance(m, HumanMessage)]) == i // 5 + 1
    (ours, _), (theirs, _) = agents
    same_calls(ours.desk, theirs.desk)
    report = memory.report()
    assert (report.turns, report.skipped) == (80, 80 - ours.model_calls)
    assert report.skipped > 0
    assert {n: c.calls for n, c in memory.view().tools.items()} == dict.fromkeys(memory.view().tools, 20)


# --- many at once ---


@pytest.mark.parametrize("way", WAYS)
async def test_runs_at_the_same_time(way: str) -> None:
    """Each run does its own calls in order, and each is learned once."""
    memory = ToolMemory.ephemeral()
    warm(memory)
    ours, theirs = both(memory=memory)
    before = memory.report()
    if way == "async":
        states = await asyncio.gather(*(ours.run(i) for i in range(24)))
    else:
        with ThreadPoolExecutor(6) as pool:
            states = list(pool.map(lambda i: ours.graph.invoke(asked(i), thread(f"thread-{i}")), range(24)))
    for i in range(24):
        await theirs.run(i, way)
    same_calls(ours.desk, theirs.desk, ordered=False)
    for i, state in enumerate(states):
        assert calls_in(state) == expected(NAMES[i % 12])
        assert_answered(state["messages"])
    made = sum(len(shortcuts(state["messages"])) for state in states)
    after = memory.report()
    assert made == after.skipped == 96 - ours.model_calls >= 48
    assert after.turns - before.turns == 96
    assert after.answers - before.answers == 24
    assert {n: c.calls for n, c in memory.view().tools.items()} == dict.fromkeys(memory.view().tools, 24 + WARM_RUNS)


# --- streams ---


async def streamed(agent: Agent, way: str, mode: Any, i: int) -> list[Any]:
    config = thread(f"streamed-{i}")
    if way == "sync":
        return list(agent.graph.stream(asked(i), config, stream_mode=mode))
    return [part async for part in agent.graph.astream(asked(i), config, stream_mode=mode)]


@pytest.mark.parametrize("way", WAYS)
async def test_streams(way: str) -> None:
    ours, theirs = both()
    parts = {
        mode: await streamed(ours, way, mode, i) for i, mode in enumerate(("values", "updates", "messages", "custom"))
    }
    for i in range(4):
        await streamed(theirs, way, "values", i)
    same_calls(ours.desk, theirs.desk)
    assert ours.model_calls == 4

    assert len(shortcuts(parts["values"][-1]["messages"])) == 3
    steps = [next(iter(update)) for update in parts["updates"]]
    assert steps == ["model", "tools"] * 3 + ["model"]
    updates = [m for update in parts["updates"] for m in next(iter(update.values()))["messages"]]
    assert len(shortcuts(updates)) == 3

    marked = [(m, meta) for m, meta in parts["messages"] if "toolmem" in m.additional_kwargs]
    assert [m.tool_calls[0]["name"] for m, _ in marked] == [name for name, _ in expected("Cleo")]
    assert {meta["langgraph_node"] for _, meta in marked} == {"model"}
    spoken = [m.text for m, _ in parts["messages"] if isinstance(m, AIMessage)]
    assert "".join(spoken) == "The order of Cleo is checked."

    events = [event["toolmem"] for event in parts["custom"]]
    decisions = [e["decision"] for e in events if e["node"] == "inertia"]
    assert decisions == ["shortcut"] * 3 + ["ask_model"]
    assert [e["learned_turns"] for e in events if e["node"] == "recorder"] == [1]
    json.dumps(parts["custom"])


# --- turns and forks of one thread ---


@pytest.mark.parametrize("way", WAYS)
async def test_several_turns_in_one_thread(way: str) -> None:
    memory = ToolMemory.ephemeral()
    ours, theirs = both(memory=memory)
    for i in range(20):
        state = await ours.run(i, way, config=thread("one"))
        await theirs.run(i, way, config=thread("one"))
    assert_answered(state["messages"])
    same_calls(ours.desk, theirs.desk)
    made = len(shortcuts(state["messages"]))
    report = memory.report()
    assert made == report.skipped == 80 - ours.model_calls > 10
    assert (report.turns, report.answers) == (80, 20)
    assert {n: c.calls for n, c in memory.view().tools.items()} == dict.fromkeys(memory.view().tools, 20)


def counted(memory: ToolMemory) -> tuple[Any, ...]:
    report = memory.report()
    tools = {name: counts.calls for name, counts in memory.view().tools.items()}
    edges = [(e.source, e.target, e.ok, e.failed) for e in memory.view().edges]
    return report.turns, report.calls, report.answers, report.skipped, tools, edges


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", range(7))
async def test_a_fork_that_does_the_same_teaches_nothing(way: str, step: int) -> None:
    """The model is asked again from an old checkpoint and says the same: nothing of it is new."""
    memory = ToolMemory.ephemeral()
    agent = build_agent(memory, Desk(), policy=SHADOW)
    await agent.run(0, way)
    before = counted(memory)
    assert before[:4] == (4, 3, 1, 0)
    past = [s for s in agent.graph.get_state_history(thread("thread-0")) if s.next in (("model",), ("tools",))]
    assert [s.next[0] for s in past] == ["model", "tools", "model", "tools", "model", "tools", "model"]
    asked_before = agent.model_calls
    state = await agent.ask(None, past[step].config, way)
    assert agent.model_calls == asked_before + step // 2 + 1
    assert calls_in(state) == expected("Ann")
    assert counted(memory) == before


@pytest.mark.parametrize("way", WAYS)
async def test_a_fork_before_a_shortcuts_call_does_it_again_and_counts_it_once(way: str) -> None:
    ours, _ = both()
    memory = ours.memory
    assert memory is not None
    await ours.run(0, way)
    before = counted(memory)
    last = next(s for s in ours.graph.get_state_history(thread("thread-0")) if s.next == ("tools",))
    assert len(shortcuts(last.values["messages"])) == 3
    state = await ours.ask(None, last.config, way)
    assert ours.desk.done == [*expected("Ann"), expected("Ann")[-1]]
    assert_answered(state["messages"])
    assert counted(memory) == before


@pytest.mark.parametrize("way", WAYS)
async def test_a_fork_with_another_question_is_a_run_of_its_own(way: str) -> None:
    memory = ToolMemory.ephemeral()
    agent = build_agent(memory, Desk(), policy=SHADOW)
    await agent.run(0, way)
    first = [s for s in agent.graph.get_state_history(thread("thread-0")) if s.next == ("model",)][-1]
    edited = HumanMessage(request("Ben"), id=first.values["messages"][0].id)
    config = agent.graph.update_state(first.config, {"messages": [edited]})
    state = await agent.ask(None, config, way)
    assert calls_in(state) == expected("Ben")
    assert counted(memory)[:4] == (8, 6, 2, 0)
