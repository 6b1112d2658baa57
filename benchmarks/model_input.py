"""Agents whose prompt, context or state says whom they serve: what the memory does with it.

``python -m benchmarks.model_input``; what is measured and how: README.md in this folder.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from rich.table import Column, Table
from typing_extensions import NotRequired

from benchmarks import command, conclude, done, show
from benchmarks.input_desks import (
    CONTEXT,
    CONTEXT_ONLY,
    IN_PROMPT,
    MESSAGE,
    PICTURE,
    REQUEST,
    STATE,
    DeskTool,
    InputDesk,
    PlannedCall,
)
from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

ACT, WRITES, PREFETCH, WITHOUT = "act", "writes", "prefetch", "without"
MODES: Final = (ACT, WRITES, PREFETCH)
"""`act`: the default policy, no changing tool named; `writes`: all of them named; `prefetch`: look-ups are only
prefetched."""
COMPARED: Final = (*IN_PROMPT, MESSAGE)
"""Places that the same desk with the identity in the request is compared with."""
MOST_CASES: Final = 10
"""Wrong calls of a desk that the JSON file names."""
MOST_SHOWN: Final = 20
"""Wrong calls that are printed, one of a desk."""


@dataclass(slots=True)
class RunContext:
    """The run's context, as a host's web server would give it.

    Attributes:
        subject: who or what is served.
        language: the same in all runs.
    """

    subject: str
    language: str = "en"


class DeskState(AgentState[Any]):
    """An agent's state with who or what is served."""

    subject: NotRequired[str]


class PromptWriter(AgentMiddleware[DeskState, Any, Any]):
    """Writes the system prompt of the visit that is being served, and the message behind the conversation."""

    state_schema = DeskState

    def __init__(self, runner: AgentRunner) -> None:
        super().__init__()
        self._runner = runner

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Put the prompt into the request."""
        desk, visit = self._runner.desk, self._runner.visit
        messages = list(request.messages)
        if desk.place == MESSAGE:
            messages.append(HumanMessage(desk.message_line(visit)))
        return handler(request.override(system_message=SystemMessage(visit.prompt), messages=messages))


@dataclass(slots=True)
class DeskFigures:
    """Counts of a desk in a mode.

    Attributes:
        requests, turns: of the desk; a turn is a message of the agent.
        alone, asked: model calls without the memory, and with it.
        unasked: changes made that the model alone does not make.
        missing: changes not made that the model alone makes.
        wrong_looks: look-ups executed that the model alone does not make.
        other_identity: look-ups executed or prefetched with the value of another identity of the desk.
        served, wasted: prefetched look-ups that the model asked for, and the others.
        cases: the first wrong calls, with the number of the request and its text.
    """

    seed: int
    family: str
    place: str
    mode: str
    known_users: bool
    order: str
    requests: int = 0
    turns: int = 0
    alone: int = 0
    asked: int = 0
    unasked: int = 0
    missing: int = 0
    wrong_looks: int = 0
    other_identity: int = 0
    served: int = 0
    wasted: int = 0
    cases: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def saved(self) -> int:
        """Model calls that the memory saved."""
        return self.alone - self.asked


class AgentRunner:
    """Serves a desk's requests with real agents, and compares the executed calls with the model's plan.

    Args:
        desk: the desk.
        mode: one of `MODES`, or `WITHOUT`.
        method: the class of the shortcut's method, for tests.
    """

    def __init__(self, desk: InputDesk, mode: str, *, method: type[Inertia] = Inertia) -> None:
        self.desk, self.mode, self._method = desk, mode, method
        self.visit = desk.visits[0]
        self.executed: list[tuple[PlannedCall, bool]] = []
        self.figures = DeskFigures(desk.seed, desk.family, desk.place, mode, desk.known_users, desk.order)
        self._model = ScriptedChatModel(script=self._answer)

    def run(self) -> DeskFigures:
        """Serve all requests and return the figures."""
        if self.mode == WITHOUT:
            return self._serve(None)
        method = self._method(seed=self.desk.seed)
        options: dict[str, Any] = {"reads": self.desk.reads, "now": lambda: self.visit.time.timestamp()}
        with ToolMemory.ephemeral(methods=[method], **options) as memory:
            return self._serve(memory)

    def _serve(self, memory: ToolMemory | None) -> DeskFigures:
        agents = {name: self._agent(name, memory) for name in self.desk.tools}
        for visit in self.desk.visits:
            self.visit = visit
            self.executed.clear()
            self._model.calls.clear()
            config: RunnableConfig = {"configurable": {"thread_id": visit.thread, "user_id": visit.user_id}}
            options: dict[str, Any] = {"stream_mode": ["values", "custom"]}
            if self.desk.place in (CONTEXT, CONTEXT_ONLY):
                options["context"] = RunContext(visit.identity)
            prefetched: list[PlannedCall] = []
            messages: list[BaseMessage] = []
            for mode, chunk in agents[visit.agent].stream(self._input(), config, **options):
                if mode == "values":
                    messages = chunk["messages"]
                else:
                    self._note(chunk, prefetched)
            self._compare(messages, prefetched)
        return self.figures

    def _agent(self, name: str, memory: ToolMemory | None) -> Any:
        middleware: list[Any] = [PromptWriter(self)]
        if memory is not None:
            middleware = tool_memory_middleware(memory, outer=middleware, **self._options(name))
        tools = [self._tool(tool) for tool in self.desk.tools[name]]
        return create_agent(
            self._model, tools, middleware=middleware, context_schema=RunContext, checkpointer=InMemorySaver()
        )

    def _options(self, agent: str) -> dict[str, Any]:
        if self.mode == PREFETCH:
            return {"shortcut": False, "prefetch": True}
        if self.mode == ACT:
            return {"shortcut": InertiaPolicy()}
        named = frozenset[str]() if agent != next(iter(self.desk.tools)) else self.desk.writes(agent)
        return {"shortcut": InertiaPolicy(may_write=named)}

    def _tool(self, tool: DeskTool) -> BaseTool:
        def execute(**arguments: Any) -> str:
            call = PlannedCall(tool.name, arguments)
            self.executed.append((call, tool.reads))
            return self.desk.output(call)

        schema = {"type": "object", "properties": {tool.parameter: {"type": "string"}}, "required": [tool.parameter]}
        made = StructuredTool.from_function(
            execute, name=tool.name, description=tool.about, args_schema=schema, infer_schema=False
        )
        if tool.marked:
            made.tags = ["read_only"]
        return made

    def _input(self) -> dict[str, Any]:
        content: Any = self.visit.text
        if self.desk.place == PICTURE:
            picture = {"type": "image", "base64": self.visit.identity, "mime_type": "image/png"}
            content = [{"type": "text", "text": self.visit.text}, picture]
        given: dict[str, Any] = {"messages": [HumanMessage(content, id=f"u{self.visit.number}")]}
        if self.desk.place == STATE:
            given["subject"] = self.visit.identity
        return given

    def _answer(self, messages: list[BaseMessage], _tools: Any) -> AIMessage:
        """Make the next call of the plan that was not made yet, whatever else was made."""
        began = max(n for n, message in enumerate(messages) if message.id == f"u{self.visit.number}")
        made = {
            PlannedCall(call["name"], call["args"]).key
            for message in messages[began:]
            if isinstance(message, AIMessage)
            for call in message.tool_calls
        }
        for call in self.visit.plan:
            if call.key not in made:
                return call_tool(call.tool, **call.args)
        return AIMessage(self.visit.answer)

    def _note(self, chunk: Any, prefetched: list[PlannedCall]) -> None:
        event = chunk.get("toolmem", {})
        if event.get("node") != "prefetch":
            return
        self.figures.served += "served" in event
        prefetched += [PlannedCall(started["tool"], dict(started["args"])) for started in event.get("started", ())]

    def _compare(self, messages: Sequence[BaseMessage], prefetched: Sequence[PlannedCall]) -> None:
        """Count the calls of one request that the model alone does not make, and those it makes alone."""
        figures, visit = self.figures, self.visit
        began = max(n for n, message in enumerate(messages) if message.id == f"u{visit.number}")
        figures.requests += 1
        figures.turns += sum(isinstance(message, AIMessage) for message in messages[began:])
        figures.alone += len(visit.plan) + 1
        figures.asked += len(self._model.calls)
        planned = Counter(call.key for call in visit.plan)
        writes = self.desk.writes(visit.agent)
        changed = Counter(call.key for call, reads in self.executed if not reads)
        looked = Counter(call.key for call, reads in self.executed if reads)
        changes = Counter(call.key for call in visit.plan if call.tool in writes)
        unasked, missing = changed - changes, changes - changed
        figures.unasked += unasked.total()
        figures.missing += missing.total()
        figures.wasted += sum(call.key not in planned for call in prefetched)
        wrong = Counter[str]()
        if self.mode != PREFETCH:
            wrong = looked - planned
            figures.wrong_looks += wrong.total()
        others = set(self.desk.identities) - {visit.identity}
        begun = list(prefetched) if self.mode == PREFETCH else [call for call, _ in self.executed]
        foreign = [call for call in begun if call.key not in planned and others.intersection(call.args.values())]
        figures.other_identity += len(foreign)
        for key in (*unasked, *missing, *wrong, *(call.key for call in foreign)):
            if len(figures.cases) < MOST_CASES:
                figures.cases.append((visit.number, visit.text, key))


# --- many desks ---


@dataclass(frozen=True, slots=True)
class DeskJob:
    """One desk in one mode; `place` overrides where the identity stands."""

    seed: int
    requests: int
    mode: str
    place: str = ""

    def do(self) -> DeskFigures:
        """Return the desk's figures."""
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            return AgentRunner(InputDesk(self.seed, self.requests, self.place), self.mode).run()
        finally:
            logging.disable(before)


@dataclass(slots=True)
class Row:
    """Figures of several desks in a mode.

    Attributes:
        name: the place of the identity, or the family.
        saved_percent: model calls that the memory saved, of those that the model alone takes.
        of_request_percent: calls saved, of those saved where the identity stands in the request; None: no identity.
        wrong_per_100: wrong look-ups per 100 turns.
    """

    name: str
    mode: str
    desks: int
    requests: int
    saved_percent: float
    of_request_percent: float | None
    unasked: int
    missing: int
    wrong_per_100: float
    other_identity: int
    served: int
    wasted: int


def row_of(name: str, desks: Sequence[DeskFigures], compared: Sequence[DeskFigures] = ()) -> Row:
    """Return the figures of some desks together; `compared`: the same desks with the identity in the request."""

    def total(counted: str) -> int:
        return sum(getattr(desk, counted) for desk in desks)

    in_request = sum(desk.saved for desk in compared)
    return Row(
        name,
        desks[0].mode,
        len(desks),
        total("requests"),
        100 * total("saved") / max(total("alone"), 1),
        100 * total("saved") / in_request if in_request else None,
        total("unasked"),
        total("missing"),
        100 * total("wrong_looks") / max(total("turns"), 1),
        total("other_identity"),
        total("served"),
        total("wasted"),
    )


def rows_of(figures: Sequence[DeskFigures], compared: Sequence[DeskFigures]) -> list[Row]:
    """Return a row for each place of an identity and each other family, and one over all desks, by mode."""
    rows = []
    for mode in dict.fromkeys(desk.mode for desk in figures):
        groups: dict[str, list[DeskFigures]] = {}
        for desk in figures:
            if desk.mode == mode:
                name = desk.family if desk.place == REQUEST else f"in {desk.place}"
                groups.setdefault(name, []).append(desk)
        in_request = {desk.seed: desk for desk in compared if desk.mode == mode}
        for name in sorted(groups):
            pairs = [in_request[desk.seed] for desk in groups[name] if desk.seed in in_request]
            rows.append(row_of(name, groups[name], pairs))
        rows.append(row_of("all", [desk for desk in figures if desk.mode == mode]))
    return rows


def show_rows(rows: Sequence[Row]) -> None:
    """Print the rows."""
    names = list(asdict(rows[0]))
    table = Table(
        Column(names[0], no_wrap=True), *(Column(name.replace("_", " "), justify="right") for name in names[1:])
    )
    for row in rows:
        cells = []
        for value in asdict(row).values():
            if value is None:
                cells.append("-")
            else:
                cells.append(f"{value:,.2f}" if isinstance(value, float) else str(value))
        table.add_row(*cells)
    show(table)


def checks_of(rows: Sequence[Row]) -> list[tuple[bool, str]]:
    """Return the targets, and whether each holds."""
    checks = []
    for row in rows:
        if row.name == "all":
            checks.append((row.unasked + row.missing == 0, f"{row.mode}: no change unasked or missing"))
            checks.append((row.wrong_per_100 <= 0.1, f"{row.mode}: at most 0.1 wrong look-ups per 100 turns"))
            checks.append((row.other_identity == 0, f"{row.mode}: no look-up of another identity"))
        elif row.of_request_percent is not None and row.name in [f"in {place}" for place in IN_PROMPT]:
            text = f"{row.mode}: {row.name} saves at least 80 % of what it saves in the request"
            checks.append((row.of_request_percent >= 80, text))
    return checks


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = command("model_input", __doc__, recorded=False)
    parser.add_argument("--desks", type=int, default=60)
    parser.add_argument("--requests", type=int, default=300, help="to each desk")
    parser.add_argument("--first", type=int, default=0, help="seed of the first desk")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(arguments)
    seeds = range(given.first, given.first + given.desks)
    served: list[DeskFigures] = []
    compared: list[DeskFigures] = []
    for mode in given.modes:
        jobs = [DeskJob(seed, given.requests, mode) for seed in seeds]
        desks = list(done(DeskJob.do, jobs, given.workers, mode))
        served += desks
        if mode != PREFETCH:
            again = [DeskJob(desk.seed, given.requests, mode, REQUEST) for desk in desks if desk.place in COMPARED]
            compared += done(DeskJob.do, again, given.workers, f"{mode}, in the request")
    rows = rows_of(served, compared)
    show_rows(rows)
    wrong = [(desk, *desk.cases[0]) for desk in served if desk.cases]
    for desk, number, text, key in wrong[:MOST_SHOWN]:
        print(f"desk {desk.seed} ({desk.family} in {desk.place}, {desk.mode}), request {number}: {text!r} -> {key}")
    settings = {name: value for name, value in vars(given).items() if name != "json"}
    figures = {
        "settings": settings,
        "rows": [asdict(row) for row in rows],
        "desks": [asdict(desk) for desk in served],
        "in_request": [asdict(desk) for desk in compared],
    }
    return conclude(checks_of(rows), figures, given.json)


if __name__ == "__main__":
    sys.exit(main())
