"""`toolmem graph prune | restore | propagate | constraints`: what changes the dependency graph.

Each says first what it would do. With `--apply` it asks, and then does what it said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.cli.graph import adopt, graph, lines_of
from langgraph_toolmem.cli.inputs import open_memory, read_tools_file
from langgraph_toolmem.cli.options import Json, MemoryFolder
from langgraph_toolmem.cli.tables import count, table
from langgraph_toolmem.cli.terminal import answer_json, console, note
from langgraph_toolmem.graph.export import printable

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.dependencies.constraints import ClusterConstraints
    from langgraph_toolmem.navigator.evolve.evolution import Leaving, Moved, Regrouping

LINKS_SHOWN: Final = 20
DRY_RUN: Final = "Dry run: nothing was changed. Do it with --apply."

Apply = Annotated[bool, typer.Option("--apply", help="Do it, after a question.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="With --apply: do not ask.")]
Schemas = Annotated[
    Path | None,
    typer.Option(
        "--tools", metavar="FILE", help="Tool schemas or an OpenAPI document (JSON), besides those the memory saw."
    ),
]


class OrShow(TyperGroup):
    """Commands of which `show` may go without its name: ``toolmem graph "send a mail" --memory FOLDER``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts `show` in front of what begins with no command and asks for no help."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


app = typer.Typer(
    cls=OrShow,
    rich_markup_mode=None,
    help="Show the dependency graph of the tools and plans in it, or change it. `toolmem graph [REQUEST] --memory "
    "FOLDER` is `toolmem graph show`.",
)
app.command("show")(graph)


@app.command()
def prune(
    memory: MemoryFolder,
    above: Annotated[float | None, typer.Option(metavar="SCORE", help="Those with a score above this.")] = None,
    most: Annotated[int | None, typer.Option(min=0, metavar="N", help="At most so many.")] = None,
    keep: Annotated[str, typer.Option(metavar="A,B", help="Tools that stay.")] = "",
    unused: Annotated[bool, typer.Option("--unused", help="Tools that were never called may go, too.")] = False,
    tools: Schemas = None,
    apply: Apply = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Leave tools that fail or are hardly used out of plans.

    A score is half the failure rate, half how rarely a tool is called, from 0.5 to 1. The agent can still call what is
    left out; after a call that goes well the tool is back, as after `toolmem graph restore`.
    """
    kept = [name.strip() for name in keep.split(",") if name.strip()]
    schemas = read_tools_file(tools)
    with open_memory(memory, read_only=True) as opened:
        adopt(opened, schemas)
        found = opened.navigator.prune(above=above, most=most, keep=kept, unused=unused)
    if not as_json:
        _show_leaving(found)
    if apply and found:
        _sure(f"Leave {count(len(found), 'tool')} out of plans?", yes)
        with open_memory(memory) as opened:
            opened.navigator.leave_out([each.tool for each in found])
        found = [replace(each, gone=True) for each in found]
    if as_json:
        answer_json([asdict(each) for each in found])
    elif apply and found:
        typer.echo(f"{count(len(found), 'tool')} left out. `toolmem graph restore TOOL` puts one back.")
    elif found:
        typer.echo(DRY_RUN)


@app.command()
def restore(
    memory: MemoryFolder,
    tools: Annotated[
        list[str] | None, typer.Argument(metavar="[TOOL]...", help="What is to be put back [default: list them].")
    ] = None,
    as_json: Json = False,
) -> None:
    """Put tools back that were pruned, or list those that are left out."""
    with open_memory(memory, read_only=not tools) as opened:
        found = opened.navigator.restore(tools) if tools else opened.navigator.pruned()
    if as_json:
        answer_json(found)
    elif tools:
        typer.echo(f"{count(len(found), 'tool')} put back.")
    else:
        typer.echo("Left out are:" if found else "No tool is left out.")
        for name in found:
            typer.echo(f"  {printable(name)}")


@app.command()
def propagate(
    memory: MemoryFolder,
    days: Annotated[float, typer.Option(metavar="D", help="How many days are recent, today included.")] = 7.0,
    eta: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the old weight.")] = 0.9,
    apply: Apply = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let the weights of links follow recent use.

    New weight = eta * old weight + (1 - eta) * recent successes / recent uses. Call it every so many days.
    """
    with open_memory(memory, read_only=True) as opened:
        found = opened.navigator.propagate(days=days, eta=eta)
    if not as_json:
        _show_moved(found, days)
    if apply and found:
        _sure(f"Change the {'weights' if len(found) > 1 else 'weight'} of {count(len(found), 'link')}?", yes)
        with open_memory(memory) as opened:
            found = opened.navigator.propagate(days=days, eta=eta, dry_run=False)
    if as_json:
        answer_json({"applied": apply and bool(found), "links": [asdict(each) for each in found]})
    elif apply and found:
        typer.echo(f"{count(len(found), 'link')} changed.")
    elif found:
        typer.echo(DRY_RUN)


@app.command()
def constraints(
    memory: MemoryFolder,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="YAML or JSON [default: show the constraints in use].")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="No constraints any more.")] = False,
    tools: Schemas = None,
    apply: Apply = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
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
    schemas = read_tools_file(tools)
    with open_memory(memory, read_only=True) as opened:
        if file is None and not clear:
            _show_constraints(opened.navigator.cluster_constraints(), as_json=as_json)
            return
        adopt(opened, schemas)
        found = opened.navigator.regroup(file)
    if not as_json:
        _show_regrouping(found)
    if apply:
        _sure("Use these constraints from now on?" if file is not None else "Drop the constraints in use?", yes)
        with open_memory(memory) as opened:
            found = replace(found, done=opened.navigator.regroup(file, dry_run=False).done)
    if as_json:
        answer_json(asdict(found))
    else:
        typer.echo("Done." if apply else DRY_RUN)


def _sure(question: str, yes: bool) -> None:
    """Asks, unless `yes`; ends the program if the answer is no."""
    if yes:
        return
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        raise ConfigurationError("nobody said yes, so nothing was changed; --yes answers in advance") from None
    if not agreed:
        note("Nothing was changed.")
        raise typer.Exit(1)


def _show_leaving(found: list[Leaving]) -> None:
    rows = [(each.tool, f"{each.score:.3f}", f"{each.calls:,.0f}", f"{each.failure_rate:.0%}") for each in found]
    table(console(), "To be left out of plans", ("tool", "score", "calls", "failed"), rows, len(rows))
    if not found:
        typer.echo("No tool has such a score.")


def _show_moved(found: list[Moved], days: float) -> None:
    rows = [
        (
            each.source,
            each.target,
            f"{each.before:.3f}",
            f"{each.after:.3f}",
            f"{each.successes:,.0f} of {each.uses:,.0f}",
        )
        for each in found
    ]
    columns = ("after", "comes", "weight now", "then", "lately")
    table(console(), f"Links by their use on the last {days:g} days", columns, rows, LINKS_SHOWN)
    if not found:
        typer.echo("No weight would change.")


def _show_constraints(constraints: ClusterConstraints, *, as_json: bool) -> None:
    if as_json:
        answer_json(constraints.to_dict())
        return
    if not constraints.groups:
        typer.echo("There are no constraints: parameters are one by what they mean.")
    for group in constraints.groups:
        typer.echo(f"{group.kind} {printable(group.name)}")
        for member in group.members:
            typer.echo(f"  {printable(str(member))}")


def _show_regrouping(found: Regrouping) -> None:
    if not found.before and not found.after:
        typer.echo("No parameter of a known tool would move.")
    _show_texts("Before", found.before)
    _show_texts("After", found.after)
    for member in found.unmatched:
        note(f"fits nothing: {member}")


def _show_texts(title: str, texts: Iterable[str]) -> None:
    shown = list(texts)
    if shown:
        typer.echo(title)
        for text in shown:
            typer.echo("\n".join(f"  {line}" for line in lines_of(text).splitlines()))
