"""Names of tools and parameters: valid for every provider, and the same at each reading of a document."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

MAX_NAME: Final = 64
"""Length of a name that every provider accepts."""


class Labelled(NamedTuple):
    """A parameter by its place, such as "query", and its name in the document."""

    place: str
    label: str


def legal_name(text: str) -> str:
    """Return a name that every provider accepts; a long one ends in a digest of the whole."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", text.strip())
    return _short(safe.strip("_") or "_")


def _short(name: str) -> str:
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 9]}_{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def free_name(name: str, taken: set[str]) -> str:
    """Return an unused name, and mark it as used."""
    unique, number = name, 2
    # Cut first: four digits and a line would make the longest names too long.
    while unique in taken:
        unique, number = f"{name[: MAX_NAME - 5]}_{number}", number + 1
    taken.add(unique)
    return unique


def names_of(labels: Sequence[Labelled]) -> list[str]:
    """Return the name of each parameter. A name depends on the labels that clash, never on their order.

    Labels of one place that differ only in signs (``StartTime``, ``StartTime<``) get the signs' names
    (``StartTime_lt``). If a name is used in several places, the parameter in the path keeps it, and the others get
    their place as a prefix (``query.id``, ``body.id``).
    """
    # LangChain reserves these among the arguments of a tool.
    reserved = ("config", "run_manager", "self", "runtime")
    in_place = Counter((place, legal_name(label)) for place, label in labels)
    spelled: list[str] = []
    for place, label in labels:
        name = legal_name(label)
        if in_place[place, name] > 1 and name != label:
            name = _short(f"{name}_{_signs(label)}")
        spelled.append(name)
    everywhere = Counter(spelled)
    names: list[str] = []
    for (place, label), name in zip(labels, spelled, strict=True):
        if everywhere[name] > 1 and place != "path":
            name = _short(f"{place}.{name}")
        # Labels may differ in letters that names cannot contain.
        if name in names:
            name = f"{name[: MAX_NAME - 9]}_{_digest(f'{place} {label}')}"
        if name in reserved:
            name = f"{name}_"
        names.append(name)
    return names


def _signs(label: str) -> str:
    signs = {"<": "lt", ">": "gt", "=": "eq", "!": "not", "[]": "list", "*": "any", "@": "at"}
    words = [word for sign, word in signs.items() if sign in label]
    return "_".join(words) or _digest(label)
