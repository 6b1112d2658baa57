"""A user's preferences, and the offered tools that are left out for them. No model is asked.

A rating is the feedback on a run, one per run for each executed tool. If a critique names the wrong call, only its tool
is rated badly. A preference needs at least two ratings in the same direction on similar requests, and two more than in
the other direction.

MemToolAgent (arXiv 2606.07909) removes every tool that was rated badly on similar requests. Here more is needed:

1. A tool is left out only if it was the only avoided tool of some badly rated run: tools that were only rated badly
   together cannot be distinguished, and are kept. A critique that names the tool at fault distinguishes them, and so
   does a good run: it clears tools that every run calls, such as a search.
2. Tools in `keep` are never left out or blamed, nor are the memory's own tools.
3. At least one tool that acts on the world remains; otherwise all tools are offered.

The method does not know whether the remaining tools can do the work: name in `keep` the tools that the agent needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.runs.run import OWN_TOOLS


@dataclass(frozen=True, slots=True)
class Preference:
    """One preference of a user.

    Attributes:
        tool: its name.
        liked: True if the tool is preferred, False if it is avoided.
        ratings: number of runs for the preference.
        against: number of runs against it.
        entries: ids of the runs for it.
    """

    tool: str
    liked: bool
    ratings: int
    against: int
    entries: tuple[str, ...]

    @property
    def reason(self) -> str:
        """The counts as a text."""
        this, other = "badly", "well"
        if self.liked:
            this, other = other, this
        runs = "runs"
        if self.ratings == 1:
            runs = "run"
        return f"rated {this} in {self.ratings} similar {runs}, {other} in {self.against or 'none'}"


@dataclass(slots=True)
class Ratings:
    """Ids of the runs for a tool, and of the runs against it, oldest first."""

    good: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


def preferences(entries: Iterable[Entry], *, user: str | None = None) -> list[Preference]:
    """Return a user's preferences, most ratings first.

    Args:
        entries: entries with similar requests; those without feedback are not counted.
        user: digest of the user, if only this user's runs count; None for all.
    """
    liked_or_not: list[Preference] = []
    for tool, ratings in _ratings(entries, user).items():
        liked = len(ratings.good) > len(ratings.bad)
        speak_for, against = ratings.bad, ratings.good
        if liked:
            speak_for, against = against, speak_for
        # The paper asks for two ratings in one direction; here they are two more than in the other one.
        if len(speak_for) - len(against) >= 2:
            liked_or_not.append(Preference(tool, liked, len(speak_for), len(against), tuple(speak_for)))

    def most_ratings_first(preference: Preference) -> tuple[int, str]:
        return -preference.ratings, preference.tool

    return sorted(liked_or_not, key=most_ratings_first)


def _ratings(entries: Iterable[Entry], user: str | None) -> dict[str, Ratings]:
    """Return the ratings of each tool, by the feedback on the runs that executed it."""
    rated: dict[str, Entry] = {}
    for entry in entries:
        if entry.score is not None and (user is None or entry.user == user):
            rated[entry.id] = entry

    def oldest_first(entry: Entry) -> tuple[float, str]:
        return entry.time, entry.id

    ratings: dict[str, Ratings] = {}
    for entry in sorted(rated.values(), key=oldest_first):
        for tool in _rated_tools(entry):
            of_tool = ratings.setdefault(tool, Ratings())
            if entry.failed:
                of_tool.bad.append(entry.id)
            else:
                of_tool.good.append(entry.id)
    return ratings


def _rated_tools(entry: Entry) -> tuple[str, ...]:
    """Return the tools that feedback is about: those executed, or the one whose call a critique names."""
    # Otherwise a right search before a wrong change would be avoided too.
    if entry.failed and entry.blamed in entry.tools:
        return (entry.blamed,)
    return entry.tools


def left_out(
    user_preferences: Iterable[Preference], offered: Collection[str], *, keep: Collection[str] = ()
) -> dict[str, str]:
    """Return the offered tools that are left out by the rules above, each with the reason in one line.

    Args:
        user_preferences: the user's preferences on similar requests.
        offered: names of the tools of this step; empty if they are unknown.
        keep: tools that are never left out.
    """
    # Whether a hint about the ratings would do better than leaving a tool out was not measured.
    # Removed before blame is shared: a kept tool does not explain a bad run.
    never = {*OWN_TOOLS, *keep}
    avoided = []
    for preference in user_preferences:
        if not preference.liked and preference.tool not in never:
            avoided.append(preference)
    out = {}
    for preference in _only_explanations(avoided):
        if not offered or preference.tool in offered:
            out[preference.tool] = preference.reason
    # Without a tool that acts on the world the agent could not do the work at all.
    if offered and not {*offered} - out.keys() - OWN_TOOLS:
        return {}
    return out


def _only_explanations(avoided: Sequence[Preference]) -> list[Preference]:
    """Return the avoided tools that are the only explanation of some bad run."""
    explanations: Counter[str] = Counter()
    for preference in avoided:
        explanations.update(preference.entries)
    only = []
    for preference in avoided:
        # A run is counted once for each avoided tool that it called.
        if any(explanations[entry] == 1 for entry in preference.entries):
            only.append(preference)
    return only


def to_event(user_preferences: Iterable[Preference], out: Mapping[str, str]) -> dict[str, Any]:
    plain = []
    for preference in user_preferences:
        fields = asdict(preference)
        fields["entries"] = list(preference.entries)
        plain.append(fields)
    return {"left_out": dict(out), "preferences": plain}
