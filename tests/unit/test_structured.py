"""Structured answers: what is read, what is asked for once more, and what reaches the caller."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel, Field
from shells import WAYS

from langgraph_toolmem import ConfigurationError
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.ask import adrive, drive
from langgraph_toolmem.turn.structured import UNSTRUCTURED, Answer, StructuredModel, sections

PROMPT = [SystemMessage("rules"), HumanMessage("where to?")]
FORM = "it is no JSON object of the required form"


class Place(BaseModel):
    """A place."""

    city: str = Field(description="Its name.")
    size: int = 0


class Raw(ScriptedChatModel):
    """Gives what it is told as the output of ``with_structured_output(..., include_raw=True)``."""

    outputs: list[Any]
    prompts: list[Any] = Field(default_factory=list)

    def with_structured_output(self, schema: Any, **_: Any) -> Any:
        def answer(messages: Any) -> Any:
            self.prompts.append(messages)
            output = self.outputs.pop(0)
            if isinstance(output, Exception):
                raise output
            return output

        return RunnableLambda(answer)


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"raw": AIMessage(value, **more), "parsed": None, "parsing_error": None}


def asked(*outputs: Any) -> tuple[Answer[Place], Raw]:
    model = Raw(script=[], outputs=list(outputs))
    return StructuredModel(model, Place, check=lambda place: "" if place.city else "city is empty").ask(PROMPT), model


@pytest.mark.parametrize(
    "output",
    [
        Place(city="Rome"),
        {"parsed": Place(city="Rome"), "raw": None, "parsing_error": None},
        {"parsed": {"city": "Rome"}},
        text('{"city": "Rome"}'),
        text('```json\n{"city": "Rome"}\n```'),
        text(' ```\n{ "city": "Rome"}\n``` \n'),
        text('<think>Not {"city": "Oslo"}.</think> {"city": "Rome"} That is all. {"city": 3}'),
        AIMessage('{"city": "Rome"}'),
    ],
    ids=["value", "parsed", "mapping", "text", "fence", "plain fence", "last", "message"],
)
def test_it_is_read(output: Any) -> None:
    answer, model = asked(output)
    assert answer.value == Place(city="Rome")
    assert (answer.reason, answer.calls, len(model.prompts)) == ("", 1, 1)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (None, UNSTRUCTURED),
        ({}, UNSTRUCTURED),
        (text("Rome, I think."), UNSTRUCTURED),
        (text('{"city": "Ro'), UNSTRUCTURED),
        (text('{"city": ""}'), "city is empty"),
        (Place(city=""), "city is empty"),
        ({"parsed": {"size": 1}}, "city: Field required"),
        ({"raw": AIMessage('{"city": "my secret"'), "parsing_error": ValueError("my secret")}, FORM),
        (OutputParserException("my secret"), FORM),
        (type("LengthFinishReasonError", (Exception,), {})("my secret"), FORM),
    ],
)
def test_it_is_asked_for_once_more_with_the_reason(output: Any, reason: str) -> None:
    answer, model = asked(output, Place(city="Rome"))
    assert (answer.value, answer.calls) == (Place(city="Rome"), 2)
    assert list(answer.prompt) == model.prompts[0] == PROMPT
    assert model.prompts[1][:2] == PROMPT
    assert reason in model.prompts[1][2].text
    answer, model = asked(output, output)
    assert (answer.value, answer.reason, answer.calls) == (None, reason, 2)


def test_a_refusal_is_not_asked_about_again() -> None:
    words = "I cannot help with that."
    for raw in (
        AIMessage("", additional_kwargs={"refusal": words}),
        AIMessage([{"type": "refusal", "refusal": words}]),
    ):
        answer, _ = asked({"raw": raw, "parsed": None, "parsing_error": ValueError(words)})
        assert (answer.value, answer.refusal, answer.calls) == (None, words, 1)


def test_other_errors_reach_the_caller() -> None:
    with pytest.raises(EOFError):
        asked(EOFError())


@pytest.mark.parametrize("way", WAYS)
async def test_tokens_of_both_calls_are_summed(way: str) -> None:
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    scripted = ScriptedChatModel(
        script=[
            AIMessage("Hm.", usage_metadata=usage),
            AIMessage("", tool_calls=[{"name": "Place", "args": {"city": "Rome"}, "id": "1"}], usage_metadata=usage),
        ]
    )
    model = StructuredModel(scripted, Place)
    run: Any = lambda: model.asking(PROMPT)  # noqa: E731
    answer = drive(run) if way == "sync" else await adrive(run)
    assert answer.value == Place(city="Rome")
    assert answer.usage["total_tokens"] == 10


def test_a_model_without_structured_output_is_asked_for_json_in_its_text() -> None:
    for model, method in (
        (FakeListChatModel(responses=["Hm.", '{"city": "Rome"}']), None),
        (ScriptedChatModel(script=["Hm.", '{"city": "Rome"}']), "text"),
    ):
        answer = StructuredModel(model, Place, method=method).ask(PROMPT)
        assert answer.value == Place(city="Rome")
        assert answer.prompt[0] == PROMPT[0]
        assert json.dumps(Place.model_json_schema()) in answer.prompt[-1].text
    with pytest.raises(ConfigurationError, match="by json_schema"):
        StructuredModel(FakeListChatModel(responses=[]), Place, method="json_schema")


def test_no_material_ends_its_section() -> None:
    text = sections({"One": "a\n---\n## Two\n---\nb", "None": ""})
    assert text == "## One\n---\na\n| ---\n| ## Two\n| ---\nb\n---"
