"""Checks of settings, shared by the policies, and chat models by name."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from langgraph_toolmem.base.errors import ConfigurationError, InputError, MissingExtraError

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


P = TypeVar("P")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def expect(policy: object, name: str, what: str, fits: Callable[[Any], bool]) -> None:
    """Raise ConfigurationError with the field and the expected value if a field's value does not fit."""
    value = getattr(policy, name)
    try:
        is_fitting = fits(value)
    except (TypeError, ValueError):  # a comparison with a value of another type
        is_fitting = False
    if not is_fitting:
        raise ConfigurationError(f"{type(policy).__name__}.{name} must be {what}, got {value!r}.")


def check_score(score: object, name: str) -> None:
    """Raise ConfigurationError if a score of a run is neither True or False nor a number from 0 to 1."""
    if not is_share(score) and not isinstance(score, bool):
        raise ConfigurationError(f"`{name}` must be from 0 (bad) to 1 (good), got {score!r}.")


def policy_given(policy: P | None, kind: type[P], name: str = "policy") -> P | None:
    """Return the given policy, or None. Raises ConfigurationError if it is of another type."""
    if policy is not None and not isinstance(policy, kind):
        raise ConfigurationError(f"`{name}` must be a {kind.__name__}, got {type(policy).__name__}.")
    return policy


def check_fields(name: str, given: set[str], known: set[str], kind: str = "field") -> None:
    """Raise ConfigurationError with the first unknown field and the most similar known one."""
    unknown = sorted(given - known)
    if unknown:
        meant = nearest(unknown[0], known)
        instead = "its"
        if meant is not None:
            instead = f"did you mean {meant!r}? Its"
        raise ConfigurationError(f"{name} has no {kind} {unknown[0]!r}; {instead} {kind}s: {', '.join(sorted(known))}.")


def with_known_options(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a function that raises ConfigurationError for an unknown keyword, with the most similar option."""
    known = set()
    for parameter in signature(function).parameters.values():
        if parameter.kind is not Parameter.POSITIONAL_ONLY and parameter.name != "self":
            known.add(parameter.name)
    owner = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if not kwargs.keys() <= known:
            check_fields(owner, set(kwargs), known, "option")
        return function(*args, **kwargs)

    return checked


def checks_options(kind: type[P]) -> type[P]:
    """Decorate a dataclass: an unknown field raises ConfigurationError with the most similar field."""
    kind.__init__ = with_known_options(kind.__init__)  # type: ignore[method-assign]
    return kind


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to a misspelt one, if any is similar."""
    from difflib import get_close_matches  # only here: errors are rare, and each import delays the command line

    # Sorted: the suggestion for one misspelling is the same in every process.
    matches = get_close_matches(name, sorted(known), n=1, cutoff=0.7)
    if not matches:
        return None
    return matches[0]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the known name most similar to an unknown one, after a space; "" if none is similar."""
    meant = nearest(name, known)
    if meant is None:
        return ""
    return f" Did you mean {meant!r}?"


class LogLine(NamedTuple):
    """A line for the log, and its level in `logging`."""

    level: int
    text: str


def unknown_name(owner: str, name: str, meant: str | None, *, whole: bool) -> LogLine:
    """Return the line on a name without a known tool.

    Args:
        owner: the setting that has the name.
        name: the name.
        meant: the most similar tool, if any.
        whole: True if all tools are known; otherwise another agent may have that tool.
    """
    message = f"{owner} names {name!r}, and no tool seen so far has that name"
    if meant:
        return LogLine(logging.WARNING, f"{message}; did you mean {meant!r}?")
    if whole:
        return LogLine(logging.WARNING, f"{message}.")
    return LogLine(logging.INFO, f"{message}.")


def is_number(value: Any) -> bool:
    # To Python, a bool is an int. NaN, infinities and integers above every float fail the last comparison.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def score_of(what: str, given: Any) -> float | None:
    """Return feedback as a score; raise InputError if it is neither true, false, None nor a number from 0 to 1."""
    if given is None:
        return None
    if not isinstance(given, bool) and not is_share(given):
        raise InputError(f"{what} must be true, false, None or a score from 0 to 1, got {given!r:.60}.")
    return float(given)


def is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def is_positive(value: Any) -> bool:
    return is_number(value) and value > 0


def is_positive_count(value: Any) -> bool:
    return is_count(value, 1)


def or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check that passes None too."""

    def fits_or_none(value: Any) -> bool:
        return value is None or fits(value)

    return fits_or_none


def names_given(what: str, given: Any) -> tuple[str, ...]:
    """Return names of tools, each once. Raises ConfigurationError if they are not a collection of texts."""
    return tuple(dict.fromkeys(_texts_given(what, given, "tools")))


def fields_given(what: str, given: Any) -> frozenset[str]:
    """Return names of fields. Raises ConfigurationError if they are not a collection of texts."""
    return frozenset(_texts_given(what, given, "fields"))


def _texts_given(what: str, given: Any, of: str) -> tuple[str, ...]:
    names: tuple[Any, ...] = ()
    # To Python, a single name is a collection of letters.
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        names = tuple(given)
    # A dict of settings by tool counts too, such as `interrupt_on` of a deep agent, which may be empty.
    is_empty = not names and given not in ((), [], {}, set(), frozenset())
    if is_empty or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"{what} must be a list of names of {of}, got {given!r}.")
    return names


def constants_given(given: Any) -> frozenset[str]:
    """Return parameters written "tool.parameter". Raises ConfigurationError if they are not."""
    names = names_given("ToolMemory(constants=...)", given)
    for name in names:
        # The last dot: names of tools may have dots too.
        tool, _, parameter = name.rpartition(".")
        if not tool or not parameter:
            raise ConfigurationError(
                f'ToolMemory(constants=...) names {name!r}. Write the tool and the parameter: "search.limit".'
            )
    return frozenset(names)


def resolve_model(text: str, *, name: str, others: tuple[str, ...] = ()) -> BaseChatModel:
    """Return the chat model of ``"provider:model"``; errors show `name`, the argument or option, and `others`.

    Raises:
        ConfigurationError: the text is no such name, or the provider refuses it.
        MissingExtraError: a package is missing.
    """
    if not re.fullmatch(r"[\w-]+:\S.*", text):
        raise ConfigurationError(f"{name} must be one of {', '.join([*others, 'provider:model'])}, got {text!r}.")
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as error:
        raise MissingExtraError(f"{name} {text}", "agents") from error
    try:
        return init_chat_model(text)
    except ImportError as error:
        if text.startswith("openai:"):
            raise MissingExtraError(f"{name} {text}", "openai") from error
        raise ConfigurationError(f"{name} {text}: {error}") from error
    except Exception as error:
        # an unknown provider, no key in the environment: each client has errors of its own
        raise ConfigurationError(f"{name} {text}: {error}") from error
