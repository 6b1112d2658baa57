"""Sixty kills of two processes with all methods; `python -m benchmarks.kills` does a thousand."""

from __future__ import annotations

import json
from pathlib import Path

import children
import pytest

KILLS = 60
HANGS = 60.0
"""Seconds without an answer after which recall counts as off."""
LIFE = 0.2
"""Seconds from one kill to the next, at most. Both processes finish runs all the time: a second costs two of the
processor, and opening the folder a twentieth."""
PROGRAM = """
import sys
from benchmarks.kills import main

sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_kills_lose_no_acknowledged_run_and_recall_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    ended = children.run(PROGRAM, "--kills", KILLS, "--life", LIFE, "--json", file, timeout=390)
    assert file.exists(), ended.stderr
    figures = json.loads(file.read_text())
    assert (figures["kills"], figures["lost"]) == (KILLS, 0)
    assert figures["acknowledged"] > KILLS
    # Two seconds are asked for, and the command checks them: on a busy machine a process alone waits longer.
    assert figures["failed"] < HANGS
