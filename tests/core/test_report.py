"""The report of a memory: money, why tools are not skipped, what the methods add. Answers are worked out by hand."""

from __future__ import annotations

import pytest
from histories import call, history, reading, schema, user, words
from langchain_core.messages import AIMessage, HumanMessage

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory
from langgraph_toolmem.graph.events import Count
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.confidence import SHADOWED, Checked
from langgraph_toolmem.report.report import TokenPrice, make_report, money_in_words


def graph_with(**counters: float) -> ToolGraph:
    graph = ToolGraph()
    graph.counters.update(counters)
    return graph


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


def test_a_report_over_many_checks_says_how_often_it_was_right():
    """The binomial coefficients of 1,030 checks are too large for a float."""
    right, wrong = 1_150, 50
    outcomes = [Count("turns", 1_200), Count("right", right), Count("wrong", wrong)]
    checks = [Checked(number, 0, int(number < wrong), SHADOWED) for number in range(right + wrong)]
    with ToolMemory.ephemeral(methods=[Inertia(InertiaPolicy(shadow=True))]) as memory:
        with memory.core.lock:
            memory.core.apply(None, [*outcomes, *checks])
        report = memory.report()
    assert (report.right, report.wrong, report.problems) == (right, wrong, ())
    [checked] = [each for each in report["inertia"]["checks_by_kind"].values() if each["checks"]]
    assert (checked["checks"], checked["right"]) == (right + wrong, right)
    assert checked["low"] < right / (right + wrong) < checked["high"] < 0.98
    assert "at least 94 %" in str(report)


# --- tokens and money ---


@pytest.mark.parametrize(
    ("cached", "price", "tokens", "money"),
    [
        (0, None, 42_000, None),
        (0, TokenPrice(2.5, 10, "EUR"), 42_000, 0.12),
        (80_000, TokenPrice(4, 1), 42_000, 0.162),
        (80_000, TokenPrice(4, 1, cached=1), 42_000, 0.102),  # half of them from the cache
        (0, TokenPrice(0, 0), 42_000, 0),
        (None, TokenPrice(1, 1), None, None),
    ],
)
def test_savings_are_the_skipped_calls_at_the_mean_of_those_made(
    cached: int | None, price: TokenPrice | None, tokens: int | None, money: float | None
) -> None:
    """2,000 tokens in and 100 out a call, 20 calls."""
    used = {"tokens_in": 160_000, "tokens_out": 8_000, "turns_with_tokens": 80, "tokens_cached": cached}
    graph = graph_with(turns=100, acted_ok=18, acted_failed=2, **({} if cached is None else used))
    report = make_report(graph, {}, {}, (), price)
    saved = report.saved
    assert saved.calls == 20
    assert (saved.input_tokens, saved.output_tokens) == ((40_000, 2_000) if tokens else (None, None))
    assert saved.money == (None if money is None else pytest.approx(money))


def test_cached_tokens_are_counted_as_the_messages_tell():
    usage = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105, "input_token_details": {"cache_read": 60}}
    with ToolMemory.ephemeral(methods=[]) as memory:
        memory.observe([HumanMessage("Hello"), AIMessage("Hi!", usage_metadata=usage)], thread_id="t")
        assert memory.core.counter("tokens_cached") == 60


@pytest.mark.parametrize(
    ("amount", "said"), [(0, "0.00 USD"), (0.00423, "0.0042 USD"), (1, "1.00 USD"), (1234.5, "1,234.50 USD")]
)
def test_money_in_words(amount, said):
    assert money_in_words(amount, "USD") == said
