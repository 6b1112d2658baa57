"""What one call enters: a function whose trace is known, and the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import trace as bench
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.core.users import user_digest


def test_a_trace_has_the_packages_functions_and_nothing_after_it():
    with bench.Trace().on() as trace:
        user_digest("ann")
        json.dumps([])
    digest("later")

    lines = {f.__name__: f.__code__.co_firstlineno for f in (digest, user_digest)}
    assert trace.entered == {
        Path("core/users.py"): {f"user_digest:{lines['user_digest']}"},
        Path("base/keys.py"): {f"digest:{lines['digest']}"},
    }
    assert (trace.files, trace.functions) == (2, 2)
    assert sys.getprofile() is None


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "figures.json"
    assert bench.main(["--tasks", "12", "--files", "--json", str(file)]) == 0

    found, printed = json.loads(file.read_text()), capsys.readouterr().out
    assert {"turn/middleware.py", "inertia/step.py", "runs/trajectory.py"} <= set(found[bench.DECISION])
    assert "turn/recorder.py" not in found[bench.DECISION]  # the model was not asked
    assert "entries/ranker.py" in found["recall"]
    assert "navigator/plan/planner.py" in found["a plan"]
    for name, most in bench.TARGETS.items():
        verdict = "holds " if len(found[name]) <= most else "MISSED"
        assert f"{verdict} {name}: {len(found[name])} files <= {most}" in printed
    assert "    entries/ranker.py: " in printed
