"""Supports of an atom: one for each run, or each search, that it comes from.

An atom of the memory is the sum of its good supports (`total`). So a run whose verdict changes, and a user who is
forgotten, take their wordings and counts with them and leave those of others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from langgraph_toolmem.atoms.atoms import (
    MAX_SOURCES,
    Atom,
    Wording,
    from_plain,
    join_wordings,
    merge_all,
    to_plain,
    wordings_of,
)
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.text.embedders import clean

MAX_SUPPORTS: Final = 32
"""Runs kept per atom, the latest good ones before others; its visits are those of these runs."""
MAX_DEPTH: Final = 64
"""How deeply the arguments of an atom may be nested."""
_NESTED: Final = (Mapping, list, tuple)


@dataclass(frozen=True, slots=True)
class Support:
    """One run's contribution to an atom.

    Attributes:
        part: the atom as that run alone shows it.
        run: digest of the run; "" for atoms that were handed over, such as those of a search.
        user: digest of the user whose run it is, or "".
        score: the run's verdict, None if there is none; the value of what was handed over.
        time: when it came, in seconds since 1970.
    """

    part: Atom
    run: str = ""
    user: str = ""
    score: float | None = None
    time: float = 0.0

    @property
    def good(self) -> bool:
        """Return True if it counts."""
        return not self.run or (self.score is not None and self.score >= GOOD)

    def replaces(self, other: Support) -> bool:
        """Return True if both are of the same run, or of the same search."""
        if self.run != other.run:
            return False
        if self.run:
            return self.user == other.user or not self.user or not other.user
        mine, theirs = self.part, other.part
        shared = mine.sources == theirs.sources or not set(mine.sources).isdisjoint(theirs.sources)
        if not shared and len(mine.sources) == MAX_SOURCES:  # the names of those in common may have been cut off
            shared = _contains(mine, theirs)
        return self.user == other.user and mine.origin == theirs.origin and shared


def storable(atom: Atom) -> Atom:
    """The atom as it is read back once it is stored: of JSON values and texts that can be written, with their id.

    Raises:
        InputError: it cannot be stored.
    """
    if _too_deep(atom.arguments):
        raise InputError(f"The arguments of an atom are nested {MAX_DEPTH} times at most.")
    try:
        plain = json.loads(clean(json.dumps(to_plain(atom), ensure_ascii=False)))
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"This is no atom: {error}.") from error
    return from_plain(plain)


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = (each.values() if isinstance(each, Mapping) else each for each in level if isinstance(each, _NESTED))
        level = [part for parts in inner for part in parts]
    return bool(level)


def total(supports: Sequence[Support]) -> Atom | None:
    """The atom that good supports make; None if there is none."""
    parts = [replace(each.part, value=each.score or 0.0) if each.run else each.part for each in supports if each.good]
    return merge_all(parts)[0] if parts else None


def added(supports: Sequence[Support], new: Support) -> tuple[Support, ...]:
    """With one more support, in the place of what the same run gave before; at most `MAX_SUPPORTS`.

    A run that comes again with less, such as a trimmed history, keeps what it gave; nobody's verdict takes none
    away.
    """
    known = [each for each in supports if new.replaces(each)]
    if known and new.run:
        new = _joined(known[0], new)
    if len(known) == 1 and replace(new, time=known[0].time) == known[0]:
        return tuple(supports)
    kept = [*(each for each in supports if each not in known), new]
    if len(kept) > MAX_SUPPORTS:
        kept.remove(min(kept, key=lambda each: (each.good, each.time)))
    return tuple(kept)


def _contains(one: Atom, other: Atom) -> bool:
    counts = {(each.state, each.goal): each.visits for each in wordings_of(one)}
    return one.visits >= other.visits and all(
        counts.get((each.state, each.goal), 0) >= each.visits for each in wordings_of(other)
    )


def _joined(old: Support, new: Support) -> Support:
    return replace(
        new,
        part=old.part if old.part.visits > new.part.visits else new.part,
        user=new.user or old.user,
        score=old.score if new.score is None else new.score,
    )


def judged(supports: Sequence[Support], run: str, score: float, user: str = "") -> tuple[Support, ...]:
    """With a verdict on a run, of a user if one is named."""
    return tuple(
        replace(each, score=score) if each.run == run and (not user or each.user in ("", user)) else each
        for each in supports
    )


def without(supports: Iterable[Support], *, run: str = "", user: str = "") -> tuple[Support, ...]:
    """Without those of a run or a user."""
    return tuple(each for each in supports if not (run and each.run == run) and not (user and each.user == user))


def to_plain_supports(supports: Sequence[Support]) -> dict[str, Any]:
    """At least one support of one atom, in JSON values."""
    first = supports[0].part
    return {
        "tool": first.tool,
        "arguments": dict(first.arguments),
        "required_slots": list(first.required_slots),
        "about": max((each.part.about for each in supports), key=lambda text: (len(text), text)),
        "supports": [_plain(each) for each in supports],
    }


def from_plain_supports(key: str, plain: Mapping[str, Any]) -> tuple[Support, ...]:
    """The inverse of `to_plain_supports`.

    Raises:
        InputError: it is damaged, or not of the atom with the id `key`.
    """
    try:
        head = {name: plain[name] for name in ("tool", "arguments", "required_slots", "about")}
        first = from_plain({**head, "state": "", "goal": "", "value": 1.0, "visits": 1, "origin": "runs"})
        found = tuple(_support(first, each) for each in plain["supports"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(f"This is no stored atom: {type(error).__name__}.") from error
    if first.id != key or not found:
        raise InputError(f"This is the atom {first.id}, on {len(found)} supports, not {key}.")
    return found


def _plain(each: Support) -> list[Any]:
    part = each.part
    wordings = [list(wording) for wording in wordings_of(part)]
    head = [each.run, each.user, each.score, each.time, part.origin, part.value, part.visits]
    return [*head, list(part.sources), list(part.produces), wordings]


def _support(first: Atom, plain: Sequence[Any]) -> Support:
    run, user, score, time, origin, value, visits, sources, produces, said = plain
    # Many atoms have the same state: it is kept once.
    wordings = join_wordings(Wording(sys.intern(str(state)), str(goal), int(count)) for state, goal, count in said)
    part = replace(
        first,
        state=wordings[0].state,
        goal=wordings[0].goal,
        value=float(value),
        visits=int(visits),
        origin=str(origin),
        sources=tuple(map(str, sources)),
        produces=tuple(map(str, produces)),
        wordings=wordings,
    )
    return Support(part, str(run), str(user), None if score is None else float(score), float(time))
