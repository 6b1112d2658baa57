"""An entry: made of a run, joined with reports of it, stored, retired, and who leaves first."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from histories import FAILED, Message, call, calls, user, words
from langchain_core.embeddings import Embeddings

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries.entry import (
    ENTRY_LIMITS,
    JUDGED_PART,
    UNJUDGED_PART,
    Entry,
    EntryCall,
    EntryKind,
    entry_id,
    entry_of,
    hurts,
)
from langgraph_toolmem.runs.trajectory import parse_run

RUN = digest("run", "r1")


def made(messages: list[Message], **options: Any) -> Entry | None:
    options.setdefault("now", 5.0)
    return entry_of(parse_run(messages, thread_id="r1"), run_digest=RUN, **options)


def good(messages: list[Message], **options: Any) -> Entry:
    entry = made(messages, **options)
    assert entry is not None
    return entry


def test_an_entry_has_the_words_the_calls_and_the_verdict() -> None:
    entry = good(
        [
            user("Find Ann"),
            *calls([("find", {"name": "Ann"}, {"id": 7}), ("mail", {"to": "Ann", "n": 2}, FAILED)]),
            words("She has no mail. Which other way do you want?"),
            user("Then call her"),
            *call("phone", {"id": 7}),
            words(),
        ],
        user="u",
        score=0.25,
        comment="  too slow ",
    )
    assert entry == Entry(
        id=entry_id(RUN),
        run=RUN,
        query="Find Ann\nThen call her",
        calls=(
            EntryCall("find", {"name": "Ann"}, "ok", '{"id": 7}'),
            EntryCall("mail", {"to": "Ann", "n": 2}, "failed", "it failed"),
            EntryCall("phone", {"id": 7}, "ok", "ok"),
        ),
        user="u",
        time=5.0,
        score=0.25,
        comment="too slow",
    )
    assert (entry.failed, entry.good, entry.wants_critique) == (True, False, True)
    assert entry.tools == ("find", "mail", "phone")
    assert good([user("Hello"), words("Hi.")]).calls == ()
    assert made(call("find", {"name": "Ann"})) is made([user("  "), *call("find")]) is None, "nobody asked"


def test_everything_is_bounded_and_says_so() -> None:
    long = "x" * 50_000
    entry = good(
        [user(long), *[m for n in range(60) for m in call(f"t{n}", {"text": long, "n": n}, long)], words()],
        comment=long,
        score=0.0,
    )
    assert len(entry.query) == ENTRY_LIMITS.query
    assert "cut from 50000 characters" in entry.query
    assert [len(each.answer) for each in entry.calls] == [ENTRY_LIMITS.answer] * ENTRY_LIMITS.calls
    assert all(len(json.dumps(each.args)) < ENTRY_LIMITS.args for each in entry.calls)
    assert [each.args["n"] for each in entry.calls] == [*range(20), *range(40, 60)]
    [only] = good([user("Go"), *call("t", {f"k{n}": "v" * 30 for n in range(500)})]).calls
    assert only.args == {f"k{n}": "v" * 30 for n in range(10)}
    assert entry.left_out == 20
    assert len(entry.comment) == ENTRY_LIMITS.comment


def test_arguments_that_are_no_json_values_are_kept_as_text() -> None:
    run = parse_run([user("Go"), *call("t", {"a": 1})], thread_id="r1")
    turn = run.events[1]
    odd = replace(turn.steps[0], args={"a": {1, 2}, "b": float("nan"), "c\ud800": "\udfff"})
    events = (run.events[0], replace(turn, steps=(odd,)), *run.events[2:])
    entry = entry_of(replace(run, events=events), run_digest=RUN, now=5.0)
    assert entry is not None
    [only] = entry.calls
    json.dumps(only.args).encode()
    assert only.args["a"] == "{1, 2}"
    assert set(only.args) == {"a", "b", "c?"}


def test_an_entry_survives_json() -> None:
    entry = good([user("Find Ann"), *call("find", {"name": "Ann", "deep": {"a": [1, None]}}), words()], score=1.0)
    assert Entry.from_dict(json.loads(json.dumps(entry.to_dict()))) == entry
    assert Entry.from_dict({**entry.to_dict(), "from_the_future": 1}) == entry
    for broken in ({}, {**entry.to_dict(), "calls": [3]}, {**entry.to_dict(), "calls": None}):
        with pytest.raises(InputError, match="no entry"):
            Entry.from_dict(broken)


BASE = Entry(entry_id(RUN), RUN, "q", (EntryCall("a", {}, "ok"),), user="u", time=1.0)
RATED = BASE.with_feedback(0.0, " bad \ud800")
CRITICISED = replace(RATED, critique="c", blamed="a")


def test_a_report_without_feedback_leaves_the_feedback_and_its_critique() -> None:
    longer = replace(BASE, calls=(*BASE.calls, EntryCall("b", {}, "ok")), time=9.0, user="")
    both = CRITICISED.joined(longer)
    assert both == both.joined(longer) == replace(CRITICISED, calls=longer.calls, time=9.0)
    assert (RATED.comment, RATED.wants_critique, both.wants_critique) == ("bad ?", True, False)


def test_other_feedback_asks_for_another_critique_and_a_good_one_takes_it_away() -> None:
    other = CRITICISED.joined(replace(BASE, score=0.1, comment="wrong person"))
    assert (other.critique, other.wants_critique) == ("", True)
    assert not CRITICISED.joined(replace(BASE, score=0.3, comment="bad ?")).wants_critique
    for well in (CRITICISED.joined(replace(BASE, score=1.0)), CRITICISED.with_feedback(1.0, "")):
        assert (well.critique, well.blamed, well.comment) == ("", "", "")
    assert BASE.with_feedback(0.0, "no", "v") == BASE, "nobody judges another user's run"
    assert replace(BASE, user="").with_feedback(0.0, "no", "v").user == "v"
    assert EntryKind().joined(BASE, replace(BASE, user="v")) is None, "nor replaces it"


def test_entries_that_nobody_judged_leave_first_each_kind_the_oldest_first() -> None:
    kept = [replace(BASE, time=time, score=score) for score in (None, 0.0) for time in (1.0, 2.0)]
    assert sorted((kept[1], kept[3], kept[0], kept[2]), key=EntryKind().worth) == kept


def test_a_trimmed_history_does_not_replace_a_longer_one() -> None:
    long = replace(BASE, calls=tuple(EntryCall(name, {}, "ok") for name in "abc"))
    tail = replace(BASE, query="tail", calls=long.calls[2:], truncated=True, score=1.0)
    assert long.joined(tail) == replace(long, score=1.0)
    assert tail.joined(long).calls == long.calls
    more = replace(tail, calls=tuple(EntryCall(name, {}, "ok") for name in "wxyz"))
    assert long.joined(more).query == "tail"


ME = User(None, None, ("toolmem",))


class Axes(Embeddings):
    """Counts of a few letters as vectors, so that a test can calculate cosines by hand."""

    model = "abcd"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        return [[text.count(letter) or 1e-9 for letter in self.model] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def entry(name: str, query: str = "find ann", **fields: Any) -> Entry:
    run = digest("run", name)
    fields.setdefault("calls", (EntryCall("find", {"name": name}, "ok", "7"),))
    return Entry(entry_id(run), run, query, **fields)


def ids(*names: str) -> set[str]:
    return {entry(name).id for name in names}


def test_the_same_run_again_changes_nothing_and_embeds_nothing() -> None:
    embeddings = Axes()
    with ToolMemory.ephemeral(methods=[Entries()], embeddings=embeddings) as memory:
        rows, first = memory.entries.rows, entry("1", "ab", time=5.0)
        rows.put([first], ME)
        version = rows.written(ME)
        embeddings.asked.clear()
        assert rows.put([replace(first, time=9.0)], ME) == [first]
        assert rows.put([first, first], ME) == [first, first]
        assert (rows.written(ME), rows.count(ME)) == (version, 1)
        [judged] = rows.put([replace(first, score=0.0, comment="no")], ME)
        assert judged is not None
        assert judged.failed
        assert embeddings.asked == []  # a verdict changes no text
        assert [near.id for near in rows.near([1.0, 1.0, 0.0, 0.0], ME, part=JUDGED_PART)] == [first.id]
        assert rows.near([1.0, 1.0, 0.0, 0.0], ME, part=UNJUDGED_PART) == []
        assert rows.put([replace(first, query="cd")], ME) == [replace(judged, query="cd")]
        assert embeddings.asked == ["cd"]
        [near] = rows.near("d", ME, part=JUDGED_PART)
        assert near.similarity == pytest.approx(0.5**0.5, abs=1e-5)


@pytest.mark.parametrize(
    ("helped", "hurt", "usual", "retired"),
    [
        (0, 0, 0.5, False),
        (0, 5, 0.1, False),  # 2.24 deviations
        (0, 6, 0.1, True),  # 2.45
        (0, 21, 0.8, False),  # where nearly all fail: 2.29
        (0, 22, 0.8, True),  # 2.35
        (0, 99, 1.0, False),  # all fail
    ],
)
def test_when_an_entry_hurts(helped: int, hurt: int, usual: float, retired: bool) -> None:
    assert hurts(helped, hurt, usual) == retired


def test_a_request_is_embedded_once_for_all_parts() -> None:
    embeddings = Axes()
    with ToolMemory.ephemeral(methods=[Entries()], embeddings=embeddings) as memory:
        memory.entries.rows.put([entry("1", "ab", score=1.0), entry("2", "cd")], ME)
        embeddings.asked.clear()
        memory.entries.recall("abcd")
        assert embeddings.asked == ["abcd"]
