"""Output of the command line: answers on stdout, errors, remarks and progress on stderr, tables, files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from langgraph_toolmem.base.errors import InputError, ToolMemoryError
from langgraph_toolmem.base.text import printable

if TYPE_CHECKING:
    from rich.console import Console

BAD_INPUT = 2
INTERRUPTED = 130


class Commands(TyperGroup):
    """A command group whose errors are one line on stderr and exit code 2, however it is started."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command; with `standalone_mode` off, errors come out as exceptions."""
        run = partial(super().main, *args, standalone_mode=False, **extra)  # type: ignore[misc]
        if not standalone_mode:
            return run()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")  # a terminal that cannot show a letter shows "?"
        try:
            code = run()
            if code == INTERRUPTED:
                fail("interrupted", INTERRUPTED)
        except (ToolMemoryError, OSError) as error:
            code = fail(str(error))
        except typer.Abort:
            code = fail("interrupted", INTERRUPTED)
        except Exception as error:
            # Usage errors: their class moved between releases of typer, their interface did not.
            if not hasattr(error, "format_message"):
                raise
            code = fail(error.format_message())
        sys.exit(code if isinstance(code, int) else 0)


def fail(message: str, code: int = BAD_INPUT) -> int:
    """Print one line on stderr and return the exit code."""
    note(f"error: {message}")
    return code


def note(message: str) -> None:
    """Print a remark on stderr, so that it never mixes with an answer that is piped on."""
    typer.echo(printable(message), err=True)


def answer_json(value: Any) -> None:
    """Print an answer for a program: JSON in ASCII, so that no terminal's encoding can spoil it."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def write_text(file: Path, text: str) -> None:
    """Write a file as a whole: a reader sees the old text or the new one. Write into a device or a pipe."""
    from langgraph_toolmem.stores.snapshot import replace_file

    target = file.resolve()
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
        else:
            replace_file(target, text.encode(), fsync=False)
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
    for line in text.splitlines() or [""]:
        out.print(printable(line), style=style, soft_wrap=True)


@contextmanager
def progress(label: str, total: int, *, show: bool) -> Iterator[Callable[[int], None]]:
    """Draw a progress bar on stderr while it is a terminal; yield a function that takes what is done of `total`."""
    if not (show and sys.stderr.isatty()):
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], most: int = 20) -> None:
    """Print at most `most` rows under a title; names wrap, numbers never do. Print nothing without rows."""
    rows = list(rows)
    if not rows:
        return
    from rich.table import Table

    drawn = Table()
    for at, column in enumerate(columns):
        number = all(row[at] == "–" or (row[at][:1].isdigit() and len(row[at]) < 20) for row in rows)
        drawn.add_column(column, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows[:most]:
        drawn.add_row(*map(printable, row))
    say("")
    say(title, style="bold")  # a table's own title would wrap at the table's width
    console().print(drawn)
    if len(rows) > most:
        say(f"… and {len(rows) - most:,} more")
