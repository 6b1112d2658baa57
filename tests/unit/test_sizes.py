"""Outputs and values of any size: a stated part is read, and what lies behind it gives no value."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.text import MOST_COMPARED, identity_of
from langgraph_toolmem.graph.cases import replacements
from langgraph_toolmem.graph.provenance import Provenance
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.runs import run, trajectory
from langgraph_toolmem.runs.loops import LoopWatch
from langgraph_toolmem.runs.run import MAX_OPEN, output_of_text
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.runs.values import VALUE_LIMITS, is_unread, readable
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

ROWS = [{"id": f"O-{number}", "note": 'a "quoted", [odd] {text}\\', "n": number} for number in range(9000)]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that are parsed."""
    lengths: list[int] = []
    loads = run.loads

    def counting(text: str) -> Any:
        lengths.append(len(text))
        return loads(text)

    monkeypatch.setattr(run, "loads", counting)
    return lengths


def test_the_complete_values_of_a_long_list_are_read(parsed: list[int]) -> None:
    found = output_of_text(json.dumps(ROWS))
    assert found[:-1] == ROWS[: len(found) - 1]
    assert found[-1].items() <= ROWS[len(found) - 1].items()
    assert 0.9 * VALUE_LIMITS.message < len(json.dumps(found)) <= VALUE_LIMITS.message
    assert max(parsed) <= VALUE_LIMITS.message + MAX_OPEN


def test_the_complete_values_of_a_long_object_are_read() -> None:
    whole = {"total": len(ROWS), "page": {"rows": ROWS}, "after": "unread"}
    found = output_of_text(json.dumps(whole))
    assert found["total"] == len(ROWS)
    assert found["page"]["rows"][:50] == ROWS[:50]
    assert "after" not in found


@pytest.mark.parametrize(
    "text",
    [
        "word " * 100_000,
        "[" * 300_000,
        "[1," * 100_000,
        '{"a":' * 60_000,
        '["' + "a" * 300_000,
        '["' + '\\"' * 150_000,
        "{" + "," * 300_000,
        "]" * 300_000,
        "[" + " " * 300_000 + "]",
    ],
    ids=["words", "open", "deep", "deep objects", "one text", "escapes", "commas", "closed", "spaces"],
)
def test_what_cannot_be_read_as_a_part_of_json_is_text(text: str, parsed: list[int]) -> None:
    found = output_of_text(text)
    if isinstance(found, list):  # as deep as is read
        assert len(json.dumps(found)) < VALUE_LIMITS.message
    else:
        assert found == text[: VALUE_LIMITS.message]
    assert sum(parsed) <= VALUE_LIMITS.message + MAX_OPEN


def test_a_text_of_the_stated_size_is_read_whole() -> None:
    text = json.dumps(["a" * 100, "b" * (VALUE_LIMITS.message - 200), 7])
    assert len(text) < VALUE_LIMITS.message
    assert output_of_text(text)[2] == 7


def test_requests_of_many_equal_signs_are_compared_in_a_stated_part() -> None:
    old, new = ("Look: " + "-" * (5980 + more) + " " + end for more, end in ((0, "Ann"), (1, "Bob")))
    assert replacements(old, new) == ()  # names behind CASE_LIMITS.words


# --- values of calls and messages ---

SIZE = 20_000_000
LONG = "".join(f"word{number} " for number in range(9_973)) * (SIZE // 9 // 9_973)


def nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = {"inner": value, "others": [1]}
    return value


@pytest.mark.parametrize(
    "value",
    [
        LONG,
        list(range(100_000)),
        [LONG],
        nested(LONG, 40),
        nested(1, 5_000),
        {str(n): n for n in range(3_000)},
        1 << 99_999,
    ],
    ids=["text", "list", "text in a list", "text in objects", "depth", "object", "number"],
)
def test_a_short_text_stands_for_an_argument_that_is_too_large_to_read(value: Any) -> None:
    args = {"value": value, "number": 7}
    read = readable(args)
    assert is_unread(read["value"])
    assert len(read["value"]) < 60
    assert read == readable(args)
    assert read["number"] == 7
    assert args["value"] is value


def test_arguments_up_to_the_limits_are_read_as_they_are() -> None:
    args = {
        "text": "x" * (VALUE_LIMITS.message - 100),
        "list": list(range(VALUE_LIMITS.parts - 10)),
        "whole": 10**300,
        "none": None,
    }
    for name, value in args.items():
        assert readable({name: value})[name] is value
    assert readable({str(number): number for number in range(VALUE_LIMITS.parts + 1)}).keys() == {"\ufffc"}
    assert len({readable({"a": LONG + end})["a"] for end in ("", "x", "y", "xy")}) == 4


@pytest.mark.parametrize("where", ["argument", "list", "request", "output", "system", "context", "answer"])
def test_an_agent_with_a_large_value_takes_little_more_than_without_the_memory(where: str) -> None:
    argument = {"argument": LONG[:4_000_000], "list": list(range(20_000))}.get(where, 1)
    asked = LONG if where == "request" else "Store it"

    def store(value: object) -> str:
        """Store a value."""
        return LONG if where == "output" else "ok"

    def script(messages: Any, tools: Any) -> AIMessage:
        if messages[-1].type != "tool":
            return call_tool("store", value=argument)
        return AIMessage(LONG if where == "answer" else "Done.")

    def peak(middleware: list[Any]) -> int:
        agent: Any = create_agent(
            ScriptedChatModel(script=script),
            [store],
            system_prompt=LONG if where == "system" else "Help.",
            context_schema=dict,
            middleware=middleware,
        )
        context = {"document": LONG if where == "context" else "short"}
        tracemalloc.start()
        for thread in "ab":
            how: Any = {"configurable": {"thread_id": thread}}
            agent.invoke({"messages": [("user", asked)]}, how, context=context)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    with ToolMemory.ephemeral() as memory:
        bare = peak([])
        assert peak(tool_memory_middleware(memory)) < bare + 8_000_000
        assert memory.report().turns == 4
        stored = sum(len(str(row)) for row in memory.core.jobs.queue.ask("SELECT * FROM rows"))
        assert stored < 2_000_000


def test_of_many_blocks_the_ends_and_their_number_are_compared() -> None:
    blocks = [{"type": "text", "text": f"{number} {LONG[:20_000]}"} for number in range(1_000)]
    changed = [*blocks[:-1], {"type": "text", "text": "another"}]
    several = [blocks, blocks[1:], blocks[:-1], changed, blocks[:63], blocks[:64], blocks[:65]]
    identities = [identity_of(each) for each in several]
    assert len(set(identities)) == len(several)
    assert max(map(len, identities)) < 70 * 2 * MOST_COMPARED
    assert identity_of(list(blocks)) == identities[0]


def test_steps_read_the_beginning_of_a_thread_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture of 20 MB costs 0.06 s each time; before the first answer no parsed prefix is kept."""
    read: list[Any] = []
    media_of = trajectory.media_of

    def counted(content: Any) -> str:
        read.append(content)
        return media_of(content)

    monkeypatch.setattr(trajectory, "media_of", counted)

    def look(name: str) -> str:
        """Look something up."""
        return name

    def script(messages: Any, tools: Any) -> AIMessage:
        return AIMessage("Done.") if messages[-1].type == "tool" else call_tool("look", name="7")

    with ToolMemory.ephemeral(reads={"look"}) as memory:
        features: Any = dict.fromkeys(("recall", "suggest", "planning", "reflect", "preferences"), True)
        middleware = tool_memory_middleware(memory, outer=[], loop_guard=True, **features)
        agent: Any = create_agent(ScriptedChatModel(script=script), [look], middleware=middleware)
        picture = {"type": "image", "base64": "iVBORw0K", "mime_type": "image/png"}
        asked = [{"type": "text", "text": "Look 7 up"}, picture]
        for thread in "ab":
            read.clear()
            agent.invoke({"messages": [("user", asked)]}, {"configurable": {"thread_id": thread}})
            assert 1 <= len(read) <= 3


def test_a_value_that_is_not_read_is_given_to_no_other_call() -> None:
    def call(tool: str, number: int) -> list[Any]:
        made = {"name": tool, "args": {"value": LONG}, "id": f"c{number}"}
        return [AIMessage("", tool_calls=[made]), ToolMessage("ok", tool_call_id=made["id"])]

    run = parse_run([HumanMessage("Store it"), *call("store", 1), *call("load", 2)], thread_id="t")
    again = parse_run([HumanMessage("Store it"), *call("store", 1), *call("store", 2), *call("store", 3)])
    assert LoopWatch(again).judge("store", {"value": "short"}) == ""
    assert LoopWatch(again).judge("store", {"value": LONG}) == "", "of a large value not all is compared"
    state = RunState.of(run)
    assert len(state.steps) == 2
    assert state.inputs == {}
    value = state.steps[0].args["value"]
    with ToolMemory.ephemeral() as memory:
        provenance = Provenance(memory.core.graph, state, {"load.value"})
        assert provenance.may_use("load", "value", "declared", {})
        assert not provenance.may_use("load", "value", value, {})
