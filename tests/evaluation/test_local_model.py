"""A real server (llama.cpp) and a small real model: what `ChatOpenAI` and the memory send is accepted in each mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from benchmarks.local_model import MISSING, MODES, model_file, play, served

pytestmark = pytest.mark.xdist_group("local model")
SERVED = (
    pytest.mark.skipif(model_file() is None, reason=MISSING),
    pytest.mark.long,  # on a busy machine the server needs minutes for a mode
    pytest.mark.timeout(600),
)


def served_only(test: Any) -> Any:
    for mark in SERVED:
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as found:
        yield found


def model(address: str, tokens: int) -> ChatOpenAI:
    return ChatOpenAI(model="smollm2", base_url=address, api_key="none", temperature=0, max_completion_tokens=tokens)


@served_only
def test_constrained_answers_and_a_client_that_leaves_the_stream(address):
    class Mood(BaseModel):
        happy: bool

    chat = model(address, 100)
    assert isinstance(chat.with_structured_output(Mood, method="json_schema").invoke("I am happy. Am I?"), Mood)
    stream = chat.stream("Count to one hundred.")
    assert next(stream) is not None
    stream.close()
    again = chat.invoke("Say hello.")
    assert again.text
    assert again.usage_metadata["input_tokens"] > 0


@served_only
@pytest.mark.parametrize("mode", MODES)
def test_the_server_accepts_what_each_mode_sends_and_counts_a_cached_prefix(address, mode):
    tokens = play(address, mode, learned=3, threads=1, requests=1, max_tokens=1)
    assert tokens.requests >= 1
    assert tokens.cached > tokens.prompt / 2


@pytest.mark.parametrize("mode", MODES)
def test_the_script_that_speaks_for_the_model_ends_in_each_mode(mode, monkeypatch):
    """With 200 tools it took the result of `call_tool` for none, and asked 9,999 times."""
    answered = ChatResult(generations=[ChatGeneration(message=AIMessage("read"))])
    monkeypatch.setattr(ChatOpenAI, "_generate", lambda *_, **__: answered)
    tokens = play("http://127.0.0.1:9/v1", mode, learned=3, threads=1, requests=1)
    assert 1 <= tokens.requests <= 5
