"""Atoms: is the next tool among three hints, are their arguments right, and how many steps make a call?

``python -m benchmarks.sga``; README.md in this folder says what is measured and how.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import command, conclude, lines_of, present, show
from benchmarks import load as read_json
from benchmarks.replay import arrange
from benchmarks.yardsticks import RIVALS, runs_of
from langgraph_toolmem import Atoms, ToolMemory
from langgraph_toolmem.atoms.atoms import make_atom, placed_scalars
from langgraph_toolmem.atoms.extract import Extractor, distil
from langgraph_toolmem.atoms.retrieve import AtomHit, AtomQuestion, Resolver
from langgraph_toolmem.atoms.slots import SLOT
from langgraph_toolmem.atoms.step import SGASettings
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.embedders import LexicalEmbedder

SETS: Final = ("bfcl_v3_multi_turn", "workbench_gpt4", "tau_retail_gold")
COMPRESSED: Final = ("workbench_gpt4", "workbench_gold")
NAMES: Final = ("as they are", "renamed")
METHODS: Final = ("hybrid", "semantic", "paper", "trajectory")
HINTS: Final = 3

# --- recorded runs, as they are and with other names of tools ---


def load(folder: Path, *, limit: int | None = None) -> tuple[list[LoggedRun], dict[str, ToolSpec]] | None:
    """The successful runs of a set whose right answer is some call, and its tools; None if there are none."""
    runs = runs_of(folder)
    if not runs:
        return None
    idle = _without_action(folder)
    kept = [run for run in runs if run.success and run.thread_id not in idle]
    return kept[:limit], read_tools(read_json(folder / "tools.json"))


def _without_action(folder: Path) -> set[str]:
    """Ids of the runs whose right answer (`gold_id`) is to do nothing."""
    lines = lines_of(folder / "trajectories.jsonl")
    gold = folder.parent / "workbench_gold" / "trajectories.jsonl"
    if not any("gold_id" in line for line in lines) or not gold.is_file():
        return set()
    acts = {run["id"]: any(message.get("tool_calls") for message in run["messages"]) for run in lines_of(gold)}
    return {line["id"] for line in lines if "gold_id" in line and not acts.get(line["gold_id"], True)}


def renamed(runs: Sequence[Run], specs: Mapping[str, ToolSpec]) -> tuple[list[Run], dict[str, ToolSpec]]:
    """Return the runs and their tools with a name for each tool that says nothing; descriptions stay."""
    names = {name: f"fn_{blake2b(name.encode(), digest_size=4).hexdigest()}" for name in specs}

    def step(each: ExecutedCall) -> ExecutedCall:
        return replace(each, tool=names.get(each.tool, each.tool))

    def event(each: UserMessage | Turn) -> UserMessage | Turn:
        return replace(each, steps=tuple(map(step, each.steps))) if isinstance(each, Turn) else each

    others = sorted((replace(spec, name=names[name]) for name, spec in specs.items()), key=lambda spec: spec.name)
    return [replace(run, events=tuple(map(event, run.events))) for run in runs], {spec.name: spec for spec in others}


# --- what is compared ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """A turn of a test run: the run and what is asked before it, and the calls that were made."""

    run: Run
    question: AtomQuestion
    steps: Sequence[ExecutedCall]


Method = Callable[[Point], Sequence[AtomHit | str]]


def atom_hints(memory: ToolMemory, tools: Extractor, settings: SGASettings) -> Method:
    """The best atoms of a memory."""
    resolve, k, beta, plain = Resolver(tools), settings.k, settings.beta, settings.plain
    return lambda point: memory.atoms.find(point.question, None, k=k, beta=beta, plain=plain, resolve=resolve)


def nearest_task(history: Sequence[Run], specs: Mapping[str, ToolSpec], tools: Extractor) -> Method:
    """The next step of the nearest past tasks: what they called after as many calls. Tools are found as for atoms."""
    embed = lru_cache(maxsize=8192)(LexicalEmbedder(RIVALS).embed_query)
    resolve, extractor = Resolver(tools), Extractor(specs)
    past: list[list[str | None]] = []
    for run in history:
        atoms = (
            make_atom(state="", goal="", tool=step.tool, arguments=step.args, about=extractor.about(step.tool))
            for step in _calls(run)
        )
        found = [resolve(atom) for atom in atoms]
        past.append([None if each is None else each.tool for each in found])
    matrix = np.array([embed(_asked(run)) for run in history], dtype=np.float32)

    def hints(point: Point) -> list[str]:
        place = len(_calls(point.run))
        order = np.argsort(-(matrix @ np.array(embed(_asked(point.run)), dtype=np.float32)), kind="stable")
        tools_there = (past[number][place] for number in order if place < len(past[number]))
        return list(dict.fromkeys(tool for tool in tools_there if tool is not None))[:HINTS]

    return hints


def _calls(run: Run) -> list[ExecutedCall]:
    return [step for event in run.events if isinstance(event, Turn) for step in event.steps]


def _asked(run: Run) -> str:
    return "\n".join(event.text for event in run.events if isinstance(event, UserMessage))


def methods_of(history: Sequence[Run], specs: Mapping[str, ToolSpec], tools: Extractor) -> dict[str, Method]:
    """All methods, taught by the history; `tools` are those available afterwards."""
    memory = ToolMemory.ephemeral(methods=[Atoms()])
    memory.atoms.keep(distil(history, specs))
    return {
        "hybrid": atom_hints(memory, tools, SGASettings()),
        "semantic": atom_hints(memory, tools, SGASettings(beta=0.0)),
        "paper": atom_hints(memory, tools, SGASettings(plain=True)),
        "trajectory": nearest_task(history, specs, tools),
    }


def points(runs: Sequence[Run], tools: Extractor) -> Iterator[Point]:
    """The turns with a call of some runs."""
    for run in runs:
        for index, event in enumerate(run.events):
            if isinstance(event, Turn) and event.steps:
                before = replace(run, events=run.events[:index])
                where, known = tools.before(before)
                yield Point(before, AtomQuestion(where.state, where.goals or ("",), known), event.steps)


def hits_of(methods: Mapping[str, Method], asked: Sequence[Point]) -> dict[str, float]:
    """Share in percent of the turns whose tool is among the hints, by method, and of right and wrong arguments."""
    found: dict[str, list[bool]] = {name: [] for name in methods}
    arguments = Counter[str]()
    for point in asked:
        for name, method in methods.items():
            hints = {hit if isinstance(hit, str) else hit.tool: hit for hit in reversed(method(point))}
            hit = hints.get(point.steps[0].tool)
            found[name].append(hit is not None)
            if name == "hybrid" and isinstance(hit, AtomHit):
                filled = [filled_of(hit, step) for step in point.steps if step.tool == hit.tool]
                best = max(filled, key=lambda counts: counts["right"])
                arguments += best
    shares = {name: 100 * arguments[name] / max(1, arguments.total()) for name in ("right", "wrong")}
    return {name: 100 * fmean(each) if each else 0.0 for name, each in found.items()} | shares


def filled_of(hit: AtomHit, step: ExecutedCall) -> Counter[str]:
    """Arguments of a call that a hint has right or wrong, or leaves open."""
    shown = dict(placed_scalars(hit.filled))
    found = Counter[str]()
    for path, value in placed_scalars(step.args):
        given = shown.get(path, "<OPEN>")
        is_open = isinstance(given, str) and SLOT.fullmatch(given)
        found["open" if is_open else "right" if canon(given).lower() == canon(value).lower() else "wrong"] += 1
    return found


def read(runs: Sequence[LoggedRun]) -> list[Run]:
    """The runs, parsed."""
    return [parse_run(run.messages, thread_id=run.thread_id) for run in runs]


def work(folder: Path, names: str, seed: int, *, limit: int | None = None) -> dict[str, float]:
    """All methods on one split of one set. Half of the tasks, with all their runs, are the history."""
    loaded = load(folder, limit=limit)
    assert loaded is not None
    runs, specs = loaded
    arranged, cut = arrange(runs, "warm", seed)
    history, test, tools = read(arranged[:cut]), read(arranged[cut:]), specs
    if names == "renamed":
        test, tools = renamed(test, specs)
    extractor = Extractor(tools)
    return hits_of(methods_of(history, specs, extractor), list(points(test, extractor)))


def compression(folders: Sequence[Path]) -> tuple[int, int, int]:
    """Recorded successful actions, the different calls among their atoms, and the atoms, one per wording."""
    found = [loaded for folder in folders if (loaded := load(folder)) is not None]
    specs = {name: spec for _, each in found for name, spec in each.items()}
    atoms = distil(read([run for loaded, _ in found for run in loaded]), specs)
    return sum(atom.visits for atom in atoms), len({atom.call for atom in atoms}), len(atoms)


# --- the command --------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = command("sga", __doc__)
    parser.add_argument("--seeds", type=int, default=5, help="number of splits")
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first split; the next ones follow")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="folders with recorded runs")
    parser.add_argument("--limit", type=int, help="only the first so many runs of each set")
    options = parser.parse_args(arguments)

    console = Console(stderr=True)
    shown = Table("set", "names", *METHODS, "arguments right", "wrong", title=f"next tool among {HINTS} hints in %")
    splits: list[dict[str, Any]] = []
    for name in present(options, options.sets):
        for names in NAMES:
            found: list[dict[str, float]] = []
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                with console.status(f"{name}, names {names}, split {seed}"):
                    found.append(work(options.data / name, names, seed, limit=options.limit))
                splits.append({"name": name, "names": names, "seed": seed, "hits": found[-1]})
            shown.add_row(name, names, *(f"{fmean(each[of] for each in found):.1f}" for of in found[0]))
    show(shown)
    actions, calls, atoms = compression([options.data / name for name in COMPRESSED])
    if atoms:
        print(f"{' + '.join(COMPRESSED)}: {actions} actions, {calls} different calls in {atoms} wordings")
    figures = {"splits": splits, "compression": {"actions": actions, "calls": calls, "wordings": atoms}}
    return conclude([], figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
