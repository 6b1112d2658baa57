"""Does a memory work in a chat? What is recalled, suggested and planned at the k-th request of a thread.

``python -m benchmarks.chat``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks import sga_data
from benchmarks.next_tool import Point, points, runs_of
from benchmarks.recall_data import Request, by_template, f1, split
from benchmarks.replay import DATA, arrange
from benchmarks.sga import Question, atom_hints
from benchmarks.sit import POLICY, Remembered, learn
from langgraph_toolmem import SIT, Atoms, Entries, ToolMemory
from langgraph_toolmem.atoms.extract import Extractor, distil
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.sit.suggest import suggest
from langgraph_toolmem.text.tools import ToolIndex

MAIN: Final = "workbench_gpt4"
SHUFFLED: Final = ("workbench_gpt4", "tau_retail_gold")
REAL: Final = ("tau2_retail_gpt41mini", "tau2_airline_gpt54", "tau2_telecom_gpt41")
LENGTHS: Final = (4, 5, 6)
LEAST_F1: Final = 0.75
LEAST_SHARE: Final = 0.95
FEW: Final = 60
"""Questions below which a place is told but not judged."""

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Place:
    """A figure at the k-th request of its thread, of so many questions; `alone`: of the same requests by themselves."""

    name: str
    figure: str
    k: int
    value: float
    questions: int
    alone: float | None = None


def threads(runs: Sequence[Messages], draw: random.Random) -> list[list[Messages]]:
    """Runs put together to threads of four to six requests, at random."""
    left, made = list(runs), []
    draw.shuffle(left)
    while left:
        size = draw.choice(LENGTHS)
        made.append(left[:size])
        del left[:size]
    return made


def joined(parts: Sequence[Messages]) -> Messages:
    """One history; call ids stay as they were recorded, so they repeat."""
    return [message for part in parts for message in part if message["role"] != "system"]


# --- recall -------------------------------------------------------------------------------------------------


def recall_by_place(folder: Path, seeds: int) -> list[Place]:
    """F1 of what is recalled at the k-th request; both the memory and the questions are threads."""
    rows = [json.loads(line) for line in (folder / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()]
    recorded: dict[str, Messages] = {}
    for row in rows:
        recorded.setdefault(row["task"], row["messages"])
    found: dict[int, list[float]] = {}
    for seed in range(seeds):
        parts, draw = split(by_template(folder), seed), random.Random(seed)
        places = {_said(recorded[each.text]): place for place, each in enumerate(parts.memory)}
        of_said = {_said(recorded[each.text]): each for each in parts.queries}
        with ToolMemory.ephemeral(methods=[Entries()]) as memory:
            for number, thread in enumerate(threads([recorded[each.text] for each in parts.memory], draw)):
                for end in range(1, len(thread) + 1):
                    memory.finish(joined(thread[:end]), thread_id=f"memory-{number}", success=True)
            memory.flush(timeout=None)
            for number, thread in enumerate(threads([recorded[each.text] for each in parts.queries], draw)):
                for k, part in enumerate(thread):
                    asked: Request = of_said[_said(part)]
                    messages = [*joined(thread[:k]), *[each for each in part if each["role"] == "user"][:1]]
                    recalled = memory.entries.recollect(messages, thread_id=f"question-{number}").entries
                    runs = [run for shown in recalled for run in (shown.entry, *shown.others)]
                    chosen = [places.get(each.query.split("\n")[0], -1) for each in runs]
                    found.setdefault(k + 1, []).append(f1(chosen, parts.relevant(asked)))
    return [Place(folder.name, "recall F1", k, fmean(values), len(values)) for k, values in sorted(found.items())]


def _said(messages: Messages) -> str:
    return next(" ".join(each["content"].split("\n")[0].split()) for each in messages if each["role"] == "user")


# --- suggestions and atoms ----------------------------------------------------------------------------------


def placed(run: Run) -> Iterator[tuple[int, Point]]:
    """The turns with a call of a thread, each with the place of its episode in the thread."""
    bounds = [len(episode.earlier) for episode in run.episodes()]
    for point in points(run):
        yield sum(bound <= len(point.run.events) for bound in bounds), point


def hits_of(
    history: Sequence[Run], test: Sequence[Sequence[tuple[int, Point]]], specs: Mapping[str, ToolSpec]
) -> list[dict[str, list[tuple[int, bool]]]]:
    """Of each list of questions: whether the tool is among two suggestions, and among three hints, with the place."""
    index = ToolIndex()
    index.declare(specs)
    with ToolMemory.ephemeral(methods=[SIT(), Atoms()]) as memory:
        walks, kept = learn(history, memory), Remembered(memory)
        memory.atoms.keep(distil([episode for run in history for episode in run.episodes()], specs))
        hints, extractor = atom_hints(memory, specs), Extractor(specs)

        def suggested(point: Point) -> bool:
            how: dict[str, Any] = {"policy": POLICY, "available": specs, "state": point.state, "search": index.search}
            return point.tool in [each.tool for each in suggest(point.run, walks, kept, **how)[:2]]

        def planned(point: Point) -> bool:
            return point.tool in hints(Question(*extractor.before(point.run), point))

        figures = {"SIT hit@2": suggested, "atoms hit@3": planned}
        return [{figure: [(k, hit(point)) for k, point in asked] for figure, hit in figures.items()} for asked in test]


def by_place(name: str, hits: Sequence[Mapping[str, Sequence[tuple[int, bool]]]], most: int) -> list[Place]:
    """Shares in percent; the second list of hits, if there is one, is of the same requests by themselves."""
    found = []
    for figure, rows in hits[0].items():
        for k in sorted({min(k, most) for k, _ in rows}):
            here = [place for place, (at, _) in enumerate(rows) if min(at, most) == k]
            shares = [100 * fmean([each[figure][place][1] for place in here]) for each in hits]
            found.append(Place(name, figure, k, shares[0], len(here), shares[1] if len(shares) > 1 else None))
    return found


def shuffled_set(folder: Path, seeds: int) -> list[Place]:
    """Threads of single requests, in a new order for each seed; half of the tasks are the history."""
    loaded = sga_data.load(folder)
    assert loaded is not None
    runs, specs = loaded
    sums: list[dict[str, list[tuple[int, bool]]]] = [{}, {}]
    for seed in range(seeds):
        arranged, cut = arrange(runs, "warm", seed)
        draw = random.Random(seed)
        history = [
            parse_run(joined(thread), thread_id=f"history-{number}")
            for number, thread in enumerate(threads([list(each.messages) for each in arranged[:cut]], draw))
        ]
        within: list[tuple[int, Point]] = []
        alone: list[tuple[int, Point]] = []
        for number, thread in enumerate(threads([list(each.messages) for each in arranged[cut:]], draw)):
            within += placed(parse_run(joined(thread), thread_id=f"test-{number}"))
            for k, part in enumerate(thread, start=1):
                alone += [(k, point) for point in points(parse_run(joined([part]), thread_id=f"alone-{number}-{k}"))]
        for total, hits in zip(sums, hits_of(history, (within, alone), specs), strict=True):
            for figure, rows in hits.items():
                total.setdefault(figure, []).extend(rows)
    return by_place(folder.name, sums, max(LENGTHS))


def real_set(folder: Path, seeds: int) -> list[Place]:
    """Real conversations: later requests are others than first ones, so these figures are told, not judged."""
    specs = read_tools(json.loads((folder / "tools.json").read_text(encoding="utf-8")))
    loaded: Sequence[LoggedRun] = runs_of(folder) or ()
    total: dict[str, list[tuple[int, bool]]] = {}
    for seed in range(seeds):
        arranged, cut = arrange(loaded, "warm", seed)
        history = [parse_run(run.messages, thread_id=run.thread_id) for run in arranged[:cut] if run.success]
        test = [each for run in arranged[cut:] for each in placed(parse_run(run.messages, thread_id=run.thread_id))]
        for figure, rows in hits_of(history, [test], specs)[0].items():
            total.setdefault(figure, []).extend(rows)
    return by_place(folder.name, [total], 3)


# --- what is printed ----------------------------------------------------------------------------------------


def table(places: Sequence[Place]) -> Table:
    """Figures by place in the thread."""
    answer = Table(title="By place of the request in its thread (questions)", title_justify="left")
    most = max(place.k for place in places)
    for column in ("set", "figure", *map(str, range(1, most + 1))):
        answer.add_column(column, justify="left" if column in ("set", "figure") else "right", no_wrap=True)
    for name, figure in dict.fromkeys((place.name, place.figure) for place in places):
        row = {each.k: each for each in places if (each.name, each.figure) == (name, figure)}
        digits = 3 if "F1" in figure else 1
        cells = (f"{row[k].value:.{digits}f} ({row[k].questions})" if k in row else "" for k in range(1, most + 1))
        answer.add_row(name, figure, *cells)
    return answer


def verdicts(places: Sequence[Place]) -> list[tuple[bool, str]]:
    """Whether the k-th request is served as the first one."""
    found = []
    for each in places:
        if each.name in REAL or each.questions < FEW:
            continue
        if each.figure == "recall F1":
            found.append(
                (each.value >= LEAST_F1, f"{each.name}, recall F1 at {each.k}: {each.value:.3f} >= {LEAST_F1}")
            )
        elif each.alone is not None:
            least = LEAST_SHARE * each.alone
            text = f"{each.name}, {each.figure} at {each.k}: {each.value:.1f} >= {least:.1f} (alone: {each.alone:.1f})"
            found.append((each.value >= least, text))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chat", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="number of splits (0, 1, …)")
    parser.add_argument("--sets", nargs="+", default=[*SHUFFLED, *REAL], choices=[*SHUFFLED, *REAL])
    parser.add_argument("--figures", nargs="+", default=["recall", "hits"], choices=["recall", "hits"])
    parser.add_argument("--data", type=Path, default=DATA, help="where the sets are")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every figure there")
    options = parser.parse_args(arguments)
    places: list[Place] = []
    with Console(stderr=True).status("chat") as status:
        for name in options.sets:
            folder = options.data / name
            if not (folder / "trajectories.jsonl").is_file():
                print(f"skipped: no recorded runs in {name} (looked for ../shared/data/{name})")
                continue
            status.update(name)
            if name == MAIN and "recall" in options.figures:
                places += recall_by_place(folder, options.seeds)
            if "hits" in options.figures:
                places += (real_set if name in REAL else shuffled_set)(folder, options.seeds)
    if not places:
        return 0
    Console(width=None if sys.stdout.isatty() else 200).print(table(places))
    checks = verdicts(places)
    for holds, text in checks:
        print(f"{'holds' if holds else 'MISSED'}  {text}")
    if options.json_file is not None:
        plain = {
            "places": [asdict(place) for place in places],
            "targets": [{"holds": holds, "target": text} for holds, text in checks],
        }
        options.json_file.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
