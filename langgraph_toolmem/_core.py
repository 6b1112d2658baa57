"""What every part of `ToolMemory` stands on: its pieces, one lock, and the way in for records."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.base.namespaces import check_namespace, has_user, resolve, user_digest
from langgraph_toolmem.core.ledger import Booking, Ledger, LedgerTable
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.graph.operations import HOUR, Record, ToolDescribed
from langgraph_toolmem.graph.state import START, RunState
from langgraph_toolmem.inertia.engine import InertiaEngine
from langgraph_toolmem.inertia.evidence import InertiaEvidence
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.proposal import Decision
from langgraph_toolmem.navigator import fields
from langgraph_toolmem.navigator.evidence import NavigatorEvidence, OutputsSeen
from langgraph_toolmem.navigator.observed import paths_of, shows_fields
from langgraph_toolmem.runs.executions import ExecutionLog
from langgraph_toolmem.runs.run import OWN_TOOLS
from langgraph_toolmem.runs.tool_note import news_of
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, read_tools
from langgraph_toolmem.runs.trajectory import Run, Turn, parse_run
from langgraph_toolmem.search.embedders import resolve_embedder
from langgraph_toolmem.search.similarity import DescriptionSimilarity
from langgraph_toolmem.search.tool_index import ToolIndex
from langgraph_toolmem.sit.evidence import Draft, SITEvidence, TransitionSeen
from langgraph_toolmem.sit.extract import extractive_summary
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.transitions import just_asked, source_of
from langgraph_toolmem.stores.graph_store import Fsync, GraphStore
from langgraph_toolmem.stores.vectors import VectorStore

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.atoms.extract import Extractor
    from langgraph_toolmem.atoms.library import AtomLibrary
    from langgraph_toolmem.atoms.mask import Habits
    from langgraph_toolmem.atoms.writer import AtomWriter
    from langgraph_toolmem.core.jobs import ReflectionWorker
    from langgraph_toolmem.entries.critique import Critic
    from langgraph_toolmem.entries.library import EntryLibrary
    from langgraph_toolmem.navigator.decide.recording import DecisionLog
    from langgraph_toolmem.navigator.graph import ToolDependencyGraph
    from langgraph_toolmem.navigator.history import History
    from langgraph_toolmem.navigator.scoring import EdgeScorer
    from langgraph_toolmem.navigator.search import ToolSearch
    from langgraph_toolmem.navigator.search_chain import ChainSearch
    from langgraph_toolmem.navigator.search_past import PastRuns
    from langgraph_toolmem.sit.store import SummaryStore
    from langgraph_toolmem.stores.executors import Executor
    from langgraph_toolmem.stores.job_queue import JobQueue

logger = logging.getLogger("langgraph_toolmem.memory")

DEFAULT_NAMESPACE = ("toolmem",)
TABLES: Final = (InertiaEvidence, SITEvidence, NavigatorEvidence, LedgerTable)
MAX_DRAFT = 4_000
"""Characters of a summary that are kept."""
MAX_ADOPTED = 64
"""Sets of tools of hosts that are not looked at again."""
MAX_LOOKED_AT: Final = 4_096
"""Calls whose results are not looked at again for what tools give."""
QUIET: Final = 16
"""Results of a tool that showed nothing new one after another; from then on only one in so many is looked at."""


class MemoryCore:
    """The pieces of a memory; see `ToolMemory` for the arguments."""

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
        now: Callable[[], float] = time.time,
        sit: SITPolicy | None = None,
        entries: bool = True,
        critic: BaseChatModel | Critic | str | None = None,
        recall: RecallPolicy | None = None,
        executor: Executor | None = None,
        scorer: EdgeScorer | None = None,
        atoms: bool | None = None,
        atom_model: BaseChatModel | str | None = None,
    ) -> None:
        self.namespace = check_namespace(namespace, name="namespace", user_allowed=True)
        self.graph_namespace = check_namespace(graph_namespace, name="graph_namespace", user_allowed=False)
        if policy is not None and not isinstance(policy, InertiaPolicy):
            raise ConfigurationError(f"policy is an InertiaPolicy, not {type(policy).__name__}.")
        self.policy = policy or InertiaPolicy()
        specs = None if tools is None else _without_own_tools(read_tools(tools))
        embedder = resolve_embedder(embeddings)
        self._lock = threading.RLock()
        self._now = now
        self._executions = ExecutionLog()
        if sit is not None and not isinstance(sit, SITPolicy):
            raise ConfigurationError(f"sit is a SITPolicy, not {type(sit).__name__}.")
        self.sit = sit or SITPolicy()
        self._remembers_states = sit is not None and sit.recall == "extractive"
        self._summary_stores: dict[tuple[str, ...], SummaryStore] = {}
        self._written: dict[str, str] = {}
        self._forgettings = 0
        self._warned: set[str] = set()
        if recall is not None and not isinstance(recall, RecallPolicy):
            raise ConfigurationError(f"recall is a RecallPolicy, not {type(recall).__name__}.")
        if not isinstance(entries, bool):
            raise ConfigurationError(f"entries is True or False, not {entries!r}.")
        self.recall_policy = recall or RecallPolicy()
        self._keeps_entries = entries
        self._critic = None if critic is None else resolve_critic(critic, lambda: self._engine.specs)
        self._executor = executor
        self._made_queue: JobQueue | None = None
        self._made_library: EntryLibrary | None = None
        self._made_worker: ReflectionWorker | None = None
        self._made_decisions: DecisionLog | None = None
        if atoms is not None and not isinstance(atoms, bool):
            raise ConfigurationError(f"atoms is True, False or None, not {atoms!r}.")
        self._keeps_atoms = atoms
        self._atom_writer = None if atom_model is None else resolve_atom_writer(atom_model)
        self._made_atoms: AtomLibrary | None = None
        self._extractor: tuple[Mapping[str, ToolSpec], Habits | None, Extractor] | None = None
        if scorer is not None:
            from langgraph_toolmem.navigator.scoring import check_scorer

            check_scorer(scorer)
        self._scorer = scorer
        self._navigating = threading.Lock()
        self._rules_of: list[Any] | None = None
        self._looked_at: dict[str, None] = {}
        self._quiet: dict[str, int] = {}
        self._dependencies: ToolDependencyGraph | None = None
        self._outputs_planned = self._outputs_searched = 0
        self._counted: tuple[float, History] | None = None
        self._look_again = 0.0  # by time.monotonic
        self._shared = chroma is not None or store is not None
        self._adopted: list[Mapping[str, ToolSpec]] = [] if specs is None else [specs]
        self._warned_about_user = False
        self._closed = False
        root = None if path is None else Path(path)
        folder = self._root = root
        if root is not None and self.graph_namespace != DEFAULT_NAMESPACE:
            folder = root / f"graph-{digest(*self.graph_namespace)}"
        self._store = GraphStore(
            folder, shared=store, namespace=self.graph_namespace, tables=TABLES, fsync=fsync, read_only=read_only
        )
        self._graph = self._store.graph
        self._walked = self._graph.register(SITEvidence)
        self._used = self._graph.register(NavigatorEvidence)
        self._ledger = Ledger(self._graph, self._apply, self._book_row, self._lock)
        self._similarity = DescriptionSimilarity(embedder, specs or {})
        self._engine = InertiaEngine(self._graph, specs, similarity=self._similarity, seed=seed)
        self._vectors = VectorStore(root, embedder=embedder, client=chroma, namespace=self.graph_namespace)
        self._tool_index = ToolIndex()
        self._finding = threading.Lock()
        self._tool_search: tuple[ToolSearch, ChainSearch] | None = None
        self._followed: Mapping[str, ToolSpec] | None = None
        self._past: PastRuns | None = None
        self._described: dict[str, tuple[Any, ToolSpec]] = {}
        if specs is not None:
            self._tool_index.declare(specs)
            if not read_only:
                self._describe(specs)

    def _learn(
        self,
        run: Run,
        user_id: str | None,
        *,
        last_turn_too: bool = False,
        policy: InertiaPolicy | None = None,
        on_turn: Callable[[Turn, Decision], None] | None = None,
        specs: Mapping[str, ToolSpec] | None = None,
    ) -> tuple[RunState, int]:
        self._store.refresh()
        self._note_outputs(run, user_digest(user_id))
        return self._engine.learn(
            run,
            apply=self._apply,
            policy=policy or self.policy,
            user=user_digest(user_id),
            last_turn_too=last_turn_too,
            on_turn=on_turn,
            specs=specs,
            more=partial(self._turn_record, user_id=user_id),
            again=partial(self._ledger.followed, user_id=user_id),
            hour=self._hour(),
        )

    def _hour(self) -> int:
        """Now, in hours since 1970 (UTC)."""
        return int(self._now() // HOUR)

    def _note_outputs(self, run: Run, user: str | None) -> None:
        """Notes which fields results have, for tools that declare none; only what is new is written."""
        record: Record = []
        for turn in run.events:
            for step in turn.steps if isinstance(turn, Turn) else ():
                if step.status != "ok" or step.output is None or step.key in self._looked_at:
                    continue
                self._looked_at[step.key] = None
                if len(self._looked_at) > MAX_LOOKED_AT:
                    del self._looked_at[next(iter(self._looked_at))]
                quiet = self._quiet.get(step.tool, 0)
                self._quiet[step.tool] = quiet + 1
                if (quiet < QUIET or quiet % QUIET == 0) and shows_fields(step.output):
                    known = self._used.outputs.get(step.tool, {})
                    news = fields.news_in(known, paths_of(step.output), user)
                    if news:
                        record.append(OutputsSeen(step.tool, news, user))
                        self._quiet[step.tool] = 0
        if record:
            self._apply(None, record)

    def _turn_record(self, state: RunState, turn: Turn, run: str, *, user_id: str | None) -> Record:
        """What a new turn teaches beside the evidence of all: the caller holds the lock."""
        return [*self._transitions(state, turn, run, user_digest(user_id)), *self._ledger.followed(turn, user_id)]

    def _transitions(self, state: RunState, turn: Turn, run: str, user: str | None) -> Record:
        """The edges that a turn walked, and the state before it in words, to be kept if the run turns out well."""
        written = self._written.pop(turn.key, None)
        source = source_of(state)
        targets = [step for step in turn.steps if step.status == "ok"]
        if source is None or not targets:
            return []
        record: Record = [TransitionSeen(run, step.key, source, step.tool) for step in targets]
        if not turn.summary and not written and not self._remembers_states:
            return record
        if user is None and has_user(self.namespace):
            return record  # nobody's: it could only end up with somebody else
        text = (turn.summary or written or extractive_summary(state))[:MAX_DRAFT]
        place = START if just_asked(state) else source
        made_by = "tool" if turn.summary else "model" if written else "extractive"
        return record + [Draft(run, step.key, place, step.tool, text, made_by, user) for step in targets if text]

    def _apply(self, key: str | None, record: Record) -> bool:
        return self._store.apply(key, record)

    def _book_row(self, booking: Booking) -> None:
        """Adds what became of items that the model was shown to the rows of their method."""

    def _read(self, messages: Any, run_id: str | None) -> Run:
        return parse_run(
            messages, run_id=run_id, executions=self._executions.executions, watched=self._executions.turns
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

    def _adopt(self, tools: Mapping[str, ToolSpec]) -> None:
        """Notes tools that were first seen at a step of a host."""
        if any(known is tools for known in self._adopted):
            return
        given, tools = tools, _without_own_tools(tools)
        # A part of what was taken in before, such as the tools of one request, is nothing new.
        if any(all(known.get(name) == spec for name, spec in tools.items()) for known in self._adopted):
            return
        self._adopted = [*self._adopted[-MAX_ADOPTED:], given]
        self._engine.adopt(tools)
        self._tool_index.declare(self._engine.specs)
        if not self._store.read_only:
            self._describe(tools)

    def _describe(self, specs: Mapping[str, ToolSpec]) -> None:
        """Notes the tools themselves, so that the graph can be read without them."""
        known = self._graph.tools
        record: Record = []
        for name, spec in specs.items():
            if news := news_of(spec, known.get(name, {})):
                record.append(ToolDescribed(name, news))
        if record:
            self._apply(None, record)


def resolve_critic(critic: BaseChatModel | Critic | str, tools: Callable[[], Mapping[str, ToolSpec]]) -> Critic:
    """What makes critiques: a chat model, its name as ``"provider:model"``, or a `Critic`.

    Raises:
        ConfigurationError: it is none of these.
        MissingExtraError: a name is given, and langchain is not installed.
    """
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.base.models import resolve_model
    from langgraph_toolmem.entries.critique import ModelCritic

    model = resolve_model(critic, name="critic") if isinstance(critic, str) else critic
    if isinstance(model, BaseChatModel):
        return ModelCritic(model, tools)
    if callable(model):
        return model
    raise ConfigurationError(f'critic is a chat model, "provider:model" or a Critic, not {type(critic).__name__}.')


def resolve_atom_writer(model: BaseChatModel | str) -> AtomWriter:
    """What words atoms with a chat model; see `AtomWriter`."""
    from langgraph_toolmem.atoms.writer import AtomWriter  # numpy: only when atoms are used

    return AtomWriter(model)


def _without_own_tools(specs: Mapping[str, ToolSpec]) -> dict[str, ToolSpec]:
    """The tools that act on the world."""
    return {name: spec for name, spec in specs.items() if name not in OWN_TOOLS}
