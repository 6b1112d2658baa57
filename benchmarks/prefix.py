"""What do hints cost where the provider keeps a prompt cache? Recorded conversations, request by request.

``python -m benchmarks.prefix``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, convert_to_messages
from rich.console import Console
from rich.table import Table

from benchmarks import command, conclude, load, present, show
from benchmarks.replay import arrange
from benchmarks.yardsticks import runs_of
from langgraph_toolmem import SIT, Atoms, Entries, ToolMemory
from langgraph_toolmem.atoms.step import PlanHints
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.entries.steps import Recall
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.sit.step import Suggest
from langgraph_toolmem.turn.ask import drive
from langgraph_toolmem.turn.hints import StepOutput, composed, placed, tokens_in
from langgraph_toolmem.turn.step import Call, Step, StepRunner

SETS: Final = ("tau2_retail_gpt41mini", "tau2_airline_gpt54", "tau2_telecom_gpt41")
HEAD_TOKENS: Final = 3_500
"""Of the host's system prompt and the schemas of its tools."""
CACHED: Final = 0.1
OUTPUT: Final = 8.0
"""Prices, in those of a token of input."""
MODEL: Final = "openai:gpt-4.1"
LEAST_REUSE: Final = 0.98
MOST_COST: Final = 1.10
MOST_HINTS: Final = 800
MOST_MEAN: Final = 120


@dataclass
class Spent:
    """Tokens of all requests of a set.

    Attributes:
        prompt: of the prompts.
        same: of them, those whose prefix the request before had.
        answers: of the answers.
        hints: of the hints; `most` of one request, `requests`: how many.
    """

    prompt: int = 0
    same: int = 0
    answers: int = 0
    hints: int = 0
    most: int = 0
    requests: int = 0

    @property
    def cost(self) -> float:
        """In tokens of input."""
        return self.prompt - self.same + CACHED * self.same + OUTPUT * self.answers


def in_tokens(message: BaseMessage) -> tuple[str, int]:
    """A message as it is compared, and its tokens."""
    calls = json.dumps(message.tool_calls) if isinstance(message, AIMessage) and message.tool_calls else ""
    text = f"{message.type}:{message.text}{calls}"
    return text, tokens_in(text)


def add(spent: Spent, before: list[tuple[str, int]], request: Sequence[BaseMessage]) -> list[tuple[str, int]]:
    """Counts one request; returns it for the next one. From the first message on that differs, all is read anew."""
    now = [in_tokens(message) for message in request]
    spent.requests += 1
    spent.prompt += HEAD_TOKENS + sum(size for _, size in now)
    if before:
        spent.same += HEAD_TOKENS
        same = takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False))
        spent.same += sum(size for _, (_, size) in same)
    return now


def hints_of(runners: Sequence[StepRunner], call: Call) -> str:
    """Return the hints of some steps at a call, as the middleware composes them."""
    outputs: list[StepOutput] = [drive(lambda each=each: each.output(call)) for each in runners]  # type: ignore[misc]
    return composed(outputs, call.messages)


def measure(runs: Sequence[LoggedRun], tools: Sequence[dict[str, Any]], cut: int, limit: int) -> dict[str, Spent]:
    """Tokens without the memory, with hints, and with these in the system message; runs before `cut` are learned."""
    specs = read_tools(tools)
    with ToolMemory.ephemeral(methods=[SIT(), Entries(), Atoms(keep=True)]) as memory:
        memory.core.catalogue.adopt(specs)
        for run in runs[:cut]:
            memory.finish(run.messages, thread_id=run.thread_id, success=run.success)
        memory.flush()
        steps: list[Step[Any]] = [Recall(memory.entries), Suggest(memory.sit), PlanHints(memory.atoms)]
        spent = {name: Spent() for name in ("none", "all", "all, in front")}
        for run in runs[cut:][:limit]:
            messages, runners = convert_to_messages(run.messages), list(map(StepRunner, steps))
            before: dict[str, list[tuple[str, int]]] = {name: [] for name in spent}
            for place, answer in enumerate(messages):
                if not isinstance(answer, AIMessage):
                    continue
                call = Call(messages[:place], Owner(run.thread_id), tools=specs, offered=tools)
                text = hints_of(runners, call)
                requests = {
                    "none": call.messages,
                    "all": placed(text, system=None, messages=call.messages, model=MODEL)[1],
                    "all, in front": [*([SystemMessage(text)] if text else []), *call.messages],
                }
                for name, request in requests.items():
                    before[name] = add(spent[name], before[name], request)
                    spent[name].answers += in_tokens(answer)[1]
                spent["all"].hints += tokens_in(text)
                spent["all"].most = max(spent["all"].most, tokens_in(text))
    return spent


def table(found: dict[str, dict[str, Spent]]) -> Table:
    """One line for each set and kind of hints."""
    answer = Table(title="Prefix reuse and cost", title_justify="left")
    for column in ("set", "hints", "requests", "reused", "of without", "cost", "hint tokens, mean", "most"):
        answer.add_column(column, justify="left" if column in ("set", "hints") else "right")
    for name, kinds in found.items():
        plain = kinds["none"]
        for kind, each in kinds.items():
            answer.add_row(
                name,
                kind,
                str(each.requests),
                f"{100 * each.same / each.prompt:.1f} %",
                f"{100 * each.same / plain.same:.1f} %",
                f"x{each.cost / plain.cost:.3f}",
                f"{each.hints / max(each.requests, 1):.0f}",
                str(each.most),
            )
    return answer


def verdicts(found: dict[str, dict[str, Spent]]) -> list[tuple[bool, str]]:
    """Whether what is asked holds with all steps on."""
    checks = []
    for name, kinds in found.items():
        plain, each = kinds["none"], kinds["all"]
        reuse, cost = each.same / plain.same, each.cost / plain.cost
        mean = each.hints / each.requests
        checks += [
            (reuse >= LEAST_REUSE, f"{name}: prefix reuse {reuse:.3f} of that without >= {LEAST_REUSE}"),
            (cost <= MOST_COST, f"{name}: cost x{cost:.3f} <= x{MOST_COST}"),
            (each.most <= MOST_HINTS, f"{name}: hint tokens of a request {each.most} <= {MOST_HINTS}"),
            (mean <= MOST_MEAN, f"{name}: hint tokens of a request, mean {mean:.0f} <= {MOST_MEAN}"),
        ]
    return checks


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = command("prefix", __doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--limit", type=int, default=20, help="conversations of each set that are asked of")
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Spent]] = {}
    for name in present(options, options.sets):
        folder = options.data / name
        tools = load(folder / "tools.json")
        runs, cut = arrange(runs_of(folder) or (), "warm", 0)
        with Console(stderr=True).status(name):
            found[name] = measure(runs, tools, cut, options.limit)
    if not found:
        return 0
    show(table(found))
    figures = {"sets": {name: {kind: asdict(each) for kind, each in kinds.items()} for name, kinds in found.items()}}
    return conclude(verdicts(found), figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
