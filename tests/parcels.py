"""A parcel desk with two couriers, of which a user likes one, for tests of preferences."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

from desk import call_id, calling, number
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool

from langgraph_toolmem import ToolMemory

NAMES = ("Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gita", "Hugo")


class ParcelDesk:
    """Tools whose calls are written down in `done`."""

    def __init__(self) -> None:
        self.done: list[tuple[str, dict[str, Any]]] = []
        self._lock = threading.Lock()

    def did(self, name: str, /, **args: Any) -> str:
        with self._lock:
            self.done.append((name, args))
        return json.dumps({"done": True})

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def find_parcel(name: str) -> str:
            """Find the parcel of a customer."""
            self.did("find_parcel", name=name)
            return json.dumps({"parcel_id": f"P-{number(name)}"})

        @tool
        def fast_courier(parcel_id: str) -> str:
            """Have a parcel fetched within the hour."""
            return self.did("fast_courier", parcel_id=parcel_id)

        @tool
        def cheap_courier(parcel_id: str) -> str:
            """Have a parcel fetched tomorrow."""
            return self.did("cheap_courier", parcel_id=parcel_id)

        for each in (made := [find_parcel, fast_courier, cheap_courier]):
            each.tags = ["read_only"]
        return made


def request(name: str) -> str:
    """What a user says."""
    return f"Please send the parcel of {name} by courier"


def offered_in(tools: Sequence[dict[str, Any]]) -> list[str]:
    """Names of the tools that a model was bound to; those of a provider by their type."""
    return [t["function"]["name"] if "function" in t else t["type"] for t in tools]


def past_run(run: Any, *couriers: str, name: str = "Ann") -> list[BaseMessage]:
    """A run that found the parcel of `name` and called the couriers, whatever they are called."""
    messages: list[BaseMessage] = [HumanMessage(request(name), id=call_id("user", run))]
    parcel = f"P-{number(name)}"
    for step, args in (("find_parcel", {"name": name}), *((courier, {"parcel_id": parcel}) for courier in couriers)):
        made = calling(step, args, run, len(messages))
        made.id = call_id("answer", run, len(messages))
        answer = {"parcel_id": parcel} if step == "find_parcel" else {"done": True}
        messages += [made, ToolMessage(json.dumps(answer), tool_call_id=made.tool_calls[0]["id"], name=step)]
    return [*messages, AIMessage("It is on its way.", id=call_id("last", run))]


def rate(memory: ToolMemory, good: bool, *couriers: str, user: str | None = None, times: int = 1) -> None:
    """So many finished runs of a user, with a verdict."""
    for _ in range(times):
        run = f"past-{memory.report().turns}-{user}"
        name = NAMES[memory.report().turns % len(NAMES)]
        memory.finish(past_run(run, *couriers, name=name), thread_id=run, success=good, user_id=user, wait=True)


def dislike_fast(memory: ToolMemory, user: str | None = None) -> None:
    """Two bad runs with the fast courier, and a good one with the cheap one, which clears finding the parcel."""
    rate(memory, False, "fast_courier", user=user, times=2)
    rate(memory, True, "cheap_courier", user=user)
