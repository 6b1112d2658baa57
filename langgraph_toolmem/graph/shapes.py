"""Checks of the types and sizes in a snapshot of the evidence graph.

A file may have a right checksum and values that no release writes. Each check raises `GraphFileError`, so that the
snapshot is put aside and the graph is made again from the events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, Final

from langgraph_toolmem.base.errors import GraphFileError

MOST: Final = 2.0**53
"""Counts and times below it are whole in floating point."""
_TEXT_OR_NONE: Final = (str, type(None))
_NUMBER: Final = (int, float)
_SCORE: Final = (int, float, type(None))
_RUN: Final = ((int,), _SCORE, _TEXT_OR_NONE, _TEXT_OR_NONE, _TEXT_OR_NONE, _NUMBER, _NUMBER)
_CASE: Final = ((str,), _TEXT_OR_NONE, (dict,), (dict,), (str,))
_CALL: Final = ((str,), (str,), (str,), _TEXT_OR_NONE, (int,))


def check_counts(rows: Mapping[str, Any], width: int) -> None:
    """Check ``key -> item -> [count, …]``."""
    cells = _cells(rows)
    _refuse_unless(set(map(len, cells)) <= {width})
    check_numbers(chain.from_iterable(cells))


def check_contributors(rows: Mapping[str, Any]) -> None:
    """Check ``key -> item -> [runs, users]``."""
    cells = _cells(rows)
    _refuse_unless(set(map(len, cells)) <= {2})
    parts = list(chain.from_iterable(cells))
    check_types(parts, list)
    check_types(chain.from_iterable(parts), str)


def check_numbers(numbers: Iterable[Any]) -> None:
    """Check that all are finite and below `MOST`."""
    values = list(numbers)
    check_types(values, int, float)
    _refuse_unless(all(map(MOST.__gt__, map(abs, values))))  # False of NaN


def check_types(values: Iterable[Any], *kinds: type) -> None:
    """Check that all are of these very types."""
    _refuse_unless(set(map(type, values)) <= set(kinds))


def check_entries(entries: Mapping[str, Any]) -> None:
    """Check ``name -> {name: value}``."""
    check_types(entries, str)
    check_types(entries.values(), dict)
    check_types(chain.from_iterable(entries.values()), str)


def check_runs(runs: Mapping[str, Any]) -> None:
    """Check the entries of `ToolGraph.runs`."""
    check_types(runs, str)
    check_records(runs.values(), _RUN)
    check_numbers(value for run in runs.values() for value in run if isinstance(value, (int, float)))


def check_cases(cases: Mapping[str, Any]) -> None:
    """Check the requests of `CaseIndex.cases`."""
    check_types(cases, str)
    check_records(cases.values(), _CASE)
    calls = [case[2] for case in cases.values()]
    check_types(chain.from_iterable(calls), int)
    check_types(chain.from_iterable(case[3] for case in cases.values()), int)
    made = list(chain.from_iterable(map(dict.values, calls)))
    check_records(made, _CALL)
    for _, args, _, sources, _ in made:
        _refuse_unless(args[:1] + args[-1:] == "{}" and (sources is None or sources[:1] + sources[-1:] == "{}"))


def _cells(rows: Mapping[str, Any]) -> list[Any]:
    check_entries(rows)
    cells = list(chain.from_iterable(map(dict.values, rows.values())))
    check_types(cells, list)
    return cells


def check_records(records: Collection[Any], kinds: tuple[tuple[type, ...], ...]) -> None:
    """Check lists of a few values, each of which has one of the types of its place."""
    check_types(records, list)
    _refuse_unless(set(map(len, records)) <= {len(kinds)})
    for column, allowed in zip(zip(*records, strict=True), kinds, strict=False):
        check_types(column, *allowed)


def _refuse_unless(right: bool) -> None:
    if not right:
        raise GraphFileError("a value in it has not the type or size of its place")
