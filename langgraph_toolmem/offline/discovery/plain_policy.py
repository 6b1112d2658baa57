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

from langgraph_toolmem.atoms.known import leaves_of, said
from langgraph_toolmem.atoms.slots import Parameter, Slots, label_of, listed_choices, words_of
from langgraph_toolmem.atoms.words import DATE, EMAIL, ID, NAME, NUMBER, PLAIN, TEXT, TIME, kind_of
from langgraph_toolmem.base.text import as_text
from langgraph_toolmem.offline.discovery.environment import Call, Taken
from langgraph_toolmem.offline.discovery.policy import Proposal, Reflection
from langgraph_toolmem.offline.discovery.states import Goal, State, only_reads
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, canon, fit, flatten
from langgraph_toolmem.words.features import STOP_WORDS, stem, words
from langgraph_toolmem.words.meaning import canonical, canonical_words, meaning_of
from langgraph_toolmem.words.ports import Port, inputs_of
from langgraph_toolmem.words.schema import Leaf
from langgraph_toolmem.words.vocabulary import VERBS

WIDTH, COMBINATIONS, PER_INPUT, PER_TOOL, MAX_ROWS, MAX_ANSWER = 48, 12, 5, 5, 12, 4_000
"""At most so many calls in a state, combinations and calls of a tool, values for an input, rows, characters."""
SURE, WORSE, LEAST = 0.75, 0.3, 1.0
"""Fit from which an optional value is given; what others may fit less; score of a call after a change."""
SHARPNESS, CLOSENESS, EVEN = 2.5, 6.0, 0.25
"""e to this per 1 of a score: between tools, between calls of a tool; part of the weight that all tools share alike."""
CHOICE: Final = "CHOICE"  # type of what a schema lists
_TELLING: Final = r"\b(?:tell|write|mail|know|note|say|inform|notify|remind|reply|answer|reason)\b[^.;]*?\bthat"
_CONTENT: Final = re.compile(rf"(?::|{_TELLING})\s+(.+?)[.?!]?$", re.IGNORECASE | re.DOTALL)  # what is to be told


class Known(NamedTuple):
    """A value; types by looks and place; whether the user said it; what speaks for it, its row; where it was told."""

    value: Any
    types: frozenset[str]
    asked: bool = True
    standing: float = 0.2
    meant: bool = True
    places: frozenset[str] = frozenset()


class Input(NamedTuple):
    """A value that a call takes. `looks`: EMAIL, DATE, TIME (of a day), ID, NUMBER …; TEXT for words."""

    leaf: Leaf
    parameter: Parameter
    looks: str
    choices: tuple[str, ...]


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
        self._specs, self._finishes, self._slots = dict(specs), finishes, Slots(specs)
        self._reads = {name: only_reads(spec, name) for name, spec in specs.items()}
        self._inputs = {name: [_input(port, self._slots) for port in inputs_of(spec)] for name, spec in specs.items()}
        self._names = {each.leaf.path for inputs in self._inputs.values() for each in inputs}
        self._words = _weights(specs)
        self._usual = frozenset[str]().union(*self._words.values())

    def plan(self, state: State) -> Goal:
        """See `Policy`: the request as a whole, with any tool."""
        return Goal(state.task.request)

    def propose(self, state: State, possible: Sequence[Call] | None) -> Sequence[Proposal]:
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

    def _proposals(self, state: State, possible: Sequence[Call] | None, *, wide: bool = False) -> list[Proposal]:
        seen, all_of_them = self._see(state, wide), wide or possible is not None
        least = LEAST if state.changed and not all_of_them else -math.inf
        done, called = {each.call.key for each in state.taken}, {each.call.tool for each in state.taken}
        by_tool: dict[str, list[tuple[float, Call]]] = {}
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

    def _score(self, call: Call, fitting: float, seen: Seen) -> float:
        """How promising a call is."""
        tool, values, state = call.tool, _values(call) - {seen.state.task.request}, seen.state
        akin, times = seen.akin.get(tool, 0.0), sum(each.call.tool == tool for each in state.taken)
        used = sum(not told.isdisjoint(values) for told in seen.idle)
        if self._reads.get(tool, False):
            asks = any(_overlap(name, value) for name in seen.open for value in values)
            score = fitting + akin + 0.5 * bool(used) + 1.2 * fitting * asks - 0.8 * values.isdisjoint(seen.known)
            return score - (0.3 if asks else 0.5) * times - 0.15 * len(state.taken) - 0.5 * bool(state.changed)
        score = fitting + 1.8 * akin - 2 * bool(seen.open and not state.changed) - 0.8 * len(seen.waiting - values)
        score -= 1.2 * (len(seen.idle) - used)
        if self._specs[tool].destructive:  # a verb has to say so
            score -= 1.5 * all(
                _stems(word).isdisjoint(_stems(state.task.request)) for word in {*canonical(tool)} & VERBS
            )
        last = state.taken[-1].call if state.taken else call
        return score + (1.2 if last.tool == tool and _goes_on(last, call, seen.known) else -1.5) * bool(times)

    def _see(self, state: State, wide: bool) -> Seen:
        """What a state knows."""
        request, taken = state.task.request, state.taken
        content = found[1] if (found := _CONTENT.search(request)) else ""
        told = [list(self._told(each, at - len(taken), request)) for at, each in enumerate(taken)]
        asked = _merged(self._of_request(request))
        known = _merged([*asked.values(), *(one for each in told for one in each)])
        given = frozenset[str]().union(*(_values(each.call) for each in taken))
        heard = "\n".join([*(canon(one.value) for each in told for one in each), *(given - {request})]).lower()
        rest = {key: each.types for key, each in asked.items() if key not in content and key not in self._names}
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
        asked, served = _stems(state.task.request), {each.call.tool: _stems(each.call.tool) for each in state.changed}
        found: dict[str, float] = {}
        for tool, weights in self._words.items():
            left = asked.difference(*(each for name, each in served.items() if name != tool))
            found[tool] = math.fsum(weights[word] for word in left & weights.keys())
        top = max((share for tool, share in found.items() if tool not in served), default=0.0) or 1.0
        return {tool: min(1.0, share / top) for tool, share in found.items()}

    def _calls(self, tool: str, seen: Seen) -> Iterator[tuple[float, Call]]:
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
        calls: dict[tuple[str, str], tuple[float, Call]] = {}
        for given in ((*chosen, *option) for chosen in combined for option in (sure, [], *options)):
            args: dict[str, Any] = {}
            for _, value, wanted in given:
                _put(args, wanted.leaf.path, value)
            if self._specs[tool].problem(args) is None:
                fitting = _together(given, seen.known) / len(given) + 0.05 * len(given) if given else 0.3
                calls.setdefault(Call(tool, args).key, (fitting, Call(tool, args)))
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
        request, leaf, many, reads = (
            seen.state.task.request,
            wanted.leaf,
            wanted.leaf.path.endswith("[]"),
            self._reads[tool],
        )
        stems, flag = _stems(request), leaf.types == {"boolean"}
        if flag or (wanted.parameter.control and not leaf.required):
            yield from [(0.9, True)] if flag and _stems(leaf.path) & stems else []
            return
        named = {choice: frozenset() < _stems(choice) <= stems for choice in wanted.choices}
        yield from ((0.9 if said_so else 0.4, one) for one, said_so in named.items() if said_so or leaf.required)
        changed = [_values(each.call) for each in seen.state.changed if each.call.tool == tool]
        together: list[Any] = []
        for key, each in seen.known.items() if not named else ():
            if (score := _fit_of(wanted, each, reads)) > 0:
                score -= 0.3 * (reads and each.asked and key in seen.content) + 0.2 * any(key in one for one in changed)
                yield score, [each.value] if many else each.value
                together += [each.value] * each.meant
        if many and len(together) > 1:
            yield 1.0, together
        if many or named or wanted.looks != TEXT or not (leaf.required or reads):
            return
        if reads or not wanted.parameter.text:
            yield from (each for each in self._words_for(wanted, request) if reads or each[0] > 0.55)
        if not reads:
            yield 0.65, request
        if not reads and wanted.parameter.text:
            yield 0.85, seen.content
            told = [as_text(each.observation.output) for each in seen.state.taken if self._reads.get(each.call.tool)]
            yield 0.6, max(told[::-1], key=lambda each: len(_stems(each) & stems), default="")[:MAX_ANSWER]

    def _words_for(self, wanted: Input, request: str) -> Iterator[tuple[float, str]]:
        """Words of a request, one or two: best those beside the name of the input, then such as no tool is about."""
        own = _stems(f"{wanted.parameter.label.lower()} {wanted.leaf.path}".replace("_", " "))
        marks = [(word, _stems(word)) for word in re.findall(r"[^\W\d_][\w-]*", request)]
        for at, (word, stems) in enumerate(marks):
            beside = any(near & own for _, near in marks[max(0, at - 1) : at + 2])
            score = (0.75 if beside else 0.4) + 0.2 * stems.isdisjoint(self._usual) - 0.005 * at
            if stems and not stems & own and (wanted.leaf.required or beside):
                yield score, word
                if at + 1 < len(marks) and marks[at + 1][1] and (pair := f"{word} {marks[at + 1][0]}") in request:
                    yield score - 0.05, pair

    def _of_request(self, request: str) -> Iterator[Known]:
        """The values of a request: by their looks, by the words beside them, and what schemas list."""
        found = list(said(request, self._slots))
        for first in re.finditer(r"(?<![^.!?:;]\s)\b([A-Z][\w-]+) (?=[A-Z])", request):  # a name begins a sentence
            if _stems(first[1]) and _stems(first[1]).isdisjoint(self._usual):
                longer = [
                    (kind, value) for kind, value in found if kind == NAME and request.startswith(value, first.end())
                ]
                found = [
                    *(each for each in found if each not in longer),
                    *((NAME, first[0] + value) for _, value in longer),
                ]
        yield from (Known(value, frozenset({label})) for label, value in found)
        times = ((day, time) for kind, day in found for other, time in found if (kind, other) == (DATE, TIME))
        yield from (Known(f"{day}T{time.zfill(5)}", frozenset({TIME})) for day, time in times)
        listed = (
            (one, each.parameter.label) for inputs in self._inputs.values() for each in inputs for one in each.choices
        )
        mine = ((one, label) for one, label in listed if frozenset() < _stems(one) <= _stems(request))
        yield from (Known(one, frozenset({CHOICE, label})) for one, label in mine)

    def _told(self, taken: Taken, ago: int, request: str) -> Iterator[Known]:
        """The values of an answer; more speaks for the latest, and for rows that share most with the request."""
        output, tool, late = taken.observation.output, taken.call.tool, max(0.0, 0.15 + 0.05 * ago)
        if isinstance(output, str):
            found = (one for one in said(output[:MAX_ANSWER], self._slots) if one[0] in PLAIN or one[0] == ID)
            yield from (Known(value, frozenset({label}), False, late, False) for label, value in found)
            return
        flat = flatten(output)
        rows: dict[tuple[str, int], list[tuple[str, Any]]] = {("", -1): list(flat.scalars.items())}
        for path, values in flat.lists.items():
            for value, row in zip(values, flat.rows[path], strict=True):
                rows.setdefault((path.split("[*]")[0], row), []).append((path, value))
        rows = {at: row for at, row in rows.items() if at[1] < MAX_ROWS}
        counts = {at: len(_stems(" ".join(str(one) for _, one in row)) & _stems(request)) for at, row in rows.items()}
        for at, row in rows.items():
            meant = counts[at] >= max(1, *(0.7 * count for count in counts.values()))
            standing = late + 0.15 * meant + max(0.0, 0.05 - 0.005 * max(0, at[1]))
            for path, value in row:
                place = path.removeprefix("$").removeprefix(".").replace("[*]", "[]")
                types = {self._slots.output(tool, place, value), label_of(meaning_of(Leaf(place), tool), place)}
                yield Known(value, frozenset(types), False, standing, meant, frozenset({f"{tool} {ago} {place}"}))


def _fit_of(wanted: Input, known: Known, reads: bool) -> float:
    """How well a value fits an input by its type and its looks, 0 to about 1; 0: not at all."""
    looks = (kind_of(known.value) if isinstance(known.value, str) else NUMBER) or TEXT
    label, types, required = wanted.parameter.label, known.types | {looks}, wanted.leaf.required
    named = label in known.types
    if isinstance(known.value, bool):
        return 0.0
    if wanted.looks in (DATE, TIME):
        fits = looks == DATE and (":" in known.value) == (wanted.looks == TIME)
        return fits * (0.5 + 0.15 * named + known.standing + 0.1 * known.asked)
    if wanted.looks in (ID, NUMBER):
        own, told = {*words_of(label)}, (*known.types, f"{known.value}_ID")  # "key_22" is of a key
        fits = (
            any(len(own.intersection(words_of(each))) > 1 for each in told)
            or known.asked
            or (known.types == {ID} and not known.places)
        )
        return (0.65 * named or 0.5 * (fits and wanted.looks in types) or -1.0) + known.standing
    if wanted.looks != TEXT:
        return (looks == wanted.looks) * (0.5 + known.standing + 0.15 * named)
    if not reads and "value" in words_of(label):
        return 0.3 + known.standing + 0.2 * known.asked
    if looks != TEXT or (wanted.parameter.text and not reads):
        return 0.7 * (looks == TEXT and known.asked and TEXT in known.types)
    if named or not known.asked:
        loose = not named and (reads or not known.meant or not required)
        return 0.9 if known.asked else 0.0 if loose else (0.4 if named else 0.2) + known.standing
    if CHOICE in types or (reads and known.places and not wanted.parameter.someone):
        return 0.25 * required
    return (
        0.9
        if (wanted.parameter.someone and NAME in types) or ((required or wanted.parameter.text) and TEXT in known.types)
        else 0.5
    )


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


def _goes_on(last: Call, call: Call, known: Mapping[str, Known]) -> bool:
    """Whether a call does to another row of a list what the last one did to one that was meant no less."""
    before, now = _values(last) - _values(call), _values(call) - _values(last)
    rows = [known[key] for key in (*before, *now) if key in known and kind_of(key)]
    if not len(before) == len(now) == 1 or len(rows) != 2 or rows[1].meant < rows[0].meant:
        return False
    same, alike = rows[0].places & rows[1].places, rows[0].types & rows[1].types
    return bool(same or (rows[1].meant and alike))


def _merged(known: Iterable[Known]) -> dict[str, Known]:
    """Each value once, with all its types; what the user said stays so."""
    found: dict[str, Known] = {}
    for each in known:
        old = found.setdefault(canon(each.value), each)
        both = (max(old.standing, each.standing), old.meant or each.meant, old.places | each.places)
        found[canon(each.value)] = Known(old.value, old.types | each.types, old.asked or each.asked, *both)
    return found


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


def _values(call: Call) -> frozenset[str]:
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
    texts: dict[str, dict[str, float]] = {}
    for name, spec in specs.items():
        about = " ".join(f"{port.path} {port.leaf.description}" for port in inputs_of(spec))
        weighed = ((about, 0.5), (spec.description, 1.0), (name, 3.0))
        texts[name] = {word: weight for text, weight in weighed for word in _stems(text)}
    count = Counter(word for text in texts.values() for word in text)
    rare = {word: math.log((len(specs) + 1) / times) for word, times in count.items()}
    return {name: {word: weight * rare[word] for word, weight in text.items()} for name, text in texts.items()}
