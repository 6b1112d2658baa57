"""The test of novelty: the wording of a request and of what it answers, without the values of calls."""

from __future__ import annotations

from typing import Any

import pytest
from histories import Learner, call, reading, schema, user, words

from langgraph_toolmem import InertiaPolicy
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia import novelty
from langgraph_toolmem.inertia.novelty import NoveltyRecord, RequestCompared, Unlike

TOOLS = [reading("find", "name"), schema("refund", "order")]
FREE = InertiaPolicy(may_write={"refund"}).with_(max_wrong_per_100=None, audit_rate=0.0)
FREELY = [
    f"Give the money back to {{}} {word}"
    for word in ("now", "please", "today", "quickly", "kindly", "again", "soon", "just", "really", "finally", "thanks")
]
WORDED = ["Give the money back to {}", "Please give {} the money back", "Money back for {} please", "Refund {} please"]


def desk(wordings: list[str], runs: int = 40) -> Learner:
    learner = Learner(TOOLS, FREE)
    for i in range(runs):
        name = f"Name{i}"
        learner.learn(
            user(wordings[i % len(wordings)].format(name)),
            call("find", {"name": name}, {"order": f"O-{i}{i}"}),
            call("refund", {"order": f"O-{i}{i}"}),
            words(),
            thread_id=str(i),
        )
    return learner


@pytest.fixture(scope="module")
def strict() -> Learner:
    return desk(WORDED[:1])


def first(learner: Learner, text: str) -> Any:
    return learner.decide(user(text))


def second(learner: Learner, text: str) -> Any:
    return learner.decide(user(text), call("find", {"name": "Bob"}, {"order": "O-9999"}))


@pytest.mark.parametrize("decide", [first, second])
def test_the_same_wording_with_other_values_acts(strict: Learner, decide: Any):
    assert decide(strict, "Give the money back to Bob").acts


@pytest.mark.parametrize(
    "text",
    [
        "Never give the money back to Bob",
        "Should we give the money back to Bob?",
        "Give the money back to Bob?",
        "Give the money back to Bob ?",
        "Give NOT the money back to Bob",
        "If possible give the money back to Bob",
        "Give the book back to Bob",
        "Gib Bob das Geld zurück",
        "Bob",
    ],
)
@pytest.mark.parametrize("decide", [first, second])
def test_an_unfamiliar_request_is_left_to_the_model(strict: Learner, decide: Any, text: str):
    decision = decide(strict, text)

    assert not decision.acts
    assert not decision.would_act


def test_the_reason_says_so(strict: Learner):
    decision = second(strict, "Give now the money back to Bob")
    assert "the request is worded unlike those that went on with refund" in decision.reason


def test_where_people_write_as_they_like_another_wording_is_let_pass(strict: Learner):
    broad = desk(FREELY)
    new = "Give the money back to Bob presently"
    assert second(broad, new).acts
    assert not second(strict, new).acts

    assert not second(broad, "Give the money back to Bob never").acts


@pytest.mark.parametrize("more", ["and Cem Day", "and 4711"])
def test_what_no_call_has_taken_up_is_left_to_the_model(more: str):
    """Where people write as they like "and" is no sign; a name or a number more than before is one."""
    broad = desk(FREELY)
    assert second(broad, "Give the money back to Bob and").acts

    decision = second(broad, f"Give the money back to Bob {more}")
    assert not decision.would_act
    assert "worded unlike" in decision.reason


def test_names_that_were_left_over_before_may_be_left_over_again():
    both = desk(["Give the money back to {} and tell Cem Day", "Give {} the money back and tell Cem Day"])
    assert second(both, "Give the money back to Bob and tell Ann Lee").acts
    assert not second(both, "Give the money back to Bob and tell Ann Mae Lee").acts


def test_nothing_is_changed_after_an_answer_that_looks_unlike_those_before():
    learner = Learner(TOOLS, FREE)
    for i in range(40):
        found = call("find", {"name": f"Name{i}"}, {"order": f"O-{i}{i}", "open": True})
        run = [user(f"Give the money back to Name{i}"), found, call("refund", {"order": f"O-{i}{i}"}), words()]
        learner.learn(*run, thread_id=str(i))

    def decided(*, is_open: bool) -> Any:
        found = call("find", {"name": "Bob"}, {"order": "O-9999", "open": is_open})
        return learner.decide(user("Give the money back to Bob"), found)

    assert decided(is_open=True).acts
    assert not decided(is_open=False).would_act
    assert "the latest answer looks unlike" in spread().refusal("find", Unlike(0.0), changes=True, looked=False)
    assert spread().refusal("find", Unlike(0.0), looked=False) == "", "a look-up changes nothing"


def test_a_question_is_known_where_questions_were_asked():
    asking = desk(["Was the money given back to {}?"])

    assert second(asking, "Was the money given back to Bob?").acts
    assert asking.graph.register(NoveltyRecord).spread["refund"][-1][1] == 0, "the mark is no part of the name"


# --- what runs ahead of the model ---


@pytest.mark.parametrize(
    ("message", "familiar"),
    [
        ("Give the money back to Bob", True),
        ("Never give the money back to Bob", False),
        ("Please DON’T give the money back to Bob", False),
        ("Hello! Please do not give the money back to Bob, thanks", False),
        ("Give the money back to Bob unless it is gone", False),
        ("I could not come, so give the money back to Bob", True),
        ("It is not urgent. Give the money back to Bob", True),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], False),
        ("", False),
    ],
)
def test_no_look_up_runs_ahead_of_what_is_not_to_be_done(strict: Learner, message: Any, familiar: bool):
    foreseen = first(strict, message).predicted
    finds = [each for each in foreseen if each.tool == "find"]

    assert {each.familiar for each in finds} <= {familiar}
    assert finds if isinstance(message, str) and "Bob" in message else True


def test_what_a_tool_is_called_after_is_turned_round_too():
    learner = Learner([reading("fetch_payment", "order")], FREE)
    for i in range(20):
        paid = call("fetch_payment", {"order": f"O-{100 + i}"}, {"paid": True})
        learner.learn(user(f"I am O-{100 + i}. Capture the payment"), *paid, words(), thread_id=str(i))

    def familiar(text: str) -> set[bool]:
        return {each.familiar for each in learner.decide(user(text)).predicted if each.tool == "fetch_payment"}

    assert familiar("I am O-999. Capture the payment") == {True}
    assert familiar("I am O-999. Please do not capture the payment") == {False}
    assert familiar("I am O-999. I have not got a letter. Capture the payment") == {True}
    assert familiar("Please do not capture the payment of O-999") == {False}


# --- without a list of words ---

SPOKEN = {
    "Polish": (
        ["Anuluj zamówienie {}", "Proszę anulować zamówienie {}"],
        ["Nie anuluj zamówienia {}", "Anuluj {} jutro"],
    ),
    "Russian": (["Отмените заказ {}", "Прошу отменить заказ {}"], ["Не отмените заказ {}", "Отмените заказ {} завтра"]),
    "Turkish": (["Lütfen {} iptal et", "Siparişi iptal et {}"], ["Lütfen {} iptal etme", "Siparişi yarın iptal et {}"]),
    "Chinese": (["请取消订单 {}", "帮我取消订单 {}"], ["请不要取消订单 {}", "请勿取消订单 {}", "请明天取消订单 {}"]),
    "Japanese": (
        ["注文 {} をキャンセルしてください", "注文 {} を取り消してください"],
        [
            "注文 {} をキャンセルしないでください",
            "注文 {} を取り消さないでください",
            "明日注文 {} をキャンセルしてください",
        ],
    ),
    "Arabic": (["ألغ الطلب {}", "من فضلك ألغ الطلب {}"], ["لا تلغ الطلب {}", "لا ألغ الطلب {}", "ألغ الطلب {} غدا"]),
    "Swedish": (["Avbryt beställning {}", "Vänligen avbryt beställning {}"], ["Avbryt inte beställning {}"]),
    "Finnish": (
        ["Peruuta tilaus {}", "Peruuta tilaus {} kiitos"],
        ["Älä peruuta tilausta {}", "Älä peruuta tilaus {}"],
    ),
}


@pytest.mark.parametrize("language", SPOKEN)
def test_a_request_turned_round_is_unfamiliar_in_any_language(language: str):
    known, turned = SPOKEN[language]
    learner = Learner([schema("find", "order"), schema("cancel", "order")], FREE.with_(may_write={"cancel"}))
    learner.policy = learner.policy.with_(allow_destructive={"cancel"})

    def asked(text: str, order: str) -> list[Any]:
        return [user(text.format(order)), *call("find", {"order": order}, {"order": order, "state": "open"})]

    for i in range(40):
        run = [*asked(known[i % 2], f"O-{100 + i}"), *call("cancel", {"order": f"O-{100 + i}"}), words()]
        learner.learn(*run, thread_id=str(i))
    for text in known:
        assert learner.decide(*asked(text, "O-999")).acts
    for text in turned:
        assert learner.decide(*asked(text, "O-999")).proposal is None, text


# --- by hand ---


def spread(*values: float) -> NoveltyRecord:
    graph = ToolGraph()
    record = graph.register(NoveltyRecord)
    graph.apply(None, [RequestCompared(i, "find", Unlike(value)) for i, value in enumerate(values)])
    return record


def test_the_share_of_known_requests_that_were_as_strange():
    record = spread(*[0.1] * 10, *[0.4] * 9)

    assert record.share("find", Unlike(0.1)) == pytest.approx(19 / 20)
    assert record.share("find", Unlike(0.2)) == pytest.approx(9 / 20)
    assert record.share("find", Unlike(0.41)) == 0.0
    assert record.share("other", Unlike(0.2)) == pytest.approx(9 / 20), "a tool of few is asked for all"
    assert spread(0.1, 0.1).share("find", Unlike(0.1)) == 0.0, "too few of all"


def test_one_in_ten_is_the_limit():
    assert "worded unlike" in spread(*[0.1] * 8, 0.5).refusal("find", Unlike(0.5))
    assert "worded unlike" in spread(*[0.1] * 17, 0.5, 0.5).refusal("find", Unlike(0.5))
    assert spread(*[0.1] * 16, 0.5, 0.5).refusal("find", Unlike(0.5)) == ""
    assert spread(*[0.1] * 30, 0.5).refusal("find", Unlike(0.1)) == ""


def test_where_something_may_be_changed_it_is_one_in_five():
    assert "worded unlike" in spread(*[0.1] * 18, 0.5).refusal("find", Unlike(0.5), changes=True)
    assert "worded unlike" in spread(*[0.1] * 16, *[0.5] * 3).refusal("find", Unlike(0.5), changes=True)
    assert spread(*[0.1] * 15, *[0.5] * 4, 0.6).refusal("find", Unlike(0.5), changes=True) == ""


def test_a_request_that_is_not_strange_is_always_known():
    assert spread().refusal("find", Unlike(0.0)) == ""
    assert spread().share("find", Unlike(0.0)) == 1.0


def test_without_a_past_request_that_went_that_way_all_are_strange():
    record = spread(*[1.0] * 40)

    assert record.share("find", None) == 0.0
    assert record.refusal("find", None) == "no request before that went on with find went the same way so far"


def test_one_turned_request_does_not_open_the_door_for_others():
    """The model did the same for one who said "never": that says nothing of one who asks whether he should."""
    learner = Learner([reading("find", "name")], FREE)

    def learn(text: str, name: str, thread: str) -> None:
        learner.learn(user(text), call("find", {"name": name}, {"id": name}), words(), thread_id=thread)

    for i in range(40):
        learn(f"Please find Name{i} for me", f"Name{i}", str(i))
    assert first(learner, "Please find Zoe for me").acts
    for turning, name in (("Never", "Ann"), ("Unless", "Bob"), ("Without", "Cem"), ("Except", "Dan")):
        learn(f"{turning} please find {name} for me", name, turning)

    decision = first(learner, "Should you please find Zoe for me")
    assert not decision.acts
    assert "worded unlike" in decision.reason
    assert spread(*[1.0] * 40).share("find", Unlike(1.0)) == 0.0


def test_a_few_right_predictions_are_not_enough_to_know_how_unlike_requests_are():
    assert "worded unlike" in spread(*[0.5] * (novelty.ENOUGH - 1)).refusal("find", Unlike(0.1))
    assert spread(*[0.5] * novelty.ENOUGH).refusal("find", Unlike(0.1)) == ""


def test_the_latest_are_kept_in_any_order():
    there, back = ToolGraph(), ToolGraph()
    records = [RequestCompared(i, "find", Unlike(i / 1000)) for i in range(novelty.KEPT + 9)]
    there.register(NoveltyRecord)
    back.register(NoveltyRecord)
    for record, reverse in zip(records, reversed(records), strict=True):
        there.apply(None, [record])
        back.apply(None, [reverse])

    kept = there.register(NoveltyRecord).spread["find"]
    assert kept == back.register(NoveltyRecord).spread["find"]
    assert [turn for turn, *_ in kept] == list(range(9, novelty.KEPT + 9))


def test_only_right_predictions_widen_the_spread():
    learner = desk(WORDED[:1], runs=20)
    record = learner.graph.register(NoveltyRecord)
    before = len(record.spread["find"])
    learner.learn(user("Give the car back to Bob"), call("find", {"name": "somebody else"}), words(), thread_id="w")
    assert len(record.spread["find"]) == before

    learner.learn(user("Give the money back to Bob"), call("find", {"name": "Bob"}), words(), thread_id="v")
    assert len(record.spread["find"]) == before + 1


# --- wording ---


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Open it 2 times, Ann", {"open", "it", "times"}),
        ("Open it for O-17 now", {"open", "it", "for", "now"}),
        ("Doesn’t it open?", {"doesn't", "it", "open", "?"}),
        ("open it ?", {"open", "it", "?"}),
        ("open the file", {"open", "the"}),
        ("open file?", {"open", "?"}),
        ("please do NOT open it for Ann", {"please", "do", "not", "open", "it", "for"}),
    ],
)
def test_what_of_a_request_is_wording(text: str, left: set[str]):
    assert novelty.wording(text, [{"what": "File?"}]) == left
