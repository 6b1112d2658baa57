"""What a method adds to the report and to the command line, as data: printing is done once, for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True)
class Answer:
    """What a command found.

    Attributes:
        plain: fit for JSON.
        shown: sentences and tables for a person.
        notes: remarks for a person, beside the answer.
        question: what a command that changes something asks before it does (`Command.change`); "": nothing to do.
    """

    plain: Any
    shown: Sequence[str | TextTable] = ()
    notes: Sequence[str] = ()
    question: str = ""


@dataclass(frozen=True)
class Command:
    """A command of ``toolmem``: a function of an opened memory's method and of options of its own.

    The command line derives the rest: ``--memory`` and ``--json``; ``--user-id``, ``--namespace`` and ``--embeddings``
    if `run` takes a ``user_id``; ``--tools`` if `tools` is set; ``--apply`` and ``--yes`` if there is a `change`.

    Attributes:
        run: called as ``run(method, **options)`` on a memory that is opened to be read; the options are annotated as
            for typer, the docstring is the help.
        name: in place of the function's.
        group: of commands, such as ``toolmem graph …``; "" if it stands alone.
        writes: says of the options whether `run` itself writes.
        change: called as ``change(method, answer, **options)`` on a memory opened to be written to, once a person
            agreed to the answer's question.
        tools: schemas of tools can be given, besides those the memory saw.
    """

    run: Callable[..., Answer]
    name: str = ""
    group: str = ""
    writes: Callable[[Mapping[str, Any]], bool] | None = None
    change: Callable[..., Answer] | None = None
    tools: bool = False


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
