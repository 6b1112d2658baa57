"""Chat models by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
