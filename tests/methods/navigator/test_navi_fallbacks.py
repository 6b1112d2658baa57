"""What is most like a failed tool: by its words and a search, never of another nature; small catalogues by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from examples.many_tools import generated
from examples.office.office import ALTERNATIVES, Office
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.navigator.decide.fallbacks import MOST, Fallbacks, writes
from langgraph_toolmem.runs.tools import ToolSpec, read_tools


def tool(name: str, about: str, /, *, hints: dict[str, Any] | None = None, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": value} for key, value in parameters.items()}
    given: dict[str, Any] = {"name": name, "description": about, "inputSchema": {"type": "object"}}
    given["inputSchema"]["properties"] = properties
    return {**given, "annotations": hints} if hints else given


def nothing(text: str, most: int) -> Sequence[str]:
    return []


SPECS = read_tools(
    [
        tool("find_person", "Find a colleague by name; gives the e-mail address.", name="Full or family name."),
        tool("search_directory", "Search the company's colleagues.", query="Words of a name or address."),
        tool("delete_person", "Delete a colleague by name.", name="Full or family name."),
        tool("get_weather", "The weather of a city.", city="City."),
        tool("colleague", "A colleague by family name.", name="Full name."),
    ]
)


def test_what_shares_rare_words_stands_in_and_what_writes_does_not() -> None:
    found = Fallbacks(SPECS, nothing).of("find_person", SPECS)
    assert found == ["colleague", "search_directory"], "of unknown nature it may be; a deletion is no way to look up"
    assert Fallbacks(SPECS, nothing).of("get_weather", SPECS) == []


def test_only_what_may_be_called_counts() -> None:
    alternatives = Fallbacks(SPECS, nothing)
    assert alternatives.of("find_person", {"search_directory", "get_weather"}) == ["search_directory"]
    assert alternatives.of("find_person", SPECS, most=1) == ["colleague"]
    assert alternatives.of("no_such_tool", SPECS) == []


def test_what_a_search_finds_goes_before_what_only_sounds_alike() -> None:
    asked: list[str] = []

    def search(text: str, most: int) -> Sequence[str]:
        asked.append(text)
        return ["search_directory", "delete_person", "gone"]

    assert Fallbacks(SPECS, search).of("find_person", SPECS) == ["search_directory", "colleague"]
    assert asked == ["find_person Find a colleague by name; gives the e-mail address."]


def test_among_very_many_only_what_a_search_finds_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_toolmem.navigator.decide.fallbacks.POOL", 3)
    assert Fallbacks(SPECS, lambda text, most: ["search_directory"]).of("find_person", SPECS) == ["search_directory"]


def test_whether_a_tool_writes_is_declared_or_told_by_its_verb() -> None:
    specs = read_tools(
        [
            tool("get_x", "", hints={"readOnlyHint": False}),
            tool("drop_x", "", hints={"destructiveHint": True, "readOnlyHint": False}),
            tool("send_x", "", hints={"readOnlyHint": True}),
            tool("send_y", ""),
            tool("list_y", ""),
            tool("zorb_y", ""),
        ]
    )
    assert [writes(spec) for spec in specs.values()] == [True, True, False, True, False, None]


def test_strange_schemas_do_no_harm() -> None:
    parameters: dict[str, Any] = {"type": "object", "properties": {"q": {}, "r": {"description": 3}}}
    odd: dict[str, ToolSpec] = read_tools(
        [{"name": "a.b", "description": "", "parameters": parameters}, {"name": "a.c", "description": "x " * 9_000}]
    )
    assert Fallbacks(odd, nothing).of("a.b", odd) == []


@pytest.mark.parametrize("others", [0, 300])
def test_the_offices_alternatives_are_found_cold(others: int) -> None:
    tools = [*Office(0).tools(), *generated()[:others]]
    specs = read_tools(tools)
    with ToolMemory.ephemeral(tools=tools) as memory:
        alternatives = Fallbacks(specs, lambda text, most: [hit.name for hit in memory.navigator.search(text, k=most)])
        for failed, (expected,) in ALTERNATIVES.items():
            found = alternatives.of(failed, specs)
            assert expected in found
            assert len(found) <= MOST
