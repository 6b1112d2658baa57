"""Past requests: which of them are relevant for a new one, and how surely."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem import RecallPolicy
from langgraph_toolmem.entries.recall import RELEVANCE, Match, PastRequest, TermWeights, rank
from langgraph_toolmem.text.wording import REQUEST_LIMITS, is_usual, terms_of

NAMES = ("amir", "bela", "chen", "dana", "emil", "farah", "goran", "hana", "ines", "jonas")
PLACES = ("Oslo", "Porto", "Quito", "Riga", "Seoul", "Tunis", "Utrecht", "Vienna", "Warsaw", "Zagreb")
LEAST = RecallPolicy().least


def past(request: str, *tools: str) -> PastRequest:
    return PastRequest(terms_of(request), "\n".join(tools))


def filled(entries: int = 10) -> list[tuple[str, PastRequest]]:
    """Three kinds of request; names and places change."""
    found = []
    for i in range(entries):
        name, place = NAMES[i % 10], PLACES[(3 * i) % 10]
        found += [
            ("cancel", past(f"Cancel my next meeting with {name}", "search_events", "delete_event")),
            ("invoice", past(f"Send {name} the unpaid invoice of order {4000 + i}", "find_invoice", "send_mail")),
            ("train", past(f"Which trains leave {place} before 9:{i:02d}?", "find_trains")),
        ]
    return found


def recalled(candidates: Sequence[PastRequest], query: str) -> list[Match]:
    found = rank(query, candidates, TermWeights([each.terms for each in candidates]))
    return [match for match in found if match.probability >= LEAST]


def kinds(query: str) -> list[str]:
    made = filled()
    return [made[match.place][0] for match in recalled([each for _, each in made], query)]


# --- wording ----------------------------------------------------------------------------------------------------


def test_terms_are_words_and_pairs_with_the_edges() -> None:
    assert terms_of("send it") == ("send", "it", "<edge> send", "send it", "it <edge>")
    assert terms_of("  ?! ") == ()
    assert (
        len(terms_of(" ".join(map(str.__add__, ["w"] * 900, map(chr, range(0x4E00, 0x4E00 + 900))))))
        <= REQUEST_LIMITS.terms
    )
    assert is_usual("please")
    assert is_usual("of the")
    assert not is_usual("of meetings")
    assert not is_usual("<date>")


# --- learned weights --------------------------------------------------------------------------------------------


def test_what_neighbours_share_is_stable_and_what_changes_is_not() -> None:
    # Two terms stand in all three requests, each has one of its own.
    weights = TermWeights([("move", "box", own) for own in ("red", "blue", "green")])
    shared, own = weights.of(["move", "red"], 0)
    # Rarity ln(4 / 3.5), raised to ½, and .15 for what one has; similarity of any two: 2·(½ + ½) / (2 + 2·.15).
    each = 2 * 2 * 0.5 / (2 * (1 + 0.15))
    mean = (2 * 3 * 2 * each) / (3 * 3 * 2 * each)
    stable = ((6 * each + RELEVANCE.prior * mean) / (6 * each + RELEVANCE.prior)) ** RELEVANCE.sharpness
    alone = (RELEVANCE.prior * mean / (2 * each + RELEVANCE.prior)) ** RELEVANCE.sharpness
    assert (shared, own) == pytest.approx((0.5 * stable, 0.15 * alone))


# --- rank -------------------------------------------------------------------------------------------------------


def test_the_same_request_with_other_values_is_recalled_and_only_that() -> None:
    assert kinds("Cancel my next meeting with zoltan") == ["cancel"] * 10
    assert set(kinds("Send zoltan the unpaid invoice of order 77")) == {"invoice"}
    assert set(kinds("Which trains leave Lyon before 11:15?")) == {"train"}


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
def test_nothing_is_recalled_for_another_request(query: str) -> None:
    assert kinds(query) == []


def test_votes_count_those_nearer_to_the_request_more() -> None:
    """By hand: three requests, of which the first two called the same."""
    made = [past("move box red", "a"), past("move box blue", "a"), past("open door", "b")]
    found = {match.place: match for match in rank("move box green", made, TermWeights())}
    assert found[0].vote == found[1].vote > 0.9
    assert found[2].vote == 0.0
    assert found[0].covered == found[1].covered > found[2].covered == 0.0
    assert [match.vote for match in rank("move box", made[:1], TermWeights())] == [0.0]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.text(max_size=60), st.lists(st.text(max_size=5), max_size=3)), max_size=12), st.text())
def test_any_text_can_be_kept_and_asked(entries: list[tuple[str, list[str]]], query: str) -> None:
    made = [past(text, *tools) for text, tools in entries]
    found = rank(query, made, TermWeights([each.terms for each in made]))
    assert sorted(match.place for match in found) == list(range(len(made)))
    assert all(0 <= match.probability <= 1 for match in found)
