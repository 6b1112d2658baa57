"""What was recalled: entries that are worth showing, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from langgraph_toolmem.entries.entry import Entry


@dataclass(frozen=True, slots=True)
class RecalledEntry:
    """An entry that is worth showing.

    Attributes:
        entry: the past run.
        score: probability of being relevant; with a policy that is not calibrated, the similarity it went by.
        evidence: why, in one line without the entry's or the query's words.
        others: ids of further runs that say the same, for which this one stands.
    """

    entry: Entry
    score: float
    evidence: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recollection:
    """What is recalled for a request, most relevant first; often nothing.

    Attributes:
        entries: past runs.
        missing: what could not be looked at, in words; "" if all could.
    """

    entries: tuple[RecalledEntry, ...] = ()
    missing: str = ""

    @property
    def good(self) -> tuple[RecalledEntry, ...]:
        """Runs that went well."""
        return tuple(each for each in self.entries if each.entry.good)

    @property
    def failed(self) -> tuple[RecalledEntry, ...]:
        """Runs that went wrong."""
        return tuple(each for each in self.entries if each.entry.failed)

    @property
    def unjudged(self) -> tuple[RecalledEntry, ...]:
        """Runs nobody said anything about."""
        return tuple(each for each in self.entries if each.entry.score is None)
