"""Outputs of any size: a stated part is read, and what lies behind it gives no value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from langgraph_toolmem.graph.cases import replacements
from langgraph_toolmem.runs import messages
from langgraph_toolmem.runs.messages import MAX_OPEN, MAX_READ, output_of_text

ROWS = [{"id": f"O-{number}", "note": 'a "quoted", [odd] {text}\\', "n": number} for number in range(9000)]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that are parsed."""
    lengths: list[int] = []
    loads = json.loads

    def counting(text: str, **how: Any) -> Any:
        lengths.append(len(text))
        return loads(text, **how)

    monkeypatch.setattr(messages.json, "loads", counting)
    return lengths


def test_the_complete_values_of_a_long_list_are_read(parsed: list[int]) -> None:
    found = output_of_text(json.dumps(ROWS))
    assert found[:-1] == ROWS[: len(found) - 1]
    assert found[-1].items() <= ROWS[len(found) - 1].items()
    assert 0.9 * MAX_READ < len(json.dumps(found)) <= MAX_READ
    assert max(parsed) <= MAX_READ + MAX_OPEN


def test_the_complete_values_of_a_long_object_are_read() -> None:
    whole = {"total": len(ROWS), "page": {"rows": ROWS}, "after": "unread"}
    found = output_of_text(json.dumps(whole))
    assert found["total"] == len(ROWS)
    assert found["page"]["rows"][:50] == ROWS[:50]
    assert "after" not in found


@pytest.mark.parametrize(
    "text",
    [
        "word " * 100_000,
        "[" * 300_000,
        "[1," * 100_000,
        '{"a":' * 60_000,
        '["' + "a" * 300_000,
        '["' + '\\"' * 150_000,
        "{" + "," * 300_000,
        "]" * 300_000,
        "[" + " " * 300_000 + "]",
    ],
    ids=["words", "open", "deep", "deep objects", "one text", "escapes", "commas", "closed", "spaces"],
)
def test_what_cannot_be_read_as_a_part_of_json_is_text(text: str, parsed: list[int]) -> None:
    found = output_of_text(text)
    if isinstance(found, list):  # as deep as is read
        assert len(json.dumps(found)) < MAX_READ
    else:
        assert found == text[:MAX_READ]
    assert sum(parsed) <= MAX_READ + MAX_OPEN


def test_a_text_of_the_stated_size_is_read_whole() -> None:
    text = json.dumps(["a" * 100, "b" * (MAX_READ - 200), 7])
    assert len(text) < MAX_READ
    assert output_of_text(text)[2] == 7


def test_requests_of_many_equal_signs_are_compared_in_a_stated_part() -> None:
    old, new = ("Look: " + "-" * (5980 + more) + " " + end for more, end in ((0, "Ann"), (1, "Bob")))
    assert replacements(old, new) == ()  # names behind MAX_WORDS words
