"""The decider over HTTP with a real `ChatOpenAI`: structured output by tool calling and by JSON schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from agents import WAYS
from navi_script import Part, Shop, assert_well_formed, do, say

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.nodes.navi import create_navi_subgraph
from langgraph_toolmem.testing import OpenAIStubServer, make_chat_model

pytestmark = pytest.mark.usefixtures("nothing_failed")
METHODS = ["function_calling", "json_schema", None]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def store(shop: Shop) -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=shop.tools) as made:
        yield made


def answer(request: dict[str, Any], parts: list[Part]) -> Any:
    """As the provider gives it in the form that was asked for."""
    text = json.dumps({"sub_intents": parts})
    if "response_format" in request:
        return text
    name = request["tools"][0]["function"]["name"]
    assert request["tool_choice"]
    return {"content": None, "tool_calls": [{"function": {"name": name, "arguments": text}}]}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", METHODS, ids=str)
async def test_decisions_over_http(method: Any, way: str, shop: Shop, store: ToolMemory) -> None:
    rounds = [
        [do("find_customer", name="Ann"), do("find_customer", name="Ben")],
        [do("list_orders", customer_id="c-Ann")],
        [say("One order.")],
    ]

    def reply(request: dict[str, Any]) -> Any:
        return answer(request, rounds[len(server.requests) - 1])

    with OpenAIStubServer(reply=reply) as server:
        model = make_chat_model(server)
        graph = create_navi_subgraph(model, shop.tools, store, method=method)
        feed: Any = {"messages": [("user", "the orders of Ann")]}
        state = graph.invoke(feed) if way == "sync" else await graph.ainvoke(feed)
        await model.root_async_client.close()
    assert [name for name, _ in shop.did] == ["find_customer", "find_customer", "list_orders"]
    assert state["messages"][-1].text == "One order."
    assert_well_formed(state["messages"])
    assert len(server.requests) == 3
    used = [message.usage_metadata for message in state["messages"] if message.type == "ai"]
    assert sum(each["input_tokens"] for each in used) == server.usage["prompt_tokens"]
    if method == "json_schema":
        asked = server.requests[0]["response_format"]["json_schema"]
        part = asked["schema"]["$defs"]["SubIntent"]
        assert asked["strict"] is True
        assert part["additionalProperties"] is False
        assert set(part["required"]) == set(part["properties"])


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_an_output_that_does_not_parse_is_repaired_over_http(method: Any, shop: Shop, store: ToolMemory) -> None:
    def reply(request: dict[str, Any]) -> Any:
        if len(server.requests) == 1:
            return answer(request, [{"action": "fly"}])
        assert "could not be used" in request["messages"][-1]["content"]
        return answer(request, [say("Hello.")])

    with OpenAIStubServer(reply=reply) as server:
        graph = create_navi_subgraph(make_chat_model(server), shop.tools, store, method=method)
        state = graph.invoke({"messages": [("user", "hello")]})
    assert state["messages"][-1].text == "Hello."
    assert len(server.requests) == 2


def test_decisions_are_not_streamed_to_the_user_but_answers_are(shop: Shop, store: ToolMemory) -> None:
    def reply(request: dict[str, Any]) -> Any:
        return answer(request, [do("find_customer", name="Ann")] if len(server.requests) == 1 else [say("Found Ann.")])

    with OpenAIStubServer(reply=reply) as server:
        graph = create_navi_subgraph(make_chat_model(server), shop.tools, store, method="function_calling")
        feed: Any = {"messages": [("user", "find Ann")]}
        texts = [message.text for message, _ in graph.stream(feed, stream_mode="messages")]  # type: ignore[misc,union-attr]
    assert "Found Ann." in texts
    assert not any("sub_intents" in text for text in texts)
