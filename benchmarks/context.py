"""Model calls that look-ups made before the model save on recorded runs, and how many look-ups are in vain.

``python -m benchmarks.context``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Final

from langchain_core.messages import AIMessage, convert_to_messages
from rich.table import Table

from benchmarks import command, conclude, done, load, present, show
from benchmarks.fates import FATES, Asked, Fates, calls_of, is_next
from benchmarks.measures import declared
from benchmarks.replay import PROMPTS
from langgraph_toolmem import Inertia, InertiaPolicy, PrefetchedContext, ToolMemory
from langgraph_toolmem.base.text import as_text
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.inertia.context import next_lookup, shares_made, used_steps
from langgraph_toolmem.inertia.decision import Decision, Option, call_digests
from langgraph_toolmem.inertia.exchange import MARK
from langgraph_toolmem.runs.run import ModelInput
from langgraph_toolmem.runs.values import canon_args
from langgraph_toolmem.turn.step import given_input

SETS: Final = ("tau2_retail_gpt41mini", "tau2_telecom_gpt41", "tau2_airline_gpt54", "workbench_gpt4")
MODEL_SECONDS: Final = 2.0
TOOL_SECONDS: Final = 0.3
CHARS_PER_TOKEN: Final = 4
GOALS: Final[Mapping[float, Mapping[str, tuple[float, float]]]] = {
    0.5: {
        "tau2_retail_gpt41mini": (14, 4),
        "tau2_telecom_gpt41": (8.5, 4),
        "tau2_airline_gpt54": (7, 4),
        "workbench_gpt4": (8, 6.5),
    },
    0.3: {
        "tau2_retail_gpt41mini": (17, 12),
        "tau2_telecom_gpt41": (11, 12),
        "tau2_airline_gpt54": (8, 12),
        "workbench_gpt4": (12, 12),
    },
}
"""Per least probability and set: the fewest model calls saved and the most look-ups in vain, per 100 turns."""
BY_CONTEXT: Final = {"additional_kwargs": {MARK: {"by": "context"}}}
"""The mark of a message whose look-ups the memory made."""
LOOSE: Final = 12.0
"""`max_in_vain` of a least probability below the default."""


RecordedCall = tuple[str, str]
"""The tool of a call, and its arguments as one text."""


@dataclass(frozen=True)
class Job:
    """One pass over one set."""

    data: str
    name: str
    settings: PrefetchedContext
    seed: int
    limit: int | None


@dataclass
class Exchange:
    """The look-ups before one request.

    Attributes:
        decisions: before each step, and after the last one.
        steps: the look-ups.
        messages: of each step.
        probability: of all steps together.
        held_out: the first look-up was held out.
    """

    decisions: list[Decision]
    steps: list[Option] = field(default_factory=list)
    messages: list[list[dict[str, Any]]] = field(default_factory=list)
    probability: float = 1.0
    held_out: bool = False

    def used(self, answer: dict[str, Any]) -> int:
        """Return how many steps stay in the history after an answer."""
        steps = [call_digests(lookup.tool, lookup.calls) for lookup in self.steps]
        return used_steps(steps, _message(answer))

    def risk(self, answer: dict[str, Any]) -> float:
        """Return how many look-ups are in vain by an answer."""
        own = [lookup.probability for lookup in self.steps]
        risk = 0.0
        for share, lookup in zip(shares_made(self.decisions, own, _message(answer)), self.steps, strict=True):
            risk += (1 - share) * len(lookup.calls)
        return risk


def _message(answer: dict[str, Any]) -> AIMessage:
    [message] = convert_to_messages([answer])
    assert isinstance(message, AIMessage)
    return message


def _number(lookups: Iterable[Option]) -> int:
    """Return the number of calls of some look-ups."""
    return sum(len(lookup.calls) for lookup in lookups)


@dataclass
class MadeLookup:
    """A look-up that was made, and whether the recorded model makes it too before something changes."""

    call: RecordedCall
    wanted: bool = False


class MadeLookups:
    """The look-ups that were made before the model in one run."""

    def __init__(self, reads: frozenset[str]) -> None:
        self._reads = reads
        self._all: list[MadeLookup] = []
        self._unchanged: dict[RecordedCall, MadeLookup] = {}
        self._of_request: set[RecordedCall] = set()

    def begin(self, turn: RecordedTurn) -> None:
        """Begin a turn: what the user says ends a request."""
        if any(message["role"] == "user" for message in turn.before):
            self._of_request.clear()

    def add(self, lookup: Option) -> None:
        """Note a look-up."""
        for args in lookup.calls:
            call = (lookup.tool, canon_args(args))
            made = MadeLookup(call)
            self._all.append(made)
            self._unchanged[call] = made
            self._of_request.add(call)

    def remove(self, lookup: Option) -> None:
        """Note that a look-up leaves the history."""
        for args in lookup.calls:
            call = (lookup.tool, canon_args(args))
            self._unchanged.pop(call, None)
            self._of_request.discard(call)

    def covers(self, turn: RecordedTurn) -> bool:
        """Return True if a turn consists of look-ups that were made for this request."""
        calls = _calls_in(turn)
        return bool(calls) and self._of_request.issuperset(calls)

    def follow(self, turn: RecordedTurn) -> None:
        """Note the calls of the recorded model: after a change, results are no longer valid."""
        calls = _calls_in(turn)
        for call in calls:
            if call in self._unchanged:
                self._unchanged[call].wanted = True
        if any(tool not in self._reads for tool, _ in calls):
            self._unchanged.clear()
            self._of_request.clear()

    def in_vain(self) -> list[str]:
        """Return the tools of the look-ups that the recorded model does not make."""
        return [made.call[0] for made in self._all if not made.wanted]


def _is_within(turn: RecordedTurn, lookups: Iterable[Option]) -> bool:
    """Return True if some look-ups contain the calls of a turn."""
    calls = {(lookup.tool, canon_args(args)) for lookup in lookups for args in lookup.calls}
    return calls.issuperset(_calls_in(turn))


def _calls_in(turn: RecordedTurn) -> list[RecordedCall]:
    return [(tool, canon_args(args)) for tool, args in calls_of(turn.answer)]


@dataclass
class Figures:
    """Counts of one pass.

    Attributes:
        turns, lookup_turns: model turns, and those that consist of look-ups.
        saved: look-up turns that were made before the model was asked, and that it made in the recording.
        in_vain: look-ups that it did not make there.
        taken_out: steps that leave the history, because the model makes them again. A turn that they would have saved
            does not count as saved.
        held_out: requests whose look-ups were held out.
        shortcut: [right, wrong] calls that the shortcut makes on the same set without this feature.
        tokens_saved, tokens_added: of input, at CHARS_PER_TOKEN.
        cpu_seconds: processor time of what the look-ups add: choosing them, and the prediction after each.
        seconds, seconds_plain: at MODEL_SECONDS a model call and TOOL_SECONDS a step of tools.
    """

    turns: int = 0
    lookup_turns: int = 0
    saved: int = 0
    in_vain: int = 0
    taken_out: int = 0
    held_out: int = 0
    shortcut: list[int] = field(default_factory=lambda: [0, 0])
    tokens_saved: float = 0
    tokens_added: float = 0
    cpu_seconds: float = 0
    seconds: float = 0
    seconds_plain: float = 0


class Pass:
    """Plays recorded runs through a memory that makes look-ups before the model."""

    def __init__(self, memory: ToolMemory, reads: frozenset[str], settings: PrefetchedContext, system: str | None):
        self.memory, self.reads, self.settings = memory, reads, settings
        self.policy = InertiaPolicy()
        self.seen: ModelInput = given_input(system, None, ())
        self.figures = Figures()
        self._sizes: dict[str, list[int]] = {}
        self._results: dict[tuple[str, str], str] = {}
        self._made = 0
        self._specs = memory.core.catalogue.marked(None)
        self.fates = Fates(memory, reads, self.seen, self._may, settings.min_probability)

    def run(self, recorded: list[dict[str, Any]], thread: str) -> None:
        """Play one run. Look-ups that were made before the model call have the memory's mark in its history."""
        turns = turns_of(recorded)
        self.figures.turns += len(turns)
        for turn in turns:
            self._count(turn)
        history: list[dict[str, Any]] = []
        made = MadeLookups(self.reads)
        place = 0
        while place < len(turns):
            turn = turns[place]
            history += turn.before
            made.begin(turn)
            if made.covers(turn):
                # The model has read these results, so it is not asked for them.
                self._saved(history, 1)
                made.follow(turn)
                place += 1
            else:
                place = self._asked(history, turns, place, thread, made)
        in_vain = made.in_vain()
        self.figures.in_vain += len(in_vain)
        self.figures.tokens_added += sum(map(self._size, in_vain)) / CHARS_PER_TOKEN
        self.memory.finish(history, thread_id=thread)

    def _asked(
        self, history: list[dict[str, Any]], turns: Sequence[RecordedTurn], place: int, thread: str, made: MadeLookups
    ) -> int:
        """Play one request to the model, put what it leaves in the history, and return the place of the next turn."""
        inertia, figures = self.memory.inertia, self.figures
        decision = inertia.begin_turn(
            history, owner=Owner(thread), policy=InertiaPolicy(shadow=True), model_input=self.seen
        )
        self._count_shortcut(turns[place], decision)
        exchange = self._look_up(history, decision, thread)
        for lookup in exchange.steps:
            made.add(lookup)
        covered = 0
        while self._goes_on(turns, place, covered) and made.covers(turns[place + covered]):
            made.follow(turns[place + covered])
            covered += 1
        if not self._goes_on(turns, place, covered):
            # The user speaks next: the recording does not have the model's answer.
            self._saved(history, covered)
            history += chain.from_iterable(exchange.messages)
            return place + covered
        turn = turns[place + covered]
        self._lost(exchange, history, thread, turn)
        kept = exchange.used(turn.answer)
        for lookup in exchange.steps[kept:]:
            made.remove(lookup)
        figures.taken_out += len(exchange.steps) - kept
        asked_again = 0
        for each in turns[place : place + covered]:
            asked_again += not _is_within(each, exchange.steps[:kept])
        self._saved(history, covered - asked_again)
        figures.seconds += asked_again * (MODEL_SECONDS + TOOL_SECONDS)
        if exchange.steps:
            risk = exchange.risk(turn.answer)
            with self._timed():
                inertia.looked_up(_number(exchange.steps), risk, _number(exchange.steps[kept:]))
        history += chain.from_iterable(exchange.messages[:kept])
        if kept < len(exchange.steps):
            inertia.shown(history, owner=Owner(thread))
        made.follow(turn)
        history += [turn.answer, *turn.results]
        return place + covered + 1

    @staticmethod
    def _goes_on(turns: Sequence[RecordedTurn], place: int, covered: int) -> bool:
        """Return True if the request to the model at a place goes on after some turns."""
        after = place + covered
        return after < len(turns) and (not covered or not turns[after].before)

    def _look_up(self, history: list[dict[str, Any]], decision: Decision, thread: str) -> Exchange:
        """Make the look-ups before a request."""
        inertia, settings, exchange = self.memory.inertia, self.settings, Exchange([decision])
        least = inertia.context.least_probability(settings)
        while len(exchange.steps) < settings.max_steps:
            with self._timed():
                lookup = next_lookup(inertia.lookups(exchange.decisions[-1]), self._may)
            if lookup is None or exchange.probability * lookup.probability < least:
                break
            exchange.held_out = not exchange.steps and not self._begins(history, lookup, thread)
            if exchange.held_out:
                break
            exchange.probability *= lookup.probability
            self.figures.seconds += TOOL_SECONDS
            exchange.steps.append(lookup)
            exchange.messages.append(self._exchange_of(lookup))
            with self._timed():
                after = inertia.foresee(
                    [*history, *chain.from_iterable(exchange.messages)],
                    owner=Owner(thread),
                    policy=self.policy,
                    tools=None,
                    model_input=self.seen,
                )
            exchange.decisions.append(after)
        return exchange

    def _lost(self, exchange: Exchange, history: list[dict[str, Any]], thread: str, turn: RecordedTurn) -> None:
        """Count a turn that the model makes."""
        no_step = len(exchange.steps) == self.settings.max_steps
        decision, probability = exchange.decisions[-1], exchange.probability
        self.fates.lost(Asked(history, thread, decision, probability, exchange.held_out, no_step), turn.answer)
        self.figures.seconds += MODEL_SECONDS + TOOL_SECONDS * bool(turn.results)

    def _saved(self, history: Sequence[dict[str, Any]], turns: int) -> None:
        """Count turns for which the model was not asked."""
        for _ in range(turns):
            self.figures.saved += 1
            self.fates.saved()
            self.figures.tokens_saved += len(json.dumps(history)) / CHARS_PER_TOKEN

    def _exchange_of(self, lookup: Option) -> list[dict[str, Any]]:
        """Return the exchange of a look-up, with its result in this run or in another one."""
        calls, results = [], []
        for args in lookup.calls:
            self._made += 1
            call_id, text = f"looked_up_{self._made}", canon_args(args)
            function = {"name": lookup.tool, "arguments": json.dumps(dict(args), default=str)}
            calls.append({"id": call_id, "type": "function", "function": function})
            content = self._results.get((lookup.tool, text), "{}")
            results.append({"role": "tool", "tool_call_id": call_id, "name": lookup.tool, "content": content})
        return [{"role": "assistant", "content": "", "tool_calls": calls, **BY_CONTEXT}, *results]

    def _begins(self, history: Sequence[dict[str, Any]], lookup: Option, thread: str) -> bool:
        inertia = self.memory.inertia
        with self._timed():
            held_out = inertia.holds_out(history, lookup, self.settings, owner=Owner(thread))
        self.figures.held_out += held_out
        return not held_out

    def _count(self, turn: RecordedTurn) -> None:
        figures, calls = self.figures, turn.answer.get("tool_calls") or []
        figures.seconds_plain += MODEL_SECONDS + TOOL_SECONDS * bool(turn.results)
        figures.lookup_turns += bool(calls) and all(call["function"]["name"] in self.reads for call in calls)
        functions = {call["id"]: call["function"] for call in calls}
        for result in turn.results:
            if (function := functions.get(result["tool_call_id"])) is not None:
                content = as_text(result.get("content") or "")
                self._sizes.setdefault(function["name"], []).append(len(content))
                self._results[function["name"], canon_args(json.loads(function["arguments"] or "{}"))] = content

    def _count_shortcut(self, turn: RecordedTurn, decision: Decision) -> None:
        proposal = decision.proposal
        if proposal is not None and decision.would_act and proposal.tool in self.reads:
            best = Option(proposal.tool, proposal.calls, proposal.confidence)
            self.figures.shortcut[0 if is_next(best, turn.answer) else 1] += 1

    def _size(self, tool: str) -> float:
        return median(self._sizes.get(tool) or [0])

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the processor time of a block."""
        begun = time.thread_time()
        yield
        self.figures.cpu_seconds += time.thread_time() - begun

    def _may(self, tool: str, args: Mapping[str, Any]) -> bool:
        return tool in self.reads and self._specs[tool].problem(args) is None


@dataclass(frozen=True)
class RecordedTurn:
    """One turn of the model: what came before it since the last one, its answer, and the results of its calls."""

    before: list[dict[str, Any]]
    answer: dict[str, Any]
    results: list[dict[str, Any]]


def turns_of(recorded: Sequence[dict[str, Any]]) -> list[RecordedTurn]:
    """Return the turns of a recorded run; what comes behind the last one is left out."""
    turns: list[RecordedTurn] = []
    before: list[dict[str, Any]] = []
    for message in recorded:
        if message["role"] == "assistant":
            turns.append(RecordedTurn(before, message, []))
            before = []
        elif message["role"] == "tool" and turns and not before:
            turns[-1].results.append(message)
        else:
            before.append(message)
    return turns


def work(job: Job) -> dict[str, Any]:
    """Play one set, shuffled, through a memory that starts empty."""
    folder = Path(job.data) / job.name
    tools, reads = load(folder / "tools.json"), declared(folder)
    lines = (folder / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()
    runs = [json.loads(line) for line in lines if line.strip()]
    random.Random(job.seed).shuffle(runs)
    system = PROMPTS.get(job.name)
    with ToolMemory.ephemeral(methods=[Inertia()], tools=tools, reads=reads) as memory:
        played = Pass(memory, reads, job.settings, system)
        for number, run in enumerate(runs[: job.limit]):
            played.run(run["messages"], f"{number}-{run['id']}")
        record = memory.inertia.context.figures()
    return {
        "set": job.name,
        "min_probability": job.settings.min_probability,
        **asdict(played.figures),
        "fates": dict(played.fates.counts),
        "details": dict(played.fates.details.most_common()),
        "record": record,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = command("context", __doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="folders with recorded runs")
    parser.add_argument("--thresholds", nargs="+", type=float, default=[0.5, 0.3])
    parser.add_argument("--steps", type=int, default=4, help="look-ups one after the other")
    parser.add_argument("--seed", type=int, default=1, help="of the shuffle")
    parser.add_argument("--limit", type=int, help="only the first so many runs of each set")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--lost", action="store_true", help="show where the look-up turns that are not saved are lost")
    given = parser.parse_args(arguments)
    jobs = []
    for name in present(given, given.sets):
        for least in given.thresholds:
            vain = PrefetchedContext.max_in_vain if least >= PrefetchedContext.min_probability else LOOSE
            settings = PrefetchedContext(min_probability=least, max_in_vain=vain, max_steps=given.steps)
            jobs.append(Job(str(given.data), name, settings, given.seed, given.limit))
    found = list(done(work, jobs, given.processes, "replaying"))
    table = Table(title="Per 100 model turns", title_justify="left")
    heads = ("set", "p", "turns", "look-ups", "saved", "in vain", "taken out", "held out", "shortcut right / wrong")
    for head in (*heads, "tokens saved", "added", "seconds %", "CPU ms a saved call"):
        table.add_column(head, no_wrap=True)
    checks = []
    for each in found:
        per = 100 / max(1, each["turns"])
        saved, vain = per * each["saved"], per * each["in_vain"]
        right, wrong = (f"{per * number:.1f}" for number in each["shortcut"])
        counts = (each["lookup_turns"], each["saved"], each["in_vain"], each["taken_out"], each["held_out"])
        slower = 100 * (each["seconds"] / max(1, each["seconds_plain"]) - 1)
        tokens = (f"{per * each['tokens_saved']:,.0f}", f"{per * each['tokens_added']:,.0f}")
        shown = [f"{per * number:.1f}" for number in counts]
        least = each["min_probability"]
        cpu = f"{1e3 * each['cpu_seconds'] / max(1, each['saved']):.1f}"
        table.add_row(
            each["set"], f"{least:g}", str(each["turns"]), *shown, f"{right} / {wrong}", *tokens, f"{slower:+.1f}", cpu
        )
        if goal := GOALS.get(least, {}).get(each["set"]):
            text = f"{each['set']} at {least:g}: saved {saved:.1f} >= {goal[0]:g}, in vain {vain:.1f} <= {goal[1]:g}"
            checks.append((saved >= goal[0] and vain <= goal[1], text))
    show(table)
    if given.lost:
        show(table_of_fates(found))
    return conclude(checks, found, given.json)


def table_of_fates(found: Sequence[Mapping[str, Any]]) -> Table:
    """Return the fates of the look-up turns, per 100 model turns."""
    table = Table("set", "p", *FATES, title="Look-up turns per 100 model turns", title_justify="left")
    for each in found:
        per = 100 / max(1, each["turns"])
        shown = [f"{per * each['fates'].get(fate, 0):.1f}" for fate in FATES]
        table.add_row(each["set"], f"{each['min_probability']:g}", *shown)
    return table


if __name__ == "__main__":
    sys.exit(main())
