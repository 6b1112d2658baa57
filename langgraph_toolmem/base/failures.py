"""Logging an error without its text.

The text of an error may quote what a user said or what a tool was called with. So above DEBUG only its kind and
place are logged; text and traceback follow at DEBUG.
"""

from __future__ import annotations

import logging

from langgraph_toolmem.base.errors import ConfigurationError


def describe_error(error: BaseException) -> str:
    """Kind and place of an error, such as ``KeyError at langgraph_toolmem.graph.evidence:99``.

    A `ConfigurationError` keeps its text: it is about settings, and says what to do.
    """
    kind = type(error).__name__
    if isinstance(error, ConfigurationError):
        return f"{kind}: {error}"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
    cause = "" if error.__cause__ is None else f", caused by {type(error.__cause__).__name__}"
    return f"{kind}{place}{cause}"


def log_failure(logger: logging.Logger, level: int, message: str, *args: object, error: BaseException) -> None:
    """Logs a message with the kind and place of an error at `level`, and the error itself at DEBUG.

    Args:
        logger: where to.
        level: of the message.
        message: in logging's ``%`` style; it and its `args` hold nothing of a user.
        args: for the message.
        error: what went wrong.
    """
    logger.log(level, f"{message}: %s", *args, describe_error(error), stacklevel=2)
    logger.debug(message, *args, exc_info=error, stacklevel=2)
