"""The HTML page: its parts by hand, then the whole in a real browser."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import open_browser
from histories import FAILED, call, history, user, words
from places import TESTS

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import MissingExtraError
from langgraph_toolmem.core.contributions import Section
from langgraph_toolmem.graph.view import START, EdgeView, FlowView, GraphView, ToolCounts
from langgraph_toolmem.inertia.evidence import RuleRecord
from langgraph_toolmem.page import render_page
from langgraph_toolmem.page.layout import place
from langgraph_toolmem.page.picture import picture, sources_in_words
from langgraph_toolmem.page.series import DAY, HOUR, RUN, WEEK, bucket_size, buckets, over_time
from langgraph_toolmem.report.report import Report, ToolReport
from langgraph_toolmem.report.savings import Period

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


def test_tools_that_follow_each_other_stand_together() -> None:
    chains = [("a1", "a2"), ("a2", "a3"), ("b1", "b2"), ("b2", "b3"), ("a3", "b3")]
    edges = [EdgeView(x, y, 50 if x[0] == y[0] else 1, 0, 0) for x, y in chains]
    order = sorted((p.rank, name) for name, p in place(["a1", "b1", "a2", "b2", "a3", "b3"], edges).items())
    assert len({name[0] for _, name in order[:3]}) == 1
    assert len({name[0] for _, name in order[3:]}) == 1


@pytest.mark.parametrize("names", [[], [START], ["only"], [START, "only"]])
def test_small_graphs_have_places(names: list[str]) -> None:
    assert set(place(names, [])) == set(names)


@pytest.mark.parametrize(
    ("last", "size"), [(0, HOUR), (3 * DAY - HOUR, HOUR), (3 * DAY, DAY), (120 * DAY - HOUR, DAY), (120 * DAY, WEEK)]
)
def test_the_span_chooses_the_bucket(last: int, size: int) -> None:
    assert bucket_size([Period(MONDAY), Period(MONDAY + last)]) == size


def test_hours_are_summed_to_days() -> None:
    first, second = buckets(HOURS, DAY)
    assert first[:6] == (MONDAY, 50, 12, 1, 3, 1)
    assert (first.skipped_so_far, first.precision, first.precision_so_far) == (12, 0.75, 0.75)
    assert second[:6] == (MONDAY + DAY, 10, 5, 0, 4, 0)
    assert (second.skipped_so_far, second.precision, second.precision_so_far) == (17, 1.0, 7 / 8)


def test_weeks_begin_on_monday() -> None:
    sunday, monday = Period(MONDAY - HOUR, turns=1), Period(MONDAY, turns=2)
    assert [(b.start, b.turns) for b in buckets([sunday, monday], WEEK)] == [(MONDAY - WEEK, 1), (MONDAY, 2)]


def test_runs_are_told_one_by_one_while_all_is_within_four_hours() -> None:
    at = [Period(MONDAY), Period(MONDAY + 3 * HOUR)]
    assert bucket_size(at, RUNS) == RUN
    assert bucket_size(at, RUNS[:1]) == HOUR
    assert bucket_size([*at, Period(MONDAY + 4 * HOUR)], RUNS) == HOUR


def test_two_runs_of_one_second_are_two() -> None:
    found, size = over_time(replace(FIRST_HOUR, newest_runs=RUNS))
    assert size == RUN
    assert [(b.turns, b.skipped, b.skipped_so_far, b.precision_so_far) for b in found] == [
        (4, 0, 0, 1.0),
        (5, 1, 1, 1.0),
        (3, 2, 3, 0.5),
    ]


def test_what_runs_that_are_not_told_did_counts_in_what_is_so_far() -> None:
    found, _ = over_time(replace(FIRST_HOUR, newest_runs=RUNS[1:]))
    assert [(b.skipped_so_far, b.precision_so_far) for b in found] == [(1, 1.0), (3, 0.5)]


def test_nothing_checked_is_no_precision() -> None:
    (bucket,) = buckets([Period(MONDAY, turns=3)], HOUR)
    assert bucket.precision is None
    assert bucket.precision_so_far is None


def test_the_picture_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_toolmem.page.picture.MAX_TOOLS", 3)
    drawn = picture(RECORD, DESK)
    assert [tool["name"] for tool in drawn["tools"]] == ["start of a run", "read", "search"]
    assert drawn["edges"] == [[0, 2, 40, 40, 0, 30], [2, 1, 30, 22, 8, 29], [1, 1, 10, 8, 2, 10]]
    assert drawn["left_out"] == {"tools": 2, "edges": 3, "flows": 0}


def test_sources_are_told_in_words() -> None:
    assert (
        sources_in_words(RuleRecord("a", "b", "ua+^ua+o", 1, 0))
        == "user's words after others, output of an earlier call"
    )
    assert sources_in_words(RuleRecord("a", "b", "", 1, 0)) == "no arguments"


def test_the_same_input_gives_the_same_page(tmp_path: Path) -> None:
    first = render_page(RECORD, DESK, generated=0.0)
    assert render_page(RECORD, DESK, generated=0.0) == first
    assert render_page(RECORD, DESK, generated=60.0) != first
    code = (
        "import sys, test_page, pathlib; from langgraph_toolmem.page import render_page; "
        "page = render_page(test_page.RECORD, test_page.DESK, generated=0.0); "
        "pathlib.Path(sys.argv[1]).write_bytes(page.encode())"
    )
    paths = os.pathsep.join([*map(str, (TESTS / "page", TESTS)), *sys.path])
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "page.html")], env=environment, check=True)
    assert (tmp_path / "page.html").read_bytes() == first.encode()


def test_what_each_method_tells_is_on_the_page() -> None:
    told = {"next": Section("Next <tools>", {"shown": 4, "followed": 3, "right": 1}, ("Of 4 states, 3 are kept.",))}
    page = render_page(Report(turns=1, sections=told), DESK)
    assert (
        '<td class="name">Next &lt;tools&gt;</td><td class="n">4</td><td class="n">3</td><td class="n">1</td>' in page
    )
    assert "Of 4 states, 3 are kept." in page
    assert "Budget of misses" not in page, "there is no shortcut in this memory"
    assert "of 4 shown before a turn; 1 of these calls went well</dd>" in page
    assert "hints-title" not in render_page(RECORD, DESK)


def test_savings_beside_the_skipped_calls_are_told() -> None:
    ahead = {"started": 20, "served": 1_200, "in_time": 4, "wasted": 9, "seconds_saved": 3.25, "by_tool": {}}
    sections = {
        **kinds_of_predictions(prefetch=ahead),
        "sit": Section("Next tools", {"shown": 4, "followed": 3, "right": 2, "helped": 1, "hurt": 0}),
        "entries": Section("Past runs", {"kept": 9, "helped": 5, "hurt": 2}),
    }
    page = render_page(Report(turns=1, sections=sections), DESK)
    assert "<dd>1,200 <small>served</small></dd>" in page
    assert "of 20; 3.2 seconds of waiting saved" in page
    assert "of 4 shown before a turn; 2 of these calls went well. Runs that saw some: 6 ended well, 2 badly" in page
    plain = render_page(Report(turns=1), DESK)
    assert "Look-ups run ahead" not in plain
    assert "Hints followed" not in plain


def test_what_stands_in_the_place_of_a_tool_is_told_in_words() -> None:
    rules = (RuleRecord("<parallel>read", "<words>", "", 3, 0), RuleRecord("read", "<parallel>", "l", 2, 0))
    page = render_page(Report(sections=kinds_of_predictions(*rules)), DESK)
    told = re.findall(r'<td class="name">(?:<button[^>]*>)?([^<]+)', page[page.index('<table id="rules">') :])
    assert told == ["several read at once", "an answer in words", "read", "several tools at once"]
    assert 'data-tool="an answer' not in page, "the graph has no such tool to lead to"


def test_the_page_names_no_address() -> None:
    page = render_page(RECORD, DESK)
    own = re.sub(r"<script>/\* BEGIN bokeh.*?</script>", "", page, flags=re.DOTALL)
    assert len(own) < len(page) / 10
    assert not re.search(r"(?:src|href)=(?![\"']?data:)|https?://|url\((?!data:)|@import", own)


def test_without_bokeh_the_line_to_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "langgraph_toolmem.page.figures", raising=False)
    monkeypatch.setitem(sys.modules, "bokeh", None)
    monkeypatch.setitem(sys.modules, "bokeh.resources", None)
    with pytest.raises(MissingExtraError, match=r'pip install "langgraph-toolmem\[html\]"'):
        render_page(RECORD, DESK)


def test_importing_it_loads_no_bokeh() -> None:
    code = "import sys, langgraph_toolmem.page; sys.exit('bokeh' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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


def slide(page: Page, to: int) -> None:
    page.locator("#least").evaluate("(input, to) => { input.value = to; input.dispatchEvent(new Event('input')); }", to)


def until(page: Page, script: str, *, arg: Any = None) -> None:
    """Waits for what a script says; Playwright's own waiting needs `eval`, which the page forbids."""
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


def colours(page: Page, selector: str) -> set[tuple[int, ...]]:
    """Colours that cover more than a few pixels of an element as it is seen."""
    from PIL import Image

    picture = Image.open(io.BytesIO(page.locator(selector).screenshot())).convert("RGB")
    return {colour for count, colour in picture.getcolors(1 << 24) if count > 40}


def test_the_figures_are_told(show: Opener) -> None:
    text = show().inner_text("main")
    for told in ("17\n28.3 % of 60 turns; 1 of these calls failed", "–\n7 of 8 proposals", "39 of 40", "used up"):
        assert told in text
    for told in ("12,345\n12,000 in, 345 out", "3.50 EUR"):
        assert told in text


@pytest.mark.parametrize("dark", [False, True])
def test_the_graph_and_the_charts_are_drawn(show: Opener, dark: bool) -> None:
    page = show(dark=dark)
    assert names(page) == {"search", "read", "write", "mail"}
    assert len(column(page, "edges", "xs")) == len(column(page, "heads", "xs")) == 6
    ground = (27, 31, 35) if dark else (255, 255, 255)
    all_well, half_failed = ((88, 166, 216), (238, 134, 80)) if dark else ((38, 115, 168), (213, 96, 42))
    assert {ground, all_well, half_failed} <= colours(page, "#graph")
    assert {ground, all_well} <= colours(page, "#turns")
    for chart in ("#saved", "#precision"):
        assert {ground, all_well} <= colours(page, chart)


def test_a_change_from_light_to_dark_repaints(show: Opener) -> None:
    page = show()
    page.emulate_media(color_scheme="dark")
    until(page, "Bokeh.documents[0].get_model_by_name('nodes').data.colour.includes('#58a6d8')")
    assert {(27, 31, 35), (88, 166, 216)} <= colours(page, "#graph")


def test_size_and_width_follow_the_counts(show: Opener) -> None:
    page = show()
    size = dict(zip(column(page, "nodes", "head"), column(page, "nodes", "size"), strict=True))
    assert size["search"] == size["read"] > size["write"] > size["mail"]
    width = dict(zip(column(page, "edges", "head"), column(page, "edges", "width"), strict=True))
    assert width["start of a run → search"] > width["search → read"] > width["write → mail"] > width["mail → search"]


def test_the_slider_takes_rare_arrows_away(show: Opener) -> None:
    page = show()
    told = page.locator("#drawn")
    assert "all 6 arrows" in told.inner_text()
    slide(page, 1)  # 1, 4, 9, 10, 27, 30, 40 times
    assert "mail → search" not in column(page, "edges", "head")
    assert page.inner_text("#least-value") == "4 times"
    assert "5 of 6 arrows" in told.inner_text()
    slide(page, 6)
    assert column(page, "edges", "head") == ["start of a run → search"]
    assert len(names(page)) == 4


def test_dataflow_can_be_switched_on(show: Opener) -> None:
    page = show()
    assert column(page, "flows", "head") == []
    page.check("#flow")
    assert column(page, "flows", "head") == ["read → write", "search → read"]
    assert column(page, "flows", "body")[1] == "id ← output $.hits[*].id next (27 of 30)"
    page.uncheck("#flow")
    assert column(page, "flows", "head") == []


def test_a_tap_tells_about_a_tool(show: Opener) -> None:
    page = show()
    page.locator("#graph").scroll_into_view_if_needed()
    page.mouse.click(*place_of(page, "write"))
    until(page, "document.querySelector('#details .title').textContent === 'write'")
    details = page.inner_text("#details")
    assert "5 (50 %)" in details
    assert re.search(r"Comes after\s+read\s+10 · 100 %", details)
    assert re.search(r"id ← argument id of read\s+9 of 10", details)
    alpha = dict(zip(column(page, "nodes", "head"), column(page, "nodes", "alpha"), strict=True))
    assert alpha["write"] == alpha["read"] == alpha["mail"] == 1
    assert alpha["search"] < 0.5
    page.wait_for_timeout(500)  # sooner, the two would be one double tap
    page.locator("#graph").click(position={"x": 15, "y": 15})  # nothing is there
    until(page, "document.querySelector('#details .title').textContent === 'No tool chosen'")
    assert set(column(page, "nodes", "alpha")) == {1}


def test_hovering_tells_the_counts(show: Opener) -> None:
    page = show()
    page.locator("#graph").scroll_into_view_if_needed()
    page.mouse.move(*place_of(page, "read"))
    until(page, "document.querySelector('.bk-Tooltip')?.shadowRoot.textContent.includes('40 calls, 10 failed')")


def test_hovering_over_a_chart_tells_the_numbers(show: Opener) -> None:
    page = show()
    page.locator("#precision").scroll_into_view_if_needed()
    script = """(time) => {
        const figure = Bokeh.documents.map((d) => d.roots()[0]).find((root) => root.name === "turns");
        const share = (time - figure.x_range.start) / (figure.x_range.end - figure.x_range.start);
        const box = document.getElementById("turns").getBoundingClientRect();
        return [box.x + box.width - figure.min_border_right - figure.inner_width * (1 - share), box.y + 20];
    }"""
    page.mouse.move(*page.evaluate(script, 1000 * (MONDAY + 10.5 * HOUR)))
    seen = "[...document.querySelectorAll('.bk-Tooltip')].map((t) => t.shadowRoot.textContent).join('')"
    until(page, f"{seen}.includes('30 turns')")
    told = page.evaluate(seen)
    assert "2026-10-05 10:00 to 11:00 UTC" in told
    assert "9 skipped, call went well" in told


def test_a_tool_is_found_by_name(show: Opener) -> None:
    page = show()
    page.fill("#find", "ear")
    page.press("#find", "Enter")
    assert page.inner_text("#details .title") == "search"
    assert re.search(
        r"after the start of a run: user's words after others, usual value\s+9 of 10", page.inner_text("#details")
    )
    page.press("#find", "Escape")
    assert page.inner_text("#details .title") == "No tool chosen"


def test_tables_lead_to_the_graph(show: Opener) -> None:
    page = show()
    page.click("#tools button[data-tool=mail]")
    assert page.inner_text("#details .title") == "mail"
    page.click("#details button:has-text('write')")
    assert page.inner_text("#details .title") == "write"


def test_tables_are_sorted_and_filtered(show: Opener) -> None:
    page = show()

    def first() -> list[str]:
        return [text.strip() for text in page.locator("#rules tbody tr:visible td:nth-child(2)").all_inner_texts()]

    assert first() == ["read", "search"]
    page.click("#rules th:has-text('share') button")
    assert page.locator("#rules tbody td:last-child").all_inner_texts() == ["90%", "80%"]
    page.click("#rules th:has-text('misses') button")
    assert page.locator("#rules tbody td:nth-child(5)").all_inner_texts() == ["5", "1"]
    page.click("#rules th:has-text('misses') button")
    assert page.locator("#rules tbody td:nth-child(5)").all_inner_texts() == ["1", "5"]


def test_what_was_never_right_is_folded_away_and_found(show: Opener) -> None:
    page = show()
    wrong = page.locator("#rules-wrong tbody tr:visible")
    assert wrong.count() == 0
    assert page.inner_text("#never-right summary") == "1 of them was never right"
    page.click("#never-right summary")
    assert wrong.locator("td").all_inner_texts() == ["a failed read", "read", "no arguments", "0", "3", "0%"]
    assert "holds them below the bar" in page.inner_text("#never-right")
    page.click("#never-right summary")
    page.fill("[data-filters=rules]", "failed read")
    assert (wrong.count(), page.locator("#rules tbody tr:visible").count()) == (1, 0)
    assert "1 of 3 shown" in page.inner_text("[data-counts=rules]")
    page.fill("[data-filters=rules]", "search")
    assert (wrong.count(), page.locator("#rules tbody tr:visible").count()) == (0, 2)
    assert "never-right" not in render_page(Report(), DESK).partition("<script")[0]


def test_of_many_tools_the_most_used_are_drawn_first(show: Opener) -> None:
    page = show(Report(), crowd(300))
    assert names(page) == {f"server.tool_{i:03}" for i in range(40)}
    assert "40 of 300 tools, the most used ones, 40 of 300 arrows" in page.inner_text("#drawn")
    page.fill("#find", "server.tool_252")  # comes with its neighbours, however rare
    assert names(page) - {f"server.tool_{i:03}" for i in range(40)} == {f"server.tool_{i}" for i in (251, 252, 253)}
    page.fill("#find", "")
    page.select_option("#most", "300")
    assert len(names(page)) == 300
    assert len(set(zip(column(page, "nodes", "x"), column(page, "nodes", "y"), strict=True))) == 301
    labels = len(column(page, "labels", "text"))
    page.evaluate("""() => {
        const { x_range: x, y_range: y } = Bokeh.documents[0].get_model_by_name("graph");
        x.setv({ start: 0, end: x.end / 4 });
        y.setv({ start: 0, end: y.end / 4 });
    }""")
    until(page, "(n) => Bokeh.documents[0].get_model_by_name('labels').data.text.length > n", arg=labels)


def test_a_real_memory_is_shown(show: Opener) -> None:
    with ToolMemory.ephemeral() as memory:
        for i in range(3):
            found = {"id": f"o{i}"}
            run = history(
                user(f"order {i}?"), call("find", {"n": i}, found), call("track", {"order": f"o{i}"}, FAILED), words()
            )
            memory.finish(run, thread_id=f"run-{i}")
        page = show(memory.report(), memory.view())
    assert names(page) == {"find", "track"}
    page.check("#flow")
    assert column(page, "flows", "head") == ["find → track"]
    page.click("#tools button[data-tool=track]")
    assert "3 (100 %)" in page.inner_text("#details")


def test_an_empty_memory_says_so(show: Opener) -> None:
    page = show(Report(), GraphView())
    text = page.inner_text("main")
    for told in ("No tool call has been seen yet", "No times are on record yet", "No rule has a record yet"):
        assert told in text
    assert "no turns seen yet" in text
    assert page.evaluate("Bokeh.documents.length") == 0


def test_one_hour_is_drawn_too(show: Opener) -> None:
    page = show(Report(turns=20, periods=HOURS[:1]), DESK)
    assert "within one hour" in page.inner_text("main")
    assert (38, 115, 168) in colours(page, "#turns")


def test_a_first_session_is_drawn_run_by_run(show: Opener) -> None:
    page = show(replace(FIRST_HOUR, newest_runs=RUNS), DESK)
    text = page.inner_text("main")
    assert "Model turns per run" in text
    assert "Run by run, oldest first; by the hour" in text
    script = """(name) => {
        const figure = Bokeh.documents.map((d) => d.roots()[0]).find((root) => root.name === name);
        const data = figure.renderers[0].data_source.data;
        return [data.time, data.turns, data.so_far].map((column) => Array.from(column));
    }"""
    assert page.evaluate(script, "turns") == [[1, 2, 3], [4, 5, 3], [0, 1, 3]]
    page.locator("#saved").scroll_into_view_if_needed()
    box = page.locator("#saved").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 60)
    seen = "[...document.querySelectorAll('.bk-Tooltip')].map((t) => t.shadowRoot.textContent).join('')"
    until(page, f"{seen}.includes('run 3, 2026-10-05 00:01 UTC')")


def test_where_nothing_was_checked_the_chart_is_open(show: Opener) -> None:
    page = show()
    drawn = page.evaluate("""() => {
        const figure = Bokeh.documents.map((d) => d.roots()[0]).find((root) => root.name === "precision");
        const shares = figure.renderers[0].data_source.data.precision;
        return Array.from(shares, (share) => Number.isNaN(share) ? "open" : share);
    }""")
    assert drawn == [0.75, "open", 1]


def test_tools_that_may_change_something_are_marked(show: Opener) -> None:
    report = replace(
        RECORD, sections=kinds_of_predictions(changing={"write": "its name <says> so", "mail": "it sends"})
    )
    page = show(report)
    marked = page.locator("#tools tr:has(.tag) [data-tool]")
    assert marked.all_inner_texts() == ["write", "mail"]
    assert page.get_attribute("#tools tr:has-text('write') .tag", "title") == (
        "may change something: its name <says> so"
    )
    markers = dict(zip(column(page, "nodes", "head"), column(page, "nodes", "marker"), strict=True))
    assert {name for name, marker in markers.items() if marker == "diamond"} == {"write", "mail"}
    assert page.locator(".legend .diamond").count() == 1
    page.click("#tools [data-tool=write]")
    assert "May change something: its name <says> so." in page.inner_text("#details")
    page.click("#tools [data-tool=read]")
    assert "May change" not in page.inner_text("#details")


def test_a_long_name_stands_in_two_lines_and_is_whole_on_hover(show: Opener) -> None:
    long, longer = "check_availability_of_rooms", "server.of.the.company__" + "check_availability_" * 4
    edges = [EdgeView(START if i == 0 else f"t{i - 1}", f"t{i}", 9, 9, 0) for i in range(6)]
    tools = {name: ToolCounts(9, 0) for name in (long, longer, *(f"t{i}" for i in range(6)))}
    page = show(Report(), GraphView(tools, [*edges, EdgeView("t0", long, 5, 5, 0), EdgeView("t1", longer, 5, 5, 0)]))
    labels = dict(zip(column(page, "labels", "head"), column(page, "labels", "text"), strict=True))
    assert labels[long].replace("\n", "") == long
    assert labels[long].count("\n") == 1
    assert "…" in labels[longer]
    page.locator("#graph").scroll_into_view_if_needed()
    below = column(page, "labels", "offset")[column(page, "labels", "head").index(longer)] + 8
    x, y = place_of(page, longer)
    page.mouse.move(x, y + below)
    until(page, "(name) => document.querySelector('.bk-Tooltip')?.shadowRoot.textContent.includes(name)", arg=longer)


@pytest.mark.parametrize("width", [360, 375, 768])
def test_narrow_windows_need_no_sideways_scrolling(show: Opener, width: int) -> None:
    long = "server.of.the.company__" + "check_availability_" * 6
    rule = RuleRecord(long, long, "+".join(("l", "uq", "us", "o", "i", "t")), 12_345, 678)
    told = {"shown": 123_456, "followed": 98_765, "right": 98_765, "helped": 1, "hurt": 1}
    ahead = {"started": 20, "served": 10, "in_time": 4, "wasted": 9, "seconds_saved": 3.25}
    figures = {
        "audits": {"checks": 40, "right": 39, "low": 0.868, "high": 0.999, "at_least": 0.886},
        "calls_made": 800,
        "budget_open": True,
        "prefetch": ahead,
        "changing": {long: "it " * 90},
    }
    report = replace(
        RECORD,
        tools={**RECORD.tools, long: ToolReport(123_456, 1, 2, 3, 4)},
        newest_runs=RUNS,
        sections={**kinds_of_predictions(rule, replace(rule, hits=0), **figures), "sit": Section(long, told)},
    )
    page = show(report, width=width)
    page.click("#never-right summary")
    page.click(f"#tools [data-tool='{long}']")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    ends = page.evaluate(
        "[...document.querySelectorAll('.figures, .figures > :last-child')].map((e) => e.getBoundingClientRect().right)"
    )
    assert ends[0] == pytest.approx(ends[1], abs=0.1), "the last row of figures has no gap"
    wide = (
        "[...document.querySelectorAll('table')].filter((t) => t.scrollWidth > t.closest('.scroll').clientWidth).length"
    )
    assert page.evaluate(wide) == (0 if width > 600 else 4), "they scroll in boxes of their own"
    assert len(names(page)) == 5
    assert max(column(page, "nodes", "x")) < width


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
    assert "{{ 7 * 7 }}" in page.inner_text("#tools")
    assert "\u202e" not in page.content()
