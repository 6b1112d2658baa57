"""The arms of an evaluation: the agent without the memory, and with features of it switched on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem.base.checks import nearest
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.inertia.policy import InertiaPolicy

WITHOUT: Final = "without"
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run the agent.

    Attributes:
        name: unique in the evaluation; a repeated arm has a number behind it: "without#2".
        options: of `tool_memory_middleware`; None: the agent runs without a memory.
    """

    name: str
    options: Options | None = None

    @property
    def remembers(self) -> bool:
        """Return True if the agent has a memory in this arm."""
        return self.options is not None


def _with(_: frozenset[str]) -> Options:
    return {}


def _shadow(_: frozenset[str]) -> Options:
    return {"shortcut": InertiaPolicy(shadow=True)}


def _changes(may_write: frozenset[str]) -> Options:
    if not may_write:
        raise ConfigurationError("the arm 'changes' needs the tools that may change something: --may-write NAME")
    return {"shortcut": InertiaPolicy(may_write=may_write)}


def _prefetch(_: frozenset[str]) -> Options:
    return {"shortcut": False, "prefetch": True}


def _context(_: frozenset[str]) -> Options:
    return {"context": True}


def _hints(_: frozenset[str]) -> Options:
    return {"shortcut": False, "suggest": True, "recall": True, "planning": True, "reflect": True}


def _tool_search(_: frozenset[str]) -> Options:
    return {"shortcut": False, "tool_search": True}


def _all(may_write: frozenset[str]) -> Options:
    acting = _changes(may_write) if may_write else {}
    return {**_hints(may_write), "shortcut": True, "prefetch": True, **acting}


KINDS: Final[Mapping[str, Callable[[frozenset[str]], Options]]] = {
    "with": _with,
    "shadow": _shadow,
    "changes": _changes,
    "prefetch": _prefetch,
    "context": _context,
    "hints": _hints,
    "tool_search": _tool_search,
    "all": _all,
}
"""Options by the name of an arm, from the tools that it may make changes with."""


def arms_named(names: Sequence[str], *, may_write: Collection[str] = ()) -> list[Arm]:
    """Return arms by name, such as ``["without", "with", "without"]``; a repeated arm measures the noise.

    Args:
        names: "without" and keys of `KINDS`.
        may_write: names of tools that the arms "changes" and "all" may call without the model.

    Raises:
        ConfigurationError: a name is unknown, or an arm lacks what it needs.
    """
    known = {WITHOUT, *KINDS}
    arms: list[Arm] = []
    for name in names:
        if name not in known:
            meant = nearest(name, known)
            instead = f" Did you mean {meant!r}?" if meant else ""
            raise ConfigurationError(f"there is no arm {name!r}.{instead} Arms: {', '.join(sorted(known))}.")
        times = sum(arm.name.partition("#")[0] == name for arm in arms)
        options = None if name == WITHOUT else KINDS[name](frozenset(may_write))
        arms.append(Arm(f"{name}#{times + 1}" if times else name, options))
    if not arms:
        raise ConfigurationError("an evaluation needs at least one arm")
    return arms
