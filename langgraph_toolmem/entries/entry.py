"""An entry: what is kept of one finished run, and how it is made from the run.

Everything in it is bounded. What is cut says so: ``head [… cut from 5812 characters …] tail``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import as_text, digest, shortened
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.runs.messages import Status
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn
from langgraph_toolmem.text.embedders import clean

MAX_QUERY: Final = 2_000
MAX_ANSWER: Final = 300
MAX_ARGS: Final = 1_500
"""Characters of one call's arguments as JSON."""
MAX_TEXT: Final = 200
"""Characters of one text among the arguments, where they have to be cut."""
MAX_CALLS: Final = 40
MAX_COMMENT: Final = 500
MAX_CRITIQUE: Final = 1_500


@dataclass(frozen=True, slots=True)
class EntryCall:
    """One tool call of a run.

    Attributes:
        args: JSON values; long ones are cut.
        status: as of a `ExecutedCall`.
        answer: the tool's answer as text, cut; "" if there is none.
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
        query: what the user asked for in it, one message a line (`runs.run.request_in`).
        calls: its tool calls in order.
        user: digest of the user, or "".
        time: seconds since 1970, when the run was reported.
        score: the verdict, 0 (bad) to 1 (good); None: nobody said.
        comment: a word on it, or "".
        critique: what went wrong and what to do instead, or "". Only of a run that failed.
        critique_of: the `verdict` that the critique was asked for; a critic may have had nothing to say.
        blamed: the tool whose call the critique names, or "".
        made_by: "run", or what else it comes from.
        left_out: calls in the middle that were too many to keep.
        truncated: the head of the run was missing when it was read.
        recalled: how often it was shown, by the ledger; like the next three no part of what is stored.
        helped: how often a run that was shown it went well.
        hurt: how often such a run failed.
        retired: its record is bad; it is not shown any more.
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
    critique_of: str = ""
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
        """Whether somebody said that it went wrong."""
        return self.score is not None and self.score < GOOD

    @property
    def good(self) -> bool:
        """Whether somebody said that it went well."""
        return self.score is not None and self.score >= GOOD

    @property
    def verdict(self) -> str:
        """Identity of the verdict as far as a critique depends on it: the direction and the comment."""
        return digest("verdict", "none" if self.score is None else int(self.failed), self.comment)

    @property
    def wants_critique(self) -> bool:
        """Whether it failed and no critique was made for this verdict."""
        return self.failed and self.critique_of != self.verdict

    @property
    def tools(self) -> tuple[str, ...]:
        """Tools that were executed, each once, in the order of their first call."""
        return tuple(dict.fromkeys(call.tool for call in self.calls if call.status in ("ok", "failed")))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Entry:
        """The inverse of `to_dict`; unknown fields are passed over, missing ones take their default.

        Raises:
            InputError: it is no entry.
        """
        try:
            known = {name: plain[name] for name in _FIELDS if name in plain}
            known["calls"] = tuple(
                EntryCall(str(c["tool"]), dict(c["args"]), c["status"], str(c.get("answer", "")))
                for c in plain["calls"]
            )
            return cls(**known)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"This is no entry: {type(error).__name__} at {error}.") from error


_FIELDS: Final = tuple(field.name for field in fields(Entry))


def entry_id(run: str) -> str:
    """The id of a run's entry: the same whatever is reported twice or later."""
    return digest("entry", run)


def request_of(run: Run, max_query: int = MAX_QUERY) -> str:
    """What the latest episode of a run asks for (`Run.request`), cut; "" if nothing."""
    return shortened(clean(run.request), max_query)


def entry_of(
    run: Run,
    *,
    run_digest: str,
    now: float,
    user: str | None = None,
    score: float | None = None,
    comment: str | None = None,
    made_by: str = "run",
    max_query: int = MAX_QUERY,
    max_answer: int = MAX_ANSWER,
    max_calls: int = MAX_CALLS,
) -> Entry | None:
    """What is to be kept of an episode.

    Args:
        run: the episode, or a thread that ends with it, as far as it is there.
        run_digest: its identity.
        now: seconds since 1970.
        user: digest of the user.
        score: the verdict, if known.
        comment: a word on it.
        made_by: where it comes from.
        max_query: characters of the user's words.
        max_answer: characters of each tool's answer.
        max_calls: calls kept; of more, those in the middle go.

    Returns:
        None if the user said nothing. A run without calls has an entry: that none was made may turn out right or
        wrong.
    """
    run = run.current
    query = request_of(run, max_query)
    steps = [step for event in run.events if isinstance(event, Turn) for step in event.steps]
    if not query:
        return None
    left_out = max(0, len(steps) - max_calls)
    if left_out:
        head = max_calls // 2
        steps = steps[:head] + steps[head + left_out :]
    return Entry(
        id=entry_id(run_digest),
        run=run_digest,
        query=query,
        calls=tuple(_call(step, max_answer) for step in steps),
        user=user or "",
        time=round(now, 6),  # Chroma gives some numbers of 17 digits back with another last one
        score=None if score is None else float(score),
        comment=shortened(clean((comment or "").strip()), MAX_COMMENT),
        made_by=made_by,
        left_out=left_out,
        truncated=run.truncated,
    )


def joined(old: Entry, new: Entry) -> Entry:
    """What stands when the same run is reported again: what is new replaces, what is missing stays.

    Content read from a trimmed history does not replace a longer one.
    """
    trimmed = new.truncated and len(new.calls) + new.left_out < len(old.calls) + old.left_out
    same = new.query == old.query and new.calls == old.calls
    content = old if trimmed or same else new
    verdict = old if new.score is None and old.score is not None else new
    critic = new if new.critique_of else old
    return settled(
        replace(
            content,
            user=old.user or new.user,
            score=verdict.score,
            comment=verdict.comment,
            critique=critic.critique,
            critique_of=critic.critique_of,
            blamed=critic.blamed,
        )
    )


def judged(entry: Entry, score: float, comment: str, user: str = "") -> Entry:
    """The entry with a verdict. One by a user does not count for another's run; a run of nobody is that user's then."""
    if user and entry.user and entry.user != user:
        return entry
    text = shortened(clean(comment.strip()), MAX_COMMENT)
    owner = entry.user or user
    return settled(replace(entry, score=float(score), comment=text, user=owner))


def settled(entry: Entry) -> Entry:
    """The entry without its critique, unless it failed. A critique of another comment stays until a newer comes."""
    return entry if entry.failed else replace(entry, critique="", critique_of="", blamed="")


def _call(step: ExecutedCall, max_answer: int) -> EntryCall:
    answer = "" if step.output is None else shortened(clean(as_text(step.output)), max_answer)
    return EntryCall(clean(step.tool), _bounded_args(step.args), step.status, answer)


def _bounded_args(args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as JSON values of at most about `MAX_ARGS` characters."""
    text = clean(as_text(dict(args)))
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = None
    # Otherwise they are no JSON values at all.
    plain: dict[str, Any] = read if isinstance(read, dict) else {str(key): str(args[key]) for key in args}
    if len(text) <= MAX_ARGS:
        return plain
    each = max(MAX_ARGS // max(1, len(plain)) - 40, 40)
    cut = {key: _bounded_value(value, min(MAX_TEXT, each)) for key, value in list(plain.items())[: MAX_ARGS // 80]}
    if len(plain) > len(cut):
        cut["…"] = f"{len(plain) - len(cut)} more arguments left out"
    return cut


def _bounded_value(value: Any, limit: int) -> Any:
    text = as_text(value)
    return value if len(text) <= limit else shortened(text, limit)
