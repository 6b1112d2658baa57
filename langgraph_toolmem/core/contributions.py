"""What a method adds to the report and to the command line, as data: printing is done once, for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Section:
    """One method's part of the report.

    Attributes:
        title: above its table.
        figures: by name, fit for JSON.
        sentences: the same for a person.
        columns, rows: a table, if there is one.
    """

    title: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()


@dataclass(frozen=True)
class Answer:
    """What a command found.

    Attributes:
        plain: fit for JSON.
        lines: for a person.
        columns, rows: a table after them.
    """

    plain: Any
    lines: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True)
class Command:
    """A command of ``toolmem``: a function of an opened memory's method and of its own options, annotated for typer.

    The options ``--memory``, ``--user-id``, ``--namespace``, ``--embeddings`` and ``--json`` come by themselves.

    Attributes:
        run: called as ``run(method, user_id, **options)``; its docstring is the help.
        name: in place of the function's.
        opens: "read" beside a writing process, or "write".
        group: of commands, such as ``toolmem graph …``; "" if it stands alone.
    """

    run: Callable[..., Answer]
    name: str = ""
    opens: Literal["read", "write"] = "read"
    group: str = ""


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
