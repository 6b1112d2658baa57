"""What atoms look like: nothing of a person's data is left, near-identical steps are one."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from histories import FAILED, atoms_of, call, known_of, run_of, schema, user
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.atoms.abstract import Pattern, applied
from langgraph_toolmem.atoms.atoms import make_atom, merge_all, to_plain
from langgraph_toolmem.atoms.extract import distil
from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.mask import Habits, mask
from langgraph_toolmem.atoms.retrieve import filled
from langgraph_toolmem.atoms.situation import parts_of
from langgraph_toolmem.atoms.slots import Slots
from langgraph_toolmem.atoms.words import is_in, names_in
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.text.values import delexicalised

TOOLS: list[dict[str, Any]] = [
    schema("find_person", "name") | {"description": "Find the email address of a colleague."},
    schema("send_mail", "recipient subject body") | {"description": "Send an email."},
    schema("search_events", "query", "limit:integer") | {"description": "Search events. Terms will be matched."},
    schema("delete_event", "event_id") | {"description": "Delete an event."},
    schema("pay", "order_id amount:number", "budget_limit:number precision:integer") | {"description": "Pay an order."},
    schema("book", "user_id", "flights:array passengers:integer") | {"description": "Book flights."},
    schema("order_total", "order_id") | {"description": "What an order costs."},
]
TOOLS[2]["parameters"]["properties"]["query"]["description"] = (
    "Query to search for. Terms will be matched in the event_name and participant_email fields."
)
SPECS = read_tools(TOOLS)
SLOTS = Slots(SPECS)


def masked(tool: str, args: dict[str, Any], known: Known | None = None, **how: Any) -> Any:
    return mask(tool, args, SLOTS, known or Known(), **({"habits": Habits()} | how))


# --- values in texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Cancel W2 please", "Cancel <ID> please"),
        ("at 5pm, at 14:30", "at <TIME>, at <TIME>"),
        ("on 03.05.2024 or 2024/05/03 or 5/3/24", "on <DATE> or <DATE> or <DATE>"),
        ("on 3 May 2024, in May, since June 2023", "on <DATE>, in <DATE>, since <DATE>"),
        ("since November 2", "since <DATE>"),
        ("pay 20 euros, EUR 20, 1.234,56 € and 50k dollars", "pay <AMOUNT>, <AMOUNT>, <AMOUNT> and <AMOUNT>"),
        ("twenty-five dollars for two people", "<AMOUNT> for two people"),
        ("call 030/1234567", "call <PHONE>"),
        ("from 192.168.0.1 to aa:bb:cc:00:11:22", "from <ID> to <ID>"),
        ("SSN 123-45-6789, card 4242-4242-4242-4242", "SSN <ID>, card <ID>"),
        ("see www.x.org/foo", "see <URL>"),
        ("tell @dr_smith about #holidays", "tell @<NAME> about #<TEXT>"),
        ("my password is hunter. Go on", "my password is <TEXT>. Go on"),
        ("api key: k-12x", "api key: <TEXT>"),
        ("Отмени заказ Ивана Петрова", "Отмени заказ <NAME>"),
        ("wegen Jürgen Müller", "wegen <NAME>"),
        ("McDonald wants it, to Ludwig van der Berg", "<NAME> wants it, to <NAME>"),
        ("Suche den Kunden Jürgen Müller", "Suche den <NAME>"),
        ("version two of 3 items", "version two of <NUMBER> items"),
    ],
)
def test_values_in_many_forms_are_taken_out(text: str, told: str):
    assert delexicalised(text) == told


def test_a_value_stands_in_a_text_as_words_of_its_own():
    assert is_in("10", "the 10 best")
    assert not is_in("10", "the 100 best")
    assert not is_in("10", "10.5 of them")
    assert is_in("1500", "for $1,500.")
    assert is_in("ann", "ann, please")
    assert not is_in("ann", "annotate it")
    assert not is_in("x", "")


def test_mail_addresses_name_persons_and_mailboxes_do_not():
    assert names_in("ann.lee2@x.org") == ["ann", "lee"]
    assert names_in("support@x.org") == names_in("@") == names_in("") == []


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60), st.text(min_size=1, max_size=6))
def test_any_text_can_be_asked_for_any_value(text: str, value: str):
    assert is_in(value, text) <= (value in text or value.isdigit())
    assert "\n" not in delexicalised(text, {value: "X"}, also=[value])
    parts_of(text)


# --- privacy -------------------------------------------------------------------------------------------------


def office(request: str, name: str = "yuki", thread_id: str = "r") -> Any:
    return run_of(
        user(request),
        call("find_person", {"name": name}, [f"{name}.park@x.org"]),
        call("send_mail", {"recipient": f"{name}.park@x.org", "subject": "Hello", "body": "see you at the pier"}),
        thread_id=thread_id,
    )


def test_a_name_in_small_letters_that_a_later_call_uses_is_in_no_atom():
    for atom in atoms_of(office("ask yuki about the plan, and say see you at the pier"), SPECS):
        assert "yuki" not in json.dumps(to_plain(atom))
        assert "pier" not in json.dumps(to_plain(atom))


def test_a_name_in_a_mail_address_is_in_no_atom():
    run = run_of(
        user("move kofi's things and those of park tell lena"),
        call("send_mail", {"recipient": "kofi.park@x.org", "subject": "a b", "body": "c d"}, {"cc": "lena@x.org"}),
    )
    (atom,) = atoms_of(run, SPECS)
    assert atom.goal == "move <NAME>'s things and those of <NAME> tell <NAME>"


def test_what_a_failed_call_was_given_is_in_no_atom():
    run = run_of(
        user("meet with kofi"),
        call("find_person", {"name": "kofi"}, FAILED),
        call("search_events", {"query": "meeting"}, [{"id": "e1"}]),
    )
    (atom,) = atoms_of(run, SPECS)
    assert atom.goal == "meet with <PERSON>"
    assert "kofi" not in json.dumps(to_plain(atom))


def test_names_of_other_runs_are_known_where_runs_are_read_together():
    other = run_of(user("cancel all with yuki"), call("delete_event", {"event_id": "e_1"}), thread_id="r2")
    alone = distil([other], SPECS)
    both = distil([office("ask yuki"), other], SPECS)
    assert [atom.goal for atom in alone] == ["cancel all with yuki"]  # nothing tells that it is a name
    assert "yuki" not in json.dumps([to_plain(atom) for atom in both])


def test_words_of_the_tools_stay_in_sub_goals():
    run = run_of(user("look for an event of email"), call("search_events", {"query": "event"}, [{"id": "e1"}]))
    assert atoms_of(run, SPECS)[0].goal == "look for an event of email"


def test_a_person_never_stays_even_if_there_are_few_of_them():
    runs = [office("ask", name=("Yuki", "Kofi")[i % 2], thread_id=str(i)) for i in range(12)]
    assert masked("find_person", {"name": "Yuki"}, habits=Habits(runs)).arguments == {"name": "<PERSON>"}


# --- slots and literals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "pattern"),
    [
        ({"amount": 43.85}, {"amount": "<PAY_AMOUNT>"}),
        ({"amount": 5000}, {"amount": "<PAY_AMOUNT>"}),
        ({"budget_limit": 1500}, {"budget_limit": "<BUDGET_LIMIT>"}),
        ({"precision": 2}, {"precision": 2}),
        ({"amount": 0}, {"amount": 0}),
        ({"precision": None, "x": "", "y": [], "z": {}}, {"precision": None, "x": "", "y": [], "z": {}}),
    ],
)
def test_numbers_that_are_values_of_the_day_do_not_stay(args: dict[str, Any], pattern: dict[str, Any]):
    assert masked("pay", args).arguments == pattern


def test_a_number_that_varies_from_run_to_run_does_not_stay():
    runs = [run_of(user("x"), call("book", {"user_id": "u_1", "passengers": n}), thread_id=str(n)) for n in (2, 3)]
    assert masked("book", {"passengers": 2}).arguments == {"passengers": 2}
    assert masked("book", {"passengers": 2}, habits=Habits(runs)).arguments == {"passengers": "<PASSENGER>"}


def test_a_number_in_another_number_came_from_nowhere():
    assert masked("search_events", {"top_n": 10}, text="the 100 first").arguments == {"top_n": 10}
    assert masked("book", {"passengers": 10}, text="10 of us").arguments == {"passengers": "<PASSENGER>"}


def test_a_small_number_is_not_called_what_another_answer_called_it():
    known = Known({"SEAT_COUNT": [3], "NUMBER": [3]})
    found = masked("book", {"passengers": 3}, known, text="for 3", answered=["3"])
    assert found.arguments == {"passengers": "<PASSENGER>"}


def test_what_only_another_call_was_given_is_not_needed():
    run = run_of(user("Delete it twice"), *(call("delete_event", {"event_id": "e_1"}, {"ok": True}) for _ in range(2)))
    atoms = atoms_of(run, SPECS)
    assert [atom.required_slots for atom in atoms] == [(), ()]
    assert len(merge_all(atoms)) == 1


def test_words_that_are_no_nouns_name_no_type():
    assert SLOTS.parameter("search_events", "query").label == "QUERY"


def test_a_word_of_the_sentence_before_says_nothing_of_a_value():
    known = known_of(run_of(user("My zip code is 90819. For #W17X, change it")), read_tools([schema("f", "zip")]))
    assert known.values("ZIPCODE") in ([90819], ["90819"])


def test_several_things_of_one_kind_are_the_same_pattern_as_one():
    flights = [{"number": f"HAT{n}", "date": f"2024-05-0{n}"} for n in (1, 2, 3)]
    one, several = (masked("book", {"flights": some}).arguments for some in (flights[:1], flights))
    assert one == several
    different = [{"number": "HAT1"}, {"number": "HAT2", "cabin": True}]
    assert len(masked("book", {"flights": different}).arguments["flights"]) == 2


def test_a_slot_is_filled_by_a_type_that_no_other_comes_near():
    assert filled({"amount": "<ORDER_TOTAL>"}, Known({"TOTAL": [12.5]})) == {"amount": 12.5}
    assert filled({"amount": "<TOTAL>"}, Known({"ORDER_TOTAL": [12.5]})) == {"amount": 12.5}
    assert filled({"order": "<ORDER_ID>"}, Known({"ID": ["#W17X"]})) == {"order": "#W17X"}
    for known in (
        Known({"ORDER_TOTAL": [1], "ITEM_TOTAL": [2]}), Known({"NAME": ["Ann"]}), Known({"ORDER_TOTAL": [1, 2]}),
    ):  # fmt: skip
        assert filled({"amount": "<TOTAL>"}, known) == {"amount": "<TOTAL>"}
    both = Known({"ID": ["#W17X", "u_1"], "USER_ID": ["u_1"]})
    assert filled({"order": "<ORDER_ID>"}, both) == {"order": "<ORDER_ID>"}  # one of two, nobody knows which
    assert filled({"order": "<ORDER_ID>"}, Known({"USER_ID": ["u_1"]})) == {"order": "<ORDER_ID>"}


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"to": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
        {"type": "object", "properties": {"to": {"$ref": "#/$defs/To"}}, "$defs": {"To": {"type": "string"}}},
        {"type": "object", "properties": {"to": {"$ref": "#/$defs/No"}}},
        {"type": "object"},
        {},
    ],
    ids=["any", "ref", "broken", "bare", "empty"],
)
def test_schemas_of_all_sorts_give_atoms(parameters: dict[str, Any]):
    specs = read_tools([{"name": "ping", "parameters": parameters}])
    run = run_of(user("أرسل إلى ann@x.org \ud800 الآن"), call("ping", {"to": "ann@x.org", "n": [{"a": None}]}))
    (atom,) = atoms_of(run, specs)
    assert atom.arguments == {"to": "<EMAIL>", "n": [{"a": None}]}
    json.dumps(to_plain(atom)).encode()
    assert "\ud800" not in atom.goal


# --- a chat model's wording ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["tell Yuki", "meet at the pier tonight with kim", "send to kim@x.org", "write on 2024-05-01"]
)
def test_a_value_of_the_request_that_a_model_leaves_in_is_taken_out(text: str):
    request = "ask yuki and Kim (kim@x.org) about 'the pier' on 2024-05-01"
    run = office(request)
    step = run.events[1].steps[0]
    draft = atoms_of(run, SPECS)[0]
    atom = applied(Pattern(state=text, goal=text), draft, step, request=request)
    for value in ("yuki", "kim", "pier", "2024-05-01"):
        assert value not in (atom.goal + atom.state).lower()
    assert atom.goal


# --- merging -------------------------------------------------------------------------------------------------

DRAWN = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y"]), st.sampled_from(["s", "t"]), st.integers(1, 3)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(DRAWN, st.randoms(use_true_random=False))
def test_merging_does_not_depend_on_the_order(drawn: list[tuple[str, str, str, int]], draw: random.Random):
    atoms = [
        make_atom(
            state=state, goal=goal, tool=tool, visits=visits, sources=[f"{tool}{goal}{visits}"],
            arguments={"p": 1, "q": 2} if visits % 2 else {"q": 2, "p": 1},
        )
        for tool, goal, state, visits in drawn
    ]  # fmt: skip
    shuffled = list(atoms)
    draw.shuffle(shuffled)
    one, other = (sorted(json.dumps(to_plain(each)) for each in merge_all(some)) for some in (atoms, shuffled))
    assert one == other
    assert len(one) == len({tool for tool, *_ in drawn})


def test_different_calls_are_kept_apart():
    atoms = [make_atom(state="", goal="", tool="plot", arguments={"kind": kind}) for kind in ("bar", "line", True, 1)]
    assert len(merge_all(atoms)) == 4
