"""ToolMemory: the one object a user holds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langgraph_toolmem._async import AsyncTwins
from langgraph_toolmem.errors import ConfigurationError, NamespaceError
from langgraph_toolmem.graph.evidence import Record
from langgraph_toolmem.graph.export import GraphView
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.view import view_of
from langgraph_toolmem.inertia.engine import InertiaEngine, begin_shortcut, run_scope
from langgraph_toolmem.inertia.proposal import Decision, Proposal
from langgraph_toolmem.keys import digest
from langgraph_toolmem.namespaces import check_namespace, has_user, resolve, user_digest
from langgraph_toolmem.policy import InertiaPolicy
from langgraph_toolmem.report import Report, make_report
from langgraph_toolmem.stores.embedders import resolve_embedder
from langgraph_toolmem.stores.graph_store import Fsync, GraphStore
from langgraph_toolmem.stores.similarity import DescriptionSimilarity
from langgraph_toolmem.stores.vectors import ToolHit, ToolIndex, VectorStore
from langgraph_toolmem.tools import ToolLike, read_tools
from langgraph_toolmem.trajectory import Run, Turn, parse_run

logger = logging.getLogger("langgraph_toolmem.memory")
M = TypeVar("M", bound="ToolMemory")

DEFAULT_NAMESPACE = ("toolmem",)


class ToolMemory(AsyncTwins):
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

    Raises:
        ConfigurationError: an argument cannot work.
        LockedError: another process writes to the folder.
    """

    def __init__(
        self,
        path: str | Path | None,
        *,
        tools: Iterable[ToolLike] | None = None,
        embeddings: Embeddings | str | None = None,
        chroma: Any | None = None,
        store: BaseStore | None = None,
        namespace: tuple[str, ...] = DEFAULT_NAMESPACE,
        graph_namespace: tuple[str, ...] = DEFAULT_NAMESPACE,
        policy: InertiaPolicy | None = None,
        seed: int = 0,
        fsync: Fsync = "snapshot",
        read_only: bool = False,
    ) -> None:
        self.namespace = check_namespace(namespace, name="namespace", user_allowed=True)
        self.graph_namespace = check_namespace(graph_namespace, name="graph_namespace", user_allowed=False)
        if policy is not None and not isinstance(policy, InertiaPolicy):
            raise ConfigurationError(f"policy is an InertiaPolicy, not {type(policy).__name__}.")
        self.policy = policy or InertiaPolicy()
        specs = None if tools is None else read_tools(tools)
        embedder = resolve_embedder(embeddings)
        self._lock = threading.RLock()
        self._warned_about_user = False
        self._closed = False
        root = None if path is None else Path(path)
        folder = root
        if root is not None and self.graph_namespace != DEFAULT_NAMESPACE:
            folder = root / f"graph-{digest(*self.graph_namespace)}"
        self._store = GraphStore(folder, shared=store, namespace=self.graph_namespace, fsync=fsync, read_only=read_only)
        self._graph = self._store.graph
        self._similarity = DescriptionSimilarity(embedder, specs or {})
        self._engine = InertiaEngine(self._graph, specs, similarity=self._similarity, seed=seed)
        self._vectors = VectorStore(root, embedder=embedder, client=chroma, namespace=self.graph_namespace)
        self._tool_index = ToolIndex(self._vectors)
        self._tools_to_sync = specs is not None and not read_only
        if specs is not None:
            self._tool_index.declare(specs)
            self._describe(read_only)

    @classmethod
    def ephemeral(cls: type[M], *, tools: Iterable[ToolLike] | None = None, **options: Any) -> M:
        """A memory with nothing on disk. Two of them share nothing. Options as for the constructor."""
        return cls(None, tools=tools, **options)

    # --- learning ---

    def observe(self, messages: Any, *, run_id: str | None = None, user_id: str | None = None) -> int:
        """Learns what is new in a run, and books what would have been proposed before each new turn.

        Call it as often as you like: each executed call teaches once, in resumed, forked, trimmed and
        summarised histories too.

        Args:
            messages: what ``convert_to_messages`` takes.
            run_id: identity of the run (a thread id). Needed where call ids repeat from run to run.
            user_id: whose run it is.

        Returns:
            How many turns were new.

        Raises:
            MessageError: `messages` cannot be read; nothing was learned.
            NamespaceError: the namespace needs a user id.
        """
        run = parse_run(messages, run_id=run_id)
        self._check_user(user_id)
        with self._lock:
            return self._learn(run, user_id)[1]

    def finish(
        self,
        messages: Any,
        *,
        run_id: str | None = None,
        success: bool | None = None,
        comment: str | None = None,
        user_id: str | None = None,
    ) -> int:
        """The run is over: learns the rest, calls that never got an answer included, and notes the verdict.

        Args:
            messages: the whole run.
            run_id: identity of the run; `feedback` finds it by this.
            success: the verdict, if known.
            comment: a word on it.
            user_id: whose run it is.

        Returns:
            How many turns were new.

        Raises:
            MessageError: `messages` cannot be read; nothing was learned.
            NamespaceError: the namespace needs a user id.
        """
        run = parse_run(messages, run_id=run_id)
        self._check_user(user_id)
        with self._lock:
            new = self._learn(run, user_id, last_turn_too=True)[1]
            if success is not None:
                self._verdict(digest("run", run_id or run_scope(run)), float(success), comment, user_id)
            return new

    def feedback(self, run_id: str, *, score: float, comment: str | None = None, user_id: str | None = None) -> None:
        """A verdict that comes later, from any process that holds the memory.

        Args:
            run_id: as given to `observe` or `finish` (a thread id).
            score: from 0 (bad) to 1 (good).
            comment: a word on it.
            user_id: who says so.

        Raises:
            ConfigurationError: the score is out of range.
        """
        if not 0 <= score <= 1:
            raise ConfigurationError(f"score is from 0 (bad) to 1 (good), not {score!r}.")
        with self._lock:
            self._verdict(digest("run", run_id), float(score), comment, user_id)

    def _verdict(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        """Nobody named: it is by the one whose run it is, so that `forget` finds it."""
        self._store.refresh()
        text = comment[:500] if comment else None
        author = user_digest(user_id) or self._graph.owner(run)
        self._store.apply(None, [["vd", run, score, text, author]])

    def learn_run(
        self,
        run: Run,
        *,
        user_id: str | None = None,
        policy: InertiaPolicy | None = None,
        on_turn: Callable[[Turn, Decision], None] | None = None,
    ) -> int:
        """Learns a whole run that was read already; for replays and imports.

        Args:
            run: as `parse_run` reads it; calls without an answer are learned too.
            user_id: whose run it is.
            policy: for which the record is kept; the memory's own if None.
            on_turn: called with each new turn of the model and the decision before it.

        Returns:
            How many turns were new.
        """
        with self._lock:
            return self._learn(run, user_id, last_turn_too=True, policy=policy, on_turn=on_turn)[1]

    def _learn(
        self,
        run: Run,
        user_id: str | None,
        *,
        last_turn_too: bool = False,
        policy: InertiaPolicy | None = None,
        on_turn: Callable[[Turn, Decision], None] | None = None,
    ) -> tuple[RunState, int]:
        self._store.refresh()
        return self._engine.learn(
            run,
            apply=self._store.apply,
            policy=policy or self.policy,
            user=user_digest(user_id),
            last_turn_too=last_turn_too,
            on_turn=on_turn,
        )

    def _check_user(self, user_id: str | None) -> None:
        resolve(self.namespace, user_id)
        if user_id is not None and not has_user(self.namespace) and not self._warned_about_user:
            self._warned_about_user = True
            logger.warning(
                "A run carries a user id, but the namespace %r has no place for it: personal memory is shared by all "
                'users. Use namespace=("toolmem", "{user_id}") to keep it apart.',
                self.namespace,
            )

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
        run = parse_run(messages)
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
    ) -> Decision:
        """Learns what is new, decides about the model turn that comes now, and notes that it begins.

        This is what the shortcut node calls. A turn whose end is never reported counts as "the model did
        something else", so that a graph without a `Recorder` keeps an honest record too.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
        """
        run = parse_run(messages, run_id=run_id)
        chosen = policy or self.policy
        self._check_user(user_id)
        with self._lock:
            state, _ = self._learn(run, user_id, policy=chosen)
            if not run.awaiting_model or run.next_key is None:
                return Decision(None, _not_our_turn(run))
            decision = self._decide(state, run, chosen, user_id)
            known = run.next_key in self._graph.open_turns or run.next_key in self._graph.closed_turns
            if decision.acts:
                self._store.apply(digest("shortcut", run.next_key), begin_shortcut(decision))
            elif not known:
                user = user_digest(user_id)
                self._store.apply(None, self._engine.open_turn(state, run.next_key, decision, user))
            return decision

    def _decide(self, state: RunState, run: Run, policy: InertiaPolicy, user_id: str | None) -> Decision:
        decision, _ = self._engine.decide(state, thought=run.thought, policy=policy, user=user_digest(user_id))
        return decision

    # --- looking ---

    def search_tools(self, query: str, *, k: int = 5) -> list[ToolHit]:
        """The tools whose descriptions fit a query, best first.

        The first search writes the descriptions to Chroma, so that the next process has them too.

        Raises:
            StorageError: Chroma failed.
            EmbedderChangedError: stored vectors were made by another embedder.
        """
        if self._tools_to_sync:
            self._tool_index.sync()
            self._tools_to_sync = False
        return self._tool_index.search(query, k)

    def report(self) -> Report:
        """What was skipped, how often proposals were right, per tool and per rule."""
        with self._lock:
            return make_report(self._graph, self.policy.max_wrong_per_100, tuple(self._store.problems))

    def view(self) -> GraphView:
        """A plain copy of the evidence graph: tools, edges, dataflow."""
        with self._lock:
            return view_of(self._graph)

    def forget(self, *, user_id: str) -> int:
        """Removes everything of a user from the graph and from disk (snapshot and journal are rewritten).

        Counts such as "search is followed by read" hold nothing of a person and stay.

        Returns:
            How many pieces were removed.

        Raises:
            NamespaceError: no user is named.
            StorageError: the memory is read-only, or the disk still holds something; the message says what to do.
        """
        if not user_id:
            raise NamespaceError("forget needs the user id whose data is to go.")
        with self._lock:
            removed = self._store.forget_user(str(user_digest(user_id)))
        if has_user(self.namespace):
            self._vectors.scoped(resolve(self.namespace, user_id)).drop()
        return removed

    def _describe(self, read_only: bool) -> None:
        """Notes the tools themselves, so that the graph can be read without them."""
        known = self._graph.tools
        record: Record = []
        for name, spec in (self._engine.specs or {}).items():
            plain = {"description": spec.description, "parameters": spec.parameters}
            if any(known.get(name, {}).get(field) != value for field, value in plain.items()):
                record.append(["d", name, plain])
        if record and not read_only:
            self._store.apply(None, record)

    # --- closing ---

    def close(self) -> None:
        """Writes a snapshot and lets go of the folder. Safe to call twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
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
        return f"<ToolMemory {where}: {int(self._graph.counters.get('turns', 0))} turns>"


def _not_our_turn(run: Run) -> str:
    if run.next_key is None:
        return "tool calls are pending: it is not the model's turn"
    return "the model has answered: the run is over until the user speaks"
