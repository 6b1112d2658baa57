"""Counters of a tool in the evidence graph (`ToolGraph.by_tool`) that several parts of the shortcut share."""

from __future__ import annotations

from typing import Final

SERVED: Final = "ahead_served"
"""Prefetched look-ups that the model asked for."""
WASTED: Final = "ahead_wasted"
"""Prefetched look-ups that were discarded."""
SECONDS: Final = "ahead_seconds"
"""Seconds of waiting saved."""
UNCLAIMED: Final = "ahead_unclaimed"
"""The model asked for the look-up, and its call was held back and never executed."""
REVIEWED: Final = "reviewed"
"""A person was asked about a call, refused it or edited it, or the call was stopped."""
