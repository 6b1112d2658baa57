"""Is the final state right? Expected changes against real ones; anything else that changed is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .data import Database, Record


@dataclass(frozen=True)
class Change:
    """One change that a task should make.

    Attributes:
        kind: a record was "added", "changed" or "removed".
        collection: where.
        id: the record's id; None for an added one, whose id nobody knows before.
        fields: values that the record must have afterwards: a value, or a function that judges it. Letter
            case of texts and the order of lists do not count. A changed record must keep all other fields.
        contains: words that a text must contain.
    """

    kind: Literal["added", "changed", "removed"]
    collection: str
    id: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    contains: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def fits(self, collection: str, key: str, before: Record | None, after: Record | None) -> bool:
        """Is this the change that happened?"""
        kind = "added" if before is None else "removed" if after is None else "changed"
        if (kind, collection) != (self.kind, self.collection) or self.id not in (None, key):
            return False
        if after is None:
            return True
        if before is not None and any(
            after[name] != value for name, value in before.items() if name not in self.fields
        ):
            return False
        return all(_judge(want, after.get(name)) for name, want in self.fields.items()) and all(
            str(word).casefold() in str(after.get(name, "")).casefold()
            for name, words in self.contains.items()
            for word in words
        )


def added(collection: str, contains: Mapping[str, Sequence[str]] | None = None, **fields: Any) -> Change:
    """A new record."""
    return Change("added", collection, None, fields, contains or {})


def changed(collection: str, key: str, **fields: Any) -> Change:
    """An existing record with new values in some fields."""
    return Change("changed", collection, key, fields)


def removed(collection: str, key: str) -> Change:
    """A record that is gone."""
    return Change("removed", collection, key)


def state_is_right(before: Database, after: Database, expected: Sequence[Change]) -> bool:
    """Every expected change happened once, and nothing else did."""
    real = [
        (collection, key, before[collection].get(key), after[collection].get(key))
        for collection in before
        for key in {**before[collection], **after[collection]}
        if before[collection].get(key) != after[collection].get(key)
    ]
    if len(real) != len(expected):
        return False
    for change in expected:
        found = next((entry for entry in real if change.fits(*entry)), None)
        if found is None:
            return False
        real.remove(found)
    return True


def _judge(want: Any, value: Any) -> bool:
    if isinstance(want, Callable):  # type: ignore[arg-type]
        return bool(want(value))
    if isinstance(want, list) and isinstance(value, list):
        return sorted(map(str, want)) == sorted(map(str, value))
    if isinstance(want, str) and isinstance(value, str):
        return want.strip().casefold() == value.strip().casefold()
    return bool(want == value)
