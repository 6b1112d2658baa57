"""The navigator's benchmark: its figures by hand on small data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import navigator as bench
from benchmarks.navigator_data import (
    GoldFlow,
    catalogue,
    measured,
    nestful_flows,
    nestful_histories,
    recorded_flows,
    specs_of,
)
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import Flow, History

TEXT = {"type": "string"}


def tool(name: str, takes: list[str], gives: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": dict.fromkeys(takes, TEXT), "required": takes}
    returns = {"type": "object", "properties": dict.fromkeys(gives, TEXT)}
    return {"type": "function", "function": {"name": name, "parameters": parameters, "returns": returns}}


TOOLS = [
    tool("find_user", ["email"], ["user_id"]),
    tool("get_orders", ["user_id"], ["total"]),
    tool("pay", ["sum_due"], []),
]
QUERY = {
    "id": "q0",
    "group": "g",
    "calls": [
        {"name": "find_user", "arguments": {"email": "a@b.c"}},
        {"name": "get_orders", "arguments": {"user_id": "$var1.user_id$"}},
        {"name": "pay", "arguments": {"sum_due": "$var2.total$"}},
    ],
    "edges": [
        {"from": 0, "output": "user_id", "to": 1, "param": "user_id"},
        {"from": 1, "output": "total", "to": 2, "param": "sum_due"},
    ],
}


@pytest.fixture
def nestful(tmp_path: Path) -> Path:
    folder = tmp_path / "nestful"
    folder.mkdir()
    (folder / "tools.json").write_text(json.dumps(TOOLS), encoding="utf-8")
    assert [measured(f"q{number}") for number in (4, 0)] == [False, True]
    lines = [json.dumps({**QUERY, "id": f"q{number}"}) for number in (4, 0)]
    (folder / "queries.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_gold_edges_and_what_a_half_teaches(nestful: Path):
    flows = nestful_flows(nestful)
    assert flows[0] == GoldFlow("q4", "g", frozenset({("find_user", "user_id")}), "get_orders", "user_id")
    assert len(flows) == 4
    halves = nestful_histories(nestful)
    assert halves[True] == halves[False]
    assert halves[True].weight("find_user", "get_orders") == 1
    assert halves[True].flows[Flow("get_orders", "total", "pay", "sum_due")] == 1
    assert halves[True].given == {("find_user", "email"): 1}


def test_shares_and_density_by_hand(nestful: Path):
    graph = ToolDependencyGraph(specs_of(nestful).values())
    overall = bench.shares(graph, nestful_flows(nestful), "x")[0]
    assert (overall.group, overall.flows, overall.listed, overall.found) == ("all", 4, 4, 2)
    assert bench.density(graph) == (1 / 3, 1 / 3)


def test_chains_are_asked_for_every_target(nestful: Path):
    graph = ToolDependencyGraph(specs_of(nestful).values())
    found = bench.chains("nestful", graph, nestful_flows(nestful), nestful_histories(nestful))
    cold = next(row for row in found if (row.strategy, row.knows, row.group) == ("alpha_beta", "nothing", "g"))
    assert (cold.targets, cold.best, cold.further) == (4, 50.0, 0.0)


def test_nobody_is_asked_what_it_taught(nestful: Path):
    def teaching(half: bool) -> bench.Chains:
        halves = {half: nestful_histories(nestful)[half], not half: History()}
        found = bench.chains("nestful", graph, [flow for flow in flows if measured(flow.task) is half], halves)
        return next(r for r in found if (r.strategy, r.knows, r.group) == ("alpha_beta", "the other half", "g"))

    graph, flows = ToolDependencyGraph(specs_of(nestful).values()), nestful_flows(nestful)
    assert [teaching(half).best for half in (False, True)] == [50.0, 50.0]


def test_recorded_flows_are_values_that_nobody_said(tmp_path: Path):
    def call(number: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
        asked = {"id": number, "function": {"name": name, "arguments": json.dumps(args)}}
        return {"role": "assistant", "content": "", "tool_calls": [asked]}

    def answer(number: str, output: Any) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": number, "content": json.dumps(output)}

    messages = [
        {"role": "user", "content": "orders of a@b.c, please, in euro"},
        call("1", "find_user", {"email": "a@b.c"}),
        answer("1", {"user": {"id": "u77", "currency": "euro"}, "list": {"1001": {"sku": "s-1"}}}),
        call("2", "get_orders", {"user_id": "u77", "currency": "euro", "skus": ["s-1"], "n": 1}),
        answer("2", []),
        call("3", "get_orders", {"user_id": "u77"}),
    ]
    (tmp_path / "trajectories.jsonl").write_text(json.dumps({"task": "t", "messages": messages}), encoding="utf-8")
    flows, outputs = recorded_flows(tmp_path)

    assert [(flow.parameter, flow.sources) for flow in flows] == [
        ("user_id", {("find_user", "user.id")}),
        ("skus", {("find_user", "list[].sku")}),
        ("user_id", {("find_user", "user.id")}),
    ]
    assert [(task, tool) for task, tool, _ in outputs] == [("t", "find_user"), ("t", "get_orders")]


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
def test_a_catalogue_has_as_many_tools_as_asked(nestful: Path, own: bool):
    base = list(specs_of(nestful).values())
    made = catalogue(base, 8, own_parameters=own)
    assert len({spec.name for spec in made}) == 8
    assert made[:3] == base
    labels = {cluster.label for cluster in ToolDependencyGraph(made).clusters.by_id.values()}
    assert any("zu" in label for label in labels) is own


def test_the_report_of_one_small_size_is_complete(nestful: Path, capsys: pytest.CaptureFixture[str]):
    figures = bench.scale(nestful, 6, own_parameters=False, samples=2)
    assert figures["tools"] == 6
    assert figures["plan alpha_beta, any target"]["cut_short"] == 0
    bench.show([figures], bench.flow_report(nestful.parent))
    shown = capsys.readouterr().out
    assert "nestful, same meaning" in shown
    assert shown.count("holds") + shown.count("MISSED") == 5
