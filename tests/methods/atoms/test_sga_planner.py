"""The tracker K in private state, and the planner's one structured call: what is accepted, repaired and left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import histories as h
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from openai_server import OpenAIStubServer, make_chat_model
from planned import patterns, plan_call, taught

from langgraph_toolmem import Atoms, ToolMemory, default_methods
from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.planner import PROMPT, PlannedStep, PlannerModel, read
from langgraph_toolmem.atoms.planning import HintPlanner
from langgraph_toolmem.atoms.settings import SGASettings
from langgraph_toolmem.atoms.slots import Slots
from langgraph_toolmem.atoms.tracker import MAX_CHARS, add_facts, mark_of, to_kept, tracked
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.ask import adrive, drive

SLOTS = Slots()
ASKED = "Please check the order of Zoe and mark it"


def run_of(*parts: Any) -> Any:
    return parse_run(h.history(*parts), thread_id="r")


# --- the tracker ---


def test_what_is_new_joins_what_was_known() -> None:
    first = [h.user("Order #W17 of ann@x.org"), h.call("find", {"order_id": "#W17"}, {"city": "Rome"})]
    known = tracked(run_of(*first), SLOTS)
    assert (known.latest("ORDER_ID"), known.latest("EMAIL"), known.latest("CITY")) == ("#W17", "ann@x.org", "Rome")
    kept, read_last = to_kept(known), mark_of(run_of(*first))
    later = tracked(run_of(*first, h.user("And #W18")), SLOTS, kept, read_last)
    assert later.values("CITY") == ["Rome"]
    assert later.values("ID")[-1] == "#W18"


def test_facts_stay_when_their_messages_are_gone() -> None:
    whole = [h.user("Order #W17"), h.call("find", {"order_id": "#W17"}, {"city": "Rome"})]
    kept = to_kept(tracked(run_of(*whole), SLOTS))
    left = run_of(h.user("And where is it now?"))
    known = tracked(left, SLOTS, json.loads(json.dumps(kept)), mark_of(run_of(*whole)))
    assert known.latest("CITY") == "Rome"
    assert tracked(left, SLOTS).latest("CITY") is None


def test_a_fact_of_the_planner_stays_the_latest_until_something_newer_comes() -> None:
    before = [h.user("From Rome"), h.call("find", {"city": "Rome"}, {"ok": True})]
    known = tracked(run_of(*before), SLOTS)
    known.add("CITY", "Oslo")
    kept, read_last = to_kept(known), mark_of(run_of(*before))
    assert tracked(run_of(*before), SLOTS, kept, read_last).latest("CITY") == "Oslo"
    newer = run_of(*before, h.call("find", {"city": "Bern"}, {"ok": True}))
    assert tracked(newer, SLOTS, kept, read_last).values("CITY") == ["Rome", "Oslo", "Bern"]


def test_an_event_that_was_answered_since_is_read_again() -> None:
    pending = [h.user("Go"), *h.call("find", {"order_id": "W1"})[:1]]
    done = [h.user("Go"), *h.call("find", {"order_id": "W1"}, {"city": "Rome"})]
    kept, read_last = to_kept(tracked(run_of(pending), SLOTS)), mark_of(run_of(pending))
    assert tracked(run_of(done), SLOTS, kept, read_last).latest("CITY") == "Rome"


def test_secrets_are_not_kept_under_any_type() -> None:
    run = run_of(h.user("My password is 'hunter22'"), h.call("login", {"user_id": "U1", "password": "hunter22"}))
    known = tracked(run, SLOTS)
    assert "hunter22" not in json.dumps(to_kept(known))
    assert known.latest("USER_ID") == "U1"
    assert add_facts(known, [("API_KEY", "hunter22"), ("token", "hunter22")], "hunter22") == ([], 2)


@pytest.mark.parametrize("value", [2**70, -(2**63) - 1, "\ud800 lone", 1.5, float("inf"), 7, "日本"])
def test_what_is_kept_goes_into_a_checkpoint(value: Any) -> None:
    known = Known({"A": [value, "x"]})
    kept = to_kept(known)
    serde = JsonPlusSerializer()
    assert serde.loads_typed(serde.dumps_typed(kept)) == kept
    assert len(kept["A"]) == 2


def test_it_is_bounded_and_the_latest_stay() -> None:
    known = Known()
    for slot in range(60):
        for each in range(8):
            known.add(f"SLOT_{slot:02}", f"{slot}-{each}-" + "x" * 180)
    kept = to_kept(known)
    assert sum(len(str(value)) for values in kept.values() for value in values) <= MAX_CHARS
    assert list(kept)[-1] == "SLOT_59"
    assert kept["SLOT_59"][-1].startswith("59-7-")
    assert list(kept) == sorted(kept)


@pytest.mark.parametrize("junk", [None, [], "x", {"A": 1}, {"A": None}, {1: ["x"]}])
def test_a_state_that_somebody_wrote_into_is_nothing(junk: Any) -> None:
    assert tracked(run_of(h.user("Order #W17")), SLOTS, junk).latest("ID") == "#W17"


def test_facts_have_to_stand_in_the_material() -> None:
    known = Known()
    given = [("<city>", "Rome "), ("CITY", "Atlantis"), ("", "Rome"), ("CITY", ""), ("T", "r" * 300)]
    assert add_facts(known, given, "from rome to oslo " + "r" * 300) == ([("CITY", "Rome")], 4)
    assert known.to_plain() == {"CITY": ["Rome"]}


# --- reading what the model gave ---


def test_an_answer_is_read_in_any_form() -> None:
    plain = {"next_goal": "find the order", "new_facts": [{"slot": "A", "value": "1"}]}
    step = PlannedStep.model_validate(plain)
    assert step.available_slots == []
    message = AIMessage("Well: ```json\n" + json.dumps(plain) + "\n``` that is it")
    for output in ({"parsed": step}, {"parsed": plain}, {"raw": message, "parsed": None}, message):
        assert read(output) == step


@pytest.mark.parametrize(
    "output",
    [
        None,
        {"parsed": {"next_goal": "  "}},
        {"parsed": {"next_goal": ["x"]}},
        {"raw": AIMessage("{broken"), "parsed": None},
        AIMessage("no braces"),
        ValueError("secret text"),
    ],
    ids=str,
)
def test_what_cannot_be_used_says_why_and_quotes_nothing(output: Any) -> None:
    why = read(output)
    assert isinstance(why, str)
    assert "secret" not in why
    assert "broken" not in why


async def test_one_repair_then_none() -> None:
    script = [AIMessage("nonsense"), plan_call(next_goal="go on")]
    model = ScriptedChatModel(script=script)
    planner = PlannerModel(model)
    outcome = await driven(partial(planner.asking, {"A": "b"}))
    assert outcome.step is not None
    assert (outcome.calls, outcome.step.next_goal) == (2, "go on")
    assert "could not be used" in model.calls[1].messages[-1].text
    worse = PlannerModel(ScriptedChatModel(script=[AIMessage("nonsense"), AIMessage("again")]))
    outcome = await driven(partial(worse.asking, {}))
    assert (outcome.step, outcome.calls) == (None, 2)
    assert "could not be used" in outcome.why


class NoStructure(ScriptedChatModel):
    """A model whose interface knows no structured output."""

    def with_structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def test_a_model_without_structured_output_is_asked_in_words() -> None:
    model = NoStructure(script=['I think {"next_goal": "find it"} fits'])
    outcome = drive(partial(PlannerModel(model).asking, {"What the user asks for": "x"}))
    assert outcome.step is not None
    assert outcome.step.next_goal == "find it"
    assert '"new_facts"' in model.calls[0].messages[-1].text


# --- the call in a step ---


async def driven(body: Callable[[], Any]) -> Any:
    return await adrive(body)


@pytest.fixture(scope="module")
def memory() -> Iterator[ToolMemory]:
    with taught() as made:
        yield made


def planner_of(memory: ToolMemory, failed: Any = None, **settings: Any) -> HintPlanner:
    def no(error: Exception) -> None:
        raise error

    return HintPlanner(memory.atoms, SGASettings(**settings), failed=failed or no)


def after_one(name: str = "Zoe") -> list[Any]:
    return h.history(
        h.user(f"Please check the order of {name} and mark it"),
        h.call("find_customer", {"name": name}, {"customer_id": "C-7", "name": name}),
    )


async def planned(planner: HintPlanner, messages: Any, kept: Any, memory: ToolMemory) -> Any:
    return await driven(partial(planner.planning, messages, memory.core.catalogue.specs, kept))


async def test_over_http_the_planner_says_where_the_run_stands(memory: ToolMemory) -> None:
    answer = {
        "thought": "The customer is found.",
        "new_facts": [{"slot": "customer id", "value": "C-7"}, {"slot": "CITY", "value": "Atlantis"}],
        "state": "The customer Zoe is known",
        "available_slots": ["CUSTOMER_ID", "<customer>"],
        "next_goal": "Get the latest order of Zoe",
    }

    with OpenAIStubServer(reply=lambda request: json.dumps(answer)) as server:
        model = make_chat_model(server)
        step = await planned(planner_of(memory, model=model), after_one(), None, memory)
        await model.root_async_client.close()
        [request] = server.requests
        usage = server.usage
    event = step.event
    assert (event["planned_by"], event["model_calls"]) == ("model", 1)
    assert event["tokens"] == [usage["prompt_tokens"], usage["completion_tokens"]]
    assert event["facts"] == [{"slot": "CUSTOMER_ID", "value": "C-7"}]
    assert event["facts_refused"] == 1
    assert event["goals"] == ["Get the latest order of <CUSTOMER>"]
    assert "Zoe" not in event["state"]
    assert patterns(step.text)[0] == ("latest_order", {"customer_id": "C-7"})
    json.dumps(event)
    system, user = request["messages"]
    assert system["content"] == PROMPT
    assert "CUSTOMER_ID = C-7" in user["content"]
    assert "- The latest order of a customer" in user["content"]
    schema = request["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert set(schema["schema"]["required"]) == set(answer)


async def test_facts_that_the_planner_read_are_kept_for_later_steps(memory: ToolMemory) -> None:
    facts = [{"slot": "colour", "value": "blue"}]
    model = ScriptedChatModel(script=[plan_call(new_facts=facts, next_goal="find the customer")])
    asked = [HumanMessage("Check the order of Zoe, the one with blue shoes", id="u")]
    first = await planned(planner_of(memory, model=model), asked, None, memory)
    assert first.record["slots"]["COLOUR"] == ["blue"]
    kept = json.loads(json.dumps(first.record))
    done = h.call("find_customer", {"name": "Zoe"}, {"customer_id": "C-7"})
    later = await planned(planner_of(memory), [*asked, *done], kept, memory)
    assert later.record["slots"]["COLOUR"] == ["blue"]
    assert later.record["slots"]["CUSTOMER_ID"] == ["C-7"]


@pytest.mark.parametrize(("when", "calls"), [("step", 4), ("goal", 3), ("turn", 1)])
async def test_when_the_model_is_asked(memory: ToolMemory, when: str, calls: int) -> None:
    """Of four steps of one user turn the third comes after a failure."""
    model = ScriptedChatModel(script=lambda messages, tools: plan_call(next_goal="get the latest order"))
    planner = planner_of(memory, model=model, when=when)
    history: list[Any] = [HumanMessage(ASKED, id="u")]
    kept, said = None, []
    one = h.call("find_customer", {"name": "Zoe"}, {"customer_id": "C-7"})
    two = h.call("latest_order", {"customer_id": "C-7"}, h.FAILED)
    three = h.call("latest_order", {"customer_id": "C-7"}, {"order_id": "O-7"})
    for more in ([], one, two, three):
        history = [*history, *more]
        step = await planned(planner, history, kept, memory)
        kept = {**(kept or {}), **json.loads(json.dumps(step.record))}
        said.append(step.event["planned_by"])
    # After the failure is mended, what is open is what it was before: that is a change again.
    assert len(model.calls) in (calls, calls + 1 if when == "goal" else calls)
    assert said[0] == "model"
    assert set(said[1:]) == (
        {"model"} if when == "step" else {"model", "model, before"} if when == "goal" else {said[1]}
    )


async def test_small_talk_finds_nothing_and_goes_on_with_what_was_open(memory: ToolMemory) -> None:
    model = ScriptedChatModel(script=[])
    hello = await planned(planner_of(memory, model=model), [HumanMessage("Hello!")], None, memory)
    assert (hello.text, hello.event["why"], model.calls) == ("", "nothing is asked for", [])
    first = await planned(planner_of(memory), after_one(), None, memory)
    history = [*after_one(), *h.words("Shall I go on?"), h.user("Yes, please")]
    yes = await planned(planner_of(memory), history, first.record, memory)
    assert yes.event["goals"] == first.event["goals"]
    assert "latest_order" in [tool for tool, _ in patterns(yes.text)]


async def test_a_call_that_was_made_is_no_hint_and_the_next_of_a_list_is() -> None:
    tools = [
        h.schema("list_orders", "customer_id") | {"description": "List the orders of a customer."},
        h.schema("mark_order", "order_id") | {"description": "Mark an order."},
    ]

    def history(customer: str, listed: list[str], done: list[str]) -> list[Any]:
        return h.history(
            h.user(f"Mark all orders of customer {customer}"),
            h.call("list_orders", {"customer_id": customer}, {"orders": [{"order_id": each} for each in listed]}),
            *(h.call("mark_order", {"order_id": each}, {"marked": True}) for each in done),
        )

    orders = ["#W71", "#W72", "#W73"]
    with ToolMemory.ephemeral(tools=tools, methods=default_methods(Atoms(keep=True))) as memory:
        for i in range(4):
            past = [f"#W{i}1", f"#W{i}2"]
            memory.finish([*history(f"C-{i}00", past, past), h.words()], thread_id=str(i), success=True)
        memory.flush()
        planner = planner_of(memory)
        done: list[str] = []
        for _ in orders:
            step = await planned(planner, history("C-777", orders, done), None, memory)
            [(name, args)] = patterns(step.text)
            assert name == "mark_order"
            done.append(args["order_id"])
            why = {each["tool"]: each["why_not"] for each in step.event["candidates"]}
            assert why == {"mark_order": "", "list_orders": "called already"}
        assert sorted(done) == orders
        step = await planned(planner, history("C-777", orders, done), None, memory)
        assert step.text == ""
        assert {each["why_not"] for each in step.event["candidates"]} == {"called already"}


def whole(name: str, *, last: Any = None, steps: int = 3) -> list[Any]:
    found = {"customer_id": "C-7", "name": name}
    noted = {"order_id": "O-7", "note": f"{name} is checked"}
    calls = [
        h.call("find_customer", {"name": name}, found),
        h.call("latest_order", {"customer_id": "C-7"}, {"order_id": "O-7", "state": "shipped"}),
        h.call("add_note", noted, {"saved": True}) if last is None else last,
    ]
    return h.history(h.user(f"Please check the order of {name} and mark it"), *calls[:steps])


async def test_when_requests_like_this_one_ended_here_the_work_is_done(memory: ToolMemory) -> None:
    planner = planner_of(memory)
    for steps in (1, 2):
        assert (await planned(planner, whole("Zoe", steps=steps), None, memory)).done is None
    step = await planned(planner, whole("Zoe"), None, memory)
    assert (step.done.ended, step.done.asked) == (6, 6)
    assert step.text.startswith("In 6 of 6 past requests like this one")
    assert patterns(step.text) == []
    assert step.event["why"] == "the work is done, as past requests went"
    plain = await planned(planner_of(memory, plain=True), whole("Zoe"), None, memory)
    assert plain.done is None  # as published
    failed = h.call("add_note", {"order_id": "O-7", "note": "x"}, h.FAILED)
    assert (await planned(planner, whole("Zoe", last=failed), None, memory)).done is None
    other = [h.user("Which customers live in Bern?"), *whole("Zoe")[1:]]
    assert (await planned(planner, other, None, memory)).done is None


def test_what_ended_here_half_of_the_time_is_not_done() -> None:
    with taught(2) as memory:  # two are no habit
        assert drive(partial(planner_of(memory).planning, whole("Zoe"), memory.core.catalogue.specs, None)).done is None
        for i in range(2):
            more = [*whole(f"Kim{i}"), *h.call("find_customer", {"name": "Bo"}, {"customer_id": "C-9"}), h.words()]
            memory.finish(more, thread_id=f"more-{i}", success=True)
        assert memory.flush()
        assert drive(partial(planner_of(memory).planning, whole("Zoe"), memory.core.catalogue.specs, None)).done is None


async def test_the_budget_leaves_the_worst_out_and_says_so(memory: ToolMemory) -> None:
    wide = await planned(planner_of(memory, plain=True), [HumanMessage(ASKED)], None, memory)
    narrow = await planned(planner_of(memory, budget=25, plain=True), [HumanMessage(ASKED)], None, memory)
    assert len(patterns(wide.text)) == 3
    assert patterns(narrow.text) == patterns(wide.text)[:1]
    assert [each["why_not"] for each in narrow.event["candidates"]][:3] == ["", *["no room in the prompt"] * 2]
    one = await planned(planner_of(memory, k=1, plain=True), [HumanMessage(ASKED)], None, memory)
    assert [each["why_not"] for each in one.event["candidates"]][:3] == ["", *["others fit better"] * 2]


def test_tools_the_planner_reads_of_are_bounded(memory: ToolMemory) -> None:
    many = read_tools([h.schema(f"tool_{i}", "x") | {"description": "d" * 500 + str(i)} for i in range(100)])
    model = ScriptedChatModel(script=lambda messages, tools: plan_call(next_goal="x"))
    long = h.history(h.user("y" * 50_000), h.call("tool_1", {"x": "z" * 9_000}, "o" * 9_000))
    drive(partial(planner_of(memory, model=model).planning, long, many, None))
    assert len(model.calls[0].messages[-1].text) < 14_000
