"""The converters of public recorded runs, on small made-up checkouts, and fetching a source at its commit."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import data
from langgraph_toolmem.runs.logs import load_runs


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def called(run: dict[str, Any]) -> list[tuple[str, Any]]:
    functions = [each["function"] for message in run["messages"] for each in message.get("tool_calls", ())]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def told(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(m["content"], m.get("status", "")) for m in run["messages"] if m["role"] == "tool"]


# --- tau2 ---


def tau2_message(seconds: float, role: str, content: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "timestamp": f"2026-03-02T10:00:{seconds:06.3f}", **more}


def test_a_tau2_run_shows_what_its_agent_saw() -> None:
    own = [{"id": "u1", "name": "toggle_data", "arguments": {}, "requestor": "user"}]
    asked = [{"id": "c1", "name": "get_line", "arguments": {"id": "L1"}}]
    simulation = {
        "task_id": 7,
        "reward_info": {"reward": 1.0},
        "messages": [
            tau2_message(0, "assistant", "Hi! How can I help?"),
            tau2_message(1.5, "user", "No signal"),
            tau2_message(2, "assistant", tool_calls=asked),
            tau2_message(2.25, "tool", "Error: no line", id="c1", requestor="assistant", error=True),
            tau2_message(3, "user", tool_calls=own),
            tau2_message(3, "tool", "on", id="u1", requestor="user"),
            tau2_message(4, "user", "###STOP###"),
        ],
    }
    run = data.tau2_run("x-0", simulation)
    assert [message["role"] for message in run["messages"]] == ["user", "assistant", "tool", "user"]
    assert called(run) == [("get_line", {"id": "L1"})]
    assert told(run) == [("Error: no line", "error")]
    assert (run["times"], run["success"], run["task"]) == ([0.0, 0.5, 0.75, 2.5], True, "7")


# --- sources that are programs ---


def test_right_calls_of_tau_are_executed_on_fresh_data(tmp_path: Path) -> None:
    tool = """
class Cancel:
    @staticmethod
    def get_info():
        return {"type": "function", "function": {"name": "cancel_pending_order", "parameters": {}}}
    @staticmethod
    def invoke(data, order):
        return data.pop(order)
ALL_TOOLS = [Cancel]
"""
    cancel = {"name": "cancel_pending_order", "kwargs": {"order": "A"}}
    say = {"name": "respond", "kwargs": {"content": "Done"}}
    tasks = [
        {"instruction": "Cancel A", "actions": [cancel, cancel, say]},
        {"instruction": "Cancel A", "actions": [cancel]},
        {"instruction": "Thanks", "actions": [say]},
        {"instruction": "Once more", "actions": [cancel]},
    ]
    files = {"tau_bench/__init__.py": "import litellm", "tau_bench/envs/__init__.py": ""}
    for domain in ("retail", "airline"):
        here = f"tau_bench/envs/{domain}"
        files |= {
            f"{here}/__init__.py": "",
            f"{here}/tools/__init__.py": tool,
            f"{here}/tasks_test.py": f"TASKS = {tasks}",
        }
        files[f"{here}/data/__init__.py"] = "def load_data(): return {'A': 'cancelled'}"
    found = {name: runs for name, _, runs in data.tau(write(tmp_path, files))}
    one, other = found["tau_retail_gold"]
    assert one["id"] == "tau_retail_gold_test_000"
    assert told(one) == [("cancelled", ""), ("Error: 'A'", "error")]
    assert (other["id"], told(other)) == ("tau_retail_gold_test_003", [("cancelled", "")])


# --- catalogues ---


def nestful_files() -> dict[str, Any]:
    part = {"type": "String", "required": True, "description": "x"}
    specs = [
        {"name": "find", "description": "Find.", "query_parameters": {"name": part}, "output_parameters": {"id": part}},
        {"name": "pay", "description": "Pay.", "arguments": {"id": {**part, "allowed_values": ["1"]}}},
    ]
    calls = [
        {"name": "find", "arguments": {"name": "Ann"}, "label": "var1"},
        {"name": "pay", "arguments": {"id": "$var1.id$"}, "label": "var1"},
        {"name": "var_result", "arguments": {}},
    ]
    first = data.NESTFUL[0][1]
    files: dict[str, Any] = {f"data/{path}-{kind}.json": [] for _, path in data.NESTFUL for kind in ("spec", "data")}
    return {
        **files,
        f"data/{first}-spec.json": specs,
        f"data/{first}-data.json": [{"input": "Pay Ann", "output": calls}],
    }


# --- fetching and writing ---


def test_a_source_is_fetched_at_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = write(tmp_path / "far/IBM/NESTFUL", {**nestful_files(), "not/wanted.txt": "x"})
    git = ["git", "-C", str(there), "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "data"]):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    monkeypatch.setattr(data, "HOST", f"file://{tmp_path}/far/")
    monkeypatch.setitem(data.SOURCES, "nestful", data.SOURCES["nestful"]._replace(commit=commit))
    assert data.main(["--into", str(tmp_path / "out"), "--sets", "nestful"]) == 0
    query = json.loads((tmp_path / "out/nestful/queries.jsonl").read_text())
    assert query["edges"] == [{"from": 0, "output": "id", "to": 1, "param": "id"}]
    assert (query["relevant"], len(query["calls"])) == (["find", "pay"], 2)
    find, pay = (each["function"] for each in json.loads((tmp_path / "out/nestful/tools.json").read_text()))
    assert find["returns"]["properties"] == {"id": {"type": "string", "description": "x"}}
    assert pay["parameters"]["properties"]["id"]["enum"] == ["1"]
    assert not (tmp_path / "out/nestful/nature.json").exists()

    folder = data.fetch(data.SOURCES["nestful"], tmp_path / "checkouts")
    assert {path.name for path in folder.iterdir()} == {".git", "data"}


def test_a_set_is_written_as_the_benchmarks_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools = [data.schema(name, "", {}, ()) for name in ("get_user_details", "cancel_reservation", "book_reservation")]
    messages = [{"role": "user", "content": "Who?"}, *data.exchange(0, "get_user_details", {"user_id": "u"}, "Ann")]
    data.write(tmp_path, "tau_airline_gold", tools, [{"id": "r", "task": "t", "success": True, "messages": messages}])
    assert "3 tools, 1 rows, 1 calls" in capsys.readouterr().out
    assert load_runs(tmp_path / "tau_airline_gold/trajectories.jsonl").runs[0].task == "t"
    nature = json.loads((tmp_path / "tau_airline_gold/nature.json").read_text())
    assert (nature["reads"], nature["destructive"]) == (["get_user_details"], ["cancel_reservation"])
    assert nature["changes"] == ["book_reservation", "cancel_reservation"]


def test_a_source_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "NESTFUL").mkdir()
    assert data.main(["--into", str(tmp_path / "out"), "--from", str(tmp_path), "--sets", "nestful"]) == 1
    assert "failed: nestful" in capsys.readouterr().err


# --- STATE-Bench ---


def test_a_state_run_has_a_round_for_each_call(tmp_path: Path) -> None:
    calls = [
        {"name": "get_order", "arguments": {"order_id": "O1"}, "result": {"order_id": "O1", "status": "shipped"}},
        {"name": "cancel_order", "arguments": {"order_id": "O1"}, "result": {"error": "It is shipped."}},
    ]
    conversation = [
        {"role": "system", "content": "Customer C1."},
        {"role": "user", "content": "Cancel O1."},
        {"role": "assistant", "content": "It is on its way.", "tool_calls": calls},
        {"role": "user", "content": "Thanks.", "tool_calls": None},
    ]
    run = data.state_run("1-cancel", conversation)

    assert called(run) == [("get_order", {"order_id": "O1"}), ("cancel_order", {"order_id": "O1"})]
    assert [status for _, status in told(run)] == ["", "error"]
    roles = [message["role"] for message in run["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant", "user"]
    log = load_runs(write(tmp_path, {"runs.jsonl": json.dumps(run) + "\n"}) / "runs.jsonl")
    assert log.calls == len(calls)
