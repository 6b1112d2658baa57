"""The protocol of a method: one idea on a memory. The five built-in ones use nothing that a stranger's could not.

A method is told what happens, in the order of the memory's list (`Listener`):

=============  =============================================================================================
``open``       the memory begins: take tables, rows, kinds of jobs. Nothing is read from disk here
``turn``       a model turn is learned: what it returns joins the turn's record, under the memory's lock
``repeated``   a turn that was learned before is met again: likewise
``verdict``    a run gets a verdict: likewise
``learned``    turns of a run were learned
``ended``      a run is over
``judged``     a run has its verdict, or another one
``imported``   recorded runs are taken in, many at once
``forget``     everything of a user goes
``close``      the memory ends
``report``     somebody looks
=============  =============================================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from langgraph_toolmem.base.checks import options_named
from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError, has_package
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.listener import Listener

logger = logging.getLogger("langgraph_toolmem.core.method")

_off: Final = dict[str, str]()
"""Names of built-in methods whose packages are not installed, and the extras that bring them."""


class Method(Listener):
    """One idea on a memory. Override what you need of it and of `Listener`; every default does nothing.

    Attributes:
        name: attribute of the memory; prefix of what it keeps.
        steps: what it does at a model call (`langgraph_toolmem.extend.Step`).
        package: what must be installed for it, and the extra that brings it; None: nothing beside the core.
        core: what it stands on, from `open` on.
    """

    steps: ClassVar[tuple[type[Any], ...]] = ()
    package: ClassVar[tuple[str, str] | None] = None

    core: Core

    def __init_subclass__(cls, **more: Any) -> None:
        """Has unknown options of the method named."""
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            options_named(cls)

    def open(self, core: Core) -> None:
        """Takes what it needs from the core: tables, kinds of jobs. Nothing is read from disk here."""
        self.core = core


def check_methods(methods: Iterable[Any]) -> list[Method]:
    """The methods of a memory, each once.

    Raises:
        ConfigurationError: one of them is no method, was given to another memory, or two have one name.
        MissingExtraError: a package is missing for one of them.
    """
    found: dict[str, Method] = {}
    for each in methods:
        if not isinstance(each, Method):
            hint = f": give an instance, {each.__name__}()" if isinstance(each, type) else ""
            raise ConfigurationError(f"methods holds {each!r}, which is no Method{hint}.")
        if each.package is not None and not has_package(each.package[0]):
            raise MissingExtraError(type(each).__name__, each.package[1])
        if hasattr(each, "core"):
            raise ConfigurationError(f"The method {each.name!r} belongs to another memory; make a new one.")
        if each.name in found:
            raise ConfigurationError(f"Two methods are called {each.name!r}.")
        found[each.name] = each
    return list(found.values())


def installed(methods: Iterable[Method]) -> list[Method]:
    """Those of the methods whose packages are installed; the log is told of the others, once."""
    there, new = list[Method](), dict[str, str]()
    for each in methods:
        if each.package is None or has_package(each.package[0]):
            there.append(each)
        elif each.name not in _off:
            new[each.name] = each.package[1]
    if new:
        _off.update(new)
        extras = ",".join(dict.fromkeys(new.values()))
        logger.warning('Off: %s. To have them: pip install "langgraph-toolmem[%s]"', ", ".join(new), extras)
    return there


def check_installed(name: str) -> None:
    """Raises `MissingExtraError` if a method of that name was left out by `installed`."""
    if name in _off:
        raise MissingExtraError(f"The method {name!r}", _off[name])
