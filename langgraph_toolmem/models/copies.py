"""Copies of a chat model whose class is a subclass of the model's own, and whole answers as chunks.

Providers' rules and prompt caches look at a model's class (``isinstance(model, ChatAnthropic)``), so a model that does
something else before it generates must stay an instance of it.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from pydantic import PrivateAttr

Model = TypeVar("Model", bound=BaseChatModel)


@dataclass(frozen=True, slots=True)
class Mixins:
    """The classes that come before a chat model's own.

    Attributes:
        attribute: private attribute of the model that they read.
        generates: has ``_generate`` and ``_agenerate``.
        streams: has ``_stream``. Left out for a model without it, because LangChain would conclude that the model can
            stream.
        streams_async: has ``_astream``; likewise.
    """

    attribute: str
    generates: type
    streams: type
    streams_async: type


def copy_with(model: Model, mixins: Mixins, value: Any) -> Model:
    """Return a copy of a chat model, of a subclass with the same name.

    Args:
        model: is left as it is.
        mixins: of the subclass.
        value: of the mixins' attribute.
    """
    copied: Model = copy.copy(model)
    # Not by pydantic's own `__setattr__`, which accepts only fields and may forbid changes.
    object.__setattr__(copied, "__class__", _subclass(type(model), mixins))
    private = dict(getattr(copied, "__pydantic_private__", None) or {})
    private[mixins.attribute] = value
    object.__setattr__(copied, "__pydantic_private__", private)
    return copied


# One class for each model class, so that copies of two models are of the same type, as the models are.
@lru_cache(maxsize=128)
def _subclass(base: type[BaseChatModel], mixins: Mixins) -> type[BaseChatModel]:
    before: list[type] = [mixins.generates]
    if base._stream is not BaseChatModel._stream:
        before.append(mixins.streams)
    if base._astream is not BaseChatModel._astream:
        before.append(mixins.streams_async)
    # With the name of the model's class: traces, serializers and providers' checks by name see the same model.
    members = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__annotations__": {mixins.attribute: Any},
        mixins.attribute: PrivateAttr(default=None),
    }
    # pydantic's metaclass makes the private attribute.
    make: Any = type(base)
    made: type[BaseChatModel] = make(base.__name__, (*before, base), members)
    return made


def chunk_of(message: BaseMessage, generation_info: dict[str, Any] | None = None) -> ChatGenerationChunk:
    """Return a whole answer as the one chunk of a stream."""
    # Chunks carry arguments as JSON text, also those of a whole call.
    pieces = []
    for index, call in enumerate(getattr(message, "tool_calls", ())):
        pieces.append(tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index))
    chunk = AIMessageChunk(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        id=message.id,
        tool_call_chunks=pieces,
        usage_metadata=getattr(message, "usage_metadata", None),
        chunk_position="last",
    )
    return ChatGenerationChunk(message=chunk, generation_info=generation_info)


def message_of(chunk: ChatGenerationChunk) -> AIMessage:
    """Return the joined chunks of a stream as an answer."""
    message = chunk.message
    return AIMessage(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        tool_calls=getattr(message, "tool_calls", []),
        id=message.id,
        usage_metadata=getattr(message, "usage_metadata", None),
    )


def joined(before: ChatGenerationChunk | None, chunk: ChatGenerationChunk) -> ChatGenerationChunk:
    """Return the chunks of a stream so far, joined; `before` is None for the first."""
    if before is None:
        return chunk
    return before + chunk
