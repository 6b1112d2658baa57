"""The command line: `toolmem demo | replay | import | report | explain | doctor | feedback | forget`.

============  ============================================================
``app``       the commands and their options
``inputs``    what a user names on the command line: tools, policy, memory
``imports``   learning from recorded runs
``explain``   answers of a memory to one request
``health``    what `doctor` looks at and mends
``demo``      an office agent without the memory and with it
``tables``    a replay and a record in plain words
``terminal``  where text goes: tables and sentences, errors, progress
============  ============================================================

Exit codes: 0 fine; 1 `doctor` found a problem; 2 bad input or usage; 130 interrupted.
"""

from __future__ import annotations

from langgraph_toolmem.cli.app import app, main

__all__ = ["app", "main"]
