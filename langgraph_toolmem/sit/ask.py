"""Recall in two model calls, for models that never use the summary tool: does it need to, and then the summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, convert_to_messages, get_buffer_string

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.turn.ask import Ask, Asking

MAX_CHARS: Final = 12_000
"""Of the history, its latest part, that the model reads."""

_YES_OR_NO: Final = re.compile(r"\b(?:yes|no)\b", re.IGNORECASE)

_DECIDE: Final = (
    "You watch an agent at work. Decide whether it should look up how similar situations went on in past runs before "
    "its next step. It should when the next tool is not plain from the request and the results so far, for example "
    "when a symptom may have several causes. It should not for a routine step. Answer with one word: yes or no."
)
_WRITE: Final = (
    "Write the state of the agent's work in at most five short sentences: what the user wants, which tools were called "
    "with what outcome, what is still open or unclear. Leave out ids and amounts. Write nothing else."
)


def asking_summary(
    model: BaseChatModel | None, messages: Sequence[Any], *, failed: Callable[[Exception], None]
) -> Asking[str | None]:
    """The summary of a history, if the model finds that it needs one.

    Args:
        model: is asked; None: there is no summary.
        messages: the history.
        failed: told of an error of the model: then there is no summary, and the agent goes on.
    """
    if model is None:
        failed(ConfigurationError('recall="auto" needs a model that writes the summaries.'))
        return None
    try:
        history = _history(messages)
        needed = yield Ask(model, [SystemMessage(_DECIDE), history])
        return _text((yield Ask(model, [SystemMessage(_WRITE), history]))) if _wanted(needed) else None
    except Exception as error:  # noqa: BLE001 - whatever a model or its client raises
        failed(error)
        return None


def write_summary(model: BaseChatModel, messages: Sequence[Any]) -> str | None:
    """The summary of a history, without asking whether one is needed."""
    return _text(model.invoke([SystemMessage(_WRITE), _history(messages)]))


def _history(messages: Sequence[Any]) -> HumanMessage:
    read: list[BaseMessage] = [m for m in convert_to_messages(messages) if not isinstance(m, SystemMessage)]
    text = get_buffer_string(read)
    cut = f"[… {len(text) - MAX_CHARS} characters left out]\n{text[-MAX_CHARS:]}" if len(text) > MAX_CHARS else text
    return HumanMessage(f"The history:\n\n{cut}")


def _wanted(answer: BaseMessage) -> bool:
    """Read from plain words: not every chat model can answer in a given structure. Who thinks aloud decides last."""
    said = _YES_OR_NO.findall(answer.text)
    return bool(said) and said[-1].lower() == "yes"


def _text(answer: BaseMessage) -> str | None:
    return answer.text.strip() or None
