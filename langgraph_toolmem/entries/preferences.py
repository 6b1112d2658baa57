"""A user's preferences, and the offered tools that are left out for them. No model is asked.

A rating is the feedback on a run, one per run for each tool it executed. If a critique says whose call was wrong, only
that tool is rated badly. A preference needs at least two ratings in the same direction on similar requests, and two
more than in the other.

MemToolAgent (arXiv 2606.07909) takes every tool away that was rated badly on similar requests. That is harsh, so here
it needs more:

1. A tool that is liked stays though its domain is avoided.
2. A bad rating is about a run, and a run may have called several tools. A tool is left out only if some badly rated
   run called no other avoided tool: tools that were only ever rated badly together are not told apart, and stay. A
   critique that names the tool at fault tells them apart, and so does a good run: what every run calls, such as a
   search, is cleared by it.
3. A domain counts only if no single tool of it explains all its bad ratings.
4. What is in `keep` stays, and gets no blame either. So do the memory's own tools.
5. At least one tool that acts on the world is left; otherwise nothing is left out.

It is not known whether the tools that are left can do the work: name in `keep` what the agent cannot do without.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.runs.run import OWN_TOOLS

LEAST: Final = 2
"""Ratings needed, and by how many they have to outnumber those in the other direction."""
MAX_LINES: Final = 8
"""Preferences in a prompt, those with most ratings."""
HEAD: Final = "How this user rated tools on similar past requests (the request at hand decides which are needed):"

DomainOf = Callable[[str], str | None]
"""Returns the domain of a tool, as `tool_prefix` does."""


@dataclass(frozen=True, slots=True)
class Preference:
    """One preference of a user.

    Attributes:
        kind: "tool", or "domain": a group of tools.
        name: of the tool or the domain.
        liked: True: preferred; False: avoided.
        ratings: runs that speak for it.
        against: runs that speak against it.
        entries: ids of the runs that speak for it.
    """

    kind: Literal["tool", "domain"]
    name: str
    liked: bool
    ratings: int
    against: int
    entries: tuple[str, ...]

    @property
    def reason(self) -> str:
        """The counts in words."""
        this, other = ("well", "badly") if self.liked else ("badly", "well")
        where = f" (group {self.name})" if self.kind == "domain" else ""
        runs = "run" if self.ratings == 1 else "runs"
        return f"rated {this} in {self.ratings} similar {runs}, {other} in {self.against or 'none'}{where}"


def preferences(
    entries: Iterable[Entry], *, user: str | None = None, domain_of: DomainOf | None = None
) -> list[Preference]:
    """Return what a user prefers, most ratings first.

    Args:
        entries: those with requests like the one at hand; those without feedback count for nothing.
        user: digest of the user, whose runs alone count; None: all.
        domain_of: returns the domain of a tool; without it only tools are counted.
    """
    mine = {each.id: each for each in entries if each.score is not None and (user is None or each.user == user)}
    votes: dict[tuple[Literal["tool", "domain"], str], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for entry in sorted(mine.values(), key=lambda each: (each.time, each.id)):
        tools = entry.tools if entry.good or entry.blamed not in entry.tools else (entry.blamed,)
        for tool in tools:
            votes["tool", tool][entry.failed].append(entry.id)
        for domain in {domain for tool in tools if domain_of is not None and (domain := domain_of(tool))}:
            votes["domain", domain][entry.failed].append(entry.id)
    found = []
    for (kind, name), (good, bad) in votes.items():
        liked = len(good) > len(bad)
        those, others = (good, bad) if liked else (bad, good)
        if len(those) - len(others) >= LEAST:
            found.append(Preference(kind, name, liked, len(those), len(others), tuple(those)))
    return sorted(found, key=lambda each: (-each.ratings, each.kind, each.name))


def tool_prefix(tool: str) -> str | None:
    """Return the part of a tool's name before the first dot, slash, colon or double underscore; None without one.

    >>> tool_prefix("calendar.create_event"), tool_prefix("mail__send"), tool_prefix("search")
    ('calendar', 'mail', None)
    """
    places = [at for mark in (".", "/", ":", "__") if (at := tool.find(mark)) > 0]
    return tool[: min(places)] if places else None


@dataclass(frozen=True, slots=True)
class Guidance:
    """The offered tools that stay, and those that go.

    Attributes:
        left_out: tools to be taken out, each with the reason in one line.
        kept: tools that ratings speak against and that stay, each with the reason in one line.
    """

    left_out: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)


def guide(
    found: Sequence[Preference],
    offered: Iterable[str],
    *,
    domain_of: DomainOf | None = None,
    keep: Collection[str] = (),
) -> Guidance:
    """Return which of the offered tools are left out, by the rules above.

    Args:
        found: what the user prefers on similar requests.
        offered: names of the tools of this step.
        domain_of: returns the domain of a tool; preferences for domains count only with it.
        keep: tools that stay whatever the ratings say.
    """
    names, stays = list(dict.fromkeys(offered)), {*OWN_TOOLS, *keep}
    blamed, together = _blamed(found, domain_of, stays)
    liked = {each.name for each in found if each.kind == "tool" and each.liked}
    left_out, kept = dict[str, str](), dict[str, str]()
    for name in names:
        keys = [("tool", name), ("domain", domain_of(name) if domain_of is not None else None)]
        against = [blamed[key] for key in keys if key in blamed]
        if against and name not in stays and name not in liked:
            left_out[name] = against[0].reason
        elif ("tool", name) in together:
            reason = together["tool", name].reason
            kept[name] = f"{reason}, each time with another tool that may be the reason"
    if left_out and not [name for name in names if name not in left_out and name not in OWN_TOOLS]:
        return Guidance({}, kept | {name: f"{why}, but no tool would be left" for name, why in left_out.items()})
    return Guidance(left_out, kept)


def to_prompt(
    found: Sequence[Preference],
    offered: Iterable[str],
    *,
    domain_of: DomainOf | None = None,
    left_out: Collection[str] = (),
) -> str:
    """Return what the ratings say of the offered tools, for a model to read; "" if nothing.

    Tools in `left_out` are not mentioned, since the model does not see them.
    """
    names = {name for name in offered if name not in left_out}
    groups = {domain_of(name) for name in names} if domain_of is not None else set()
    shown = [*(each for each in found if each.liked), *_blamed(found, domain_of, ())[0].values()]
    shown = [each for each in shown if each.name in (names if each.kind == "tool" else groups)]
    shown.sort(key=lambda each: (-each.ratings, each.kind, each.name))
    lines = [f"- {each.name}: {each.reason}." for each in shown[:MAX_LINES]]
    return "\n".join([HEAD, *lines]) if lines else ""


def to_event(found: Iterable[Preference], guidance: Guidance) -> dict[str, Any]:
    """Return plain values for a stream event."""
    return {
        "left_out": dict(guidance.left_out),
        "kept": dict(guidance.kept),
        "preferences": [{**asdict(each), "entries": list(each.entries)} for each in found],
    }


_ByName = dict[tuple[str, str | None], Preference]


def _blamed(found: Iterable[Preference], domain_of: DomainOf | None, stays: Collection[str]) -> tuple[_ByName, _ByName]:
    """Return avoided tools and domains that are the only explanation of some bad run, and the others."""
    avoided = [each for each in found if not each.liked]
    tools = [each for each in avoided if each.kind == "tool"]
    domains = [
        each
        for each in avoided
        if each.kind == "domain"
        and domain_of is not None
        and not any(domain_of(tool.name) == each.name and {*each.entries} <= {*tool.entries} for tool in tools)
    ]
    blamed: _ByName = {}
    together: _ByName = {}
    for group in ([each for each in tools if each.name not in stays], domains):
        runs = Counter(run for each in group for run in each.entries)
        for each in group:
            (blamed if any(runs[run] == 1 for run in each.entries) else together)[each.kind, each.name] = each
    return blamed, together
