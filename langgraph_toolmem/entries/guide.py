"""Hard preference guiding: which of the offered tools are left out because a user rated them badly. No model is asked.

After MemToolAgent (arXiv 2606.07909), which takes every tool away that was rated badly on similar requests. Taking a
tool away is harsh, so here it needs more than that:

1. A tool counts as avoided by the two-rating rule of `preferences`. A tool that is liked stays though its domain is
   avoided.
2. A bad rating is about a run, and a run may have called several tools. A tool is left out only if some badly rated
   run called no other avoided tool: tools that were only ever rated badly together are not told apart, and stay. A
   critique that names the tool at fault tells them apart, and so does a good run: what every run calls, such as a
   search, is cleared by it.
3. A domain counts only if no single tool of it explains all its bad ratings.
4. What is in `keep` stays, and gets no blame either. So does the summary tool.
5. At least one tool that acts on the world is left; otherwise nothing is left out.

Whether the tools that are left can do the work is not known here. Name in `keep` what the agent cannot do without.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from langgraph_toolmem.entries.preferences import Preference, avoided
from langgraph_toolmem.runs.run import OWN_TOOLS

MAX_LINES: Final = 8
"""Preferences that a prompt tells, those with most ratings."""

DomainOf = Callable[[str], str | None]
"""The domain of a tool, such as `langgraph_toolmem.entries.preferences.tool_prefix`."""


@dataclass(frozen=True, slots=True)
class Guidance:
    """What becomes of the offered tools.

    Attributes:
        left_out: the tools to be taken out, each with the reason in one line.
        kept: tools that ratings speak against and that stay, each with the reason in one line.
    """

    left_out: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)


def guide(
    found: Iterable[Preference],
    offered: Iterable[str],
    *,
    domain_of: DomainOf | None = None,
    keep: Collection[str] = (),
) -> Guidance:
    """Which of the offered tools are left out, by the rules above.

    Args:
        found: what the user prefers on similar requests.
        offered: names of the tools of this step.
        domain_of: the domain of a tool; preferences for domains count only with it.
        keep: tools that stay whatever the ratings say.
    """
    names = list(dict.fromkeys(offered))
    found, domain, stays = list(found), domain_of or _no_domain, {*OWN_TOOLS, *keep}
    blamed, together = _blamed(found, domain, stays)
    against = {(each.kind, each.name): each for each in blamed + together}
    liked = [each for each in found if each.liked]
    out = avoided([*liked, *blamed], names, domain) - stays
    kept = {
        name: f"{_ratings(each)}, each time with another tool that may be the reason"
        for name in names
        if name not in out and (each := against.get(("tool", name))) is not None and each in together
    }
    reasons = {}
    for name in names:
        if name in out:
            own = against.get(("tool", name))
            reasons[name] = _why(own if own in blamed else against[("domain", str(domain(name)))])
    if reasons and not [name for name in names if name not in reasons and name not in OWN_TOOLS]:
        return Guidance({}, kept | {name: f"{why}, but no tool would be left" for name, why in reasons.items()})
    return Guidance(reasons, kept)


def to_prompt(
    found: Iterable[Preference],
    offered: Iterable[str],
    *,
    domain_of: DomainOf | None = None,
    left_out: Collection[str] = (),
) -> str:
    """What the ratings say of the offered tools, for a model to read; "" if they say nothing.

    Args:
        found: what the user prefers on similar requests.
        offered: names of the tools of this step.
        domain_of: as for `guide`.
        left_out: tools that are not told of, since the model does not see them.
    """
    found, domain = list(found), domain_of or _no_domain
    names = {name for name in offered if name not in left_out}
    groups = {group for name in names if (group := domain(name)) is not None}
    told = [*(each for each in found if each.liked), *_blamed(found, domain, ())[0]]
    there = [each for each in told if each.name in (names if each.kind == "tool" else groups)]
    there.sort(key=lambda each: (-each.ratings, each.kind, each.name))
    lines = [
        f"- {'prefer' if each.liked else 'avoid'} {each.name}{' (all of its tools)' if each.kind == 'domain' else ''}: "
        f"{_why(each)}."
        for each in there[:MAX_LINES]
    ]
    head = "How this user rated tools on similar past requests (a preference only: call what the request needs):"
    return "\n".join([head, *lines]) if lines else ""


def to_event(found: Iterable[Preference], guidance: Guidance) -> dict[str, Any]:
    """Plain values for a stream event."""
    return {
        "left_out": dict(guidance.left_out),
        "kept": dict(guidance.kept),
        "preferences": [{**asdict(each), "entries": list(each.entries)} for each in found],
    }


def _blamed(
    found: Sequence[Preference], domain_of: DomainOf, stays: Collection[str]
) -> tuple[list[Preference], list[Preference]]:
    """Avoided tools and domains that some bad run is explained by alone, and those that none is."""
    tools = [each for each in found if each.kind == "tool" and not each.liked]
    domains = [
        each
        for each in found
        if each.kind == "domain"
        and not each.liked
        and not any(domain_of(tool.name) == each.name and {*each.entries} <= {*tool.entries} for tool in tools)
    ]
    blamed: list[Preference] = []
    together: list[Preference] = []
    for group in ([each for each in tools if each.name not in stays], domains):
        runs: dict[str, int] = defaultdict(int)
        for each in group:
            for run in each.entries:
                runs[run] += 1
        for each in group:
            (blamed if any(runs[run] == 1 for run in each.entries) else together).append(each)
    return blamed, together


def _why(preference: Preference) -> str:
    where = f" (group {preference.name})" if preference.kind == "domain" else ""
    said = f"; in words: {json.dumps(preference.text, ensure_ascii=False)}" if preference.text else ""
    return f"{_ratings(preference)}{where}{said}"


def _ratings(preference: Preference) -> str:
    this, other = ("well", "badly") if preference.liked else ("badly", "well")
    runs = "run" if preference.ratings == 1 else "runs"
    return f"rated {this} in {preference.ratings} similar {runs}, {other} in {preference.against or 'none'}"


def _no_domain(tool: str) -> None:
    del tool
