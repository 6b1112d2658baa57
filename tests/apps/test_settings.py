"""Settings that come with a run's context: what they change, what they must not change, and what Studio shows."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from desk import EAGER, Desk, build, request, shortcuts
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import ValidationError

from langgraph_toolmem import Bound, InertiaPolicy, ToolMemory
from langgraph_toolmem.inertia.step import InertiaSettings, settings_policy
from langgraph_toolmem.turn import host

GUARDED = InertiaPolicy(never={"a"}, allow_destructive={"c"}, allow_repeats={"d"}, only={"b", "e"})


@pytest.fixture(autouse=True)
def nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "warned", set())


@dataclass
class Place:
    """A host's context."""

    city: str = "Rome"
    inertia_mode: str | None = None
    inertia_min_precision: float | None = None


# --- reading a context ---


def test_a_context_without_settings_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    plain = {"user_id": "u1", "city": "Rome", "mode": "off"}
    empty = {"inertia_mode": None, "inertia_never": []}
    words = ("inertia_mode", ["inertia_mode", "off"], 7, object(), None)
    for context in ({}, plain, empty, Place(), InertiaSettings(user_id="u1"), *words):
        assert settings_policy(context, SHADOW) == SHADOW, context
    assert not caplog.records


@pytest.mark.parametrize(
    ("context", "meant"),
    [
        ({"shadow": True}, "inertia_mode='shadow'"),
        ({"inertia_mod": "shadow"}, "inertia_mode"),
        ({"intertia_never": ["a"]}, "inertia_never"),
        (SimpleNamespace(inertiaMode="shadow"), "inertia_mode"),
        ({"inertia_zzz": 1}, "one of inertia_mode, inertia_min_precision"),
    ],
)
def test_a_misspelt_setting_is_named_once(context: Any, meant: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert settings_policy(context, GUARDED) == GUARDED
    [line] = [record.getMessage() for record in caplog.records]
    assert f"did you mean {meant}" in line


def test_settings_are_read_from_any_kind_of_context() -> None:
    given: Any = {"inertia_mode": "shadow", "inertia_min_precision": 0.9}
    for kind in (dict, Place, InertiaSettings, SimpleNamespace):
        context = kind(**given)
        assert settings_policy(context, GUARDED) == GUARDED.with_(shadow=True, min_precision=0.9), context


CODE = GUARDED.with_(reads=Bound(0.7, 1.0), writes=Bound(0.8, 0.5), audit_rate=0.05)
SHADOW = CODE.with_(shadow=True)
FREE = CODE.with_(max_wrong_per_100=None)


@pytest.mark.parametrize(
    ("key", "value", "code", "tightened", "logs"),
    [
        ("inertia_mode", "shadow", CODE, {"shadow": True}, 0),
        ("inertia_mode", "act", CODE, {}, 0),
        ("inertia_mode", "act", SHADOW, {}, 1),
        ("inertia_min_precision", 0.75, CODE, {"reads": Bound(0.75, 1.0)}, 0),
        ("inertia_min_precision", 0.7, CODE, {}, 1),
        ("inertia_max_wrong_per_100", 0.0, CODE, {"max_wrong_per_100": 0.0}, 0),
        ("inertia_max_wrong_per_100", 0.7, CODE, {"reads": Bound(0.7, 0.7)}, 0),
        ("inertia_max_wrong_per_100", 100, CODE, {}, 1),
        ("inertia_max_wrong_per_100", 100, FREE, {"max_wrong_per_100": 100}, 0),
        ("inertia_audit_rate", 0.0, CODE, {}, 1),
        ("inertia_audit_rate", 0.5, CODE, {"audit_rate": 0.5}, 0),
        ("inertia_never", ["x", "a"], CODE, {"never": {"x", "a"}}, 0),
        ("inertia_never", [], CODE, {}, 0),
    ],
)
def test_a_setting_tightens_and_never_loosens(
    key: str, value: Any, code: InertiaPolicy, tightened: dict[str, Any], logs: int, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        found = settings_policy({key: value}, code)
        assert found == code.with_(**tightened)
        assert settings_policy(InertiaSettings(**{key: value}), code) == found
    assert len(caplog.records) == logs


# --- bad values ---

BAD: list[tuple[str, Any]] = [
    ("inertia_mode", "sometimes"),
    ("inertia_min_precision", "high-secret"),
    ("inertia_min_precision", float("nan")),
    ("inertia_min_precision", 10**400),
    ("inertia_max_wrong_per_100", -1),
    ("inertia_audit_rate", "often"),
    ("inertia_never", "search"),
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
    with pytest.raises(ValidationError, match=key):
        InertiaSettings(**{key: value})


def test_a_context_that_raises_is_no_harm() -> None:
    class Broken:
        @property
        def inertia_audit_rate(self) -> str:
            raise RuntimeError("not today")

        inertia_mode = "shadow"

    assert settings_policy(Broken(), GUARDED) == GUARDED.with_(shadow=True)


# --- in a graph ---

FEED: Any = {"messages": [HumanMessage(request("Ann"))]}


def learned(memory: ToolMemory) -> dict[str, Any]:
    """Return the figures of a report without the processor time, which a disabled shortcut takes too."""
    figures = memory.report().to_dict()
    del figures["cpu_seconds"], figures["cpu_seconds_behind"]
    return figures


@pytest.mark.parametrize(
    ("context", "model_calls"),
    [
        (None, 1),
        ({"inertia_mode": "act"}, 1),
        ({"inertia_mode": "shadow"}, 4),
        ({"inertia_mode": "off"}, 4),
        ({"inertia_min_precision": 1.0}, 4),
        ({"inertia_never": ["find_customer", "add_note"]}, 3),
    ],
    ids=str,
)
def test_each_run_has_its_own_policy(desk: Desk, knowing: ToolMemory, context: Any, model_calls: int) -> None:
    before = learned(knowing)
    graph, model = build(knowing, desk.tools, policy=EAGER, recorder=False, context_schema=InertiaSettings)
    state = graph.invoke(FEED, context=context)
    assert len(model.calls) == model_calls
    assert len(shortcuts(state["messages"])) == 4 - model_calls
    assert len(desk.done) == 3
    off = (context or {}).get("inertia_mode") == "off"
    assert (learned(knowing) == before) is off, "switched off, the node learns nothing; the shadow keeps the record"
    graph.invoke(FEED)
    assert len(model.calls) == model_calls + 1, "the next run is as the code says again"


def test_a_misspelt_setting_is_refused_before_the_run_and_other_keys_are_the_hosts() -> None:
    graph = StateGraph(MessagesState, context_schema=InertiaSettings)
    graph.add_node("a", lambda _state: {"messages": []})
    graph.add_edge(START, "a")
    app: Any = graph.compile()

    with pytest.raises(ValidationError, match="InertiaSettings has no 'inertia_mod'; did you mean 'inertia_mode'"):
        app.invoke({"messages": []}, context={"inertia_mod": "shadow"})
    app.invoke({"messages": []}, context={"inertia_mode": "shadow", "tenant": "acme"})
