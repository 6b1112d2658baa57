"""`ToolMemory`, the package's main object: a core and a list of methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langgraph_toolmem.base.checks import with_known_options
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.threads import SharedByCopies, async_variant
from langgraph_toolmem.core.core import DEFAULT_NAMESPACE, Core
from langgraph_toolmem.core.jobs import JOB_LIMITS
from langgraph_toolmem.core.method import EndedRun, Import, Method, check_installed, check_methods, installed
from langgraph_toolmem.core.users import NO_USERS, Forgetting, Owner, seconds_of
from langgraph_toolmem.graph.view import GraphView, view_of
from langgraph_toolmem.report.report import Report, TokenPrice, compare, make_report
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.tools import ToolLike
from langgraph_toolmem.stores.events import Fallback, Fsync
from langgraph_toolmem.turn.step import given_input

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langgraph.store.base import BaseStore

    from langgraph_toolmem.atoms import Atoms
    from langgraph_toolmem.entries import Entries
    from langgraph_toolmem.inertia import Inertia
    from langgraph_toolmem.navigator import Navigator
    from langgraph_toolmem.sit import SIT

T = TypeVar("T", bound="ToolMemory")


def default_methods(*own: Method) -> list[Method]:
    """Return the five built-in methods with their defaults, without those whose extra is not installed.

    Args:
        own: your methods. One with the name of a built-in method replaces it; the others are appended.
    """
    from langgraph_toolmem.atoms import Atoms
    from langgraph_toolmem.entries import Entries
    from langgraph_toolmem.inertia import Inertia
    from langgraph_toolmem.navigator import Navigator
    from langgraph_toolmem.sit import SIT

    own_by_name = {method.name: method for method in check_methods(own)}
    five: list[Method] = [Inertia(), SIT(), Navigator(), Entries(), Atoms()]
    methods = []
    for method in five:
        methods.append(own_by_name.pop(method.name, method))
    return [*installed(methods), *own_by_name.values()]


class ToolMemory(SharedByCopies):
    """A memory of an agent's tool calls, which predicts, suggests, recalls and plans further calls.

    Safe to use from several threads. Several processes and forked workers may share a folder; several machines share a
    `store`.

    Args:
        path: the memory's folder, which is created; ``~`` is expanded. If None, the memory is in RAM only
            (`ephemeral`).
        tools: tools that may be predicted: LangChain tools, callables, OpenAI or MCP tool dicts. Defaults to the tools
            of the observed calls.
        reads: tools that only read: names and shell patterns (``{"find_person", "list_*"}``). The tag ``read_only``,
            ``metadata={"read_only": True}`` and MCP's ``readOnlyHint`` declare a tool too. Only declared tools are ever
            called or prefetched without the model, unless the policy names others. A tool that is marked destructive,
            or that ends or steers the run, never counts as a reading tool.
        constants: arguments whose usual value may be used even if the run does not show it (``{"search.limit"}``). All
            other values need a source in the run: request, results, prompt, context, or the tool's schema.
        private: fields of the run's context that are neither used nor kept (``{"tax_number"}``).
        methods: ``[Inertia(policy=…), Entries(critic=…), …]``, in order. Methods outside the list are not loaded.
            Defaults to `default_methods()`; the extra ``memory`` brings three of them.
        embeddings: LangChain ``Embeddings``, ``"provider:model"``, ``"sentence-transformers:<name or folder>"``.
            Defaults to the built-in lexical embedder, which needs no download.
        chroma: a chromadb client (``HttpClient`` …) instead of the embedded one.
        store: a LangGraph ``BaseStore`` through which several workers share the evidence graph.
        namespace: of personal memory; ``("toolmem", "{user_id}")`` for many users.
        graph_namespace: of the evidence graph.
        fsync: with "snapshot", acknowledged steps survive a crash of the process; with "always", of the machine too.
        fallback: if the folder cannot be made or written, "error" raises, and "memory" continues in RAM, where learned
            steps are lost when the process ends.
        read_only: read, but do not write; works next to a writing process.
        now: returns seconds since 1970.
        holdout: share of the episodes, drawn by their identity, that run without hints and without calls made in the
            model's place. The memory learns in them too, and `report` compares (0.05 is a good share).
        withhold: share of the episodes in which each hint is left out at random, once its method has shown 100 hints
            (0.1 is a good share). Hints that hurt or have no effect are then no longer shown, and `report` names them.
            Defaults to 0: every hint is shown.
        events: If True, write one custom stream event for each decision (``stream_mode="custom"``).
        retention: age, a timedelta or seconds, at which requests, values, feedback, entries, summaries and atoms are
            deleted in the background, daily. If None, they are kept.

    Raises:
        ConfigurationError: an argument is invalid.
        StorageError: the folder is another program's, of another release, on a network file system, or not writable.
    """

    @with_known_options
    def __init__(
        self,
        path: str | Path | None,
        tools: Iterable[ToolLike] | None = None,
        methods: Iterable[Method] | None = None,
        *,
        reads: Iterable[str] = (),
        constants: Iterable[str] = (),
        private: Iterable[str] = (),
        embeddings: Embeddings | str | None = None,
        chroma: Any | None = None,
        store: BaseStore | None = None,
        namespace: tuple[str, ...] = DEFAULT_NAMESPACE,
        graph_namespace: tuple[str, ...] = DEFAULT_NAMESPACE,
        fsync: Fsync = "snapshot",
        fallback: Fallback = "error",
        read_only: bool = False,
        now: Callable[[], float] = time.time,
        holdout: float = 0.0,
        withhold: float = 0.0,
        events: bool = True,
        retention: timedelta | float | None = None,
    ) -> None:
        if methods is None:
            self._methods = default_methods()
        else:
            self._methods = check_methods(methods)
        kept_for = seconds_of(retention)
        self._core = Core(
            path,
            self._methods,
            tools=tools,
            reads=reads,
            constants=constants,
            private=private,
            embeddings=embeddings,
            chroma=chroma,
            store=store,
            namespace=namespace,
            graph_namespace=graph_namespace,
            fsync=fsync,
            fallback=fallback,
            read_only=read_only,
            now=now,
            holdout=holdout,
            withhold=withhold,
            events=events,
            ages=retention is not None,
        )
        self._forgetting = Forgetting(self._core, kept_for)
        # After the core is complete: a method may read the graph, or put a job, as it opens.
        for method in self._methods:
            method.open(self._core)
        if retention is not None:
            self._core.log_and_continue("could not look for data older than the retention", self._core.jobs.poll)

    @classmethod
    def ephemeral(cls: type[T], *, tools: Iterable[ToolLike] | None = None, **options: Any) -> T:
        """Make a memory in RAM only; options as for the constructor."""
        return cls(None, tools=tools, **options)

    # --- the methods ---

    @property
    def core(self) -> Core:
        """The pieces that methods and tools of your own use (`langgraph_toolmem.extend`)."""
        return self._core

    @property
    def inertia(self) -> Inertia:
        """Predicts the next call (AutoTool)."""
        return cast("Inertia", self.method("inertia"))

    @property
    def sit(self) -> SIT:
        """Suggests the next tools from similar states (SIT-Graph)."""
        return cast("SIT", self.method("sit"))

    @property
    def navigator(self) -> Navigator:
        """Finds tools and complete chains of them (NaviAgent)."""
        return cast("Navigator", self.method("navigator"))

    @property
    def entries(self) -> Entries:
        """Recalls past runs with their critiques (MemToolAgent)."""
        return cast("Entries", self.method("entries"))

    @property
    def atoms(self) -> Atoms:
        """Finds single steps that worked in other runs (SGA-MCTS)."""
        return cast("Atoms", self.method("atoms"))

    @property
    def methods(self) -> tuple[Method, ...]:
        """All methods, in their order."""
        return tuple(self._methods)

    def method(self, name: str) -> Method:
        """Return a method.

        Raises:
            ConfigurationError: it is not listed, or a package that it needs is missing (`MissingExtraError`).
        """
        for method in self._methods:
            if method.name == name:
                return method
        check_installed(name)
        names = ", ".join([method.name for method in self._methods]) or "none"
        raise ConfigurationError(f"The memory has no method {name!r}; it has {names}. Name it in methods=[…].")

    # --- learning ---

    def observe(
        self,
        messages: Any,
        *,
        thread_id: str | None = None,
        user_id: str | None = None,
        system: str | None = None,
        context: Any = None,
    ) -> int:
        """Learn the new turns of a run, and return their number.

        Call it as often as you like: each executed call is learned once, also in resumed, forked, trimmed and
        summarised histories.

        Args:
            messages: in any form that ``convert_to_messages`` accepts.
            thread_id: the thread. Required if call ids repeat from run to run.
            user_id: the user of the run.
            system: the whole system prompt that the model saw in the new turns. If None, the prompt is unknown, and no
                value is taken from it. "" means a run without a system prompt.
            context: the run's context: a dataclass, a pydantic model or a dict. Its primitive fields are read.

        Raises:
            ConfigurationError: `system` is not a text.
            MessageError: `messages` cannot be read; nothing was learned.
            NamespaceError: the namespace needs a user id.
        """
        model_input = given_input(system, context, self._core.private)
        return self._core.lifecycle.observe(messages, Owner(thread_id, user_id), model_input=model_input)

    def finish(
        self,
        messages: Any,
        *,
        thread_id: str | None = None,
        success: bool | float | None = None,
        comment: str | None = None,
        user_id: str | None = None,
        system: str | None = None,
        context: Any = None,
        wait: bool = False,
    ) -> int:
        """End an episode: learn the rest, unanswered calls too, and note its score. Return how many turns were new.

        The score is for the latest episode; in a new thread, as in a log, for each of n with a weight of 1/n. The jobs
        of the methods are on disk when `finish` returns, and are done in the background.

        Args:
            messages: the thread up to now.
            thread_id: the thread; `feedback` finds the run by this.
            success: the score, if known: True, False, or a number from 0 (bad) to 1 (good).
            comment: a remark on the score.
            user_id: the user of the run.
            system: as for `observe`.
            context: as for `observe`.
            wait: If True, return when everything is written, or after a minute.

        Raises:
            ConfigurationError: `success` is not a score, or `system` is not a text; nothing was learned.
            MessageError: `messages` cannot be read; nothing was learned.
            NamespaceError: the namespace needs a user id.
        """
        new = self._core.lifecycle.finish(
            messages,
            Owner(thread_id, user_id),
            success=success,
            comment=comment,
            model_input=given_input(system, context, self._core.private),
        )
        if wait:
            self.flush()
        return new

    def feedback(
        self,
        thread_id: str,
        *,
        score: float,
        comment: str | None = None,
        episode: str | int | None = None,
        user_id: str | None = None,
        wait: bool = False,
    ) -> None:
        """Score one episode of a thread, later and from any process.

        A ``read_only`` memory leaves the score on disk; a writing process reads it within a minute, or at the opening.

        Args:
            thread_id: as given to `observe` or `finish`.
            score: from 0 (bad) to 1 (good).
            comment: a remark on the score.
            episode: its number in the thread, from 1, or the id of a user's message in it. Defaults to the latest
                finished one.
            user_id: the user of the run. If the namespace needs a user and this is None, the folder's own record of the
                run names the user.
            wait: If True, return when the score and its critique are written, or after a minute.

        Raises:
            ConfigurationError: the score is out of range, or the memory is read-only and has no folder.
            InputError: the thread is not known here, or has no such episode.
            NamespaceError: the namespace needs a user id, and the user of the run is not known.
            StorageError: the score could not be stored, or the memory is closed.
        """
        self._core.lifecycle.feedback(thread_id, score, comment, episode, user_id)
        if wait:
            self.flush()

    def import_runs(
        self,
        runs: Sequence[tuple[Run, float | None, str | None]],
        options: Mapping[str, Mapping[str, Any] | None] | None = None,
    ) -> dict[str, int]:
        """Learn recorded runs, and return the number of items that each method keeps. Importing them again has no
        effect.

        Args:
            runs: threads as read, with their scores (1/n on each of n episodes) and ids of users, if any.
            options: of each method by its name: ``{"atoms": {"writer": …}}``. A method with None keeps nothing.

        Raises:
            NamespaceError: the namespace needs a user id; nothing was learned.
            StorageError: not everything could be stored; import the runs again.
        """
        core = self._core
        options_of: dict[str, Mapping[str, Any] | None] = {}
        learning: dict[str, Mapping[str, Any]] = {}
        for method in self._methods:
            wanted: Mapping[str, Any] | None = {}
            if options is not None:
                wanted = options.get(method.name, {})
            options_of[method.name] = wanted
            if wanted:
                learning[method.name] = wanted
        # All users are checked before the first run is learned: a missing one leaves the memory as it was.
        ended_runs = [EndedRun(run, core.users.of(user_id), score) for run, score, user_id in runs]
        episodes = []
        for ended_run in ended_runs:
            episodes += core.lifecycle.import_run(ended_run, **learning)
        pieces = {}
        for method in self._methods:
            wanted = options_of[method.name]
            if wanted is not None:
                pieces[method.name] = method.imported(Import(episodes, wanted))
        return pieces

    # --- reports and views ---

    def report(self, *, price: TokenPrice | None = None) -> Report:
        """Return the record: skipped model calls, right proposals and the effect of hints, per tool and over time.

        Args:
            price: of the model's tokens, for the money saved.
        """
        core = self._core
        # People read a report when something is wrong, so a part that fails is logged and left out.
        core.log_and_continue("could not write the seconds of model calls", core.costs.flush)
        core.log_and_continue("could not read what other processes learned", core.refresh)
        sections = {}
        for method in self._methods:
            section = core.section_of(method)
            if section:
                sections[method.name] = section
        on_trial = core.log_and_continue("could not report on the trials of hints", core.trials.report)
        if on_trial is not None:
            sections["trials"] = on_trial
        waiting = core.log_and_continue("could not read the job queue", core.jobs.queue.report) or {}
        problems = core.problems()
        with core.lock:
            if core.graph.mixes_users:
                problems.insert(0, NO_USERS)
            held_episodes = list(core.holdout.episodes())
            held_out = None
            if core.holdout.on or held_episodes:
                held_out = compare(held_episodes)
            return make_report(core.graph, sections, waiting, tuple(problems), price, held_out)

    def view(self) -> GraphView:
        """Return a plain copy of the evidence graph: tools, edges, dataflow."""
        self._core.log_and_continue("could not read what other processes learned", self._core.refresh)
        with self._core.lock:
            return view_of(self._core.graph)

    # --- storage ---

    def forget(self, *, user_id: str | None = None, thread_id: str | None = None) -> int:
        """Remove all data of a user, or of a thread, from graph, Chroma and disk; return the number of removed items.

        Counts such as "search is followed by read" contain no personal data and are kept. So are names of fields,
        except those that only this user's runs showed. A Chroma server clears its disk later, or at once with ``chroma
        vacuum``.

        Args:
            user_id: the user; with a thread id, the user of the thread.
            thread_id: a thread, among the latest 20,000. A value that another thread showed too is kept.

        Raises:
            NamespaceError: neither a user nor a thread is named, or the thread needs its user.
            StorageError: the memory is read-only, or data is left on the disk; the message says what to do.
        """
        if thread_id is not None:
            return self._forgetting.thread(thread_id, user_id)
        return self._forgetting.user(user_id or "")

    def flush(self, *, timeout: float | None = JOB_LIMITS.flush_seconds) -> bool:
        """Wait until finished runs and their critiques are written; return True if all work is done.

        Answers of the model that the host's state has not shown yet are learned, and runs with an unhandled error are
        ended. Work that was given up after many failures counts as done; ``toolmem doctor`` shows it.

        Args:
            timeout: seconds. If None, there is no limit.
        """
        self._core.log_and_continue("could not end open model calls", self._core.open_calls.settle)
        self._core.log_and_continue("could not write the seconds of model calls", self._core.costs.flush)
        wait = partial(self._core.jobs.flush, timeout=timeout)
        return bool(self._core.log_and_continue("could not wait for background work", wait))

    def close(self) -> None:
        """Write a snapshot and release the folder. A closed memory still answers from RAM, but no longer learns.

        Unfinished background work waits on disk for the next opening.
        """
        self._core.close()

    aobserve, afinish, afeedback = async_variant(observe), async_variant(finish), async_variant(feedback)
    aimport_runs, areport, aview = async_variant(import_runs), async_variant(report), async_variant(view)
    aforget, aflush, aclose = async_variant(forget), async_variant(flush), async_variant(close)

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self: T) -> T:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        core = self._core
        return f"<ToolMemory {core.store.folder or 'ephemeral'}: {core.counter('turns')} turns>"
