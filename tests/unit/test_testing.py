"""`ScriptedChatModel`, and the tests' own OpenAI-protocol server with the real ChatOpenAI."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

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
