"""The request as the model sees it: the state's messages in their shown form, and the rest as a `ModelInput`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Final, NamedTuple

from langchain_core.messages import BaseMessage, SystemMessage

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.runs.messages import text_of
from langgraph_toolmem.runs.model_input import UNSEEN, ModelInput, Primitive
from langgraph_toolmem.runs.values import VALUE_LIMITS

_LIMIT: Final = 64
"""Fields of a context that are read."""


class SeenMessages(NamedTuple):
    """Messages of a request.

    Attributes:
        own: those of the host's state, trimmed and redacted as the model sees them.
        added: texts that are in this request only: system messages, notes, examples.
    """

    own: list[Any]
    added: list[str]


def seen_messages(state: Sequence[Any], request: Sequence[Any]) -> SeenMessages:
    """Return the messages of a request, separated by whether the host's state has them.

    A message of the state is known by its id, also where its text was redacted.

    Args:
        state: messages of the host's state.
        request: messages of the request to the model.
    """
    # The usual case, without reading the messages: they were neither trimmed nor extended.
    if len(state) == len(request) and all(map(is_, state, request)):
        return SeenMessages(list(request), [])
    ids = {message.id for message in state if isinstance(message, BaseMessage) and message.id}
    objects = set(map(id, state))
    own: list[Any] = []
    added: list[str] = []
    for message in request:
        if id(message) in objects or getattr(message, "id", None) in ids:
            own.append(message)
        else:
            added.append(text_of(message.content, separator="\n"))
    return SeenMessages(own, added)


def model_input_of(
    system: SystemMessage | None,
    messages: SeenMessages,
    runtime: Any,
    *,
    private: Collection[str],
    complete: bool,
) -> ModelInput:
    """Return the model's input besides the state's messages.

    Args:
        system: the system message of the request.
        messages: of the request.
        runtime: of the graph; its context is part of the input.
        private: fields of the context that are not read.
        complete: True if the memory is the last before the model.
    """
    parts: list[str] = []
    if system is not None:
        parts.append(text_of(system.content, separator="\n"))
    # Classes are asked once each: `isinstance` of a pydantic class takes .5 ms for 1,000 messages.
    kinds = {type(message) for message in messages.own}
    of_system = {kind for kind in kinds if issubclass(kind, SystemMessage)}
    if of_system:
        for message in messages.own:
            if type(message) in of_system:
                parts.append(text_of(message.content, separator="\n"))
    parts += messages.added
    return ModelInput(
        system="\n".join(part for part in parts if part),
        context=primitives_of(getattr(runtime, "context", None), private),
        complete=complete,
    )


def given_input(system: str | None, context: Any, private: Collection[str]) -> ModelInput:
    """Return the input that a developer reports with a run.

    Args:
        system: the whole system prompt; None if it is unknown.
        context: of the run; None without a context.
        private: fields of the context that are not read.

    Raises:
        ConfigurationError: `system` is not a text.
    """
    if system is not None and not isinstance(system, str):
        raise ConfigurationError(f"system must be the text of the prompt, got {type(system).__name__}.")
    if system is None and context is None:
        return UNSEEN
    return ModelInput((system or "")[: VALUE_LIMITS.message], primitives_of(context, private), complete=True)


def primitives_of(context: Any, private: Collection[str]) -> dict[str, Primitive]:
    """Return the primitive fields of a run's context, a dataclass, a pydantic model or a dict, without private ones."""
    primitives: dict[str, Primitive] = {}
    for name, value in _fields_of(context):
        # A whole document in the context is too long for an argument of a call.
        if isinstance(value, str) and len(value) > VALUE_LIMITS.message:
            continue
        is_read = isinstance(name, str) and name not in private and len(primitives) < _LIMIT
        if is_read and isinstance(value, (str, int, float, bool)):
            primitives[name] = value
    return primitives


def _fields_of(context: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(context, Mapping):
        return context.items()
    if dataclasses.is_dataclass(context) and not isinstance(context, type):
        return [(field.name, getattr(context, field.name, None)) for field in dataclasses.fields(context)]
    fields: Mapping[str, Any] = getattr(context, "__dict__", {})
    return fields.items()
