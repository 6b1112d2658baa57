"""Output of the command line: answers on stdout; errors, notes and progress on stderr; tables; files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import dumps, printable

if TYPE_CHECKING:
    from rich.console import Console


def note(message: str) -> None:
    """Print a note on stderr, so that it never mixes with an answer on stdout."""
    typer.echo(printable(message), err=True)


def answer_json(value: Any) -> None:
    """Print an answer for a program: JSON in ASCII, so that no terminal's encoding can spoil it."""
    typer.echo(dumps(value, indent=2))


def write_text(file: Path, text: str) -> None:
    """Write a file that the user named.

    Raises:
        InputError: it cannot be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror or error}") from error
    note(f"written to {file}")


def console() -> Console:
    """Return the console for answers to a person. Names from logs are never read as markup."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def say(text: str, *, style: str | None = None) -> None:
    """Print lines to a person, unwrapped and without control characters."""
    out = console()
    # Unwrapped: a path or a command to copy must stay one line.
    for line in text.splitlines() or [""]:
        out.print(printable(line), style=style, soft_wrap=True)


@contextmanager
def progress(label: str, total: int, *, show: bool) -> Iterator[Callable[[int], None]]:
    """Draw a progress bar on stderr if it is a terminal; yield a function that takes the number done of `total`."""
    if not (show and sys.stderr.isatty()):
        yield _draw_nothing
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def draw(done: int) -> None:
            bar.update(task, completed=done)

        yield draw


def _draw_nothing(_done: int) -> None:
    """Replace a progress bar: in a file or a pipe it would be hundreds of lines."""


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], most: int = 20) -> None:
    """Print at most `most` rows under a title; names wrap, numbers never do. Print nothing without rows."""
    rows = list(rows)
    if not rows:
        return
    from rich.table import Table

    drawn = Table()
    for index, column in enumerate(columns):
        # A wrapped number reads like two, and a cut name like another tool.
        if all(_is_figure(row[index]) for row in rows):
            drawn.add_column(column, justify="right", no_wrap=True)
        else:
            drawn.add_column(column, overflow="fold")
    for row in rows[:most]:
        drawn.add_row(*map(printable, row))
    say("")
    # A table's own title would wrap at the table's width.
    say(title, style="bold")
    console().print(drawn)
    if len(rows) > most:
        say(f"… and {len(rows) - most:,} more")


def _is_figure(cell: str) -> bool:
    # "3 of 12" and "1.2 s" too; a long text that begins with a digit is a name.
    return cell == "–" or (cell[:1].isdigit() and len(cell) < 20)
