"""Models whose API refuses a history with a tool call that they did not make.

Classes of packages that are not installed here are stood in for by models with the same class name, bases and field
names; those were read off langchain-anthropic 1.7.7, langchain-aws 1.9.1, langchain-deepseek 1.1.1,
langchain-google-genai 4.4.2, langchain-google-vertexai 3.2.5, langchain-litellm 0.11.2 and langchain-openrouter 0.2.9.
"""

from __future__ import annotations

import logging
from typing import Any
from unittest.mock import MagicMock

import pytest
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import Field, create_model

from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.providers import PROVIDER_RULES, refusal_of


class Standin(BaseChatModel):
    """A chat model with the fields that integrations have."""

    model: str | None = None
    model_name: str | None = None
    model_id: str | None = None
    base_model_id: str | None = None
    thinking: dict[str, Any] | None = None
    thinking_budget: int | None = None
    reasoning: dict[str, Any] | None = None
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    additional_model_request_fields: dict[str, Any] | None = None

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the guard calls no model")

    @property
    def _llm_type(self) -> str:
        return "alternative"


ChatAnthropic, VERTEX, BEDROCK, ChatVertexAI, ROUTER, ChatLiteLLM = (
    create_model(name, __base__=Standin)
    for name in (
        *("ChatAnthropic", "ChatAnthropicVertex", "ChatBedrockConverse", "ChatVertexAI", "ChatOpenRouter"),
        "ChatLiteLLM",
    )
)


def openai(model: str, **fields: Any) -> ChatOpenAI:
    return ChatOpenAI(model=model, api_key="x", base_url="http://127.0.0.1:1/v1", **fields)


MANUAL = {"type": "enabled", "budget_tokens": 2000}
ADAPTIVE = {"type": "adaptive"}
OFF = {"type": "disabled"}
PROFILE = "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc"
SONNET = "claude-sonnet-4-5-20250929"

NOVA = "amazon.nova-2-lite-v1:0"
THINKS = {"thinking": MANUAL}
# rule, a model it is about, a neighbour that no rule is about
CASES: list[tuple[str, Any, Any]] = [
    ("claude-thinking", ChatAnthropic(model="our-deployment", **THINKS), ChatAnthropic(model=SONNET)),
    ("claude-thinking", ChatAnthropic(model=SONNET, **THINKS), ChatAnthropic(model=SONNET, thinking=ADAPTIVE)),
    (
        "claude-thinking",
        BEDROCK(model_id=PROFILE, additional_model_request_fields=THINKS),
        BEDROCK(
            model_id=PROFILE, base_model_id=NOVA, additional_model_request_fields={"reasoningConfig": {"type": "on"}}
        ),
    ),
    (
        "gateway-claude-thinking",
        ChatLiteLLM(model=f"anthropic/{SONNET}", model_kwargs=THINKS),
        openai("gpt-5", extra_body=THINKS),
    ),
    (
        "gateway-claude-thinking",
        ROUTER(model_name="anthropic/claude-opus-4.6", reasoning={"max_tokens": 2000}),
        ROUTER(model_name="openai/gpt-5", reasoning={"max_tokens": 2000}),
    ),
    (
        "gateway-claude-effort",
        ROUTER(model_name="anthropic/claude-sonnet-4.5", reasoning={"effort": "high"}),
        ROUTER(model_name="anthropic/claude-sonnet-4.6", reasoning={"effort": "high"}),
    ),
    (
        "gateway-claude-effort",
        openai("anthropic/claude-4-sonnet", extra_body={"reasoning": {"enabled": True}}),
        openai("anthropic/claude-4-sonnet", extra_body={"reasoning": {"enabled": False, "effort": "none"}}),
    ),
    ("gemini-3", ChatVertexAI(model_name="gemini-3.1-flash-lite"), ChatVertexAI(model_name="gemini-3-pro-image")),
    ("gemini-3", openai("gemini-flash-latest"), openai("gemini-2.0-flash")),
    ("gemini-3", openai("models/gemini-10-pro"), openai("gemini-2.5-pro")),
    ("reasoning-content", openai("deepseek-reasoner"), openai("deepseek-coder")),
    ("reasoning-content", openai("moonshotai/Kimi-K2-Thinking"), openai("kimi-k2-0905-preview")),
    *(
        ("reasoning-content", openai(model), openai(model, extra_body={"thinking": OFF}))
        for model in ("deepseek-v4-pro", "kimi-k2.5", "mimo-v2.5-pro")
    ),
    (
        "reasoning-content",
        ROUTER(model_name="deepseek/deepseek-v4-pro", reasoning={"effort": "high"}),
        ROUTER(model_name="deepseek/deepseek-v4-pro", reasoning={"effort": "none"}),
    ),
    *(
        ("reasoning-content-if-on", openai(model, extra_body=THINKS), openai(model))
        for model in ("deepseek-chat", "mimo-v2-flash")
    ),
]


@pytest.mark.parametrize(("rule", "model", "neighbour"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_a_rule_holds_for_its_models_and_not_for_their_neighbours(rule, model, neighbour):
    assert (refusal_of(model), refusal_of(neighbour)) == (rule, "")


def test_every_rule_has_a_case():
    assert {*PROVIDER_RULES} == {case[0] for case in CASES}


@pytest.mark.parametrize(
    "model",
    [
        openai("gpt-5", use_responses_api=True, reasoning={"effort": "high", "summary": "auto"}),
        openai("o4-mini", reasoning_effort="high"),
        ScriptedChatModel(script=["ok"]),
        RunnableLambda(lambda messages: messages),
        MagicMock(),
        MagicMock(spec=ChatAnthropic),
        "openai:gpt-5",
        "",
        None,
        object(),
        3,
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_that_refuse_nothing_and_things_that_are_no_models(model):
    assert refusal_of(model) == ""


@pytest.mark.parametrize(
    ("model", "settings", "rule"),
    [
        ("anthropic:our-deployment", {"thinking": MANUAL}, "claude-thinking"),
        ("anthropic:our-deployment", {}, ""),
        (ChatAnthropic(model=SONNET), {"thinking": MANUAL}, "claude-thinking"),
        (ChatAnthropic(model=SONNET), {"temperature": 0, "thinking": None}, ""),
        (BEDROCK(model_id=PROFILE), {"additional_model_request_fields": THINKS}, "claude-thinking"),
        (openai("gpt-5"), {"model": "gemini-3-pro-preview"}, "gemini-3"),
        (openai("claude-sonnet-4-5"), {"extra_body": THINKS}, "gateway-claude-thinking"),
        (openai("deepseek-v4-pro"), {"extra_body": {"thinking": OFF}}, ""),
        *(
            ("openai:claude-4-sonnet", {"reasoning": {"effort": on}}, "gateway-claude-effort")
            for on in ("high", 1, True, {"a": 1})
        ),
        *(
            ("openai:claude-4-sonnet", {"reasoning": {"effort": off}}, "")
            for off in (None, False, 0, "", "none", "Off", "disabled", {}, [])
        ),
    ],
)
def test_per_call_settings_count(model: Any, settings: dict[str, Any], rule: str):
    assert refusal_of(model, settings) == rule


@tool
def find(order: str) -> str:
    """Finds an order."""
    return order


THINKER = ChatAnthropic(model=SONNET, thinking=MANUAL)
PLAIN = ChatAnthropic(model=SONNET)
GPT = openai("gpt-5")


@pytest.mark.parametrize(
    ("wrapped", "expected"),
    [
        (openai("kimi-k2-thinking").bind_tools([find]), "reasoning-content"),
        (GPT.bind_tools([find]), ""),
        (PLAIN.bind(thinking=MANUAL), "claude-thinking"),
        (ChatPromptTemplate.from_messages([("human", "{x}")]) | THINKER | StrOutputParser(), "claude-thinking"),
        (THINKER.with_retry(), "claude-thinking"),
        (GPT.with_fallbacks([PLAIN, THINKER]), "claude-thinking"),
        (THINKER.with_fallbacks([GPT]), "claude-thinking"),
        (GPT.bind_tools([find]).with_fallbacks([PLAIN.bind(thinking=MANUAL)]), "claude-thinking"),
    ],
)
def test_looks_through_what_is_around_a_model(wrapped, expected):
    assert refusal_of(wrapped) == expected


def test_init_chat_models_configurable_model_is_not_built():
    any_model = init_chat_model()
    claude = init_chat_model(
        "claude-sonnet-4-5", model_provider="anthropic", configurable_fields=("model", "thinking"), thinking=MANUAL
    )

    assert refusal_of(any_model) == ""
    assert refusal_of(any_model.with_config(configurable={"model": "google_genai:gemini-3-pro"})) == "gemini-3"
    assert refusal_of(claude) == "claude-thinking"
    assert refusal_of(claude.with_config(configurable={"thinking": ADAPTIVE})) == ""
    assert refusal_of(claude.with_config(configurable={"budget": 3})) == "claude-thinking"
    assert refusal_of(claude.bind_tools([find])) == "claude-thinking"
    ours = init_chat_model(
        "anthropic:our-deployment", configurable_fields="any", config_prefix="first", max_tokens=9000
    )
    assert refusal_of(ours) == ""
    assert refusal_of(ours.with_config(configurable={"first_thinking": MANUAL})) == "claude-thinking"
    assert refusal_of(ours.with_config(configurable={"thinking": MANUAL})) == ""


def test_nothing_is_raised_whatever_is_inside(caplog):
    class Odd(ChatAnthropic):
        @property
        def _llm_type(self) -> str:
            raise RuntimeError("no type today")

    class Circle:
        def __init__(self) -> None:
            self.bound = self

    with caplog.at_level(logging.DEBUG, logger="langgraph_toolmem.turn.providers"):
        assert refusal_of(Odd(model=SONNET, thinking=MANUAL)) == ""
    assert "RuntimeError" in caplog.text

    assert refusal_of(Circle()) == ""
    assert refusal_of(THINKER, settings="thinking") == "claude-thinking"
