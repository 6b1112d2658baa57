"""How many files and functions of the package one warm call enters.

    python -m benchmarks.trace
    python -m benchmarks.trace --tasks 60 --files

An agent of ``create_agent`` does tasks of the office; then a few more are done, and each of its model
calls is traced. A decision is what the shortcut's middleware does in the model's place: nothing of the host's is
counted, and nothing of the recorder's.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.utils import convert_to_openai_messages

import langgraph_toolmem
from examples.office import assistant
from examples.office.office import Office
from examples.office.tasks import make_tasks
from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel

PACKAGE: Final = Path(langgraph_toolmem.__file__).parent
DECISION: Final = "a shortcut decision"
TARGETS: Final = {DECISION: 20, "recall": 15, "suggest": 15, "a plan": 15, "an atom hint": 15}
"""Files that one call may enter."""
EAGER: Final = InertiaPolicy().with_(min_precision=0.3, max_wrong_per_100=None)
"""Acts after a few runs; what is entered is the same."""
TRACED: Final = 10
"""Tasks whose model calls are traced."""


@dataclass
class Trace:
    """What was entered: functions by file, without comprehensions, in the order in which they came."""

    entered: dict[Path, set[str]] = field(default_factory=dict)

    @contextmanager
    def on(self) -> Iterator[Trace]:
        """Counts what this thread enters."""

        def entered(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(str(PACKAGE)):
                names = self.entered.setdefault(Path(code.co_filename).relative_to(PACKAGE), set())
                if not code.co_name.startswith("<"):
                    names.add(f"{code.co_name}:{code.co_firstlineno}")

        before = sys.getprofile()
        sys.setprofile(entered)
        try:
            yield self
        finally:
            sys.setprofile(before)

    @property
    def files(self) -> int:
        """How many files."""
        return len(self.entered)

    @property
    def functions(self) -> int:
        """How many functions."""
        return sum(len(names) for names in self.entered.values())


class Outside(AgentMiddleware[Any, Any, Any]):
    """Stands outside the memory's middleware and traces the model calls in whose place the shortcut acts."""

    def __init__(self) -> None:
        super().__init__()
        self.acted: list[Trace] | None = None

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Traces what the call enters."""
        if self.acted is None:
            return handler(request)
        with Trace().on() as trace:
            response = handler(request)
        made = getattr(response, "model_response", response).result[-1]
        if "toolmem" in made.additional_kwargs:
            self.acted.append(trace)
        return response


def measure(tasks: int) -> dict[str, Trace]:
    """One trace for each kind of call; of decisions the one that entered most files."""
    office, outside = Office(0), Outside()
    with ToolMemory.ephemeral(tools=office.tools()) as memory:
        agent: Any = create_agent(
            ScriptedChatModel(script=_reply),
            office.tools(),
            middleware=[outside, *tool_memory_middleware(memory, shortcut=EAGER)],
        )
        memory.sit.suggest([("user", "hello")])  # what is asked for is kept from then on
        memory.atoms.search("hello", state="", slots=())
        for i, task in enumerate(make_tasks(tasks + TRACED, seed=0)):
            if i == tasks:
                outside.acted = []
            office.reset(task.seed)
            config: Any = {"configurable": {"thread_id": task.id}, "recursion_limit": 200}
            messages = agent.invoke({"messages": [HumanMessage(task.request)]}, config)["messages"]
            memory.finish(messages, thread_id=task.id, success=True)
        memory.flush()
        found = {DECISION: max(outside.acted or [Trace()], key=lambda trace: trace.files)}
        asked, last = messages[:1], task.request
        target = next(message.tool_calls[-1]["name"] for message in reversed(messages) if _calls(message))
        calls: dict[str, Callable[[], Any]] = {
            "recall": lambda: memory.entries.recall(last),
            "suggest": lambda: memory.sit.suggest(asked),
            "a plan": lambda: memory.navigator.plan(target=target),
            "a plan for a request": lambda: memory.navigator.plan(last),
            "an atom hint": lambda: memory.atoms.search(last, state="", slots=()),
            "a tool search": lambda: memory.navigator.search(last),
        }
        for name, call in calls.items():
            call()  # what is imported and read at the first call is not counted
            with Trace().on() as found[name]:
                if not call():
                    raise AssertionError(f"{name} found nothing: nothing was measured")
    return found


def _reply(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
    """The office's assistant, asked with message objects."""
    answer = assistant.reply({"messages": convert_to_openai_messages(list(messages)), "tools": tools})
    for call in answer.tool_calls:
        call["id"] = f"call_{uuid.uuid4().hex}"
    return answer


def _calls(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and bool(message.tool_calls)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trace", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tasks", type=int, default=30, help="tasks that the memory sees before")
    parser.add_argument("--files", action="store_true", help="list the files, with the functions entered in each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every file and function to FILE")
    options = parser.parse_args(arguments)
    found = measure(options.tasks)
    print(f"{'entered by one warm call':26} files  functions")
    for name, trace in found.items():
        print(f"{name:26} {trace.files:5} {trace.functions:10}")
        for path, names in trace.entered.items() if options.files else ():
            print(f"    {path}: {', '.join(sorted(name.split(':')[0] for name in names)) or '(comprehensions)'}")
    print()
    for name, most in TARGETS.items():
        print(f"{'holds ' if 0 < found[name].files <= most else 'MISSED'} {name}: {found[name].files} files <= {most}")
    if options.json is not None:
        dicts = {name: {str(path): sorted(names) for path, names in t.entered.items()} for name, t in found.items()}
        options.json.write_text(json.dumps(dicts, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
