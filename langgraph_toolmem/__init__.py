"""Tool-use memory for LangGraph agents.

>>> from langgraph_toolmem import ToolMemory
>>> with ToolMemory.ephemeral() as memory:
...     memory.observe([("user", "hello"), ("assistant", "Hi!")])
1

Names are imported when they are first used (PEP 562): the command line starts without loading LangGraph.
"""

from __future__ import annotations

import importlib
import typing

from langgraph_toolmem._version import __version__

if typing.TYPE_CHECKING:
    from langgraph_toolmem.atoms import Atoms
    from langgraph_toolmem.atoms.retrieve import AtomHit
    from langgraph_toolmem.atoms.step import SGASettings
    from langgraph_toolmem.base.errors import (
        ConfigurationError,
        EmbedderChangedError,
        GraphFileError,
        InputError,
        LogError,
        LoopError,
        MessageError,
        MissingExtraError,
        NamespaceError,
        StorageError,
        ToolMemoryError,
    )
    from langgraph_toolmem.entries import Entries, RecallPolicy
    from langgraph_toolmem.entries.entry import Critique, Entry
    from langgraph_toolmem.entries.preferences import Preference
    from langgraph_toolmem.inertia import Inertia
    from langgraph_toolmem.inertia.context import PrefetchedContext
    from langgraph_toolmem.inertia.decision import Decision, Proposal
    from langgraph_toolmem.inertia.policy import Bound, InertiaPolicy
    from langgraph_toolmem.inertia.prefetch import Prefetch
    from langgraph_toolmem.inertia.step import InertiaSettings
    from langgraph_toolmem.memory import ToolMemory, default_methods
    from langgraph_toolmem.middleware import tool_memory_middleware
    from langgraph_toolmem.models import with_tool_memory
    from langgraph_toolmem.navigator import Navigator
    from langgraph_toolmem.navigator.plan.planner import Plan
    from langgraph_toolmem.navigator.tool_search import ToolHit
    from langgraph_toolmem.papers.autotool import PaperPolicy
    from langgraph_toolmem.report.report import Report, TokenPrice
    from langgraph_toolmem.sit import SIT
    from langgraph_toolmem.sit.suggest import SITPolicy, Suggestion

_HOMES = {
    "AtomHit": "atoms.retrieve",
    "Atoms": "atoms",
    "Bound": "inertia.policy",
    "Critique": "entries.entry",
    "Decision": "inertia.decision",
    "Entries": "entries",
    "Entry": "entries.entry",
    "Inertia": "inertia",
    "InertiaPolicy": "inertia.policy",
    "InertiaSettings": "inertia.step",
    "Navigator": "navigator",
    "PaperPolicy": "papers.autotool",
    "Plan": "navigator.plan.planner",
    "Preference": "entries.preferences",
    "Prefetch": "inertia.prefetch",
    "PrefetchedContext": "inertia.context",
    "Proposal": "inertia.decision",
    "RecallPolicy": "entries",
    "Report": "report.report",
    "SGASettings": "atoms.step",
    "SIT": "sit",
    "SITPolicy": "sit.suggest",
    "Suggestion": "sit.suggest",
    "TokenPrice": "report.report",
    "ToolHit": "navigator.tool_search",
    "ToolMemory": "memory",
    "default_methods": "memory",
    "tool_memory_middleware": "middleware",
    "with_tool_memory": "models",
}
"""Module of each public name."""

__all__ = [
    "SIT",
    "AtomHit",
    "Atoms",
    "Bound",
    "ConfigurationError",
    "Critique",
    "Decision",
    "EmbedderChangedError",
    "Entries",
    "Entry",
    "GraphFileError",
    "Inertia",
    "InertiaPolicy",
    "InertiaSettings",
    "InputError",
    "LogError",
    "LoopError",
    "MessageError",
    "MissingExtraError",
    "NamespaceError",
    "Navigator",
    "PaperPolicy",
    "Plan",
    "Preference",
    "Prefetch",
    "PrefetchedContext",
    "Proposal",
    "RecallPolicy",
    "Report",
    "SGASettings",
    "SITPolicy",
    "StorageError",
    "Suggestion",
    "TokenPrice",
    "ToolHit",
    "ToolMemory",
    "ToolMemoryError",
    "__version__",
    "default_methods",
    "tool_memory_middleware",
    "with_tool_memory",
]


def __getattr__(name: str) -> typing.Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'base.errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
