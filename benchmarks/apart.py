"""Processes of their own, forked: what they use they import before the fork, once."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from langgraph_toolmem.atoms.extract import parts_of
from langgraph_toolmem.text import values


def in_child(do: Callable[[], object]) -> int:
    """Call a function in a forked process; return the status of its end, as `os.waitpid` gives it."""
    child = os.fork()
    if not child:
        try:
            logging.disable(logging.CRITICAL)
            do()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


def in_child_with_imports(do: Callable[[], object], names: Path) -> None:
    """Call a function in a forked process, and then import here what it imported: a third of a second for each fork.

    Expressions are compiled here too, which takes each fork a tenth of a second.

    Args:
        do: the function. Chroma cannot be used by children of a process that has used it, so it is not called here.
        names: a file that does not exist yet.
    """

    def and_write() -> None:
        do()
        names.write_text(json.dumps([*sys.modules]))

    in_child(and_write)
    loaded: Sequence[str] = json.loads(names.read_text())
    for name in loaded:
        if name not in sys.modules:
            with suppress(Exception):
                import_module(name)
    for kinds in (values.KINDS, values.RANKED, values.WHOLE_VALUES):
        values.scanner(kinds)
    parts_of("")
