"""A chat model as the policy and as the judge: scripted, and a real ChatOpenAI against a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from rooms import KEYS, TASK, TOOLS, Keeper, Rooms

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.offline.coldstart import Budget
from langgraph_toolmem.offline.discovery import Discovery, EnvironmentCall, SearchSettings, Task
from langgraph_toolmem.offline.discovery.model import ModelPolicy
from langgraph_toolmem.offline.discovery.search import Goal, State
from langgraph_toolmem.offline.discovery.world import Observation, Taken
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel
from langgraph_toolmem.testing.server import make_chat_model

SPECS = read_tools(TOOLS)
FAST = SearchSettings(iterations=8, depth=4, patience=0)


def answer_to(name: str, text: str) -> dict[str, Any]:
    """What a sensible model says: it reads the prompt, rings the bell first, and takes the key it was told."""
    if name == "PlanAnswer":
        return {
            "analysis": "A safe is to be opened.",
            "strategy": "Find the key.",
            "steps": ["find the key", "open the safe"],
            "focus": "open the safe" if "key_" in text.split("Calls so far")[-1] else "find the key",
            "tools": ["find_key", "open_safe", "ring_bell", "no_such_tool"],
        }
    if name == "ReflectAnswer":
        pivot = {"tool": "find_key", "arguments": '{"name": "Cellar"}', "likely": 0.9}
        return {"context": "The bell was rung.", "critique": "It is broken.", "alternatives": [pivot]}
    if name == "Judgement":
        return {"why": "The safe is open.", "done": "yes" if '"safe":"open"' in text.replace(" ", "") else "no"}
    if '"safe"' in text:
        return {"thought": "Done.", "completed": True, "finished": True, "answer": "The safe is open.", "calls": []}
    known = re.search(r"key_\d+(?=\",)", text.split("Calls so far")[-1])
    calls = [{"tool": "ring_bell", "arguments": "{}", "likely": 0.9}]
    if known:
        calls = [
            {"tool": "open_safe", "arguments": json.dumps({"key_id": known[0]}), "likely": 0.9},
            {"tool": "open_safe", "arguments": "{broken", "likely": 0.9},
            {"tool": "open_safe", "arguments": '{"lamp": 1}', "likely": 0.9},
            {"tool": "fly", "arguments": "{}", "likely": 0.9},
        ]
    return {"thought": "", "completed": False, "finished": False, "answer": "", "calls": calls}


def script(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
    name = tools[0]["function"]["name"]
    said = answer_to(name, messages[-1].text)
    usage = {"input_tokens": 90, "output_tokens": 10, "total_tokens": 100}
    return AIMessage(
        "", tool_calls=[{"name": name, "args": said, "id": "c", "type": "tool_call"}], usage_metadata=usage
    )


def reply(request: dict[str, Any]) -> str:
    name = request["response_format"]["json_schema"]["name"]
    return json.dumps(answer_to(name, str(request["messages"][-1]["content"])))


class Undecided(Rooms):
    """A world that cannot tell whether the task is done."""

    def success(self) -> bool | None:
        return None


def asked(model: ScriptedChatModel) -> list[str]:
    return [call.tools[0]["function"]["name"] for call in model.calls]


def test_plan_act_and_reflect_find_the_way() -> None:
    world, model = Rooms(), ScriptedChatModel(script=script)
    with Discovery(world, [TASK], model=model, settings=FAST) as discovery:
        report = discovery.run()
        (found,) = discovery.found()
    assert [taken.call.tool for taken in found.path] == ["find_key", "open_safe"]
    assert world.log[:2] == ["reset", "reset"]
    assert "ring_bell" in world.log
    assert asked(model) == ["PlanAnswer", "ActAnswer", "ReflectAnswer", "ActAnswer"]
    assert (report.model_calls, report.tokens) == (4, 400)
    prompt = model.calls[1].messages
    assert TASK.request in prompt[-1].text
    assert "find the key" in prompt[-1].text
    assert "never an instruction" in prompt[0].text


def test_a_real_client_against_a_real_server() -> None:
    with OpenAIStubServer(reply) as server:
        model = make_chat_model(server)
        with Discovery(Undecided(), [TASK], model=model, judge=model, settings=FAST) as discovery:
            report = discovery.run()
            (found,) = discovery.found()
        names = [request["response_format"]["json_schema"]["name"] for request in server.requests]
    assert found.answer == "The safe is open."
    assert [taken.call.tool for taken in found.path] == ["find_key", "open_safe"]
    assert names == ["PlanAnswer", "ActAnswer", "ReflectAnswer", "ActAnswer", "ActAnswer", "Judgement"]
    assert report.model_calls == len(names)
    assert report.tokens == server.usage["total_tokens"]


def test_somebody_has_to_say_when_a_task_is_done() -> None:
    with (
        Discovery(Undecided(), [TASK], policy=Keeper()) as discovery,
        pytest.raises(ConfigurationError, match="whether a task is done"),
    ):
        discovery.run()


def test_calls_that_cannot_be_made_are_left_out() -> None:
    state = State(TASK, taken=(), goal=Goal("open it"))
    known = Taken(
        EnvironmentCall("find_key", {"name": "Cellar"}), Observation({"keys": [{"id": KEYS["Cellar"], "name": "x"}]})
    )

    def ask(schema: Any, rules: str, parts: Any) -> Any:
        text = "\n".join(f"{name} {part}" for name, part in parts.items())
        return schema.model_validate(answer_to(schema.__name__, text))

    policy = ModelPolicy(ask, SPECS)
    proposals = policy.propose(state.after(known, reads=True))
    assert [(each.call and each.call.key) for each in proposals] == [("open_safe", '{"key_id":"key_22"}')]
    plan = policy.plan(State(TASK))
    assert (plan.text, plan.number, plan.of) == ("find the key", 0, 2)
    assert plan.tools == ("find_key", "open_safe", "ring_bell")
    later = policy.plan(state)
    assert later.number == 1


@pytest.mark.parametrize("bound", [{"model_calls": 6}, {"tokens": 550}], ids=["calls", "tokens"])
def test_the_budget_holds_and_a_later_session_goes_on(bound: dict[str, int], tmp_path: Path) -> None:
    tasks = [TASK, Task("t2", "Open the safe with the Garden key.", {"key": "Cellar"})]
    model = ScriptedChatModel(script=script)
    with Discovery(
        Rooms, tasks, model=model, settings=FAST, budget=Budget(queries=2, **bound), folder=tmp_path
    ) as discovery:
        report = discovery.run()
    assert report.stopped
    assert len(model.calls) == report.model_calls == 6
    assert (report.done, report.solved) == (1, 1)

    again = ScriptedChatModel(script=script)
    with Discovery(Rooms, tasks, model=again, settings=FAST, folder=tmp_path) as discovery:
        report = discovery.run()
        whole = discovery.found()
    assert (report.done, report.stopped) == (2, "")
    alone = ScriptedChatModel(script=script)
    with Discovery(Rooms, tasks, model=alone, settings=FAST) as discovery:
        discovery.run()
        assert discovery.found() == whole
    assert len(again.calls) == report.model_calls == len(alone.calls) - 4  # the first task was over


async def test_it_runs_beside_an_event_loop() -> None:
    with Discovery(Rooms(), [TASK], model=ScriptedChatModel(script=script), settings=FAST) as discovery:
        report = await discovery.arun()
    assert report.solved == 1
