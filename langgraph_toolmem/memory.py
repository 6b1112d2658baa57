"""ToolMemory: the one object a user holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from langgraph_toolmem._async import AsyncTwins
from langgraph_toolmem._deciding import KeepingDecisions
from langgraph_toolmem._evolving import EvolvingGraph
from langgraph_toolmem._importing import Importing
from langgraph_toolmem._planning import Planning
from langgraph_toolmem._recalling import KeepingEntries
from langgraph_toolmem.base.errors import NamespaceError, StorageError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.base.namespaces import has_user, resolve, user_digest
from langgraph_toolmem.core.ledger import Booking
from langgraph_toolmem.graph.export import GraphView
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.view import view_of
from langgraph_toolmem.inertia.engine import begin_shortcut, open_turn
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.proposal import Decision, Proposal
from langgraph_toolmem.inertia.record import turns_seen
from langgraph_toolmem.report.report import Report, make_report
from langgraph_toolmem.report.savings import TokenPrice
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec
from langgraph_toolmem.runs.trajectory import Run

M = TypeVar("M", bound="ToolMemory")


class ToolMemory(EvolvingGraph, KeepingEntries, KeepingDecisions, Planning, Importing, AsyncTwins):
    """Learns from an agent's tool calls and predicts the next one.

    Safe to use from several threads. One process writes to a folder; several workers share a `store`.

    Args:
        path: the memory's folder; it is made. None: nothing on disk (`ephemeral`). Reading problems do not stop
            the host: what cannot be read is set aside and reported (`report().problems`, ``toolmem doctor``).
        tools: tools that may be predicted: LangChain tools, callables, OpenAI or MCP tool dicts. None: what
            the observed calls show of them.
        embeddings: LangChain ``Embeddings``, ``"provider:model"``, ``"sentence-transformers:<name or folder>"``;
            None: the built-in lexical embedder, which needs no download.
        chroma: a chromadb client (``HttpClient`` …) instead of the embedded one.
        store: a LangGraph ``BaseStore`` through which several workers share the evidence graph.
        namespace: of personal memory; ``("toolmem", "{user_id}")`` for many users.
        graph_namespace: of the evidence graph, shared by its users.
        policy: for which the record is kept; nodes may use another one.
        seed: draws which proposals are audited.
        fsync: "snapshot" (default): what was acknowledged survives the end of the process at any moment;
            "always": the end of the machine too; "never": no waiting for the disk at all.
        read_only: look, but do not write; works beside a writing process.
        now: seconds since 1970, for the record over time.
        sit: how states of runs are remembered and next tools suggested (`suggest`). None: the defaults, and states
            are put into words only from the first use of `suggest` or of a `SITSummary` on.
        entries: keep finished runs (`finish`, a `ReflectionWriter`) as entries, for `recall`.
        critic: writes critiques of runs that went wrong, in the background: a chat model, ``"provider:model"``, or
            a `Critic`. None: there are none.
        recall: how many past runs are worth recalling.
        scorer: weighs links between tools for plans in place of structure and record, such as a trained predictor:
            an object with ``weight(link) -> float`` (`navigator.scoring.EdgeScorer`).
        atoms: keep the steps of runs that go well (`finish`, `feedback`) as atoms, for `search_atoms`. None: from its
            first use on.
        atom_model: words atoms, in the background, and says which arguments are values of the day: a chat model or
            ``"provider:model"``; one call for each new kind of step. None: both are read off the run and the schemas.
        executor: when background work is done; in a thread of its own if None, `LangmemExecutor` for langmem's.

    Raises:
        ConfigurationError: an argument cannot work.
        LockedError: another process writes to the folder.
    """

    @classmethod
    def ephemeral(cls: type[M], *, tools: Iterable[ToolLike] | None = None, **options: Any) -> M:
        """A memory with nothing on disk. Two of them share nothing. Options as for the constructor."""
        return cls(None, tools=tools, **options)

    # --- predicting ---

    def predict(
        self, messages: Any, *, policy: InertiaPolicy | None = None, user_id: str | None = None
    ) -> Proposal | None:
        """The next call, if the policy would propose one. Learns nothing.

        Returns:
            A proposal (`act` says whether the policy would make the call without asking the model), or None;
            `explain` says why.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
        """
        return self.explain(messages, policy=policy, user_id=user_id).proposal

    def explain(self, messages: Any, *, policy: InertiaPolicy | None = None, user_id: str | None = None) -> Decision:
        """The decision behind `predict`: the proposal or the reason for none, and the candidates weighed."""
        run = self._read(messages, None)
        self._check_user(user_id)
        with self._lock:
            if not run.awaiting_model:
                return Decision(None, _not_our_turn(run))
            return self._decide(RunState.of(run), run, policy or self.policy, user_id)

    def before_model(
        self,
        messages: Any,
        *,
        run_id: str | None = None,
        user_id: str | None = None,
        policy: InertiaPolicy | None = None,
        tools: Mapping[str, ToolSpec] | None = None,
        recorded: bool = False,
        forbidden: str = "",
    ) -> Decision:
        """Learns what is new, decides about the model turn that comes now, and notes that it begins.

        This is what the shortcut node calls. A turn whose end is never reported counts as "the model did
        something else", so that a graph without a `Recorder` keeps an honest record too.

        Args:
            messages: the history, as `observe` takes it.
            run_id: identity of the run (a thread id).
            user_id: whose run it is.
            policy: when to act; the memory's own if None.
            tools: the tools at hand at this step, as `read_tools` reads them; the memory's own if None.
            recorded: a recorder will tell of the executions of this turn (`executed`): a call that it does not
                tell of was not executed.
            forbidden: why no call may be made here whatever the record says; "" if one may.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
        """
        run = self._read(messages, run_id)
        chosen = policy or self.policy
        self._check_user(user_id)
        with self._lock:
            if tools is not None:
                self._adopt(tools)
            state, _ = self._learn(run, user_id, policy=chosen, specs=tools)
            if not run.awaiting_model or run.next_key is None:
                return Decision(None, _not_our_turn(run))
            decision = self._decide(state, run, chosen, user_id, tools)
            if forbidden:
                decision = decision.held(forbidden)
            if recorded:
                self._executions.begins(run.next_key)
            if decision.acts:
                self._apply(digest("shortcut", run.next_key), begin_shortcut(decision))
            elif not self._engine.evidence.knows(run.next_key):
                self._apply(None, open_turn(state, run.next_key, decision, user_digest(user_id), self._hour()))
        self._ledger.flush()
        self._tick()
        return decision

    def _decide(
        self,
        state: RunState,
        run: Run,
        policy: InertiaPolicy,
        user_id: str | None,
        specs: Mapping[str, ToolSpec] | None = None,
    ) -> Decision:
        user = user_digest(user_id)
        return self._engine.decide(state, thought=run.thought, policy=policy, user=user, specs=specs)[0]

    def _book_row(self, booking: Booking) -> None:
        methods = {
            "sit": ("a summary", self._book_summaries),
            "atoms": ("atoms", self._book_atoms),
            "entries": ("an entry", self._book_entries),
        }
        if booking.method in methods and not self._store.read_only:
            what, book = methods[booking.method]
            self._quietly(f"the record of {what} could not be kept", partial(book, booking))

    # --- looking ---

    def report(self, *, price: TokenPrice | None = None) -> Report:
        """What was skipped, how often proposals were right, per tool, per rule and over time.

        Args:
            price: what the model's tokens cost; then the money saved is told too.
        """
        waiting = self._reflections()
        with self._lock:
            problems = tuple(self._store.problems)
            return make_report(self._graph, self.policy.max_wrong_per_100, problems, price, waiting)

    def view(self) -> GraphView:
        """A plain copy of the evidence graph: tools, edges, dataflow."""
        with self._lock:
            return view_of(self._graph, self._walked.walks.views())

    def forget(self, *, user_id: str) -> int:
        """Removes everything of a user from the graph, from Chroma and from disk (their files are rewritten).

        A Chroma server clears its files of what was deleted by itself, with ``chroma vacuum`` at once.

        Counts such as "search is followed by read" hold nothing of a person and stay. So do names of fields in results,
        but for those that only this user's runs showed.

        Returns:
            How many pieces were removed.

        Raises:
            NamespaceError: no user is named.
            StorageError: the memory is read-only, or the disk still holds something; the message says what to do.
        """
        if not user_id:
            raise NamespaceError("forget needs the user id whose data is to go.")
        removed = 0
        failures: list[StorageError] = []
        everywhere = (
            self._forget_jobs,  # first: what is being done ends with it
            self._forget_cold_start,
            self._forget_decisions,
            self._forget_learned,
            self._forget_entries,
            self._forget_atoms,
            self._forget_summaries,
        )
        for kept in (self._forget_learned,) if self._store.read_only else everywhere:
            try:
                removed += kept(user_id)
            except StorageError as error:  # the others go all the same
                failures.append(error)
        if failures:
            raise failures[0]
        if has_user(self.namespace):
            self._vectors.scoped(resolve(self.namespace, user_id)).drop()
        return removed

    def _forget_learned(self, user_id: str) -> int:
        with self._lock:
            self._forgettings += 1
            self._written.clear()
            return self._store.forget_user(str(user_digest(user_id)))

    # --- closing ---

    def close(self) -> None:
        """Writes what waits, then a snapshot, and lets go of the folder. Safe to call twice.

        Critiques that are not written yet wait on disk for the next opening.
        """
        self._ledger.flush()
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._close_reflection()  # without the lock: its thread may be about to take it
            self._close_decisions()
            with self._lock:
                self._close_summaries()
                self._store.close()
                self._vectors.close()

    def __enter__(self: M) -> M:
        """The memory itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self.close()

    def __repr__(self) -> str:
        """Where it is and how much it has seen."""
        where = self._store.folder or "ephemeral"
        return f"<ToolMemory {where}: {turns_seen(self._graph.counters)} turns>"


def _not_our_turn(run: Run) -> str:
    if run.next_key is None:
        return "tool calls are pending: it is not the model's turn"
    return "the model has answered: the run is over until the user speaks"
