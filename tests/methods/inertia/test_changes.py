"""Changes that the memory made in the model's place are kept for review, and forgotten with their user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from histories import call, history, reading, schema, shortcut, user

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.inertia.review import Changes

TOOLS = [reading("look"), schema("pay")]


def run(number: int, tool: str = "pay", *, by_model: bool = False) -> list[Any]:
    made = (call if by_model else shortcut)(tool, {"of": f"bill {number}"}, "paid")
    return history(user(f"Pay bill {number}"), made)


def changes(memory: ToolMemory) -> list[dict[str, Any]]:
    return list(memory.report()["inertia"]["changes"])


def test_a_change_is_kept_with_thread_arguments_and_result(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS) as memory:
        memory.finish(run(1), thread_id="t1", user_id="ann")
        memory.finish(run(2, "look"), thread_id="t2")
        memory.finish(run(3, by_model=True), thread_id="t3")
        (found,) = changes(memory)
        assert (found["thread"], found["tool"], found["args"]) == ("t1", "pay", '{"of":"bill 1"}')
        assert (found["status"], found["result"]) == ("ok", "paid")
        assert "Changed by the memory: pay(" in str(memory.report())
    with ToolMemory(tmp_path, tools=TOOLS) as memory:
        assert len(changes(memory)) == 1
        memory.forget(user_id="ann")
        assert changes(memory) == []


def test_the_newest_are_kept_and_each_once() -> None:
    with ToolMemory.ephemeral(tools=TOOLS) as memory:
        for number in range(Changes.most + 3):
            memory.finish(run(number), thread_id=f"t{number}")
        memory.finish(run(5), thread_id="t5")
        found = changes(memory)
    assert len(found) == Changes.most
    assert found[0]["thread"] == f"t{Changes.most + 2}"
