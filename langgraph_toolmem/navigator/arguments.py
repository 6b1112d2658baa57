"""Checks of what a program asks of the navigator. All raise ConfigurationError."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from langgraph_toolmem.base.checks import is_count
from langgraph_toolmem.base.errors import ConfigurationError


def check_names(what: str, names: object) -> None:
    """Check that names of tools are a list, set or other collection of texts."""
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ConfigurationError(f"{what} is a collection of names of tools, not {names!r}.")
    if not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"{what} holds something that is no name of a tool.")


def check_aliases(aliases: object) -> None:
    """Check names of parameters, by ``tool.path``."""
    if not isinstance(aliases, Mapping) or not all(isinstance(each, str) for pair in aliases.items() for each in pair):
        raise ConfigurationError(f"aliases is a mapping of 'tool.path' to names of parameters, not {aliases!r}.")


def check_search(query: object, k: object, available: object, target: object) -> None:
    """Check the arguments of `Navigator.search`."""
    if not isinstance(query, str):
        raise ConfigurationError(f"query is a text, not {type(query).__name__}.")
    if not is_count(k, 0):
        raise ConfigurationError(f"k is a whole number from 0, not {k!r}.")
    if available is not None:
        check_names("available", available)
    if not isinstance(target, (str, type(None))):
        raise ConfigurationError(f"target is the name of one tool, not {target!r}.")


def check_plan(known: object, done: object, k: object, strategy: object, seed: object, budget: object) -> None:
    """Check the arguments that `Navigator.plan` and `Navigator.reroute` share."""
    if isinstance(known, str) or not isinstance(known, Iterable):
        raise ConfigurationError(f"known is a collection of names, or name -> value, not {known!r}.")
    check_names("done", done)
    if not is_count(k, 1):
        raise ConfigurationError(f"k is a whole number from 1, not {k!r}.")
    if strategy not in ("alpha_beta", "annealing"):
        raise ConfigurationError(f"strategy is 'alpha_beta' or 'annealing', not {strategy!r}.")
    if not isinstance(seed, int):
        raise ConfigurationError(f"seed is a whole number, not {seed!r}.")
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not budget >= 0:
        raise ConfigurationError(f"budget is a number of seconds from 0, not {budget!r}.")
