"""Words of a request that select a value: which account, which card, whose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from histories import Learner, Message, call, reading, user, words

from langgraph_toolmem import InertiaPolicy
from langgraph_toolmem.inertia.context import next_lookup

TOOLS = [reading("list_accounts", "customer"), reading("get_balance", "account_id")]
FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)
ENDINGS = ("now", "please", "today", "quickly", "kindly", "again", "soon", "just", "really", "finally", "thanks")
KINDS = ("checking", "savings", "business", "joint")
PLAIN, OF_HUSBAND = "what is on my account of C{}", "what is on my husband's account of C{}"


def accounts(number: int) -> list[dict[str, str]]:
    """The accounts of a customer."""
    return [{"id": f"A-{number}{row}", "kind": kind} for row, kind in enumerate(KINDS)]


def listed(number: int) -> list[Message]:
    return call("list_accounts", {"customer": f"C{number}"}, {"accounts": accounts(number)})


def balance(number: int, row: int) -> list[Message]:
    return call("get_balance", {"account_id": f"A-{number}{row}"}, {"amount": 10 * number + row})


def asked(wording: str, number: int) -> Message:
    """A request; people end it as they like."""
    return user(f"{wording.format(number)} {ENDINGS[number % len(ENDINGS)]}")


def bank(others: int = 0, wording: Callable[[int], str] = lambda number: PLAIN) -> Learner:
    """A desk after 60 requests about the first account, a few of them (`others`) about another one."""
    learner = Learner(TOOLS, FREE)
    for number in range(60):
        is_other = others > 0 and number % (60 // others) == 0
        text, row = (OF_HUSBAND, 3) if is_other else (wording(number), 0)
        learner.learn(asked(text, number), listed(number), balance(number, row), words(), thread_id=str(number))
    return learner


def decision(learner: Learner, wording: str, *made: Sequence[Message]) -> Any:
    return learner.decide(asked(wording, 90), listed(90), *made)


def test_a_request_that_names_another_row_goes_to_the_model():
    learner = bank()
    assert decision(learner, PLAIN).acts
    for word in ("savings", "business", "saving"):
        refused = decision(learner, f"what is on my {word} account of C{{}}")
        assert (refused.acts, refused.code) == (False, "denied"), word
        assert next_lookup(refused.predicted, lambda tool, args: True) is None, "nor before the model"
    assert decision(learner, "what is on my checking account of C{}").acts, "the row of the value is named"
    assert decision(learner, "what is on my checking and savings account of C{}").code != "denied", "both are named"


def test_a_named_row_that_was_looked_up_for_the_request_does_not_count():
    learner = Learner(TOOLS, FREE)
    for number in range(60):
        both = (balance(number, 0), balance(number, 1))
        learner.learn(asked(PLAIN, number), listed(number), *both, words(), thread_id=str(number))
    assert decision(learner, "what is on my checking account of C{}", balance(90, 0)).code != "denied"
    assert decision(learner, "what is on my joint account of C{}", balance(90, 0)).code == "denied"


def test_a_new_word_between_two_neighbours_goes_to_the_model_where_the_source_was_wrong():
    text = "what is on my wife's account of C{}"
    assert decision(bank(), text).code != "denied", "nothing has ever selected another account"
    learner = bank(others=4)
    assert decision(learner, PLAIN).acts
    refused = decision(learner, text)
    assert (refused.acts, refused.code) == (False, "denied")
    assert decision(learner, f"{PLAIN} presently").acts, "a new word elsewhere"


def test_a_word_of_any_request_for_the_same_row_is_known():
    def wording(number: int) -> str:
        # Not among the most similar requests: they share most words.
        return "hello, C{} here, the main one" if number % 9 == 4 else PLAIN

    learner = bank(others=4, wording=wording)
    assert decision(learner, "what is on my main account of C{}").acts
    assert decision(learner, "what is on my third account of C{}").code == "denied"


@pytest.mark.parametrize("shared", [True, False])
def test_an_inserted_word_is_no_evidence_where_all_requests_have_one(shared: bool):
    def wording(number: int) -> str:
        if shared and number % 2:
            return PLAIN
        adjective = "".join(chr(ord("a") + int(digit)) for digit in str(number)) * 3
        return f"what is on my {adjective} account of C{{}}"

    learner = bank(others=4, wording=wording)
    assert decision(learner, "what is on my beloved account of C{}").code != "denied"
