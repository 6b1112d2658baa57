"""Real ``create_agent`` agents on the order desk, with and without the memory, for the tests of coexistence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from desk import EAGER, NAMES, Desk, call_id, request, script, thread, warm
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel

WAYS = ("sync", "async")
"""How an agent is run: ``@pytest.mark.parametrize("way", WAYS)``."""


@dataclass
class Agent:
    """One agent with its desk: what was executed is in ``desk.done``, model calls are in ``model.calls``."""

    graph: Any
    model: Any
    desk: Desk
    memory: ToolMemory | None

    async def ask(self, payload: Any, config: Any, way: str = "async", **options: Any) -> dict[str, Any]:
        """Runs the graph with a payload (a state or a Command); the state it ends or pauses with."""
        if way == "sync":
            state: dict[str, Any] = self.graph.invoke(payload, config, **options)
        else:
            state = await self.graph.ainvoke(payload, config, **options)
        return state

    async def run(self, number: int, way: str = "async", *, config: Any = None, **options: Any) -> dict[str, Any]:
        """One request; the name goes round. Each number has a thread of its own unless a config is given."""
        return await self.ask(asked(number), config or thread(f"thread-{number}"), way, **options)

    @property
    def model_calls(self) -> int:
        """How often the model was really asked."""
        return len(self.model.calls)


def asked(number: int, name: str | None = None) -> dict[str, list[BaseMessage]]:
    """What a user hands in: the number's name, or another one."""
    text = request(name or NAMES[number % len(NAMES)])
    return {"messages": [HumanMessage(text, id=call_id("user", number))]}


def build_agent(
    memory: ToolMemory | None,
    desk: Desk | None = None,
    *,
    before: Sequence[Any] = (),
    inside: Sequence[Any] = (),
    tools: Sequence[BaseTool] | None = None,
    model: Any = None,
    policy: InertiaPolicy | bool = EAGER,
    prefetch: Any = False,
    checkpointer: Any = ...,
    **options: Any,
) -> Agent:
    """An agent on a desk; without a memory it is what the host had before.

    Args:
        memory: the memory, or None.
        desk: its tools are called.
        before: the host's middleware before the memory's.
        inside: the host's own middleware.
        tools: other tools than the desk's.
        model: another model than the desk's script.
        policy: of the shortcut.
        prefetch: of look-ups.
        checkpointer: InMemorySaver if not given.
        options: of ``create_agent``.
    """
    desk = desk or Desk()
    model = model or ScriptedChatModel(script=script)
    middleware = list(inside)
    if memory is not None:
        middleware = tool_memory_middleware(memory, inside=middleware, shortcut=policy, prefetch=prefetch)
    graph = create_agent(
        model,
        list(desk.tools if tools is None else tools),
        middleware=[*before, *middleware],
        checkpointer=InMemorySaver() if checkpointer is ... else checkpointer,
        **options,
    )
    return Agent(graph, model, desk, memory)


def both(
    inside: Callable[[], Sequence[Any]] = tuple,
    *,
    desk: Callable[[], Desk] = Desk,
    memory: ToolMemory | None = None,
    runs: int = 24,
    model: Callable[[], Any] | None = None,
    **options: Any,
) -> tuple[Agent, Agent]:
    """Two equal agents, the first with a memory that knows the desk, the second without.

    Args:
        inside: makes the host's own middleware.
        desk: makes a desk.
        memory: the first one's; one in RAM that has seen `runs` runs if None.
        runs: how many.
        model: makes a model; the desk's script if None.
        options: of `build_agent`.
    """
    ours, theirs = desk(), desk()
    if memory is None:
        memory = ToolMemory.ephemeral(tools=ours.tools, reads={"*"})
        warm(memory, runs)
    with_memory = build_agent(memory, ours, inside=inside(), model=model and model(), **options)
    return with_memory, build_agent(None, theirs, inside=inside(), model=model and model(), **options)


def same_calls(with_memory: Desk, without: Desk, *, ordered: bool = True) -> None:
    """The same tools were executed with the same arguments, and some were at all.

    Args:
        with_memory: the desk of the agent with the memory.
        without: the other one.
        ordered: in the same order too; parallel calls have none.
    """
    assert without.done, "nothing was executed: nothing is compared"
    ours, theirs = with_memory.done, without.done
    if not ordered:
        ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
    assert ours == theirs
