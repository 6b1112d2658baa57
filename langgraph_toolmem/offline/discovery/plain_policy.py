"""A policy without a model: every call that the schemas allow with known values, the likeliest first [O].

Known are the values of the request, those of the answers so far, and what schemas list; a value goes into an input of
its type (`atoms.slots`) or its looks (`atoms.words`). A call scores by how well its values fit, and by the words that
its tool shares with the request. Reading comes first while the user named something that no answer told of; changes
wait for that, and go on through the rows of a list once begun. The request is the one sub-goal.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from langgraph_toolmem.atoms.known import leaves_of
from langgraph_toolmem.atoms.slots import Slots, words_of
from langgraph_toolmem.base.text import as_text
from langgraph_toolmem.offline.discovery.environment import EnvironmentCall, Taken
from langgraph_toolmem.offline.discovery.plain_values import (
    CHOICE,
    MAX_ANSWER,
    Input,
    Known,
    Reader,
    fit_of,
    input_of,
    merged,
    stems_of,
)
from langgraph_toolmem.offline.discovery.policy import Proposal, Reflection
from langgraph_toolmem.offline.discovery.states import Goal, State, only_reads
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, canon, fit
from langgraph_toolmem.words.meaning import canonical
from langgraph_toolmem.words.ports import inputs_of
from langgraph_toolmem.words.values import DATE, NAME, TEXT, kind_of
from langgraph_toolmem.words.vocabulary import VERBS

WIDTH, COMBINATIONS, PER_INPUT, PER_TOOL = 48, 12, 5, 5
"""At most so many calls in a state, combinations of values and calls of a tool, values for an input."""
SURE, WORSE, LEAST = 0.75, 0.3, 1.0
"""Fit from which an optional value is given; what others may fit less; score of a call after a change."""
SHARPNESS, CLOSENESS, EVEN = 2.5, 6.0, 0.25
"""e to this per 1 of a score: between tools, between calls of a tool; part of the weight that all tools share alike."""
_TELLING: Final = r"\b(?:tell|write|mail|know|note|say|inform|notify|remind|reply|answer|reason)\b[^.;]*?\bthat"
_CONTENT: Final = re.compile(rf"(?::|{_TELLING})\s+(.+?)[.?!]?$", re.IGNORECASE | re.DOTALL)  # what is to be told


class Seen(NamedTuple):
    """What a state knows: what is to be told; values by their text; those given; names that no answer told of; what
    else of the request was not given; the values of each answer of which none was given; how much tools are meant."""

    state: State
    content: str
    known: Mapping[str, Known]
    given: frozenset[str]
    open: frozenset[str]
    waiting: frozenset[str]
    idle: Sequence[frozenset[str]]
    akin: Mapping[str, float]
    wide: bool


Given: TypeAlias = tuple[float, Any, Input]  # how well it fits, 0 to about 1; value; where


class PlainPolicy:
    """See the module. It keeps nothing of a task: one serves all tasks and threads.

    Args:
        specs: the tools, by name.
        finishes: after each call, ending with the latest answer is proposed; for where nothing else tells.
    """

    def __init__(self, specs: Mapping[str, ToolSpec], *, finishes: bool = False) -> None:
        self._specs, self._finishes, slots = dict(specs), finishes, Slots(specs)
        self._reads = {name: only_reads(spec) for name, spec in specs.items()}
        self._inputs = {name: [input_of(port, slots) for port in inputs_of(spec)] for name, spec in specs.items()}
        self._words = _weights(specs)
        inputs = [each for found in self._inputs.values() for each in found]
        self._reader = Reader(slots, inputs, frozenset[str]().union(*self._words.values()))

    def plan(self, state: State) -> Goal:
        """See `Policy`: the request as a whole, with any tool."""
        return Goal(state.task.request)

    def propose(self, state: State, possible: Sequence[EnvironmentCall] | None) -> Sequence[Proposal]:
        """See `Policy`."""
        found = self._proposals(state, possible)[:WIDTH]
        for latest in state.taken[-1:] if self._finishes else ():
            answer, best = as_text(latest.observation.output), found[0].weight if found else 1.0
            found.append(Proposal("finish", best * (1.0 if state.changed else 0.3), answer=answer[:MAX_ANSWER]))
        return found

    def widen(self, state: State) -> Sequence[Proposal]:
        """See `Policy`: whatever else can be called, unless something was changed already."""
        return [] if state.changed else self._proposals(state, None, wide=True)

    def reflect(self, state: State, failed: Taken) -> Reflection:
        """See `Policy`: nothing but what failed; what else there is was proposed."""
        return Reflection(f"{failed.call.tool} was called and failed", str(failed.observation.output)[:200])

    def _proposals(
        self, state: State, possible: Sequence[EnvironmentCall] | None, *, wide: bool = False
    ) -> list[Proposal]:
        seen, all_of_them = self._see(state, wide), wide or possible is not None
        least = LEAST if state.changed and not all_of_them else -math.inf
        done, called = {each.call.key for each in state.taken}, {each.call.tool for each in state.taken}
        by_tool: dict[str, list[tuple[float, EnvironmentCall]]] = {}
        calls = [(1.0, call) for call in possible or ()]
        for tool in self._specs if possible is None else ():
            calls += (each for each in self._calls(tool, seen) if each[1].key not in done)
        for fitting, call in calls:
            is_new = call.key not in done and not (call.tool in called and _values(call) <= seen.given)
            score = self._score(call, fitting, seen) - 10 * (not is_new)
            if score > least:
                by_tool.setdefault(call.tool, []).append((score, call))
        top, proposals = max((score for each in by_tool.values() for score, _ in each), default=0.0), list[Proposal]()
        ranked = {tool: sorted(each, key=lambda one: -one[0]) for tool, each in by_tool.items()}
        shares = {tool: math.exp(SHARPNESS * (each[0][0] - top)) for tool, each in ranked.items()}
        for tool, each in ranked.items():
            kept = each if all_of_them else each[:PER_TOOL]
            inner = [math.exp(CLOSENESS * (score - each[0][0])) for score, _ in kept]
            share = ((1 - EVEN) * shares[tool] / sum(shares.values()) + EVEN / len(by_tool)) / sum(inner)
            weighed = zip(inner, kept, strict=True)
            proposals += (Proposal("call", max(share * weight, 1e-9), call) for weight, (_, call) in weighed)
        return sorted(proposals, key=lambda each: -each.weight)

    def _score(self, call: EnvironmentCall, fitting: float, seen: Seen) -> float:
        """How promising a call is."""
        tool, values, state = call.tool, _values(call) - {seen.state.task.request}, seen.state
        akin, times = seen.akin.get(tool, 0.0), sum(each.call.tool == tool for each in state.taken)
        used = sum(not told.isdisjoint(values) for told in seen.idle)
        if self._reads.get(tool, False):
            asks = any(_overlap(name, value) for name in seen.open for value in values)
            score = fitting + akin + 0.5 * bool(used) + 1.2 * fitting * asks - 0.8 * values.isdisjoint(seen.known)
            return score - (0.3 if asks else 0.5) * times - 0.15 * len(state.taken) - 0.5 * bool(state.changed)
        score = fitting + 1.8 * akin - 2 * bool(seen.open and not state.changed) - 0.8 * len(seen.waiting - values)
        verbs = [stems_of(word) for word in canonical(tool) if word in VERBS]  # one has to say that all is lost
        lost = self._specs[tool].destructive and all(verb.isdisjoint(stems_of(state.task.request)) for verb in verbs)
        score -= 1.2 * (len(seen.idle) - used) + 1.5 * bool(lost)
        last = state.taken[-1].call if state.taken else call
        return score + (1.2 if last.tool == tool and _goes_on(last, call, seen.known) else -1.5) * bool(times)

    def _see(self, state: State, wide: bool) -> Seen:
        """What a state knows."""
        request, taken = state.task.request, state.taken
        content = found[1] if (found := _CONTENT.search(request)) else ""
        told = [list(self._reader.told(each, at - len(taken), request)) for at, each in enumerate(taken)]
        asked = merged(self._reader.said(request))
        known = merged([*asked.values(), *(one for each in told for one in each)])
        given = frozenset[str]().union(*(_values(each.call) for each in taken))
        heard = "\n".join([*(canon(one.value) for each in told for one in each), *(given - {request})]).lower()
        rest = {key: each.types for key, each in asked.items() if key not in content and key not in self._reader.names}
        names = {key for key, types in rest.items() if NAME in types}
        clear = {name for name in names if name.lower() in heard}
        opened = frozenset(name for name in names if not any(_overlap(name, other) for other in clear))
        plain = (key for key, types in rest.items() if types & {DATE, TEXT, CHOICE})
        waiting = frozenset(key for key in plain if not any(key in each for each in given))
        idle: list[frozenset[str]] = []
        for each, news in zip(taken, told, strict=True):
            keys = frozenset(canon(one.value) for one in news if isinstance(one.value, str) and kind_of(one.value))
            single = len({one.places for one in news}) == len(news)  # one thing, and not a list of some
            if keys and single and keys.isdisjoint(given) and not _values(each.call).isdisjoint(names):
                idle.append(keys)
        return Seen(state, content, known, given, opened, waiting, idle, self._akin(state), wide)

    def _akin(self, state: State) -> dict[str, float]:
        """How much each tool has to do with the request, without the words that changes by others have served."""
        asked, served = (
            stems_of(state.task.request),
            {each.call.tool: stems_of(each.call.tool) for each in state.changed},
        )
        found: dict[str, float] = {}
        for tool, weights in self._words.items():
            left = asked.difference(*(each for name, each in served.items() if name != tool))
            found[tool] = math.fsum(weights[word] for word in left & weights.keys())
        top = max((share for tool, share in found.items() if tool not in served), default=0.0) or 1.0
        return {tool: min(1.0, share / top) for tool, share in found.items()}

    def _calls(self, tool: str, seen: Seen) -> Iterator[tuple[float, EnvironmentCall]]:
        """Calls of a tool, each once, with how well their values fit."""
        combined, options, sure = [tuple[Given, ...]()], list[list[Given]](), list[Given]()
        for each in self._inputs[tool]:
            found = self._candidates(tool, each, seen)
            if each.leaf.required:
                combined = [(*chosen, one) for chosen in combined for one in found]
                combined = sorted(combined, key=lambda chosen: -_together(chosen, seen.known))[:COMBINATIONS]
            else:
                sure += [one for one in found[:1] if one[0] >= SURE]
                options += [[one] for one in found[:3] if one[0] >= SURE or self._reads[tool]]
        options += [[*(one for one in sure if one[2] is not option[0][2]), *option] for option in options]
        calls: dict[tuple[str, str], tuple[float, EnvironmentCall]] = {}
        for given in ((*chosen, *option) for chosen in combined for option in (sure, [], *options)):
            args: dict[str, Any] = {}
            for _, value, wanted in given:
                _put(args, wanted.leaf.path, value)
            if self._specs[tool].problem(args) is None:
                fitting = _together(given, seen.known) / len(given) + 0.05 * len(given) if given else 0.3
                calls.setdefault(EnvironmentCall(tool, args).key, (fitting, EnvironmentCall(tool, args)))
        yield from calls.values()

    def _candidates(self, tool: str, wanted: Input, seen: Seen) -> list[Given]:
        """The values that fit an input best, each once."""
        found, schema = dict[str, Given](), {"type": sorted(wanted.leaf.types)}
        ordered = sorted(self._fitting(tool, wanted, seen), key=lambda each: -each[0])
        for score, value in ordered:
            cast = [fit(one, schema) for one in value] if isinstance(value, list) else fit(value, schema)
            if (seen.wide or score >= ordered[0][0] - WORSE) and cast not in (ABSENT, None, "", []):
                found.setdefault(canon(cast), (score, cast, wanted))
        texts = [each for each in self._inputs[tool] if each.leaf.required and each.parameter.text]
        heading = wanted in texts[:-1] and not self._reads[tool]  # of another text: any will do
        return list(found.values())[: (1 + 2 * seen.wide) * (1 if heading else PER_INPUT)]

    def _fitting(self, tool: str, wanted: Input, seen: Seen) -> Iterator[tuple[float, Any]]:
        """Values for an input, with how well they fit."""
        request, leaf, reads = seen.state.task.request, wanted.leaf, self._reads[tool]
        many = leaf.path.endswith("[]")
        stems, flag = stems_of(request), leaf.types == {"boolean"}
        if flag or (wanted.parameter.control and not leaf.required):
            yield from [(0.9, True)] if flag and stems_of(leaf.path) & stems else []
            return
        named = {choice: frozenset() < stems_of(choice) <= stems for choice in wanted.choices}
        yield from ((0.9 if said_so else 0.4, one) for one, said_so in named.items() if said_so or leaf.required)
        changed = [_values(each.call) for each in seen.state.changed if each.call.tool == tool]
        together: list[Any] = []
        for key, each in seen.known.items() if not named else ():
            if (score := fit_of(wanted, each, reads)) > 0:
                score -= 0.3 * (reads and each.asked and key in seen.content) + 0.2 * any(key in one for one in changed)
                yield score, [each.value] if many else each.value
                together += [each.value] * each.meant
        if many and len(together) > 1:
            yield 1.0, together
        if many or named or wanted.looks != TEXT or not (leaf.required or reads):
            return
        if reads or not wanted.parameter.text:
            found = self._reader.words_for(wanted, request)
            yield from (each for each in found if reads or seen.wide or each[0] > 0.55)
        if not reads:
            yield 0.65, request
        if not reads and wanted.parameter.text:
            yield 0.85, seen.content
            told = [as_text(each.observation.output) for each in seen.state.taken if self._reads.get(each.call.tool)]
            yield 0.6, max(told[::-1], key=lambda each: len(stems_of(each) & stems), default="")[:MAX_ANSWER]


def _together(given: Iterable[Given], known: Mapping[str, Known]) -> float:
    """How well values fit their inputs and each other: none twice, days in order, and of a field what is such."""
    given = sorted(given, key=lambda each: each[2].looks)
    score = sum(fitting for fitting, *_ in given)
    for (_, one, first), (_, other, second) in pairwise(given):
        score -= 0.3 * (first.looks == second.looks and (one == other or (first.looks == DATE and one > other)))
    fields = {field for _, field, wanted in given if wanted.choices}
    for value in [one for _, one, wanted in given if fields and "value" in words_of(wanted.parameter.label)]:
        own = {each.value for each in known.values() for one in each.types if not fields.isdisjoint(words_of(one))}
        alike = {kind_of(each) for each in own if isinstance(each, str)} - {""}
        score += 0.3 if value in own else -0.5 * (kind_of(str(value)) not in alike)
    return score


def _goes_on(last: EnvironmentCall, call: EnvironmentCall, known: Mapping[str, Known]) -> bool:
    """Whether a call does to another row of a list what the last one did to one that was meant no less."""
    before, now = _values(last) - _values(call), _values(call) - _values(last)
    rows = [known[key] for key in (*before, *now) if key in known and kind_of(key)]
    if not len(before) == len(now) == 1 or len(rows) != 2 or rows[1].meant < rows[0].meant:
        return False
    same, alike = rows[0].places & rows[1].places, rows[0].types & rows[1].types
    return bool(same or (rows[1].meant and alike))


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


def _weights(specs: Mapping[str, ToolSpec]) -> dict[str, dict[str, float]]:
    """The words of each tool with their weights: rare ones count more, and those of its name most."""
    texts: dict[str, dict[str, float]] = {}
    for name, spec in specs.items():
        about = " ".join(f"{port.path} {port.leaf.description}" for port in inputs_of(spec))
        weighed = ((about, 0.5), (spec.description, 1.0), (name, 3.0))
        texts[name] = {word: weight for text, weight in weighed for word in stems_of(text)}
    count = Counter(word for text in texts.values() for word in text)
    rare = {word: math.log((len(specs) + 1) / times) for word, times in count.items()}
    return {name: {word: weight * rare[word] for word, weight in text.items()} for name, text in texts.items()}
