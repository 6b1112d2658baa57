"""An agent with all methods whose user says words that must leave RAM: run in a process of its own by tests.

Commands on standard input, one answer line each: ``run USER``, ``plant USER``, ``flush``, ``forget USER``, ``look``,
``grep``; ``stop`` ends it.
"""

from __future__ import annotations

import gc
import json
import sys
import types
from collections.abc import Iterator
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem import Atoms, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

REVERSED = ("eppihtnaX", "ltaocztEuq", "2843-9294")
"""Backwards: this process must not hold them itself."""


def words() -> list[str]:
    """Return the words that are planted, and their lower case."""
    forward = [word[::-1] for word in REVERSED]
    return [*forward, *(word.lower() for word in forward)]


def tools() -> list[BaseTool]:
    @tool
    def find(name: str) -> str:
        """Find a file."""
        return json.dumps({"ok": True, "id": f"F-{len(name)}", "note": name, name.split()[0]: {"size": 1}})

    @tool
    def read(id: str, title: str) -> str:  # noqa: A002 - as tools call it
        """Read a file."""
        return f"The file of {title} with the number {id}: nothing is in it."

    for made in (find, read):
        made.tags = ["read_only"]
    return [find, read]


def answer(messages: list[BaseMessage], _tools: Any) -> AIMessage:
    asked = next(message for message in reversed(messages) if message.type == "human").text
    name = asked.partition(" of ")[2].removesuffix(" please")
    last: Any = messages[-1]
    if last.type == "human":
        return call_tool("find", name=name)
    if last.type == "tool" and last.name == "find":
        return call_tool("read", id=json.loads(last.content)["id"], title=name)
    return AIMessage(f"The file of {name} is empty.")


class Office:
    """The agent, its memory, and what it is told to do."""

    def __init__(self, folder: str) -> None:
        self.memory = ToolMemory(folder, methods=default_methods(Atoms(keep=True)), namespace=("toolmem", "{user_id}"))
        self.model = ScriptedChatModel(script=answer)
        self.saver = InMemorySaver()
        options: dict[str, Any] = dict.fromkeys(("recall", "reflect", "planning", "suggest", "prefetch"), True)
        middleware = tool_memory_middleware(self.memory, preferences=True, **options)
        self.agent = create_agent(self.model, tools(), checkpointer=self.saver, middleware=middleware)

    def work(self, user: str, about: str) -> None:
        """Have a user ask for the same file in two threads, twice in each; the host forgets them itself."""
        for number in range(2):
            thread = f"{user} {number}"
            for _ in range(2):
                self.agent.invoke(
                    {"messages": [("user", f"Find the file of {about} please")]},
                    {"configurable": {"thread_id": thread, "user_id": user}},
                )
            self.memory.feedback(thread, score=1.0, comment=f"well done, {about}", user_id=user)
            self.saver.delete_thread(thread)
        self.model.calls.clear()

    def do(self, command: str, *named: str) -> Any:
        if command == "run":
            return self.work(named[0], "somebody else")
        if command == "plant":
            return self.work(named[0], " ".join(words()[:3]))
        if command == "forget":
            return self.memory.forget(user_id=named[0])
        if command == "flush":
            return self.memory.flush()
        if command == "look":
            return self.memory.core.refresh()
        return sorted(set(holders()))


def holders() -> Iterator[str]:
    """Yield the objects of this process that hold a planted word, by kind and text."""
    gc.collect()
    planted = words()
    seen = set(map(id, planted))
    for owner in gc.get_objects():
        if owner is planted or isinstance(owner, types.FrameType):
            continue
        for text in _texts(owner, seen):
            if any(word in text for word in planted):
                kind = type(owner)
                yield f"{kind.__module__}.{kind.__qualname__} {getattr(owner, '__qualname__', '')} {text[:60]!r}"


def _texts(owner: Any, seen: set[int]) -> Iterator[str]:
    """Yield the new texts in an object; tuples and dicts of texts alone are not known to the collector."""
    waiting = [owner]
    while waiting:
        for part in gc.get_referents(waiting.pop()):
            if id(part) in seen:
                continue
            if isinstance(part, str):
                seen.add(id(part))
                yield part
            elif isinstance(part, (bytes, bytearray)):
                seen.add(id(part))
                yield part.decode("latin-1")
            elif isinstance(part, (tuple, dict)) and not gc.is_tracked(part):
                seen.add(id(part))
                waiting.append(part)


def main() -> None:
    office = Office(sys.argv[1])
    for line in iter(sys.stdin.readline, "stop\n"):
        sys.stdout.write(f"{json.dumps(office.do(*line.split()))}\n")
        sys.stdout.flush()
    office.memory.close()
