"""Copies of an agent use the memory of the first; a forked process asks a scripted model; methods bring their steps."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from lessons import Lessons

from langgraph_toolmem import ConfigurationError, ToolMemory
from langgraph_toolmem.extend import Step, StepOutput
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel

OPTIONS: list[dict[str, Any]] = [
    {},
    *({name: True} for name in ("prefetch", "recall", "reflect", "suggest", "planning", "preferences", "tool_search")),
]
ASKED = [HumanMessage("Send the invoice")]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_agent_can_be_copied_deeply_and_shares_its_memory(options: dict[str, Any]) -> None:
    with ToolMemory.ephemeral() as memory:
        middleware = tool_memory_middleware(memory, **options)
        agent: Any = create_agent(ScriptedChatModel(script=["Done."], profile={}), [], middleware=middleware)
        copy.deepcopy(agent)
        assert copy.deepcopy(memory) is copy.copy(memory) is memory


@pytest.mark.parametrize("success", [7, -3, 1.5, float("nan"), "good"])
def test_a_score_that_is_none_is_refused_before_anything_is_learned(success: Any) -> None:
    with ToolMemory.ephemeral() as memory:
        with pytest.raises(ConfigurationError):
            memory.finish([("user", "Send it"), ("assistant", "Done.")], thread_id="t", success=success)
        assert memory.report().turns == 0


class Noting(Step["Brings"]):
    role, about = "noting", "notes that it was asked"

    def compute(self, call: Any) -> StepOutput:
        del call
        self.method.asked += 1
        return StepOutput("")


class Brings(Lessons):
    name, steps = "brings", (Noting,)
    asked = 0


@pytest.mark.parametrize("named", [False, True])
def test_the_steps_of_a_method_are_asked_once(named: bool) -> None:
    method = Brings()
    with ToolMemory.ephemeral(methods=[method]) as memory:
        steps = [Noting(method)] if named else []
        middleware = tool_memory_middleware(memory, shortcut=False, steps=steps)
        agent: Any = create_agent(ScriptedChatModel(script=["Done."], profile={}), [], middleware=middleware)
        agent.invoke({"messages": ASKED})
        assert method.asked == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_asks_a_model_that_was_answering() -> None:
    children: list[int] = []

    def script(messages: Any, tools: Any) -> Any:
        del messages, tools
        if not children:
            children.append(os.fork())
            if not children[0]:  # the parent's lock is held at this moment
                children[0] = 1
                os._exit(0 if model.invoke("again").text == "Done." else 1)
        return model_answer

    model_answer = ScriptedChatModel(script=["Done."]).invoke("x")
    model = ScriptedChatModel(script=script)
    model.invoke("hi")
    assert os.waitpid(children[0], 0)[1] == 0
