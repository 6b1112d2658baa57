"""Compound requests in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_toolmem.text.requests import MAX_CLAUSES, MAX_SENTENCES, split_clauses


@pytest.mark.parametrize(
    "text",
    [
        "Convert 3.5 miles at example.com/a.b",
        "Compare e.g. Oslo with Rome",
        "Find the android handbook",
        "Etsi lento ja varaa hotelli",
    ],
    ids=["dots inside", "abbreviation", "join inside a word", "language not known"],
)
def test_what_stays_together(text):
    assert split_clauses(text).clauses == (text,)


def test_sentences_and_clauses():
    found = split_clauses("I plan a trip. Find a flight to Oslo, book a hotel and then mail me the plan!")
    assert found.sentences == ("I plan a trip.", "Find a flight to Oslo, book a hotel and then mail me the plan!")
    assert found.clauses == ("I plan a trip", "Find a flight to Oslo", "book a hotel", "mail me the plan")
    assert split_clauses("查找航班，预订酒店。发送邮件").clauses == ("查找航班", "预订酒店", "发送邮件")
    assert split_clauses("Tasks:\n1. find a flight\n- mail me").sentences == ("Tasks:", "find a flight", "mail me")
    assert split_clauses("go home. go home. go home.").sentences == ("go home.",)
    many = split_clauses(". ".join(f"do {i}, see {i}" for i in range(1000)))
    assert len(many.sentences) == MAX_SENTENCES
    assert len(many.clauses) <= MAX_CLAUSES


@given(st.text(max_size=300))
def test_any_text_is_split_into_parts_of_itself(text):
    found = split_clauses(text)
    assert all(piece in text for piece in (*found.sentences, *found.clauses))
    assert bool(found.sentences) == bool(found.clauses)
