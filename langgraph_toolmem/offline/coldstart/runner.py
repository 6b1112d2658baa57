"""The cold start itself: invent, run, judge, keep; one request after the other, each step on disk before the next."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from langgraph_toolmem.base.errors import ConfigurationError, ToolMemoryError, log_failure
from langgraph_toolmem.base.text import shortened
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.entries.entry import Entry, entry_of
from langgraph_toolmem.offline.coldstart.budget import Budget
from langgraph_toolmem.offline.coldstart.invent import BATCH, invent, what_next
from langgraph_toolmem.offline.coldstart.judge import MAX_SAID, judge
from langgraph_toolmem.offline.coldstart.keeping import BOOTSTRAP, drop_with, keep_entry, open_state
from langgraph_toolmem.offline.coldstart.meter import INVENT, JUDGE, RUN, Meter, RefusedError
from langgraph_toolmem.offline.coldstart.progress import Progress
from langgraph_toolmem.offline.coldstart.sandbox import Sandbox, in_thread, tools_of
from langgraph_toolmem.offline.coldstart.state import Outcome, Query
from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.runs.tools import ToolSpec, read_tools

if TYPE_CHECKING:
    from langgraph_toolmem.memory import ToolMemory

logger = logging.getLogger("langgraph_toolmem.offline.coldstart")

TAG: Final = "toolmem:bootstrap"
DRY: Final = 3
"""Answers in a row without a new request, after which no more are asked for."""
FAILURES: Final = 5
"""Runs in a row that fail, after which it is the agent and not the request."""
JUDGE_TRIES: Final = 3


class Bootstrap:
    """A cold start of a memory. **The agent's tools are really executed.**

    Each finished run becomes an entry with ``made_by="bootstrap"``; nothing is learned from it about which tool
    follows which, so that `drop` takes all of it away. The verdict comes from the sandbox; where it has none, from
    the judge; else there is none. What was finished is on disk, and a later session goes on behind it.

    Args:
        memory: gets the entries. If it has a critic, what went wrong is criticised; those calls are not counted.
        sandbox: the agent and its world.
        model: invents the requests; None: those that wait already are run.
        tools: what the agent can call; None: the sandbox's, or those in its tool nodes.
        judge: judges runs for which the sandbox has no verdict.
        budget: bounds, over all sessions.
        user_id: whose entries they become; the agent is run for that user.
        seed: draws which tools the next requests are about.
        several: share of requests that need several tools, from 0 to 1.

    Raises:
        ConfigurationError: an argument cannot be, or no tools are known.
        NamespaceError: the namespace needs a user id.
        StorageError: the memory is read-only, or its folder cannot be used.
    """

    def __init__(
        self,
        memory: ToolMemory,
        sandbox: Sandbox,
        model: BaseChatModel | None = None,
        *,
        tools: Any = None,
        judge: BaseChatModel | None = None,
        budget: Budget | None = None,
        user_id: str | None = None,
        seed: int = 0,
        several: float = 0.5,
    ) -> None:
        if not 0 <= several <= 1:
            raise ConfigurationError(f"several is a share from 0 to 1, not {several!r}.")
        self._memory, self._sandbox, self._model, self._judge = memory, sandbox, model, judge
        self.budget = budget or Budget()
        self._user_id, self._seed, self._several = user_id, seed, several
        self.tools = _read_tools(tools, sandbox)
        self._state = open_state(memory, user_id)
        self._left_out: Counter[str] = Counter()
        self._errors: list[str] = []
        self._stopped = ""
        self._blocking = False

    def run(self, on_step: Callable[[Progress], object] | None = None, *, only_invent: bool = False) -> Progress:
        """As `arun`, where no event loop runs; the agent's `invoke` is taken if it has one."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._begin(on_step, only_invent=only_invent, blocking=True))
        raise ConfigurationError("An event loop is running here: await arun() instead of calling run().")

    async def arun(self, on_step: Callable[[Progress], object] | None = None, *, only_invent: bool = False) -> Progress:
        """Goes on until all requests are run, or the budget is spent. The agent's `ainvoke` is taken if it has one.

        Args:
            on_step: told after each step.
            only_invent: requests are invented and wait; nothing is run.

        Raises:
            ToolMemoryError: the model, the judge or the sandbox's reset failed, or `FAILURES` runs in a row did. What
                was done is kept; begun again, it goes on from there.
        """
        return await self._begin(on_step, only_invent=only_invent, blocking=False)

    async def _begin(
        self, on_step: Callable[[Progress], object] | None, *, only_invent: bool, blocking: bool
    ) -> Progress:
        self._blocking = blocking
        tell = on_step or (lambda _: None)
        self._stopped = ""
        self._state.recover()
        tell(self.progress())
        try:
            await self._go_on(tell, only_invent=only_invent)
        finally:
            tell(self.progress())
        await in_thread(self._memory.flush)
        return self.progress()

    def progress(self) -> Progress:
        """Return how far it is."""
        counts = self._state.counts()
        calls, tokens = self._state.spent()
        names = ("waiting", "good", "wrong", "unjudged", "empty", "failed")
        return Progress(
            wanted=self.budget.queries,
            **{name: counts.get(name, 0) for name in names},
            unfinished=counts.get("ran", 0),
            model_calls=calls,
            tokens=tokens,
            left_out=dict(self._left_out),
            unwritten=self._memory.core.jobs.queue.report()["pending"],
            stopped=self._stopped,
            errors=tuple(self._errors[-5:]),
        )

    def queries(self) -> list[Query]:
        """The requests there are, the oldest first."""
        return self._state.all()

    def retry_failed(self) -> int:
        """Has requests whose run failed wait again; returns how many."""
        return self._state.retry_failed()

    def drop(self) -> int:
        """Takes its entries away, of former sessions too, and begins anew; returns how many entries.

        Raises:
            StorageError: something could not be deleted; do it again.
        """
        return drop_with(self._memory, self._state, user_id=self._user_id)

    def close(self) -> None:
        """Closes the file with the state. The memory stays open."""
        self._state.close()

    def __enter__(self) -> Bootstrap:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the steps ---

    async def _go_on(self, tell: Callable[[Progress], object], *, only_invent: bool) -> None:
        dry = failures = 0
        unsettled: set[str] = set()
        while True:
            now = self.progress()
            if (query := self._state.next("ran", but=unsettled)) is not None:
                if not await self._settle(query):
                    unsettled.add(query.id)
                    if self._stopped:
                        return
            elif not only_invent and now.run < self.budget.queries and (query := self._state.next("waiting")):
                if self._is_spent():
                    return
                failed = await self._run(query)
                if self._stopped:
                    return
                failures = failures + 1 if failed else 0
                if failures >= FAILURES:
                    raise ToolMemoryError(
                        f"{FAILURES} runs in a row failed, the last one with {self._errors[-1]}. What was done is kept."
                    )
            elif now.invented >= self.budget.queries or self._model is None or self._is_spent():
                return
            elif dry >= DRY:
                self._stopped = "the model invents nothing new any more"
                return
            else:
                added = await self._invent(self._model, now.invented)
                if self._stopped:
                    return
                dry = 0 if added else dry + 1
            tell(self.progress())

    def _is_spent(self) -> bool:
        self._stopped = self.budget.spent(*self._state.spent())
        return bool(self._stopped)

    async def _invent(self, model: BaseChatModel, there: int) -> int:
        """Asks once for requests; returns how many are new."""
        known = self._state.all()
        asked = self._state.spent(INVENT)[0]
        rng = random.Random(f"{self._seed}-{asked}-{there}")  # the same whether it was begun again in between or not
        missing = self.budget.queries - there
        wanted = what_next(known, self.tools, missing=missing, several=self._several, rng=rng)
        meter = Meter(self._state, self.budget, INVENT)
        about = self._sandbox.about
        try:
            # In a thread: the connections of some clients belong to one event loop, and survive it.
            chosen = await in_thread(
                lambda: invent(model, wanted, self.tools, known, about=about, config=_config(meter))
            )
        except RefusedError:
            self._stopped = self.budget.spent(*self._state.spent())
            return 0
        except Exception as error:
            raise ToolMemoryError(
                f"The model that invents requests failed ({_said(error)}). What was done is kept."
            ) from error
        self._left_out += chosen.left_out
        return sum(
            self._state.add(each.text, each.tools, "several" if len(each.tools) > 1 else "one")
            for each in chosen.queries[: min(missing, BATCH)]
        )

    async def _run(self, query: Query) -> bool:
        """Runs one request; returns whether that failed."""
        query = self._state.begin(query)
        meter = Meter(self._state, self.budget, RUN, most=self.budget.calls_per_run)
        messages: list[BaseMessage] = []
        why = ""
        try:
            await self._reset()
            config = _config(meter, thread=query.thread_id, user_id=self._user_id)
            try:
                messages = await self._sandbox.run(
                    query.text, config, seconds=self.budget.seconds_per_run, blocking=self._blocking
                )
            except Exception as error:  # noqa: BLE001 - the agent is the user's; one run that fails is no end
                log_failure(logger, logging.DEBUG, "a run in the sandbox failed", error=error)
                why = _said(error)
            meter.stop("the run is over")
            if meter.refused:
                why = f"broken off after {meter.calls} model calls"
            if meter.refused == "budget":
                self._state.again(query)
                self._stopped = self.budget.spent(*self._state.spent())
                return False
            if not why:
                meter.told(messages)
                why = await self._take(query, messages)
        except BaseException:  # Ctrl-C, a reset that failed, a disk that is full
            meter.stop("the run was interrupted")
            self._state.again(query)
            raise
        if why:
            self._errors.append(why)
            self._state.failed(query, why)
        return bool(why)

    async def _reset(self) -> None:
        try:
            await self._sandbox.back()
        except Exception as error:
            raise ToolMemoryError(f"The sandbox could not be reset ({_said(error)}). What was done is kept.") from error

    async def _take(self, query: Query, messages: list[BaseMessage]) -> str:
        """Makes an entry of a finished run, while the sandbox is as the run left it; why that failed, or ""."""
        score: float | None = None
        try:
            score = await self._sandbox.judge(query.text, messages)
        except Exception as error:  # noqa: BLE001 - the check is the user's; without it the run is one without a verdict
            log_failure(logger, logging.WARNING, "the sandbox's verdict failed", error=error)
            self._errors.append(f"verdict: {_said(error)}")
        try:
            run = self._memory.core.read(messages, query.thread_id)
        except ToolMemoryError as error:
            return _said(error)
        self._memory.core.know(run)  # for a verdict that comes later
        entry = entry_of(
            run,
            run_digest=run.digest,
            now=self._memory.core.now(),
            user=user_digest(self._user_id),
            score=score,
            made_by=BOOTSTRAP,
        )
        if entry is None:
            return "nothing can be read from the run"
        judged = score is not None or self._judge is None
        self._state.ran(query, entry.to_dict(), _last_words(messages), judged=judged)
        return ""

    async def _settle(self, query: Query) -> bool:
        """Judges a finished run if that is still to be done, and keeps its entry; False if the judge failed."""
        entry = Entry.from_dict(query.entry or {})
        if not query.judged and (model := self._judge) is not None:
            config = _config(Meter(self._state, self.budget, JUDGE))
            unjudged = entry
            try:
                said = await in_thread(lambda: judge(model, unjudged, query.answer, self.tools, config=config))
            except RefusedError:
                self._stopped = self.budget.spent(*self._state.spent())
                return False
            except Exception as error:
                if self._state.unjudged(query) < JUDGE_TRIES:
                    raise ToolMemoryError(f"The judge failed ({_said(error)}). What was done is kept.") from error
                log_failure(logger, logging.WARNING, "the judge failed on one run for good", error=error)
            else:
                entry = replace(entry, score=said.score, comment=said.why if said.score is not None else "")
                self._state.judged(query, entry.to_dict())
        if not entry.calls and not entry.failed:
            self._state.done(query, "empty")
            return True
        if not self._state.holds(query):
            self._stopped = "its user was forgotten meanwhile"
            return False
        await in_thread(lambda: keep_entry(self._memory, entry, self._user_id))
        self._state.done(query, _outcome(entry))
        return True


def _read_tools(tools: Any, sandbox: Sandbox) -> dict[str, ToolSpec]:
    given = tools if tools is not None else sandbox.tools if sandbox.tools is not None else tools_of(sandbox.agent)
    if callable(given):
        given = given()
    specs = {name: spec for name, spec in read_tools(given).items() if name != SUMMARY_TOOL}
    if not specs:
        raise ConfigurationError(
            "No tools are known from which requests could be invented: give `tools`, on the command line with --tools."
        )
    return specs


def _config(meter: Meter, *, thread: str | None = None, user_id: str | None = None) -> RunnableConfig:
    config = RunnableConfig(callbacks=[meter], tags=[TAG], run_name="toolmem_bootstrap")
    if thread is not None:
        config["configurable"] = {"thread_id": thread} | ({} if user_id is None else {"user_id": user_id})
    return config


def _last_words(messages: list[BaseMessage]) -> str:
    last = messages[-1]
    return shortened(last.text, MAX_SAID) if isinstance(last, AIMessage) else ""


def _outcome(entry: Entry) -> Outcome:
    return "good" if entry.good else "wrong" if entry.failed else "unjudged"


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return shortened(f"{type(error).__name__}: {text}" if text else type(error).__name__, 300)
