"""Prompt and context as sources: each kind by hand."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_toolmem.graph.sources import SeenDigests, SeenInput, describe
from langgraph_toolmem.runs.run import ModelInput
from langgraph_toolmem.runs.values import ABSENT
from langgraph_toolmem.text.values import extents, is_open, read_text, right_of, until

PROMPT = """You help customers of Example Ltd.
Customer: Maria del Carmen (gold)
<user id="C17" tier="gold"/>
Today is Thursday, 2026-03-05, 09:00.
- Order O-1 is open
- Order O-2 is open
The contract ends on 1 April 2027.
Version v1.2 of the rules. Account acc-9"""


def seen(system: str = PROMPT, *, complete: bool = True, **context: Any) -> SeenInput:
    return SeenInput(ModelInput(system, context, complete))


@pytest.mark.parametrize(
    ("value", "descriptor"),
    [
        ("Maria del Carmen", "pa|Customer :|("),
        ("C17", 'pa|id = "|"'),
        ("gold", 'pa|tier = "|"'),
        ("2026-03-05", "pa|Thursday ,|,"),
        ("2026-03-06 00:00:00", "pd|0|1| 00:00:00"),
        ("2027-04-01", "pd|1|0|"),
        ("acc-9", "pa|Account|$"),
        ("v1.2", "pa|Version|of"),
        ("eu", "xf|region"),
        ("7", "xf|tenant"),
        ("2026-01-02", "xd|since|1|"),
    ],
)
def test_a_value_is_found_at_its_place_and_read_there_again(value: str, descriptor: str):
    read = seen(region="eu", tenant=7, since="2026-01-01")
    places = read.places(value)

    assert any(place.startswith(descriptor) for place in places), places
    assert all(read.agrees(place, value) for place in places)
    assert all(map(describe, places))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("Maria", "only a part of a line's value has other words after it"),
        ("O-1", "two lines look alike, so the place names neither"),
        ("2026-05-05", "too far from any date"),
        ("2026-03-05 13:10", "a moment that nothing here shows"),
        ("rm", "a part of a word"),
        ("", "nothing"),
    ],
)
def test_what_is_no_whole_value_of_a_place(value: str, why: str):
    customer = [place for place in seen().places(value) if place != "pa|Customer :|del" and place != "pa|:|del"]
    assert not customer, why


def test_a_place_follows_the_value_whatever_its_length():
    for name in ("Madonna", "王伟", "Anna Petit", "Maria del Carmen de la Cruz"):
        read = seen(PROMPT.replace("Maria del Carmen", name))
        assert read.value_at("pa|Customer :|(") == name
    assert seen("Nobody").value_at("pa|Customer :|(") is ABSENT


def test_an_incomplete_input_gives_nothing():
    read = seen(complete=False, tenant=7)
    assert read.places("C17") == read.places("7") == []
    assert read.value_at("xf|tenant") is ABSENT


def test_what_stays_on_disk_knows_the_values_and_does_not_show_them():
    kept = seen(tenant="acme").digests(["pa|Customer :|(", "pa|nowhere|$"])
    plain = kept.plain()
    again = SeenDigests.of(plain)

    assert "acme" not in repr(plain)
    assert "Carmen" not in repr(plain)
    assert again.agrees("pa|Customer :|(", "Maria del Carmen") is True
    assert again.agrees("pa|Customer :|(", "Maria") is False
    assert again.agrees("pa|nowhere|$", "x") is None
    assert again.places("acme") == ["xf|tenant"]
    assert again.value_at("xf|tenant") is ABSENT


# --- extents ---


@pytest.mark.parametrize(
    ("text", "start", "found"),
    [
        (
            "Pay Maria del Carmen 12.50",
            1,
            {"first": "Maria", "last": "Maria", "name": "Maria", "joined": "Maria del Carmen", "numbered": "Maria"},
        ),
        (
            "Pay Anna Petit 12.50 now",
            1,
            {
                "first": "Anna",
                "last": "Petit",
                "name": "Anna Petit",
                "joined": "Anna Petit",
                "numbered": "Anna Petit 12.50",
            },
        ),
        ("Call 王伟 back", 1, dict.fromkeys(("first", "last", "name", "joined", "numbered"), "王伟")),
        ("Order 4711 Berlin", 1, {"token": "4711", "numbered": "4711 Berlin"}),
        ("look for red shoes", 2, {}),
    ],
)
def test_extents_by_hand(text: str, start: int, found: dict[str, str]):
    read = read_text(text)
    assert {name: read.span(*span) for name, span in extents(text, start).items()} == found


def test_what_is_right_of_a_span_tells_its_end():
    text = read_text("Look for red shoes now, for 2 people")
    assert right_of(text, 3) == "now"
    assert right_of(text, 4) == "."
    assert right_of(text, 6) == "#"
    assert until(text, 2, "now") == (2, 3)
    assert until(text, 2, "please") is None


@pytest.mark.parametrize(
    ("first", "last", "is_part"), [(3, 3, True), (4, 4, True), (3, 4, False), (1, 1, False), (6, 6, False)]
)
def test_a_part_of_a_name_is_open(first: int, last: int, is_part: bool):
    text = read_text("Please book in New York then Basel")
    assert is_open(text, first, last) is is_part
