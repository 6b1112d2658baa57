"""What a cold start did cost so far: every model call is counted before it is made."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from langgraph_toolmem.base.errors import ToolMemoryError
from langgraph_toolmem.offline.coldstart.budget import Budget
from langgraph_toolmem.offline.coldstart.state import BootstrapState

INVENT: Final = "invent"
RUN: Final = "run"
JUDGE: Final = "judge"
CRITIQUE: Final = "critique"
"""What model calls are for."""


class RefusedError(ToolMemoryError):
    """A model call was not made, since the budget does not allow it. A run does not survive it."""


class Meter(BaseCallbackHandler):
    """Counts model calls as a LangChain callback, and refuses those that go beyond the budget.

    Args:
        state: where what was spent is written down.
        budget: the bounds.
        purpose: what the calls are for.
        most: calls that this meter lets through; None: as many as the budget.

    Attributes:
        calls: calls that were let through.
        refused: why a call was refused: "" (none was), "budget" or "run".
    """

    raise_error = True  # a refusal has to reach who asks the model

    def __init__(self, state: BootstrapState, budget: Budget, purpose: str, *, most: int | None = None) -> None:
        self._state, self._budget, self._purpose, self._most = state, budget, purpose, most
        self._stopped = ""
        self.calls = 0
        self.refused = ""

    def stop(self, why: str) -> None:
        """Lets no further call through: what was broken off may be going on in a thread."""
        self._stopped = why

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """A chat model is about to be asked."""
        del serialized, run_id, kwargs
        self._count(len(messages))

    def on_llm_start(self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any) -> None:
        """A text model is about to be asked."""
        del serialized, run_id, kwargs
        self._count(len(prompts))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """A model has answered."""
        del run_id, kwargs
        if tokens := tokens_of(response):
            self._state.spend(self._purpose, tokens=tokens)

    def told(self, messages: list[BaseMessage]) -> None:
        """Counts the calls that can be read from a finished run, if none was seen: the agent passes no callbacks on."""
        if self.calls:
            return
        answers = [m for m in messages if isinstance(m, AIMessage) and "toolmem" not in m.additional_kwargs]
        usage = sum(m.usage_metadata["total_tokens"] for m in answers if m.usage_metadata)
        self.calls = len(answers)
        self._state.spend(self._purpose, calls=len(answers), tokens=usage)

    def _count(self, calls: int) -> None:
        if self._stopped:
            raise RefusedError(f"No model call any more: {self._stopped}.")
        if self._most is not None and self.calls + calls > self._most:
            self.refused = self.refused or "run"
            raise RefusedError(f"One run may make {self._most} model calls.")
        if why := self._state.spend_within(self._budget.spent, self._purpose, calls):
            self.refused = self.refused or "budget"
            raise RefusedError(f"The budget is spent: {why}.")
        self.calls += calls


def tokens_of(response: LLMResult) -> int:
    """Prompt and answer tokens of a model's answer, 0 if it does not tell."""
    found = 0
    for generations in response.generations:
        first = generations[0] if generations else None
        message = first.message if isinstance(first, ChatGeneration) else None
        if isinstance(message, AIMessage) and message.usage_metadata:
            found += message.usage_metadata["total_tokens"]
    if not found and isinstance(response.llm_output, dict):
        usage = response.llm_output.get("token_usage")
        total = usage.get("total_tokens") if isinstance(usage, dict) else None
        found = total if isinstance(total, int) else 0
    return found
