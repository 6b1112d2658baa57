"""State summaries as rows: what is near, what is one, what is retired, whose it is. Cosines by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kept import give_records
from langchain_core.embeddings import Embeddings

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.core.ledger import ItemStats
from langgraph_toolmem.sit.rows import MAX_MERGED, RETIRE_AFTER, Summaries, SummaryKind, add
from langgraph_toolmem.sit.summary import MAX_CHARS, Merged, NewSummary, StoredSummary

NO_MERGING = 1.1
NEARLY = 1e-4  # numbers of 32 bits, and what a part adds


class Axes(Embeddings):
    """How often each of a few letters occurs, so that cosines can be worked out by hand."""

    model = "abcd"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken = False

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.broken:
            raise TimeoutError("no answer")
        self.asked += texts
        return [[text.count(letter) or 1e-9 for letter in self.model] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class Kept:
    """The summaries of one user."""

    def __init__(self, memory: ToolMemory, user_id: str | None = None) -> None:
        self.memory, self.rows, self.user = memory, memory.sit.states.rows, memory.core.users.of(user_id)
        self.builtin = memory.core.vectors.embedder.builtin

    def take(self, *new: NewSummary, merge_above: float = 0.95, now: float = 1000.0) -> list[str | None]:
        return add(self.rows, new, self.user, now=now, merge_above=merge_above, builtin=self.builtin)

    def add(self, source: str, target: str, text: str, key: str, *, merge_above: float = 0.95, **more: Any) -> str:
        [found] = self.take(NewSummary(source, target, text, key, **more), merge_above=merge_above)
        assert found is not None
        return found

    @property
    def all(self) -> list[StoredSummary]:
        return list(self.rows.all(self.user))

    @property
    def asked(self) -> Summaries:
        return self.memory.sit.states.of(self.user)

    def near(self, source: str, text: str) -> dict[str, Any]:
        query = self.asked.embed(text)
        return {} if query is None else self.asked.near(source, query)

    def nearest(self, source: str, text: str, k: int = 99) -> list[StoredSummary]:
        query = self.asked.embed(text)
        return [] if query is None else [each.summary for each in self.asked.nearest(source, query, k=k)]

    def credit(self, *ids: str, **counts: int) -> None:
        give_records(self.memory, "sit", {self.rows.key(each, self.user): ItemStats(**counts) for each in ids})


@pytest.fixture
def embeddings() -> Axes:
    return Axes()


@pytest.fixture
def kept(embeddings: Axes) -> Iterator[Kept]:
    with ToolMemory.ephemeral(embeddings=embeddings) as memory:
        yield Kept(memory)


@pytest.fixture
def in_words() -> Iterator[Kept]:
    """With the built-in embedder."""
    with ToolMemory.ephemeral() as memory:
        yield Kept(memory)


# --- finding ---


def test_each_target_answers_with_its_most_similar_summary(kept: Kept) -> None:
    kept.add("look", "pay", "aaaa", "1")
    kept.add("look", "pay", "aab", "2")
    kept.add("look", "mail", "c", "3")
    kept.add("book", "pay", "b", "4")
    found = kept.near("look", "b")
    assert {target: each.summary.text for target, each in found.items()} == {"pay": "aab", "mail": "c"}
    assert found["pay"].similarity == pytest.approx(1 / 5**0.5, abs=NEARLY)
    assert found["mail"].similarity == pytest.approx(0, abs=NEARLY)
    assert kept.near("book", "b")["pay"].similarity == pytest.approx(1, abs=NEARLY)
    assert kept.near("nobody", "b") == {}


def test_the_nearest_over_several_edges_come_best_first_and_those_of_other_sources_not_at_all(kept: Kept) -> None:
    kept.add("look", "pay", "aab", "1")
    kept.add("look", "mail", "ab", "2")
    kept.add("look", "mail", "b", "3")
    kept.add("book", "mail", "bbbb", "4")
    assert [each.text for each in kept.nearest("look", "b", k=2)] == ["b", "ab"]
    assert [each.text for each in kept.nearest("look", "b")] == ["b", "ab", "aab"]
    assert kept.nearest("look", "b", k=0) == kept.nearest("nobody", "b") == []


def test_of_equally_similar_ones_the_more_useful_then_the_older_answers(kept: Kept) -> None:
    kept.add("look", "pay", "a", "old", time=1, merge_above=NO_MERGING)
    kept.add("look", "pay", "a", "older", time=0, merge_above=NO_MERGING)
    useful = kept.add("look", "pay", "aa", "useful", time=2, merge_above=NO_MERGING)
    assert kept.near("look", "a")["pay"].summary.time == 0
    kept.credit(useful, shown=1, followed=1, right=1)
    assert kept.near("look", "a")["pay"].summary.id == useful
    assert [each.time for each in kept.nearest("look", "a", k=3)] == [2, 0, 1]


def test_with_the_built_in_embedder_all_words_count(in_words: Kept) -> None:
    in_words.add("look", "pay", "the card of Zoe was refused twice", "1")
    in_words.add("look", "mail", "the parcel is late", "2")
    exact = in_words.near("look", "the card of Zoe was refused twice")
    assert exact["pay"].similarity == pytest.approx(1, abs=NEARLY)
    assert exact["mail"].similarity < 0.5
    assert [each.target for each in in_words.nearest("look", "a parcel that is late")] == ["mail", "pay"]
    assert in_words.near("look", "quixotic zebras")["pay"].similarity == 0  # no word is shared; hashes may be


# --- keeping ---


def test_every_field_is_kept(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, embeddings=Axes()) as memory:
        kept = Kept(memory)
        key = kept.add("<start>", "pay", "ab", "1", run="r", user="u", made_by="model", time=12.5)
        assert kept.add("<start>", "pay", "aabb", "2", run="r2") == key
        [bare] = kept.take(NewSummary("look", "pay", "ab", "1", made_by=""), now=7.0)
        kept.credit(key, shown=3, followed=2, right=1)
        memory.core.store.snapshot()
    with ToolMemory(tmp_path, embeddings=Axes()) as memory:
        first, second = Kept(memory).all
        merged = (Merged(NewSummary("<start>", "pay", "", "2").id, "r2", ""),)
        record = {"offered": 3, "followed": 2, "right": 1}
        assert first == StoredSummary(
            key, "ab", "<start>", "pay", "r", 12.5, "model", seen=2, user="u", merged=merged, **record
        )
        assert second == StoredSummary(str(bare), "ab", "look", "pay", "", 7.0, "")


def test_beyond_the_bound_the_least_useful_go_then_those_seen_seldom_then_the_oldest(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    proven = kept.add("look", "pay", "a", "proven", time=0)
    kept.credit(proven, shown=3, followed=3, right=3)  # (3 + 1) / (3 + 2) = 0.8
    poor = kept.add("look", "pay", "b", "poor", time=9)
    kept.credit(poor, shown=3, followed=1)  # (0.5 + 1) / (3 + 2) = 0.3
    often = kept.add("look", "pay", "c", "often", time=1)
    assert kept.add("look", "pay", "cc", "again") == often
    old, young = (kept.add("look", "mail", "d", str(time), time=time, merge_above=NO_MERGING) for time in (2, 3))
    monkeypatch.setattr(SummaryKind, "most", 5)
    left = [{each.id for each in kept.all}]
    for number, text in enumerate("ab"):
        left.append(left[-1] | {kept.add("book", "pay", text, text, time=10 + number)})
        assert {each.id for each in kept.all} <= left[-1]
        left.append({each.id for each in kept.all})
    assert poor not in left[2]
    assert old in left[2]
    assert {proven, often, young} <= left[4]
    assert old not in left[4]


# --- the same again ---


@pytest.mark.parametrize("portions", [1, 5], ids=["in one go", "one by one"])
def test_summaries_that_say_the_same_are_one_and_the_older_stays(kept: Kept, portions: int) -> None:
    new = [
        NewSummary("look", "pay", "aaa", "1"),
        NewSummary("look", "pay", "aaab", "2"),  # cosine 3/√10 = 0.95
        NewSummary("look", "pay", "aab", "3"),  # 2/√5 = 0.89
        NewSummary("look", "mail", "aaa", "4"),
        NewSummary("look", "pay", "aaa", "5"),
        NewSummary("look", "pay", "aaa", "5"),
    ]
    size = len(new) // portions
    keys: list[str | None] = []
    for start in range(0, len(new), size):
        keys += kept.take(*new[start : start + size], merge_above=0.9)
    assert keys[0] == keys[1] == keys[4] == keys[5]
    assert len({keys[0], keys[2], keys[3]}) == 3
    found = {(each.target, each.text): each.seen for each in kept.all}
    assert found == {("pay", "aaa"): 3, ("pay", "aab"): 1, ("mail", "aaa"): 1}


@pytest.mark.parametrize("portions", [1, 2], ids=["in one go", "in two"])
def test_of_many_that_say_the_same_the_latest_are_known_by_name(in_words: Kept, portions: int) -> None:
    new = [NewSummary("look", "pay", "the card was refused", str(n), run=f"r{n}") for n in range(2 * MAX_MERGED)]
    half = len(new) // portions
    for start in range(0, len(new), half):
        in_words.take(*new[start : start + half])
    [left] = in_words.all
    assert left.seen == len(new)
    assert [each.run for each in left.merged] == [each.run for each in new[-MAX_MERGED:]]


def test_two_that_differ_stay_two_though_a_third_is_like_both(kept: Kept) -> None:
    older = kept.add("look", "pay", "a", "1", time=1)
    kept.add("look", "pay", "ab", "2", time=2)  # 1/√2 = 0.71
    # 5/√29 = 0.93 and 7/√58 = 0.92
    assert kept.add("look", "pay", "aaaaabb", "3", time=3, merge_above=0.9) == older
    assert {each.text: each.seen for each in kept.all} == {"a": 2, "ab": 1}


SUMMARIES = st.lists(
    st.builds(
        NewSummary,
        source=st.sampled_from(["look", "book"]),
        target=st.sampled_from(["pay", "mail"]),
        text=st.text(alphabet="abcd ", max_size=5),
        key=st.sampled_from("0123456789"),
        run=st.sampled_from(["r1", "r2"]),
        user=st.sampled_from([None, "u1", "u2"]),
        time=st.integers(0, 5).map(float),
    ),
    max_size=30,
)


@pytest.mark.slow
def test_learning_again_in_other_portions_changes_nothing() -> None:
    with ToolMemory.ephemeral(namespace=("toolmem", "{user_id}"), embeddings=Axes()) as memory:
        users = iter(range(1_000_000))

        @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(new=SUMMARIES, split=st.integers(0, 30))
        def check(new: list[NewSummary], split: int) -> None:
            kept = Kept(memory, f"user {next(users)}")
            answers = kept.take(*new[:split]) + kept.take(*new[split:])
            before = kept.all
            assert kept.take(*new) == answers
            for each, answer in zip(new, answers, strict=True):
                assert kept.take(each) == [answer]
            assert kept.all == before
            transitions = {(each.source, each.target, each.key) for each in new if each.text.strip()}
            assert sum(each.seen for each in before) == len(transitions)

        check()


# --- all kinds of text ---


@pytest.mark.parametrize("text", ["", "  \n\t ", "\u3000"])
def test_an_empty_summary_is_neither_kept_nor_asked_for(kept: Kept, text: str) -> None:
    kept.add("look", "pay", "a", "1")
    assert kept.take(NewSummary("look", "pay", text, "2")) == [None]
    assert kept.asked.embed(text) is None
    assert len(kept.all) == 1


def test_a_huge_summary_is_cut_with_a_note(kept: Kept) -> None:
    kept.add("look", "pay", "a" * 100_000, "1")
    [left] = kept.all
    assert len(left.text) <= MAX_CHARS
    assert left.text.endswith("… [cut from 100000 characters]")
    assert kept.near("look", "a" * 100_000)["pay"].similarity == pytest.approx(1, abs=NEARLY)


@pytest.mark.parametrize(
    "text", ["ログ：パスワードの期限切れ", "\ud800 lone", "nul \x00 inside", "a 'quote' \"two\" {brace}"]
)
def test_any_text_is_kept_and_found(in_words: Kept, text: str) -> None:
    key = in_words.add(text, text, text, text, run="r")
    [left] = in_words.all
    assert in_words.add(text, text, text, text, run="r") == left.id == key
    assert [each.id for each in in_words.nearest(left.source, text)] == [key]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"source": ""}, "source"),
        ({"target": None}, "target"),
        ({"key": 5}, "key"),
        ({"text": None}, "text"),
        ({"run": "two words"}, "run"),
        ({"user": "a:b"}, "user"),
        ({"time": float("nan")}, "time"),
    ],
)
def test_what_cannot_be_used_is_told_and_nothing_is_kept(kept: Kept, wrong: dict[str, Any], what: str) -> None:
    fields = {"source": "look", "target": "pay", "text": "a", "key": "1", **wrong}
    with pytest.raises(InputError, match=what):
        kept.take(NewSummary("look", "pay", "b", "2"), NewSummary(**fields))
    assert kept.all == []


# --- the record ---


def test_a_summary_with_a_bad_record_is_retired_for_good(kept: Kept) -> None:
    bad = kept.add("look", "pay", "a", "bad", time=1)
    kept.add("look", "pay", "aa", "merged")
    good = kept.add("look", "pay", "b", "good", time=2)
    kept.credit(bad, good, shown=RETIRE_AFTER - 1)
    assert len(kept.all) == 2
    kept.credit(bad, shown=1)
    kept.credit(good, shown=RETIRE_AFTER, followed=1, right=1)  # right once is enough for less than twice as many
    assert [each.id for each in kept.all] == [good]
    assert kept.near("look", "a")["pay"].summary.id == good
    assert [each.id for each in kept.nearest("look", "a")] == [good]
    for text, key in (("a", "bad"), ("aa", "merged")):  # known, and still not found
        assert kept.add("look", "pay", text, key) == bad
    assert len(kept.all) == 1
    fresh = kept.add("look", "pay", "a", "another run")
    assert kept.near("look", "a")["pay"].summary.id == fresh


# --- forgetting ---


def test_a_user_or_a_run_is_forgotten_everywhere(kept: Kept) -> None:
    rows, me = kept.rows, kept.user
    kept.add("look", "pay", "a", "1", run="r1", user="ann", time=1)
    merged = kept.add("look", "pay", "aa", "2", run="r2", user="bob", time=2)  # into ann's
    kept.add("look", "mail", "b", "3", run="r2", user="bob", time=3)
    kept.add("look", "mail", "bb", "4", run="r1", user="ann", time=4)  # into bob's
    retired = kept.add("look", "call", "c", "5", run="r1", user="ann", time=5)
    kept.credit(retired, shown=RETIRE_AFTER)
    assert rows.count(me) == 3
    assert rows.forget_of("ann", me) == 3
    [left] = kept.all
    assert (left.user, left.seen, left.merged) == ("bob", 1, ())
    assert rows.get([merged, retired], me) == []
    assert rows.forget_of("r2", me) == 1
    assert rows.forget_of("r2", me) == rows.count(me) == 0


def test_a_run_whose_summaries_said_what_others_said_leaves_them(kept: Kept) -> None:
    kept.add("look", "pay", "a", "1", run="r1")
    before = kept.all
    kept.add("look", "pay", "aa", "2", run="r2")
    assert kept.rows.forget_of("r2", kept.user) == 1
    assert kept.all == before
    assert kept.add("look", "pay", "aa", "2", run="r2") == before[0].id
