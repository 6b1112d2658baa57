"""`toolmem graph prune | restore | propagate`: what changes the dependency graph.

Each says first what it would do. With `--apply` it asks, and then does what it said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_toolmem.base.text import count
from langgraph_toolmem.core.contributions import Answer, Command, TextTable

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.evolve.evolution import Leaving

LEAVING = ("tool", "score", "calls", "failed")
"""Columns of tools that are to be left out."""


def prune(
    method: Any,
    above: Annotated[float | None, typer.Option(metavar="SCORE", help="Those with a score above this.")] = None,
    most: Annotated[int | None, typer.Option(min=0, metavar="N", help="At most so many.")] = None,
    keep: Annotated[str, typer.Option(metavar="A,B", help="Tools that stay.")] = "",
    unused: Annotated[bool, typer.Option("--unused", help="Tools that were never called may go, too.")] = False,
) -> Answer:
    """Leave tools that fail or are hardly used out of plans.

    A score is half the failure rate, half how rarely a tool is called, from 0.5 to 1. The agent can still call what is
    left out; after a call that goes well the tool is back, as after `toolmem graph restore`.
    """
    kept = [name.strip() for name in keep.split(",") if name.strip()]
    found = method.prune(above=above, most=most, keep=kept, unused=unused)
    plain = [asdict(each) for each in found]
    if not found:
        return Answer(plain, ["No tool has such a score."])
    shown = TextTable("To be left out of plans", LEAVING, leaving_rows(found), len(found))
    return Answer(plain, [shown], question=f"Leave {count(len(found), 'tool')} out of plans?")


def _pruned(method: Any, answer: Answer, **_: Any) -> Answer:
    method.leave_out([each["tool"] for each in answer.plain])
    gone = [{**each, "gone": True} for each in answer.plain]
    return Answer(gone, [f"{count(len(gone), 'tool')} left out. `toolmem graph restore TOOL` puts one back."])


def leaving_rows(found: Iterable[Leaving]) -> tuple[tuple[str, ...], ...]:
    """Tools that are to be left out, as rows of a table."""
    return tuple((e.tool, f"{e.score:.3f}", f"{e.calls:,.0f}", f"{e.failure_rate:.0%}") for e in found)


def restore(
    method: Any,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOOL]...", help="What is to be put back [default: list them].")
    ] = None,
) -> Answer:
    """Put tools back that were pruned, or list those that are left out."""
    if names:
        back = method.restore(names)
        return Answer(back, [f"{count(len(back), 'tool')} put back."])
    out = method.pruned()
    return Answer(out, ["Left out are:" if out else "No tool is left out.", *(f"  {name}" for name in out)])


def _named(options: Mapping[str, Any]) -> bool:
    return bool(options["names"])


def propagate(
    method: Any,
    days: Annotated[float, typer.Option(metavar="D", help="How many days are recent, today included.")] = 7.0,
    eta: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the old weight.")] = 0.9,
) -> Answer:
    """Let the weights of links follow recent use.

    New weight = eta * old weight + (1 - eta) * recent successes / recent uses. Call it every so many days.
    """
    found = method.propagate(days=days, eta=eta)
    plain = {"applied": False, "links": [asdict(each) for each in found]}
    if not found:
        return Answer(plain, ["No weight would change."])
    rows = tuple(
        (e.source, e.target, f"{e.before:.3f}", f"{e.after:.3f}", f"{e.successes:,.0f} of {e.uses:,.0f}") for e in found
    )
    columns = ("after", "comes", "weight now", "then", "lately")
    shown = TextTable(f"Links by their use on the last {days:g} days", columns, rows)
    weights = "weights" if len(found) > 1 else "weight"
    return Answer(plain, [shown], question=f"Change the {weights} of {count(len(found), 'link')}?")


def _propagated(method: Any, _: Answer, days: float, eta: float) -> Answer:
    done = method.propagate(days=days, eta=eta, dry_run=False)
    plain = {"applied": True, "links": [asdict(each) for each in done]}
    return Answer(plain, [f"{count(len(done), 'link')} changed."])


COMMANDS = (
    Command(prune, group="graph", change=_pruned, tools=True),
    Command(restore, group="graph", writes=_named),
    Command(propagate, group="graph", change=_propagated),
)
