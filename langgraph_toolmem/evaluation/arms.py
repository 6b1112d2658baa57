"""The arms of an evaluation: the agent without the memory, and with features of it switched on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
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
        name: unique in the evaluation; a repeated arm has a number after it: "without#2".
        options: of `tool_memory_middleware`; None for an agent without a memory.
    """

    name: str
    options: Options | None = None

    @property
    def remembers(self) -> bool:
        """Return True if the agent has a memory in this arm."""
        return self.options is not None


_HINTS_ALONE: Final[Options] = {"shortcut": False, "suggest": True, "recall": True, "planning": True, "reflect": True}
_ARM_OPTIONS: Final[Mapping[str, Options]] = {
    "with": {},
    "shadow": {"shortcut": InertiaPolicy(shadow=True)},
    # Without the shortcut: a request that it answers does not show these features.
    "prefetch": {"shortcut": False, "prefetch": True},
    "hints": _HINTS_ALONE,
    "tool_search": {"shortcut": False, "tool_search": True},
    "context": {"context": True},
}
"""Options of the arms that need no tools by name."""
_CHANGES: Final = "changes"


def arms_named(names: Sequence[str], *, may_write: Collection[str] = ()) -> list[Arm]:
    """Return arms by name, such as ``["without", "with", "without"]``; a repeated arm measures the noise.

    Args:
        names: "without", "with", or a feature: see `docs/evaluation.md`.
        may_write: names of tools that the arms "changes" and "all" may call without the model.

    Raises:
        ConfigurationError: a name is unknown, or an arm lacks its tools.
    """
    known = {WITHOUT, *_ARM_OPTIONS, _CHANGES, "all"}
    arms: list[Arm] = []
    times: Counter[str] = Counter()
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigurationError(f"there is no arm {name!r}.{hint} Arms: {', '.join(sorted(known))}.")
        times[name] += 1
        unique = name
        if times[name] > 1:
            unique = f"{name}#{times[name]}"
        arms.append(Arm(unique, _options_of(name, frozenset(may_write))))
    if not arms:
        raise ConfigurationError("an evaluation needs at least one arm")
    return arms


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return a sentence with the known name that is most similar to an unknown one, or ""."""
    meant = nearest(name, known)
    return f" Did you mean {meant!r}?" if meant else ""


def _options_of(name: str, may_write: frozenset[str]) -> Options | None:
    """Return the options of an arm. Raises ConfigurationError if it needs tools and there are none."""
    if name == WITHOUT:
        return None
    if name == _CHANGES:
        if not may_write:
            raise ConfigurationError("the arm 'changes' needs the tools that may change something: --may-write NAME")
        return {"shortcut": InertiaPolicy(may_write=may_write)}
    if name == "all":
        # Without named tools it makes only look-ups, as by default.
        shortcut = InertiaPolicy(may_write=may_write) if may_write else True
        return {**_HINTS_ALONE, "shortcut": shortcut, "prefetch": True}
    return _ARM_OPTIONS[name]
