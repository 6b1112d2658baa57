"""HTTP routes of tools, such as ``GET /orders/{order_id}/items``: what a path says of its parameters and its answer.

In ``/orders/{order_id}/items`` the parameter ``order_id`` names an element of the collection ``/orders``, so what
``GET /orders`` lists has its values; the answer is about an item.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_SLOT: Final = re.compile(r"\{([^{}]+)\}")
_FORMAT: Final = re.compile(r"\.(?:json|xml|csv)$")
READS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Attributes:
        method: in upper case.
        path: with ``{}`` in place of each parameter: two routes with other names for the same places are one.
        slots: parameter -> the path in front of it.
    """

    method: str
    path: str
    slots: dict[str, str]

    @property
    def reads(self) -> bool:
        """True if a call changes nothing by the method."""
        return self.method in READS

    @property
    def lists(self) -> bool:
        """True if it reads a collection: its path ends in a name."""
        return self.reads and not self.path.endswith("{}")


@lru_cache(maxsize=65_536)
def route_of(text: str) -> Route | None:
    """Return the route of a `ToolSpec.route`; None for ""."""
    method, _, path = text.partition(" ")
    if not path:
        return None
    path = _FORMAT.sub("", path.split("?", 1)[0].rstrip("/"))
    slots = {slot[1]: _SLOT.sub("{}", path[: slot.start()]).rstrip("/") for slot in _SLOT.finditer(path)}
    return Route(method, _SLOT.sub("{}", path), slots)


def names_in(text: str) -> str:
    """Return the parts of a `ToolSpec.route` that are no parameters.

    >>> names_in("GET /repos/{owner}/pull-requests/{number}")
    ' repos  pull-requests '
    """
    return _SLOT.sub("", text.partition(" ")[2]).replace("/", " ")
