"""Entries: past runs with their feedback and a critique, recalled for requests like them (arXiv 2606.07909).

Each finished run is an *entry*: the request, the calls, the feedback, and, if it went wrong, a *critique*. At the next
request the entries that are probably relevant are recalled, often none. Bad feedback on several similar requests that
called a tool is a *preference* against the tool, and the model may be offered the other tools only.

==================  ==========================================================
``Entries``         this method: it keeps finished runs and recalls them; entries and critiques are written in the
                    background
``entry``           an entry, made of a run, as a row, as text for the prompt; its critique by a chat model
``recall``          past runs for a request: Chroma's nearest, weighed
``preferences``     the tools that a user likes and avoids
``steps``           recall, preference guiding, reflection at a model call
``langmem``         the same entries as a LangGraph `BaseStore`
==================  ==========================================================
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from langgraph_toolmem.base.checks import checks_options, expect, is_positive_count, is_share, policy_given
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import digest, shortened
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.core.jobs import Job, NotYetError
from langgraph_toolmem.core.method import KEEP_RUNS, EndedRun, Import, JudgedRun, Method, Section, outcome_in_words
from langgraph_toolmem.core.users import NOBODY, Owner, User, by_namespace, user_digest
from langgraph_toolmem.entries.entry import (
    ENTRY_LIMITS,
    JUDGED_PART,
    Critic,
    Critique,
    Entry,
    EntryKind,
    EntryRows,
    entry_id,
    entry_of,
    request_of,
    resolve_critic,
)
from langgraph_toolmem.entries.preferences import Preference, preferences
from langgraph_toolmem.runs.tools import side_effects
from langgraph_toolmem.text.embedders import clean

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.core.method import PastRuns
    from langgraph_toolmem.entries.recall import EntrySearch, RecalledEntry
    from langgraph_toolmem.graph.events import Forgotten
    from langgraph_toolmem.runs.tools import ToolSpec

logger = logging.getLogger("langgraph_toolmem.entries")


@dataclass(frozen=True, slots=True)
class EntriesJobs:
    """Names and patience of the background work.

    Attributes:
        write, judge, critique: kinds of jobs: an entry, feedback on it, a critique.
        judge_tries: feedback on a run that has no entry waits for it so often: about two minutes.
        settle_seconds: how long `recall` waits for entries that are being written.
    """

    write: str = "write"
    judge: str = "judge"
    critique: str = "critique"
    judge_tries: int = 8
    settle_seconds: float = 10.0


ENTRIES_JOBS: Final = EntriesJobs()


@checks_options
@dataclass(frozen=True)
class RecallPolicy:
    """Settings of the number of recalled runs.

    Attributes:
        least: the least probability of being relevant.
        max_n: the most runs.
    """

    least: float = 0.5
    max_n: int = 10

    def __post_init__(self) -> None:
        expect(self, "least", "a probability from 0 to 1", is_share)
        expect(self, "max_n", "a whole number from 1", is_positive_count)


class Entries(Method):
    """The method that keeps finished runs as entries, and recalls them.

    Args:
        policy: limits the recalled runs.
        critic: writes critiques of failed runs, in the background: a chat model, ``"provider:model"`` or a `Critic`.
        share_comments: If True, all users of the namespace see the comments of feedback. If False, only its user sees a
            comment, or a critique that was made from it. Without user ids comments are not shown.

    Raises:
        ConfigurationError: an argument is invalid.
    """

    name: ClassVar[str] = "entries"
    package: ClassVar[tuple[str, str] | None] = ("chromadb", "memory")

    def __init__(
        self,
        policy: RecallPolicy | None = None,
        *,
        critic: BaseChatModel | Critic | str | None = None,
        share_comments: bool = False,
    ) -> None:
        if not isinstance(share_comments, bool):
            raise ConfigurationError(f"`share_comments` must be True or False, got {share_comments!r}.")
        self.share_comments = share_comments
        self.policy = policy_given(policy, RecallPolicy) or RecallPolicy()
        self._critic: Critic | None = None
        if critic is not None:
            self._critic = resolve_critic(critic, self._known_tools)
        self._search: EntrySearch | None = None
        self._asked = 0

    def open(self, core: Core) -> None:
        super().open(core)
        self.rows: EntryRows = core.rows(EntryKind())
        core.jobs.handle(ENTRIES_JOBS.write, self._write, undo=self._unwrite)
        core.jobs.handle(ENTRIES_JOBS.judge, self._judge)
        if self._critic is not None:
            core.jobs.handle(ENTRIES_JOBS.critique, self._take_critiques, find=self._criticise, undo=self._unwrite)
        core.past_runs = self.past_runs

    def _known_tools(self) -> Mapping[str, ToolSpec]:
        return self.core.catalogue.specs

    # --- asking ---

    def recall(self, query: str, *, user_id: str | None = None, policy: RecallPolicy | None = None) -> list[Entry]:
        """Return the past runs that are probably relevant to a request; often none.

        Runs with feedback come first (`Entry.good`, `Entry.failed`), each kind the most relevant first. Runs that this
        process has finished are found: the call waits up to 10 seconds until they are written.

        Args:
            query: the user's words.
            user_id: the owner of the runs.
            policy: limits the runs. Defaults to the method's own.

        Raises:
            ConfigurationError: an argument is invalid.
            NamespaceError: the namespace needs a user id.
            StorageError: the entries cannot be read.
        """
        return [recalled.entry for recalled in self.ranked(query, user_id=user_id, policy=policy)]

    def ranked(
        self, query: str, *, user_id: str | None = None, policy: RecallPolicy | None = None
    ) -> list[RecalledEntry]:
        """Return the same as `recall`, with probabilities, reasons, and the equivalent runs.

        Raises:
            ConfigurationError, NamespaceError, StorageError: as for `recall`.
        """
        if not isinstance(query, str):
            raise ConfigurationError(f"`query` must be the user's words, got {type(query).__name__}.")
        chosen, user = policy_given(policy, RecallPolicy) or self.policy, self.core.users.of(user_id)
        self.core.jobs.settle(timeout=ENTRIES_JOBS.settle_seconds)
        # An empty memory opens no Chroma: its import and its files are for memories that keep something.
        if self.core.vectors.empty:
            return []
        return self.search(query, user, chosen)

    def preferences(
        self,
        query: Any,
        *,
        user_id: str | None = None,
        settle: bool = True,
    ) -> list[Preference]:
        """Return the tools that a user likes and avoids for requests like this one, each by at least two ratings.

        Args:
            query: the user's words, or the messages of a run.
            user_id: the user who rated. In a namespace without users, None counts the ratings of all.
            settle: If True, wait up to 10 seconds until the runs that this process has finished are written.

        Raises:
            MessageError: the messages cannot be read.
            NamespaceError: the namespace needs a user id.
            StorageError: the entries cannot be read.
        """
        text = query
        if not isinstance(query, str):
            text = request_of(self.core.read(query))
        user = self.core.users.of(user_id)
        if settle:
            self.core.jobs.settle(timeout=ENTRIES_JOBS.settle_seconds)
        if self.core.vectors.empty:
            return []
        most_rated = 50
        rated: list[Entry] = []
        # The same request rated twice is two ratings, so the others of each group count too.
        for recalled in self.search(text, user, replace(self.policy, max_n=most_rated), parts=(JUDGED_PART,)):
            rated += [recalled.entry, *recalled.others]
        return preferences(rated, user=user.digest)

    def recollect(
        self,
        messages: Any,
        owner: Owner = NOBODY,
        *,
        policy: RecallPolicy | None = None,
    ) -> list[RecalledEntry]:
        """Return the past runs to show to the model now, one of each group of equivalent runs.

        Comments of other users are left out, unless comments are shared.

        Args:
            messages: the history so far; its latest episode has the request.
            owner: the thread, whose own episodes are not recalled, and the user, whose runs are.
            policy: limits the runs. Defaults to the method's own.

        Raises:
            MessageError, NamespaceError, StorageError: as for `preferences`.
        """
        from langgraph_toolmem.entries.recall import grouped

        run, user = self.core.read(messages, owner.thread_id), self.core.users.of(owner.user_id)
        self.core.jobs.poll()
        query = request_of(run)
        self._asked += 1
        if not query or self.core.vectors.empty:
            return []
        # The model sees its own episodes anyway; those too that were trimmed away are no past runs for it.
        own = {run.digest}
        for event in run.events:
            own.add(event.episode)
        if owner.thread_id is not None:
            own |= self.core.episodes.runs(owner.thread_id)
        recalled_runs = []
        for recalled in grouped(self.search(query, user, policy or self.policy, exclude=own, own=True)):
            recalled_runs.append(replace(recalled, entry=self._without_comment(recalled.entry)))
        return recalled_runs

    def note_shown(self, messages: Any, recalled_runs: Iterable[RecalledEntry], owner: Owner) -> None:
        """Record that the model sees these runs in the present one."""
        run, user = self.core.read(messages, owner.thread_id), self.core.users.of(owner.user_id)
        self.core.know(run)
        items: dict[str, str | None] = {}
        for recalled in recalled_runs:
            # The runs that one line stands for share its record: any of them may stand for the group next time.
            for entry in (recalled.entry, *recalled.others):
                items[self.rows.key(entry.id, user)] = None
        if items:
            self.core.ledger.shown(self.name, items, run=run.digest, user_id=owner.user_id)

    def reads(self, tools: Mapping[str, ToolSpec] | None = None) -> frozenset[str]:
        """Return the tools that are declared to only read, given those of the present request."""
        marked = dict(self.core.catalogue.marked())
        if tools is not None:
            marked |= self.core.catalogue.marked(tools)
        reads = set()
        for name, spec in marked.items():
            if side_effects(spec) == "reads":
                reads.add(name)
        return frozenset(reads)

    def _without_comment(self, entry: Entry) -> Entry:
        """Return an entry without its comment, unless those who see the entry may read it."""
        mine = bool(entry.user) or self.core.users.apart  # entries of other named users are never shown
        by_program = entry.score is None  # "the run ended with TimeoutError"
        if mine or by_program or self.share_comments:
            return entry
        return replace(entry, comment="")

    def problems(self) -> list[str]:
        """Return a sentence if recall finds nothing because runs are never kept."""
        many = 20  # with fewer requests a memory may just be new
        if self._asked < many or self.core.read_only or self.core.counter("entries"):
            return []
        return [f"Recall was asked for {self._asked:,} requests and has nothing to show. {KEEP_RUNS}"]

    arecall, apreferences = async_variant(recall), async_variant(preferences)

    # --- hooks of the method ---

    def ended(self, ended: EndedRun) -> None:
        """Put a run as it is now into the queue; it is on disk when this returns."""
        if self.core.read_only:
            return
        entry = self._entry_of(ended)
        if entry is not None:
            self.put(entry, ended.user)

    def put(self, entry: Entry, user: User) -> None:
        """Put an entry into the queue; it is on disk when this returns."""
        self._queue(ENTRIES_JOBS.write, {"entry": entry.to_dict()}, entry.run, entry.user, user.namespace)
        self.core.count_once(entry.id, "entries")

    def judged(self, judged: JudgedRun) -> None:
        """Put feedback on a run that has its entry already into the queue."""
        core, run = self.core, judged.run
        if core.read_only or not core.has_seen(entry_id(run)):
            return
        # Written under a guessed namespace, feedback could end up with another user.
        namespace = core.namespace_of(run, judged.user_id)
        if namespace is None:
            logger.debug("feedback is on a run of a user who is not named, and was finished elsewhere")
            return
        user = core.owner_of(run, user_digest(judged.user_id or None))
        feedback = {"score": judged.score, "comment": judged.comment or ""}
        self._queue(ENTRIES_JOBS.judge, feedback, run, user, namespace)

    def imported(self, given: Import) -> int:
        """Store entries of recorded runs, and return their number. A run without a request has no entry."""
        kept = 0
        for user, runs in by_namespace(given.runs, attrgetter("user.namespace")):
            entries = []
            for ended in runs:
                entry = self._entry_of(ended)
                if entry is not None:
                    entries.append(entry)
            stored = self._keep(entries, user)
            # Later feedback names a run only: the queue knows where its entry is.
            self.core.jobs.queue.note_namespaces([(entry.run, entry.user, user.namespace) for entry in stored])
            kept += len(stored)
        return kept

    # --- keeping ---

    def _entry_of(self, ended: EndedRun) -> Entry | None:
        core, run = self.core, ended.run
        # A later report may lack the user: `forget` finds the entry by the user that was named before.
        owner = core.owner_of(run.digest, ended.user.digest) or None
        return entry_of(
            run, run_digest=run.digest, now=core.now(), user=owner, score=ended.score, comment=ended.comment
        )

    def _queue(self, kind: str, payload: dict[str, Any], run: str, user: str, namespace: tuple[str, ...]) -> None:
        # Jobs of one key are done in the order in which they came: an entry before the feedback on it.
        order = digest(*namespace, run)
        self.core.jobs.put(kind, payload, run=run, user=user, namespace=namespace, ordering_key=order)

    def _keep(self, entries: Iterable[Entry], user: User) -> list[Entry]:
        """Store entries, and queue critiques of failed ones. Return the stored entries that belong to the user."""
        kept = []
        for entry in self.rows.put(entries, user):
            if entry is None:
                continue
            kept.append(entry)
            # Again, as in `put`: the process may have ended between the queue and the counter.
            self.core.count_once(entry.id, "entries")
            self._ask_for_critique(entry, user.namespace)
        return kept

    def _write(self, jobs: Sequence[Job]) -> None:
        for user, same_namespace in by_namespace(jobs, attrgetter("namespace")):
            self._keep([Entry.from_dict(job.payload["entry"]) for job in same_namespace], user)

    def _unwrite(self, job: Job) -> None:
        """Remove the entry of a job whose user was forgotten meanwhile."""
        self.rows.forget_of(job.run, job.owner)

    def _judge(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            user = job.owner
            with_feedback = partial(
                Entry.with_feedback,
                score=job.payload["score"],
                comment=job.payload["comment"],
                user=user.digest or "",
            )
            kept = self.rows.change([entry_id(job.run)], with_feedback, user)
            # The entry may be in the queue of another process.
            if not kept:
                raise NotYetError("no entry of that run", tries=ENTRIES_JOBS.judge_tries)
            self._ask_for_critique(kept[0], user.namespace)

    def _criticise(self, job: Job) -> str:
        """Return the critic's answer as JSON; "" if there is nothing to criticise any more."""
        user = job.owner
        known = self.rows.get([job.payload["entry"]], user)
        if self._critic is None or not known:
            return ""
        entry = known[0]
        # Feedback changed since the job was queued: a critique of the old feedback is not worth a model call.
        if not entry.wants_critique or entry.feedback_key != job.payload["feedback"]:
            return ""
        most_similar = 3  # runs with feedback that the critic reads with this one
        similar = []
        for row in self.rows.near(entry.query, user, k=most_similar + 1, part=JUDGED_PART):
            if row.id != entry.id:
                similar.append(self._without_comment(row.item))
        # All users may see the critique, so the critic reads only comments that all may read.
        critique = self._critic(self._without_comment(entry), similar[:most_similar])
        return critique.model_dump_json()

    def _take_critiques(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._take_critique(job)

    def _take_critique(self, job: Job) -> None:
        """Store a critique in its entry, unless the entry is gone or has other feedback now."""
        if not job.answer:
            return
        critique = Critique.model_validate_json(job.answer)
        feedback = job.payload["feedback"]

        def with_critique(entry: Entry) -> Entry:
            # The model took its time: the user may have said something else meanwhile.
            if not entry.failed or entry.feedback_key != feedback:
                return entry
            text = shortened(clean(critique.text(entry)), ENTRY_LIMITS.critique)
            return replace(entry, critique=text, blamed=clean(critique.blamed(entry)))

        self.rows.change([job.payload["entry"]], with_critique, job.owner)

    def _ask_for_critique(self, entry: Entry, namespace: tuple[str, ...]) -> None:
        if self._critic is None or not entry.wants_critique:
            return
        # The key makes one job of each feedback, however often the entry is stored. No order: entries and feedback
        # must not wait for a critic that hangs.
        self.core.jobs.put(
            ENTRIES_JOBS.critique,
            {"entry": entry.id, "feedback": entry.feedback_key},
            run=entry.run,
            user=entry.user,
            namespace=namespace,
            key=digest(ENTRIES_JOBS.critique, *namespace, entry.id, entry.feedback_key),
            ordering_key="",
        )

    @property
    def search(self) -> EntrySearch:
        """The search for past runs; made when it is first used."""
        # Under the memory's lock: two threads must not make two searches, which learn weights of words each.
        with self.core.lock:
            if self._search is None:
                from langgraph_toolmem.entries.recall import EntrySearch  # numpy: only when entries are used

                self._search = EntrySearch(self.rows)
                self.core.texts.register(self._search.forget)
            return self._search

    def past_runs(self, user: User) -> PastRuns | None:
        """Return the finished runs of a user, for other methods."""
        from langgraph_toolmem.entries.recall import EntryRuns

        if self.core.vectors.empty:
            return None
        return EntryRuns(self.rows, user)

    def forget(self, user: User, gone: Forgotten) -> int:
        if self.core.vectors.empty:
            return 0
        return self.rows.forget(user, gone)

    def report(self) -> Section | None:
        """Return the number of kept runs, and the outcomes of the runs to which some were shown."""
        kept, shown = self.core.counter("entries"), self.core.ledger.figures(self.name)
        if not kept:
            return None
        figures = {"kept": kept, "runs": shown["runs"], "helped": shown["helped"], "hurt": shown["hurt"]}
        words = f"Past runs kept for recall: {kept:,}; shown in {shown['runs']:,} runs{outcome_in_words(shown)}."
        return Section("Past runs", figures, (words,))
