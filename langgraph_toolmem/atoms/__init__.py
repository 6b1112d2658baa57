"""Atoms: single steps of what worked, found by sub-goal and by what is known (SGA-MCTS).

Whole trajectories fit few new tasks, and planning with a model at every step is expensive. So what worked is cut into
*atoms*: one tool call each, with the state and the sub-goal it belongs to in words, the types of the values it needs,
and its arguments with values masked by their types. Before a model call, atoms are looked up by where the run stands,
by what is still open and by the types of the values that are known (K), and shown to the model as patterns to adapt,
with the known values filled in. Atoms come from runs that went well, and from a search (`papers.sga_mcts`).

============  =======================================================================
``Atoms``     this method: keeps atoms, and records the results of their hints
``atoms``     an atom, and the record of its hints
``slots``     types of values, and K: the values that a run knows
``extract``   from a run to its atoms: situations, sub-goals, masked calls
``retrieve``  the hybrid score of words and types; tools of other names
``keeping``   atoms as rows in Chroma, their search, the work in the background
``models``    answers of chat models: atoms in their words, the plan of the next step
``planning``  from messages to hints; ``step``: at a model call, with its settings
============  =======================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from langgraph_toolmem.base.checks import is_count, is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.core.method import (
    KEEP_RUNS,
    EndedRun,
    Import,
    JudgedRun,
    Method,
    Section,
    outcome_in_words,
    shown_in_words,
)
from langgraph_toolmem.core.users import User, by_namespace, user_digest
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.tools import ToolLike, read_tools

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.atoms.atoms import Atom, AtomRecord
    from langgraph_toolmem.atoms.keeping import AtomKeeping
    from langgraph_toolmem.atoms.models import AtomWriter
    from langgraph_toolmem.atoms.retrieve import AtomHit, AtomQuestion, Resolve
    from langgraph_toolmem.atoms.slots import Known
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.core.jobs import Job
    from langgraph_toolmem.graph.events import Forgotten


class Atoms(Method):
    """Keeps the steps of runs that went well as atoms, and finds them.

    Args:
        keep: If True, from the beginning; if False, never. Defaults to None: from the first use of `search` or of a
            step on.
        model: words atoms, in the background, and says which arguments are values of the day: a chat model or
            ``"provider:model"``; one call for each new kind of step. Defaults to None: runs and schemas tell both.
    """

    name: ClassVar[str] = "atoms"
    package: ClassVar[tuple[str, str] | None] = ("chromadb", "memory")

    def __init__(self, *, keep: bool | None = None, model: BaseChatModel | str | None = None) -> None:
        if keep is not None and not isinstance(keep, bool):
            raise ConfigurationError(f"keep is True, False or None, not {keep!r}.")
        self._keeps = keep
        self._writer: AtomWriter | None = None
        if model is not None:
            from langgraph_toolmem.atoms.models import AtomWriter  # only where a model is given

            self._writer = AtomWriter(model)
        self._keeping: AtomKeeping | None = None
        self.asked = 0
        """Model calls for which steps were looked up."""

    def open(self, core: Core) -> None:
        """Register its kinds of jobs."""
        super().open(core)
        core.jobs.handle("atoms", self._do, undo=self._undo)
        if self._writer is not None:
            core.jobs.handle("wording", self._take_words, find=self._word, undo=self._undo)

    # `keeping` is made when atoms are first used, so the handlers reach for it only when there is a job.

    def _do(self, jobs: Sequence[Job]) -> None:
        self.keeping.do(jobs)

    def _undo(self, job: Job) -> None:
        self.keeping.undo(job)

    def _word(self, job: Job) -> str:
        return self.keeping.word(job)

    def _take_words(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.keeping.take_words(job)

    # --- asking ---

    def search(
        self,
        goal: str | Sequence[str],
        *,
        state: str = "",
        slots: Known | Mapping[str, Any] | Iterable[str] = (),
        k: int = 3,
        tools: Iterable[ToolLike] | None = None,
        beta: float = 0.3,
        user_id: str | None = None,
    ) -> list[AtomHit]:
        """Return the atoms that fit a state and a sub-goal, best first: at most one for each tool.

        Score of an atom: (1 − β) · cos(question, atom) + β · |Λ ∩ S| / (|S| + ε), with Λ the types in `slots`, S those
        that the atom needs and ε 1e-5. Atoms that mislead are left out. What was finished just now is waited for.

        Args:
            goal: the next sub-goal, in words; or several that may be next.
            state: where the run stands, in words.
            slots: types of the values that are known, such as ``"ORDER_ID"``; with their values (one, or a list of
                which the last counts) the atoms' arguments are filled in.
            k: number of hits.
            tools: the available tools: an atom's tool is found among them by its name, otherwise by what it does; atoms
                of other tools are left out. Defaults to None: all of them.
            beta: weight of what is known, from 0 (words alone) to 1.
            user_id: whose atoms.

        Raises:
            ConfigurationError: an argument cannot work.
            NamespaceError: the namespace needs a user id.
            StorageError: the atoms cannot be read.
        """
        from langgraph_toolmem.atoms.extract import Extractor
        from langgraph_toolmem.atoms.retrieve import AtomQuestion, Resolver, by_name
        from langgraph_toolmem.atoms.slots import known_given

        goals: tuple[Any, ...] = (goal,)
        several = not isinstance(goal, str) and isinstance(goal, Iterable)
        if several:
            goals = tuple(goal)
        if not all(isinstance(text, str) for text in (*goals, state)):
            raise ConfigurationError("`goal` and `state` must be texts; `goal` may be several.")
        if not is_count(k, 1):
            raise ConfigurationError(f"`k` must be a whole number from 1, got {k!r}.")
        if not is_share(beta):
            raise ConfigurationError(f"`beta` must be a share from 0 to 1, got {beta!r}.")
        question = AtomQuestion(state, goals, known_given(slots))
        resolve: Resolve = by_name
        if tools is not None:
            resolve = Resolver(Extractor(read_tools(tools)))
        # A missing user id is an error before the waiting, not after it.
        self.core.users.of(user_id)
        self.begin()
        self.core.jobs.settle(timeout=10.0)  # seconds: what was finished just now may still be being written
        return self.find(question, user_id, k=k, beta=beta, resolve=resolve)

    def find(
        self,
        question: AtomQuestion,
        user_id: str | None,
        *,
        k: int,
        beta: float,
        resolve: Resolve,
        plain: bool = False,
    ) -> list[AtomHit]:
        """Return what `search` returns, without waiting; options and errors as those of `AtomSearch`."""
        user = self.core.users.of(user_id)
        # An empty memory opens no Chroma: neither its files nor its import are paid for where nothing is kept.
        if self.core.vectors.empty:
            return []
        return self.keeping.search(user, question, k=k, beta=beta, resolve=resolve, plain=plain)

    def all(self, *, user_id: str | None = None) -> list[Atom]:
        """Return all atoms whose runs went well, also those that mislead, those of most visits first.

        Args:
            user_id: whose atoms.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: the atoms cannot be read.
        """
        user = self.core.users.of(user_id)
        if self.core.vectors.empty:
            return []
        atoms = []
        for stored in self.keeping.rows.all(user):
            if stored.atom is not None:
                atoms.append(stored.atom)

        def most_visits_first(atom: Atom) -> tuple[int, str, str]:
            return -atom.visits, atom.tool, atom.id

        return sorted(atoms, key=most_visits_first)

    def records(self, calls: Iterable[str], *, user_id: str | None = None) -> dict[str, AtomRecord]:
        """Return how often the hints of calls (`Atom.call`) were shown, followed, and how those runs ended.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: the atoms cannot be read.
        """
        return self.keeping.records(self.core.users.of(user_id), list(calls))

    def keep(self, atoms: Iterable[Atom], *, user_id: str | None = None) -> int:
        """Keep atoms that come from elsewhere, such as those of a `Discovery`, next to those of runs.

        Equal atoms take the place of what was handed over before, so that a search can hand over all it has again.

        Args:
            atoms: see `langgraph_toolmem.atoms.atoms.make_atom`.
            user_id: whose they are.

        Returns:
            The number of different atoms.

        Raises:
            ConfigurationError: one of them is no atom, or cannot be stored (arguments are JSON values).
            NamespaceError: the namespace needs a user id.
            StorageError: they could not be stored, or the memory is read-only.
        """
        from langgraph_toolmem.atoms.atoms import merge_all
        from langgraph_toolmem.atoms.keeping import Support, SupportedAtom

        merged = merge_all(_atoms_of(atoms))
        user, now = self.core.users.of(user_id), self.core.now()
        self.core.refuse_if_read_only()
        self.begin()
        supported = []
        for atom in merged:
            # No run: such a support counts as good, and is replaced when the atom is handed over again.
            support = Support("", user.digest or "", atom.value, now, atom.visits)
            supported.append(SupportedAtom(atom, support))
        self.keeping.store(user, supported)
        return len(merged)

    asearch, arecords, akeep = async_variant(search), async_variant(records), async_variant(keep)
    aall = async_variant(all)  # noqa: A003 - the method above

    # --- what happens ---

    def begin(self) -> None:
        """Keep atoms from now on, unless that was refused."""
        if self._keeps is None:
            self._keeps = True

    def note_shown(self, run: Run, hits: Iterable[AtomHit], user_id: str | None) -> None:
        """Record that the model sees these atoms before its next turn."""
        if run.next_key is None or self.core.read_only:
            return
        ledger, rows, user = self.core.ledger, self.keeping.rows, self.core.users.of(user_id)
        self.core.know(run)
        before = ledger.items(run.next_key, self.name).values()
        shown: dict[str, str | None] = {}
        for hit in hits:
            # A model turn counts a tool once, also where its hints are made again, as at a retry.
            if hit.tool not in before:
                shown[rows.key(hit.atom.call, user)] = hit.tool
        ledger.shown(self.name, shown, run=run.digest, turn=run.next_key, user_id=user_id)

    def ended(self, ended: EndedRun) -> None:
        """Put the atoms of a run into the queue, unless it went wrong."""
        core, run, score = self.core, ended.run.digest, ended.score
        if core.read_only:
            return
        user = core.owner_of(run, ended.user.digest)
        if self._keeps and not _went_wrong(score):
            if self.keeping.put_run(ended, user):
                core.count_once(_key(run), "atoms_runs")
        # Nothing is added, but feedback changes the atoms that the run gave before.
        elif score is not None and core.has_seen(_key(run)):
            self.keeping.put_score(run, score, user, ended.user.namespace)

    def judged(self, judged: JudgedRun) -> None:
        """Put feedback on a run that has its atoms into the queue."""
        core, run = self.core, judged.run
        if core.read_only or not core.has_seen(_key(run)):
            return
        namespace = core.namespace_of(run, judged.user_id)
        # None: the run is of a user whom nobody names here, and another process finished it.
        if namespace is not None:
            user = core.owner_of(run, user_digest(judged.user_id or None))
            self.keeping.put_score(run, judged.score, user, namespace)

    def imported(self, given: Import) -> int:
        """Keep the atoms of recorded runs that did not go wrong; return the number of steps of good ones.

        Atoms of runs without feedback wait for it. No model words them.
        """
        self.core.refuse_if_read_only()
        steps = 0
        usable = [ended for ended in given.runs if not _went_wrong(ended.score)]
        for user, runs in by_namespace(usable, attrgetter("user.namespace")):
            imported = self.keeping.import_runs(runs, user)
            steps += imported.good_steps
            for run in imported.runs:
                self.core.count_once(_key(run), "atoms_runs")
        return steps

    # --- keeping ---

    @property
    def keeping(self) -> AtomKeeping:
        """The atoms, and the work of keeping them; made when it is first used."""
        # Under the memory's lock: two threads must not make two stores for the same rows.
        with self.core.lock:
            if self._keeping is None:
                self.core.refuse_if_closed()
                from langgraph_toolmem.atoms.keeping import AtomKeeping  # only when atoms are used

                self._keeping = AtomKeeping(self.core, self._writer)
            return self._keeping

    def forget(self, user: User, gone: Forgotten) -> int:
        """Remove a user's atoms, or what runs support."""
        if self.core.vectors.empty:
            return 0
        return self.keeping.rows.forget(user, gone)

    def problems(self) -> list[str]:
        """Return a sentence if planning has nothing to show: runs are never kept, or none has good feedback."""
        core = self.core
        many = 60  # model calls of about 20 requests: with fewer a memory may just be new
        if self.asked < many or core.read_only:
            return []
        nothing = f"Planning was asked before {self.asked:,} model calls and has nothing to show."
        if not core.counter("atoms") and not core.counter("atoms_runs"):
            return [f"{nothing} {KEEP_RUNS}"]
        with core.lock:
            any_good = any(map(core.graph.went_well, core.graph.runs))
            shown = core.ledger.figures(self.name)["shown"]
        if any_good or shown:
            return []
        return [f"{nothing} It shows steps of runs with good feedback: memory.feedback(thread_id, score=1.0)."]

    def report(self) -> Section | None:
        """Return how many atoms were made, and how runs ended that followed one."""
        made, sums = self.core.counter("atoms"), self.core.ledger.figures(self.name)
        if not made and not sums["shown"]:
            return None
        figures = {"made": made, "learned": self.core.counter("atoms_runs"), **sums}
        words = f"Atoms made of what went well: {made:,}; followed in {sums['runs']:,} runs{outcome_in_words(sums)}."
        return Section("Atoms", figures, (*shown_in_words("Atoms", sums), words))


def _went_wrong(score: float | None) -> bool:
    return score is not None and score < GOOD


def _key(run: str) -> str:
    """Return the key that says that a run has its atoms."""
    return digest("atoms", run)


def _atoms_of(given: object) -> list[Atom]:
    from langgraph_toolmem.atoms.atoms import Atom, storable

    if not isinstance(given, Iterable):
        raise ConfigurationError(f"keep takes atoms, not {type(given).__name__}.")
    atoms: list[Atom] = []
    for number, atom in enumerate(given, 1):
        if not isinstance(atom, Atom):
            raise ConfigurationError(f"keep takes atoms, not {type(atom).__name__}.")
        try:
            atoms.append(storable(atom))
        except InputError as error:
            raise ConfigurationError(f"Atom {number} cannot be kept. {error}") from error
    return atoms
