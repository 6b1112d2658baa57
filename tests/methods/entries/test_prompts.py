# ruff: noqa: E501 - golden texts stand as the model reads them
"""Whole recall prompts of a small office, as the model reads them: golden texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import histories as h
import pytest

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.entries.critique import Critique
from langgraph_toolmem.entries.steps import Recall
from langgraph_toolmem.turn import hints
from langgraph_toolmem.turn.hints import FRAME
from langgraph_toolmem.turn.step import Call

READS = ["find_customer", "find_order"]
CUSTOMERS = {"Ann Lee": "c-11", "Bob Roy": "c-12", "Cleo Fox": "c-13", "Dan May": "c-14"}


def looked_up(name: str, order: str) -> list[object]:
    found = {"order": order, "customer_id": CUSTOMERS[name], "state": "sent"}
    ask = f"Where is order {order} of {name}?"
    return h.history(h.user(ask), h.call("find_order", {"order": order}, found), h.words("It was sent."))


def refunded(name: str, order: str, *, checked: bool = True) -> list[object]:
    pay = h.call("refund", {"order": order, "customer_id": CUSTOMERS[name], "amount": 40.5}, "done")
    look = h.call("find_order", {"order": order}, {"amount": 40.5})
    ask = f"Please refund order {order} of {name}, it arrived broken"
    return h.history(h.user(ask), *([look] if checked else []), pay, h.words("Refunded."))


def closed(name: str) -> list[object]:
    look = h.call("find_customer", {"name": name}, {"customer_id": CUSTOMERS[name]})
    close = h.call("close_account", {"customer_id": CUSTOMERS[name], "notify": True}, "closed")
    return h.history(h.user(f"Close the account of {name}"), look, close, h.words("It is closed."))


def charged(name: str) -> list[object]:
    look = h.call("find_customer", {"name": name}, {"customer_id": CUSTOMERS[name]})
    charge = h.call("charge_card", {"customer_id": CUSTOMERS[name], "amount": 12}, "charged")
    return h.history(h.user(f"Charge the card of the account of {name}"), look, charge, h.words("Charged."))


@pytest.fixture(scope="module")
def memory() -> Iterator[ToolMemory]:
    tools = [h.schema(name, "x") for name in (*READS, "refund", "close_account", "charge_card")]
    blind = Critique(went_wrong="The order was never looked up.", call=1, instead="Call find_order first.")
    early = Critique(went_wrong="The account was closed too early.", call=2, instead="Ask for the date first.")
    critic = Entries(critic=lambda entry, similar: blind if "refund" in entry.query else early)
    with ToolMemory.ephemeral(tools=tools, methods=[critic], reads=READS) as made:
        for number, name in enumerate(CUSTOMERS):
            made.finish(looked_up(name, f"A-{40 + number}"), thread_id=f"look-{number}")
            made.finish(charged(name), thread_id=f"charge-{number}")
        made.finish(refunded("Ann Lee", "A-40"), thread_id="refund-1", success=True)
        made.finish(refunded("Bob Roy", "A-41", checked=False), thread_id="refund-2", success=False)
        made.finish(refunded("Cleo Fox", "A-42"), thread_id="refund-3")
        made.finish(closed("Bob Roy"), thread_id="close-1", success=False, comment="I wanted it kept until May")
        made.finish(closed("Cleo Fox"), thread_id="close-2")
        assert made.flush()
        yield made


def prompt(memory: ToolMemory, request: str, *, budget: int | None = None, later: bool = False) -> str:
    """All that the model is shown, under the frame of `turn.hints`."""
    step, messages = Recall(memory.entries), [h.user(request)]
    if later:
        messages = h.history(messages, h.call("find_customer", {"name": "Dan May"}, "c-14"))
    call = Call(messages, "now", None, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hints, "AT_FIRST", budget or hints.AT_FIRST)
        text = hints.composed([step.render(call, step.compute(call))], messages)
    assert text.startswith(FRAME) or not text
    return text.removeprefix(FRAME).strip()


GOLDEN = {
    "a look-up": (
        "Where is order A-77 of Eve Kim?",
        {},
        """\
Past runs with similar requests:
- "Where is order A-43 of Dan May?" (not judged; 4 runs alike). Calls: find_order(order="A-43")""",
    ),
    "a refund": (
        "Please refund order A-99 of Eve Kim, it arrived broken",
        {},
        """\
Past runs with similar requests:
- "Please refund order A-40 of Ann Lee, it arrived broken" (went well). Calls: find_order(order="A-40"); refund(order=…, customer_id=…, amount=…)
- "Please refund order A-41 of Bob Roy, it arrived broken" (went wrong; critique: "What went wrong: The order was never looked up. Where: call 1, refund. Instead: Call find_order first."). Calls: refund(order=…, customer_id=…, amount=…)
- "Please refund order A-42 of Cleo Fox, it arrived broken" (not judged). Calls: find_order(order="A-42"); refund(order=…, customer_id=…, amount=…)""",
    ),
    "closing an account": (
        "Close the account of Dan May",
        {},
        """\
Past runs with similar requests:
- "Close the account of Bob Roy" (went wrong; critique: "What went wrong: The account was closed too early. Where: call 2, close_account. Instead: Ask for the date first."). Calls: find_customer(name="Bob Roy"); close_account(customer_id=…, notify=…)
- "Close the account of Cleo Fox" (not judged). Calls: find_customer(name="Cleo Fox"); close_account(customer_id=…, notify=…)""",
    ),
    "another kind of request: what changes something is not shown": (
        "Where is the account of Eve Kim?",
        {},
        """\
Past runs with similar requests:
- "Close the account of Bob Roy" (went wrong; critique: "What went wrong: The account was closed too early. Where: call 2, close_account. Instead: Ask for the date first."). Calls: find_customer(name="Bob Roy"); 1 that may change something
- "Close the account of Cleo Fox" (not judged). Calls: find_customer(name="Cleo Fox"); 1 that may change something""",
    ),
    "a later model call of the request": (
        "Please refund order A-99 of Eve Kim, it arrived broken",
        {'later': True},
        """\
Past runs with similar requests:
- "Please refund order A-40 of Ann Lee, it arrived broken" (went well). Calls: find_order(…); refund(…)
- "Please refund order A-41 of Bob Roy, it arrived broken" (went wrong; critique: "Instead: Call find_order first."). Calls: refund(…)""",
    ),
    "little room": (
        "Please refund order A-99 of Eve Kim, it arrived broken",
        {'budget': 120},
        """\
Past runs with similar requests:
- "Please refund order A-40 of Ann Lee, it arrived broken" (went well). Calls: find_order(order="A-40"); refund(order=…, customer_id=…, amount=…)""",
    ),
    "nothing alike": (
        "How is the weather in Oslo?",
        {},
        """\
""",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "how", "text"), GOLDEN.values(), ids=GOLDEN)
def test_what_the_model_reads(memory: ToolMemory, request_: str, how: dict[str, Any], text: str) -> None:
    assert prompt(memory, request_, **how) == text


def test_no_value_of_a_call_that_changes_something_is_in_a_prompt(memory: ToolMemory) -> None:
    for request_, how, _ in GOLDEN.values():
        shown = prompt(memory, request_, **how)
        assert not [value for value in (*CUSTOMERS.values(), "40.5", "True") if value in shown]
        assert shown.count("(") == shown.count(")")
        assert shown.count('"') % 2 == 0
