"""A value that nothing in a run shows is never in its calls, from whatever source it would come."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from histories import Learner, call, history, reading, user, words

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory
from langgraph_toolmem.base.text import digest

FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)
PAPER = InertiaPolicy.paper(max_share=None, threshold=-1.0, window=1)
SECRET = "4719"
LONG = "please send the weekly summary of all open orders and invoices now " * 8

Way = tuple[str, Any, str]
"""What the request says, what is sent, and what another user says."""
WAYS: dict[str, Way] = {
    "constant": ("Send the usual mail", f"the code is {SECRET}", "Send the usual mail"),
    "number": ("Send the usual mail", int(SECRET), "Send the usual mail"),
    "nearest request": ("Send Bob the mail", f"Bob, the code is {SECRET}", "Send Eve the mail"),
    "template": ("Send the mail on Lisbon", f"Lisbon with pin {SECRET}", "Send the mail on Madrid"),
    "quoted template": ('Send "Lisbon" now', f"Lisbon {SECRET}", 'Send "Madrid" now'),
    "format of a date": ("Mail about November 21 ok", f"2024-11-21 at door {SECRET}", "Mail about December 3 ok"),
    "list": ("Send the usual mail", [f"code {SECRET}"], "Send the usual mail"),
    "item of a list": ("Send the mail on Lisbon", [f"Lisbon {SECRET}"], "Send the mail on Madrid"),
    "dict": ("Send the usual mail", {"code": SECRET}, "Send the usual mail"),
    "key of a dict": ("Send the usual mail", {SECRET: "yes"}, "Send the usual mail"),
    "own words around": ("Send the mail to Bob", f"Bob: {SECRET}: Bob", "Send the mail to Bob"),
    "end of a long value": (LONG, LONG + SECRET, LONG + "thanks"),
}
KINDS = {int: ":integer", list: ":array", dict: ":object"}


def after_look(text: str) -> list[Any]:
    return history(user(text), call("look", {}, {"seen": "yes"}))


def taught(way: Way, whose: list[str | None], times: int = 4, constants: Iterable[str] = ()) -> Learner:
    """Each of these users sends the same `times` times, once at the begin and once after another call."""
    text, value, _ = way
    learner = Learner(
        [reading("send", "body" + KINDS.get(type(value), "")), reading("look")], FREE, constants=constants
    )
    for i in range(times):
        for who in whose:
            sends = [*call("send", {"body": value}), words()]
            owner = digest("user", who) if who else None
            learner.learn(user(text), sends, thread_id=f"{who}{i}", user=owner)
            learner.learn(after_look(text), sends, thread_id=f"{who}{i}-later", user=owner)
    return learner


def offered(learner: Learner, way: Way, who: str | None) -> str:
    """All that is told of the decisions at both places, under both policies, in another's words and in the same."""
    seen = ""
    for policy in (FREE.with_(min_precision=0.0), PAPER):
        learner.policy = policy
        for text in (way[0], way[2]):
            for messages in (history(user(text)), after_look(text)):
                decision = learner.decide(messages, user=digest("user", who) if who else None, thought="t")
                event = decision.to_event()
                seen += repr([decision.proposal, decision.options, decision.reason, event])
    return seen


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("whose", [["A"], ["A", "B", "C"], [None]])
def test_what_others_sent_is_never_used(way: Way, whose: list[str | None]) -> None:
    learner = taught(way, whose)
    for who in ("D", "A", None):
        assert SECRET not in offered(learner, way, who)


@pytest.mark.parametrize("way", [WAYS["constant"], WAYS["number"], WAYS["dict"]])
def test_a_declared_constant_needs_no_source(way: Way) -> None:
    assert SECRET in offered(taught(way, ["A", "B"], constants={"send.body"}), way, "D")


def test_choices_in_the_schema_of_another_users_tool_are_not_his(tmp_path: Path) -> None:
    """A tool that is made for each user may name the user's own values in its schema, and the folder keeps that."""

    def send(*choices: str) -> dict[str, Any]:
        tool = reading("send", "body")
        tool["parameters"]["properties"]["body"] |= {"enum": list(choices), "default": choices[0]}
        return tool

    feed = history(user("Send the usual mail"))
    with ToolMemory(tmp_path, tools=[send(SECRET, "hello")], methods=[Inertia(FREE)]) as memory:
        for i in range(20):
            run = history(feed, call("send", {"body": SECRET}), words())
            memory.finish(run, thread_id=f"a{i}", user_id="A")
    with ToolMemory(tmp_path, methods=[Inertia(FREE)]) as memory:
        decision = memory.inertia.explain(feed, user_id="B")
        assert SECRET not in repr(decision)
        mine = memory.inertia.explain(feed, user_id="A")
        assert SECRET not in repr(mine), "nothing in this run shows it"
