"""``TOOLMEM`` in the environment switches any app at run time, without a change to its code.

``off``: as if the memory were not there: nothing is shown, done or learned. ``shadow``: it learns and predicts, keeps
the record of the shortcut, and shows and does nothing. Read at every step.
"""

from __future__ import annotations

import logging
import os
from typing import Final, Literal

logger = logging.getLogger("langgraph_toolmem.turn")

NAME: Final = "TOOLMEM"
Mode = Literal["", "shadow", "off"]
_said: Final[set[str]] = set()


def mode() -> Mode:
    """Return how the memory is switched; "" as the code has it."""
    value = os.environ.get(NAME, "").strip().lower()
    if value == "off":
        return "off"
    if value == "shadow":
        return "shadow"
    if value not in ("", "on") and value not in _said:
        _said.add(value)
        logger.warning("%s=%r is neither 'off' nor 'shadow'; it changes nothing", NAME, value)
    return ""


def shows() -> bool:
    """Return True if the model is shown anything, and anything is done in its place."""
    return not mode()
