"""Links between tools, foreseen: the plain scorer and the graph model beside what one would use instead.

What is asked, and what it is told from, is in `links_data`. With ``--graph-model`` the models of `hgt` join; with
``--size`` what scoring costs in large catalogues is measured, with ``--step`` a training step beside a peer's.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.links_data import (
    PLANTED,
    SETS,
    Figures,
    Fold,
    Scores,
    catalogue,
    figures,
    folds_of,
    interval,
    negatives,
)
from benchmarks.navigator_data import catalogue as enlarged
from benchmarks.replay import DATA
from benchmarks.sit import embedder_named, missing
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import Known, Link
from langgraph_toolmem.navigator.learned.features import SCORES
from langgraph_toolmem.navigator.learned.plain import fit, two_steps
from langgraph_toolmem.navigator.learned.scorer import LearnedLinks, StructuralFits, table_of
from langgraph_toolmem.navigator.learned.views import Embed, Floats, Ints, Views

TOOLBENCH: Final = "toolbench_catalog"
TARGETS: Final = {
    ("nestful", "MiniLM"): (0.93, 0.87, 0.163),
    ("nestful", "built-in"): (0.91, 0.84, 0.163),
    ("bfcl_v3_multi_turn", "MiniLM"): (0.91, 0.79, 0.304),
    ("bfcl_v3_multi_turn", "built-in"): (0.90, 0.77, 0.304),
}
"""AUC over all and over unseen links, and filtered MRR, of the plain scorer."""
WITHIN: Final = 0.84
DRAWS: Final = 5
Ranker = Callable[[Fold, int], Scores]
"""Fold and seed -> scores."""


# --- rankers --------------------------------------------------------------------------------------------------


def structure(fold: Fold, _: int) -> Scores:
    """How well the two fit, without any record."""
    return lambda pairs: np.array([fold.fits(consumer).get(producer, 0.0) for producer, consumer in pairs.tolist()])


def untrained(number: int, fold: Fold, _: int) -> Scores:
    """One of the plain scorer's untrained scores."""
    kind, one, other = SCORES[number]
    of = fold.views.of

    def scores(pairs: Ints) -> npt.NDArray[np.float64]:
        found: Floats = np.einsum("pd,pd->p", of[kind, one][pairs[:, 0]], of[kind, other][pairs[:, 1]])
        return found.astype(np.float64)

    return in_blocks(scores)


def plain(fold: Fold, seed: int) -> Scores:
    """The plain scorer."""
    return in_blocks(fit(fold.views, fold.fits, fold.known, together=two_steps(fold.known), seed=seed).sums)


def graph_model(embed: Embed, head: str, how: Mapping[str, Any], fold: Fold, seed: int) -> Scores:
    """The model of `hgt`."""
    from langgraph_toolmem.hgt.export import pair_scorer
    from langgraph_toolmem.hgt.model import Sizes
    from langgraph_toolmem.hgt.train import Material, Trainer, Training

    options = dict(how)
    make = Training.published if options.pop("published", False) else Training
    sizes: dict[str, Any] = {"head": head, "layers": options.pop("layers", 2), "width": options.pop("width", 256)}
    given = Material(fold.graph, fold.views, fold.fits, fold.history, fold.known, embed, two_steps(fold.known))
    logits = pair_scorer(Trainer(given, make(sizes=Sizes(**sizes), seed=seed, **options)).run())
    return in_blocks(lambda pairs: logits(pairs).astype(np.float64))


def in_blocks(scores: Scores) -> Scores:
    """The same, some pairs at a time."""
    return lambda pairs: np.concatenate([scores(pairs[start : start + 8_192]) for start in range(0, len(pairs), 8_192)])


GRAPH_MODELS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "graph model, the paper's head and losses": ("separable", {"features": False, "published": True}),
    "graph model, MLP head": ("mlp", {"features": False}),
    "graph model, MLP head, no message passing": ("mlp", {"features": False, "layers": 0}),
    "graph model, the paper's losses, pair features": ("mlp", {"published": True}),
    "graph model, pair features": ("mlp", {}),
}


# --- measuring ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One ranker on one set: means of both folds and all seeds, with 95 % intervals.

    Attributes:
        all, unseen: AUC over all links and over those that were not known.
        within: AUC within a consumer; mrr: filtered; both of unseen links.
    """

    name: str
    embedder: str
    ranker: str
    all: float
    all_interval: tuple[float, float]
    unseen: float
    unseen_interval: tuple[float, float]
    within: float
    mrr: float
    seconds: float


def measured(name: str, embedder: str, ranker: str, made: Ranker, folds: Sequence[Fold], seeds: int) -> Row:
    """A ranker on both folds."""
    found: list[Figures] = []
    began = time.perf_counter()
    for fold in folds:
        draws = [negatives(fold, draw) for draw in range(DRAWS)]
        found += [figures(fold, made(fold, seed), draws) for seed in range(seeds)]

    def mean(of: Callable[[Figures], Sequence[float]]) -> tuple[float, tuple[float, float]]:
        # A link counts once, with the mean over the seeds, so that intervals are of links.
        each_fold = range(len(folds))
        halves = [
            np.mean([of(each) for each in found[half * seeds : (half + 1) * seeds]], axis=0) for half in each_fold
        ]
        return float(np.mean([half.mean() for half in halves])), interval(np.concatenate(halves).tolist())

    all_links, unseen = mean(lambda each: each.parts[0]), mean(lambda each: each.parts[1])
    within, mrr = mean(lambda each: each.within)[0], mean(lambda each: each.reciprocal)[0]
    seconds = (time.perf_counter() - began) / len(found)
    return Row(name, embedder, ranker, *all_links, *unseen, within, mrr, seconds)


def embedding(kind: str) -> Embed:
    """An embedder that remembers."""
    embedder, known = embedder_named(kind), dict[str, list[float]]()

    def embed(texts: Mapping[str, str]) -> Mapping[str, Sequence[float]]:
        new = list(dict.fromkeys(text for text in texts.values() if text not in known))
        known.update(zip(new, embedder.embed_documents(new) if new else [], strict=True))
        return {key: known[text] for key, text in texts.items()}

    return embed


def rows_of(options: argparse.Namespace, name: str, kind: str, console: Console) -> list[Row]:
    """All rankers on one set with one embedder."""
    embed = embedding(kind)
    folds = folds_of(catalogue(options.data, name, options.planted), embed)[: options.folds]
    found = []
    for number, (of, one, other) in enumerate(SCORES):
        found.append(measured(name, kind, f"{of} {one}-{other}", partial(untrained, number), folds, 1))
    best = max(found, key=lambda row: row.unseen)
    found = [replace(best, ranker=f"best untrained score ({best.ranker})")]
    found.append(measured(name, kind, "co-occurrence, then structure", structure, folds, 1))
    found.append(measured(name, kind, "plain scorer", plain, folds, options.seeds))
    for label, (head, how) in GRAPH_MODELS.items() if options.graph_model else ():
        with console.status(f"{name}, {kind}: {label}"):
            more = {"width": options.width, "epochs": options.epochs, "device": options.device, **how}
            made = partial(graph_model, embed, head, more)
            found.append(measured(name, kind, label, made, folds, options.graph_seeds))
    return found


def verdicts(rows: Sequence[Row]) -> list[tuple[bool, str]]:
    """Targets of the plain scorer."""
    found = []
    for row in rows:
        if row.ranker == "plain scorer" and (row.name, row.embedder) in TARGETS:
            bounds = dict(zip(("all", "unseen", "mrr"), TARGETS[row.name, row.embedder], strict=True))
            for what, bound in {**bounds, "within": WITHIN}.items():
                value = getattr(row, what)
                found.append((value >= bound, f"{row.name}, {row.embedder}: {what} {value:.3f} >= {bound}"))
    return found


def table(rows: Sequence[Row]) -> Table:
    """The rows for a person."""
    answer = Table(title="links foreseen (AUC, 95 % interval)", title_justify="left")
    for column in ("set", "embedder", "ranker", "all", "unseen", "within a consumer", "MRR", "s"):
        answer.add_column(column, justify="left" if column in ("set", "embedder", "ranker") else "right")
    for row in rows:
        (a, b), (c, d) = row.all_interval, row.unseen_interval
        shown = (f"{row.all:.3f} ({a:.2f}-{b:.2f})", f"{row.unseen:.3f} ({c:.2f}-{d:.2f})")
        rest = (f"{row.within:.3f}", f"{row.mrr:.3f}", f"{row.seconds:.1f}")
        answer.add_row(row.name, row.embedder, row.ranker, *shown, *rest)
    return answer


# --- cost -----------------------------------------------------------------------------------------------------


def cost(data: Path, tools: int) -> dict[str, float]:
    """What features of one consumer, and weighing an edge, cost in a catalogue of so many tools."""
    specs = catalogue(data, TOOLBENCH).specs
    many = {spec.name: spec for spec in enlarged(list(specs.values()), tools, own_parameters=True)}
    graph, embed = ToolDependencyGraph(many.values()), embedding("built-in")
    began = time.perf_counter()
    views = Views(graph.apis, embed)
    made = time.perf_counter() - began
    rng = np.random.default_rng(0)
    links = np.unique(rng.integers(len(views), size=(2_000, 2)), axis=0)
    fits = StructuralFits(graph, views)
    model = fit(views, fits, links)
    consumers = rng.choice(len(views), 20, replace=False).tolist()
    for consumer in consumers:
        fits(consumer)  # what structure finds is the graph's cost
    times = []
    for consumer in consumers:
        began = time.perf_counter()
        list(model.rows([consumer]))
        times.append(time.perf_counter() - began)
    arrays = table_of(views.names, model.rows(consumers), many)
    learned = LearnedLinks({"embedder": "x"}, arrays, many, "x")
    names = [views.names[consumer] for consumer in consumers]
    edges = [Link(p, "id", c, "id", 0.0, "predicted") for c in names for p in list(learned.before(c))[:50]]
    known, each = [Known(0.1, 1, 2)] * len(edges), []
    for _ in range(20):
        began = time.perf_counter()
        learned.weigh(edges, known)
        each.append((time.perf_counter() - began) / len(edges))
    return {
        "tools": len(views),
        "views_s": made,
        "consumer_ms": 1e3 * float(np.median(times)),
        "edge_us": 1e6 * float(np.median(each)),
    }


def step_times(device: str, rounds: int = 2) -> dict[str, float]:
    """A training step of two layers (hidden 256, 8 heads) on 7,866 nodes and 24,215 edges, ours and the peer's."""
    import torch
    from torch_geometric.nn import HGTConv

    from langgraph_toolmem.hgt.attention import RelationalAttention
    from langgraph_toolmem.hgt.model import API, PARAMETER, RELATIONS

    where, generator = torch.device(device), torch.Generator().manual_seed(0)
    sizes = {API: 5_501, PARAMETER: 2_365}
    share = dict.fromkeys(RELATIONS, 24_215 // len(RELATIONS))
    edges = {
        (a, name, b): torch.stack(
            [
                torch.randint(sizes[a], (count,), generator=generator),
                torch.randint(sizes[b], (count,), generator=generator),
            ]
        ).to(where)
        for (a, name, b), count in share.items()
    }
    weights = {relation: torch.rand(pairs.shape[1], generator=generator).to(where) for relation, pairs in edges.items()}
    nodes = {kind: torch.randn(count, 256, generator=generator).to(where) for kind, count in sizes.items()}

    def ours() -> Any:
        layers = torch.nn.ModuleList(RelationalAttention(256, 8, RELATIONS) for _ in range(2)).to(where)
        return layers, lambda layer, given: layer(given, edges, weights)

    def theirs() -> Any:
        kinds = ([API, PARAMETER], list(RELATIONS))
        layers = torch.nn.ModuleList(HGTConv(256, 256, kinds, heads=8) for _ in range(2)).to(where)
        return layers, lambda layer, given: layer(given, edges)

    def seconds(layers: Any, apply: Any) -> float:
        optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)
        times = []
        for _ in range(rounds + 1):
            began = time.perf_counter()
            given = nodes
            for layer in layers:
                given = apply(layer, given)
            loss = torch.stack([(each**2).mean() for each in given.values()]).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if where.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        return float(np.median(times[1:]))

    one, other = seconds(*ours()), seconds(*theirs())
    return {"ours_s": one, "peer_s": other, "ratio": one / other}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.links", description=(__doc__ or "").split("\n")[0])
    every = ", ".join((*SETS, TOOLBENCH, *PLANTED))
    parser.add_argument("--sets", nargs="+", default=list(SETS), help=every)
    parser.add_argument("--planted", type=int, default=10_000, metavar="TOOLS", help="of a made catalogue")
    parser.add_argument("--folds", type=int, default=2, choices=(1, 2), help="1: half of the time")
    parser.add_argument("--embedders", nargs="*", default=["built-in", "MiniLM"], choices=["built-in", "MiniLM"])
    parser.add_argument("--seeds", type=int, default=5, help="of the plain scorer's negatives")
    parser.add_argument("--graph-model", action="store_true", help="train the models of hgt, too (needs torch)")
    parser.add_argument("--graph-seeds", type=int, default=1)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--size", type=int, default=0, metavar="TOOLS", help="measure the cost in so large a catalogue")
    parser.add_argument("--step", action="store_true", help="time a training step beside torch_geometric's HGTConv")
    parser.add_argument("--data", type=Path, default=DATA, help="where the sets are")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every figure there")
    options = parser.parse_args(arguments)
    output, console = Console(width=None if sys.stdout.isatty() else 200), Console(stderr=True)
    rows: list[Row] = []
    costs: dict[str, Any] = {}
    for kind in options.embedders:
        if why := missing(kind):
            print(f"skipped: embedder {kind}: {why}")
            continue
        for name in options.sets:
            if name not in PLANTED and not (options.data / name).is_dir():
                print(f"skipped: {name} is not there (looked for ../shared/data/{name})")
                continue
            rows += rows_of(options, name, kind, console)
    if rows:
        output.print(table(rows))
    checks = verdicts(rows)
    if options.size and (options.data / TOOLBENCH).is_dir():
        costs["size"] = cost(options.data, options.size)
        print(f"{options.size:,} tools: {costs['size']}")
        checks.append((costs["size"]["consumer_ms"] <= 20, f"one consumer {costs['size']['consumer_ms']:.1f} ms <= 20"))
        checks.append((costs["size"]["edge_us"] <= 5, f"an edge {costs['size']['edge_us']:.1f} us <= 5"))
    if options.step:
        absent = [name for name in ("torch", "torch_geometric") if importlib.util.find_spec(name) is None]
        if absent:
            print(f"skipped: a training step: {absent[0]} is not installed")
        else:
            costs["step"] = step_times("cpu")
            print(f"a training step: {costs['step']}")
            checks.append((costs["step"]["ratio"] <= 1.5, f"a step by the peer's {costs['step']['ratio']:.2f} <= 1.5"))
    for holds, text in checks:
        print(f"{'holds' if holds else 'MISSED'}  {text}")
    if options.json_file is not None:
        plain_rows = [{**row.__dict__} for row in rows]
        targets = [{"holds": holds, "target": text} for holds, text in checks]
        said = {"rows": plain_rows, "costs": costs, "targets": targets}
        options.json_file.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
