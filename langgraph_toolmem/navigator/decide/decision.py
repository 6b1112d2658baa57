"""Answers of the decider.

The schema holds texts and whole numbers only and no optional fields, so that providers that enforce a schema strictly
take it: parameters are the text of a JSON object. Reading is lenient where nothing is lost by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

Action = Literal["answer", "clarify", "retrieve", "execute"]
MAX_INTENTS: Final = 24


class SubIntent(BaseModel):
    """One part of what is still to be done, and the action chosen for it."""

    rank: int = Field(
        description="Order: 1 comes first. Parts that need nothing of each other have the same rank and run at the "
        "same time."
    )
    intent: str = Field(description="What this part is to achieve, in a few words.")
    analysis: str = Field(
        description="Why this action, in one or two sentences; note values that later parts need, such as ids."
    )
    action: Action = Field(description="answer, clarify, retrieve or execute.")
    api: str = Field(description="execute: name of the candidate API. Else empty.")
    parameters: str = Field(description="execute: the text of a JSON object of its parameters. Else {}.")
    recall: str = Field(
        description="retrieve: one imagined API that would do it: what it does, its inputs and its outputs. Else empty."
    )
    text: str = Field(description="answer: the answer. clarify: the question to the user. Else empty.")

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, value: Any) -> Any:
        """Fill what a model left out with empty values."""
        if not isinstance(value, Mapping):
            return value
        given = {key: item for key, item in value.items() if item is not None}
        empty = {"rank": 1, "intent": "", "analysis": "", "api": "", "parameters": "{}", "recall": "", "text": ""}
        return {**empty, **given}

    @field_validator("parameters", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else value

    @field_validator("action", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return value.strip().lower() if isinstance(value, str) else value

    @property
    def arguments(self) -> dict[str, Any] | None:
        """The parameters as values; None if their text is no JSON object."""
        try:
            value = json.loads(self.parameters.strip() or "{}")
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    @property
    def sought(self) -> str:
        """Return what is searched with: the imagined API, else the intent."""
        return self.recall.strip() or self.intent.strip()


class Decision(BaseModel):
    """Decide: all parts of the request that are still open, each with its action."""

    sub_intents: list[SubIntent] = Field(description="The parts that are still open, in order of rank.")

    @property
    def final(self) -> bool:
        """Return True if nothing but answers is left."""
        return all(part.action == "answer" for part in self.sub_intents)

    @property
    def answer(self) -> str:
        """The answers, one under the other."""
        said = (part.text.strip() for part in sorted(self.sub_intents, key=lambda part: part.rank))
        return "\n\n".join(dict.fromkeys(text for text in said if text))


def due(decision: Decision) -> tuple[list[SubIntent], list[SubIntent]]:
    """Return what is done now, and what waits.

    Now: the lowest rank with anything but answers, the answers up to it, and every search whatever its rank: looking
    for a tool needs no outcome and changes nothing, and it saves a decision later.
    """
    parts = decision.sub_intents
    ranks = [part.rank for part in parts if part.action not in ("answer", "retrieve")]
    if not ranks:
        ranks = [part.rank for part in parts if part.action == "retrieve"]
    now = min(ranks, default=max((part.rank for part in parts), default=0))
    due_now = [part for part in parts if part.rank <= now or part.action == "retrieve"]
    return due_now, [part for part in parts if part not in due_now]


def problem_of(decision: Decision) -> str:
    """Return the reason why a decision of the right form is useless; "" if it is not."""
    parts = decision.sub_intents
    if not parts:
        return "sub_intents is empty: there is at least an answer to give"
    if len(parts) > MAX_INTENTS:
        return f"there are {len(parts)} sub-intents; at most {MAX_INTENTS} at a time"
    for number, part in enumerate(parts):
        place = f"sub_intents.{number}"
        if part.action in ("answer", "clarify") and not part.text.strip():
            return f"{place}: {part.action} needs text"
        if part.action == "retrieve" and not part.sought:
            return f"{place}: retrieve needs a recall description"
        if part.action == "execute" and not part.api.strip():
            return f"{place}: execute needs the name of an api"
        if part.action == "execute" and part.arguments is None:
            return f"{place}: parameters is not the text of a JSON object"
    return ""
