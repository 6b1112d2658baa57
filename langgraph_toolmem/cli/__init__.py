"""The command line: `toolmem demo | replay | import | report | explain | doctor | feedback | forget | eval`.

============  ==========================================================
``app``       the commands, their options, and the objects that the options name
``explain``   answers of a memory to one request
``health``    checks and repairs of `doctor`
``demo``      an office agent without the memory and with it
``evaluate``  the command `eval`
``prices``    the option `--price`
``tables``    a replay and a report as sentences and tables
``terminal``  output: tables and sentences, notes, progress
============  ==========================================================

Exit codes: 0 fine; 1 `doctor` found a problem; 2 bad input or usage; 3 `eval` stopped and can go on; 130 interrupted.
"""

from __future__ import annotations

from langgraph_toolmem.cli.app import app, main

__all__ = ["app", "main"]
