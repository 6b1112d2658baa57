"""Values come from the present run or not at all: prompt, context, request; whole values, whole calls."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from histories import Learner, call, history, reading, run_of, user, words

from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.graph.provenance import Provenance
from langgraph_toolmem.graph.state import RunState, slot_key
from langgraph_toolmem.graph.tool_graph import HIT
from langgraph_toolmem.runs.run import ModelInput

FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)
TOOL = [reading("list_invoices", "account")]
ASKS = ("Which invoices are open?", "Show open invoices", "open invoices please", "Are there open invoices?")


def prompt(account: str) -> ModelInput:
    return ModelInput(f"You work for the account {account}", complete=True)


def context(account: str) -> ModelInput:
    return ModelInput(context={"account": account}, complete=True)


def long_prompt(account: str) -> ModelInput:
    rules = "\n".join(f"Rule {number}: answer with care." for number in range(300))
    return ModelInput(f"{rules}\nAccount: {account} (gold)\n{rules}", complete=True)


def hidden(account: str) -> ModelInput:
    return ModelInput(f"You work for the account {account}", {"account": account})


def accounts_made(learner: Learner, seen: ModelInput, text: str = ASKS[0]) -> list[Any]:
    """The accounts in all calls that are weighed, whether they may be made or not."""
    decision = learner.decide(user(text), seen=seen)
    return [args["account"] for option in decision.options for args in option.calls if "account" in args]


def learn(learner: Learner, account: str, seen: ModelInput, number: int, text: str = "") -> None:
    asked = user(text or ASKS[number % len(ASKS)])
    made = call("list_invoices", {"account": account}, "none")
    learner.learn(asked, made, words(), thread_id=str(number), seen=seen, user=f"u{number % 7}")


@pytest.mark.parametrize("where", [prompt, context, long_prompt])
@pytest.mark.parametrize("accounts", [("acc_7781", "acc_9902"), ("acme", "globex corp")])
def test_another_tenant_gets_the_tenants_own_account_or_none(where: Any, accounts: tuple[str, str]):
    mine, others = accounts
    learner = Learner(TOOL, FREE)
    for number in range(20):
        learn(learner, mine, where(mine), number)

    assert accounts_made(learner, where(mine)) == [mine]
    assert accounts_made(learner, where(others)) == [], "one value is no evidence for the place"
    learn(learner, others, where(others), 20)
    assert accounts_made(learner, where(others)) == [others]
    assert accounts_made(learner, where("a third one")) == ["a third one"]


def test_where_the_input_is_incomplete_prompt_and_context_give_nothing():
    learner = Learner(TOOL, FREE)
    for number in range(20):
        learn(learner, f"acc_{number % 3}", hidden(f"acc_{number % 3}"), number)

    assert accounts_made(learner, hidden("acc_1")) == []


def test_a_date_follows_the_day_of_the_prompt():
    learner = Learner([reading("list_meetings", "date")], FREE)
    for number in range(12):
        day = f"2026-03-{number + 1:02}"
        made = call("list_meetings", {"date": f"2026-03-{number + 2:02}"}, "none")
        seen = ModelInput(f"Today is Monday, {day}, 09:00.", complete=True)
        learner.learn(user("What is on tomorrow?"), made, words(), thread_id=str(number), seen=seen)
    later = ModelInput("Today is Friday, 2026-07-31, 09:00.", complete=True)
    decision = learner.decide(user("What is on tomorrow?"), seen=later)

    assert [args for option in decision.options for args in option.calls] == [{"date": "2026-08-01"}]


def test_tomorrow_is_asked_for_until_two_days_agreed_and_never_answered_with_today():
    learner = Learner([reading("list_meetings", "date")], FREE)
    asks = {0: ("What is on today?", "my meetings of today please"), 1: ("What is on tomorrow?", "And tomorrow?")}

    def context_of(day: int) -> ModelInput:
        return ModelInput(context={"today": f"2026-03-{day:02}"}, complete=True)

    def dates(text: str, day: int) -> list[Any]:
        decision = learner.decide(user(text), seen=context_of(day))
        return [args["date"] for option in decision.options for args in option.calls if "date" in args]

    for day in (1, 2, 3):
        before = {later: dates(asks[later][0], day) for later in asks}
        if day < 3:
            assert before[1] == []
        else:
            assert before == {0: ["2026-03-03"], 1: ["2026-03-04"]}
        for number, (later, texts) in enumerate(asks.items()):
            for text in texts:
                made = call("list_meetings", {"date": f"2026-03-{day + later:02}"}, "none")
                thread = f"{day} {number} {text}"
                learner.learn(user(text), made, words(), thread_id=thread, seen=context_of(day))


def test_a_request_that_names_somebody_else_is_not_answered_from_the_prompt():
    learner = Learner(TOOL, FREE)
    for number in range(20):
        learn(learner, f"C{number}", prompt(f"C{number}"), number)

    assert accounts_made(learner, prompt("C170")) == ["C170"]
    assert accounts_made(learner, prompt("C170"), "Show open invoices of C820") == []


def test_places_are_learned_after_a_restart_too(tmp_path: Path):
    policy, asked = FREE.with_(shadow=True), history(user(ASKS[0]))
    for account in ("acc_1", "acc_2", "acc_3"):
        with ToolMemory(tmp_path, tools=TOOL) as memory:
            memory.inertia.begin_turn(asked, owner=Owner(account), policy=policy, model_input=context(account))
        with ToolMemory(tmp_path, tools=TOOL) as memory:
            run = history(asked, call("list_invoices", {"account": account}), words())
            memory.finish(run, thread_id=account)
            row = memory.core.graph.sources.row(slot_key("list_invoices", "account"))

    assert row["xf|account"][HIT] == 3
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"You work for" not in files


def test_a_date_near_one_in_a_result_is_learned_beside_the_prompts(tmp_path: Path):
    tools = [reading("get_order", "order"), reading("list_visits", "date")]
    with ToolMemory(tmp_path, tools=tools) as memory:
        for number in range(6):
            asked = history(user(f"When does somebody come for O-{number}1?"))
            found = call("get_order", {"order": f"O-{number}1"}, {"due": f"2026-03-1{number}"})
            after = call("list_visits", {"date": f"2026-03-1{number + 2}"}, "none")
            seen = ModelInput("Today is 2026-02-20.", complete=True)
            parts = (asked, history(asked, found), history(asked, found, after))
            for messages in parts:
                policy = FREE.with_(shadow=True)
                memory.inertia.begin_turn(messages, owner=Owner(str(number)), policy=policy, model_input=seen)
            memory.finish(history(*parts[-1], words()), thread_id=str(number))
        asked = history(
            user("When does somebody come for O-91?"), call("get_order", {"order": "O-91"}, {"due": "2026-04-29"})
        )
        options = memory.inertia.explain(asked, system="Today is 2026-02-20.").options

    assert {"date": "2026-05-01"} in [dict(args) for option in options for args in option.calls]


def test_a_host_without_a_node_reports_the_input_itself():
    asked = user(ASKS[0])
    with ToolMemory.ephemeral(tools=TOOL) as memory:
        for number, how in enumerate(({"system": "You serve acc_1 only"}, {"context": {"account": "acc_2"}})):
            account = f"acc_{number + 1}"
            run = history(asked, call("list_invoices", {"account": account}), words())
            memory.observe(run, thread_id=account, **how)
            memory.finish(run, thread_id=account, **how)
        row = memory.core.graph.sources.row(slot_key("list_invoices", "account"))
        with pytest.raises(ConfigurationError):
            memory.observe(history(asked), system=7)

    assert row["pa|serve|only"][HIT] == row["xf|account"][HIT] == 1


def test_private_fields_of_the_context_are_neither_used_nor_kept(tmp_path: Path):
    def foreseen(memory: ToolMemory, account: str) -> list[Any]:
        context = {"account": account, "plan": "basic"}
        options = memory.inertia.explain(history(user(ASKS[0])), context=context).options
        return [args["account"] for option in options for args in option.calls if "account" in args]

    for private, seen in (((), ["acc_9"]), (("account",), [])):
        with ToolMemory(tmp_path / str(len(private)), tools=TOOL, private=private) as memory:
            for number in range(6):
                account = f"acc_{number % 3}"
                run = history(user(ASKS[number % 2]), call("list_invoices", {"account": account}), words())
                memory.finish(run, thread_id=str(number), context={"account": account, "plan": "basic"})
            row = memory.core.graph.sources.row(slot_key("list_invoices", "account"))
            assert ("xf|account" in row) is not bool(private)
            assert foreseen(memory, "acc_9") == seen


def test_a_role_in_the_context_counts_as_a_value_that_decides():
    learner = Learner([reading("list_salaries")], FREE)
    asks = ("What do people earn?", "Show the salaries", "salaries please")

    def context_of(role: str, number: int) -> ModelInput:
        return ModelInput(context={"role": role, "tenant": f"acc_{number}"}, complete=True)

    for number in range(60):
        may = number % 10 > 0
        made = call("list_salaries", {}, "none") if may else []
        seen = context_of("manager" if may else "trainee", number)
        learner.learn(user(asks[number % 4 % 3]), made, words(), thread_id=str(number), seen=seen)
    decisions = {role: learner.decide(user(asks[0]), seen=context_of(role, 77)) for role in ("manager", "trainee")}

    assert {role: decision.acts for role, decision in decisions.items()} == {"manager": True, "trainee": False}
    assert decisions["trainee"].code == "cases"
    assert not learner.decide(user(asks[0]), seen=context_of("auditor", 78)).acts, "a role that was never seen"


def test_predict_and_explain_take_the_prompt():
    with ToolMemory.ephemeral(tools=TOOL) as memory:
        for number in range(6):
            run = history(user(ASKS[number % 2]), call("list_invoices", {"account": f"acc_{number}"}), words())
            memory.finish(run, thread_id=str(number), system=f"You serve acc_{number} only")
        asked = history(user(ASKS[0]))
        options = memory.inertia.explain(asked, system="You serve acc_77 only").options
        assert [dict(args) for option in options for args in option.calls] == [{"account": "acc_77"}]
        assert [args for option in memory.inertia.explain(asked).options for args in option.calls] == []
        with pytest.raises(ConfigurationError):
            memory.inertia.predict(asked, system=7)
        with pytest.raises(ConfigurationError):
            ToolMemory.ephemeral(private="account")


# --- whole values ---

CITIES = ("Basel", "Paris", "Lisbon", "Rome", "Oslo", "Vienna")
NAMES = ("Anna Petit", "Igor Petrov", "Madonna", "王伟", "Maria del Carmen", "Lena Brandt")
FORMS = ("Book a hotel in {} please", "What is there in {}?", "Find rooms in {}")
PAYS = ("Pay {} 12.50 for lunch", "Call {} back", "Is the account of {} open?")


def looked_up(learner: Learner, text: str) -> list[Any]:
    decision = learner.decide(user(text))
    return [args["name"] for option in decision.options for args in option.calls if "name" in args]


def searching(values: tuple[str, ...], forms: tuple[str, ...]) -> Learner:
    learner = Learner([reading("find", "name")], FREE)
    for number, value in enumerate(values):
        for form in forms:
            made = call("find", {"name": value}, {"id": f"id-{number}"})
            learner.learn(user(form.format(value)), made, words(), thread_id=f"{value} {form}")
    return learner


def test_a_longer_value_is_asked_once_and_whole_from_then_on():
    learner = searching(CITIES, FORMS)

    assert [looked_up(learner, form.format("Madrid")) for form in FORMS] == [["Madrid"]] * 3
    assert not any(looked_up(learner, form.format("New York")) for form in FORMS), "no record tells how far it reaches"
    for form in FORMS:
        asked = user(form.format("New York"))
        learner.learn(asked, call("find", {"name": "New York"}), words(), thread_id=form)
    for form in FORMS:
        assert looked_up(learner, form.format("Hong Kong")) == ["Hong Kong"]


def test_names_of_one_two_and_three_words_and_without_capitals_are_whole():
    learner = searching(NAMES, PAYS)
    for name in ("Sukarno", "Tomasz Zielak", "Ana de la Cruz", "李娜"):
        for form in PAYS:
            assert looked_up(learner, form.format(name)) in ([name], []), form
        assert looked_up(learner, PAYS[1].format(name)) == [name]


def test_a_name_is_not_cut_where_a_word_without_a_capital_may_belong_to_it():
    learner = searching((*CITIES, "New York", "Jose Marti"), FORMS[1:])
    asks = [form.format("San jose") for form in FORMS[1:]]

    assert [looked_up(learner, form.format("Madrid")) for form in FORMS[1:]] == [["Madrid"]] * 2
    assert not any(looked_up(learner, text) for text in asks)
    for text in asks:
        learner.learn(user(text), call("find", {"name": "San jose"}), words(), thread_id=text)
    assert [looked_up(learner, text) for text in asks] == [["San jose"]] * 2


def test_a_name_that_begins_the_request_is_not_cut_to_its_last_word():
    learner = searching(("Nunez", "Igor", "Tomasz", "Petit"), ("{}: address please", "Show {} please"))

    assert looked_up(learner, "Tomasz Nunez: address please") in ([], ["Tomasz Nunez"])
    assert looked_up(learner, "Show Nunez please") == ["Nunez"]
    assert looked_up(learner, "Nunez: address please") == ["Nunez"]


@pytest.mark.parametrize("seed", range(4))
def test_a_value_carried_from_another_request_does_not_take_the_rest_of_the_sentence_along(seed: int):
    """A model that takes the full stop with the date makes the end of the sentence look like the end of the value."""
    rng = random.Random(seed)
    learner = Learner([reading("find_flights", "date")], FREE)
    short = ("Is there a flight from {} to Rome on {}?", "Book a flight from {} to Rome on {}.")
    longer = "Book a flight from {} to Rome on {} and a hotel in {}."
    for number in range(40):
        form = rng.choice((longer, *short))
        asked = form.format(rng.choice(CITIES), f"2026-12-{rng.randint(1, 28):02}", rng.choice(CITIES))
        for option in learner.decide(user(asked)).predicted:
            assert not [args for args in option.calls if "hotel" in str(args)]
        date = asked.partition(" on ")[2].partition(" ")[0]
        made = call("find_flights", {"date": date}, {"id": f"f{number}"})
        learner.learn(user(asked), made, words(), thread_id=str(number))


def provenance_of(*parts: Any) -> Provenance:
    with ToolMemory.ephemeral() as memory:
        return Provenance(memory.core.graph, RunState.of(run_of(*parts)))


def test_the_latest_outputs_are_those_of_the_latest_calls():
    """A tool that was called first, and again at the end, has the latest output."""
    others = [call(f"tool_{number}", {}, f"value-{number}") for number in range(9)]
    provenance = provenance_of(user("Go on"), call("first", {}, "old"), *others, call("first", {}, "fresh-7"))

    assert provenance.shows("fresh-7")
    assert not provenance.shows("value-0")


@pytest.mark.parametrize("time", ["10:45", "14:30:00"])
def test_a_moment_is_made_of_the_users_day_and_time(time: str):
    provenance = provenance_of(user(f"Book it in 2023 on November 30 at {time}"))

    assert provenance.shows(f"2023-11-30 {time}")
    assert not provenance.shows("2023-11-30 11:15:00")


# --- whole calls ---


def test_an_argument_that_the_model_mostly_gave_is_not_left_out():
    learner = Learner([reading("get_links", "", "count:integer")], FREE)
    for number in range(12):
        learner.learn(user("Give me the links"), call("get_links", {"count": 2}), words(), thread_id=str(number))
    decision = learner.decide(user("Give me the links"))
    assert [option.calls for option in decision.options if option.tool == "get_links"] == []

    learner = Learner([reading("get_links", "", "count:integer")], FREE, constants={"get_links.count"})
    for number in range(12):
        learner.learn(user("Give me the links"), call("get_links", {"count": 2}), words(), thread_id=str(number))
    decision = learner.decide(user("Give me the links"))
    assert [dict(args) for option in decision.options for args in option.calls] == [{"count": 2}]


def test_an_argument_that_the_model_mostly_left_out_may_be_left_out():
    learner = Learner([reading("get_links", "", "count:integer")], FREE)
    for number in range(12):
        args = {"count": 7} if number == 5 else {}
        learner.learn(user("Give me the links"), call("get_links", args), words(), thread_id=str(number))
    decision = learner.decide(user("Give me the links"))

    assert [dict(args) for option in decision.options for args in option.calls] == [{}]


@pytest.mark.parametrize("given", [{"limit"}, {".limit"}, {"search."}, "search.limit", [7]])
def test_constants_name_tool_and_parameter(given: Any):
    with pytest.raises(ConfigurationError):
        ToolMemory.ephemeral(constants=given)


def test_the_reason_says_that_a_value_or_the_tool_is_missing():
    run = [user(ASKS[0]), call("list_invoices", {"account": "A-1"}, "none"), words("None.")]
    with ToolMemory.ephemeral(reads={"list_invoices"}, tools=TOOL) as memory:
        for number in range(12):
            run[1] = call("list_invoices", {"account": f"A-{number}"}, "none")
            memory.observe(history(*run), thread_id=str(number))
        asked = history(user(ASKS[0]))
        assert memory.inertia.explain(asked).code == "no_value"
        assert memory.inertia.begin_turn(asked, tools={}).code == "unknown_tool"
        assert memory.inertia.explain(history(*run[:2])).code == "answer_in_words"
