"""The reflection writer: at the end of a run, it is kept with its verdict, to be recalled later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.base import MemoryNode
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.turn.host import ErrorLog, emit, run_id_of, runtime_of, user_id_of
from langgraph_toolmem.turn.telemetry import annotate

ROLE: Final = "reflection"

Verdict: TypeAlias = Callable[[Any], "bool | float | None"]
"""Judges a run from the graph's state: True or False, a score from 0 (bad) to 1 (good), None: it cannot tell."""


class ReflectionWriter(MemoryNode):
    """Keeps the run with its verdict as an entry, and learns the rest of it. Put it before END.

    The entry is written in the background; where the run went wrong and the memory has a `critic`, its critique
    follows. A verdict may also come later, with ``memory.feedback``. Where branches run side by side, add the node
    with ``defer=True``::

        builder.add_node("reflect", ReflectionWriter(memory, verdict=lambda state: state["checked"]))
        builder.add_edge("reflect", END)

    A run that ends with an error never comes here: `ReflectionMiddleware` keeps such runs too, or the host calls
    ``memory.finish`` itself.

    Args:
        memory: the memory.
        verdict: judges the run from the state; None: nobody says. What raises, or gives anything else, counts as
            None. In an async graph it is called in a thread.
        wait: return when entry and critique are written: for scripts.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    role = ROLE
    about = "keeps the finished run with its verdict; critiques are written in the background"

    def __init__(
        self,
        memory: ToolMemory,
        *,
        verdict: Verdict | None = None,
        wait: bool = False,
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        super().__init__(memory, messages_key=messages_key, name=name)
        self._end = RunEnd(memory, verdict=verdict, wait=wait, errors=self._errors)

    def _run(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        score = self._end.judge(state)
        who = (run_id_of(config, runtime), user_id_of(config, runtime))
        tell(self._end.finish(self._messages(state), score, *who), runtime)

    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        score = await self._end.ajudge(state)
        who = (run_id_of(config, runtime), user_id_of(config, runtime))
        tell(await self._end.afinish(self._messages(state), score, *who), runtime)


class Ended(NamedTuple):
    """What became of the end of a run: its verdict, and how many turns of it were new."""

    verdict: bool | float | None
    learned_turns: int


class RunEnd:
    """What the node and the middleware do at the end of a run.

    Args:
        memory: the memory.
        verdict: judges the run from the state.
        wait: return when all is written.
        errors: where errors of the verdict are logged.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(self, memory: ToolMemory, *, verdict: Verdict | None, wait: bool, errors: ErrorLog) -> None:
        if verdict is not None and not callable(verdict):
            raise ConfigurationError(f"verdict is a function of the state, not {type(verdict).__name__}.")
        if not isinstance(wait, bool):
            raise ConfigurationError(f"wait is True or False, not {wait!r}.")
        self._memory, self._verdict, self._wait, self._errors = memory, verdict, wait, errors

    def judge(self, state: Any) -> bool | float | None:
        """The verdict on a run, from the graph's state; an interrupt in it reaches the graph."""
        if self._verdict is None:
            return None
        try:
            return _checked(self._verdict(state))
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return None

    async def ajudge(self, state: Any) -> bool | float | None:
        """Async twin of `judge`."""
        return None if self._verdict is None else await asyncio.to_thread(self.judge, state)

    def finish(
        self, messages: list[Any], verdict: bool | float | None, run_id: str | None, user_id: str | None
    ) -> Ended:
        """The run is over. May raise what `ToolMemory.finish` raises."""
        known = verdict if isinstance(verdict, bool) else None
        scored = None if isinstance(verdict, bool) else verdict
        wait = self._wait and scored is None
        new = self._memory.finish(messages, run_id=run_id, success=known, user_id=user_id, wait=wait)
        if scored is not None:
            name = parse_run(messages, run_id=run_id).scope
            self._memory.feedback(name, score=scored, user_id=user_id, wait=self._wait)
        return Ended(verdict, new)

    async def afinish(
        self, messages: list[Any], verdict: bool | float | None, run_id: str | None, user_id: str | None
    ) -> Ended:
        """Async twin of `finish`."""
        return await asyncio.to_thread(self.finish, messages, verdict, run_id, user_id)


def _checked(verdict: Any) -> bool | float | None:
    if verdict is None or isinstance(verdict, bool):
        return verdict
    if is_share(verdict):
        return float(verdict)
    raise ConfigurationError(
        f"verdict gave a {type(verdict).__name__} that is neither True, False nor None, nor a score from 0 to 1."
    )


def tell(ended: Ended, runtime: Runtime[Any] | None) -> None:
    """One stream event and the attributes of the current span."""
    score = None if ended.verdict is None else float(ended.verdict)
    emit(runtime, {"node": ROLE, "score": score, "learned_turns": ended.learned_turns})
    told: dict[str, str | int | float | bool] = {"toolmem.node": ROLE, "toolmem.learned_turns": ended.learned_turns}
    annotate(told if score is None else {**told, "toolmem.score": score})
