"""What comes before a tool: precedents by hand, contracts by hand, and both together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from langgraph_toolmem.navigator.tool_search.precedents import PRIOR, Precedents
from langgraph_toolmem.navigator.tool_search.prerequisites import SIGNALS, PrerequisiteSearch, outputs
from langgraph_toolmem.navigator.tool_search.search import ToolSearch
from langgraph_toolmem.runs.tools import ToolSpec


def spec(name: str, takes: str = "", gives: str = "", description: str = "", optional: str = "") -> ToolSpec:
    properties = {each: {"type": "string"} for each in (*takes.split(), *optional.split())}
    parameters = {"type": "object", "properties": properties, "required": takes.split()}
    returns = {"type": "object", "properties": {each: {"type": "string"} for each in gives.split()}}
    return ToolSpec(name, description, parameters, returns if gives else None)


def shop() -> list[ToolSpec]:
    return [
        spec("find_customer", "email", "customer_key full_name", "Find a customer"),
        spec("get_order", "customer_key", "order_number total", "Orders of a customer"),
        spec("refund_order", "order_number", "", "Give money back"),
        spec("weather", "city", "temperature", "The weather"),
        spec("log_in", "", "", "Start a session"),
    ]


def names(found):
    return [each.name for each in found]


def test_before_by_hand():
    precedents = Precedents()
    precedents.add(["a", "b", "c"])
    precedents.add(["b", "c"])
    precedents.add(["c", "a", "c"])
    assert len(precedents) == 3
    share = {"a": 2.5 / 4, "b": 2.5 / 4, "c": 3.5 / 4}
    assert precedents.rates(["a", "b", "c"]).before("c") == pytest.approx(
        [
            (2 + PRIOR * share["a"]) / (3 + PRIOR),
            (2 + PRIOR * share["b"]) / (3 + PRIOR),
            PRIOR * share["c"] / (3 + PRIOR),
        ]
    )
    assert precedents.rates(["c", "b"]).together("a") == pytest.approx(
        [(2 + PRIOR * share["c"]) / (2 + PRIOR), (1 + PRIOR * share["b"]) / (2 + PRIOR)]
    )


def test_votes_come_from_similar_requests():
    precedents = Precedents()
    for i in range(6):
        precedents.add(["book", "pay"], f"book a hotel room for {i} nights")
        precedents.add(["plot"], f"draw a chart of sales in region {i}")
    votes = precedents.votes("please book a room in a hotel")
    assert votes["book"] == votes["pay"] > 3 * votes.get("plot", 0)
    assert all(0 <= share <= 1 for share in votes.values())
    assert precedents.votes("") == precedents.votes("xylophone") == {}


def test_votes_lose_their_weight_where_they_are_wrong():
    right, wrong = Precedents(), Precedents()
    for i in range(40):
        right.add(["a"], "book a hotel room")
        wrong.add([f"t{i}"], "book a hotel room")
    assert sum(right.votes("book a hotel room").values()) > 0.8
    assert sum(wrong.votes("book a hotel room").values()) < 0.1


def same(one: Precedents, two: Precedents) -> None:
    for target in "abc":
        ours, theirs = one.rates("abc"), two.rates("abc")
        assert ours.before(target).tolist() == theirs.before(target).tolist()
        assert ours.together(target).tolist() == theirs.together(target).tolist()
    assert {*one.votes("book a hotel room")} == {*two.votes("book a hotel room")}


def test_an_episode_that_is_removed_or_replaced_leaves_no_count():
    one, two = Precedents(), Precedents()
    one.add(["a", "b"], "book a hotel room", key="x")
    one.add(["b", "c"], "draw a chart", key="y")
    one.add(["c"], "book a hotel room", key="z")
    votes = one.votes("book a hotel room")
    one.add(["c"], "book a hotel room", key="z")
    assert one.votes("book a hotel room") == votes, "what is known already is not foretold again"
    one.remove("x")
    one.remove("never there")
    one.add(["a", "c"], "draw a chart", key="y")
    two.add(["a", "c"], "draw a chart")
    two.add(["c"], "book a hotel room")
    same(one, two)
    assert len(one) == 2
    one.add([], "draw a chart", key="y")
    assert len(one) == 1
    one.keep_latest(0)
    assert len(one) == 0
    assert one.votes("book a hotel room") == {}


def test_what_gives_what_the_target_takes_comes_first():
    found = PrerequisiteSearch(ToolSearch(shop())).search("I want my money back", "refund_order", 4)
    assert found[0].name == "get_order"
    assert found[0].parts["gives what it takes"] > 0
    assert "refund_order" not in names(found)
    assert set(found[0].parts) == set(SIGNALS)


def test_what_always_came_before_comes_first():
    precedents = Precedents()
    for _ in range(20):
        precedents.add(["log_in", "refund_order"])
    chains = PrerequisiteSearch(ToolSearch(shop()), precedents)
    assert names(chains.search("I want my money back", "refund_order", 2))[0] == "log_in"
    alone = PrerequisiteSearch(ToolSearch(shop()))
    assert names(alone.search("I want my money back", "refund_order", 4))[0] != "log_in"


def test_tools_of_one_toolkit_come_together():
    tools = [replace(spec(name), toolkit=kit) for name, kit in zip("xyz", "KKL", strict=True)]
    assert names(PrerequisiteSearch(ToolSearch(tools)).search("", "x", 2)) == ["y", "z"]


def test_optional_choices_and_yes_or_no_parameters_count_less_or_nothing():
    gives = spec("giver", "", "tracking_number colour express")
    properties = {
        "colour": {"enum": ["red"]},
        "express": {"type": "boolean"},
        "tracking_number": {"type": "string"},
    }
    target = ToolSpec("target", "", {"type": "object", "properties": properties})
    needed = ToolSpec("needed", "", {**target.parameters, "required": ["tracking_number"]})
    tools = [gives, target, needed, *(spec(f"other{i}", "thing", f"result{i}") for i in range(9))]
    chains = PrerequisiteSearch(ToolSearch(tools))
    place = SIGNALS.index("gives what it takes")

    def given_by(name: str) -> float:
        labels, found = chains.signals("", name)
        return float(found[place, labels.index("giver")])

    assert given_by("target") == pytest.approx(given_by("needed") / 2)
    assert given_by("needed") == pytest.approx(1.0)


def test_the_chains_follow_the_tools():
    search = ToolSearch(shop())
    chains = PrerequisiteSearch(search)
    assert names(chains.search("", "refund_order", 1)) == ["get_order"]
    search.remove(["get_order", "weather", "log_in"])
    search.add([spec("look_up", "", "order_number")])
    assert names(chains.search("", "refund_order", 5)) == ["look_up", "find_customer"]
    search.add([spec("look_up", "", "nothing_of_use")])
    assert chains.search("", "refund_order", 5)[0].parts["gives what it takes"] == 0
    with pytest.raises(KeyError):
        chains.search("", "get_order")


def test_what_runs_showed_of_results_counts_like_what_is_declared():
    silent = [replace(each, returns=None) for each in shop()]
    search = ToolSearch(silent)
    chains = PrerequisiteSearch(search)
    part = "gives what it takes"
    assert not any(hit.parts[part] for hit in chains.search("", "refund_order", 5))
    chains.note_outputs({"get_order": ["[].order_number", "[].lines[].sku"]})
    found = {hit.name: hit.parts[part] for hit in chains.search("", "refund_order", 5)}
    assert [name for name, given in found.items() if given] == ["get_order"]
    declared = PrerequisiteSearch(
        ToolSearch([*silent[:1], spec("get_order", "customer_key", "order_number lines sku"), *silent[2:]])
    )
    assert found["get_order"] == declared.search("", "refund_order", 1)[0].parts[part]
    chains.note_outputs({"get_order": [], "weather": ["order_number"]})
    assert [hit.name for hit in chains.search("", "refund_order", 5) if hit.parts[part]] == ["weather"]
    search.add([replace(silent[3], description="Rain")])
    assert [hit.name for hit in chains.search("", "refund_order", 5) if hit.parts[part]] == ["weather"]


async def test_async_chains_are_the_same():
    chains = PrerequisiteSearch(ToolSearch(shop()))
    query = "give the money of the order back"
    assert await chains.asearch(query, "refund_order", 3) == chains.search(query, "refund_order", 3)
    assert names(chains.search(query, "refund_order", 3, exclude=["get_order"]))[0] != "get_order"
    assert chains.search(query, "refund_order", 0) == []


def test_outputs_of_any_schema():
    inner = {"type": "array", "items": {"properties": {"c": {}, "d": {"properties": {"e": 1}}}}}
    schema = {"properties": {"a": inner, "b": True}, "anyOf": [{"properties": {"f": {}}}, None], "allOf": "?"}
    assert outputs(ToolSpec("t", "", {}, schema)) == ["a", "c", "d", "e", "b", "f"]
    assert outputs(ToolSpec("t", "", {})) == []
    deep: dict = {}
    deep["properties"] = {"again": deep}
    assert len(outputs(ToolSpec("t", "", {}, deep))) < 20
