"""A reply counts with the question that it answers: changed, negated, postponed confirmations in many languages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
from histories import Learner, call, schema, user, words

from langgraph_toolmem import InertiaPolicy

TOOLS = [schema("find_order", "order_id", annotations={"readOnlyHint": True}), schema("cancel_order", "order_id")]
WRITES = {"may_write": {"cancel_order"}, "allow_destructive": {"cancel_order"}}
POLICY = InertiaPolicy(**WRITES, audit_rate=0.0).with_(max_wrong_per_100=None)
THREADS = 40


class Language(NamedTuple):
    """How one confirms, and how not; {} is the order's number. `requests` name the write themselves."""

    first: str
    questions: Sequence[str]
    yes: Sequence[str]
    changed: Sequence[str]
    """Questions that ask for something else."""
    refused: Sequence[str]
    """Replies: no, later, on a condition."""


LANGUAGES = {
    "English": Language(
        "I have a problem with order {}",
        ["Shall I cancel order {}?", "Do you want me to cancel order {} now?"],
        ["Yes please", "Yes, go ahead"],
        [
            "Shall I keep order {} as it is and just close this chat?",
            "Shall I keep order {}?",
            "Shall I not cancel order {}?",
            "Shall I cancel the insurance of order {}?",
            "Do you want me to cancel order {} next year?",
            "Shall I cancel order {} and order O-1?",
        ],
        ["No, don't", "Yes, but next week", "Yes, if it is free", "No please", "Please wait", "Yes, keep it"],
    ),
    "German": Language(
        "Ich habe ein Problem mit Bestellung {}",
        ["Soll ich die Bestellung {} stornieren?", "Möchten Sie, dass ich Bestellung {} storniere?"],
        ["Ja bitte", "Ja, gerne"],
        [
            "Soll ich die Bestellung {} behalten?",
            "Soll ich die Bestellung {} nicht stornieren?",
            "Soll ich die Versicherung {} stornieren?",
            "Möchten Sie, dass ich Versicherung {} storniere?",
        ],
        ["Nein, bitte nicht", "Ja, aber erst nächste Woche", "Ja, falls es kostenlos ist", "Ja bitte morgen"],
    ),
    "Chinese": Language(
        "订单 {} 有问题",
        ["要取消订单{}吗？", "您想让我现在取消订单{}吗？"],
        ["好的，请取消", "是的，请继续"],
        ["要保留订单{}吗？", "要不取消订单{}吗？", "要取消保险{}吗？"],
        ["不，请不要取消", "好的，但是下周再取消", "好的，如果免费请取消", "好的，请别取消"],
    ),
    "Thai": Language(
        "มีปัญหากับคำสั่งซื้อ {}",
        ["ต้องการยกเลิกคำสั่งซื้อ{}ไหม", "ให้ฉันยกเลิกคำสั่งซื้อ{}ตอนนี้ไหม"],
        ["ใช่ ยกเลิกเลย", "ตกลง ทำเลย"],
        ["ต้องการเก็บคำสั่งซื้อ{}ไหม", "ต้องการไม่ยกเลิกคำสั่งซื้อ{}ไหม"],
        ["ไม่ อย่ายกเลิก", "ใช่ แต่ยกเลิกสัปดาห์หน้า", "ใช่ ยกเลิกถ้าฟรี"],
    ),
}


def thread(spoken: Language, order: str, question: str, reply: str) -> list[Any]:
    found = call("find_order", {"order_id": order}, {"order_id": order, "status": "open"})
    return [user(spoken.first.format(order)), *found, words(question.format(order)), user(reply)]


@cache
def trained(language: str) -> Learner:
    spoken, learner = LANGUAGES[language], Learner(TOOLS, POLICY)
    for i in range(THREADS):
        order = f"O-{1000 + 7 * i}"
        asked = thread(spoken, order, spoken.questions[i % 2], spoken.yes[i // 2 % 2])
        learner.learn(*asked, *call("cancel_order", {"order_id": order}), words("✓"), thread_id=str(i))
    return learner


def decided(language: str, question: str, reply: Any, order: str = "O-9999") -> Any:
    learner, spoken = trained(language), LANGUAGES[language]
    *before, last = thread(spoken, order, question, "")
    return learner.decide(*before, {**last, "content": reply})


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(name, text, id=f"{name}-{text}")
        for name, said in LANGUAGES.items()
        for text in getattr(said, kind)
    ]


@pytest.mark.parametrize(("language", "reply"), cases("yes"))
def test_a_known_confirmation_is_acted_on(language: str, reply: str):
    for question in LANGUAGES[language].questions:
        decision = decided(language, question, reply)
        assert decision.acts, decision.reason
        assert (decision.proposal.tool, decision.proposal.args) == ("cancel_order", {"order_id": "O-9999"})


@pytest.mark.parametrize(("language", "question"), cases("changed"))
def test_another_question_is_left_to_the_model(language: str, question: str):
    for reply in LANGUAGES[language].yes:
        assert decided(language, question, reply).proposal is None


@pytest.mark.parametrize(("language", "reply"), cases("refused"))
def test_another_reply_is_left_to_the_model(language: str, reply: str):
    for question in LANGUAGES[language].questions:
        assert decided(language, question, reply).proposal is None


# --- what else stands between a question and a write ---

NAMES = [f"{one} {two}" for one in ("Anna", "Otto", "Ida", "Cem", "Mia") for two in ("Berg", "Roth", "Klein", "Lang")]
SHALL = "Shall I cancel order {}?"


def found(order: str) -> list[Any]:
    return call("find_order", {"order_id": order}, {"order_id": order, "status": "open"})


def desk(question: str = SHALL, reply: str = "Yes please", *, late: bool = False) -> Learner:
    """One that always asks and is always answered so; it looks the order up before, or `late`: after the reply."""
    learner = Learner(TOOLS, POLICY)
    for i in range(THREADS):
        order = f"O-{1000 + 7 * i}"
        talk = [words(question.format(order, NAMES[i % len(NAMES)])), user(reply.format(order))]
        begun = [*talk, *found(order)] if late else [*found(order), *talk]
        cancelled = call("cancel_order", {"order_id": order})
        learner.learn(user(f"Problem with order {order}"), *begun, *cancelled, words("Done."), thread_id=str(i))
    return learner


@pytest.fixture(scope="module")
def usual() -> Learner:
    return desk()


def asked(learner: Learner, *talk: Any) -> Any:
    """The decision after some talk about order O-9999."""
    return learner.decide(user("Problem with order O-9999"), *found("O-9999"), *talk)


def test_the_question_counts_for_every_change_of_the_turn():
    learner = desk(late=True)

    def after(question: str) -> Any:
        talk = [words(question.format("O-9999")), user("Yes please"), *found("O-9999")]
        return learner.decide(user("Problem with order O-9999"), *talk)

    assert after(SHALL).acts
    assert after("Shall I keep order {}?").proposal is None


@pytest.mark.parametrize(
    "talk",
    [
        [words("Shall I cancel order O-1234?"), user("Yes please")],
        [words(SHALL.format("O-9999")), user("Not that one!"), user("Yes please")],
        [user("Yes please")],
        [words(SHALL.format("O-9999")), user("Wait"), words("Shall I wait?"), user("Yes please")],
        [words(SHALL.format("O-9999")), user("Yes please 3 times")],
    ],
    ids=["another number", "unanswered", "no question", "an older question", "a number more"],
)
def test_a_reply_to_something_else_is_left_to_the_model(usual: Learner, talk: list[Any]):
    assert asked(usual, words(SHALL.format("O-9999")), user("Yes please")).acts
    assert asked(usual, *talk).proposal is None


@pytest.mark.parametrize(
    ("reply", "others"),
    [
        ("👍", "👎"),
        ("1", "2"),
        ("Option 1", "Option 2"),
        ("✅", "❌"),
        ("Y", "N"),
        ("+1", "-1"),
        ("Yes {}", "Yes O-77"),
    ],
)
def test_a_reply_without_words_is_compared_as_it_is(reply: str, others: str):
    learner = desk(reply=reply)

    assert asked(learner, words(SHALL.format("O-9999")), user(reply.format("O-9999"))).acts
    assert asked(learner, words(SHALL.format("O-9999")), user(others)).proposal is None


def test_names_may_be_others_and_nouns_with_a_capital_may_not():
    question = "Soll ich die Bestellung {} von {} stornieren?"
    learner = desk(question)

    def after(said: str) -> Any:
        return asked(learner, words(said), user("Yes please"))

    assert after(question.format("O-9999", "Zoe Wolf")).acts
    for name in ("Zoe Wolf", NAMES[0]):
        assert after(question.replace("Bestellung", "Versicherung").format("O-9999", name)).proposal is None


def test_a_look_up_is_made_after_other_words_too():
    """What only reads asks for the wording of the request alone."""
    learner = desk(late=True)
    talk = [words("Shall I have another look at order O-9999?"), user("Yes please")]
    assert learner.decide(user("Problem with order O-9999"), *talk).proposal.tool == "find_order"


# --- a message without text ---

IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}


@pytest.mark.parametrize("message", [IMAGE, user(""), user(" \n")], ids=["image", "empty", "blank"])
def test_a_message_without_text_is_unfamiliar(usual: Learner, message: Any):
    whole = asked(usual, words(SHALL.format("O-9999")), message)
    assert whole.proposal is None

    begun = usual.decide(message)
    assert begun.proposal is None
    assert usual.decide(message, *found("O-9999")).proposal is None
    assert usual.decide(user("Problem with order O-9999"), message).proposal is None


def test_a_history_that_begins_with_calls_is_compared_with_none(usual: Learner):
    decision = usual.decide(*found("O-9999"))
    assert {option.new_words for option in decision.options} == {0.0}
