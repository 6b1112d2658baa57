"""Sandboxes named by an import path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.graph.state import CompiledStateGraph
from places import ROOT

from langgraph_toolmem import ConfigurationError, ToolMemory
from langgraph_toolmem.offline.coldstart import Sandbox, load_sandbox

SANDBOX = """
class Desk:
    about = "Ann Lee works here."
    def __init__(self, memory=None):
        self.memory = memory
    def invoke(self, state, config):
        return state
    def verdict(self, query, messages):
        return True
async def later():
    return Desk()
made = Desk()
nothing = object()
def broken():
    raise LookupError("no such office")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "desk_sandbox.py").write_text(SANDBOX, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("desk_sandbox", None)


async def test_sandboxes_are_named_in_many_ways(here: Path) -> None:
    with ToolMemory.ephemeral() as memory:
        found = load_sandbox("desk_sandbox:Desk", memory=memory, folder=here)
    assert isinstance(found, Sandbox)
    assert (found.agent.memory, found.about) == (memory, "Ann Lee works here.")
    for spec in ("desk_sandbox:made", "desk_sandbox.py:Desk", "desk_sandbox.py:made"):
        named = load_sandbox(spec, folder=here)
        assert isinstance(named, Sandbox)
        assert named.verdict is not None
    later = load_sandbox("desk_sandbox:later", folder=here)
    assert not isinstance(later, Sandbox)
    assert isinstance(await later, Sandbox)
    office = load_sandbox("examples.bootstrap_office:make", folder=ROOT)
    assert isinstance(office, Sandbox)
    assert isinstance(office.agent, CompiledStateGraph)


@pytest.mark.parametrize(
    "spec",
    ["nothing", "no_such_module:x", "none.py:x", "desk_sandbox:absent", "desk_sandbox:nothing", "desk_sandbox:broken"],
)
def test_what_is_no_sandbox_is_refused(here: Path, spec: str) -> None:
    with pytest.raises(ConfigurationError):
        load_sandbox(spec, folder=here)
