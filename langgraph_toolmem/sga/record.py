"""What became of the hints an atom gave, and what that and its value are worth in its score.

    prior(e) = PULL · (u(e) − ½) · n / (n + GATE) + PULL · (v(e) − ½) · m / (m + GATE)

with n the times it was retrieved, u = (s + ½ (f − s) + 1) / (n + 2) its usefulness (f times followed, s of them to
success), v its value and m its visits. Without a record the first part is 0, and neither part ever exceeds PULL / 2,
so that a record decides between atoms that fit alike and not against one that fits much better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from langgraph_toolmem.sga.atoms import Atom

PULL: Final = 0.1
GATE: Final = 8
"""Times retrieved, or visits, at which half of the pull works."""
DEMOTE_AFTER: Final = 20
"""Times retrieved for each success, and one more, after which an atom is shown no longer."""


class AtomRecord(NamedTuple):
    """How often an atom was retrieved, its tool called next, and the run successful."""

    retrieved: int = 0
    followed: int = 0
    succeeded: int = 0

    def plus(self, other: AtomRecord) -> AtomRecord:
        """Both together; no count goes below 0."""
        return AtomRecord(*(max(0, one + more) for one, more in zip(self, other, strict=True)))

    @property
    def usefulness(self) -> float:
        """½ without a record, 0 to 1."""
        tried = max(self)
        return (self.succeeded + 0.5 * max(0, self.followed - self.succeeded) + 1) / (tried + 2)

    @property
    def misleads(self) -> bool:
        """Whether it is to be shown no longer: retrieved ≥ DEMOTE_AFTER · (succeeded + 1)."""
        return self.retrieved >= DEMOTE_AFTER * (self.succeeded + 1)


NO_RECORD: Final = AtomRecord()


def prior(atom: Atom, record: AtomRecord = NO_RECORD) -> float:
    """What its record and its value add to an atom's score; see the module."""
    tried = max(record)
    by_record = (record.usefulness - 0.5) * tried / (tried + GATE)
    by_value = (atom.value - 0.5) * atom.visits / (atom.visits + GATE)
    return PULL * (by_record + by_value)


def priors(atoms: Iterable[Atom], records: Mapping[str, AtomRecord]) -> tuple[dict[str, float], set[str]]:
    """Priors by id, and the ids of atoms that mislead: what `AtomIndex.search` takes as `priors` and `exclude`."""
    found = {atom.id: prior(atom, records.get(atom.id, NO_RECORD)) for atom in atoms}
    return found, {key for key, record in records.items() if record.misleads}
