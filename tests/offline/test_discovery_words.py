"""The policy without a model: what it reads of a request and of answers, and which calls it holds for promising."""

from __future__ import annotations

from typing import Any

import pytest
from rooms import TASK, TOOLS

from langgraph_toolmem.offline.discovery.context import Context
from langgraph_toolmem.offline.discovery.environment import Call, Observation, Taken, Task
from langgraph_toolmem.offline.discovery.facts import facts_of, in_words, phrases, read_request
from langgraph_toolmem.offline.discovery.fitting import candidates
from langgraph_toolmem.offline.discovery.states import State
from langgraph_toolmem.offline.discovery.toolbox import Toolbox, stems_of
from langgraph_toolmem.offline.discovery.word_policy import WordPolicy
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
BOX = Toolbox(LIBRARY)
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
FOUND = Taken(Call("find_reader", {"name": "Ann Lee"}), READERS)
LISTED = Taken(Call("list_loans", {"reader": "ann@lib.example"}), LOANS)


def context(request: str, *taken: Taken) -> Context:
    state = State(Task("t", request))
    for each in taken:
        state = state.after(each, reads=BOX.reads[each.call.tool])
    read = read_request(request)
    facts = [*read.facts, *(fact for n, each in enumerate(state.taken) for fact in facts_of(each, n, read, BOX))]
    return Context(state, read, facts, BOX)


def proposed(request: str, *taken: Taken, specs: Any = LIBRARY) -> list[Call]:
    policy = WordPolicy(specs)
    state = State(Task("t", request))
    state = state.at(policy.plan(state))
    for each in taken:
        state = state.after(each, reads=policy.toolbox.reads[each.call.tool])
    proposals = policy.propose(state, None)
    assert [each.weight for each in proposals] == sorted((each.weight for each in proposals), reverse=True)
    return [each.call for each in proposals if each.call is not None]


def values(tool: str, path: str, found: Context) -> list[Any]:
    wanted = next(each for each in BOX.inputs[tool] if each.path == path)
    return [candidate.value for candidate in candidates(tool, wanted, found)]


def test_the_values_of_a_request() -> None:
    read = read_request('Remind Ann Lee on 2024-06-05 at 14:00 that "Dune" is overdue')
    assert {fact.value for fact in read.facts} >= {"Ann Lee", "2024-06-05", "Dune"}
    assert read.message == '"Dune" is overdue'
    assert read_request("Tell them: we are closed.").message == "we are closed"
    assert read_request("Save the file that Ann sent").message == ""


def test_a_name_at_the_beginning_is_read_both_ways() -> None:
    assert {fact.value for fact in read_request("Kavya Jensen wants a room").names()} == {"Kavya Jensen", "Jensen"}
    assert {fact.value for fact in read_request("Let Ann Lee know").names()} == {"Ann Lee"}


def test_rows_that_the_user_means() -> None:
    found = context("Extend the loan of Emma", LISTED)
    named = {fact.value for fact in found.facts if fact.named and fact.path == "$.loans[*].id"}
    assert named == {"loan_78"}
    latest = context("Extend the latest loan", LISTED)
    assert {fact.value for fact in latest.facts if fact.named and fact.path == "$.loans[*].id"} == {"loan_78"}


def test_an_answer_in_words_has_a_line_for_each_row() -> None:
    assert in_words(LOANS.output).splitlines()[1] == "loan_78; Emma; ann@lib.example; 2024-05-09"
    assert in_words("plain") == "plain"


def test_names_in_small_letters() -> None:
    assert "design team" in phrases("Tell everyone in the design team")
    assert phrases("of the and") == ()


@pytest.mark.parametrize(
    ("tool", "path", "request_", "taken", "first"),
    [
        ("list_loans", "reader", "All loans of Ann Lee", (FOUND,), "ann@lib.example"),
        ("list_loans", "overdue", "The overdue loans", (), True),
        ("list_loans", "status", "All open loans", (), "open"),
        ("extend_loan", "loan_id", "Extend Emma", (LISTED,), "loan_78"),
        ("send_letter", "to", "Write to Ann Lee", (FOUND,), "ann@lib.example"),
        ("send_letter", "body", "Tell Ann Lee that it is late", (FOUND,), "it is late"),
        ("reserve_room", "start", "A room on 2024-06-05 at 9:30", (), "2024-06-05T09:30"),
        ("reserve_room", "minutes", "2 rooms for 45 minutes", (), 45),
        ("find_reader", "name", "All loans of Ann Lee", (), "Ann Lee"),
    ],
    ids=["email", "flag", "listed", "named row", "recipient", "message", "time", "number", "name"],
)
def test_the_best_value_for_an_input(tool: str, path: str, request_: str, taken: Any, first: Any) -> None:
    assert values(tool, path, context(request_, *taken))[0] == first


@pytest.mark.parametrize(
    ("tool", "path", "request_", "taken"),
    [
        ("list_loans", "limit", "Extend 3 loans", (LISTED,)),
        ("list_loans", "overdue", "All loans", ()),
        ("extend_loan", "loan_id", "Extend it", (FOUND,)),  # an id, but of a user
        ("send_letter", "to", "Write to Ann Lee", ()),
        ("reserve_room", "start", "A room", (LISTED,)),
    ],
    ids=["limit", "flag", "other id", "unknown", "no time"],
)
def test_what_fits_nowhere_is_not_offered(tool: str, path: str, request_: str, taken: Any) -> None:
    assert values(tool, path, context(request_, *taken)) == []


def test_names_are_explained_before_anything_is_changed() -> None:
    first = proposed("Extend all loans of Ann Lee")[0]
    assert (first.tool, dict(first.args)) == ("find_reader", {"name": "Ann Lee"})
    second = proposed("Extend all loans of Ann Lee", FOUND)[0]
    assert (second.tool, dict(second.args)) == ("list_loans", {"reader": "ann@lib.example"})
    third = proposed("Extend all loans of Ann Lee", FOUND, LISTED)[0]
    assert third.tool == "extend_loan"


def test_a_list_is_gone_through() -> None:
    one = Taken(Call("extend_loan", {"loan_id": "loan_77"}), Observation("extended"))
    following = proposed("Extend all loans of Ann Lee", FOUND, LISTED, one)[0]
    assert (following.tool, dict(following.args)) == ("extend_loan", {"loan_id": "loan_78"})


def test_nothing_is_destroyed_unless_words_say_so() -> None:
    tools = [call.tool for call in proposed("Extend all loans of Ann Lee", FOUND, LISTED)]
    assert "delete_loan" not in tools[:3]
    assert proposed("Delete the loan of Emma", LISTED)[0].tool == "delete_loan"


def test_the_value_of_a_field_is_one_of_that_field() -> None:
    calls = proposed("Change the status of the loan of Emma to returned", LISTED)
    changed = next(call for call in calls if call.tool == "change_loan")
    assert dict(changed.args) == {"loan_id": "loan_78", "field": "status", "value": "returned"}


def test_only_calls_that_a_schema_takes_are_proposed() -> None:
    for call in proposed("Reserve a room for 45 minutes on 2024-06-05 at 14:00, and tell Ann Lee", FOUND, LISTED):
        assert LIBRARY[call.tool].problem(call.args) is None


def test_where_the_world_tells_what_is_possible_nothing_else_is_proposed() -> None:
    policy = WordPolicy(LIBRARY)
    state = State(Task("t", "Extend Emma"))
    state = state.at(policy.plan(state))
    possible = [Call("extend_loan", {"loan_id": "loan_1"}), Call("delete_loan", {"loan_id": "loan_1"})]
    assert [each.call for each in policy.propose(state, possible)] == possible


def test_plans_go_from_wish_to_wish() -> None:
    policy = WordPolicy(LIBRARY)
    state = State(Task("t", "Extend the loan of Emma and send a letter to Ann Lee"))
    first = policy.plan(state)
    assert (first.number, first.of) == (0, 2)
    assert "extend_loan" in first.tools
    second = policy.plan(state.at(first))
    assert "letter" in second.text
    done = Taken(Call("extend_loan", {"loan_id": "loan_78"}), Observation("extended"))
    after = state.at(first).after(done, reads=False)
    assert [each.action for each in policy.propose(after, None)] == ["plan"]


def test_after_a_failure_another_value_is_tried() -> None:
    policy = WordPolicy(LIBRARY)
    state = State(Task("t", "Extend all loans of Ann Lee"))
    state = state.at(policy.plan(state)).after(FOUND, reads=True).after(LISTED, reads=True)
    failed = Taken(Call("extend_loan", {"loan_id": "loan_77"}), Observation("Error: reserved by somebody", ok=False))
    reflection = policy.reflect(state, failed)
    assert reflection.critique == "Error: reserved by somebody"
    assert [each.call and dict(each.call.args) for each in reflection.alternatives] == [{"loan_id": "loan_78"}]


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        ("Ann needs her loans extended", "Ann"),
        ("Please be quick. Ann's loan is overdue", "Ann"),
        ("Ann, who is ill, wants more time", "Ann"),
        ("Rename the loan", None),
        ("Extend Ann's loan", None),
        ("Please extend it", None),
        ("Dora.", "Dora"),
        ("2024-05-01 is too early", None),
    ],
)
def test_the_first_word_of_a_sentence_may_be_a_name(request_: str, name: str | None) -> None:
    read = read_request(request_)
    assert [fact.value for fact in read.facts if not fact.sure] == ([name] if name else [])
    assert name not in [fact.value for fact in read.names()]


def test_what_may_be_a_name_is_tried_behind_what_is_one() -> None:
    assert values("find_reader", "name", context("Dune is read by Ann Lee"))[:2] == ["Ann Lee", "Dune"]
    assert Call("find_reader", {"name": "Ann"}) in proposed("Ann needs her loans extended")


def test_where_all_that_was_proposed_led_nowhere_single_words_are_tried() -> None:
    policy = WordPolicy(LIBRARY)
    state = State(Task("t", "extend the loans that dora has"))
    state = state.at(policy.plan(state))
    known = [each.call for each in policy.propose(state, None)]
    others = [each.call for each in policy.widen(state) if each.call is not None and each.call not in known]
    assert Call("find_reader", {"name": "dora"}) in [*known, *others]
    assert Call("find_reader", {"name": "loans"}) in others
    assert all(BOX.reads[each.tool] for each in others if each.args.keys() & {"name", "to", "value"})


def test_it_ends_where_nothing_else_tells() -> None:
    policy = WordPolicy(read_tools(TOOLS), finishes=True)
    state = State(TASK)
    state = state.at(policy.plan(state))
    assert all(each.action == "call" for each in policy.propose(state, None))
    opened = Taken(Call("open_safe", {"key_id": "key_22"}), Observation({"safe": "open"}))
    last = [each for each in policy.propose(state.after(opened, reads=False), None) if each.action == "finish"]
    assert [each.answer for each in last] == ["open"]


def test_words_that_say_nothing_and_words_that_look_like_them() -> None:
    assert stems_of("note")
    assert not stems_of("not the")
    assert stems_of("mail") == stems_of("email")
    assert (
        BOX.relevance(stems_of("extend the loan"))["extend_loan"]
        > BOX.relevance(stems_of("extend the loan"))["send_letter"]
    )
