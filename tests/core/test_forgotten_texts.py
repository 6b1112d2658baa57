"""Words of a user who was forgotten are in no object and no file of two processes with all methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from children import Child
from planted import words

PROGRAM = "from planted import main; main()"


def ask(process: Child, command: str) -> Any:
    process.say(command)
    return json.loads(process.line(timeout=120))


def in_files(folder: Path) -> list[str]:
    """Return the files that hold a planted word."""
    held = [word.encode() for word in words()]
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path.name for path in files if any(word in path.read_bytes() for word in held)]


def test_a_forgotten_user_is_in_no_object_and_no_file_of_two_processes(tmp_path: Path) -> None:
    first, second = Child(PROGRAM, tmp_path), Child(PROGRAM, tmp_path)
    ask(first, "plant ann")
    ask(second, "plant ann")
    ask(second, "run bob")
    ask(first, "flush")
    assert all(len(ask(process, "grep")) > 20 for process in (first, second))
    assert in_files(tmp_path)
    assert ask(first, "forget ann") > 10
    ask(second, "look")
    assert {"first": ask(first, "grep"), "second": ask(second, "grep")} == {"first": [], "second": []}
    assert in_files(tmp_path) == []
    ask(second, "run bob")  # work goes on
    for process in (first, second):
        process.say("stop")
        assert process.wait() == 0, process.stderr
