"""Hints on trial in an agent: what is withheld is not in the prompt, what is shown is, what hurts is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage

from langgraph_toolmem import SIT, Atoms, Entries, ToolMemory
from langgraph_toolmem.core import trials
from langgraph_toolmem.core.trials import HintTrials
from langgraph_toolmem.entries.entry import Critique, Entry
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

LEARNED, PLAYED = 8, 24
CRITIQUE = "It should have asked for the postcode first."


def find_customer(name: str) -> dict[str, str]:
    """Look up a customer by name."""
    return {"customer_id": f"C-{name}"}


def list_orders(customer_id: str) -> list[dict[str, str]]:
    """List the orders of a customer."""
    return [{"order_id": f"O-{customer_id}"}]


def old_search(name: str) -> str:
    """Search customers by name in the old register."""
    return "nothing"


def looks_up(messages: list[Any], _: Any) -> AIMessage:
    name = next(message for message in messages if message.type == "human").text.split()[-1]
    results = [message for message in messages if message.type == "tool"]
    calls = [call_tool("find_customer", name=name), call_tool("list_orders", customer_id=f"C-{name}")]
    return [*calls, AIMessage("Done.")][len(results)]


def searches_in_the_old_register(messages: list[Any], _: Any) -> AIMessage:
    if any(message.type == "tool" for message in messages):
        return AIMessage("Done.")
    return call_tool("old_search", name=messages[-1].text.split()[-1])


def critic(entry: Entry, similar: Sequence[Entry], /) -> Critique:
    return Critique(went_wrong=CRITIQUE, call=1, instead="Ask for the postcode.")


def shown_in(call: Any, option: str) -> bool:
    """Return True if the hint stands in a request to the model."""
    if option == "preferences":
        return not any(name_of(tool) == "old_search" for tool in call.tools)
    text = " ".join(message.text for message in call.messages)
    heads = {
        "suggest": "Likely next tools",
        "recall": "Past runs with similar requests",
        "planning": "Steps that worked",
        "critique": CRITIQUE,
    }
    return heads[option] in text


def requests_with_the_hint(memory: ToolMemory, option: str) -> int:
    """Teach the memory, and return how many of the requests that follow show the hint to the model."""
    feature = "recall" if option == "critique" else option
    middleware = tool_memory_middleware(memory, shortcut=False, reflect=True, **{feature: True})
    goes_wrong = option in ("preferences", "critique")

    def agent_of(script: Any) -> tuple[Any, ScriptedChatModel]:
        model = ScriptedChatModel(script=script)
        return create_agent(model, [find_customer, list_orders, old_search], middleware=middleware), model

    learner, player = agent_of(searches_in_the_old_register if goes_wrong else looks_up), agent_of(looks_up)
    shown = 0
    for number in range(LEARNED + PLAYED):
        learns = number < LEARNED
        agent, model = learner if learns else player
        model.calls.clear()
        feed = {"messages": [("user", f"Please list the orders of P{number}")]}
        agent.invoke(feed, {"configurable": {"thread_id": str(number), "user_id": "ann"}})
        if learns:
            memory.feedback(str(number), score=0.0 if goes_wrong else 1.0, user_id="ann")
        assert memory.flush()
        shown += not learns and any(shown_in(call, option) for call in model.calls)
    return shown


def a_memory(withhold: float) -> ToolMemory:
    methods = [SIT(), Atoms(), Entries(critic=critic)]
    return ToolMemory.ephemeral(methods=methods, reads={"find_*", "list_*", "old_*"}, withhold=withhold)


OPTIONS = ["suggest", "recall", "planning", "preferences", "critique"]


@pytest.mark.parametrize("option", OPTIONS)
def test_withheld_hints_are_not_in_the_prompt(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_memory(0.0) as memory:
        always = requests_with_the_hint(memory, option)
    monkeypatch.setattr(trials, "TRIAL_SETTINGS", replace(trials.TRIAL_SETTINGS, enough_shown=0))
    monkeypatch.setattr(HintTrials, "draw", lambda *args, **_: set(args[4]))
    with a_memory(0.5) as memory:
        never = requests_with_the_hint(memory, option)
    assert (always > PLAYED // 2, never) == (True, 0)


@pytest.mark.parametrize("option", OPTIONS)
def test_hints_that_hurt_are_no_longer_shown(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HintTrials, "standings", lambda *args: dict.fromkeys(args[3], "hurts"))
    with a_memory(0.1) as memory:
        assert requests_with_the_hint(memory, option) == 0
