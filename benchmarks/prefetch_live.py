"""What running look-ups ahead does to a real run: the office agent over HTTP, without and with it.

``python -m benchmarks.prefetch_live``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI

from examples.office import Office, Task, make_tasks
from examples.office.assistant import reply
from langgraph_toolmem import Inertia, Prefetch, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, make_chat_model

LEAST_SAVED: Final = 14.0
"""Wall time saved, in percent."""
LEAST_OF_SERVED: Final = 80.0
"""Of what the look-ups that are served can save, in percent."""


ID: Final = re.compile(r"\b[a-z]{3}_[0-9a-f]{6}\b")
"""Of a thing in the office."""


@dataclass(frozen=True)
class Ran:
    """One task.

    Attributes:
        messages: but for ids.
        made: calls that the model asked for, as they were executed; look-ups thrown away are not in it.
        state: of the office at its end.
        seconds: it took.
        waits: model calls, and turns with tool calls: what takes its time.
    """

    messages: str
    made: Counter[str]
    state: str
    seconds: float
    waits: int


def slow(tool: StructuredTool, seconds: float) -> BaseTool:
    """A tool that takes its time."""
    if not seconds:
        return tool
    inner: Any = tool.func

    def run(**arguments: Any) -> Any:
        time.sleep(seconds)
        return inner(**arguments)

    made: BaseTool = tool.model_copy(update={"func": run})
    return made


async def run_task(model: Any, task: Task, memory: ToolMemory | None, seconds: float, *, sync: bool) -> Ran:
    """One task in an office of its own."""
    office = Office(task.seed)
    tools = [slow(tool, seconds) for tool in office.tools()]
    middleware = [] if memory is None else tool_memory_middleware(memory, shortcut=False, prefetch=Prefetch())
    agent = create_agent(model, tools, middleware=middleware)
    payload: Any = {"messages": [("user", task.request)]}
    config: RunnableConfig = {"recursion_limit": 200}
    began = time.perf_counter()
    if sync:
        state = await asyncio.to_thread(agent.invoke, payload, config)
    else:
        state = await agent.ainvoke(payload, config)
    took = time.perf_counter() - began
    messages = state["messages"]
    shown = [
        (m.type, m.content, [(c["name"], c["args"]) for c in getattr(m, "tool_calls", ())], getattr(m, "status", ""))
        for m in messages
    ]
    made = Counter(f"{c['name']} {c['args']}" for m in messages for c in getattr(m, "tool_calls", ()))
    asked = [m for m in messages if m.type == "ai"]
    waits = len(asked) + sum(bool(m.tool_calls) for m in asked)
    known = set(ID.findall(plain(Office(task.seed).state())))
    records = {name: sorted(masked(plain(each), known) for each in of.values()) for name, of in office.state().items()}
    return Ran(masked(plain(shown), known), Counter(masked(each, known) for each in made), plain(records), took, waits)


def plain(value: Any) -> str:
    """A value as text."""
    return json.dumps(value, sort_keys=True, default=str)


def masked(text: str, known: set[str]) -> str:
    """A text without the ids that were drawn in the run: calls made side by side draw them in any order."""
    return ID.sub(lambda found: found[0] if found[0] in known else "new", text)


def both(
    tasks: Sequence[Task], seconds: float, at_once: int, *, sync: Callable[[int], bool]
) -> tuple[list[tuple[Ran, Ran]], dict[str, Any]]:
    """Each task without and with it, one right after the other: how busy the machine is, is the same for both.

    Args:
        tasks: in their order.
        seconds: that a model call takes, and a tool call.
        at_once: tasks at the same time.
        sync: whether a task, by its number, is a sync run in a thread.

    Returns:
        The runs, and what the memory says of it.
    """

    async def run(model: Any, memory: ToolMemory) -> list[tuple[Ran, Ran]]:
        room = asyncio.Semaphore(at_once)

        async def one(number: int, task: Task) -> tuple[Ran, Ran]:
            how: dict[str, Any] = {"sync": sync(number)}
            async with room:
                without = await run_task(model, task, None, seconds, **how)
                return without, await run_task(model, task, memory, seconds, **how)

        try:
            return await asyncio.gather(*(one(number, task) for number, task in enumerate(tasks)))
        finally:
            if isinstance(model, ChatOpenAI):
                await model.root_async_client.close()

    with ToolMemory.ephemeral(methods=[Inertia()]) as memory, ExitStack() as stack:
        model: Any = ScriptedChatModel(script=_assistant)
        if seconds:
            model = make_chat_model(stack.enter_context(OpenAIStubServer(reply, latency_s=seconds)))
        pairs = asyncio.run(run(model, memory))
        return pairs, memory.report().sections["inertia"].figures.get("prefetch", {})


def _assistant(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """The office's assistant without HTTP."""
    answer = reply({"messages": convert_to_openai_messages(messages), "tools": tools})
    calls = [{**call, "id": f"call_{uuid.uuid4().hex[:24]}"} for call in answer.tool_calls]
    return AIMessage(answer.content, tool_calls=calls)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prefetch_live", description=__doc__)
    parser.add_argument("--tasks", type=int, default=200, help="with latency")
    parser.add_argument("--seconds", type=float, default=0.3, help="that a model call takes, and a tool call")
    parser.add_argument("--at-once", type=int, default=3, help="runs at the same time, with latency")
    parser.add_argument("--alike", type=int, default=2000, help="tasks without latency, half of them async, 50 at once")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every figure there")
    given = parser.parse_args(arguments)
    figures: dict[str, Any] = {}
    if given.tasks:
        pairs, report = both(make_tasks(given.tasks, seed=0), given.seconds, given.at_once, sync=lambda _: True)
        before, after = (sum(pair[arm].seconds for pair in pairs) for arm in (0, 1))
        waiting = given.seconds * sum(pair[0].waits for pair in pairs)
        served = given.seconds * report.get("served", 0)
        saved, share = 100 * (before - after) / before, 100 * (before - after) / max(served, 1e-9)
        figures["latency"] = {"without": before, "ahead": after, "waiting": waiting, "served_seconds": served, **report}
        print(
            f"{given.tasks} tasks: {before:.0f} s without (of these {waiting:.0f} s waiting), {after:.0f} s with; "
            f"look-ups prefetched: {report.get('started', 0)}, served {report.get('served', 0)}"
        )
        for fine, what in (
            (saved >= LEAST_SAVED, f"{saved:.1f} % less wall time >= {LEAST_SAVED:g}"),
            (share >= LEAST_OF_SERVED, f"{share:.0f} % of what was served can save >= {LEAST_OF_SERVED:g}"),
        ):
            print("holds " if fine else "MISSED", what)
        print(f"       {100 * served / waiting:.1f} % of the waiting is what was served can save")
    if given.alike:
        pairs, report = both(make_tasks(given.alike, seed=1), 0.0, 50, sync=lambda number: number % 2 == 1)
        differ = {
            name: sum(getattr(a, name) != getattr(b, name) for a, b in pairs) for name in ("messages", "made", "state")
        }
        figures["alike"] = {"tasks": given.alike, **differ, **report}
        print(f"{given.alike} tasks, {report.get('served', 0)} look-ups served; runs that differ: {differ}")
        print("holds " if not any(differ.values()) else "MISSED", "0 differences")
    if given.json_file is not None:
        given.json_file.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
