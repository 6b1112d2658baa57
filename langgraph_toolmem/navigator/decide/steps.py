"""The nodes of the subgraph over a record, from begin to conclude, and the edges between them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.utils import convert_to_openai_messages
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.types import Send, interrupt

from langgraph_toolmem.base.text import as_text
from langgraph_toolmem.navigator.decide.decision import (
    Decision,
    SubIntent,
    closing_messages,
    decider_messages,
    plain_closing,
    problem_of,
    request_at,
)
from langgraph_toolmem.navigator.decide.retriever import CallContext, Retriever
from langgraph_toolmem.navigator.decide.rounds import Judge, begun, decided, observed, with_retrieved, with_route
from langgraph_toolmem.navigator.decide.state import NaviRecord, NaviState, new_record, tools_of
from langgraph_toolmem.runs.messages import text_of
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.turn.ask import Ask, StepGenerator, adrive, drive
from langgraph_toolmem.turn.hints import left_out_now
from langgraph_toolmem.turn.host import ErrorLog, annotate, emit, read_key, runtime_of, thread_id_of, user_id_of
from langgraph_toolmem.turn.structured import Answer, Method, StructuredModel

if TYPE_CHECKING:
    from langgraph_toolmem.navigator import Navigator

logger = logging.getLogger("langgraph_toolmem.navigator.decide")

ROLE: Final = "navi"
MAX_IDLE: Final = 3
"""Decisions in a row without anything new after which a run ends."""
STEPS_TO_CLOSE: Final = 6
"""Graph steps of one more round and the closing."""
_CONFIG: Final = RunnableConfig(tags=["nostream"], run_name="toolmem_decider")
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
        navigator: Navigator,
        specs: Mapping[str, ToolSpec],
        *,
        instructions: str,
        judge: Judge | None,
        decisions: int,
        candidates: int,
        method: Method | None,
        keep_decisions: bool,
        messages_key: str,
    ) -> None:
        self._model, self._navigator, self._specs = model, navigator, specs
        self._decider = StructuredModel(model, Decision, check=problem_of, method=method)
        self._instructions, self._host_judge, self._key = instructions, judge, messages_key
        self._decisions, self._candidates, self._keeps = decisions, candidates, keep_decisions
        self._errors = ErrorLog("create_navi_subgraph", logger)
        self._retriever = Retriever(navigator, specs, self._errors)

    @property
    def nodes(self) -> dict[str, Any]:
        """The steps by the name of their node."""
        bodies = {
            "begin": self._begin,
            "decide": self._decide,
            "retrieve": self._retrieve,
            "observe": self._observe,
            "conclude": self._conclude,
        }
        return {"clarify": self._clarify, **{name: NaviStep(name, body) for name, body in bodies.items()}}

    # --- nodes ---

    def _begin(self, state: Any, config: RunnableConfig | None) -> dict[str, Any]:
        """Make a new record for this request, with the result of a search for it."""
        messages = self._messages(state)
        at = request_at(messages)
        record = new_record("" if at is None else text_of(messages[at].content, separator="\n").strip())
        if at is not None:
            record = begun(record, messages[at + 1 :], self._specs, judge=self._judge)
        context = self._context(state, config)
        found = self._retriever.search(record, record["request"], context, most=self._candidates)
        record = {**with_retrieved(record, found, self._candidates)[0], "queries": []}
        _tell(config, {"event": "candidates", "candidates": record["candidates"], **_seen(record)})
        return {"toolmem_navi": record, "toolmem_navi_retrieved": [], "toolmem_navi_said": []}

    def _decide(self, state: Any, config: RunnableConfig | None) -> StepGenerator[dict[str, Any]]:
        """Ask the model, and make its decision pending."""
        before = _record(state)
        prompt = decider_messages(before, self._specs, self._messages(state), extra=self._instructions)
        answer = yield from self._decider.asking(prompt, merge_configs(config, _CONFIG))
        refusal = SubIntent.model_validate({"action": "answer", "text": answer.refusal})
        decision = Decision(sub_intents=[refusal]) if answer.refusal else answer.value
        update: dict[str, Any] = {}
        if decision is None:
            record: NaviRecord = {**before, "decisions": before["decisions"] + 1, "stop": "unreadable"}
        elif decision.final:
            record = {**before, "decisions": before["decisions"] + 1, "waiting": [], "stop": "answered"}
            update[self._key] = [_message(decision.answer, record, answer.usage)]
        else:
            record = decided(before, decision, self._specs, lambda: f"call_{uuid.uuid4().hex[:24]}")
            if calls := record["pending"]["calls"]:
                made = [{"name": c["tool"], "args": c["args"], "id": c["id"], "type": "tool_call"} for c in calls]
                update[self._key] = [AIMessage(content="", tool_calls=made, usage_metadata=answer.usage)]
        self._tell_decision(before, record, decision, answer, config)
        if decision is not None and self._keeps:
            self._keep(state, record, decision, answer.prompt, config)
        return {**update, "toolmem_navi": record}

    def _retrieve(self, state: Any, config: RunnableConfig | None) -> dict[str, Any]:
        """Search for the tools that the decider imagined."""
        record, context = _record(state), self._context(state, config)
        found = [self._retriever.search(record, query, context) for query in record["pending"]["queries"]]
        return {"toolmem_navi_retrieved": found}

    def _clarify(self, state: Any) -> dict[str, Any]:
        """Ask the user and wait. Nothing precedes the interrupt: this node runs again when the answer comes."""
        questions = _record(state)["pending"]["questions"]
        answer = interrupt({"node": ROLE, "question": "\n".join(questions), "questions": questions})
        parts = answer if isinstance(answer, (list, tuple)) else [answer]
        return {"toolmem_navi_said": [as_text(part) for part in parts]}

    def _observe(self, state: Any, config: RunnableConfig | None) -> dict[str, Any]:
        """Read the results of the decision, and look for another way around each tool that failed."""
        before = _record(state)
        record, broken = observed(
            before,
            [message for message in self._messages(state) if isinstance(message, ToolMessage)],
            read_key(state, "toolmem_navi_retrieved") or (),
            read_key(state, "toolmem_navi_said") or (),
            candidates=self._candidates,
            judge=self._judge,
        )
        if self._keeps and before["pending"]["calls"]:
            good = all(call["status"] == "ok" for call in record["outcomes"][len(before["outcomes"]) :])
            self._fail_open(
                lambda: self._navigator.decisions.judge(self._run(state, config), before["decisions"], good)
            )
        for call in broken:
            route, found = self._retriever.reroute(before, record, call, self._context(state, config))
            record = with_route(record, route, found, self._candidates)
            _tell(config, {"event": "another way", "route": dict(route), **_seen(record)})
        left = read_key(state, "remaining_steps")
        if record["decisions"] >= self._decisions:
            record = {**record, "stop": "limit"}
        elif record["idle"] >= MAX_IDLE:
            record = {**record, "stop": "no progress"}
        elif isinstance(left, int) and left < STEPS_TO_CLOSE:
            record = {**record, "stop": "out of steps"}
        return {"toolmem_navi": record, "toolmem_navi_retrieved": [], "toolmem_navi_said": []}

    def _conclude(self, state: Any, config: RunnableConfig | None) -> StepGenerator[dict[str, Any]]:
        """Answer honestly in a run that stops early, without a model if none can answer."""
        record, answer = _record(state), None
        reason = _REASONS[record["stop"]]
        if record["stop"] != "unreadable":  # a model that cannot keep to a form is not asked again
            prompt = closing_messages(record, self._messages(state), reason)
            try:
                answer = yield Ask(self._model, prompt, merge_configs(config, _CONFIG))
            except Exception as error:  # noqa: BLE001 - the run has to end with an answer
                self._errors.failed(error)
        text = text_of(answer.content).strip() if isinstance(answer, AIMessage) else ""
        usage = answer.usage_metadata if isinstance(answer, AIMessage) and text else None
        _tell(config, {"event": "stop", "reason": reason, **_seen(record)})
        return {self._key: [_message(text or plain_closing(record, reason), record, usage)]}

    # --- edges ---

    def after_decision(self, state: Any) -> list[str | Send]:
        """Return the next nodes. Each call is a task of its own: one that waits does not repeat others."""
        record = _record(state)
        if record["stop"]:
            return ["answer" if record["stop"] == "answered" else "stop"]
        pending = record["pending"]
        seen = {key: value for key, value in dict(state).items() if key not in NaviState.__annotations__}
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
        ways += ["retrieve"] if pending["queries"] else []
        ways += ["clarify"] if pending["questions"] else []
        return ways or ["nothing to do"]

    def after_observation(self, state: Any) -> str:
        """Return the next node: another decision, or the end."""
        return "stop" if _record(state)["stop"] else "go on"

    # --- parts of the nodes ---

    def _judge(self, answer: ToolMessage) -> bool:
        """Ask the host's judge; without one, or if it raises, an error counts as a failure."""
        try:
            return self._host_judge is None or bool(self._host_judge(answer))
        except Exception as error:  # noqa: BLE001 - a judge must not stop the run
            self._errors.failed(error)
            return True

    def _context(self, state: Any, config: RunnableConfig | None) -> CallContext:
        allowed = self._specs.keys() - set(left_out_now(state, messages_key=self._key))
        return CallContext(allowed, user_id_of(config, runtime_of(config)))

    def _tell_decision(
        self,
        before: NaviRecord,
        record: NaviRecord,
        decision: Decision | None,
        answer: Answer[Decision],
        config: RunnableConfig | None,
    ) -> None:
        parts = [] if decision is None else [part.model_dump() for part in decision.sub_intents]
        action = "+".join(dict.fromkeys(part["action"] for part in parts))
        annotate({"toolmem.node": ROLE, "toolmem.action": action, "toolmem.step": record["decisions"]})
        event = {
            "event": "decision",
            "step": record["decisions"],
            "action": action or "none",
            "sub_intents": parts,
            "model_calls": answer.calls,
            "not_done": [] if record["stop"] else record["history"][-1]["observed"],
            **_seen(before),
        }
        _tell(config, {**event, "reason": answer.reason} if answer.reason else event)

    def _keep(
        self, state: Any, record: NaviRecord, decision: Decision, prompt: Any, config: RunnableConfig | None
    ) -> None:
        """Keep a decision for fine-tuning, unless a part of it cannot be done."""
        if not decision.final and record["history"][-1]["observed"]:
            return
        self._fail_open(
            lambda: self._navigator.decisions.add(
                self._run(state, config),
                record["decisions"],
                convert_to_openai_messages(list(prompt)),
                decision.model_dump(),
                user_id=user_id_of(config, runtime_of(config)),
                good=None if record["pending"]["calls"] and not decision.final else True,
            )
        )

    def _fail_open(self, do: Callable[[], object]) -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)

    def _run(self, state: Any, config: RunnableConfig | None) -> str:
        """Return the digest of the episode, as feedback names it."""
        return parse_run(self._messages(state), thread_id=thread_id_of(config, runtime_of(config))).digest

    def _messages(self, state: Any) -> list[BaseMessage]:
        return list(read_key(state, self._key) or ())


def _record(state: Any) -> NaviRecord:
    record: NaviRecord = read_key(state, "toolmem_navi")
    return record


def _message(text: str, record: NaviRecord, usage: UsageMetadata | None) -> AIMessage:
    mark = {"by": ROLE, "stop": record["stop"], "failed": sorted(record["failed"])}
    return AIMessage(content=text, usage_metadata=usage, response_metadata={"toolmem": mark})


def _seen(record: NaviRecord) -> dict[str, Any]:
    """Return the decider's view for the stream: subgraph, chains, and the other ways that are left."""
    chains = [tools_of(chain) for chain in record["chains"]]
    return {
        "subgraph": record["subgraph"],
        "chain": chains[0] if chains else [],
        "alternatives": chains[1:],
        "failed": dict(record["failed"]),
    }


def _tell(config: RunnableConfig | None, event: dict[str, Any]) -> None:
    emit(runtime_of(config), {"node": ROLE, **event})
