"""The policy without a model: which calls it proposes, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from rooms import TASK, TOOLS

from langgraph_toolmem.offline.discovery.environment import EnvironmentCall, Observation, Taken, Task
from langgraph_toolmem.offline.discovery.plain_policy import WIDTH, PlainPolicy
from langgraph_toolmem.offline.discovery.states import State, only_reads
from langgraph_toolmem.runs.tools import read_tools


def schema(name: str, about: str, tags: list[str], required: list[str], /, **properties: Any) -> dict[str, Any]:
    shown = {
        key: {"type": "string", "description": text} if isinstance(text, str) else text
        for key, text in properties.items()
    }
    parameters = {"type": "object", "properties": shown, "required": required}
    return {"name": name, "description": about, "tags": tags, "parameters": parameters}


READ = ["read_only"]
LIBRARY = read_tools(
    [
        schema("find_reader", "Find readers by name; gives their e-mail address.", READ, ["name"], name="Full name."),
        schema(
            "list_loans",
            "List loans, newest first.",
            READ,
            [],
            reader="E-mail address of the reader.",
            status='"open" or "returned".',
            overdue={"type": "boolean", "description": "Only overdue loans."},
            limit={"type": "integer", "description": "How many at most."},
        ),
        schema("extend_loan", "Extend a loan.", [], ["loan_id"], loan_id='Id of the loan, for example "loan_1a2b".'),
        schema(
            "change_loan",
            "Change one field of a loan.",
            [],
            ["loan_id", "field", "value"],
            loan_id="Id of the loan.",
            field={"type": "string", "enum": ["status", "reader"], "description": "Which field."},
            value="New value.",
        ),
        schema(
            "send_letter", "Send a letter.", [], ["to", "body"], to="E-mail address of the recipient.", body="Its text."
        ),
        schema("delete_loan", "Delete a loan for good.", ["destructive"], ["loan_id"], loan_id="Id of the loan."),
        schema(
            "reserve_room",
            "Reserve a reading room.",
            [],
            ["start", "minutes"],
            start="Start, ISO time to the minute.",
            minutes={"type": "integer", "description": "Length in minutes."},
        ),
    ]
)
READERS = Observation({"readers": [{"id": "usr_9", "name": "Ann Lee", "email": "ann@lib.example"}]})
LOANS = Observation(
    {
        "loans": [
            {"id": "loan_77", "title": "Dune", "reader": "ann@lib.example", "due": "2024-05-01"},
            {"id": "loan_78", "title": "Emma", "reader": "ann@lib.example", "due": "2024-05-09"},
        ],
        "total": 2,
    }
)
FOUND = Taken(EnvironmentCall("find_reader", {"name": "Ann Lee"}), READERS)
LISTED = Taken(EnvironmentCall("list_loans", {"reader": "ann@lib.example"}), LOANS)
POLICY = PlainPolicy(LIBRARY)


def after(request: str, *taken: Taken) -> State:
    state = State(Task("t", request))
    state = state.at(POLICY.plan(state))
    for each in taken:
        state = state.after(each, reads=only_reads(LIBRARY.get(each.call.tool)))
    return state


def proposed(request: str, *taken: Taken) -> list[EnvironmentCall]:
    proposals = POLICY.propose(after(request, *taken), None)
    assert [each.weight for each in proposals] == sorted((each.weight for each in proposals), reverse=True)
    assert len(proposals) <= WIDTH
    return [each.call for each in proposals if each.call is not None]


@pytest.mark.parametrize(
    ("request_", "taken", "first"),
    [
        ("Extend all loans of Ann Lee", (), EnvironmentCall("find_reader", {"name": "Ann Lee"})),
        ("Extend all loans of Ann Lee", (FOUND,), LISTED.call),
        ("Extend the latest loan", (FOUND, LISTED), EnvironmentCall("extend_loan", {"loan_id": "loan_77"})),
        ("Delete the loan", (LISTED,), EnvironmentCall("delete_loan", {"loan_id": "loan_77"})),
        (
            "Reserve a room for 45 minutes on 2024-06-05 at 9:30",
            (),
            EnvironmentCall("reserve_room", {"start": "2024-06-05T09:30", "minutes": 45}),
        ),
    ],
    ids=["name", "address", "change", "destructive", "time"],
)
def test_the_likeliest_call_comes_first(request_: str, taken: tuple[Taken, ...], first: EnvironmentCall) -> None:
    assert proposed(request_, *taken)[0] == first


@pytest.mark.parametrize(
    ("request_", "taken", "call"),
    [
        ("The overdue loans", (), EnvironmentCall("list_loans", {"overdue": True})),
        ("All open loans", (), EnvironmentCall("list_loans", {"status": "open"})),
        (
            "Change the status of the loan of Emma to returned",
            (LISTED,),
            EnvironmentCall("change_loan", {"loan_id": "loan_78", "field": "status", "value": "returned"}),
        ),
        ("extend the loans that dora has", (), EnvironmentCall("find_reader", {"name": "dora"})),
    ],
    ids=["flag", "listed", "field", "single word"],
)
def test_among_the_calls_are_those_of_listed_values_and_single_words(
    request_: str, taken: tuple[Taken, ...], call: EnvironmentCall
) -> None:
    assert call in proposed(request_, *taken)


@pytest.mark.parametrize(
    ("request_", "taken", "tool", "name"),
    [
        ("Extend 3 loans", (LISTED,), "list_loans", "limit"),
        ("All loans", (), "list_loans", "overdue"),
        ("Extend it", (FOUND,), "extend_loan", "loan_id"),  # an id is known, but of a user
        ("Write to Ann Lee", (), "send_letter", "to"),
        ("A room for 45 minutes", (LISTED,), "reserve_room", "start"),  # a date, but no time
    ],
    ids=["limit", "flag", "other id", "unknown", "no time"],
)
def test_a_value_of_another_type_is_not_given(request_: str, taken: tuple[Taken, ...], tool: str, name: str) -> None:
    assert not [call for call in proposed(request_, *taken) if call.tool == tool and name in call.args]


def test_a_list_is_gone_through_and_nothing_is_done_twice() -> None:
    one = Taken(EnvironmentCall("extend_loan", {"loan_id": "loan_77"}), Observation("extended"))
    calls = proposed("Extend all loans of Ann Lee", FOUND, LISTED, one)
    assert next(call for call in calls if call.tool == "extend_loan").args == {"loan_id": "loan_78"}
    assert all(done not in calls for done in (FOUND.call, LISTED.call, one.call))


def test_only_calls_that_a_schema_takes_are_proposed() -> None:
    calls = proposed("Reserve a room for 45 minutes on 2024-06-05 at 14:00, and tell Ann Lee", FOUND, LISTED)
    assert {"reserve_room", "send_letter"} <= {call.tool for call in calls}
    assert all(LIBRARY[call.tool].problem(call.args) is None for call in calls)


def test_where_the_world_tells_what_is_possible_nothing_else_is_proposed() -> None:
    possible = [
        EnvironmentCall("extend_loan", {"loan_id": "loan_1"}),
        EnvironmentCall("delete_loan", {"loan_id": "loan_1"}),
    ]
    assert [each.call for each in POLICY.propose(after("Extend Emma"), possible)] == possible


def test_where_all_that_was_proposed_led_nowhere_more_is() -> None:
    state = after("Extend the loan of Emma", FOUND, LISTED)
    wide = [each.call for each in POLICY.widen(state)]
    assert all(call in wide for call in proposed("Extend the loan of Emma", FOUND, LISTED))
    assert EnvironmentCall("list_loans", {}) in wide  # tells nothing new


def test_a_failure_is_told_and_what_else_there_is_was_proposed() -> None:
    failed = Taken(EnvironmentCall("extend_loan", {"loan_id": "loan_77"}), Observation("Error: reserved", ok=False))
    reflection = POLICY.reflect(after("Extend all loans of Ann Lee", FOUND, LISTED), failed)
    assert (reflection.critique, reflection.alternatives) == ("Error: reserved", ())


def test_it_ends_where_nothing_else_tells() -> None:
    policy = PlainPolicy(read_tools(TOOLS), finishes=True)
    state = State(TASK)
    state = state.at(policy.plan(state))
    assert all(each.action == "call" for each in policy.propose(state, None))
    opened = Taken(EnvironmentCall("open_safe", {"key_id": "key_22"}), Observation({"safe": "open"}))
    last = [each for each in policy.propose(state.after(opened, reads=False), None) if each.action == "finish"]
    assert [each.answer for each in last] == ['{"safe": "open"}']
