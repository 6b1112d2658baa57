"""Atoms from recorded runs: masking, situations, merging."""

from __future__ import annotations

from typing import Any

import pytest
from histories import FAILED, atoms_of, call, calls, run_of, schema, user, words

from langgraph_toolmem.atoms.extract import Extractor, distil
from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.mask import Habits, mask
from langgraph_toolmem.atoms.situation import Abouts, open_parts, part_of, parts_of
from langgraph_toolmem.atoms.slots import Slots
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.tools import read_tools

PLOT = schema("plot", "start metric kind title")
PLOT["parameters"]["properties"]["kind"]["enum"] = ["bar", "line"]
PLOT["parameters"]["properties"]["metric"]["description"] = 'What to plot. One of "visits", "users"'
TOOLS: list[dict[str, Any]] = [
    schema("find_user", "email") | {"description": "Shared sentence. Find a user by email address."},
    schema("get_order", "order_id") | {"description": "Shared sentence. The details of an order."},
    schema("cancel_order", "order_id reason") | {"description": "Shared sentence. Cancel an order."},
    schema("list_orders", "user_id limit:integer", "sort flag:boolean"),
    schema("login", "username password"),
    schema("tag_orders", "order_ids:array"),
    PLOT,
]
SPECS = read_tools(TOOLS)
SLOTS = Slots(SPECS)


def masked(
    tool: str, args: dict[str, Any], known: Known | None = None, *, habits: Habits | None = None, text: str = ""
):
    return mask(tool, args, SLOTS, known or Known(), habits=habits or Habits(), text=text)


def test_values_that_are_known_become_slots_and_are_needed():
    found = masked("get_order", {"order_id": "#W17X"}, Known({"ORDER_ID": ["#W17X"]}), text="Cancel #W17X")
    assert found.arguments == {"order_id": "<ORDER_ID>"}
    assert found.required == ("ORDER_ID",)


def test_an_id_that_came_from_nowhere_is_a_slot_that_nothing_is_known_to_fill():
    found = masked("get_order", {"order_id": "#W17X"})
    assert found.arguments == {"order_id": "<ORDER_ID>"}
    assert found.required == ()


def test_a_value_that_is_known_as_something_else_is_called_that():
    parcel = Known({"PARCEL_ID": ["77X1"]})
    answered = mask("get_order", {"order_id": "77X1"}, SLOTS, parcel, habits=Habits(), answered=["77x1"])
    assert answered.arguments == {"order_id": "<PARCEL_ID>"}
    assert answered.required == ("PARCEL_ID",)
    assert masked("get_order", {"order_id": "77X1"}, parcel).arguments == {"order_id": "<ORDER_ID>"}
    loose = masked("get_order", {"order_id": "77X1"}, Known({"ID": ["77X1"]}), text="It is 77X1")
    assert loose.required == ("ORDER_ID",)


@pytest.mark.parametrize("name", ["limit", "flag"])
def test_control_values_stay(name: str):
    value = {"limit": 5, "flag": True}[name]
    found = masked("list_orders", {"user_id": "u_1", name: value}, Known({"NUMBER": [5]}), text="the first 5")
    assert found.arguments == {"user_id": "<USER_ID>", name: value}


def test_choices_stay_whether_the_schema_or_the_description_lists_them():
    args = {"start": "2024-01-02", "metric": "visits", "kind": "bar", "title": "Visits of January"}
    found = masked("plot", args, Known({"TEXT": ["visits", "bar"]}), text="plot visits as bar")
    assert found.arguments == {"start": "<DATE>", "metric": "visits", "kind": "bar", "title": "<PLOT>"}


def test_short_words_from_nowhere_steer_the_call_and_words_of_the_user_do_not():
    assert masked("list_orders", {"sort": "asc"}).arguments == {"sort": "asc"}
    assert masked("list_orders", {"sort": "asc"}, text="sort them asc").arguments == {"sort": "<ORDER_SORT>"}


def test_what_never_varies_stays_and_what_varies_does_not():
    runs = [
        run_of(user("x"), call("cancel_order", {"order_id": f"#W{i}A", "reason": "No longer needed"}), thread_id=str(i))
        for i in range(3)
    ]
    habits = Habits(runs)
    args = {"order_id": "#W0A", "reason": "No longer needed"}
    assert masked("cancel_order", args, habits=habits).arguments["reason"] == "No longer needed"
    assert masked("cancel_order", args).arguments["reason"] == "<REASON>"
    assert masked("cancel_order", args, habits=Habits(runs[:2])).arguments["reason"] == "<REASON>"
    assert masked("cancel_order", args, habits=habits).arguments["order_id"] == "<ORDER_ID>"


def test_a_few_values_that_come_again_and_again_are_choices():
    runs = [
        run_of(user("x"), call("cancel_order", {"order_id": "a", "reason": f"Reason {i % 2}"}), thread_id=str(i))
        for i in range(8)
    ]
    assert masked("cancel_order", {"reason": "Reason 1"}, habits=Habits(runs)).arguments == {"reason": "Reason 1"}
    assert masked("cancel_order", {"reason": "Reason 1"}, habits=Habits(runs[:6])).arguments == {"reason": "<REASON>"}


def test_a_secret_never_stays_even_if_it_never_varies():
    runs = [
        run_of(user("x"), call("login", {"username": "root", "password": "hunter"}), thread_id=str(i)) for i in range(9)
    ]
    found = masked("login", {"username": "root", "password": "hunter"}, habits=Habits(runs))
    assert found.arguments["password"] == "<PASSWORD>"
    assert "hunter" not in str(found)


def test_nested_arguments_and_lists_keep_their_shape():
    known = Known({"ORDER_ID": ["#W1A", "#W2B"], "CITY": ["Rome"]})
    found = masked("tag_orders", {"order_ids": ["#W1A", "#W2B"]}, known)
    assert found.arguments == {"order_ids": ["<ORDER_ID>"]}  # two are the same pattern as one
    nested = {"address": {"city": "Rome", "lines": ["Via Appia 1", True, None]}, "empty": []}
    assert masked("other", nested, known).arguments == {
        "address": {"city": "<CITY>", "lines": ["<LINE>", True, None]},
        "empty": [],
    }


def test_a_request_falls_into_parts():
    assert parts_of("Cancel #W1A. Then list my orders and send me 'this and that'!\nThanks") == (
        "Cancel #W1A", "list my orders", "send me 'this and that'!", "Thanks",
    )  # fmt: skip
    assert parts_of("...") == ()
    assert parts_of("") == ()


def test_a_part_is_open_until_its_ids_were_used():
    state = RunState.of(run_of(user("Cancel #W1A. Cancel #W2B. Tell me."), call("cancel_order", {"order_id": "#W1A"})))
    assert open_parts(state) == ("Cancel #W2B", "Tell me")
    failed = RunState.of(run_of(user("Cancel #W1A. Tell me."), call("cancel_order", {"order_id": "#W1A"}, FAILED)))
    assert open_parts(failed) == ("Cancel #W1A", "Tell me")
    whole = RunState.of(run_of(user("Cancel #W1A"), call("cancel_order", {"order_id": "#W1A"})))
    assert open_parts(whole) == ("Cancel #W1A",)


def test_a_call_is_about_the_part_with_its_values_then_about_the_one_with_its_words():
    parts = ("Look at order #W1A", "cancel the order #W1A", "say hello")
    (by_words,) = RunState.of(run_of(user("x"), call("cancel_order", {"order_id": "#W1A"}))).steps
    (by_nothing,) = RunState.of(run_of(user("x"), call("cancel_order", {"order_id": "zzz"}))).steps
    assert part_of(by_words, parts, "Cancel an order") == 1
    assert part_of(by_words, parts, "Look an order up") == 0
    assert part_of(by_nothing, ("xyz",), "Cancel an order") is None


def test_sentences_that_tools_share_are_not_about_any_of_them():
    abouts = Abouts(SPECS)
    assert abouts.whole("get_order") == "The details of an order."
    assert abouts.short("get_order") == "The details of an order"
    assert abouts.whole("unknown") == ""


def shop(order: str, email: str, thread_id: str = "r") -> Any:
    return run_of(
        user(f"I am {email}. Cancel order {order} because no longer needed."),
        call("find_user", {"email": email}, {"user_id": f"u_{order[1:]}"}),
        call("get_order", {"order_id": order}, {"order_id": order, "status": "pending"}),
        call("cancel_order", {"order_id": order, "reason": "no longer needed"}, {"status": "cancelled"}),
        words(),
        thread_id=thread_id,
    )


def test_each_successful_step_of_a_run_becomes_an_atom():
    atoms = atoms_of(shop("#W17X", "ann@x.org"), SPECS, value=0.9)
    assert [(a.tool, dict(a.arguments), a.required_slots) for a in atoms] == [
        ("find_user", {"email": "<EMAIL>"}, ("EMAIL",)),
        ("get_order", {"order_id": "<ORDER_ID>"}, ("ORDER_ID",)),
        ("cancel_order", {"order_id": "<ORDER_ID>", "reason": "<REASON>"}, ("ORDER_ID",)),
    ]
    assert [a.goal for a in atoms] == [
        "I am <EMAIL>", "Cancel order <ORDER_ID> because <REASON>", "Cancel order <ORDER_ID> because <REASON>",
    ]  # fmt: skip
    assert atoms[0].state == "known: email, order id. done: nothing yet"
    assert "done: Find a user by email address" in atoms[1].state
    assert atoms[0].produces == ("USER_ID",)
    assert {(a.value, a.origin, a.sources) for a in atoms} == {(0.9, "runs", ("r",))}


def test_the_same_steps_of_other_tasks_are_the_same_atoms():
    atoms = distil([shop(f"#W{i}A", f"a{i}@x.org", f"r{i}") for i in range(4)], SPECS)
    assert [(a.tool, a.visits) for a in atoms] == [("find_user", 4), ("get_order", 4), ("cancel_order", 4)]
    assert atoms[0].sources == ("r0", "r1", "r2", "r3")
    assert atoms[2].arguments["reason"] == "no longer needed"


def test_rewards_are_kept_apart():
    atoms = distil([shop("#W1A", "a@x.org"), shop("#W2B", "b@x.org")], SPECS, values=[1.0, 0.5])
    assert {a.value for a in atoms} == {0.75}


def test_failed_and_unknown_steps_are_no_atoms_and_parallel_ones_share_a_state():
    run = run_of(
        user("Look at #W1A and #W2B"),
        call("get_order", {"order_id": "#W0"}, FAILED),
        calls([("get_order", {"order_id": "#W1A"}, {"a": 1}), ("get_order", {"order_id": "#W2B"}, {"a": 1})]),
    )
    found = Extractor(SPECS).steps(run)
    assert len(found) == 2
    assert len({each.key for each in found}) == 2
    assert found[0].atom.state == found[1].atom.state
    assert "failed: The details of an order" in found[0].atom.state


def test_where_a_run_stands_is_said_as_its_next_atom_would_be():
    run = shop("#W17X", "ann@x.org")
    extractor = Extractor(SPECS)
    second = extractor.steps(run)[1].atom
    head = run_of(
        user("I am ann@x.org. Cancel order #W17X because no longer needed."),
        call("find_user", {"email": "ann@x.org"}, {"user_id": "u_W17X"}),
    )
    where, known = extractor.before(head)
    assert where.state == second.state
    assert where.goals == ("Cancel order <ORDER_ID> because no longer needed",)
    assert second.goal == "Cancel order <ORDER_ID> because <REASON>"  # what a later call takes is a value already
    assert set(second.required_slots) <= known.types
