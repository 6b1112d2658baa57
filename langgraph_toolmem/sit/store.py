"""State summaries of one namespace: kept in Chroma, answered from RAM.

What a suggestion reads is in RAM (`SummaryIndex`); Chroma is asked when the store is first used, and written
before a call that changes something returns.

- The same transition learned again changes nothing: a summary's id is a digest of the transition's key.
- A summary that says what an older one of its edge says (cosine ≥ `merge_above`) is merged into it: the older
  one stays, `seen` goes up. Of several that turn out alike the better record is kept.
- An edge keeps `max_per_edge` summaries, the namespace `max_total`. The least useful goes first
  (`StoredSummary.usefulness`), then the one seen seldom, then the oldest; the newest quarter of an edge is spared
  until it had its chance. Beyond `max_total` the edge with most summaries gives one up.
- A summary is retired when offered ≥ `retire_after` · (right + 1). Its text goes, its id stays, so that learning
  the same log again does not bring it back.
- Records are credited in RAM and written together: a process that is killed loses at most the last `flush_every` − 1
  credits and those made while another call was writing. Of an addition that returned it loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from langgraph_toolmem.base.errors import ConfigurationError, InputError, StorageError
from langgraph_toolmem.search.embedders import clean
from langgraph_toolmem.sit.mirror import Mirror
from langgraph_toolmem.sit.summary import Match, NewSummary, StoredSummary, Vector, cut
from langgraph_toolmem.sit.summary_index import SummaryIndex
from langgraph_toolmem.sit.summary_rows import PAGE
from langgraph_toolmem.sit.upkeep import Bounds, place, record

if TYPE_CHECKING:
    from langgraph_toolmem.stores.vectors import VectorStore

__all__ = ["Match", "NewSummary", "StoredSummary", "SummaryStore"]


class SummaryStore:
    """The state summaries of one namespace. Safe to use from several threads; blocking, so call it in one.

    Every method raises `StorageError` if Chroma or the embedder fails, and `EmbedderChangedError` if another
    embedder made what is stored. Nothing is changed then, and the next call tries again. What is in RAM is
    still found while Chroma is away.

    Args:
        vectors: the database, already of the namespace wanted. It stays open when this store is closed.
        now: seconds since 1970.
        max_per_edge: summaries kept on one edge.
        max_total: summaries kept in all; each takes 4 bytes per number of its vector in RAM.
        merge_above: cosine from which two summaries of one edge are one.
        max_chars: a longer text is cut, with a note.
        retire_after: offers without success after which a summary is retired.
        flush_every: credits after which they are written.
        refresh: seconds between two looks for what other processes stored; ``None`` where there are none
            (embedded Chroma).

    Raises:
        ConfigurationError: a bound that cannot be.
    """

    def __init__(
        self,
        vectors: VectorStore,
        *,
        now: Callable[[], float],
        max_per_edge: int = 64,
        max_total: int = 20_000,
        merge_above: float = 0.95,
        max_chars: int = 4000,
        retire_after: int = 20,
        flush_every: int = 32,
        refresh: float | None = None,
    ) -> None:
        if flush_every < 1:
            raise ConfigurationError(f"flush_every is at least 1, not {flush_every!r}.")
        if max_chars < 100:
            raise ConfigurationError(f"max_chars is at least 100, not {max_chars!r}.")
        if refresh is not None and not refresh >= 0:
            raise ConfigurationError(f"refresh is None or at least 0 seconds, not {refresh!r}.")
        self._embedder = vectors.embedder
        self._mirror = Mirror(vectors, now=now, refresh=refresh)
        self._now = now
        self._bounds = Bounds(max_per_edge, max_total, merge_above, retire_after)
        self._max_chars, self._flush_every = max_chars, flush_every
        self._unsaved = 0  # credits

    def __enter__(self) -> SummaryStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._mirror.ready())

    @property
    def version(self) -> int:
        """Another number whenever a summary came, went or changed: what was derived from them is then old."""
        return self._mirror.ready().version

    def add(
        self,
        source: str,
        target: str,
        text: str,
        *,
        key: str,
        run: str = "",
        user: str | None = None,
        made_by: str = "tool",
        time: float | None = None,
    ) -> str | None:
        """Keeps the summary of one transition; see `NewSummary`.

        Returns:
            The id of the summary that stands for the transition: its own, or of the older one that says the
            same. ``None`` if none does: the text is empty, or others of a full edge are worth more.

        Raises:
            InputError: source, target or key is empty, or a field is of the wrong type.
        """
        return self.add_many([NewSummary(source, target, text, key, run, user, made_by, time)])[0]

    def add_many(self, summaries: Iterable[NewSummary]) -> list[str | None]:
        """As `add` for each, embedded and written 500 at a time. If it fails half-way, do it again."""
        checked = [each.checked(self._now(), self._max_chars) for each in summaries]
        answers: list[str | None] = []
        for start in range(0, len(checked), PAGE):
            answers += self._add(checked[start : start + PAGE])
        return answers

    def near(
        self, source: str | None, query: str | Vector, *, targets: Collection[str] | None = None
    ) -> dict[str, Match]:
        """For each target the most similar summary of its edge. Only these edges are read.

        Args:
            source: the tool called last, or START; ``None``: whatever came before.
            query: a summary, or its vector.
            targets: only these. By default all that the source has summaries to.

        Returns:
            By target; targets without a summary, and an empty query's, are left out.

        Raises:
            InputError: the vector has another length.
        """
        index, vector = self._asked(query)
        if vector is None:
            return {}
        with self._mirror.reading:
            return index.near(_cleaned(source), vector, targets)

    def nearest(
        self, source: str | None, query: str | Vector, *, targets: Collection[str] | None = None, k: int = 8
    ) -> list[Match]:
        """The k most similar summaries of the candidate edges, best first; arguments as in `near`."""
        index, vector = self._asked(query)
        if vector is None:
            return []
        with self._mirror.reading:
            return index.nearest(_cleaned(source), vector, targets, k)

    def embed(self, text: str) -> Vector | None:
        """The query vector of a summary, for several questions; ``None`` for a text without content."""
        text = cut(text, self._max_chars)
        return np.asarray(self._embedder.embed_query(text), dtype=np.float32) if text else None

    def get(self, key: str) -> StoredSummary | None:
        """The summary of that id, unless it is retired."""
        index = self._mirror.ready()
        with self._mirror.reading:
            found = index.get(key)
        return None if found is None or found.retired else found

    def stands(self, source: str, target: str, key: str) -> bool:
        """Whether a summary stands for a transition: its own, retired or not, or one that says the same."""
        wanted = NewSummary(clean(source), clean(target), "", key).id
        index = self._mirror.ready()
        with self._mirror.reading:
            return index.standing(wanted) is not None

    def summaries(self, source: str | None = None, *, targets: Collection[str] | None = None) -> list[StoredSummary]:
        """Summaries of the edges out of a source, or of all, oldest first."""
        index = self._mirror.ready()
        with self._mirror.reading:
            ids = [key for *_, of_edge in index.edges(_cleaned(source), targets) for key in of_edge]
            found = [summary for key in ids if (summary := index.get(key)) is not None]
        return sorted(found, key=lambda each: (each.time, each.id))

    def counts(self) -> dict[tuple[str, str], int]:
        """Summaries by edge (source, target)."""
        index = self._mirror.ready()
        with self._mirror.reading:
            return {(source, target): len(ids) for source, target, ids in index.edges()}

    def credit(self, ids: str | Iterable[str], *, offered: int = 0, followed: int = 0, right: int = 0) -> None:
        """Adds to the record of summaries; unknown ids are passed over. Below 0: something is taken back.

        A summary whose record turned bad is no longer found. What was credited is written after every
        `flush_every` credits; if that fails it is kept and tried again after as many more.
        """
        index = self._mirror.ready()
        with self._mirror.reading:
            if self._mirror.index is not None:
                index = self._mirror.index  # another thread may have read it anew
            known = [
                key for key in ([ids] if isinstance(ids, str) else ids) if index.credit(key, (offered, followed, right))
            ]
            self._unsaved += len(known)
            due = self._conceal_bad(index, known) or self._unsaved >= self._flush_every
        # Somebody who writes (an import) is not waited for: the next credit tries again.
        if due and self._mirror.writing.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._mirror.writing.release()

    def flush(self) -> None:
        """Writes what was credited."""
        with self._mirror.writing:
            self._flush()

    def forget(self, *, user: str | None = None, run: str | None = None) -> int:
        """Deletes what comes from a user or a run (digests), and makes sure that it is gone.

        What was merged into somebody else's summary is taken off it. Other processes go on finding it until
        their next look.

        Returns:
            How many summaries were deleted.

        Raises:
            InputError: neither or both are given.
            StorageError: some are still there.
        """
        name, wanted = ("user", user) if user else ("run", run)
        if not wanted or (user and run):
            raise InputError("forget takes a user or a run.")
        with self._mirror.writing:
            self._flush()
            self._mirror.load()
            deleted = 0
            with self._mirror.change() as index:
                for summary in index.every():
                    if getattr(summary, name) == wanted:
                        index.drop(summary.id)
                        deleted += 1
                    elif any(getattr(each, name) == wanted for each in summary.merged):
                        kept = tuple(each for each in summary.merged if getattr(each, name) != wanted)
                        seen = max(1, summary.seen - len(summary.merged) + len(kept))
                        index.put(replace(summary, merged=kept, seen=seen))
            self._mirror.rows.remove(self._mirror.rows.ids({name: wanted}))  # damaged rows
            if still := self._mirror.rows.ids({name: wanted}):
                raise StorageError(f"{len(still)} summaries could not be deleted. Do it again.")
        return deleted

    def forget_user(self, user: str) -> int:
        """As `forget`, of a user's digest."""
        return self.forget(user=user)

    def forget_run(self, run: str) -> int:
        """As `forget`, of a run's digest."""
        return self.forget(run=run)

    def drop(self) -> None:
        """Deletes everything of this namespace."""
        with self._mirror.writing:
            self._mirror.rows.drop()
            with self._mirror.reading:
                self._mirror.index, self._unsaved = None, 0

    def scrub(self) -> None:
        """What was deleted goes from the disk too, not only from what is found: see `VectorStore.scrub`."""
        with self._mirror.writing:
            self._mirror.rows.scrub()

    def reload(self) -> None:
        """Reads everything again at the next use; for when somebody else deleted or embedded it anew.

        What was credited is written first.
        """
        with self._mirror.writing:
            self._flush()
            with self._mirror.reading:
                self._mirror.index = None

    def close(self) -> None:
        """Writes what was credited and frees the RAM. Twice is harmless; the next use reads everything again."""
        self.reload()

    def _asked(self, query: str | Vector) -> tuple[SummaryIndex, Vector | None]:
        index = self._mirror.ready()
        if isinstance(query, str):
            return index, self.embed(query) if len(index) else None
        return index, np.asarray(query, dtype=np.float32)

    def _add(self, batch: Sequence[NewSummary]) -> list[str | None]:
        index = self._mirror.ready()
        with self._mirror.reading:
            unknown = {each.id: each for each in batch if each.text and index.standing(each.id) is None}
        if not unknown:
            with self._mirror.reading:
                return [index.standing(each.id) if each.text else None for each in batch]
        embedded = self._embedder.embed_documents([each.text for each in unknown.values()])
        vectors = {key: np.asarray(vector, dtype=np.float32) for key, vector in zip(unknown, embedded, strict=True)}
        with self._mirror.writing, self._mirror.change() as index:
            for each in unknown.values():
                place(index, each, vectors[each.id], self._bounds)
            return [index.standing(each.id) if each.text else None for each in batch]

    def _flush(self) -> None:
        """Writes what was credited; the caller holds the lock for writing."""
        index = self._mirror.index
        if index is None:
            return
        with self._mirror.reading:
            credited = index.take_credited()
            self._unsaved = 0
        if not credited:
            return
        try:
            saved = self._mirror.saved(list(credited))
            with self._mirror.change() as index:
                for key, waiting in credited.items():
                    if key in saved:
                        record(index, saved[key], waiting, self._bounds)
                    else:
                        index.drop(key)
        except BaseException:
            with self._mirror.reading:
                for key, waiting in credited.items():
                    index.credit(key, waiting)
            raise
        finally:
            with self._mirror.reading:
                self._conceal_bad(index, index.credited())

    def _conceal_bad(self, index: SummaryIndex, keys: Iterable[str]) -> bool:
        """Takes out of every answer what a bad record retires at the next writing; whether there was any."""
        bad = [key for key in keys if index.visible(key).bad(self._bounds.retire_after)]
        return sum(index.conceal(key) for key in bad) > 0


def _cleaned(source: str | None) -> str | None:
    return None if source is None else clean(source)
