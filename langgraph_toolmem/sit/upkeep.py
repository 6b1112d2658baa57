"""What an edge keeps: merging, bounds and retirement, over the summaries in RAM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.sit.summary import RECORD, Merged, NewSummary, StoredSummary, Vector
from langgraph_toolmem.sit.summary_index import SummaryIndex

MAX_MERGED = 128  # merged transitions remembered by name; `seen` goes on counting


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many summaries there may be, and which; see `SummaryStore`.

    Raises:
        ConfigurationError: a bound that cannot be.
    """

    max_per_edge: int
    max_total: int
    merge_above: float
    retire_after: int

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not value > 0:
                raise ConfigurationError(f"{name} is above 0, not {value!r}.")


def place(index: SummaryIndex, new: NewSummary, vector: Vector, bounds: Bounds) -> None:
    """Puts a summary on its edge: merged, kept, or kept in the place of another. Known ones change nothing."""
    if index.standing(new.id) is not None:
        return
    like = index.like(new.source, new.target, vector, bounds.merge_above)
    if alike := [summary for key in like if (summary := index.get(key, saved=True)) is not None]:
        index.put(_joined(index, alike, Merged(new.id, new.run, new.user or ""), bounds))
        return
    index.put(new.kept(vector))
    while index.count(new.source, new.target) > bounds.max_per_edge:
        index.drop(index.least_useful(new.source, new.target))
    while len(index) > bounds.max_total:
        index.drop(index.least_useful(*index.fullest()))


def record(index: SummaryIndex, summary: StoredSummary, credited: Sequence[int], bounds: Bounds) -> None:
    """Adds what was credited, and retires the summary if its record is bad now."""
    summary = summary.credited(credited)
    if summary.retired or not summary.bad(bounds.retire_after):
        index.put(summary)
        return
    index.put(replace(summary, text="", retired=True))
    for old in index.retired(summary.source, summary.target)[: -bounds.max_per_edge]:
        index.drop(old)


def _joined(index: SummaryIndex, alike: Sequence[StoredSummary], new: Merged, bounds: Bounds) -> StoredSummary:
    """The oldest with the new one merged into it, and those that say the same as the oldest.

    There are several where two processes added the same, neither knowing of the other.
    """
    oldest = alike[0]
    for other in alike[1:]:
        if float(oldest.vector @ other.vector) < bounds.merge_above:
            continue
        index.drop(other.id)
        better = max(oldest, other, key=lambda each: each.usefulness)
        offered, followed, right = (getattr(better, name) for name in RECORD)
        oldest = replace(
            oldest,
            seen=oldest.seen + other.seen,
            merged=(*oldest.merged, *other.merged, Merged(other.id, other.run, other.user)),
            offered=offered,
            followed=followed,
            right=right,
        )
    return replace(oldest, seen=oldest.seen + 1, merged=(*oldest.merged, new)[-MAX_MERGED:])
