"""Whether a task is done: the environment's word where it has one, else a judge's."""

from __future__ import annotations

from langchain_core.language_models import BaseChatModel

from langgraph_toolmem.base.models import is_unreadable
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.entries.entry import entry_of
from langgraph_toolmem.offline.coldstart.judge import Judgement, judge
from langgraph_toolmem.offline.coldstart.meter import JUDGE
from langgraph_toolmem.offline.discovery.environment import Cursor
from langgraph_toolmem.offline.discovery.harvest import run_of
from langgraph_toolmem.offline.discovery.questions import Questions
from langgraph_toolmem.offline.discovery.states import State

ENOUGH = 0.5
"""A score above this is a success."""


class ExactChecker:
    """The environment's own word on the state; it is asked after each call.

    Args:
        cursor: the environment.
    """

    stepwise = True

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def __call__(self, state: State, answer: str) -> bool:
        """Return True if the environment, which is in this state, says that the task is done."""
        del state, answer
        said = self._cursor.success()
        return said is not None and said > ENOUGH


class JudgeChecker:
    """A chat model that sees the calls, the tools' answers and the last word, and says whether the word is grounded.

    It is asked only when the policy says that the task is done.

    Args:
        model: any chat model with structured output.
        questions: counts its calls, and knows its answers of former sessions.
    """

    stepwise = False

    def __init__(self, model: BaseChatModel, questions: Questions) -> None:
        self._model, self._questions = model, questions

    def __call__(self, state: State, answer: str) -> bool:
        """Return True if the judge says yes; "unsure" is no."""
        run = run_of(state.task, state.taken, answer=answer)
        entry = entry_of(run, run_digest=digest("discovery", state.task.id), now=0.0)
        if entry is None:
            return False
        tools = self._questions.specs

        def said() -> Judgement:
            try:
                return judge(self._model, entry, answer, tools, config=self._questions.config(JUDGE))
            except Exception as error:
                if not is_unreadable(error):
                    raise
                return Judgement(why="", done="unsure")

        calls = (part for taken in state.taken for part in taken.call.key)
        found = self._questions.answer(Judgement, ("judge", answer, *calls), said)
        return found is not None and found.score == 1.0
