"""Checks of settings, shared by the policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from langgraph_toolmem.base.errors import ConfigurationError


def expect(policy: object, name: str, what: str, fits: Callable[[Any], bool]) -> None:
    """Raises ConfigurationError, naming the field and what is expected, if a field's value does not fit."""
    value = getattr(policy, name)
    try:
        fine = fits(value)
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise ConfigurationError(f"{type(policy).__name__}.{name} is {what}, not {value!r}.")


def check_fields(name: str, given: set[str], known: set[str]) -> None:
    """Raises ConfigurationError that names the first field that is not known."""
    if unknown := sorted(given - known):
        raise ConfigurationError(f"{name} has no field {unknown[0]!r}; its fields: {', '.join(sorted(known))}.")


def is_number(value: Any) -> bool:
    """A finite number that is no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_share(value: Any) -> bool:
    """A number from 0 to 1."""
    return is_number(value) and 0 <= value <= 1


def is_count(value: Any, least: int) -> bool:
    """A whole number of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def names_given(what: str, given: Any) -> tuple[str, ...]:
    """Names of tools as a developer gave them, each once.

    Raises:
        ConfigurationError: they are no collection of texts.
    """
    names = () if isinstance(given, (str, bytes)) or not isinstance(given, Iterable) else tuple(given)
    if not all(isinstance(name, str) for name in names) or (not names and given not in ((), [], set(), frozenset())):
        raise ConfigurationError(f"{what} is a list of names of tools, not {given!r}.")
    return tuple(dict.fromkeys(names))
