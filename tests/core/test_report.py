"""The record of a memory: money, periods, and the words for them. Answers are worked out by hand."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields

import pytest
from histories import Learner, call, history, reading, schema, user, words
from kept import seen_by_others, sit
from langchain_core.messages import AIMessage, HumanMessage

from langgraph_toolmem import SIT, Inertia, InertiaPolicy, SITPolicy, ToolMemory, default_methods
from langgraph_toolmem.cli import record, terminal
from langgraph_toolmem.cli.inputs import By
from langgraph_toolmem.cli.watch import Watcher
from langgraph_toolmem.core.contributions import Section
from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.view import GraphView
from langgraph_toolmem.graph.operations import HOUR
from langgraph_toolmem.inertia.calibrated import rules_table
from langgraph_toolmem.inertia.evidence import RuleRecord
from langgraph_toolmem.page import render_page
from langgraph_toolmem.report.report import Report, ToolReport, make_report
from langgraph_toolmem.report.savings import Period, TokenPrice, group_periods, money_in_words, time_in_words
from langgraph_toolmem.sit.evidence import SITEvidence

DAY = 24 * HOUR
MONDAY = 1_772_409_600  # 2026-03-02 00:00 UTC


def graph_with(periods: dict[int, dict[str, float]] | None = None, **counters: float) -> EvidenceGraph:
    graph = EvidenceGraph()
    graph.counters.update(counters)
    graph.periods.update({str(hour): amounts for hour, amounts in (periods or {}).items()})
    return graph


USED = graph_with(turns=100, acted_ok=18, acted_failed=2, tokens_in=160_000, tokens_out=8_000, turns_with_tokens=80)


# --- why tools are not skipped ---


def whys(policy: InertiaPolicy, *, given: bool = True, runs: int = 12) -> dict[str, tuple[str, str]]:
    schemas = [reading("find", "name"), schema("pay", "sum")] if given else [schema("other")]
    with ToolMemory.ephemeral(tools=schemas, methods=[Inertia(policy)]) as memory:
        for n in range(runs):
            run = [
                user(f"Pay {n}"),
                call("find", {"name": f"{n}"}, "x"),
                call("pay", {"sum": f"{n * n}"}, "ok"),
                words(),
            ]
            memory.observe(history(*run), thread_id=str(n))
        report = memory.report()
        assert "Called often" in report.sections["inertia"].tables[0].title
        return {each["tool"]: (each["why"], each["todo"]) for each in report["inertia"]["unskipped"]}


def test_the_report_says_why_a_tool_is_not_skipped_and_what_to_do():
    reads = InertiaPolicy()
    found = whys(reads)
    assert found["pay"][0].startswith("guard: may change something")
    assert "reads=" in found["pay"][1]
    assert found["find"][0].startswith("below the bar")
    assert whys(reads.with_(never={"pay"}))["pay"] == ("guard: is excluded by the policy", "")
    assert whys(reads.with_(shadow=True))["find"][0] == "shadow mode"
    assert whys(reads, given=False)["find"][0] == "guard: it is not among the tools"
    assert whys(reads, runs=4) == {}


# --- tokens and money ---


def test_tokens_saved_are_the_skipped_calls_at_the_mean_of_those_made():
    report = make_report(USED, {}, {}, ())

    # 2,000 in and 100 out a call, 20 calls.
    assert (report.tokens_saved, report.input_tokens_saved, report.output_tokens_saved) == (42_000, 40_000, 2_000)
    assert (report.money_saved, report.currency) == (None, None)
    assert "About 42,000 tokens saved." in str(report)


def test_money_saved_at_a_price():
    report = make_report(USED, {}, {}, (), TokenPrice(input=2.5, output=10, currency="EUR"))

    assert report.money_saved == pytest.approx(0.04 * 2.5 + 0.002 * 10)
    assert report.currency == "EUR"
    assert "About 42,000 tokens saved, worth about 0.1200 EUR." in str(report)


def test_tokens_that_the_provider_had_cached_have_a_price_of_their_own():
    graph = graph_with(turns=10, acted_ok=2, tokens_in=800, tokens_out=80, turns_with_tokens=8, tokens_cached=400)

    # 2 calls of 100 in, half of them from the cache, and 10 out.
    dear, cheap = (make_report(graph, {}, {}, (), TokenPrice(4, 1, cached=each)).money_saved for each in (None, 1))
    assert dear == pytest.approx((200 * 4 + 20) / 1e6)
    assert cheap == pytest.approx((100 * 4 + 100 * 1 + 20) / 1e6)


def test_cached_tokens_are_counted_as_the_messages_tell():
    usage = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105, "input_token_details": {"cache_read": 60}}
    with ToolMemory.ephemeral(methods=[]) as memory:
        memory.observe([HumanMessage("Hello"), AIMessage("Hi!", usage_metadata=usage)], thread_id="t")
        assert memory.core.counter("tokens_cached") == 60


def test_without_usage_nothing_is_said_about_tokens_and_money():
    report = make_report(graph_with(turns=10, acted_ok=3), {}, {}, (), TokenPrice(1, 1))

    assert (report.tokens_saved, report.input_tokens_saved, report.money_saved) == (None, None, None)
    assert "token" not in str(report)


def test_a_price_of_nothing_saves_nothing():
    assert make_report(USED, {}, {}, (), TokenPrice(0, 0)).money_saved == 0


def test_all_of_the_report_is_fit_for_json():
    graph = graph_with({492_336: {"turns": 1, "tokens_in": 3}}, turns=1)
    plain = make_report(graph, {}, {}, (), TokenPrice(1, 2)).to_dict()

    assert json.loads(json.dumps(plain, allow_nan=False))["periods"][0]["input_tokens"] == 3
    assert set(plain) == {field.name for field in fields(Report)}


@pytest.mark.parametrize(
    ("amount", "said"), [(0, "0.00 USD"), (0.00423, "0.0042 USD"), (1, "1.00 USD"), (1234.5, "1,234.50 USD")]
)
def test_money_in_words(amount, said):
    assert money_in_words(amount, "USD") == said


# --- over time ---


def test_periods_come_from_the_hours_of_the_graph_oldest_first():
    late, early = MONDAY // HOUR + 5, MONDAY // HOUR
    graph = graph_with(
        {
            late: {"turns": 4, "acted_ok": 2, "acted_failed": 1, "right": 3, "wrong": 1},
            early: {"turns": 6, "tokens_in": 10, "tokens_out": 2, "turns_with_tokens": 1, "unknown": 7},
        }
    )
    assert make_report(graph, {}, {}, ()).periods == (
        Period(MONDAY, turns=6, input_tokens=10, output_tokens=2),
        Period(MONDAY + 5 * HOUR, turns=4, skipped=3, skipped_failed=1, right=3, wrong=1),
    )


def test_the_memory_counts_by_the_hour_what_it_counts_in_all():
    clock = [float(MONDAY)]
    with ToolMemory.ephemeral(now=lambda: clock[0], reads={"look_up", "delete"}, methods=[Inertia()]) as memory:
        for number in range(40):
            clock[0] += 600
            look_up = call("look_up", {"name": f"n{number}"}, {"id": f"i{number}"})
            messages = [user(f"Delete n{number}"), *look_up, *call("delete", {"id": f"i{number}"}), words()]
            memory.observe(messages, thread_id=str(number))
        report = memory.report()

    assert [period.start for period in report.periods] == [MONDAY + hour * HOUR for hour in range(7)]
    assert sum(period.turns for period in report.periods) == report.turns == 120
    assert sum(period.right for period in report.periods) == report.right > 0
    assert sum(period.wrong for period in report.periods) == report.wrong


def test_a_report_says_how_it_went_over_time_if_there_is_more_than_one_period():
    one = Report(turns=5, periods=(Period(MONDAY, turns=5),))
    two = Report(turns=45, periods=(Period(MONDAY, turns=5), Period(MONDAY + 9 * HOUR, turns=40, skipped=10)))

    assert "From" not in str(one)
    assert (
        "From 2026-03-02 00:00 to 2026-03-02 10:00 (UTC): 0 of 5 turns taken without the model in the "
        "first half of that time, 10 of 40 (25.0 %) in the second." in str(two)
    )


def test_a_time_without_turns_is_no_division_by_zero():
    assert "0 of 0 turns" in str(Report(periods=(Period(MONDAY, right=1), Period(MONDAY + DAY, wrong=1))))


def test_periods_are_added_up_to_days_and_weeks_that_begin_on_monday():
    hours = [Period(MONDAY - HOUR, turns=1), Period(MONDAY, turns=2, right=1), Period(MONDAY + 23 * HOUR, turns=3)]

    assert group_periods(hours, HOUR) == tuple(hours)
    days = group_periods(hours, DAY)
    assert [(time_in_words(day.start), day.turns) for day in days] == [("2026-03-01 00:00", 1), ("2026-03-02 00:00", 5)]
    weeks = group_periods(hours, 7 * DAY)
    assert [(week.start, week.turns, week.right) for week in weeks] == [(MONDAY - 7 * DAY, 1, 0), (MONDAY, 5, 1)]
    assert group_periods([], DAY) == ()


def test_adding_up_leaves_no_number_out():
    numbers = {name: position for position, name in enumerate(asdict(Period(0))) if name != "start"}
    (total,) = group_periods([Period(MONDAY, **numbers), Period(MONDAY + HOUR, **numbers)], DAY)

    assert asdict(total) == {"start": MONDAY, **{name: 2 * number for name, number in numbers.items()}}


# --- suggestions ---


SHOWN = {"shown": 40, "followed": 30, "right": 28}
SUGGESTED = Section("Next tools", {**SHOWN, "summaries": 7}, ("States of runs stored in words: 7.",))


def test_what_the_methods_tell_is_in_the_report():
    report = make_report(graph_with(), {"sit": SUGGESTED}, {}, ())

    assert (report["sit"], report["entries"]) == (SUGGESTED.figures, {})
    assert list(report.hints()) == [("Next tools", SUGGESTED.figures)]
    assert "States of runs stored in words: 7." in str(report)
    assert report.to_dict()["sections"] == {"sit": {**SHOWN, "summaries": 7}}


def test_a_memory_that_suggests_nothing_says_nothing_of_it():
    with ToolMemory.ephemeral() as memory:
        memory.observe(advised_run(1))
        report = memory.report()
    assert list(report.hints()) == []
    assert (report["sit"]["summaries"], report["sit"]["summaries_waiting"]) == (0, 1)
    assert "suggest" not in str(report)


def advised_run(number: int) -> list:
    return [user(f"Delete n{number}"), *call("look_up", {"name": f"n{number}"}, {"id": "i"}), words()]


def waiting(report: Report) -> tuple[int, ...]:
    return tuple(report["sit"][figure] for figure in ("runs_waiting", "summaries", "summaries_waiting"))


def test_runs_and_states_that_wait_for_a_verdict_are_counted():
    with ToolMemory.ephemeral(methods=default_methods(SIT(SITPolicy(unlabelled=0.0)))) as memory:
        for number, success in enumerate([True, True, False, None, None, None]):
            memory.finish(advised_run(number), thread_id=str(number), success=success)
        memory.flush()
        report = memory.report()
        assert waiting(report) == (3, 2, 3)
        assert "States of runs stored in words, for suggestions: 2; waiting for a verdict: 3." in str(report)
        assert "Runs without a verdict: 3; successful ones teach suggestions more than these." in str(report)
        memory.feedback("3", score=1.0)
        memory.feedback("4", score=0.0)
        memory.flush()
        assert waiting(memory.report()) == (1, 3, 1)


def test_a_suggestion_is_in_the_record_and_seen_by_who_looks_on(tmp_path):
    with (
        ToolMemory(tmp_path, methods=default_methods(SIT(SITPolicy(unlabelled=0.0)))) as memory,
        Watcher(tmp_path) as watcher,
    ):
        memory.finish(advised_run(1), thread_id="1", success=True)
        watcher.look(0)
        for number, tool in ((2, "look_up"), (3, "other")):
            asked = user(f"Delete n{number}")
            assert memory.sit.advise([asked], thread_id=str(number), shown=True).suggestions
            memory.observe([asked, *call(tool, {"name": "n"}, {"id": "i"}), words()], thread_id=str(number))
        memory.flush()
        told = {event.tools: event.what for event in watcher.look(0) if event.tools}
        report = memory.report()

        assert {figure: report["sit"][figure] for figure in SHOWN} == {"shown": 2, "followed": 1, "right": 1}
        assert "Next tools: suggested before 2 model turns, followed in 1 of them, and 1 of these calls " in str(report)
        assert watcher.report().to_dict() == seen_by_others(report)
        assert told[("look_up",)].endswith(", as suggested")
        assert told[("other",)].endswith(", not as suggested")
        assert not any(
            draft[2] for drafts in watcher.graph.register(SITEvidence).drafts.values() for draft in drafts.values()
        )
        assert any(draft[2] for drafts in sit(memory).drafts.values() for draft in drafts.values())


def test_suggestions_have_a_table_on_the_page():
    pytest.importorskip("bokeh")
    page = render_page(make_report(graph_with(), {"sit": SUGGESTED}, {}, ()), GraphView())

    assert '<td class="name">Next tools</td><td class="n">40</td><td class="n">30</td><td class="n">28</td>' in page
    assert "States of runs stored in words: 7." in page
    assert "Suggestions" not in render_page(Report(), GraphView())


# --- for a terminal ---


def shown(report: Report, by: By | None = None, *, width: int = 100) -> str:
    out = terminal.console()
    out.width = width
    with out.capture() as capture:
        record.show_report(out, report, by)
    return re.sub(" +", " ", capture.get())


def over(*periods: Period) -> Report:
    return Report(turns=1, periods=periods)


@pytest.mark.parametrize(
    ("days", "fits"), [(0, By.HOUR), (1, By.HOUR), (3, By.DAY), (59, By.DAY), (61, By.WEEK), (900, By.WEEK)]
)
def test_the_periods_shown_fit_a_screen(days, fits):
    assert record.fitting(over(Period(MONDAY), Period(MONDAY + days * DAY))) is fits
    assert record.fitting(Report()) is By.HOUR


def test_bars_grow_with_the_share():
    assert record.bar(0.5, 0.5) == "█" * 10
    assert record.bar(0.25, 0.5) == "█" * 5
    assert record.bar(0.01, 0.5) == "▎"
    assert record.bar(0, 0.5) == record.bar(0, 0) == ""
    assert record.bar(0.25, 0.5, ascii_only=True) == "#####"


def test_a_report_of_a_busy_memory():
    rules = (RuleRecord("<start>", "add", "^ua+us+c", 9, 1), RuleRecord("add!", "add", "", 0, 0))
    report = Report(
        turns=100,
        skipped=20,
        precision=0.75,
        right=3,
        wrong=1,
        tokens_saved=42_000,
        tools={"add": ToolReport(30, 1, 15, 3, 1), "[red]x[/red]\x1b[2J": ToolReport(5, 0, 5)},
        sections={
            "inertia": Section(
                "Kinds of predictions",
                {"rules": rules},
                ("The budget of misses has no room.",),
                (rules_table(rules),),
            ),
            "sit": SUGGESTED,
            "red": Section("[red]x", {"shown": 1, "followed": 0, "right": 0}),
        },
        periods=(Period(MONDAY, turns=60), Period(MONDAY + 3 * DAY, turns=40, skipped=20, right=3, wrong=1)),
        problems=("the disk is full",),
    )
    text = shown(report)

    assert "The budget of misses has no room" in text
    assert "│ add │ 30 │ 1 │ 15 │ 3 of 4 │ 31,500 │" in text
    assert "│ [red]x[/red]\ufffd[2J │ 5 │" in text
    assert "│ Next tools │ 40 │ 30 │ 28 │" in text
    assert "│ [red]x │ 1 │ 0 │ 0 │" in text
    assert "│ the start of a run → add │ user's words, usual value │ 9 of 10 │ – │" in text
    assert "│ a failed add → add │ – │ – │ – │" in text
    assert "│ 2026-03-02 │ 60 │ 0 │ 0 % │ – │ 0 │" in text
    assert "│ 2026-03-05 │ 40 │ 20 │ 50 % ██████████ │ 3 of 4 │ 42,000 │" in text
    assert text.endswith("Problem: the disk is full\n")
    assert "\x1b" not in text


def test_with_a_price_money_is_shown_instead_of_tokens():
    saved = {"tokens_saved": 1000, "money_saved": 5.0, "currency": "EUR"}
    text = shown(Report(turns=9, skipped=4, tools={"add": ToolReport(9, 0, 1)}, **saved))

    assert "EUR saved" in text
    assert "│ add │ 9 │ 0 │ 1 │ – │ 1.25 │" in text


def test_a_long_time_is_cut_at_its_beginning():
    report = over(*(Period(MONDAY + hour * HOUR, turns=hour + 1) for hour in range(40)))
    text = shown(report, By.HOUR)

    assert "2026-03-03 15:00 │ 40 │" in text
    assert "2026-03-02 15:00" not in text
    assert text.endswith("16 earlier hours not shown\n")
    assert shown(report, By.WEEK).count("2026-03-02 │") == 1


def test_an_empty_memory_is_a_few_sentences():
    assert shown(Report()).splitlines() == [
        "0 model turns seen, 0 of them taken without the model.",
        "No proposal has been checked against the model yet.",
    ]


def test_sources_of_real_rules_are_told_in_words():
    learner = Learner([schema("look_up", "name"), schema("delete", "id")])
    for number in range(30):
        look_up = call("look_up", {"name": f"n{number}"}, {"id": f"i{number}"})
        asked = user(f"Delete the thing called n{number} for good")
        learner.learn(asked, look_up, call("delete", {"id": f"i{number}"}), words(), thread_id=str(number))
    rules = learner.memory.report()["inertia"]["rules"]

    told = {(rule.after, rule.tool): rule.sources_in_words for rule in rules}
    assert told["look_up", "delete"] == "earlier output"
    assert told["<start>", "look_up"] == "user's words"
    assert all("|" not in words for words in told.values())
    assert RuleRecord("a", "b", "paper", 1, 0).sources_in_words == "paper policy"
