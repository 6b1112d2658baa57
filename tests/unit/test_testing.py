"""`ScriptedChatModel`, and the tests' own OpenAI-protocol server with the real ChatOpenAI."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from openai_server import OpenAIStubServer, make_chat_model, tokens

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.testing import ScriptedChatModel


@tool
def weather(city: str, days: int = 1) -> str:
    """Weather of a city."""
    return f"{city}: sun for {days} days"


def call(city: str, call_id: str | None = None) -> dict[str, Any]:
    return {"name": "weather", "args": {"city": city, "days": 2}, "id": call_id, "type": "tool_call"}


TWO_CALLS = AIMessage("", tool_calls=[call("Rome", "call_a"), call("Zürich", "call_b")])


# --- ScriptedChatModel


def test_script_answers_in_order_and_logs_calls() -> None:
    model = ScriptedChatModel(script=["one", TWO_CALLS])
    bound = model.bind_tools([weather], tool_choice="any")
    assert model.invoke("a").text == "one"
    answer = bound.invoke("b")
    assert answer.tool_calls == TWO_CALLS.tool_calls
    first, second = model.calls
    assert first.tools == ()
    assert [t["function"]["name"] for t in second.tools] == ["weather"]
    assert second.kwargs["tool_choice"] == "any"
    assert second.messages == (HumanMessage("b"),)
    assert second.answer.tool_calls == TWO_CALLS.tool_calls
    assert [[t["function"]["name"] for t in tools] for tools in model.bound] == [["weather"]]


def test_script_that_runs_out_says_so() -> None:
    model = ScriptedChatModel(script=["only"])
    model.invoke("a")
    with pytest.raises(ConfigurationError, match=r"1 answers and a call number 2.*'the second question'"):
        model.invoke("the second question")
    assert len(model.calls) == 1


def test_streamed_chunks_add_up_to_the_answer() -> None:
    answer = AIMessage(
        "two calls now",
        tool_calls=TWO_CALLS.tool_calls,
        usage_metadata={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        additional_kwargs={"mark": 1},
    )
    model = ScriptedChatModel(script=[answer])
    chunks = list(model.stream("hi"))
    total = chunks[0]
    for chunk in chunks[1:]:
        total = total + chunk
    assert total.text == answer.text
    assert total.tool_calls == answer.tool_calls
    assert total.usage_metadata == answer.usage_metadata
    assert total.additional_kwargs == {"mark": 1}


# --- the server


def test_plain_answer_with_parallel_calls_ids_and_usage() -> None:
    reply = AIMessage("", tool_calls=[call("Rome"), call("Zürich")])
    with OpenAIStubServer(reply=lambda _: reply, seed=5) as server:
        model = make_chat_model(server).bind_tools([weather])
        first, second = model.invoke("hello"), model.invoke("hello")
    with OpenAIStubServer(reply=lambda _: reply, seed=5) as again:
        third = make_chat_model(again).bind_tools([weather]).invoke("hello")
    assert [c["args"] for c in first.tool_calls] == [c["args"] for c in reply.tool_calls]
    ids = [c["id"] for c in (*first.tool_calls, *second.tool_calls)]
    assert len(set(ids)) == 4
    assert all(i is not None and len(i) == 29 and i.startswith("call_") for i in ids)
    assert [c["id"] for c in third.tool_calls] == ids[:2]
    assert first.response_metadata["finish_reason"] == "tool_calls"
    request = server.requests[0]
    assert first.usage_metadata is not None
    prompt = first.usage_metadata["input_tokens"]
    assert prompt == 4 + tokens(request["messages"][0]) + tokens(request["tools"])
    assert server.usage["prompt_tokens"] == 2 * prompt
    assert [tokens(value) for value in ("", "abcd", "abcde", None, {}, {"a": 1})] == [0, 1, 2, 0, 0, 2]


@pytest.mark.parametrize("usage", [True, False])
def test_stream_carries_text_parallel_calls_and_usage(usage: bool) -> None:
    reply = AIMessage("I look at both.", tool_calls=TWO_CALLS.tool_calls)
    with OpenAIStubServer(reply=lambda _: reply) as server:
        model = make_chat_model(server, stream_usage=usage)
        chunks = list(model.stream("hello"))
        plain = model.invoke("hello")
    total = chunks[0]
    for chunk in chunks[1:]:
        total = total + chunk
    assert len(chunks) > 10
    assert (total.text, total.tool_calls) == (plain.text, plain.tool_calls)
    assert [c["args"]["city"] for c in total.tool_calls] == ["Rome", "Zürich"]
    assert server.requests[0]["stream"] is True
    if usage:
        assert total.usage_metadata is not None
        assert plain.usage_metadata is not None
        assert total.usage_metadata["total_tokens"] == plain.usage_metadata["total_tokens"]
    else:
        assert total.usage_metadata is None


def test_a_bug_in_the_script_reaches_the_client_once() -> None:
    def reply(request: dict[str, Any]) -> str:
        raise KeyError(request["model"])

    with OpenAIStubServer(reply) as server, pytest.raises(openai.BadRequestError, match="KeyError: 'scripted'"):
        make_chat_model(server).invoke("x")
    assert len(server.requests) == 1
