"""Atoms: single steps of what worked, found by sub-goal and by what is known (SGA-MCTS).

The idea: whole trajectories fit few new tasks, and planning with a model at every step is expensive. So what worked is
cut into *atoms*: one tool call each, with the state and the sub-goal it belongs to in words, the **types** of the
values it needs, and its arguments with values masked by their types. Online, atoms are looked up by where the run
stands, by what is still open and by the types of the values that are known (K), and shown to the model as patterns to
adapt, with the known values filled in. Atoms come from runs that went well, here, and from a tree search offline
(`langgraph_toolmem.offline.discovery`).

===================================  ==========================================================
``Atoms``                            this method: which atoms are kept, when, and their results
``atoms``, ``extract``, ``mask`` …   an atom, made of a step of a run; ``abstract``, ``writer``: worded by a model
``slots``, ``words``                 types of values, and words in their place
``rows``, ``support``                atoms as rows in Chroma, with the runs that support them
``record``                           the results of their hints, and what those are worth
``retrieve``, ``resolve`` the hybrid score of words and types; tools of other names
``keeping``                          extraction and storing in the background
``known``, ``tracker``               K: what a run knows by now
``planning``, ``planner``            from messages to hints, with or without a planner's model
``rules``                            calls that repeat
``step``                             hints at a model call
===================================  ==========================================================
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeGuard

from langgraph_toolmem.atoms.record import AtomRecord
from langgraph_toolmem.base.checks import is_count, is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.core.method import EndedRun, Import, JudgedRun, Method, Section, outcome_in_words, shown_in_words
from langgraph_toolmem.core.users import User, user_digest
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, read_tools

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.atoms.atoms import Atom
    from langgraph_toolmem.atoms.keeping import AtomKeeping
    from langgraph_toolmem.atoms.known import Known
    from langgraph_toolmem.atoms.retrieve import AtomHit
    from langgraph_toolmem.atoms.writer import AtomWriter
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.graph.events import Forgotten

logger = logging.getLogger("langgraph_toolmem.atoms")

SETTLE: Final = 10.0
"""Seconds that `search` waits for what was finished just now and is being written."""


class Atoms(Method):
    """Keeps the steps of runs that went well as atoms, and finds them.

    Args:
        keep: True: from the beginning; None: from the first use of `search` or of a step on; False: never.
        model: words atoms, in the background, and says which arguments are values of the day: a chat model or
            ``"provider:model"``; one call for each new kind of step. None: both are read off the run and the schemas.
    """

    name: ClassVar[str] = "atoms"
    package: ClassVar[tuple[str, str] | None] = ("chromadb", "memory")

    def __init__(self, *, keep: bool | None = None, model: BaseChatModel | str | None = None) -> None:
        if keep is not None and not isinstance(keep, bool):
            raise ConfigurationError(f"keep is True, False or None, not {keep!r}.")
        self._keeps = keep
        self._writer = None if model is None else _writer(model)
        self._keeping: AtomKeeping | None = None

    def open(self, core: Core) -> None:
        """Takes its kinds of jobs."""
        super().open(core)
        core.jobs.handle("atoms", lambda jobs: self.keeping.do(jobs), undo=lambda job: self.keeping.undo(job))
        if self._writer is not None:
            core.jobs.handle(
                "wording",
                lambda jobs: self.keeping.take_words(jobs[0]),
                find=lambda job: self.keeping.word(job),
                undo=lambda job: self.keeping.undo(job),
            )

    # --- asking ---

    def search(
        self,
        goal: str | Sequence[str],
        *,
        state: str = "",
        slots: Known | Mapping[str, Any] | Iterable[str] = (),
        k: int = 3,
        tools: Mapping[str, ToolSpec] | Iterable[ToolLike] | None = None,
        beta: float = 0.3,
        user_id: str | None = None,
        settle: bool = True,
        plain: bool = False,
    ) -> list[AtomHit]:
        """The atoms that fit a state and a sub-goal, best first: at most one for each tool.

        Score of an atom: (1 − β) · cos(question, atom) + β · |Λ ∩ S| / (|S| + ε), with Λ the types in `slots`, S those
        that the atom needs and ε 1e-5, and a little for its record and its value; one that misled is left out.

        Args:
            goal: the next sub-goal, in words; or several that may be next.
            state: where the run stands, in words.
            slots: types of the values that are known, such as ``"ORDER_ID"``; with their values (one, or a list of
                which the last counts) the atoms' arguments are filled in.
            k: how many at most.
            tools: the tools at hand: an atom's tool is found among them by its name, else by what it does; atoms of
                other tools are left out. None: all of them.
            beta: weight of what is known, from 0 (words alone) to 1.
            user_id: whose atoms.
            settle: what was finished just now in this process, and is being written, is waited for.
            plain: the formula and no more, of the state and all goals together: several of one tool, no record.

        Raises:
            ConfigurationError: an argument cannot work.
            NamespaceError: the namespace needs a user id.
            StorageError: the atoms cannot be read.
        """
        from langgraph_toolmem.atoms.known import known_given, several_texts

        goals = [goal] if isinstance(goal, str) else several_texts(goal)
        if goals is None or not isinstance(state, str):
            raise ConfigurationError("goal and state are texts; goal may be several.")
        if not is_count(k, 1):
            raise ConfigurationError(f"k is a whole number from 1, not {k!r}.")
        if not is_share(beta):
            raise ConfigurationError(f"beta is a share from 0 to 1, not {beta!r}.")
        specs = tools if tools is None or _are_specs(tools) else read_tools(tools)  # type: ignore[arg-type]
        known, user = known_given(slots), self.core.users.of(user_id)
        self.begin()
        if settle:
            self.core.jobs.settle(timeout=SETTLE)
        if self.core.vectors.empty:
            return []
        return self.keeping.search(user, state, goals, known, k=k, beta=beta, tools=specs, plain=plain)

    def all(self, *, user_id: str | None = None) -> list[Atom]:
        """All atoms that were kept and whose runs went well, those of most visits first.

        Those that mislead are among them (`records`), though `search` finds them no longer.

        Args:
            user_id: whose atoms.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: the atoms cannot be read.
        """
        user = self.core.users.of(user_id)
        if self.core.vectors.empty:
            return []
        stored = self.keeping.rows.all(user, retired=True)
        found = [each.atom for each in stored if each.atom is not None]
        return sorted(found, key=lambda atom: (-atom.visits, atom.tool, atom.id))

    def records(self, ids: Iterable[str], *, user_id: str | None = None) -> dict[str, AtomRecord]:
        """Return how often the hints of atoms (by id) were retrieved, followed, and followed to success or failure.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: the atoms cannot be read.
        """
        from langgraph_toolmem.atoms.rows import record_of

        user, names, rows = self.core.users.of(user_id), list(ids), self.keeping.rows
        tracks = self.core.ledger.tracks(self.name, [rows.key(key, user) for key in names])
        return {key: record_of(track) for key, track in zip(names, tracks, strict=True)}

    def keep(self, atoms: Iterable[Atom], *, user_id: str | None = None) -> int:
        """Keeps atoms that come from elsewhere, such as those of a `Discovery`, beside those of runs.

        Atoms with the same sources and the same origin take the place of what was handed over before, so that a
        search can hand over all it has again and again.

        Args:
            atoms: see `langgraph_toolmem.atoms.atoms.make_atom`.
            user_id: whose they are.

        Returns:
            How many different atoms they are.

        Raises:
            ConfigurationError: one of them is no atom, or cannot be stored (arguments are JSON values).
            NamespaceError: the namespace needs a user id.
            StorageError: they could not be stored, or the memory is read-only.
        """
        from langgraph_toolmem.atoms.atoms import merge_all
        from langgraph_toolmem.atoms.support import Support

        given, user, now = _atoms_of(atoms), self.core.users.of(user_id), self.core.now()
        self.core.refuse_if_read_only()
        self.begin()
        if not given:
            return 0
        made = merge_all(given)
        self.keeping.store(user, [Support(each, "", user.digest or "", each.value, now) for each in made])
        return len(made)

    asearch, arecords, akeep = async_variant(search), async_variant(records), async_variant(keep)
    aall = async_variant(all)  # noqa: A003 - the method above

    # --- what happens ---

    def begin(self) -> None:
        """Atoms are asked for: from now on they are kept, unless that was refused."""
        if self._keeps is None:
            self._keeps = True

    def note_shown(self, run: Run, hits: Iterable[AtomHit], user_id: str | None) -> None:
        """The model gets to see these atoms before its next turn."""
        if run.next_key is not None and not self.core.read_only:
            ledger, rows, user = self.core.ledger, self.keeping.rows, self.core.users.of(user_id)
            self.core.know(run)
            before = ledger.items(run.next_key, self.name).values()
            items = {hit.tool: rows.key(hit.atom.id, user) for hit in hits if hit.tool not in before}
            shown: dict[str, str | None] = {key: tool for tool, key in items.items()}
            ledger.shown(self.name, shown, run=run.digest, turn=run.next_key, user_id=user_id)

    def ended(self, ended: EndedRun) -> None:
        """A run is over: its atoms are put into the queue, unless it went wrong."""
        core, run, score = self.core, ended.run.digest, ended.score
        there = core.has_seen(_key(run))
        if core.read_only or not (there or self._keeps):
            return
        user = core.owner_of(run, ended.user.digest)
        if not self._keeps or (score is not None and score < GOOD):  # what it has is judged, nothing is added
            if there and score is not None:
                self.keeping.put_verdict(run, score, user, ended.user.namespace)
        elif self.keeping.put_run(ended, user):
            core.count_once(_key(run), "atoms_runs")

    def judged(self, judged: JudgedRun) -> None:
        """A verdict that comes when the run may have its atoms already."""
        core, run = self.core, judged.run
        if core.read_only or not core.has_seen(_key(run)):
            return
        namespace = core.namespace_of(run, judged.user_id)
        if namespace is not None:
            user = core.owner_of(run, user_digest(judged.user_id or None))
            self.keeping.put_verdict(run, judged.score, user, namespace)

    def imported(self, given: Import) -> int:
        """Atoms of recorded runs that did not go wrong; how many steps of good ones they stand for.

        Those without a verdict wait for it; no model is asked to word them.

        Options: ``habits``: what never varies; ``writer``: words them with a chat model, here and now.
        """
        self.core.refuse_if_read_only()
        steps = 0
        habits, writer = given.options.get("habits"), given.options.get("writer")
        for _, runs in given.by_namespace():
            teaching = [each for each in runs if each.score is None or each.score >= GOOD]
            names, more = self.keeping.import_runs(teaching, habits, writer)
            steps += more
            for name in names:
                self.core.count_once(_key(name), "atoms_runs")
        return steps

    # --- keeping ---

    @property
    def keeping(self) -> AtomKeeping:
        """The atoms, and the work of keeping them; made when it is first used."""
        with self.core.lock:
            if self._keeping is None:
                self.core.refuse_if_closed()
                from langgraph_toolmem.atoms.keeping import AtomKeeping  # only when atoms are used

                self._keeping = AtomKeeping(self.core, self._writer)
            return self._keeping

    def forget(self, user: User, gone: Forgotten) -> int:
        """Removes a user's atoms, or what runs support."""
        if self.core.vectors.empty:
            return 0
        from langgraph_toolmem.atoms.situation import sparse

        removed = self.keeping.rows.forget(user, gone)
        self.keeping.search.forget(user)
        sparse.cache_clear()
        return removed

    def report(self) -> Section | None:
        """Return how many atoms were made, and how runs ended that followed one."""
        made, sums = self.core.counter("atoms"), self.core.ledger.figures(self.name)
        if not made and not sums["shown"]:
            return None
        figures = {"made": made, "learned": self.core.counter("atoms_runs"), **sums}
        words = f"Atoms made of what went well: {made:,}; followed in {sums['runs']:,} runs{outcome_in_words(sums)}."
        return Section("Atoms", figures, (*shown_in_words("Atoms", sums), words))


def _key(run: str) -> str:
    """The key that says that a run has its atoms."""
    return digest("atoms", run)


def _writer(model: BaseChatModel | str) -> AtomWriter:
    from langgraph_toolmem.atoms.writer import AtomWriter

    return AtomWriter(model)


def _atoms_of(given: object) -> list[Atom]:
    from langgraph_toolmem.atoms.atoms import Atom
    from langgraph_toolmem.atoms.support import storable

    if not isinstance(given, Iterable):
        raise ConfigurationError(f"keep takes atoms, not {type(given).__name__}.")
    found: list[Atom] = []
    for each in given:
        if not isinstance(each, Atom):
            raise ConfigurationError(f"keep takes atoms, not {type(each).__name__}.")
        try:
            found.append(storable(each))
        except InputError as error:
            raise ConfigurationError(f"Atom {len(found) + 1} cannot be kept. {error}") from error
    return found


def _are_specs(tools: object) -> TypeGuard[Mapping[str, ToolSpec]]:
    return isinstance(tools, Mapping) and all(isinstance(each, ToolSpec) for each in tools.values())
