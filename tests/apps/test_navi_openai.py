"""The decider over HTTP with a real `ChatOpenAI`: structured output by tool calling and by JSON schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, convert_to_messages
from navi_script import Shop, assert_well_formed, do, say
from openai_server import OpenAIStubServer, make_chat_model

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.navigator.decide.decision import NaviDecision
from langgraph_toolmem.nodes import create_navi_subgraph
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.structured import StructuredModel

ROUNDS = [
    [{"action": "fly"}],
    [do("find_customer", name="Ann"), do("find_customer", name="Ben")],
    [do("list_orders", customer_id="c-Ann")],
    [say("One order.")],
]


@pytest.mark.parametrize("method", ["function_calling", "json_schema", None], ids=str)
def test_decisions_over_http_are_kept_as_they_were_sent(method: Any, nothing_failed: None, tmp_path: Path) -> None:
    def reply(request: dict[str, Any]) -> Any:
        text = json.dumps({"sub_intents": ROUNDS[len(server.requests) - 1]})
        if "response_format" in request:
            return text
        assert request["tool_choice"]
        name = request["tools"][0]["function"]["name"]
        return AIMessage("", tool_calls=[{"name": name, "args": json.loads(text), "id": None}])

    shop = Shop()
    with OpenAIStubServer(reply=reply) as server, ToolMemory.ephemeral(tools=shop.tools) as memory:
        graph = create_navi_subgraph(make_chat_model(server), shop.tools, memory, method=method, keep_decisions=True)
        feed: Any = {"messages": [("user", "the orders of Ann")]}
        modes: Any = ["messages", "values"] if method == "function_calling" else ["values"]
        *parts, (_, state) = graph.stream(feed, stream_mode=modes)
        assert memory.navigator.decisions.export(tmp_path / "train.jsonl", min_score=None) == 3
    streamed = "".join(part[0].text for mode, part in parts if mode == "messages")  # type: ignore[index,union-attr]
    assert ("One order." in streamed) is (method == "function_calling")
    assert "sub_intents" not in streamed
    assert [name for name, _ in shop.did] == ["find_customer", "find_customer", "list_orders"]
    assert_well_formed(state["messages"])  # type: ignore[index]
    assert len(server.requests) == 4, "what does not parse is asked for again"
    if method == "json_schema":
        asked = server.requests[0]["response_format"]["json_schema"]
        part = asked["schema"]["$defs"]["SubIntent"]
        assert (asked["strict"], part["additionalProperties"]) == (True, False)
        assert set(part["required"]) == set(part["properties"])
    lines = [json.loads(line)["messages"] for line in (tmp_path / "train.jsonl").read_text("ascii").splitlines()]
    sent = [request["messages"] for n, request in enumerate(server.requests) if n != 1]  # the second is the repair
    for (*prompt, action), messages, parts in zip(lines, sent, ROUNDS[1:], strict=True):
        assert prompt == [{"role": m["role"], "content": m["content"]} for m in messages]
        # A fine-tuned model that writes this is understood.
        trained = StructuredModel(ScriptedChatModel(script=[action["content"]]), NaviDecision, method="text")
        assert trained.ask(convert_to_messages(prompt)).value == NaviDecision.model_validate({"sub_intents": parts})
