"""The benchmark of look-ups before the model, on two runs made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import context as bench
from langgraph_toolmem import PrefetchedContext

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "",
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
        },
    }
    for name, argument in (("find_person", "name"), ("close_tasks", "person_id"))
]


def run(name: str) -> dict[str, Any]:
    """Return a recorded run: one look-up, one change, an answer."""

    def call(tool: str, **args: str) -> dict[str, Any]:
        function = {"name": tool, "arguments": json.dumps(args)}
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": tool, "type": "function", "function": function}],
        }

    messages = [
        {"role": "user", "content": f"Close the tasks of {name}"},
        call("find_person", name=name),
        {"role": "tool", "tool_call_id": "find_person", "content": json.dumps({"person_id": f"P-{name}"})},
        call("close_tasks", person_id=f"P-{name}"),
        {"role": "tool", "tool_call_id": "close_tasks", "content": "closed"},
        {"role": "assistant", "content": "Done."},
    ]
    return {"id": name, "messages": messages}


def test_a_look_up_that_is_always_made_is_saved(tmp_path: Path) -> None:
    folder = tmp_path / "desk"
    folder.mkdir()
    names = ["Ann", "Bob", "Cyd", "Dan", "Eve", "Fay", "Gus", "Hal", "Ian", "Jim", "Kay", "Lea"]
    (folder / "trajectories.jsonl").write_text("\n".join(json.dumps(run(name)) for name in names))
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    (folder / "nature.json").write_text(json.dumps({"reads": ["find_person"]}))
    found = bench.work(bench.Job(str(tmp_path), "desk", PrefetchedContext(held_out=0), 0, None))
    assert found["turns"] == 36
    assert found["lookup_turns"] == 12
    assert found["in_vain"] == 0
    assert found["saved"] == 11
    assert found["seconds_plain"] - found["seconds"] == pytest.approx(11 * bench.MODEL_SECONDS)
