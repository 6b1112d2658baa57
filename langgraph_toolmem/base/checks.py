"""Checks of settings, shared by the policies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

from langgraph_toolmem.base.errors import ConfigurationError

T = TypeVar("T", bound=Callable[..., Any])


def expect(policy: object, name: str, what: str, fits: Callable[[Any], bool]) -> None:
    """Raise ConfigurationError with the field and the expected value if a field's value does not fit."""
    value = getattr(policy, name)
    try:
        fine = fits(value)
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise ConfigurationError(f"{type(policy).__name__}.{name} is {what}, not {value!r}.")


def check_fields(name: str, given: set[str], known: set[str], what: str = "field") -> None:
    """Raise ConfigurationError with the first unknown field and the most similar known one."""
    if unknown := sorted(given - known):
        meant = nearest(unknown[0], known)
        instead = f"did you mean {meant!r}? Its" if meant else "its"
        raise ConfigurationError(f"{name} has no {what} {unknown[0]!r}; {instead} {what}s: {', '.join(sorted(known))}.")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to a misspelt one, if any is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, sorted(known), n=1, cutoff=0.7)), None)


def options_named(what: T) -> T:
    """Decorate a class or function so that unknown options raise the error of `check_fields`."""
    made = vars(what)["__init__"] if isinstance(what, type) else what
    kinds = signature(made).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in kinds):
        return what
    known = {each.name for each in kinds} - {"self"}

    @wraps(made)
    def checked(*args: Any, **options: Any) -> Any:
        if not options.keys() <= known:
            name = type(args[0]).__name__ if isinstance(what, type) else made.__name__
            check_fields(name, set(options), known, "option")
        return made(*args, **options)

    if not isinstance(what, type):
        return cast("T", checked)
    what.__init__ = checked  # type: ignore[misc]
    return what


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def names_given(what: str, given: Any) -> tuple[str, ...]:
    """Return names of tools, each once. Raises ConfigurationError if they are no collection of texts."""
    names = () if isinstance(given, (str, bytes)) or not isinstance(given, Iterable) else tuple(given)
    if not all(isinstance(name, str) for name in names) or (not names and given not in ((), [], set(), frozenset())):
        raise ConfigurationError(f"{what} is a list of names of tools, not {given!r}.")
    return tuple(dict.fromkeys(names))
