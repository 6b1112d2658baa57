"""An agent for evaluations: finds a person, opens the file, answers; its model is scripted."""

from __future__ import annotations

import json
import re
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from langgraph_toolmem.evaluation import EvalRun
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

CALLS: list[str] = []
"""Requests that reached the model: the last message of each."""
FAIL: dict[int, BaseException] = {}
"""Number of a request from 0 -> what happens instead of the answer."""
LOST: dict[int, BaseException] = {}
"""The same, after the model had answered: it is paid and lost."""


@tool
def find_person(name: str) -> str:
    """Find a person by name."""
    return json.dumps({"person_id": f"P-{name}"})


@tool
def open_file(person_id: str) -> str:
    """Open a person's file."""
    return json.dumps({"person_id": person_id, "colour": f"blue {person_id[-1]}"})


def script(messages: list[BaseMessage], _tools: Any) -> AIMessage:
    number = len(CALLS)
    if number in FAIL:
        raise FAIL.pop(number)
    CALLS.append(str(messages[-1].content))
    if number in LOST:
        raise LOST.pop(number)
    last_said = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
    name = re.findall(r"file of (\w+)", str(messages[last_said].content))
    results = {m.name: json.loads(m.text) for m in messages[last_said:] if isinstance(m, ToolMessage)}
    answer = AIMessage("")
    if not name:
        answer = AIMessage("You are welcome.")
    elif "find_person" not in results:
        answer = call_tool("find_person", name=name[0])
    elif "open_file" not in results:
        person = results["find_person"]["person_id"]
        answer = call_tool("open_file", person_id=person)
    else:
        answer = AIMessage(f"The colour is {results['open_file']['colour']}.")
    answer.usage_metadata = {
        "input_tokens": 100, "output_tokens": 10, "total_tokens": 110, "input_token_details": {"cache_read": 60},
    }  # fmt: skip
    return answer


def agent(run: EvalRun) -> Any:
    return create_agent(
        run.model(ScriptedChatModel(script=script)), [find_person, open_file], middleware=run.middleware()
    )


def broken(run: EvalRun) -> Any:
    raise ValueError("no such world")


def thanks(run: EvalRun) -> bool:
    return run.messages[-1].text == "You are welcome."
