"""Checks of the types and sizes in a snapshot of the evidence graph.

A file may have a right checksum and values that no release writes. Each check raises `GraphFileError`, so that the
snapshot is put aside and the graph is made again from the events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any

from langgraph_toolmem.base.errors import GraphFileError


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
    """Check that all are finite and below 2^53, where counts and times are whole in floating point."""
    values = list(numbers)
    check_types(values, int, float)
    most = 2.0**53
    _refuse_unless(all(map(most.__gt__, map(abs, values))))  # False of NaN; a snapshot has millions of numbers


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
    text_or_none, number = (str, type(None)), (int, float)
    shortcuts, score = (int,), (int, float, type(None))
    comment = owner = author = text_or_none
    weight = when = number
    check_records(runs.values(), (shortcuts, score, comment, owner, author, weight, when))
    numbers = []
    for run in runs.values():
        numbers += [value for value in run if isinstance(value, (int, float))]
    check_numbers(numbers)


def check_cases(cases: Mapping[str, Any]) -> None:
    """Check the requests of `CaseIndex.cases`."""
    check_types(cases, str)
    text, text_or_none = (str,), (str, type(None))
    user = text_or_none
    calls = answers = (dict,)
    asked = text
    check_records(cases.values(), (text, user, calls, answers, asked))
    made: list[list[Any]] = []
    for _, _, calls_of_case, answers_of_case, _ in cases.values():
        check_types(calls_of_case, int)
        check_types(answers_of_case, int)
        made += calls_of_case.values()
    tool = args = status = text
    sources, further = text_or_none, (int,)
    check_records(made, (tool, args, status, sources, further))
    for _, args_json, _, sources_json, _ in made:
        _refuse_unless(_is_object(args_json) and (sources_json is None or _is_object(sources_json)))


def _is_object(text: str) -> bool:
    """Return True if a text may be a JSON object."""
    return text[:1] + text[-1:] == "{}"


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
