"""The suggestion node: tells the model which tools came next in similar situations."""

from __future__ import annotations

from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from langgraph_toolmem._suggesting import Advice
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.base import MemoryNode
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.recall import arecall_summary, recall_summary
from langgraph_toolmem.sit.render import to_event, to_prompt
from langgraph_toolmem.sit.tool import SummaryTool
from langgraph_toolmem.turn.hints import new_hint
from langgraph_toolmem.turn.host import emit, run_id_of, runtime_of, user_id_of
from langgraph_toolmem.turn.telemetry import annotate

ROLE: Final = "sit"


class SITSummary(MemoryNode):
    """Puts the likeliest next tools into the private hint state, for the model call that follows (SIT-Graph).

    Stands between the shortcut and the model; the model's node reads the hint with `memory_prompt`::

        builder = StateGraph(MemoryState)
        sit = SITSummary(memory)
        builder.add_node("sit", sit)
        builder.add_edge("sit", "agent")
        ...
        model.invoke([*memory_prompt(state), *state["messages"]])

    No model is called for it. `sit.tool` is the summary tool: give it to the model and to the ToolNode, and the
    model can ask for more when it is not sure. With ``SITPolicy(recall="auto")`` and a `model`, that model is asked
    before each step whether it needs to recall, and if so writes the summary (two calls).

    Args:
        memory: the memory.
        policy: how states are compared; the memory's own if None.
        model: writes summaries with ``recall="auto"``.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: ``recall="auto"`` without a model.
    """

    role = ROLE
    about = "suggests next tools from similar past states; calls no model by default"

    def __init__(
        self,
        memory: ToolMemory,
        *,
        policy: SITPolicy | None = None,
        model: BaseChatModel | None = None,
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        super().__init__(memory, messages_key=messages_key, name=name)
        self.policy = check_policy(memory, policy, model)
        self.model = model
        self.tool = SummaryTool(memory=memory, policy=policy, messages_key=messages_key)
        memory.remember_states(self.policy)

    def _run(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        messages = self._messages(state)
        summary = None
        if self.policy.recall == "auto":
            summary = recall_summary(self.model, messages, failed=self._errors.failed)
        options = self._options(config, runtime, summary)
        return self._answer(self.memory.advise(messages, **options), messages, summary, runtime)

    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        messages = self._messages(state)
        summary = None
        if self.policy.recall == "auto":
            summary = await arecall_summary(self.model, messages, failed=self._errors.failed)
        options = self._options(config, runtime, summary)
        return self._answer(await self.memory.aadvise(messages, **options), messages, summary, runtime)

    def _options(
        self, config: RunnableConfig | None, runtime: Runtime[Any] | None, summary: str | None
    ) -> dict[str, Any]:
        return {
            "run_id": run_id_of(config, runtime),
            "user_id": user_id_of(config, runtime),
            "policy": self.policy,
            "summary": summary,
            "offered": True,
        }

    def _answer(self, advice: Advice, messages: list[Any], summary: str | None, runtime: Runtime[Any] | None) -> Any:
        tell(advice, summary, runtime)
        return new_hint(self.role, to_prompt(advice.suggestions, missing=advice.missing), messages)


def check_policy(
    memory: ToolMemory, policy: SITPolicy | None, model: BaseChatModel | None, *, own_model: bool = False
) -> SITPolicy:
    """The policy of a node or middleware. Raises ConfigurationError if it cannot work.

    Args:
        memory: whose policy it is if none is given.
        policy: how states are compared.
        model: writes summaries with ``recall="auto"``.
        own_model: without a `model` there is another one, the agent's.
    """
    if policy is not None and not isinstance(policy, SITPolicy):
        raise ConfigurationError(f"policy is a SITPolicy, not {type(policy).__name__}.")
    if model is not None and not isinstance(model, BaseChatModel):
        raise ConfigurationError(f"model is a chat model, not {type(model).__name__}.")
    chosen = policy or memory.sit
    if chosen.recall == "auto" and model is None and not own_model:
        raise ConfigurationError('SITPolicy(recall="auto") needs a model that writes the summaries: model=…')
    return chosen


def tell(advice: Advice, summary: str | None, runtime: Any) -> None:
    """One stream event and the attributes of the current span."""
    emit(runtime, {"node": ROLE, **to_event(advice.suggestions, missing=advice.missing, recalled=summary is not None)})
    annotate({"toolmem.node": ROLE, "toolmem.suggestions": len(advice.suggestions)})
