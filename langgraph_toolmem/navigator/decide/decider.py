"""StepGenerator a chat model for a decision: structured output, one repair, sync and async by one body."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs
from pydantic import ValidationError

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.decide.decision import FORM, Decision, read
from langgraph_toolmem.navigator.decide.prompt import repair_message

logger = logging.getLogger("langgraph_toolmem.navigator.decide")

Method = Literal["function_calling", "json_schema", "json_mode", "text"]
"""How a model gives its decisions: as ``with_structured_output`` has it, or as JSON in its text."""
ASIDE: Final = RunnableConfig(tags=["nostream"], run_name="toolmem_decider")
"""langgraph.constants.TAG_NOSTREAM: a decision is not for the user's eyes."""

_UNREADABLE: Final = (ValidationError, OutputParserException)
_CUT_SHORT: Final = "FinishReasonError"
"""End of the names of the openai package's errors for an output that is cut short; they have no base of their own."""


@dataclass(frozen=True, slots=True)
class DeciderOutcome:
    """The outcome of one question to a model.

    Attributes:
        decision: None if neither output could be read.
        reason: why not.
        calls: how often the model was asked: once, or twice with the repair.
        usage: tokens of it, if the model tells.
    """

    decision: Decision | None
    reason: str
    calls: int
    usage: UsageMetadata | None


class Decider:
    """A chat model that gives decisions.

    Args:
        model: any chat model.
        method: of ``with_structured_output``, or "text": the prompt asks for JSON as text, for models without
            structured output and for those that were fine-tuned on decisions. None: the model's own default, and
            "text" if it has no structured output.

    Attributes:
        form: what a prompt must say of the form; "" where the model's interface says it.

    Raises:
        ConfigurationError: the model gives no structured output by this method.
    """

    def __init__(self, model: BaseChatModel, method: Method | None = None) -> None:
        self._bound: Runnable[Any, Any] = model
        self.form = FORM
        if method == "text":
            return
        options: dict[str, Any] = {} if method is None else {"method": method}
        try:
            self._bound = model.with_structured_output(Decision, include_raw=True, **options)
        except (NotImplementedError, ValueError, TypeError) as error:
            if method is None and isinstance(error, NotImplementedError):
                logger.info("%s gives no structured output: its text is read", type(model).__name__)
                return
            raise ConfigurationError(
                f"{type(model).__name__} gives no structured output{f' by {method}' if method else ''}: {error}"
            ) from error
        self.form = ""

    def decide(self, messages: Sequence[BaseMessage], config: RunnableConfig | None) -> DeciderOutcome:
        """Asks; what the model raises goes on to the host."""
        asking = _asking(messages)
        prompt = next(asking)
        while True:
            try:
                output = self._bound.invoke(prompt, merge_configs(config, ASIDE))
            except Exception as error:  # noqa: BLE001 - all but a few are raised again
                output = _unreadable(error)
            try:
                prompt = asking.send(output)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    async def adecide(self, messages: Sequence[BaseMessage], config: RunnableConfig | None) -> DeciderOutcome:
        """Async variant of `decide`."""
        asking = _asking(messages)
        prompt = next(asking)
        while True:
            try:
                output = await self._bound.ainvoke(prompt, merge_configs(config, ASIDE))
            except Exception as error:  # noqa: BLE001 - all but a few are raised again
                output = _unreadable(error)
            try:
                prompt = asking.send(output)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]


def _asking(messages: Sequence[BaseMessage]) -> Generator[list[BaseMessage], Any, DeciderOutcome]:
    """Yields prompts, is sent outputs; returns when one can be read, or after the repair."""
    output = yield list(messages)
    usage = _usage(None, output)
    found = read(output)
    if isinstance(found, Decision):
        return DeciderOutcome(found, "", 1, usage)
    output = yield [*messages, repair_message(found)]
    usage = _usage(usage, output)
    found = read(output)
    return DeciderOutcome(found, "", 2, usage) if isinstance(found, Decision) else DeciderOutcome(None, found, 2, usage)


def _unreadable(error: Exception) -> dict[str, Any]:
    """As an output, what some clients raise who validate by themselves; every other error goes on."""
    if isinstance(error, _UNREADABLE) or type(error).__name__.endswith(_CUT_SHORT):
        return {"raw": None, "parsed": None, "parsing_error": error}
    raise error


def _usage(before: UsageMetadata | None, output: Any) -> UsageMetadata | None:
    raw = output.get("raw") if isinstance(output, dict) else output
    now = raw.usage_metadata if isinstance(raw, AIMessage) else None
    return before if now is None else now if before is None else add_usage(before, now)
