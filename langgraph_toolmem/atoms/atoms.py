"""Atoms: single steps of runs that went well, without the values of the day.

An atom says: in this state, for this sub-goal, with values of these types known, this call went well. It is bound
neither to a task, since its values are slots, nor to a tool's name, since `Atom.about` finds its tool among others.

Steps with equal words and equal calls are one atom. The same call in other words is another atom, because each wording
finds other requests; `Atom.call` is the identity that these atoms share, and what their record is kept under.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.jsontext import dumps
from langgraph_toolmem.base.text import canonical, digest
from langgraph_toolmem.text.embedders import clean

MAX_TEXT: Final = 600
"""Characters of a state or a sub-goal."""
MAX_ABOUT: Final = 1000
MAX_DEPTH: Final = 64
"""Levels of nesting in the arguments of an atom."""
FAILED_AFTER: Final = 6
"""Failures for each success, plus one, after which a call is no longer shown."""
IGNORED_AFTER: Final = 20
"""Times shown for each time followed, plus one, after which a call is no longer shown."""


@dataclass(frozen=True, slots=True)
class Atom:
    """One piece of experience. Make it with `make_atom`.

    Attributes:
        id: digest of call, state and goal, 16 hexadecimal digits.
        call: digest of tool, arguments and required slots.
        state: abstract state, without values ("known: customer id. done: Find a customer").
        goal: the sub-goal, without values and without tool names.
        required_slots: types of the values that must be known for the call, sorted: ``("DATE", "USER_ID")``.
        tool: name of the tool.
        arguments: as in the call, nested alike; ``"<SLOT>"`` stands for a value of that type, anything else is a
            literal. Shared: do not change it.
        about: description of the tool.
        value: mean reward of the runs or paths that it comes from, 0 to 1.
        visits: number of steps that it stands for, at least 1.
    """

    id: str
    call: str
    state: str
    goal: str
    required_slots: tuple[str, ...]
    tool: str
    arguments: Mapping[str, Any]
    about: str = ""
    value: float = 1.0
    visits: int = 1


class AtomRecord(NamedTuple):
    """Counts of a call's hints: shown, followed by the model, and runs with feedback that went well or badly."""

    shown: int = 0
    followed: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def misleads(self) -> bool:
        """Return True if the call fails too often where the model follows it, or is almost never followed."""
        fails = self.failed >= FAILED_AFTER * (self.succeeded + 1)
        return fails or self.shown >= IGNORED_AFTER * (self.followed + 1)


def make_atom(
    *,
    state: str,
    goal: str,
    tool: str,
    arguments: Mapping[str, Any],
    required_slots: Iterable[str] = (),
    about: str = "",
    value: float = 1.0,
    visits: int = 1,
) -> Atom:
    """Return an atom with its id; slots are sorted, texts cut.

    Raises:
        InputError: the tool has no name, or value or visits are out of range.
    """
    if not tool:
        raise InputError("The tool of an atom has no name.")
    if not 0.0 <= value <= 1.0:
        raise InputError(f"The value of an atom must be between 0 and 1, got {value!r}.")
    if visits < 1:
        raise InputError(f"The visits of an atom must be at least 1, got {visits!r}.")
    slots = tuple(sorted(set(required_slots)))
    call = digest("call", tool, canonical(arguments), *slots)
    state, goal, about = _line(state, MAX_TEXT), _line(goal, MAX_TEXT), _line(about, MAX_ABOUT)
    key = digest("atom", call, state, goal)
    return Atom(key, call, state, goal, slots, tool, arguments, about, float(value), visits)


def merge_all(atoms: Iterable[Atom]) -> list[Atom]:
    """Return atoms with those of one id merged: visits add up, values are weighed by visits."""
    alike: dict[str, list[Atom]] = {}
    for atom in atoms:
        alike.setdefault(atom.id, []).append(atom)
    return [_merged(each) for each in alike.values()]


def _merged(atoms: Sequence[Atom]) -> Atom:
    visits = sum(atom.visits for atom in atoms)
    return replace(
        min(atoms, key=lambda atom: json.dumps(dict(atom.arguments), default=str)),  # one order of keys
        about=max((atom.about for atom in atoms), key=lambda text: (len(text), text)),
        value=min(1.0, math.fsum(atom.value * atom.visits for atom in atoms) / visits),
        visits=visits,
    )


def to_plain(atom: Atom) -> dict[str, Any]:
    """Return the atom in JSON values."""
    return {name: value for name, value in asdict(atom).items() if name not in ("id", "call")}


def from_plain(plain: Mapping[str, Any]) -> Atom:
    """Return the atom of `to_plain`.

    Raises:
        InputError: a part is missing or of another type.
    """
    try:
        _texts(
            [*_texts(plain["required_slots"]), *(plain.get(name, "") for name in ("state", "goal", "tool", "about"))]
        )
        return make_atom(**{**plain, "arguments": dict(plain["arguments"])})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"This is no atom: {reason}.") from error


def storable(atom: Atom) -> Atom:
    """Return the atom as it is read back once it is stored: of JSON values and encodable texts.

    Raises:
        InputError: it cannot be stored.
    """
    try:
        if any(path.count(".") + path.count("[]") >= MAX_DEPTH for path, _ in leaves_of(atom.arguments)):
            raise InputError(f"The arguments of an atom may have at most {MAX_DEPTH} levels.")
        return from_plain(json.loads(clean(dumps(to_plain(atom), ensure_ascii=False))))
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"This is no atom: {error}.") from error


def leaves_of(args: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the scalars of arguments with their paths: ``city``, ``items[].id``."""
    if isinstance(args, Mapping):
        for name, value in args.items():
            yield from leaves_of(value, f"{path}.{name}" if path else str(name))
    elif isinstance(args, (list, tuple)):
        for value in args:
            yield from leaves_of(value, f"{path}[]")
    else:
        yield path, args


def _texts(values: Any) -> list[str]:
    if not isinstance(values, Sequence) or isinstance(values, str) or not all(isinstance(v, str) for v in values):
        raise TypeError(f"{values!r} is no list of texts")
    return list(values)


def _line(text: str, limit: int) -> str:
    flat = clean(" ".join(text.split()))
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"
