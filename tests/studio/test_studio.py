"""``langgraph.json`` in the real ``langgraph dev``, driven as Studio drives it. One server for all tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from desk import Desk, expected, request
from places import TESTS
from studio_server import ROOT, StudioServer, langgraph_dev, project

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.inertia.step import InertiaSettings
from langgraph_toolmem.report.report import Report

pytest.importorskip("langgraph_api")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("studio")]

MORE = {name: f"./studio_graphs.py:{name}" for name in ("settings", "navigator")}
MORE |= {name: f"./studio_{name}.py:graph" for name in ("kept", "careless")}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudioServer]:
    parts = ("navi_script", "desk", "studio_graphs", "studio_kept", "studio_careless")
    files = [TESTS / f"{part}.py" for part in parts]
    folder = project(tmp_path_factory.mktemp("studio"), MORE, *files)
    with langgraph_dev(folder) as running:
        yield running
    assert running.process.returncode == 0, running.log()[-4000:]


@pytest.fixture(scope="session")
def assistants(server: StudioServer) -> dict[str, str]:
    """Graph → its assistant."""
    return {a["graph_id"]: a["assistant_id"] for a in server.client.assistants.search(limit=100)}


@pytest.fixture(autouse=True)
def log_is_quiet(server: StudioServer, request: pytest.FixtureRequest) -> Iterator[None]:
    """No test may block the server's event loop or make the memory fail open, but the one that means to."""
    start = len(server.log())
    yield
    if request.node.originalname != "test_the_server_would_notice_disk_work_on_its_loop":
        new = server.log()[start:]
        assert "BlockingError" not in new
        assert "passed over" not in new


@dataclass
class Answer:
    """What came of one run."""

    thread: str
    events: list[dict[str, Any]] = field(default_factory=list)
    """The memory's custom events."""
    values: dict[str, Any] = field(default_factory=dict)
    error: Any = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.values["messages"]
        return found

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        return [(c["name"], c["args"]) for m in self.messages for c in m.get("tool_calls") or ()]

    @property
    def skipped(self) -> int:
        """Model calls that were not made."""
        return sum("toolmem" in m["additional_kwargs"] for m in self.messages)

    @property
    def decisions(self) -> list[str]:
        return [e["decision"] for e in self.events if "decision" in e]


def say(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def run(server: StudioServer, assistant: str, feed: Any = None, *, thread: str | None = None, **options: Any) -> Answer:
    """One run as Studio makes it: streamed, on a thread."""
    answer = Answer(thread or server.client.threads.create()["thread_id"])
    parts = server.client.runs.stream(answer.thread, assistant, input=feed, stream_mode=["custom", "values"], **options)
    for part in parts:
        if part.event == "custom":
            answer.events.append(part.data["toolmem"])
        elif part.event == "values":
            answer.values = part.data
        elif part.event == "error":
            answer.error = part.data
    return answer


# --- what Studio shows ---


def test_every_graph_of_the_json_is_served_with_its_descriptions(
    server: StudioServer, assistants: dict[str, str]
) -> None:
    exposed = json.loads((ROOT / "langgraph.json").read_text())["graphs"]
    assert set(exposed) == set(assistants) - set(MORE)
    shown = {g: server.client.assistants.get(assistants[g])["description"] for g in exposed}
    assert shown == {g: value["description"] for g, value in exposed.items()}
    for name in exposed:
        settings = server.client.assistants.get_schemas(assistants[name])["context_schema"]["properties"]
        assert set(settings) == set(InertiaSettings.model_fields), name
    for name, parts in (
        ("settings", {"inertia": "inertia", "record": "recorder"}),
        ("state_graph", {"inertia": "inertia", "record": "recorder"}),
        ("navigator", dict.fromkeys(("begin", "decide", "tools", "retrieve", "clarify", "conclude"), "navi")),
    ):
        graph = server.client.assistants.get_graph(assistants[name], xray=True)
        nodes = {node["id"]: node.get("metadata", {}) for node in graph["nodes"]}
        assert {part: nodes[part]["toolmem"] for part in parts} == parts
        assert all(nodes[part]["toolmem_about"] for part in parts)
        assert nodes["tools"]["__tools"]


def test_settings_are_shown_at_their_nodes(server: StudioServer, assistants: dict[str, str]) -> None:
    schemas = server.client.assistants.get_schemas(assistants["settings"])
    shown = schemas["context_schema"]["properties"]
    assert set(shown) == {*InertiaSettings.model_fields, "signature"}
    assert all(shown[name]["langgraph_nodes"] == ["inertia", "model"] for name in InertiaSettings.model_fields)
    assert shown["signature"]["langgraph_nodes"] == ["agent"]
    assert shown["inertia_mode"]["enum"] == ["act", "shadow", "off"]
    assert shown["inertia_mode"]["description"]
    assert shown["inertia_min_precision"]["minimum"] == 0
    assert shown["inertia_min_precision"]["maximum"] == 1
    assert list(schemas["input_schema"]["properties"]) == ["messages"], "nothing of the memory's in the host's state"


# --- runs ---


@pytest.mark.parametrize("graph", ["settings"])
def test_a_run_shows_why_the_model_was_not_asked(server: StudioServer, assistants: dict[str, str], graph: str) -> None:
    answer = run(server, assistants[graph], say(request("Zoe")))
    assert answer.error is None
    assert answer.calls == expected("Zoe")
    assert answer.skipped == 3
    marks = [message["response_metadata"].get("toolmem") for message in answer.messages if message["type"] == "ai"]
    assert marks == [{"by": "inertia"}] * 3 + [None], "Studio shows who spoke"
    assert all(message["name"] is None for message in answer.messages if message["type"] == "ai")
    assert answer.messages[-1]["content"] == "The order of Zoe is checked."
    assert answer.decisions == ["shortcut", "shortcut", "shortcut", "ask_model"]
    first = answer.events[0]
    assert first["proposal"]["tool"] == "find_customer"
    assert first["proposal"]["args"] == {"name": "Zoe"}
    assert "find_customer" in first["reason"]
    assert first["candidates"]
    assert all(e["reason"] for e in answer.events if "decision" in e)
    assert "customer_id in the result of find_customer" in str(answer.events)
    decided = [(e["reason"], e["candidates"]) for e in answer.events if "decision" in e]
    assert not set("<>$") & set(str(decided)), "plain words"


# --- the navigator ---


def test_the_navigator_asks_back_and_goes_on(server: StudioServer, assistants: dict[str, str]) -> None:
    paused = run(server, assistants["navigator"], say("Find the customer."))
    assert paused.error is None
    assert [(event["event"], event.get("action")) for event in paused.events] == [
        ("candidates", None),
        ("decision", "clarify"),
    ]
    state = server.client.threads.get_state(paused.thread)
    assert state["next"] == ["clarify"]
    assert state["interrupts"][0]["value"]["question"] == "Whose order?"
    answer = run(server, assistants["navigator"], thread=paused.thread, command={"resume": "Zoe"})
    assert answer.error is None
    assert answer.calls == [("find_customer", {"name": "Zoe"})]
    assert answer.values["toolmem_navi"]["stop"] == "answered"


# --- time travel ---


def kept(server: StudioServer) -> Report:
    """What the memory in the folder holds at this moment."""
    with ToolMemory(server.folder / "kept", tools=Desk().tools, read_only=True) as memory:
        return memory.report()


def executed(report: Report) -> dict[str, int]:
    return {name: tool.calls for name, tool in report.tools.items()}


def test_a_fork_does_not_teach_twice(server: StudioServer, assistants: dict[str, str]) -> None:
    before = kept(server)
    answer = run(server, assistants["kept"], say(request("Zoe")))
    learned = kept(server)
    assert executed(learned) == {name: calls + 1 for name, calls in executed(before).items()}
    assert (learned.turns, learned.skipped) == (before.turns + 4, before.skipped + 3)
    history = server.client.threads.get_history(answer.thread, limit=100)

    at_the_end = next(s for s in history if s["next"] == ["agent"])
    again = run(
        server, assistants["kept"], thread=answer.thread, checkpoint_id=at_the_end["checkpoint"]["checkpoint_id"]
    )
    assert again.messages[-1]["content"] == answer.messages[-1]["content"]
    assert kept(server) == learned, "the same answer at the same place"

    at_the_call = next(s for s in history if s["next"] == ["tools"])
    again = run(
        server, assistants["kept"], thread=answer.thread, checkpoint_id=at_the_call["checkpoint"]["checkpoint_id"]
    )
    assert again.calls == expected("Zoe")
    assert executed(kept(server)) == executed(learned), "the same call, executed once more"


# --- the server's event loop ---


def test_the_server_would_notice_disk_work_on_its_loop(server: StudioServer, assistants: dict[str, str]) -> None:
    """The counterpart of the check after each other test, with a memory in a folder among them."""
    start = len(server.log())
    answer = run(server, assistants["careless"], say(request("Zoe")))
    assert answer.error is None, "a memory that cannot write goes on in RAM"
    assert "BlockingError" in server.log()[start:]
