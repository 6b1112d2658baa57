"""Which look-ups run ahead, by hand; and what a replay says of it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from histories import call, history, schema, user, words
from langchain_core.messages import AIMessageChunk, ToolCallChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from typer.testing import CliRunner

from langgraph_toolmem import Inertia, Prefetch, ToolMemory
from langgraph_toolmem.cli.app import app
from langgraph_toolmem.graph.events import ToolCount
from langgraph_toolmem.graph.state import WORDS
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.decision import Option
from langgraph_toolmem.inertia.prefetch import AnswerListener, choose, least_probability
from langgraph_toolmem.inertia.speculative import REVIEWED, SERVED, UNCLAIMED, held_back
from langgraph_toolmem.offline.replay import PrefetchTally, replay
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.turn.host import ErrorLog

PREDICTED = (
    Option("find", ({"name": "Ann"},), 0.6, columns=[1.0]),
    Option("send", ({"to": "Ann"},), 0.5, changes=True),
    Option("find", ({"name": "Ann"},), 0.4, columns=[1.0]),
    Option("poll", ({},), 0.3, stale=True),
    Option("open", ({"id": 1}, {"id": 2}), 0.2, columns=[1.0]),
    Option(WORDS, (), 0.15, columns=[1.0]),
    Option("find", ({"name": "Ben"},), 0.05, columns=[1.0]),
)


LOOK = ("look", {"q": "}x"})


def piece(name: str | None, args: str | None, mark: tuple[int | None, str | None]) -> ToolCallChunk:
    return tool_call_chunk(name=name, args=args, index=mark[0], id=mark[1])


@pytest.mark.parametrize(
    ("pieces", "reported"),
    [
        # OpenAI: the name first, the arguments in pieces
        ([piece("look", "", (0, "a")), piece(None, '{"q": "}', (0, None)), piece(None, 'x"}', (0, None))], [LOOK]),
        # no arguments: known once the next call begins
        ([piece("look", "", (0, "a")), piece("look", "", (1, "b"))], [("look", {})]),
        # whole calls without an index
        ([piece("look", "{}", (None, None)), piece("look", "{}", (None, None))], [("look", {}), ("look", {})]),
        # one index for all calls
        ([piece("look", '{"q": "}x"}', (0, "a")), piece("look", "{}", (0, "b"))], [LOOK, ("look", {})]),
        # cut off, no object
        ([piece("look", '{"q": {}', (0, "a")), piece("look", "3", (1, "b")), piece("look", "", (2, "c"))], []),
        # nothing from a changing call on
        ([piece("look", "{}", (0, "a")), piece("send", "{}", (1, "b")), piece("look", "{}", (2, "c"))], [("look", {})]),
    ],
)  # fmt: skip
def test_a_streamed_call_is_reported_once_its_arguments_are_complete(pieces: list[Any], reported: list[Any]):
    found: list[Any] = []
    errors = ErrorLog("test", logging.getLogger("test"))
    listener = AnswerListener(lambda name: name == "send", lambda *call: found.append(call), errors)
    runs = uuid4(), uuid4()
    for each in pieces:
        for run in runs:  # two answers at the same time
            chunk = ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[each]))
            listener.on_llm_new_token("", chunk=chunk, run_id=run)
    assert found == [call for call in reported for _ in runs]


def counted(**counts: float) -> ToolGraph:
    graph = ToolGraph()
    graph.apply(None, [ToolCount("find", counter, amount) for counter, amount in counts.items()])
    return graph


def test_the_likeliest_look_ups_are_chosen_each_once():
    ann, one, two = ("find", '{"name":"Ann"}'), ("open", '{"id":1}'), ("open", '{"id":2}')
    for least, keys in ((0.1, [ann, one, two]), (0.3, [ann])):
        assert [lookup.key for lookup in choose(PREDICTED, least, lambda *_: True)] == keys


def test_what_was_thrown_away_beyond_the_limit_raises_the_least_probability():
    settings = Prefetch(min_probability=0.1, max_wasted=1.5)
    assert least_probability(settings, 0, 0) == 0.1
    assert least_probability(settings, 1000, 1500) == 0.1
    # the account is empty: 1 - p = 1.5 · p, nothing is lost on average
    assert least_probability(settings, 10, 31) == pytest.approx(0.4)
    # (1 - (16 + 15 - 26) / 20) / 2.5
    assert least_probability(settings, 10, 26) == pytest.approx(0.3)
    assert least_probability(settings, 0, 100) == 0.9
    assert least_probability(Prefetch(max_wasted=None), 0, 1000) == 0.08


@pytest.mark.parametrize("limit", [0.5, 1.5])
@pytest.mark.parametrize("true_share", [1.0, 0.8])
def test_the_limit_holds_in_the_long_run(limit: float, true_share: float):
    """Calls of all probabilities, right as often as predicted, or less often."""
    settings, served, wasted = Prefetch(max_wasted=limit), 0.0, 0.0
    for number in range(20_000):
        probability = (number * 0.618) % 1
        if probability >= least_probability(settings, served, wasted):
            hit = (number * 0.414) % 1 < probability * true_share
            served, wasted = served + hit, wasted + (not hit)
    assert served > 1000
    assert wasted <= limit * served + 30


def test_a_tool_that_somebody_stands_before_is_held_back():
    assert not held_back(ToolGraph(), "find")
    assert held_back(counted(**{REVIEWED: 1, SERVED: 1000}), "find", named=True)
    assert held_back(counted(**{UNCLAIMED: 1, SERVED: 19}), "find")
    assert not held_back(counted(**{UNCLAIMED: 1, SERVED: 20}), "find")
    assert not held_back(counted(**{UNCLAIMED: 1}), "find", named=True)


def test_what_was_asked_in_this_episode_or_follows_a_change_may_be_stale():
    tools = [schema("find", "name"), schema("send", "to")]
    with ToolMemory.ephemeral(tools=tools, methods=[Inertia()]) as memory:
        for number in range(6):
            waits = (user("look for x"), call("find", {"name": "x"}), call("find", {"name": "x"}), words(), user("and"))
            done = history(*waits, call("send", {"to": "y"}), call("find", {"name": "x"}), words())
            memory.finish(done, thread_id=str(number))
        begun = history(user("look for x"))
        once = [*begun, *history(call("find", {"name": "x"}))]
        sent = [*begun, *history(call("send", {"to": "y"}))]
        later = [*once, *history(words(), user("look for x"))]

        def stale(messages: list[Any]) -> set[bool]:
            return {each.stale for each in memory.inertia.explain(messages).predicted if each.tool == "find"}

        assert stale(begun) == {False}
        assert stale(once) == {True}
        assert stale(sent) == {True}
        assert stale(later) == {False}


def runs(many: int) -> list[LoggedRun]:
    """Each: a look-up that is always the same, then words; the model takes two seconds for each."""
    messages = history(user("look for x"), call("find", {"name": "x"}), words())
    return [LoggedRun(n, f"r{n}", messages, times=(0.0, 2.0, 2.5, 4.5)) for n in range(many)]


@pytest.mark.parametrize(("tool_seconds", "saved"), [(1.0, 1.0), (3.0, 2.0), (20.0, 0.0)])
def test_a_replay_counts_what_would_have_been_ready_and_the_seconds_saved(tool_seconds: float, saved: float):
    tally = PrefetchTally(tool_seconds=tool_seconds)
    report = replay(runs(30), tools=[schema("find", "name")], reads={"find"}, prefetch=tally)
    assert report.prefetch is tally
    assert tally.reads == 30
    assert tally.seconds == pytest.approx(30 * (2 + tool_seconds + 2))
    assert tally.seconds_saved == pytest.approx(saved * tally.ready)
    if tool_seconds == 20.0:  # given up before it is over
        assert tally.ready == 0
    else:
        assert tally.ready >= 25


def test_the_command_says_it_in_words_and_in_json(tmp_path: Path):
    log, tools = tmp_path / "runs.jsonl", tmp_path / "tools.json"
    lines = [{"id": run.thread_id, "messages": run.messages, "times": run.times} for run in runs(10)]
    log.write_text("\n".join(map(json.dumps, lines)))
    tools.write_text(json.dumps([schema("find", "name")]))
    arguments = ["replay", str(log), "--tools", str(tools), "--prefetch", "--tool-seconds", "0.5", "--reads", "find"]
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["prefetch"]
    assert found["reads"] == 10
    assert found["ready"] >= 6
    assert found["seconds_saved"] == pytest.approx(found["ready"] * 0.5)
    assert "of 10 look-ups" in CliRunner().invoke(app, arguments).stdout
    assert "prefetch" not in json.loads(CliRunner().invoke(app, [*arguments[:4], "--json"]).stdout)
