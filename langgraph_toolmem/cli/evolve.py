"""`toolmem graph prune | restore | propagate | constraints`: what changes the dependency graph.

Each says first what it would do. With `--apply` it asks, and then does what it said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import count
from langgraph_toolmem.core.contributions import Answer, Command, TextTable

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.dependencies.constraints import ClusterConstraints
    from langgraph_toolmem.navigator.evolve.evolution import Leaving, Regrouping

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


def constraints(
    method: Any,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="YAML or JSON [default: show the constraints in use].")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="No constraints any more.")] = False,
) -> Answer:
    """Join or split parameters by a file of your own, in place of the constraints in use.

    Shows each cluster before and after. The memory keeps the file's content.

    \b
    join:
      - name: place
        members:
          - {tool: get_weather, input: q}
          - {tool: "weather_*", output: location.name}
    split:
      - name: billing country
        members:
          - {tool: create_invoice, input: country}
    """
    if file is not None and clear:
        raise ConfigurationError("give a FILE or --clear, not both")
    if file is None and not clear:
        used = method.cluster_constraints()
        return Answer(used.to_dict(), list(_in_words(used)))
    found: Regrouping = method.regroup(file)
    shown = [] if found.before or found.after else ["No parameter of a known tool would move."]
    for title, texts in (("Before", found.before), ("After", found.after)):
        if texts:
            shown += [title, *("\n".join(f"  {line}" for line in text.splitlines()) for text in texts)]
    question = "Use these constraints from now on?" if file is not None else "Drop the constraints in use?"
    return Answer(asdict(found), shown, [f"fits nothing: {member}" for member in found.unmatched], question)


def _constrained(method: Any, answer: Answer, file: Path | None, **_: Any) -> Answer:
    return replace(
        answer, plain={**answer.plain, "done": method.regroup(file, dry_run=False).done}, shown=["Done."], notes=()
    )


def _in_words(constraints: ClusterConstraints) -> Iterator[str]:
    if not constraints.groups:
        yield "There are no constraints: parameters are one by what they mean."
    for group in constraints.groups:
        yield f"{group.kind} {group.name}"
        yield from (f"  {member}" for member in group.members)


COMMANDS = (
    Command(prune, group="graph", change=_pruned, tools=True),
    Command(restore, group="graph", writes=_named),
    Command(propagate, group="graph", change=_propagated),
    Command(constraints, group="graph", change=_constrained, tools=True),
)
