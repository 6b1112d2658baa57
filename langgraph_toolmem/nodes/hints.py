"""Nodes that put something before the model: past runs, next tools, steps that worked, tools taken out or shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool

from langgraph_toolmem.atoms import Atoms
from langgraph_toolmem.atoms.settings import BUDGET as PLANNING_BUDGET
from langgraph_toolmem.atoms.settings import SGASettings, When
from langgraph_toolmem.atoms.step import PlanHints
from langgraph_toolmem.base.checks import names_given
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.entries import Entries
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.preferences import DomainOf
from langgraph_toolmem.entries.render import BUDGET
from langgraph_toolmem.entries.steps import How, Preferences, Recall
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.navigator import Navigator
from langgraph_toolmem.navigator.deferred import Offer, ToolSearch
from langgraph_toolmem.navigator.step import RevealTools
from langgraph_toolmem.nodes.of_memory import method_of
from langgraph_toolmem.runs.run import OWN_TOOLS
from langgraph_toolmem.runs.tools import ToolLike, as_tool, name_of
from langgraph_toolmem.sit import SIT
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.step import Suggest
from langgraph_toolmem.turn import env_mode
from langgraph_toolmem.turn.call import Call, StepOutput
from langgraph_toolmem.turn.hints import left_out_now
from langgraph_toolmem.turn.node import StepNode

T = TypeVar("T")


class MemoryRecall(StepNode):
    """Puts past runs with similar requests into the private hint state, for every model call of the user's turn.

    As many as are worth it, often none; each says how it went (the failed ones with their critique) or that nobody
    judged it. Calls that may change something are shown without their values. Stands anywhere before the model, in the
    loop or in front of it: it looks once per user turn. The model's node reads the hint with `memory_prompt`::

        builder = StateGraph(MemoryState)
        builder.add_node("recall", MemoryRecall(memory))
        builder.add_edge(START, "recall")
        builder.add_edge("recall", "agent")
        ...
        model.invoke([*memory_prompt(state), *state["messages"]])

    Args:
        memory: the memory.
        policy: how many runs are worth showing; the memory's own if None.
        budget: tokens at most (a quarter of the text's length in UTF-8 is counted).
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self,
        memory: ToolMemory,
        *,
        policy: RecallPolicy | None = None,
        budget: int = BUDGET,
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        method = method_of(memory, Entries, "MemoryRecall")
        step = Recall(method, policy=policy, budget=budget)
        super().__init__(step, messages_key=messages_key, name=name)


class SITSummary(StepNode):
    """Puts the likeliest next tools into the private hint state, for the model call that follows (SIT-Graph).

    Stands between the shortcut and the model; the model's node reads the hint with `memory_prompt`::

        builder = StateGraph(MemoryState)
        sit = SITSummary(memory)
        builder.add_node("sit", sit)
        builder.add_edge("sit", "agent")
        ...
        model.invoke([*memory_prompt(state), *state["messages"]])

    No model is called for it. `sit.tool` is the summary tool: give it to the model and to the ToolNode, and the
    model can ask for more when it is not sure.

    Args:
        memory: the memory.
        policy: how states are compared; the memory's own if None.
        summary_tool: in an agent: give it the summary tool.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self,
        memory: ToolMemory,
        *,
        policy: SITPolicy | None = None,
        summary_tool: bool = True,
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        method = method_of(memory, SIT, "SITSummary")
        how: dict[str, Any] = {"summary_tool": summary_tool, "messages_key": messages_key}
        step = Suggest(method, policy=policy, **how)
        super().__init__(step, messages_key=messages_key, name=name)
        self.tool = step.tool


class SGAPlanner(StepNode):
    """Puts single steps that worked at such a point of other runs into the private hint state (SGA-MCTS, online part).

    The steps are atoms (`memory.atoms.search`), learned from runs that went well or found by a `Discovery`,
    without values and not bound to tool names. They are looked up by where the run stands, by what is still open and
    by the types of the values that are known, and shown as patterns with these values filled in. Stands between the
    shortcut and the model; the model's node reads the hint with `memory_prompt`::

        builder = StateGraph(MemoryState)
        builder.add_node("sga", SGAPlanner(memory, tools=tools))
        builder.add_edge("sga", "agent")
        ...
        model.invoke([*memory_prompt(state), *state["messages"]])

    No model is called for it by default: what is known and what is open are read off the messages. With a `model`,
    that model says so in one structured call (a second one if its answer cannot be used); if it is of no use twice in a
    row, it is left alone until the user speaks again. What is known is kept in the private state, so it is still there
    when messages were trimmed. ``StateGraph(MemoryState, output_schema=MessagesState)`` keeps it out of what the app
    returns.

    A tool that a `PreferenceGuide` leaves out gives no hint, nor does one of which
    a person rejected a call since the user spoke. Before the first call of a user turn only steps are shown that have
    words in common with what is open (or whatever an embedder of your own finds like it).

    Args:
        memory: the memory.
        tools: the agent's tools; those that the memory knows if None.
        model: says where the run stands and what comes next: a chat model or ``"provider:model"``.
        when: the model is asked before each model call ("step"), when what is open has changed or a call has failed
            ("goal"), or once per user turn ("turn").
        k: patterns shown, at most.
        beta: weight of what is known against words, 0 to 1.
        budget: tokens of the patterns at most.
        plain: the published score and no more (`SGASettings.paper`).
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self,
        memory: ToolMemory,
        *,
        tools: Iterable[ToolLike] | None = None,
        model: BaseChatModel | str | None = None,
        when: When = "step",
        k: int = 3,
        beta: float = 0.3,
        budget: int = PLANNING_BUDGET,
        plain: bool = False,
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        method = method_of(memory, Atoms, "SGAPlanner")
        settings = SGASettings(model, when, k, beta, budget, plain)
        super().__init__(PlanHints(method, settings, tools=tools), messages_key=messages_key, name=name)


class PreferenceGuide(StepNode):
    """Takes the tools out that this user rated badly on similar requests, for every model call of the user's turn.

    The model's node binds what is left; the ToolNode keeps all tools::

        builder = StateGraph(MemoryState)
        builder.add_node("preferences", PreferenceGuide(memory, tools))
        builder.add_edge(START, "preferences")
        ...
        model.bind_tools(guided_tools(state, tools)).invoke(state["messages"])

    The ratings are counted; see `langgraph_toolmem.entries.preferences` for the rules: at least two ratings, and
    something has to be left. In an agent, tools of the provider without a name, the memory's own, tools of a
    structured answer and one that the request insists on stay.

    Args:
        memory: the memory.
        tools: the agent's tools; in an agent those of each model call if None.
        how: "leave_out": what is avoided is left out. "tell": nothing is left out, and a hint for `memory_prompt`
            says what the user likes and avoids. "both".
        domain_of: the domain of a tool, such as `tool_prefix`; without it only tools are looked at.
        policy: which requests are alike; the memory's own if None.
        keep: names of tools that are never left out.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self,
        memory: ToolMemory,
        tools: Iterable[ToolLike] | None = None,
        *,
        how: How = "leave_out",
        domain_of: DomainOf | None = None,
        policy: RecallPolicy | None = None,
        keep: Iterable[str] = (),
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        method = method_of(memory, Entries, "PreferenceGuide")
        step = Preferences(method, tools, how=how, domain_of=domain_of, policy=policy, keep=keep)
        super().__init__(step, messages_key=messages_key, name=name)

    def update(self, call: Call, said: StepOutput) -> Any:
        """Return what is left out, and the hint if there is one."""
        return super().update(call, said) if said.text else dict(said.state)


class ToolRetriever(StepNode):
    """Has the model of a graph find its tools by a search, and keeps its prompt cache whole (`navigator.deferred`).

    The model's node asks with what `offer` says, and hands on what `take` reads; the two tools go to the ToolNode.
    The node itself stands before the model and shows the tools that similar requests called; it may be left out::

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
        tools: the agent's tools, LangChain tools or functions; in an agent those of each model call if None.
        search: how tools are found (`ToolSearch`).
        always: more names of tools that are always offered.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self,
        memory: ToolMemory,
        tools: Iterable[BaseTool | Callable[..., Any]] | None = None,
        *,
        search: ToolSearch | None = None,
        always: Iterable[str] = (),
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        method = method_of(memory, Navigator, "ToolRetriever")
        if search is not None and not isinstance(search, ToolSearch):
            raise ConfigurationError(f"search is a ToolSearch, not {search!r}.")
        if isinstance(tools, (str, bytes, Mapping)) or not (tools is None or isinstance(tools, Iterable)):
            raise ConfigurationError(f"tools is a list of tools, not {type(tools).__name__}.")
        given = None if tools is None else [t if isinstance(t, (BaseTool, Mapping)) else as_tool(t) for t in tools]
        for own in OWN_TOOLS & {name_of(each) for each in given or ()}:
            raise ConfigurationError(f"{own!r} is the name of a tool of the memory; none of the tools may have it.")
        step = RevealTools(
            method, given, search=search, always=names_given("always", always), messages_key=messages_key
        )
        super().__init__(step, messages_key=messages_key, name=name)
        self.tools: list[BaseTool] = step.deferred.tools

    def offer(self, messages: Sequence[Any], model: Any = None) -> Offer:
        """Return what the model is asked with: tools to bind, and the messages as it is to see them.

        Args:
            messages: the history, with the memory's hints.
            model: that is asked; of one that is not known the portable way is taken.
        """
        step = cast("RevealTools", self.step)
        tools = step.given or ()
        if not env_mode.shows():
            return Offer([each for each in tools if each not in step.tools], list(messages))
        return step.deferred.offer(tools, messages, model)

    def take(self, answer: AIMessage) -> AIMessage:
        """The model's answer with calls of the real tools."""
        step = cast("RevealTools", self.step)
        return step.deferred.take(answer, step.given or ())


def guided_tools(state: Any, tools: Iterable[T], *, messages_key: str = "messages") -> list[T]:
    """The tools that are left after preference guiding: what the model's node binds.

    ::

        model.bind_tools(guided_tools(state, tools))

    Args:
        state: the state, with the key `toolmem_left_out` (see `MemoryState`). Without it all tools are left.
        tools: the tools of this step; those without a name are left.
        messages_key: key of the messages.

    Returns:
        All of them if otherwise none that acts on the world would be left.
    """
    there = list(tools)
    out = left_out_now(state, messages_key=messages_key) or {}
    left = [each for each in there if name_of(each) not in out]
    return left if any(name_of(each) not in OWN_TOOLS for each in left) else there
