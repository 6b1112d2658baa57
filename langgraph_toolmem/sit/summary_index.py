"""State summaries in RAM, by edge: what a suggestion reads, so that no question goes to the database.

A summary is a text attached to a transition source → target. The vectors of one edge are the rows of one matrix
(float32), so the cosines of a query with all summaries of an edge are one product, and edges that are no
candidates are not read.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.sit.summary import NO_VECTOR, Match, StoredSummary, Vector

_versions = itertools.count(1)  # never the same twice, not after reading everything again either
CHANCE = 8  # offers until a young summary has had its chance
YOUNG = 4  # the newest 1/4 of an edge are young
TIE = 1e-6  # two products of the same vectors differ by less, in whatever order the rows are


class EdgeRows:
    """The vectors of one edge's summaries: row i of the matrix belongs to ``ids[i]``."""

    __slots__ = ("_matrix", "ids", "rows")

    def __init__(self, dimension: int) -> None:
        self.ids: list[str] = []
        self.rows: dict[str, int] = {}
        self._matrix: Vector = np.empty((2, dimension), dtype=np.float32)

    def put(self, key: str, vector: Vector) -> None:
        """Adds a row."""
        count = len(self.ids)
        if count == len(self._matrix):
            grown = np.empty((2 * count, self._matrix.shape[1]), dtype=np.float32)
            grown[:count] = self._matrix
            self._matrix = grown
        self._matrix[count] = vector
        self.rows[key] = count
        self.ids.append(key)

    def drop(self, key: str) -> None:
        """Takes a row out."""
        row, last = self.rows.pop(key), self.ids.pop()
        if last != key:
            self._matrix[row] = self._matrix[len(self.ids)]
            self.ids[row], self.rows[last] = last, row

    def vector(self, key: str) -> Vector:
        """A copy of a row."""
        vector: Vector = self._matrix[self.rows[key]].copy()
        return vector

    def similarities(self, query: Vector) -> Vector:
        """The products of all rows with a vector."""
        return np.asarray(self._matrix[: len(self.ids)] @ query, dtype=np.float32)


class SummaryIndex:
    """The summaries of one namespace. Not safe for threads by itself.

    A change can be watched and undone: `watch`, then `put` and `drop`, then `unwatch` or `undo`.
    """

    def __init__(self) -> None:
        self.version = next(_versions)
        self._summaries: dict[str, StoredSummary] = {}  # without vectors: those are in the edges
        self._vectors_of_retired: dict[str, Vector] = {}
        self._edges: dict[str, dict[str, EdgeRows]] = {}
        self._merged_into: dict[str, str] = {}
        self._credited: dict[str, list[int]] = {}
        self._journal: dict[str, StoredSummary | None] | None = None
        self._size = 0
        self._dimension = 0

    def __len__(self) -> int:
        return self._size

    def every(self) -> list[StoredSummary]:
        """All summaries as saved and without their vectors, retired ones too."""
        return list(self._summaries.values())

    def count(self, source: str, target: str) -> int:
        """How many summaries an edge has."""
        edge = self._edges.get(source, {}).get(target)
        return 0 if edge is None else len(edge.ids)

    def get(self, key: str, *, saved: bool = False) -> StoredSummary | None:
        """The summary with its vector; its record holds what was credited since, unless `saved`."""
        summary = self._summaries.get(key)
        if summary is None:
            return None
        edge = self._edges.get(summary.source, {}).get(summary.target)
        known = edge is not None and key in edge.rows
        vector = edge.vector(key) if edge is not None and known else self._vectors_of_retired.get(key, NO_VECTOR)
        summary = replace(summary, vector=vector)
        return summary if saved else summary.credited(self._credited.get(key, (0, 0, 0)))

    def standing(self, key: str) -> str | None:
        """The id of the summary that stands for this transition: its own, or the one it was merged into."""
        return key if key in self._summaries else self._merged_into.get(key)

    def put(self, summary: StoredSummary) -> None:
        """Keeps a summary, in the place of one of the same id; the vector is needed if there is none."""
        key = summary.id
        vector = summary.vector
        if not len(vector):
            known = self.get(key)
            vector = NO_VECTOR if known is None else known.vector
        if not len(vector) or self._dimension not in (0, len(vector)):
            raise InputError(f"A vector of {len(vector)} numbers does not go with those of {self._dimension}.")
        self._take_out(key)
        self._dimension = len(vector)
        self._summaries[key] = replace(summary, vector=NO_VECTOR)
        self._merged_into.update((each.id, key) for each in summary.merged)
        if summary.retired:
            self._vectors_of_retired[key] = vector
        else:
            targets = self._edges.setdefault(summary.source, {})
            edge = targets.get(summary.target)
            if edge is None:
                edge = targets[summary.target] = EdgeRows(len(vector))
            edge.put(key, vector)
            self._size += 1

    def drop(self, key: str) -> None:
        """Takes a summary away; one that is not there is no error."""
        self._take_out(key)

    def conceal(self, key: str) -> bool:
        """Takes a summary out of every answer while it waits to be retired; ``False`` if it was out."""
        summary = self.get(key, saved=True)
        if summary is None or not self._out_of_edge(summary):
            return False
        self._vectors_of_retired[key] = summary.vector
        self.version = next(_versions)
        return True

    def _take_out(self, key: str) -> None:
        self.version = next(_versions)
        if self._journal is not None and key not in self._journal:
            self._journal[key] = self.get(key, saved=True)
        summary = self._summaries.pop(key, None)
        self._vectors_of_retired.pop(key, None)
        if summary is None:
            return
        for each in summary.merged:
            if self._merged_into.get(each.id) == key:
                del self._merged_into[each.id]
        self._out_of_edge(summary)

    def _out_of_edge(self, summary: StoredSummary) -> bool:
        targets = self._edges.get(summary.source, {})
        edge = targets.get(summary.target)
        if edge is None or summary.id not in edge.rows:
            return False
        edge.drop(summary.id)
        self._size -= 1
        if not edge.ids:
            del targets[summary.target]
            if not targets:
                del self._edges[summary.source]
        return True

    def watch(self) -> dict[str, StoredSummary | None]:
        """From now on remembers what each changed summary was; the answer fills up."""
        self._journal = {}
        return self._journal

    def unwatch(self) -> None:
        """Stops remembering."""
        self._journal = None

    def undo(self, journal: dict[str, StoredSummary | None]) -> None:
        """Puts back what was."""
        self._journal = None
        for key, before in journal.items():
            if before is None:
                self.drop(key)
            else:
                self.put(before)

    def credit(self, key: str, record: Collection[int]) -> bool:
        """Adds (offered, followed, right) to what waits to be saved; ``False`` for one unknown or retired."""
        summary = self._summaries.get(key)
        if summary is None or summary.retired:
            return False
        waiting = self._credited.setdefault(key, [0, 0, 0])
        for place, more in enumerate(record):
            waiting[place] += more
        return True

    def credited(self) -> list[str]:
        """Ids of what waits to be saved and is still there."""
        return [key for key in self._credited if key in self._summaries]

    def take_credited(self) -> dict[str, list[int]]:
        """What waits to be saved, of summaries that are still there. It waits no longer."""
        credited, self._credited = self._credited, {}
        return {key: record for key, record in credited.items() if key in self._summaries and any(record)}

    def edges(
        self, source: str | None = None, targets: Collection[str] | None = None
    ) -> Iterator[tuple[str, str, list[str]]]:
        """(source, target, ids) of the edges out of a source, or of all; only to `targets` if given."""
        for start, target, edge in self._candidates(source, targets):
            yield start, target, list(edge.ids)

    def _candidates(self, source: str | None, targets: Collection[str] | None) -> Iterator[tuple[str, str, EdgeRows]]:
        starts = self._edges if source is None else [source]
        for start in starts:
            of_start = self._edges.get(start, {})
            for target in of_start if targets is None else dict.fromkeys(targets):
                edge = of_start.get(target)
                if edge is not None:
                    yield start, target, edge

    def near(self, source: str | None, query: Vector, targets: Collection[str] | None) -> dict[str, Match]:
        """Per target of the candidate edges the most similar summary. Of equals the more useful, then the older."""
        self._check(query)
        best: dict[str, tuple[float, str]] = {}
        for _, target, edge in self._candidates(source, targets):
            cosines = edge.similarities(query)
            highest = float(cosines.max())
            if target in best and highest < best[target][0] - TIE:
                continue
            tied = [edge.ids[row] for row in np.flatnonzero(cosines >= highest - TIE)]
            if target in best and highest <= best[target][0] + TIE:
                tied.append(best[target][1])
                highest = max(highest, best[target][0])
            best[target] = highest, tied[0] if len(tied) == 1 else min(tied, key=self._preference)
        found = {target: (cosine, self.get(key)) for target, (cosine, key) in best.items()}
        return {target: Match(_bounded(cosine), each) for target, (cosine, each) in found.items() if each is not None}

    def nearest(self, source: str | None, query: Vector, targets: Collection[str] | None, k: int) -> list[Match]:
        """The k most similar summaries of the candidate edges, best first; ties as in `near`."""
        self._check(query)
        ids: list[str] = []
        parts: list[Vector] = []
        for _, _, edge in self._candidates(source, targets):
            ids += edge.ids
            parts.append(edge.similarities(query))
        if not ids or k <= 0:
            return []
        cosines = np.concatenate(parts)
        enough = -np.inf if k >= len(ids) else np.partition(cosines, len(ids) - k)[len(ids) - k] - TIE
        rows = [int(row) for row in np.flatnonzero(cosines >= enough)]
        rows.sort(key=lambda row: (-round(float(cosines[row]), 6), *self._preference(ids[row])))
        found = ((float(cosines[row]), self.get(ids[row])) for row in rows[:k])
        return [Match(_bounded(cosine), summary) for cosine, summary in found if summary is not None]

    def like(self, source: str, target: str, vector: Vector, least: float) -> list[str]:
        """Ids of the edge's summaries with a cosine of `least` or more, oldest first."""
        self._check(vector)
        for _, _, edge in self._candidates(source, [target]):
            rows = np.flatnonzero(edge.similarities(vector) >= least - TIE)
            return sorted((edge.ids[row] for row in rows), key=lambda key: (self._summaries[key].time, key))
        return []

    def least_useful(self, source: str, target: str) -> str:
        """Which summary of an edge goes first: of low usefulness, seen seldom, old.

        The newest quarter of an edge is spared until it was offered `CHANCE` times.
        """
        ids = self._edges[source][target].ids
        summaries = sorted((self.visible(key) for key in ids), key=lambda each: (each.time, each.id))
        spared = max(1, len(ids) // YOUNG)
        tried = [each for each in summaries[-spared:] if each.offered >= CHANCE]
        return min(
            [*summaries[:-spared], *tried] or summaries,
            key=lambda each: (each.usefulness, each.seen, each.time, each.id),
        ).id

    def fullest(self) -> tuple[str, str]:
        """The edge with most summaries; of equals the one that has been there longest."""
        full = max(self._candidates(None, None), key=lambda found: len(found[2].ids))
        return full[0], full[1]

    def retired(self, source: str, target: str) -> list[str]:
        """Ids of the edge's retired summaries, oldest first."""
        found = (self._summaries[key] for key in self._vectors_of_retired)
        of_edge = [each for each in found if each.retired and (each.source, each.target) == (source, target)]
        return [each.id for each in sorted(of_edge, key=lambda each: (each.time, each.id))]

    def visible(self, key: str) -> StoredSummary:
        """The summary with what was credited since, without its vector. It is there."""
        return self._summaries[key].credited(self._credited.get(key, (0, 0, 0)))

    def _preference(self, key: str) -> tuple[float, int, float, str]:
        summary = self.visible(key)
        return -summary.usefulness, -summary.seen, summary.time, key

    def _check(self, query: Vector) -> None:
        if self._dimension and query.shape != (self._dimension,):
            raise InputError(f"A query vector has the shape ({self._dimension},), not {query.shape}.")


def _bounded(cosine: float) -> float:
    return max(-1.0, min(1.0, cosine))
