"""`TaskDesk`: three tools that are used one after the other, for apps with look-ups before the model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool
from trained import trained

from langgraph_toolmem import InertiaPolicy, PrefetchedContext, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

SHADOW = InertiaPolicy(shadow=True)
CONTEXT = PrefetchedContext(held_out=0)
KNOWN = ("Ann", "Bob", "Cyd", "Dan", "Eve", "Fay", "Gus", "Hal")


class TaskDesk:
    """Three tools that note their calls, and a model that uses them in order."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str]] = []
        self.fails = 0
        self.seconds = 0.0
        self.result = json.dumps({"task_id": "T-%s"})
        self.last: Callable[[], AIMessage] = lambda: AIMessage("All tasks are closed.")
        self.refuses = False
        self.model = ScriptedChatModel(script=self.answer)

    def tools(self, **options: Any) -> list[BaseTool]:
        """Return the tools; `options` are those of `list_tasks`."""

        @tool
        def find_person(name: str) -> str:
            """Find a person by name."""
            self.ran.append(("find_person", name))
            time.sleep(self.seconds)
            return json.dumps({"person_id": f"P-{name}"})

        @tool(**options)
        def list_tasks(person_id: str) -> str:
            """List the tasks of a person."""
            self.ran.append(("list_tasks", person_id))
            if self.fails:
                self.fails -= 1
                raise RuntimeError("the list is down")
            return self.result % person_id

        @tool
        def close_tasks(person_id: str) -> str:
            """Close all tasks of a person."""
            self.ran.append(("close_tasks", person_id))
            return "closed"

        return [find_person, list_tasks, close_tasks]

    def answer(self, messages: list[BaseMessage], _tools: Any) -> AIMessage:
        """Return what the model does."""
        if self.refuses and any("toolmem" in message.additional_kwargs for message in messages):
            raise RefusedError
        begin = max(
            at for at, message in enumerate(messages) if message.type == "human" and message.text.startswith("Clo")
        )
        name = messages[begin].text.split()[-1]
        called = [call for message in messages[begin:] for call in getattr(message, "tool_calls", ())]
        done = {call["name"]: call["args"] for call in called}
        if "find_person" not in done:
            return call_tool("find_person", name=name)
        if "list_tasks" not in done:
            return call_tool("list_tasks", person_id=f"P-{name}")
        if "close_tasks" not in done:
            return call_tool("close_tasks", person_id=done["list_tasks"]["person_id"])
        return self.last()


class RefusedError(Exception):
    """A provider that refuses turns of others."""

    status_code = 400


def memory_that_knows() -> ToolMemory:
    """Return a memory that has seen the requests of `KNOWN`."""
    return trained("task desk", reading_memory, teach)


def reading_memory(folder: Path | None = None) -> ToolMemory:
    """Return a memory in which look-ups are declared."""
    return ToolMemory(folder, reads={"find_person", "list_tasks"})


def teach(memory: ToolMemory) -> None:
    """Do the requests of `KNOWN` with an agent in shadow mode."""
    desk = TaskDesk()
    agent = create_agent(
        ScriptedChatModel(script=desk.answer),
        desk.tools(),
        middleware=tool_memory_middleware(memory, outer=[], shortcut=SHADOW),
    )
    for name in KNOWN:
        config: Any = {"configurable": {"thread_id": name}}
        state = agent.invoke({"messages": [("user", f"Close the tasks of {name}")]}, config)
        memory.finish(state["messages"], thread_id=name)


def shape(messages: list[BaseMessage]) -> list[Any]:
    """Return what a history says, without ids."""
    return [
        (
            each.type,
            each.name,
            each.text,
            [(call["name"], call["args"]) for call in getattr(each, "tool_calls", ())],
            getattr(each, "status", ""),
        )
        for each in messages
    ]
