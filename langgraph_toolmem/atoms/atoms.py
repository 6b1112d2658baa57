"""Atoms: one step each of what worked, with the values of the day taken out.

An atom says: in this state, for this sub-goal, with values of these types known, this call went well. It is not bound
to a task (values are slots) nor to a name (`Atom.about` lets its tool be found among others).

Two atoms are the same if they make the same call of the same needs: tool, masked arguments, required slots. What was
said when it was made differs from task to task, so an atom keeps several wordings of its state and sub-goal, and is
found by any of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, get_args

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import canonical, digest
from langgraph_toolmem.text.embedders import clean

Origin = Literal["search", "runs"]

MAX_SOURCES: Final = 8
"""Runs or tasks named per atom."""
MAX_WORDINGS: Final = 32
"""Wordings kept per atom, the most usual ones."""
MAX_TEXT: Final = 600
"""Characters of a state or a sub-goal."""
MAX_ABOUT: Final = 1000


class Wording(NamedTuple):
    """One way in which an atom's state and sub-goal were worded, and how often."""

    state: str
    goal: str
    visits: int = 1


@dataclass(frozen=True, slots=True)
class Atom:
    """One piece of experience. Make it with `make_atom`.

    Attributes:
        id: digest of what makes it the same atom, 16 hexadecimal digits; see the module.
        state: abstract state, without values ("the customer is known, the order is not yet").
        goal: the sub-goal, without values and without tool names.
        required_slots: types of the values that must be known for the call, sorted: ``("DATE", "USER_ID")``.
        tool: name of the tool.
        arguments: as in the call, nested alike; ``"<SLOT>"`` stands for a value of that type, anything else is meant
            literally. Shared: not to be changed.
        about: description of the tool.
        value: mean reward of the paths it lay on, 0 to 1.
        visits: how many steps it stands for, at least 1.
        origin: found by search (at least once) or taken from recorded runs only.
        sources: ids of runs or tasks it comes from, sorted, at most `MAX_SOURCES`.
        produces: types of the values that its result gave, sorted.
        wordings: the state and the goal with what else was said, the most usual first, at most `MAX_WORDINGS`;
            the first one is `state` and `goal`.
    """

    id: str
    state: str
    goal: str
    required_slots: tuple[str, ...]
    tool: str
    arguments: Mapping[str, Any]
    about: str
    value: float
    visits: int
    origin: str
    sources: tuple[str, ...]
    produces: tuple[str, ...] = ()
    wordings: tuple[Wording, ...] = ()


def identity(tool: str, arguments: Mapping[str, Any], required_slots: Iterable[str]) -> str:
    """The id of the atom with this call and these needs."""
    return digest("atom", tool, canonical(arguments), *sorted(set(required_slots)))


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
    origin: str = "runs",
    sources: Iterable[str] = (),
    produces: Iterable[str] = (),
) -> Atom:
    """An atom with its id; slots and sources are sorted, texts cut.

    Raises:
        InputError: the tool has no name, or value, visits or origin are out of range.
    """
    if not tool:
        raise InputError("The tool of an atom has no name.")
    if not 0.0 <= value <= 1.0:
        raise InputError(f"The value of an atom lies between 0 and 1, and is not {value!r}.")
    if visits < 1:
        raise InputError(f"The visits of an atom are a number from 1 on, not {visits!r}.")
    if origin not in get_args(Origin):
        raise InputError(f"The origin of an atom is one of {', '.join(get_args(Origin))}, not {origin!r}.")
    slots = tuple(sorted(set(required_slots)))
    state, goal = _line(state, MAX_TEXT), _line(goal, MAX_TEXT)
    return Atom(
        identity(tool, arguments, slots),
        state,
        goal,
        slots,
        tool,
        arguments,
        _line(about, MAX_ABOUT),
        float(value),
        visits,
        origin,
        tuple(sorted({source for source in sources if source})[:MAX_SOURCES]),
        tuple(sorted(set(produces))),
        (Wording(state, goal, visits),),
    )


def merge(one: Atom, other: Atom) -> Atom:
    """Two atoms of the same id as one; which one comes first does not matter.

    Visits are added, values weighed by visits, wordings and sources joined and bounded again.

    Raises:
        InputError: they are different atoms.
    """
    if one.id != other.id:
        raise InputError(f"Only atoms of one id are merged, not {one.id} and {other.id}.")
    return _joined([one, other])


def merge_all(atoms: Iterable[Atom]) -> list[Atom]:
    """Atoms with those of one id merged, in the order in which the ids came first.

    Better than one `merge` after another where there are many: what is unusual is left out at the end only.
    """
    alike: dict[str, list[Atom]] = {}
    for atom in atoms:
        alike.setdefault(atom.id, []).append(atom)
    return [_joined(each) if len(each) > 1 else each[0] for each in alike.values()]


def _joined(atoms: Sequence[Atom]) -> Atom:
    visits = sum(atom.visits for atom in atoms)
    wordings = join_wordings(wording for atom in atoms for wording in wordings_of(atom))
    return replace(
        min(atoms, key=lambda atom: json.dumps(dict(atom.arguments), default=str)),  # one order of keys
        state=wordings[0].state,
        goal=wordings[0].goal,
        about=max((atom.about for atom in atoms), key=lambda text: (len(text), text)),
        value=min(1.0, math.fsum(atom.value * atom.visits for atom in atoms) / visits),
        visits=visits,
        origin="search" if any(atom.origin == "search" for atom in atoms) else "runs",
        sources=tuple(sorted({source for atom in atoms for source in atom.sources})[:MAX_SOURCES]),
        produces=tuple(sorted({slot for atom in atoms for slot in atom.produces})),
        wordings=wordings,
    )


def wordings_of(atom: Atom) -> tuple[Wording, ...]:
    """Its wordings, at least one."""
    return atom.wordings or (Wording(atom.state, atom.goal, atom.visits),)


def join_wordings(wordings: Iterable[Wording]) -> tuple[Wording, ...]:
    """Wordings with equal ones counted together, the most usual first, at most `MAX_WORDINGS`."""
    counts: dict[tuple[str, str], int] = {}
    for each in wordings:
        counts[each.state, each.goal] = counts.get((each.state, each.goal), 0) + each.visits
    joined = (Wording(state, goal, visits) for (state, goal), visits in counts.items())
    return tuple(sorted(joined, key=lambda each: (-each.visits, each.goal, each.state))[:MAX_WORDINGS])


def to_plain(atom: Atom) -> dict[str, Any]:
    """The atom in JSON values."""
    return {
        "id": atom.id,
        "state": atom.state,
        "goal": atom.goal,
        "required_slots": list(atom.required_slots),
        "tool": atom.tool,
        "arguments": dict(atom.arguments),
        "about": atom.about,
        "value": atom.value,
        "visits": atom.visits,
        "origin": atom.origin,
        "sources": list(atom.sources),
        "produces": list(atom.produces),
        "wordings": [list(each) for each in atom.wordings],
    }


def from_plain(plain: Mapping[str, Any]) -> Atom:
    """The inverse of `to_plain`.

    Raises:
        InputError: a part is missing or of another type.
    """
    try:
        atom = make_atom(
            state=_text(plain["state"]),
            goal=_text(plain["goal"]),
            tool=_text(plain["tool"]),
            arguments=dict(plain["arguments"]),
            required_slots=_texts(plain["required_slots"]),
            about=_text(plain.get("about", "")),
            value=float(plain["value"]),
            visits=int(plain["visits"]),
            origin=plain["origin"],
            sources=_texts(plain.get("sources", ())),
            produces=_texts(plain.get("produces", ())),
        )
        wordings = join_wordings(
            Wording(str(state), str(goal), int(visits)) for state, goal, visits in plain.get("wordings", ())
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"This is no atom: {reason}.") from error
    return replace(atom, wordings=wordings) if wordings else atom


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _texts(values: Any) -> list[str]:
    if not isinstance(values, Sequence) or isinstance(values, str) or not all(isinstance(v, str) for v in values):
        raise TypeError(f"{values!r} is no list of texts")
    return list(values)


def _line(text: str, limit: int) -> str:
    flat = clean(" ".join(text.split()))
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"
