"""The command line: fields of --json, exit codes, files; and the texts of `report` and `doctor`."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import histories as h
import pytest
from desk import Desk, warm
from places import ROOT

from langgraph_toolmem import Atoms, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.base.errors import ConfigurationError, InputError, StorageError
from langgraph_toolmem.cli import health, main, terminal
from langgraph_toolmem.cli.app import read_policy, read_tools_file
from langgraph_toolmem.cli.tables import show_report
from langgraph_toolmem.core.jobs import Job, JobQueue
from langgraph_toolmem.core.method import Section, TextTable
from langgraph_toolmem.core.users import NO_USERS
from langgraph_toolmem.report.report import Report, Saved, ToolReport
from langgraph_toolmem.stores.database import NAME
from langgraph_toolmem.stores.events import EventLog

APART = ("toolmem", "{user_id}")


TOOLS = [h.schema("search_mail", "query"), h.schema("delete_mail", "mail_id")]


def logged(number: int, **more: Any) -> dict[str, Any]:
    """One run: search the mail of somebody, delete the first one found, say so."""
    found = f"mail-{number:04}"
    messages = h.history(
        h.user(f"Delete the mail about topic{number}"),
        h.call("search_mail", {"query": f"topic{number}"}, [{"id": found}]),
        h.call("delete_mail", {"mail_id": found}, "deleted"),
        h.words(),
    )
    return {"id": f"run-{number}", "success": True, "messages": messages, **more}


def written(path: Path, *runs: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in runs), encoding="utf-8")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "runs.jsonl", *map(logged, range(40)))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    (folder / "tools.json").write_text(json.dumps(TOOLS), encoding="utf-8")
    log = written(folder / "runs.jsonl", *map(logged, range(40)))
    assert run("import", log, "--memory", folder / "memory", "--tools", folder / "tools.json").exit_code == 0
    return folder / "memory"


@pytest.fixture
def folder(tmp_path: Path, imported: Path) -> Path:
    """A memory of the log, of one's own."""
    shutil.copytree(imported, tmp_path / "memory")
    return tmp_path / "memory"


class Result(NamedTuple):
    exit_code: object
    stdout: str
    stderr: str


def run(*arguments: object, typed: str = "") -> Result:
    """Run the program as a shell does."""
    out, err, stdin = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.StringIO(typed)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
    finally:
        sys.stdin = stdin
    return Result(ended.value.code, out.getvalue(), err.getvalue())


def answer(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result
    return json.loads(result.stdout)


def assert_refused(result: Any, *said: str) -> None:
    assert (result.exit_code, result.stdout) == (2, "")
    line = result.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert all(part in line for part in said), line


def flat(text: str) -> str:
    """A table on one line, without borders."""
    return re.sub(r"[\s│┃]+", " ", text)


# --- usage ---


def test_a_process_answers_errors_and_help_without_heavy_imports() -> None:
    code = (
        "import sys; from langgraph_toolmem.cli import app, main\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = {'chromadb', 'scipy', 'networkx', 'numpy', 'rich.table', 'langgraph'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "main(['replay'])"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert (seen.returncode, seen.stderr) == (2, "error: Missing argument 'FILE'.\n")
    shown = set(re.findall(r"^  (\w+)  ", seen.stdout, re.MULTILINE))
    assert shown == {"demo", "replay", "import", "report", "explain", "doctor", "eval", "feedback", "forget"}


def test_the_package_is_a_program_where_the_scripts_are_not_on_the_path() -> None:
    command = [sys.executable, "-m", "langgraph_toolmem", "replay"]
    seen = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (seen.returncode, seen.stderr) == (2, "error: Missing argument 'FILE'.\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("reply", "No such command"),
        ("--nothing", "No such option"),
        ("replay x --limit 0", "'--limit'"),
        ("import x", "--memory"),
        ("report", "--memory"),
        ("report --memory none", "there is no memory at none"),
        ("report --memory {file}", "is a file"),
        ("report --memory {memory} --price 3", "IN:OUT"),
        ("report --memory {memory} --price 1:2:3:4", "IN:OUT"),
        ("report --memory {memory} --price 1:-2", "output must be money"),
        ("report --memory {memory} --html x.html --json", "choose one"),
        ("report --memory {memory} --html {memory}", "cannot be written"),
        ("replay {file} --html x.html --json", "choose one"),
        ("explain x", "--memory"),
        ("explain x --memory none", "there is no memory at none"),
        ("explain x --tools none.json", "cannot be read"),
        ("feedback run-1 --memory {memory}", "--score"),
        ("feedback run-1 --memory {memory} --score 2", "'--score'"),
        ("feedback run-1 --memory none --score 1", "there is no memory at none"),
        ("feedback unknown --memory {memory} --score 1", "'unknown'"),
        ("feedback run-1 --memory {memory} --score 1 --episode 5", "no episode 5"),
        ("forget --memory {memory}", "--thread"),
        ("doctor --memory none --retry", "there is no memory at none"),
        ("doctor --memory none --reembed builtin", "there is no memory at none"),
        ("replay none.jsonl", "cannot be read"),
        ("replay {file}", "holds no runs"),
        ("import {log} --memory {new} --namespace toolmem//x", "namespace` must be a tuple"),
        ("replay {log} --policy best", "must be calibrated, paper or a file"),
    ],
)
def test_what_cannot_work_is_one_line_and_exit_code_two(
    arguments: str, said: str, imported: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    places = {"file": tmp_path / "file", "memory": imported, "log": log, "new": tmp_path / "new"}
    assert_refused(run(*arguments.format(**places).split()), said)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "runs.jsonl"}


def test_an_interruption_is_one_line_and_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(error: type[BaseException]) -> Any:
        def examine(_: Any) -> None:
            raise error

        return examine

    monkeypatch.setattr(health, "examine", failing(KeyboardInterrupt))
    assert run("doctor") == (130, "", "error: interrupted\n")
    monkeypatch.setattr(health, "examine", failing(ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


def test_long_tables_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.table("Tools", ("tool", "calls"), [(f"tool{i:02}", "2") for i in range(25)])
    text = flat(capsys.readouterr().out)
    assert "tool19" in text
    assert "tool20" not in text
    assert "5 more" in text


# --- policy and tools ---


def test_policies(tmp_path: Path) -> None:
    policy = InertiaPolicy().with_(min_precision=0.8, never={"a.b", "c"}, shadow=True)
    (file := tmp_path / "policy.json").write_text(json.dumps(policy.to_dict()), encoding="utf-8")
    assert read_policy(str(file)) == policy
    assert (read_policy("calibrated"), read_policy("paper")) == (InertiaPolicy(), InertiaPolicy.paper())
    for wrong in ("[]", '{"nothing": 1}', '{"min_precision": 2}'):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(ConfigurationError):
            read_policy(str(file))


def test_tools_files(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps({"tools": TOOLS}), encoding="utf-8-sig")
    assert read_tools_file(path) == TOOLS
    for bad in ("{}", "3", '["a"]', "oops", "[" * 100_000):
        path.write_text(bad, encoding="utf-8")
        with pytest.raises(InputError):
            read_tools_file(path)


# --- replay ---


def test_replay_gives_the_whole_report(log: Path, tmp_path: Path) -> None:
    policy = InertiaPolicy().with_(min_precision=0.8)
    (tmp_path / "policy.json").write_text(json.dumps(policy.to_dict()), encoding="utf-8")
    command = ("replay", log, "--seed", 3, "--policy", tmp_path / "policy.json", "--reads", "search_mail")
    found = answer(*command)

    assert (found["runs"], found["turns"], found["calls"], found["words"]) == (40, 120, 80, 40)
    assert found["right"] > 5
    assert found["wrong"] <= 2
    assert (found["undeclared"], found["suggested"]) == (["delete_mail"], [])
    assert found["inertia"]["has_inertia"] is True
    assert (found["skipped_lines"], found["shared_ids"], found["file"]) == ([], 0, str(log))
    assert found["policy"] == policy.to_dict()
    assert answer(*command) == found
    text = run(*command).stdout
    assert f"{found['right']} right, {found['wrong']} wrong" in text
    assert "search_mail → delete_mail" in text


def test_replay_leaves_malformed_lines_out_only_if_told(log: Path) -> None:
    lines = log.read_text(encoding="utf-8").splitlines()
    log.write_text("\n".join(["{oops", *lines, *["[]"] * 7]), encoding="utf-8")
    assert_refused(run("replay", log), "runs.jsonl, line 1")

    notes = run("replay", log, "--lenient", "--limit", 5).stderr.splitlines()
    assert len(notes) <= 6
    result = run("replay", log, "--lenient", "--json")
    assert len(result.stderr.splitlines()) == 6
    assert [line["line"] for line in json.loads(result.stdout)["skipped_lines"]] == [1, *range(42, 49)]
    log.write_text("oops\n", encoding="utf-8")
    assert_refused(run("replay", log, "--lenient"), "no runs that can be read")


@pytest.mark.parametrize("command", ["report", "replay"])
def test_a_page_is_written(command: str, imported: Path, log: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    given = ("report", "--memory", imported) if command == "report" else ("replay", log)
    result = run(*given, "--html", target)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"written to {target}\n")
    page = target.read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "search_mail" in page


# --- import ---


def entries(folder: Path, user: str | None = None, **options: Any) -> list[Any]:
    with ToolMemory(folder, **options) as memory:
        return list(memory.entries.rows.all(memory.core.users.of(user)))


def test_import_learns_everything_once(log: Path, folder: Path) -> None:
    again = answer("import", log, "--memory", folder)
    assert (again["runs"], again["calls_learned"], again["calls_known"]) == (40, 0, 80)
    assert (again["entries"], again["atom_steps"]) == (40, 80)
    assert len(entries(folder)) == 40
    with ToolMemory(folder) as memory:
        found = memory.sit.suggest([{"role": "user", "content": "Delete the mail about topic77"}])
    assert found[0].tool == "search_mail"


def test_import_onto_a_full_disk_is_not_called_a_success(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise StorageError("memory.db cannot be used") from error

    monkeypatch.setattr(EventLog, "writing", full)
    assert_refused(run("import", log, "--memory", tmp_path / "memory"), "0 of 80", "No space left")


def test_users_are_kept_apart_and_a_run_of_nobody_is_refused(tmp_path: Path) -> None:
    runs = [logged(number, user_id=user) for number, user in enumerate(["ann", "bob", "ann"])]
    file, folder = written(tmp_path / "log.jsonl", *runs), tmp_path / "memory"
    assert run("import", file, "--memory", folder, "--namespace", "/".join(APART)).exit_code == 0
    for user, numbers in (("ann", {"0", "2"}), ("bob", {"1"})):
        assert {each.query[-1] for each in entries(folder, user, namespace=APART)} == numbers

    nobody = written(tmp_path / "nobody.jsonl", logged(1, user_id="ann"), logged(2))
    new = ("--memory", tmp_path / "new", "--namespace", "/".join(APART))
    assert_refused(run("import", nobody, *new), "line 2")
    assert answer("report", "--memory", tmp_path / "new")["tools"] == {}


def test_another_embedder_is_told_before_anything_is_learned_and_mended_by_doctor(tmp_path: Path, log: Path) -> None:
    from langchain_core.embeddings import DeterministicFakeEmbedding

    folder = tmp_path / "memory"
    with ToolMemory(folder, tools=TOOLS, embeddings=DeterministicFakeEmbedding(size=8)) as memory:
        memory.navigator.search("mail")
    assert_refused(run("import", log, "--memory", folder), "toolmem doctor", "--reembed")
    assert answer("report", "--memory", folder)["turns"] == 0
    result = run("doctor", "--memory", folder, "--reembed", "builtin")
    assert result.stderr.startswith("2 texts")
    assert run("import", log, "--memory", folder).exit_code == 0


# --- report ---

GOLDEN_REPORT = """\
Saved 20 of 100 model calls; 3 of 4 checks right; too early to trust it.
Problem: the disk is full
Saved about 9.0 s of 90 s waiting for the model, 40,000 input and 2,000 output tokens.
The memory took 250 ms of processor time, 2.5 ms a model call.
Seven states.

Tools, and proposals checked against the model
┏━━━━━━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━┳━━━━━━━━━┳━━━━━━━━┓
┃ tool             ┃ calls ┃ failed ┃ skipped ┃  right ┃
┡━━━━━━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━╇━━━━━━━━━╇━━━━━━━━┩
│ add              │    30 │      1 │      15 │ 3 of 4 │
│ [red]x[/red]�[2J │     5 │      0 │       5 │      – │
└──────────────────┴───────┴────────┴─────────┴────────┘

Suggestions to the model
┏━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━┓
┃ what       ┃ offered ┃ followed ┃ went well ┃
┡━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━┩
│ Next tools │      40 │       30 │        28 │
└────────────┴─────────┴──────────┴───────────┘

Edges
┏━━━━━━━━┓
┃ from   ┃
┡━━━━━━━━┩
│ (here) │
└────────┘
"""


def test_the_text_of_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"shown": 40, "followed": 30, "right": 28}
    tables = (TextTable("Edges", ("from",), (("(here)",),)),)
    report = Report(
        turns=100,
        skipped=20,
        precision=0.75,
        right=3,
        wrong=1,
        saved=Saved(20, 9.0, 40_000, 2_000),
        model_seconds=81.0,
        cpu_seconds=0.25,
        tools={"add": ToolReport(30, 1, 15, 3, 1), "[red]x[/red]\x1b[2J": ToolReport(5, 0, 5)},
        sections={"sit": Section("Next tools", figures, ("Seven states.",), tables)},
        problems=("the disk is full",),
    )
    show_report(report)
    assert capsys.readouterr().out == GOLDEN_REPORT


# --- explain ---


def test_explain_asks_every_method(tmp_path: Path) -> None:
    folder, request = tmp_path / "memory", "Add a note to the order of Ann: call back"
    with ToolMemory(folder, tools=Desk().tools, methods=default_methods(Atoms(keep=True))) as memory:
        warm(memory, 12)
        done = [h.user("Add a note to the order of Bob: call back"), *h.call("find_customer", {"name": "Bob"}, "c-1")]
        memory.finish(done, thread_id="one", success=True, comment="quick")
        memory.flush()
        said = memory.inertia.explain([("user", request)])
    found = answer("explain", request, "--memory", folder)
    assert (found["request"], found["missing"]) == (request, {})
    assert found["next_call"]["reason"] == said.reason
    assert found["next_call"]["candidates"][0]["tool"] == "find_customer"
    assert found["next_tools"][0]["tool"] == "find_customer"
    assert "add_note" in [each["tool"] for each in found["tools"]]
    assert [step["tool"] for step in found["plan"]["chains"][0]["steps"]] == [
        "find_customer",
        "latest_order",
        "add_note",
    ]
    [run_of_bob] = [each for each in found["runs"] if each["entry"]["score"] == 1.0]
    assert run_of_bob["entry"]["comment"] == "quick"
    assert [each["tool"] for each in found["steps"]] == ["find_customer"]
    assert found["steps"][0]["record"]["misleads"] is False
    text = run("explain", request, "--memory", folder).stdout
    assert "find_customer → latest_order → add_note" in text
    assert "latest_order.customer_id: customer_id of find_customer" in text
    assert "quick" in text


def test_explain_of_a_user_shows_nothing_of_others(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, namespace=APART) as memory:
        for user in ("ann", "bob"):
            memory.finish(logged(1)["messages"], thread_id=user, user_id=user, success=True, wait=True)
    asked = ("explain", "Delete the mail about topic1", "--memory", tmp_path)
    assert len(answer(*asked, "--user-id", "ann")["runs"]) == 1
    assert answer(*asked, "--user-id", "eve")["runs"] == []
    assert_refused(run(*asked), "user id", "--user-id")


def test_explain_plans_with_the_tools_of_a_file(tmp_path: Path, imported: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([h.schema("water_plants", "plant")]), encoding="utf-8")
    for given in ((), ("--memory", imported)):
        found = answer("explain", "water the plants", "--tools", tools, *given)
        assert [each["target"] for each in found["plan"]["chains"]] == ["water_plants"]
    assert found["runs"] == []


# --- doctor ---


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Releases that are installed."""
    needs = ["langgraph<2,>=1.2", "numpy>=1.26", 'torch>=2.4; extra == "hgt"', 'pytest>=8; extra == "dev"']
    needs += ['chromadb>=1.5; extra == "agents"', 'chromadb>=1.5; extra == "memory"']
    there = {"langgraph": "1.3", "numpy": "1.26.0", "chromadb": "1.10"}

    def version(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(metadata, "requires", lambda _: [*needs, 'langgraph-toolmem[memory]; extra == "agents"'])
    monkeypatch.setattr(metadata, "version", version)
    return there


@pytest.mark.usefixtures("packages")
def test_the_text_of_doctor(imported: Path) -> None:
    text = flat(run("doctor", "--memory", imported).stdout)
    assert "langgraph 1.3 <2,>=1.2 numpy 1.26.0 >=1.26 chromadb 1.10 >=1.5 memory torch – >=2.4 hgt" in text
    assert '1 extra not installed. In the checkout of langgraph-toolmem, type: pip install ".[NAME]"' in text
    assert re.search(r"On disk: \S+ \S+ \(snapshot \S+ \S+, readable; events \S+ \S+ with \d+ rows, readable\)", text)
    assert text.endswith("No problem found. ")


@pytest.mark.usefixtures("packages", "forked_checks")
@pytest.mark.parametrize(("user", "closed"), [(None, False), (None, True), ("ann", False), ("ann", True)])
def test_doctor_and_report_say_that_users_are_missing(tmp_path: Path, user: str | None, closed: bool) -> None:
    """It is known from the snapshot (of a memory that was closed) and from the event log alone."""
    with ToolMemory(tmp_path, methods=[]) as memory:
        for number in range(120):
            memory.observe(
                h.history(h.user(f"Find R{number}"), h.call("find", {"room": f"R{number}"}), h.words()),
                thread_id=f"t{number}",
                user_id=user,
            )
        if not closed:
            assert not (tmp_path / "graph.pickle").exists()
            assert (NO_USERS in health.examine(tmp_path)["notes"]) == (user is None)
        assert (NO_USERS in memory.report().problems) == (user is None)
    if closed:
        assert (tmp_path / "graph.pickle").exists()
        assert (NO_USERS in health.examine(tmp_path)["notes"]) == (user is None)


def test_doctor_names_missing_and_old_packages(
    packages: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    packages |= {"torch": "2.3.1", "langgraph": "2.0"}
    del packages["numpy"]
    result = run("doctor", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["ok"], len(found["problems"])) == (1, False, 3)
    by_name = {each["name"]: each for each in found["packages"]}
    assert by_name["torch"]["install"] == 'pip install --upgrade ".[hgt]"'
    assert all(by_name[name]["problem"] for name in ("torch", "langgraph", "numpy"))
    assert by_name["chromadb"]["problem"] is None


def test_doctor_names_the_smallest_extra_and_what_is_always_needed(
    packages: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extra that names a required package too hid that the package is missing."""
    of_agents = ['chromadb>=1.5; extra == "agents"', 'langchain>=1.4; extra == "agents"']
    needs = [*of_agents, 'chromadb>=1.5; extra == "memory"', 'numpy>=1.26; extra == "zoo"', "numpy>=1.26"]
    monkeypatch.setattr(metadata, "requires", lambda _: needs)
    del packages["numpy"]
    named = {each["name"]: each for each in health.packages()}
    assert {name: each["extra"] for name, each in named.items()} == {
        "numpy": "",
        "chromadb": "memory",
        "langchain": "agents",
    }
    assert next(iter(named)) == "numpy"
    assert named["numpy"]["problem"].startswith("numpy is not installed")


@pytest.mark.usefixtures("packages", "forked_checks")
def test_doctor_looks_at_the_usual_folder_and_makes_none(
    tmp_path: Path, imported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = answer("doctor")
    assert (found["ok"], found["folder"], len(found["notes"])) == (True, None, 1)
    assert not (tmp_path / ".toolmem").exists()
    shutil.copytree(imported, tmp_path / ".toolmem")
    assert answer("doctor")["folder"] == str(tmp_path / ".toolmem")
    (tmp_path / "empty").mkdir()
    assert answer("doctor", "--memory", tmp_path / "empty")["notes"] == ["nothing has been learned there yet"]
    for wrong in (tmp_path / "none", tmp_path / ".toolmem" / "graph.pickle"):
        result = run("doctor", "--memory", wrong, "--json")
        assert (result.exit_code, len(json.loads(result.stdout)["problems"])) == (1, 1)


@pytest.mark.usefixtures("packages", "forked_checks")
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("graph.pickle", b"", "nothing is lost"),
        ("graph.pickle", b"noise", "nothing is lost"),
        (NAME, b"", "Restore it from a backup"),
        (NAME, b"noise" * 99, "keeps the rows that can be read"),
        ("chroma/chroma.sqlite3", b"", "Restore it from a backup"),
        ("chroma/chroma.sqlite3", b"noise" * 99, "doctor --memory {folder} --rebuild"),
        ("chroma.lock", b"noise", ""),
    ],
)
def test_doctor_says_what_to_do_about_a_damaged_file(folder: Path, name: str, text: bytes, said: str) -> None:
    (folder / name).write_bytes(text)
    result = run("doctor", "--memory", folder, "--json")
    problems = json.loads(result.stdout)["problems"]
    assert (result.exit_code, bool(problems)) == (int(bool(said)), bool(said))
    assert said.format(folder=folder) in " ".join(problems)
    assert (folder / name).read_bytes() == text, "doctor changes nothing"


@pytest.mark.usefixtures("packages", "forked_checks")
def test_doctor_tells_what_waits_and_has_what_was_given_up_tried_again(folder: Path) -> None:
    with JobQueue(folder, now=time.time) as jobs:
        for number in range(5):
            jobs.put([Job(f"k{number}", "critique", {})])
        for number in range(3):
            [job] = jobs.take(["critique"])
            jobs.retry(job, 60, "TimeoutError at some.model:7", dead=number < 2)
        result = run("doctor", "--memory", folder, "--json")  # while the queue is open elsewhere
    found = json.loads(result.stdout)
    failed = {"kind": "critique", "error": "TimeoutError at some.model:7"}
    assert found["memory"]["jobs"] == {
        "why": "",
        "pending": [{"kind": "critique", "times": 3, "error": ""}],
        "failing": [{**failed, "times": 1}],
        "dead": [{**failed, "times": 2}],
    }
    assert result.exit_code == 1
    assert f"toolmem doctor --memory {folder} --retry" in found["problems"][0]
    assert any("Entries(critic=...)" in note for note in found["notes"])

    revived = run("doctor", "--memory", folder, "--retry", "--json")
    assert revived.exit_code == 0
    assert json.loads(revived.stdout)["memory"]["jobs"]["pending"][0]["times"] == 5
    with JobQueue(folder, now=time.time) as jobs:
        assert jobs.report() == {"pending": 5, "failing": 1, "dead": 0}


# --- feedback and forget ---


def test_a_verdict_goes_to_the_run_and_its_entry(folder: Path) -> None:
    found = answer("feedback", "run-3", "--score", 0.25, "--comment", "too late", "--memory", folder)
    assert found == {"thread_id": "run-3", "score": 0.25, "comment": "too late", "queued": False}
    assert [(e.score, e.comment) for e in entries(folder) if e.query.endswith("topic3")] == [(0.25, "too late")]
    assert run("feedback", "run-3", "--score", 1, "--path", folder).exit_code == 0
    assert answer("report", "--memory", folder)["runs_good"] == 40


def test_forgetting_asks_first(folder: Path) -> None:
    command = ("forget", "--thread", "run-3", "--memory", folder)
    assert run(*command, typed="n\n").exit_code == 130
    assert len(entries(folder)) == 40
    assert answer(*command, "--yes")["removed"] > 0
    assert [each for each in entries(folder) if each.query.endswith("topic3")] == []
    assert answer(*command, "--yes")["removed"] == 0
