"""Questions to models: each is counted before it is asked, and asked once, whatever is killed in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel

from langgraph_toolmem.base.models import is_unreadable
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.offline.coldstart.budget import Budget
from langgraph_toolmem.offline.coldstart.meter import Meter, RefusedError
from langgraph_toolmem.offline.coldstart.state import Query
from langgraph_toolmem.offline.discovery.state import DiscoveryState
from langgraph_toolmem.runs.tools import ToolSpec

Answer = TypeVar("Answer", bound=BaseModel)

SEARCH, WORDS = "search", "words"
TAG = "toolmem:discovery"


class Questions:
    """The questions of one task's search. The same question asked again is another one: models may answer otherwise.

    Args:
        state: where answers and costs are written down.
        query: the task there.
        budget: the bounds, over all tasks and sessions.
        specs: the tools, by name.

    Attributes:
        unread: answers that could not be read.
    """

    def __init__(self, state: DiscoveryState, query: Query, budget: Budget, specs: Mapping[str, ToolSpec]) -> None:
        self._state, self._query, self._budget, self.specs = state, query, budget, specs
        self._times: Counter[str] = Counter()
        self.unread = 0

    def config(self, purpose: str) -> RunnableConfig:
        """See `config_of`."""
        return self.config_of(self._state, self._budget, purpose)

    @staticmethod
    def config_of(state: DiscoveryState, budget: Budget, purpose: str) -> RunnableConfig:
        """For one call of a model: it counts, and is refused (`RefusedError`) where the budget is spent.

        Raises:
            RefusedError: it is spent already. Told here, LangChain does not log it as an error of the callback.
        """
        if why := budget.spent(*state.spent()):
            raise RefusedError(f"The budget is spent: {why}.")
        return RunnableConfig(callbacks=[Meter(state, budget, purpose)], tags=[TAG], run_name="toolmem_discovery")

    def ask(self, model: BaseChatModel) -> Callable[[type[Answer], list[BaseMessage]], Answer | None]:
        """A function that asks a model for a structured answer."""

        def asked(schema: type[Answer], prompt: list[BaseMessage]) -> Answer | None:
            def said() -> Answer | None:
                try:
                    answer = model.with_structured_output(schema).invoke(prompt, self.config(SEARCH))
                except Exception as error:
                    if not is_unreadable(error):
                        raise
                    return None
                return answer if isinstance(answer, schema) else None

            return self.answer(schema, (schema.__name__, *(message.text for message in prompt)), said)

        return asked

    def answer(self, schema: type[Answer], parts: Sequence[str], said: Callable[[], Answer | None]) -> Answer | None:
        """Return what was answered to a question, in a former session or now."""
        question = digest("question", *parts)
        self._times[question] += 1
        key = f"{question}-{self._times[question]}"
        known = self._state.answer(self._query, key)
        if known is None:
            answer = said()
            plain = None if answer is None else answer.model_dump(mode="json")
            self._state.answered(self._query, key, {"answer": plain})
        else:
            answer = None if known["answer"] is None else schema.model_validate(known["answer"])
        self.unread += answer is None
        return answer
