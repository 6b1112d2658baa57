"""Atoms: is the next tool among three hints, are their arguments right, and how many steps make a call?

``python -m benchmarks.sga``; README.md in this folder says what is measured and how.

Renamed are every tool and every entity: a word or number of an argument's value, of a mail address or of the name a
user gives, unless requests use it apart from such values too. Names of people, things and places become invented words
of the same length, digits other digits, everywhere in the run alike. Descriptions, parameters, declared choices, dates,
and words that requests use apart from values stay.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.replay import DATA, arrange
from benchmarks.yardsticks import RIVALS, runs_of
from langgraph_toolmem import Atoms, ToolMemory
from langgraph_toolmem.atoms.atoms import leaves_of, make_atom
from langgraph_toolmem.atoms.extract import Extractor, distil
from langgraph_toolmem.atoms.retrieve import AtomHit, Question, Resolver
from langgraph_toolmem.atoms.slots import SLOT
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.requests import is_usual
from langgraph_toolmem.text.similarity import LexicalEmbedder
from langgraph_toolmem.text.values import MONTHS, WEEKDAYS
from langgraph_toolmem.text.words import word_set, words

LONGEST: Final = 6
"""Words of an argument's value at most, for it to be a name and not prose."""
APART: Final = 0.3
"""Share of the tasks that say a word apart from any value, at most, for it to belong to an entity."""
SHORTEST: Final = 3

_WORD = re.compile(r"[^\W_]+")
_DATE = re.compile(
    r"\d{4}-\d\d?-\d\d?(?:[T ]\d\d?:\d\d(?::\d\d)?)?|\b\d{1,2}:\d\d(?::\d\d)?\b|\b(?:19|20)\d\d\b", re.IGNORECASE
)
_NAMED = re.compile(r"\b([\w.+-]+)@[\w.-]+|\b[Nn]ame is ([A-Z]\w+(?: [A-Z]\w+)*)")
_CALENDAR: Final = word_set("today tomorrow yesterday") | MONTHS.keys() | WEEKDAYS
_VOWELS: Final = "aeiou"
_CONSONANTS: Final = "bcdfghjklmnpqrstvwxz"

SETS: Final = ("bfcl_v3_multi_turn", "workbench_gpt4", "tau_retail_gold")
COMPRESSED: Final = ("workbench_gpt4", "workbench_gold")
NAMES: Final = ("as they are", "renamed")
METHODS: Final = ("hybrid", "semantic", "paper", "trajectory")
HINTS: Final = 3

# --- recorded runs, as they are and renamed -------------------------------------------------------------------


def load(folder: Path, *, limit: int | None = None) -> tuple[list[LoggedRun], dict[str, ToolSpec]] | None:
    """The successful runs of a set whose right answer is some call, and its tools; None if there are none."""
    runs = runs_of(folder)
    if not runs:
        return None
    idle = _without_action(folder)
    kept = [run for run in runs if run.success and run.thread_id not in idle]
    return kept[:limit], read_tools(json.loads((folder / "tools.json").read_text(encoding="utf-8")))


def _without_action(folder: Path) -> set[str]:
    """Ids of the runs whose right answer (`gold_id`) is to do nothing."""
    lines = [json.loads(line) for line in (folder / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()]
    gold = folder.parent / "workbench_gold" / "trajectories.jsonl"
    if not any("gold_id" in line for line in lines) or not gold.is_file():
        return set()
    right = (json.loads(line) for line in gold.read_text(encoding="utf-8").splitlines())
    acts = {run["id"]: any(message.get("tool_calls") for message in run["messages"]) for run in right}
    return {line["id"] for line in lines if "gold_id" in line and not acts.get(line["gold_id"], True)}


# --- other names --------------------------------------------------------------------------------------------


class Renaming:
    """Other names for the tools and the entities of some runs. The same runs always get the same names.

    Args:
        runs: the runs that are to be renamed.
        specs: their tools.
    """

    def __init__(self, runs: Sequence[LoggedRun], specs: Mapping[str, ToolSpec]) -> None:
        self._specs = specs
        self.entities = entities_of(runs, specs)
        self._tools = {name: _tool_name(name) for name in specs}

    def specs(self) -> dict[str, ToolSpec]:
        """The tools under their other names, in the order of these."""
        renamed = (replace(spec, name=self._tools[name]) for name, spec in self._specs.items())
        return {spec.name: spec for spec in sorted(renamed, key=lambda spec: spec.name)}

    def tool(self, name: str) -> str:
        """Another name of a tool."""
        return self._tools.get(name) or _tool_name(name)

    def text(self, text: str) -> str:
        """A text with the entities' other names."""
        spared = [match.span() for match in _DATE.finditer(text)]

        def other(match: re.Match[str]) -> str:
            if any(start <= match.start() < end for start, end in spared):
                return match[0]
            return other_word(match[0]) if match[0].lower() in self.entities else match[0]

        return _WORD.sub(other, text)

    def run(self, run: LoggedRun) -> LoggedRun:
        """A run in which everything has its other name."""
        return replace(run, messages=[self._message(message) for message in run.messages])

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        changed = dict(message)
        if isinstance(changed.get("content"), str):
            changed["content"] = self.text(changed["content"])
        if "name" in changed:
            changed["name"] = self.tool(changed["name"])
        if changed.get("tool_calls"):
            changed["tool_calls"] = [self._call(call) for call in changed["tool_calls"]]
        return changed

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = call["function"]
        args = self._values(json.loads(function["arguments"]))
        return {**call, "function": {"name": self.tool(function["name"]), "arguments": json.dumps(args)}}

    def _values(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._values(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._values(inner) for inner in value]
        return self.text(value) if isinstance(value, str) else value


def entities_of(runs: Sequence[LoggedRun], specs: Mapping[str, ToolSpec]) -> frozenset[str]:
    """The words and numbers that stand for things of one task, in lower case."""
    ordinary = _vocabulary(specs) | _CALENDAR
    within, apart = Counter[str](), Counter[str]()
    for run in runs:
        values = [value for value in _arguments(run) if len(value.split()) <= LONGEST]
        said = [" ".join(match.groups("")) for text in _said(run) for match in _NAMED.finditer(text)]
        values += said
        named = {word for value in values for word in _entity_words(value)}
        within.update(named)
        # A word with a capital may be a name that no call of this run needed.
        apart.update({word for text in _said(run) for word in _WORD.findall(text) if word.islower()} - named)
    return frozenset(
        word
        for word, times in within.items()
        if word not in ordinary and not is_usual(word) and (any(map(str.isdigit, word)) or apart[word] <= APART * times)
    )


def _entity_words(value: str) -> Iterator[str]:
    plain = _DATE.sub(" ", value)
    for word in _WORD.findall(plain):
        if len(word) >= SHORTEST:
            yield word.lower()


def _vocabulary(specs: Mapping[str, ToolSpec]) -> set[str]:
    """Words of descriptions, parameters and choices."""
    texts: list[str] = []
    for spec in specs.values():
        texts += [spec.description, json.dumps(spec.parameters), json.dumps(spec.returns or {})]
    return {word.lower() for text in texts for word in (*_WORD.findall(text), *words(text))}


def _arguments(run: LoggedRun) -> list[str]:
    found: list[str] = []
    waiting: list[Any] = [
        json.loads(call["function"]["arguments"])
        for message in run.messages
        for call in message.get("tool_calls") or ()
    ]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str):
            found.append(value)
    return found


def _said(run: LoggedRun) -> Iterable[str]:
    return (message["content"] for message in run.messages if message.get("role") == "user")


def other_word(word: str) -> str:
    """An invented word of the same length and case; of a number another one of as many digits."""
    drawn = blake2b(word.lower().encode(), digest_size=64).digest()
    made: list[str] = []
    for place, char in enumerate(word):
        number = drawn[place % len(drawn)]
        if char.isdigit():
            made.append(str(number % 10) if place or number % 10 else "7")
        elif char.isascii():
            letters = _VOWELS if char.lower() in _VOWELS else _CONSONANTS
            letter = letters[number % len(letters)]
            made.append(letter.upper() if char.isupper() else letter)
        else:
            made.append(char)
    return "".join(made)


def _tool_name(name: str) -> str:
    return f"fn_{blake2b(name.encode(), digest_size=4).hexdigest()}"


# --- what is compared ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """A turn of a test run: the run and what is asked before it, and the calls that were made."""

    run: Run
    question: Question
    steps: Sequence[ExecutedCall]


Method = Callable[[Point], Sequence[AtomHit | str]]


def atom_hints(memory: ToolMemory, tools: Extractor, **how: Any) -> Method:
    """The best atoms of a memory; `how` as for `AtomSearch`."""
    resolve = Resolver(tools)
    return lambda point: memory.atoms.find(point.question, None, resolve=resolve, **how)


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
        "hybrid": atom_hints(memory, tools),
        "semantic": atom_hints(memory, tools, beta=0.0),
        "paper": atom_hints(memory, tools, plain=True),
        "trajectory": nearest_task(history, specs, tools),
    }


def points(runs: Sequence[Run], tools: Extractor) -> Iterator[Point]:
    """The turns with a call of some runs."""
    for run in runs:
        for index, event in enumerate(run.events):
            if isinstance(event, Turn) and event.steps:
                before = replace(run, events=run.events[:index])
                where, known = tools.before(before)
                yield Point(before, Question(where.state, where.goals or ("",), known), event.steps)


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
    shown = dict(leaves_of(hit.filled))
    found = Counter[str]()
    for path, value in leaves_of(step.args):
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
    history, test = arranged[:cut], arranged[cut:]
    tools: Mapping[str, ToolSpec] = specs
    if names == "renamed":
        other = Renaming(test, specs)
        test, tools = [other.run(run) for run in test], other.specs()
    extractor = Extractor(tools)
    return hits_of(methods_of(read(history), specs, extractor), list(points(read(test), extractor)))


def compression(folders: Sequence[Path]) -> tuple[int, int, int]:
    """Recorded successful actions, the different calls among their atoms, and the atoms, one per wording."""
    found = [loaded for folder in folders if (loaded := load(folder)) is not None]
    specs = {name: spec for _, each in found for name, spec in each.items()}
    atoms = distil(read([run for loaded, _ in found for run in loaded]), specs)
    return sum(atom.visits for atom in atoms), len({atom.call for atom in atoms}), len(atoms)


# --- the command --------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sga", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5, help="number of splits")
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first split; the next ones follow")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="folders with recorded runs")
    parser.add_argument("--data", type=Path, default=DATA, help="where the sets are")
    parser.add_argument("--limit", type=int, help="only the first so many runs of each set")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every figure of every split there")
    options = parser.parse_args(arguments)

    console = Console(stderr=True)
    shown = Table("set", "names", *METHODS, "arguments right", "wrong", title=f"next tool among {HINTS} hints in %")
    splits: list[dict[str, Any]] = []
    for name in options.sets:
        if load(options.data / name, limit=1) is None:
            print(f"skipped: no recorded runs in {name} (looked for ../shared/data/{name}/trajectories.jsonl)")
            continue
        for names in NAMES:
            found: list[dict[str, float]] = []
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                with console.status(f"{name}, names {names}, split {seed}"):
                    found.append(work(options.data / name, names, seed, limit=options.limit))
                splits.append({"name": name, "names": names, "seed": seed, "hits": found[-1]})
            shown.add_row(name, names, *(f"{fmean(each[of] for each in found):.1f}" for of in found[0]))
    Console(width=None if sys.stdout.isatty() else 160).print(shown)
    actions, calls, atoms = compression([options.data / name for name in COMPRESSED])
    if atoms:
        print(f"{' + '.join(COMPRESSED)}: {actions} actions, {calls} different calls in {atoms} wordings")
    if options.json_file is not None:
        plain = {"splits": splits, "compression": {"actions": actions, "calls": calls, "wordings": atoms}}
        options.json_file.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
