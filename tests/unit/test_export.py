"""The graph as Mermaid, also for tool names that try to break out."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.graph.export import (
    START,
    EdgeView,
    FlowView,
    GraphView,
    ToolCounts,
    printable,
    to_mermaid,
)

VIEW = GraphView(
    tools={"email.search": ToolCounts(9, 1), "email.delete": ToolCounts(7, 0), "never": ToolCounts(0, 0)},
    edges=[
        EdgeView(START, "email.search", 10, 9, 1),
        EdgeView("email.search", "email.delete", 7, 7, 0),
        EdgeView("email.search", "email.search", 1, 1, 0),
    ],
    dataflow=[
        FlowView("email.search", "out", "[*].id", "email.delete", "id", 6, 1),
        FlowView("email.search", "in", "query", "email.search", "query", 1, 0),
    ],
)

NODE = re.compile(r'    n\d+\["((?:[^\W]|[ _.,:/+→…-]|#\d+;|<br/>)*)"\]')
EDGE = re.compile(r'    n\d+ -(?:-|\.-)>\|"((?:[^\W]|[ _.,:/+→…-]|#\d+;|<br/>)*)"\| n\d+')

HOSTILE = [
    '"]; click n0 "javascript:alert(1)',
    "a\n    n0 --> n1",
    "[x](y){z}<b>|",
    "%%{init: {}}%%",
    "end",
    "1. first",
    "- item",
    "`code`",
    "#quot;",
    "",
    "naïve 日本語 🙂",
    "\x1b[2J\x00\u202e",
    "\ud800",
    "x" * 500,
    START,
]


def hostile_view(names: list[str]) -> GraphView:
    return GraphView(
        tools={name: ToolCounts(1, 2) for name in names},
        edges=[EdgeView(START, name, 3, 1, 2) for name in names],
        dataflow=[FlowView(name, "out", name, name, name, 1, 0) for name in names],
    )


def test_mermaid_of_a_small_graph_line_by_line():
    assert to_mermaid(VIEW).splitlines() == [
        "flowchart TD",
        '    n0(["start of a run"])',
        '    n1["email.search<br/>9 ok, 1 failed"]',
        '    n2["email.delete<br/>7 ok"]',
        '    n0 -->|"10, 1 failed"| n1',
        '    n1 -->|"7"| n2',
        '    n1 -->|"1"| n1',
        '    n1 -.->|"output #91;#42;#93;.id → id"| n2',
        '    n1 -.->|"argument query → query"| n1',
    ]


def test_mermaid_keeps_the_most_frequent_arrows_and_says_what_it_left_out():
    lines = to_mermaid(VIEW, max_edges=1).splitlines()

    assert "    %% 1 of 3 sequence arrows are drawn, the most frequent ones" in lines
    assert "    %% 1 of 2 dataflow arrows are drawn, the most frequent ones" in lines
    assert [line for line in lines if "-->" in line] == ['    n0 -->|"10, 1 failed"| n1']


def test_mermaid_leaves_out_thin_evidence():
    text = to_mermaid(VIEW, min_count=2)

    assert '"1"' not in text
    assert "argument query" not in text
    assert "output" in text


def test_mermaid_gathers_the_dataflow_between_two_tools_on_one_arrow():
    flows = [FlowView("a", "out", f"p{i}", "b", f"q{i}", 10 - i, 0) for i in range(5)]
    (arrow,) = (line for line in to_mermaid(GraphView(dataflow=flows)).splitlines() if "-.->" in line)

    assert arrow == '    n0 -.->|"output p0 → q0<br/>output p1 → q1<br/>output p2 → q2<br/>and 2 more"| n1'


def test_mermaid_of_nothing_is_still_a_diagram():
    assert to_mermaid(GraphView()) == "flowchart TD\n"
    assert "%% 0 of 3" in to_mermaid(VIEW, max_edges=-1)


def _assert_well_formed(mermaid: str) -> None:
    head, *lines = mermaid.splitlines()
    assert head == "flowchart TD"
    for line in lines:
        assert (
            NODE.fullmatch(line)
            or EDGE.fullmatch(line)
            or line == '    n0(["start of a run"])'
            or re.fullmatch(r"    %% \d+ of \d+ .*", line)
        ), line


@pytest.mark.parametrize("name", HOSTILE)
def test_mermaid_lets_no_name_out_of_its_label(name):
    _assert_well_formed(to_mermaid(hostile_view([name, "other"])))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=4, unique=True))
def test_mermaid_is_well_formed_for_any_names(names):
    _assert_well_formed(to_mermaid(hostile_view(names)))


def test_printable_keeps_words_and_drops_controls():
    assert printable("naïve 日本\n\tx\x1b[2J") == "naïve 日本  x\ufffd[2J"
