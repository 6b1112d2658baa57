"""What one turn teaches: by hand on tiny runs, read off the graph."""

from __future__ import annotations

from histories import FAILED, Learner, call, schema, shortcut, user, words

from langgraph_toolmem.graph.state import START, WORDS, slot_key
from langgraph_toolmem.graph.tool_graph import HIT, MISS

S = "\x1f"


def context(*symbols: str) -> str:
    return f"w{len(symbols)}{S}{S.join(symbols)}"


def after(learner: Learner, *symbols: str) -> dict[str, list[float]]:
    return learner.graph.successors.row(context(*symbols))


def record_of(learner: Learner, slot: str, descriptor: str) -> list[float] | None:
    return learner.graph.sources.row(slot).get(descriptor)


def test_what_the_model_chose_is_counted_apart_for_success_and_failure():
    learner = Learner()
    learner.learn(user("Go."), call("a"), call("b"), words(), thread_id="1")
    learner.learn(user("Go."), call("a"), call("b", {}, FAILED), words(), thread_id="2")

    assert after(learner, START) == {"a": [2, 0, 0, 0]}
    assert after(learner, "a") == {"b": [1, 1, 0, 0]}
    assert after(learner, START, "a") == {"b": [1, 1, 0, 0]}
    assert after(learner, "b") == {WORDS: [1, 0, 0, 0]}
    assert after(learner, "b!") == {WORDS: [1, 0, 0, 0]}
    assert learner.graph.tools["b"]["ok"] == learner.graph.tools["b"]["failed"] == 1


def test_a_shortcut_is_an_outcome_and_no_evidence():
    learner = Learner()
    learner.learn(user("Go."), call("a"), shortcut("b"), words(), thread_id="1")
    learner.learn(user("Go."), call("a"), shortcut("b", {}, FAILED), words(), thread_id="2")

    assert after(learner, "a") == {}
    assert learner.graph.successors.row(f"p1{S}a") == {"b": [0, 0, 1, 1]}
    assert learner.graph.tools["b"]["ok"] == learner.graph.tools["b"]["failed"] == 1
    assert learner.graph.values.row(slot_key("b", "x")) == {}
    counters = learner.graph.counters
    assert (counters["acted_ok"], counters["acted_failed"], counters["turns"], counters["calls"]) == (1, 1, 6, 2)
    assert learner.graph.runs.popitem()[1].shortcuts == 1


def test_a_source_is_judged_each_time_it_has_something_to_offer():
    learner = Learner([schema("find", "name"), schema("read", "id")])
    slot = slot_key("read", "id")
    for run, taken in enumerate(("7", "7", "8")):
        learner.learn(
            user("Go."),
            call("find", {"name": "x"}, {"id": "7"}),
            call("read", {"id": taken}),
            words(),
            thread_id=str(run),
        )

    assert record_of(learner, slot, "o|find|$.id") == [2, 1]
    assert learner.graph.sources.row(f"{slot}\x1efind")["o|find|$.id"] == [2, 1]
    # The constant was there to be judged from the second run on: 7 came again, 8 did not.
    assert record_of(learner, slot, "c") == [1, 1]
    assert HIT < MISS


def test_parameters_of_unknown_tools_are_noted():
    learner = Learner()
    learner.learn(user("Go."), call("a", {"x": 1, "y": "z"}), call("a", {"x": 2}), words())

    spec = learner.specs["a"]
    assert spec.required == {"x"}
    assert spec.properties == {"x": {"type": "integer"}, "y": {"type": "string"}}
