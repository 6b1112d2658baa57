"""A policy without a model: every call that the schemas allow with known values, the likeliest first [O].

Known are the values of the request, those of the answers so far, and what schemas list; a value goes into an input of
its type (`atoms.slots`) or its looks (`atoms.words`). A call scores by how well its values fit, by the words its tool
shares with the request, and by how much of the request it is the first to use; changes wait until all of that was used.
What is nothing new comes only where all else led nowhere (`widen`).
There are no plans (the request is the one sub-goal) and no order of steps: the search has to find that.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from langgraph_toolmem.atoms.known import leaves_of, said
from langgraph_toolmem.atoms.slots import Parameter, Slots, listed_choices, words_of
from langgraph_toolmem.atoms.words import DATE, EMAIL, ID, KINDS, NAME, NUMBER, PLAIN, TEXT, TIME, kind_of
from langgraph_toolmem.base.text import as_text
from langgraph_toolmem.offline.discovery.environment import EnvironmentCall, Taken
from langgraph_toolmem.offline.discovery.policy import Proposal, Reflection
from langgraph_toolmem.offline.discovery.states import Goal, State, only_reads
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, canon, fit, flatten
from langgraph_toolmem.words.features import STOP_WORDS, stem, words
from langgraph_toolmem.words.meaning import canonical, canonical_words
from langgraph_toolmem.words.ports import Port, inputs_of
from langgraph_toolmem.words.schema import Leaf

WIDTH, COMBINATIONS, PER_INPUT, MAX_ROWS, MAX_ANSWER = 48, 12, 5, 12, 1_500
"""At most so many calls in one state, combinations of values for a tool, values for an input, rows, characters."""
SURE, WORSE, SHARPNESS = 0.75, 0.25, 3.0
"""Fit from which an optional value is given; how far below the best one others may fit; e to this per 1 of a score."""
CHOICE: Final = "CHOICE"  # type of what a schema lists

Given: TypeAlias = tuple[float, str, Any]  # how well it fits, 0 to 1; path; value


class Known(NamedTuple):
    """A value with its types by looks and place; whether the user said it; how much its row has of the request."""

    value: Any
    types: frozenset[str]
    asked: bool = True
    near: float = 1.0


class Input(NamedTuple):
    """A value that a call takes. `looks`: EMAIL, DATE, TIME (of a day), ID, NUMBER …; TEXT for words."""

    leaf: Leaf
    parameter: Parameter
    looks: str
    choices: tuple[str, ...]


class PlainPolicy:
    """See the module. It keeps nothing of a task: one serves all tasks and threads.

    Args:
        specs: the tools, by name.
        finishes: after each call, ending with the latest answer is proposed; for where nothing else tells.
    """

    def __init__(self, specs: Mapping[str, ToolSpec], *, finishes: bool = False) -> None:
        self._specs, self._finishes, self._slots = dict(specs), finishes, Slots(specs)
        self._reads = {name: only_reads(spec, name) for name, spec in specs.items()}
        self._inputs = {name: [_input(port, self._slots) for port in inputs_of(spec)] for name, spec in specs.items()}
        self._words = _weights(specs)

    def plan(self, state: State) -> Goal:
        """See `Policy`: the request as a whole, with any tool."""
        return Goal(state.task.request)

    def propose(self, state: State, possible: Sequence[EnvironmentCall] | None) -> Sequence[Proposal]:
        """See `Policy`."""
        found = self._proposals(state, possible)[:WIDTH]
        for latest in state.taken[-1:] if self._finishes else ():
            answer = as_text(latest.observation.output)[:MAX_ANSWER]
            found.append(Proposal("finish", 2.0 if state.changed else 0.5, answer=answer))
        return found

    def widen(self, state: State) -> Sequence[Proposal]:
        """See `Policy`: whatever else can be called."""
        return self._proposals(state, None, wide=True)

    def reflect(self, state: State, failed: Taken) -> Reflection:
        """See `Policy`: nothing but what failed; what else there is was proposed."""
        return Reflection(f"{failed.call.tool} was called and failed", str(failed.observation.output)[:200])

    def _proposals(
        self, state: State, possible: Sequence[EnvironmentCall] | None, *, wide: bool = False
    ) -> list[Proposal]:
        taken, asked = state.taken, _merged(self._of_request(state.task.request))
        known = _merged([*asked, *(one for each in taken for one in self._told(each, state.task.request))])
        done, called = {each.call.key for each in taken}, {each.call.tool for each in taken}
        given = frozenset().union(*(_values(each.call) for each in taken))
        fresh = {canon(each.value) for each in known} - given
        unused = {canon(each.value) for each in asked if each.types.isdisjoint((CHOICE, NUMBER, TIME))}
        unused = {each for each in unused if not any(_overlap(each, value) for value in given)}
        akin = self._akin(state)
        calls, scored = [(1.0, call) for call in possible or ()], list[tuple[float, EnvironmentCall]]()
        for tool in self._specs if possible is None else ():
            calls += self._calls(tool, state, known, wide)
        for fitting, call in calls:
            values, reads = _values(call), self._reads.get(call.tool, False)
            is_new = call.key not in done and (not values.isdisjoint(fresh) or call.tool not in called)
            if possible is None and (call.key in done or not (is_new or wide)):
                continue
            used = {each for each in unused if any(_overlap(each, value) for value in values)}
            score = fitting + (1.0 if reads else 1.5) * akin.get(call.tool, 0.0) - 10 * (not is_new)
            score += len(used) / max(1, len(unused)) if reads else -2 * min(2, len(unused - used))
            scored.append((score, call))
        scored.sort(key=lambda each: -each[0])
        before, proposals = Counter[str](), list[Proposal]()
        for score, call in scored:
            weight = math.exp(SHARPNESS * (score - scored[0][0])) / 2 ** before[call.tool]
            before[call.tool] += 1  # of one tool each further call counts half
            proposals.append(Proposal("call", max(weight, 1e-9), call))
        return sorted(proposals, key=lambda each: -each.weight)

    def _akin(self, state: State) -> dict[str, float]:
        """How much each tool has to do with the request, without the words that changes before have served."""
        *before, last = [each.call.tool for each in state.taken] or [""]
        served = (name for name in before if name != last and not self._reads.get(name))
        asked = _stems(state.task.request).difference(*map(_stems, served))
        found = {name: math.fsum(each[word] for word in asked & each.keys()) for name, each in self._words.items()}
        top = max(found.values(), default=0.0) or 1.0
        return {name: share / top for name, share in found.items()}

    def _calls(
        self, tool: str, state: State, known: Sequence[Known], wide: bool
    ) -> Iterator[tuple[float, EnvironmentCall]]:
        """Calls of a tool, with how well their values fit."""
        combined, options, sure = [tuple[Given, ...]()], list[list[Given]](), list[Given]()
        for each in self._inputs[tool]:
            found = self._candidates(tool, each, state, known, wide)
            if each.leaf.required:
                combined = [(*chosen, one) for chosen in combined for one in found]
                combined = sorted(combined, key=lambda chosen: -sum(fitting for fitting, *_ in chosen))[:COMBINATIONS]
            else:
                sure += [one for one in found[:1] if one[0] >= SURE]
                options += [[one] for one in found[:2] if one[0] >= SURE or self._reads[tool]]
        options = [sure, [], *(option for option in options if option != sure)] if options else [[]]
        for given in ((*chosen, *option) for chosen in combined for option in options):
            args: dict[str, Any] = {}
            for _, path, value in given:
                _put(args, path, value)
            if self._specs[tool].problem(args) is None:
                yield sum(fitting for fitting, *_ in given) / len(given) if given else 0.5, EnvironmentCall(tool, args)

    def _candidates(self, tool: str, wanted: Input, state: State, known: Sequence[Known], wide: bool) -> list[Given]:
        """The values that fit an input best, each once."""
        found, schema = dict[str, Given](), {"type": sorted(wanted.leaf.types)}
        ordered = sorted(self._fitting(tool, wanted, state, known), key=lambda each: -each[0])
        for score, value in ordered:
            cast = [fit(one, schema) for one in value] if isinstance(value, list) else fit(value, schema)
            if (wide or score >= ordered[0][0] - WORSE) and cast not in (ABSENT, None, "", []):
                found.setdefault(canon(cast), (score, wanted.leaf.path, cast))
        return list(found.values())[: (1 + 2 * wide) * PER_INPUT]

    def _fitting(self, tool: str, wanted: Input, state: State, known: Sequence[Known]) -> Iterator[tuple[float, Any]]:
        """Values for an input, with how well they fit."""
        request, leaf, many, reads = state.task.request, wanted.leaf, wanted.leaf.path.endswith("[]"), self._reads[tool]
        flag = leaf.types == {"boolean"}
        if flag or (wanted.parameter.control and not leaf.required):
            yield from [(0.9, True)] if flag and _stems(leaf.path) & _stems(request) else []
            return
        for choice in wanted.choices:
            named = frozenset() < _stems(choice) <= _stems(request)
            if leaf.required or named:
                yield 0.9 if named else 0.4, choice
        together: list[Any] = []
        for each in known if not wanted.choices else ():
            if score := _fit_of(wanted, each, reads):
                yield score + 0.3 * each.near, [each.value] if many else each.value
                together += [each.value] * (each.near >= 1)
        if many and len(together) > 1:
            yield 1.3, together
        if many or wanted.choices or wanted.looks != TEXT:
            return
        if not reads:
            yield 0.8 if wanted.parameter.text else 0.6, request
        if leaf.required:
            plain = [word for word in re.findall(r"[^\W\d_][\w'-]*", request) if word.lower() not in STOP_WORDS]
            pairs = [pair for pair in map(" ".join, pairwise(plain)) if pair in request]
            yield from ((0.8 - 0.3 * (not reads) - 0.01 * at, text) for at, text in enumerate((*pairs, *plain)))

    def _of_request(self, request: str) -> Iterator[Known]:
        """The values of a request: by their looks, by the words beside them, and what schemas list."""
        found = list(said(request, self._slots))
        yield from (Known(value, frozenset({label})) for label, value in found)
        times = ((day, time) for kind, day in found for other, time in found if (kind, other) == (DATE, TIME))
        yield from (Known(f"{day}T{time.zfill(5)}", frozenset({TIME})) for day, time in times)
        listed = ((one, each) for inputs in self._inputs.values() for each in inputs for one in each.choices)
        mine = ((one, each.parameter.label) for one, each in listed if frozenset() < _stems(one) <= _stems(request))
        yield from (Known(one, frozenset({CHOICE, label})) for one, label in mine)

    def _told(self, taken: Taken, request: str) -> Iterator[Known]:
        """The values of an answer, nearest those of rows that share most with the request."""
        output, tool = taken.observation.output, taken.call.tool
        if isinstance(output, str):
            found = (one for one in said(output[:MAX_ANSWER], self._slots) if one[0] in PLAIN or one[0] == ID)
            yield from (Known(value, frozenset({label}), False, 0.5) for label, value in found)
            return
        flat, asked = flatten(output), _stems(request)
        rows: dict[tuple[str, int], list[tuple[str, Any]]] = {("", -1): list(flat.scalars.items())}
        for path, values in flat.lists.items():
            for value, row in zip(values, flat.rows[path], strict=True):
                if row < MAX_ROWS:
                    rows.setdefault((path.split("[*]")[0], row), []).append((path, value))
        counts = [len(_stems(" ".join(str(value) for _, value in row)) & asked) for row in rows.values()]
        for each, count in zip(rows.values(), counts, strict=True):
            for path, value in each:
                place = path.removeprefix("$").removeprefix(".").replace("[*]", "[]")
                label = self._slots.output(tool, place, value)
                yield Known(value, frozenset({label}), False, count / max(1, *counts))


def _fit_of(wanted: Input, known: Known, reads: bool) -> float:
    """How well a value fits an input by its type and its looks, 0 to 0.9; 0: not at all."""
    looks = kind_of(known.value) if isinstance(known.value, str) else NUMBER
    named, types = wanted.parameter.label in known.types, known.types | {looks}
    if wanted.looks in (DATE, TIME):
        return 0.8 * (looks == DATE and (":" in known.value) == (wanted.looks == TIME))
    if wanted.looks in (ID, NUMBER):
        own, told = {*words_of(wanted.parameter.label)}, (*known.types, f"{known.value}_ID")  # "key_22" is of a key
        shared = max(len(own.intersection(words_of(each))) for each in told)
        return 0.8 if named else 0.6 * (wanted.looks in types and (known.asked or known.types == {ID} or shared > 1))
    if wanted.looks != TEXT or looks in (DATE, TIME, NUMBER):
        return 0.8 * (looks == wanted.looks)
    if wanted.parameter.text and not reads:
        return 0.8 * (known.asked and TEXT in types)
    if named or not known.asked:
        return 0.9 if known.asked else 0.6 * named
    if reads and CHOICE in types:
        return 0.0
    return (
        0.9 if wanted.parameter.someone and NAME in types else 0.7 if CHOICE in types or known.types <= KINDS else 0.4
    )


def _merged(known: Iterable[Known]) -> list[Known]:
    """Each value once, with all its types; what the user said stays so."""
    found: dict[str, Known] = {}
    for each in known:
        old = found.setdefault(canon(each.value), each)
        both = (old.types | each.types, old.asked or each.asked, max(old.near, each.near))
        found[canon(each.value)] = Known(old.value, *both)
    return list(found.values())


def _input(port: Port, slots: Slots) -> Input:
    leaf, parameter = port.leaf, slots.parameter(port.tool, port.path)
    about = {*canonical(leaf.path.rpartition(".")[2]), *canonical(leaf.description)}
    tests = (
        (parameter.label, parameter.label in (*PLAIN, ID)),
        (ID, parameter.identifier),
        (NUMBER, bool(leaf.types) and leaf.types <= {"integer", "number"}),
        (EMAIL, re.search(r"\be-?mail([\s-]?address|$)", f"{leaf.description} {leaf.path}", re.IGNORECASE)),
        (TEXT, parameter.text),
        (TIME, "time" in about),
        (DATE, about & {"date", "day"}),
    )
    looks = next((looks for looks, holds in tests if holds), TEXT)
    return Input(leaf, parameter, looks, leaf.choices or listed_choices(leaf.description))


def _put(args: dict[str, Any], path: str, value: Any) -> None:  # on the way through a list into its one element
    *above, name = path.removesuffix("[]").split(".")
    for level in above:
        many = level.endswith("[]")
        args = args.setdefault(level.removesuffix("[]"), [{}])[0] if many else args.setdefault(level, {})
    args[name] = value


def _values(call: EnvironmentCall) -> frozenset[str]:
    return frozenset(canon(value) for _, value in leaves_of(call.args))


@lru_cache(maxsize=16_384)
def _overlap(one: str, other: str) -> bool:  # whether one of two values stands in the other
    one, other = one.lower(), other.lower()
    return one == other or (min(len(one), len(other)) > 2 and (one in other or other in one))


@lru_cache(maxsize=16_384)
def _stems(text: str) -> frozenset[str]:  # of words that say something, those that mean the same made one
    plain = canonical_words(words(text[:MAX_ANSWER]))
    return frozenset(stem(word) for word in plain if word not in STOP_WORDS and len(word) > 1)


def _weights(specs: Mapping[str, ToolSpec]) -> dict[str, dict[str, float]]:
    """The words of each tool with their weights: rare ones count more, and those of its name most."""
    texts = {
        n: dict.fromkeys(_stems(spec.description), 1.0) | dict.fromkeys(_stems(n), 3.0) for n, spec in specs.items()
    }
    count = Counter(word for text in texts.values() for word in text)
    rare = {word: math.log((len(specs) + 1) / times) for word, times in count.items()}
    return {name: {word: weight * rare[word] for word, weight in text.items()} for name, text in texts.items()}
