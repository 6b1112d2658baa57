"""The host's side of a call: state, config, user and stream; traces, logs, and the switch ``TOOLMEM``.

``TOOLMEM`` in the environment switches any app at run time, without a change to its code. ``off``: the agent runs as
without the memory. ``shadow``: the memory learns, predicts and keeps its record, without hints and shortcuts.

No handler is added to the package's logger, not even a ``NullHandler``: in a program that never configured logging,
Python then writes warnings to stderr, the only sign that the memory failed.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime, get_runtime

from langgraph_toolmem.base.errors import LoopError, describe_error, log_failure
from langgraph_toolmem.core.users import Owner

logger = logging.getLogger("langgraph_toolmem.turn")

RUNTIME_KEY: Final = "__pregel_runtime"
"""LangGraph's key of the runtime in a config. It is private, so it is read only if the runtime is not available
otherwise.
"""

EnvMode = Literal["", "shadow", "off"]
Attributes: TypeAlias = dict[str, str | int | float | bool]
"""Flat names to plain values, as OpenTelemetry accepts them."""

# Texts may name a model or a tool, so their number is bounded: a process could log without end.
MAX_WARNED: Final = 256
warned: Final[set[str]] = set()


def warn_once(text: str, *parts: object) -> None:
    """Log a warning, once for each text in a process."""
    _log_once(logging.WARNING, text % parts)


def note_once(text: str, *parts: object) -> None:
    """Log a note at INFO, once for each text in a process."""
    _log_once(logging.INFO, text % parts)


def _log_once(level: int, line: str) -> None:
    if line not in warned and len(warned) < MAX_WARNED:
        warned.add(line)
        logger.log(level, "%s", line)


def env_mode() -> EnvMode:
    """Return the mode that the environment sets; "" if it sets none."""
    # Read at each call, so that the switch works in a running process.
    value = os.environ.get("TOOLMEM", "").strip().lower()
    if value == "off":
        return "off"
    if value == "shadow":
        return "shadow"
    if value not in ("", "on"):
        warn_once("TOOLMEM=%r is neither 'off' nor 'shadow'; it changes nothing", value)
    return ""


def is_active() -> bool:
    """Return True if the memory may show hints and act in the model's place."""
    return not env_mode()


class ErrorLog:
    """Logs each kind of error once, so that a repeated error does not fill the log: ``with errors: ...``.

    Args:
        owner: the part that failed, for the message.
        logger: the logger.
    """

    def __init__(self, owner: str, logger: logging.Logger) -> None:
        self._owner = owner
        self._logger = logger
        self._logged: set[str] = set()

    def __enter__(self) -> None:
        """Begin a block whose errors are logged and suppressed."""

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> bool:
        """Log an error and suppress it. Interrupts, and the end of a looping run, pass."""
        if not isinstance(error, Exception) or isinstance(error, (GraphBubbleUp, LoopError)):
            return False
        self.failed(error)
        return True

    def failed(self, error: Exception) -> None:
        """Log an error that is hidden from the host: kind and place at ERROR, text and traceback at DEBUG.

        The host's traces get it each time.
        """
        annotate({"toolmem.failed": self._owner, "toolmem.error": type(error).__name__})
        kind = describe_error(error)
        if kind not in self._logged:
            self._logged.add(kind)
            log_failure(
                self._logger, logging.ERROR, "%s failed and is passed over (logged once)", self._owner, error=error
            )


# --- state, config, user ---


def read_key(state: Any, key: str) -> Any:
    """Return a key of the host's state: a dict, a dataclass, a pydantic model, or the list of messages itself."""
    if isinstance(state, Mapping):
        return state.get(key)
    if isinstance(state, (list, tuple)):
        return state
    return getattr(state, key, None)


def runtime_of(config: RunnableConfig | None = None) -> Runtime[Any] | None:
    """Return the runtime of the current graph; None outside a graph. Async nodes before Python 3.11 pass the config."""
    try:
        runtime: Any = get_runtime()
    except (RuntimeError, KeyError):
        runtime = None
    if not isinstance(runtime, Runtime):
        runtime = (config or {}).get("configurable", {}).get(RUNTIME_KEY)
    if not isinstance(runtime, Runtime):
        return None
    return runtime


def invocation_of(config: RunnableConfig | None = None) -> object | None:
    """Return an object that all steps of one invocation of a graph share; None outside a graph.

    A run that pauses and continues has two invocations. LangGraph makes one `RunControl` for each, unless the host
    passes its own.
    """
    runtime = runtime_of(config)
    if runtime is None:
        return None
    return runtime.control


def config_of() -> RunnableConfig | None:
    """Return the config of the current run; None outside of a graph, and in async code before Python 3.11."""
    try:
        return get_config()
    except RuntimeError:
        return None


def thread_id_of(config: RunnableConfig | None, runtime: Any = None) -> str | None:
    """Return the thread, if the graph has a checkpointer."""
    thread = (config or {}).get("configurable", {}).get("thread_id")
    if thread is None:
        thread = getattr(getattr(runtime, "execution_info", None), "thread_id", None)
    if thread is None:
        return None
    return str(thread)  # hosts also use numbers and UUIDs


def user_id_of(config: RunnableConfig | None, runtime: Any) -> str | None:
    """Return the user: from the context, the server's user or the configurable, in this order."""
    user = None
    if runtime is not None:
        user = _user_of_runtime(runtime)
    if not user:
        configurable = (config or {}).get("configurable", {})
        user = configurable.get("langgraph_user_id") or configurable.get("user_id")
    if not user:
        return None
    return str(user)


def _user_of_runtime(runtime: Any) -> Any:
    """Return the user in the run's context, otherwise the one that LangGraph's server has authenticated."""
    user = None
    if not isinstance(runtime.context, (list, tuple)):  # `read_key` would take a list for messages
        user = read_key(runtime.context, "user_id")
    if user:
        return user
    server = getattr(runtime, "server_info", None)
    return getattr(getattr(server, "user", None), "identity", None)


def owner_of_run(config: RunnableConfig | None, runtime: Any) -> Owner:
    """Return thread and user of the present run."""
    return Owner(thread_id_of(config, runtime), user_id_of(config, runtime))


# --- stream and traces ---


def emit(runtime: Runtime[Any] | None, event: dict[str, Any], *, on: bool) -> None:
    """Write one custom stream event, ``{"toolmem": event}``, if events are `on` and a graph is running."""
    if on and runtime is not None:
        runtime.stream_writer({"toolmem": event})


def annotate(attributes: Mapping[str, str | int | float | bool]) -> None:
    """Put attributes on the current OpenTelemetry span and the current LangSmith run, if they exist.

    A span gets them twice: as attributes, where the last decision within the span wins, and as an event, so that a span
    around a whole run keeps each decision. The function imports neither package and never raises.

    On Python 3.10 LangGraph does not set a LangSmith run around an async node: then the run around the graph gets the
    attributes, if there is one.
    """
    for write in (_to_span, _to_langsmith):
        try:
            write(attributes)
        except Exception:  # an error of a foreign tracer must not end the host's run
            logger.debug("%s failed", write.__name__, exc_info=True)


def _to_span(attributes: Mapping[str, str | int | float | bool]) -> None:
    # A program that traces has imported its tracer; in other programs the import would only cost time.
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attributes(attributes)
        span.add_event("toolmem", attributes)


def _to_langsmith(attributes: Mapping[str, str | int | float | bool]) -> None:
    helpers: Any = sys.modules.get("langsmith.run_helpers")
    if helpers is None:
        return
    run = helpers.get_current_run_tree()
    if run is not None:
        run.add_metadata(dict(attributes))
