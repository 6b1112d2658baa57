"""State summaries as values: one that is to be kept, one that is kept, one that was found."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.text.embedders import clean

MAX_CHARS: Final = 4_000
"""Characters of a summary; a longer text is cut, with a note."""

_NO_DIGEST = re.compile(r"[\s:]")


@dataclass(frozen=True, slots=True)
class NewSummary:
    """A summary to keep.

    Attributes:
        source: the tool before, or START.
        target: the tool called next.
        key: identity of the target call, the same whenever the run is read again.
        run: digest of the run; it must hold neither space nor colon.
        user: digest of the user, if there is one; as `run`.
        made_by: "tool", "extractive", "model" or empty.
        time: seconds since 1970; by default when it is added.
    """

    source: str
    target: str
    text: str
    key: str
    run: str = ""
    user: str | None = None
    made_by: str = "tool"
    time: float | None = None

    @property
    def id(self) -> str:
        """The same in every namespace and process."""
        return digest("summary", self.source, self.target, self.key)

    def checked(self, now: float, max_chars: int) -> NewSummary:
        """The same with its text cut to `max_chars`, lone surrogates replaced and the time filled in.

        Raises:
            InputError: a field cannot be used.
        """
        for name in ("source", "target", "key"):
            value: Any = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise InputError(f"The {name} of a summary is a text, not {value!r}.")
        for name in ("run", "user"):
            value = getattr(self, name) or ""
            if not isinstance(value, str) or _NO_DIGEST.search(value):
                raise InputError(f"The {name} of a summary is a digest, without space or colon.")
        time = now if self.time is None else float(self.time)
        if not math.isfinite(time):
            raise InputError(f"The time of a summary is a number of seconds, not {time!r}.")
        source, target, text = clean(self.source), clean(self.target), cut(self.text, max_chars)
        return replace(self, source=source, target=target, text=text, time=time)

    def kept(self) -> StoredSummary:
        """As it is stored. The time is known by then."""
        time, user = self.time or 0.0, self.user or ""
        return StoredSummary(self.id, self.text, self.source, self.target, self.run, time, self.made_by, user=user)


def cut(text: str, max_chars: int) -> str:
    """The text without space around it and without lone surrogates, cut to `max_chars` with a note.

    Raises:
        InputError: it is no text.
    """
    if not isinstance(text, str):
        raise InputError(f"A summary is a text, not {type(text).__name__}.")
    text = clean(text.strip())
    if len(text) <= max_chars:
        return text
    note = f" … [cut from {len(text)} characters]"
    return text[: max_chars - len(note)].rstrip() + note


class Merged(NamedTuple):
    """A transition whose summary said the same as an older one. Run and user are digests, or empty."""

    id: str
    run: str
    user: str


@dataclass(frozen=True)
class StoredSummary:
    """One summary on an edge.

    Attributes:
        run: digest of the run it comes from, or empty.
        time: seconds since 1970.
        made_by: "tool", "extractive", "model" or empty.
        seen: how many transitions said this.
        offered: how often it was the evidence of a suggestion, by the ledger; like the next two no part of what is
            stored.
        followed: how often the model then called the suggested tool.
        right: how often that turned out well.
        user: digest of the user, or empty.
        merged: the transitions merged into it, the latest 64.
    """

    id: str
    text: str
    source: str
    target: str
    run: str
    time: float
    made_by: str
    seen: int = 1
    offered: int = 0
    followed: int = 0
    right: int = 0
    user: str = ""
    merged: tuple[Merged, ...] = ()

    @property
    def usefulness(self) -> float:
        """(right + ½·(followed − right) + 1) / (offered + 2): ½ without a record, 0 to 1."""
        tried = max(self.offered, self.followed, self.right)
        return (self.right + 0.5 * max(0, self.followed - self.right) + 1) / (tried + 2)

    def bad(self, retire_after: int) -> bool:
        """Whether its record retires it: offered ≥ `retire_after` · (right + 1).

        With 20: never right in 20 offers, right once in 40, and so on, so less than once in about 20.
        """
        return self.offered >= retire_after * (self.right + 1)


class Match(NamedTuple):
    """A summary and its cosine with the query, -1 to 1."""

    similarity: float
    summary: StoredSummary
