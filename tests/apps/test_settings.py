"""Settings that come with a run's context: what they change, what they must not change, and what Studio shows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from desk import EAGER, NAMES, Desk, request, script, shortcuts, warm
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from langgraph_toolmem import Bound, ConfigurationError, InertiaPolicy, ToolMemory
from langgraph_toolmem.inertia import settings
from langgraph_toolmem.inertia.settings import InertiaSettings, settings_policy
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition
from langgraph_toolmem.testing import ScriptedChatModel

LOGGER = "langgraph_toolmem.inertia.settings"
GUARDED = InertiaPolicy(
    never={"a"}, needs_approval={"b"}, allow_destructive={"c"}, allow_repeats={"d"}, only={"b", "e"}
)


@pytest.fixture(autouse=True)
def nothing_logged_yet() -> Iterator[None]:
    settings.logged.clear()
    yield
    settings.logged.clear()


@dataclass
class Place:
    """A host's context."""

    city: str = "Rome"
    inertia_mode: str | None = None
    inertia_min_precision: float | None = None


class Mine(InertiaSettings):
    language: str = "en"


class Other(BaseModel):
    inertia_mode: str = "shadow"
    inertia_min_precision: float = 0.9


# --- reading a context ---


@pytest.mark.parametrize(
    "context",
    [
        None,
        {},
        {"user_id": "u1", "city": "Rome", "shadow": True, "mode": "off"},
        {"inertia_mode": None, "inertia_policy": "", "inertia_never": []},
        Place(),
        InertiaSettings(user_id="u1"),
        Mine(),
        object(),
        "inertia_mode",
        ["inertia_mode", "off"],
        7,
    ],
    ids=lambda c: type(c).__name__,
)
def test_a_context_without_settings_changes_nothing(context: Any, caplog: pytest.LogCaptureFixture) -> None:
    policy = InertiaPolicy(shadow=True)
    assert settings_policy(context, policy) is policy
    assert not caplog.records


@pytest.mark.parametrize(
    "context",
    [
        {"inertia_mode": "shadow", "inertia_min_precision": 0.9},
        Place(inertia_mode="shadow", inertia_min_precision=0.9),
        InertiaSettings(inertia_mode="shadow", inertia_min_precision=0.9),
        Mine(inertia_mode="shadow", inertia_min_precision=0.9),
        Other(),
        SimpleNamespace(inertia_mode="shadow", inertia_min_precision=0.9),
    ],
    ids=lambda c: type(c).__name__,
)
def test_settings_are_read_from_any_kind_of_context(context: Any) -> None:
    assert settings_policy(context, GUARDED) == GUARDED.with_(shadow=True, min_precision=0.9)


CODE = GUARDED.with_(reads=Bound(0.7, 1.0), writes=Bound(0.8, 0.5), audit_rate=0.05)
SHADOW = CODE.with_(shadow=True)
FREE = CODE.with_(max_wrong_per_100=None)


@pytest.mark.parametrize(
    ("key", "value", "code", "tightened", "logs"),
    [
        ("inertia_mode", "shadow", CODE, {"shadow": True}, 0),
        ("inertia_mode", "act", CODE, {}, 0),
        ("inertia_mode", "act", SHADOW, {}, 1),
        ("inertia_mode", "shadow", SHADOW, {}, 0),
        ("inertia_policy", "calibrated", CODE, {}, 0),
        ("inertia_policy", "paper", CODE, {}, 1),
        ("inertia_policy", "calibrated", InertiaPolicy.paper(), {}, 1),  # which has no caps
        ("inertia_min_precision", 1, CODE, {"min_precision": 1}, 0),
        ("inertia_min_precision", 0.75, CODE, {"reads": Bound(0.75, 1.0)}, 0),
        ("inertia_min_precision", 0.7, CODE, {}, 1),
        ("inertia_min_precision", 0, CODE, {}, 1),
        ("inertia_max_wrong_per_100", 0.0, CODE, {"max_wrong_per_100": 0.0}, 0),
        ("inertia_max_wrong_per_100", 0.7, CODE, {"reads": Bound(0.7, 0.7)}, 0),
        ("inertia_max_wrong_per_100", 100, CODE, {}, 1),
        ("inertia_max_wrong_per_100", 100, FREE, {"max_wrong_per_100": 100}, 0),
        ("inertia_audit_rate", 0.0, CODE, {}, 1),
        ("inertia_audit_rate", 0.05, CODE, {}, 0),
        ("inertia_audit_rate", 0.5, CODE, {"audit_rate": 0.5}, 0),
        ("inertia_never", ["x", "a"], CODE, {"never": {"x", "a"}}, 0),
        ("inertia_never", ["a"], CODE, {}, 0),
        ("inertia_never", [], CODE, {}, 0),
    ],
)
def test_a_setting_tightens_and_never_loosens(
    key: str, value: Any, code: InertiaPolicy, tightened: dict[str, Any], logs: int, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        found = settings_policy({key: value}, code)
        assert found == code.with_(**tightened)
        assert (found is code) == (not tightened)
        assert settings_policy(InertiaSettings(**{key: value}), code) == found
    assert len(caplog.records) == logs


@pytest.mark.parametrize(
    ("key", "value", "changes"),
    [
        ("inertia_min_precision", 0.1, {"min_precision": 0.1}),
        ("inertia_max_wrong_per_100", 100, {"max_wrong_per_100": 100}),
        ("inertia_audit_rate", 0.0, {"audit_rate": 0.0}),
        ("inertia_never", ["x"], {"never": {"x", "a"}}),
    ],
)
def test_a_trusted_context_may_loosen(key: str, value: Any, changes: dict[str, Any]) -> None:
    assert settings_policy({key: value}, CODE, trusted=True) == CODE.with_(**changes)


def test_every_setting_is_read() -> None:
    every = set(InertiaSettings.model_fields) - {"user_id"}
    assert settings_policy(dict.fromkeys(every, object()), GUARDED) is GUARDED
    assert {line.split()[0] for line in settings.logged} == every


def test_off_is_no_policy() -> None:
    assert settings_policy({"inertia_mode": "off", "inertia_min_precision": "bad"}, GUARDED) is None


def test_a_trusted_act_ends_the_shadow_of_the_code() -> None:
    assert settings_policy({"inertia_mode": "act"}, SHADOW, trusted=True) == CODE


def test_the_papers_policy_keeps_the_guards() -> None:
    found = settings_policy({"inertia_policy": "paper"}, GUARDED, trusted=True)
    assert found is not None
    guards = {
        name: getattr(GUARDED, name)
        for name in ("never", "needs_approval", "allow_destructive", "allow_repeats", "only")
    }
    assert found == InertiaPolicy.paper(**guards)


def test_what_the_code_set_itself_outlives_the_kind_of_policy() -> None:
    def switched(kind: str, policy: InertiaPolicy) -> InertiaPolicy | None:
        return settings_policy({"inertia_policy": kind}, policy, trusted=True)

    strict = InertiaPolicy(reads=Bound(0.8), writes=Bound(max_wrong_per_100=0.2))
    found = switched("paper", strict)
    assert found == InertiaPolicy.paper(reads=Bound(0.8, None), writes=Bound(max_wrong_per_100=0.2))
    assert switched("calibrated", InertiaPolicy.paper()) == InertiaPolicy()
    timid = switched("calibrated", InertiaPolicy.paper(max_share=0.1, may_write={"a"}))
    assert timid == InertiaPolicy(may_write={"a"})


def test_numbers_go_over_the_defaults_of_the_kind() -> None:
    context = {"inertia_max_wrong_per_100": 2.0, "inertia_audit_rate": 0.2, "inertia_policy": "paper"}
    found = settings_policy(context, InertiaPolicy(), trusted=True)
    assert found == InertiaPolicy.paper(max_wrong_per_100=2.0, audit_rate=0.2)


# --- bad values ---

BAD: list[tuple[str, Any]] = [
    ("inertia_mode", "sometimes"),
    ("inertia_mode", ["off"]),
    ("inertia_mode", 1),
    ("inertia_policy", "papers"),
    ("inertia_policy", {"kind": "paper"}),
    ("inertia_min_precision", "high-secret"),
    ("inertia_min_precision", 1.5),
    ("inertia_min_precision", float("nan")),
    ("inertia_min_precision", 10**400),
    ("inertia_max_wrong_per_100", -1),
    ("inertia_max_wrong_per_100", [1]),
    ("inertia_audit_rate", "often"),
    ("inertia_never", "search"),
    ("inertia_never", [1]),
]


@pytest.mark.parametrize(("key", "value"), BAD, ids=lambda v: repr(v)[:20])
def test_a_bad_value_changes_nothing_and_is_logged_once(key: str, value: Any, caplog: pytest.LogCaptureFixture) -> None:
    context = {key: value, "inertia_audit_rate" if key != "inertia_audit_rate" else "inertia_min_precision": 0.95}
    with caplog.at_level(logging.DEBUG, "langgraph_toolmem"):
        found = [settings_policy(context, GUARDED) for _ in range(3)]
    other = "audit_rate" if key != "inertia_audit_rate" else "min_precision"
    assert found == [GUARDED.with_(**{other: 0.95})] * 3
    warnings = [r.getMessage() for r in caplog.records if r.levelno > logging.DEBUG]
    assert len(warnings) == 1
    assert key in warnings[0]
    assert "secret" not in warnings[0]
    assert {r.name for r in caplog.records} == {LOGGER}


@pytest.mark.parametrize(("key", "value"), BAD, ids=lambda v: repr(v)[:20])
def test_the_schema_refuses_a_bad_value(key: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=key):
        InertiaSettings(**{key: value})


def test_a_context_that_raises_is_no_harm() -> None:
    class Broken:
        @property
        def inertia_policy(self) -> str:
            raise RuntimeError("not today")

        inertia_mode = "shadow"

    assert settings_policy(Broken(), GUARDED) == GUARDED.with_(shadow=True)


# --- what Studio shows ---


def test_the_schema_says_where_a_setting_belongs_and_what_it_may_be() -> None:
    schema = TypeAdapter(Mine).json_schema()
    assert schema["type"] == "object"
    assert "required" not in schema
    properties = schema["properties"]
    assert set(properties) == {*InertiaSettings.model_fields, "language"}
    for name in InertiaSettings.model_fields:
        shown = properties[name]
        assert shown["langgraph_nodes"] == ["inertia", "model"]
        assert shown["description"].endswith(".")
        assert shown["title"]
        assert "anyOf" not in shown, "a form shows this as one field"
    assert properties["inertia_mode"]["enum"] == ["act", "shadow", "off"]
    assert properties["inertia_policy"]["enum"] == ["calibrated", "paper"]
    limits = {n: (p["minimum"], p["maximum"]) for n, p in properties.items() if p["type"] == "number"}
    assert limits == {
        "inertia_min_precision": (0, 1),
        "inertia_max_wrong_per_100": (0, 100),
        "inertia_audit_rate": (0, 1),
    }
    assert properties["inertia_never"]["items"] == {"type": "string"}


def test_a_field_of_a_form_left_empty_is_not_given() -> None:
    empty = InertiaSettings(**dict.fromkeys(InertiaSettings.model_fields, ""))
    assert empty == InertiaSettings()
    assert Mine(language="").language == "", "fields of the host's own are left alone"


# --- in a graph ---


class Loose(TypedDict, total=False):
    inertia_mode: Any
    inertia_policy: Any
    inertia_min_precision: Any


def agent_graph(
    memory: ToolMemory,
    desk: Desk,
    schema: Any,
    *,
    recorder: bool = True,
    policy: InertiaPolicy = EAGER,
    trust_context: bool = False,
) -> tuple[Any, ScriptedChatModel]:
    model = ScriptedChatModel(script=script)
    builder = StateGraph(MessagesState, context_schema=schema)
    shortcut = InertiaShortcut(memory, policy=policy, trust_context=trust_context)
    shortcut.add_to(builder, tools="tools", agent="agent")
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(desk.tools))
    builder.add_edge(START, "inertia")
    builder.add_edge("tools", "inertia")
    if recorder:
        Recorder(memory).add_to(builder)
        builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "recorder"})
        builder.add_edge("recorder", END)
    else:
        builder.add_conditional_edges("agent", tools_condition)
    return builder.compile(), model


FEED = {"messages": [HumanMessage(request("Ann"))]}


@pytest.mark.parametrize("schema", [InertiaSettings, Loose, None], ids=str)
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("context", "model_calls"),
    [
        (None, 1),
        ({}, 1),
        ({"inertia_mode": "act"}, 1),
        ({"inertia_mode": "shadow"}, 4),
        ({"inertia_mode": "off"}, 4),
        ({"inertia_min_precision": 1.0}, 4),
        ({"inertia_never": ["find_customer", "add_note"]}, 3),
    ],
    ids=str,
)
async def test_each_run_has_its_own_policy(
    desk: Desk, memory: ToolMemory, schema: Any, asynchronous: bool, context: Any, model_calls: int
) -> None:
    warm(memory)
    graph, model = agent_graph(memory, desk, schema)
    state = await graph.ainvoke(FEED, context=context) if asynchronous else graph.invoke(FEED, context=context)
    assert len(model.calls) == model_calls
    assert len(shortcuts(state["messages"])) == 4 - model_calls
    assert len(desk.done) == 3
    graph.invoke(FEED)
    assert len(model.calls) == model_calls + 1, "the next run is as the code says again"


async def test_a_bad_value_in_a_loose_context_never_stops_the_run(desk: Desk, memory: ToolMemory) -> None:
    warm(memory)
    graph, model = agent_graph(memory, desk, Loose)
    bad: Any = {"inertia_mode": "often", "inertia_policy": 3, "inertia_min_precision": object()}
    graph.invoke(FEED, context=bad)
    await graph.ainvoke(FEED, context=bad)
    assert len(model.calls) == 2


def test_a_bad_value_is_refused_by_the_schema_before_anything_runs(desk: Desk, memory: ToolMemory) -> None:
    graph, model = agent_graph(memory, desk, InertiaSettings)
    with pytest.raises(ValidationError, match="inertia_mode"):
        graph.invoke(FEED, context={"inertia_mode": "often"})
    assert not model.calls


def test_switched_off_the_node_decides_and_learns_nothing_and_says_so(desk: Desk, memory: ToolMemory) -> None:
    warm(memory)
    graph, _ = agent_graph(memory, desk, InertiaSettings, recorder=False)
    memory.flush()
    before = memory.report()
    events = list(graph.stream(FEED, context={"inertia_mode": "off"}, stream_mode="custom"))
    assert [e["toolmem"]["decision"] for e in events] == ["ask_model"] * 4
    assert all("inertia_mode" in e["toolmem"]["reason"] for e in events)
    assert memory.report() == before


def test_what_is_not_decided_by_the_node_is_still_learned_by_the_recorder(desk: Desk, memory: ToolMemory) -> None:
    graph, _ = agent_graph(memory, desk, InertiaSettings)
    graph.invoke(FEED, context={"inertia_mode": "off"})
    report = memory.report()
    assert (report.turns, report.skipped) == (4, 0)


def test_the_shadow_keeps_the_record(desk: Desk, memory: ToolMemory) -> None:
    warm(memory)
    graph, _ = agent_graph(memory, desk, InertiaSettings)
    before = memory.report()
    graph.invoke(FEED, context={"inertia_mode": "shadow"})
    after = memory.report()
    assert (after.right - before.right, after.skipped - before.skipped) == (3, 0)


def test_the_papers_policy_of_a_run_announces_its_calls(desk: Desk, memory: ToolMemory) -> None:
    graph, _ = agent_graph(memory, desk, InertiaSettings, trust_context=True)
    state: dict[str, Any] = {}
    for number in range(24):
        talk = [] if number % 8 == 0 else state["messages"]
        user = HumanMessage(request(NAMES[number % 12]))
        state = graph.invoke({"messages": [*talk, user]}, context={"inertia_policy": "paper"})
    chosen = [message for message in state["messages"] if isinstance(message, AIMessage)]
    made = shortcuts(chosen)
    assert made
    assert all(message.text.startswith("[inertia shortcut]") for message in made)
    assert not any(a in made and b in made for a, b in pairwise(chosen)), "never two in a row"


def test_a_graph_inside_a_graph_has_the_same_settings(desk: Desk, memory: ToolMemory) -> None:
    warm(memory)
    inside, model = agent_graph(memory, desk, InertiaSettings)
    builder = StateGraph(MessagesState, context_schema=InertiaSettings)
    builder.add_node("desk", inside)
    builder.add_edge(START, "desk")
    outside = builder.compile()
    outside.invoke(FEED, context={"inertia_mode": "shadow"})
    assert len(model.calls) == 4
    outside.invoke(FEED)
    assert len(model.calls) == 5


def test_a_user_in_the_settings_is_the_user_of_the_run(desk: Desk) -> None:
    with ToolMemory.ephemeral(tools=desk.tools, namespace=("toolmem", "{user_id}")) as memory:
        graph, _ = agent_graph(memory, desk, InertiaSettings)
        graph.invoke(FEED, context={"user_id": "ann@example.com"})
        assert memory.report().turns == 4
        assert memory.forget(user_id="ann@example.com") > 0


# --- how a node is added ---


def edges_of(graph: Any) -> dict[tuple[str, str], Any]:
    return {(e.source, e.target): e.data for e in graph.get_graph().edges}


def test_a_node_that_adds_itself_says_what_it_is(desk: Desk, memory: ToolMemory) -> None:
    graph, _ = agent_graph(memory, desk, None)
    nodes = graph.get_graph().nodes
    assert nodes["inertia"].metadata["toolmem"] == "inertia"
    assert nodes["recorder"].metadata["toolmem"] == "recorder"
    abouts = {nodes[name].metadata["toolmem_about"] for name in ("inertia", "recorder")}
    assert len(abouts) == 2
    edges = edges_of(graph)
    assert edges["inertia", "tools"] == "shortcut"
    assert edges["inertia", "agent"] == "ask the model"


async def test_with_goto_the_labels_are_the_destinations(desk: Desk, memory: ToolMemory) -> None:
    warm(memory)
    model = ScriptedChatModel(script=script)
    builder = StateGraph(MessagesState)
    InertiaShortcut(memory, policy=EAGER, goto=("act", "llm")).add_to(builder, "first", metadata={"team": "desk"})
    builder.add_node("llm", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("act", ToolNode(desk.tools))
    builder.add_edge(START, "first")
    builder.add_edge("act", "first")
    builder.add_conditional_edges("llm", tools_condition, {"tools": "act", END: END})
    graph = builder.compile()
    edges = edges_of(graph)
    assert edges["first", "act"] == "shortcut"
    assert edges["first", "llm"] == "ask the model"
    metadata = graph.get_graph().nodes["first"].metadata
    assert metadata["team"] == "desk"
    assert metadata["toolmem"] == "inertia"
    for state in (graph.invoke(FEED), await graph.ainvoke(FEED)):
        assert len(shortcuts(state["messages"])) == 3
    graph.invoke(FEED, context={"inertia_mode": "off"})
    assert len(model.calls) == 2 + 4


def test_adding_a_node_reads_the_hosts_key(desk: Desk, memory: ToolMemory) -> None:
    class Talk(TypedDict):
        talk: list[Any]

    warm(memory)
    builder = StateGraph(Talk)
    node = InertiaShortcut(memory, policy=EAGER, messages_key="talk")
    node.add_to(builder, tools="act", agent="llm")
    builder.add_node("act", lambda state: {"talk": ["acted"]})
    builder.add_node("llm", lambda state: {"talk": ["asked"]})
    builder.add_edge(START, "inertia")
    graph = builder.compile()
    assert graph.invoke({"talk": FEED["messages"]}) == {"talk": ["acted"]}
    assert graph.invoke({"talk": [HumanMessage("?")]}) == {"talk": ["asked"]}
    assert shortcut_condition({"talk": [AIMessage("")]}, messages_key="talk") == "agent"


def test_a_way_on_given_by_halves_or_twice_is_refused(memory: ToolMemory) -> None:
    builder = StateGraph(MessagesState)
    with pytest.raises(ConfigurationError, match="tools and agent"):
        InertiaShortcut(memory).add_to(builder, tools="tools")
    with pytest.raises(ConfigurationError, match="goto"):
        InertiaShortcut(memory, goto=("tools", "agent")).add_to(builder, tools="tools", agent="agent")
    assert not builder.nodes


# --- the example for Studio ---


def test_the_example_shows_what_the_settings_change(capsys: pytest.CaptureFixture[str]) -> None:
    from examples import studio

    studio.main()
    usual, shadow, off = capsys.readouterr().out.split("--- inertia_mode=")[1:]
    assert usual.startswith("None: 1 model call(s)")
    assert usual.count("<- memory") == 2
    for out, mode in ((shadow, "shadow"), (off, "off")):
        assert out.startswith(f"{mode}: 3 model call(s)")
        assert "<- memory" not in out
    assert "shipped. Yours, the desk" in shadow
