"""The command line: `toolmem replay | import | discover | feedback | recall | atoms | report | graph | doctor` …

==============  ==========================================================
``app``         the commands and their options
``options``     options that several commands share
``inputs``      what a user names on the command line: tools, policy, memory folder
``terminal``    where text goes: tables and sentences, errors, progress
``tables``      a replay and a graph in plain words
``imports``     runs that are learned, and their states put into words
``bootstrap``   a cold start: invented requests, run in a sandbox
``discover``    tool calls searched in a sandbox; what worked becomes atoms
``atoms``       what is kept for planning, and which of it a goal brings up
``export``      recorded decisions as training data
``feedback``    a verdict on a run
``derived``     commands that methods declare: their options, printing, JSON, the question before a change
``recall``      which past runs a request brings up, and what alike ones say together
``graph``       which tool gives what to which, and plans
``evolve``      what changes that: prune, restore, propagate
``record``      what a memory did so far, in sentences and tables
``live``        a memory followed while another process writes to it; ``watch``: what is seen of it
``health``      what `doctor` looks at
``waiting``     what is still to be written in a folder, and what was given up
==============  ==========================================================

Exit codes: 0 fine; 1 `doctor` found a problem; 2 bad input or usage; 130 interrupted (but for
`watch`, which is ended like that: 0).
"""

from __future__ import annotations

from langgraph_toolmem.cli.app import app, main

__all__ = ["app", "main"]
