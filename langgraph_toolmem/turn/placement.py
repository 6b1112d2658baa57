"""Placement of hints at the tail of a request, so that they cost no prompt cache; each provider in its own way.

A provider's cache holds the beginning of a prompt that was sent before. A hint in the system message changes that
beginning with every call; behind the last message it changes nothing that is cached. It is put there when the model is
called and is never kept: the next request does not have it. `PLACEMENTS` says, as data, what each provider's messages
allow; models that nobody listed get it in the system message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage, convert_to_messages

from langgraph_toolmem.turn.hints import hints_now, with_hint
from langgraph_toolmem.turn.host import read_key
from langgraph_toolmem.turn.providers import ProviderRule, refusal_of

Where = Literal["tail", "tail_list", "in_tool", "system"]
CACHE: Final = "cache_control"


@dataclass(frozen=True)
class Placement:
    """The place of hints for one kind of model.

    Attributes:
        name: short.
        where: "tail": a message of the user's role behind the last one. "tail_list": the same, with a list as content.
            "in_tool": inside the last message where that is a tool's answer, else as "tail". "system": in the system
            message.
        why: what the provider, or LangChain's conversion for it, does with other places.
        source: where that is documented, or how it was tried.
        clients, models: as of a `ProviderRule`; at least one of them.
        breakpoint: where the request asks for a cache (``cache_control`` in its settings), the mark goes to the last
            block that stays.
    """

    name: str
    where: Where
    why: str
    source: str
    clients: tuple[str, ...] = ()
    models: str = ""
    breakpoint: bool = False

    @property
    def rule(self) -> ProviderRule:
        """Return what it is looked up by."""
        return ProviderRule(self.name, self.why, self.source, clients=self.clients, models=self.models)


_OFFLINE: Final = "measured on the payload that the integration builds"

PLACEMENTS: Final[tuple[Placement, ...]] = (
    Placement(
        "anthropic",
        "tail",
        why="Messages of one role are merged into one of several blocks; a system message behind others is refused.",
        source=f"langchain-anthropic 1.7.7, {_OFFLINE}; https://docs.claude.com/en/docs/build-with-claude",
        clients=(
            "ChatAnthropic",
            "ChatAnthropicVertex",
            "ChatAnthropicBedrock",
            "anthropic_bedrock",
            "anthropic",
            "google_anthropic_vertex",
        ),
        breakpoint=True,
    ),
    Placement(
        "bedrock-claude",
        "tail_list",
        why="Converse glues two texts of the user into one; as a list they stay apart.",
        source=f"langchain-aws 1.9.1, {_OFFLINE}",
        clients=("ChatBedrockConverse", "bedrock_converse"),
        models=r"claude",
    ),
    Placement(
        "bedrock",
        "in_tool",
        why="Models other than Claude refuse text of the user beside a tool's result.",
        source=f"langchain-aws 1.9.1, {_OFFLINE}",
        clients=("ChatBedrockConverse", "bedrock_converse"),
    ),
    Placement(
        "gemini",
        "tail",
        why="A system message behind others goes to system_instruction, or is dropped silently.",
        source=f"langchain-google-genai 4.4.2, {_OFFLINE}",
        clients=("ChatGoogleGenerativeAI", "ChatVertexAI", "google_genai", "google_vertexai"),
    ),
    Placement(
        "mistral",
        "in_tool",
        why="The API has answered 400 to a user's message behind a tool's.",
        source="https://github.com/langchain-ai/langchain/issues/27947; mistral-common's validator",
        clients=("ChatMistralAI", "mistralai"),
    ),
    Placement(
        "ollama",
        "tail",
        why="Whether a system message behind others is seen depends on the model's template.",
        source=f"langchain-ollama 1.1.0, {_OFFLINE}",
        clients=("ChatOllama", "ollama"),
    ),
    Placement(
        "openai",
        "tail",
        why="Messages are sent as they are.",
        source=f"langchain-openai 1.7.3, {_OFFLINE}; https://platform.openai.com/docs/guides/prompt-caching",
        clients=("BaseChatOpenAI", "openai", "azure_openai"),
    ),
)
"""What is known; the first that fits holds."""


class Placed(NamedTuple):
    """A request with its hint."""

    system: SystemMessage | None
    messages: list[Any]
    settings: Mapping[str, Any]


def placement_of(
    model: Any, settings: Mapping[str, Any] | None = None, placements: Iterable[Placement] = PLACEMENTS
) -> Placement | None:
    """The placement for a model; None if nobody listed it. Looks through wrappers; nothing is built or raised."""
    given = tuple(placements)
    found = refusal_of(model, settings, [each.rule for each in given])
    return None if found is None else next(each for each in given if each.name == found.name)


def placed(
    text: str,
    *,
    system: SystemMessage | None,
    messages: Sequence[Any],
    model: Any,
    settings: Mapping[str, Any] | None = None,
    placements: Iterable[Placement] = PLACEMENTS,
) -> Placed:
    """A request with a hint in the right place. What is given stays as it is.

    Args:
        text: the hint; "" leaves the request alone.
        system: its system message.
        messages: the others.
        model: that is asked.
        settings: of the request.
        placements: the list with your own.
    """
    settings = settings or {}
    how = placement_of(model, settings, placements) if text else None
    if not text or how is None or how.where == "system" or not messages:
        return Placed(with_hint(system, text) if text else system, list(messages), settings)
    kept = list(messages)
    last = kept[-1] if isinstance(kept[-1], BaseMessage) else convert_to_messages([kept[-1]])[0]
    if how.where == "in_tool" and isinstance(last, ToolMessage):
        return Placed(system, [*kept[:-1], _with_text(last, text)], settings)
    if how.breakpoint and (marker := settings.get(CACHE)) and (marked := _marked(last, marker)) is not None:
        kept[-1] = marked
        settings = {name: value for name, value in settings.items() if name != CACHE}
    content: Any = [{"type": "text", "text": text}] if how.where == "tail_list" else text
    return Placed(system, [*kept, HumanMessage(content, additional_kwargs={"toolmem": {"hint": True}})], settings)


def messages_with_hints(state: Any, model: Any = None, *, messages_key: str = "messages") -> list[Any]:
    """The messages to ask a model with, and in them what the memory has to say, where this model takes it best.

    ::

        model.invoke(messages_with_hints(state, model))

    Args:
        state: the state, with the key `toolmem_hints` (see `MemoryState`).
        model: that is asked; of one that is not known the hint is in a system message, in front.
        messages_key: key of the messages.
    """
    messages = list(read_key(state, messages_key) or ())
    text = hints_now(state, messages_key=messages_key)
    found = placed(text, system=None, messages=messages, model=model)
    return [*([found.system] if found.system else []), *found.messages]


def _with_text(message: ToolMessage, text: str) -> ToolMessage:
    if isinstance(message.content, str):
        return message.model_copy(update={"content": f"{message.content}\n\n{text}"})
    return message.model_copy(update={"content": [*message.content, {"type": "text", "text": text}]})


def _marked(message: BaseMessage, marker: Any) -> BaseMessage | None:
    """The last message that stays, with the cache's mark in its own shape; None if it can carry none.

    A tool's answer keeps its shape: turned from a text into a list it would be another prefix.
    """
    if isinstance(message, ToolMessage):
        block = {
            "type": "tool_result",
            "content": message.content,
            "tool_use_id": message.tool_call_id,
            "is_error": message.status == "error",
            CACHE: marker,
        }
        return message.model_copy(update={"content": [block]})
    if isinstance(message, HumanMessage):
        if isinstance(message.content, str):
            return message.model_copy(update={"content": [{"type": "text", "text": message.content, CACHE: marker}]})
        final = message.content[-1] if message.content else None
        if isinstance(final, dict):
            return message.model_copy(update={"content": [*message.content[:-1], {**final, CACHE: marker}]})
    return None
