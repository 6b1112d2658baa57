"""JSON as SQLite reads it: NaN and infinities are stored by one rule."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.text import dumps, loads

NUMBERS = [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_sqlite_and_a_strict_reader_accept_any_value(value: Any) -> None:
    text = dumps(value)
    with closing(sqlite3.connect(":memory:")) as database:
        assert database.execute("SELECT json_valid(?)", (text.encode().decode("utf-8", "replace"),)).fetchone() == (1,)
    assert dumps(loads(text)) == text


@pytest.mark.parametrize(("number", "stored"), NUMBERS)
def test_numbers_that_are_not_finite_are_stored_as_their_names(number: float, stored: str) -> None:
    assert json.loads(dumps({"a": [number, 1.5], "b": (number,)})) == {"a": [stored, 1.5], "b": [stored]}


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999"])
def test_bare_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        loads(text)


@pytest.mark.parametrize(("number", "stored"), NUMBERS)
def test_a_run_with_such_an_argument_reaches_recall(number: float, stored: str) -> None:
    call = AIMessage("", tool_calls=[{"name": "get", "args": {"x": number}, "id": "c1"}])
    result = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
    with ToolMemory.ephemeral(reads={"get"}) as memory:
        memory.finish(
            [("user", "convert the price 5"), call, result, ("assistant", "done")],
            thread_id="t",
            success=True,
            wait=True,
        )
        assert memory.flush(timeout=30)
        [entry] = memory.entries.recall("convert the price 5")
        assert entry.calls[0].args == {"x": stored}
        assert memory.report().problems == ()
