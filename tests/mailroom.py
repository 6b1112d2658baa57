"""A mail room where a careless agent invents addresses until it is told what went wrong; for tests of recall."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import histories as h
from desk import call_id, this_turn
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.entries.entry import Critique, Entry

REQUEST = "Send a mail to {} about the meeting"
HEAD = "Past runs with similar requests"
ADVICE = "Look the address up first."
CAREFUL = [("find_address", "Zoe"), ("send_mail", "zoe@example.org")]
CARELESS = [("send_mail", "Zoe")]


def critic(entry: Entry, similar: Sequence[Entry], /) -> Critique:
    """Knows what is wrong with every run."""
    return Critique(went_wrong="The address was invented.", call=1, instead=ADVICE)


class MailRoom:
    """Two tools; what was done is in `done`. `broken` tools raise."""

    def __init__(self, *broken: str) -> None:
        self.done: list[tuple[str, str]] = []
        self.broken = set(broken)
        self._lock = threading.Lock()

    def did(self, name: str, what: str) -> None:
        if name in self.broken:
            raise OSError(f"no line to {what}")
        with self._lock:
            self.done.append((name, what))

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def find_address(name: str) -> str:
            """Find somebody's address."""
            self.did("find_address", name)
            return f"{name.lower()}@example.org"

        @tool
        def send_mail(to: str) -> str:
            """Send a mail."""
            self.did("send_mail", to)
            return "sent"

        return [find_address, send_mail]


def script(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """The agent: sends at once, or looks the address up first if its prompt says so."""
    user, answers = this_turn(messages)
    name = user.text.split(" to ")[1].split()[0]
    careful = any(ADVICE in m.text for m in messages if m.type == "system")
    made = call_id(user.id, len(messages))
    if careful and not answers:
        return AIMessage("", tool_calls=[{"name": "find_address", "args": {"name": name}, "id": made}])
    if len(answers) == careful:
        to = answers[0].text if careful else name
        return AIMessage("", tool_calls=[{"name": "send_mail", "args": {"to": to}, "id": made}])
    return AIMessage(f"The mail to {name} is sent.")


def past(name: str) -> list[Any]:
    """A finished run of the careless agent."""
    return h.history(h.user(REQUEST.format(name)), h.call("send_mail", {"to": name}, "sent"), h.words("Sent."))


def teach(memory: ToolMemory, *, user_id: str | None = None, first: int = 0) -> None:
    """Three runs that went wrong, with their critiques if the memory has a critic."""
    for i, name in enumerate(("Ann", "Ben", "Cleo")):
        memory.finish(past(name), thread_id=f"past-{user_id}-{first + i}", success=False, user_id=user_id)
    assert memory.flush()
