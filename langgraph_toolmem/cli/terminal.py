"""Where the command line's text goes: answers to stdout, errors and progress to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
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

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; with `standalone_mode` off, errors come out as exceptions."""
        run = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
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
    typer.echo(f"error: {printable(message)}", err=True)
    return code


def note(message: str) -> None:
    """Print a remark on stderr, so that it never mixes with an answer that is piped on."""
    typer.echo(printable(message), err=True)


def answer_json(value: Any) -> None:
    """Print an answer for a program: JSON in ASCII, so that no terminal's encoding can spoil it."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def write_text(file: Path, text: str) -> None:
    """Write a file as a whole: who opens it sees the old text or the new. A device or a pipe is written to.

    Raises:
        InputError: it cannot be written.
    """
    from langgraph_toolmem.stores.disk import replace_file

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
    """Where answers for a person go. Names from logs are never read as markup."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def at_a_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty()


@contextmanager
def progress(label: str, total: int, *, show: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr while it is a terminal and `show` is true.

    Yields:
        A function to call with what is done so far, in the unit of `total`.
    """
    if not (show and sys.stderr.isatty()):
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def update(done: int) -> None:
            bar.update(task, completed=done)

        yield update


@contextmanager
def described_progress(total: int, *, show: bool) -> Iterator[Callable[[int, str], None]]:
    """As `progress`, with a count, the time, and a text that changes.

    Yields:
        A function to call with what is done so far, and with the text.
    """
    if not (show and sys.stderr.isatty()):
        yield lambda _done, _text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def update(done: int, text: str) -> None:
            bar.update(task, completed=done, description=text)

        yield update
