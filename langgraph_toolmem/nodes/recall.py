"""The recall node: shows the model past runs with similar requests, and what was wrong with those that failed."""

from __future__ import annotations

from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from langgraph_toolmem.base.checks import is_count
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.recollection import Recollection
from langgraph_toolmem.entries.render import BUDGET, to_event, to_prompt
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.base import MemoryNode
from langgraph_toolmem.turn.hints import has_hint, new_hint
from langgraph_toolmem.turn.host import emit, run_id_of, runtime_of, user_id_of
from langgraph_toolmem.turn.telemetry import annotate

ROLE: Final = "recall"


class MemoryRecall(MemoryNode):
    """Puts past runs with similar requests into the private hint state, for every model call of the user's turn.

    As many as are worth it, often none; those that went well and those that went wrong apart, the latter with their
    critique. Stands anywhere before the model, in the loop or in front of it: it looks once per user turn. The
    model's node reads the hint with `memory_prompt`::

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
        unjudged: show runs that nobody judged too.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    role = ROLE
    about = "shows past runs with similar requests, once per user turn; calls no model"

    def __init__(
        self,
        memory: ToolMemory,
        *,
        policy: RecallPolicy | None = None,
        budget: int = BUDGET,
        unjudged: bool = False,
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        super().__init__(memory, messages_key=messages_key, name=name)
        self.options = check_options(policy, budget, unjudged)
        self.budget = budget

    def _run(self, state: Any, config: RunnableConfig | None) -> Any:
        if has_hint(state, self.role, messages_key=self.messages_key):
            return None
        runtime = runtime_of(config)
        messages = self._messages(state)
        found = self.memory.recollect(messages, **self._options(config, runtime))
        return self._answer(found, messages, runtime)

    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any:
        if has_hint(state, self.role, messages_key=self.messages_key):
            return None
        runtime = runtime_of(config)
        messages = self._messages(state)
        found = await self.memory.arecollect(messages, **self._options(config, runtime))
        return self._answer(found, messages, runtime)

    def _options(self, config: RunnableConfig | None, runtime: Runtime[Any] | None) -> dict[str, Any]:
        return {"run_id": run_id_of(config, runtime), "user_id": user_id_of(config, runtime), **self.options}

    def _answer(self, found: Recollection, messages: list[Any], runtime: Runtime[Any] | None) -> Any:
        tell(found, runtime)
        return new_hint(self.role, to_prompt(found, budget=self.budget), messages, "turn")


def check_options(policy: RecallPolicy | None, budget: int, unjudged: bool) -> dict[str, Any]:
    """What a node or middleware asks the memory with. Raises ConfigurationError if it cannot work."""
    if policy is not None and not isinstance(policy, RecallPolicy):
        raise ConfigurationError(f"policy is a RecallPolicy, not {type(policy).__name__}.")
    if not is_count(budget, 1):
        raise ConfigurationError(f"budget is a whole number of tokens from 1, not {budget!r}.")
    if not isinstance(unjudged, bool):
        raise ConfigurationError(f"unjudged is True or False, not {unjudged!r}.")
    return {"policy": policy, "unjudged": unjudged, "offered": True, "budget": budget}


def tell(found: Recollection, runtime: Any) -> None:
    """One stream event and the attributes of the current span."""
    emit(runtime, {"node": ROLE, **to_event(found)})
    annotate({"toolmem.node": ROLE, "toolmem.recalled": len(found.entries)})
