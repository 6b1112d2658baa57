"""The index of past requests: what it takes for the same request, and that nothing forgotten stays in it."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.entries import ranker, weights
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.ranker import EntryIndex
from langgraph_toolmem.entries.relevance import BY_MEANING, BY_WORDS, vote
from langgraph_toolmem.words.wording import MAX_TERMS, is_usual, terms, tokens

NAMES = ("amir", "bela", "chen", "dana", "emil", "farah", "goran", "hana", "ines", "jonas")
PLACES = ("Oslo", "Porto", "Quito", "Riga", "Seoul", "Tunis", "Utrecht", "Vienna", "Warsaw", "Zagreb")


def filled(entries: int = 10) -> EntryIndex:
    """Three kinds of request; names and places change."""
    index = EntryIndex()
    for i in range(entries):
        name, place = NAMES[i % 10], PLACES[(3 * i) % 10]
        index.add(f"cancel{i}", f"Cancel my next meeting with {name}", ["search_events", "delete_event"])
        index.add(f"invoice{i}", f"Send {name} the unpaid invoice of order {4000 + i}", ["find_invoice", "send_mail"])
        index.add(f"train{i}", f"Which trains leave {place} before 9:{i:02d}?", ["find_trains"])
    return index


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
    assert terms("send it") == ("send", "it", "<edge> send", "send it", "it <edge>")
    assert terms("  ?! ") == ()
    assert len(terms(" ".join(map(str.__add__, ["w"] * 900, map(chr, range(0x4E00, 0x4E00 + 900)))))) <= MAX_TERMS
    assert is_usual("please")
    assert is_usual("of the")
    assert not is_usual("of meetings")
    assert not is_usual("<date>")


# --- learned weights --------------------------------------------------------------------------------------------


def test_what_neighbours_share_is_stable_and_what_changes_is_not():
    # Terms 0 and 1 stand in all three, each has one of its own.
    rows = [np.array([0, 1, own], dtype=np.int32) for own in (2, 3, 4)]
    learned = weights.learn(rows, np.array([1.0, 1.0, 0.5, 0.5, 0.5]), np.zeros(5, dtype=bool), ["a", "a", "b"])

    # Similarity of any two: 2·2 / 5 = .8, each has two neighbours: 1.6 for each term of each entry.
    mean = (2 * 3 * 1.6) / (3 * 3 * 1.6)
    shared = (weights.FLOOR + 0.9 * (4.8 + weights.PRIOR * mean) / (4.8 + weights.PRIOR)) ** weights.SHARPNESS
    own = (weights.FLOOR + 0.9 * weights.PRIOR * mean / (1.6 + weights.PRIOR)) ** weights.SHARPNESS
    assert learned.stability == pytest.approx([shared, shared, own, own, own])
    # Neighbours agree in 2 of 6 cases, any two entries in 1 of 3: no more than by chance.
    assert learned.agreement == 0.0


def test_agreement_is_what_neighbours_have_beyond_chance():
    rows = [np.array(ids, dtype=np.int32) for ids in ([0, 1, 4], [0, 1, 5], [2, 3, 6], [2, 3, 7], [8])]
    learned = weights.learn(rows, np.ones(9), np.zeros(9, dtype=bool), ["a", "a", "b", "b", ""])
    assert learned.agreement == pytest.approx(1 - 4 / 12)  # always, where any two of the four do in 4 of 12 cases


# --- recall -----------------------------------------------------------------------------------------------------


def kinds(index: EntryIndex, query: str, **given_: object) -> set[str]:
    return {each.id.rstrip("0123456789") for each in index.recall(query, **given_)}  # type: ignore[arg-type]


def test_the_same_request_with_other_values_is_recalled_and_only_that():
    index = filled()
    assert kinds(index, "Cancel my next meeting with zoltan") == {"cancel"}
    assert kinds(index, "Send zoltan the unpaid invoice of order 77") == {"invoice"}
    assert kinds(index, "Which trains leave Lyon before 11:15?") == {"train"}
    assert len(index.recall("Cancel my next meeting with zoltan")) == 10


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
    assert filled().recall(query) == []


def test_a_single_entry_is_enough():
    index = EntryIndex()
    assert index.recall("Cancel my next meeting with amir") == []
    index.add("a", "Cancel my next meeting with amir", ["delete_event"])
    assert [each.id for each in index.recall("Cancel my next meeting with bela")] == ["a"]
    assert index.recall("Which trains leave Lyon?") == []


def test_an_answer_says_how_sure_it_is_and_why_without_the_words():
    first = filled().recall("Cancel my next meeting with zoltan")[0]
    assert 0.5 < first.score < 1
    assert 0.5 < first.similarity <= 1
    assert "% of the wording" in first.evidence
    assert not {"cancel", "meeting", "zoltan"} & set(first.evidence.lower().split())


def test_of_entries_that_say_the_same_the_newest_stands_for_all():
    index = filled()
    for i in range(300):
        index.add(f"again{i}", "Which trains leave Lyon before 11:15?", ["find_trains"])
    index.add("failed", "Which trains leave Lyon before 11:15?", ["find_trains"], kind="failed")
    found = [each.id for each in index.recall("Which trains leave Lyon before 11:15?")]
    assert {"again299", "failed"} <= set(found)
    assert sum(key.startswith("again") for key in found) == 1
    assert len(found) > 2  # and the others are not crowded out


def test_what_is_excluded_is_not_shown_and_k_max_holds():
    index = filled()
    query = "Cancel my next meeting with amir"
    assert "cancel0" in {each.id for each in index.recall(query)}
    assert "cancel0" not in {each.id for each in index.recall(query, exclude=["cancel0"])}
    assert len(index.recall(query, k_max=2)) == 2
    assert index.recall(query, k_max=0) == []
    assert len(index.recall(query, policy=RecallPolicy(max_n=3))) == 3


def test_rules_on_similarities_go_by_wording_or_by_the_cosines_given():
    index = filled(3)
    fixed = RecallPolicy(kind="fixed", n=2)
    assert {each.id for each in index.recall("Which trains leave Lyon before 11:15?", policy=fixed)} <= {
        "train0", "train1", "train2",
    }  # fmt: skip
    near = {"cancel1": 0.9, "invoice2": 0.8, "train0": 0.1, "gone": 1.0}
    found = index.recall("Which trains leave Lyon before 11:15?", policy=fixed, near=near)
    assert [(each.id, each.score) for each in found] == [("cancel1", 0.9), ("invoice2", 0.8)]


def test_meaning_brings_what_shares_no_word():
    index = EntryIndex()
    for i, name in enumerate(NAMES):
        index.add(str(i), f"Rasieren bei {name}", ["book_barber"])
    query = "Shaving appointment, please"
    ranked = index.rank(query, near={str(i): 0.9 - 0.01 * i for i in range(10)})
    assert ranked.model is BY_MEANING
    assert ranked.cosines is not None
    assert len(ranked.shortlist) == 10
    with_meaning = ranked.model.probabilities(ranked.features)
    without = index.rank(query)
    assert without.model is BY_WORDS
    assert len(without.ids) == 0
    farther = index.rank(query, near={str(i): 0.2 for i in range(10)})
    assert with_meaning.max() > farther.model.probabilities(farther.features).max()


def test_votes_are_weighed_by_nearness():
    same = np.array([[True, True, False], [True, True, False], [False, False, True]])
    near = 1 / np.exp(1)
    # For the first: the second (same, farther by .1 → e^−1) against the third (as far): half.
    assert vote(np.array([0.5, 0.4, 0.4]), same, 10.0) == pytest.approx([0.5, 1 / (1 + near), 0.0])
    assert vote(np.array([0.5]), same[:1, :1], 10.0) == pytest.approx([0.0])


# --- changes ----------------------------------------------------------------------------------------------------


def test_an_entry_that_says_the_same_keeps_its_place():
    index = filled(3)
    before = index.rank("Cancel my next meeting with amir").ids
    index.add("cancel0", "Cancel my next meeting with amir", ["search_events", "delete_event"])
    assert index.rank("Cancel my next meeting with amir").ids == before
    index.add("cancel0", "Which trains leave Lyon before 11:15?", ["find_trains"])
    assert len(index) == 9
    assert "cancel0" in {each.id for each in index.recall("Which trains leave Oslo before 8:00?")}


def test_what_was_removed_leaves_no_word():
    index = filled()
    index.add("secret", "Pay the blackmailer Rumpelstilz", ["pay"])
    assert index.remove("secret")
    assert not index.remove("secret")
    assert "secret" not in index
    assert b"rumpelstilz" not in pickle.dumps(index)
    assert index.recall("Pay the blackmailer Rumpelstilz") == []


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_an_index_that_lived_answers_like_one_made_anew(seed, changes):
    draw = random.Random(seed)
    lived, order = EntryIndex(), dict[str, tuple[str, list[str]]]()
    for _ in range(changes):
        key = str(draw.randrange(25))
        if draw.random() < 0.3:
            assert lived.remove(key) == (order.pop(key, None) is not None)
        else:
            tool = draw.choice(["open", "close"])
            said = f"{tool} the {draw.choice(['red', 'blue', 'old'])} door of {draw.choice(NAMES)}", [tool]
            lived.add(key, *said)
            if order.get(key) != said:
                order.pop(key, None)
                order[key] = said
    anew = EntryIndex()
    for key, said in order.items():
        anew.add(key, *said)
    one, other = (index.rank("open the red door of zoltan") for index in (lived, anew))
    assert one.ids == other.ids
    assert one.similarities == pytest.approx(other.similarities)
    assert one.features == pytest.approx(other.features)


def test_numbers_are_given_anew_when_most_are_gone(monkeypatch):
    monkeypatch.setattr(ranker, "CROWD", 8)
    index, anew = EntryIndex(), EntryIndex()
    for i in range(400):
        index.add(str(i % 7), f"open the door of {NAMES[i % 10]} in {PLACES[i % 9]}", ["open"])
    for i in range(393, 400):
        anew.add(str(i % 7), f"open the door of {NAMES[i % 10]} in {PLACES[i % 9]}", ["open"])
    assert index.rank("open the door of ines").ids == anew.rank("open the door of ines").ids
    assert index.next_number < 100


def test_bounded_postings_keep_the_newest(monkeypatch):
    monkeypatch.setattr(ranker, "MAX_POSTINGS", 16)
    index = EntryIndex()
    for i in range(200):
        index.add(str(i), f"open the door of house {chr(97 + i % 26)}{chr(97 + i // 26)}", ["open"])
    found = {int(each.id) for each in index.recall("open the door of house zz")}
    assert found
    assert min(found) >= 160
    for i in range(200):
        assert index.remove(str(i))
    assert index.recall("open the door of house zz") == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=60), st.lists(st.text(max_size=5), max_size=3)), max_size=12), st.text())
def test_any_text_can_be_kept_and_asked(entries, query):
    index = EntryIndex()
    for number, (text, tools) in enumerate(entries):
        index.add(str(number), text, tools)
    found = index.recall(query, near={str(number): 0.5 for number in range(len(entries))})
    assert all(0 <= each.score <= 1 for each in [*found, *index.recall(query)])
