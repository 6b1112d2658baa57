"""The method in an agent and in a graph, sync and async; its verdicts, report, command, and what forgetting leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from typer.testing import CliRunner

from examples.own_method.lessons import Lessons, LessonStep
from langgraph_toolmem import ToolMemory, default_methods
from langgraph_toolmem.cli import app
from langgraph_toolmem.extend import StepNode
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import MemoryState, messages_with_hints
from langgraph_toolmem.testing import ScriptedChatModel

SAID = "Invoices go to the billing address."
ASKED = {"messages": [HumanMessage("Send the invoice to Bob Hill")]}


def complain(memory: ToolMemory, comment: str | None = SAID, user_id: str | None = None) -> None:
    messages = [HumanMessage("Send the invoice to Ann Lee"), AIMessage("It is on its way.")]
    memory.finish(messages, thread_id="past", success=comment is None, comment=comment, user_id=user_id)


def echo() -> ScriptedChatModel:
    """A model that answers with all it was told."""
    return ScriptedChatModel(script=lambda messages, _: AIMessage("|".join(str(m.text) for m in messages)))


def agent(step: LessonStep, memory: ToolMemory) -> Any:
    return create_agent(echo(), middleware=tool_memory_middleware(memory, steps=[step]))


def graph(step: LessonStep, _: ToolMemory) -> Any:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MemoryState)
    StepNode(step).add_to(builder)
    model = echo()
    builder.add_node("agent", lambda state: {"messages": [model.invoke(messages_with_hints(state, model))]})
    builder.add_edge(START, "lessons")
    builder.add_edge("lessons", "agent")
    builder.add_edge("agent", END)
    return builder.compile()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[ToolMemory]:
    with ToolMemory(tmp_path / "memory", methods=default_methods(Lessons())) as made:
        yield made


def step_of(memory: ToolMemory) -> LessonStep:
    method = memory.method("lessons")
    assert isinstance(method, Lessons)
    return LessonStep(method)


@pytest.mark.parametrize("build", [agent, graph])
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_the_model_reads_what_somebody_said(memory: ToolMemory, build: Any, way: str) -> None:
    complain(memory)
    app, config = build(step_of(memory), memory), {"configurable": {"thread_id": "now"}}
    state = app.invoke(ASKED, config) if way == "sync" else await app.ainvoke(ASKED, config)

    assert SAID in state["messages"][-1].text
    memory.feedback("now", score=1.0)
    assert memory.report()["lessons"]["runs"] == memory.report()["lessons"]["helped"] == 1
    assert "Lessons were shown in 1 runs; 1 of these went well, 0 badly." in str(memory.report())


def test_a_run_that_went_well_teaches_nothing_until_somebody_complains(memory: ToolMemory) -> None:
    complain(memory, None)
    app = agent(step_of(memory), memory)
    assert SAID not in app.invoke(ASKED)["messages"][-1].text
    memory.feedback("past", score=0.0, comment=SAID)
    assert SAID in app.invoke(ASKED)["messages"][-1].text
    memory.feedback("past", score=1.0)
    assert SAID not in app.invoke(ASKED)["messages"][-1].text


def test_the_command_line_takes_the_method_from_the_environment(
    memory: ToolMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complain(memory)
    memory.close()
    monkeypatch.setenv("TOOLMEM_METHODS", "examples.own_method.lessons:Lessons")

    def toolmem(*arguments: str) -> str:
        return CliRunner().invoke(app, [*arguments, "--memory", str(tmp_path / "memory")]).stdout

    assert json.loads(toolmem("report", "--json"))["sections"]["lessons"]["runs"] == 0
    toolmem("feedback", "past", "--score", "1")
    with ToolMemory(tmp_path / "memory", methods=default_methods(Lessons())) as again:
        assert SAID not in agent(step_of(again), again).invoke(ASKED)["messages"][-1].text


def test_forgetting_a_user_leaves_the_others(memory: ToolMemory) -> None:
    for user in ("ann", "bob"):
        messages = [HumanMessage(f"Send the invoice to {user}"), AIMessage("Done.")]
        memory.finish(messages, thread_id=user, success=False, comment=f"{user} has moved", user_id=user)
    memory.forget(user_id="ann")
    told = agent(step_of(memory), memory).invoke(ASKED)["messages"][-1].text
    assert "bob has moved" in told
    assert "ann" not in told
