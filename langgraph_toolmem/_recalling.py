"""The part of `ToolMemory` that recalls past runs, and what a user prefers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem._reflecting import Reflecting
from langgraph_toolmem._suggesting import Suggesting
from langgraph_toolmem.base.errors import ConfigurationError, StorageError
from langgraph_toolmem.base.failures import describe_error
from langgraph_toolmem.base.namespaces import resolve, user_digest
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.runs.run import Run

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.entries.entry import Entry
    from langgraph_toolmem.entries.preferences import Preference
    from langgraph_toolmem.entries.recollection import RecalledEntry, Recollection

METHOD: Final = "entries"
PATIENCE: Final = 0.5
"""Seconds that a step of a host waits for entries to be read from disk."""
SETTLE: Final = 10.0
"""Seconds that `recall` waits for what was finished just now and is being written."""
RATED: Final = 50
"""Entries at most from which preferences are told."""


class Recalling(Suggesting):
    """Finds the past runs that are worth showing for a request (MemToolAgent, arXiv 2606.07909)."""

    def recall(
        self,
        query: str,
        *,
        user_id: str | None = None,
        policy: RecallPolicy | None = None,
        k: int | None = None,
    ) -> list[Entry]:
        """The past runs that are worth looking at for a request, most relevant first; often none.

        Runs nobody judged are among them; `Entry.good` and `Entry.failed` tell the others apart. What was finished
        in this process is found.

        Args:
            query: the user's words.
            user_id: whose runs.
            policy: how many are worth it; the memory's own if None.
            k: at most so many.

        Raises:
            ConfigurationError: an argument cannot work.
            NamespaceError: the namespace needs a user id.
            StorageError: the entries cannot be read.
        """
        return [each.entry for each in self.ranked(query, user_id=user_id, policy=policy, k=k)]

    def ranked(
        self,
        query: str,
        *,
        user_id: str | None = None,
        policy: RecallPolicy | None = None,
        k: int | None = None,
        unjudged: bool = True,
        alike: int = 1,
        wait: float | None = None,
    ) -> list[RecalledEntry]:
        """As `recall`, with the probability of being relevant and the reason.

        Args:
            query, user_id, policy, k: as for `recall`.
            unjudged: runs nobody judged too.
            alike: of runs that say the same, so many count as one and are returned.
            wait: seconds to wait for entries that have to be read from disk first; none are found if that was not
                enough. None: as long as it takes, and what was finished just now is waited for too.
        """
        if not isinstance(query, str):
            raise ConfigurationError(f"query is the user's words, not {type(query).__name__}.")
        if k is not None and not (type(k) is int and k >= 1):
            raise ConfigurationError(f"k is a whole number from 1, not {k!r}.")
        chosen = self._chosen(policy)
        namespace = resolve(self.namespace, user_id)
        self._check_user(user_id)
        if wait is None and not self._store.read_only and not self._queue.empty:
            self._worker.settle(timeout=SETTLE)
        if self._vectors.empty:
            return []
        found = self._library.recall(namespace, query, policy=chosen, k=k, unjudged=unjudged, alike=alike, wait=wait)
        return found or []

    def recollect(
        self,
        messages: Any,
        *,
        policy: RecallPolicy | None = None,
        run_id: str | None = None,
        user_id: str | None = None,
        unjudged: bool = False,
        offered: bool = False,
        budget: int | None = None,
    ) -> Recollection:
        """The past runs that are worth showing to the model now, and what could not be read. Nodes call this.

        A large memory that was not read from disk yet is not waited for: its entries come at a later turn.

        Args:
            messages: the history so far; what the user said in it is the request.
            policy, user_id: as for `recall`.
            run_id: identity of the run (a thread id); it is not recalled for itself.
            unjudged: runs nobody judged too.
            offered: the model gets to see them now: with the run's verdict, their record grows.
            budget: tokens of the prompt: those that do not fit in it are not seen. None: all are.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
        """
        from langgraph_toolmem.entries.entry import entry_id, request_of
        from langgraph_toolmem.entries.recollection import Recollection
        from langgraph_toolmem.entries.render import fitting

        chosen = self._chosen(policy)
        run = self._read(messages, run_id)
        namespace = resolve(self.namespace, user_id)
        self._check_user(user_id)
        self._tick()
        query = request_of(run)
        if not query or self._vectors.empty:
            return Recollection()
        name = run.digest
        try:
            found = self._library.recall(
                namespace, query, policy=chosen, unjudged=unjudged, exclude=[entry_id(name)], wait=PATIENCE
            )
        except StorageError as error:
            said = error
            self._quietly("entries could not be read", lambda: _again(said))
            return Recollection(missing=f"past runs could not be read ({describe_error(error)})")
        if found is None:
            return Recollection(missing="past runs are still being read from disk")
        recollection = Recollection(tuple(found))
        if offered and found:
            seen = len(found) if budget is None else fitting(recollection, budget)
            if not self._store.read_only:
                self._ledger.shown(
                    METHOD, dict.fromkeys(each.entry.id for each in found[:seen]), run=name, user_id=user_id
                )
            self._ledger.flush()
        return recollection

    def preferences(
        self,
        query: Any,
        *,
        user_id: str | None = None,
        policy: RecallPolicy | None = None,
        domain_of: Callable[[str], str | None] | None = None,
        model: BaseChatModel | None = None,
        wait: float | None = None,
    ) -> list[Preference]:
        """What a user likes and avoids for requests like this one: at least two ratings in the same direction.

        Args:
            query: the user's words, or the messages of a run.
            user_id: whose ratings; None in a namespace shared by all: everybody's.
            policy: which requests are alike; the memory's own, with up to 50 runs, if None.
            domain_of: the domain of a tool, such as `tool_prefix`; without it only tools are told.
            model: reads the ratings and says in words what is preferred; they are counted if None.
            wait: seconds to wait for entries that have to be read from disk first; as long as it takes if None.

        Raises:
            MessageError: the messages cannot be read.
            NamespaceError: the namespace needs a user id.
            StorageError: the entries cannot be read.
            Exception: whatever the model raises.
        """
        from langgraph_toolmem.entries.entry import request_of
        from langgraph_toolmem.entries.preferences import model_preferences, preferences

        text = query if isinstance(query, str) else request_of(self._read(query, None))
        chosen = policy or self.recall_policy.with_(max_n=RATED)
        # The same request rated twice is two ratings.
        found = self.ranked(text, user_id=user_id, policy=chosen, unjudged=False, alike=RATED, wait=wait)
        rated = [each.entry for each in found]
        user = user_digest(user_id)
        if model is None:
            return preferences(rated, user=user, domain_of=domain_of)
        return model_preferences(model, rated, text, user=user, tools=self._engine.specs, domain_of=domain_of)

    def _chosen(self, policy: RecallPolicy | None) -> RecallPolicy:
        if policy is not None and not isinstance(policy, RecallPolicy):
            raise ConfigurationError(f"policy is a RecallPolicy, not {type(policy).__name__}.")
        return policy or self.recall_policy


class KeepingEntries(Reflecting):
    """Makes entries of recorded runs, many at a time; see ``toolmem import``."""

    def keep_entries(
        self,
        runs: Iterable[tuple[Run, float | None, str | None]],
        *,
        user_id: str | None = None,
        made_by: str = "import",
    ) -> int:
        """Entries of runs that were read already; doing it again changes nothing.

        Args:
            runs: each with the score of its verdict and a word on it, if there are.
            user_id: whose runs they are.
            made_by: where they come from.

        Returns:
            How many of the runs have an entry now; one in which nothing was asked or done has none.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: they could not be stored.
        """
        from langgraph_toolmem.entries.entry import entry_of

        self._check_user(user_id)
        namespace, user = resolve(self.namespace, user_id), user_digest(user_id)
        now = self._now()
        made = [
            entry_of(run, run_digest=run.digest, now=now, user=user, score=score, comment=comment, made_by=made_by)
            for run, score, comment in runs
        ]
        entries = [entry for entry in made if entry is not None]
        if not entries:
            return 0
        kept = [entry for entry in self._library.store(namespace).put_many(entries) if entry is not None]
        self._noted(kept, namespace)
        if self._critic is not None:
            self._worker.catch_up(namespace=namespace)
        return len(kept)


def _again(error: Exception) -> None:
    raise error
