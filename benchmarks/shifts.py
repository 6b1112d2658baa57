"""What the shortcut does where the past is no guide: unfamiliar requests, a model that wavers or changes its mind.

``python -m benchmarks.shifts``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from rich.console import Console
from rich.table import Table

from benchmarks.measures import declared
from benchmarks.replay import DATA
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.novelty import NoveltyRecord
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.step import shortcut_message
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.offline.replay import is_right, replay
from langgraph_toolmem.runs.logs import LoggedRun, load_runs
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.runs.trajectory import parse_run

SET: Final = "workbench_gpt4"
KINDS: Final = 12
NAMES: Final = ("Ana", "Bilal", "Chloe", "Dmitri", "Emeka", "Farah", "Greta", "Hiro", "Ines", "Jonas", "Keiko", "Lars")
NOUNS: Final = (
    "order",
    "invoice",
    "ticket",
    "parcel",
    "claim",
    "lease",
    "permit",
    "course",
    "asset",
    "shift",
    "lead",
    "visa",
)
READS: Final = ("find", "get", "list", "read")
Call = tuple[str, dict[str, str]]


@dataclass(frozen=True)
class Tally:
    """Model turns looked at, calls made without the model that were right and wrong, and those that were not made.

    `right` and `wrong` are against what the model does there when it does not waver.
    """

    turns: int = 0
    right: int = 0
    wrong: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        """Turns, right and wrong per 100 of them, precision."""
        made, turns = self.right + self.wrong, max(1, self.turns)
        precision = f"{self.right / made:.3f}" if made else "-"
        return (str(self.turns), f"{100 * self.right / turns:.2f}", f"{100 * self.wrong / turns:.2f}", precision)


# --- unfamiliar requests ------------------------------------------------------------------------------------


def unfamiliar(folder: Path, seed: int, limit: int | None) -> Iterator[tuple[str, Tally]]:
    """Half of the templates, three quarters of their runs, are the history; then others are asked, and not learned."""
    lines = (folder / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()
    template = {run["id"]: run["template"] for run in map(json.loads, lines)}
    tools = json.loads((folder / "tools.json").read_text(encoding="utf-8"))
    draw = random.Random(seed)
    kinds = sorted(set(template.values()))
    draw.shuffle(kinds)
    known = set(kinds[: len(kinds) // 2])
    runs = list(load_runs(folder / "trajectories.jsonl").runs)
    draw.shuffle(runs)
    like = [run for run in runs if template[run.thread_id] in known]
    others = [run for run in runs if template[run.thread_id] not in known][:limit]
    history, held = like[: len(like) * 3 // 4], like[len(like) * 3 // 4 :][:limit]
    every = frozenset(read_tools(tools))
    for named, policy in (
        ("reads", InertiaPolicy()),
        ("reads and writes", InertiaPolicy(may_write=every, allow_destructive=every)),
    ):
        inertia = Inertia()
        with ToolMemory.ephemeral(tools=tools, reads=declared(folder), methods=[inertia]) as memory:
            replay(history, policy=policy, memory=memory)
            for guarded in (True, False):
                guard = nullcontext() if guarded else mock.patch.object(NoveltyRecord, "refusal", return_value="")
                with guard:
                    label = f"{named}, {'guarded' if guarded else 'not guarded'}"
                    yield f"unfamiliar, {label}", _asked(inertia, others, policy)
                    yield f"known, {label}", _asked(inertia, held, policy)


def _asked(inertia: Inertia, runs: Sequence[LoggedRun], policy: InertiaPolicy) -> Tally:
    turns = right = wrong = 0
    policy = policy.with_(audit_rate=0.0)
    for run in runs:
        state = RunState()
        for event in parse_run(run.messages, thread_id=run.thread_id).events:
            if isinstance(event, Turn):
                decision, _ = inertia.decide(state, thought="", policy=policy, user=None)
                turns += 1
                if decision.acts:
                    hit = is_right(event, decision)
                    right, wrong = right + hit, wrong + (not hit)
            state.push(event)
    return Tally(turns, right, wrong)


# --- a model that wavers, a model that changes its mind ---------------------------------------------------------


class Desk:
    """Requests of KINDS kinds, each a chain of two to four look-ups that the model makes in the same way every time.

    Args:
        seed: of all that is drawn.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.tools = [f"{verb}_{noun}" for verb in READS for noun in NOUNS]
        self.chains = [self.draw.sample(self.tools, self.draw.randint(2, 4)) for _ in range(KINDS)]
        self.wordings = [" then ".join(chain).replace("_", " the ") for chain in self.chains]

    def schemas(self) -> list[dict[str, Any]]:
        """The tools in OpenAI's format."""
        target = {"type": "object", "properties": {"target": {"type": "string"}}, "required": ["target"]}
        return [
            {"type": "function", "function": {"name": name, "description": f"Looks up: {name}.", "parameters": target}}
            for name in self.tools
        ]

    def request(self) -> tuple[int, str, str]:
        """Kind, text and name of the next request."""
        kind, name = self.draw.randrange(KINDS), f"{self.draw.choice(NAMES)} {self.draw.choice(NOUNS).title()}son"
        return kind, f"Please {self.wordings[kind]} of {name}.", name

    def steps(self, kind: int, name: str) -> list[tuple[Call, str]]:
        """What the model calls, and what comes back."""
        found, value = [], name
        for tool in self.chains[kind]:
            answer = f"{tool[:2].upper()}-{self.draw.randrange(10**6):06d}"
            found.append(((tool, {"target": value}), json.dumps({"id": answer, "state": "open"})))
            value = answer
        return found


def work(
    seed: int, runs: int, *, wavers: float = 0.0, swaps: bool = False, audited: float = 0.0
) -> tuple[Tally, Tally]:
    """An agent at the desk, with calls really made in the model's place.

    Args:
        seed: of all that is drawn.
        runs: how many; the figures are of the first and of the second half.
        wavers: share of the model's turns in which it does something else.
        swaps: from the middle on it ends a third of the kinds otherwise.
        audited: share of the turns that the model gets whatever the memory would do.
    """
    desk, counts = Desk(seed), ([0, 0, 0], [0, 0, 0])
    inertia = Inertia(seed=seed)
    with ToolMemory.ephemeral(tools=desk.schemas(), reads=desk.tools, methods=[inertia]) as memory:
        for number in range(runs):
            if swaps and number == runs // 2:
                for kind in range(0, KINDS, 3):
                    desk.chains[kind] = [*desk.chains[kind][:-1], desk.draw.choice(desk.tools)]
            _run(desk, memory, inertia, number, counts[number * 2 // runs], wavers, audited)
    return Tally(*counts[0]), Tally(*counts[1])


def _run(
    desk: Desk, memory: ToolMemory, inertia: Inertia, number: int, count: list[int], wavers: float, audited: float
) -> None:
    kind, text, name = desk.request()
    messages: list[BaseMessage] = [HumanMessage(text, id=f"u{number}")]
    for call, answer in desk.steps(kind, name):
        asked = desk.draw.random() < audited
        policy = InertiaPolicy(shadow=asked)
        decision = inertia.begin_turn(messages, thread_id=str(number), policy=policy)
        count[0] += 1
        if decision.acts and decision.proposal is not None:
            hit = (decision.proposal.tool, dict(decision.proposal.args)) == call and not decision.proposal.beside
            count[1 if hit else 2] += 1
            made = shortcut_message(decision.proposal, announce=False)
            messages += [made, *(ToolMessage(answer if hit else "{}", tool_call_id=c["id"]) for c in made.tool_calls)]
            if hit:
                continue
        if desk.draw.random() < wavers:
            messages += _call((desk.draw.choice(desk.tools), {"target": name}), '{"id": "", "state": "open"}', desk)
        messages += _call(call, answer, desk)
    inertia.begin_turn(messages, thread_id=str(number), policy=InertiaPolicy(shadow=True))
    count[0] += 1
    memory.finish([*messages, AIMessage("Done.", id=f"w{number}")], thread_id=str(number))


def _call(call: Call, answer: str, desk: Desk) -> list[BaseMessage]:
    made = f"c{desk.draw.getrandbits(64):016x}"
    asked = AIMessage(
        "", id=f"m{made}", tool_calls=[{"name": call[0], "args": call[1], "id": made, "type": "tool_call"}]
    )
    return [asked, ToolMessage(answer, tool_call_id=made)]


# --- what is printed ------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shifts", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=1_200, help="of the desk")
    parser.add_argument("--limit", type=int, help="only so many runs of unfamiliar and of known requests")
    parser.add_argument("--data", type=Path, default=DATA, help="where the recorded runs are")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every figure there")
    options = parser.parse_args(arguments)

    table = Table(title="Calls made without the model, per 100 model turns", title_justify="left")
    for heading in ("what", "seed"):
        table.add_column(heading, no_wrap=True)
    for heading in ("turns", "right", "wrong", "precision"):
        table.add_column(heading, justify="right")
    found: list[dict[str, Any]] = []

    def note(what: str, seed: int, tally: Tally) -> None:
        table.add_row(what, str(seed), *tally.words)
        found.append({"what": what, "seed": seed, **asdict(tally)})

    desks: dict[str, Callable[[int], tuple[Tally, Tally]]] = {
        "a model that does not waver": lambda seed: work(seed, options.runs),
        "wavers in 2 %": lambda seed: work(seed, options.runs, wavers=0.02),
        "wavers in 5 %": lambda seed: work(seed, options.runs, wavers=0.05),
        "changes a third, half audited": lambda seed: work(seed, options.runs, swaps=True, audited=0.5),
    }
    for seed in range(options.seeds):
        if (options.data / SET / "trajectories.jsonl").is_file():
            for what, tally in unfamiliar(options.data / SET, seed, options.limit):
                note(what, seed, tally)
        for what, run in desks.items():
            for half, tally in zip(("first half", "second half"), run(seed), strict=True):
                note(f"{what}, {half}", seed, tally)
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    if options.json_file is not None:
        options.json_file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
