"""An entry: the kept form of one finished run, its construction and its storage.

All fields are bounded. A cut text is marked: ``head [… cut from 5812 characters …] tail``.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import as_text, digest, shortened
from langgraph_toolmem.core.ledger import ItemStats
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.runs.run import ExecutedCall, Run, Status, Turn
from langgraph_toolmem.stores.vectors import Hit, VectorItem
from langgraph_toolmem.text.embedders import clean
from langgraph_toolmem.turn.structured import reason_of

logger = logging.getLogger("langgraph_toolmem.entries")

PARTS = JUDGED_PART, UNJUDGED_PART = "judged", "unjudged"
"""Parts of the collection."""


@dataclass(frozen=True, slots=True)
class EntryLimits:
    """Sizes of an entry, in characters except `calls`.

    Attributes:
        query, comment, critique: of these texts.
        answer: of a tool's answer.
        args: of one call's arguments as JSON.
        argument: of one argument, if the arguments have to be cut; then as many are kept as fit.
        calls: limit of kept calls.
    """

    query: int = 2_000
    comment: int = 500
    critique: int = 1_500
    answer: int = 300
    args: int = 1_500
    argument: int = 150
    calls: int = 40


ENTRY_LIMITS: Final = EntryLimits()


@dataclass(frozen=True, slots=True)
class EntryCall:
    """One tool call of a run.

    Attributes:
        args: JSON values; long ones are cut.
        status: as of an `ExecutedCall`.
        answer: the tool's answer as text, cut; "" without one.
    """

    tool: str
    args: dict[str, Any]
    status: Status
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished episode of a thread.

    Attributes:
        id: of `entry_id`: one per episode.
        run: digest of the episode.
        query: the user's request, one message a line (`Run.request`).
        calls: its tool calls in order.
        user: digest of the user, or "".
        time: seconds since 1970, when the run was reported.
        score: feedback, 0 (bad) to 1 (good); None without feedback.
        comment: an explanation of it, or "".
        critique: the mistake and the better way, or "". Only of a failed run.
        blamed: the tool whose call the critique names, or "".
        made_by: "run", or "bootstrap" if a cold start made it.
        left_out: number of calls in the middle that were not kept.
        truncated: True if the head of the run was missing.
        recalled: how often it was shown, by the ledger; like the next three fields, not stored.
        helped: how often a run to which it was shown went well.
        hurt: how often such a run failed.
        retired: True if its record is bad; it is no longer shown.
    """

    id: str
    run: str
    query: str
    calls: tuple[EntryCall, ...]
    user: str = ""
    time: float = 0.0
    score: float | None = None
    comment: str = ""
    critique: str = ""
    blamed: str = ""
    made_by: str = "run"
    left_out: int = 0
    truncated: bool = False
    recalled: int = 0
    helped: int = 0
    hurt: int = 0
    retired: bool = False

    @property
    def failed(self) -> bool:
        """True if its feedback was bad."""
        return self.score is not None and self.score < GOOD

    @property
    def good(self) -> bool:
        """True if its feedback was good."""
        return self.score is not None and self.score >= GOOD

    @property
    def feedback_key(self) -> str:
        """Identity of the feedback, its direction and its comment: a critique is of one feedback."""
        # Not the score itself: 0.1 in place of 0.0 is the same feedback, and must not cause a second critique.
        direction: str | int = "none"
        if self.score is not None:
            direction = int(self.failed)
        return digest("feedback", direction, self.comment)

    @property
    def wants_critique(self) -> bool:
        """True if it failed and has no critique."""
        return self.failed and not self.critique

    @property
    def tools(self) -> tuple[str, ...]:
        """Tools that were executed, each once, in the order of their first call."""
        executed: dict[str, None] = {}
        for call in self.calls:
            if call.status in ("ok", "failed"):
                executed[call.tool] = None
        return tuple(executed)

    def joined(self, new: Entry) -> Entry:
        """Return the joined entry when the same run is reported again: new fields replace old ones, missing fields are
        kept.

        Content read from a trimmed history does not replace a longer one.
        """
        trimmed = new.truncated and len(new.calls) + new.left_out < len(self.calls) + self.left_out
        same = new.query == self.query and new.calls == self.calls
        content = new
        # The same run reported again changes nothing, not even the time, so that it is not written or embedded again.
        if trimmed or same:
            content = self
        joined = replace(
            content,
            user=self.user or new.user,
            score=self.score,
            comment=self.comment,
            critique=self.critique,
            blamed=self.blamed,
        )
        # A report without feedback does not remove earlier feedback.
        if new.score is None and self.score is not None:
            return joined
        return joined._rated(new.score, new.comment)

    def with_feedback(self, score: float, comment: str, user: str = "") -> Entry:
        """Return the entry with feedback, which a user gives only to their own runs and to runs without a user."""
        # Two users may have threads of one name, and so runs of one digest.
        if user and self.user and self.user != user:
            return self
        text = shortened(clean(comment.strip()), ENTRY_LIMITS.comment)
        return replace(self, user=self.user or user)._rated(float(score), text)

    def _rated(self, score: float | None, comment: str) -> Entry:
        rated = replace(self, score=score, comment=comment)
        if rated.feedback_key == self.feedback_key:
            return rated
        return replace(rated, critique="", blamed="")  # the critique was of other feedback

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Entry:
        """Return the inverse of `to_dict`, raise InputError if it is none; missing fields take their default."""
        try:
            return _READER.validate_python(plain)
        except ValidationError as error:
            raise InputError(f"This is no entry: {reason_of(error)}.") from error


_READER: Final = TypeAdapter(Entry)


def entry_id(run: str) -> str:
    """Return the id of a run's entry, which does not depend on repeated or later reports."""
    return digest("entry", run)


def request_of(run: Run) -> str:
    """Return the request of a run's latest episode (`Run.request`), cut; "" without one."""
    return shortened(clean(run.request), ENTRY_LIMITS.query)


def entry_of(
    run: Run,
    *,
    run_digest: str,
    now: float,
    user: str | None = None,
    score: float | None = None,
    comment: str | None = None,
) -> Entry | None:
    """Return the entry of an episode, or of the last one of a thread; None without a user's message.

    A run without calls has an entry too, because making no call may be right or wrong. If there are too many calls,
    those in the middle are left out.
    """
    run = run.current
    query = request_of(run)
    if not query:
        return None
    steps: list[ExecutedCall] = []
    for event in run.events:
        if isinstance(event, Turn):
            steps += event.steps
    left_out = max(0, len(steps) - ENTRY_LIMITS.calls)
    if left_out:
        head = ENTRY_LIMITS.calls // 2
        steps = steps[:head] + steps[head + left_out :]
    if score is not None:
        score = float(score)
    return Entry(
        id=entry_id(run_digest),
        run=run_digest,
        query=query,
        calls=tuple([_call(step) for step in steps]),
        user=user or "",
        time=round(now, 6),  # Chroma returns some numbers of 17 digits with another last digit
        score=score,
        comment=shortened(clean((comment or "").strip()), ENTRY_LIMITS.comment),
        left_out=left_out,
        truncated=run.truncated,
    )


def _call(step: ExecutedCall) -> EntryCall:
    answer = ""
    if step.output is not None:
        answer = shortened(clean(as_text(step.output)), ENTRY_LIMITS.answer)
    return EntryCall(clean(step.tool), _bounded_args(step.args), step.status, answer)


def _bounded_args(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as JSON values within about the allowed length; long ones are cut to texts."""
    # Through JSON and back, so that an entry is equal to the one that is read from the disk later.
    text = clean(as_text(dict(args)))
    try:
        plain = dict(json.loads(text))
    except (ValueError, RecursionError):  # they are not JSON values
        plain = {}
        for key, value in args.items():
            plain[clean(str(key))] = clean(str(value))
    if len(text) <= ENTRY_LIMITS.args:
        return plain
    most = ENTRY_LIMITS.args // ENTRY_LIMITS.argument
    bounded: dict[str, Any] = {}
    for name, value in islice(plain.items(), most):
        said = as_text(value)
        bounded[name] = value
        if len(said) > ENTRY_LIMITS.argument:
            bounded[name] = shortened(said, ENTRY_LIMITS.argument)
    return bounded


# --- rows ---


class EntryKind(RowKind[Entry]):
    """Entries as rows: the user's words are compared, and entries with feedback are found apart from those without.

    - The same run put again has no effect; with more calls, feedback or a critique the new one replaces the old
      (`Entry.joined`). A run of one user never replaces that of another.
    - An entry is retired (no longer shown) when runs to which it was shown failed significantly more often than half
      the time, and than runs with other entries (`hurts`).
    - If there are too many, entries without feedback are removed first, each kind the oldest first.
    """

    name: ClassVar[str] = "entries"

    def row(self, item: Entry) -> VectorItem:
        plain = item.to_dict()
        # The row has id and query itself. Counts are in the ledger, so that processes do not overwrite each other's.
        for name in ("id", "query", "recalled", "helped", "hurt", "retired"):
            del plain[name]
        # Separate parts, so that the many runs without feedback do not crowd out the few with feedback.
        part = JUDGED_PART
        if item.score is None:
            part = UNJUDGED_PART
        owners = [owner for owner in (item.user, item.run) if owner]
        return VectorItem(item.id, item.query, plain, part, tuple(owners))

    def item(self, row: Hit) -> Entry:
        return Entry.from_dict({**row.metadata, "id": row.id, "query": row.text})

    def joined(self, old: Entry, new: Entry) -> Entry | None:
        # Two users may have threads of one name, and so runs of one digest.
        if old.user and new.user and old.user != new.user:
            logger.warning("a run was reported by two users; the entry of the first stays")
            return None
        return old.joined(new)

    def tracked(self, item: Entry, track: ItemStats, others: ItemStats) -> Entry:
        # One failure and one success are added: with few runs, the share of failures is close to a half.
        usual = (others.hurt + 1) / (others.helped + others.hurt + 2)
        bad = hurts(track.helped, track.hurt, usual)
        return replace(item, recalled=track.shown, helped=track.helped, hurt=track.hurt, retired=bad)

    def retired(self, item: Entry) -> bool:
        return item.retired

    def worth(self, item: Entry) -> tuple[bool, float]:
        return item.score is not None, item.time


EntryRows: TypeAlias = Rows[Entry]


def hurts(helped: int, hurt: int, usual: float) -> bool:
    """Return True if a record retires an entry: more failures than a share p = max(½, usual) of its runs.

    They are more by at least 2.3 standard deviations of the binomial. p is at least a half, because an entry that is
    shown for hard requests sees more failures than others. So six failures without a success retire it, or eight of
    nine.

    Args:
        helped: runs to which it was shown and that went well.
        hurt: runs to which it was shown and that failed.
        usual: share of failures of the other entries, where each run counts once for each shown entry.
    """
    runs, p = helped + hurt, max(0.5, usual)
    excess = hurt - runs * p
    return excess > 0 and excess >= 2.3 * math.sqrt(runs * p * (1 - p))
