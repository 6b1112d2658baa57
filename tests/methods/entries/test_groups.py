"""Runs that say the same are shown as one."""

from __future__ import annotations

from typing import Any

import histories as h
import pytest

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.entries.entry import Entry, EntryCall
from langgraph_toolmem.entries.recall import RecalledEntry, grouped

ADDRESS, EVENING = "not the old address but the new one", "far too late in the evening"


def run(key: str, score: float | None = 0.0, tool: str = "send", **said: Any) -> Entry:
    return Entry(key, key, "send the report", (EntryCall(tool, {}, "ok"),), score=score, **said)


@pytest.mark.parametrize(
    ("entries", "groups"),
    [
        ([run("a"), run("b"), run("c")], [["a", "b", "c"]]),
        ([run("a", 1.0), run("b", 1.0), run("c", 0.0)], [["a", "b"], ["c"]]),
        ([run("a", None), run("b", None), run("c", None, comment=EVENING)], [["c", "a", "b"]]),
        ([run("a"), run("b", tool="other")], [["a"], ["b"]]),
        ([run("a"), run("b", user="ann")], [["a"], ["b"]]),
        ([run("a", comment=ADDRESS), run("b", comment=EVENING), run("c", comment=ADDRESS)], [["a", "c"], ["b"]]),
        ([run("a", critique=ADDRESS), run("b", critique=EVENING)], [["a"], ["b"]]),
        ([run("a"), run("b", comment="late"), run("c", critique=ADDRESS)], [["c", "a", "b"]]),
        ([run("a"), run("b", comment=ADDRESS), run("c", comment=EVENING)], [["b", "a"], ["c"]]),
    ],
)
def test_which_runs_say_the_same_and_which_stands_for_them(entries: list[Entry], groups: list[list[str]]) -> None:
    found = [RecalledEntry(entry, 1 - place / 10, "") for place, entry in enumerate(entries)]
    assert [[each.entry.id, *(other.id for other in each.others)] for each in grouped(found)] == groups
    assert [each.score for each in grouped(found)] == sorted((each.score for each in grouped(found)), reverse=True)


def test_eight_equal_mistakes_are_one_line_and_all_are_booked() -> None:
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        for name in ("Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gita", "Hugo"):
            mail = h.history(h.user(f"send the report to {name}"), h.call("send", {"to": name}), h.words())
            memory.finish(mail, thread_id=name, success=False)
        assert memory.flush()
        found = memory.entries.recollect(h.history(h.user("send the report to Zoe")), thread_id="z", budget=300)
        [each] = found.entries
        assert len(each.others) == 7
        kept = memory.entries.recall("send the report to Zoe")
        assert [entry.recalled for entry in kept] == [1] * 8
