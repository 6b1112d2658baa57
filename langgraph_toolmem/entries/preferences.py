"""A user's preferences, and the offered tools that are left out for them. No model is asked.

A rating is the feedback on a run, one per run for each tool it executed. If a critique says whose call was wrong, only
that tool is rated badly. A preference needs at least two ratings in the same direction on similar requests, and two
more than in the other.

MemToolAgent (arXiv 2606.07909) takes every tool away that was rated badly on similar requests. Here it needs more:

1. A tool is left out only if some badly rated run called no other avoided tool: tools that were only ever rated badly
   together are not told apart, and stay. A critique that names the tool at fault tells them apart, and so does a good
   run: what every run calls, such as a search, is cleared by it.
2. What is in `keep` stays, and gets no blame. So do the memory's own tools.
3. At least one tool that acts on the world is left; otherwise nothing is left out.

It is not known whether the tools that are left can do the work: name in `keep` what the agent cannot do without.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.runs.run import OWN_TOOLS

LEAST: Final = 2
"""Ratings needed, and by how many they have to outnumber those in the other direction."""


@dataclass(frozen=True, slots=True)
class Preference:
    """One preference of a user.

    Attributes:
        tool: its name.
        liked: True if the tool is preferred, False if it is avoided.
        ratings: runs that speak for it.
        against: runs that speak against it.
        entries: ids of the runs that speak for it.
    """

    tool: str
    liked: bool
    ratings: int
    against: int
    entries: tuple[str, ...]

    @property
    def reason(self) -> str:
        """The counts in words."""
        this, other = ("well", "badly") if self.liked else ("badly", "well")
        runs = "run" if self.ratings == 1 else "runs"
        return f"rated {this} in {self.ratings} similar {runs}, {other} in {self.against or 'none'}"


def preferences(entries: Iterable[Entry], *, user: str | None = None) -> list[Preference]:
    """Return what a user prefers, most ratings first.

    Args:
        entries: those with requests like the present one; those without feedback count for nothing.
        user: digest of the user, whose runs alone count; None: all.
    """
    mine = {each.id: each for each in entries if each.score is not None and (user is None or each.user == user)}
    votes: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for entry in sorted(mine.values(), key=lambda each: (each.time, each.id)):
        for tool in entry.tools if entry.good or entry.blamed not in entry.tools else (entry.blamed,):
            votes[tool][entry.failed].append(entry.id)
    found = []
    for tool, (good, bad) in votes.items():
        liked = len(good) > len(bad)
        those, others = (good, bad) if liked else (bad, good)
        if len(those) - len(others) >= LEAST:
            found.append(Preference(tool, liked, len(those), len(others), tuple(those)))
    return sorted(found, key=lambda each: (-each.ratings, each.tool))


def left_out(found: Iterable[Preference], offered: Collection[str], *, keep: Collection[str] = ()) -> dict[str, str]:
    """Return which of the offered tools are left out by the rules above, each with the reason in one line.

    Args:
        found: what the user prefers on similar requests.
        offered: names of the tools of this step; empty if they are unknown.
        keep: tools that stay whatever the ratings say.
    """
    blamed = _blamed(each for each in found if each.tool not in OWN_TOOLS and each.tool not in keep)
    out = {name: each.reason for name, each in blamed.items() if not offered or name in offered}
    return {} if offered and not {*offered} - out.keys() - OWN_TOOLS else out


def to_event(found: Iterable[Preference], out: Mapping[str, str]) -> dict[str, Any]:
    return {"left_out": dict(out), "preferences": [{**asdict(each), "entries": list(each.entries)} for each in found]}


def _blamed(found: Iterable[Preference]) -> dict[str, Preference]:
    """Return avoided tools that are the only explanation of some bad run."""
    avoided = [each for each in found if not each.liked]
    runs = Counter(run for each in avoided for run in each.entries)
    return {each.tool: each for each in avoided if any(runs[run] == 1 for run in each.entries)}
