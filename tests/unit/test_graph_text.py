"""Text as a source: words and places, shapes, quotes, dates."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.text.values import month_day, read_text, shape_of


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_text_is_read_and_its_words_are_found(raw: str):
    text = read_text(raw)

    assert len(text.words) == len(text.starts) == len(text.ends)
    for i, (start, end) in enumerate(zip(text.starts, text.ends, strict=True)):
        assert raw[start:end].lower() == text.words[i] == text.span(i, i).lower()
        shape_of(text.span(i, i))
    month_day(raw)


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
