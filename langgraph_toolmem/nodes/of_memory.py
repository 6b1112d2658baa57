"""Access of nodes and middleware to a memory's methods, with a clear error for a missing one."""

from __future__ import annotations

from typing import Any, TypeVar

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.method import Method, check_installed
from langgraph_toolmem.memory import ToolMemory

M = TypeVar("M", bound=Method)


def checked(memory: Any, who: str) -> ToolMemory:
    """The memory. Raises ConfigurationError if it is none."""
    if not isinstance(memory, ToolMemory):
        raise ConfigurationError(f"{who} takes a ToolMemory, not {type(memory).__name__}.")
    return memory


def method_of(memory: Any, kind: type[M], who: str) -> M:
    """A memory's method.

    Raises:
        ConfigurationError: it is no memory, or has no such method.
    """
    found = next((each for each in checked(memory, who).methods if isinstance(each, kind)), None)
    if found is None:
        check_installed(kind.name)
        raise ConfigurationError(f"{who} needs the method {kind.__name__}(): name it in ToolMemory(methods=[…]).")
    return found
