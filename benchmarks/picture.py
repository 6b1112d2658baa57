"""The README's moving picture: the real output of `toolmem demo` as an animated SVG.

    python -m benchmarks.picture                    # runs the demo, writes docs/demo.svg
    python -m benchmarks.picture --output demo.txt  # from an output that is there already

The command is typed, then the lines appear one after the other. The picture has no script and loads nothing. Where a
reader asked for less motion, all lines are there at once.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Final

FILE: Final = Path(__file__).resolve().parents[1] / "docs" / "demo.svg"
COMMAND: Final = "toolmem demo"
COLUMNS: Final = 92
LINES: Final = 24
"""Lines that are shown; the rest of the output is where things are on the disk."""
FIRST_WORDS_AFTER: Final = "The log of the runs"
"""The output's first line that names files of the machine it ran on."""
WIDTH_OF_LETTER: Final = 8.4
HEIGHT_OF_LINE: Final = 19
MARGIN: Final = 16
TYPED: Final = 0.08
"""Seconds for each letter of the command."""
BETWEEN: Final = 0.25
"""Seconds between two lines."""
FRAME: Final = re.compile("[\u2500-\u257f]+")
"""Lines of tables: a screen reader must not read them aloud."""
STYLE: Final = """
.back { fill: #16181d }
text { fill: #d7dae0; white-space: pre }
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace }
.command { fill: #8fd694 }
.bold { font-weight: bold; fill: #ffffff }
.line { opacity: 0; animation: appear .2s forwards }
@keyframes appear { to { opacity: 1 } }
@media (prefers-reduced-motion: reduce) { .line { opacity: 1; animation: none } }
"""


def output_of_demo() -> str:
    """Run `toolmem demo`; return what it prints."""
    calm = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "dumb", "PYTHONUTF8": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "langgraph_toolmem", "demo", "--out", "demo"]
        return subprocess.run(command, cwd=folder, env=calm, capture_output=True, text=True, check=True).stdout


def lines_of(output: str) -> list[str]:
    """Return the lines that are shown: up to the first one about files, wrapped, without empty ones at the ends."""
    shown: list[str] = []
    for line in output.strip("\n").splitlines():
        if line.startswith(FIRST_WORDS_AFTER):
            break
        shown += wrap(line, COLUMNS, subsequent_indent="  ", replace_whitespace=False, drop_whitespace=False) or [""]
    while shown and not shown[-1].strip():
        shown.pop()
    return shown[:LINES]


def picture_of(lines: Sequence[str]) -> str:
    """Return the SVG of a terminal in which the lines appear."""
    width = round(2 * MARGIN + COLUMNS * WIDTH_OF_LETTER)
    height = 2 * MARGIN + (len(lines) + 2) * HEIGHT_OF_LINE
    said = escape(f"{COMMAND}: {' '.join(FRAME.sub(' ', ' '.join(lines)).split())}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{said}">',
            f"<style>{STYLE}</style>",
            f'<rect class="back" width="{width}" height="{height}" rx="8"/>',
            *_typed(),
            *_appearing(lines),
            "</svg>\n",
        ]
    )


def _typed() -> Iterator[str]:
    """Yield the letters of the command."""
    for at, letter in enumerate(f"$ {COMMAND}"):
        place = f'x="{MARGIN + at * WIDTH_OF_LETTER:.1f}" y="{MARGIN + HEIGHT_OF_LINE}"'
        yield f'<text class="line command" {place} style="animation-delay: {at * TYPED:.2f}s">{escape(letter)}</text>'


def _appearing(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of the output, below the command and after it."""
    begin = (len(COMMAND) + 2) * TYPED + 2 * BETWEEN
    for at, line in enumerate(lines):
        kind = "line bold" if at == 0 else "line"
        place = f'x="{MARGIN}" y="{MARGIN + (at + 2.5) * HEIGHT_OF_LINE:g}"'
        delay = f"animation-delay: {begin + at * BETWEEN:.2f}s"
        yield f'<text class="{kind}" {place} style="{delay}" xml:space="preserve">{escape(line.rstrip())}</text>'


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.picture", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--output", type=Path, help="a file with the output of `toolmem demo`; without it the demo runs"
    )
    parser.add_argument("--to", type=Path, default=FILE, help="the picture [default: docs/demo.svg]")
    options = parser.parse_args()
    output = output_of_demo() if options.output is None else options.output.read_text(encoding="utf-8")
    options.to.write_text(picture_of(lines_of(output)), encoding="utf-8")
    print(f"{options.to}: {options.to.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
