"""A lesson: what alike runs say together, in place of each of them.

Runs are alike if one would be recalled for the other's request, they called the same tools, ended the same way, and
nobody's comment on one contradicts that on the other. A lesson names its runs; they stay, and point to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Final, Literal

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.core.ledger import NO_TRACK, Track
from langgraph_toolmem.core.row_kinds import RowKind
from langgraph_toolmem.entries.entry import Entry, EntryCall
from langgraph_toolmem.entries.rows import hurts
from langgraph_toolmem.stores.items import Hit, VectorItem
from langgraph_toolmem.words import wording

Scope = Literal["user", "team"]

MAX_SOURCES: Final = 32
"""Runs that a lesson names, the latest; of more, only the number is known."""
MAX_PARTS: Final = 8
"""Lessons of users that make one of a team."""
SAID_ALIKE: Final = 0.5
"""Dice coefficient of their terms from which two comments say the same."""
_ASIDE: Final = ("id", "recalled", "helped", "hurt", "retired")
_SLOT: Final = re.compile(r"<[A-Z_]+>")


@dataclass(frozen=True, slots=True)
class Lesson:
    """What alike runs say together.

    Attributes:
        id: its identity.
        query: what the first of the runs was asked.
        tools: that each of them called, in the order of their first calls.
        failed: they went wrong; else they went well.
        words: what went wrong, or what was said of them; "" if nothing was.
        by_critic: the words are a critique; else somebody's comment.
        words_of: digest of the run whose words they are.
        comment: what users said of the runs; another one on a further run makes another lesson.
        sources: digests of the runs, the latest `MAX_SOURCES`.
        times: how many runs there are.
        user: digest of the user whose runs they are, or "".
        time: seconds since 1970, of its first run.
        scope: "team": all users of the namespace are shown it; it holds no values.
        parts: of a team's: the lessons of users that it is made of.
        undone: somebody took it back: its runs are shown by themselves again, and no other lesson is made of them.
        recalled, helped, hurt, retired: as of an `Entry`.
    """

    id: str
    query: str
    tools: tuple[str, ...]
    failed: bool
    words: str = ""
    by_critic: bool = False
    words_of: str = ""
    comment: str = ""
    sources: tuple[str, ...] = ()
    times: int = 0
    user: str = ""
    time: float = 0.0
    scope: Scope = "user"
    parts: tuple[Lesson, ...] = ()
    undone: bool = False
    recalled: int = 0
    helped: int = 0
    hurt: int = 0
    retired: bool = False

    @property
    def asked(self) -> str:
        """The query without slots, as it is compared."""
        return _SLOT.sub(" ", self.query)

    def takes(self, entry: Entry) -> bool:
        """Whether a run with an alike request may be one of its runs."""
        same = self.failed == entry.failed and self.user == entry.user and self.tools == entry.tools
        return same and entry.score is not None and said_alike(self.comment, entry.comment)

    def told(self, entry: Entry) -> Entry:
        """One of its runs with the lesson's words in place of its own."""
        if not self.words:
            return entry
        critique, comment = (self.words, "") if self.by_critic else ("", self.words)
        return replace(entry, critique=critique, comment=comment)

    def as_entry(self) -> Entry:
        """As a run with a request and tools, but no values: for who may not see its runs."""
        calls = tuple(EntryCall(tool, {}, "ok") for tool in self.tools)
        bare = Entry(self.id, "", self.query, calls, time=self.time, score=0.0 if self.failed else 1.0)
        return self.told(bare)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Lesson:
        """The inverse of `to_dict`.

        Raises:
            InputError: it is no lesson.
        """
        try:
            known = {name: plain[name] for name in _FIELDS if name in plain}
            known |= {name: tuple(known.get(name, ())) for name in ("tools", "sources")}
            return cls(**{**known, "parts": tuple(map(cls.from_dict, known.get("parts", ())))})
        except (TypeError, ValueError, AttributeError) as error:
            raise InputError(f"This is no lesson: {type(error).__name__} at {error}.") from error


_FIELDS: Final = tuple(field.name for field in fields(Lesson))


class LessonKind(RowKind[Lesson]):
    """Lessons as rows: found by whose they are, by their runs, and in a team by the lessons that they are made of."""

    name: ClassVar[str] = "lessons"
    most: int = 2_000

    def row(self, item: Lesson) -> VectorItem:
        """See `RowKind`."""
        plain = {name: value for name, value in item.to_dict().items() if name not in _ASIDE}
        owners = {item.user, *item.sources, *(owner for part in item.parts for owner in (part.id, part.user))}
        return VectorItem(item.id, item.asked, plain, "", tuple(sorted(owners - {""})))

    def item(self, row: Hit) -> Lesson:
        """See `RowKind`."""
        return Lesson.from_dict({**row.metadata, "id": row.id})

    def without(self, item: Lesson, owner: str) -> Lesson | None:
        """What is left without a user, a run or a lesson of a user."""
        if item.parts:
            parts = [self.without(each, owner) for each in item.parts if owner not in (each.id, each.user)]
            return of_team([each for each in parts if each is not None and (each.words or not each.failed)], item)
        sources = tuple(run for run in item.sources if run != owner)
        if owner == item.user or not sources:
            return None
        left = replace(item, sources=sources, times=item.times - (len(item.sources) - len(sources)))
        return left if item.words_of != owner else replace(left, words="", words_of="", comment="", by_critic=False)

    def tracked(self, item: Lesson, track: Track, others: Track) -> Lesson:
        """See `RowKind`."""
        if track == NO_TRACK:
            return item
        usual = (others.hurt + 1) / (others.helped + others.hurt + 2)
        bad = hurts(track.helped, track.hurt, usual)
        return replace(item, recalled=track.shown, helped=track.helped, hurt=track.hurt, retired=bad)

    def retired(self, item: Lesson) -> bool:
        """See `RowKind`."""
        return item.retired

    def worth(self, item: Lesson) -> tuple[int, float]:
        """See `RowKind`."""
        return item.times, item.time


def lesson_of(head: Entry, entries: Sequence[Entry]) -> Lesson:
    """A new lesson of alike runs, of which `head` is the first."""
    key = digest("lesson", head.run, int(head.failed), head.user)
    return renewed(Lesson(key, head.query, head.tools, head.failed, user=head.user, time=head.time), entries)


def renewed(lesson: Lesson, entries: Sequence[Entry], *, times: int | None = None) -> Lesson:
    """A lesson of these runs, the words chosen anew: a critique before a comment, one that knows a user's comment
    before one that does not; of several the one that is most like the others."""
    runs = sorted(entries, key=lambda each: (each.time, each.id))[-MAX_SOURCES:]
    first = next((each for each in runs if each.query == lesson.query), runs[0])
    critiques = [each for each in runs if each.critique]
    said = [each for each in critiques if each.comment] or critiques or [each for each in runs if each.comment]
    best = said[_middle([each.critique or each.comment for each in said])] if said else None
    comment = next((each.comment for each in [*([best] if best else ()), *runs] if each.comment), "")
    return replace(
        lesson,
        query=first.query,
        words="" if best is None else best.critique or best.comment,
        by_critic=best is not None and bool(best.critique),
        words_of="" if best is None else best.run,
        comment=comment,
        sources=tuple(each.run for each in runs),
        times=max(len(runs), len(entries) if times is None else times),
    )


def of_team(parts: Sequence[Lesson], before: Lesson | None = None) -> Lesson | None:
    """The lesson of a team, made of masked lessons of users; None of none."""
    if not parts:
        return None
    first = parts[0]
    runs = [run for part in parts for run in part.sources][:MAX_SOURCES]
    return replace(
        first,
        id=digest("team", first.id) if before is None else before.id,
        user="",
        scope="team",
        sources=tuple(runs),
        times=sum(part.times for part in parts),
        parts=tuple(parts[:MAX_PARTS]),
        undone=before is not None and before.undone,
    )


def said_alike(one: str, other: str) -> bool:
    """Whether two comments may stand together: either says nothing, or both say the same."""
    return not one or not other or _dice(one, other) >= SAID_ALIKE


def _dice(one: str, other: str) -> float:
    a, b = set(wording.terms(one)), set(wording.terms(other))
    return 1.0 if one == other else 2 * len(a & b) / max(1, len(a) + len(b))


def _middle(texts: Sequence[str]) -> int:
    """The place of the text that is most like all others; the first of several."""
    likeness = [sum(_dice(one, other) for other in texts) for one in texts]
    return likeness.index(max(likeness))
