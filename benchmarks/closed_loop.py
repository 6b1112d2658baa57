"""The memory in the loop it lives in: desks made by a seed, with a model that follows a fixed policy.

``python -m benchmarks.closed_loop``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, NamedTuple

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from rich.table import Column, Table

from benchmarks import command, conclude, done, show
from benchmarks.desks import CONVERSATION, GROUPS, PACE, START, Answer, Call, Desk, Request, World, draw
from langgraph_toolmem import Inertia, InertiaPolicy, Prefetch, PrefetchedContext, ToolMemory
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.inertia.context import next_lookup, shares_made, used_steps
from langgraph_toolmem.inertia.decision import Decision, call_digests
from langgraph_toolmem.inertia.exchange import MARK
from langgraph_toolmem.inertia.prefetch import choose, least_probability
from langgraph_toolmem.inertia.speculative import Interceptors, qualified
from langgraph_toolmem.inertia.step import shortcut_message
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.runs.run import UNSEEN
from langgraph_toolmem.testing import ScriptedChatModel

MODES: Final = ("without", "shadow", "prefetch", "context", "act", "writes", "paper")
"""`act`: the default policy, no changing tool named; `writes`: all of them named; `context`: look-ups are made before
the model is asked."""
MOST_TURNS: Final = 16
MOST_CASES: Final = 20
"""Wrong changes of a desk that the JSON file names."""
BY_POLICY, BY_DEVIATION, LED = "policy", "deviation", "led"
"""Why a change is unasked: the policy demands something else; only the deviating model does; or the model itself made
it, in a state that it does not reach alone."""


# --- what depends on the memory's interface ---


class Clock:
    """The time of the request that is being served."""

    now = START.timestamp()

    def __call__(self) -> float:
        """Return seconds since 1970."""
        return self.now


def policy_of(desk: Desk, mode: str) -> InertiaPolicy:
    """Return the policy of a mode."""
    if mode in ("shadow", "prefetch", "context"):
        return InertiaPolicy(shadow=True)
    if mode == "act":
        return InertiaPolicy()
    make = InertiaPolicy.paper if mode == "paper" else InertiaPolicy
    return make(may_write=desk.writes, allow_destructive=desk.writes)


def open_memory(desk: Desk, mode: str, clock: Clock, *, method: type[Inertia] = Inertia) -> ToolMemory:
    """Return a new memory that knows the desk's tools, and which of them read."""
    memory_options: dict[str, Any] = {"tools": desk.schemas(), "reads": desk.reads, "now": clock}
    return ToolMemory.ephemeral(methods=[method(policy_of(desk, mode), seed=desk.seed)], **memory_options)


def reported(memory: ToolMemory) -> dict[str, Any]:
    """Return what the memory's report says of how often it is right: checks by chance, and their interval."""
    return dict(memory.report()["inertia"]["audits"])


# --- the fast runner ---


class Made(NamedTuple):
    """A change that was made in a run: the call, what the model would have done, and whether the memory made it."""

    call: Call
    why: str
    by: str


@dataclass
class Played:
    """One conversation."""

    turns: int = 0
    asked: int = 0
    made: list[Made] = field(default_factory=list)
    executed: list[Call] = field(default_factory=list)


class Ahead:
    """Look-ups that run while the model is asked, chosen as by the middleware."""

    def __init__(self, desk: Desk, memory: ToolMemory) -> None:
        self._settings = Prefetch()
        self._served = self._wasted = 0
        self._specs = memory.core.catalogue.marked(None)
        tools = {tool.name: tool for tool in real_tools(desk, World(desk))}
        self._may, _ = qualified(tools, self._specs, memory.inertia.policy, self._settings, Interceptors())

    def guesses(self, decision: Decision, act: Call | str) -> list[Call]:
        """Return the calls that run ahead of this turn, and book those that the model asks for."""
        least = least_probability(self._settings, self._served, self._wasted)

        def may(tool: str, args: Any) -> bool:
            return tool in self._may and self._specs[tool].problem(args) is None

        found = choose(decision.predicted, least, may)
        calls = [Call(guess.tool, dict(guess.args)) for guess in found]
        self._served += sum(call == act for call in calls)
        self._wasted += sum(call != act for call in calls)
        return calls


class Shown(NamedTuple):
    """The look-ups that the model reads in its request, made before it was asked.

    Attributes:
        steps: per step its calls.
        messages: per step its messages.
        wrong: True if the model alone would not make one of them there.
        decisions: before each step, and after the last one.
        probabilities: of each step.
    """

    steps: list[list[Call]]
    messages: list[list[BaseMessage]]
    wrong: bool
    decisions: list[Decision]
    probabilities: list[float]


class Reader(NamedTuple):
    """A model's way with look-ups that it did not ask for.

    Attributes:
        led: probability that a wrong one leads it to the change of its kind of request.
        ignores: probability that it acts as if it had read none.
    """

    led: float = 0.0
    ignores: float = 0.0


class Before:
    """Look-ups that are made before the model is asked, chosen as at the model of an agent."""

    def __init__(self, desk: Desk, memory: ToolMemory, settings: PrefetchedContext) -> None:
        self.desk, self.memory, self.settings = desk, memory, settings
        self._specs = memory.core.catalogue.marked(None)

    def look_up(self, request: Request, messages: list[BaseMessage], decision: Decision, world: World) -> Shown:
        """Make the likely look-ups."""
        inertia, settings, thread = self.memory.inertia, self.settings, str(request.number)
        seen, shown, probability, wrong = list(messages), Shown([], [], False, [decision], []), 1.0, False

        least = inertia.context.least_probability(settings)

        def may(tool: str, args: Any) -> bool:
            return tool in self.desk.reads and self._specs[tool].problem(args) is None

        while len(shown.steps) < settings.max_steps:
            lookup = next_lookup(inertia.lookups(shown.decisions[-1]), may)
            if lookup is None or probability * lookup.probability < least:
                break
            if not shown.steps and inertia.holds_out(seen, lookup, settings, owner=Owner(thread)):
                break
            probability *= lookup.probability
            shown.probabilities.append(lookup.probability)
            calls = [Call(lookup.tool, dict(args)) for args in lookup.calls]
            wrong = wrong or [self.desk.answer(request, seen).act] != calls
            step = self._executed(calls, f"{request.number}-{len(seen)}", world)
            shown.steps.append(calls)
            shown.messages.append(step)
            seen += step
            after = inertia.foresee(seen, owner=Owner(thread), policy=inertia.policy, tools=None, model_input=UNSEEN)
            shown.decisions.append(after)
        return shown._replace(wrong=wrong)

    @staticmethod
    def _executed(calls: list[Call], name: str, world: World) -> list[BaseMessage]:
        asked: list[Any] = [
            {"name": call.tool, "args": call.args, "id": f"b-{name}-{index}"} for index, call in enumerate(calls)
        ]
        mark = {MARK: {"by": "context"}}
        answer = AIMessage("", id=f"b{name}", tool_calls=asked, additional_kwargs=mark)
        results = [
            ToolMessage(world.execute(call), name=call.tool, tool_call_id=each["id"])
            for call, each in zip(calls, asked, strict=True)
        ]
        return [answer, *results]

    def used(self, request: Request, messages: list[BaseMessage], shown: Shown, answer: AIMessage) -> int:
        """Return how many of the steps stay in the history, and note it."""
        inertia, thread = self.memory.inertia, str(request.number)
        steps = [call_digests(calls[0].tool, [call.args for call in calls]) for calls in shown.steps]
        used = used_steps(steps, answer)
        shares = shares_made(shown.decisions, shown.probabilities, answer)
        risk = sum((1 - share) * len(step) for share, step in zip(shares, steps, strict=True))
        inertia.looked_up(sum(map(len, steps)), risk, sum(map(len, steps[used:])))
        kept = [message for step in shown.messages[:used] for message in step]
        if used < len(steps):
            inertia.shown([*messages, *kept], owner=Owner(thread))
        return used


class Loop:
    """Plays a desk's requests with a memory, and without, and counts what differs.

    Args:
        desk: the desk.
        mode: one of `MODES`.
        method: the class of the method, for tests.
        reader: the model's way with look-ups made before it is asked.
        settings: of these look-ups.
    """

    def __init__(
        self,
        desk: Desk,
        mode: str,
        *,
        method: type[Inertia] = Inertia,
        reader: Reader = Reader(),  # noqa: B008 - a constant
        settings: PrefetchedContext | None = None,
    ) -> None:
        self.desk, self.mode, self._method = desk, mode, method
        self.reader, self.settings = reader, settings or PrefetchedContext()
        self.count, self.unasked, self.wrong, self.ahead = (Counter[str]() for _ in range(4))
        self.cases: list[dict[str, Any]] = []
        self._before: Before | None = None
        self.executed: list[list[Call]] = []

    def run(self) -> dict[str, Any]:
        """Play all requests and return the figures."""
        if self.mode == "without":
            return self._run(None, Clock())
        clock = Clock()
        with open_memory(self.desk, self.mode, clock, method=self._method) as memory:
            found = self._run(memory, clock)
            return found | {"reported": reported(memory)}

    def _run(self, memory: ToolMemory | None, clock: Clock) -> dict[str, Any]:
        alone, world = World(self.desk), World(self.desk)
        ahead = Ahead(self.desk, memory) if memory is not None and self.mode == "prefetch" else None
        context = memory is not None and self.mode == "context"
        self._before = Before(self.desk, memory, self.settings) if memory is not None and context else None
        for request in self.desk.requests:
            clock.now = (START + request.number * PACE).timestamp()
            before = self.play(request, alone)
            after = before if memory is None else self.play(request, world, memory, ahead)
            self._compare(before, after)
            self.count["states"] += world.changes != alone.changes and memory is not None
            world.changes = dict(alone.changes)
            self.executed.append(after.executed)
        parts = {"count": self.count, "unasked": self.unasked, "wrong": self.wrong, "ahead": self.ahead}
        plain = {name: dict(counted) for name, counted in parts.items()}
        return {"seed": self.desk.seed, "tools": len(self.desk.tools), **plain, "wrong_writes": self.cases}

    def play(
        self, request: Request, world: World, memory: ToolMemory | None = None, ahead: Ahead | None = None
    ) -> Played:
        """Play one conversation."""
        desk, played, number, began = self.desk, Played(), request.number, len(world.executed)
        messages: list[BaseMessage] = [HumanMessage(desk.opening(request), id=f"u{number}-0")]
        while played.turns < MOST_TURNS:
            turn = played.turns = played.turns + 1
            answer, decision = desk.answer(request, messages), None
            if memory is not None:
                decision = memory.inertia.begin_turn(messages, owner=Owner(str(number)))
            if memory is not None and self._before is not None and decision is not None:
                answer = self._before_model(request, messages, decision, world, played)
            early = [] if ahead is None or decision is None else ahead.guesses(decision, answer.act)
            results = {call.key: world.execute(call) for call in early}
            for call in early:
                self.ahead["served" if call == answer.act else "wasted"] += 1
                if call.tool in desk.writes:
                    played.made.append(Made(call, answer.why, LED if call == answer.act else BY_POLICY))
            by = None if self._before is not None else self._judged(decision, answer, number)
            played.asked += by is None
            message = model_message(answer.act, f"m{number}-{turn}")
            if by is not None and decision is not None and decision.proposal is not None:
                message = shortcut_message(decision.proposal, announce=self.mode == "paper")
                message.id = f"m{number}-{turn}"
            messages.append(message)
            for asked in message.tool_calls:
                call = Call(asked["name"], asked["args"])
                result = results.get(call.key) or world.execute(call)
                messages.append(ToolMessage(result, name=call.tool, tool_call_id=asked["id"]))
                if call.tool in desk.writes and call.key not in results:
                    played.made.append(Made(call, answer.why, by or LED))
            if not message.tool_calls:
                reply = desk.reply(request, messages)
                if reply is None:
                    break
                messages.append(HumanMessage(reply, id=f"u{number}-{turn}"))
        if memory is not None:
            memory.finish(messages, thread_id=str(number))
        played.executed = world.executed[began:]
        return played

    def _before_model(
        self, request: Request, messages: list[BaseMessage], decision: Decision, world: World, played: Played
    ) -> Answer:
        """Put the look-ups before the model that stay into the history; return what the model does."""
        desk, before = self.desk, self._before
        assert before is not None
        shown = before.look_up(request, messages, decision, world)
        if not shown.steps:
            return desk.answer(request, messages)
        self.count["exchanges"] += 1
        at = (desk.seed, request.number, len(messages))
        read = [] if draw(*at, "ignores") < self.reader.ignores else [m for step in shown.messages for m in step]
        answer = desk.answer(request, [*messages, *read])
        write = desk.kinds[request.kind].write
        if shown.wrong and read and write and draw(*at, "led") < self.reader.led:
            answer = Answer(desk.call_of(request, write), answer.rule, "astray")
        used = before.used(request, messages, shown, model_message(answer.act, "asked"))
        for step in shown.messages[:used]:
            messages += step
            played.turns += 1
        self.count["given_out"] += used
        self.count["taken_out"] += len(shown.steps) - used
        return answer

    def _judged(self, decision: Decision | None, answer: Answer, number: int) -> str | None:
        """Count a proposal as right or wrong. Return None if the model is asked, else who a wrong call is due to."""
        if decision is None or not decision.would_act or decision.proposal is None:
            return None
        proposed = [Call(decision.proposal.tool, dict(args)) for args in decision.proposal.calls]
        right, kind = proposed == [answer.act], "acted" if decision.acts else "checks"
        self.count.update({kind: 1, f"{kind}_right": int(right)})
        if not decision.acts:
            return None
        by = LED if right else BY_DEVIATION if proposed == [answer.rule] else BY_POLICY
        if not right:
            if len(self.cases) < MOST_CASES and proposed[0].tool in self.desk.writes:
                self.cases.append(
                    {"request": number, "why": answer.why, "by": by, "made": proposed, "instead": answer.act}
                )
            self.wrong[f"{'write' if proposed[0].tool in self.desk.writes else 'read'} {answer.why} {by}"] += 1
        return by

    def _compare(self, alone: Played, after: Played) -> None:
        """Count what the memory changed in one conversation."""
        count, desk = self.count, self.desk
        count.update(requests=1, alone=alone.asked, asked=after.asked, turns=after.turns)
        extra = Counter(made.call.key for made in after.made) - Counter(made.call.key for made in alone.made)
        count["missing"] += len(alone.made) - len(after.made) + extra.total()
        for made in sorted(after.made, key=lambda each: (BY_POLICY, BY_DEVIATION, LED).index(each.by)):
            if extra[made.call.key]:
                extra[made.call.key] -= 1
                self.unasked[f"{made.why} {made.by}"] += 1
        looks = [Counter(c.key for c in each.executed if c.tool in desk.reads) for each in (after, alone)]
        count["looks"] += (looks[0] - looks[1]).total()


# --- the real runner ---


def real_tools(desk: Desk, world: World) -> list[BaseTool]:
    """Return the desk's tools as LangChain tools that work on a world."""

    def tool(schema: dict[str, Any]) -> BaseTool:
        name, parameters = schema["name"], schema["parameters"]

        def execute(**arguments: Any) -> str:
            return world.execute(Call(name, arguments))

        return StructuredTool.from_function(
            execute, name=name, description=schema["description"], args_schema=parameters, infer_schema=False
        )

    return [tool(each["function"]) for each in desk.schemas()]


def model_message(act: Call | str, name: str) -> AIMessage:
    """Return the model's act as a message with this id."""
    calls = [] if isinstance(act, str) else [{"name": act.tool, "args": act.args, "id": f"c-{name}"}]
    return AIMessage(act if isinstance(act, str) else "", id=name, tool_calls=calls)


def play_real(desk: Desk, mode: str, *, method: type[Inertia] = Inertia) -> list[list[Call]]:
    """Play a desk's requests with `create_agent` and the middleware; return the calls executed for each request."""
    reference, world, clock, found = World(desk), World(desk), Clock(), list[list[Call]]()
    alone, serving = Loop(desk, "without"), desk.requests[0]

    def model(messages: list[BaseMessage], _tools: Any) -> AIMessage:
        return model_message(desk.answer(serving, messages).act, f"m{serving.number}-{len(messages)}")

    with open_memory(desk, mode, clock, method=method) as memory:
        how: dict[str, Any] = {"shortcut": False, mode: True} if mode in ("prefetch", "context") else {}
        middleware = tool_memory_middleware(memory, outer=[], **how)
        agent = create_agent(ScriptedChatModel(script=model), real_tools(desk, world), middleware=middleware)
        for serving in desk.requests:
            clock.now = (START + serving.number * PACE).timestamp()
            config: RunnableConfig = {"configurable": {"thread_id": str(serving.number)}, "recursion_limit": 200}
            began, messages = len(world.executed), list[BaseMessage]()
            said: str | None = desk.opening(serving)
            while said:
                state: Any = {"messages": [*messages, HumanMessage(said)]}
                messages = agent.invoke(state, config)["messages"]
                said = desk.reply(serving, messages)
            memory.finish(messages, thread_id=str(serving.number))
            found.append(world.executed[began:])
            alone.play(serving, reference)
            world.changes = dict(reference.changes)
    return found


def agreement(desk: Desk, mode: str, *, method: type[Inertia] = Inertia) -> dict[str, Any]:
    """Return on how many requests both runners execute the same calls."""
    fast, real = Loop(desk, mode, method=method), play_real(desk, mode, method=method)
    fast.run()
    keys = [[[call.key for call in calls] for calls in each] for each in (fast.executed, real)]
    if mode == "prefetch":  # a look-up that runs ahead is given up where the model was faster
        keys = [[[key for key in calls if key.split()[0] in desk.writes] for calls in each] for each in keys]
    return {
        "mode": mode, "seed": desk.seed, "requests": len(real),
        "same": sum(a == b for a, b in zip(*keys, strict=True)),
        "executed": dict(Counter(call.tool for calls in real for call in calls)),
    }  # fmt: skip


# --- many desks ---


class Job(NamedTuple):
    """One desk in one mode."""

    mode: str
    deviation: float
    seed: int
    requests: int
    groups: tuple[str, ...]
    real: bool = False
    reader: Reader = Reader()
    settings: PrefetchedContext = PrefetchedContext()

    def _played(self, desk: Desk) -> dict[str, Any]:
        return Loop(desk, self.mode, reader=self.reader, settings=self.settings).run()

    def do(self) -> dict[str, Any]:
        """Return the desk's figures, or the agreement of the two runners."""
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            desk = Desk(self.seed, self.requests, deviation=self.deviation, groups=self.groups)
            return agreement(desk, self.mode) if self.real else self._played(desk)
        finally:
            logging.disable(before)


def summary(mode: str, deviation: float, desks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of a mode over all desks."""

    def total(name: str) -> Counter[str]:
        return sum((Counter(each[name]) for each in desks), Counter())

    count, unasked, wrong = total("count"), total("unasked"), total("wrong")
    per_100, per_10_000 = 100 / max(count["turns"], 1), 1e4 / max(count["requests"], 1)
    acting = [each for each in desks if each["count"].get("acted")]
    shown = [(each["count"], (each["reported"]["low"], each["reported"]["high"])) for each in acting]

    def wrongs(*parts: str) -> int:
        return sum(n for name, n in wrong.items() if set(parts) <= set(name.split()))

    return {
        "mode": f"{mode} {deviation:.0%}",
        "requests": count["requests"],
        "turns": count["turns"],
        "saved_percent": 100 * (1 - count["asked"] / max(count["alone"], 1)),
        "unasked_per_10_000": per_10_000 * unasked.total(),
        "unasked_by_group": {
            group: round(per_10_000 * sum(n for name, n in unasked.items() if name.split()[0] in kinds), 1)
            for group, kinds in {**GROUPS, "conversation": CONVERSATION, "none": ("main", "end")}.items()
        },
        "left_out_per_10_000": per_10_000 * count["missing"],
        "wrong_writes_by_policy_per_10_000": per_10_000 * wrongs("write", BY_POLICY),
        "wrong_reads_per_100": per_100 * wrongs("read"),
        "extra_looks_per_100": per_100 * count["looks"],
        "states_that_differ_percent": per_10_000 / 100 * count["states"],
        "acted": count["acted"],
        "checks": count["checks"],
        "checks_right": count["checks_right"],
        "desks_covered_by_report": covered(shown),
        "exchanges": count["exchanges"],
        "given_out": count["given_out"],
        "taken_out": count["taken_out"],
        "ahead": dict(total("ahead")),
        "unasked": {name: per_10_000 * n for name, n in unasked.most_common()},
        "wrong": {name: per_100 * n for name, n in wrong.most_common()},
    }


def covered(desks: Sequence[tuple[dict[str, int], tuple[float, float]]]) -> list[int]:
    """Return on how many desks the interval has the true share of calls that were right, and of how many."""
    right = [low <= count["acted_right"] / count["acted"] <= high for count, (low, high) in desks]
    return [sum(right), len(right)]


def show_all(found: Sequence[dict[str, Any]]) -> None:
    """Print the figures, a column per mode; then unasked changes and wrong calls by the branch that decided."""

    def text(value: Any) -> str:
        if isinstance(value, list):
            value = " of ".join(map(str, value))
        if isinstance(value, dict):
            value = ", ".join(f"{name} {n}" for name, n in value.items())
        return "-" if value in (None, "") else f"{value:,.2f}" if isinstance(value, float) else str(value)

    heads = [each["mode"] for each in found]
    table = Table(Column(no_wrap=True), *heads)
    for name in list(found[0])[1:-2]:
        table.add_row(name, *(text(each[name]) for each in found))
    show(table)
    for part, title in (("unasked", "unasked per 10,000 requests"), ("wrong", "wrong per 100 turns")):
        table = Table(title, *heads)
        for kind in dict.fromkeys(kind for each in found for kind in each[part]):
            table.add_row(kind, *(text(float(each[part].get(kind, 0))) for each in found))
        show(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = command("closed_loop", __doc__, recorded=False)
    parser.add_argument("--desks", type=int, default=100)
    parser.add_argument("--requests", type=int, default=300, help="to each desk")
    parser.add_argument("--first", type=int, default=0, help="seed of the first desk")
    parser.add_argument("--deviation", type=float, nargs="+", default=[0.0], help="shares of the model's turns")
    parser.add_argument(
        "--led", type=float, default=0.0, help="probability that a wrong look-up leads the model astray"
    )
    parser.add_argument("--ignores", type=float, default=0.0, help="probability that the model ignores the look-ups")
    parser.add_argument("--min-probability", type=float, default=PrefetchedContext.min_probability)
    parser.add_argument("--max-in-vain", type=float, default=PrefetchedContext.max_in_vain)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["without", "shadow", "prefetch", "act", "writes"])
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS), help="kinds of conditions")
    parser.add_argument("--real", type=int, default=0, help="requests per desk to play with create_agent as well")
    parser.add_argument("--real-desks", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(arguments)
    groups, real = tuple(given.groups), list[dict[str, Any]]()
    found, each_desk = list[dict[str, Any]](), list[dict[str, Any]]()
    seeds = range(given.first, given.first + given.desks)
    reader = Reader(given.led, given.ignores)
    least, vain = given.min_probability, given.max_in_vain
    settings_of_context = PrefetchedContext(min_probability=least, max_in_vain=vain)
    for deviation, mode in product(given.deviation, given.modes):
        shared: Any = {"reader": reader, "settings": settings_of_context}
        jobs = [Job(mode, deviation, seed, given.requests, groups, **shared) for seed in seeds]
        desks = list(done(Job.do, jobs, given.workers, f"{mode} {deviation:.0%}"))
        each_desk += [{"mode": mode, "deviation": deviation, **desk} for desk in desks]
        found.append(summary(mode, deviation, desks))
    show_all(found)
    if given.real:
        modes = [mode for mode in given.modes if mode != "without"]
        each_job = product(modes, given.deviation, seeds[: given.real_desks])
        jobs = [Job(mode, deviation, seed, given.real, groups, real=True) for mode, deviation, seed in each_job]
        for each in done(Job.do, jobs, given.workers, "with create_agent"):
            real.append(each)
            print(f"{each['mode']}, desk {each['seed']}: {each['same']} of {each['requests']} requests agree")
    settings = {name: value for name, value in vars(given).items() if name != "json"}
    return conclude([], {"settings": settings, "modes": found, "desks": each_desk, "real": real}, given.json)


if __name__ == "__main__":
    sys.exit(main())
