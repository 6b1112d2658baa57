"""Entries need no feedback: unjudged runs are recalled, and observed live or imported they are the same entries."""

from __future__ import annotations

from typing import Any

import histories as h
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.runs.trajectory import parse_run

ASKS = ("send a mail to Ann", "send a mail to Bob", "book a room in Oslo", "yes please", "thanks", "cancel order 7")
TURNS = st.lists(
    st.tuples(st.sampled_from(ASKS), st.lists(st.sampled_from(["mail", "book", "look"]), max_size=2)),
    min_size=1,
    max_size=4,
)


def turn(ask: str, tools: list[str]) -> list[Any]:
    calls = [message for tool in tools for message in h.call(tool, {"what": ask}, f"{tool} done")]
    return h.history(h.user(ask), calls, h.words("Which one?" if ask.startswith("cancel") else "Done."))


def kept(memory: ToolMemory) -> set[Any]:
    assert memory.flush()
    return {
        (each.id, each.query, repr(each.calls), each.score, each.comment, each.user, each.made_by)
        for each in memory.entries.rows.all(memory.core.users.of(None))
    }


@settings(max_examples=15)
@given(TURNS, st.booleans(), st.booleans(), st.sampled_from([None, 0.0, 1.0]))
def test_observed_live_or_imported_the_entries_are_the_same(
    turns: list[tuple[str, list[str]]], watched: bool, each_turn: bool, score: float | None
) -> None:
    parts = [turn(ask, tools) for ask, tools in turns]
    whole = h.history(*parts)
    memories = []
    for way in ("live", "imported"):
        with ToolMemory.ephemeral(methods=[Entries()]) as memory:
            if way == "imported":
                memory.import_runs([(parse_run(whole, thread_id="t"), None, None)])
            else:
                for end in range(1, len(parts) + 1):
                    history = h.history(*parts[:end])
                    if watched:
                        for cut in range(len(h.history(*parts[: end - 1])) + 1, len(history)):
                            memory.observe(history[:cut], thread_id="t")
                    if each_turn or end == len(parts):
                        memory.finish(history, thread_id="t")
            if score is not None:
                memory.feedback("t", score=score, comment="said later")
            memories.append(kept(memory))
    assert memories[0] == memories[1]


def test_a_memory_that_nobody_judges_shows_its_runs_as_unjudged_until_somebody_does() -> None:
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        for name in ("Ann", "Bob", "Cid"):
            memory.finish(turn(f"send a mail to {name}", ["mail"]), thread_id=name)
        memory.flush()
        asked = [h.user("send a mail to Dora")]
        assert [each.entry.score for each in memory.entries.recollect(asked, thread_id="d").entries] == [None]
        memory.feedback("Bob", score=0.0, comment="too late")
        memory.flush()
        first, second = memory.entries.recollect(asked, thread_id="d").entries
        assert (first.entry.failed, first.entry.comment) == (True, "too late")
        assert (second.entry.score, len(second.others)) == (None, 1)
