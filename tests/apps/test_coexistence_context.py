"""The memory beside middleware that changes what the model sees: tools chosen, context edited, summarised, redacted."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from agents import WAYS, Agent, asked, both, build_agent, same_calls
from desk import EAGER, NAMES, Desk, assert_answered, call_id, expected, number, script, shortcuts, thread, warm
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    LLMToolSelectorMiddleware,
    ModelRequest,
    PIIDetectionError,
    PIIMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem import Inertia, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")

# --- LLMToolSelectorMiddleware ---


def choose_all(_: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """The selector's model: every tool is relevant."""
    choice = tools[0]["function"]
    names = re.findall(r'"const": "(\w+)"', json.dumps(choice))
    made = {"name": choice["name"], "args": {"tools": names}, "id": "call_0", "type": "tool_call"}
    return AIMessage("", tool_calls=[made])  # type: ignore[list-item]


@pytest.mark.parametrize("way", WAYS)
async def test_the_selectors_model_is_not_asked_either(way: str) -> None:
    selectors = [ScriptedChatModel(script=choose_all) for _ in range(2)]
    made = iter(selectors)
    ours, theirs = both(lambda: [LLMToolSelectorMiddleware(model=next(made))])
    for i in range(3):
        state = await ours.run(i, way)
        await theirs.run(i, way)
        assert len(shortcuts(state["messages"])) == 3
        assert_answered(state["messages"])
    same_calls(ours.desk, theirs.desk)
    assert (ours.model_calls, theirs.model_calls) == (3, 12)
    assert [len(model.calls) for model in selectors] == [3, 12]


class Without(AgentMiddleware[Any, Any, Any]):
    """Takes tools away from the model, as a host does by permission or state."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def _cut(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        tools = [t for t in request.tools if isinstance(t, dict) or t.name not in self.names]
        return request.override(tools=tools)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        return handler(self._cut(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        return await handler(self._cut(request))


def within_reach(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """The desk's script, by a model that gives up where the tool it wants is not offered."""
    answer = script(messages, tools)
    offered = {t["function"]["name"] for t in tools}
    return answer if all(c["name"] in offered for c in answer.tool_calls) else AIMessage("I cannot do that.")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("taken", "left"), [("add_note", 2), ("latest_order", 1), ("find_customer", 0)])
async def test_no_shortcut_to_a_tool_that_the_step_does_not_offer(way: str, taken: str, left: int) -> None:
    desk, plain = Desk(), Desk()
    memory = ToolMemory.ephemeral(tools=desk.tools)
    warm(memory)
    model = ScriptedChatModel(script=within_reach)
    outside = Without(taken)
    ours = build_agent(None, desk, inside=[outside, *tool_memory_middleware(memory, shortcut=EAGER)], model=model)
    theirs = build_agent(None, plain, inside=[Without(taken)], model=ScriptedChatModel(script=within_reach))
    for i in range(2):
        state = await ours.run(i, way)
        await theirs.run(i, way)
        assert [m.tool_calls[0]["name"] for m in shortcuts(state["messages"])] == [n for n, _ in expected("Ann")][:left]
        assert state["messages"][-1].text == "I cannot do that."
    assert desk.done == plain.done == [call for i in range(2) for call in expected(NAMES[i])[:left]]
    outside.names = ()  # the same tool is offered again
    state = await ours.run(2, way)
    assert len(shortcuts(state["messages"])) == 3


# --- ContextEditingMiddleware ---


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["inside", "in front"])
async def test_cleared_tool_results_are_learned_whole(way: str, place: str) -> None:
    def clearing() -> ContextEditingMiddleware:
        return ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1, keep=0)])

    memory = ToolMemory.ephemeral(tools=Desk().tools)
    if place == "inside":
        ours, theirs = both(lambda: [clearing()], memory=memory)
    else:
        ours = build_agent(None, Desk(), inside=[clearing(), *tool_memory_middleware(memory, shortcut=EAGER)])
        theirs = build_agent(None, Desk(), inside=[clearing()])
    for i in range(20):
        state = await ours.run(i, way)
        await theirs.run(i, way)
    same_calls(ours.desk, theirs.desk)
    assert len(shortcuts(state["messages"])) == 3
    seen = [m for call in ours.model.calls for m in call.messages if isinstance(m, ToolMessage)]
    assert {m.text for m in seen} == {"[cleared]"}, "the model saw nothing of the results"
    flows = {(f.source_tool, f.target_tool, f.parameter) for f in memory.view().dataflow if f.hits >= 2}
    assert ("find_customer", "latest_order", "customer_id") in flows
    assert ("latest_order", "add_note", "order_id") in flows


# --- SummarizationMiddleware ---


class Clerk:
    """A model that knows what was done already, whatever became of the messages that told it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.name = ""
        self.begun = 0

    def serve(self, i: int) -> dict[str, Any]:
        self.name = NAMES[i % len(NAMES)]
        self.begun = len(self.desk.done)
        return asked(i)

    def script(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        done = len(self.desk.done) - self.begun
        steps = expected(self.name)
        if done == len(steps):
            return AIMessage(f"The order of {self.name} is checked.")
        wanted, args = steps[done]
        made = {"name": wanted, "args": args, "id": call_id(self.begun, done), "type": "tool_call"}
        return AIMessage("", tool_calls=[made])  # type: ignore[list-item]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("trigger", "keep"), [(4, 1), (5, 2), (9, 4), (16, 10)])
async def test_messages_vanish_and_learning_does_not(way: str, trigger: int, keep: int) -> None:
    """One long thread, summarised again and again: each executed call is learned, and once."""
    agents: list[tuple[Agent, Clerk]] = []
    memory = ToolMemory.ephemeral()
    for mine in (memory, None):
        desk = Desk()
        clerk = Clerk(desk)
        writer = ScriptedChatModel(script=lambda *_: AIMessage("Some orders were checked."))
        inside = [SummarizationMiddleware(writer, trigger=("messages", trigger), keep=("messages", keep))]
        agent = build_agent(mine, desk, inside=inside, model=ScriptedChatModel(script=clerk.script))
        agents.append((agent, clerk))
    requests, skipped = 30, 0
    for i in range(requests):
        for agent, clerk in agents:
            state = await agent.ask(clerk.serve(i), thread("long"), way)
            assert agent.desk.done[clerk.begun :] == expected(clerk.name)
            assert len(state["messages"]) <= trigger + 2, "it was summarised"
        skipped = 4 * (i + 1) - agents[0][0].model_calls
    (ours, _), (theirs, _) = agents
    same_calls(ours.desk, theirs.desk)
    assert theirs.model_calls == 4 * requests
    assert skipped >= requests, "shortcuts went on"
    report = memory.report()
    assert (report.turns, report.skipped) == (4 * requests, skipped)
    assert (report.answers, report.calls) == (requests, 3 * requests - skipped)
    assert {name: counts.ok for name, counts in memory.view().tools.items()} == dict.fromkeys(
        ("find_customer", "latest_order", "add_note"), requests
    )
    assert report.wrong == 0


# --- PIIMiddleware ---

Strategy = Literal["redact", "mask", "hash", "block"]
PRIVATE = "@private.example"


class Post(Desk):
    """A desk whose results and requests hold e-mail addresses."""

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def find_customer(name: str, hint: str) -> str:
            """Find a customer by name."""
            self.did("find_customer", name=name, hint=hint)
            mail = f"{name.lower()}.{number(name)}{PRIVATE}"
            return json.dumps({"customer_id": f"C-{number(name)}", "mail": mail})

        @tool
        def write_to(address: str, about: str) -> str:
            """Write to an address."""
            self.did("write_to", address=address, about=about)
            return f"sent to {address}"

        return [find_customer, write_to]


def postman(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """Looks up who the user names and writes to the address; knows what it reads, and says too much."""
    last = max(i for i, m in enumerate(messages) if isinstance(m, HumanMessage))
    user, answers = messages[last], [m for m in messages[last:] if isinstance(m, ToolMessage)]
    name, hint = user.text.removeprefix("Write to ").split(", known as ")
    own = f"I am clerk.{name}{PRIVATE}"
    if len(answers) == 2:
        return AIMessage(f"{own}, done.")
    if not answers:
        wanted, args = "find_customer", {"name": name, "hint": hint}
    else:
        found = json.loads(answers[0].text)
        wanted, args = "write_to", {"address": found["mail"], "about": found["customer_id"]}
    made = {"name": wanted, "args": args, "id": call_id(user.id, len(messages)), "type": "tool_call"}
    return AIMessage(own, tool_calls=[made])  # type: ignore[list-item]


def guards(strategy: Strategy) -> list[PIIMiddleware[Any, Any]]:
    everywhere = {"apply_to_input": True, "apply_to_output": True, "apply_to_tool_results": True}
    return [PIIMiddleware("email", strategy=strategy, **everywhere)]


def letter(i: int) -> dict[str, Sequence[BaseMessage]]:
    name = NAMES[i % len(NAMES)]
    text = f"Write to {name}, known as {name.lower()}.{i}{PRIVATE}"
    return {"messages": [HumanMessage(text, id=call_id("user", i))]}


def assert_not_on_disk(folder: Path, text: str) -> None:
    files = [file for file in folder.rglob("*") if file.is_file() and file.stat().st_size]
    assert files, "something was written"
    assert not [file.name for file in files if text.encode() in file.read_bytes()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("strategy", ["redact", "mask", "hash"])
async def test_the_memory_never_holds_what_was_redacted(way: str, strategy: Strategy, tmp_path: Path) -> None:
    memory = ToolMemory(tmp_path / "memory", reads={"*"}, methods=default_methods(Inertia(EAGER)))
    model, plain_model = (ScriptedChatModel(script=postman) for _ in range(2))
    ours = build_agent(memory, Post(), inside=guards(strategy), model=model)
    theirs = build_agent(None, Post(), inside=guards(strategy), model=plain_model)
    made = 0
    for i in range(30):
        state = await ours.ask(letter(i), thread(i), way)
        plain = await theirs.ask(letter(i), thread(i), way)
        made += len(shortcuts(state["messages"]))
        assert [m.text for m in state["messages"] if isinstance(m, (HumanMessage, ToolMessage))] == [
            m.text for m in plain["messages"] if isinstance(m, (HumanMessage, ToolMessage))
        ]
        assert PRIVATE not in repr(state["messages"]), "the host redacts"
    same_calls(ours.desk, theirs.desk)
    assert made >= 15
    assert made == memory.report().skipped == 90 - len(model.calls)
    assert PRIVATE not in repr(memory.core.graph.to_state())
    memory.close()
    assert_not_on_disk(tmp_path, PRIVATE)
    with ToolMemory(tmp_path / "memory") as again:
        assert again.report().turns == 90, "what was searched is the memory"


@pytest.mark.parametrize("way", WAYS)
async def test_what_only_the_recorder_could_see_is_not_kept(way: str, tmp_path: Path) -> None:
    """Without shortcuts it is the recorder that learns the turns: it must not keep what comes before redaction."""
    with ToolMemory(tmp_path / "memory") as memory:
        inside = [*guards("redact"), *tool_memory_middleware(memory, shortcut=False)]
        agent = build_agent(None, Post(), inside=inside, model=ScriptedChatModel(script=postman))
        for i in range(6):
            await agent.ask(letter(i), thread(i), way)
        assert memory.report().turns == 18
        assert PRIVATE not in repr(memory.core.graph.to_state())
    assert_not_on_disk(tmp_path, PRIVATE)


@pytest.mark.parametrize("way", WAYS)
async def test_a_blocked_run_is_blocked_as_before(way: str) -> None:
    memory = ToolMemory.ephemeral(methods=default_methods(Inertia(EAGER)))
    agents = [
        build_agent(m, Post(), inside=guards("block"), model=ScriptedChatModel(script=postman)) for m in (memory, None)
    ]
    for agent in agents:
        with pytest.raises(PIIDetectionError):
            await agent.ask(letter(0), thread(0), way)
        assert agent.model_calls == 0
        assert agent.desk.done == []
    assert memory.report().turns == 0
    assert PRIVATE not in repr(memory.core.graph.to_state())


@pytest.mark.parametrize("way", WAYS)
async def test_one_thread_over_many_letters(way: str) -> None:
    """Redaction goes on in a thread where earlier turns are redacted already; nothing is learned anew because of it."""
    memory = ToolMemory.ephemeral(reads={"*"})
    saver = InMemorySaver()
    ours = build_agent(
        memory, Post(), inside=guards("hash"), model=ScriptedChatModel(script=postman), checkpointer=saver
    )
    theirs = build_agent(None, Post(), inside=guards("hash"), model=ScriptedChatModel(script=postman))
    for i in range(20):
        await ours.ask(letter(i), thread("one"), way)
        await theirs.ask(letter(i), thread("one"), way)
    same_calls(ours.desk, theirs.desk)
    report = memory.report()
    assert (report.turns, report.skipped) == (60, 60 - ours.model_calls)
    assert report.skipped > 0
    assert {n: c.calls for n, c in memory.view().tools.items()} == {"find_customer": 20, "write_to": 20}
    assert PRIVATE not in repr(memory.core.graph.to_state())
