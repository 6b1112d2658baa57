"""The HTML page: its parts by hand, then the whole in a real browser."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import open_browser

from langgraph_toolmem.base.errors import MissingExtraError
from langgraph_toolmem.core.method import Section
from langgraph_toolmem.graph.view import START, EdgeView, FlowView, GraphView, ToolCounts
from langgraph_toolmem.inertia.evidence import RuleRecord
from langgraph_toolmem.page import render_page
from langgraph_toolmem.page.layout import place
from langgraph_toolmem.page.picture import picture
from langgraph_toolmem.page.series import DAY, HOUR, RUN, WEEK, bucket_size, buckets, over_time
from langgraph_toolmem.report.report import Period, Report, ToolReport

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MONDAY = 1_791_158_400  # 2026-10-05 00:00 UTC

DESK = GraphView(
    tools={
        "search": ToolCounts(40, 0),
        "read": ToolCounts(30, 10),
        "write": ToolCounts(5, 5),
        "mail": ToolCounts(4, 0),
    },
    edges=[
        EdgeView(START, "search", 30, 40, 0),
        EdgeView("search", "read", 29, 22, 8),
        EdgeView("read", "read", 10, 8, 2),
        EdgeView("read", "write", 10, 5, 5),
        EdgeView("write", "mail", 4, 4, 0),
        EdgeView("mail", "search", 1, 1, 0),
    ],
    dataflow=[
        FlowView("search", "out", "$.hits[*].id next", "read", "id", 27, 3),
        FlowView("read", "in", "id", "write", "id", 9, 1),
        FlowView("search", "in", "query", "write", "title", 0, 4),
    ],
)
HOURS = (
    Period(MONDAY + 9 * HOUR, turns=20, skipped=2, right=3, wrong=1),
    Period(MONDAY + 10 * HOUR, turns=30, skipped=10, skipped_failed=1),
    Period(MONDAY + 30 * HOUR, turns=10, skipped=5, right=4),
)


def kinds_of_predictions(*rules: RuleRecord, **figures: Any) -> dict[str, Section]:
    return {"inertia": Section("Kinds of predictions", {**figures, "rules": list(rules)})}


RECORD = Report(
    turns=60,
    calls=89,
    skipped=17,
    skipped_failed=1,
    right=7,
    wrong=1,
    precision=7 / 8,
    tokens_saved=12_345,
    input_tokens_saved=12_000,
    output_tokens_saved=345,
    money_saved=3.5,
    currency="EUR",
    periods=HOURS,
    tools={
        "search": ToolReport(40, 0, 10, 4, 0),
        "read": ToolReport(40, 10, 7, 3, 1),
        "write": ToolReport(10, 5),
        "mail": ToolReport(4, 0),
    },
    sections=kinds_of_predictions(
        RuleRecord("search", "read", "l", 20, 5),
        RuleRecord(START, "search", "ua+c", 9, 1),
        RuleRecord("read!", "read", "", 0, 3),
        audits={"checks": 40, "right": 39, "low": 0.868, "high": 0.999, "at_least": 0.886},
        calls_made=800,
        budget_open=False,
    ),
)


RUNS = (
    Period(MONDAY + 60, turns=4, right=1),
    Period(MONDAY + 60, turns=5, skipped=1),
    Period(MONDAY + 62, turns=3, skipped=2, skipped_failed=1, wrong=1),
)
FIRST_HOUR = Report(
    turns=12, skipped=3, right=1, wrong=1, periods=(Period(MONDAY, turns=12, skipped=3, right=1, wrong=1),)
)


def crowd(tools: int) -> GraphView:
    """Chains of five tools, the first ones the most used."""
    names = [f"server.tool_{i:03}" for i in range(tools)]
    counts = {name: ToolCounts(1000 - i, i % 7) for i, name in enumerate(names)}
    edges = [
        EdgeView(START if i % 5 == 0 else names[i - 1], name, 1000 - i, 1000 - i, 0) for i, name in enumerate(names)
    ]
    return GraphView(tools=counts, edges=edges)


# --- parts ---


def test_depth_is_the_length_of_the_likeliest_way() -> None:
    edges = [EdgeView(START, "a", 3, 3, 0), EdgeView(START, "b", 1, 1, 0), EdgeView("a", "b", 2, 2, 0)]
    places = place([START, "a", "b", "alone"], edges)
    assert places[START].depth == 0
    assert places["a"].depth == pytest.approx(1.415037, abs=1e-6)  # 1 - log2(3/4)
    assert places["b"].depth == pytest.approx(2.415037, abs=1e-6)  # over a: + 1 - log2(1); alone: 1 - log2(1/4) = 3
    assert places["alone"].depth > places["b"].depth
    for names in ([], [START], ["only"], [START, "only"]):
        assert set(place(names, [])) == set(names)


@pytest.mark.parametrize(
    ("last", "size"), [(0, HOUR), (3 * DAY - HOUR, HOUR), (3 * DAY, DAY), (120 * DAY - HOUR, DAY), (120 * DAY, WEEK)]
)
def test_the_span_chooses_the_bucket(last: int, size: int) -> None:
    assert bucket_size([Period(MONDAY), Period(MONDAY + last)]) == size


def test_hours_are_summed_to_days_and_to_weeks_that_begin_on_monday() -> None:
    first, second = buckets(HOURS, DAY)
    assert first[:6] == (MONDAY, 50, 12, 1, 3, 1)
    assert (first.skipped_so_far, first.precision, first.precision_so_far) == (12, 0.75, 0.75)
    assert second[:6] == (MONDAY + DAY, 10, 5, 0, 4, 0)
    assert (second.skipped_so_far, second.precision, second.precision_so_far) == (17, 1.0, 7 / 8)
    sunday, monday = Period(MONDAY - HOUR, turns=1), Period(MONDAY, turns=2)
    assert [(b.start, b.turns, b.precision) for b in buckets([sunday, monday], WEEK)] == [
        (MONDAY - WEEK, 1, None),
        (MONDAY, 2, None),
    ]


def test_runs_are_told_one_by_one_while_all_is_within_four_hours() -> None:
    at = [Period(MONDAY), Period(MONDAY + 3 * HOUR)]
    assert bucket_size(at, RUNS) == RUN
    assert bucket_size(at, RUNS[:1]) == HOUR
    assert bucket_size([*at, Period(MONDAY + 4 * HOUR)], RUNS) == HOUR
    found, size = over_time(replace(FIRST_HOUR, newest_runs=RUNS))
    assert size == RUN
    assert [(b.turns, b.skipped, b.skipped_so_far, b.precision_so_far) for b in found] == [
        (4, 0, 0, 1.0),
        (5, 1, 1, 1.0),
        (3, 2, 3, 0.5),
    ]
    found, _ = over_time(replace(FIRST_HOUR, newest_runs=RUNS[1:]))  # the first one counts in what is so far
    assert [(b.skipped_so_far, b.precision_so_far) for b in found] == [(1, 1.0), (3, 0.5)]


def test_the_picture_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_toolmem.page.picture.MAX_TOOLS", 3)
    drawn = picture(RECORD, DESK)
    assert [tool["name"] for tool in drawn["tools"]] == ["start of a run", "read", "search"]
    assert drawn["edges"] == [[0, 2, 40, 40, 0, 30], [2, 1, 30, 22, 8, 29], [1, 1, 10, 8, 2, 10]]
    assert drawn["left_out"] == {"tools": 2, "edges": 3, "flows": 0}


def test_the_same_input_gives_the_same_page() -> None:
    first = render_page(RECORD, DESK, generated=0.0)
    assert render_page(RECORD, DESK, generated=0.0) == first
    assert render_page(RECORD, DESK, generated=60.0) != first
    own = re.sub(r"<script>/\* BEGIN bokeh.*?</script>", "", first, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)=(?![\"']?data:)|https?://|url\((?!data:)|@import", own), "it names no address"


def test_the_figures_are_told_and_tools_that_may_change_something_are_marked() -> None:
    changing = kinds_of_predictions(changing={"write": "its name <says> so"})
    page = render_page(RECORD, DESK)
    assert all(each in page for each in ("28.3", "7 of 8", "39 of 40", "12,345", "3.50"))
    assert "its name &lt;says&gt; so" in render_page(replace(RECORD, sections=changing), DESK)


def test_what_each_method_tells_is_on_the_page() -> None:
    told = {"next": Section("Next <tools>", {"shown": 4, "followed": 3, "right": 1}, ("Of 4 states, 3 are kept.",))}
    page = render_page(Report(turns=1, sections=told), DESK)
    assert (
        '<td class="name">Next &lt;tools&gt;</td><td class="n">4</td><td class="n">3</td><td class="n">1</td>' in page
    )
    assert "Of 4 states, 3 are kept." in page
    assert "hints-title" not in render_page(RECORD, DESK)


def test_savings_beside_the_skipped_calls_are_told() -> None:
    ahead = {"started": 20, "served": 1_200, "wasted": 9, "seconds_saved": 3.25, "by_tool": {}}
    sections = {
        **kinds_of_predictions(prefetch=ahead),
        "sit": Section("Next tools", {"shown": 4, "followed": 3, "right": 2, "helped": 1, "hurt": 0}),
        "entries": Section("Past runs", {"kept": 9, "helped": 5, "hurt": 2}),
    }
    page = render_page(Report(turns=1, sections=sections), DESK)
    assert all(part in page for part in ("1,200 <small>", "of 20; 3.2 seconds", "6 ended well, 2 badly"))
    assert "ended well" not in render_page(Report(turns=1), DESK)


def test_what_stands_in_the_place_of_a_tool_is_told_in_words() -> None:
    rules = (RuleRecord("<parallel>read", "<words>", "", 3, 0), RuleRecord("read", "<parallel>", "l", 2, 0))
    page = render_page(Report(sections=kinds_of_predictions(*rules)), DESK)
    told = re.findall(r'<td class="name">(?:<button[^>]*>)?([^<]+)', page[page.index('<table id="rules">') :])
    assert told == ["several read at once", "an answer in words", "read", "several tools at once"]
    assert 'data-tool="an answer' not in page, "the graph has no such tool to lead to"


def test_without_bokeh_the_line_to_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "langgraph_toolmem.page.figures", raising=False)
    monkeypatch.setitem(sys.modules, "bokeh", None)
    monkeypatch.setitem(sys.modules, "bokeh.resources", None)
    with pytest.raises(MissingExtraError, match=r'pip install "langgraph-toolmem\[html\]"'):
        render_page(RECORD, DESK)


# --- in a browser ---


pytestmark = pytest.mark.timeout(900)  # the browser may have to be installed first


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


Opener = Callable[..., "Page"]


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Opener]:
    """Opens a page from disk; at the end the console must be clean and the network untouched."""
    wrong: list[str] = []
    contexts = []

    def opened(report: Report = RECORD, view: GraphView = DESK, *, width: int = 1280, dark: bool = False) -> Page:
        file = tmp_path / f"page{len(contexts)}.html"
        file.write_text(render_page(report, view, title="Desk", generated=float(MONDAY)), encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda r: wrong.append(r.url) if r.url != file.as_uri() and r.url[:5] != "data:" else None)
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


def column(page: Page, source: str, name: str) -> list[Any]:
    """A column of one of the graph's data sources."""
    script = "([source, name]) => Array.from(Bokeh.documents[0].get_model_by_name(source).data[name])"
    values: list[Any] = page.evaluate(script, [source, name])
    return values


def names(page: Page) -> set[str]:
    return set(column(page, "nodes", "head")) - {"start of a run"}


def until(page: Page, script: str, *, arg: Any = None) -> None:
    """StepBudget for what a script says; Playwright's own waiting needs `eval`, which the page forbids."""
    for _ in range(200):
        if page.evaluate(script, arg):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {script}")


def place_of(page: Page, tool: str) -> tuple[float, float]:
    """Where a tool is drawn, in pixels of the window."""
    script = """(tool) => {
        const figure = Bokeh.documents[0].get_model_by_name("graph");
        const data = Bokeh.documents[0].get_model_by_name("nodes").data;
        const at = data.head.indexOf(tool);
        const box = document.getElementById("graph").getBoundingClientRect();
        return [box.x + data.x[at], box.y + figure.inner_height - data.y[at]];
    }"""
    x, y = page.evaluate(script, tool)
    return x, y


def told(page: Page, source: str, key: str, value: str) -> dict[str, Any]:
    return dict(zip(column(page, source, key), column(page, source, value), strict=True))


def test_the_graph_is_drawn_and_fits_a_narrow_window(show: Opener) -> None:
    page = show(width=360)
    assert names(page) == {"search", "read", "write", "mail"}
    size, width = told(page, "nodes", "head", "size"), told(page, "edges", "head", "width")
    assert size["search"] == size["read"] > size["write"] > size["mail"]
    assert width["start of a run → search"] > width["search → read"] > width["write → mail"] > width["mail → search"]
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.emulate_media(color_scheme="dark")
    until(page, "Bokeh.documents[0].get_model_by_name('nodes').data.colour.includes('#58a6d8')")


def test_rare_arrows_and_dataflow_can_be_switched(show: Opener) -> None:
    page = show()
    page.check("#flow")
    assert column(page, "flows", "head") == ["read → write", "search → read"]
    for to, arrows in ((1, 5), (6, 1)):  # 1, 4, 9, 10, 27, 30, 40 times
        set_to = "(input, to) => { input.value = to; input.dispatchEvent(new Event('input')); }"
        page.locator("#least").evaluate(set_to, to)
        assert len(column(page, "edges", "head")) == arrows
    assert len(names(page)) == 4
    page.uncheck("#flow")
    assert column(page, "flows", "head") == []


def test_a_tool_is_found_by_tap_name_and_table(show: Opener) -> None:
    page = show()
    page.locator("#graph").scroll_into_view_if_needed()
    page.mouse.click(*place_of(page, "write"))
    until(page, "document.querySelector('#details .title').textContent === 'write'")
    details = page.inner_text("#details")
    assert "5 (50 %)" in details
    assert re.search(r"id ← argument id of read\s+9 of 10", details)
    alpha = told(page, "nodes", "head", "alpha")
    assert alpha["write"] == alpha["read"] == alpha["mail"] == 1
    assert alpha["search"] < 0.5
    page.mouse.move(*place_of(page, "read"))
    until(page, "document.querySelector('.bk-Tooltip')?.shadowRoot.textContent.includes('40 calls, 10 failed')")
    page.fill("#find", "ear")
    page.press("#find", "Enter")
    assert page.inner_text("#details .title") == "search"
    page.press("#find", "Escape")
    assert set(column(page, "nodes", "alpha")) == {1}
    page.click("#tools button[data-tool=mail]")
    assert page.inner_text("#details .title") == "mail"


def test_of_many_tools_the_most_used_are_drawn_first(show: Opener) -> None:
    page = show(Report(), crowd(300))
    assert names(page) == {f"server.tool_{i:03}" for i in range(40)}
    page.fill("#find", "server.tool_252")  # comes with its neighbours, however rare
    assert names(page) - {f"server.tool_{i:03}" for i in range(40)} == {f"server.tool_{i}" for i in (251, 252, 253)}
    page.fill("#find", "")
    page.select_option("#most", "300")
    assert len(names(page)) == 300
    assert len(set(zip(column(page, "nodes", "x"), column(page, "nodes", "y"), strict=True))) == 301


def test_an_empty_memory_has_a_page(show: Opener) -> None:
    assert show(Report(), GraphView()).evaluate("Bokeh.documents.length") == 0


def test_hostile_names_do_nothing(show: Opener) -> None:
    cruel = [
        "</script><img src=x onerror='window.hurt=1'>",
        "<!--<script>window.hurt=1</script>",
        '"><svg onload="window.hurt=1">',
        "'+window.hurt=1+'",
        "{{ 7 * 7 }}{% raw %}",
        "@head{safe}<b>$index</b>&lt;",
        "javascript:window.hurt=1",
        "a\u2028b\u202ec\x00\x1b[31m",
        "__proto__",
        "x" * 5000,
        "",
        "\ud800",
    ]
    edges = [EdgeView(START if i == 0 else cruel[i - 1], name, 9, 9, 0) for i, name in enumerate(cruel)]
    flows = [FlowView(cruel[0], "out", cruel[2], cruel[1], cruel[0], 5, 0)]
    view = GraphView({name: ToolCounts(9, 0) for name in cruel}, edges, flows)
    report = Report(
        turns=9,
        tools={name: ToolReport(9) for name in cruel},
        sections=kinds_of_predictions(*(RuleRecord(name, name, name, 1, 1) for name in cruel)),
        problems=tuple(cruel),
        money_saved=1.0,
        currency=cruel[0],
    )
    page = show(report, view)
    assert len(column(page, "nodes", "head")) == len(cruel) + 1
    page.check("#flow")
    page.fill("#find", cruel[0])
    assert page.inner_text("#details .title") == cruel[0]
    page.locator("#graph").scroll_into_view_if_needed()
    page.mouse.move(*place_of(page, cruel[0]))
    until(page, "document.querySelector('.bk-Tooltip')?.shadowRoot.textContent.includes('onerror')")
    assert page.evaluate("window.hurt") is None
    assert page.locator("img, svg[onload], b >> text=index").count() == 0
    assert page.locator("#tools tbody tr").count() == len(cruel)
    assert "\u202e" not in page.content()
