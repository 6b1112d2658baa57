"""Shapes of records: a format is recognised by places in a record, and an unknown record is compared with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from langgraph_toolmem.runs.logs.transcript import Fields, Transcript

Signature: TypeAlias = tuple[str, ...]
"""Places that a record has: ``a.b`` is a key in an object, ``a[].b`` one in an element of a list, ``a=x|y`` a value."""


class NumberedRecord(NamedTuple):
    """A record of a file with its line number, or a `LogError` for an unreadable record."""

    line: int
    record: Any


def numbered(records: Iterable[Any]) -> list[NumberedRecord]:
    """Return records with their places, from 1."""
    return [NumberedRecord(*place) for place in enumerate(records, start=1)]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A message format.

    Attributes:
        name: its name, for people.
        signatures: a message is of the format if it has all places of one signature.
        convert: adds a message to a transcript.
    """

    name: str
    signatures: tuple[Signature, ...]
    convert: Callable[[Fields, Transcript], None]


@dataclass(frozen=True, slots=True)
class LogFormat:
    """Records as one program writes them.

    Attributes:
        name: its name, for people.
        signatures: see `Dialect`.
        read: yields line number and fields of each run (`messages` may be a `Transcript`), from all records of a file.
    """

    name: str
    signatures: tuple[Signature, ...]
    read: Callable[[list[NumberedRecord]], Iterator[tuple[int, Fields]]]


def has_shape(value: Any, signatures: Iterable[Signature]) -> bool:
    """Return True if a value has every place of one of the signatures."""
    return any(_first_missing(value, signature) is None for signature in signatures)


def describe_nearest(value: Any, known: Iterable[Dialect | LogFormat]) -> str:
    """Return the known format that shares the largest part of its places with a value, and the first that differs."""
    best, most, missing = "", 0.0, ""
    for candidate in known:
        for signature in candidate.signatures:
            share = _share_of_signature(value, signature)
            if share > most:
                best, most, missing = candidate.name, share, _first_missing(value, signature) or ""
    if not best:
        return "no known format is near it"
    return f"the nearest known format is {best}, which has {missing!r}"


def _share_of_signature(value: Any, signature: Signature) -> float:
    return sum([_share_of_path(value, place) for place in signature]) / len(signature)


def _share_of_path(value: Any, place: str) -> float:
    """Return the share of a place's keys that a value has, from the front; the place itself counts as one more."""
    path = place.partition("=")[0]
    keys = path.split(".")
    shared = int(_has_place(value, place))
    for end in range(1, len(keys) + 1):
        shared += _has_place(value, ".".join(keys[:end]))
    return shared / (len(keys) + 1)


def _first_missing(value: Any, signature: Signature) -> str | None:
    for place in signature:
        if not _has_place(value, place):
            return place
    return None


def _has_place(value: Any, place: str) -> bool:
    path, _, wanted = place.partition("=")
    values: list[str] = []
    if wanted:
        values = wanted.split("|")
    return _has_path(value, path.split("."), values)


def _has_path(value: Any, keys: Sequence[str], wanted: Sequence[str]) -> bool:
    if not keys:
        return not wanted or str(value) in wanted
    name = keys[0].removesuffix("[]")
    if not isinstance(value, dict) or name not in value:
        return False
    inner = value[name]
    if name == keys[0]:
        return _has_path(inner, keys[1:], wanted)
    if not isinstance(inner, list):
        return False
    return any(_has_path(element, keys[1:], wanted) for element in inner)


def dicts(values: Any) -> list[Fields]:
    """Return the objects of a list; [] for other values."""
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, dict)]


def objects_of(records: Iterable[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    """Yield the records that are objects."""
    for line, record in records:
        if isinstance(record, dict):
            yield line, record
