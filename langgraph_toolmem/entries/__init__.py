"""Entries: past runs with their verdict and a critique, recalled for requests like them (arXiv 2606.07909).

Each finished run is an *entry*: the request, the calls, the verdict, and, if it went wrong, a *critique*. At the next
request **as many entries as are worth it** are recalled, often none. What a user rated badly again and again on
similar requests is a *preference* against a tool, which may be taken out of what the model is offered.

==================  ==========================================================
``Entries``         this method: what is kept, when, and how it is asked for
``entry``           an entry, made of a run
``keeping``         entries in Chroma: written, judged and criticised in the background
``recall``          past runs for a request: Chroma's nearest, weighed by ``ranking``, as many as ``policy`` says
``critique``        what was wrong, by a chat model
``preferences``     what a user likes and avoids, and which tools are left out for it
``render``          entries for the prompt, within a budget
``steps``           recall, preference guiding, reflection at a model call
``langmem``         the same entries as a LangGraph `BaseStore`
==================  ==========================================================
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final

from langgraph_toolmem.base.errors import ConfigurationError, StorageError, describe_error
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.core.ledger import ALL
from langgraph_toolmem.core.method import EndedRun, Import, JudgedRun, Method, Section, outcome_in_words
from langgraph_toolmem.core.users import User, user_digest
from langgraph_toolmem.entries.policy import RecallPolicy, checked
from langgraph_toolmem.runs.tools import side_effects

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.core.method import PastRuns
    from langgraph_toolmem.entries.critique import Critic
    from langgraph_toolmem.entries.entry import Entry
    from langgraph_toolmem.entries.keeping import EntryKeeping, EntryRows
    from langgraph_toolmem.entries.preferences import Preference
    from langgraph_toolmem.entries.recall import EntrySearch, RecalledEntry, Recollection
    from langgraph_toolmem.graph.events import Forgotten

logger = logging.getLogger("langgraph_toolmem.entries")

SETTLE: Final = 10.0  # seconds that `recall` waits for what is being written
RATED: Final = 50  # requests at most whose ratings are preferences


class Entries(Method):
    """Keeps finished runs as entries, recalls them, has failed ones criticised.

    Args:
        policy: how many past runs are worth recalling.
        critic: criticises runs that went wrong, in the background: a chat model, ``"provider:model"`` or a `Critic`.
    """

    name: ClassVar[str] = "entries"
    package: ClassVar[tuple[str, str] | None] = ("chromadb", "memory")

    def __init__(
        self,
        policy: RecallPolicy | None = None,
        *,
        critic: BaseChatModel | Critic | str | None = None,
    ) -> None:
        self.policy = checked(policy) or RecallPolicy()
        self._critic: Critic | None = None
        if critic is not None:
            from langgraph_toolmem.entries.critique import resolve_critic

            self._critic = resolve_critic(critic, lambda: self.core.catalogue.specs)
        self._keeping: EntryKeeping | None = None
        self._search: EntrySearch | None = None

    def open(self, core: Core) -> None:
        """Register the kinds of jobs."""
        super().open(core)
        core.jobs.handle("write", lambda jobs: self.keeping.write(jobs), undo=lambda job: self.keeping.unwrite(job))
        core.jobs.handle("judge", lambda jobs: self.keeping.judge(jobs))
        if self._critic is not None:
            core.jobs.handle(
                "critique",
                lambda jobs: self.keeping.take_critique(jobs[0]),
                find=lambda job: self.keeping.criticise(job),
                undo=lambda job: self.keeping.unwrite(job),
            )
        core.past_runs = self.past_runs

    # --- asking ---

    def recall(self, query: str, *, user_id: str | None = None, policy: RecallPolicy | None = None) -> list[Entry]:
        """Return the past runs that are worth looking at for a request; often none.

        Runs that somebody judged come first, each kind the most relevant first; `Entry.good` and `Entry.failed` tell
        them apart from those that nobody judged. What was finished in this process is found.

        Args:
            query: the user's words.
            user_id: whose runs.
            policy: how many are worth it; the method's own if None.

        Raises:
            ConfigurationError: an argument cannot work.
            NamespaceError: the namespace needs a user id.
            StorageError: the entries cannot be read.
        """
        return [each.entry for each in self.ranked(query, user_id=user_id, policy=policy)]

    def ranked(
        self, query: str, *, user_id: str | None = None, policy: RecallPolicy | None = None
    ) -> list[RecalledEntry]:
        """Return the same as `recall`, with probabilities, reasons, and the runs that say the same."""
        if not isinstance(query, str):
            raise ConfigurationError(f"query is the user's words, not {type(query).__name__}.")
        chosen, user = checked(policy) or self.policy, self.core.users.of(user_id)
        self.core.jobs.settle(timeout=SETTLE)
        return [] if self.core.vectors.empty else self.search(query, user, chosen)

    def preferences(
        self,
        query: Any,
        *,
        user_id: str | None = None,
        policy: RecallPolicy | None = None,
        settle: bool = True,
    ) -> list[Preference]:
        """Return what a user likes and avoids for requests like this one: at least two ratings in the same direction.

        Args:
            query: the user's words, or the messages of a run.
            user_id: whose ratings; None in a namespace shared by all: everybody's.
            policy: which requests are alike; the method's own, with up to 50 runs, if None.
            settle: wait for what was finished in this process and is being written.

        Raises:
            MessageError: the messages cannot be read.
            NamespaceError: the namespace needs a user id.
            StorageError: the entries cannot be read.
        """
        from langgraph_toolmem.entries.entry import request_of
        from langgraph_toolmem.entries.preferences import preferences

        text = query if isinstance(query, str) else request_of(self.core.read(query))
        user = self.core.users.of(user_id)
        if settle:
            self.core.jobs.settle(timeout=SETTLE)
        if self.core.vectors.empty:
            return []
        found = self.search(text, user, checked(policy) or self.policy.with_(max_n=RATED), parts=("judged",))
        rated = [entry for each in found for entry in (each.entry, *each.others)]
        return preferences(rated, user=user.digest)

    def recollect(
        self,
        messages: Any,
        *,
        policy: RecallPolicy | None = None,
        thread_id: str | None = None,
        user_id: str | None = None,
        budget: int = 0,
    ) -> Recollection:
        """Return the past runs to show to the model now, one for each group that says the same.

        Args:
            messages: the history so far; what its latest episode asks for is the request.
            policy, user_id: as for `ranked`.
            thread_id: the thread; its own episodes are not recalled.
            budget: tokens of the prompt: the runs that fit in it are recorded as shown. 0: nobody sees them.
        """
        from langgraph_toolmem.entries.entry import request_of
        from langgraph_toolmem.entries.recall import Recollection, grouped
        from langgraph_toolmem.entries.render import to_lines

        run, user = self.core.read(messages, thread_id), self.core.users.of(user_id)
        self.core.jobs.poll()
        if budget:
            self.core.know(run)
        query = request_of(run)
        if not query or self.core.vectors.empty:
            return Recollection()
        own = {run.digest, *(event.episode for event in run.events)}
        if thread_id is not None:  # those too that were trimmed away
            own |= self.core.episodes.runs(thread_id)
        try:  # nobody reads what another user said
            found = self.search(query, user, checked(policy) or self.policy, exclude=own, own=True)
        except StorageError as error:
            self.core.log_failure_and_continue("entries could not be read", error)
            return Recollection(missing=f"past runs could not be read ({describe_error(error)})")
        recollection = Recollection(tuple(grouped(found)))
        shown = len(to_lines(recollection, self.reads(), budget=budget)) if budget and found else 0
        if seen := recollection.entries[:shown]:
            items = {self.rows.key(entry.id, user): None for each in seen for entry in (each.entry, *each.others)}
            self.core.ledger.shown(self.name, items, run=run.digest, user_id=user_id)
        return recollection

    def reads(self) -> frozenset[str]:
        """Return the tools that are declared to only read."""
        return frozenset(name for name, spec in self.core.catalogue.marked().items() if side_effects(spec) == "reads")

    arecall, apreferences = async_variant(recall), async_variant(preferences)

    # --- what happens ---

    def ended(self, ended: EndedRun) -> None:
        """Put a run as it is now into the queue; it is on disk when this returns."""
        if not self.core.read_only and (entry := self.keeping.entry_of(ended)) is not None:
            self.keeping.put(entry, ended.user)

    def judged(self, judged: JudgedRun) -> None:
        """Add feedback to a run that has its entry already."""
        from langgraph_toolmem.entries.entry import entry_id

        core, run = self.core, judged.run
        if core.read_only or not core.has_seen(entry_id(run)):
            return
        if (namespace := core.namespace_of(run, judged.user_id)) is None:
            logger.debug("a verdict is on a run of a user who is not named, and was finished elsewhere")
        else:
            user = core.owner_of(run, user_digest(judged.user_id or None))
            self.keeping.put_verdict(run, judged.score, judged.comment, user, namespace)

    def imported(self, given: Import) -> int:
        """Store entries of recorded runs; again changes nothing. Those that asked nothing have none."""
        return sum(self.keeping.import_runs(runs[0].user, runs) for _, runs in given.by_namespace())

    # --- keeping ---

    @property
    def keeping(self) -> EntryKeeping:
        """The entries, and the work of keeping them; made when it is first used."""
        with self.core.lock:
            if self._keeping is None:
                self.core.refuse_if_closed()
                from langgraph_toolmem.entries.keeping import EntryKeeping

                self._keeping = EntryKeeping(self.core, self._critic)
            return self._keeping

    @property
    def search(self) -> EntrySearch:
        """The search for past runs; made when it is first used."""
        with self.core.lock:
            if self._search is None:
                from langgraph_toolmem.entries.recall import EntrySearch  # numpy: only when entries are used

                self._search = EntrySearch(self.rows, lambda: self.core.ledger.track(self.name, ALL))
            return self._search

    @property
    def rows(self) -> EntryRows:
        """The entries of all users."""
        return self.keeping.rows

    def past_runs(self, user: User) -> PastRuns | None:
        """Return the finished runs of a user, for other methods."""
        from langgraph_toolmem.entries.recall import EntryRuns

        return None if self.core.vectors.empty else EntryRuns(self.rows, user)

    def forget(self, user: User, gone: Forgotten) -> int:
        """Remove a user's entries, or those of runs."""
        if self.core.vectors.empty:
            return 0
        self.search.forget(user)
        return self.rows.forget(user, gone)

    def report(self) -> Section | None:
        """Return how many runs are kept, and how those ended that were shown some."""
        kept, shown = self.core.counter("entries"), self.core.ledger.figures(self.name)
        if not kept:
            return None
        figures = {"kept": kept, **{name: shown[name] for name in ("runs", "helped", "hurt")}}
        words = f"Past runs kept for recall: {kept:,}; shown in {shown['runs']:,} runs{outcome_in_words(shown)}."
        return Section("Past runs", figures, (words,))
