"""A policy without a model: words of the request, schemas of the tools, and values that are known.

Which call comes next is scored from: what its tool has to do with the request and with the clause that is worked on;
how well its values fit; whether it asks for a name that nobody has explained yet; whether it goes on through a list
that the last change began. Changes wait until names are explained; what destroys waits for a word that says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from langgraph_toolmem.atoms.known import leaves_of
from langgraph_toolmem.offline.discovery.context import Candidate, Context
from langgraph_toolmem.offline.discovery.environment import Call, Taken
from langgraph_toolmem.offline.discovery.facts import Fact, facts_of, in_words, read_request
from langgraph_toolmem.offline.discovery.fitting import STRONG, candidates, fitting, values_of
from langgraph_toolmem.offline.discovery.policy import Proposal, Reflection
from langgraph_toolmem.offline.discovery.relevance import Relevance, wishes
from langgraph_toolmem.offline.discovery.states import Goal, State
from langgraph_toolmem.offline.discovery.toolbox import Input, Toolbox, widened
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.search.lexical import stem

WIDTH: Final = 48
"""Actions proposed in one state, at most."""
PER_TOOL: Final = 5
RELEVANT: Final = 15
"""Tools that a plan keeps, beside those that only read or that take a text."""
COMBINATIONS: Final = 12
SHARPNESS: Final = 3.0
CLOSENESS: Final = 6.0
"""How much a tool, and among the calls of one tool a call, that scores 1 higher is preferred: e to this."""
EVEN: Final = 0.15
"""Part of the weight that all tools share alike: what looks hopeless is tried some time."""
NEAR: Final = 0.3
"""What another value may score less than the best action, to be tried first after a failure."""
LACKING: Final = 0.6
"""Relevance from which what a change needs is looked for."""
UNCHANGED: Final = 0.3
"""Part of the best action's weight that ending has, while nothing was changed."""
LAST_RESORT: Final = 3
"""Calls proposed where all that looked promising led nowhere."""
FURTHER: Final = 6
"""Calls proposed there with single words of the request."""
REPEATED: Final = 10.0
"""What a call scores less that was made already."""
WEAK: Final = 0.55
"""Fit from which a search is tried with an optional value."""
_LOOKED_FOR: Final = {"email": frozenset(map(stem, ("email", "address"))), "time": frozenset({stem("time")})}
"""Words of tools that may tell a value of this kind."""
_VAGUE: Final = frozenset({"id"})
MAX_FACTS: Final = 4_096


class WordPolicy:
    """See the module. It keeps nothing of a task but what it read of answers; use one per task.

    Args:
        specs: the tools, by name.
        toolbox: the tools read already, to be shared between tasks.
        weights: of the parts of a score, over `WEIGHTS`.
        finishes: it says when the task seems to be done, with the latest answer as the last word; for where nothing
            else tells.
    """

    def __init__(
        self,
        specs: Mapping[str, ToolSpec],
        *,
        toolbox: Toolbox | None = None,
        weights: Mapping[str, float] | None = None,
        finishes: bool = False,
    ) -> None:
        self._finishes = finishes
        self.toolbox = toolbox or Toolbox(specs)
        self._weights = {**WEIGHTS, **(weights or {})}
        self._facts: dict[tuple[int, int], tuple[Taken, list[Fact]]] = {}
        self._relevance = Relevance(self.toolbox)

    def plan(self, state: State) -> Goal:
        """The next clause of the request, with the tools whose words it shares."""
        request = state.task.request
        clauses = wishes(request, self.toolbox)
        number = state.goal.number + 1 if state.goal.text else 0
        number = min(number, len(clauses) - 1)
        relevant = self._relevance.of(request, clauses[number])
        order = sorted(relevant, key=lambda name: -relevant[name])
        kept = [name for n, name in enumerate(order) if n < RELEVANT or self._always(name)]
        return Goal(clauses[number], number, len(clauses), tuple(kept))

    def _always(self, tool: str) -> bool:
        """Whether a plan keeps a tool whatever its words: it reads, or it takes a text."""
        return self.toolbox.reads[tool] or any(each.kind == "prose" for each in self.toolbox.inputs[tool])

    def propose(self, state: State, possible: Sequence[Call] | None) -> Sequence[Proposal]:
        """See `Policy`."""
        context = self._context(state)
        changes = {taken.call.tool for taken in state.taken if not self.toolbox.reads.get(taken.call.tool, True)}
        if len(changes) > state.goal.number and state.goal.number + 1 < state.goal.of:
            return [Proposal("plan")]
        found = _proposals(self._scored(context, possible), None if possible is not None else self._weights["least"])
        if self._finishes and state.taken:
            weight = max((each.weight for each in found), default=1.0) * (1.0 if changes else UNCHANGED)
            found.append(Proposal("finish", weight, answer=in_words(state.taken[-1].observation.output)))
        return found

    def widen(self, state: State) -> Sequence[Proposal]:
        """See `Policy`. The best of what did not look promising, and reading by single words of the request."""
        scored = self._scored(self._context(state), None)
        known = {call.key for _, call in scored}
        further = [each for each in self._scored(self._context(state, wide=True), None) if each[1].key not in known]
        rest = [each for each in scored if each[0] <= self._weights["least"]]
        return _proposals([*rest[:LAST_RESORT], *further[:FURTHER]], None)

    def reflect(self, state: State, failed: Taken) -> Reflection:
        """Another value in the same place, where there is one that is as good as what else could be done."""
        scored = [(score, call) for score, call in self._scored(self._context(state), None) if call != failed.call]
        best = scored[0][0] if scored else 0.0
        others = [call for score, call in scored if call.tool == failed.call.tool and score >= best - NEAR]
        return Reflection(
            context=f"{failed.call.tool} was called and failed",
            critique=str(failed.observation.output)[:200],
            alternatives=tuple(Proposal("call", 1.0, call) for call in others[:1]),
        )

    # --- calls ---

    def _scored(self, context: Context, possible: Sequence[Call] | None) -> list[tuple[float, Call]]:
        """What could be called, with scores, the best first."""
        state = context.state
        done = {taken.call.key for taken in state.taken}
        if possible is not None:
            # The same call again may be what was done: where the world says that it is possible, it comes last.
            scored = [(self._score(call, [], context) - REPEATED * (call.key in done), call) for call in possible]
        else:
            scored = [
                (self._score(call, chosen, context), call)
                for tool in state.goal.tools or tuple(self.toolbox.specs)
                for call, chosen in self._calls(tool, context)
                if call.key not in done
            ]
        return sorted(scored, key=lambda each: -each[0])

    def _calls(self, tool: str, context: Context) -> Iterable[tuple[Call, list[Candidate]]]:
        """Calls of a tool with values that are known, those that fit best first."""
        needed: list[tuple[Input, list[Candidate]]] = []
        strong: list[tuple[Input, Candidate]] = []
        weak: list[tuple[Input, Candidate]] = []
        texts = sum(each.kind == "prose" for each in self.toolbox.inputs[tool])
        for each in self.toolbox.inputs[tool]:
            found = candidates(tool, each, context)
            if each.required:
                if not found and not _is_value(each):
                    return
                needed.append((each, found[:1] if each.kind == "headline" and texts else found))
            elif found and found[0].fit >= STRONG:
                strong.append((each, found[0]))
                weak += [(each, other) for other in found[1:3]]
            elif found and self.toolbox.reads[tool]:
                weak += [(each, other) for other in found[:3] if other.fit >= WEAK]
        spec = self.toolbox.specs[tool]
        options = [strong, *([s] for s in strong if len(strong) > 1), *([] for _ in strong[:1])]
        options += [[*(s for s in strong if s[0] is not each), (each, other)] for each, other in weak]
        names = [each for each, _ in needed]
        for chosen in self._combined(tool, needed, context):
            for optional in options:
                given = [*zip(names, chosen, strict=True), *optional]
                args: dict[str, Any] = {}
                for each, candidate in given:
                    _put(args, each.path, candidate.value)
                if spec.problem(args) is None:
                    yield Call(tool, args), [candidate for _, candidate in given]

    def _combined(
        self, tool: str, needed: Sequence[tuple[Input, list[Candidate]]], context: Context
    ) -> list[tuple[Candidate, ...]]:
        """Values for all required inputs; where one names a field, "the value" is one of that field's."""
        field = next((n for n, (each, _) in enumerate(needed) if each.kind == "choice"), None)
        value = next((n for n, (each, _) in enumerate(needed) if _is_value(each)), None)
        if field is None or value is None:
            return _best([found for _, found in needed])
        combined: list[tuple[Candidate, ...]] = []
        for choice in needed[field][1]:
            lists = [found for _, found in needed]
            meant = values_of(str(choice.value), needed[value][0], context)
            lists[field] = [choice]
            lists[value] = fitting(self.toolbox.specs[tool], needed[value][0], meant)
            combined += _best(lists)
        return _by_fit(combined)

    def _score(self, call: Call, chosen: Sequence[Candidate], context: Context) -> float:
        weights, toolbox, tool = self._weights, self.toolbox, call.tool
        state = context.state
        relevance = self._relevance.now(state).get(tool, 0.0)
        fit = sum(candidate.fit for candidate in chosen) / len(chosen) if chosen else 0.3
        given = {canon(value) for _, value in leaves_of(call.args)}
        used = sum(bool(told & given) for told in context.idle)
        score = weights["fit"] * fit
        if toolbox.reads.get(tool, False):
            score += weights["read"] * relevance
            asks = any(canon(fact.value) in given for fact in context.unexplained)
            score += weights["ask"] * asks
            score += weights["use"] * relevance * bool(used)
            score += weights["gives"] * self._gives(tool, context)
            score += weights["news"] * toolbox.news(tool, context.request.stems, context.called)
            score += weights["cover_read"] * min(2, len(context.fresh & given))
            if any(canon(fact.value) not in given for fact in context.unexplained):
                score -= weights["early"] * self._could_be_narrowed(tool, context)
            score -= weights["blind"] * all(candidate.fact is None for candidate in chosen)
            score -= weights["again_read"] * (not asks) * sum(taken.call.tool == tool for taken in state.taken)
            return score
        score += weights["change"] * relevance
        score -= weights["unexplained"] * any(canon(fact.value) not in given for fact in context.unexplained)
        score -= weights["waiting"] * len(context.waiting - given)
        score -= weights["idle"] * (len(context.idle) - used)
        score += weights["refers"] * any(c.fact is not None and _is_meant(c.fact) for c in chosen)
        score -= weights["exists"] * any(c.fact is not None and _is_title(c.fact) for c in chosen)
        score += weights["cover"] * min(3, len(context.fresh & given))
        score += weights["message"] * self._tells(tool, given, context)
        if toolbox.destroys.get(tool, False):
            asked = toolbox.destruction_said(tool, context.request.stems)
            score += weights["destroy_asked"] if asked else weights["destroy"]
        last = state.taken[-1].call if state.taken else None
        if last is not None and last.tool == tool:
            score += weights["loop"] if _next_row(last, call, context) else -weights["again"]
        elif any(taken.call.tool == tool for taken in state.taken):
            score -= weights["again"]
        return score

    def _tells(self, tool: str, given: set[str], context: Context) -> bool:
        """Whether a call tells what somebody is to be told, and nobody was told yet."""
        message = context.request.message
        if not message or message not in given or message in context.used:
            return False
        return any(
            each.kind == "prose" and (found := candidates(tool, each, context)) and found[0].value == message
            for each in self.toolbox.inputs[tool]
        )

    def _could_be_narrowed(self, tool: str, context: Context) -> bool:
        """Whether a search has an optional filter for which nothing is known yet."""
        return any(
            not each.required and each.kind in ("email", "id") and not candidates(tool, each, context)
            for each in self.toolbox.inputs[tool]
        )

    def _gives(self, tool: str, context: Context) -> float:
        """How much a tool may give what relevant changes lack: it has to do with the thing whose id they need."""
        key = ("gives",)
        known = context.found.get(key)
        if known is None:
            context.found[key] = [Candidate(self._missing(context), 1.0)]
        missing: dict[str, float] = context.found[key][0].value
        words = self.toolbox.words[tool]
        return max((weight for each, weight in missing.items() if each in words), default=0.0)

    def _missing(self, context: Context) -> dict[str, float]:
        """Stems of what relevant changes need and nobody knows, with the relevance of the change."""
        relevant = self._relevance.now(context.state)
        found: dict[str, float] = {}
        for tool, inputs in self.toolbox.inputs.items():
            if self.toolbox.reads[tool] or (relevant[tool] < LACKING):
                continue
            for each in inputs:
                if (
                    each.required
                    and (each.kind == "id" or each.kind in _LOOKED_FOR)
                    and not candidates(tool, each, context)
                ):
                    about = widened(each.own - _VAGUE) if each.kind == "id" else _LOOKED_FOR[each.kind]
                    for word in about:
                        found[word] = max(found.get(word, 0.0), relevant[tool] ** 2)
        return found

    # --- what is known ---

    def _context(self, state: State, *, wide: bool = False) -> Context:
        request = read_request(state.task.request)
        facts = list(request.facts)
        for index, taken in enumerate(state.taken):
            key = (id(taken), index)
            known = self._facts.get(key)
            if known is None:
                known = self._facts[key] = (taken, facts_of(taken, index, request, self.toolbox))
            facts += known[1]
        return Context(state, request, facts[-MAX_FACTS:], self.toolbox, wide)


WEIGHTS: Final = {
    "fit": 1.0,
    "read": 1.0,
    "ask": 1.0,
    "gives": 1.2,
    "blind": 0.8,
    "early": 0.8,
    "cover_read": 0.4,
    "again_read": 0.5,
    "news": 0.5,
    "use": 0.7,
    "idle": 1.2,
    "waiting": 0.5,
    "message": 0.6,
    "change": 1.8,
    "refers": 0.4,
    "exists": 0.3,
    "unexplained": 2.0,
    "cover": 0.25,
    "destroy": -1.5,
    "destroy_asked": 0.2,
    "loop": 2.2,
    "again": 0.6,
    "least": 0.2,
}
"""Parts of a score; chosen on office tasks that the benchmark does not use."""


def _put(args: dict[str, Any], path: str, value: Any) -> None:
    """Sets a value at a path; on the way through a list it goes into its one element."""
    *above, name = path.removesuffix("[]").split(".")
    for level in above:
        if level.endswith("[]"):
            args = args.setdefault(level.removesuffix("[]"), [{}])[0]
        else:
            args = args.setdefault(level, {})
    args[name] = value


def _best(lists: Iterable[Sequence[Candidate]]) -> list[tuple[Candidate, ...]]:
    """The combinations of one of each list that fit best: never more are held than are wanted, times one list."""
    found: list[tuple[Candidate, ...]] = [()]
    for each in lists:
        found = _by_fit([(*chosen, candidate) for chosen in found for candidate in each])
    return found


def _by_fit(combined: Iterable[tuple[Candidate, ...]]) -> list[tuple[Candidate, ...]]:
    return sorted(combined, key=lambda each: -sum(candidate.fit for candidate in each))[:COMBINATIONS]


def _next_row(last: Call, call: Call, context: Context) -> bool:
    """Whether a call does to another row of a list what the last one did to one."""
    changed = [name for name in call.args if canon(call.args[name]) != canon(last.args.get(name))]
    kinds = {each.name: each.kind for each in context.toolbox.inputs.get(call.tool, ())}
    if len(changed) != 1 or kinds.get(changed[0]) not in ("id", "email"):
        return False
    value, before = canon(call.args[changed[0]]), canon(last.args.get(changed[0]))
    rows = [fact for fact in context.facts if fact.row >= 0 and canon(fact.value) == value]
    paths = {fact.path for fact in rows}
    done = [fact for fact in context.facts if fact.path in paths and canon(fact.value) == before]
    if any(fact.named for fact in done) and not any(fact.named for fact in rows):
        return False  # the user meant the row that is done, and not this one
    return bool(done)


def _is_meant(fact: Fact) -> bool:
    """Whether a value is the id of a thing that the user named."""
    return fact.step >= 0 and fact.named and "id" in fact.words


def _is_title(fact: Fact) -> bool:
    """Whether a value is the title of a thing that is there and that the user named: it need not be made again."""
    return fact.step >= 0 and fact.named and "title" in fact.path


def _is_value(wanted: Input) -> bool:
    """Whether an input is "the value", of something that another input names."""
    return wanted.name.lower() in ("value", "new_value", "newvalue")


def _proposals(scored: Sequence[tuple[float, Call]], least: float | None) -> list[Proposal]:
    """Calls with weights: first between tools, by the best call of each, then between the calls of a tool."""
    by_tool: dict[str, list[tuple[float, Call]]] = {}
    for score, call in scored:
        if least is None or score > least:
            by_tool.setdefault(call.tool, []).append((score, call))
    found: list[Proposal] = []
    top = max((calls[0][0] for calls in by_tool.values()), default=0.0)
    shares = {tool: math.exp(SHARPNESS * (calls[0][0] - top)) for tool, calls in by_tool.items()}
    total = sum(shares.values())
    for tool, calls in by_tool.items():
        best = calls[0][0]
        kept = calls[:PER_TOOL]
        inner = [math.exp(CLOSENESS * (score - best)) for score, _ in kept]
        share = ((1 - EVEN) * shares[tool] / total + EVEN / len(by_tool)) / sum(inner)
        found += [Proposal("call", share * weight, call) for weight, (_, call) in zip(inner, kept, strict=True)]
    return sorted(found, key=lambda each: -each.weight)[:WIDTH]


__all__ = ["WEIGHTS", "WordPolicy"]
