"""Names of agents, tools that steer the run, and the middleware of the newest langchain beside the memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import langchain.agents.middleware as theirs
import pytest
from agents import both, build_agent
from desk import script, shortcuts
from histories import call, history, reading, user, words
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.types import Command

from langgraph_toolmem import Inertia, InertiaPolicy, Prefetch, ToolMemory
from langgraph_toolmem.inertia import guards
from langgraph_toolmem.inertia.prefetch.qualify import Gates, qualified
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")


async def test_the_memorys_messages_carry_the_name_of_the_agent() -> None:
    agent, without = both(name="clerk")
    state, plain = await agent.run(1), await without.run(1)

    assert shortcuts(state["messages"])
    said = [{m.name for m in each["messages"] if isinstance(m, AIMessage)} for each in (state, plain)]
    assert said == [{"clerk"}, {"clerk"}]


@tool
def hand_to_sales() -> Command[Any]:
    """Sales go on."""
    return Command(goto="sales")


@tool
def research_complete() -> str:
    """Enough is known."""
    return "ok"


@tool
def get_agent(name: str) -> str:
    """Which agent it is."""
    return name


NAMES = frozenset({"hand_to_sales", "research_complete", "get_agent"})
ALL = InertiaPolicy(may_write=NAMES, allow_destructive=NAMES)


def test_tools_that_steer_the_run_are_never_called_nor_run_ahead() -> None:
    tools = {each.name: each for each in (hand_to_sales, research_complete, get_agent)}
    specs = {name: replace(spec, read_only=True) for name, spec in read_tools(tools.values()).items()}
    policy = ALL.with_(control={"research_complete", "get_agent"})

    assert not guards.why_never(specs["get_agent"], ALL)
    assert not guards.why_never(specs["research_complete"], ALL)
    for spec in specs.values():
        assert "ends the run or steers it" in guards.why_never(spec, policy)
        assert guards.may_write(spec.name, specs, policy)
    assert "ends the run or steers it" in guards.why_never(specs["hand_to_sales"], ALL)
    assert not qualified(tools, specs, policy, Prefetch(), Gates()).may
    assert set(qualified(tools, specs, ALL, Prefetch(), Gates()).may) == {"research_complete", "get_agent"}


def test_a_named_control_tool_gets_no_shortcut_however_sure_the_record() -> None:
    free = ALL.with_(max_wrong_per_100=None, audit_rate=0.0)
    run = history(user("Go on"), call("find", {"name": "x"}, "x"), call("note", {}, "ok"), words())
    asked = history(user("Go on"), call("find", {"name": "x"}, "x"))
    for policy, acts in ((free, True), (free.with_(control={"note"}), False)):
        tools = [reading("find", "name"), reading("note")]
        with ToolMemory.ephemeral(tools=tools, methods=[Inertia(policy, background=False)]) as memory:
            for n in range(30):
                memory.observe(run, thread_id=str(n))
            decision = memory.inertia.explain(asked)
            assert decision.acts is acts
            assert acts or "steers it" in decision.reason


# --- middleware of langchain 1.5 ---


def decider(choose: Callable[[Any, Any], dict[str, Any]]) -> Any:
    """A decision model that answers each question with what `choose` makes of state and question."""
    decisions = pytest.importorskip("langchain_core.decisions", reason="decision models come with langchain-core 1.8")

    class Decider(decisions.BaseDecisionModel):  # type: ignore[name-defined,misc]
        model: str = "scripted"

        @property
        def _provider(self) -> str:
            return "scripted"

        def _classify(self, state: Any, questions: dict[str, Any]) -> Any:
            answers = {name: choose(state, question) for name, question in questions.items()}
            return decisions.ClassifierResponse.model_validate({"model": "scripted", "answers": answers})

    return Decider()


def newest(name: str) -> Any:
    made = getattr(theirs, name, None)
    return made or pytest.skip(f"this langchain has no {name}: it comes with 1.5")


@pytest.mark.filterwarnings("ignore:.*beta:")
async def test_auto_mode_stops_the_memorys_calls_as_the_models() -> None:
    made = newest("AutoModeMiddleware")
    risky = decider(lambda *_: {"type": "noul", "noul": 0.9})
    agent, without = both(lambda: [made(tools=["add_note"], classifier=risky)])
    state, plain = await agent.run(1), await without.run(1)

    assert shortcuts(state["messages"])
    assert agent.desk.done == without.desk.done
    assert "add_note" not in [name for name, *_ in agent.desk.done]
    stopped = [[m.name for m in each["messages"] if getattr(m, "status", "") == "error"] for each in (state, plain)]
    assert stopped[0] == stopped[1] == ["add_note"]


@pytest.mark.filterwarnings("ignore:.*beta:")
async def test_the_chosen_model_is_asked_where_the_memory_does_not_act() -> None:
    router, choice = newest("ModelRouterMiddleware"), newest("ModelChoice")
    small, large = ScriptedChatModel(script=script), ScriptedChatModel(script=script)
    choose = decider(
        lambda *_: {"type": "choice", "choice": "large", "probabilities": {"large": 1.0}, "confidence": 1.0}
    )
    choices = {"small": choice(small, "easy"), "large": choice(large, "hard")}
    agent, without = both(lambda: [router(choices=choices, instructions="Choose.", classifier=choose)])
    state = await agent.run(1)
    asked = len(large.calls)
    await without.run(1)

    assert shortcuts(state["messages"])
    assert (len(small.calls), agent.model_calls) == (0, 0)
    assert 0 < asked < len(large.calls) - asked
    assert agent.desk.done == without.desk.done


async def test_a_refusal_of_the_model_is_an_error_as_before() -> None:
    made = newest("ModelRefusalMiddleware")
    refused = AIMessage([{"type": "refusal", "refusal": "No."}])
    with ToolMemory.ephemeral() as memory:
        for each in (memory, None):
            model = ScriptedChatModel(script=lambda *_: refused.model_copy(deep=True))
            with pytest.raises(Exception, match="refus") as caught:
                await build_agent(each, model=model, inside=[made()]).run(1)
            assert type(caught.value).__name__ == "ModelRefusalError"
