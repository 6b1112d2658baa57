"""Questions to models: each is counted before it is asked, and asked once, whatever is killed in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, ValidationError

from langgraph_toolmem.bootstrap.meter import Budget, Meter
from langgraph_toolmem.bootstrap.state import Query
from langgraph_toolmem.keys import digest
from langgraph_toolmem.sga.discovery.state import DiscoveryState
from langgraph_toolmem.tools import ToolSpec

Answer = TypeVar("Answer", bound=BaseModel)

SEARCH = "search"
TAG = "toolmem:discovery"


class Questions:
    """The questions of one task's search. The same question asked again is another one: models may answer otherwise.

    Args:
        state: where answers and costs are written down.
        query: the task there.
        budget: the bounds, over all tasks and sessions.
        specs: the tools, by name.
    """

    def __init__(self, state: DiscoveryState, query: Query, budget: Budget, specs: Mapping[str, ToolSpec]) -> None:
        self._state, self._query, self._budget, self.specs = state, query, budget, specs
        self._times: Counter[str] = Counter()

    def config(self, purpose: str) -> RunnableConfig:
        """For a call of a model: it counts, and is refused (`RefusedError`) where the budget is spent."""
        meter = Meter(self._state, self._budget, purpose)
        return RunnableConfig(callbacks=[meter], tags=[TAG], run_name="toolmem_discovery")

    def ask(self, model: BaseChatModel) -> Callable[[type[Answer], list[BaseMessage]], Answer | None]:
        """A function that asks a model for a structured answer."""

        def asked(schema: type[Answer], prompt: list[BaseMessage]) -> Answer | None:
            def said() -> Answer | None:
                try:
                    answer = model.with_structured_output(schema).invoke(prompt, self.config(SEARCH))
                except (OutputParserException, ValidationError):
                    return None
                return answer if isinstance(answer, schema) else None

            return self.answer(schema, (schema.__name__, *(message.text for message in prompt)), said)

        return asked

    def answer(self, schema: type[Answer], parts: Sequence[str], said: Callable[[], Answer | None]) -> Answer | None:
        """What was answered to a question, in a former session or now."""
        question = digest("question", *parts)
        self._times[question] += 1
        key = f"{question}-{self._times[question]}"
        known = self._state.answer(self._query, key)
        if known is not None:
            return schema.model_validate(known["answer"]) if known["answer"] is not None else None
        answer = said()
        self._state.answered(self._query, key, {"answer": None if answer is None else answer.model_dump(mode="json")})
        return answer
