"""Tool-use memory for LangGraph agents.

>>> from langgraph_toolmem import ToolMemory
>>> with ToolMemory.ephemeral() as memory:
...     memory.observe([("user", "hello"), ("assistant", "Hi!")])
1
"""

from langgraph_toolmem._version import __version__
from langgraph_toolmem.errors import (
    ConfigurationError,
    EmbedderChangedError,
    GraphFileError,
    InputError,
    LockedError,
    LogError,
    MessageError,
    MissingExtraError,
    NamespaceError,
    StorageError,
    ToolMemoryError,
)
from langgraph_toolmem.inertia.proposal import Decision, Proposal
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.policy import EnvironmentAdapter, InertiaPolicy
from langgraph_toolmem.report import Report

__all__ = [
    "ConfigurationError",
    "Decision",
    "EmbedderChangedError",
    "EnvironmentAdapter",
    "GraphFileError",
    "InertiaPolicy",
    "InputError",
    "LockedError",
    "LogError",
    "MessageError",
    "MissingExtraError",
    "NamespaceError",
    "Proposal",
    "Report",
    "StorageError",
    "ToolMemory",
    "ToolMemoryError",
    "__version__",
]
