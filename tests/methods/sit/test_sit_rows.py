"""State summaries as rows: what is near, what is one, what is retired, whose it is. Cosines by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kept import give_records
from langchain_core.embeddings import Embeddings

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.core.ledger import ItemStats
from langgraph_toolmem.sit.rows import MAX_CHARS, MAX_USES, RETIRE_AFTER, StoredSummary, Summaries, SummaryKind, Use

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
        self.memory, self.rows, self.user = memory, memory.sit.rows, memory.core.users.of(user_id)
        self.builtin = memory.core.vectors.embedder.builtin

    def add(
        self, source: str, target: str, text: str, key: str, *, run: str = "r", user: str = "", time: float = 1000.0
    ) -> str:
        new = StoredSummary.of(source, target, text, "tool", Use(key, run, user, time))
        self.rows.put([new], self.user)
        return new.id

    @property
    def all(self) -> list[StoredSummary]:
        return list(self.rows.all(self.user))

    @property
    def asked(self) -> Summaries:
        return Summaries(self.rows, self.user, builtin=self.builtin)

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


def test_of_equally_similar_ones_the_more_useful_then_those_of_more_uses_answer(kept: Kept) -> None:
    once, twice, useful = (kept.add("look", "pay", text, text) for text in ("a", "aa", "aaa"))
    kept.add("look", "pay", "aa", "again")
    assert kept.near("look", "a")["pay"].summary.id == twice
    kept.credit(useful, shown=1, followed=1, right=1)
    assert [each.id for each in kept.nearest("look", "a", k=3)] == [useful, twice, once]


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
        key = kept.add("<start>", "pay", "ab", "1", run="r", user="u", time=12.5)
        assert kept.add("<start>", "pay", " ab ", "2", run="r2") == key
        kept.credit(key, shown=3, followed=2, right=1)
        memory.core.store.snapshot()
    with ToolMemory(tmp_path, embeddings=Axes()) as memory:
        uses = Use("1", "r", "u", 12.5), Use("2", "r2", "", 1000.0)
        assert Kept(memory).all == [StoredSummary(key, "<start>", "pay", "ab", "tool", uses, 3, 2, 1)]


def test_beyond_the_bound_the_least_useful_go_then_those_seen_seldom_then_the_oldest(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    proven = kept.add("look", "pay", "a", "proven", time=0)
    kept.credit(proven, shown=3, followed=3, right=3)  # (3 + 1) / (3 + 2) = 0.8
    poor = kept.add("look", "pay", "b", "poor", time=9)
    kept.credit(poor, shown=3, followed=1)  # (0.5 + 1) / (3 + 2) = 0.3
    often = kept.add("look", "pay", "c", "often", time=1)
    assert kept.add("look", "pay", "c", "again") == often
    old, young = (kept.add("look", "mail", "d" * time, str(time), time=time) for time in (2, 3))
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


USES = st.lists(
    st.builds(
        lambda source, text, *use: StoredSummary.of(source, "pay", text, "tool", Use(*use)),
        st.sampled_from(["look", "book"]),
        st.text(alphabet="ab ", max_size=2).map("a{}".format),
        st.sampled_from([str(n) for n in range(2 * MAX_USES)]),
        st.sampled_from(["r1", "r2"]),
        st.sampled_from(["", "u1", "u2"]),
        st.integers(0, 5).map(float),
    ),
    max_size=200,
)


@given(new=USES, order=st.randoms(use_true_random=False), split=st.integers(0, 200))
@settings(max_examples=50, deadline=None)
def test_rows_are_the_same_in_whatever_order_and_portions_they_come(new: Any, order: Any, split: int) -> None:
    def joined(items: list[StoredSummary]) -> dict[str, StoredSummary]:
        found: dict[str, StoredSummary] = {}
        for item in items:
            old = found.get(item.id)
            found[item.id] = SummaryKind().joined(old or item, item)
        return found

    whole, parts = joined(new), joined([*joined(new[:split]).values(), *joined(new[split:]).values()])
    shuffled = [*new]
    order.shuffle(shuffled)
    assert whole == parts == joined([*shuffled, *new])
    assert all(len(item.uses) <= MAX_USES for item in whole.values())


# --- all kinds of text ---


def test_an_empty_text_is_not_asked_for(kept: Kept) -> None:
    assert kept.asked.embed("  \n\t \u3000") is None


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


# --- the record ---


def test_a_summary_with_a_bad_record_is_retired_for_good(kept: Kept) -> None:
    bad = kept.add("look", "pay", "a", "bad", time=1)
    good = kept.add("look", "pay", "b", "good", time=2)
    kept.credit(bad, good, shown=RETIRE_AFTER - 1)
    assert len(kept.all) == 2
    kept.credit(bad, shown=1)
    kept.credit(good, shown=RETIRE_AFTER, followed=1, right=1)  # right once is enough for less than twice as many
    assert kept.add("look", "pay", "a", "another run") == bad  # known, and still not found
    assert [each.id for each in kept.all] == [good]
    assert kept.near("look", "a")["pay"].summary.id == good
    assert [each.id for each in kept.nearest("look", "a")] == [good]


# --- forgetting ---


def test_a_user_or_a_run_is_forgotten_everywhere(kept: Kept) -> None:
    rows, me = kept.rows, kept.user
    kept.add("look", "pay", "a", "1", run="r1", user="ann")
    kept.add("look", "pay", "a", "2", run="r2", user="bob")
    kept.add("look", "mail", "b", "3", run="r2", user="bob")
    retired = kept.add("look", "call", "c", "5", run="r1", user="ann")
    kept.credit(retired, shown=RETIRE_AFTER)
    assert rows.forget_of("ann", me) == 2
    assert [[use.user for use in each.uses] for each in kept.all] == [["bob"], ["bob"]]
    assert rows.get([retired], me) == []
    assert rows.forget_of("r2", me) == 2
    assert rows.forget_of("r2", me) == rows.count(me) == 0


def test_what_is_older_than_a_time_is_forgotten_use_by_use() -> None:
    item = StoredSummary.of("look", "pay", "a", "tool", Use("1", "r1", "", 1.0), Use("2", "r2", "", 2.0))
    kind = SummaryKind()
    assert kind.since(item, 1.0) is item
    assert kind.since(item, 2.0) == StoredSummary.of("look", "pay", "a", "tool", Use("2", "r2", "", 2.0))
    assert kind.since(item, 3.0) is None
