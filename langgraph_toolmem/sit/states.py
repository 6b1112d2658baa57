"""States of runs in words: kept in the evidence graph until their run has a verdict, then stored in Chroma."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.jobs import Job, by_namespace
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.events import GOOD, Count, Record
from langgraph_toolmem.graph.state import START
from langgraph_toolmem.runs.run import Run, Turn
from langgraph_toolmem.sit.evidence import Draft, DraftsTaken, SITEvidence
from langgraph_toolmem.sit.extract import extractive_summary
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.transitions import Transition, just_asked, transitions
from langgraph_toolmem.text.embedders import clean
from langgraph_toolmem.text.tools import ToolIndex

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.runs.tools import ToolSpec
    from langgraph_toolmem.sit.rows import Summaries, SummaryRows
    from langgraph_toolmem.sit.summary import NewSummary

SETTLE: Final = "summaries"
"""Kind of jobs: summaries of a run are stored, or taken away."""
MAX_DRAFT: Final = 4_000
"""Characters of a summary that are kept."""
MAX_WRITTEN: Final = 4_096
"""Summaries whose turn has not come yet, in RAM."""
MAX_USERS: Final = 10_000
"""Namespaces of which is remembered that what waited was stored; beyond that all are looked at once more."""

Write = Callable[[Run], "str | None"]
"""Puts the state after a history into words; None or "": it has none."""


class WaitingStates:
    """Keeps the summaries of successful runs. Chroma failing stops nobody: what could not be stored waits.

    Args:
        core: of the memory.
        evidence: where they wait.
        policy: of the method.
        remembers: states are put into words from the beginning.
        used: somebody asks for suggestions. Until then runs that nobody judged wait where they are: who uses only the
            shortcut has no Chroma.
    """

    def __init__(self, core: Core, evidence: SITEvidence, policy: SITPolicy, *, remembers: bool, used: bool) -> None:
        self._core, self._evidence = core, evidence
        self.policy, self.remembers = policy, remembers
        self.used = used
        self._taken_up: set[tuple[str, ...]] = set()
        self._rows: SummaryRows | None = None
        self._written: dict[str, str] = {}
        self._queued: set[str] = set()  # runs with a job that has not begun
        self._index: tuple[Mapping[str, ToolSpec], ToolIndex] | None = None

    def tool_index(self, specs: Mapping[str, ToolSpec]) -> ToolIndex:
        """Tools by the words of their descriptions."""
        if self._index is None or self._index[0] != specs:
            index = ToolIndex()
            index.declare(specs)
            self._index = dict(specs), index
        return self._index[1]

    # --- written down ---

    def learned(self, learned: LearnedTurn, source: str, *, extract: bool) -> Record:
        """The state before a turn in words, to be kept if the run turns out well.

        Args:
            learned: the turn.
            source: the tool before.
            extract: put it into words where no model did.
        """
        state, turn, user = learned.state, learned.turn, learned.user
        written = self._written.pop(turn.key, None)
        if not turn.summary and not written and not extract:
            return []
        if user is None and self._core.users.apart:
            return []  # nobody's: it could only end up with somebody else
        text = (turn.summary or written or extractive_summary(state))[:MAX_DRAFT]
        place = START if just_asked(state) and self.policy.kind != "paper" else source
        made_by = "tool" if turn.summary else "model" if written else "extractive"
        targets = [step for step in turn.steps if step.status == "ok" and text]
        return [Draft(learned.run, step.key, place, step.tool, text, made_by, user) for step in targets]

    def drop_written(self, turn: str) -> None:
        """A turn came that takes no summary."""
        self._written.pop(turn, None)

    def note_written(self, turn: str, summary: str | None) -> None:
        """A summary that the agent's model wrote outside its history goes with the turn that comes."""
        if summary is not None and (text := summary.strip()):
            with self._core.lock:
                self._written[turn] = text
                if len(self._written) > MAX_WRITTEN:
                    del self._written[next(iter(self._written))]

    # --- stored ---

    def unsettled(self, runs: Iterable[str]) -> list[str]:
        """Return the runs with summaries that wait and that no job is under way for."""
        with self._core.lock:
            self._queued &= self._evidence.drafts.keys()
            return [run for run in runs if run in self._evidence.drafts and run not in self._queued]

    def settle(self, run: str, user: User, *, anew: bool = True) -> None:
        """Has the summaries of a run put where its verdict says, in the background: with the others, or away.

        What a user's namespace holds waits until that user is named.

        Args:
            run: its digest.
            user: whose run it is.
            anew: the verdict may be another one than when its summaries were stored.
        """
        core = self._core
        if core.read_only:
            return
        with core.lock:
            judged = core.score_of(run) is not None
            waits = (judged or (self.used and self.policy.unlabelled > 0)) and bool(self._mine(run, user))
            if not waits and not (anew and judged and core.graph.has_seen(stored_key(run))):
                return
            self._queued.add(run)
        try:
            core.jobs.put(SETTLE, {}, run=run, user=user.digest or "", namespace=user.namespace)
        except StorageError:
            self._queued.discard(run)
            raise

    def take_up(self, user: User) -> None:
        """Has what is over and nobody judged stored in the background, once a user's suggestions are asked for."""
        core = self._core
        if core.read_only or user.namespace in self._taken_up:
            return
        self.used = True
        if len(self._taken_up) >= MAX_USERS:
            self._taken_up.clear()
        self._taken_up.add(user.namespace)
        with core.lock:
            over = core.episodes.over_now() if self.policy.unlabelled > 0 and self._evidence.drafts else frozenset()
            runs = [run for run in self._evidence.drafts if run in over and self._mine(run, user)]
        if runs:
            where: dict[str, Any] = {"run": runs[0], "user": user.digest or "", "namespace": user.namespace}
            core.log_and_continue("states could not be stored", lambda: core.jobs.put(SETTLE, {"also": runs}, **where))

    def do(self, jobs: Sequence[Job]) -> None:
        """Store the summaries of runs, and what was left of others in their namespaces, all of a namespace at once."""
        for anybody, some in by_namespace(jobs):
            user = _user(some[0]) if self._core.users.apart else anybody
            runs = [run for job in some for run in _runs(job)]
            with self._core.lock:
                self._queued.difference_update(runs)
            self.keep([*runs, *self._left(user)], user, unlabelled=self.policy.unlabelled > 0)

    def undo(self, job: Job) -> None:
        """Take away the summaries of a job whose user was forgotten meanwhile."""
        user = _user(job)
        for owner in filter(None, (*_runs(job), user.digest)):
            self.rows.forget_of(owner, user)

    def _left(self, user: User) -> list[str]:
        """Judged runs whose summaries wait: their job was another process's, or their verdict came from nobody."""
        core = self._core
        with core.lock:
            return [run for run in self._evidence.drafts if core.score_of(run) is not None and self._mine(run, user)]

    def _mine(self, run: str, user: User) -> dict[str, list[str]]:
        """The summaries of a run that wait and belong where a user's are kept."""
        drafts = self._evidence.drafts.get(run, {})
        if not self._core.users.apart:
            return dict(drafts)
        return {step: draft for step, draft in drafts.items() if draft[-1] == user.digest}

    def _add(self, new: Sequence[NewSummary], user: User) -> int:
        from langgraph_toolmem.sit.rows import add

        core = self._core
        how: dict[str, Any] = {"now": core.now(), "merge_above": self.policy.merge_above}
        stand = add(self.rows, new, user, **how, builtin=core.vectors.embedder.builtin)
        return sum(each is not None for each in stand)

    def keep(self, runs: Iterable[str], user: User, *, unlabelled: bool = False) -> int:
        """Stores the summaries that wait with these runs, if their verdict is good, in one go; else takes them away.

        Args:
            runs: digests.
            user: whose runs they are.
            unlabelled: those of runs without a verdict too, whatever the policy says.

        Raises:
            StorageError: they could not be stored; they go on waiting.
        """
        core, names = self._core, list(dict.fromkeys(runs))

        def good(run: str) -> bool | None:
            score = core.score_of(run)
            return unlabelled or None if score is None else score >= GOOD

        with core.lock:
            before, verdicts = core.forgettings, {run: found for run in names if (found := good(run)) is not None}
            drafts = {run: self._mine(run, user) for run in verdicts}
            stored = [run for run in verdicts if core.graph.has_seen(stored_key(run))]
            new = _summaries({run: drafts[run] for run, found in verdicts.items() if found})
            for run in dict.fromkeys(each.run for each in new):
                core.apply(stored_key(run), [])  # first: whatever happens then, they are looked for
        kept = self._add(new, user) if new else 0
        for run in stored:
            if not verdicts[run] and not core.vectors.empty:
                self.rows.forget_of(run, user)
        with core.lock:
            changed = [run for run in verdicts if before != core.forgettings or good(run) != verdicts[run]]
            if not changed:
                gone = [DraftsTaken(run, list(mine)) for run, mine in drafts.items() if mine]
                core.apply(None, [*gone, *([Count("summaries", kept)] if kept else [])])
                return kept
        for run in changed:  # forgotten or judged anew in between: from the beginning, with what is left
            self.rows.forget_of(run, user)
        return self.keep(names, user, unlabelled=unlabelled)

    # --- written afterwards ---

    def unwritten(self, run: Run, user: User) -> int:
        """How many states of a run nobody has put into words: as often `write_states` asks its writer.

        Raises:
            StorageError: the summaries that are there cannot be read.
        """
        turns = _turns(run)
        return len({turns[each.key] for each in self._unwritten(run, transitions(run), user)})

    def write_states(self, run: Run, user: User, *, write: Write | None = None) -> int:
        """Puts the states of a run into words, where neither the agent nor anybody else did. They wait with the run.

        Args:
            run: as read.
            user: whose run it is.
            write: writes a state, given the history up to it; the built-in extract of the history if None. What it
                raises is raised; states that were written before that are kept.

        Returns:
            How many states were put into words.

        Raises:
            StorageError: the summaries that are there cannot be read.
        """
        found = transitions(run, summarise=extractive_summary if write is None else None)
        new = self._unwritten(run, found, user)
        turns, written = _turns(run), dict[int, str]()
        for each in new:
            turn = turns[each.key]
            if turn not in written:
                text = each.summary if write is None else write(_history(run, turn))
                written[turn] = (text or "").strip()
            made_by = "extractive" if write is None else "model"
            self._draft(run, each, written[turn][:MAX_DRAFT], made_by, user)
        return sum(bool(text) for text in written.values())

    def _unwritten(self, run: Run, found: Iterable[Transition], user: User) -> list[Transition]:
        """Those whose state nobody has put into words: not the agent, not an import, not the memory as it looked on."""
        core = self._core
        with core.lock:
            drafts = self._evidence.drafts.get(run.digest, {})
            new = [
                each
                for each in found
                if each.made_by != "tool" and each.key not in drafts and not core.graph.has_seen(_written_key(each))
            ]
        if core.vectors.empty:
            return new
        from langgraph_toolmem.sit.rows import standing
        from langgraph_toolmem.sit.summary import NewSummary

        ids = [NewSummary(clean(each.place), clean(each.target), "", each.key).id for each in new]
        stand = standing(self.rows, ids, user)
        return [each for each, key in zip(new, ids, strict=True) if key not in stand]

    def _draft(self, run: Run, made: Transition, text: str, made_by: str, user: User) -> None:
        record: Record = []
        if text:
            place = made.source if self.policy.kind == "paper" else made.place
            record = [Draft(run.digest, made.key, place, made.target, text, made_by, user.digest)]
        with self._core.lock:
            self._core.apply(_written_key(made), record, user=user.digest, run=run.digest)

    @property
    def rows(self) -> SummaryRows:
        """The summaries of all users; made when they are first used (numpy)."""
        with self._core.lock:
            if self._rows is None:
                from langgraph_toolmem.sit.rows import SummaryKind

                self._rows = self._core.rows(SummaryKind(), "sit")
            return self._rows

    def of(self, user: User) -> Summaries:
        """The summaries that a user may see, as a suggestion reads them."""
        from langgraph_toolmem.sit.rows import Summaries

        return Summaries(self.rows, user, builtin=self._core.vectors.embedder.builtin)

    def forget_written(self) -> None:
        """A user was forgotten: what was written outside of histories goes, whosever it is."""
        self._written.clear()


def _runs(job: Job) -> list[str]:
    return [job.run, *job.payload.get("also", ())]


def _user(job: Job) -> User:
    return User(None, job.user or None, job.namespace)


def stored_key(run: str) -> str:
    """The key that says that summaries of a run were stored once."""
    return digest("stored", run)


def _written_key(transition: Transition) -> str:
    """The key that says that the state before a call was put into words once."""
    return digest("written", transition.key)


def _summaries(drafts: Mapping[str, Mapping[str, list[str]]]) -> list[NewSummary]:
    from langgraph_toolmem.sit.summary import NewSummary

    return [
        NewSummary(place, target, text, key=step, run=run, user=owner or None, made_by=made_by)
        for run, steps in drafts.items()
        for step, (place, target, text, made_by, owner) in steps.items()
    ]


def _turns(run: Run) -> dict[str, int]:
    """Where the turns of calls are among the events."""
    return {step.key: i for i, event in enumerate(run.events) if isinstance(event, Turn) for step in event.steps}


def _history(run: Run, turn: int) -> Run:
    """The run up to a turn."""
    key = run.events[turn].key
    return replace(run, events=run.events[:turn], next_key=key)
