"""Cold start: an agent that has no past yet is run in its sandbox on invented requests, and remembers them.

Run it: ``python -m examples.bootstrap_office``. It needs no key: the model that invents requests is scripted, and so is
the office assistant that carries them out. `Bootstrap` takes a real model just so.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages

from examples.office import TODAY, Office, Task, make_tasks
from examples.office.agent import build_graph
from examples.office.assistant import reply
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.offline.coldstart import Bootstrap, Budget, Sandbox
from langgraph_toolmem.testing import ScriptedChatModel

QUERIES = 40
REQUESTS = (
    "Move my Design sync from 2024-06-03 to 2024-06-06 and let the attendees know.",
    "Let Iris Optics know that the audit went well; email their contact and keep a note about it.",
)
TASKS: dict[str, Task] = {task.request: task for task in make_tasks(400)}


def make() -> Sandbox:
    """The sandbox: an office of its own, the agent, what brings the first day back, and what checks the outcome."""
    office = Office(0)
    people = ", ".join(sorted(person["name"] for person in office.state()["people"].values())[:12])

    def reset() -> None:
        office.reset()
        office.inject("add_note", failures=9)  # out of order, so that some runs go wrong

    def verdict(query: str, _: list[BaseMessage]) -> bool | None:
        return TASKS[query].checker(office) if query in TASKS else None

    return Sandbox(
        build_graph(ScriptedChatModel(script=assistant), list(office.tools())).compile(),
        tools=office.tools(),
        reset=reset,
        verdict=verdict,
        about=f"Today is {TODAY}. Some of the people: {people}.",
    )


def assistant(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
    """The office's scripted assistant in place of the agent's model."""
    asked = convert_to_openai_messages(list(messages))
    answer = reply({"messages": asked, "tools": tools})
    for number, call in enumerate(answer.tool_calls):
        text = f"{messages[1].text} {len(messages)} {number}"
        call["id"] = f"call_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    return answer


def inventor(seed: int = 0) -> ScriptedChatModel:
    """A scripted model in place of one that invents: it draws from the wordings that the assistant understands."""
    rng = random.Random(seed)

    def invent(_: Sequence[BaseMessage], __: Sequence[dict[str, Any]]) -> AIMessage:
        drawn = rng.sample(list(TASKS.values()), 10)
        queries = [
            {"text": task.request, "tools": list(dict.fromkeys(call.tool for call in task.script()))} for task in drawn
        ]
        call = {"name": "InventedQueries", "args": {"queries": queries}, "id": f"call_{rng.getrandbits(96):024x}"}
        return AIMessage("", tool_calls=[{**call, "type": "tool_call"}])

    return ScriptedChatModel(script=invent)


def main() -> None:
    """Fills an empty memory, and asks it about new requests."""
    sandbox = make()
    with ToolMemory.ephemeral(tools=sandbox.tools) as memory:
        before = sum(len(memory.entries.recall(request)) for request in REQUESTS)
        done = Bootstrap(memory, sandbox, inventor(), budget=Budget(queries=QUERIES)).run()
        print(f"{done.run} invented requests were run in the sandbox: {done.good} went well, {done.wrong} went wrong.")
        print(f"Past runs recalled: {before} before, and now:")
        for request in REQUESTS:
            print(f"\n> {request}")
            for entry in memory.entries.recall(request):
                outcome = "went well" if entry.good else "went wrong"
                print(f"  {entry.query}\n    {outcome}: {' -> '.join(call.tool for call in entry.calls)}")


if __name__ == "__main__":
    main()
