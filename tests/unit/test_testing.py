"""`ScriptedChatModel` and `OpenAIStubServer`, with the real ChatOpenAI, LangGraph and create_agent."""

from __future__ import annotations

import json
import socket
import socketserver
from typing import Any

import httpx
import openai
import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import OpenAIEmbeddings

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, count_tokens, make_chat_model, wire


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


# --- OpenAIStubServer


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
    assert first.usage_metadata["input_tokens"] == wire.prompt_tokens(request)
    assert wire.prompt_tokens(request) > wire.prompt_tokens({"messages": request["messages"]}) > 4
    assert server.usage["prompt_tokens"] == 2 * wire.prompt_tokens(request)


def test_count_tokens_by_hand() -> None:
    assert [count_tokens(v) for v in ("", "abcd", "abcde", None, {})] == [0, 1, 2, 0, 0]
    assert count_tokens({"a": 1}) == 2  # {"a":1} has 7 characters


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


ROME = {"city": "Rome", "days": 2}


@pytest.mark.parametrize(
    "reply",
    [
        AIMessage("", tool_calls=[call("Rome", "call_1")]),
        {"tool_calls": [{"id": "call_1", "function": {"name": "weather", "arguments": json.dumps(ROME)}}]},
        {"content": "", "tool_calls": [{"id": "call_1", "name": "weather", "args": ROME}]},
    ],
)
def test_kinds_of_reply(reply: Any) -> None:
    with OpenAIStubServer(reply=lambda _: reply) as server:
        answer = make_chat_model(server).invoke("x")
    assert [(c["name"], c["args"], c["id"]) for c in answer.tool_calls] == [
        ("weather", {"city": "Rome", "days": 2}, "call_1")
    ]


def test_broken_arguments_are_passed_on_as_they_are() -> None:
    broken = {"tool_calls": [{"function": {"name": "weather", "arguments": '{"city": '}}]}
    with OpenAIStubServer(reply=lambda _: broken) as server:
        answer = make_chat_model(server).invoke("x")
    assert answer.tool_calls == []
    assert [c["args"] for c in answer.invalid_tool_calls] == ['{"city": ']


def test_injected_errors_are_retried_by_the_client() -> None:
    with OpenAIStubServer(reply=lambda _: "fine", errors=(429, 500)) as server:
        model = make_chat_model(server, max_retries=2)
        assert model.invoke("x").text == "fine"
        assert len(server.requests) == 3
        server.fail_next(1, status=429)
        with pytest.raises(openai.RateLimitError):
            make_chat_model(server, max_retries=0).invoke("x")
        server.fail_next(1)
        with pytest.raises(openai.InternalServerError, match="injected error 500"):
            make_chat_model(server, max_retries=0).invoke("x")


def test_a_bug_in_the_script_reaches_the_client_once() -> None:
    def reply(request: dict[str, Any]) -> str:
        raise KeyError(request["model"])

    with OpenAIStubServer(reply=reply) as server:
        with pytest.raises(openai.BadRequestError, match="KeyError: 'scripted'"):
            make_chat_model(server).invoke("x")
        server.reply = lambda _: 7  # type: ignore[assignment, return-value]
        with pytest.raises(openai.BadRequestError, match="could not answer: TypeError"):
            make_chat_model(server).invoke("x")
    assert len(server.requests) == 2


def test_models_unknown_paths_and_bad_bodies() -> None:
    with OpenAIStubServer(reply=lambda _: "x") as server, httpx.Client(trust_env=False) as http_client:
        models = http_client.get(f"{server.url}/models").json()
        assert [m["id"] for m in models["data"]] == ["scripted"]
        assert http_client.get(f"{server.url}/nothing").status_code == 404
        assert http_client.post(f"{server.url}/nothing", json={}).status_code == 404
        for body in (b"", b"{", b"[1]", b"\xff"):
            bad = http_client.post(f"{server.url}/chat/completions", content=body)
            assert bad.status_code == 400
            assert bad.json()["error"]["message"] == "the body must be a JSON object"
        assert http_client.post(f"{server.url}/embeddings", json={"input": 3}).status_code == 400
    assert server.requests == []


class Letters(Embeddings):
    """Counts of the letters a, b and c."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float(text.count(letter)) for letter in "abc"] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def test_embeddings_as_base64_and_as_numbers() -> None:
    with OpenAIStubServer(reply=lambda _: "x", embeddings=Letters()) as server:
        client: Any = OpenAIEmbeddings(base_url=server.url, api_key="x", check_embedding_ctx_length=False)  # type: ignore[arg-type]
        assert client.embed_documents(["aab", "cc"]) == [[2.0, 1.0, 0.0], [0.0, 0.0, 2.0]]
        raw = openai.OpenAI(base_url=server.url, api_key="x")
        packed = raw.embeddings.create(input=["abc"], model="m")  # asks for base64 by itself
        plain = raw.embeddings.create(input=[[97, 98], [1]], model="m", encoding_format="float")
        raw.close()
    assert packed.data[0].embedding == [1.0, 1.0, 1.0]
    assert [d.embedding for d in plain.data] == [[0.0] * 3] * 2
    assert server.embedding_requests[-2]["encoding_format"] == "base64"


def port_of(server: OpenAIStubServer) -> int:
    return int(server.url.rsplit(":", 1)[1].split("/")[0])


def test_url_needs_a_running_server_and_close_may_come_twice() -> None:
    server = OpenAIStubServer(reply=lambda _: "x")
    with pytest.raises(ConfigurationError, match="not running"):
        _ = server.url
    server.start().start()
    port = port_of(server)
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=1):
        pass


def test_no_two_servers_of_a_process_have_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIStubServer("hello") as first:
        url = first.url
    offered = iter([int(url.rsplit(":", 1)[1].split("/")[0])])
    bind = socketserver.TCPServer.server_bind

    def same_first(server: Any) -> None:
        server.server_address = (server.server_address[0], next(offered, 0))
        bind(server)

    monkeypatch.setattr(socketserver.TCPServer, "server_bind", same_first)
    with OpenAIStubServer("hello") as second:
        assert second.url != url
    with pytest.raises(StopIteration):
        next(offered)
