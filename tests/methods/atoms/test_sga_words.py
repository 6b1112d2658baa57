"""Values in texts, by looks and by the words beside them."""

from __future__ import annotations

import doctest
import itertools

import pytest

from langgraph_toolmem.atoms import situation, slots, words
from langgraph_toolmem.atoms.words import labelled, slots_in
from langgraph_toolmem.text.values import delexicalised, kind_of, values_in


@pytest.mark.parametrize("module", [words, slots, situation], ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings(module):
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mail ann.lee@x.org.", [("EMAIL", "ann.lee@x.org")]),
        ("see https://x.org/a?b=1 now", [("URL", "https://x.org/a?b=1")]),
        ("on 2024-05-01 10:30:00 or March 3rd", [("DATE", "2024-05-01 10:30:00"), ("DATE", "March 3rd")]),
        ("in the last 3 days, tomorrow", [("DATE", "the last 3 days"), ("DATE", "tomorrow")]),
        ("at 14:30 for $20.50", [("TIME", "14:30"), ("AMOUNT", "$20.50")]),
        ("call +49 170 1234567", [("PHONE", "+49 170 1234567")]),
        ("order #W6818211 via paypal_3976765", [("ID", "#W6818211"), ("ID", "paypal_3976765")]),
        ("a 30-minute call with 50 people", [("NUMBER", "30-minute"), ("NUMBER", "50")]),
        ("rename 'old.txt' to 'new name'", [("FILE", "old.txt"), ("TEXT", "new name")]),
        ("write to Ann Lee about it", [("NAME", "Ann Lee")]),
        ("Ann and Bob came", [("NAME", "Bob")]),
        ("nia's last email, today's list", [("NAME", "nia"), ("DATE", "today")]),
        ("I've seen that I'm late, also Otherwise", []),
        ("Please go. Then stop", []),
        ("", []),
    ],
)
def test_the_kinds_of_values(text: str, found: list[tuple[str, str]]):
    assert [(value.kind, value.text) for value in values_in(text)] == found


def test_values_do_not_overlap_and_stand_where_they_say():
    text = "Send 'report_2024.pdf' to ann@x.org and Bob Fox by 2024-01-02, id #A1B2C3, $5"
    values = values_in(text)
    assert [text[value.start : value.end] for value in values] == [value.text for value in values]
    assert all(one.end <= other.start for one, other in itertools.pairwise(values))


@pytest.mark.parametrize(
    ("value", "kind"),
    [("a@b.org", "EMAIL"), ("2024-01-02T03:04:05Z", "DATE"), ("C-17", "ID"), ("bar", ""), ("in progress", ""),
     ("00000137", "NUMBER"), ("Monday", ""), ("x" * 300, ""), ("notes.txt", "FILE")],
)  # fmt: skip
def test_the_kind_of_a_whole_value(value: str, kind: str):
    assert kind_of(value) == kind


LABELS = {
    frozenset({"order", "id"}): "ORDER_ID",
    frozenset({"user", "id"}): "USER_ID",
    frozenset({"zipcode"}): "ZIPCODE",
    frozenset({"task"}): "TASK",
}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("cancel order #W17X", "ORDER_ID"),
        ("my user id is 'USR002'", "USER_ID"),
        ("my zip code is 60642", "ZIPCODE"),
        ("For #W17X, change it", ""),
        ("a task called 'Improve it'", "TASK"),
        ("a task, and mail 'Improve it'", ""),
        ("the task 'Improve it'", "TASK"),
        ("order for ann@x.org", ""),
    ],
)
def test_the_words_beside_a_value_say_what_it_is(text: str, label: str):
    (value,) = values_in(text)
    assert labelled(text, value, LABELS) == label


def test_known_values_are_replaced_by_their_types_whatever_they_look_like():
    text = "Tell yuki about #W17X and Yuki's plan"
    assert delexicalised(text, {"yuki": "PERSON"}, also=["yuki"]) == "Tell <PERSON> about <ID> and <PERSON>'s plan"
    assert slots_in(delexicalised(text, {"#W17X": "ORDER_ID"})) == ["ORDER_ID", "NAME"]
