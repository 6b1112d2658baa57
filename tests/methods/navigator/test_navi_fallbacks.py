"""What is most like a failed tool: by its words and a search, with the same side effects; small catalogues by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from langgraph_toolmem.navigator.decide.fallbacks import Fallbacks
from langgraph_toolmem.runs.tools import read_tools


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
    assert found == ["colleague", "search_directory"], "its verb says nothing; a deletion is no way to look up"
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


READS, WRITES = {"readOnlyHint": True}, {"readOnlyHint": False, "destructiveHint": False}


@pytest.mark.parametrize(
    ("one", "other", "akin"),
    [
        (("get_x", {}), ("list_x", {}), True),
        (("get_x", {}), ("send_x", {}), False),  # among undeclared tools the verbs have to agree
        (("get_x", {}), ("zorb_x", {}), True),
        (("get_x", READS), ("send_x", READS), True),  # a declaration goes before a verb
        (("get_x", READS), ("list_x", {}), False),
        (("get_x", {}), ("list_x", READS), False),
        (("send_x", WRITES), ("mail_x", {}), True),
        (("drop_x", {"destructiveHint": True}), ("erase_x", {}), False),
        (("drop_x", {"destructiveHint": True}), ("erase_x", {"destructiveHint": True}), True),
    ],
)
def test_only_a_tool_with_the_same_side_effects_stands_in(one: Any, other: Any, akin: bool) -> None:
    about = "The quaint zeppelins of the harbour."
    specs = read_tools([tool(name, about, hints=hints) for name, hints in (one, other)])
    assert Fallbacks(specs, nothing).of(one[0], specs) == ([other[0]] if akin else [])
