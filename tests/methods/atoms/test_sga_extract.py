"""Atoms from recorded runs: situations, sub-goals, masked calls, and nothing of a person's data in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from histories import FAILED, atoms_of, call, run_of, schema, user, words
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.atoms.atoms import from_plain, merge_all, to_plain
from langgraph_toolmem.atoms.extract import (
    Extractor,
    Masker,
    distil,
    goal_of,
    habits_of,
    open_parts,
    parts_of,
)
from langgraph_toolmem.atoms.retrieve import AtomQuestion, NearAtom, Resolver, ranked, to_goal
from langgraph_toolmem.atoms.slots import Known, Slots
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.tools import read_tools

PLOT = schema("plot", "start kind title")
PLOT["parameters"]["properties"]["kind"]["enum"] = ["bar", "line"]
TOOLS: list[dict[str, Any]] = [
    schema("find_user", "email") | {"description": "Shared sentence. Find a user by email address."},
    schema("get_order", "order_id") | {"description": "Shared sentence. The details of an order."},
    schema("cancel_order", "order_id reason") | {"description": "Shared sentence. Cancel an order."},
    schema("list_orders", "user_id limit:integer", "sort flag:boolean"),
    schema("login", "username password"),
    schema("tag_orders", "order_ids:array"),
    schema("find_person", "name") | {"description": "Find the email address of a colleague."},
    schema("send_mail", "recipient subject body") | {"description": "Send an email."},
    schema("search_events", "query", "limit:integer") | {"description": "Search events. Terms will be matched."},
    schema("delete_event", "event_id") | {"description": "Delete an event."},
    schema("pay", "order_id amount:number", "precision:integer") | {"description": "Pay an order."},
    schema("book", "user_id", "flights:array passengers:integer") | {"description": "Book flights."},
    PLOT,
]
TOOLS[8]["parameters"]["properties"]["query"]["description"] = (
    "Query to search for. Terms will be matched in the event_name and participant_email fields."
)
SPECS = read_tools(TOOLS)
SLOTS = Slots(SPECS)


def masked(
    tool: str, args: dict[str, Any], known: Known | None = None, *, runs: Any = ()
) -> tuple[dict[str, Any], set[str]]:
    masker = Masker(tool, SLOTS, known or Known(), habits_of(runs))
    return {name: masker.value(value, name) for name, value in args.items()}, masker.required


# --- slots and literals ---


@pytest.mark.parametrize(
    ("known", "slot", "required"),
    [
        ({"ORDER_ID": ["#W17X"]}, "ORDER_ID", {"ORDER_ID"}),
        ({}, "ORDER_ID", set()),  # it came from nowhere
        ({"PARCEL_ID": ["#W17X"]}, "PARCEL_ID", {"PARCEL_ID"}),
        ({"ID": ["#W17X"]}, "ORDER_ID", {"ID"}),
    ],
)
def test_a_value_is_called_as_k_calls_it_and_is_needed_by_that_name(known: Any, slot: str, required: set[str]) -> None:
    assert masked("get_order", {"order_id": "#W17X"}, Known(known)) == ({"order_id": f"<{slot}>"}, required)


def reasons(*said: str) -> list[Any]:
    """Runs that cancel orders for these reasons."""
    return [
        run_of(user("x"), call("cancel_order", {"order_id": f"#W{i}A", "reason": each}), thread_id=str(i))
        for i, each in enumerate(said)
    ]


ALWAYS = reasons(*["No longer needed"] * 3)
LOGINS = [run_of(user("x"), call("login", {"username": "root", "password": "hunter"}), thread_id=str(i)) for i in "123"]
TRIPS = [run_of(user("x"), call("book", {"passengers": n}), thread_id=str(n)) for n in (2, 3)]


@pytest.mark.parametrize(
    ("tool", "args", "pattern", "how"),
    [
        ("list_orders", {"flag": True}, {"flag": True}, {}),
        ("list_orders", {"limit": 5}, {"limit": "<ORDER_LIMIT>"}, {}),
        ("plot", {"kind": "bar"}, {"kind": "bar"}, {"known": Known({"TEXT": ["bar"]})}),
        ("plot", {"start": "2024-01-02", "title": "A title"}, {"start": "<DATE>", "title": "<PLOT>"}, {}),
        ("cancel_order", {"reason": "No longer needed"}, {"reason": "<REASON>"}, {}),
        ("cancel_order", {"reason": "No longer needed"}, {"reason": "No longer needed"}, {"runs": ALWAYS}),
        ("cancel_order", {"reason": "No longer needed"}, {"reason": "<REASON>"}, {"runs": ALWAYS[:2]}),
        ("cancel_order", {"order_id": "#W0A"}, {"order_id": "<ORDER_ID>"}, {"runs": ALWAYS}),
        ("cancel_order", {"reason": "A"}, {"reason": "A"}, {"runs": reasons(*"AB" * 4)}),
        ("cancel_order", {"reason": "A"}, {"reason": "<REASON>"}, {"runs": reasons(*"AB" * 3)}),
        ("cancel_order", {"reason": "A"}, {"reason": "<REASON>"}, {"runs": reasons(*"ABCDEFG" * 5)}),
        ("login", {"password": "hunter"}, {"password": "<PASSWORD>"}, {"runs": LOGINS}),
        ("find_person", {"name": "Yuki"}, {"name": "<PERSON>"}, {}),
        ("pay", {"amount": 43.85}, {"amount": "<AMOUNT>"}, {}),
        ("pay", {"amount": None, "x": "", "y": [], "z": {}}, {"amount": None, "x": "", "y": [], "z": {}}, {}),
        ("book", {"passengers": 2}, {"passengers": 2}, {"runs": TRIPS * 4}),
        ("book", {"passengers": 2}, {"passengers": "<PASSENGER>"}, {"runs": TRIPS}),
        ("search_events", {"query": "x y"}, {"query": "<QUERY>"}, {}),
        ("tag_orders", {"order_ids": ["#W1A", "#W2B"]}, {"order_ids": ["<ORDER_ID>"]}, {}),  # the same pattern as one
        ("book", {"flights": [{"number": "H1"}, {"number": "H2", "cabin": True}]}, None, {}),
        ("other", {"a": {"city": "Rome", "b": ["Via Appia 1", True, None]}, "c": []},
         {"a": {"city": "<CITY>", "b": ["<TEXT>", True, None]}, "c": []}, {"known": Known({"CITY": ["Rome"]})}),
    ],
)  # fmt: skip
def test_what_is_a_slot_and_what_stays(tool: str, args: dict[str, Any], pattern: Any, how: Any) -> None:
    found, _ = masked(tool, args, **how)
    if pattern is None:
        assert len(found["flights"]) == 2
    else:
        assert found == pattern


# --- where a run stands ---


def test_a_request_falls_into_parts() -> None:
    assert parts_of("Cancel #W1A. Then list my orders and send me 'this and that'!\nThanks") == (
        "Cancel #W1A", "list my orders", "send me 'this and that'!", "Thanks",
    )  # fmt: skip
    assert parts_of("...") == parts_of("") == ()


def test_a_part_is_open_until_its_ids_were_used() -> None:
    state = RunState.of(run_of(user("Cancel #W1A. Cancel #W2B. Tell me."), call("cancel_order", {"order_id": "#W1A"})))
    assert open_parts(state) == ("Cancel #W2B", "Tell me")
    failed = RunState.of(run_of(user("Cancel #W1A. Tell me."), call("cancel_order", {"order_id": "#W1A"}, FAILED)))
    assert open_parts(failed) == ("Cancel #W1A", "Tell me")
    whole = RunState.of(run_of(user("Cancel #W1A"), call("cancel_order", {"order_id": "#W1A"})))
    assert open_parts(whole) == ("Cancel #W1A",)


def test_a_call_is_about_the_part_with_its_values_then_about_the_one_with_its_words() -> None:
    def goal(request: str, order: str, does: str) -> str:
        run = run_of(user(request), call("cancel_order", {"order_id": order}))
        (step,) = RunState.of(run).steps
        where, _ = Extractor(SPECS).before(run_of(user(request)))
        return goal_of(step, where, does)

    both = "Look at order #W1A. Cancel the order #W1A. Say hello."
    assert goal(both, "#W1A", "Cancel an order") == "Cancel the order <ORDER_ID>"
    assert goal(both, "#W1A", "Look an order up") == "Look at order <ORDER_ID>"
    assert goal("Say hello. Wait.", "zzz", "Cancel an order") == "Say hello Wait"


def test_sentences_that_tools_share_are_not_about_any_of_them() -> None:
    tools = Extractor(SPECS)
    assert tools.about("get_order") == "The details of an order."
    assert (tools.does("get_order"), tools.about("unknown")) == ("The details of an order", "")


def shop(order: str, email: str, thread_id: str = "r") -> Any:
    return run_of(
        user(f"I am {email}. Cancel order {order} because no longer needed."),
        call("find_user", {"email": email}, {"user_id": f"u_{order[1:]}"}),
        call("get_order", {"order_id": order}, {"order_id": order, "status": "pending"}),
        call("cancel_order", {"order_id": order, "reason": "no longer needed"}, {"status": "cancelled"}),
        words(),
        thread_id=thread_id,
    )


def test_each_successful_step_of_a_run_becomes_an_atom() -> None:
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
    assert {a.value for a in atoms} == {0.9}


def test_the_same_steps_of_other_tasks_are_the_same_atoms() -> None:
    atoms = distil([shop(f"#W{i}A", f"a{i}@x.org", f"r{i}") for i in range(4)], SPECS)
    assert [(a.tool, a.visits) for a in atoms] == [("find_user", 4), ("get_order", 4), ("cancel_order", 4)]
    assert atoms[2].arguments["reason"] == "no longer needed"


# --- privacy ---


def office(request: str, name: str = "yuki") -> Any:
    return run_of(
        user(request),
        call("find_person", {"name": name}, [f"{name}.park@x.org"]),
        call("send_mail", {"recipient": f"{name}.park@x.org", "subject": "Hello", "body": "see you at the pier"}),
    )


MOVED = run_of(
    user("move kofi's things and those of park tell lena"),
    call("send_mail", {"recipient": "kofi.park@x.org", "subject": "a b", "body": "c d"}, {"cc": "lena@x.org"}),
)
MET = run_of(
    user("meet with kofi"),
    call("find_person", {"name": "kofi"}, FAILED),
    call("search_events", {"query": "meeting"}, [{"id": "e1"}]),
)


@pytest.mark.parametrize(
    ("run", "goal", "hidden"),
    [
        (office("ask yuki about the plan, and say see you at the pier"), None, ["yuki", "pier"]),  # of a later call
        (MOVED, "move <NAME>'s things and those of <NAME> tell <NAME>", ["kofi", "lena"]),  # in mail addresses
        (MET, "meet with <PERSON>", ["kofi"]),  # of a failed call
    ],
)
def test_no_value_of_a_run_is_in_its_atoms(run: Any, goal: str | None, hidden: list[str]) -> None:
    atoms = atoms_of(run, SPECS)
    assert goal is None or atoms[0].goal == goal
    for value in hidden:
        assert value not in json.dumps(list(map(to_plain, atoms)))


# --- whatever runs hold ---

SCALARS = st.none() | st.booleans() | st.integers(-99, 99_999) | st.text(max_size=12) | st.just("ann@x.org")
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["get_order", "send_mail", "other"]),
        st.dictionaries(st.sampled_from(["order_id", "recipient", "x"]), VALUES, max_size=3),
        VALUES,
    ),
    max_size=4,
)
TEXTS = st.text(max_size=80) | st.sampled_from(
    ["Cancel order #W17X. Mail ann@x.org 'a b', then go", "<A> <B_C> {}[]\\"]
)


@settings(max_examples=60)
@given(TEXTS, STEPS)
def test_any_run_can_be_read_kept_and_asked_for(text: str, steps: list[tuple[str, dict[str, Any], Any]]) -> None:
    run = run_of(user(text), *(call(tool, args, output) for tool, args, output in steps))
    extractor = Extractor(SPECS)
    found = extractor.steps(run)
    assert found == Extractor(SPECS).steps(run)
    assert len(found) == len(steps)
    kept = merge_all(each.atom for each in found)
    for atom in kept:
        assert from_plain(json.loads(json.dumps(to_plain(atom)))) == atom
        assert "ann@x.org" not in json.dumps(atom.arguments)
    where, known = extractor.before(run)
    assert Known(json.loads(json.dumps(known.to_plain()))).to_plain() == known.to_plain()
    asked = AtomQuestion(where.state, where.goals or ("",), known)
    for hit in ranked([NearAtom(a, to_goal(asked.goals[0], a)) for a in kept], asked, resolve=Resolver(extractor)):
        assert 0.0 <= hit.similarity <= 1.0
        assert 0.0 <= hit.feasibility <= 1.0
