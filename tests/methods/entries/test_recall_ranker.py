"""Past requests: which of them are taken for the same request as a new one, and how surely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.entries import weights
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.ranker import Candidate, Recalled, rank, recall
from langgraph_toolmem.entries.relevance import BY_MEANING, BY_WORDS, vote
from langgraph_toolmem.entries.weights import Weights
from langgraph_toolmem.text.requests import MAX_TERMS, is_usual, terms_of, tokens

NAMES = ("amir", "bela", "chen", "dana", "emil", "farah", "goran", "hana", "ines", "jonas")
PLACES = ("Oslo", "Porto", "Quito", "Riga", "Seoul", "Tunis", "Utrecht", "Vienna", "Warsaw", "Zagreb")


def filled(entries: int = 10) -> list[Candidate]:
    """Three kinds of request; names and places change."""
    found: list[Candidate] = []
    for i in range(entries):
        name, place = NAMES[i % 10], PLACES[(3 * i) % 10]
        invoice = f"Send {name} the unpaid invoice of order {4000 + i}"
        found.append(Candidate(f"cancel{i}", f"Cancel my next meeting with {name}", ("search_events", "delete_event")))
        found.append(Candidate(f"invoice{i}", invoice, ("find_invoice", "send_mail")))
        found.append(Candidate(f"train{i}", f"Which trains leave {place} before 9:{i:02d}?", ("find_trains",)))
    return found


def learned(candidates: Sequence[Candidate]) -> Weights:
    return Weights([terms_of(each.query) for each in candidates], ["\n".join(each.tools) for each in candidates])


def recalled(candidates: Sequence[Candidate], query: str, **given_: Any) -> list[Recalled]:
    given_.setdefault("policy", RecallPolicy())
    return recall(query, candidates, learned(candidates), **given_)


# --- wording ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("since October 6", "since 2023-11-12"), ("since 3rd of May", "since Nov 21, 2024"),
        ("on Friday", "on mondays"), ("at 9:30", "at 4 pm"), ("by 5%", "by 12.5 percent"), ("for $20", "for €1,200"),
        ("order #W5442520", "order A-17x"), ("to a.b@c.org", "to mia_li@example.com"),
        ("over 14 days", "over 3 days"), ("see https://a.b/c?d", "see http://x.org"),
    ],
)  # fmt: skip
def test_values_of_a_type_are_the_same_words(one, other):
    assert tokens(one) == tokens(other)
    assert any(token.startswith("<") for token in tokens(one))


def test_types_are_kept_apart():
    found = {tokens(text)[-1] for text in ("since May 3", "since Friday", "since 9:30", "since 5", "since 5%")}
    assert len(found) == 5
    assert tokens("may I march in the second half")[0] == "may"  # a month needs its day


def test_terms_are_words_and_pairs_with_the_edges():
    assert terms_of("send it") == ("send", "it", "<edge> send", "send it", "it <edge>")
    assert terms_of("  ?! ") == ()
    assert len(terms_of(" ".join(map(str.__add__, ["w"] * 900, map(chr, range(0x4E00, 0x4E00 + 900)))))) <= MAX_TERMS
    assert is_usual("please")
    assert is_usual("of the")
    assert not is_usual("of meetings")
    assert not is_usual("<date>")


# --- learned weights --------------------------------------------------------------------------------------------


def test_what_neighbours_share_is_stable_and_what_changes_is_not():
    # Two terms stand in all three requests, each has one of its own.
    weights_of = Weights([("move", "box", own) for own in ("red", "blue", "green")], ["a", "a", "b"])
    shared, own = weights_of.of(["move", "red"], 0)
    # Rarity ln(4 / 3.5), raised to ½, and .15 for what one has; similarity of any two: 2·(½ + ½) / (2 + 2·.15).
    each = 2 * 2 * 0.5 / (2 * (1 + 0.15))
    mean = (2 * 3 * 2 * each) / (3 * 3 * 2 * each)
    stable = (weights.FLOOR + 0.9 * (6 * each + weights.PRIOR * mean) / (6 * each + weights.PRIOR)) ** weights.SHARPNESS
    alone = (weights.FLOOR + 0.9 * weights.PRIOR * mean / (2 * each + weights.PRIOR)) ** weights.SHARPNESS
    assert (shared, own) == pytest.approx((0.5 * stable, 0.15 * alone))
    # Neighbours agree in 2 of 6 cases, any two entries in 1 of 3: no more than by chance.
    assert weights_of.agreement == 0.0


def test_agreement_is_what_neighbours_have_beyond_chance():
    rows = [("move", "box", "red"), ("move", "box", "blue"), ("open", "door", "old"), ("open", "door", "new"), ("hi",)]
    assert Weights(rows, ["a", "a", "b", "b", ""]).agreement == pytest.approx(1 - 4 / 12)  # any two do in 4 of 12


def test_a_term_that_the_sample_lacks_weighs_by_how_many_of_those_compared_have_it():
    few = Weights([("move", "box")] * 2, ["a", "a"])
    once, twice = (few.of(["piano", "move"], [times, 9])[0] for times in (1, 2))
    assert once < twice
    assert Weights().of(["piano"], 0)[0] > 0


# --- recall -----------------------------------------------------------------------------------------------------


def kinds(query: str) -> set[str]:
    return {each.id.rstrip("0123456789") for each in recalled(filled(), query)}


def test_the_same_request_with_other_values_is_recalled_and_only_that():
    assert kinds("Cancel my next meeting with zoltan") == {"cancel"}
    assert kinds("Send zoltan the unpaid invoice of order 77") == {"invoice"}
    assert kinds("Which trains leave Lyon before 11:15?") == {"train"}
    assert len(recalled(filled(), "Cancel my next meeting with zoltan")) == 10


@pytest.mark.parametrize(
    "query",
    [
        "How is the weather in Oslo tomorrow?",
        "Cancel the order of farah",
        "Write jonas an e-mail about the trains",
        "Delete all invoices",
        "please",
        "",
        "☃",
    ],
)
def test_nothing_is_recalled_for_another_request(query):
    assert recalled(filled(), query) == []


def test_a_single_entry_is_enough():
    assert recalled([], "Cancel my next meeting with amir") == []
    one = [Candidate("a", "Cancel my next meeting with amir", ("delete_event",))]
    assert [each.id for each in recalled(one, "Cancel my next meeting with bela")] == ["a"]
    assert recalled(one, "Which trains leave Lyon?") == []


def test_an_answer_says_how_sure_it_is_and_why_without_the_words():
    first = recalled(filled(), "Cancel my next meeting with zoltan")[0]
    assert 0.5 < first.score < 1
    assert 0.5 < first.similarity <= 1
    assert "% of the wording" in first.evidence
    assert not {"cancel", "meeting", "zoltan"} & set(first.evidence.lower().split())


def test_k_holds_and_so_does_the_policy():
    query = "Cancel my next meeting with amir"
    assert len(recalled(filled(), query, k=2)) == 2
    assert recalled(filled(), query, k=0) == []
    assert len(recalled(filled(), query, policy=RecallPolicy(max_n=3))) == 3


def test_rules_on_similarities_go_by_wording_or_by_cosines():
    fixed, query = RecallPolicy(kind="fixed", n=2), "Which trains leave Lyon before 11:15?"
    assert {each.id for each in recalled(filled(3), query, policy=fixed)} <= {"train0", "train1", "train2"}
    cosines = {"cancel1": 0.9, "invoice2": 0.8, "train0": 0.1}
    near = [each._replace(cosine=cosines.get(each.id, 0.05)) for each in filled(3)]
    found = recalled(near, query, policy=fixed, dense=True)
    assert [(each.id, each.score) for each in found] == [("cancel1", 0.9), ("invoice2", 0.8)]


def test_meaning_brings_what_shares_no_word():
    near = [Candidate(str(i), f"Rasieren bei {name}", ("book_barber",), cosine=0.9) for i, name in enumerate(NAMES)]
    query, known = "Shaving appointment, please", learned(near)
    ranked = rank(query, near, known, dense=True)
    assert ranked.model is BY_MEANING
    assert ranked.cosines is not None
    assert len(ranked.shortlist) == 10
    assert rank(query, near, known).model is BY_WORDS
    farther = rank(query, [each._replace(cosine=0.2) for each in near], known, dense=True)
    sure = [each.model.probabilities(each.features).max() for each in (ranked, farther)]
    assert sure[0] > sure[1]


def test_votes_are_weighed_by_nearness():
    same = np.array([[True, True, False], [True, True, False], [False, False, True]])
    near = 1 / np.exp(1)
    # For the first: the second (same, farther by .1 → e^−1) against the third (as far): half.
    assert vote(np.array([0.5, 0.4, 0.4]), same, 10.0) == pytest.approx([0.5, 1 / (1 + near), 0.0])
    assert vote(np.array([0.5]), same[:1, :1], 10.0) == pytest.approx([0.0])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=60), st.lists(st.text(max_size=5), max_size=3)), max_size=12), st.text())
def test_any_text_can_be_kept_and_asked(entries, query):
    found = [Candidate(str(i), text, tuple(tools), cosine=0.5) for i, (text, tools) in enumerate(entries)]
    assert all(0 <= each.score <= 1 for each in [*recalled(found, query, dense=True), *recalled(found, query)])
