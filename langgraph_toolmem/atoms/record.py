"""Results of the hints an atom gave, and what they and its value are worth in its score.

    prior(e) = PULL · ((h − ½) · j / (j + GATE) + min(0, t − USUAL) · n / (n + SLOW) + (v − ½) · m / (m + GATE))

with j the runs that followed it and have a verdict, h = (s + 1) / (j + 2) from the s good ones among them; n the times
it was retrieved, t the share of them in which it was followed; v its value and m its visits. What nobody judged says
nothing, and no part ever exceeds PULL / 2, so that a record decides between atoms that fit alike and not against one
that fits much better.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from langgraph_toolmem.atoms.atoms import Atom

PULL: Final = 0.1
GATE: Final = 8
"""Verdicts, or visits, at which half of the pull works."""
SLOW: Final = 24
"""The same for times retrieved: a hint that comes a step too early is retrieved again before it is followed."""
USUAL: Final = 1 / 3
"""Share of its retrievals in which an atom is followed: three are shown, and one tool is called."""
FAILED_AFTER: Final = 6
"""Failures for each success, and one more, after which an atom is shown no longer."""
IGNORED_AFTER: Final = 20
"""Times retrieved for each time that it was followed, and one more, after which an atom is shown no longer."""


class AtomRecord(NamedTuple):
    """Counts of an atom: retrieved, its tool called next, and such runs judged good or bad."""

    retrieved: int = 0
    followed: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def usefulness(self) -> float:
        """Return how often following it went well, from 0 to 1; ½ while nobody judged."""
        return (self.succeeded + 1) / (self.succeeded + self.failed + 2)

    @property
    def misleads(self) -> bool:
        """Return True if it is to be shown no longer: it fails too often where it is followed, or is not followed."""
        fails = self.failed >= FAILED_AFTER * (self.succeeded + 1)
        return fails or self.retrieved >= IGNORED_AFTER * (self.followed + 1)


NO_RECORD: Final = AtomRecord()


def prior(atom: Atom, record: AtomRecord = NO_RECORD) -> float:
    """Return what its record and its value add to an atom's score; see the module."""
    judged = record.succeeded + record.failed
    by_verdicts = (record.usefulness - 0.5) * judged / (judged + GATE)
    shown = max(record.retrieved, record.followed)
    by_use = min(0.0, record.followed / shown - USUAL) * shown / (shown + SLOW) if shown else 0.0
    by_value = (atom.value - 0.5) * atom.visits / (atom.visits + GATE)
    return PULL * (by_verdicts + by_use + by_value)
