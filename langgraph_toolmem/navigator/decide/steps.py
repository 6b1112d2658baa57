"""The steps of the subgraph over a record, from begin to conclude, and the ways between them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.types import Send, interrupt

from langgraph_toolmem.navigator.decide.decision import Decision, SubIntent
from langgraph_toolmem.navigator.decide.events import DecisionHook, decision_event, outcome_event
from langgraph_toolmem.navigator.decide.known_values import known_values
from langgraph_toolmem.navigator.decide.prompt import closing_messages, decider_messages, plain_closing, request_at
from langgraph_toolmem.navigator.decide.retriever import Now, Retriever
from langgraph_toolmem.navigator.decide.rounds import Judge, begun, decided, observed, with_retrieved, with_route
from langgraph_toolmem.navigator.decide.state import NaviLimits, NaviRecord, new_record, tools_of
from langgraph_toolmem.runs.messages import text_of
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.turn.ask import Ask, StepGenerator, adrive, drive
from langgraph_toolmem.turn.hints import left_out_now
from langgraph_toolmem.turn.host import ErrorLog, annotate, emit, read_key, runtime_of, user_id_of
from langgraph_toolmem.turn.structured import Answer, StructuredModel

if TYPE_CHECKING:
    from langgraph_toolmem.navigator import Navigator
    from langgraph_toolmem.navigator.plan.planner import Strategy

logger = logging.getLogger("langgraph_toolmem.navigator.decide")

ROLE: Final = "navi"
_CONFIG: Final = RunnableConfig(tags=["nostream"], run_name="toolmem_decider")
STEPS_TO_CLOSE: Final = 6
"""Graph steps that one more round and the closing take."""

_REASONS: Final = {
    "unreadable": "the decision could not be read, not even when it was asked for again",
    "limit": "the limit of decisions for one request is reached",
    "no progress": "nothing new came of the last decisions",
    "out of steps": "the graph's limit of steps is nearly reached",
}


class NaviStep(Runnable[Any, Any]):
    """One step as a LangGraph node, sync and async; its body may ask a model (`turn.ask`)."""

    def __init__(self, name: str, body: Callable[[Any, RunnableConfig | None], Any]) -> None:
        self.name, self._body = name, body

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002 - Runnable's name
        """Run the step."""
        return drive(lambda: self._body(input, config))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        """Run the step; what blocks in it runs in a worker thread."""
        return await adrive(lambda: self._body(input, config))


class NaviSteps:
    """The bodies of the subgraph's nodes. See `create_navi_subgraph` for the arguments."""

    def __init__(
        self,
        model: BaseChatModel,
        decider: StructuredModel[Decision],
        navigator: Navigator,
        specs: Mapping[str, ToolSpec],
        *,
        instructions: str,
        available: Callable[[], Collection[str]] | None,
        judge: Judge | None,
        limits: NaviLimits,
        strategy: Strategy,
        seed: int,
        budget: float,
        on_decision: DecisionHook | None,
        messages_key: str,
    ) -> None:
        self._model, self._decider, self._specs, self._limits = model, decider, specs, limits
        self._instructions, self._available = instructions, available
        self._judge = None if judge is None else self._judged(judge)
        self._on_decision, self._key = on_decision, messages_key
        self._errors = ErrorLog("create_navi_subgraph", logger)
        self._retriever = Retriever(
            navigator, specs, limits=limits, strategy=strategy, seed=seed, budget=budget, errors=self._errors
        )

    @property
    def runnables(self) -> dict[str, NaviStep]:
        """The steps with both bodies, by the name of their node."""
        return {
            "begin": NaviStep("begin", self._begin),
            "decide": NaviStep("decide", self._decide),
            "retrieve": NaviStep("retrieve", self._retrieve),
            "observe": NaviStep("observe", self._observe),
            "conclude": NaviStep("conclude", self._conclude),
        }

    # --- the steps ---

    def _begin(self, state: Any, config: RunnableConfig | None) -> dict[str, Any]:
        """A fresh record for this request, with what a search with it finds."""
        messages = self._messages(state)
        at = request_at(messages)
        record = new_record("" if at is None else text_of(messages[at].content, separator="\n").strip())
        if at is not None:
            record = begun(record, messages[at + 1 :], self._specs, limits=self._limits, judge=self._judge)
        found = self._retriever.first(record, self._now(state, config))
        record = {**with_retrieved(record, found, self._limits)[0], "sought": []}
        _tell(config, {"event": "candidates", "candidates": record["candidates"], **_seen(record)})
        return {"toolmem_navi": record, "toolmem_navi_retrieved": [], "toolmem_navi_said": []}

    def _decide(self, state: Any, config: RunnableConfig | None) -> StepGenerator[dict[str, Any]]:
        prompt = decider_messages(_record(state), self._specs, self._messages(state), extra=self._instructions)
        answer = yield from self._decider.asking(prompt, merge_configs(config, _CONFIG))
        return self._decided(state, answer, config)

    def _retrieve(self, state: Any, config: RunnableConfig | None) -> dict[str, Any]:
        record, now = _record(state), self._now(state, config)
        found = [self._retriever.search(record, search["recall"], now) for search in record["pending"]["searches"]]
        return {"toolmem_navi_retrieved": found}

    def clarify(self, state: Any) -> dict[str, Any]:
        """Asks the user and waits. Nothing stands before the interrupt: this node runs again when the answer comes."""
        questions = _record(state)["pending"]["questions"]
        answer = interrupt({"node": ROLE, "question": "\n".join(questions), "questions": questions})
        return {"toolmem_navi_said": _words(answer)}

    def _observe(self, state: Any, config: RunnableConfig | None) -> dict[str, Any]:
        """Takes in what came of the decision, and looks for another way around each tool that failed."""
        before = _record(state)
        record, broken = observed(
            before,
            [message for message in self._messages(state) if isinstance(message, ToolMessage)],
            read_key(state, "toolmem_navi_retrieved") or (),
            read_key(state, "toolmem_navi_said") or (),
            limits=self._limits,
            judge=self._judge,
        )
        self._tell_outcome(state, before, record, config)
        now = self._now(state, config) if broken else Now(())
        for call in broken:
            route, found = self._retriever.reroute(before, record, call, now)
            record = with_route(record, route, found, self._limits)
            _tell(config, {"event": "another way", "route": dict(route), **_seen(record)})
        left = read_key(state, "remaining_steps")
        if record["decisions"] >= self._limits.decisions:
            record = {**record, "stop": "limit"}
        elif record["idle"] >= self._limits.idle:
            record = {**record, "stop": "no progress"}
        elif isinstance(left, int) and left < STEPS_TO_CLOSE:
            record = {**record, "stop": "out of steps"}
        return {"toolmem_navi": record, "toolmem_navi_retrieved": [], "toolmem_navi_said": []}

    def _conclude(self, state: Any, config: RunnableConfig | None) -> StepGenerator[dict[str, Any]]:
        """The honest answer of a run that stops early. If no model can give it, it is put together here."""
        record, answer = _record(state), None
        if record["stop"] != "unreadable":  # a model that cannot keep to a form is not asked again
            prompt = closing_messages(record, self._messages(state), _REASONS[record["stop"]])
            try:
                answer = yield Ask(self._model, prompt, merge_configs(config, _CONFIG))
            except Exception as error:  # noqa: BLE001 - the run is to end with an answer
                self._errors.failed(error)
        text = text_of(answer.content).strip() if isinstance(answer, AIMessage) else ""
        usage = answer.usage_metadata if isinstance(answer, AIMessage) and text else None
        message = self._answer(text or plain_closing(record, _REASONS[record["stop"]]), record, usage)
        _tell(config, {"event": "stop", "reason": _REASONS[record["stop"]], **_seen(record)})
        return {self._key: [message]}

    # --- the ways between them ---

    def way_on(self, state: Any) -> list[str | Send]:
        """Return where a decision leads. Each call is a task of its own: one that waits does not repeat others."""
        record = _record(state)
        if record["stop"]:
            return ["answer" if record["stop"] == "answered" else "stop"]
        pending = record["pending"]
        private = ("toolmem_navi", "toolmem_navi_retrieved", "toolmem_navi_said", "remaining_steps")
        seen = {key: value for key, value in dict(state).items() if key not in private}
        ways: list[str | Send] = [
            Send(
                "tools",
                {
                    "__type": "tool_call_with_context",
                    "tool_call": {"name": call["tool"], "args": call["args"], "id": call["id"], "type": "tool_call"},
                    "state": seen,
                },
            )
            for call in pending["calls"]
        ]
        ways += ["retrieve"] if pending["searches"] else []
        ways += ["clarify"] if pending["questions"] else []
        return ways or ["nothing to do"]

    def goes_on(self, state: Any) -> str:
        """Return True if there is another decision."""
        return "stop" if _record(state)["stop"] else "go on"

    # --- parts of the steps ---

    def _decided(self, state: Any, answer: Answer[Decision], config: RunnableConfig | None) -> dict[str, Any]:
        before = _record(state)
        refusal = SubIntent.model_validate({"action": "answer", "text": answer.refusal})
        decision = Decision(sub_intents=[refusal]) if answer.refusal else answer.value
        update: dict[str, Any] = {}
        if decision is None:
            record: NaviRecord = {**before, "decisions": before["decisions"] + 1, "stop": "unreadable"}
        elif decision.final:
            record = {**before, "decisions": before["decisions"] + 1, "waiting": [], "stop": "answered"}
            update[self._key] = [self._answer(decision.answer, record, answer.usage)]
        else:
            record = decided(before, decision, self._specs, self._allowed(state), _call_id)
            if calls := record["pending"]["calls"]:
                made = [{"name": c["tool"], "args": c["args"], "id": c["id"], "type": "tool_call"} for c in calls]
                update[self._key] = [AIMessage(content="", tool_calls=made, usage_metadata=answer.usage)]
        self._tell_decision(state, record, decision, answer, config)
        return {**update, "toolmem_navi": record}

    def _answer(self, text: str, record: NaviRecord, usage: UsageMetadata | None) -> AIMessage:
        mark = {"by": ROLE, "stop": record["stop"], "failed": sorted(record["failed"])}
        return AIMessage(content=text, usage_metadata=usage, response_metadata={"toolmem": mark})

    def _tell_decision(
        self,
        state: Any,
        record: NaviRecord,
        decision: Decision | None,
        answer: Answer[Decision],
        config: RunnableConfig | None,
    ) -> None:
        before = _record(state)
        parts = [] if decision is None else [part.model_dump() for part in decision.sub_intents]
        actions = list(dict.fromkeys(part["action"] for part in parts))
        annotate({"toolmem.node": ROLE, "toolmem.action": "+".join(actions), "toolmem.step": record["decisions"]})
        event = {
            "event": "decision",
            "step": record["decisions"],
            "action": "+".join(actions) or "none",
            "sub_intents": parts,
            "model_calls": answer.calls,
            "not_done": record["pairs"][-1]["observed"] if record["pairs"] and not record["stop"] else [],
            **_seen(before),
        }
        _tell(config, {**event, "reason": answer.reason} if answer.reason else event)
        if self._on_decision is not None and decision is not None:
            try:
                self._on_decision(decision_event(decision, record, answer.prompt, self._messages(state), config))
            except Exception as error:  # noqa: BLE001 - whoever looks on must not stop the run
                self._errors.failed(error)

    def _tell_outcome(self, state: Any, before: NaviRecord, record: NaviRecord, config: RunnableConfig | None) -> None:
        """Hand the results of the last decision's calls to the decision hook."""
        hook = getattr(self._on_decision, "observed", None)
        if hook is None:
            return
        try:
            if event := outcome_event(before, record, self._messages(state), config):
                hook(event)
        except Exception as error:  # noqa: BLE001 - whoever looks on must not stop the run
            self._errors.failed(error)

    def _now(self, state: Any, config: RunnableConfig | None) -> Now:
        known: Mapping[str, Any] = {}
        try:
            known = known_values(parse_run(self._messages(state)))
        except Exception as error:  # noqa: BLE001 - messages that cannot be read have no values
            self._errors.failed(error)
        return Now(self._allowed(state), user_id_of(config, runtime_of(config)), known)

    def _allowed(self, state: Any) -> set[str]:
        """The tools that may be called now: not taken away, not left out for this user."""
        allowed = set(self._specs)
        if self._available is not None:
            try:
                allowed &= set(self._available())
            except Exception as error:  # noqa: BLE001 - not to know is no reason to stop
                self._errors.failed(error)
        return allowed - set(left_out_now(state, messages_key=self._key))

    def _judged(self, judge: Judge) -> Judge:
        """The host's judge; where it fails, an error counts as a failure, as it does without one."""

        def judged(answer: ToolMessage) -> bool:
            try:
                return bool(judge(answer))
            except Exception as error:  # noqa: BLE001 - a judge must not stop the run
                self._errors.failed(error)
                return True

        return judged

    def _messages(self, state: Any) -> list[BaseMessage]:
        return list(read_key(state, self._key) or ())


def _record(state: Any) -> NaviRecord:
    record: NaviRecord = read_key(state, "toolmem_navi")
    return record


def _seen(record: NaviRecord) -> dict[str, Any]:
    """Return what the decider sees, for the stream: subgraph, chains, and which other ways are left."""
    chains = [tools_of(chain) for chain in record["chains"]]
    return {
        "subgraph": record["subgraph"],
        "chain": chains[0] if chains else [],
        "alternatives": chains[1:],
        "failed": dict(record["failed"]),
    }


def _tell(config: RunnableConfig | None, event: dict[str, Any]) -> None:
    emit(runtime_of(config), {"node": ROLE, **event})


def _words(answer: Any) -> list[str]:
    """Return what the user answered, whatever form the host gives it."""
    if isinstance(answer, Mapping):
        return [f"{key}: {value}" for key, value in answer.items()]
    if isinstance(answer, (list, tuple)):
        return [str(part) for part in answer]
    return [str(answer)]


def _call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
