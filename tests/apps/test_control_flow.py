"""Names of agents, tools that steer the run, and the middleware of the newest langchain beside the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import langchain.agents.middleware as theirs
import pytest
from agents import both
from desk import shortcuts
from histories import call, history, reading, user, words
from langchain_core.messages import AIMessage

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory

pytestmark = pytest.mark.usefixtures("nothing_failed")


async def test_the_memorys_messages_carry_the_name_of_the_agent() -> None:
    agent, without = both(name="clerk")
    state, plain = await agent.run(1), await without.run(1)

    assert shortcuts(state["messages"])
    said = [{m.name for m in each["messages"] if isinstance(m, AIMessage)} for each in (state, plain)]
    assert said == [{"clerk"}, {"clerk"}]


def test_a_named_control_tool_gets_no_shortcut_however_sure_the_record() -> None:
    free = InertiaPolicy(may_write={"note"}).with_(max_wrong_per_100=None, audit_rate=0.0)
    run = history(user("Go on"), call("find", {"name": "x"}, "x"), call("note", {}, "ok"), words())
    asked = history(user("Go on"), call("find", {"name": "x"}, "x"))
    for policy, acts in ((free, True), (free.with_(control={"note"}), False)):
        tools = [reading("find", "name"), reading("note")]
        with ToolMemory.ephemeral(tools=tools, methods=[Inertia(policy)]) as memory:
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
