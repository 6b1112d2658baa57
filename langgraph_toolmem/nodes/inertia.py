"""The shortcut node: makes the next call without asking the model, when the record says it may."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime
from langgraph.types import Command

from langgraph_toolmem.errors import ConfigurationError
from langgraph_toolmem.host import emit, read_key, run_id_of, runtime_of, user_id_of
from langgraph_toolmem.inertia.proposal import Decision, Proposal
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.base import MemoryNode
from langgraph_toolmem.policy import InertiaPolicy

MARK = "toolmem"
"""Key in ``additional_kwargs`` of a message that no model made."""


class InertiaShortcut(MemoryNode):
    """Stands before the model: learns what is new in the run, then makes the next call itself or steps aside.

    Put it where the model is called, and let it decide the way on::

        builder.add_node("inertia", InertiaShortcut(memory))
        builder.add_edge(START, "inertia")
        builder.add_edge("tools", "inertia")
        builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])

    A call it makes is an ``AIMessage`` with one tool call, marked in ``additional_kwargs["toolmem"]``. Each
    decision emits one custom stream event ``{"toolmem": {...}}``.

    Args:
        memory: the memory.
        policy: when to act; the memory's own if None.
        messages_key: key of the messages in the host's state.
        goto: ``(tools, agent)``: names of the nodes to go to with a ``Command``, for those who prefer it to a
            conditional edge. The node must then have no edge of its own; pass `destinations` to `add_node`.
        name: of the node in traces.
    """

    role = "inertia"

    def __init__(
        self,
        memory: ToolMemory,
        *,
        policy: InertiaPolicy | None = None,
        messages_key: str = "messages",
        goto: tuple[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(memory, messages_key=messages_key, name=name)
        if goto is not None and len(tuple(goto)) != 2:
            raise ConfigurationError('goto is a pair of node names such as ("tools", "agent").')
        self.policy = policy
        self.goto = goto

    @property
    def destinations(self) -> dict[str, str]:
        """For ``add_node(..., destinations=node.destinations)`` with `goto`: node → edge label."""
        return {} if self.goto is None else {self.goto[0]: "shortcut", self.goto[1]: "ask the model"}

    def _run(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        decision = self.memory.before_model(self._messages(state), **self._options(config, runtime))
        return self._answer(decision, runtime)

    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        decision = await self.memory.abefore_model(self._messages(state), **self._options(config, runtime))
        return self._answer(decision, runtime)

    def _options(self, config: RunnableConfig | None, runtime: Runtime[Any] | None) -> dict[str, Any]:
        return {"run_id": run_id_of(config), "user_id": user_id_of(config, runtime), "policy": self.policy}

    def _answer(self, decision: Decision, runtime: Runtime[Any] | None) -> Any:
        emit(runtime, {"node": self.role, **decision.to_event()})
        if not decision.acts or decision.proposal is None:
            return self._step_aside()
        announce = (self.policy or self.memory.policy).announces
        update = {self.messages_key: [shortcut_message(decision.proposal, announce=announce)]}
        return update if self.goto is None else Command(goto=self.goto[0], update=update)

    def _step_aside(self) -> Any:
        return None if self.goto is None else Command(goto=self.goto[1])

    def _failed(self, error: Exception) -> Any:
        super()._failed(error)
        return self._step_aside()


def shortcut_message(proposal: Proposal, *, announce: bool) -> AIMessage:
    """The message that stands for the model's: one tool call, marked as made by the shortcut.

    Args:
        proposal: the call.
        announce: say in the text, for the model to read, that the shortcut chose the call (as the paper does).
    """
    args = json.loads(json.dumps(dict(proposal.args), default=str))
    text = ""
    if announce:
        text = f"[inertia shortcut] The tool graph chose {proposal.tool} with {json.dumps(args, ensure_ascii=False)}."
    mark = {
        "by": "inertia",
        "confidence": round(float(proposal.confidence), 4),
        "evidence": proposal.evidence,
    }
    call = {"name": proposal.tool, "args": args, "id": f"call_{uuid.uuid4().hex[:24]}", "type": "tool_call"}
    return AIMessage(content=text, tool_calls=[call], additional_kwargs={MARK: mark})


def shortcut_condition(
    state: Any, *, messages_key: str = "messages", tools: str = "tools", agent: str = "agent"
) -> Literal["tools", "agent"] | str:
    """The way on from an `InertiaShortcut`, like ``tools_condition``: to the tools if it made a call.

    Use ``functools.partial(shortcut_condition, tools=…, agent=…)`` for nodes with other names.
    """
    messages = read_key(state, messages_key) or ()
    last = messages[-1] if messages else None
    marked = isinstance(last, AIMessage) and isinstance(last.additional_kwargs.get(MARK), Mapping)
    return tools if marked and isinstance(last, AIMessage) and last.tool_calls else agent
