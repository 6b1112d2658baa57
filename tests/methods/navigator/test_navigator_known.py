"""What the messages of a run tell: names and values for a plan."""

from __future__ import annotations

from typing import Any

import histories as h
import pytest

from langgraph_toolmem.navigator.decide.known_values import known_values


def known(*parts: Any) -> dict[str, Any]:
    return known_values(h.run_of(*parts))


def test_results_of_calls_that_went_well_are_known_by_their_fields():
    found = known(
        h.user("x"),
        h.call("find_customer", {"region": "EU"}, {"customer_id": "C-1", "since": 2019, "active": True, "note": ""}),
        h.call("get_parcel", {}, {"parcel": {"id": "P-9", "weight": 2.5}}),
    )
    assert found == {"region": "EU", "customer_id": "C-1", "since": 2019, "parcel id": "P-9", "weight": 2.5}


def test_what_says_too_little_is_named_by_its_tool_or_left_out():
    assert known(h.user("x"), h.call("find_customer", {}, {"id": "C-1"})) == {"customer id": "C-1"}
    assert known(h.user("x"), h.call("run", {}, {"id": "C-1", "value": 3})) == {}


def test_what_failed_tells_nothing_and_the_latest_value_counts():
    found = known(
        h.user("x"),
        h.call("find_order", {"zip": "1"}, h.FAILED),
        h.call("find_order", {"zip": "2"}, {"order_id": "o1"}),
        h.call("find_order", {"zip": "3"}, {"order_id": "o2"}),
        h.call("find_parcel", {"order_id": "o2"}, {"error": "none", "parcel_id": "p"}),
    )
    assert found == {"zip": "3", "order_id": "o2"}


def test_of_lists_only_a_single_element_is_known():
    orders = [{"order_id": "o1"}]
    assert known(h.user("x"), h.call("list_orders", {}, orders)) == {"order_id": "o1"}
    assert known(h.user("x"), h.call("list_orders", {}, [*orders, {"order_id": "o2"}])) == {}
    table = {"8341": {"order_id": "o1"}, "9912": {"order_id": "o2"}}
    assert known(h.user("x"), h.call("list_orders", {}, {"by_number": table})) == {}


def test_an_earlier_request_tells_nothing_of_this_one():
    earlier = [h.user("mail ann@x.org"), h.call("find_customer", {}, {"customer_id": "C-1"}), h.words()]
    assert known(*earlier, h.user("and Ben?")) == {}
    assert known(*earlier, h.user("and Ben?"), h.call("find_customer", {}, {"customer_id": "C-2"})) == {
        "customer_id": "C-2"
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Write to ann.b@mail.x.org.", {"email": "ann.b@mail.x.org"}),
        ("Read https://x.org/a?b=1, please", {"url": "https://x.org/a?b=1"}),
        ("by 2024-05-06", {"date": "2024-05-06"}),
        ("until 6 May 2024", {"date": "2024-05-06"}),
        ("by 5/6/2024, or in May", {}),
        ("pay 1.234,56 € or so", {"amount": "1.234,56"}),
        ("about 50k dollars", {}),
        ("pay $1,200.50 now", {"amount": "1,200.50"}),
        ("pay 34 EUR", {"amount": "34"}),
        ("pay 34 EUR, I said 34 EUR", {"amount": "34"}),
        ("from 2024-05-06 to 2024-05-07", {}),
        ("ann@x.org or ben@x.org", {}),
        ("34 apples, version 2.3.4, order 2024-05-067, a@b", {}),
        ("", {}),
    ],
)
def test_what_users_say_plainly_is_known(text: str, found: dict[str, Any]):
    assert known(h.user(text)) == found


def test_there_is_an_end_to_it():
    many = {f"field_{chr(97 + i)}{chr(97 + j)}": i for i in range(20) for j in range(4)}
    run = h.run_of(h.user("x"), h.call("read", {}, many), h.call("find", {}, {"customer_id": "C"}))
    assert len(known_values(run)) == 64
    assert known_values(run, most=1) == {"customer_id": "C"}
    again = h.run_of(h.user("x"), h.call("read", {}, many), h.call("read", {}, {"field_aa": 99}))
    assert known_values(again, most=2) == {"field_td": 19, "field_aa": 99}
    assert known_values(run, most=0) == {}
    assert known_values(h.run_of()) == {}
