"""Trials of hints: draws agree, outcomes count once, what hurts goes, what helps stays."""

# ruff: noqa: SLF001 - the trials of a core, without an agent around them

from __future__ import annotations

from dataclasses import replace

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from benchmarks.hints import simulated
from langgraph_toolmem import SIT, ConfigurationError, ToolMemory
from langgraph_toolmem.core import trials
from langgraph_toolmem.core.trials import BETTER, DrawnRunWent, HintsDrawn, OutcomeSums, TrialSums, TrialTable, estimate
from langgraph_toolmem.graph.events import Verdict
from langgraph_toolmem.graph.tool_graph import ToolGraph


def test_an_outcome_counts_once_whatever_the_order() -> None:
    events = [
        HintsDrawn("sit", "r1", "refund", {"a": 1, "b": 0}, 1, 0, None),
        DrawnRunWent("r1", 1, 0, None),
        DrawnRunWent("r1", 2, 1, None),
        Verdict("r1", 1.0, None, None, 1.0, 1.0),
    ]
    tables = []
    for order in (events, events[::-1]):
        graph = ToolGraph([TrialTable])
        for event in order:
            graph.apply(None, [event])
        tables.append(graph.register(TrialTable))

    assert tables[0].sums == tables[1].sums
    # score: n, sum, squares; errors; calls after the draw (3 - 1 = 2)
    assert tables[0].sums["sit"]["refund"]["a"].to_plain() == [0.0] * 9 + [1, 1, 1, 1, 1, 1, 1, 2, 4]
    assert tables[0].sums["sit"]["refund"]["b"].to_plain() == [1, 1, 1, 1, 1, 1, 1, 2, 4] + [0.0] * 9


def test_changed_feedback_takes_the_place_of_the_old() -> None:
    graph = ToolGraph([TrialTable])
    graph.apply(None, [HintsDrawn("sit", "r1", "", {"a": 1}, 0, 0, None)])
    graph.apply(None, [Verdict("r1", 1.0, None, None, 1.0, 1.0)])
    graph.apply(None, [Verdict("r1", 0.0, None, None, 1.0, 2.0)])

    assert graph.register(TrialTable).sums["sit"][""]["a"].shown["score"] == OutcomeSums(1, 0, 0)


def cell(without: tuple[int, int], shown: tuple[int, int]) -> TrialSums:
    """Sums of scores of 0 and 1: number and good ones in each arm."""
    sums = TrialSums()
    sums.withheld["score"] = OutcomeSums(without[0], without[1], without[1])
    sums.shown["score"] = OutcomeSums(shown[0], shown[1], shown[1])
    return sums


def test_an_effect_is_drawn_to_what_is_known_of_its_kind() -> None:
    own = cell((10, 5), (90, 50))
    alone, bad = estimate([None, None, own], "score"), estimate([None, cell((200, 160), (1800, 700)), own], "score")

    assert alone.mean == pytest.approx(0.07, abs=0.03)
    assert bad.mean < -0.1, "the hints of its kind hurt"
    assert estimate([None, None, None], "score").helps == 0.5
    assert [estimate([own], outcome).mean for outcome in BETTER][1:] == [0.0, 0.0], "nothing is known of these"


def test_draws_agree_and_wait_for_traffic() -> None:
    withheld = []
    for _ in range(2):
        with ToolMemory.ephemeral(methods=[SIT()], withhold=0.3) as memory:
            core, found = memory._core, []
            for number in range(160):
                thread = f"t{number}"
                run = core.read([HumanMessage("Hello.", id=thread)], thread)
                found.append(core.trials.draw("sit", run, core.state_of(run), ["a", "b"], None))
                core.ledger.shown("sit", {"a": None}, run=run.digest, turn=run.next_key)
            withheld.append(found)

    assert withheld[0] == withheld[1]
    assert not any(withheld[0][: trials.TRIAL_SETTINGS.enough_shown])
    assert 5 <= sum("a" in items for items in withheld[0]) <= 35


def test_nothing_is_withheld_at_a_share_of_nothing() -> None:
    with ToolMemory.ephemeral(methods=[SIT()], withhold=0.0) as memory:
        core = memory._core
        for number in range(120):
            run = core.read([HumanMessage("Hello.", id=f"m{number}")], f"t{number}")
            core.ledger.shown("sit", {"a": None}, run=run.digest, turn=run.next_key)
            assert core.trials.draw("sit", run, core.state_of(run), ["a"], None) == set()
        assert "trials" not in memory.report().sections


@pytest.mark.parametrize("share", [-0.1, 0.6, True, "5%"])
def test_a_share_that_cannot_work_is_refused(share: object) -> None:
    with pytest.raises(ConfigurationError, match="withhold"):
        ToolMemory.ephemeral(withhold=share)


def test_calls_and_errors_after_the_draw_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "TRIAL_SETTINGS", replace(trials.TRIAL_SETTINGS, enough_shown=0))
    with ToolMemory.ephemeral(methods=[SIT()], withhold=0.1) as memory:
        core, asked = memory._core, [HumanMessage("Where is it?", id="q")]
        run = core.read(asked, "t")
        core.trials.draw("sit", run, core.state_of(run), ["a"], None)
        made = AIMessage("", tool_calls=[tool_call(name="find", args={}, id="c")])
        failed = ToolMessage("no", tool_call_id="c", status="error")
        memory.finish([*asked, made, failed, AIMessage("Sorry.")], thread_id="t", success=False)
        [effect, pool] = sorted(core.trials.effects(), key=lambda each: each.item == "")
        sums = core.trials._table.sums["sit"][""]["a"].to_plain()

    assert (effect.shown + effect.withheld, pool.shown + pool.withheld) == (1, 1)
    assert [a + b for a, b in zip(sums[:9], sums[9:], strict=True)] == [1, 0, 0, 1, 1, 1, 1, 2, 4]


def test_harmful_hints_go_and_helpful_ones_stay() -> None:
    result = simulated(1.0, 1_500, 1)

    assert (len(result.gone_after), result.harmful) == (3, 3)
    assert max(result.gone_after) < 400
    assert result.helpful_kept == result.helpful
    assert result.gained > result.lost
