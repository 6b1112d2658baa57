"""`toolmem graph show`: who gives what to whom, plans for a request, and what pruning would take out. Only reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import count, printable
from langgraph_toolmem.cli.evolve import COMMANDS, LEAVING, leaving_rows
from langgraph_toolmem.cli.inputs import adopt_tools, open_memory, read_tools_file
from langgraph_toolmem.cli.options import Embeddings, Json, MemoryFolder
from langgraph_toolmem.cli.tables import table
from langgraph_toolmem.cli.terminal import answer_json, console

if TYPE_CHECKING:
    from rich.console import Console

    from langgraph_toolmem.navigator.dependencies.clusters import Cluster
    from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
    from langgraph_toolmem.navigator.dependencies.links import EdgeScorer, Link
    from langgraph_toolmem.navigator.evolve.evolution import Leaving
    from langgraph_toolmem.navigator.history import History
    from langgraph_toolmem.navigator.plan.chains import Chain, Plan

LINKS_SHOWN: Final = 20
LINKS_READ: Final = 2_000
"""Tools whose inputs are looked at for who gives what, those that were called most first."""
ROUTES: Final = 2
_BY: Final = {"cluster": "structure", "flow": "runs", "near": "similar words", "predicted": "prediction"}


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


@app.command("show")
def graph(
    request: Annotated[str | None, typer.Argument(metavar="REQUEST", help="Plan for what a user says.")] = None,
    *,
    memory: MemoryFolder,
    tools: Annotated[
        Path | None,
        typer.Option(
            "--tools", metavar="FILE", help="Tool schemas or an OpenAPI document (JSON), besides those the memory saw."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TOOL", help="Plan for this tool, in place of a request.")
    ] = None,
    known: Annotated[
        str, typer.Option(metavar="A,B", help="Names of values that are known when the plan begins.")
    ] = "",
    clusters: Annotated[int, typer.Option(min=0, metavar="N", help="Explain the N largest shared parameters.")] = 5,
    prune: Annotated[
        int, typer.Option(min=0, metavar="N", help="The N tools that pruning would take out first (dry run).")
    ] = 5,
    embeddings: Embeddings = "builtin",
    as_json: Json = False,
) -> None:
    """Show the dependency graph of the tools, and plans in it.

    Which parameters mean the same and why, who gives what to whom, the chain of calls for a request or a tool as a
    tree, and which tools pruning would take out. Writes nothing to the memory and calls no model.
    """
    if request in {"show", *(each.run.__name__ for each in COMMANDS)}:
        raise ConfigurationError(f"write the command first: toolmem graph {request} --memory {memory}")
    if request is not None and target is not None:
        raise ConfigurationError("give a REQUEST or --target, not both")
    from langgraph_toolmem.navigator.evolve.evolution import prunable

    schemas = read_tools_file(tools)
    with open_memory(memory, read_only=True, embeddings=embeddings) as opened:
        adopt_tools(opened, schemas)
        with opened.navigator.dependencies() as drawn:
            history = opened.navigator.history()
        scorer = opened.navigator.scorer
        plan = None
        if request is not None or target is not None:
            values = [value.strip() for value in known.split(",") if value.strip()]
            plan = opened.navigator.plan(request, target=target, known=values, k=ROUTES, budget=5.0)
    shared = _shared(drawn)
    gone = prunable(drawn, history, most=prune, keep=drawn.left_out)
    links = _links(drawn, history, scorer)
    if as_json:
        answer_json(_in_plain(drawn, history, shared[:clusters], links, plan, gone))
        return
    out = console()
    _show_graph(out, drawn, history, shared, clusters, links)
    if plan is not None:
        _show_plan(out, plan)
    if drawn.left_out:
        out.print()
        out.print(f"Pruned, in no plan but their own: {printable(', '.join(sorted(drawn.left_out)))}", soft_wrap=True)
    _show_leaving(out, gone)


def _shared(drawn: ToolDependencyGraph) -> list[Cluster]:
    """Parameters that one tool gives and another takes, those of most tools first."""
    found = [
        each
        for each in drawn.clusters.by_id.values()
        if each.producers and each.consumers and len({*each.producers, *each.consumers}) > 1
    ]
    return sorted(found, key=lambda each: (-len({*each.producers, *each.consumers}), each.label, each.id))


def _links(drawn: ToolDependencyGraph, history: History, scorer: EdgeScorer | None) -> list[tuple[Link, float]]:
    """The best giver of each needed input, the likeliest first."""
    from langgraph_toolmem.navigator.dependencies.weigh import Weigher

    weigher = Weigher(drawn, history, scorer)
    names = sorted(drawn.apis, key=lambda name: (-history.uses.get(name, 0), name))[:LINKS_READ]

    def best() -> Iterator[tuple[Link, float]]:
        for name in names:
            for port in drawn.apis[name].needs:
                if weighed := weigher.into(port):
                    likeliest = max(weighed, key=lambda each: (each.weight, each.link.producer))
                    yield likeliest.link, likeliest.weight

    return sorted(best(), key=lambda pair: (-pair[1], pair[0].consumer, pair[0].input))


def _show_graph(
    out: Console,
    drawn: ToolDependencyGraph,
    history: History,
    shared: list[Cluster],
    clusters: int,
    links: list[tuple[Link, float]],
) -> None:
    sizes = _sizes(drawn, history)
    out.print(
        f"{count(sizes['tools'], 'tool')}, {count(sizes['parameters'], 'parameter')} ({len(shared):,} that one tool "
        f"gives and another takes), {count(sizes['edges'], 'edge')}; from runs: {count(sizes['transitions'], 'pair')} "
        f"of tools in a row, {count(sizes['flows'], 'flow')} of values.",
        soft_wrap=True,
    )
    rows = [
        (link.consumer, link.input, link.producer, link.output or "its result", f"{weight:.2f}", _BY[link.kind])
        for link, weight in links
    ]
    columns = ("tool", "needs", "best from", "its output", "weight", "known by")
    table(out, "Who gives what", columns, rows, LINKS_SHOWN)
    if shared and clusters:
        out.print()
        out.print("Parameters that several tools share", style="bold", soft_wrap=True)
        for each in shared[:clusters]:
            out.print(_lines_of(each.explain()), soft_wrap=True)


def _show_plan(out: Console, plan: Plan) -> None:
    from langgraph_toolmem.navigator.plan.chains import tree

    out.print()
    out.print("Plan", style="bold")
    if not plan.chains:
        out.print("No tool fits that.")
    for chain in plan.chains:
        out.print(_lines_of(tree(chain)), soft_wrap=True)
        for line in _asks(chain):
            out.print(f"  {printable(line)}", soft_wrap=True)
    if plan.cut_short:
        out.print("The search was cut short; there may be better chains.")


def _asks(chain: Chain) -> Iterator[str]:
    for ask in chain.asks:
        where = "nothing found gives it" if ask.findable else "the user says it"
        yield f"{ask.tool}.{ask.input}: {where}" + (f" ({ask.reason})" if ask.reason else "")


def _show_leaving(out: Console, gone: list[Leaving]) -> None:
    title = "What pruning would take out first (dry run, nothing is taken out)"
    table(out, title, LEAVING, leaving_rows(gone), len(gone))


def _in_plain(
    drawn: ToolDependencyGraph,
    history: History,
    shared: list[Cluster],
    links: list[tuple[Link, float]],
    plan: Plan | None,
    gone: list[Leaving],
) -> dict[str, Any]:
    return {
        **_sizes(drawn, history),
        "links": [{**link._asdict(), "weight": round(weight, 6)} for link, weight in links],
        "clusters": [
            {
                "label": each.label,
                "producers": sorted(each.producers),
                "consumers": sorted(each.consumers),
                "why": each.explain(),
            }
            for each in shared
        ],
        "plan": None if plan is None else plan.to_dict(),
        "prune": [asdict(each) for each in gone],
        "left_out": sorted(drawn.left_out),
    }


def _sizes(drawn: ToolDependencyGraph, history: History) -> dict[str, int]:
    return {
        "tools": len(drawn),
        "parameters": len(drawn.clusters.by_id),
        "edges": sum(len(node.inputs) + len(node.outputs) for node in drawn.apis.values()),
        "transitions": len(history.transitions),
        "flows": len(history.flows),
    }


def _lines_of(text: str) -> str:
    """Text of several lines in which names hold no control characters."""
    return "\n".join(printable(line) for line in text.splitlines())
