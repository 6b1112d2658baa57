"""Names of tools and parameters: legal with every provider, and the same whenever a document is read."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

MAX_NAME: Final = 64
"""Characters of a name that every provider takes."""
_RESERVED: Final = frozenset({"config", "run_manager", "self", "runtime"})
"""Names that LangChain keeps for itself among the arguments of a tool."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_SIGNS: Final[Mapping[str, str]] = {"<": "lt", ">": "gt", "=": "eq", "!": "not", "[]": "list", "*": "any", "@": "at"}


def legal_name(text: str) -> str:
    """Return a name that every provider takes; a long one ends in a digest of the whole."""
    return _short(_UNSAFE.sub("_", text.strip()).strip("_") or "_")


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}_{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def free_name(name: str, taken: set[str]) -> str:
    """Return a name that is not taken yet, and take it."""
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name[: MAX_NAME - 5]}_{number}", number + 1
    taken.add(unique)
    return unique


def names_of(labels: Sequence[tuple[str, str]]) -> list[str]:
    """Return the name of each parameter. A name depends on the labels that clash, never on their order.

    Labels of one place that differ in signs alone (``StartTime``, ``StartTime<``) get the signs' names
    (``StartTime_lt``). Of parameters in several places the one in the path keeps its name, the others get their place
    in front (``query.id``, ``body.id``).

    Args:
        labels: (place, name in the document) of each.
    """
    plain = [(place, legal_name(label)) for place, label in labels]
    in_place = Counter(plain)
    spelled: list[str] = []
    for (place, label), (_, name) in zip(labels, plain, strict=True):
        is_clear = in_place[place, name] == 1 or name == label
        spelled.append(name if is_clear else _short(f"{name}_{_signs(label)}"))
    everywhere = Counter(spelled)
    names: list[str] = []
    for (place, label), name in zip(labels, spelled, strict=True):
        if everywhere[name] > 1 and place != "path":
            name = _short(f"{place}.{name}")
        if name in names:  # labels that differ in letters no name can have
            name = f"{name[: MAX_NAME - 9]}_{_digest(f'{place} {label}')}"
        names.append(f"{name}_" if name in _RESERVED else name)
    return names


def _signs(label: str) -> str:
    words = [word for sign, word in _SIGNS.items() if sign in label]
    return "_".join(words) or _digest(label)
