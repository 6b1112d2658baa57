"""Recorded runs for the benchmark of atoms, and the same runs with other names for tools and entities.

What is renamed: every tool, and every entity: a word or number of an argument's value, of a mail address or of the name
a user gives, unless requests use it apart from such values too. Names of people, things and places become invented
words of the same length, digits other digits, everywhere in the run alike: in what the user says, in arguments, in
answers. Descriptions, parameters, declared choices, dates, and words that requests use apart from values stay.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from benchmarks.next_tool import runs_of
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.text.requests import is_usual
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
