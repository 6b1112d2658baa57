"""Every error a developer can see, split by who has to act.

    ToolMemoryError
    ├── ConfigurationError      the developer passed something that cannot work
    │   ├── MissingExtraError   an optional package is not installed; the message has the line to type
    │   └── NamespaceError      the namespace needs a user id and none was found
    ├── InputError              data handed to an explicit call cannot be read
    │   ├── MessageError        `messages` is not what `convert_to_messages` takes
    │   └── LogError            a line of a log file is malformed; it is named by number
    └── StorageError            disk, database or lock
        ├── GraphFileError      the graph file is corrupt, hostile or of a newer format
        └── EmbedderChangedError  stored vectors were made by another embedder

Inside a node or middleware none of them reaches the host: they are logged once and the model is called.
"""

from __future__ import annotations

import importlib.util


class ToolMemoryError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigurationError(ToolMemoryError, ValueError):
    """The developer passed something that cannot work."""


class MissingExtraError(ConfigurationError, ImportError):
    """An optional package is not installed.

    The message holds the line to type, for example ``pip install "langgraph-toolmem[embeddings]"``.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs an optional package. Type: pip install "langgraph-toolmem[{extra}]"')


def has_package(name: str) -> bool:
    """Whether an optional package is installed; it is not imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


class NamespaceError(ConfigurationError):
    """The namespace has a placeholder such as ``{user_id}`` and nothing to put there."""


class InputError(ToolMemoryError, ValueError):
    """Data handed to an explicit call cannot be read."""


class MessageError(InputError):
    """`messages` is not a list that ``langchain_core.messages.convert_to_messages`` takes."""


class LogError(InputError):
    """A line of a log file is malformed.

    Attributes:
        line: 1-based line number in the file.
    """

    def __init__(self, message: str, *, line: int) -> None:
        super().__init__(message)
        self.line = line


class StorageError(ToolMemoryError):
    """The memory's folder or database could not be used."""


class GraphFileError(StorageError):
    """The graph file is corrupt, truncated, hostile or of a newer format."""


class EmbedderChangedError(StorageError):
    """Stored vectors were made by another embedder than the one given now."""
