"""The navigator as a subgraph: a decider that answers, asks, searches or calls tools, and goes another way on failure.

NaviAgent (arXiv 2506.19500), sections 1 and 6 of its method; independent parts run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Annotated, Any, Final, get_args, get_origin

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Checkpointer
from typing_extensions import NotRequired, ReadOnly, Required, TypedDict, get_type_hints

from langgraph_toolmem.base.checks import is_number
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.models import resolve_model
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.navigator.decide.decision import Decision, problem_of
from langgraph_toolmem.navigator.decide.events import DecisionHook
from langgraph_toolmem.navigator.decide.guards import guards
from langgraph_toolmem.navigator.decide.rounds import Judge
from langgraph_toolmem.navigator.decide.state import NaviLimits, NaviRecord, NaviState
from langgraph_toolmem.navigator.decide.steps import ROLE, NaviSteps
from langgraph_toolmem.navigator.plan.planner import Strategy
from langgraph_toolmem.nodes.steps import Recorder
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.turn.hints import LeftOutState
from langgraph_toolmem.turn.structured import Method, StructuredModel

_ABOUT: Final = {
    "begin": "finds candidate APIs and complete toolchains for the request",
    "decide": "asks the model: answer, clarify, retrieve or execute, for each part that is open",
    "tools": "executes one call",
    "retrieve": "searches for APIs that the decider imagined",
    "clarify": "asks the user, and waits",
    "observe": "takes in what came of it; finds another way around tools that failed",
    "conclude": "says honestly what could not be done",
    "record": "the memory learns from the run",
}
_WAYS: Final[dict[Hashable, str]] = {
    "execute": "tools",
    "retrieve": "retrieve",
    "clarify": "clarify",
    "nothing to do": "observe",
    "stop": "conclude",
}


def create_navi_subgraph(
    model: BaseChatModel | str,
    tools: Sequence[BaseTool | Callable[..., Any]],
    memory: ToolMemory,
    *,
    instructions: str = "",
    available: Callable[[], Collection[str]] | None = None,
    is_failure: Judge | None = None,
    wrap_tool_call: Any = None,
    awrap_tool_call: Any = None,
    limits: NaviLimits | None = None,
    strategy: Strategy = "alpha_beta",
    seed: int = 0,
    budget: float = 0.2,
    method: Method | None = None,
    on_decision: DecisionHook | None = None,
    record: bool = True,
    state_schema: type | None = None,
    context_schema: type | None = None,
    messages_key: str = "messages",
    checkpointer: Checkpointer = None,
    name: str = ROLE,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """An agent as a subgraph: give it messages, and it appends its calls, their answers and the last answer.

    The first decision sees the candidates of a search with the request, so a task without failures costs one model
    call for each round of tool calls and one for the answer. A tool that fails is not called again in this run; an
    equivalent tool, another way from upstream, or what a fresh search finds goes on in its place. It asks the user by
    ``interrupt()``, which needs a checkpointer here or in the host's graph::

        builder.add_node("navi", create_navi_subgraph(model, tools, memory))
        create_navi_subgraph(model, tools, memory, checkpointer=InMemorySaver()).invoke({"messages": [("user", "…")]})

    Each decision emits one custom stream event ``{"toolmem": {"node": "navi", "event": "decision", …}}`` and stands
    in the state under ``toolmem_navi``, with the subgraph that the decider saw. A host that wants it in its own state
    adds the key ``toolmem_navi``.

    Args:
        model: the decider: any chat model, or ``"provider:model"``.
        tools: what may be called.
        memory: where tools and chains are looked up; it learns from the executions.
        instructions: the host's own words to the decider: who it works for, which day it is.
        available: names of the tools that may be called at this moment, asked before each step; all if None.
        is_failure: judges an error that a tool answered with: True if the tool cannot do its work and is out for this
            run. By default each error is one, unless the arguments or a person's refusal were the reason.
        wrap_tool_call, awrap_tool_call: guards of the host around each execution, as for ``ToolNode``; a person's
            approval by ``interrupt()`` has its place here. The memory's recorder sees what they let through. A call
            that one answers with an error, without executing it, was refused: its tool is not out, and nothing stands
            in for it. A call that one edits is shown to the decider as it was executed.
        limits: bounds of one request; see `NaviLimits`.
        strategy, seed, budget: of ``memory.navigator.plan``; the budget is in seconds, for each search.
        method: of ``with_structured_output``, or "text": the prompt asks for JSON as text. None: the model's own
            default, and "text" for a model without structured output.
        on_decision: is handed each decision with its prompt: chat messages, what was decided, thread id. Its errors are
            logged and passed over. ``memory.navigator.decisions`` keeps them for fine-tuning.
        record: the memory learns from calls and answers. False: it only looks up.
        state_schema: the host's state, if tools want parts of it injected or change it by a ``Command``; a TypedDict.
            Keys without a reducer are handed back to the host.
        context_schema: of the graph.
        messages_key: key of the messages.
        checkpointer: for a graph that stands alone; inside a host's graph the host's is used.
        name: of the graph.

    Raises:
        ConfigurationError: an argument cannot work.
        MissingExtraError: the model's package is not installed.
    """
    if not isinstance(memory, ToolMemory):
        raise ConfigurationError(f"create_navi_subgraph takes a ToolMemory, not {type(memory).__name__}.")
    if isinstance(model, str):
        model = resolve_model(model, name="model", others=("a chat model",))
    if not isinstance(model, BaseChatModel):
        raise ConfigurationError(
            f"create_navi_subgraph takes a chat model with no tools bound, not {type(model).__name__}."
        )
    for what, given in (("available", available), ("is_failure", is_failure), ("on_decision", on_decision)):
        if given is not None and not callable(given):
            raise ConfigurationError(f"{what} is a function, not {type(given).__name__}.")
    if limits is not None and not isinstance(limits, NaviLimits):
        raise ConfigurationError(f"limits is a NaviLimits, not {type(limits).__name__}.")
    if not is_number(budget) or budget <= 0:
        raise ConfigurationError(f"budget is a number of seconds above 0, not {budget!r}.")
    specs = read_tools(tools)
    if not specs:
        raise ConfigurationError("create_navi_subgraph needs at least one tool.")
    memory.core.catalogue.adopt(specs)
    recorder = Recorder(memory, messages_key=messages_key) if record else None
    wrap, awrap = guards(wrap_tool_call, awrap_tool_call, recorder)
    steps = NaviSteps(
        model,
        StructuredModel(model, Decision, check=problem_of, method=method),
        memory.navigator,
        memory.core.catalogue.marked(specs),
        instructions=instructions,
        available=available,
        judge=is_failure,
        limits=limits or NaviLimits(),
        strategy=strategy,
        seed=seed,
        budget=budget,
        on_decision=on_decision,
        messages_key=messages_key,
    )
    node = ToolNode(
        list(tools), handle_tool_errors=True, messages_key=messages_key, wrap_tool_call=wrap, awrap_tool_call=awrap
    )
    builder = _builder(messages_key, state_schema, context_schema)
    last = "record" if recorder is not None else END
    parts: dict[str, Any] = {"tools": node, "clarify": steps.clarify, **steps.runnables}
    if recorder is not None:
        parts["record"] = recorder
    for part, runs in parts.items():
        builder.add_node(part, runs, metadata={"toolmem": ROLE, "toolmem_about": _ABOUT[part]})
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "decide")
    builder.add_conditional_edges("decide", steps.way_on, {**_WAYS, "answer": last})
    for part in ("tools", "retrieve", "clarify"):
        builder.add_edge(part, "observe")
    builder.add_conditional_edges("observe", steps.goes_on, {"go on": "decide", "stop": "conclude"})
    builder.add_edge("conclude", last)
    if recorder is not None:
        builder.add_edge("record", END)
    return builder.compile(checkpointer=checkpointer, name=name)


def _builder(
    messages_key: str, state_schema: type | None, context_schema: type | None
) -> StateGraph[Any, Any, Any, Any]:
    said = {messages_key: Annotated[list[AnyMessage], add_messages]}
    hosts: dict[str, Any] = {}
    if state_schema is not None:
        try:
            hosts = get_type_hints(state_schema, include_extras=True)
        except (TypeError, NameError) as error:
            raise ConfigurationError(f"state_schema cannot be read: {error}") from error
    # What has a reducer would be reduced a second time in the host's graph.
    plain = {key: kind for key, kind in hosts.items() if not hasattr(_bare(kind), "__metadata__")}
    avoided = get_type_hints(LeftOutState, include_extras=True)
    inside = {**hosts, **said, **avoided, **get_type_hints(NaviState, include_extras=True)}
    make: Any = TypedDict  # the keys are known when the graph is made, not when types are checked
    return StateGraph(
        make("NaviGraphState", inside),
        context_schema=context_schema,
        input_schema=make("NaviInput", {**hosts, **said, **avoided}),
        output_schema=make("NaviOutput", {**plain, **said, "toolmem_navi": NaviRecord}),
    )


def _bare(kind: Any) -> Any:
    """A type without ``NotRequired`` and the like around it."""
    while get_origin(kind) in (NotRequired, Required, ReadOnly):
        kind = get_args(kind)[0]
    return kind
