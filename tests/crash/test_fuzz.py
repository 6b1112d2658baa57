"""Two hundred damaged and hostile folders; `python -m benchmarks.fuzz` opens ten thousand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from langgraph_toolmem.graph.events import Arguments, Count, Outcome, Sources, refuse_strange

FILES = 200


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_no_file_hangs_or_ends_the_host_or_loses_more_than_was_damaged(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.fuzz", "--files", str(FILES), "--json", str(figures)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    assert json.loads(figures.read_text()) == {"files": FILES, "bad": []}


@pytest.mark.parametrize(
    "event", [Count("n", 1.5), Count("n"), Outcome("t", "ok", None, 3), Arguments("t", {}), Sources("s", "p", {"a": 1})]
)
def test_fields_of_the_declared_types_are_taken(event: Count) -> None:
    refuse_strange(type(event), event.plain()[1:])


@pytest.mark.parametrize(
    "event",
    [Count("n", "1"), Count(None), Outcome("t", "ok", 3), Arguments("t", []), Sources("s", "p", None)],  # type: ignore[arg-type]
)
def test_fields_of_other_types_are_refused(event: Count) -> None:
    with pytest.raises(TypeError):
        refuse_strange(type(event), event.plain()[1:])
