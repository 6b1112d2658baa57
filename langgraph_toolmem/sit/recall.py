"""Recall in two model calls, for models that never use the summary tool: does it need to, and then the summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, convert_to_messages, get_buffer_string
from pydantic import BaseModel, Field

MAX_CHARS: Final = 12_000
"""Of the history, its latest part, that the model reads."""

_DECIDE: Final = (
    "You watch an agent at work. Decide whether it should look up how similar situations went on in past runs before "
    "its next step. It should when the next tool is not plain from the request and the results so far, for example "
    "when a symptom may have several causes. It should not for a routine step."
)
_WRITE: Final = (
    "Write the state of the agent's work in at most five short sentences: what the user wants, which tools were called "
    "with what outcome, what is still open or unclear. Leave out ids and amounts. Write nothing else."
)


class NeedsRecall(BaseModel):
    """Whether the agent should look up past runs before its next step."""

    recall: bool = Field(description="True: look up how similar situations went on. False: the next step is routine.")


def recall_summary(model: BaseChatModel | None, messages: Sequence[Any]) -> str | None:
    """The summary of a history, if the model finds that it needs one."""
    if model is None:
        return None
    history = _history(messages)
    needed = model.with_structured_output(NeedsRecall).invoke([SystemMessage(_DECIDE), history])
    return _text(model.invoke([SystemMessage(_WRITE), history])) if _wanted(needed) else None


async def arecall_summary(model: BaseChatModel | None, messages: Sequence[Any]) -> str | None:
    """Async twin of `recall_summary`."""
    if model is None:
        return None
    history = _history(messages)
    needed = await model.with_structured_output(NeedsRecall).ainvoke([SystemMessage(_DECIDE), history])
    return _text(await model.ainvoke([SystemMessage(_WRITE), history])) if _wanted(needed) else None


def write_summary(model: BaseChatModel, messages: Sequence[Any]) -> str | None:
    """The summary of a history, without asking whether one is needed."""
    return _text(model.invoke([SystemMessage(_WRITE), _history(messages)]))


def _history(messages: Sequence[Any]) -> HumanMessage:
    read: list[BaseMessage] = [m for m in convert_to_messages(messages) if not isinstance(m, SystemMessage)]
    text = get_buffer_string(read)
    cut = f"[… {len(text) - MAX_CHARS} characters left out]\n{text[-MAX_CHARS:]}" if len(text) > MAX_CHARS else text
    return HumanMessage(f"The history:\n\n{cut}")


def _wanted(answer: Any) -> bool:
    return isinstance(answer, NeedsRecall) and answer.recall


def _text(answer: BaseMessage) -> str | None:
    return answer.text.strip() or None
