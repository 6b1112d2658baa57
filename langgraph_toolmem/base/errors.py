"""All errors that a developer can see, by the person who has to act, and the log of the memory's own failures.

    ToolMemoryError
    ├── ConfigurationError      the developer passed something that cannot work
    │   ├── MissingExtraError   an optional package is not installed; the message has the line to type
    │   └── NamespaceError      the namespace needs a user id and none was found
    ├── InputError              data passed to an explicit call cannot be read
    │   ├── MessageError        `messages` is not what `convert_to_messages` accepts
    │   └── LogError            a line of a log file is malformed; `line` is its number
    ├── LoopError               the loop guard ended a run that went round in a loop
    └── StorageError            disk, database or lock
        ├── GraphFileError      the graph file is corrupt, hostile or of a newer format
        └── EmbedderChangedError  stored vectors were made by another embedder

Inside a node or middleware only `LoopError` reaches the host: the others are logged once and the model is called. The
text of an error may quote a user or a tool's arguments, so above DEBUG the log has only its kind and place.
"""

from __future__ import annotations

import importlib.util
import logging


class ToolMemoryError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigurationError(ToolMemoryError, ValueError):
    """The developer passed an invalid argument."""


class MissingExtraError(ConfigurationError, ImportError):
    """An optional package is not installed; the message has the line to type."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional package. {install_extra(extra)}")


def install_extra(extra: str) -> str:
    return f'In the checkout of langgraph-toolmem, type: pip install ".[{extra}]"'


def has_package(name: str) -> bool:
    """Return True if an optional package is installed, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


class NamespaceError(ConfigurationError):
    """The namespace has a placeholder such as ``{user_id}`` and no value for it."""


class InputError(ToolMemoryError, ValueError):
    """Data passed to an explicit call cannot be read."""


class MessageError(InputError):
    """`messages` is not a list that ``langchain_core.messages.convert_to_messages`` accepts."""


class LogError(InputError):
    """A line of a log file is malformed; `line` is its 1-based number."""

    def __init__(self, message: str, *, line: int) -> None:
        super().__init__(message)
        self.line = line


class LoopError(ToolMemoryError):
    """The loop guard ended a run: equal calls with equal results, again after notes."""


class StorageError(ToolMemoryError):
    """The memory's folder or database could not be used."""


class GraphFileError(StorageError):
    """The graph file is corrupt, truncated, hostile or of a newer format."""


class EmbedderChangedError(StorageError):
    """Stored vectors were made by another embedder than the one given now."""


def describe_error(error: BaseException) -> str:
    """Return kind and place of an error, such as ``KeyError at langgraph_toolmem.graph.tool_graph:99``.

    A `ConfigurationError` keeps its text: it concerns settings, and says what to do.
    """
    kind = type(error).__name__
    if isinstance(error, ConfigurationError):
        return f"{kind}: {error}"
    # The texts of all other errors may quote arguments and results of tools, so they are not logged.
    description = kind + _place_of(error)
    if error.__cause__ is not None:
        description += f", caused by {type(error.__cause__).__name__}"
    return description


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the error as Python writes it if it has none."""
    text = str(error).strip() or repr(error)
    return text.splitlines()[0]


def _place_of(error: BaseException) -> str:
    """Return module and line where an error was raised, "" if it was not raised yet."""
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "?")
    return f" at {module}:{trace.tb_lineno}"


def log_failure(logger: logging.Logger, level: int, message: str, *args: object, error: BaseException) -> None:
    """Log a message at `level` with the kind and place of an error, and the error itself at DEBUG.

    The message is in logging's ``%`` style; neither the message nor its `args` may contain data of a user.
    """
    # stacklevel: the log names the caller's line.
    logger.log(level, f"{message}: %s", *args, describe_error(error), stacklevel=2)
    logger.debug(message, *args, exc_info=error, stacklevel=2)
