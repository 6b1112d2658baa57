"""The navigator as a subgraph: a decider that answers, asks, searches or calls tools, and tries another way on failure.

NaviAgent (arXiv 2506.19500), sections 1 and 6 of its method; independent parts run in parallel.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.utils import convert_to_openai_messages
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs
from langchain_core.tools import BaseTool
from langgraph.channels import LastValue
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Checkpointer, Send, interrupt
from typing_extensions import TypedDict, get_type_hints

from langgraph_toolmem.base.checks import resolve_model
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import as_text
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.navigator import Navigator
from langgraph_toolmem.navigator.decide.decision import (
    NaviDecision,
    NaviRecord,
    NaviState,
    Stop,
    SubIntent,
    closing_messages,
    decider_messages,
    new_record,
    plain_closing,
    problem_of,
    request_at,
    subgraph_of,
    tools_of,
)
from langgraph_toolmem.navigator.decide.rounds import (
    MAX_CANDIDATES,
    CallContext,
    Retriever,
    begun,
    decided,
    guards,
    observed,
    with_retrieved,
    with_route,
)
from langgraph_toolmem.nodes.steps import Recorder, checked
from langgraph_toolmem.runs.run import no_usage, text_of
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.turn.ask import Ask, StepGenerator, adrive, drive
from langgraph_toolmem.turn.hints import HintState, left_out_now
from langgraph_toolmem.turn.host import ErrorLog, annotate, emit, read_key, runtime_of, thread_id_of, user_id_of
from langgraph_toolmem.turn.structured import Answer, OutputMethod, StructuredModel

logger = logging.getLogger("langgraph_toolmem.nodes.navi")

ROLE: Final = "navi"


@dataclass(frozen=True, slots=True)
class NaviLimits:
    """Limits of one request. Each limit ends the run with an answer that names the unfinished parts.

    Attributes:
        decisions: decisions for one request; the host's ``recursion_limit`` may allow fewer.
        idle: decisions in a row without a new result.
        steps_to_close: graph steps of one more round and the closing. With fewer left the run ends, before LangGraph
            ends it with an error.
    """

    decisions: int = 24
    idle: int = 3
    steps_to_close: int = 6


NAVI_LIMITS: Final = NaviLimits()
# "nostream": a decision is JSON, which an app that streams the model's tokens would show to its user.
_CONFIG: Final = RunnableConfig(tags=["nostream"], run_name="toolmem_decider")
_STOP_REASONS: Final = {
    "unreadable": "the decision could not be read, not even when it was asked for again",
    "limit": "the limit of decisions for one request is reached",
    "no progress": "the last decisions brought nothing new",
    "out of steps": "the graph's limit of steps is nearly reached",
}
_ABOUT: Final = {
    "begin": "finds candidate tools and complete toolchains for the request",
    "decide": "asks the model: answer, clarify, retrieve or execute, for each open part",
    "tools": "executes one call",
    "retrieve": "searches for tools that the decider imagined",
    "clarify": "asks the user, and waits",
    "observe": "reads the results; finds another way around tools that failed",
    "conclude": "says what could not be done",
    "record": "the memory learns from the run",
}


def create_navi_subgraph(
    model: BaseChatModel | str,
    tools: Sequence[BaseTool | Callable[..., Any]],
    memory: ToolMemory,
    *,
    instructions: str = "",
    wrap_tool_call: Any = None,
    awrap_tool_call: Any = None,
    method: OutputMethod | None = None,
    keep_decisions: bool = False,
    state_schema: type | None = None,
    messages_key: str = "messages",
    checkpointer: Checkpointer = None,
    name: str = ROLE,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return an agent as a subgraph: give it messages, and it appends its calls, their results and the last answer.

    The first decision sees the candidates of a search for the request, so a task without failures costs one model call
    for each round of tool calls and one for the answer. A tool that fails is not called again in this run. An
    equivalent tool, another way from upstream, or the result of a fresh search takes its place. An error caused by the
    arguments does not disable the tool, and a guard may turn an error such as "not found" into a result. The decider
    asks the user by ``interrupt()``, which needs a checkpointer here or in the host's graph::

        builder.add_node("navi", create_navi_subgraph(model, tools, memory))
        create_navi_subgraph(model, tools, memory, checkpointer=InMemorySaver()).invoke({"messages": [("user", "…")]})

    Each decision emits one custom stream event ``{"toolmem": {"node": "navi", "event": "decision", …}}`` and is in the
    state under ``toolmem_navi``, with the chains that the decider saw. To read it, add this key to the host's state.

    Args:
        model: the decider: any chat model, or ``"provider:model"``.
        tools: the tools that may be called.
        memory: finds tools and chains, and learns from the calls.
        instructions: further instructions to the decider, such as its role or today's date.
        wrap_tool_call, awrap_tool_call: guards of the host around each execution, as for ``ToolNode``, such as a
            person's approval by ``interrupt()``. The memory sees the calls that they let through. A call that a guard
            answers with an error, without executing it, was refused: its tool stays available, and no other tool
            replaces it. The decider sees an edited call as it was executed.
        method: of ``with_structured_output``, or "text" for JSON in the text. Defaults to the model's own, and to
            "text" for a model without structured output.
        keep_decisions: If True, ``memory.navigator.decisions`` keeps each decision with its prompt for fine-tuning.
        state_schema: the host's state, a TypedDict, if tools read parts of it or change it by a ``Command``. Keys
            without a reducer are returned to the host.
        messages_key: key of the messages.
        checkpointer: of a graph that runs on its own; inside a host's graph the host's is used.
        name: of the graph.

    Raises:
        ConfigurationError: an argument is invalid.
        MissingExtraError: the model's package is not installed.
    """
    checked(memory, "create_navi_subgraph")
    chat_model = _chat_model(model)
    given = read_tools(tools)
    if not given:
        raise ConfigurationError("create_navi_subgraph needs at least one tool.")
    memory.core.catalogue.adopt(given)
    # With the marks that the developer gave the memory: a tool declared destructive there is destructive here too.
    specs = memory.core.catalogue.marked(given)
    recorder = Recorder(memory, messages_key=messages_key)
    wrap, awrap = guards(wrap_tool_call, awrap_tool_call, recorder.wrap_tool_call, recorder.awrap_tool_call)
    errors = ErrorLog("create_navi_subgraph", logger)
    steps = NaviSteps(
        model=chat_model,
        decider=StructuredModel(chat_model, NaviDecision, check=problem_of, method=method),
        navigator=memory.navigator,
        specs=specs,
        retriever=Retriever(memory.navigator, specs, errors),
        errors=errors,
        instructions=instructions,
        keep_decisions=keep_decisions,
        messages_key=messages_key,
    )
    # An error of a tool is a result like others: the decider reads it and looks for another way.
    node = ToolNode(
        list(tools), handle_tool_errors=True, messages_key=messages_key, wrap_tool_call=wrap, awrap_tool_call=awrap
    )
    builder = _builder(messages_key, state_schema)
    # With their purposes, which Studio shows at the nodes.
    for part, runs in {"tools": node, "record": recorder, **steps.nodes}.items():
        builder.add_node(part, runs, metadata={"toolmem": ROLE, "toolmem_about": _ABOUT[part]})
    _add_edges(builder, steps)
    return builder.compile(checkpointer=checkpointer, name=name)


def _chat_model(model: BaseChatModel | str) -> BaseChatModel:
    """Return the decider's chat model; raise ConfigurationError for another model."""
    if isinstance(model, str):
        return resolve_model(model, name="model", others=("a chat model",))
    if not isinstance(model, BaseChatModel):
        raise ConfigurationError(
            f"create_navi_subgraph takes a chat model with no tools bound, not {type(model).__name__}."
        )
    return model


def _add_edges(builder: StateGraph[Any, Any, Any, Any], steps: NaviSteps) -> None:
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "decide")
    after_decision = ["tools", "retrieve", "clarify", "observe", "conclude", "record"]
    builder.add_conditional_edges("decide", steps.after_decision, after_decision)
    for part in ("tools", "retrieve", "clarify"):
        builder.add_edge(part, "observe")
    builder.add_conditional_edges("observe", steps.after_observation, ["decide", "conclude"])
    builder.add_edge("conclude", "record")
    builder.add_edge("record", END)


def _builder(messages_key: str, state_schema: type | None) -> StateGraph[Any, Any, Any, Any]:
    messages = {messages_key: Annotated[list[AnyMessage], add_messages]}
    hosts: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    if state_schema is not None:
        try:
            hosts, channels = get_type_hints(state_schema, include_extras=True), StateGraph(state_schema).channels
        except (TypeError, NameError) as error:
            raise ConfigurationError(f"state_schema cannot be read: {error}") from error
        # A key with a reducer would be reduced a second time in the host's graph.
        for key, kind in hosts.items():
            if isinstance(channels.get(key), LastValue):
                plain[key] = kind
    hints = get_type_hints(HintState, include_extras=True)
    own = get_type_hints(NaviState, include_extras=True)
    make: Any = TypedDict  # the keys are known when the graph is made, not when types are checked
    return StateGraph(
        make("NaviGraphState", {**hosts, **messages, **hints, **own}),
        input_schema=make("NaviInput", {**hosts, **messages, **hints}),
        output_schema=make("NaviOutput", {**plain, **messages, "toolmem_navi": NaviRecord}),
    )


class NaviStep(Runnable[Any, Any]):
    """A step as a LangGraph node, sync and async; its body may ask a model (`turn.ask`)."""

    def __init__(self, name: str, body: Callable[[Any, RunnableConfig | None], Any]) -> None:
        self.name, self._body = name, body

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002 - Runnable's name
        return drive(self._body_of(input, config))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        return await adrive(self._body_of(input, config))

    def _body_of(self, state: Any, config: RunnableConfig | None) -> Callable[[], Any]:
        def body() -> Any:
            return self._body(state, config)

        return body


@dataclass(frozen=True)
class NaviSteps:
    """The bodies of the subgraph's nodes. See `create_navi_subgraph` for the fields."""

    model: BaseChatModel
    decider: StructuredModel[NaviDecision]
    navigator: Navigator
    specs: Mapping[str, ToolSpec]
    retriever: Retriever
    errors: ErrorLog
    instructions: str
    keep_decisions: bool
    messages_key: str

    @property
    def nodes(self) -> dict[str, Any]:
        return {
            "clarify": self._clarify,
            "begin": NaviStep("begin", self._begin),
            "decide": NaviStep("decide", self._decide),
            "retrieve": NaviStep("retrieve", self._retrieve),
            "observe": NaviStep("observe", self._observe),
            "conclude": NaviStep("conclude", self._conclude),
        }

    # --- nodes ---

    def _begin(self, state: Any, config: RunnableConfig | None) -> dict[str, Any]:
        messages = self._messages(state)
        at = request_at(messages)
        if at is None:
            record = new_record("")
        else:
            request = text_of(messages[at].content, separator="\n").strip()
            record = begun(new_record(request), messages[at + 1 :], self.specs)
        context = self._context(state, config)
        found = self.retriever.search(record, record["request"], context, most=MAX_CANDIDATES)
        # The decider did not make this search, so it may search for the request's own words.
        record = {**with_retrieved(record, found), "queries": []}
        self._emit(config, {"event": "candidates", "candidates": record["candidates"], **_view_of(record)})
        return {"toolmem_navi": record, "toolmem_navi_retrieved": [], "toolmem_navi_said": []}

    def _decide(self, state: Any, config: RunnableConfig | None) -> StepGenerator[dict[str, Any]]:
        before = _record(state)
        prompt = decider_messages(before, self.specs, self._messages(state), extra=self.instructions)
        answer = yield from self.decider.asking(prompt, merge_configs(config, _CONFIG))
        decision = answer.value
        if answer.refusal:
            refusal = SubIntent.model_validate({"action": "answer", "text": answer.refusal})
            decision = NaviDecision(sub_intents=[refusal])
        record, messages = self._after(before, decision, answer.usage)
        not_done: list[Any] = []
        if not record["stop"]:
            not_done = record["history"][-1]["observed"]
        self._emit_decision(config, before, record, decision, answer, not_done)
        # A decision that could not be carried out completely is a bad example for fine-tuning.
        if decision is not None and self.keep_decisions and not not_done:

            def keep() -> None:
                self._keep(state, record, decision, answer.prompt, config)

            self.navigator.core.log_and_continue("could not keep a decision", keep)
        update: dict[str, Any] = {"toolmem_navi": record}
        if messages:
            update[self.messages_key] = messages
        return update

    def _after(
        self, before: NaviRecord, decision: NaviDecision | None, usage: UsageMetadata | None
    ) -> tuple[NaviRecord, list[AIMessage]]:
        """Return the record after a decision (None: it could not be read), and the message that it makes."""
        decisions = before["decisions"] + 1
        if decision is None:
            return {**before, "decisions": decisions, "stop": "unreadable"}, []
        if decision.final:
            record: NaviRecord = {**before, "decisions": decisions, "waiting": [], "stop": "answered"}
            return record, [_message(decision.answer, record, usage)]
        record = decided(before, decision, self.specs, _new_call_id)
        calls = [_tool_call(call) for call in record["pending"]["calls"]]
        if not calls:
            return record, []
        return record, [AIMessage(content="", tool_calls=calls, usage_metadata=usage)]

    def _emit_decision(
        self,
        config: RunnableConfig | None,
        before: NaviRecord,
        record: NaviRecord,
        decision: NaviDecision | None,
        answer: Answer[NaviDecision],
        not_done: Sequence[Any],
    ) -> None:
        """Write a decision to the stream and the current span."""
        parts = []
        actions: dict[str, None] = {}  # each once, in order
        if decision is not None:
            for part in decision.sub_intents:
                parts.append(part.model_dump())
                actions[part.action] = None
        action = "+".join(actions) or "none"
        annotate({"toolmem.node": ROLE, "toolmem.action": action, "toolmem.step": record["decisions"]})
        event = {
            "event": "decision",
            "step": record["decisions"],
            "action": action,
            "sub_intents": parts,
            "model_calls": answer.calls,
            "reason": answer.reason,
            "not_done": not_done,
            **_view_of(before),
        }
        self._emit(config, event)

    def _retrieve(self, state: Any, config: RunnableConfig | None) -> dict[str, Any]:
        record, context = _record(state), self._context(state, config)
        retrieved = []
        for query in record["pending"]["queries"]:
            retrieved.append(self.retriever.search(record, query, context))
        return {"toolmem_navi_retrieved": retrieved}

    def _clarify(self, state: Any) -> dict[str, Any]:
        """Ask the user and wait. The interrupt comes first, because this node runs again when the answer comes."""
        questions = _record(state)["pending"]["questions"]
        # All questions at once: each interrupt is a round trip to a person.
        answer = interrupt({"node": ROLE, "question": "\n".join(questions), "questions": questions})
        if not isinstance(answer, (list, tuple)):  # one answer to all questions
            answer = [answer]
        return {"toolmem_navi_said": [as_text(part) for part in answer]}

    def _observe(self, state: Any, config: RunnableConfig | None) -> dict[str, Any]:
        """Read the results of the decision, and look for a replacement of each tool that failed."""
        before = _record(state)
        results = [message for message in self._messages(state) if isinstance(message, ToolMessage)]
        retrieved = read_key(state, "toolmem_navi_retrieved") or ()
        replies = read_key(state, "toolmem_navi_said") or ()
        record, broken = observed(before, results, retrieved, replies)
        if self.keep_decisions and before["pending"]["calls"]:
            new = record["outcomes"][len(before["outcomes"]) :]
            # As the paper trains its decider: on decisions of which all parts went well.
            good = all(outcome["status"] == "ok" for outcome in new)

            def judge() -> None:
                self.navigator.decisions.judge(self._run(state, config), before["decisions"], good)

            self.navigator.core.log_and_continue("could not judge a decision", judge)
        for call in broken:
            route, found = self.retriever.reroute(before, record, call, self._context(state, config))
            record = with_route(record, route, found)
            self._emit(config, {"event": "another way", "route": dict(route), **_view_of(record)})
        stop = _why_to_stop(record, read_key(state, "remaining_steps"))
        if stop:
            record = {**record, "stop": stop}
        return {"toolmem_navi": record, "toolmem_navi_retrieved": [], "toolmem_navi_said": []}

    def _conclude(self, state: Any, config: RunnableConfig | None) -> StepGenerator[dict[str, Any]]:
        record, answer = _record(state), None
        reason = _STOP_REASONS[record["stop"]]
        if record["stop"] != "unreadable":  # a model that cannot follow the form is not asked again
            prompt = closing_messages(record, self._messages(state), reason)
            try:
                answer = yield Ask(self.model, prompt, merge_configs(config, _CONFIG))
            except Exception as error:  # noqa: BLE001 - the run has to end with an answer
                self.errors.failed(error)
        text = ""
        usage: UsageMetadata | None = no_usage()
        if isinstance(answer, AIMessage):
            text, usage = text_of(answer.content).strip(), answer.usage_metadata
        self._emit(config, {"event": "stop", "reason": reason, **_view_of(record)})
        return {self.messages_key: [_message(text or plain_closing(record, reason), record, usage)]}

    # --- edges ---

    def after_decision(self, state: Any) -> list[str | Send]:
        """Return the next nodes. Each call is a task of its own, so that a waiting call does not repeat others."""
        record = _record(state)
        if record["stop"] == "answered":
            return ["record"]
        if record["stop"]:
            return ["conclude"]
        pending = record["pending"]
        # The tools of the host read its state; they must not see the subgraph's own keys.
        shown = dict(state)
        for key in NaviState.__annotations__:
            shown.pop(key, None)
        next_nodes: list[str | Send] = []
        for call in pending["calls"]:
            task = {"__type": "tool_call_with_context", "tool_call": _tool_call(call), "state": shown}
            next_nodes.append(Send("tools", task))
        if pending["queries"]:
            next_nodes.append("retrieve")
        if pending["questions"]:
            next_nodes.append("clarify")
        return next_nodes or ["observe"]

    def after_observation(self, state: Any) -> str:
        if _record(state)["stop"]:
            return "conclude"
        return "decide"

    # --- parts of the nodes ---

    def _emit(self, config: RunnableConfig | None, event: dict[str, Any]) -> None:
        emit(runtime_of(config), {"node": ROLE, **event}, on=self.navigator.core.events)

    def _context(self, state: Any, config: RunnableConfig | None) -> CallContext:
        allowed = self.specs.keys() - set(left_out_now(state, messages_key=self.messages_key))
        return CallContext(allowed, user_id_of(config, runtime_of(config)))

    def _keep(
        self, state: Any, record: NaviRecord, decision: NaviDecision, prompt: Any, config: RunnableConfig | None
    ) -> None:
        """Keep a decision for fine-tuning; its calls are scored after they were made."""
        good: bool | None = True
        if record["pending"]["calls"] and not decision.final:
            good = None
        messages, user_id = convert_to_openai_messages(list(prompt)), user_id_of(config, runtime_of(config))
        self.navigator.decisions.add(
            self._run(state, config), record["decisions"], messages, decision.model_dump(), user_id=user_id, good=good
        )

    def _run(self, state: Any, config: RunnableConfig | None) -> str:
        """Return the digest of the episode, as feedback names it."""
        return parse_run(self._messages(state), thread_id=thread_id_of(config, runtime_of(config))).digest

    def _messages(self, state: Any) -> list[BaseMessage]:
        return list(read_key(state, self.messages_key) or ())


def _record(state: Any) -> NaviRecord:
    record: NaviRecord = read_key(state, "toolmem_navi")
    return record


def _why_to_stop(record: NaviRecord, steps_left: Any) -> Stop:
    """Return the reason why the run ends after this round, as a key of `_STOP_REASONS`; "" if it continues."""
    if record["decisions"] >= NAVI_LIMITS.decisions:
        return "limit"
    # Without this limit a decider that repeats its searches or its refused calls would be asked 24 times.
    if record["idle"] >= NAVI_LIMITS.idle:
        return "no progress"
    if isinstance(steps_left, int) and steps_left < NAVI_LIMITS.steps_to_close:
        return "out of steps"
    return ""


def _new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    return ToolCall(name=call["tool"], args=call["args"], id=call["id"], type="tool_call")


def _message(text: str, record: NaviRecord, usage: UsageMetadata | None) -> AIMessage:
    mark = {"by": ROLE, "stop": record["stop"], "failed": sorted(record["failed"])}
    return AIMessage(content=text, usage_metadata=usage, response_metadata={"toolmem": mark})


def _view_of(record: NaviRecord) -> dict[str, Any]:
    """Return the decider's view for the stream: subgraph, chains, and the other ways that are left."""
    best: list[str] = []
    alternatives: list[list[str]] = []
    if record["chains"]:
        best, *alternatives = [tools_of(chain) for chain in record["chains"]]
    return {
        "subgraph": subgraph_of(record["chains"]),
        "chain": best,
        "alternatives": alternatives,
        "failed": dict(record["failed"]),
    }
