"""Novelty: the wording of a request and of what it answers, without the values of calls."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from histories import Learner, call, reading, schema, shortcut, user, words

from langgraph_toolmem import InertiaPolicy
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia import novelty
from langgraph_toolmem.inertia.decision import Option
from langgraph_toolmem.inertia.novelty import Familiar, RequestCompared

TOOLS = [reading("find", "name"), schema("refund", "order")]
FREE = InertiaPolicy(may_write={"refund"}).with_(max_wrong_per_100=None, audit_rate=0.0)
BACK = "Give the money back to {}"
FREELY = [
    f"{BACK} {word}"
    for word in ("now", "please", "today", "quickly", "kindly", "again", "soon", "just", "really", "finally", "thanks")
]


def desk(*wordings: str, runs: int = 40, policy: InertiaPolicy = FREE) -> Learner:
    learner = Learner(TOOLS, policy)
    for i in range(runs):
        name, order = f"Name{i}", f"O-{i}{i}"
        run = [user(wordings[i % len(wordings)].format(name)), call("find", {"name": name}, {"order": order})]
        learner.learn(*run, call("refund", {"order": order}), words(), thread_id=str(i))
    return learner


@pytest.fixture(scope="module")
def strict() -> Learner:
    return desk(BACK)


def first(learner: Learner, text: str) -> Any:
    """The decision before the look-up."""
    return learner.decide(user(text))


def second(learner: Learner, text: str) -> Any:
    """The decision before the refund."""
    return learner.decide(user(text), call("find", {"name": "Bob"}, {"order": "O-9999"}))


@pytest.mark.parametrize(
    ("text", "look", "change"),
    [
        ("Give the money back to Bob", True, True),
        ("Never give the money back to Bob", False, False),
        ("Should we give the money back to Bob?", False, False),
        ("Give the money back to Bob ?", False, False),
        ("Give NOT the money back to Bob", False, False),
        ("Give the book back to Bob", False, False),
        ("Gib Bob das Geld zurück", False, False),
        ("Bob", False, False),
    ],
)
def test_where_all_requests_are_worded_alike_a_new_word_is_unfamiliar(
    strict: Learner, text: str, look: bool, change: bool
):
    decisions = first(strict, text), second(strict, text)
    assert [each.acts for each in decisions] == [look, change]
    assert [each.would_act for each in decisions] == [look, change]


@pytest.mark.parametrize(
    ("text", "look", "change"),
    [
        ("Give the money back to Bob soon", True, True),
        ("Give the money back to Bob presently", True, False),
        ("Give the money back to Bob never", False, False),
        ("Give the money back to Bob and Cem Day", True, False),
        ("Give the money back to Bob 4711", True, False),
        ("What is the weather like in Rome?", False, False),
    ],
)
def test_where_people_write_as_they_like_only_a_change_asks_for_known_words(text: str, look: bool, change: bool):
    broad = desk(*FREELY)
    assert [first(broad, text).acts, second(broad, text).acts] == [look, change]
    if not change:
        assert second(broad, text).code == "unfamiliar"


def test_a_word_is_known_from_a_request_that_went_another_way_to_the_change():
    learner, late = Learner([*TOOLS, reading("list", "of")], FREE), call("list", {"of": "open"}, {"n": 3})
    for i in range(46):
        text, way = (f"{BACK} soon", [late]) if i >= 40 else (BACK, [])
        found = call("find", {"name": f"Name{i}"}, {"order": f"O-{i}{i}"})
        learner.learn(
            user(text.format(f"Name{i}")),
            *way,
            found,
            call("refund", {"order": f"O-{i}{i}"}),
            words(),
            thread_id=str(i),
        )
    assert second(learner, "Give the money back to Bob soon").acts


def test_a_word_of_requests_that_did_not_lead_to_the_change_stays_new():
    broad = desk(*FREELY)
    for i in range(40, 44):
        found = call("find", {"name": f"Name{i}"}, {"order": f"O-{i}{i}"})
        broad.learn(user(f"Give the money back to Name{i} presently"), found, words(), thread_id=str(i))
    options = second(broad, "Give the money back to Bob presently").options
    assert [each.refused.code for each in options if each.tool == "refund"] == ["unfamiliar"]


@pytest.mark.parametrize(
    ("text", "look"),
    [
        ("Don't give the money back to {} just now", False),
        ("Give the money back to {}, no, forget it", False),
        ("Give the money back to {} later", False),
        ("Bitte {} nicht the money back", False),
        ("不 give the money back to {}", False),
        ("Give the money back to {} presently", True),
    ],
)
def test_a_request_that_negates_or_postpones_goes_to_the_model_also_before_a_look_up(text: str, look: bool):
    broad = desk(*FREELY)
    assert first(broad, text.format("Bob")).acts is look
    for i in range(3):
        made = call("find", {"name": f"Other{i}"}, {"order": f"O-{i}"})
        broad.learn(user(text.format(f"Other{i}")), made, words(), thread_id=f"other{i}")
    assert "denied" not in codes_of(broad, text.format("Bob")), "the cases know better than the list"


def test_a_negated_look_up_is_refused_below_the_bar_of_confidence_too():
    """A look-up before the model may have a confidence below the bar: behind it, "later" was not compared."""
    broad = desk(*FREELY, policy=FREE.with_(min_precision=0.9999))
    assert codes_of(broad, "Give the money back to Bob now") == {"low_confidence"}
    assert codes_of(broad, "Give the money back to Bob later") == {"denied"}


def codes_of(learner: Learner, text: str) -> set[str]:
    """The reasons why the look-up of Bob is not proposed."""
    options = first(learner, text).options
    return {each.refused.code if each.refused else "" for each in options if each.args == {"name": "Bob"}}


def test_a_word_of_requests_without_the_look_up_alone_speaks_against_it():
    broad = desk(*FREELY)
    text = "Give the money back to {} maybe"
    assert first(broad, text.format("Bob")).acts
    for i, (acts, name) in enumerate([(True, "Ann"), (False, "Dora")]):  # one of forty-one may be chance
        broad.learn(user(text.format(name)), words("Shall I?"), thread_id=f"asked{i}")
        assert first(broad, text.format("Bob")).acts is acts
    assert first(broad, text.format("Bob")).code == "denied"
    made = call("find", {"name": "Cem"}, {"order": "O-1"})
    broad.learn(user(text.format("Cem")), made, words(), thread_id="looked")
    assert first(broad, text.format("Bob")).acts, "it was seen with the look-up"


def test_a_call_of_the_memory_makes_no_request_familiar():
    learner = desk(BACK)
    text = "Give the money back to Bob in a month"
    assert not first(learner, text).acts
    learner.learn(user(text), shortcut("find", {"name": "Bob"}, {"order": "O-1"}), words(), thread_id="made")
    assert first(learner, text).code == "unfamiliar"


def test_names_that_were_left_over_before_may_be_left_over_again():
    both = desk("Give the money back to {} and tell Cem Day", "Give {} the money back and tell Cem Day")
    assert second(both, "Give the money back to Bob and tell Ann Lee").acts
    assert not second(both, "Give the money back to Bob and tell Ann Mae Lee").acts


def test_a_look_up_of_a_known_kind_of_request_is_made_on_a_new_path():
    learner = Learner([reading("find", "name"), reading("list", "of")], FREE)
    for i in range(40):
        listed = [call("list", {"of": "open"}, {"n": 3}), call("find", {"name": f"Name{i}"}, {"id": i}), words()]
        learner.learn(user(f"Look Name{i} up"), *listed, thread_id=str(i))
    wanders = [call("list", {"of": each}, {"n": 3}) for each in ("lost", "closed", "open")]

    decision = learner.decide(user("Look Bob up"), *wanders)
    [find] = [each for each in decision.options if each.tool == "find" and each.args == {"name": "Bob"}]
    assert find.new_words == 0


# --- by hand ---


def spread(*values: float) -> Familiar:
    graph = ToolGraph()
    record = graph.register(Familiar)
    graph.apply(None, [RequestCompared(i, "find", value) for i, value in enumerate(values)])
    return record


@pytest.mark.parametrize(
    ("values", "new", "of_tool", "of_all"),
    [
        ((*[0.1] * 10, *[0.4] * 9), 0.1, 26.6 / 27, 19 / 20),
        ((*[0.1] * 10, *[0.4] * 9), 0.2, 12.6 / 27, 9 / 20),
        ((*[0.1] * 10, *[0.4] * 9), 0.41, 0.0, 0.0),
        ((), 0.0, 1.0, 1.0),
        ((0.0,) * 40, None, 0.0, 0.0),
        ((1.0,) * 40, 1.0, 0.0, 0.0),
        ((0.5,) * (novelty.LEAST_WORDINGS - 1), 0.1, 0.0, 0.0),
        ((0.5,) * novelty.LEAST_WORDINGS, 0.1, 17 / 18, 8 / 9),
    ],
)
def test_the_share_of_known_requests_with_as_many_new_words(
    values: tuple[float, ...], new: Any, of_tool: float, of_all: float
):
    record = spread(*values)
    assert record.share("find", new) == pytest.approx(of_tool)
    assert record.share("other", new) == pytest.approx(of_all), "a tool without a record is compared with all"
    assert bool(record.refuse(Option("find", (), 0.9, new_words=new), Mock())) is (of_tool <= novelty.LEVEL)


def test_only_right_predictions_widen_the_spread():
    learner = desk(BACK, runs=20)
    record = learner.graph.register(Familiar)
    before = len(record.spread["find"])
    learner.learn(user("Give the car back to Bob"), call("find", {"name": "somebody else"}), words(), thread_id="w")
    assert len(record.spread["find"]) == before

    learner.learn(user("Give the money back to Bob"), call("find", {"name": "Bob"}), words(), thread_id="v")
    assert len(record.spread["find"]) == before + 1


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Open it 2 times, Ann", {"open", "it", "times"}),
        ("Open it for O-17 now", {"open", "it", "for", "o", "now"}),
        ("Doesn’t it open?", {"doesn", "t", "it", "open", "?"}),
        ("open the file?", {"open", "the", "?"}),
        ("please do NOT open it for Ann", {"please", "do", "not", "open", "it", "for"}),
        ("2", {"2"}),
    ],
)
def test_the_wording_of_a_request(text: str, left: set[str]):
    assert novelty.wording(text, ["File"]) == left
