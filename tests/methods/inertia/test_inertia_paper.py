"""AutoTool's rule as published: scores, windows, arguments and guards by hand on tiny graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from histories import FAILED, Learner, call, reading, shortcut, user, words

from langgraph_toolmem.inertia.confidence import Checked
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.papers import autotool
from langgraph_toolmem.runs.run import ExecutedCall

PAPER = InertiaPolicy.paper(max_share=None, max_in_a_row=None)
PLAIN = [reading(name) for name in "abcd"]


def chains(learner: Learner, counts: Mapping[str, int]) -> Learner:
    """Runs of single-letter tools: ``{"abc": 3}`` are three runs a, b, c."""
    for chain, count in counts.items():
        for i in range(count):
            learner.learn(user("Go."), *(call(tool) for tool in chain), words(), thread_id=f"{chain}{i}")
    return learner


def scores(learner: Learner, tools: str, thought: str = "t", policy: InertiaPolicy = PAPER, ctx: Any = 0.0) -> Any:
    similarity = ctx if callable(ctx) else lambda intuition, tool: ctx
    return {tool: s for s, tool in autotool.scores(learner.graph, list(tools), thought, similarity, policy)}


def test_cips_by_hand():
    # After a, b: c three times, d once. W = 4, ICF = 1 − 1.1⁻⁴.
    learner = chains(Learner(PLAIN, PAPER), {"abc": 3, "abd": 1})
    icf = 1 - 1.1**-4
    fit = {"c": 0.2, "d": 0.6}
    found = scores(learner, "ab", ctx=lambda intuition, tool: fit[tool])

    assert found["c"] == pytest.approx(0.5 * 3 / 4 * icf + 0.5 * 0.2)
    assert found["d"] == pytest.approx(0.5 * 1 / 4 * icf + 0.5 * 0.6)
    assert list(found) == ["d", "c"]


def test_the_window_is_the_last_two_tools():
    learner = chains(Learner(PLAIN, PAPER), {"abc": 2, "cbd": 1})

    assert set(scores(learner, "ab")) == {"c"}
    assert set(scores(learner, "cb")) == {"d"}
    assert set(scores(learner, "b", policy=PAPER.with_(window=1))) == {"c", "d"}
    assert scores(learner, "b") == {}


def test_failed_shortcuts_lower_the_weight_and_successes_make_up_for_them():
    learner = chains(Learner(PLAIN, PAPER), {"abc": 3})
    learner.learn(user("Go."), call("a"), call("b"), shortcut("c", {}, FAILED), words(), thread_id="f")
    assert autotool.weights(learner.graph, ["a", "b"], 2) == {"c": 2}

    for i in range(2):
        learner.learn(user("Go."), call("a"), call("b"), shortcut("c"), words(), thread_id=f"s{i}")
    assert autotool.weights(learner.graph, ["a", "b"], 2) == {"c": 3}


def test_a_failed_chain_is_negative_evidence_where_it_failed_only():
    learner = chains(Learner(PLAIN, PAPER), {"abc": 3})
    learner.learn(user("Go."), call("d"), call("a"), call("b"), shortcut("c", {}, FAILED), words(), thread_id="f")

    assert autotool.weights(learner.graph, ["d", "a", "b"], 2) == {}
    assert autotool.weights(learner.graph, ["a", "b"], 2) == {"c": 2}


def decide(learner: Learner, *parts: Any, thought: str = "next") -> Any:
    return learner.decide(user("Go."), *parts, thought=thought)


def test_a_proposal_needs_a_score_above_theta():
    learner = chains(Learner(PLAIN, PAPER), {"abc": 2})  # 0.5 · (1 − 1.1⁻²) = 0.087
    refused = decide(learner, call("a"), call("b"))
    assert refused.proposal is None
    assert "0.09 of c is not above 0.10" in refused.reason

    chains(learner, {"dabc": 1})  # 0.5 · (1 − 1.1⁻³) = 0.124
    proposal = decide(learner, call("a"), call("b")).proposal
    assert (proposal.tool, dict(proposal.args), proposal.act) == ("c", {}, True)
    assert proposal.confidence == pytest.approx(0.5 * (1 - 1.1**-3))


FLOW = [reading("search", "query"), reading("open", "id"), reading("read", "id", "part:integer")]


def readers(policy: InertiaPolicy = PAPER, runs: int = 4) -> Learner:
    """Search, open the first hit, read the next: the id is one of a list, used once."""
    learner = Learner(FLOW, policy)
    for i in range(runs):
        hits = {"hits": [{"id": f"x{i}"}, {"id": f"y{i}"}]}
        learner.learn(
            user("Go."),
            call("search", {"query": "q"}, hits),
            call("open", {"id": f"x{i}"}, "a long text"),
            call("read", {"id": f"x{i}"}),
            words(),
            thread_id=str(i),
        )
    return learner


def test_an_argument_comes_from_the_strongest_source():
    learner = readers()
    decision = decide(
        learner, call("search", {"query": "q"}, {"hits": [{"id": "n1"}, {"id": "n2"}]}), call("open", {"id": "n1"})
    )

    assert decision.proposal.tool == "read"
    assert dict(decision.proposal.args) == {"id": "n1"}
    assert decision.proposal.sources["id"] == "the same value as id of the earlier call to open"
    assert "read has score" in decision.proposal.evidence


def test_a_list_gives_the_element_not_used_yet():
    learner = Learner(FLOW, PAPER)
    for i in range(4):
        hits = {"hits": [{"id": f"x{i}"}, {"id": f"y{i}"}, {"id": f"z{i}"}]}
        learner.learn(
            user("Go."), call("search", {"query": "q"}, hits), call("open", {"id": f"x{i}"}),
            call("open", {"id": f"y{i}"}), call("open", {"id": f"z{i}"}), words(), thread_id=str(i)
        )  # fmt: skip
    hits = {"hits": [{"id": "n1"}, {"id": "n2"}, {"id": "n3"}]}
    decision = decide(learner, call("search", {"query": "q"}, hits), call("open", {"id": "n1"}))

    assert (decision.proposal.tool, dict(decision.proposal.args)) == ("open", {"id": "n2"})


def rooms(tool: str, steps: Sequence[ExecutedCall]) -> Mapping[str, Any]:
    return {"room": "kitchen"}


ROOMS = [reading("a"), reading("b"), reading("look", "room")]


def lookers(policy: InertiaPolicy) -> Learner:
    learner = Learner(ROOMS, policy)
    for i in range(4):
        learner.learn(user("Go."), call("a"), call("b"), call("look", {"room": f"room {i}"}), words(), thread_id=str(i))
    return learner


def test_the_environment_fills_what_no_call_gave():
    learner = lookers(PAPER.with_(environment=rooms))
    decision = decide(learner, call("a"), call("b"))

    assert dict(decision.proposal.args) == {"room": "kitchen"}
    assert decision.proposal.sources == {"room": "the environment adapter"}


@pytest.mark.parametrize(
    ("goal", "args"),
    [("Look, room kitchen please", {"room": "kitchen"}), ("The room is hall", {"room": "hall"}), ("Look around", None)],
)
def test_the_goal_names_the_argument(goal: str, args: Any):
    decision = lookers(PAPER).decide(user(goal), call("a"), call("b"), thought="t")

    assert (decision.proposal and dict(decision.proposal.args)) == args


def test_after_two_failures_the_recovery_tool_is_called():
    tools = [*PLAIN, reading("options")]
    policy = InertiaPolicy.paper(recovery_tool="options")
    learner = Learner(tools, policy)
    bad = call("a", {}, FAILED)

    assert decide(learner, bad).proposal is None
    assert decide(learner, bad, call("b"), bad).proposal is None
    decision = decide(learner, bad, bad)
    assert (decision.proposal.tool, decision.acts) == ("options", True)
    assert "last 2 calls failed" in decision.proposal.evidence
    assert decide(Learner(tools, policy.with_(recovery_after=3)), bad, bad).proposal is None
    assert decide(Learner(PLAIN, policy), bad, bad).proposal is None  # no such tool
    assert decide(Learner(tools, policy.with_(never={"options"})), bad, bad).proposal is None
    assert not decide(Learner(tools, policy.with_(shadow=True)), bad, bad).acts


# --- what the published system has not: budget, audits, an adapter that fails ---


@pytest.mark.parametrize("answer", [7, None, RuntimeError])
def test_an_adapter_that_fails_is_no_context_and_is_logged_once(answer: Any, caplog: pytest.LogCaptureFixture):
    def broken(tool: str, steps: Sequence[ExecutedCall]) -> Any:
        if answer is RuntimeError:
            raise RuntimeError("the robot is off")
        return answer

    learner = lookers(PAPER.with_(environment=broken))
    for _ in range(3):
        decision = decide(learner, call("a"), call("b"))
        assert decision.proposal is None
        assert "nothing in this run fills room of look" in decision.reason
    assert learner.graph.counters["turns"] == 16, "learning goes on"
    assert sum("environment" in r.getMessage() for r in caplog.records) <= 1


def test_the_budget_of_the_papers_policy():
    policy = InertiaPolicy.paper(max_share=None, max_in_a_row=None, max_wrong_per_100=2.0)
    learner = chains(Learner(PLAIN, policy), {"abc": 60})
    assert decide(learner, call("a"), call("b")).acts
    assert learner.graph.counters["right"] > 20

    missed = Checked(learner.graph.turns, changes=0, wrong=1, counts=1)
    learner.graph.apply(None, [missed] * 3)
    held = decide(learner, call("a"), call("b"))
    assert (held.acts, held.would_act) == (False, False)
    assert "the budget of 2 wrong call(s)" in held.reason


def test_the_budget_weighs_a_call_of_the_papers_by_the_record_of_such_calls():
    learner = chains(Learner(PLAIN, PAPER), {"abc": 6, "abd": 1})  # proposed from the fourth run on: three hits, a miss
    decision = decide(learner, call("a"), call("b"))

    assert decision.confidence == pytest.approx((3 + 1) / (3 + 1 + 2))


def test_never_two_in_a_row_and_at_most_thirty_percent():
    learner = chains(Learner(PLAIN, InertiaPolicy.paper()), {"abc": 5, "bcd": 5, "cdd": 5, "ddd": 5})

    assert "cap is 30%" in decide(learner, call("a"), call("b")).reason  # 1 of 3 calls would be too many
    assert decide(learner, call("c"), call("a"), call("b"), call("c")).acts  # 1 of 5
    three = [call("a"), call("a"), call("b")]
    assert "in a row" in decide(learner, *three, shortcut("c")).reason
    assert "cap is 30%" in decide(learner, *three, shortcut("c"), call("d")).reason  # 2 of 6
    assert decide(learner, *three, shortcut("c"), call("d"), call("d")).reason.count("cap") == 0  # 2 of 7
