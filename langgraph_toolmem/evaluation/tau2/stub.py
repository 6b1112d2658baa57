"""Stand-ins without a key: a model that knows the task's right actions, and a user that answers it.

The model does not replay fixed actions. It continues from the results in its request, even if the memory made the
calls; reads again if a result is missing or belongs to another record; asks before a change; follows a hint at a stated
rate; and errs at other rates: needless look-ups, repeated look-ups, and look-ups with a wrong id (`Rates`). Its draws
depend on the run's seed and on the point in the plan, so they are equal in all arms. `fitted_rates` measures the rates
of a real model on its recorded runs.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import SkipValidation

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import canonical, digest
from langgraph_toolmem.evaluation.runner import call_text
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.run import ExecutedCall, Turn
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.turn.hints import FRAME

CONFIRM: Final = "Please confirm (yes or no): "
DO_THIS: Final = "Please do this on your device: "
WHO: Final = "May I have your email address, or your name and zip code?"
LAST: Final = "Is there anything else?"
STOP: Final = "###STOP###"
"""The benchmark's mark for the end of the conversation."""
ID_FIELDS: Final = ("order_id", "user_id", "product_id", "customer_id", "line_id", "bill_id")
"""Arguments that name a record, in retail and telecom; a record is read by ``get_<record>_details``."""
MAX_READS: Final = 3
"""Limit of repeats of a look-up whose result does not fit."""
TOKENS_PER_CHAR: Final = 0.25
"""A rough measure: texts in English have about four characters for each token."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates at which the stub departs from its plan.

    Attributes:
        follow: share of the points at which it follows a shown hint.
        err: share of the points at which it makes a look-up outside the plan.
        again: share of the look-ups that it repeats once.
        failed: share of the points at which it first makes a look-up with a wrong id.
    """

    follow: float = 0.5
    err: float = 0.0
    again: float = 0.0
    failed: float = 0.0


@dataclass(frozen=True, slots=True)
class StubCall:
    """A call of a tool."""

    name: str
    args: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Tool and arguments: equal for equal calls."""
        return call_text(self.name, dict(self.args))


def call_of(action: Any) -> StubCall:
    """Return the call of an action of a task."""
    return StubCall(action.name, action.arguments)


@dataclass(frozen=True, slots=True)
class KnownId:
    """An id that a request shows, with the name of its field."""

    name: str
    value: Any

    @property
    def look_up(self) -> StubCall:
        """The call that reads its record; not every domain has the tool."""
        return StubCall(f"get_{self.name.removesuffix('_id')}_details", {self.name: self.value})


@dataclass(frozen=True, slots=True)
class PlanPoint:
    """The position in a plan: the first action that is not done, and its number; None after the last."""

    number: int
    action: Any


@dataclass(slots=True)
class StubPlan:
    """The task's right actions, and the data for reads before them.

    Attributes:
        actions: of the agent and of the user, in order.
        says: texts that the last answer must contain.
        reads: names of the tools that only read.
        tools: names of all tools of the agent.
    """

    actions: Sequence[Any]
    says: Sequence[str]
    reads: set[str]
    tools: set[str]


@dataclass(slots=True)
class StubModel:
    """Answers as the model of one run.

    Attributes:
        plan: of the task.
        rates: see there.
        seed: of the run.
        on_request: called with the messages of each request, or None.
        hints_followed: number of calls made because of a hint.
        changes_in_hints: changing tools that hints named, in past records, and that are not in the rest of the plan.
    """

    plan: StubPlan
    rates: Rates
    seed: int
    on_request: Callable[[Sequence[BaseMessage]], None] | None = None
    hints_followed: int = 0
    changes_in_hints: list[str] = field(default_factory=list)

    def __call__(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        """Return the answer to a request."""
        if self.on_request is not None:
            self.on_request(messages)
        offered: set[str] = set()
        for tool in tools:
            if "function" in tool:
                offered.add(tool["function"]["name"])
        answer = self._answer(_Shown(messages), offered)
        answer.usage_metadata = _usage_of(messages, answer)
        return answer

    def _answer(self, shown: _Shown, offered: set[str]) -> AIMessage:
        point = self._next(shown)
        action = point.action
        if action is None:
            words = [str(text) for text in self.plan.says]
            return AIMessage(" ".join([*words, "All done.", LAST]))
        if action.requestor == "user":
            return AIMessage(DO_THIS + json.dumps({"name": action.name, "arguments": action.arguments}))
        unplanned = self._hinted(shown, point.number) or self._departure(shown, point)
        if unplanned is not None:
            return self._make(unplanned, shown, offered)
        planned = call_of(action)
        if planned.name not in self.plan.reads:
            return self._change(planned, shown, offered)
        asks_who = planned.name.startswith("find_") and point.number == 0
        if asks_who and not shown.user_said(planned.args):
            return AIMessage(WHO)
        return self._make(planned, shown, offered)

    def _next(self, shown: _Shown) -> PlanPoint:
        """Return the first action of the plan that is not done."""
        # Only the request shows the finished calls, made by the model, a look-up before it, or the shortcut. A plan may
        # have a change twice: each result counts for one of them.
        left = shown.counts()
        for number, action in enumerate(self.plan.actions):
            call = call_of(action)
            if action.requestor == "user":
                is_done = shown.user_did(call)
            elif call.name in self.plan.reads:
                is_done = shown.has(call)
            else:
                is_done = left[call.key] > 0
                left[call.key] -= 1
            if not is_done:
                return PlanPoint(number, action)
        return PlanPoint(len(self.plan.actions), None)

    def _change(self, planned: StubCall, shown: _Shown, offered: set[str]) -> AIMessage:
        """Return the next step to a change: a read of its record, the question to the user, or the change."""
        record = self._unread(shown, planned.args)
        if record is not None:
            return self._make(record, shown, offered)
        # The policies of the benchmark require the user to confirm each change.
        if not shown.confirmed(planned.key):
            return AIMessage(CONFIRM + planned.key)
        return self._make(planned, shown, offered)

    def _make(self, call: StubCall, shown: _Shown, offered: set[str]) -> AIMessage:
        """Return a call; with tools behind a search, search first, and call the found tool."""
        # Drawn from the run's seed, so that a restarted run makes the same requests and finds its kept answers.
        identity = f"s{digest('call', self.seed, len(shown.messages), call.name, canonical(dict(call.args)))}"
        name, args = call.name, dict(call.args)
        if name not in offered and "search_tools" in offered:
            if shown.found_by_search(name):
                name, args = "call_tool", {"name": name, "arguments": args}
            else:
                name, args = "search_tools", {"query": name.replace("_", " ")}
        return AIMessage("", tool_calls=[tool_call(name=name, args=args, id=identity)])

    def _draws(self, kind: str, number: int) -> float:
        """Return a number from 0 to 1 that is the same in all arms: it depends only on seed and plan."""
        return random.Random(digest(kind, self.seed, number)).random()

    def _departure(self, shown: _Shown, point: PlanPoint) -> StubCall | None:
        """Return a look-up outside the plan, at the error rates of a model, or None to follow the plan."""
        for kind, rate, look_up_of in (
            ("err", self.rates.err, self._needless),
            ("again", self.rates.again, self._repeated),
            ("failed", self.rates.failed, self._failing),
        ):
            if self._draws(kind, point.number) < rate:
                look_up = look_up_of(shown, point)
                if look_up is not None:
                    return look_up
        return None

    def _needless(self, shown: _Shown, _point: PlanPoint) -> StubCall | None:
        """Return a look-up of a known record that is not in the plan and was not made."""
        planned = {call_of(action).key for action in self.plan.actions}
        for known in shown.known_ids():
            look_up = known.look_up
            if look_up.name in self.plan.reads and look_up.key not in planned and not shown.has(look_up):
                return look_up
        return None

    def _repeated(self, shown: _Shown, point: PlanPoint) -> StubCall | None:
        """Return the look-up before this point of the plan, if it was made once: the plan continues after that."""
        if not point.number:
            return None
        done = self.plan.actions[point.number - 1]
        call = call_of(done)
        is_look_up = done.requestor != "user" and call.name in self.plan.reads
        if is_look_up and shown.counts()[call.key] == 1:
            return call
        return None

    def _failing(self, shown: _Shown, point: PlanPoint) -> StubCall | None:
        """Return the next look-up with a wrong id, unless that was tried."""
        planned = call_of(point.action)
        if planned.name not in self.plan.reads:
            return None
        wrong = _with_a_wrong_id(planned)
        if wrong is not None and not shown.counts()[wrong.key]:
            return wrong
        return None

    def _unread(self, shown: _Shown, args: Mapping[str, Any]) -> StubCall | None:
        """Return a read of the record that a change is about, if it was not read."""
        for name in ID_FIELDS:
            if name not in args:
                continue
            look_up = KnownId(name, args[name]).look_up
            if look_up.name in self.plan.reads and not shown.has(look_up):
                return look_up
        return None

    def _hinted(self, shown: _Shown, number: int) -> StubCall | None:
        """Return the call that a hint leads to, if the model follows one here."""
        named = [name for name in sorted(self.plan.tools) if _is_named(name, shown.hint)]
        if not named or self._draws("follow", number) >= self.rates.follow:
            return None
        planned = self._planned_from(number)
        for name in sorted(named, key=shown.hint.index):
            # A change keeps its position in the plan, because the policy requires the steps before it.
            if name not in self.plan.reads:
                if name not in planned:
                    self.changes_in_hints.append(name)
                continue
            look_up = _open_look_up(name, planned.get(name), shown)
            if look_up is not None:
                self.hints_followed += 1
                return look_up
        return None

    def _planned_from(self, number: int) -> dict[str, StubCall]:
        """Return the agent's calls from a point of the plan, by tool; of several calls of a tool the last."""
        planned: dict[str, StubCall] = {}
        for action in self.plan.actions[number:]:
            if action.requestor != "user":
                planned[action.name] = call_of(action)
        return planned


def _open_look_up(name: str, planned: StubCall | None, shown: _Shown) -> StubCall | None:
    """Return a look-up by a tool that was not made: the planned one, or one of a known record."""
    if planned is not None and not shown.has(planned):
        return planned
    for known in shown.known_ids():
        look_up = known.look_up
        if look_up.name == name and not shown.has(look_up):
            return look_up
    return None


def _is_named(name: str, text: str) -> bool:
    """Return True if a text has the name of a tool as a whole word."""
    return re.search(rf"\b{name}\b", text) is not None


def _usage_of(messages: Sequence[BaseMessage], answer: AIMessage) -> UsageMetadata:
    """Return tokens as a provider would report them, estimated from characters."""
    size = 0
    for message in messages:
        size += len(str(message.content)) + len(str(getattr(message, "tool_calls", "")))
    asked = int(size * TOKENS_PER_CHAR)
    said = int((len(str(answer.content)) + len(str(answer.tool_calls))) * TOKENS_PER_CHAR)
    usage = {"input_tokens": asked, "output_tokens": said, "total_tokens": asked + said}
    return cast("UsageMetadata", usage)


class StubChatModel(BaseChatModel):
    """A chat model that calls a `StubModel`; hints are where OpenAI's models take them."""

    script: SkipValidation[StubModel]

    @property
    def _llm_type(self) -> str:
        return "openai"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Bind tools as any chat model does."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        answer = self.script(list(messages), list(kwargs.get("tools", ())))
        return ChatResult(generations=[ChatGeneration(message=answer)])


@dataclass(frozen=True, slots=True)
class _ShownResult:
    """A result of a call; `fits` is False if it is about another record than the call asked for."""

    text: str
    fits: bool


@dataclass(slots=True)
class _ShownCall:
    """A call that a request shows, with all its results."""

    call: StubCall
    results: list[_ShownResult] = field(default_factory=list)


class _Shown:
    """The contents of a request: exchanges, the user's words, a hint."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        self.messages = messages
        self.hint = ""
        self._shown: dict[str, _ShownCall] = {}
        self._searches: list[str] = []
        calls: dict[Any, StubCall] = {}
        for message in messages:
            for call in getattr(message, "tool_calls", ()):
                calls[call["id"]] = _real_call(call["name"], call["args"])
            if isinstance(message, ToolMessage) and message.tool_call_id in calls:
                self._note(calls[message.tool_call_id], message)
            # For some models a hint is in the system message, after the policy.
            text = str(message.content)
            if FRAME in text:
                self.hint = text.partition(FRAME)[2]

    def _note(self, call: StubCall, message: ToolMessage) -> None:
        """Note a result of a call."""
        if call.name == "search_tools":
            self._searches.append(message.text)
        # An error fits any call: the environment would repeat it.
        fits = message.status == "error" or _is_about(call.args, message.text)
        shown = self._shown.setdefault(call.key, _ShownCall(call))
        shown.results.append(_ShownResult(message.text, fits))

    def has(self, call: StubCall) -> bool:
        """Return True if a result of the call is shown and is about its arguments."""
        shown = self._shown.get(call.key)
        if shown is None:
            return False
        return len(shown.results) >= MAX_READS or any(result.fits for result in shown.results)

    def counts(self) -> Counter[str]:
        """Return the number of results of each call, by its key."""
        counts: Counter[str] = Counter()
        for key, shown in self._shown.items():
            counts[key] = len(shown.results)
        return counts

    def found_by_search(self, name: str) -> bool:
        """Return True if a search showed the tool."""
        return any(_is_named(name, text) for text in self._searches)

    def known_ids(self) -> list[KnownId]:
        """Return ids with their fields, from the arguments and results that are shown."""
        known: dict[KnownId, None] = {}
        for shown in self._shown.values():
            texts = [canonical(dict(shown.call.args))]
            texts += [result.text for result in shown.results]
            for text in texts:
                for name in ID_FIELDS:
                    for value in re.findall(rf'"{name}": ?"([^"]+)"', text):
                        known[KnownId(name, value)] = None
                # A customer's orders are a list of numbers without a field of their own.
                for value in re.findall(r'"(#W\d+)"', text):
                    known[KnownId("order_id", value)] = None
        return list(known)

    def confirmed(self, text: str) -> bool:
        """Return True if the user said yes to the change."""
        asked = False
        for message in self.messages:
            if isinstance(message, AIMessage) and message.text == CONFIRM + text:
                asked = True
            elif asked and isinstance(message, HumanMessage) and message.text.lower().startswith("yes"):
                return True
        return False

    def user_said(self, args: Mapping[str, Any]) -> bool:
        """Return True if the arguments are in the user's words, or the user was asked for them."""
        words = ""
        for message in self.messages:
            # The user tells everything at once: asking again would not end.
            if isinstance(message, AIMessage) and message.text == WHO:
                return True
            if isinstance(message, HumanMessage):
                words += f"{message.text.lower()} "
        return all(str(value).lower() in words for value in args.values())

    def user_did(self, call: StubCall) -> bool:
        """Return True if the user reported that a call on the user's device is done."""
        report = _report(call)
        for message in self.messages:
            if isinstance(message, HumanMessage) and report in message.text:
                return True
        return False


def _real_call(name: str, args: Mapping[str, Any]) -> StubCall:
    """Return the call that a call means: with tools behind a search, ``call_tool`` names the real one."""
    if name == "call_tool" and "name" in args:
        return StubCall(args["name"], args.get("arguments", {}))
    return StubCall(name, args)


def _with_a_wrong_id(call: StubCall) -> StubCall | None:
    """Return a call with a wrong first id; None without an id."""
    for name in ID_FIELDS:
        if isinstance(call.args.get(name), str):
            return StubCall(call.name, {**call.args, name: f"{call.args[name]}0"})
    return None


def _is_about(args: Mapping[str, Any], text: str) -> bool:
    """Return False for a result that names another record than the call asked for."""
    try:
        result = json.loads(text)
    except ValueError:
        return True
    if not isinstance(result, dict):
        return True
    for name, value in args.items():
        if name in ID_FIELDS and name in result and result[name] != value:
            return False
    return True


def _report(call: StubCall) -> str:
    return f"I did it ({call.key})."


class StubUser:
    """The user of one task, by its instructions: gives the request, the identity, a confirmation, and the actions on
    the device.

    Args:
        task: of the benchmark.
    """

    def __init__(self, task: Any) -> None:
        self._messages = import_module("tau2.data_model.message")
        # Instructions are a record in most domains, and a text in some.
        instructions = task.user_scenario.instructions
        self._why = str(getattr(instructions, "reason_for_call", None) or instructions)
        self._who = str(getattr(instructions, "known_info", None) or "I told you all that I know.")
        self._doing: StubCall | None = None
        self.tools: Any = None

    def get_init_state(self, message_history: Any = None) -> list[Any]:
        """Return the state: none is needed."""
        return []

    def set_seed(self, seed: int) -> None:
        """Do nothing: the user is the same in each run."""

    def stop(self, message: Any = None, state: Any = None) -> None:
        """Do nothing: the conversation is over."""

    def generate_next_message(self, message: Any, state: list[Any]) -> tuple[Any, list[Any]]:
        """Return the user's words, or a call on the user's device."""
        if message.role == "tool":
            assert self._doing is not None
            return self._says(f"{_report(self._doing)} It says: {message.content}"), state
        text = message.content or ""
        if text.startswith(DO_THIS):
            wanted = json.loads(text.removeprefix(DO_THIS))
            self._doing = StubCall(wanted["name"], wanted["arguments"])
            identity = f"u{digest('user', text)}"
            call = self._messages.ToolCall(
                id=identity, name=wanted["name"], arguments=wanted["arguments"], requestor="user"
            )
            return self._messages.UserMessage(role="user", content=None, tool_calls=[call]), state
        if text.startswith(CONFIRM):
            return self._says("Yes, please do that."), state
        if text == WHO:
            return self._says(self._who), state
        # The user ends the conversation when the model's plan is finished.
        if text.endswith(LAST):
            return self._says(f"No, thank you. {STOP}"), state
        return self._says(self._why), state

    def _says(self, text: str) -> Any:
        return self._messages.UserMessage(role="user", content=text)


# --- rates of recorded runs ---

LEAST_GOOD_RUNS: Final = 2
"""Least number of good runs of a task from which a look-up of the task can be called needless."""


@dataclass(slots=True)
class _Counts:
    """Look-ups of all runs.

    Attributes:
        made: number of look-ups.
        again: of them, those that were made before in the run, without a change in between.
        failed: of them, those that ended in an error.
        judged: of them, those of tasks with enough good runs.
        needless: of the judged ones, those that fewer than half of the task's good runs make.
    """

    made: int = 0
    again: int = 0
    failed: int = 0
    judged: int = 0
    needless: int = 0


def fitted_rates(runs: Iterable[LoggedRun], reads: Collection[str], *, follow: float = 0.5) -> Rates:
    """Return the rates of a real model, counted in its recorded runs. Each is a share of all look-ups.

    A look-up is needless if fewer than half of the task's good runs make it. It was repeated if the same call came
    before in the run, without a change in between.

    Args:
        runs: a log whose runs name their task and their outcome.
        reads: names of the tools that only read.
        follow: not in a recording; used as it is.

    Raises:
        ConfigurationError: the runs have no look-up.
    """
    by_task: dict[str, list[_RecordedRun]] = defaultdict(list)
    for run in runs:
        # A log without tasks: each run is a task of its own, so look-ups cannot be called needless.
        by_task[run.task or run.thread_id].append(_RecordedRun(_calls_of(run), run.success is True))
    counts = _Counts()
    for of_task in by_task.values():
        _count(of_task, reads, counts)
    if not counts.made:
        names = ", ".join(sorted(reads)) or "none"
        raise ConfigurationError(f"the runs have no look-up by these tools: {names}. Take runs of the same domain.")
    return Rates(
        follow=follow,
        err=counts.needless / max(counts.judged, 1),
        again=counts.again / counts.made,
        failed=counts.failed / counts.made,
    )


@dataclass(frozen=True, slots=True)
class _RecordedRun:
    """The calls of a recorded run, and its outcome."""

    calls: list[ExecutedCall]
    good: bool


def _count(runs: Collection[_RecordedRun], reads: Collection[str], counts: _Counts) -> None:
    """Add the look-ups of one task's runs."""
    good_runs = [run for run in runs if run.good]
    made_by = _runs_by_look_up(good_runs, reads)
    for run in runs:
        shown: set[str] = set()
        for call in run.calls:
            # After a change a record may differ: reading it again is right.
            if call.tool not in reads:
                shown.clear()
                continue
            look_up = StubCall(call.tool, call.args).key
            counts.made += 1
            counts.again += look_up in shown
            shown.add(look_up)
            # A failed look-up counts once, as such: its arguments are wrong, so no good run makes it.
            if call.status == "failed":
                counts.failed += 1
            elif len(good_runs) >= LEAST_GOOD_RUNS:
                counts.judged += 1
                counts.needless += 2 * made_by[look_up] < len(good_runs)


def _runs_by_look_up(runs: Iterable[_RecordedRun], reads: Collection[str]) -> Counter[str]:
    """Return the number of runs that made each look-up, by its key."""
    made_by: Counter[str] = Counter()
    for run in runs:
        look_ups: set[str] = set()
        for call in run.calls:
            if call.tool in reads:
                look_ups.add(StubCall(call.tool, call.args).key)
        made_by.update(look_ups)
    return made_by


def _calls_of(run: LoggedRun) -> list[ExecutedCall]:
    calls: list[ExecutedCall] = []
    for event in parse_run(run.messages, thread_id=run.thread_id).events:
        if isinstance(event, Turn):
            calls += event.steps
    return calls
