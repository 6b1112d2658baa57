"""The report describes each agent's own policy, and what shadow mode would have saved and got wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool

from langgraph_toolmem import InertiaPolicy, TokenPrice, ToolMemory
from langgraph_toolmem.graph.events import Count, Event
from langgraph_toolmem.inertia.confidence import SHADOWED, Checked
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

pytestmark = pytest.mark.usefixtures("nothing_failed")

RUNS = 40
ODD = ("O-7", "O-9")
"""Orders of which the model does something else than of the others, once the memory knows the others."""


@tool
def find_order(order: str) -> str:
    """Look an order up."""
    return f"{order} is open"


@tool
def send_note(order: str) -> str:
    """Send a note about an order."""
    return "sent"


def script(messages: list[BaseMessage], tools: Any) -> AIMessage:
    """Look the order up and send the note; of an odd order, only answer."""
    begun = max(number for number, message in enumerate(messages) if message.type == "human")
    order, made = messages[begun].text.split()[-1], sum(message.type == "tool" for message in messages[begun:])
    if order in ODD or made == 2:
        return AIMessage("Done.")
    return call_tool("send_note" if made else "find_order", order=order)


def agent_of(memory: ToolMemory, policy: InertiaPolicy | bool, name: str | None = None, **options: Any) -> Any:
    middleware = tool_memory_middleware(memory, shortcut=policy, **options)
    return create_agent(ScriptedChatModel(script=script), [find_order, send_note], middleware=middleware, name=name)


def serve(agent: Any, orders: Any) -> None:
    for order in orders:
        config = {"configurable": {"thread_id": f"thread of {order}", "user_id": f"user of {order}"}}
        agent.invoke({"messages": [("user", f"Please notify {order}")]}, config)


def orders(runs: int = RUNS) -> list[str]:
    return [f"O-{100 + number}" for number in range(runs)]


@pytest.mark.parametrize(
    ("policy", "mode", "may_write", "never"),
    [
        (InertiaPolicy(shadow=True), "shadow", [], []),
        (InertiaPolicy(may_write={"send_note"}), "acting", ["send_note"], []),
        (InertiaPolicy(never={"find_order"}), "acting", [], ["find_order"]),
    ],
)
def test_the_policy_of_the_agent_is_described(
    policy: InertiaPolicy, mode: str, may_write: list[str], never: list[str]
) -> None:
    with ToolMemory.ephemeral(reads={"find_*"}) as memory:
        serve(agent_of(memory, policy), orders())
        report = memory.report()
        (agent,) = report["inertia"]["agents"]
        assert (agent["mode"], agent["may_write"], agent["never"]) == (mode, may_write, never)
        assert (agent["turns"], agent["saved"]) == (report.turns, report.skipped)
        assert (agent["shadow"]["checks"] > 0) == policy.shadow
        assert ("send_note" in report["inertia"]["never_skipped"]) == (not may_write)
        whys = {each["tool"]: each["why"] for each in report["inertia"]["unskipped"]}
        if policy.shadow:
            assert whys["find_order"] == "shadow mode"
        if never:
            assert whys["find_order"] == "guard: is excluded by the policy"


def test_shadow_mode_says_what_it_would_have_saved_and_got_wrong(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, reads={"find_*"}) as memory:
        agent = agent_of(memory, InertiaPolicy(shadow=True), "desk")
        serve(agent, [*orders(), *ODD])
        before = memory.report()["inertia"]
        (desk,) = before["agents"]
        shadow = desk["shadow"]
        assert desk["name"] == "desk"
        assert shadow["right"] + shadow["wrong"] == shadow["checks"] > RUNS / 2
        assert shadow["wrong"] == len(ODD) == memory.report().wrong
        wrong = [(row["thread"], row["tool"], row["instead"]) for row in before["wrong_calls"]]
        assert wrong == [(f"thread of {order}", "find_order", "an answer in words") for order in reversed(ODD)]
        [in_shadow] = memory.report().shadow
        assert (in_shadow.agent, in_shadow.turns) == ("desk", desk["turns"])
        assert (in_shadow.would_save.calls, in_shadow.wrong) == (shadow["right"], len(ODD)), "a wrong one saves nothing"
        assert in_shadow.threads == tuple(f"thread of {order}" for order in reversed(ODD))
        would = f"Would have saved {shadow['right']} of {desk['turns']} model calls in shadow mode; "
        assert str(memory.report()).startswith(would)
        assert f"may not write. It watched {desk['turns']} model calls." in memory.report().setup()[0]
        [line] = [line for line in memory.report().worth() if line.startswith("In shadow mode")]
        assert f"agent 'desk' would have saved {shadow['right']} of {desk['turns']} model calls (about " in line
        assert f"with 2 look-ups in vain. Wrong in thread thread of {ODD[1]}, thread of {ODD[0]}." in line
    with ToolMemory(tmp_path, reads={"find_*"}) as memory:
        again = memory.report()["inertia"]
        assert (again["agents"], again["wrong_calls"]) == (before["agents"], before["wrong_calls"])
        memory.forget(user_id=f"user of {ODD[0]}")
        assert [row["thread"] for row in memory.report()["inertia"]["wrong_calls"]] == [f"thread of {ODD[1]}"]


def test_agents_of_one_memory_have_reports_of_their_own() -> None:
    with ToolMemory.ephemeral(reads={"find_*"}) as memory:
        acting = agent_of(memory, InertiaPolicy(may_write={"send_note"}), "acting")
        serve(agent_of(memory, InertiaPolicy(shadow=True), "watching"), orders())
        serve(agent_of(memory, False, "ahead", prefetch=True), orders(3))
        serve(acting, orders())
        report = memory.report()
        agents = {agent["name"]: agent for agent in report["inertia"]["agents"]}
        assert set(agents) == {"acting", "watching", "ahead"}
        assert agents["watching"]["saved"] == agents["ahead"]["saved"] == 0
        assert agents["acting"]["saved"] == report.skipped > 0
        assert agents["acting"]["shadow"]["checks"] == 0
        assert agents["ahead"]["mode"].startswith("prefetching")
        assert "send_note" not in report["inertia"]["never_skipped"], "one of the agents names it"
        assert sum(line.startswith("Agent ") for line in report.setup()) == 3


def test_shadow_mode_says_how_many_tokens_it_would_have_saved() -> None:
    def with_usage(messages: list[BaseMessage], tools: Any) -> AIMessage:
        answer = script(messages, tools)
        answer.usage_metadata = {"input_tokens": 900, "output_tokens": 30, "total_tokens": 930}
        return answer

    with ToolMemory.ephemeral(reads={"find_order"}) as memory:
        middleware = tool_memory_middleware(memory, shortcut=InertiaPolicy(shadow=True))
        model = ScriptedChatModel(script=with_usage)
        serve(create_agent(model, [find_order, send_note], middleware=middleware, name="desk"), orders())
        [agent] = memory.report(price=TokenPrice(2.0, 10.0)).shadow
        saved = agent.would_save
        assert saved.calls > 0
        assert (saved.input_tokens, saved.output_tokens) == (900 * saved.calls, 30 * saved.calls)
        assert saved.money == pytest.approx(saved.calls * (900 * 2.0 + 30 * 10.0) / 1e6)


@pytest.mark.parametrize("checks", [1_030, 20_000])
def test_the_report_of_shadow_mode_counts_any_number_of_checks(checks: int) -> None:
    """From 1,030 checks on the interval raised OverflowError, and the section was gone."""
    with ToolMemory.ephemeral(reads={"find_*"}) as memory:
        serve(agent_of(memory, InertiaPolicy(shadow=True)), orders(2))
        right: list[Event] = []
        for number in range(checks):
            right += [Count("right"), Checked(number, 0, 0, SHADOWED)]
        with memory.core.lock:
            memory.core.apply(None, right)
        report = memory.report()
        counts = f"{checks:,} of {checks:,} checks right, at least 99 %"
        assert counts in report.headline()
        assert counts in str(report)
        assert report["inertia"]["shadow_checks"]["right"] == checks
