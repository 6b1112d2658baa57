"""A method of your own in an agent, its record, and the command line; the contract suites hold the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from lessons import Lessons, LessonStep
from typer.testing import CliRunner

from langgraph_toolmem import ToolMemory, default_methods
from langgraph_toolmem.cli import app
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel

SAID = "Invoices go to the billing address."


def complain(memory: ToolMemory) -> None:
    messages = [HumanMessage("Send the invoice to Ann Lee"), AIMessage("It is on its way.")]
    memory.finish(messages, thread_id="past", success=False, comment=SAID)


def answer(memory: ToolMemory) -> str:
    """The answer of a model that repeats all that it reads."""
    method = memory.method("lessons")
    assert isinstance(method, Lessons)
    model = ScriptedChatModel(script=lambda messages, _: AIMessage("|".join(str(m.text) for m in messages)))
    agent: Any = create_agent(model, middleware=tool_memory_middleware(memory, steps=[LessonStep(method)]))
    request = {"messages": [HumanMessage("Send the invoice to Bob Hill")]}
    return str(agent.invoke(request, {"configurable": {"thread_id": "now"}})["messages"][-1].text)


def test_the_command_line_takes_the_method_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ToolMemory(tmp_path, methods=default_methods(Lessons())) as memory:
        complain(memory)
    monkeypatch.setenv("TOOLMEM_METHODS", "lessons:Lessons")

    def toolmem(*arguments: str) -> str:
        return CliRunner().invoke(app, [*arguments, "--memory", str(tmp_path)]).stdout

    assert json.loads(toolmem("report", "--json"))["sections"]["lessons"]["runs"] == 0
    toolmem("feedback", "past", "--score", "1")
    with ToolMemory(tmp_path, methods=default_methods(Lessons())) as again:
        assert SAID not in answer(again)
