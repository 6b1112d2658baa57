"""Words, values, months and weekdays, and texts as a source of values."""

from __future__ import annotations

import doctest
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.text import values, wording
from langgraph_toolmem.text import words as words_module
from langgraph_toolmem.text.values import (
    KINDS,
    MONTHS,
    RANKED,
    WEEKDAYS,
    WHOLE_VALUES,
    dates_in,
    kind_of,
    read_text,
    shape_of,
    values_in,
)
from langgraph_toolmem.text.wording import is_small_talk

MODULES = [wording, values, words_module]
PARTS = ["3", "May", "mai", "$", "5月", "日", "2024-05-03", "a@b.c", "'", "“", "#W1", ".", " ", "k"]
ANY_TEXT = st.one_of(st.text(max_size=120), st.lists(st.sampled_from(PARTS)).map("".join))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings(module):
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


def found(text: str, kinds: frozenset[str] = KINDS) -> list[tuple[str, str]]:
    return [(value.kind, value.text) for value in values_in(text, kinds)]


# --- months and weekdays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "date"),
    [("on May 3rd, 2024", "05-03"), ("the 21st of November 2023", "11-21"), ("Sept. 9", "09-09")],
)
def test_dates_are_known_by_their_months(text: str, date: str):
    assert dates_in(text) == (date,)


def test_every_name_is_found_in_any_case():
    assert set(MONTHS.values()) == set(range(1, 13))
    for name, number in MONTHS.items():
        for form in (name, name.upper(), name.title()):
            assert dates_in(f"3 {form}") == (f"{number:02d}-03",), form
    for form in itertools.chain(WEEKDAYS, map(str.upper, WEEKDAYS)):
        assert found(form, frozenset({"DAY"})) == [("DAY", form)]


@pytest.mark.parametrize(
    "text",
    ["10 out of 12", "set 5 alarms, 3 set", "5 ago 3", "3 gen 4", "may I march on", "5 lip 3", "sunny, Montague"],
)
def test_words_that_look_like_months_are_none(text: str):
    assert {kind for kind, _ in found(text, RANKED)} <= {"NUMBER"}


# --- other values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("to ann.b+c@mail.x.org.", [("EMAIL", "ann.b+c@mail.x.org")]),
        ("a@b, @ann", [("NAME", "ann")]),
        ("(see https://x.org/a?b=1, www.y.org/z.)", [("URL", "https://x.org/a?b=1"), ("URL", "www.y.org/z")]),
        ("$1,200.50, 1.234,56 €", [("AMOUNT", "$1,200.50"), ("AMOUNT", "1.234,56 €")]),
        ("EUR 20 und 12 USD, 7, $8", [("AMOUNT", "EUR 20"), ("AMOUNT", "12 USD"), ("NUMBER", "7"), ("AMOUNT", "$8")]),
        ("12,5 % of 1,000", [("PERCENT", "12,5 %"), ("NUMBER", "1,000")]),
        ("order #W5442520, A-17x, paypal_39", [("ID", "#W5442520"), ("ID", "A-17x"), ("ID", "paypal_39")]),
        ("card 3704-0044-0532-0130", [("ID", "3704-0044-0532-0130")]),
        ("at 9:30, 5 p.m.", [("TIME", "9:30"), ("TIME", "5 p.m.")]),
        ("2024-05-01T10:00:00Z", [("DATE", "2024-05-01T10:00:00Z")]),
        ("in 2024-05-067", [("NUMBER", "2024"), ("NUMBER", "05"), ("NUMBER", "067")]),
        ("„neu“, «vieux jour», 「新しい」", [("TEXT", "neu"), ("TEXT", "vieux jour"), ("TEXT", "新しい")]),
        ("plots/2023-10-19_bar.png", [("FILE", "plots/2023-10-19_bar.png")]),
        ("password: hunter2!", [("TEXT", "hunter2")]),
        # What begins with letters, or with a mark, is not overlooked
        ("US$ 5, ab1, Q1", [("AMOUNT", "US$ 5"), ("ID", "ab1"), ("ID", "Q1")]),
        ("eur 3 in March", [("AMOUNT", "eur 3"), ("DATE", "March")]),
        ("a/b.txt. (x@y.org) pin: 7 , .c/d", [("FILE", "a/b.txt"), ("EMAIL", "x@y.org"), ("TEXT", "7")]),
    ],
)  # fmt: skip
def test_values_by_their_looks(text: str, said: list[tuple[str, str]]):
    assert found(text) == said


def test_what_is_looked_for_is_what_is_found():
    text = "Mail 'it' to ann@x.org by Friday or May 3, call +49 170 1234567, $5, Ann"
    assert [value.kind for value in values_in(text)] == ["TEXT", "EMAIL", "DATE", "DATE", "PHONE", "AMOUNT", "NAME"]
    assert found(text, frozenset({"EMAIL", "AMOUNT"})) == [("EMAIL", "ann@x.org"), ("AMOUNT", "$5")]
    assert ("DAY", "Friday") in found(text, RANKED)
    assert kind_of("Friday") == ""


@settings(max_examples=150)
@given(ANY_TEXT, st.sampled_from([KINDS, RANKED, WHOLE_VALUES, frozenset({"DATE", "AMOUNT"})]))
def test_values_of_any_text_stand_where_they_say_and_do_not_overlap(text: str, kinds: frozenset[str]):
    told = values_in(text, kinds)
    assert all(text[value.start : value.end] == value.text != "" and value.kind in kinds for value in told)
    assert all(one.end <= other.start for one, other in itertools.pairwise(told))
    for value in told:
        kind_of(value.text)


# --- words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["that's fine, thanks!", "Don’t think so", "OK"])
def test_small_talk_has_apostrophes(text: str):
    assert is_small_talk(text, frozenset({"that", "do"}))


# --- texts as a source ----------------------------------------------------------------------------------------


@given(st.text(max_size=200))
@settings(max_examples=100)
def test_any_text_is_read_and_its_words_are_found(raw: str):
    text = read_text(raw)

    assert len(text.words) == len(text.starts) == len(text.ends)
    for i, (start, end) in enumerate(zip(text.starts, text.ends, strict=True)):
        assert raw[start:end].lower() == text.words[i] == text.span(i, i).lower()
        shape_of(text.span(i, i))
    dates_in(raw)


def test_a_value_is_found_whole_and_regardless_of_case():
    text = read_text("Send it to Alice Smith, not to Al.")

    assert text.find("alice smith") == (3, 4)
    assert text.find("Al") == (8, 8)
    assert text.find("lice") is None
    assert text.find("") is None
    assert text.find("x " * 300) is None


@pytest.mark.parametrize(
    ("token", "shape"),
    [
        ("a@b.co", "<email>"),
        ("2024-01-31", "<date>"),
        ("2024-01-31T10:00", "<datetime>"),
        ("a/b", "<path>"),
        ("report.pdf", "<file>"),
        ("first_name", "<underscored>"),
        ("@anna", "@<word>"),
        ("12", "<number>"),
        ("12345", "<digits5>"),
        ("12.5%", "<number>"),
        ("$1,200", "<number>"),
        ("#W123", "#A999"),
        ("ab12C", "aa99A"),
        ("hello", None),
        ("?", None),
        ("", None),
    ],
)
def test_shapes(token: str, shape: str | None):
    assert shape_of(token) == shape
