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

from collections.abc import Iterable
from typing import Any, ClassVar

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.contributions import Command
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.listener import Listener


class Method(Listener):
    """One idea on a memory. Override what you need of it and of `Listener`; every default does nothing.

    Attributes:
        name: attribute of the memory; prefix of what it keeps.
        steps: what it does at a model call (`langgraph_toolmem.extend.Step`).
        commands: its part of the command line.
        core: what it stands on, from `open` on.
    """

    steps: ClassVar[tuple[type[Any], ...]] = ()
    commands: ClassVar[tuple[Command, ...]] = ()

    core: Core

    def open(self, core: Core) -> None:
        """Takes what it needs from the core: tables, kinds of jobs. Nothing is read from disk here."""
        self.core = core


def check_methods(methods: Iterable[Any]) -> list[Method]:
    """The methods of a memory, each once.

    Raises:
        ConfigurationError: one of them is no method, was given to another memory, or two have one name.
    """
    found: dict[str, Method] = {}
    for each in methods:
        if not isinstance(each, Method):
            hint = f": give an instance, {each.__name__}()" if isinstance(each, type) else ""
            raise ConfigurationError(f"methods holds {each!r}, which is no Method{hint}.")
        if hasattr(each, "core"):
            raise ConfigurationError(f"The method {each.name!r} belongs to another memory; make a new one.")
        if each.name in found:
            raise ConfigurationError(f"Two methods are called {each.name!r}.")
        found[each.name] = each
    return list(found.values())
