"""The memory of a step for what it looked up in a turn."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langgraph_toolmem.turn import memo
from langgraph_toolmem.turn.call import Call


def test_what_was_looked_up_is_kept_for_the_turns_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "MAX_TURNS", 2)
    kept = memo.Memo("turn")

    def put(thread: str | None, text: str, found: str, *more: Any) -> Any:
        return kept.put(Call([HumanMessage(text), *more], thread), 0, found).found

    def get(thread: str | None, text: str, *more: Any, user: str | None = None, forgettings: int = 0) -> Any:
        found = kept.get(Call([HumanMessage(text), *more], thread, user), forgettings)
        return None if found is None else found.found

    put("a", "x", "ax")
    assert put("a", "x", "another") == "ax"
    put("b", "x", "bx")
    assert get("a", "x") == "ax"
    put("c", "x", "")
    assert [get(thread, "x") for thread in "abc"] == ["ax", None, ""]
    assert get("a", "x", user="ann") is None
    assert get("a", "y") is None
    assert get("a", "x", forgettings=1) is None
    work = AIMessage("hm")
    for found in ("one", "two"):
        put(None, "x", found)
        assert get(None, "x") is None  # it begins: another run
        assert get(None, "x", work) == found
