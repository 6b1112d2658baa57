"""What a memory notes of a tool, and the tool as it tells it again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from langgraph_toolmem.runs.tools import MAX_RETURNS, ToolSpec, changes_of, gravest, spec_of

GIVES = {"type": "object", "properties": {"order_id": {"type": "string"}}}
TAKES = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
BARE = ToolSpec("look_up", "", TAKES)
FULL = ToolSpec("look_up", "Looks up", TAKES, GIVES, True, False, True, ("shop", "crm"), "CRM", "Sales")


@pytest.mark.parametrize(
    "spec", [BARE, FULL, replace(FULL, read_only=False, destructive=None)], ids=["bare", "full", "some"]
)
def test_a_note_tells_the_whole_tool(spec: ToolSpec) -> None:
    note = changes_of(spec, {})
    assert spec_of(spec.name, note) == spec
    assert changes_of(spec, note) == {}, "nothing new"


LONG = {"type": "object", "properties": {"id": {"type": "string", "enum": ["x" * MAX_RETURNS]}}, "x-links": []}
SHORT = {"type": "object", "properties": {"id": {"type": "string"}}, "x-links": []}


@pytest.mark.parametrize(("returns", "kept"), [(LONG, SHORT), ({"default": {1, 2}}, None)], ids=["long", "no JSON"])
def test_a_schema_of_results_that_cannot_be_kept_is_kept_in_brief_or_left_out(returns: Any, kept: Any) -> None:
    odd = replace(FULL, returns=returns)
    note = changes_of(odd, {})
    assert spec_of("look_up", note) == replace(FULL, returns=kept)
    assert changes_of(odd, note) == {}
    assert spec_of("look_up", changes_of(FULL, {}) | changes_of(odd, changes_of(FULL, {}))).returns == kept


def test_what_cannot_be_is_passed_over() -> None:
    note = {"parameters": TAKES, "returns": 5, "tags": "x", "read_only": "yes", "description": ""}
    assert spec_of("look_up", note) == BARE


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"destructive": True}, {"destructive": False}, {"destructive": True}),
        ({"read_only": True}, {"read_only": False}, {"read_only": False}),
        ({"read_only": True}, {}, {"read_only": True}),
        ({"destructive": False}, {}, {"destructive": False}),
        ({"idempotent": True}, {"idempotent": False}, {"idempotent": False}),
        ({}, {"controls": True}, {"controls": True}),
    ],
)
def test_the_graver_of_two_words_wins(one: Any, other: Any, both: Any) -> None:
    first, second, wanted = (replace(BARE, **marks) for marks in (one, other, both))
    assert gravest(first, [second]) == gravest(second, [first]) == wanted
    assert gravest(first, [BARE]) is first
