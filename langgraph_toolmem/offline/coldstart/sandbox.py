"""The user's agent in its sandbox."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.turn.host import read_key

if TYPE_CHECKING:
    from langgraph_toolmem.runs.tools import ToolLike

T = TypeVar("T")

Verdict: TypeAlias = Callable[[str, list[BaseMessage]], "bool | float | Awaitable[bool | float | None] | None"]
"""``verdict(query, messages)``: whether the run was right (or a score from 0 to 1); None if that cannot be told."""

MAX_ABOUT = 4_000
"""Characters of what is told about a sandbox."""


@dataclass
class Sandbox:
    """An agent, and the world that its tools act on.

    Attributes:
        agent: a compiled graph, or whatever has `ainvoke` or `invoke` with the same protocol:
            ``invoke({"messages": [...]}, config)`` gives a state with all messages, or the messages. Each request has a
            thread of its own, ``config["configurable"]["thread_id"]``; callbacks in the config count model calls.
        tools: what the agent can call. None: those of the graph's tool nodes.
        reset: brings the sandbox back to its first day, before each request.
        verdict: judges a run, right after it.
        about: what there is in the sandbox: names, ids, dates, for requests that can be carried out.
        messages_key: key of the messages in the agent's state.

    `reset` and `verdict` may be coroutine functions.
    """

    agent: Any
    tools: Iterable[ToolLike] | None = None
    reset: Callable[[], Any] | None = None
    verdict: Verdict | None = None
    about: str = ""
    messages_key: str = "messages"

    def __post_init__(self) -> None:
        """Compiles a graph that is not compiled.

        Raises:
            ConfigurationError: the agent has neither `invoke` nor `ainvoke`.
        """
        agent = self.agent
        if not _invokes(agent) and callable(getattr(agent, "compile", None)) and not isinstance(agent, type):
            agent = self.agent = agent.compile()
        if not _invokes(agent):
            raise ConfigurationError(
                f"The agent of a sandbox has invoke or ainvoke, as a compiled graph has; {_name(agent)} has neither."
            )
        if len(self.about) > MAX_ABOUT:
            raise ConfigurationError(f"What is told about a sandbox has at most {MAX_ABOUT:,} characters.")

    async def run(
        self, query: str, config: RunnableConfig, *, seconds: float, blocking: bool = False
    ) -> list[BaseMessage]:
        """One request, to its end.

        Args:
            query: the user's words.
            config: with the thread, and callbacks.
            seconds: after which it is broken off. What runs in a thread cannot be: it is left alone.
            blocking: `invoke`, in a thread, is taken where there are both; else `ainvoke`.

        Raises:
            TimeoutError: it took too long.
            InputError: no messages came back, or the agent waits for a person.
            Exception: whatever the agent raises.
        """
        given = {self.messages_key: [HumanMessage(query)]}
        names = ("invoke", "ainvoke") if blocking else ("ainvoke", "invoke")
        name = next(name for name in names if callable(getattr(self.agent, name, None)))
        if name == "ainvoke":
            running: Awaitable[Any] = self.agent.ainvoke(given, config)
        else:
            running = in_thread(lambda: self.agent.invoke(given, config))
        try:
            result = await asyncio.wait_for(running, seconds)
        except asyncio.TimeoutError:  # another class than the built-in one before Python 3.11
            raise TimeoutError(f"broken off after {seconds:g} seconds") from None
        return self._messages(result)

    async def back(self) -> None:
        """Brings the sandbox back to its first day, if it can be."""
        if self.reset is not None:
            await _maybe_awaited(self.reset())

    async def judge(self, query: str, messages: list[BaseMessage]) -> float | None:
        """The sandbox's own verdict, from 0 to 1; None if there is none.

        Raises:
            InputError: it is neither true, false, None nor a number from 0 to 1.
            Exception: whatever it raises.
        """
        if self.verdict is None:
            return None
        said = await _maybe_awaited(self.verdict(query, messages))
        if said is None:
            return None
        if not isinstance(said, (bool, int, float)) or not 0 <= said <= 1:
            raise InputError(f"A verdict is true, false, None or a score from 0 to 1, not {said!r:.60}.")
        return float(said)

    def _messages(self, result: Any) -> list[BaseMessage]:
        if isinstance(result, Mapping) and result.get("__interrupt__"):
            raise InputError("the agent waits for a person (interrupt)")
        found = read_key(result, self.messages_key)
        if not isinstance(found, (list, tuple)) or not found:
            raise InputError(f"the agent gave no list of messages under {self.messages_key!r}, but {_name(result)}")
        return convert_to_messages(list(found))


def tools_of(agent: Any) -> list[ToolLike]:
    """The tools in a compiled graph's tool nodes, each once; empty if there are none to be seen."""
    found: dict[str, ToolLike] = {}
    nodes = getattr(agent, "nodes", None)
    for node in nodes.values() if isinstance(nodes, dict) else ():
        by_name = getattr(getattr(node, "bound", node), "tools_by_name", None)
        if isinstance(by_name, dict):
            found.update(by_name)
    return list(found.values())


def _invokes(agent: Any) -> bool:
    return not isinstance(agent, type) and any(callable(getattr(agent, name, None)) for name in ("ainvoke", "invoke"))


async def _maybe_awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Calls a blocking function in a daemon thread: one that hangs keeps nobody from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = copy_context()

    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            set_it(value)

    def work() -> None:
        try:
            told: tuple[Callable[[Any], None], Any] = future.set_result, context.run(call)
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            told = future.set_exception, error
        except BaseException as error:  # noqa: BLE001 - nobody but the user may end this process
            told = future.set_exception, RuntimeError(f"{type(error).__name__} was raised")
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, *told)

    threads.start("toolmem-bootstrap", work)
    return future


def _name(value: Any) -> str:
    return cast("str", getattr(value, "__name__", None)) or type(value).__name__
