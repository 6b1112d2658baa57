"""The contexts under which successors are counted.

Windows hold the run's symbols: START, tools (``name!`` when the call failed), USER for a later user message,
WORDS for an answer. The paper's windows hold tools alone.
"""

from __future__ import annotations

from typing import Final

from langgraph_toolmem.graph.state import RunState

WINDOW_LENGTHS: Final = (0, 1, 2, 3, 5)
SEPARATOR: Final = "\x1f"


def windows(state: RunState) -> list[str]:
    """Context keys of every window length up to the longest, shortest first."""
    symbols = state.symbols
    keys = []
    for length in WINDOW_LENGTHS:
        if length > len(symbols):
            keys.append(f"w*{SEPARATOR}{SEPARATOR.join(symbols)}")
            break
        tail = symbols[len(symbols) - length :]
        keys.append(f"w{length}{SEPARATOR}{SEPARATOR.join(tail)}")
    return keys


def paper_window(tools: list[str], length: int) -> str | None:
    """Context key of the last `length` tools; None if there are fewer."""
    if len(tools) < length:
        return None
    return f"p{length}{SEPARATOR}{SEPARATOR.join(tools[len(tools) - length :])}"


def slot_key(tool: str, parameter: str) -> str:
    """Key of a (tool, parameter) pair in the tables."""
    return f"{tool}{SEPARATOR}{parameter}"
