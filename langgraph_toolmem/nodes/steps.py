"""Nodes of a graph: their work is in the steps of the methods.

All take `messages_key`, the key of the messages in the host's state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import isroutine
from typing import Any, Final, Literal, TypeAlias, TypeVar

from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langgraph_toolmem.atoms import Atoms
from langgraph_toolmem.atoms.step import PlanHints, SGASettings
from langgraph_toolmem.base.checks import names_given, policy_given
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.method import Method, check_installed
from langgraph_toolmem.core.open_calls import owner_of_call
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.entries import Entries, RecallPolicy
from langgraph_toolmem.entries.steps import Preferences, Recall, Reflection, StateScore
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.exchange import MARK, ContextStore
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Prefetch, Registry, count_pause
from langgraph_toolmem.inertia.speculative import Interceptors
from langgraph_toolmem.inertia.step import Shortcut
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.navigator import Navigator
from langgraph_toolmem.navigator.deferred import Offer, RevealTools, ToolSearch
from langgraph_toolmem.runs.run import OWN_TOOLS, status_of
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, as_tool, name_of, read_tools
from langgraph_toolmem.sit import SIT
from langgraph_toolmem.sit.step import Suggest
from langgraph_toolmem.sit.suggest import SITPolicy
from langgraph_toolmem.turn.ask import Proceed, StepGenerator, adrive, drive
from langgraph_toolmem.turn.hints import StepOutput, left_out_now
from langgraph_toolmem.turn.host import env_mode, is_active, note_once, read_key, thread_id_of, user_id_of
from langgraph_toolmem.turn.step import Call, MemoryNode, SeenMessages, StepNode, model_input_of, report

M = TypeVar("M", bound=Method)
T = TypeVar("T")


def checked(memory: Any, who: str) -> ToolMemory:
    """Return the memory. Raises ConfigurationError if it is not a ToolMemory."""
    if not isinstance(memory, ToolMemory):
        raise ConfigurationError(f"{who} takes a ToolMemory, not {type(memory).__name__}.")
    return memory


def method_of(memory: Any, kind: type[M], who: str) -> M:
    """Return a memory's method. Raises ConfigurationError if the memory does not have it, or is not a ToolMemory."""
    for method in checked(memory, who).methods:
        if isinstance(method, kind):
            return method
    # A memory leaves out the methods whose extra is missing: then the error names the package to install.
    check_installed(kind.name)
    raise ConfigurationError(f"{who} needs the method {kind.__name__}(): name it in ToolMemory(methods=[…]).")


class Recorder(MemoryNode):
    """A node that learns the new turns of the run. Put it before END, so that it sees the last answer too.

    It works anywhere in a graph, alone or with an `InertiaShortcut`; each executed call is learned once. If calls may
    be edited, retried or blocked on their way, let it see the executions too: as the innermost wrapper it sees the
    final arguments and each attempt of a retry. Its own failures never reach the host. With ``InertiaShortcut(...,
    prefetch=True)`` it serves the prefetched results::

        recorder = Recorder(memory)
        ToolNode(tools, wrap_tool_call=recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call)

    Raises:
        ConfigurationError: `memory` is not a ToolMemory.
    """

    def __init__(self, memory: ToolMemory, *, messages_key: str = "messages") -> None:
        super().__init__("recorder", "learns what the run shows; decides nothing", messages_key=messages_key)
        self._core = checked(memory, "Recorder").core
        self.costs = self._core.costs
        self._prefetched: Registry | None = None
        self._contexts: ContextStore | None = None
        for method in memory.methods:
            if isinstance(method, Inertia):
                self._prefetched, self._contexts = method.prefetched, method.contexts
                break

    def body(self, state: Any, config: RunnableConfig | None) -> Any:
        call = self.call_of(state, config)
        new = self._core.lifecycle.observe(call.messages, call.owner)
        self.learned(new, call)

    def learned(self, turns: int, call: Call) -> None:
        """Report the number of learned turns."""
        output = StepOutput(event={"learned_turns": turns}, notes={"toolmem.learned_turns": turns})
        report(self.role, output, call.runtime, events=self._core.events)

    def wrap_tool_call(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
        """Execute and record a call: for ``ToolNode(wrap_tool_call=…)``."""
        try:
            return drive(self._body_around(request), execute, costs=self._core.costs)
        except GraphBubbleUp:
            self._paused(request)
            raise

    async def awrap_tool_call(
        self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Execute and record a call: for ``ToolNode(awrap_tool_call=…)``."""
        try:
            return await adrive(self._body_around(request), execute, costs=self._core.costs)
        except GraphBubbleUp:
            self._paused(request)
            raise

    def _body_around(self, request: ToolCallRequest) -> Callable[[], StepGenerator[Any]]:
        def body() -> StepGenerator[Any]:
            return self._around(request)

        return body

    def _around(self, request: ToolCallRequest) -> StepGenerator[Any]:
        if env_mode() == "off":  # it neither serves nor records
            return (yield Proceed(request))
        # Before the call: a tool may replace the messages of the state that is injected into it.
        messages = self.messages_of(request)
        served = yield from self._served(request, messages)
        try:
            result = yield Proceed(served)
        except Exception:  # an interrupt never gets here: nothing was executed yet
            self._record(request, messages, "failed", raised=True)
            raise  # retry and error handling belong to the host
        status = _outcome(result, request.tool_call["id"])
        if status is not None:
            self._record(request, messages, status)
        return result

    def _served(self, request: ToolCallRequest, messages: list[Any]) -> StepGenerator[ToolCallRequest]:
        """Return a request that is answered by an earlier look-up; the request itself if there was none."""
        served = request
        # Results that were a part of the model's input come first: the call is only their form in the messages.
        if self._contexts is not None:
            with self.errors:
                served = self._contexts.serve(request, owner_of(request))
        if self._prefetched is not None and served is request:
            with self.errors:
                served = yield from self._prefetched.serve(request, messages, owner_of(request))
        return served

    def _paused(self, request: ToolCallRequest) -> None:
        # A person is asked about this call: its tool must not run before, as a prefetch would.
        if self._prefetched is not None and env_mode() != "off":
            with self.errors:
                count_pause(self._core, request.tool_call["name"])

    def _record(
        self, request: ToolCallRequest, messages: list[Any], status: Literal["ok", "failed"], *, raised: bool = False
    ) -> None:
        call = request.tool_call
        with self.errors:
            self._core.lifecycle.executed(
                self._seen_messages(request, messages),
                call["id"] or "",
                owner_of(request),
                tool=call["name"],
                # The arguments of the model: the host injects state and runtime later.
                args=call["args"],
                status=status,
                raised=raised,
            )

    def messages_of(self, request: ToolCallRequest) -> list[Any]:
        """Return the messages of the host's state."""
        return list(read_key(request.state, self.messages_key) or ())

    def _seen_messages(self, request: ToolCallRequest, messages: list[Any]) -> list[Any]:
        """Return the messages as the model saw them: text that a middleware redacted in the request is not learned."""
        call_id = request.tool_call["id"] or ""
        owner = owner_of_call(owner_of(request), messages)
        open_call = self._core.open_calls.of_tool_call(owner, call_id)
        if open_call is None:
            return messages
        return open_call.seen_with(messages, call_id)


def owner_of(request: ToolCallRequest) -> Owner:
    """Return thread and user of a tool call."""
    runtime: Any = request.runtime
    config = getattr(runtime, "config", None)
    return Owner(thread_id_of(config), user_id_of(config, runtime))


def _outcome(result: Any, call_id: str | None) -> Literal["ok", "failed"] | None:
    """Return the outcome of a call that returned; None if it was refused before the tool began."""
    for message in _messages_in(result):
        if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
            status = status_of(message.content, error=message.status == "error")
            # An answer in the tool's place, such as a rejected approval, is no execution and teaches nothing.
            if status in ("rejected", "unanswered"):
                return None
            if status == "ok":
                return "ok"
            return "failed"
    return "ok"  # a Command without a result, such as a handoff


def _messages_in(result: Any) -> Iterator[Any]:
    """Yield the messages that a tool returned: one, several, or those that a Command puts into the state."""
    if isinstance(result, Command):
        update: Any = result.update
        if isinstance(update, dict):
            update = update.get("messages")
        if isinstance(update, Iterable) and not isinstance(update, (str, bytes)):
            yield from update
    # A tool that hands over returns several Commands and messages at once.
    elif isinstance(result, (list, tuple)):
        for part in result:
            yield from _messages_in(part)
    else:
        yield result


class ReflectionWriter(StepNode):
    """A node that keeps the run with its score, and learns the rest of it. Put it before END.

    The run becomes an entry, and its steps become atoms, as far as the memory has these methods. The entry is written
    in the background, and a critique if the run went wrong and the memory has a critic (``Entries(critic=…)``). Where
    branches run in parallel, add the node with ``defer=True``. A run that ends with an error never comes here: the host
    calls ``memory.finish`` itself (an agent's middleware does so).

    Args:
        memory: the memory.
        verdict: returns the run's score from the state. If it is None, returns None or raises, the run is kept without
            a score. In an async graph it is called in a thread.

    Raises:
        ConfigurationError: an argument is invalid, or the memory has no such method.
    """

    def __init__(
        self, memory: ToolMemory, *, verdict: StateScore | None = None, messages_key: str = "messages"
    ) -> None:
        names = {method.name for method in checked(memory, "ReflectionWriter").methods}
        # A memory for planning alone has no entries, and keeps its runs as well.
        kind: type[Entries] | type[Atoms] = Entries
        if Atoms.name in names and Entries.name not in names:
            kind = Atoms
        method: Method = method_of(memory, kind, "ReflectionWriter")
        step = Reflection(method, verdict=verdict)
        super().__init__(step, messages_key=messages_key)


class MemoryRecall(StepNode):
    """A node that puts past runs with similar requests into the private hint state, for every model call of the user's
    turn.

    Each run has its outcome (a failed run with its critique) or "not judged"; values of calls that may change something
    are masked. The node may be in the loop or before it: it searches once per user turn. The model's node reads the
    hint with `messages_with_hints`::

        builder = StateGraph(MemoryState)
        builder.add_node("recall", MemoryRecall(memory))
        builder.add_edge(START, "recall")
        builder.add_edge("recall", "agent")
        ...
        model.invoke(messages_with_hints(state, model))

    Args:
        memory: the memory.
        policy: limits the runs that are shown. Defaults to the memory's own.

    Raises:
        ConfigurationError: an argument is invalid, or the memory has no such method.
    """

    def __init__(
        self, memory: ToolMemory, *, policy: RecallPolicy | None = None, messages_key: str = "messages"
    ) -> None:
        super().__init__(Recall(method_of(memory, Entries, "MemoryRecall"), policy=policy), messages_key=messages_key)


class PreferenceGuide(StepNode):
    """A node that removes the tools with bad scores of this user on similar requests, for every model call of the
    user's turn.

    The model's node binds the remaining tools (`guided_tools`); the ToolNode keeps all tools. A tool is removed after
    at least two bad scores, and at least one tool remains (`langgraph_toolmem.entries.preferences`). In an agent these
    tools are never removed: the provider's without a name, the memory's own, tools of a structured answer, and tools
    that the request requires.

    Args:
        memory: the memory.
        keep: names of tools that are never removed.

    Raises:
        ConfigurationError: an argument is invalid, or the memory has no such method.
    """

    def __init__(self, memory: ToolMemory, *, keep: Iterable[str] = (), messages_key: str = "messages") -> None:
        step = Preferences(method_of(memory, Entries, "PreferenceGuide"), keep=keep)
        super().__init__(step, messages_key=messages_key)


def guided_tools(state: Any, tools: Iterable[T], *, messages_key: str = "messages") -> list[T]:
    """Return the tools that a `PreferenceGuide` did not remove; all of them if only the memory's own tools would
    remain.

    ::

        model.bind_tools(guided_tools(state, tools))

    Args:
        state: the state, with the key `toolmem_hints` (see `MemoryState`). Without it all tools are returned.
        tools: the tools of this step; tools without a name are always returned.
    """
    all_tools = list(tools)
    left_out = left_out_now(state, messages_key=messages_key)
    kept = [tool for tool in all_tools if name_of(tool) not in left_out]
    # With the memory's own tools alone the agent could not work for the user.
    if all(name_of(tool) in OWN_TOOLS for tool in kept):
        return all_tools
    return kept


class SITSummary(StepNode):
    """A node that puts the most likely next tools into the private hint state, for the next model call (SIT-Graph).

    It calls no model; put it between the shortcut and the model. The model's node reads the hint as with
    `MemoryRecall`. `tool` is the summary tool: give it to the model and to the ToolNode, and the model can ask for
    suggestions itself.

    Args:
        memory: the memory.
        policy: how states are compared. Defaults to the memory's own.
        summary_tool: If True, an agent gets the summary tool.

    Raises:
        ConfigurationError: an argument is invalid, or the memory has no such method.
    """

    def __init__(
        self,
        memory: ToolMemory,
        *,
        policy: SITPolicy | None = None,
        summary_tool: bool = True,
        messages_key: str = "messages",
    ) -> None:
        method = method_of(memory, SIT, "SITSummary")
        step = Suggest(method, policy=policy, summary_tool=summary_tool, messages_key=messages_key)
        super().__init__(step, messages_key=messages_key)
        self.tool = step.tool


class SGAPlanner(StepNode):
    """A node that puts single steps that worked at a similar point of other runs into the private hint state (SGA-MCTS,
    online part).

    The steps are atoms (`memory.atoms.search`), shown as patterns with the known values of this run. Put the node
    between the shortcut and the model; the model's node reads the hint as with `MemoryRecall`.

    Known values are kept per thread in this process, so they survive a trimmed history. Hints never name a tool that a
    `PreferenceGuide` removed, or whose call a person rejected in this turn.

    Args:
        memory: the memory.
        settings: the number of shown steps, and the planning model (none by default).
        tools: the agent's tools. Defaults to the tools that the memory knows.

    Raises:
        ConfigurationError: an argument is invalid, or the memory has no such method.
    """

    def __init__(
        self,
        memory: ToolMemory,
        settings: SGASettings | None = None,
        *,
        tools: Iterable[ToolLike] | None = None,
        messages_key: str = "messages",
    ) -> None:
        method, settings = method_of(memory, Atoms, "SGAPlanner"), policy_given(settings, SGASettings, "settings")
        super().__init__(PlanHints(method, settings, tools=tools), messages_key=messages_key)


class ToolRetriever(StepNode):
    """Tool search for the model of a graph, which keeps the prompt cache valid (`navigator.deferred`).

    The model's node calls the model with `offer` and returns the result of `take`; the two tools go to the ToolNode.
    The node itself is optional: put it before the model, and it shows the tools that similar requests called::

        retriever = ToolRetriever(memory, tools)

        def agent(state):
            offer = retriever.offer(messages_with_hints(state, model), model)
            answer = model.bind_tools(offer.tools).invoke(offer.messages)
            return {"messages": [retriever.take(answer)]}

        builder = StateGraph(MemoryState)
        builder.add_node("retriever", retriever)
        builder.add_node("agent", agent)
        builder.add_node("tools", ToolNode([*tools, *retriever.tools]))

    Args:
        memory: the memory.
        tools: the agent's tools, LangChain tools or functions. In an agent, defaults to the tools of each model call.
        search: options of the search (`ToolSearch`).
        always: more names of tools that are always offered.

    Raises:
        ConfigurationError: an argument is invalid, or the memory has no such method.
    """

    step: RevealTools

    def __init__(
        self,
        memory: ToolMemory,
        tools: Iterable[BaseTool | Callable[..., Any]] | None = None,
        *,
        search: ToolSearch | None = None,
        always: Iterable[str] = (),
        messages_key: str = "messages",
    ) -> None:
        method = method_of(memory, Navigator, "ToolRetriever")
        given: list[Any] | None = None
        if tools is not None:
            executable = executable_tools(tools)
            given = executable.tools
            own = sorted(OWN_TOOLS & executable.specs.keys())
            if own:
                raise ConfigurationError(
                    f"`tools` must not have the name of a tool of the memory, got {', '.join(own)}. Rename it."
                )
        search, always = policy_given(search, ToolSearch, "search"), names_given("always", always)
        step = RevealTools(method, given, search=search, always=always, messages_key=messages_key)
        super().__init__(step, messages_key=messages_key)
        self.tools: list[BaseTool] = step.deferred.tools

    def offer(self, messages: Sequence[Any], model: Any = None) -> Offer:
        """Return the tools to bind, and the messages to send to the model.

        Args:
            messages: the history, with the memory's hints.
            model: the called model; an unknown one gets the portable mode.
        """
        tools = self.step.given or ()
        if not is_active():  # with the memory off, an agent works as without it
            own = self.step.tools
            return Offer([tool for tool in tools if tool not in own], list(messages))
        return self.step.deferred.offer(tools, messages, model)

    def take(self, answer: AIMessage) -> AIMessage:
        """Return the model's answer with calls of the real tools."""
        return self.step.deferred.take(answer, self.step.given or ())


@dataclass(slots=True)
class ExecutableTools:
    """Tools as a ``ToolNode`` executes them (schemas stay as they are), and their specs by name."""

    tools: list[Any]
    specs: dict[str, ToolSpec]


def executable_tools(tools: Iterable[ToolLike]) -> ExecutableTools:
    """Return tools as a ``ToolNode`` executes them: functions become tools."""
    if isinstance(tools, Iterator):  # an iterator can be read only once
        tools = list(tools)
    executable = ExecutableTools([], read_tools(tools))
    for tool in tools:
        if isroutine(tool):
            executable.tools.append(as_tool(tool))
        else:
            executable.tools.append(tool)
    return executable


SystemText: TypeAlias = "Callable[[Any, Any], str]"
"""Returns the system prompt, given the graph's state and its runtime."""
NO_PROMPT: Final = (
    "InertiaShortcut does not see the system prompt, so it uses no value of the prompt or of the run's context. "
    "Pass it: InertiaShortcut(memory, tools, system=...), or system='' if there is none."
)


class InertiaShortcut(StepNode):
    """A node before the model: it learns the new turns of the run, then makes the next call itself or lets the model
    answer.

    Route every edge to the model through it, and let it choose the next node::

        builder.add_node("inertia", InertiaShortcut(memory, tools))
        builder.add_edge(START, "inertia")
        builder.add_edge("tools", "inertia")
        builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])

    A call it makes is an ``AIMessage`` with tool calls, marked in ``additional_kwargs["toolmem"]``. Each decision emits
    one custom stream event ``{"toolmem": {...}}``. It never calls a tool that an earlier `PreferenceGuide` left out.

    Args:
        memory: the memory.
        tools: the agent's tools: their marks say which calls change something.
        policy: when to act. Defaults to the memory's own.
        model: the model that the agent asks. If its API refuses turns that it did not make (`PROVIDER_RULES`), no
            shortcut is taken. If None, the node assumes that the API accepts them.
        prefetch: run likely look-ups while the model is asked (`Prefetch` says which). The results are served by
            ``ToolNode(tools, wrap_tool_call=recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call)``, of a
            `Recorder` on the same memory. Runs need a thread id, a user id and messages with ids.
        gated: names of tools that must not run before their call went through an approval or ``interrupt_before``,
            which the node cannot see: they are not prefetched.
        system: the system prompt that the model's node adds: a text, or a function of the state and the runtime that
            returns it. If None, the prompt is unknown, and the node uses no value of the prompt or of the run's
            context. ``""`` means that the model gets no system prompt.

    Raises:
        ConfigurationError: an argument is invalid, or the memory has no such method.
    """

    step: Shortcut

    def __init__(
        self,
        memory: ToolMemory,
        tools: Iterable[ToolLike],
        *,
        policy: InertiaPolicy | None = None,
        model: Any = None,
        messages_key: str = "messages",
        prefetch: bool | Prefetch = False,
        gated: Iterable[str] = (),
        system: str | SystemText | None = None,
    ) -> None:
        method = method_of(memory, Inertia, "InertiaShortcut")
        if system is not None and not isinstance(system, str) and not callable(system):
            raise ConfigurationError(
                f"`system` must be a text or a function of the state and the runtime, got {type(system).__name__}."
            )
        self._system = system
        self._executable = executable_tools(tools)
        # At once, not at the first call: declared effects decide whether a call may be proposed at all.
        method.core.catalogue.adopt(self._executable.specs)
        models = []
        if model is not None:
            models.append(model)
        step = Shortcut(method, policy=policy, models=tuple(models))
        super().__init__(step, messages_key=messages_key)
        step.enable_prefetch(prefetch, Interceptors(tools=frozenset(names_given("gated", gated))))

    def call_of(self, state: Any, config: RunnableConfig | None) -> Call:
        call = super().call_of(state, config)
        call.offered, call.tools = self._executable.tools, self._executable.specs
        system = self._system
        # Without its prompt the office's right look-ups fall from 2.2 to 0.7 per 100 turns (docs/figures.md).
        if system is None:
            note_once(NO_PROMPT)
            return call
        if not isinstance(system, str):
            system = system(state, call.runtime)
        messages = SeenMessages(call.messages, [])
        private = self.step.method.core.private
        call.model_input = model_input_of(SystemMessage(system), messages, call.runtime, private=private, complete=True)
        return call

    def update(self, call: Call, output: StepOutput) -> Any:
        """Return the call in the messages; None if the model should answer."""
        if output.answer is not None:
            return {self.messages_key: [output.answer]}
        # The model's own node asks the model, so the prefetch begins here, before the answer is seen.
        if self.step.prefetcher is not None and is_active():
            self.step.prefetcher.begin_unseen(call)
        return None


def shortcut_condition(
    state: Any, *, messages_key: str = "messages", tools: str = "tools", agent: str = "agent"
) -> Literal["tools", "agent"] | str:
    """Return the next node after an `InertiaShortcut`, like ``tools_condition``: the tools if it made a call, otherwise
    the model.

    Use ``functools.partial(shortcut_condition, tools=…, agent=…)`` for nodes with other names.
    """
    messages = read_key(state, messages_key) or ()
    if not messages:
        return agent
    last = messages[-1]
    if isinstance(last, AIMessage) and last.tool_calls and isinstance(last.additional_kwargs.get(MARK), Mapping):
        return tools
    return agent
