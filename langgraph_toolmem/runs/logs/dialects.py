"""All message formats, and the reading of a list of messages, each by the format it is written in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from langgraph_toolmem.runs.logs import ai_sdk, anthropic, autogen, chat, gemini, genai, responses
from langgraph_toolmem.runs.logs.shapes import Dialect, has_shape
from langgraph_toolmem.runs.logs.transcript import Transcript

DIALECTS: Final[tuple[Dialect, ...]] = (
    *chat.CHAT_DIALECTS,
    anthropic.WRAPPED,
    anthropic.ANTHROPIC_MESSAGES,
    *responses.RESPONSES_ITEMS,
    autogen.AUTOGEN_MESSAGES,
    genai.GENAI_MESSAGES,
    *ai_sdk.AI_SDK_MESSAGES,
    gemini.GEMINI_CONTENTS,
    chat.CHAT,
)
"""Most specific first: chat messages, the last, are any values with a role."""


def dialect_of(message: Any) -> Dialect | None:
    """Return the format of a message; None if it is unknown."""
    for dialect in DIALECTS:
        if has_shape(message, dialect.signatures):
            return dialect
    return None


def transcribe(messages: Sequence[Any]) -> Transcript:
    """Read messages into a transcript. Entries of no known format are counted as left out."""
    transcript = Transcript()
    for entry in messages:
        message = chat.message_of_pair(entry)
        dialect = dialect_of(message)
        if dialect is None:
            transcript.leave_out("messages of no known format")
            continue
        transcript.dialects[dialect.name] = None
        dialect.convert(message, transcript)
    return transcript
