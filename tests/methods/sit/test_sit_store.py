from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chroma_server import chroma_clients, chroma_run, free_port
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langgraph_toolmem.sit.store import NewSummary, StoredSummary, SummaryStore
from langgraph_toolmem.sit.summary_rows import KIND, SummaryRows

from langgraph_toolmem.base.errors import ConfigurationError, EmbedderChangedError, InputError, StorageError
from langgraph_toolmem.search.embedders import Embedder, resolve_embedder
from langgraph_toolmem.sit import summary_index
from langgraph_toolmem.stores.vectors import VectorItem, VectorStore

LEXICAL = resolve_embedder(None)
ME = ("toolmem", "me")


class Axes(Embeddings):
    """How often each of a few letters occurs, so that cosines can be worked out by hand."""

    def __init__(self, model: str = "abcd") -> None:
        self.model = model
        self.asked: list[str] = []
        self.broken = False

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.broken:
            raise TimeoutError("no answer")
        self.asked += texts
        return [[text.count(letter) or 1e-9 for letter in self.model] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class Clock:
    def __init__(self, seconds: float = 1000.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def axes() -> Embedder:
    return resolve_embedder(Axes())


def ephemeral(embedder: Embedder | None = None, **options: Any) -> SummaryStore:
    options.setdefault("now", Clock())
    return SummaryStore(VectorStore(None, embedder=embedder or axes(), namespace=ME), **options)


def over(vectors: VectorStore, **options: Any) -> SummaryStore:
    options.setdefault("now", Clock())
    return SummaryStore(vectors, **options)


@pytest.fixture
def embeddings() -> Axes:
    return Axes()


@pytest.fixture
def vectors(tmp_path: Path, embeddings: Axes) -> Iterator[VectorStore]:
    with VectorStore(tmp_path, embedder=resolve_embedder(embeddings), namespace=ME) as made:
        yield made


def texts(store: SummaryStore, source: str | None = None) -> list[str]:
    return [each.text for each in store.summaries(source)]


def same(one: list[StoredSummary], other: list[StoredSummary]) -> bool:
    # Chroma scales vectors to length 1 again, so the last bit may differ.
    return one == other and all(
        np.allclose(a.vector, b.vector, atol=1e-6) and a.vector.dtype == np.float32
        for a, b in zip(one, other, strict=True)
    )


# finding


def test_each_target_answers_with_its_most_similar_summary() -> None:
    store = ephemeral()
    store.add("look", "pay", "aaaa", key="1")
    store.add("look", "pay", "aab", key="2")
    store.add("look", "mail", "c", key="3")
    store.add("book", "pay", "b", key="4")
    found = store.near("look", "b")
    assert {target: each.summary.text for target, each in found.items()} == {"pay": "aab", "mail": "c"}
    assert found["pay"].similarity == pytest.approx(1 / 5**0.5)
    assert found["mail"].similarity == pytest.approx(0, abs=1e-6)
    assert store.near("look", "b", targets=["mail", "nobody"]).keys() == {"mail"}
    assert store.near("nobody", "b") == {}
    anywhere = store.near(None, "b", targets=["pay"])
    assert anywhere["pay"].summary.source == "book"
    assert anywhere["pay"].similarity == pytest.approx(1)


def test_the_nearest_over_several_edges_come_best_first() -> None:
    store = ephemeral()
    store.add("look", "pay", "aab", key="1")
    store.add("look", "mail", "ab", key="2")
    store.add("look", "mail", "b", key="3")
    store.add("book", "mail", "bbbb", key="4")
    assert [each.summary.text for each in store.nearest("look", "b", k=2)] == ["b", "ab"]
    assert [each.summary.text for each in store.nearest("look", "b", k=99)] == ["b", "ab", "aab"]
    assert [each.summary.text for each in store.nearest("look", "b", targets=["pay"])] == ["aab"]
    assert store.nearest("look", "b", k=0) == store.nearest("nobody", "b") == []


def test_of_equally_similar_ones_the_more_useful_then_the_older_answers() -> None:
    store = ephemeral(merge_above=1.1)
    store.add("look", "pay", "a", key="old", time=1)
    store.add("look", "pay", "a", key="older", time=0)
    useful = store.add("look", "pay", "aa", key="useful", time=2)
    assert store.near("look", "a")["pay"].summary.time == 0
    assert useful is not None
    store.credit(useful, offered=1, followed=1, right=1)
    assert store.near("look", "a")["pay"].summary.id == useful
    assert [each.summary.time for each in store.nearest("look", "a", k=3)] == [2, 0, 1]


def test_a_query_reads_only_candidate_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ephemeral()
    for source in "xyz":
        for target in "pqr":
            store.add(source, target, "a", key=source + target)
    read: list[str] = []
    original = summary_index.EdgeRows.similarities

    def spied(edge: summary_index.EdgeRows, query: Any) -> Any:
        read.extend(edge.ids)
        return original(edge, query)

    monkeypatch.setattr(summary_index.EdgeRows, "similarities", spied)
    store.near("x", "a")
    assert len(read) == 3
    read.clear()
    store.near("x", "a", targets=["q"])
    assert len(read) == 1


def test_one_embedding_serves_several_questions() -> None:
    embeddings = Axes()
    store = ephemeral(resolve_embedder(embeddings))
    store.add("look", "pay", "ab", key="1")
    query = store.embed("a")
    embeddings.asked.clear()
    assert query is not None
    assert store.near("look", query)["pay"].similarity == pytest.approx(0.5**0.5)
    assert store.nearest(None, query)[0].summary.text == "ab"
    assert embeddings.asked == []
    with pytest.raises(InputError, match="shape"):
        store.near("look", query[:2])


def test_questions_to_an_unused_store_open_nothing_and_embed_nothing(tmp_path: Path) -> None:
    embeddings = Axes()
    folder = tmp_path / "memory"
    store = over(VectorStore(folder, embedder=resolve_embedder(embeddings), namespace=ME))
    assert store.near("look", "a") == {}
    assert store.nearest("look", "a") == []
    assert store.summaries() == []
    assert len(store) == 0
    store.credit("nobody", offered=1)
    assert store.forget_user("u") == 0
    store.close()
    assert not folder.exists()
    assert embeddings.asked == []


# keeping


def test_a_reopened_store_is_equal_to_the_old_one(tmp_path: Path) -> None:
    dice = random.Random(0)
    with VectorStore(tmp_path, embedder=LEXICAL, namespace=ME) as vectors, over(vectors, max_per_edge=9) as store:
        for number in range(60):
            text = " ".join(dice.choices(["order", "refund", "late", "card", "paid", "box"], k=4))
            key = store.add("look", dice.choice("pq"), text, key=str(number), run=f"r{number % 7}", user="u")
            if key is not None and number % 3:
                store.credit(key, offered=1, followed=1, right=number % 2)
        store.flush()
        before, near = store.summaries(), store.near("look", "late refund of the order")
        assert any(each.seen > 1 for each in before)
        assert any(each.right for each in before)
    with VectorStore(tmp_path, embedder=LEXICAL, namespace=ME) as vectors, over(vectors, max_per_edge=9) as store:
        assert same(store.summaries(), before)
        again = store.near("look", "late refund of the order")
        assert again.keys() == near.keys() == {"p", "q"}
        for target, match in again.items():
            assert match.summary == near[target].summary
            assert match.similarity == pytest.approx(near[target].similarity, abs=1e-6)


def test_more_than_one_page_is_read_back(vectors: VectorStore) -> None:
    new = [NewSummary(f"s{n}", "t", "a" + "b" * (n % 50), str(n), time=n) for n in range(1101)]
    store = over(vectors)
    assert store.add_many(new) == [each.id for each in new]
    assert len(store) == 1101
    assert same(over(vectors).summaries(), store.summaries())


def test_every_field_is_kept(vectors: VectorStore) -> None:
    key = over(vectors).add("<start>", "pay", "ab", key="1", run="r", user="u", made_by="model", time=12.5)
    found = over(vectors).get(str(key))
    assert found == StoredSummary(str(key), "ab", "<start>", "pay", "r", 12.5, "model", user="u")
    bare = over(vectors, now=Clock(7.0)).add("look", "pay", "ab", key="1", made_by="")
    assert over(vectors).get(str(bare)) == StoredSummary(str(bare), "ab", "look", "pay", "", 7.0, "")
    assert over(vectors).get("nobody") is None


def test_namespaces_share_nothing(vectors: VectorStore) -> None:
    you = over(vectors.scoped(("toolmem", "you")))
    mine = over(vectors).add("look", "pay", "a", key="1")
    assert you.summaries() == []
    assert you.add("look", "pay", "a", key="1") == mine
    you.drop()
    assert you.summaries() == over(vectors.scoped(("toolmem", "you"))).summaries() == []
    assert texts(over(vectors)) == ["a"]


def test_the_version_changes_with_what_is_stored_and_never_comes_back() -> None:
    store = ephemeral()
    seen = {store.version}
    store.add("look", "pay", "a", key="1")
    seen.add(store.version)
    store.near("look", "a")
    assert store.version in seen
    store.reload()
    seen.add(store.version)
    store.drop()
    seen.add(store.version)
    assert len(seen) == 4


# the same again


def test_the_same_transition_learned_again_changes_nothing(vectors: VectorStore, embeddings: Axes) -> None:
    store = over(vectors)
    first = store.add("look", "pay", "a", key="1", run="r")
    merged = store.add("look", "pay", "aa", key="2", run="r2")
    assert first == merged is not None
    before = store.summaries()
    embeddings.asked.clear()
    for again in (store, over(vectors)):
        assert again.add("look", "pay", "a", key="1", run="r") == first
        assert (
            again.add_many([NewSummary("look", "pay", "aa", "2"), NewSummary("look", "pay", "b", "2")]) == [first] * 2
        )
        assert same(again.summaries(), before)
    assert embeddings.asked == []


def test_summaries_that_say_the_same_are_one_and_the_older_stays(vectors: VectorStore) -> None:
    store = over(vectors, merge_above=0.9)
    keys = store.add_many(
        [
            NewSummary("look", "pay", "aaa", "1"),
            NewSummary("look", "pay", "aaab", "2"),  # cosine 3/√10 = 0.95
            NewSummary("look", "pay", "aab", "3"),  # 2/√5 = 0.89
            NewSummary("look", "mail", "aaa", "4"),
            NewSummary("look", "pay", "aaa", "5"),
        ]
    )
    assert keys[0] == keys[1] == keys[4]
    assert len({keys[0], keys[2], keys[3]}) == 3
    for each in (store, over(vectors)):
        found = {(summary.target, summary.text): summary.seen for summary in each.summaries()}
        assert found == {("pay", "aaa"): 3, ("pay", "aab"): 1, ("mail", "aaa"): 1}


def test_what_two_processes_added_unknown_to_each_other_is_joined_with_the_better_record(vectors: VectorStore) -> None:
    one, two = over(vectors), over(vectors)
    assert one.summaries() == two.summaries() == []
    older = one.add("look", "pay", "a", key="1", run="r1", time=1)
    newer = two.add("look", "pay", "aa", key="2", run="r2", time=2)
    assert older is not None
    assert newer is not None
    one.credit(older, offered=4, followed=4)
    two.credit(newer, offered=4, followed=4, right=4)
    one.flush()
    two.flush()
    both = over(vectors)
    assert [each.id for each in both.summaries()] == [older, newer]
    assert both.add("look", "pay", "aaa", key="3", run="r3") == older
    [left] = over(vectors).summaries()
    assert (left.id, left.text, left.seen, left.offered, left.right) == (older, "a", 3, 4, 4)
    assert [each.run for each in left.merged] == ["r2", "r3"]
    assert both.add("look", "pay", "aa", key="2") == older
    assert over(vectors).summaries() == [left]


def test_two_that_differ_stay_two_though_a_third_is_like_both() -> None:
    store = ephemeral(merge_above=0.9)
    older = store.add("look", "pay", "a", key="1", time=1)
    store.add("look", "pay", "ab", key="2", time=2)  # 1/√2 = 0.71
    assert store.add("look", "pay", "aaaaabb", key="3", time=3) == older  # 5/√29 = 0.93 and 7/√58 = 0.92
    assert {each.text: each.seen for each in store.summaries()} == {"a": 2, "ab": 1}


def test_joining_that_fails_is_undone_whole(vectors: VectorStore) -> None:
    one, two = over(vectors), over(vectors)
    assert one.summaries() == two.summaries() == []
    one.add("look", "pay", "a", key="1", time=1)
    newer = two.add("look", "pay", "aa", key="2", time=2)
    assert two.add("look", "pay", "aaa", key="3") == newer
    both = over(vectors)
    before = both.summaries()
    with failing(writes=0):
        with pytest.raises(StorageError, match="disk full"):
            both.add("look", "pay", "aaaa", key="4")
        assert both.add("look", "pay", "aaa", key="3") == newer
    assert same(both.summaries(), before)
    both.add("look", "pay", "aaaa", key="4")
    assert [each.seen for each in both.summaries()] == [4]


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


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(new=SUMMARIES, split=st.integers(0, 30))
def test_learning_again_in_other_portions_changes_nothing(new: list[NewSummary], split: int) -> None:
    store = ephemeral()
    answers = store.add_many(new[:split]) + store.add_many(new[split:])
    before = store.summaries()
    assert store.add_many(new) == answers
    for each, answer in zip(new, answers, strict=True):
        assert store.add_many([each]) == [answer]
    assert same(store.summaries(), before)
    transitions = {(each.source, each.target, each.key) for each in new if each.text.strip()}
    assert sum(each.seen for each in before) == len(transitions)
    store.reload()
    assert same(store.summaries(), before)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(new=SUMMARIES, per_edge=st.integers(1, 4), total=st.integers(1, 9), booked=st.lists(st.integers(0, 3)))
def test_the_bounds_hold_in_ram_and_in_chroma(
    new: list[NewSummary], per_edge: int, total: int, booked: list[int]
) -> None:
    vectors = VectorStore(None, embedder=axes(), namespace=ME)
    store = over(vectors, max_per_edge=per_edge, max_total=total, retire_after=3)
    for each, offers in zip(new, booked + [0] * len(new), strict=False):
        store.add_many([each])
        assert len(store) <= total
        assert max(store.counts().values(), default=0) <= per_edge
        if offers:
            store.credit([summary.id for summary in store.summaries()], offered=offers)
    store.flush()
    assert vectors.count(KIND) <= total + 4 * per_edge  # retired ones stay, as many as an edge takes
    reopened = over(vectors)
    assert same(reopened.summaries(), store.summaries())
    assert reopened.counts() == store.counts()


# how many


def test_a_full_edge_gives_up_the_least_useful_and_spares_the_young() -> None:
    # Eight on an edge; the newest quarter (two, counting the new one) is spared.
    store = ephemeral(max_per_edge=8, merge_above=1.1)
    keys = [store.add("look", "pay", "abcd"[n % 4], key=str(n), time=n) for n in range(8)]
    proven, poor, seven = keys[0], keys[3], keys[7]
    store.credit(str(proven), offered=3, followed=3, right=3)  # (3 + 1) / (3 + 2) = 0.8
    store.credit(str(poor), offered=3, followed=1)  # (0.5 + 1) / (3 + 2) = 0.3
    store.credit(str(seven), offered=3)  # 1 / 5 = 0.2, young: not yet eight offers
    store.add("look", "pay", "a", key="8", time=8)
    assert [each.time for each in store.summaries()] == [0, 1, 2, 4, 5, 6, 7, 8]
    store.add("look", "pay", "a", key="9", time=9)  # 7 is not among the newest two any more
    assert [each.time for each in store.summaries()] == [0, 1, 2, 4, 5, 6, 8, 9]
    store.add("look", "pay", "a", key="10", time=10)  # equal usefulness: the oldest of them
    assert [each.time for each in store.summaries()] == [0, 2, 4, 5, 6, 8, 9, 10]
    assert store.add("look", "pay", "a", key="early", time=-1) is None
    assert [each.time for each in store.summaries()] == [0, 2, 4, 5, 6, 8, 9, 10]


def test_a_young_one_that_had_its_chance_is_spared_no_more() -> None:
    store = ephemeral(max_per_edge=2, merge_above=1.1)
    store.add("look", "pay", "a", key="1", time=1)
    tried = store.add("look", "pay", "b", key="2", time=9)
    store.credit(str(tried), offered=8)
    store.add("look", "pay", "c", key="3", time=5)
    assert texts(store) == ["a", "c"]


def test_of_equally_useful_ones_the_one_seen_seldom_goes() -> None:
    store = ephemeral(max_per_edge=2)
    store.add("look", "pay", "a", key="1", time=1)
    store.add("look", "pay", "aa", key="2", time=2)
    store.add("look", "pay", "b", key="3", time=3)
    store.add("look", "pay", "c", key="4", time=4)
    assert texts(store) == ["a", "c"]


def test_beyond_the_total_the_edge_with_most_gives_one_up(vectors: VectorStore) -> None:
    store = over(vectors, max_total=4)
    for number, (target, text) in enumerate(zip("pppqr", "abcaa", strict=True)):
        store.add("look", target, text, key=str(number), time=number)
    assert store.counts() == {("look", "p"): 2, ("look", "q"): 1, ("look", "r"): 1}
    assert texts(store) == ["b", "c", "a", "a"]
    assert vectors.count(KIND) == 4


def test_a_bound_lowered_later_is_kept_from_the_next_addition_on(vectors: VectorStore) -> None:
    wide = over(vectors)
    for number, text in enumerate("abcd"):
        wide.add("look", "pay", text, key=text, time=number)
    narrow = over(vectors, max_per_edge=2)
    assert len(narrow) == 4
    narrow.add("look", "pay", "ab", key="new", time=9)
    assert len(narrow) == vectors.count(KIND) == 2


# all kinds of text


@pytest.mark.parametrize("text", ["", "  \n\t ", "\u3000"])
def test_an_empty_summary_is_neither_kept_nor_asked_for(vectors: VectorStore, text: str) -> None:
    store = over(vectors)
    store.add("look", "pay", "a", key="1")
    assert store.add("look", "pay", text, key="2") is None
    assert store.near("look", text) == {}
    assert store.nearest("look", text) == []
    assert vectors.count(KIND) == 1


def test_a_huge_summary_is_cut_with_a_note(vectors: VectorStore) -> None:
    store = over(vectors, max_chars=200)
    huge = "ab " * 100_000
    key = store.add("look", "pay", huge, key="1")
    [kept] = over(vectors).summaries()
    assert len(kept.text) <= 200
    assert kept.text.startswith("ab ab")
    assert kept.text.endswith("[cut from 299999 characters]")
    assert store.near("look", huge)["pay"].similarity == pytest.approx(1)
    assert store.add("look", "pay", kept.text, key="1") == key


@pytest.mark.parametrize(
    "text",
    [
        "顧客は注文の返金を求めている",
        "العميل يريد استرداد المبلغ",
        "клиент просит вернуть деньги 💳",
        "a\x00b",
        "lone \ud800 half",
    ],
)
def test_a_summary_in_any_script_is_kept_and_found(tmp_path: Path, text: str) -> None:
    with VectorStore(tmp_path, embedder=LEXICAL, namespace=ME) as vectors:
        store = over(vectors)
        store.add("look", "pay", text, key="1")
        store.add("look", "pay", "the flight to Rome is fully booked", key="2")
        reopened = over(vectors)
        assert same(reopened.summaries(), store.summaries())
        found = reopened.near("look", text)["pay"]
        assert found.similarity == pytest.approx(1, abs=1e-5)
        assert found.summary.text == text.replace("\ud800", "?")


@pytest.mark.parametrize(
    "change",
    [
        {"source": ""},
        {"target": None},
        {"key": 3},
        {"text": b"a"},
        {"run": "a b"},
        {"user": "a:b"},
        {"time": float("nan")},
    ],
)
def test_what_cannot_be_kept_is_refused_and_nothing_of_it_stays(change: dict[str, Any]) -> None:
    store = ephemeral()
    fields: dict[str, Any] = {"source": "look", "target": "pay", "text": "a", "key": "1"} | change
    with pytest.raises(InputError):
        store.add_many([NewSummary("look", "pay", "a", "0"), NewSummary(**fields)])
    assert store.summaries() == []


@pytest.mark.parametrize(
    "bound",
    [
        {"max_per_edge": 0},
        {"max_total": -1},
        {"merge_above": 0},
        {"merge_above": float("nan")},
        {"max_chars": 99},
        {"retire_after": 0},
        {"flush_every": 0},
        {"refresh": -1.0},
    ],
)
def test_bounds_that_cannot_be_are_refused(bound: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(bound))):
        ephemeral(**bound)


# records


def test_bookings_count_at_once_and_are_written_together(vectors: VectorStore) -> None:
    store = over(vectors, flush_every=4)
    one, two = (str(store.add("look", target, "a", key=target)) for target in "pq")

    def saved() -> list[tuple[int, int, int]]:
        return [(each.offered, each.followed, each.right) for each in over(vectors).summaries()]

    store.credit([one, two], offered=1)
    store.credit(one, followed=1, right=1)
    assert sorted((each.offered, each.followed, each.right) for each in store.summaries()) == [(1, 0, 0), (1, 1, 1)]
    assert saved() == [(0, 0, 0), (0, 0, 0)]  # three bookings: this is what a killed process loses
    store.credit("nobody", offered=1)
    assert saved() == [(0, 0, 0), (0, 0, 0)]
    store.credit(two, offered=1)
    assert sorted(saved()) == [(1, 1, 1), (2, 0, 0)]
    store.credit(two, offered=-9)
    store.close()
    assert sorted(saved()) == [(0, 0, 0), (1, 1, 1)]


def test_a_summary_with_a_bad_record_is_retired_for_good(vectors: VectorStore) -> None:
    store = over(vectors, retire_after=3)
    bad = str(store.add("look", "pay", "a secret", key="bad", user="u", time=1))
    store.add("look", "pay", "a secret, a secret", key="merged")
    good = str(store.add("look", "pay", "b", key="good", time=2))
    store.credit([bad, good], offered=2, followed=2)
    store.credit(good, right=1)
    assert len(store) == 2
    store.credit([bad, good], offered=1)  # 3 offers: never right is too little, once right is enough
    for each in (store, over(vectors, retire_after=3)):
        assert [summary.id for summary in each.summaries()] == [good]
        assert each.near("look", "a")["pay"].summary.id == good
        assert each.get(bad) is None
        assert each.add("look", "pay", "a secret", key="bad") == bad  # known, and still not found
        assert each.add("look", "pay", "a secret, a secret", key="merged") == bad
        each.credit(bad, right=5)
        assert len(each) == 1
    assert not any("secret" in hit.text for hit in vectors.get(KIND))
    store.credit(good, offered=3)  # right once is enough for less than 6 offers
    assert len(store) == 0
    fresh = store.add("look", "pay", "a secret", key="another run")
    assert store.near("look", "a")["pay"].summary.id == fresh


def test_as_many_retired_ones_are_remembered_as_an_edge_takes(vectors: VectorStore) -> None:
    store = over(vectors, retire_after=1, max_per_edge=2)
    for number, text in enumerate("abcd"):
        store.credit(str(store.add("look", "pay", text, key=text, time=number)), offered=1)
    assert len(store) == 0
    assert vectors.count(KIND) == 2


def test_a_record_turned_bad_while_chroma_fails_is_found_no_more(vectors: VectorStore) -> None:
    store = over(vectors, retire_after=2)
    bad = str(store.add("look", "pay", "a", key="1"))
    with failing(writes=0):
        with pytest.raises(StorageError):
            store.credit(bad, offered=2)
        assert store.near("look", "a") == {}
        assert len(over(vectors)) == 1
    store.close()
    assert over(vectors).summaries() == []
    assert vectors.count(KIND) == 1


def test_a_summary_half_retired_is_retired(vectors: VectorStore) -> None:
    store = over(vectors, retire_after=2)
    bad = str(store.add("look", "pay", "a", key="1", user="ann"))
    with failing(writes=1), pytest.raises(StorageError):  # the retired row is written, the other one not deleted
        store.credit(bad, offered=2)
    assert vectors.count(KIND) == 2
    rows = SummaryRows(vectors)
    left = [each for each in rows.read([bad]) if each is not None]
    for _ in range(2):
        for each in (store, over(vectors), over(vectors, refresh=0.0)):
            for _ in range(3):
                assert each.summaries() == []
            assert each.add("look", "pay", "a", key="1") == bad
        rows.remove([bad])
        rows.write(left)  # now the later of the two
    store.flush()
    assert store.forget_user("ann") == 1
    assert vectors.count(KIND) == 0


# forgetting


def test_a_user_or_a_run_is_forgotten_everywhere(vectors: VectorStore) -> None:
    store = over(vectors, retire_after=2)
    store.add("look", "pay", "a", key="1", run="r1", user="ann", time=1)
    store.add("look", "pay", "aa", key="2", run="r2", user="bob", time=2)  # merged into ann's
    store.add("look", "mail", "b", key="3", run="r2", user="bob", time=3)
    store.add("look", "mail", "bb", key="4", run="r1", user="ann", time=4)  # merged into bob's
    store.credit(str(store.add("look", "call", "c", key="5", run="r1", user="ann", time=5)), offered=2)
    over(vectors).add("look", "chat", "d", key="6", run="r3", user="ann", time=6)  # unknown to `store`
    assert vectors.count(KIND) == 4
    assert store.forget_user("ann") == 3
    for each in (store, over(vectors)):
        [left] = each.summaries()
        assert (left.user, left.seen, left.merged) == ("bob", 1, ())
    assert "ann" not in str([(hit.id, hit.text, hit.metadata) for hit in vectors.get(KIND)])
    assert store.forget_run("r2") == 1
    assert store.forget_run("r2") == 0
    assert vectors.count(KIND) == len(store) == 0
    for wrong in ({}, {"user": "u", "run": "r"}, {"user": ""}):
        with pytest.raises(InputError, match="user or a run"):
            store.forget(**wrong)


def test_damaged_rows_are_left_out_and_forgotten_too(vectors: VectorStore, caplog: pytest.LogCaptureFixture) -> None:
    over(vectors).add("look", "pay", "a", key="1", user="bob")
    vectors.upsert(
        KIND, [VectorItem("odd", "b", {"user": "ann"}), VectorItem("odder", "b", {"merged": "x", "seen": "y"})]
    )
    store = over(vectors)
    with caplog.at_level(logging.WARNING):
        assert texts(store) == ["a"]
    assert "2 rows" in caplog.text
    store.forget_user("ann")
    assert [hit.id for hit in vectors.get(KIND)] == [store.summaries()[0].id, "odder"]


# when it fails


@contextmanager
def failing(writes: int) -> Iterator[None]:
    """The database refuses everything after some writes."""
    left = [None] * writes

    def limited(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(rows: SummaryRows, *args: Any) -> Any:
            if args[0]:
                if not left:
                    raise StorageError("disk full")
                left.pop()
            return change(rows, *args)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("write", "amend", "remove"):
            patch.setattr(SummaryRows, name, limited(getattr(SummaryRows, name)))
        yield


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(new=SUMMARIES, more=SUMMARIES, writes=st.integers(0, 2), bookings=st.integers(0, 4))
@pytest.mark.slow
def test_what_fails_leaves_ram_as_it_was_and_can_be_done_again(
    new: list[NewSummary], more: list[NewSummary], writes: int, bookings: int
) -> None:
    vectors = VectorStore(None, embedder=axes(), namespace=ME)
    store, untroubled = (
        SummaryStore(each, now=Clock(), max_per_edge=3, retire_after=4)
        for each in (vectors, VectorStore(None, embedder=axes(), namespace=ME))
    )
    for each in (store, untroubled):
        each.add_many(new)
        for summary in each.summaries():
            each.credit(summary.id, offered=bookings)
        each.flush()
    before = store.summaries()
    with failing(writes):
        try:
            store.add_many(more)
        except StorageError:
            found, known = ({each.id for each in those} for those in (store.summaries(), before))
            assert found >= known  # what was written is looked at again
            assert writes or found == known
    store.reload()
    store.add_many(more)
    untroubled.add_many(more)
    if writes == 0:
        assert same(store.summaries(), untroubled.summaries())
    assert same(over(vectors).summaries(), store.summaries())


def test_an_embedder_that_fails_costs_only_that_call() -> None:
    embeddings = Axes()
    store = ephemeral(resolve_embedder(embeddings))
    store.add("look", "pay", "a", key="1")
    embeddings.broken = True
    with pytest.raises(StorageError, match="no answer"):
        store.add("look", "pay", "b", key="2")
    with pytest.raises(StorageError, match="no answer"):
        store.near("look", "a")
    assert texts(store) == ["a"]
    embeddings.broken = False
    store.add("look", "pay", "b", key="2")
    assert texts(store) == ["a", "b"]


def test_another_embedder_is_told_until_everything_is_embedded_again(tmp_path: Path) -> None:
    with VectorStore(tmp_path, embedder=axes(), namespace=ME) as vectors:
        over(vectors).add("look", "pay", "ef", key="1", run="r")
        retired = over(vectors, retire_after=1)
        retired.credit(str(retired.add("look", "mail", "a", key="2")), offered=1)
    with VectorStore(tmp_path, embedder=resolve_embedder(Axes("efghij")), namespace=ME) as vectors:
        store = over(vectors)
        for call in (
            lambda: store.near("look", "e"),
            lambda: store.add("look", "pay", "b", key="2"),
            lambda: store.forget_user("u"),
        ):
            with pytest.raises(EmbedderChangedError, match="reembed"):
                call()
        vectors.reembed()
        assert store.near("look", "e")["pay"].similarity == pytest.approx(0.5**0.5)
        store.add("look", "pay", "g", key="3")
        assert texts(store) == ["ef", "g"]


def test_a_collection_dropped_by_somebody_else_is_made_again(vectors: VectorStore) -> None:
    store = over(vectors)
    store.add("look", "pay", "a", key="1")
    vectors.scoped(ME).drop()
    store.reload()
    assert store.summaries() == []
    store.add("look", "pay", "b", key="2")
    assert texts(over(vectors)) == ["b"]


# threads and processes


def test_threads_add_book_and_ask_at_once(vectors: VectorStore) -> None:
    store = over(vectors, merge_above=1.1, flush_every=5)
    shared = str(store.add("look", "pay", "a", key="shared"))
    errors: list[BaseException] = []

    def work(me: int) -> None:
        try:
            for number in range(12):
                store.add("look", "pay", "abcd"[me], key=f"{me}-{number}")
                store.add("look", "pay", "abcd"[me], key=f"all-{number}")
                store.credit(shared, offered=1, right=1)
                assert store.near("look", "a")["pay"].similarity == pytest.approx(1)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    store.close()
    found = over(vectors).summaries()
    assert len(found) == 1 + 4 * 12 + 12
    assert {(each.offered, each.right) for each in found if each.id == shared} == {(48, 48)}


ADDING = """
import sys
from pathlib import Path
from langgraph_toolmem.sit.store import SummaryStore
from langgraph_toolmem.search.embedders import resolve_embedder
from langgraph_toolmem.stores.vectors import VectorStore

vectors = VectorStore(Path(sys.argv[1]), embedder=resolve_embedder(None), namespace=("toolmem", "me"))
store = SummaryStore(vectors, now=lambda: 1.0, max_per_edge=1000)
first = int(sys.argv[2])
for number in range(first, first + 10_000):
    text = " ".join(f"w{number * k % 1009}" for k in range(1, 9))
    print(number, store.add("look", f"t{number % 3}", text, key=str(number)), flush=True)
"""


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}
    for first, after in ((0, 1), (10_000, 7), (20_000, 25)):
        process = subprocess.Popen(
            [sys.executable, "-c", ADDING, str(tmp_path), str(first)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(after):
            number, key = process.stdout.readline().split()
            acknowledged[key] = int(number)
        os.kill(process.pid, signal.SIGKILL)
        for line in process.stdout:  # what it said before it died
            if line.endswith("\n"):
                number, key = line.split()
                acknowledged[key] = int(number)
        process.stdout.close()
        process.wait()
    assert len(acknowledged) >= 33
    with VectorStore(tmp_path, embedder=LEXICAL, namespace=ME) as vectors:
        store = over(vectors, max_per_edge=1000)
        kept = {each.id: each for each in store.summaries()}
        assert acknowledged.keys() <= kept.keys()
        assert all(len(each.vector) == LEXICAL.dimension() for each in kept.values())
        assert len(kept) <= len(acknowledged) + 3  # of each process at most the one it was adding
        again = {key: store.add("look", f"t{n % 3}", "x", key=str(n)) for key, n in acknowledged.items()}
        assert all(key == answer for key, answer in again.items())


@pytest.fixture
def connect() -> Iterator[Callable[[int], Any]]:
    with chroma_clients() as client:
        yield client


@pytest.mark.slow
def test_workers_share_a_server_and_outlive_it(tmp_path: Path, connect: Callable[[int], Any]) -> None:
    port = free_port()
    clock = Clock(0.0)
    with chroma_run(tmp_path, port):
        stores = [VectorStore(None, embedder=axes(), client=connect(port), namespace=("shared", "é")) for _ in range(2)]
        one, two = (over(each, now=clock, refresh=30.0, retire_after=9) for each in stores)
        assert one.summaries() == two.summaries() == []
        first = str(one.add("look", "pay", "a", key="1", user="ann"))
        other = str(one.add("look", "mail", "b", key="2"))
        assert two.near("look", "a") == {}  # looked just now
        clock.seconds = 30.0
        assert two.near("look", "a")["pay"].summary.id == first
        assert same(two.summaries(), one.summaries())
        one.credit([first, other], offered=5, right=1)
        two.credit([first, other], offered=3)
        one.flush()
        two.flush()
        assert {(each.offered, each.right) for each in two.summaries()} == {(8, 1)}  # both are in it
        two.credit(other, offered=10)  # 18 offers, right once: retired
        clock.seconds = 60.0
        assert [each.id for each in one.summaries()] == [first]
        assert one.add("look", "mail", "b", key="2") == other
        assert one.near("look", "b", targets=["mail"]) == {}
    # the server is gone
    clock.seconds = 90.0
    assert one.near("look", "a")["pay"].summary.id == first
    with pytest.raises(StorageError):
        one.add("look", "pay", "c", key="3")
    assert texts(one) == ["a"]
    fresh = over(stores[0].scoped(ME))
    with pytest.raises(StorageError):
        fresh.near("look", "a")
    with chroma_run(tmp_path, port):
        assert fresh.near("look", "a") == {}
        assert one.add("look", "pay", "c", key="3") is not None
        assert two.forget_user("ann") == 1
        clock.seconds = 120.0
        assert texts(one) == texts(two) == ["c"]
        assert SummaryRows(stores[0]).ids({"user": "ann"}) == []
