"""Structured answers of a chat model: one question and one repair, with one parser for sync and async code.

Decider, planner, atom writer, discovery, cold start and critic ask their model like this::

    model = StructuredModel(chat_model, Plan, check=lambda plan: "" if plan.goal else "goal is empty")
    prompt = [SystemMessage(RULES), HumanMessage(sections({"Request": request, "Calls": calls}))]
    answer = model.ask(prompt)                    # in sync code, such as a background job
    answer = yield from model.asking(prompt)      # in a body that `drive` or `adrive` runs (`turn.ask`)
    if answer.value is None: ...                  # answer.reason says why

If an answer cannot be read, or if `check` rejects it, the model is asked once more with the reason. Errors of the model
itself (no network, no key, a budget) are raised. A model without structured output is asked for JSON in its text.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs
from pydantic import BaseModel, ValidationError

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.turn.ask import ASIDE, Ask, StepGenerator, drive

logger = logging.getLogger("langgraph_toolmem.turn")

A = TypeVar("A", bound=BaseModel)
OutputMethod = Literal["function_calling", "json_schema", "json_mode", "text"]
"""Form of an answer: a method of ``with_structured_output``, or "text" for JSON in the text."""

UNSTRUCTURED: Final = "there was no structured output"
_CUT_SHORT: Final = ("FinishReasonError", "RefusalError")
"""Ends of the names of errors of the openai package for an unusable output; these errors have no base of their own."""
_HEADINGS: Final = re.compile(r"(?m)^(?=[ \t]*(?:-{3,}[ \t]*$|#))")


@dataclass(frozen=True, slots=True)
class Answer(Generic[A]):
    """The outcome of one question.

    Attributes:
        value: the answer; None if neither output could be read.
        reason: why the value is missing: a field and a rule, never text of the model.
        refusal: the model's words if it refused to answer; a refusal is not asked about again.
        calls: how often the model was asked, 1 or 2.
        usage: tokens of all calls, if the model reports them.
        prompt: the messages of the first call.
    """

    value: A | None
    reason: str
    refusal: str
    calls: int
    usage: UsageMetadata | None
    prompt: Sequence[BaseMessage]


class StructuredModel(Generic[A]):
    """A chat model that answers in the form of a schema.

    Args:
        model: any chat model without bound tools.
        schema: the form. Its docstring and field descriptions tell the model what to write.
        check: returns the reason why a well-formed answer is useless, or "" if it is useful.
        method: Defaults to the model's own, and to "text" for a model without structured output.

    Raises:
        ConfigurationError: the model does not support structured output by this method.
    """

    def __init__(
        self,
        model: BaseChatModel,
        schema: type[A],
        *,
        check: Callable[[A], str] | None = None,
        method: OutputMethod | None = None,
    ) -> None:
        self._schema, self._check = schema, check
        self._bound, self._form = _bound(model, schema, method)

    def ask(self, messages: Sequence[BaseMessage], config: RunnableConfig | None = None) -> Answer[A]:
        """Ask in sync code. Errors of the model are raised."""

        def body() -> StepGenerator[Answer[A]]:
            return self.asking(messages, config)

        return drive(body)

    def asking(self, messages: Sequence[BaseMessage], config: RunnableConfig | None = None) -> StepGenerator[Answer[A]]:
        """Ask within a body for sync and async. Errors of the model are raised.

        Args:
            messages: the prompt; its last message is a text.
            config: of the calls: callbacks, tags, a run name.
        """
        prompt = self._with_form(messages)
        config, usage, reason = merge_configs(config, ASIDE), None, ""
        for calls in (1, 2):  # noqa: B007 - the number is part of the answer
            sent = list(prompt)
            if reason:
                again = f"Your last output could not be used: {reason}. Answer again, complete, in the required form."
                sent.append(HumanMessage(again))
            try:
                output = _parts_of((yield Ask(self._bound, sent, config)))
            except Exception as error:
                if not _is_unreadable(error):
                    raise
                output = {"parsing_error": error}
            raw = output.get("raw")
            usage = _added(usage, raw)
            value, reason = self._read(output)
            refusal = ""
            if value is None:
                refusal = _refusal(raw)
            if value is not None or refusal:
                break
        return Answer(value, reason, refusal, calls, usage, prompt)

    def _with_form(self, messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        """Return the prompt with the form in words, for a model without structured output."""
        if not self._form:
            return messages
        *first, last = messages
        return [*first, last.model_copy(update={"content": f"{last.text}{self._form}"})]

    def _read(self, output: Mapping[str, Any]) -> tuple[A | None, str]:
        """Return the answer, or the reason why it is missing; of several objects in a text the last valid one wins."""
        parsed, raw, error = output.get("parsed"), output.get("raw"), output.get("parsing_error")
        if parsed is not None:
            return self._validated(parsed)
        reasons = []
        if isinstance(raw, BaseMessage):
            for given in _objects(raw.text, self._schema.model_fields):
                value, reason = self._validated(given)
                if value is not None:
                    return value, ""
                reasons.append(reason)
        if reasons:
            return None, reasons[0]
        if isinstance(error, BaseException):
            return None, reason_of(error)
        return None, UNSTRUCTURED

    def _validated(self, given: Any) -> tuple[A | None, str]:
        """Return an answer, or the reason why it does not have the form or is useless."""
        value = given
        if not isinstance(given, self._schema):
            try:
                value = self._schema.model_validate(given)
            except ValidationError as error:
                return None, reason_of(error)
        if self._check is not None:
            problem = self._check(value)
            if problem:
                return None, problem
        return value, ""


def _parts_of(output: Any) -> Mapping[str, Any]:
    """Return an output of a model in the parts that ``include_raw`` gives."""
    if isinstance(output, Mapping):
        return output
    if isinstance(output, BaseMessage):
        return {"raw": output}
    return {"parsed": output}


def _bound(
    model: BaseChatModel, schema: type[BaseModel], method: OutputMethod | None
) -> tuple[Runnable[Any, Any], str]:
    """Return the model with its form bound, or the plain model and the form in words."""
    if method != "text":
        options: dict[str, Any] = {}
        if method is not None:
            options["method"] = method
        try:
            return model.with_structured_output(schema, include_raw=True, **options), ""
        except (NotImplementedError, ValueError, TypeError) as error:
            name = type(model).__name__
            # A method that the host named is never replaced silently.
            if method is not None or not isinstance(error, NotImplementedError):
                by = ""
                if method is not None:
                    by = f" by {method}"
                raise ConfigurationError(f"{name} gives no structured output{by}: {error}") from error
            logger.info("%s gives no structured output: JSON is read from its text", name)
    form = json.dumps(schema.model_json_schema(), ensure_ascii=False)
    return model, f"\n\nAnswer with one JSON object of this JSON schema and nothing else:\n{form}"


def sections(parts: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Return material for a prompt, one framed section for each title; empty ones are left out.

    Lines of the material that look like the frame are marked, so that a text cannot end its section or begin another.
    """
    pairs: Iterable[tuple[str, str]]
    if isinstance(parts, Mapping):
        pairs = parts.items()
    else:
        pairs = parts
    framed = []
    for title, text in pairs:
        if text:
            framed.append(f"## {title}\n---\n{_HEADINGS.sub('| ', text)}\n---")
    return "\n\n".join(framed)


def reason_of(error: BaseException) -> str:
    """Return why an output could not be read: the field and the rule, without text of the model."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        if not field:
            return first["msg"][:300]
        return f"{field}: {first['msg']}"[:300]
    return "it is no JSON object of the required form"


def _is_unreadable(error: Exception) -> bool:
    """Return True for errors of clients that validate by themselves: the model answered, but not in the form."""
    return isinstance(error, (ValidationError, OutputParserException)) or type(error).__name__.endswith(_CUT_SHORT)


def _objects(text: str, fields: Mapping[str, Any]) -> Iterator[Any]:
    """Yield JSON objects in a text that begin with one of the fields, the last one first."""
    # The last one first: a model may write drafts before its answer.
    names = "|".join(map(re.escape, fields))
    begin = re.compile(rf'\{{\s*"(?:{names})"')
    for match in reversed(list(begin.finditer(text))):
        try:
            yield json.JSONDecoder().raw_decode(text, match.start())[0]
        except (ValueError, RecursionError):
            continue


def _refusal(raw: Any) -> str:
    """Return the words of a model that refuses, as OpenAI's models give them next to the text or in a block."""
    if not isinstance(raw, BaseMessage):
        return ""
    given = [raw.additional_kwargs.get("refusal")]
    if isinstance(raw.content, list):
        for block in raw.content:
            if isinstance(block, dict):
                given.append(block.get("refusal"))
    for text in given:
        if isinstance(text, str) and text.strip():
            return text.strip()
    return ""


def _added(before: UsageMetadata | None, raw: Any) -> UsageMetadata | None:
    if not isinstance(raw, AIMessage) or raw.usage_metadata is None:
        return before
    return add_usage(before, raw.usage_metadata)
