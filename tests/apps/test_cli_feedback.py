"""Verdicts from the command line, beside a running process too; what would be recalled; and what waits in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from langgraph_toolmem import Entries, ToolMemory, default_methods
from langgraph_toolmem.cli import app
from langgraph_toolmem.cli.waiting import look
from langgraph_toolmem.entries.critique import Critique
from langgraph_toolmem.entries.entry import entry_id
from langgraph_toolmem.stores.database import NAME
from langgraph_toolmem.stores.job_queue import JobQueue

APART = ("toolmem", "{user_id}")


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def history(number: int, request: str = "Cancel the order of customer") -> list[dict[str, Any]]:
    function = {"name": "cancel_order", "arguments": json.dumps({"customer": f"C-{number}"})}
    return [
        {"role": "user", "content": f"{request} {number}"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{number}", "function": function}]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": "cancelled"},
        {"role": "assistant", "content": "Done."},
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A memory of three runs; of the last one nobody said how it went."""
    with ToolMemory(tmp_path / "memory") as memory:
        memory.finish(history(1), thread_id="one", success=True)
        memory.finish(history(2), thread_id="two", success=False, comment="it was somebody else's")
        memory.finish(history(3), thread_id="three")
    return tmp_path / "memory"


def entry(folder: Path, thread_id: str, user: str | None = None, **options: Any) -> Any:
    with ToolMemory(folder, **options) as memory:
        key = entry_id(memory.core.episodes.named(thread_id, None))
        return next(iter(memory.entries.rows.get([key], memory.core.users.of(user))), None)


# --- feedback ---


def test_a_verdict_goes_to_the_run_and_its_entry(folder):
    result = run("feedback", "three", "--score", 0, "--comment", "too late", "--memory", folder)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "Noted: three went wrong (score 0).",
        "Its entry: Cancel the order of customer 3",
    ]
    found = entry(folder, "three")
    assert (found.score, found.comment) == (0.0, "too late")
    answer = json.loads(run("feedback", "three", "--score", "0.75", "--path", folder, "--json").stdout)
    assert (answer["queued"], answer["entry"]["score"], answer["score"]) == (False, 0.75, 0.75)
    with ToolMemory(folder) as memory:
        assert memory.report().runs_judged == 3


def test_a_run_that_is_not_known_is_told(folder):
    result = run("feedback", "four", "--score", 1, "--memory", folder)
    assert result.exit_code == 2
    assert "No thread 'four' was learned" in result.stderr
    result = run("feedback", "three", "--score", 1, "--episode", 5, "--memory", folder)
    assert (result.exit_code, "no episode 5" in result.stderr) == (2, True)


def test_a_verdict_on_one_request_of_a_chat_under_a_namespace_by_user(tmp_path):
    with ToolMemory(tmp_path, namespace=APART) as memory:
        chat = [*history(1), *history(2, "Refund the order of customer")]
        memory.finish(chat[: len(history(1))], thread_id="one", user_id="ann")
        memory.finish(chat, thread_id="one", user_id="ann")
    said = run("feedback", "one", "--score", 0, "--episode", 1, "--memory", tmp_path)  # the namespace is in the folder
    assert "Its entry: Cancel the order of customer 1" in said.stdout
    found = run("recall", "cancel the order of customer 4", "--user-id", "ann", "--memory", tmp_path)
    assert found.exit_code == 0, found.output
    with ToolMemory(tmp_path, namespace=APART) as memory:
        scores = {each.query: each.score for each in memory.entries.rows.all(memory.core.users.of("ann"))}
    assert scores == {"Cancel the order of customer 1": 0.0, "Refund the order of customer 2": None}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--score", "2"), "less than or equal to 1"),
        (("--score", "bad"), "'--score'"),
        ((), "--score"),
        (("--score", "1", "--memory", "none"), "there is no memory at none"),
    ],
    ids=["out of range", "no number", "missing", "no memory"],
)
def test_a_verdict_that_cannot_be_is_one_line(folder, arguments, said):
    result = run("feedback", "one", *(() if "--memory" in arguments else ("--memory", folder)), *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_verdict_waits_while_another_process_writes_and_is_taken_in(folder):
    code = (
        "import sys; from pathlib import Path; from langgraph_toolmem import ToolMemory\n"
        "memory = ToolMemory(Path(sys.argv[1]))\n"
        "print('open', flush=True); sys.stdin.readline()\n"
        "assert memory.flush(); memory.close()"
    )
    arguments = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "open\n"
        result = run("feedback", "three", "--score", 0, "--comment", "too late", "--memory", folder)
        assert result.exit_code == 0, result.output
        assert "Another process is writing" in result.stdout
        assert "The verdict on three waits in its queue" in result.stdout
        doctor = run("doctor", "--memory", folder).stdout
        assert "still to be written, by the next process that works with the memory: 1 verdict" in doctor
        again = json.loads(run("feedback", "one", "--score", 0, "--memory", folder, "--json").stdout)
        assert (again["queued"], again["entry"]) == (True, None)
        agent.communicate("\n", timeout=60)
    assert agent.returncode == 0
    assert [entry(folder, name).score for name in ("one", "two", "three")] == [0.0, 0.0, 0.0]
    assert entry(folder, "three").comment == "too late"


def test_a_verdict_on_a_users_run_needs_no_user_id_where_it_was_finished(tmp_path):
    with ToolMemory(tmp_path, namespace=APART) as memory:
        memory.finish(history(1), thread_id="one", user_id="ann@example.com")
        memory.finish(history(2), thread_id="two", user_id="ann@example.com")
    where = ("--memory", tmp_path, "--namespace", "toolmem/{user_id}")
    assert "Its entry" in run("feedback", "one", "--score", 0, *where).stdout
    assert "Its entry" in run("feedback", "two", "--score", 1, "--user-id", "ann@example.com", *where).stdout
    assert entry(tmp_path, "one", "ann@example.com", namespace=APART).score == 0
    assert entry(tmp_path, "two", "ann@example.com", namespace=APART).score == 1


# --- recall ---


def test_what_would_be_recalled_is_shown_with_reason_and_verdict(folder):
    result = run("recall", "Cancel the order of customer 7", "--memory", folder)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    heads = [line for line in lines if line[:1].isdigit()]
    assert {head.partition(". ")[2] for head in heads} == {f"Cancel the order of customer {n}" for n in (1, 2, 3)}
    assert "   went well (score 1)" in lines
    assert "   went wrong (score 0): it was somebody else's" in lines
    assert "   nobody judged it" in lines
    assert lines.count("   calls: cancel_order") == 3
    assert sum(line.startswith("   probably relevant: ") for line in lines) == 3
    assert sum("shown 0 times, helped 0, hurt 0; from " in line and "made by: run" in line for line in lines) == 3


def test_recall_tells_programs_the_same(folder):
    answer = json.loads(run("recall", "Cancel the order of customer 7", "--memory", folder, "--json").stdout)
    with ToolMemory(folder) as memory:
        found = memory.entries.ranked("Cancel the order of customer 7")
    assert (answer["entries"], answer["waiting"]) == (3, 0)
    assert [each["entry"]["query"] for each in answer["recalled"]] == [each.entry.query for each in found]
    assert [each["score"] for each in answer["recalled"]] == pytest.approx([each.score for each in found])
    assert all(each["evidence"] for each in answer["recalled"])


def test_nothing_to_recall_is_said_and_the_nearest_can_be_seen_all_the_same(folder, tmp_path):
    asked = "What is the weather in Rome?"
    assert run("recall", asked, "--memory", folder).stdout == "None of 3 past runs is worth recalling for this.\n"
    nearest = run("recall", asked, "--nearest", 2, "--memory", folder).stdout
    assert nearest.count("   similarity: 0.") == 2
    ToolMemory(tmp_path / "empty").close()
    assert run("recall", asked, "--memory", tmp_path / "empty").stdout == "No past runs yet.\n"


def test_recall_changes_nothing_and_works_beside_a_writer(folder):
    with ToolMemory(folder) as memory:
        memory.finish(history(4), thread_id="four", wait=True)
        before = {path: path.read_bytes() for path in folder.glob("graph*")}
        assert "customer 4" in run("recall", "Cancel the order of customer 4", "--memory", folder).stdout
        assert {path: path.read_bytes() for path in folder.glob("graph*")} == before
        assert memory.report()["entries"]["runs"] == 0


def test_recall_shows_one_users_runs_and_critiques(tmp_path):
    def critic(*_: Any) -> Critique:
        return Critique(went_wrong="The wrong customer.", call=1, instead="Look the customer up.")

    with ToolMemory(tmp_path, namespace=APART, methods=default_methods(Entries(critic=critic))) as memory:
        memory.finish(history(1), thread_id="one", user_id="ann", success=False, wait=True)
        memory.finish(history(2), thread_id="two", user_id="bob", success=True, wait=True)
    where = ("--memory", tmp_path, "--namespace", "toolmem/{user_id}")
    shown = run("recall", "Cancel the order of customer 3", "--user-id", "ann", *where).stdout
    assert "   What went wrong: The wrong customer.\n   Where: call 1, cancel_order.\n" in shown
    assert "customer 2" not in shown
    assert "No lessons yet." in run("lessons", "--user-id", "ann", *where).stdout
    nobody = run("recall", "Cancel the order of customer 3", *where)
    assert nobody.exit_code == 2
    assert "needs a user id" in nobody.stderr


def test_lessons_are_shown_and_undone(tmp_path):
    with ToolMemory(tmp_path) as memory:
        for number in (1, 2, 3):
            memory.finish(history(number), thread_id=str(number), success=False, comment="the wrong one")
        memory.flush()
        [lesson] = memory.entries.lessons()
    told = run("lessons", "--memory", tmp_path).stdout.splitlines()
    assert told[:2] == [f"{lesson.id}: Cancel the order of customer 1", "   3 runs went wrong, for a user"]
    assert "   the wrong one" in told
    assert f"lesson: {lesson.id}" in run("recall", "Cancel the order of customer 3", "--memory", tmp_path).stdout
    shared = run("lessons", lesson.id, "--share", "--memory", tmp_path)
    assert (shared.exit_code, "own words" in shared.stderr) == (2, True)
    undone = json.loads(run("lessons", lesson.id, "--undo", "--memory", tmp_path, "--json").stdout)
    assert [each["undone"] for each in undone["lessons"]] == [True]
    assert run("lessons", "--undo", "--memory", tmp_path).exit_code == 2
    assert "No such lesson." in run("lessons", "nothing", "--memory", tmp_path).stdout


# --- doctor ---


@pytest.fixture
def _packages(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "999")


def queue(folder: Path) -> JobQueue:
    return JobQueue(folder, now=time.time)


@pytest.mark.usefixtures("_packages")
def test_doctor_tells_what_waits_what_fails_and_what_was_given_up(folder):
    assert "still to be written" not in run("doctor", "--memory", folder).stdout
    with queue(folder) as jobs:
        for number in range(5):
            jobs.put(f"k{number}", {}, kind="critique")
        for number in range(3):
            job = jobs.take(["critique"])
            assert job is not None
            jobs.retry(job, 60, limit=1 if number < 2 else None, error="TimeoutError at some.model:7")
    result = run("doctor", "--memory", folder)
    assert result.exit_code == 1
    out = " ".join(result.stdout.split())
    assert "Note: still to be written, by the next process that works with the memory: 3 critiques." in out
    assert "Note: of these, tried before without success: 1 critique (TimeoutError at some.model:7)." in out
    assert "Note: critiques are written only by a memory whose method Entries has a critic" in out
    assert "Problem: given up after repeated failures: 2 critiques (TimeoutError at some.model:7)." in out
    assert f"type: toolmem doctor --memory {folder} --retry" in out
    told = json.loads(run("doctor", "--memory", folder, "--json").stdout)["memory"]["reflections"]
    assert told["given_up"] == [{"kind": "critique", "times": 2, "error": "TimeoutError at some.model:7"}]

    revived = run("doctor", "--memory", folder, "--retry")
    assert revived.exit_code == 0
    assert revived.stderr == "to be tried again, by the process that works with the memory: 2\n"
    assert "by the next process that works with the memory: 5 critiques" in revived.stdout
    with queue(folder) as jobs:
        assert jobs.report() == {"pending": 5, "failing": 1, "given_up": 0}


@pytest.mark.usefixtures("_packages")
def test_doctor_leaves_the_queue_as_it_is_and_looks_beside_a_writer(folder):
    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.glob(f"{NAME}*")}

    with queue(folder) as jobs:
        jobs.put("k", {}, kind="write")
    before = files()
    assert list(before) == [NAME]
    assert "1 entry." in run("doctor", "--memory", folder).stdout
    assert files() == before
    with queue(folder) as jobs:
        jobs.put("k2", {}, kind="judge")
        assert f"{NAME}-wal" in files()
        assert "1 entry, 1 verdict." in run("doctor", "--memory", folder).stdout
    killed = [
        sys.executable,
        "-c",
        "import os, sys, time; from pathlib import Path; from langgraph_toolmem.stores.job_queue import JobQueue\n"
        "JobQueue(Path(sys.argv[1]), now=time.time).put('k3', {}, kind='write'); os._exit(9)",
        str(folder),
    ]
    assert subprocess.run(killed, check=False).returncode == 9
    assert "2 entries, 1 verdict." in run("doctor", "--memory", folder).stdout


@pytest.mark.usefixtures("_packages")
def test_doctor_names_a_queue_that_cannot_be_read(folder):
    (folder / NAME).write_bytes(b"no database at all" * 100)
    result = run("doctor", "--memory", folder)
    assert result.exit_code == 1
    assert f"Problem: {NAME} cannot be read: file is not a database." in result.stdout
    assert (folder / NAME).read_bytes() == b"no database at all" * 100
    with ToolMemory(folder) as memory:  # sets it aside and goes on
        memory.finish(history(9), thread_id="nine", wait=True)
    aside = run("doctor", "--memory", folder)
    assert f"{NAME}.corrupt-1" in aside.stdout
    assert "cannot be read:" not in aside.stdout


@pytest.mark.usefixtures("_packages")
def test_doctor_tells_of_recorded_decisions(folder):
    said = "decisions are kept with their prompts in memory.db"
    with ToolMemory(folder) as memory:
        assert said not in run("doctor", "--memory", folder).stdout
        decision = {"sub_intents": [{"rank": 0, "intent": "x", "action": "answer", "text": "y"}]}
        for step in (1, 2):
            memory.navigator.decisions(
                {"messages": [{"role": "user", "content": "x"}], "decision": decision, "thread_id": "r", "step": step}
            )
    assert f"Note: 2 {said}, for toolmem export --sft." in run("doctor", "--memory", folder).stdout
    (folder / NAME).write_bytes(b"no database at all" * 100)
    assert "Problem: memory.db cannot be read" in run("doctor", "--memory", folder).stdout


def test_where_there_is_nothing_nothing_waits():
    assert look(Path(os.devnull).parent / "none") == {"reflections": None, "bootstrap": None, "decisions": None}
    assert run("doctor", "--memory", "none", "--retry").exit_code == 2
