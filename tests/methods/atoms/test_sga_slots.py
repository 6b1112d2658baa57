"""Types of values, K (the values that a run knows), and patterns filled with them."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from histories import call, known_of, run_of, schema, user

from langgraph_toolmem.atoms import extract, slots
from langgraph_toolmem.atoms.slots import Known, Slots, filled, named
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.text.values import delexicalised, values_in

SPECS = read_tools(
    [
        schema("find_user", "email"),
        schema("get_user", "user_id"),
        schema("get_order", "order_id"),
        schema("cancel_order", "order_id reason"),
        schema("send_mail", "recipient body"),
    ]
)


def known(*parts: Any, specs: Any = SPECS) -> Known:
    return known_of(run_of(*parts), specs)


@pytest.mark.parametrize("module", [slots, extract], ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


# --- values in texts ---


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mail ann.lee@x.org.", [("EMAIL", "ann.lee@x.org")]),
        ("see https://x.org/a?b=1 now", [("URL", "https://x.org/a?b=1")]),
        ("on 2024-05-01 10:30:00 or March 3rd", [("DATE", "2024-05-01 10:30:00"), ("DATE", "March 3rd")]),
        ("at 14:30 for $20.50", [("TIME", "14:30"), ("AMOUNT", "$20.50")]),
        ("call +49 170 1234567", [("PHONE", "+49 170 1234567")]),
        ("order #W6818211 via paypal_3976765", [("ID", "#W6818211"), ("ID", "paypal_3976765")]),
        ("a 30-minute call with 50 people", [("NUMBER", "30-minute"), ("NUMBER", "50")]),
        ("rename 'old.txt' to 'new name'", [("FILE", "old.txt"), ("TEXT", "new name")]),
        ("write to Ann Lee about it", [("NAME", "Ann Lee")]),
        ("Ann and Bob came", [("NAME", "Bob")]),
        ("nia's last email, today's list", [("NAME", "nia")]),
        ("I've seen that I'm late, also Otherwise", []),
        ("Please go. Then stop", []),
        ("", []),
    ],
)
def test_the_kinds_of_values(text: str, found: list[tuple[str, str]]) -> None:
    assert [(value.kind, value.text) for value in values_in(text)] == found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Cancel W2 please", "Cancel <ID> please"),
        ("at 5pm, at 14:30", "at <TIME>, at <TIME>"),
        ("on 03.05.2024 or 2024/05/03 or 5/3/24", "on <DATE> or <DATE> or <DATE>"),
        ("on 3 May 2024, in May, since June 2023", "on <DATE>, in <DATE>, since <DATE>"),
        ("since November 2", "since <DATE>"),
        ("pay 20 euros, EUR 20, 1.234,56 € and 50k dollars", "pay <AMOUNT>, <AMOUNT>, <AMOUNT> and <AMOUNT>"),
        ("call 030/1234567", "call <PHONE>"),
        ("card 4242-4242-4242-4242", "card <ID>"),
        ("see www.x.org/foo", "see <URL>"),
        ("tell @dr_smith about it", "tell @<NAME> about it"),
        ("my password is hunter. Go on", "my password is <TEXT>. Go on"),
        ("api key: k-12x", "api key: <TEXT>"),
        ("Отмени заказ Ивана Петрова", "Отмени заказ <NAME>"),
        ("wegen Jürgen Müller", "wegen <NAME>"),
        ("McDonald wants it, to Ludwig van der Berg", "<NAME> wants it, to <NAME>"),
        ("Suche den Kunden Jürgen Müller", "Suche den <NAME>"),
        ("version two of 3 items", "version two of <NUMBER> items"),
    ],
)
def test_values_in_many_forms_are_taken_out(text: str, told: str) -> None:
    assert delexicalised(text) == told


def test_known_values_are_replaced_by_their_types_whatever_they_look_like() -> None:
    text = "Tell yuki about #W17X and Yuki's plan"
    assert delexicalised(text, {"yuki": "PERSON"}) == "Tell <PERSON> about <ID> and <PERSON>'s plan"


LABELS = {
    frozenset({"order", "id"}): "ORDER_ID",
    frozenset({"user", "id"}): "USER_ID",
    frozenset({"zipcode"}): "ZIPCODE",
    frozenset({"task"}): "TASK",
}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("cancel order #W17X", "ORDER_ID"),
        ("my user id is 'USR002'", "USER_ID"),
        ("my zip is 60642", "ZIPCODE"),
        ("For #W17X, change it", ""),
        ("a task called 'Improve it'", "TASK"),
        ("a task, and mail 'Improve it'", ""),
        ("the task 'Improve it'", "TASK"),
        ("order for ann@x.org", ""),
        ("My order is late. For #W17X", ""),
    ],
)
def test_the_words_before_a_value_say_what_it_is(text: str, label: str) -> None:
    (value,) = values_in(text)
    assert named(text, value, LABELS) == label


# --- types ---


def test_types_are_the_words_of_the_schema() -> None:
    made = Slots(read_tools([schema("book", "payment_method_id travel_date:string zip from_city to_city")]))
    paths = ("payment_method_id", "travel_date", "zip", "from_city", "to_city")
    labels = [made.parameter("book", path).label for path in paths]
    assert labels == ["PAYMENT_METHOD_ID", "TRAVEL_DATE", "ZIPCODE", "CITY", "CITY"]


# --- K ---


def test_what_the_user_says_is_known_by_its_looks_and_its_words() -> None:
    found = known(user("Cancel order #W17X and mail ann@x.org"))
    assert found.to_plain() == {"ID": ["#W17X"], "ORDER_ID": ["#W17X"], "EMAIL": ["ann@x.org"]}


def test_texts_that_tools_answer_with_tell_what_looks_sure() -> None:
    found = known(user("?"), call("find_user", {"email": "x"}, "Found ann@x.org, id user_77, on a Monday"))
    assert {"EMAIL", "ID"} <= found.types
    assert found.latest("ID") == "user_77"


def test_what_is_no_value_is_passed_over() -> None:
    found = Known()
    for value in ("", None, True, {"a": 1}, [1], "x" * 500):
        found.add("THING", value)
    found.add("", "x")
    assert found.types == frozenset()


def test_a_secret_is_kept_under_no_type() -> None:
    said, login = user("My password is 'hunter22'"), call("login", {"user_id": "U1", "password": "hunter22"})
    for found in (known(said, login), known(login, said)):
        assert "hunter22" not in str(found.to_plain())
        assert found.latest("USER_ID") == "U1"
    assert known(call("x", {"api_key": "k1", "token": "t1"})).types == frozenset()


def test_it_is_bounded_and_the_latest_stay() -> None:
    found = Known()
    for number in range(3 * Known.max_slots):
        found.add(f"SLOT_{number:03}", f"value {number}")
    for number in range(3 * Known.max_per_slot):
        found.add("CITY", f"city {number}")
    assert (len(found.types), "SLOT_000" in found, found.types_of("value 0")) == (Known.max_slots, False, [])
    assert found.values("CITY") == [
        f"city {number}" for number in range(2 * Known.max_per_slot, 3 * Known.max_per_slot)
    ]


# --- patterns ---


def test_known_values_are_put_into_a_pattern_and_other_slots_stay() -> None:
    found = Known({"ORDER_ID": ["#W1A", "#W2B"], "CITY": ["Rome"]})
    pattern = {"order": "<ORDER_ID>", "to": {"city": "<CITY>", "zip": "<ZIPCODE>"}, "ids": ["<ORDER_ID>"], "all": True}
    assert filled(pattern, found) == {
        "order": "#W2B", "to": {"city": "Rome", "zip": "<ZIPCODE>"}, "ids": ["#W2B"], "all": True,
    }  # fmt: skip
    assert filled(pattern, Known()) == pattern


@pytest.mark.parametrize(
    ("slot", "values", "value"),
    [
        ("ORDER_TOTAL", {"TOTAL": [12.5]}, 12.5),
        ("TOTAL", {"ORDER_TOTAL": [12.5]}, 12.5),
        ("ORDER_ID", {"ID": ["#W17X"]}, "#W17X"),
        ("TOTAL", {"ORDER_TOTAL": [1], "ITEM_TOTAL": [2]}, None),
        ("TOTAL", {"ORDER_TOTAL": [1, 2]}, None),
        ("TOTAL", {"NAME": ["Ann"]}, None),
        ("ORDER_ID", {"ID": ["#W17X", "u_1"], "USER_ID": ["u_1"]}, None),  # nobody knows which
        ("ORDER_ID", {"USER_ID": ["u_1"]}, None),
        ("DATE", {"TRAVEL_DATE": ["2024-05-01"]}, None),
    ],
)
def test_a_slot_is_filled_by_the_only_type_near_to_it(slot: str, values: dict[str, Any], value: Any) -> None:
    found = Known(values)
    assert filled({"x": f"<{slot}>"}, found) == {"x": f"<{slot}>" if value is None else value}
    assert value is None or found.has(slot)
