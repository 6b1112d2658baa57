"""The preference node: leaves out tools that this user rated badly on similar requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeVar, get_args

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from langgraph_toolmem._recalling import PATIENCE
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.entries.guide import DomainOf, Guidance, guide, to_event, to_prompt
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.preferences import Preference
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.base import MemoryNode
from langgraph_toolmem.runs.run import OWN_TOOLS
from langgraph_toolmem.runs.tools import ToolLike, read_tools
from langgraph_toolmem.turn.hints import avoided_now, new_avoided, new_hint
from langgraph_toolmem.turn.host import emit, runtime_of, user_id_of
from langgraph_toolmem.turn.telemetry import annotate

ROLE: Final = "preferences"

How = Literal["leave_out", "tell", "both"]
"""What is done about a preference: tools are left out, the model is told, or both."""

T = TypeVar("T")


class PreferenceGuide(MemoryNode):
    """Finds the tools that this user rated badly on similar requests, for every model call of the user's turn.

    Stands anywhere before the model, in the loop or in front of it: it looks once per user turn. In front of an
    `InertiaShortcut`, no shortcut goes to a tool that is left out. The model's node gives the model what is left::

        builder = StateGraph(MemoryState)
        builder.add_node("preferences", PreferenceGuide(memory, tools))
        builder.add_edge(START, "preferences")
        ...
        model.bind_tools(guided_tools(state, tools)).invoke(state["messages"])

    Without a model the ratings are counted; see `langgraph_toolmem.entries.guide` for the rules. The ToolNode keeps
    all tools.

    Args:
        memory: the memory.
        tools: the agent's tools.
        how: "leave_out": what is avoided is left out. "tell": nothing is left out, and a hint for `memory_prompt`
            says what the user likes and avoids. "both".
        domain_of: the domain of a tool, such as `tool_prefix`; without it only tools are looked at.
        model: reads the ratings and says in words what is preferred (one call per user turn); they are counted if
            None.
        policy: which requests are alike; the memory's own if None.
        keep: names of tools that are never left out.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    role = ROLE
    about = "leaves out tools that this user rated badly on similar requests; calls no model by default"

    def __init__(
        self,
        memory: ToolMemory,
        tools: Sequence[ToolLike],
        *,
        how: How = "leave_out",
        domain_of: DomainOf | None = None,
        model: BaseChatModel | None = None,
        policy: RecallPolicy | None = None,
        keep: Iterable[str] = (),
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        super().__init__(memory, messages_key=messages_key, name=name)
        self.tools = tuple(read_tools(tools))
        self.how, self.options, self.keep = check_guiding(how, domain_of, model, policy, keep)

    def _run(self, state: Any, config: RunnableConfig | None) -> Any:
        if avoided_now(state, messages_key=self.messages_key) is not None:
            return None
        runtime = runtime_of(config)
        messages = self._messages(state)
        user_id = user_id_of(config, runtime)
        found = self.memory.preferences(messages, user_id=user_id, wait=PATIENCE, **self.options)
        return self._answer(found, messages, runtime)

    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any:
        if avoided_now(state, messages_key=self.messages_key) is not None:
            return None
        runtime = runtime_of(config)
        messages = self._messages(state)
        found = await self.memory.apreferences(
            messages, user_id=user_id_of(config, runtime), wait=PATIENCE, **self.options
        )
        return self._answer(found, messages, runtime)

    def _answer(self, found: list[Preference], messages: list[Any], runtime: Runtime[Any] | None) -> Any:
        domain_of = self.options["domain_of"]
        guidance = Guidance() if self.how == "tell" else guide(found, self.tools, domain_of=domain_of, keep=self.keep)
        tell(found, guidance, runtime)
        update: dict[str, Any] = {**new_avoided(guidance.left_out, messages)}
        if self.how != "leave_out":
            text = to_prompt(found, self.tools, domain_of=domain_of, left_out=guidance.left_out)
            update |= new_hint(self.role, text, messages, "turn")
        return update


def guided_tools(state: Any, tools: Iterable[T], *, messages_key: str = "messages") -> list[T]:
    """The tools that are left after preference guiding: what the model's node binds.

    ::

        model.bind_tools(guided_tools(state, tools))

    Args:
        state: the state, with the key `toolmem_avoided` (see `MemoryState`). Without it all tools are left.
        tools: the tools of this step; those without a name are left.
        messages_key: key of the messages.

    Returns:
        All of them if otherwise none that acts on the world would be left.
    """
    there = list(tools)
    out = avoided_now(state, messages_key=messages_key) or {}
    left = [each for each in there if name_of(each) not in out]
    return left if any(name_of(each) not in OWN_TOOLS for each in left) else there


def name_of(tool: Any) -> str | None:
    """The name of a tool in any form that a chat model takes; None if it has none, such as a provider's own."""
    if isinstance(tool, dict):
        function = tool.get("function")
        tool = function if isinstance(function, dict) else tool
        found = tool.get("name")
    else:
        found = getattr(tool, "name", None) or getattr(tool, "__name__", None)
    return found if isinstance(found, str) and found else None


def check_guiding(
    how: Any, domain_of: Any, model: Any, policy: Any, keep: Any
) -> tuple[How, dict[str, Any], frozenset[str]]:
    """What a node or middleware is made of, its options for the memory. Raises ConfigurationError if it cannot work."""
    if how not in get_args(How):
        raise ConfigurationError(f"how is one of {', '.join(map(repr, get_args(How)))}, not {how!r}.")
    if domain_of is not None and not callable(domain_of):
        raise ConfigurationError(f"domain_of is a function from a tool's name, not {type(domain_of).__name__}.")
    if model is not None and not isinstance(model, BaseChatModel):
        raise ConfigurationError(f"model is a chat model, not {type(model).__name__}.")
    if policy is not None and not isinstance(policy, RecallPolicy):
        raise ConfigurationError(f"policy is a RecallPolicy, not {type(policy).__name__}.")
    names = () if isinstance(keep, (str, bytes)) or not isinstance(keep, Iterable) else tuple(keep)
    if not all(isinstance(name, str) for name in names) or (not names and keep not in ((), [], set(), frozenset())):
        raise ConfigurationError(f"keep is a list of names of tools, not {keep!r}.")
    return how, {"domain_of": domain_of, "model": model, "policy": policy}, frozenset(names)


def tell(found: Sequence[Preference], guidance: Guidance, runtime: Any) -> None:
    """One stream event and the attributes of the current span."""
    emit(runtime, {"node": ROLE, **to_event(found, guidance)})
    annotate({"toolmem.node": ROLE, "toolmem.left_out": len(guidance.left_out)})
