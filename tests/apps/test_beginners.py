"""Mistakes that beginners make: each gets a sentence that says what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from langgraph_toolmem import (
    Bound,
    ConfigurationError,
    InertiaPolicy,
    Prefetch,
    RecallPolicy,
    SGASettings,
    SITPolicy,
    StorageError,
    ToolMemory,
)
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.models import with_tool_memory
from langgraph_toolmem.navigator.deferred import ToolSearch
from langgraph_toolmem.testing import ScriptedChatModel

MODEL = ScriptedChatModel(script=["Hello."])
MISSPELT: list[tuple[Any, str, str]] = [
    (ToolMemory.ephemeral, "read", "reads"),
    (ToolMemory, "hold_out", "holdout"),
    (InertiaPolicy, "shaddow", "shadow"),
    (InertiaPolicy.paper, "treshold", "threshold"),
    (Bound, "min_presicion", "min_precision"),
    (Prefetch, "max_waste", "max_wasted"),
    (RecallPolicy, "max_m", "max_n"),
    (SITPolicy, "unlabeled", "unlabelled"),
    (SGASettings, "budgets", "budget"),
    (ToolSearch, "k_", "k"),
]


@pytest.mark.parametrize(("function", "given", "meant"), MISSPELT)
def test_a_misspelt_option_names_the_nearest_one(function: Any, given: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{given!r}; .*{meant}"):
        function(*([None] if function is ToolMemory else []), **{given: 1})


@pytest.mark.parametrize(("function", "before"), [(tool_memory_middleware, []), (with_tool_memory, [MODEL])])
def test_a_misspelt_feature_names_the_nearest_one(function: Any, before: list[Any]) -> None:
    with ToolMemory.ephemeral() as memory, pytest.raises(ConfigurationError, match="'recal'; did you mean 'recall'"):
        function(*before, memory, recal=True)


def test_a_list_in_a_list_says_what_to_write() -> None:
    with ToolMemory.ephemeral() as memory, pytest.raises(ConfigurationError, match=r"Write middleware=tool_memory_"):
        create_agent(MODEL, [], middleware=[tool_memory_middleware(memory)])  # type: ignore[list-item]


def test_extras_metadata_and_tags_declare_a_tool() -> None:
    @tool(extras={"read_only": True})
    def find_person(name: str) -> str:
        """Find a person."""
        return name

    @tool
    def find_place(name: str) -> str:
        """Find a place."""
        return name

    @tool
    def find_thing(name: str) -> str:
        """Find a thing."""
        return name

    find_place.metadata = {"read_only": True}
    find_thing.tags = ["read_only"]
    with ToolMemory.ephemeral(tools=[find_person, find_place, find_thing]) as memory:
        assert {spec.name for spec in memory.core.catalogue.specs.values() if spec.read_only} == {
            "find_person",
            "find_place",
            "find_thing",
        }


def test_a_folder_that_cannot_be_made_is_an_error_unless_ram_will_do() -> None:
    nowhere = Path("/proc/toolmem")  # where root cannot make one either
    with pytest.raises(StorageError, match=r'cannot be made .*Choose a folder .*fallback="memory"'):
        ToolMemory(nowhere)
    with ToolMemory(nowhere, fallback="memory") as memory:
        assert memory.observe([("user", "hello"), ("assistant", "Hi!")]) == 1
        assert "the memory goes on in RAM" in memory.report().problems[0]
    with pytest.raises(ConfigurationError, match="`fallback` must be 'error' or 'memory', got 'ram'"):
        ToolMemory(None, fallback="ram")  # type: ignore[arg-type]
