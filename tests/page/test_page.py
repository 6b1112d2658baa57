"""The HTML page: its parts by hand, then the whole in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import open_browser

from langgraph_toolmem.core.method import Section
from langgraph_toolmem.graph.view import START, EdgeView, FlowView, GraphView, ToolCounts
from langgraph_toolmem.page import render_page
from langgraph_toolmem.page.render import depths
from langgraph_toolmem.report.report import REPORT_LIMITS, Report, Saved, ShadowReport, ToolReport

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


def kinds_of_predictions(**figures: Any) -> dict[str, Section]:
    return {"inertia": Section("Shortcut and prefetch", figures)}


RECORD = Report(
    turns=60,
    calls=89,
    skipped=17,
    skipped_failed=1,
    right=7,
    wrong=1,
    precision=7 / 8,
    saved=Saved(17, seconds=20.4, input_tokens=12_000, output_tokens=345, money=3.5),
    model_seconds=51.6,
    currency="EUR",
    tools={
        "search": ToolReport(40, 0, 10, 4, 0),
        "read": ToolReport(40, 10, 7, 3, 1),
        "write": ToolReport(10, 5),
        "mail": ToolReport(4, 0),
    },
    sections=kinds_of_predictions(
        audits={"checks": 40, "right": 39, "low": 0.868, "high": 0.999, "at_least": 0.886},
        calls_made=800,
        budget_open=False,
    ),
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
    found = depths([START, "a", "b", "alone"], edges)
    assert found[START] == 0
    assert found["a"] == pytest.approx(1.415037, abs=1e-6)  # 1 - log2(3/4)
    assert found["b"] == pytest.approx(2.415037, abs=1e-6)  # over a: + 1 - log2(1); alone: 1 - log2(1/4) = 3
    assert found["alone"] > found["b"]
    assert depths(["only"], []) == {"only": 1}


CHANGES = [
    {
        "hour": MONDAY // 3600,
        "thread": "t-<7>",
        "tool": "write",
        "args": '{"title": "x"}',
        "status": "ok",
        "result": "written",
    }
]


def test_the_same_input_gives_the_same_page_and_it_names_no_address() -> None:
    first = render_page(RECORD, DESK, generated=0.0)
    assert render_page(RECORD, DESK, generated=0.0) == first
    assert render_page(RECORD, DESK, generated=60.0) != first
    page = first.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"(?:src|href)=(?![\"']?data:)|https?://|url\((?!data:)|@import", page)
    assert len(render_page(RECORD, crowd(2_000)).encode()) < 200_000


def test_the_first_line_is_a_judgement_and_no_share_is_told_of_few_checks() -> None:
    assert "Saved 17 of 60 model calls; 7 of 8 checks right; too early to trust it." in render_page(RECORD, DESK)
    many = replace(RECORD, right=199, wrong=1)
    assert many.headline() == "Saved 17 of 60 model calls; 199 of 200 checks right, at least 97 %; trust it."
    kinds = {"reads": {"checks": 180, "right": 180}, "writes": {"checks": 12, "right": 12}}
    apart = replace(many, sections=kinds_of_predictions(checks_by_kind=kinds))
    assert apart.headline().endswith("; too early to trust writes; trust reads.")
    kinds["writes"] = {"checks": 0, "right": 0}
    assert apart.headline().endswith("; trust reads."), "nothing is said of what was never checked"
    assert replace(RECORD, right=30, wrong=10).headline().endswith("look at what was wrong with it.")
    assert Report().headline() == "Nothing was seen yet."


def test_the_first_line_says_what_shadow_mode_would_have_saved() -> None:
    """The words "Saved 0 of 200" read as a failure, next to the line that says what would have been saved."""
    reads = {"reads": {"checks": 80, "right": 80}}
    watching = kinds_of_predictions(checks_by_kind=reads, agents=[{"mode": "shadow"}])
    watched = Report(turns=200, right=80, sections=watching, shadow=(ShadowReport("desk", 200, Saved(74)),))
    checked = "80 of 80 checks right, at least 96 %; trust reads."
    assert watched.headline() == f"Would have saved 74 of 200 model calls in shadow mode; {checked}"
    acting = replace(watched, turns=500, saved=Saved(120))
    assert acting.headline().startswith(
        "Saved 120 of 500 model calls, and would have saved 74 more in shadow mode; 80 "
    )
    begun = Report(turns=3, sections=watching)
    assert begun.headline() == ("Watched 3 model calls in shadow mode; nothing was checked yet: too early to trust it.")
    both = kinds_of_predictions(agents=[{"mode": "shadow"}, {"mode": "acting"}])
    assert replace(begun, sections=both).headline().startswith("Saved 0 of 3 model calls; ")


def test_what_is_to_be_reviewed_declared_and_withdrawn_is_told() -> None:
    found = kinds_of_predictions(
        changes=CHANGES,
        undeclared=["read", "mail"],
        suggested=["read"],
        refused=["mail"],
        changing={"write": "its name <says> so"},
        mode="acting",
        kind="calibrated",
        declared=[3, 1],
    )
    report = replace(RECORD, sections=found)
    page = render_page(report, DESK)
    assert "<td>t-&lt;7&gt;</td><td>write</td><td>{&quot;title&quot;: &quot;x&quot;}</td><td>ok: written</td>" in page
    assert "2026-10-05 00:00" in page
    assert "reads={&quot;read&quot;}" in page
    nothing_seems_to_read = kinds_of_predictions(undeclared=["send_mail"], suggested=[])
    assert "reads={" not in render_page(replace(RECORD, sections=nothing_seems_to_read), DESK)
    agent = {"name": "desk", "mode": "shadow", "kind": "calibrated", "may_write": ["mail"], "never": [], "turns": 60}
    agent |= {"key": "k", "saved": 0, "shadow": {"checks": 4, "right": 3, "wrong": 1}}
    missed = {"agent": "k", "hour": 0, "thread": "t<9>", "tool": "read", "args": "{}", "instead": "write({})"}
    missed["found_by"] = "in shadow mode"
    of_agents = kinds_of_predictions(mode="acting", kind="x", declared=[3, 1], agents=[agent], wrong_calls=[missed])
    page_of_agents = render_page(replace(RECORD, sections=of_agents), DESK)
    assert "may write without the model: mail. It watched 60 model calls" in page_of_agents
    assert "<td>t&lt;9&gt;</td><td>read</td><td>{}</td><td>write({})</td><td>in shadow mode</td>" in page_of_agents
    assert "mail: a person refused" in page
    assert "its name \\u003csays\\u003e so" in page
    assert "Declared: 3 tools that only read, 1 that may write" in page
    printed = str(report)
    assert "Changed by the memory: write(" in printed
    assert "no tool that may change something was called" in render_page(RECORD, DESK)


def test_the_printed_report_has_at_most_forty_lines() -> None:
    long = replace(
        RECORD,
        problems=("disk full",),
        tools={f"tool_{number}": ToolReport(9) for number in range(300)},
        sections=kinds_of_predictions(changes=CHANGES * 30),
    )
    lines = str(long).splitlines()
    assert len(lines) == REPORT_LIMITS.lines == 40
    assert lines[0] == long.headline()
    assert "and 25 changes more" in lines
    assert lines[-1].endswith("tools more")


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


def nodes(page: Page) -> list[str]:
    return [str(each.get_attribute("data-tool")) for each in page.locator("svg .node").all()]


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_the_graph_is_drawn_and_fits_the_window(show: Opener, width: int, dark: bool) -> None:
    page = show(width=width, dark=dark)
    assert set(nodes(page)) == {"start of a run", "search", "read", "write", "mail"}
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("svg path.edge").count() == 5, "a tool after itself has no arrow"
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(20, 24, 28)") is dark


def test_names_are_not_broken_in_a_narrow_window(show: Opener) -> None:
    page = show(width=360)
    lines = """(cell) => {
        cell.textContent = "find_customer_by_name";
        const text = document.createRange();
        text.selectNodeContents(cell);
        return text.getClientRects().length;
    }"""
    assert page.locator(".scroll td").first.evaluate(lines) == 1
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_rare_arrows_can_be_left_out_and_a_tool_be_chosen(show: Opener) -> None:
    page = show(view=DESK)
    page.locator("#least").evaluate("(it) => { it.value = it.max; it.dispatchEvent(new Event('input')); }")
    assert page.locator("svg path.edge").count() == 1
    assert page.inner_text("#least-value") == "40"
    page.locator("#least").evaluate("(it) => { it.value = 0; it.dispatchEvent(new Event('input')); }")
    page.locator("svg .node[data-tool=write]").click()
    details = page.inner_text("#details")
    assert "10 calls, 5 failed" in details
    assert "id ← argument id of read: 9 of 10 times" in details
    assert page.locator("svg .node.dim").count() == 2  # search, and the start
    page.fill("#find", "ear")
    assert page.inner_text("#details h3") == "search"
    page.fill("#find", "")
    assert page.locator("svg .dim").count() == 0


def test_of_many_tools_the_twelve_busiest_are_drawn_first(show: Opener) -> None:
    page = show(Report(), crowd(300))
    assert len(nodes(page)) == 13
    page.fill("#find", "server.tool_252")  # comes with its neighbours, however rare
    assert {"server.tool_251", "server.tool_252", "server.tool_253"} <= set(nodes(page))
    page.fill("#find", "")
    page.check("#all")
    assert len(nodes(page)) == 301


def test_an_empty_memory_has_a_page(show: Opener) -> None:
    assert show(Report(), GraphView()).locator("svg").count() == 0


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
        sections=kinds_of_predictions(
            undeclared=cruel,
            changes=[{**CHANGES[0], "tool": name, "args": name, "result": name} for name in cruel],
        ),
        problems=tuple(cruel),
        saved=Saved(0, money=1.0),
        currency=cruel[0],
    )
    page = show(report, view)
    assert len(nodes(page)) == len(cruel) + 1
    page.fill("#find", cruel[0])
    assert page.inner_text("#details h3") == cruel[0]
    assert page.evaluate("window.hurt") is None
    assert page.locator("img, svg[onload]").count() == 0
    assert page.locator("#tools tbody tr").count() == len(cruel)
    assert "\u202e" not in page.content()
