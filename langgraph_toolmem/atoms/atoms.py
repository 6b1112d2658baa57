"""Atoms: single steps of good runs, without their values.

An atom says: in this state, for this sub-goal, with known values of these types, this call went well. It is bound
neither to a task, because its values are slots, nor to a tool's name, because `Atom.about` finds its tool among others.

Steps with equal words and equal calls are one atom. The same call in other words is another atom, because each wording
finds other requests; these atoms share `Atom.call`, the key of their record.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import canonical, digest, dumps, one_line
from langgraph_toolmem.text.embedders import clean


@dataclass(frozen=True, slots=True)
class Atom:
    """A single step that worked. Make it with `make_atom`.

    Attributes:
        id: digest of call, state and goal, 16 hexadecimal digits.
        call: digest of tool, arguments and required slots.
        state: abstract state, without values ("known: customer id. done: Find a customer").
        goal: the sub-goal, without values and without tool names.
        required_slots: types of the values that must be known for the call, sorted: ``("DATE", "USER_ID")``.
        tool: name of the tool.
        arguments: as in the call, nested alike; ``"<SLOT>"`` represents a value of that type, anything else is a
            literal. The object is shared: do not change it.
        about: description of the tool.
        value: mean reward of the runs or paths that it comes from, 0 to 1.
        visits: number of steps that it represents, at least 1.
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
        """Return True if the call fails too often when the model follows it, or is almost never followed.

        Too often are 6 failures for each success, plus one; almost never is once in 20 times shown.
        """
        # Runs without feedback are not counted. A call that was followed each time was once dropped after 20 such runs.
        fails = self.failed >= 6 * (self.succeeded + 1)
        is_ignored = self.shown >= 20 * (self.followed + 1)
        return fails or is_ignored


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
    # Sorted, so that the identity does not depend on the order in which a run showed the values.
    slots = tuple(sorted(set(required_slots)))
    call = digest("call", tool, canonical(arguments), *slots)
    # The limits come before the digest: an atom that is read back has its stored id.
    state, goal, about = _line(state, 600), _line(goal, 600), _line(about, 1_000)
    key = digest("atom", call, state, goal)
    return Atom(key, call, state, goal, slots, tool, arguments, about, float(value), visits)


def merge_all(atoms: Iterable[Atom]) -> list[Atom]:
    """Return atoms with those of one id merged: visits add up, values are weighed by visits."""
    alike: dict[str, list[Atom]] = {}
    for atom in atoms:
        alike.setdefault(atom.id, []).append(atom)
    return [_merged(group) for group in alike.values()]


def _merged(atoms: Sequence[Atom]) -> Atom:
    visits, rewards = 0, []
    for atom in atoms:
        visits += atom.visits
        rewards.append(atom.value * atom.visits)
    value = math.fsum(rewards) / visits

    # Atoms of one id may differ in the order of keys and in the description: the choice must not depend on their order.
    def written(atom: Atom) -> str:
        return json.dumps(dict(atom.arguments), default=str)

    def longest_about(atom: Atom) -> tuple[int, str]:
        return len(atom.about), atom.about

    chosen, described = min(atoms, key=written), max(atoms, key=longest_about)
    return replace(chosen, about=described.about, value=value, visits=visits)


def to_plain(atom: Atom) -> dict[str, Any]:
    """Return the atom in JSON values."""
    plain = asdict(atom)
    # Digests of the rest: stored, they could disagree with it.
    del plain["id"], plain["call"]
    return plain


def from_plain(plain: Mapping[str, Any]) -> Atom:
    """Return the atom of `to_plain`; raise InputError if a part is missing or of another type."""
    try:
        _check_texts(plain["required_slots"])
        _check_texts([plain.get(name, "") for name in ("state", "goal", "tool", "about")])
        fields = dict(plain)
        fields["arguments"] = dict(plain["arguments"])
        return make_atom(**fields)
    except KeyError as error:
        raise InputError(f"This is no atom: {error} is missing.") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"This is no atom: {error}.") from error


def storable(atom: Atom) -> Atom:
    """Return the atom as it is read back once it is stored; raise InputError if it cannot be."""
    try:
        # A value nested too deeply is refused here, at once. In a background job it would fail again and again.
        most_levels = 64
        for path in _paths_of(atom.arguments):
            if path.count(".") + path.count("[]") >= most_levels:
                raise InputError(f"The arguments of an atom may have at most {most_levels} levels.")
        # A lone surrogate cannot be written to the disk: `clean` replaces it.
        return from_plain(json.loads(clean(dumps(to_plain(atom), ensure_ascii=False))))
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"This is no atom: {error}.") from error


def placed_scalars(args: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the scalars of arguments with their paths: ``city``, ``items[].id``."""
    if isinstance(args, Mapping):
        for name, value in args.items():
            yield from placed_scalars(value, f"{path}.{name}" if path else str(name))
    elif isinstance(args, (list, tuple)):
        for value in args:
            yield from placed_scalars(value, f"{path}[]")
    else:
        yield path, args


def scalars_of(args: Any) -> Iterator[Any]:
    """Yield the scalars of arguments, without their paths."""
    if isinstance(args, Mapping):
        for value in args.values():
            yield from scalars_of(value)
    elif isinstance(args, (list, tuple)):
        for value in args:
            yield from scalars_of(value)
    else:
        yield args


def _paths_of(args: Any) -> Iterator[str]:
    for path, _value in placed_scalars(args):
        yield path


def _check_texts(values: Any) -> None:
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    if not is_list or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{values!r} is no list of texts")


def _line(text: str, limit: int) -> str:
    flat = clean(one_line(text))
    if len(flat) <= limit:
        return flat
    return flat[: limit - 1].rstrip() + "…"
