"""`ScriptedChatModel`: its script ends aloud, and its stream adds up."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage
from langchain_core.messages.tool import tool_call

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.testing import ScriptedChatModel


def test_script_that_runs_out_says_so() -> None:
    model = ScriptedChatModel(script=["only"])
    model.invoke("a")
    with pytest.raises(ConfigurationError, match=r"1 answers and a call number 2.*'the second question'"):
        model.invoke("the second question")
    assert len(model.calls) == 1


def test_streamed_chunks_add_up_to_the_answer() -> None:
    calls = [tool_call(name="weather", args={"city": city}, id=f"call_{city}") for city in ("Rome", "Zürich")]
    answer = AIMessage(
        "two calls now",
        tool_calls=calls,
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
