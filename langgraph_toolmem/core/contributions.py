"""A method's part of the report, as data: printing is done once, for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TextTable:
    """Rows under a title.

    Attributes:
        title: above it.
        columns: their names.
        rows: one text for each column.
        most: rows that are shown on a terminal; how many more there are is said.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    most: int = 20


@dataclass(frozen=True)
class Section:
    """One method's part of the report.

    Attributes:
        title: what it is about.
        figures: by name: JSON values, or dataclasses of them, which `Report.to_dict` makes plain.
        sentences: the same for a person.
        tables: after the sentences of all methods.
    """

    title: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    tables: tuple[TextTable, ...] = ()


def shown_in_words(what: str, sums: Mapping[str, int]) -> tuple[str, ...]:
    """A sentence on hints: before how many turns they were shown, and whether they were followed."""
    if not sums["shown"]:
        return ()
    return (
        f"{what}: suggested before {sums['shown']:,} model turns, followed in {sums['followed']:,} of them, and "
        f"{sums['right']:,} of these calls went well.",
    )


def outcome_in_words(sums: Mapping[str, int]) -> str:
    """How runs ended that were shown something; "" if none has a verdict."""
    helped, hurt = sums["helped"], sums["hurt"]
    return f"; of these went well {helped:,}, badly {hurt:,}" if helped + hurt else ""
