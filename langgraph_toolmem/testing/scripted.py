"""`ScriptedChatModel`: a chat model that answers from a script and records its calls."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr, SkipValidation, field_validator

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError

ScriptFunction = Callable[[list[BaseMessage], list[dict[str, Any]]], AIMessage]
"""``script(messages, tools)``: the next message. `tools` are the bound tools as OpenAI dicts."""


def call_tool(name: str, /, **args: Any) -> AIMessage:
    """Return a model's message that calls one tool.

    >>> call_tool("find_person", name="Ann").tool_calls[0].get("args")
    {'name': 'Ann'}
    """
    return AIMessage("", tool_calls=[tool_call(name=name, args=args, id=f"call_{uuid4().hex[:24]}")])


@dataclass(frozen=True)
class ScriptedCall:
    """A question to the model.

    Attributes:
        messages: the prompt, as message objects.
        tools: the tools bound at that moment, as OpenAI tool dicts.
        kwargs: all other bound or passed arguments, for example ``tool_choice``.
        answer: the script's answer.
    """

    messages: tuple[BaseMessage, ...]
    tools: tuple[dict[str, Any], ...]
    answer: AIMessage
    kwargs: dict[str, Any] = field(default_factory=dict)


class ScriptedChatModel(BaseChatModel):
    """A chat model that answers from a script.

    >>> model = ScriptedChatModel(script=["Hello."])
    >>> model.invoke("Hi").text
    'Hello.'
    >>> len(model.calls)
    1

    Args:
        script: answers in order (`AIMessage` or plain text), or a function
            ``(messages, tools) -> AIMessage`` that is asked each time.

    Raises:
        ValueError: the script is neither (as pydantic's ValidationError).
        ConfigurationError: on a call after the last answer of a list.
    """

    script: SkipValidation[Sequence[AIMessage | str] | ScriptFunction] = Field(repr=False)
    calls: list[ScriptedCall] = Field(default_factory=list, repr=False)
    bound: list[list[dict[str, Any]]] = Field(default_factory=list, repr=False)
    """The tools of each `bind_tools`, in order."""

    # An agent may call it in several threads; `threads.lock` is free in a forked process too.
    _lock: threading.Lock = PrivateAttr(default_factory=threads.lock)
    _position: int = PrivateAttr(default=0)

    @field_validator("script", mode="before")
    @classmethod
    def _script_is_one(cls, script: object) -> object:
        # A text is a sequence too: of letters.
        if isinstance(script, str) or not (callable(script) or isinstance(script, Sequence)):
            raise ConfigurationError(
                "script is a list of AIMessage or text, or a function (messages, tools) -> AIMessage"
            )
        return script

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools like any chat model; they arrive at the script as OpenAI tool dicts."""
        dicts = [convert_to_openai_tool(tool) for tool in tools]
        self.bound.append(dicts)
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=dicts, **kwargs)

    def _answer(self, messages: list[BaseMessage], kwargs: dict[str, Any]) -> AIMessage:
        # `bind_tools` has put them among the settings.
        extra = dict(kwargs)
        tools = list(extra.pop("tools", ()))
        with self._lock:
            if callable(self.script):
                answer = self.script(list(messages), tools)
            elif self._position < len(self.script):
                item = self.script[self._position]
                self._position += 1
                # A copy: LangChain writes ids into the message it is given, and a script may repeat one.
                if isinstance(item, str):
                    answer = AIMessage(item)
                else:
                    answer = item.model_copy(deep=True)
            else:
                raise ConfigurationError(
                    f"the script has {len(self.script)} answers and a call number "
                    f"{len(self.calls) + 1} came. Add answers, or give a function "
                    "(messages, tools) -> AIMessage. "
                    f"The last message was: {messages[-1].text[:200]!r}"
                )
            self.calls.append(ScriptedCall(tuple(messages), tuple(tools), answer, extra))
        return answer

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        del stop, run_manager
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, kwargs))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        del stop, run_manager
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, kwargs))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        del stop
        for chunk in _chunks(self._answer(messages, kwargs)):
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        del stop
        for chunk in _chunks(self._answer(messages, kwargs)):
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def _chunks(answer: AIMessage) -> Iterator[ChatGenerationChunk]:
    """Cut an answer as providers do: words one by one, arguments in two pieces, usage at the end."""
    for word in re.findall(r"\S+\s*|\s+", answer.text):
        yield ChatGenerationChunk(message=AIMessageChunk(content=word, id=answer.id))
    # The first piece has name and id, the second has neither: they belong together by their index.
    for index, call in enumerate(answer.tool_calls):
        text = json.dumps(call["args"], ensure_ascii=False)
        middle = len(text) // 2
        head = tool_call_chunk(name=call["name"], args=text[:middle], id=call["id"], index=index)
        tail = tool_call_chunk(args=text[middle:], index=index)
        for piece in (head, tail):
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece], id=answer.id))
    yield ChatGenerationChunk(
        message=AIMessageChunk(
            content="",
            id=answer.id,
            usage_metadata=answer.usage_metadata,
            additional_kwargs=dict(answer.additional_kwargs),
            response_metadata=dict(answer.response_metadata),
            chunk_position="last",
        )
    )
