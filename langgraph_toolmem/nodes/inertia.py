"""The shortcut node: makes the next call without asking the model, when the record says it may."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.proposal import Decision, Proposal
from langgraph_toolmem.inertia.settings import SWITCHED_OFF, settings_policy
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.base import MemoryNode
from langgraph_toolmem.turn.hints import avoided_now, offered_now
from langgraph_toolmem.turn.host import emit, read_key, run_id_of, runtime_of, user_id_of
from langgraph_toolmem.turn.providers import refusal_of, refusal_text
from langgraph_toolmem.turn.telemetry import note_decision

MARK = "toolmem"
"""Key in ``additional_kwargs`` of a message that no model made."""

_SHORTCUT: Final = "shortcut"
_ASK: Final = "ask the model"


class InertiaShortcut(MemoryNode):
    """Stands before the model: learns what is new in the run, then makes the next call itself or steps aside.

    Put it where the model is called, and let it decide the way on::

        builder.add_node("inertia", InertiaShortcut(memory))
        builder.add_edge(START, "inertia")
        builder.add_edge("tools", "inertia")
        builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])

    A call it makes is an ``AIMessage`` with one tool call, marked in ``additional_kwargs["toolmem"]``. Each
    decision emits one custom stream event ``{"toolmem": {...}}``.

    A tool that a `PreferenceGuide` in front of it leaves out, or a `ToolRetriever` does not offer, is never called.

    Args:
        memory: the memory.
        policy: when to act; the memory's own if None.
        model: the model that the agent asks. If its API refuses turns that it did not make (`PROVIDER_RULES`), no
            shortcut is taken. None: nothing is known, and nothing is refused.
        messages_key: key of the messages in the host's state.
        goto: ``(tools, agent)``: names of the nodes to go to with a ``Command``, for those who prefer it to a
            conditional edge. The node must then have no edge of its own; pass `destinations` to `add_node`.
        name: of the node in traces.
    """

    role = "inertia"
    about = "makes the next tool call if the record is sure of it, else asks the model"

    def __init__(
        self,
        memory: ToolMemory,
        *,
        policy: InertiaPolicy | None = None,
        model: Any = None,
        messages_key: str = "messages",
        goto: tuple[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(memory, messages_key=messages_key, name=name)
        if goto is not None and len(tuple(goto)) != 2:
            raise ConfigurationError('goto is a pair of node names such as ("tools", "agent").')
        self.policy = policy
        self.model = model
        self.goto = goto

    def add_to(
        self,
        builder: StateGraph[Any, Any, Any, Any],
        name: str | None = None,
        *,
        tools: str | None = None,
        agent: str | None = None,
        **options: Any,
    ) -> None:
        """Adds the node, and with `tools` and `agent` its conditional edge, both labelled for Studio.

        Args:
            builder: the graph.
            name: of the node; "inertia" if None.
            tools: name of the node that executes calls.
            agent: name of the node that calls the model. Not with `goto`, which names them already.
            options: of ``add_node``.

        Raises:
            ConfigurationError: only one of `tools` and `agent`, or both and `goto` too.
        """
        if (tools is None) != (agent is None):
            raise ConfigurationError("add_to takes tools and agent together, or neither.")
        if tools is not None and self.goto is not None:
            raise ConfigurationError("The node goes on by goto already; give add_to no tools and agent.")
        if self.goto is not None:
            options.setdefault("destinations", self.destinations)
        super().add_to(builder, name, **options)
        if tools is not None and agent is not None:
            way_on = partial(shortcut_condition, messages_key=self.messages_key, tools=_SHORTCUT, agent=_ASK)
            builder.add_conditional_edges(name or self.role, way_on, {_SHORTCUT: tools, _ASK: agent})

    @property
    def destinations(self) -> dict[str, str]:
        """For ``add_node(..., destinations=node.destinations)`` with `goto`: node → edge label."""
        return {} if self.goto is None else {self.goto[0]: _SHORTCUT, self.goto[1]: _ASK}

    def _run(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        policy = self._policy(state, runtime)
        if policy is None:
            return self._answer(Decision(None, SWITCHED_OFF), self.memory.policy, runtime)
        decision = self.memory.before_model(self._messages(state), **self._options(config, runtime, policy))
        return self._answer(decision, policy, runtime)

    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        policy = self._policy(state, runtime)
        if policy is None:
            return self._answer(Decision(None, SWITCHED_OFF), self.memory.policy, runtime)
        decision = await self.memory.abefore_model(self._messages(state), **self._options(config, runtime, policy))
        return self._answer(decision, policy, runtime)

    def _policy(self, state: Any, runtime: Runtime[Any] | None) -> InertiaPolicy | None:
        context = runtime.context if runtime is not None else None
        policy = settings_policy(context, self.policy or self.memory.policy)
        if policy is None:
            return None
        never = set(avoided_now(state, messages_key=self.messages_key) or ())
        if offered := offered_now(state, messages_key=self.messages_key):
            never |= self.memory.navigator.tools.keys() - offered["tools"].keys()
        return policy.with_(never=policy.never | never) if never else policy

    def _options(
        self, config: RunnableConfig | None, runtime: Runtime[Any] | None, policy: InertiaPolicy
    ) -> dict[str, Any]:
        rule = None if self.model is None else refusal_of(self.model)
        return {
            "run_id": run_id_of(config, runtime),
            "user_id": user_id_of(config, runtime),
            "policy": policy,
            "forbidden": "" if rule is None else refusal_text(rule),
        }

    def _answer(self, decision: Decision, policy: InertiaPolicy, runtime: Runtime[Any] | None) -> Any:
        note_decision(self.role, decision)
        emit(runtime, {"node": self.role, **decision.to_event()})
        if not decision.acts or decision.proposal is None:
            return self._step_aside()
        update = {self.messages_key: [shortcut_message(decision.proposal, announce=policy.announces)]}
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
