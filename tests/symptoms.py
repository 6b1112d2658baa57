"""A help desk where one symptom has two causes that only an information tool tells apart (SIT-Graph's own example)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import histories as h
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, tool

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.runs.run import SUMMARY_TOOL

SYMPTOM = "The page of {} does not load"
FINDINGS = {
    "router": "link lost",
    "password": "password expired",
}
CURES = {"router": "restart_router", "password": "reset_password"}
SCHEMAS = [
    h.schema("read_logs", "name") | {"description": "Read what the logs say about a customer's connection."},
    h.schema("restart_router", "name") | {"description": "Restart the router of a customer."},
    h.schema("reset_password", "name") | {"description": "Give a customer a fresh password."},
    h.schema("close_ticket", "name") | {"description": "Close the ticket of a customer."},
]


def asked(name: str) -> h.Message:
    return h.user(SYMPTOM.format(name))


def looked(name: str, cause: str) -> list[h.Message]:
    return h.call("read_logs", {"name": name}, {"finding": FINDINGS[cause]})


def summarised(text: str) -> list[h.Message]:
    """A call of the summary tool and its answer."""
    return h.call(SUMMARY_TOOL, {"summary": text}, "Nothing like this was seen before.")


def before_cure(cause: str, name: str = "Zoe") -> list[h.Message]:
    """The history at the point where cause and cure part."""
    return h.history(asked(name), looked(name, cause))


def whole(cause: str, name: str, *, summary: str | None = None) -> list[h.Message]:
    """A finished run, with a call of the summary tool before the cure if a summary is given."""
    return h.history(
        before_cure(cause, name),
        summarised(summary) if summary else [],
        h.call(CURES[cause], {"name": name}),
        h.call("close_ticket", {"name": name}),
        h.words("It works again."),
    )


def teach(
    memory: ToolMemory,
    *,
    routers: int = 7,
    passwords: int = 3,
    summaries: bool = False,
    first: int = 0,
    success: bool | None = True,
    **options: Any,
) -> None:
    """Most runs end with the router: by frequency it is the router, whatever the logs say."""
    for i, cause in enumerate(["router"] * routers + ["password"] * passwords, start=first):
        summary = f"Customer {i} cannot load pages; logs: {FINDINGS[cause]}." if summaries else None
        run = whole(cause, f"Customer{i}", summary=summary)
        memory.finish(run, thread_id=f"taught-{i}", success=success, **options)
    memory.core.jobs.settle(timeout=10)


def names(suggestions: Iterable[Any]) -> list[str]:
    return [suggestion.tool for suggestion in suggestions]


# --- the same desk as a real agent's tools and model ---


class HelpDesk:
    """Tools over customers with causes; `done` is what was called."""

    def __init__(self, causes: dict[str, str]) -> None:
        self.causes = causes
        self.done: list[str] = []

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def read_logs(name: str) -> str:
            """Read what the logs say about a customer's connection."""
            self.done.append("read_logs")
            return json.dumps({"finding": FINDINGS[self.causes[name]]})

        @tool
        def restart_router(name: str) -> str:
            """Restart the router of a customer."""
            return self._cure("router", name)

        @tool
        def reset_password(name: str) -> str:
            """Give a customer a fresh password."""
            return self._cure("password", name)

        return [read_logs, restart_router, reset_password]

    def _cure(self, cause: str, name: str) -> str:
        self.done.append(CURES[cause])
        return json.dumps({"works": self.causes[name] == cause})


def advised(messages: Sequence[BaseMessage]) -> list[str]:
    """The tools that a prompt or an answer of the summary tool suggests, in order."""
    for message in reversed(messages):
        if isinstance(message, SystemMessage) or (isinstance(message, ToolMessage) and message.name == SUMMARY_TOOL):
            lines = [line for line in message.text.splitlines() if line.startswith("- ")]
            if lines:
                return [line[2:].split(":", 1)[0] for line in lines]
    return []


Script = Callable[[list[BaseMessage], list[dict[str, Any]]], AIMessage]


def follower(*, asks: bool = False, knows: Mapping[str, str] | None = None) -> Script:
    """A model that looks first, then does what it was advised, the likeliest cure if nothing was said.

    Args:
        asks: it writes a summary with the summary tool before the cure.
        knows: causes of customers, for whom it needs no advice.
    """
    known = knows or {}

    def script(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        start = max(i for i, m in enumerate(messages) if isinstance(m, HumanMessage))
        name = messages[start].text.split(" of ")[1].split()[0]
        answers = [m for m in messages[start:] if isinstance(m, ToolMessage)]
        real = [m for m in answers if m.name != SUMMARY_TOOL]
        made = f"call_{name}_{len(messages)}_{len(tools)}"
        if not real:
            return tool_call("read_logs", {"name": name}, made)
        if len(real) > 1 and json.loads(real[-1].text)["works"]:
            return AIMessage("It works again.")
        if asks and len(answers) == len(real) == 1:
            finding = json.loads(real[0].text)["finding"]
            return tool_call(SUMMARY_TOOL, {"summary": f"Pages do not load. The logs say: {finding}."}, made)
        tried = {m.name for m in real}
        cures = [each for each in advised(messages) if each in CURES.values()]
        cures = [CURES[known[name]], *cures] if name in known else cures
        wanted = next(each for each in [*cures, *CURES.values()] if each not in tried)
        return tool_call(wanted, {"name": name}, made)

    return script


def tool_call(tool_name: str, args: dict[str, Any], call_id: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool_name, "args": args, "id": call_id, "type": "tool_call"}])
