"""`toolmem watch`: a panel that follows a memory on a terminal, one line per event anywhere else."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import typer

from langgraph_toolmem.base.intervals import ENOUGH, percentage
from langgraph_toolmem.base.text import printable
from langgraph_toolmem.cli.terminal import console, note
from langgraph_toolmem.cli.watch import Event, Watcher

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from langgraph_toolmem.report.report import Report

EVENTS_KEPT: Final = 100
EVENTS_AT_ONCE: Final = 10
_PANEL_LINES: Final = 9


def show_once(watcher: Watcher, *, now: float) -> None:
    """The state and the latest events, as plain lines."""
    events = watcher.look(now)
    report = watcher.report()
    lines = [*report.sentences(), *(f"Problem: {problem}" for problem in report.problems)]
    if writer := watcher.writer():
        lines.append(f"Written to by {writer}.")
    for line in (*lines, *(event_line(event) for event in events[-EVENTS_AT_ONCE:])):
        typer.echo(printable(line))


def follow(
    watcher: Watcher,
    *,
    every: float,
    plain: bool,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], Any] = time.sleep,
) -> None:
    """Shows what is learned until it is interrupted.

    Args:
        watcher: follows the memory.
        every: seconds from look to look.
        plain: one line per event instead of a panel.
        clock: seconds since 1970.
        sleep: waits so many seconds.

    Raises:
        StorageError: the folder is gone, or a newer release writes there.
    """
    out = console()
    try:
        # Asked of the stream itself: an environment that forces colours does not make a pipe a screen.
        if plain or not sys.stdout.isatty() or out.is_dumb_terminal:
            _follow_in_lines(watcher, every, clock, sleep)
        else:
            _follow_in_panel(out, watcher, every, clock, sleep)
    except KeyboardInterrupt:
        pass  # the way to end it
    except BrokenPipeError:
        # Who read the lines has gone; what is still to be flushed when the program ends goes nowhere.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _follow_in_lines(watcher: Watcher, every: float, clock: Callable[[], float], sleep: Callable[[float], Any]) -> None:
    watcher.look(clock())
    note(f"following {watcher.folder}; times are UTC; Ctrl-C ends")
    told: tuple[str, ...] = ()
    while True:
        sleep(every)
        for event in watcher.look(clock()):
            typer.echo(printable(event_line(event)))
        told = _tell_problems(watcher.problems, told)


def _tell_problems(problems: tuple[str, ...], told: tuple[str, ...]) -> tuple[str, ...]:
    for problem in problems:
        if problem not in told:
            note(f"problem: {problem}")
    return problems


def _follow_in_panel(
    out: Console, watcher: Watcher, every: float, clock: Callable[[], float], sleep: Callable[[float], Any]
) -> None:
    from rich.live import Live

    events: deque[Event] = deque(maxlen=EVENTS_KEPT)
    with _terminated_as_interrupted(), Live(console=out, auto_refresh=False) as live:
        while True:
            now = clock()
            events.extend(watcher.look(now))
            room = max(3, out.height - _PANEL_LINES - len(watcher.problems))
            live.update(panel(watcher, list(events)[-room:], now), refresh=True)
            sleep(every)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """A polite `kill` ends like Ctrl-C, so that the terminal gets its cursor back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def panel(watcher: Watcher, events: Sequence[Event], now: float) -> RenderableType:
    """The figures, and under them the events, one a line."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for _ in range(2):
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
    cells = list(_figures(watcher.report(), watcher.writer()))
    for at in range(0, len(cells), 2):
        grid.add_row(*(Text(text) for pair in cells[at : at + 2] for text in pair))
    problems = [Text(printable(f"Problem: {problem}"), style="bold") for problem in watcher.problems]
    title = Text(printable(f"toolmem watch  {watcher.folder}"))
    below = Text(f"{_clock(now)} UTC, Ctrl-C ends")
    lines = [Text(printable(event_line(event)), no_wrap=True, overflow="ellipsis") for event in events]
    return Group(Panel(Group(grid, *problems), title=title, subtitle=below), *lines)


def _figures(report: Report, writer: str) -> Iterable[tuple[str, str]]:
    skipped = f"{report.skipped:,}"
    if report.turns >= ENOUGH:
        skipped += f" ({percentage(report.skipped, report.turns, 1)})"
    if report.skipped_failed:
        skipped += f", {report.skipped_failed:,} failed"
    if report.skipped_stopped:
        skipped += f", {report.skipped_stopped:,} stopped"
    checked = report.right + report.wrong
    yield "model turns", f"{report.turns:,}"
    yield "skipped", skipped
    yield "right", f"{report.right:,} of {checked:,} checked"
    audits = report["inertia"]["audits"]
    yield "checked by chance", f"{audits['right']:,} of {audits['checks']:,} right"
    learning, room = report["inertia"]["learning"], report["inertia"]["budget_open"]
    waiting = f"learning: {learning[0]:,} of {learning[1]:,} turns" if learning else "no room: the model is asked"
    yield "budget of misses", "has room" if room else waiting
    yield "tokens saved", "–" if report.tokens_saved is None else f"{report.tokens_saved:,}"
    if writer:
        yield "written to by", writer


def event_line(event: Event) -> str:
    """``12:03:07  latest_order  skipped, ok``; what was there before has no time."""
    when = "earlier " if event.time is None else _clock(event.time)
    return "  ".join(part for part in (when, ", ".join(event.tools), event.what) if part)


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%H:%M:%S")
