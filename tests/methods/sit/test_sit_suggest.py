"""Which tool next: weights, ranks, fills and ties by hand on small graphs; the paper's example; properties."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from histories import FAILED, call, calls, run_of, user, words
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.runs.run import SUMMARY_TOOL, Run
from langgraph_toolmem.sit.evidence import Walks
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.rows import Match, StoredSummary, Use
from langgraph_toolmem.sit.suggest import Suggestion, suggest
from langgraph_toolmem.sit.transitions import START, transitions

COMBINED = SITPolicy(recall="tool")
PAPER = SITPolicy.paper()


class Kept:
    """Summaries with a cosine that is written down: place -> [(target, cosine)]."""

    def __init__(self, matches: Mapping[str, Sequence[tuple[str, float]]], *, seen: int = 1, **fields: Any) -> None:
        def made(i: int, place: str, target: str) -> StoredSummary:
            uses = tuple(Use(str(n), target, "", i) for n in range(seen))
            return StoredSummary(f"{place}>{target}#{i}", place, target, f"state {i}", "tool", uses, **fields)

        self.matches = {
            place: [
                Match(cosine, made(i, place, target))
                for i, (target, cosine) in enumerate(sorted(row, key=lambda each: -each[1]))
            ]
            for place, row in matches.items()
        }
        self.asked: list[str] = []
        self.read: list[str | None] = []

    def embed(self, text: str) -> str | None:
        self.asked.append(text)
        return text or None

    def near(self, source: str | None, query: Any) -> dict[str, Match]:
        self.read.append(source)
        return {match.summary.target: match for match in reversed(self.matches.get(str(source), []))}

    def nearest(self, source: str | None, query: Any, *, k: int) -> list[Match]:
        self.read.append(source)
        return self.matches.get(str(source), [])[:k]


def learned(*runs: Run, good: bool = True) -> Walks:
    walks = Walks()
    for number, run in enumerate(runs):
        for each in transitions(run):
            walks.add(str(number), each.key + str(number), each.source, each.target)
        walks.judge(str(number), float(good))
    return walks


def named(*tools: str) -> Run:
    return run_of(user("x"), *(call(tool) for tool in tools))


def tools_of(found: Sequence[Suggestion]) -> list[str]:
    return [each.tool for each in found]


NOW = named("a")  # "a" was called last

# --- procedural -----------------------------------------------------------------------------------------------


def test_an_edge_weighs_its_uses_and_more_in_short_runs():
    # a → b in a run of 2 and one of 4 transitions, a → c in two runs of 5: N is 2 for both.
    walks = learned(
        named("a", "b"), named("a", "b", "e", "e"), named("a", "c", "e", "e", "e"), named("a", "c", "e", "e", "e")
    )
    row = walks.out_of("a")
    assert row["b"].weight(1.0) == pytest.approx(2 + 1 / 2 + 1 / 4)
    assert row["c"].weight(1.0) == pytest.approx(2 + 1 / 5 + 1 / 5)

    first, second = suggest(NOW, walks, policy=PAPER)
    assert tools_of([first, second]) == ["b", "c"]
    assert first.score == pytest.approx(2.75 / (2.75 + 2.4 + 2))
    assert (first.kind, first.runs, first.success, first.similarity, first.summary) == (
        "procedural",
        2,
        1.0,
        None,
        None,
    )
    assert first.evidence == "came next 2 of 4 times after a in successful runs"
    assert tools_of(suggest(NOW, walks, policy=COMBINED)) == ["b", "c"]


def test_without_the_bonus_equal_counts_go_by_name():
    walks = learned(named("a", "c"), named("a", "b", "e", "e"))
    assert tools_of(suggest(NOW, walks, policy=PAPER)) == ["c", "b"]
    assert tools_of(suggest(NOW, walks, policy=PAPER.with_(c=0.0))) == ["b", "c"]
    assert tools_of(suggest(NOW, walks, policy=COMBINED.with_(c=0.0))) == ["b", "c"]


@pytest.mark.parametrize("policy", [PAPER, COMBINED.with_(unlabelled=0.0)])
def test_only_successful_runs_teach(policy: SITPolicy):
    walks = learned(named("a", "b"), named("a", "b"), good=False)
    assert suggest(NOW, walks, policy=policy) == []
    walks.add("open", "k", "a", "c")  # no verdict
    assert suggest(NOW, walks, policy=policy) == []
    (only,) = suggest(NOW, walks, policy=policy.with_(unlabelled=0.2))
    assert (only.tool, only.runs, only.success) == ("c", 0, None)


def test_runs_without_a_verdict_count_less_the_more_often_their_edge_was_judged_bad():
    walks = learned(named("a", "b"), named("a", "b"), good=False)
    for number in range(4):
        walks.add(f"open {number}", "k", "a", "b")
        walks.add(f"open too {number}", "k", "a", "c")
    weights = {target: edge.weight(unlabelled=0.3) for target, edge in walks.out_of("a").items()}
    assert weights == pytest.approx({"b": 4 * 0.3 / 3, "c": 4 * 0.3})
    assert tools_of(suggest(NOW, walks, policy=COMBINED)) == ["c", "b"]


def test_a_state_votes_by_the_verdicts_on_its_runs():
    kept = Kept({"a": [("b", 0.7), ("c", 0.7)]})
    how = {"summary": "s", "standing": {"b": (0.0, 1.0), "c": (1.0, 0.0)}.__getitem__}
    assert tools_of(suggest(NOW, Walks(), kept, policy=COMBINED, **how)) == ["c", "b"]
    [b] = [each for each in suggest(NOW, Walks(), kept, policy=COMBINED, **how) if each.tool == "b"]
    assert b.evidence.endswith("runs not judged)")
    assert tools_of(suggest(NOW, Walks(), kept, policy=COMBINED.with_(unlabelled=0.0), **how)) == ["c"]


def test_failures_lower_no_weight_but_are_told():
    walks = learned(named("a", "b"))
    walks.add("bad", "k", "a", "b")
    walks.judge("bad", 0.0)
    (only,) = suggest(NOW, walks, policy=PAPER)
    assert (only.runs, only.success) == (1, 0.5)
    assert only.evidence == "came next 1 of 1 times after a in successful runs, 1 times in failed ones"


def test_the_first_step_has_the_edges_out_of_the_start():
    walks = learned(named("a", "b"), named("c"))
    (first, second) = suggest(run_of(user("x")), walks, policy=PAPER)
    assert tools_of([first, second]) == ["c", "a"]  # c: 1 + 1/1, a: 1 + 1/2
    assert "after the start" in first.evidence


def test_after_several_calls_at_once_the_edges_out_of_each_count():
    walks = learned(named("a", "c"), named("a", "c"), named("b", "d"))
    both = run_of(user("x"), calls([("a", {}, 1), ("b", {}, 2)]))
    found = suggest(both, walks, policy=COMBINED)
    assert tools_of(found) == ["c", "d"]
    assert "after b or a" in found[0].evidence


def test_a_failed_call_is_where_the_agent_is():
    walks = learned(run_of(user("x"), call("a", {}, FAILED), call("b")), named("c"))
    assert tools_of(suggest(run_of(user("x"), call("a", {}, FAILED)), walks, policy=PAPER)) == ["b"]


# --- episodic -------------------------------------------------------------------------------------------------


def test_the_papers_rule_ranks_by_the_best_cosine_and_fills_up_with_weight():
    walks = learned(*[named("a", "b")] * 5, named("a", "d"))
    kept = Kept({"a": [("c", 0.6), ("d", 0.3), ("c", 0.1)]})
    found = suggest(NOW, walks, kept, policy=PAPER, summary="s", k=3)
    assert [(each.tool, each.kind, each.score) for each in found[:2]] == [
        ("c", "episodic", 0.6),
        ("d", "episodic", 0.3),
    ]
    assert (found[2].tool, found[2].kind) == ("b", "procedural")
    assert (found[0].summary, found[0].summary_id) == ("state 0", "a>c#0")
    assert tools_of(suggest(NOW, walks, Kept({"a": [("d", 0.3)]}), policy=PAPER, summary="s")) == ["d", "b"]


def test_without_a_summary_the_papers_rule_is_procedural():
    walks = learned(*[named("a", "b")] * 2, named("a", "c"))
    kept = Kept({"a": [("c", 0.9)]})
    assert tools_of(suggest(NOW, walks, kept, policy=PAPER)) == ["b", "c"]
    assert kept.asked == []
    assert tools_of(suggest(NOW, walks, kept, policy=PAPER, summary="s")) == ["c", "b"]
    # No summaries on the candidate edges: procedural too.
    assert tools_of(suggest(NOW, walks, Kept({"z": [("c", 0.9)]}), policy=PAPER, summary="s")) == ["b", "c"]


def test_votes_and_odds_by_hand():
    walks = learned(named("a", "b"))  # p(b) = 1.5 / (1.5 + 1)
    kept = Kept({"a": [("b", 0.5), ("c", 0.6), ("c", 0.55)]})
    policy = COMBINED.with_(sharpness=10.0, weight_states=1.0, weight_habit=0.1, weight_words=2.0)
    vote_b, vote_c = math.exp(-1), 1 + math.exp(-0.5)
    total = vote_b + vote_c + 0.1 + 1.5 * (1 - 0.6**2) / 0.6**2
    odds_b = (1 + (vote_b + 0.1 * 0.6) / total / 0.02) * (1 + 0.6 / 0.01) ** 0.1
    odds_c = 1 + vote_c / total / 0.02
    say = 0.04 / 0.05 * (1 - 0.6**2)
    odds_d = math.exp(2 * say)
    every = odds_b + odds_c + odds_d + 1  # and "e", of which nothing is known

    def search(text: str) -> list[tuple[str, float]]:
        assert text == "x"
        return [("d", 0.04), ("e", 0.02)]

    found = suggest(NOW, walks, kept, policy=policy, summary="s", available=["b", "c", "d", "e"], search=search, k=9)
    assert {each.tool: each.score for each in found} == pytest.approx(
        {"b": odds_b / every, "c": odds_c / every, "d": odds_d / every}
    )
    assert tools_of(found) == ["c", "b", "d"]
    assert {each.tool: each.kind for each in found} == {"b": "episodic", "c": "episodic", "d": "search"}
    assert found[0].evidence == "2 of the 3 most similar past states went on with it (nearest: 0.60)"
    assert found[1].evidence.startswith(
        "1 of the 3 most similar past states went on with it (nearest: 0.50); came next"
    )
    assert found[2].evidence == "its description fits the request"


def test_many_similar_states_outvote_the_most_similar_one():
    kept = Kept({"a": [("b", 0.70), ("c", 0.69), ("c", 0.68)]})
    assert tools_of(suggest(NOW, Walks(), kept, policy=COMBINED, summary="s")) == ["c", "b"]
    assert tools_of(suggest(NOW, Walks(), kept, policy=PAPER, summary="s")) == ["b", "c"]


def test_a_summary_counts_as_often_as_it_was_seen_and_less_with_a_bad_record():
    fresh = Kept({"a": [("b", 0.7)]}).matches["a"] + Kept({"a": [("c", 0.69)]}, seen=3).matches["a"]
    kept = Kept({})
    kept.matches = {"a": fresh}
    assert tools_of(suggest(NOW, Walks(), kept, policy=COMBINED, summary="s")) == ["c", "b"]
    worn = Kept({"a": [("b", 0.7)]}).matches["a"] + Kept({"a": [("c", 0.69)]}, seen=3, offered=18).matches["a"]
    kept.matches = {"a": worn}
    assert tools_of(suggest(NOW, Walks(), kept, policy=COMBINED, summary="s")) == ["b", "c"]


def test_only_the_candidate_edges_are_read():
    kept = Kept({"a": [("b", 0.5)], START: [("c", 0.5)]})
    suggest(NOW, Walks(), kept, policy=COMBINED, summary="s")
    assert kept.read == ["a"]
    kept.read.clear()
    asked = run_of(user("x"), call("a"), words("Which one?"), user("y"))
    assert tools_of(suggest(asked, Walks(), kept, policy=COMBINED, summary="s")) == ["b", "c"]
    assert kept.read == [START, "a"]


def test_the_summary_of_the_agent_goes_before_the_extractive_one():
    kept = Kept({})
    suggest(NOW, Walks(), kept, summary="  mine ")
    suggest(NOW, Walks(), kept, summary=" ")
    suggest(NOW, Walks(), kept, policy=COMBINED)
    assert kept.asked == ["mine", "Asked: x\nDone: a\nLast result: ok"]


# --- search, and what may be called ---------------------------------------------------------------------------


def test_a_tool_missing_from_the_graph_is_left_to_the_search():
    def search(_: str) -> Iterator[tuple[str, float]]:
        yield from [("b", 0.9), ("c", 0.5), ("d", 0.1)]

    lost = named("never seen")
    for policy in (COMBINED, PAPER):
        found = suggest(lost, Walks(), policy=policy, search=search)
        assert tools_of(found) == ["b", "c"]
        assert {each.kind for each in found} == {"search"}
        assert suggest(lost, Walks(), policy=policy) == []


def test_the_papers_rule_searches_only_where_it_needs_more():
    def search(_: str) -> list[tuple[str, float]]:
        raise AssertionError("not needed")

    walks = learned(named("a", "b"), named("a", "c"))
    assert tools_of(suggest(NOW, walks, policy=PAPER, search=search)) == ["b", "c"]
    assert tools_of(suggest(NOW, walks, policy=PAPER, k=3, search=lambda _: [("d", 1.0)])) == ["b", "c", "d"]


def test_the_more_alike_a_known_state_the_less_a_description_says():
    search = {"search": lambda _: [("d", 0.5), ("e", 0.1)]}
    far = suggest(NOW, Walks(), Kept({"a": [("b", 0.2)]}), policy=COMBINED, summary="s", **search)
    near = suggest(NOW, Walks(), Kept({"a": [("b", 0.95)]}), policy=COMBINED, summary="s", **search)
    assert (tools_of(far), tools_of(near)) == (["d", "b"], ["b", "d"])
    assert far[0].score > 5 * near[1].score


@pytest.mark.parametrize("hits", [[], [("d", 0.0), ("e", 0.0)], [("d", -1.0)]])
def test_hits_that_share_nothing_say_nothing(hits: list[tuple[str, float]]):
    assert suggest(NOW, Walks(), policy=COMBINED, search=lambda _: hits) == []


@pytest.mark.parametrize("policy", [PAPER, COMBINED])
def test_tools_that_are_not_available_are_never_suggested(policy: SITPolicy):
    walks = learned(named("a", "b"), named("a", "c"), named("a", "d"))
    kept = Kept({"a": [("b", 0.9), ("c", 0.5), (SUMMARY_TOOL, 0.8)]})
    given: dict[str, Any] = {"policy": policy, "summary": "s", "search": lambda _: [("b", 1.0), (SUMMARY_TOOL, 0.9)]}
    assert tools_of(suggest(NOW, walks, kept, available=["c", "d", SUMMARY_TOOL], k=9, **given)) == ["c", "d"]
    assert SUMMARY_TOOL not in tools_of(suggest(NOW, walks, kept, k=9, **given))
    assert suggest(NOW, walks, kept, available=[], **given) == []


NAMES = st.sampled_from("abcde")


@settings(max_examples=120, deadline=None)
@given(
    runs=st.lists(st.lists(NAMES, min_size=1, max_size=5), max_size=4),
    so_far=st.lists(NAMES, max_size=3),
    matches=st.dictionaries(
        st.sampled_from([START, *"abc"]), st.lists(st.tuples(NAMES, st.floats(-1, 1)), max_size=4), max_size=3
    ),
    hits=st.lists(st.tuples(NAMES, st.floats(-1, 1)), max_size=4),
    available=st.none() | st.sets(NAMES),
    k=st.integers(0, 4),
    policy=st.sampled_from([PAPER, COMBINED]),
)
def test_whatever_is_known_the_answer_is_sound(
    runs: list[list[str]],
    so_far: list[str],
    matches: dict[str, list[tuple[str, float]]],
    hits: list[tuple[str, float]],
    available: set[str] | None,
    k: int,
    policy: SITPolicy,
):
    walks = learned(*(named(*tools) for tools in runs))

    def ask(k: int) -> list[Suggestion]:
        return suggest(
            named(*so_far),
            walks,
            Kept(matches),
            policy=policy,
            summary="s",
            available=available,
            search=lambda _: hits,
            k=k,
        )

    found = ask(k)
    assert tools_of(found) == tools_of(ask(9))[:k]
    assert len({each.tool for each in found}) == len(found) <= k
    assert available is None or set(tools_of(found)) <= available
    assert all(each.evidence and isinstance(each.score, float) and math.isfinite(each.score) for each in found)
    if policy is COMBINED:
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert sum(each.score for each in ask(9)) <= 1
