"""The navigator as a subgraph: a decider that answers, asks, searches or calls tools, and goes another way on failure.

NaviAgent (arXiv 2506.19500), sections 1 and 6 of its method; independent parts run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any, Final, get_args, get_origin

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Checkpointer
from typing_extensions import NotRequired, ReadOnly, Required, TypedDict, get_type_hints

from langgraph_toolmem.base.checks import is_count
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.models import resolve_model
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.navigator.decide.guards import guards
from langgraph_toolmem.navigator.decide.rounds import Judge
from langgraph_toolmem.navigator.decide.state import NaviRecord, NaviState
from langgraph_toolmem.navigator.decide.steps import ROLE, NaviSteps
from langgraph_toolmem.nodes.steps import Recorder
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.turn.hints import LeftOutState
from langgraph_toolmem.turn.structured import Method

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
_AFTER_DECISION: Final[dict[Hashable, str]] = {
    "tools": "tools",
    "retrieve": "retrieve",
    "clarify": "clarify",
    "nothing to do": "observe",
    "stop": "conclude",
    "answer": "record",
}


def create_navi_subgraph(
    model: BaseChatModel | str,
    tools: Sequence[BaseTool | Callable[..., Any]],
    memory: ToolMemory,
    *,
    instructions: str = "",
    is_failure: Judge | None = None,
    wrap_tool_call: Any = None,
    awrap_tool_call: Any = None,
    decisions: int = 24,
    candidates: int = 24,
    method: Method | None = None,
    keep_decisions: bool = False,
    state_schema: type | None = None,
    messages_key: str = "messages",
    checkpointer: Checkpointer = None,
    name: str = ROLE,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return an agent as a subgraph: give it messages, and it appends its calls, their results and the last answer.

    The first decision sees the candidates of a search for the request, so a task without failures costs one model
    call for each round of tool calls and one for the answer. A tool that fails is not called again in this run. An
    equivalent tool, another way from upstream, or the result of a fresh search takes its place. It asks the user by
    ``interrupt()``, which needs a checkpointer here or in the host's graph::

        builder.add_node("navi", create_navi_subgraph(model, tools, memory))
        create_navi_subgraph(model, tools, memory, checkpointer=InMemorySaver()).invoke({"messages": [("user", "…")]})

    Each decision emits one custom stream event ``{"toolmem": {"node": "navi", "event": "decision", …}}`` and is in the
    state under ``toolmem_navi``, with the subgraph that the decider saw. A host that wants it in its own state adds the
    key ``toolmem_navi``.

    Args:
        model: the decider: any chat model, or ``"provider:model"``.
        tools: the tools that may be called.
        memory: finds tools and chains, and learns from the calls.
        instructions: further instructions to the decider: who it works for, which day it is.
        is_failure: judges an error of a tool: True if the tool cannot do its work and is out for this run. Defaults to
            each error, unless the arguments or a person's refusal were the reason.
        wrap_tool_call, awrap_tool_call: guards of the host around each execution, as for ``ToolNode``, such as a
            person's approval by ``interrupt()``. The memory sees the calls that they let through. A call that a guard
            answers with an error, without executing it, was refused: its tool is not out, and nothing stands in for
            it. A call that a guard edits is shown to the decider as it was executed.
        decisions: most decisions for one request.
        candidates: tools that the first decision is shown; later ones see up to twice as many.
        method: of ``with_structured_output``, or "text" for JSON in the text. Defaults to the model's own, and to
            "text" for a model without structured output.
        keep_decisions: If True, ``memory.navigator.decisions`` keeps each decision with its prompt for fine-tuning.
        state_schema: the host's state, a TypedDict, if tools read parts of it or change it by a ``Command``. Keys
            without a reducer are returned to the host.
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
    if is_failure is not None and not callable(is_failure):
        raise ConfigurationError(f"is_failure must be a function, got {type(is_failure).__name__}.")
    for what, number in (("decisions", decisions), ("candidates", candidates)):
        if not is_count(number, 1):
            raise ConfigurationError(f"{what} must be a whole number >= 1, got {number!r}.")
    specs = read_tools(tools)
    if not specs:
        raise ConfigurationError("create_navi_subgraph needs at least one tool.")
    memory.core.catalogue.adopt(specs)
    recorder = Recorder(memory, messages_key=messages_key)
    wrap, awrap = guards(wrap_tool_call, awrap_tool_call, recorder)
    steps = NaviSteps(
        model,
        memory.navigator,
        memory.core.catalogue.marked(specs),
        instructions=instructions,
        judge=is_failure,
        decisions=decisions,
        candidates=candidates,
        method=method,
        keep_decisions=keep_decisions,
        messages_key=messages_key,
    )
    node = ToolNode(
        list(tools), handle_tool_errors=True, messages_key=messages_key, wrap_tool_call=wrap, awrap_tool_call=awrap
    )
    builder = _builder(messages_key, state_schema)
    for part, runs in {"tools": node, "record": recorder, **steps.nodes}.items():
        builder.add_node(part, runs, metadata={"toolmem": ROLE, "toolmem_about": _ABOUT[part]})
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "decide")
    builder.add_conditional_edges("decide", steps.after_decision, _AFTER_DECISION)
    for part in ("tools", "retrieve", "clarify"):
        builder.add_edge(part, "observe")
    builder.add_conditional_edges("observe", steps.after_observation, {"go on": "decide", "stop": "conclude"})
    builder.add_edge("conclude", "record")
    builder.add_edge("record", END)
    return builder.compile(checkpointer=checkpointer, name=name)


def _builder(messages_key: str, state_schema: type | None) -> StateGraph[Any, Any, Any, Any]:
    messages = {messages_key: Annotated[list[AnyMessage], add_messages]}
    hosts: dict[str, Any] = {}
    if state_schema is not None:
        try:
            hosts = get_type_hints(state_schema, include_extras=True)
        except (TypeError, NameError) as error:
            raise ConfigurationError(f"state_schema cannot be read: {error}") from error
    # A key with a reducer would be reduced a second time in the host's graph.
    plain = {key: kind for key, kind in hosts.items() if not hasattr(_bare(kind), "__metadata__")}
    left_out, own = (get_type_hints(schema, include_extras=True) for schema in (LeftOutState, NaviState))
    make: Any = TypedDict  # the keys are known when the graph is made, not when types are checked
    return StateGraph(
        make("NaviGraphState", {**hosts, **messages, **left_out, **own}),
        input_schema=make("NaviInput", {**hosts, **messages, **left_out}),
        output_schema=make("NaviOutput", {**plain, **messages, "toolmem_navi": NaviRecord}),
    )


def _bare(kind: Any) -> Any:
    """Return a type without ``NotRequired`` and the like around it."""
    while get_origin(kind) in (NotRequired, Required, ReadOnly):
        kind = get_args(kind)[0]
    return kind
