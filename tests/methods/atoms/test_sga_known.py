"""What a run knows: typed slots from messages, arguments and answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from histories import call, known_of, run_of, schema, user

from langgraph_toolmem.atoms.known import MAX_PER_SLOT, MAX_SLOTS, Known
from langgraph_toolmem.atoms.slots import Slots, alternatives, satisfied
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.runs.tools import read_tools

TOOLS: list[dict[str, Any]] = [
    schema("find_user", "email"),
    schema("get_user", "user_id"),
    schema("get_order", "order_id"),
    schema("cancel_order", "order_id reason"),
    schema("send_mail", "recipient body"),
]
SPECS = read_tools(TOOLS)


def known(*parts: Any) -> Known:
    return known_of(run_of(*parts), SPECS)


def test_what_the_user_says_is_known_by_its_looks_and_its_words():
    found = known(user("Cancel order #W17X and mail ann@x.org"))
    assert found.to_plain() == {"ID": ["#W17X"], "ORDER_ID": ["#W17X"], "EMAIL": ["ann@x.org"]}
    assert found.types == {"ORDER_ID", "EMAIL"}  # nothing is left that is only an ID


def test_an_id_of_which_nothing_more_is_known_stays_one():
    assert known(user("Cancel #W17X")).types == {"ID"}


def test_answers_are_known_by_their_keys_and_their_looks():
    found = known(
        user("Who is it?"),
        call("find_user", {"email": "ann@x.org"}, {"user": {"id": "u_1", "contact": "a.lee@x.org", "active": True}}),
    )
    assert found.latest("USER_ID") == "u_1"
    assert found.values("EMAIL") == ["ann@x.org", "a.lee@x.org"]
    assert True not in [value for values in found.to_plain().values() for value in values]


def test_lists_and_tables_give_the_values_of_their_rows():
    found = known(
        user("?"),
        call("get_user", {"user_id": "u_1"}, {"orders": [{"order_id": "#W1A"}, {"order_id": "#W2B"}]}),
        call("get_order", {"order_id": "#W1A"}, {"items": {"1001": {"price": 5}, "1002": {"price": 6}}}),
    )
    assert found.values("ORDER_ID") == ["#W2B", "#W1A"]  # the one used last is the latest
    assert found.values("ITEM_ID") == ["1001", "1002"]
    assert not [label for label in found.to_plain() if "1001" in label]


def test_texts_that_tools_answer_with_tell_what_looks_sure():
    found = known(user("?"), call("find_user", {"email": "x"}, "Found ann@x.org, id user_77, on a Monday"))
    assert {"EMAIL", "ID"} <= found.types
    assert found.latest("ID") == "user_77"


def test_a_value_seen_again_becomes_the_latest():
    found = Known({"CITY": ["Rome", "Oslo"]})
    found.add("CITY", "Rome")
    assert found.values("CITY") == ["Oslo", "Rome"]
    assert found.latest("CITY") == "Rome"
    assert found.latest("DATE") is None


def test_what_is_no_value_is_passed_over():
    found = Known()
    for value in ("", None, True, {"a": 1}, [1], "x" * 500):
        found.add("THING", value)
    found.add("", "x")
    assert len(found) == 0


def test_it_is_bounded():
    found = Known()
    for number in range(3 * MAX_SLOTS):
        found.add(f"SLOT_{number}", f"value {number}")
    for number in range(3 * MAX_PER_SLOT):
        found.add("CITY", f"city {number}")
    assert len(found) == MAX_SLOTS
    assert "SLOT_0" not in found
    assert found.types_of("value 0") == ()
    assert found.values("CITY") == [f"city {number}" for number in range(2 * MAX_PER_SLOT, 3 * MAX_PER_SLOT)]


def test_the_plain_form_is_json_and_comes_back():
    found = known(user("Cancel order #W17X for 5 people"))
    again = Known.from_plain(json.loads(json.dumps(found.to_plain())))
    assert again == found
    assert again.types == found.types
    assert again.types_of("#w17x") == ("ID", "ORDER_ID")
    with pytest.raises(InputError, match="dict of types"):
        Known.from_plain(["x"])


def test_types_are_the_words_of_the_schema():
    slots = Slots(read_tools([schema("book", "payment_method_id travel_date:string zip from_city to_city")]))
    assert {path: parameter.label for path, parameter in slots.parameters("book").items()} == {
        "payment_method_id": "PAYMENT_METHOD_ID", "travel_date": "TRAVEL_DATE", "zip": "ZIPCODE",
        "from_city": "CITY", "to_city": "CITY",
    }  # fmt: skip


def test_the_looks_of_a_value_go_before_the_name_of_its_parameter():
    parameter = Slots(SPECS).parameter("send_mail", "recipient")
    assert parameter.type_of("ann@x.org") == "EMAIL"
    assert parameter.type_of("Ann") == "RECIPIENT"


@pytest.mark.parametrize(
    ("required", "types", "count"),
    [
        (["ORDER_ID", "EMAIL"], {"ORDER_ID"}, 1),
        (["ORDER_ID"], {"USER_ID"}, 0),
        (["ORDER_ID"], {"ID"}, 1),
        (["ORDER_ID"], {"ORDER"}, 1),
        (["CITY"], {"NAME"}, 1),
        (["CITY"], {"ID"}, 0),
        (["EMAIL"], {"TEXT", "NAME"}, 0),
        ([], {"ID"}, 0),
    ],
)
def test_common_types_stand_for_those_they_may_be(required: list[str], types: set[str], count: int):
    assert satisfied(required, types) == count


def test_nothing_stands_for_a_common_type():
    assert alternatives("DATE") == frozenset()
