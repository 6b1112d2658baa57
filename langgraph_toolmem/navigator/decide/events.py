"""Events for a decision hook: each decision with its prompt, later the results of its calls. Plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.messages.utils import convert_to_openai_messages
from langchain_core.runnables import RunnableConfig

from langgraph_toolmem.navigator.decide.decision import Decision, due
from langgraph_toolmem.navigator.decide.state import NaviRecord
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.turn.host import runtime_of, thread_id_of, user_id_of

DecisionHook = Callable[[dict[str, Any]], Any]
"""Gets what `decision_event` gives. In async runs it is called in a thread.

Of a hook that has a method ``observed``, that gets what `outcome_event` gives when the calls were made.
"""


def decision_event(
    decision: Decision,
    record: NaviRecord,
    prompt: Sequence[BaseMessage],
    messages: Sequence[BaseMessage],
    config: RunnableConfig | None,
) -> dict[str, Any]:
    """One decision.

    Args:
        decision: what was decided.
        record: the run after it.
        prompt: what the model was sent, a repair left out.
        messages: of the host.
        config: of the node.

    Returns:
        ``messages`` (the prompt in chat format), ``decision``, ``thread_id``, ``run`` (the memory's digest of it),
        ``step``, ``user_id``, ``request``; ``calls``: how many it leads to; ``left_out``: how many of its parts
        that were due cannot be done.
    """
    runtime, pending = runtime_of(config), record["pending"]
    calls = left_out = 0
    if not decision.final:
        calls = len(pending["calls"]) + len(pending["gone"])
        asked = sum(part.action != "answer" for part in due(decision)[0])
        left_out = asked - calls - len(pending["searches"]) - len(pending["questions"])
    return {
        "messages": convert_to_openai_messages(list(prompt)),
        "decision": decision.model_dump(),
        "thread_id": thread_id_of(config, runtime),
        "run": _run(messages, config),
        "step": record["decisions"],
        "user_id": user_id_of(config, runtime),
        "request": record["request"],
        "calls": calls,
        "left_out": left_out,
    }


def outcome_event(
    before: NaviRecord, after: NaviRecord, messages: Sequence[BaseMessage], config: RunnableConfig | None
) -> dict[str, Any] | None:
    """Return the results of the calls of the last decision; None if it led to none.

    Returns:
        ``run`` and ``step`` as in `decision_event`; ``calls``, each with ``tool`` and ``status``: ``ok``, ``failed`` or
        ``refused``.
    """
    pending = before["pending"]
    if not (pending["calls"] or pending["gone"]):
        return None
    calls = [{"tool": made["tool"], "status": made["status"]} for made in after["made"][len(before["made"]) :]]
    calls += [{"tool": call["tool"], "status": "failed"} for call in pending["gone"]]
    return {"run": _run(messages, config), "step": before["decisions"], "calls": calls}


def _run(messages: Sequence[BaseMessage], config: RunnableConfig | None) -> str:
    """As verdicts name the episode."""
    return parse_run(list(messages), thread_id=thread_id_of(config, runtime_of(config))).digest
