"""`toolmem graph prune | restore | propagate | constraints` on a memory on disk."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from crowd import crowded
from desk import Desk, warm
from typer.testing import CliRunner, Result

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.cli import app

DAY = 86_400.0
CONSTRAINTS = """
split:
  - name: person
    members:
      - {tool: find_customer, input: name}
      - {tool: nobody, input: name}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "memory"
    with ToolMemory(path, tools=crowded(Desk())) as memory:
        warm(memory, 10)
    return path


def run(*arguments: Any, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, ["graph", *map(str, arguments)], env={"COLUMNS": "160"}, input=answer)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def pruned(folder: Path) -> list[str]:
    with ToolMemory(folder, read_only=True) as memory:
        return memory.navigator.pruned()


def test_pruning_says_what_it_would_do_and_does_nothing(folder: Path) -> None:
    before = files(folder)
    found = run("prune", "--memory", folder, "--most", 1, "--keep", "add_note, latest_order")
    assert found.exit_code == 0
    assert re.search(r"find_customer\W+0\.512\W+10\W+0%", found.stdout)
    assert "Dry run: nothing was changed. Do it with --apply." in found.stdout
    assert "No tool has such a score." in run("prune", "--memory", folder, "--above", 0.9).stdout
    assert len(json.loads(run("prune", "--memory", folder, "--above", 0.5, "--json").stdout)) == 3
    assert len(json.loads(run("prune", "--memory", folder, "--above", 0.5, "--unused", "--json").stdout)) == 33
    assert files(folder) == before


@pytest.mark.parametrize(
    ("answer", "code"), [("n\n", 1), ("\n", 1), ("", 2), (None, 2)], ids=["no", "enter", "eof", "none"]
)
def test_it_asks_and_takes_only_yes_for_yes(folder: Path, answer: str | None, code: int) -> None:
    before = files(folder)
    found = run("prune", "--memory", folder, "--most", 1, "--apply", answer=answer)
    assert found.exit_code == code
    assert "Leave 1 tool out of plans?" in found.stderr
    assert "othing was changed" in found.stderr
    assert files(folder) == before


def test_it_is_done_after_a_yes_and_can_be_taken_back(folder: Path) -> None:
    done = run("prune", "--memory", folder, "--most", 1, "--keep", "add_note,find_customer", "--apply", answer="y\n")
    assert done.exit_code == 0
    assert "1 tool left out." in done.stdout
    assert pruned(folder) == ["latest_order"]
    shown = run("--memory", folder, "--target", "add_note").stdout
    assert "Pruned, in no plan but their own: latest_order" in shown
    assert "order_id <- ask the user" in shown
    assert json.loads(run("--memory", folder, "--json").stdout)["left_out"] == ["latest_order"]
    assert "Left out are:\n  latest_order\n" in run("restore", "--memory", folder).stdout
    assert run("restore", "latest_order", "--memory", folder).stdout == "1 tool put back.\n"
    assert pruned(folder) == []
    assert run("restore", "--memory", folder).stdout == "No tool is left out.\n"
    assert "order_id <- order_id of latest_order" in run("--memory", folder, "--target", "add_note").stdout


def test_yes_is_said_in_advance_for_a_program(folder: Path) -> None:
    done = run("prune", "--memory", folder, "--most", 2, "--apply", "--yes", "--json")
    assert [each["gone"] for each in json.loads(done.stdout)] == [True, True]
    assert pruned(folder) == sorted(each["tool"] for each in json.loads(done.stdout))
    assert json.loads(run("restore", "--memory", folder, "--json").stdout) == pruned(folder)


def test_an_agent_that_uses_what_was_pruned_gets_it_back(folder: Path) -> None:
    run("prune", "--memory", folder, "--most", 3, "--apply", "--yes")
    with ToolMemory(folder, tools=crowded(Desk())) as memory:
        warm(memory, 1, first=5000)
    assert pruned(folder) == []


def test_weights_follow_recent_use(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    with ToolMemory(path, tools=Desk().tools, now=lambda: 20_000 * DAY) as memory:
        warm(memory, 4)
    assert run("propagate", "--memory", path).stdout == "No weight would change.\n"  # that was long ago
    with ToolMemory(path) as memory:
        asked = [{"role": "user", "content": "note"}]
        call = {"id": "c1", "type": "function", "function": {"name": "add_note", "arguments": "{}"}}
        answer = {"role": "tool", "tool_call_id": "c1", "content": "saved"}
        memory.finish([*asked, {"role": "assistant", "content": "", "tool_calls": [call]}, answer], thread_id="late")
    before = files(path)
    shown = run("propagate", "--memory", path, "--days", 2, "--eta", 0.5).stdout
    assert "Links by their use on the last 2 days" in shown
    assert re.search(r"latest_order\W+add_note\W+0\.800\W+0\.400\W+0 of 1", shown)
    assert "Dry run" in shown
    assert files(path) == before
    assert "1 link changed." in run("propagate", "--memory", path, "--eta", 0.5, "--apply", answer="y\n").stdout
    found = json.loads(run("propagate", "--memory", path, "--eta", 0.5, "--json").stdout)
    assert found["applied"] is False
    assert [(each["source"], each["before"], each["after"]) for each in found["links"]] == [("latest_order", 0.4, 0.2)]
    assert json.loads(run("propagate", "--memory", path, "--apply", "--yes", "--json").stdout)["applied"] is True


def test_constraints_of_a_file_are_shown_before_they_hold(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "constraints.yaml"
    file.write_text(CONSTRAINTS, encoding="utf-8")
    before = files(folder)
    found = run("constraints", file, "--memory", folder)
    assert "Before\n  customer: " in found.stdout
    assert (
        "After\n  person: 1 inputs of 1 tools, 0 outputs of 0 tools\n    user's constraints: find_customer.name\n"
        in found.stdout
    )
    assert "Dry run" in found.stdout
    assert "fits nothing: nobody input 'name'" in found.stderr
    assert run("constraints", "--memory", folder).stdout.startswith("There are no constraints")
    assert files(folder) == before
    assert run("constraints", file, "--memory", folder, "--apply", answer="y\n").exit_code == 0
    file.unlink()
    assert run("constraints", "--memory", folder).stdout.startswith("split person\n  find_customer input 'name'\n")
    assert json.loads(run("constraints", "--memory", folder, "--json").stdout)["split"][0]["name"] == "person"
    assert (
        json.loads(run("constraints", "--clear", "--memory", folder, "--apply", "--yes", "--json").stdout)["done"]
        is True
    )
    assert run("constraints", "--memory", folder).stdout.startswith("There are no constraints")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prune"], "needs a bound"),
        (["prune", "--most", "1", "--keep", "nobody"], "no known tool: 'nobody'"),
        (["prune", "--most", "one"], "--most"),
        (["restore", "add_note"], "'add_note' is not left out; no tool is left out"),
        (["propagate", "--days", "99"], "days is a number from 1 to 31"),
        (["constraints", "/nowhere.yaml"], "cannot be read"),
        (["constraints", "/nowhere.yaml", "--clear"], "not both"),
    ],
    ids=["bound", "keep", "most", "restore", "days", "file", "both"],
)
def test_bad_input_is_one_line(folder: Path, arguments: list[str], said: str) -> None:
    result = run(*arguments, "--memory", folder)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_command_behind_the_options_is_no_request(folder: Path) -> None:
    result = run("--memory", folder, "prune")
    assert result.exit_code == 2
    assert "write the command first: toolmem graph prune" in result.stderr


def test_help_names_the_commands_and_the_request() -> None:
    shown = run("--help").stdout
    assert all(f"  {name} " in shown for name in ("show", "prune", "restore", "propagate", "constraints"))
    assert "[REQUEST]" in run("show", "--help").stdout
    assert "join:\n    - name: place\n" in run("constraints", "--help").stdout


def test_a_folder_in_use_is_told(folder: Path) -> None:
    with ToolMemory(folder, tools=crowded(Desk())):
        assert run("prune", "--memory", folder, "--most", 1).exit_code == 0
        result = run("prune", "--memory", folder, "--most", 1, "--apply", "--yes")
    assert result.exit_code == 2
    assert pruned(folder) == []
