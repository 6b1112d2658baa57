"""The navigator: finds the tools a request needs as complete chains, and another way when one fails.

NaviAgent (arXiv 2506.19500) has two levels. The lower one is here: a graph of tools and parameters says who can give
what to whom. Parameters that mean the same are one node; links come from schemas and from what runs have shown. A
search goes backward from the tools that a request is about until every input is known or produced. The host may prune
tools that fail (`Navigator.prune`) and let weights follow recent use (`propagate`). The upper level, a model that
decides what is done next, is in `decide`.

``dependencies``  the graph: tools, parameters that they share, and the links between them
``tool_search``   the tools that fit a request; ``precedents``: those that similar requests called
``plan``          chains from known values to a target, other routes, replacements
``deferred``      tools that the model finds by a search, and the step; ``providers``: their forms for each provider
``decide``        the decider's subgraph
``openapi``       tools from OpenAPI documents
``evidence``      the rows of all these in the memory's evidence graph, and the counts of past runs in it

Here: `Navigator`, and the search and the graph that it keeps up to date. Both are made at their first use, so that a
memory without plans loads neither numpy nor the graph.

[P] marks a rule of the paper, [R] our reading where the paper says too little, [O] our own choice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.checks import did_you_mean, is_count, is_number, is_share
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError, StorageError, log_failure
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.method import LearnedTurn, Method, PastRuns, Section
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.tool_graph import Table
from langgraph_toolmem.navigator.decide.recording import DecisionLog
from langgraph_toolmem.navigator.evidence import (
    LINK_TABLE,
    MOST_DAYS,
    History,
    NavigatorEvidence,
    NavigatorSources,
    Outputs,
)
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.stores.vectors import TextVectors, VectorStore

if TYPE_CHECKING:
    from langgraph_toolmem.graph.events import Forgotten, Record
    from langgraph_toolmem.navigator.dependencies import LinkScores, ToolDependencyGraph
    from langgraph_toolmem.navigator.plan.planner import Chain, Plan, Recombination, Strategy
    from langgraph_toolmem.navigator.plan.search import PlanSettings
    from langgraph_toolmem.navigator.precedents import PrecedentCache, Precedents
    from langgraph_toolmem.navigator.tool_search import ToolHit, ToolSearcher
    from langgraph_toolmem.papers.naviagent.evolution import PruneCandidate, WeightChange
    from langgraph_toolmem.papers.naviagent.learned import TrainedLinks

logger = logging.getLogger("langgraph_toolmem.navigator")

TARGETS: Final = 3
"""Tools that a request is taken to be about (NaviAgent, arXiv 2506.19500)."""
LEAST_TARGET: Final = 0.3
"""Part of the best hit's score that a hit must reach to be one of them. To be shown to a model it need not reach any:
on public requests a bound of 0.05 lost a fifth of the needed tools where there are few, and of 20 it saved a half."""

FRESH_SECONDS: Final = 1.0
"""Age from which the counts of past runs are read again."""


class ScopedRuns(NamedTuple):
    """Past runs, and the scope (the namespace) that they belong to."""

    scope: tuple[str, ...]
    runs: PastRuns


PastRunsOf = Callable[[str | None], ScopedRuns | None]
"""The past runs of a user; None if there are none, or they cannot be read now."""


class Navigator(Method):
    """Searches and plans in the tools of a memory, and changes their graph. Safe for threads.

    `prune` and `propagate` (NaviAgent, section 5) only report by default (``dry_run=True``), and delete nothing. Their
    decisions hold for all processes. New tools join without a decision, with zero counts.

    Args:
        settings: how chains are searched.
        aliases: "tool.path" of an input or output -> the name of its parameter, such as ``{"get_weather.q": "place",
            "find.location.name": "place"}``: values with one name are one parameter. A name that nothing else has
            keeps a value apart from those with the same words.

    Raises:
        ConfigurationError: `aliases` is no mapping of texts.
    """

    name: ClassVar[str] = "navigator"
    tables: ClassVar[tuple[type[Table], ...]] = (NavigatorEvidence,)

    def __init__(
        self,
        *,
        settings: PlanSettings | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings
        _check(_are_aliases(aliases), "aliases", "a mapping of 'tool.path' to names of parameters", aliases)
        self._aliases = dict(aliases or {})
        self._links: TrainedLinks | None = None

    def open(self, core: Core) -> None:
        """Take its table."""
        super().open(core)
        self.evidence = NavigatorSources(core)
        self._graph = CurrentGraph(self.evidence, self._aliases)
        #: of ``create_navi_subgraph(..., keep_decisions=True)``
        self.decisions = DecisionLog(core)
        self.tool_search = CurrentSearch(self.evidence, self._past_runs, core.vectors)
        # Past runs contain users' requests: they are dropped from RAM when a user is forgotten.
        core.texts.register(self.tool_search.forget)

    # --- asking ---

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """Return the tools known now, by name."""
        return self.evidence.tools()

    def search(
        self,
        query: str,
        *,
        k: int = 5,
        available: Collection[str] | None = None,
        target: str | None = None,
        user_id: str | None = None,
    ) -> list[ToolHit]:
        """Return the tools that a request most likely needs, in the order in which they complete a set.

        A compound request is searched clause by clause, and tools of one toolkit lift each other. The search compares
        words, and with an embedder also meanings: the tools' vectors are made at the first search and kept in Chroma.
        If the embedder fails, words decide, and the log says so once. Finished runs with similar requests (`finish`)
        lift the tools that they called. A memory that was opened without tools searches those that it knew before.
        Pruned tools are not found, and a greeting finds nothing.

        Args:
            query: the user's words, or the task of a tool in words.
            k: most tools; fewer if fewer are related to the query.
            available: names of the tools that may be found. Defaults to all known tools.
            target: the tool that the request ends with: the tools that are called before it are found.
            user_id: the owner of the past runs. If the namespace separates users, None uses no past runs.

        Raises:
            ConfigurationError: an argument is invalid.
            EmbedderChangedError: stored vectors were made by another embedder.
        """
        _check(isinstance(query, str), "query", "a text", query)
        _check(is_count(k, 0), "k", "a whole number from 0", k)
        _check(target is None or isinstance(target, str), "target", "the name of one tool", target)
        if available is not None:
            _check_names("available", available)
        return self.tool_search.search(query, k, available=available, target=target, user_id=user_id)

    def plan(
        self,
        query: str | None = None,
        *,
        target: str | Sequence[str] | None = None,
        known: Mapping[str, Any] | Iterable[str] = (),
        k: int = 3,
        available: Collection[str] | None = None,
        avoid: Collection[str] = (),
        done: Collection[str] = (),
        strategy: Strategy = "alpha_beta",
        seed: int = 0,
        budget: float = 0.2,
        user_id: str | None = None,
    ) -> Plan:
        """Return chains of tools from known values to a target, best first.

        Args:
            query: the request; the three tools that fit best are the targets, unless `target` is given. A tool that is
                declared to change something is a step before the target only if these words ask for it.
            target: the tool to end with, or several, best first.
            known: names of known values, or name -> value.
            k: most chains for each target.
            available: names of the tools that may be used. Defaults to all known tools.
            avoid: tools that must not be used, such as those that failed.
            done: tools that were called with success in this run.
            strategy: "alpha_beta": the most reliable chain; "annealing" (with a seed): the fittest by the paper.
            budget: seconds for the search.
            user_id: the owner of the past runs that the search for targets uses, as in `search`.

        Returns:
            A plan; without chains if the query fits no tool.

        Raises:
            ConfigurationError: an argument is invalid, or a target is unknown.
            EmbedderChangedError: stored vectors were made by another embedder.
        """
        # Imported here, as below: an agent without plans does not load numpy (tests/unit/test_exports.py).
        from langgraph_toolmem.navigator.plan.planner import Plan, plan

        _check_plan(known, done, k, strategy, seed, budget)
        if query is None and target is None:
            raise ConfigurationError("plan needs `query` (the request) or `target` (the tool to end with).")
        _check(query is None or isinstance(query, str), "query", "a text", query)
        out = self._out(avoid, available)
        targets: Sequence[str]
        if target is None:
            hits = self.tool_search.search(query or "", TARGETS, exclude=out, user_id=user_id)
            targets = targets_of(hits)
            if not targets:
                return Plan(())
        else:
            targets = _targets_given(target, out)
        # Read before the graph is held: reading waits for the lock of learning, and other plans wait for the graph.
        history = self.history()
        with self.dependencies() as graph:
            return plan(
                graph,
                targets,
                known,
                k=k,
                strategy=strategy,
                history=history,
                learned=self.learned,
                settings=self._settings,
                avoid=out,
                done=done,
                request=query or "",
                seed=seed,
                clock=time.monotonic,
                budget=budget,
            )

    def reroute(
        self,
        chain: Chain,
        failed: Collection[str],
        *,
        known: Mapping[str, Any] | Iterable[str] = (),
        available: Collection[str] | None = None,
        done: Collection[str] = (),
        budget: float = 0.2,
    ) -> Recombination:
        """Return another chain to the same target without the failed tools: with an equivalent tool, or from upstream.

        Args:
            chain: the chain with the failed step.
            failed: all failed tools of this run.
            known, available, done, budget: as for `plan`.

        Returns:
            The replacement; its `way` is "none" if this part of the graph has none: a new `plan` may find others.

        Raises:
            ConfigurationError: an argument is invalid.
        """
        from langgraph_toolmem.navigator.plan.planner import Chain, recombine

        _check(isinstance(chain, Chain), "chain", "a Chain of a plan", chain)
        _check_names("failed", failed)
        _check_plan(known, done, 1, "alpha_beta", 0, budget)
        out, history = self._out(failed, available), self.history()
        with self.dependencies() as graph:
            return recombine(
                graph,
                chain,
                out,
                known,
                done=done,
                history=history,
                learned=self.learned,
                settings=self._settings,
                clock=time.monotonic,
                budget=budget,
            )

    # --- the graph evolves ---

    def prune(self, *, most: int, dry_run: bool = True) -> list[PruneCandidate]:
        """Leave tools that fail or are hardly used out of plans, those with the highest scores first.

        A pruned tool is not a step before other tools, and searches do not find it. The agent can still call it, and
        plan for it by its name. One successful call brings it back, and so does `restore`. Tools that were never called
        are kept: there is no evidence against them [O].

        Args:
            most: limit of pruned tools.
            dry_run: If True, only report.

        Returns:
            The tools, highest score first, without those that were pruned before.

        Raises:
            ConfigurationError: an argument is invalid.
            StorageError: the memory is read-only, and `dry_run` is False.
        """
        _check(is_count(most, 0), "most", "a whole number >= 0", most)
        self._check_writable(dry_run)
        from langgraph_toolmem.papers.naviagent.evolution import prune_candidates

        # At once: a decision uses the latest events of other workers too.
        history = self._graph.history(at_once=True)
        with self._graph.held() as graph:
            tools = graph.apis.keys() - graph.left_out
        candidates = prune_candidates(tools, history)[:most]
        if not dry_run and candidates:
            self.evidence.exclude([candidate.tool for candidate in candidates])
        return candidates

    def restore(self, tools: Collection[str]) -> None:
        """Return pruned tools to plans and searches.

        Raises:
            ConfigurationError: one of them is not pruned.
            StorageError: the memory is read-only.
        """
        _check_names("tools", tools)
        self._check_writable(False)
        pruned = self.pruned()
        for name in tools:
            if name not in pruned:
                raise ConfigurationError(f"{name!r} is not pruned; pruned tools: {', '.join(pruned) or 'none'}.")
        self.evidence.restore(list(tools))

    def pruned(self) -> list[str]:
        """Return the names of the tools that are pruned now."""
        self.core.refresh()
        return sorted(self.evidence.left_out())

    def propagate(self, *, days: float = 7.0, eta: float = 0.9, dry_run: bool = True) -> list[WeightChange]:
        """Adapt the weights of links to recent use: w_t = η·w_{t−1} + (1 − η)·(recent successes / recent uses) [P].

        Call it every `days` days. Plans use the new weights at once, until the next call. Links whose target was not
        used lately keep theirs [O]. Uses are known by the day (UTC); an imported run counts for the day of its import.

        Args:
            days: number of recent days, today included; up to 31.
            eta: share of the old weight, 0 to 1.
            dry_run: If True, only report.

        Returns:
            The links whose weight changes, the largest changes first.

        Raises:
            ConfigurationError: an argument is invalid.
            StorageError: the memory is read-only, and `dry_run` is False.
        """
        _check(is_number(days) and 1 <= days <= MOST_DAYS, "days", f"a number from 1 to {MOST_DAYS}", days)
        _check(is_share(eta), "eta", "a share from 0 to 1", eta)
        self._check_writable(dry_run)
        from langgraph_toolmem.papers.naviagent.evolution import weight_changes

        # Under the lock of learning: a call that ends in between would count for the new weights and the old counts.
        with self.evidence.lock:
            history = self._graph.history(at_once=True)
            changes = weight_changes(history, self.evidence.recent(days), eta)
            if not dry_run and changes:
                weights = dict(history.weights)
                for change in changes:
                    weights[change.source, change.target] = change.after
                self.evidence.weigh(weights)
                self._graph.expire()
        return changes

    def _check_writable(self, dry_run: bool) -> None:
        _check(isinstance(dry_run, bool), "dry_run", "True or False", dry_run)
        if not dry_run and self.evidence.read_only:
            raise StorageError("This memory was opened with read_only=True. Do this in the process that writes to it.")

    asearch, aplan, areroute = async_variant(search), async_variant(plan), async_variant(reroute)
    aprune, arestore, apruned = async_variant(prune), async_variant(restore), async_variant(pruned)
    apropagate = async_variant(propagate)

    @property
    def links(self) -> TrainedLinks:
        """Return the table of scores of links that `hgt.train_links` keeps in this memory."""
        from langgraph_toolmem.papers.naviagent.learned import TrainedLinks

        # A memory in RAM has the table in this object: a second object would not see a table that the first one keeps.
        with self.core.lock:
            if self._links is None:
                self._links = TrainedLinks(self.core)
            return self._links

    @property
    def learned(self) -> LinkScores | None:
        """Return the scores that `hgt` trained on the memory; None unless they are better than structure alone."""
        if not self._is_trained():
            return None
        return self.links.scores()

    def _is_trained(self) -> bool:
        """Return True if links were trained on this memory, now or in an earlier process."""
        if self._links is not None:
            return True
        home = self.core.home
        return home is not None and (home / LINK_TABLE).exists()

    def dependencies(self) -> AbstractContextManager[ToolDependencyGraph]:
        """Return the present dependency graph; it is locked within the ``with`` block."""
        return self._graph.held()

    def history(self, *, at_once: bool = False) -> History:
        """Return the counts of past runs, at most a second old, or with those of other workers as they are now."""
        return self._graph.history(at_once=at_once)

    def snapshot(self) -> tuple[ToolDependencyGraph, History]:
        """Return a dependency graph of one's own, and the counts of past runs, to train on."""
        # A graph of one's own: training on 12,000 tools takes 20 s, and a plan waits for the memory's graph.
        return self._graph.rebuilt(), self.history(at_once=True)

    # --- hooks of the method ---

    def report(self) -> Section | None:
        """Return the quality of the trained links, if they are used, and the searches that found called tools."""
        links: Section | None = None
        if self._is_trained():
            links = self.links.report()
        sums = self.evidence.searches()
        if not sums.model_calls:
            return links
        calls = sums.first + sums.later + sums.never
        called = max(1, calls)  # there may be model turns without any call
        sentence = (
            f"Tool search: of {calls:,} calls {sums.first / called:.0%} were found by the first search, "
            f"{sums.later / called:.0%} by a later one, {sums.never / called:.0%} without one; a model turn was sent "
            f"about {sums.sent / sums.model_calls:,.0f} tokens of tools and saved "
            f"{sums.saved / sums.model_calls:,.0f}."
        )
        figures = {
            "first": sums.first,
            "later": sums.later,
            "never": sums.never,
            "tokens_sent": sums.sent,
            "tokens_saved": sums.saved,
        }
        before = links or Section("Navigator")
        return Section("Navigator", {**before.figures, "tool_search": figures}, (*before.sentences, sentence))

    def turn(self, learned: LearnedTurn) -> Record:
        """Return the fields of results that were not known of their tools."""
        return self.evidence.learned(learned)

    def repeated(self, learned: LearnedTurn) -> Record:
        """Return the fields of results that were not known when the turn was learned."""
        # A recorder has a turn learned before its results are in the history.
        return self.evidence.learned(learned)

    def forget(self, user: User, gone: Forgotten) -> int:
        """Delete recorded decisions of a user, or of runs."""
        return self.decisions.forget(gone)

    def close(self) -> None:
        """Close the log of decisions."""
        self.decisions.close()

    def _past_runs(self, user_id: str | None) -> ScopedRuns | None:
        core = self.core
        # If the namespace keeps users apart, a run without a user sees no other runs.
        if core.vectors.empty or (user_id is None and core.users.apart):
            return None
        user = core.users.of(user_id)
        runs = core.past_runs(user)
        if runs is None:
            return None
        return ScopedRuns(user.namespace, runs)

    def _out(self, avoid: Collection[str], available: Collection[str] | None) -> set[str]:
        _check_names("avoid", avoid)
        if available is not None:
            _check_names("available", available)
            return set(avoid) | (self.tools.keys() - set(available))
        return set(avoid)


def targets_of(hits: Sequence[ToolHit]) -> list[str]:
    """Return the tools that a request is about: those that are about as likely as the likeliest."""
    best = max((hit.score for hit in hits), default=0.0)
    return [hit.name for hit in hits if hit.score >= LEAST_TARGET * best]


class CurrentSearch:
    """The search of one memory; numpy is loaded at the first search. Safe for threads."""

    def __init__(self, evidence: NavigatorSources, past_runs: PastRunsOf, vectors: VectorStore) -> None:
        self._evidence, self._past_runs, self._vectors = evidence, past_runs, vectors
        self._searcher: ToolSearcher | None = None
        self._specs: Mapping[str, ToolSpec] | None = None
        self._precedents: PrecedentCache | None = None
        self._lock = threads.lock()
        self._warned = False

    def search(
        self,
        query: str,
        k: int,
        *,
        available: Collection[str] | None = None,
        exclude: Collection[str] = (),
        target: str | None = None,
        user_id: str | None = None,
        request: str = "",
    ) -> list[ToolHit]:
        """Search; see `Navigator.search`. Where the query is a model's, `request` has the user's words.

        Raises:
            ConfigurationError: the target is no known tool.
            NamespaceError: the namespace needs a user, and there is none.
            EmbedderChangedError: stored vectors were made by another embedder.
        """
        searcher, precedents = self.current(), self.precedents(user_id)
        exclude = {*exclude, *self._evidence.left_out()}
        if target is not None:
            from langgraph_toolmem.navigator.precedents import Precedents, called_before

            if target not in searcher.specs:
                raise ConfigurationError(f"The memory knows no tool {target!r}.{did_you_mean(target, searcher.specs)}")
            known = precedents or Precedents()
            return called_before(searcher, query, target, k, precedents=known, available=available, exclude=exclude)
        lift: dict[str, float] = {}
        if precedents is not None:
            lift = precedents.lift(query)
            # The larger lift counts, not the sum: both texts speak of one request.
            for name, more in precedents.lift(request).items():
                lift[name] = max(lift.get(name, 0.0), more)
        return searcher.search(query, k, available=available, exclude=exclude, lift=lift)

    def current(self) -> ToolSearcher:
        """Return the search over the tools known now."""
        with self._lock:
            if self._searcher is None:
                from langgraph_toolmem.navigator.tool_search import ToolSearcher

                embedder = self._vectors.embedder
                kept: TextVectors | None = None
                # The built-in embedder's vectors say no more than words do.
                if not embedder.builtin:
                    kept = TextVectors(self._vectors, "tools")
                self._searcher = ToolSearcher(embedder=embedder, vectors=kept)
            specs = self._evidence.tools()
            # The same object until a tool changes: nothing has to be compared at each search.
            if self._specs is not specs:
                self._searcher.follow(specs)
                self._specs = specs
            return self._searcher

    def precedents(self, user_id: str | None) -> Precedents | None:
        """Return the precedents of a user's past runs; None without runs. If reading fails, the log says so once."""
        try:
            past = self._past_runs(user_id)
            if past is None:
                return None
            with self._lock:
                if self._precedents is None:
                    from langgraph_toolmem.navigator.precedents import PrecedentCache

                    self._precedents = PrecedentCache()
                return self._precedents.of(past.scope, past.runs)
        except NamespaceError:
            raise
        except Exception as error:  # noqa: BLE001 - tools are found without past runs
            level = logging.WARNING
            if self._warned:
                level = logging.DEBUG
            self._warned = True
            log_failure(logger, level, "past runs could not be read for a search of tools", error=error)
            return None

    def forget(self) -> None:
        """Drop the past runs that are in RAM."""
        with self._lock:
            self._precedents = None


class _ReadCounts(NamedTuple):
    """Counts of past runs, and when they were read, in seconds of the monotonic clock."""

    when: float
    history: History


class CurrentGraph:
    """The graph of one memory, made when it is first needed. Safe for threads."""

    def __init__(self, evidence: NavigatorSources, aliases: Mapping[str, str] | None = None) -> None:
        self._evidence, self._aliases = evidence, aliases
        self._lock = threads.lock()
        self._graph: ToolDependencyGraph | None = None
        self._specs: Mapping[str, ToolSpec] | None = None
        self._outputs: int | None = None
        self._counts: _ReadCounts | None = None

    @contextmanager
    def held(self) -> Iterator[ToolDependencyGraph]:
        """Yield the graph as it is now; it does not change inside."""
        with self._lock:
            yield self._current()

    def history(self, *, at_once: bool = False) -> History:
        """Return the counts of past runs, at most `FRESH_SECONDS` old; `at_once`: as they are now."""
        now, counts = time.monotonic(), self._counts
        # Without the lock: a plan holds it for as long as it searches.
        if at_once or counts is None or now - counts.when > FRESH_SECONDS:
            counts = self._counts = _ReadCounts(now, self._evidence.history(at_once=at_once))
        return counts.history

    def expire(self) -> None:
        """Forget the counts, because a decision changed them: they are read again when they are needed."""
        self._counts = None

    def rebuilt(self) -> ToolDependencyGraph:
        """Return another graph of the same tools. It may take seconds; the present one is free."""
        with self.held() as present:
            specs, observed = [node.spec for node in present.apis.values()], present.observed
        return self._made(specs, observed)

    def _current(self) -> ToolDependencyGraph:
        """Return the graph with the changes since the last call; only changed tools are read again."""
        specs, left_out = self._evidence.tools(), self._evidence.left_out()
        seen = self._evidence.outputs(self._outputs)
        self._outputs = seen.version
        outputs = seen.outputs or {}
        graph = self._graph
        if graph is None:
            graph = self._graph = self._made(specs.values(), outputs)
        for tool, paths in outputs.items():
            graph.note_outputs(tool, paths)
        if left_out != graph.left_out:
            graph.exclude(left_out)
        if specs is not self._specs:
            self._specs = specs
            _follow(graph, specs)
        return graph

    def _made(self, specs: Iterable[ToolSpec], observed: Outputs) -> ToolDependencyGraph:
        from langgraph_toolmem.navigator.dependencies import ToolDependencyGraph

        return ToolDependencyGraph(specs, aliases=self._aliases, observed=observed)


def _follow(graph: ToolDependencyGraph, specs: Mapping[str, ToolSpec]) -> None:
    """Make these the tools of a graph."""
    for name in graph.apis.keys() - specs.keys():
        graph.remove(name)
    changed = []
    for name, spec in specs.items():
        node = graph.apis.get(name)
        # Identity first: comparing two schemas of a large API takes as long as reading one.
        if node is None or (node.spec is not spec and node.spec != spec):
            changed.append(spec)
    graph.update(changed)


def _are_aliases(aliases: object) -> bool:
    if aliases is None:
        return True
    return isinstance(aliases, Mapping) and _are_texts(aliases.keys()) and _are_texts(aliases.values())


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _check_names(what: str, names: object) -> None:
    # A single name is a collection of letters, and letters are no tools.
    if isinstance(names, str) or not isinstance(names, Collection) or not _are_texts(names):
        raise ConfigurationError(f"{what} must be a collection of names of tools, got {names!r}.")


def _targets_given(target: str | Sequence[str], out: Collection[str]) -> Sequence[str]:
    targets: Sequence[str] = target
    if isinstance(target, str):
        targets = [target]
    _check_names("target", targets)
    excluded = [name for name in targets if name in out]
    if excluded:
        raise ConfigurationError(
            f"`target` must be a tool that may be used, got {excluded[0]!r}, which `avoid` or `available` excludes."
        )
    return targets


def _check(holds: bool, what: str, expected: str, given: object) -> None:
    if not holds:
        raise ConfigurationError(f"{what} must be {expected}, got {given!r}.")


def _check_plan(known: object, done: object, k: object, strategy: object, seed: object, budget: object) -> None:
    names = isinstance(known, Iterable) and not isinstance(known, str)
    _check(names, "known", "a collection of names, or name -> value", known)
    _check_names("done", done)
    _check(is_count(k, 1), "k", "a whole number from 1", k)
    _check(strategy in ("alpha_beta", "annealing"), "strategy", "'alpha_beta' or 'annealing'", strategy)
    _check(isinstance(seed, int), "seed", "a whole number", seed)
    _check(isinstance(budget, (int, float)) and budget >= 0, "budget", "a number of seconds from 0", budget)
