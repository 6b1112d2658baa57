"""Tools: declared effects, suggestions, and the note that a memory keeps of a tool."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from histories import call, history, schema, user, words
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.types import Command

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory
from langgraph_toolmem.base.checks import names_given
from langgraph_toolmem.core.catalogue import suggested, undeclared_line
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.inertia.policy import may_write, undeclared, why_never
from langgraph_toolmem.runs.tools import (
    MAX_RETURNS,
    ToolSpec,
    agreed,
    changes_of,
    read_tools,
    restricted,
    side_effects,
    spec_of,
)

LOGGER = "langgraph_toolmem.inertia"
WRITES = {"annotations": {"readOnlyHint": False, "destructiveHint": False}}
NOTHING = InertiaPolicy()


def effects_of(memory: ToolMemory, name: str) -> str:
    return side_effects(memory.core.catalogue.marked()[name])


# --- declarations ---


@pytest.mark.parametrize(
    ("name", "marks", "reads", "effects"),
    [
        ("get_order", {}, (), "changes"),  # a name is no declaration
        ("get_order", {}, ("get_order",), "reads"),
        ("get_order", {}, ("get_*",), "reads"),
        ("get_order", {}, ("get_orde?", "x"), "reads"),
        ("get_order", {}, ("[gh]et_order",), "reads"),
        ("get_order", {}, ("GET_ORDER", "Get_*", "get", "*_orders"), "changes"),  # letter by letter, and the whole name
        ("shop.get_order", {}, ("shop.*",), "reads"),
        ("pay", {"tags": ["READ-ONLY"]}, (), "reads"),
        ("pay", {"read_only": True}, (), "reads"),
        ("pay", {"annotations": {"readOnlyHint": True}}, (), "reads"),
        ("pay", {"annotations": {"readOnlyHint": True, "destructiveHint": True}}, (), "reads"),  # as MCP means it
        ("pay", {"annotations": {"title": "Pay"}}, (), "changes"),
        ("pay", WRITES, (), "changes"),
        ("pay", WRITES, ("*",), "changes"),  # what is marked as writing has to be named
        ("pay", WRITES, ("pay",), "reads"),
        ("pay", {"annotations": {"readOnlyHint": False}}, ("pay",), "destroys"),
        ("pay", {"annotations": {"destructiveHint": True}}, ("pay", "*"), "destroys"),
        ("pay", {"tags": ["Destructive"]}, ("pay",), "destroys"),
        ("pay", {"tags": ["read_only", "destructive"]}, (), "destroys"),
    ],
)
def test_what_counts_as_a_declaration(name: str, marks: Mapping[str, Any], reads: Any, effects: str) -> None:
    with ToolMemory.ephemeral(tools=[schema(name, **marks)], reads=reads, methods=[Inertia()]) as memory:
        assert effects_of(memory, name) == effects
        assert may_write(name, memory.core.catalogue.marked()) == (effects != "reads")
        missing = [name] if effects == "changes" and marks.get("annotations") != WRITES["annotations"] else []
        assert undeclared(memory.core.catalogue.marked(), NOTHING) == missing


def steers(text: str) -> Command[Any]:
    """Gets a thing."""
    return Command(goto=text)


async def asteers(text: str) -> Command[Any]:
    """Gets a thing."""
    return Command(goto=text)


def plain(text: str) -> str:
    """Gets a thing."""
    return text


class Own(BaseTool):
    name: str = "get_thing"
    description: str = "Gets a thing."

    def _run(self, text: str) -> Command[Any]:
        return Command(goto=text)


@pytest.mark.parametrize(
    "made",
    [
        StructuredTool.from_function(steers, name="get_thing"),
        StructuredTool.from_function(coroutine=asteers, name="get_thing"),
        Own(),
        StructuredTool.from_function(plain, name="get_thing", return_direct=True),
        tool("get_thing", return_direct=True)(plain),
    ],
)
def test_what_steers_the_run_does_not_read_though_it_is_declared(made: BaseTool) -> None:
    tagged = made.model_copy(update={"tags": ["read_only"]})
    for given in (made, tagged):
        with ToolMemory.ephemeral(tools=[given], reads={"get_thing"}, methods=[]) as memory:
            assert effects_of(memory, "get_thing") == "controls"


def test_tools_of_a_host_and_tools_that_were_only_called_can_be_declared() -> None:
    with ToolMemory.ephemeral(reads={"look", "late_*"}, methods=[Inertia()]) as memory:
        memory.observe(history(user("Go."), call("look", {"x": "1"}), call("pay", {"x": "1"}), words()))
        assert (effects_of(memory, "look"), effects_of(memory, "pay")) == ("reads", "changes")
        memory.core.catalogue.adopt(read_tools([schema("late_one", "x"), schema("wipe", "x", tags=["destructive"])]))
        assert [effects_of(memory, name) for name in ("late_one", "look", "wipe")] == ["reads", "reads", "destroys"]


def test_a_permission_holds_for_the_tool_that_carries_it_and_a_restriction_for_its_name() -> None:
    bare, read, gone = (
        read_tools([schema("act", "x", **marks)]) for marks in ({}, {"read_only": True}, {"destructive": True})
    )
    with ToolMemory.ephemeral(methods=[]) as memory:
        catalogue = memory.core.catalogue
        for tools, of_the_tool, of_the_name in (
            (read, "reads", "reads"),
            (bare, "changes", "changes"),
            (read, "reads", "changes"),
            (gone, "destroys", "destroys"),
            (read, "destroys", "destroys"),
        ):
            catalogue.adopt({**tools})
            assert side_effects(catalogue.marked(tools)["act"]) == of_the_tool
            assert effects_of(memory, "act") == of_the_name


@pytest.mark.parametrize("declared", [{"reads": {"act"}}, {"tools": [schema("act", "x", read_only=True)]}])
def test_what_the_developer_tells_the_memory_holds_for_the_name(declared: Any) -> None:
    with ToolMemory.ephemeral(methods=[], **declared) as memory:
        for marks, effects in (({}, "reads"), ({"read_only": False}, None), ({"destructive": True}, "destroys")):
            tools = read_tools([schema("act", "x", **marks)])
            memory.core.catalogue.adopt(tools)
            found = side_effects(memory.core.catalogue.marked(tools)["act"])
            assert found == (effects or ("reads" if "reads" in declared else "changes"))


def test_a_declaration_ends_with_the_program_that_made_it_and_a_warning_does_not(tmp_path: Path) -> None:
    tools = [schema("look", "x"), schema("see", "x", read_only=True), schema("wipe", "x", destructive=True)]
    bare = [schema(name, "x") for name in ("look", "see", "wipe")]

    def effects(**options: Any) -> list[str]:
        with ToolMemory(tmp_path, methods=[Inertia()], **options) as memory:
            known = memory.core.catalogue.marked(memory.core.catalogue.known)
            return [side_effects(known[name]) for name in ("look", "see", "wipe")]

    declared, forgotten = ["reads", "reads", "destroys"], ["changes", "changes", "destroys"]
    assert effects(tools=tools, reads={"look"}) == declared
    assert effects(read_only=True) == declared, "who only looks sees what was declared"
    assert effects() == effects(tools=bare) == forgotten
    assert effects(read_only=True) == forgotten


# --- what is logged, and what is suggested ---


def test_declarations_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    tools = [schema("find_order", "x"), schema("list_a"), schema("list_b"), schema("wipe", tags=["destructive"])]
    reads = {"find_orders", "nothing", "list_*", "show_*", "wipe"}
    with (
        caplog.at_level(logging.INFO, LOGGER),
        ToolMemory.ephemeral(tools=tools, reads=reads, methods=[Inertia(InertiaPolicy(never={"wip"}))]) as memory,
    ):
        for thread in "ab":
            memory.inertia.begin_turn(history(user("Go.")), owner=Owner(thread))
    told = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == LOGGER]
    about = "ToolMemory(reads=...)"
    assert told == [
        (
            "WARNING",
            "InertiaPolicy(never=...) names 'wip', and no tool seen so far has that name; did you mean 'wipe'?",
        ),
        ("WARNING", f"{about} names 'find_orders', and no tool seen so far has that name; did you mean 'find_order'?"),
        ("WARNING", f"{about} names 'nothing', and no tool seen so far has that name."),
        ("INFO", f"{about}: 'list_*' matches list_a, list_b."),
        ("WARNING", f"{about}: 'show_*' matches no tool."),
        ("WARNING", f"{about} covers wipe, marked destructive, as writing, or as steering the run: the mark counts."),
        (
            "WARNING",
            '1 tool is never called without the model: undeclared. Check them; if they only read: reads={"find_order"}',
        ),
    ]


def test_tools_of_another_agent_are_not_called_unknown(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, LOGGER),
        ToolMemory.ephemeral(reads={"add", "web_search", "adds", "sum_*", "web_serch"}, methods=[Inertia()]) as memory,
    ):
        agents = [read_tools([schema(name, "x")]) for name in ("web_search", "add")]
        for number, tools in enumerate(agents):
            memory.inertia.begin_turn(history(user("Go.")), owner=Owner(str(number)), tools=tools)
        warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert warned == []
        assert memory.report()["inertia"]["unknown_reads"] == ["adds", "sum_*", "web_serch"]
    caplog.clear()
    with ToolMemory.ephemeral(reads={"web_serch"}, methods=[Inertia()]) as memory:
        memory.inertia.begin_turn(history(user("Go.")), owner=Owner("1"), tools=agents[0])
        about = "ToolMemory(reads=...) names 'web_serch', and no tool seen so far has that name"
        assert f"{about}; did you mean 'web_search'?" in [record.getMessage() for record in caplog.records]


def test_the_report_names_the_setting_that_helps() -> None:
    tools = [schema("wipe", tags=["destructive"]), schema("pay"), schema("hand_over", tags=[])]
    with ToolMemory.ephemeral(tools=tools, methods=[Inertia()]) as memory:
        for number in range(6):
            made = [call(name, {}) for name in ("wipe", "pay", "hand_over")]
            memory.finish(history(user("Go."), *made, words()), thread_id=str(number))
        todo = {each["tool"]: each["todo"] for each in memory.report()["inertia"]["unskipped"]}
    assert todo["wipe"] == 'InertiaPolicy(may_write={"wipe"}, allow_destructive={"wipe"})'
    assert todo["pay"] == 'if it only reads: ToolMemory(reads={"pay"}); otherwise InertiaPolicy(may_write={"pay"})'
    free = eval(todo["wipe"], {"InertiaPolicy": InertiaPolicy})
    assert why_never(read_tools(tools)["wipe"], free) is None


def test_nothing_helps_a_tool_that_steers_the_run() -> None:
    @tool
    def hand_over() -> Command[Any]:
        """Hand over to another agent."""
        return Command()

    with ToolMemory.ephemeral(tools=[hand_over], methods=[Inertia()]) as memory:
        for number in range(6):
            memory.finish(history(user("Go."), call("hand_over", {}), words()), thread_id=str(number))
        [row] = memory.report()["inertia"]["unskipped"]
    assert (row["tool"], row["todo"]) == ("hand_over", "")


def suggestion(name: str, about: str = "", *params: str, **marks: Any) -> bool:
    made = schema(name, " ".join(params), description=about, **marks)
    return suggested(read_tools([made]).values()) == [name]


@pytest.mark.parametrize(
    "name",
    """
    get_order list_orders search_emails findUserById mcp__shop__get_order shop/orders/list_open describe_table
    has_access
    lookup_account look_up_account order_search customer_lookup check_availability get_post is_open calculate_total
    tavily_search query_orders get_update list_updates grep read_file
    """.split(),  # noqa: SIM905
)
def test_what_seems_to_read_is_suggested(name: str) -> None:
    assert suggestion(name)
    assert suggestion(name, "Returns what there is.", "query")
    for marks in (WRITES, {"destructive": True}, {"read_only": True}):
        assert not suggestion(name, **marks), "somebody declared it"


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("get_refund", ""),
        ("get_or_create_cart", ""),
        ("fetch_and_clear", ""),
        ("search_and_replace", ""),
        ("retry_job", ""),
        ("capture_payment", ""),
        ("pay", ""),
        ("think", ""),
        ("latest_order", ""),
        ("sql_db_query", ""),
        ("query_database", ""),
        ("search_orders", "Runs a Cypher query."),
        ("check_out", ""),
        ("list_price_update", ""),
        ("fetch_payment", "Captures the authorized payment."),
        ("get_job", "Retries a failed job."),
        ("get_cart", "The cart of a user; makes one if there is none."),
        ("get_mail", "Fetches the next message and marks it as read."),
        ("read_file", "Reads a file and deletes it."),
    ],
)
def test_what_tells_of_a_change_is_not_suggested(name: str, about: str) -> None:
    assert not suggestion(name, about)


def test_the_report_suggests_and_nothing_acts_on_it() -> None:
    tools = [schema("get_order", "id"), schema("pay", "sum"), schema("wipe", tags=["destructive"])]
    free = InertiaPolicy(may_write={"wipe"}).with_(max_wrong_per_100=None, audit_rate=0.0)
    with ToolMemory.ephemeral(tools=tools, methods=[Inertia(free)]) as memory:
        for n in range(40):
            memory.finish(history(user("Go."), call("get_order", {"id": "1"}), words()), thread_id=str(n))
        decision = memory.inertia.explain(history(user("Go.")))
        report = memory.report()
    assert report["inertia"]["undeclared"] == ["get_order", "pay"]
    assert report["inertia"]["suggested"] == ["get_order"]
    assert set(report["inertia"]["never_skipped"]) == {"get_order", "pay", "wipe"}
    assert undeclared_line(["get_order", "pay"], ["get_order"]) in str(report)
    assert decision.proposal is None


# --- notes ---


GIVES = {"type": "object", "properties": {"order_id": {"type": "string"}}}
TAKES = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
BARE = ToolSpec("look_up", "", TAKES)
FULL = ToolSpec("look_up", "Looks up", TAKES, GIVES, True, False, True, ("shop", "crm"), "CRM", "Sales")


@pytest.mark.parametrize(
    "spec", [BARE, FULL, replace(FULL, read_only=False, destructive=None)], ids=["bare", "full", "some"]
)
def test_a_note_tells_the_whole_tool(spec: ToolSpec) -> None:
    note = changes_of(spec, {})
    assert spec_of(spec.name, note) == spec
    assert changes_of(spec, note) == {}, "nothing new"


LONG = {"type": "object", "properties": {"id": {"type": "string", "enum": ["x" * MAX_RETURNS]}}, "x-links": []}
SHORT = {"type": "object", "properties": {"id": {"type": "string"}}, "x-links": []}


@pytest.mark.parametrize(("returns", "kept"), [(LONG, SHORT), ({"default": {1, 2}}, None)], ids=["long", "no JSON"])
def test_a_schema_of_results_that_cannot_be_kept_is_kept_in_brief_or_left_out(returns: Any, kept: Any) -> None:
    odd = replace(FULL, returns=returns)
    note = changes_of(odd, {})
    assert spec_of("look_up", note) == replace(FULL, returns=kept)
    assert changes_of(odd, note) == {}
    assert spec_of("look_up", changes_of(FULL, {}) | changes_of(odd, changes_of(FULL, {}))).returns == kept


def test_what_cannot_be_is_passed_over() -> None:
    note = {"parameters": TAKES, "returns": 5, "tags": "x", "read_only": "yes", "description": ""}
    assert spec_of("look_up", note) == BARE


@pytest.mark.parametrize(
    ("one", "other", "first", "second", "both"),
    [
        ({"destructive": True}, {"destructive": False}, {"destructive": True}, {"destructive": True}, None),
        ({"read_only": True}, {"read_only": False}, {"read_only": False}, {"read_only": False}, None),
        ({"read_only": True}, {}, {"read_only": True}, {}, {}),
        ({"read_only": True}, {"read_only": True}, {"read_only": True}, {"read_only": True}, None),
        ({"idempotent": True}, {"idempotent": False}, {"idempotent": False}, {"idempotent": False}, None),
        ({"idempotent": True}, {}, {"idempotent": True}, {}, {}),
        ({}, {"controls": True}, {"controls": True}, {"controls": True}, None),
    ],
)
def test_restrictions_cross_to_another_tool_of_the_name_and_permissions_do_not(
    one: Any, other: Any, first: Any, second: Any, both: Any
) -> None:
    """`both`: of a tool that stands for the two; None: as the first with the marks of the second."""
    left, right = (replace(BARE, **marks) for marks in (one, other))
    assert restricted(left, [right]) == replace(BARE, **first)
    assert restricted(right, [left]) == replace(BARE, **second)
    assert agreed(left, right) == agreed(right, left) == replace(BARE, **(first if both is None else both))
    assert restricted(left, [BARE]) is left


@pytest.mark.parametrize("given", [{}, [], {"refund": True}], ids=str)
def test_a_dict_of_settings_names_its_tools(given: Any) -> None:
    """A deep agent's `interrupt_on` may be given as it is."""
    assert names_given("gated", given) == tuple(given)
