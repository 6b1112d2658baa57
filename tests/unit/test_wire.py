"""How records are written in the journal and in a shared log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from histories import call, history, user

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.operations import Count, Outcome, Unknown
from langgraph_toolmem.stores import journal, plain_pickle, wire
from langgraph_toolmem.stores.graph_file import JOURNAL, SNAPSHOT

KEY = "0123456789abcdef"


@pytest.mark.parametrize(
    ("entry", "operations"),
    [
        ([KEY, []], []),
        ([None, [["count", "turns", 1, 7]]], [Count("turns", 1, 7)]),
        (
            [KEY, [["outcome", "pay", "ok", None, 7], ["count", "turns", 1, None]]],
            [Outcome("pay", "ok", None, 7), Count("turns")],
        ),
        ([KEY, [["of the future", 1, {"a": []}]]], [Unknown(["of the future", 1, {"a": []}])]),
    ],
)
def test_a_record_is_its_key_and_its_operations_by_name(entry: Any, operations: list[Any]) -> None:
    assert wire.read(entry, EvidenceGraph()) == (entry[0], operations)
    assert wire.write(entry[0], operations) == entry


@pytest.mark.parametrize("entry", [3, [KEY], [KEY, 3], [KEY, ["count"]], [KEY, [["count"]]], [KEY, [[3]]]], ids=repr)
def test_what_is_no_record_is_an_error(entry: Any) -> None:
    with pytest.raises((TypeError, ValueError, LookupError, AttributeError)):
        wire.read(entry, EvidenceGraph())


def test_a_folder_holds_records_as_they_are_written_here(tmp_path: Path) -> None:
    with ToolMemory(tmp_path) as memory:
        memory.observe(history(user("Pay 3"), call("pay", {"amount": 3})), thread_id="new")
        found = journal.parse((tmp_path / JOURNAL).read_bytes())
        read = [wire.read(entry, memory.core.graph) for entry in found.records]
    assert [wire.write(*each) for each in read] == found.records
    assert {type(operation) for _, record in read for operation in record} >= {Count, Outcome}
    assert not any(isinstance(operation, Unknown) for _, record in read for operation in record)
    for name in (SNAPSHOT, JOURNAL):
        data = (tmp_path / name).read_bytes()[8:10]  # behind the mark
        assert int.from_bytes(data, "little") == plain_pickle.FORMAT_VERSION
