"""Chat models by name, and their unreadable answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


def resolve_model(text: str, *, name: str, others: tuple[str, ...] = ()) -> BaseChatModel:
    """Return the chat model of ``"provider:model"``; errors show `name`, the argument or option, and `others`."""
    if not re.fullmatch(r"[\w-]+:\S.*", text):
        raise ConfigurationError(f"{name} {text!r} is none of: {', '.join([*others, 'provider:model'])}")
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as error:
        raise MissingExtraError(f"{name} {text}", "agents") from error
    try:
        return init_chat_model(text)
    except ImportError as error:
        if text.startswith("openai:"):
            raise MissingExtraError(f"{name} {text}", "openai") from error
        raise ConfigurationError(f"{name} {text}: {error}") from error
    except Exception as error:
        # an unknown provider, no key in the environment: each client has errors of its own
        raise ConfigurationError(f"{name} {text}: {error}") from error


_UNREADABLE: Final = frozenset({"OpenAIRefusalError", "LengthFinishReasonError", "ContentFilterFinishReasonError"})
"""Errors of clients that are not imported here: the model refused, or its answer was cut off."""


def is_unreadable(error: BaseException) -> bool:
    """Return True if a model answered, but not in the requested form: that is no answer, and no failure."""
    from langchain_core.exceptions import OutputParserException

    return isinstance(error, (OutputParserException, ValueError)) or type(error).__name__ in _UNREADABLE
