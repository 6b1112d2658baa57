"""Two hundred damaged and hostile folders; `python -m benchmarks.fuzz` opens ten thousand."""

from __future__ import annotations

import json
from pathlib import Path

import children
import pytest

from langgraph_toolmem.graph.events import Arguments, Count, Event, Outcome, Sources, ToolDescribed, have_shape
from langgraph_toolmem.inertia.confidence import ExamplesSeen

FILES = 200
PROGRAM = """
import sys
from benchmarks.fuzz import main

sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_no_file_hangs_or_ends_the_host_or_loses_more_than_was_damaged(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    ended = children.run(PROGRAM, "--files", FILES, "--json", figures, timeout=390)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(figures.read_text()) == {"files": FILES, "bad": []}


@pytest.mark.parametrize(
    "event",
    [Count("n", 1.5), Count("n"), Outcome("t", "ok", None, 3), Arguments("t", {}), Sources("s", "p", {"a": 1})],
)
def test_fields_of_the_declared_types_are_taken(event: Event) -> None:
    assert have_shape(type(event), [event.plain()])


@pytest.mark.parametrize(
    "event",
    [
        Count("n", "1"),  # type: ignore[arg-type]
        Count(None),  # type: ignore[arg-type]
        Count("n", float("nan")),
        Count("n", 2**70),
        Outcome("t", "ok", 3),  # type: ignore[arg-type]
        Arguments("t", []),  # type: ignore[arg-type]
        Arguments("t", {"x": 3}),  # type: ignore[dict-item]
        Sources("s", "p", None),  # type: ignore[arg-type]
        ToolDescribed("t", {"parameters": []}),
        ExamplesSeen(3, [[[0.0] * 3, 1]]),
    ],
)
def test_fields_of_other_types_are_refused(event: Event) -> None:
    assert not have_shape(type(event), [event.plain()])


def test_an_event_with_too_few_or_too_many_fields_is_refused() -> None:
    whole = Outcome("t", "ok", None, 3).plain()
    assert have_shape(Outcome, [whole, whole[:3]])
    assert not have_shape(Outcome, [whole, whole[:2]])
    assert not have_shape(Outcome, [[*whole, 1]])
