"""The command line: what a person sees, what a program gets, and how bad input is told."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import networkx as nx
import pytest
from langchain_core.messages import convert_to_messages
from places import ROOT
from typer.testing import CliRunner

from langgraph_toolmem import SIT, Bound, Entries, InertiaPolicy, default_methods
from langgraph_toolmem.base.errors import ConfigurationError, InputError, LogError
from langgraph_toolmem.cli import app, health, tables, terminal
from langgraph_toolmem.cli.inputs import read_policy, read_tools_file
from langgraph_toolmem.graph.export import START, EdgeView, FlowView, GraphView, ToolCounts
from langgraph_toolmem.inertia.entropy import measure_inertia
from langgraph_toolmem.stores import disk

DATA = ROOT.parent / "shared" / "data"

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {parameter: {"type": "string"}},
                "required": [parameter],
            },
        },
    }
    for name, description, parameter in [
        ("search_mail", "Search the mail.", "query"),
        ("delete_mail", "Delete one mail.", "mail_id"),
    ]
]


def call(call_id: str, name: str, **arguments: str) -> dict:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def logged(number: int) -> dict:
    """One run: search the mail of somebody, delete the first one found, say so."""
    found = f"mail-{number:04}"
    return {
        "id": f"run-{number}",
        "task": "tidy up",
        "success": True,
        "messages": [
            {"role": "user", "content": f"Delete the mail about topic{number}"},
            call("c0", "search_mail", query=f"topic{number}"),
            {"role": "tool", "tool_call_id": "c0", "content": json.dumps([{"id": found}])},
            call("c1", "delete_mail", mail_id=found),
            {"role": "tool", "tool_call_id": "c1", "content": "deleted"},
            {"role": "assistant", "content": "Done."},
        ],
    }


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(logged(number)) + "\n" for number in range(40)), encoding="utf-8")
    return path


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A memory folder that was imported from the log."""
    folder = tmp_path_factory.mktemp("imported")
    log, tools = folder / "runs.jsonl", folder / "tools.json"
    log.write_text("".join(json.dumps(logged(number)) + "\n" for number in range(40)), encoding="utf-8")
    tools.write_text(json.dumps(TOOLS), encoding="utf-8")
    result = run("import", log, "--memory", folder / "memory", "--tools", tools)
    assert result.exit_code == 0, result.output
    return folder / "memory"


@pytest.fixture
def warm(tmp_path, imported):
    """A copy of it, of one's own."""
    shutil.copytree(imported, tmp_path / "memory")
    return tmp_path / "memory"


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def process(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program as a shell starts it."""
    return subprocess.run(
        [sys.executable, "-c", "from langgraph_toolmem.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )


def text_of(show, *values: object) -> str:
    """What a table function prints, on one line, without borders."""
    out = terminal.console()
    out.file, out.width = io.StringIO(), 120
    show(out, *values)
    return re.sub(r"[\s│┃]+", " ", out.file.getvalue())


def assert_refused(result, *said: str) -> None:
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    for part in said:
        assert part in line


# --- usage ---


def test_version_and_help_as_a_process_without_heavy_imports():
    seen = process("--version")
    assert (seen.returncode, seen.stdout, seen.stderr) == (0, "toolmem 0.1.0\n", "")

    code = (
        "import sys; from langgraph_toolmem.cli import app; app(['--help'], standalone_mode=False); "
        "heavy = {'chromadb', 'scipy', 'networkx', 'numpy', 'rich.table'} & set(sys.modules); "
        "sys.exit(f'imported: {sorted(heavy)}' if heavy else 0)"
    )
    helped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert helped.returncode == 0, helped.stderr
    for command in ("replay", "import", "report", "watch", "inspect", "reembed", "doctor"):
        assert f"  {command} " in helped.stdout


def test_no_command_shows_the_help():
    result = run()

    assert result.exit_code == 0
    assert "replay" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay"], "Missing argument"),
        (["reply"], "No such command"),
        (["--nothing"], "No such option"),
        (["replay", "x", "--limit", "0"], "'--limit'"),
        (["replay", "x", "--min-precision", "2"], "'--min-precision'"),
        (["import", "x"], "--memory"),
        (["report"], "--memory"),
        (["report", "--memory", "x", "--by", "year"], "'--by'"),
        (["watch"], "--memory"),
        (["watch", "--memory", "x", "--every", "0"], "'--every'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_two(arguments, said):
    assert_refused(run(*arguments), said)


def test_wrong_usage_as_a_process():
    seen = process("replay")

    assert (seen.returncode, seen.stdout) == (2, "")
    assert seen.stderr == "error: Missing argument 'FILE'.\n"


def test_an_interruption_is_one_line_too(monkeypatch):
    def interrupted(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(health, "examine", interrupted)
    result = run("doctor")
    assert (result.exit_code, result.stderr.strip(), result.stdout) == (130, "error: interrupted", "")


def test_a_defect_is_not_hidden(monkeypatch):
    def defective(folder):
        raise ZeroDivisionError

    monkeypatch.setattr(health, "examine", defective)
    assert isinstance(run("doctor").exception, ZeroDivisionError)


@pytest.mark.parametrize(("a_terminal", "show"), [(True, True), (True, False), (False, True)])
def test_progress_is_drawn_on_a_terminal_only_if_wanted(monkeypatch, a_terminal, show):
    screen = io.StringIO()
    screen.isatty = lambda: a_terminal
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with terminal.progress("reading", 3, show=show) as update:
        for done in (1, 2, 3):
            update(done)

    assert ("reading" in screen.getvalue()) is (a_terminal and show)


# --- replay ---


def test_replay_tells_a_stranger_what_happened(log, tools):
    result = run("replay", log, "--tools", tools, "--reads", "search_*")

    assert result.exit_code == 0, result.output
    assert re.search(r"Of 120 model turns, \d+ could have been skipped: \d+ right, \d+ wrong\.", result.stdout)
    assert "Read: 40 runs, 80 tool calls, 40 answers in words." in result.stdout
    assert "search_mail → delete_mail" in result.stdout
    assert "This workload has inertia" in result.stdout
    assert result.stderr == ""


def test_replay_json_is_the_whole_report(log):
    result = run("replay", log, "--json", "--seed", "3", "--policy", "min_precision=0.8", "--reads", "search_mail")
    answer = json.loads(result.stdout)

    assert result.stderr == ""
    assert (answer["runs"], answer["turns"], answer["calls"], answer["words"]) == (40, 120, 80, 40)
    assert answer["right"] > 5
    assert (answer["undeclared"], answer["suggested"]) == (["delete_mail"], [])
    assert answer["wrong"] <= 2
    assert answer["inertia"]["has_inertia"] is True
    assert answer["skipped_lines"] == []
    assert answer["file"] == str(log)


def test_replay_gives_the_same_answer_twice(log):
    assert run("replay", log, "--json").stdout == run("replay", log, "--json").stdout


def test_replay_limit(log):
    assert json.loads(run("replay", log, "--json", "--limit", "5").stdout)["runs"] == 5


def test_replay_with_the_papers_policy(log, tools):
    answer = json.loads(run("replay", log, "--tools", tools, "--policy", "paper", "--json").stdout)

    assert answer["runs"] == 40
    assert answer["policy"] == InertiaPolicy.paper().to_dict()


def test_replay_names_a_malformed_line_and_stops(log):
    text = log.read_text(encoding="utf-8").splitlines()
    log.write_text("\n".join([*text[:2], "{oops", *text[2:]]), encoding="utf-8")

    assert_refused(run("replay", log), "runs.jsonl, line 3", "not JSON")


def test_replay_lenient_leaves_it_out_and_says_so(log):
    text = log.read_text(encoding="utf-8").splitlines()
    log.write_text("\n".join(["{oops", *text, *["[]"] * 7]), encoding="utf-8")

    result = run("replay", log, "--lenient")
    assert result.exit_code == 0
    assert "Read: 40 runs" in result.stdout
    notes = result.stderr.splitlines()
    assert notes[0].startswith("left out: runs.jsonl, line 1: not JSON")
    assert notes[-1] == "left out: 3 more malformed lines"

    answer = json.loads(run("replay", log, "--lenient", "--json").stdout)
    assert [line["line"] for line in answer["skipped_lines"]] == [1, *range(42, 49)]


def test_replay_of_nothing_is_refused(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()

    assert_refused(run("replay", empty), "holds no runs")
    assert_refused(run("replay", tmp_path / "none.jsonl"), "cannot be read")
    assert_refused(run("replay", tmp_path), "cannot be read")
    empty.write_text("oops\n", encoding="utf-8")
    assert "no runs that can be read" in run("replay", empty, "--lenient").stderr


def test_replay_warns_of_shared_ids(log):
    log.write_text(log.read_text(encoding="utf-8") * 2, encoding="utf-8")
    result = run("replay", log)

    assert result.stderr == "note: 40 lines had the id of an earlier line and counted as that run, seen later\n"


def test_replay_as_a_process_into_a_pipe_with_a_poor_terminal(log, tmp_path):
    runs = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    text = "\n".join(json.dumps(run) for run in runs).replace("search_mail", "suche_nach_grüßen")
    log.write_text(text, encoding="utf-8")

    seen = process("replay", log, PYTHONIOENCODING="ascii")
    assert seen.returncode == 0, seen.stderr
    assert seen.stderr == ""
    assert "have been skipped" in seen.stdout
    assert "suche_nach_gr" in json.loads(process("replay", log, "--json").stdout)["chains"][0]["tools"][0]


def test_recorded_runs():
    path = DATA / "workbench_gpt4"
    if not path.exists():
        pytest.skip("recorded runs are not beside the repository (../shared/data)")
    result = run("replay", path / "trajectories.jsonl", "--tools", path / "tools.json", "--limit", "150")

    assert result.exit_code == 0, result.output
    assert "Read: 150 runs" in result.stdout


# --- policy and tools ---


def test_policies_by_name():
    assert read_policy("calibrated") == InertiaPolicy()
    assert read_policy("paper") == InertiaPolicy.paper()
    assert read_policy("calibrated", min_precision=0.7) == InertiaPolicy().with_(min_precision=0.7)


def test_policies_by_setting():
    assert read_policy("min_precision=0.8, audit_rate=0") == InertiaPolicy().with_(min_precision=0.8, audit_rate=0)
    assert read_policy("paper,alpha=0.3") == InertiaPolicy.paper(alpha=0.3)
    free = InertiaPolicy().with_(max_wrong_per_100=None)
    assert read_policy("max_wrong_per_100=none,shadow=True") == free.with_(shadow=True)
    assert read_policy('reads={"min_precision": 0.8},only=a') == InertiaPolicy(reads=Bound(0.8), only=frozenset({"a"}))
    assert read_policy("never=a.b, c,shadow=true") == InertiaPolicy(never=frozenset({"a.b", "c"}), shadow=True)


def test_policy_from_a_file(tmp_path):
    path = tmp_path / "policy.json"
    policy = InertiaPolicy(reads=Bound(0.8), only=frozenset({"x"}), never=frozenset({"x"}))
    path.write_text(json.dumps(policy.to_dict()), encoding="utf-8")

    assert read_policy(str(path)) == policy
    assert read_policy(f"{path},min_precision=0.7") == policy.with_(min_precision=0.7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("best", "none of"),
        ("", "none of"),
        ("min_precision=2", "min_precision"),
        ("nothing=1", "nothing"),
        ("calibrated,oops", "none of"),
        ("=1", "not name=value"),
        ("min_precision=high", "min_precision is a share from 0 to 1"),
        ("environment=1", "Python code"),
        ("none.json", "cannot be read"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(log, text, said):
    assert_refused(run("replay", log, "--policy", text), said)


def test_min_precision_is_not_for_the_paper(log):
    assert_refused(run("replay", log, "--policy", "paper", "--min-precision", "0.5"), "calibrated")


def test_a_policy_file_must_hold_an_object(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text("[1]", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="one JSON object"):
        read_policy(str(path))


def test_tools_file(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(json.dumps({"tools": TOOLS}), encoding="utf-8-sig")
    assert read_tools_file(path) == TOOLS
    assert read_tools_file(None) is None
    for bad in ("{}", "3", '["a"]', "oops", "[" * 100_000):
        path.write_text(bad, encoding="utf-8")
        with pytest.raises(InputError):
            read_tools_file(path)


def test_a_bad_tool_is_refused(log, tmp_path):
    path = tmp_path / "tools.json"
    path.write_text('[{"type": "function"}]', encoding="utf-8")

    assert_refused(run("replay", log, "--tools", path))


# --- import, report, inspect ---


def test_import_says_what_it_learned_and_learns_nothing_twice(tmp_path, log, tools):
    folder = tmp_path / "memory"
    first = run("import", log, "--memory", folder, "--tools", tools)
    again = run("import", log, "--memory", folder, "--tools", tools, "--json")

    assert first.exit_code == 0, first.output
    assert first.stdout.splitlines() == [
        "Read 40 runs and learned 80 new tool calls from them.",
        f"The memory in {folder} now knows 80 tool calls of 2 tools.",
        "Kept 40 runs for recall.",
        "Made atoms of 80 steps of successful runs, for planning.",
        "Stored 80 new states of 40 runs in words, from which next tools are suggested.",
    ]
    answer = json.loads(again.stdout)
    assert answer["entries"] == len(entries(folder)) == 40
    assert (answer["runs"], answer["calls_learned"], answer["calls_known"]) == (40, 0, 80)
    assert (answer["states"]["by"], answer["states"]["teaching"], answer["states"]["stored"]) == ("extractive", 40, 0)
    assert (answer["states"]["model_calls"], answer["states"]["left"]) == (0, 0)


def test_import_of_a_bad_file_leaves_no_memory_behind(tmp_path, log):
    with log.open("a", encoding="utf-8") as file:
        file.write("oops\n")
    folder = tmp_path / "memory"

    assert_refused(run("import", log, "--memory", folder), "line 41")
    assert not folder.exists()


def test_import_of_a_bad_file_leaves_a_memory_as_it_was(warm, log):
    before = json.loads(run("inspect", "--memory", warm, "--json").stdout)
    other = log.with_name("other.jsonl")
    other.write_text(json.dumps(logged(1000)) + "\noops\n", encoding="utf-8")

    assert_refused(run("import", other, "--memory", warm), "line 2")
    assert json.loads(run("inspect", "--memory", warm, "--json").stdout) == before


def test_import_onto_a_full_disk_is_not_called_a_success(tmp_path, log, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "replace_file", full)
    monkeypatch.setattr(disk.AppendFile, "append", full)
    monkeypatch.setattr(disk.AppendFile, "start", full)
    result = run("import", log, "--memory", tmp_path / "memory")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "0 of 80 tool calls" in result.stderr.splitlines()[-1]
    assert "No space left" in result.stderr.splitlines()[-1]


def test_report(warm):
    result = run("report", "--memory", warm)

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("120 model turns seen, 0 of them taken without the model.\n")
    text = re.sub(r"[\s│]+", " ", result.stdout)
    assert "search_mail 40 0 0" in text
    assert "after → foreseen" in text
    assert "search_mail → delete_mail" in text
    assert "Over time (UTC)" in text
    assert "saved" not in text


def test_report_json_is_the_whole_report(warm):
    answer = json.loads(run("report", "--memory", warm, "--json").stdout)
    weeks = json.loads(run("report", "--memory", warm, "--json", "--by", "week").stdout)

    assert (answer["turns"], answer["calls"], answer["tools"]["search_mail"]["calls"]) == (120, 80, 40)
    assert answer["sections"]["inertia"]["rules"]
    assert (answer["periods_by"], weeks["periods_by"]) == ("hour", "week")
    for periods, seconds in ((answer["periods"], 3600), (weeks["periods"], 604_800)):
        assert sum(period["turns"] for period in periods) == 120
        assert all(period["start"] % seconds == (345_600 % seconds) for period in periods)


def test_report_with_a_price(tmp_path):
    from langgraph_toolmem import ToolMemory

    usage = {"input_tokens": 1_000_000, "output_tokens": 100_000, "total_tokens": 1_100_000}
    skipped = {"toolmem": {"by": "inertia"}}
    with ToolMemory(tmp_path / "memory", tools=TOOLS) as memory:
        for number in range(2):
            messages = convert_to_messages(logged(number)["messages"])
            for message in messages[3:]:
                message.additional_kwargs |= skipped if message.type == "ai" and message.tool_calls else {}
            messages[1].usage_metadata = usage
            memory.observe(messages, thread_id=str(number))

    text = run("report", "--memory", tmp_path / "memory", "--price", "2.5:10", "--currency", "EUR").stdout
    assert "About 2,200,000 tokens saved, worth about 7.00 EUR." in text
    assert "EUR saved" in text
    answer = json.loads(run("report", "--memory", tmp_path / "memory", "--json", "--price", "2.5:10").stdout)
    assert (answer["money_saved"], answer["currency"]) == (7.0, "USD")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--price", "3"], "IN:OUT"),
        (["--price", "a:b"], "IN:OUT"),
        (["--price", "1:2:3:4"], "IN:OUT"),
        (["--price", "1:2:-3"], "cached is money per million tokens"),
        (["--price", "1:-2"], "output is money per million tokens"),
        (["--price", "nan:2"], "input is money per million tokens"),
        (["--price", "1:2", "--currency", ""], "currency is a name"),
        (["--currency", "EUR"], "needs --price"),
        (["--html", "x.html", "--json"], "leave out --json"),
        (["--html", "x.html", "--by", "day"], "leave out --json and --by"),
    ],
)
def test_report_with_options_that_cannot_work(warm, arguments, said):
    assert_refused(run("report", "--memory", warm, *arguments), said)


def test_report_html_is_one_page(warm, tmp_path):
    pytest.importorskip("bokeh")
    target = tmp_path / "page.html"
    target.write_text("old", encoding="utf-8")
    result = run("report", "--memory", warm, "--html", target, "--price", "1:2")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"written to {target}\n")
    page = target.read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "search_mail" in page
    assert sorted(path.name for path in tmp_path.iterdir() if "page" in path.name) == ["page.html"]

    piped = run("report", "--memory", warm, "--html", "-")
    assert piped.stderr == ""
    assert piped.stdout.lstrip().lower().startswith("<!doctype html>")


def test_replay_html_is_one_page_for_a_pull_request(log, tmp_path):
    pytest.importorskip("bokeh")
    target = tmp_path / "page.html"
    result = run("replay", log, "--html", target, "--reads", "search_mail")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"written to {target}\n")
    page = target.read_text(encoding="utf-8")
    assert "What the tool memory would have done" in page
    assert "could have been skipped" in page
    assert "Calls that could have been made without the model" in page
    assert "Budget of misses" not in page
    assert_refused(run("replay", log, "--html", target, "--json"), "choose one of --json and --html")


def test_a_page_that_cannot_be_written_is_told(warm, tmp_path):
    pytest.importorskip("bokeh")
    assert_refused(run("report", "--memory", warm, "--html", tmp_path / "no" / "page.html"), "cannot be written")
    assert_refused(run("report", "--memory", warm, "--html", tmp_path), "cannot be written")


def test_a_file_is_replaced_as_a_whole_and_a_device_is_written_to(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    with target.open(encoding="utf-8") as before:
        terminal.write_text(link, "grüße")
        assert before.read() == "old"
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "grüße"

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as reader:
        terminal.write_text(pipe, "through")
        assert reader.read() == "through"
    assert pipe.is_fifo()


@pytest.mark.parametrize("command", ["report", "inspect", "watch"])
def test_a_memory_that_is_not_there_is_not_made(tmp_path, command):
    assert_refused(run(command, "--memory", tmp_path / "none"), "there is no memory at")
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").touch()
    assert_refused(run(command, "--memory", tmp_path / "file"), "is a file")


def test_inspect_tables(warm):
    result = run("inspect", "--memory", warm)
    text = re.sub(r"[\s│]+", " ", result.stdout)

    assert result.exit_code == 0, result.output
    assert "search_mail 40 0" in text
    assert "(start of a run) search_mail 40 100 %" in text
    assert "search_mail delete_mail 40 100 %" in text


def test_inspect_mermaid(warm, tmp_path):
    result = run("inspect", "--memory", warm, "--mermaid")
    assert result.stdout.startswith("flowchart TD\n")
    assert '"40"' in result.stdout

    target = tmp_path / "graph.mmd"
    written = run("inspect", "--memory", warm, "-o", target)
    assert (written.stdout, written.stderr) == ("", f"written to {target}\n")
    assert target.read_text(encoding="utf-8") == result.stdout


def test_inspect_graphml(warm, tmp_path):
    target = tmp_path / "graph.graphml"
    assert run("inspect", "--memory", warm, "-o", target).exit_code == 0
    assert {START, "search_mail", "delete_mail"} <= set(nx.read_graphml(target, force_multigraph=True))
    assert run("inspect", "--memory", warm, "--graphml", "-").stdout == target.read_text(encoding="utf-8")


def test_inspect_bad_usage(warm, tmp_path):
    assert_refused(run("inspect", "--memory", warm, "--mermaid", "--graphml", "-"), "choose one")
    assert_refused(run("inspect", "--memory", warm, "-o", tmp_path / "no" / "such"), "cannot be written")


def test_inspect_and_report_work_beside_a_writer(warm):
    from langgraph_toolmem import ToolMemory

    with ToolMemory(warm, tools=TOOLS):
        assert run("inspect", "--memory", warm).exit_code == 0
        assert run("report", "--memory", warm).exit_code == 0


def test_import_into_a_memory_in_use_is_refused(warm, log):
    from langgraph_toolmem import ToolMemory

    with ToolMemory(warm, tools=TOOLS):
        assert_refused(run("import", log, "--memory", warm))


# --- import: what teaches suggestions ---


def written(path: Path, *runs: dict) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in runs), encoding="utf-8")
    return path


def with_summary(number: int) -> dict:
    """The run of `logged`, whose agent wrote down where it stood before it deleted."""
    one = logged(number)
    said = call("s0", "summarize_state", summary="One mail was found; it is the one that the user means.")
    one["messages"][3:3] = [said, {"role": "tool", "tool_call_id": "s0", "content": "Likely next: delete_mail"}]
    return one


def stored(folder: Path, user: str | None = None, **options: object) -> list:
    """The state summaries in a folder, oldest first."""
    from langgraph_toolmem import ToolMemory

    with ToolMemory(folder, **options) as memory:
        return list(memory.sit.states.rows.all(memory.core.users.of(user)))


def entries(folder: Path, user: str | None = None, **options: object) -> list:
    """The past runs that are kept for recall."""
    from langgraph_toolmem import ToolMemory

    with ToolMemory(folder, **options) as memory:
        return list(memory.entries.rows.all(memory.core.users.of(user)))


def suggested(folder: Path, *messages: dict, **options: object) -> list:
    from langgraph_toolmem import ToolMemory

    with ToolMemory(folder, **options) as memory:
        return memory.sit.suggest(list(messages))


def test_what_the_agent_wrote_is_used_and_the_rest_is_extracted(tmp_path):
    file, folder = written(tmp_path / "log.jsonl", with_summary(1)), tmp_path / "memory"
    answer = json.loads(run("import", file, "--memory", folder, "--json").stdout)

    assert (answer["calls_learned"], answer["states"]["stored"]) == (2, 2)
    made_by = {each.target: each.made_by for each in stored(folder)}
    assert made_by == {"search_mail": "extractive", "delete_mail": "tool"}
    assert "summarize_state" not in json.loads(run("inspect", "--memory", folder, "--json").stdout)["tools"]


def test_summaries_none_takes_only_what_the_agent_wrote(tmp_path):
    file, folder = written(tmp_path / "log.jsonl", with_summary(1), logged(2)), tmp_path / "memory"
    assert run("import", file, "--memory", folder, "--summaries", "none").exit_code == 0
    assert [each.made_by for each in stored(folder)] == ["tool"]


def test_a_later_import_adds_the_words_that_an_earlier_one_left_out(tmp_path, log, tools):
    folder = tmp_path / "memory"
    run("import", log, "--memory", folder, "--summaries", "none")
    answer = json.loads(run("import", log, "--memory", folder, "--json").stdout)

    assert (answer["calls_learned"], answer["states"]["stored"]) == (0, 80)
    seen = sum(each.seen for each in stored(folder))
    assert seen == 80
    run("import", log, "--memory", folder)
    assert sum(each.seen for each in stored(folder)) == seen


def test_words_of_a_live_memory_are_not_written_again(tmp_path, log):
    from langgraph_toolmem import SITPolicy, ToolMemory

    with ToolMemory(tmp_path / "memory", methods=default_methods(SIT(SITPolicy()))) as memory:
        for number in range(3):
            memory.finish(logged(number)["messages"], thread_id=f"run-{number}", success=True)
    answer = json.loads(run("import", log, "--memory", tmp_path / "memory", "--json").stdout)

    assert (answer["states"]["stored"], answer["calls_learned"]) == (74, 74)


def test_only_runs_labelled_successful_teach(tmp_path):
    runs = [{**logged(1), "success": False}, {**logged(2), "success": None}]
    file, folder = written(tmp_path / "log.jsonl", *runs), tmp_path / "memory"
    result = run("import", file, "--memory", folder)

    assert result.stdout.splitlines()[2:] == [
        "Kept 2 runs for recall.",
        'No run is labelled successful ("success": true), so no state of one is stored for suggestions. '
        "With --unlabelled WEIGHT those without a label are.",
    ]
    assert stored(folder) == []
    assert {(each.query[-6:], each.score, each.made_by) for each in entries(folder)} == {
        ("topic1", 0.0, "import"),
        ("topic2", None, "import"),
    }

    again = run("import", file, "--memory", folder, "--unlabelled", "0.3")
    assert "Stored 2 new states of 1 run in words" in again.stdout
    assert "1 run without a verdict teach too" in again.stdout
    assert "SITPolicy(unlabelled=0.3)" in again.stdout
    assert [each.text.splitlines()[0] for each in stored(folder)] == ["Asked: Delete the mail about topic2"] * 2


def test_a_label_that_is_corrected_later_takes_the_words_out(tmp_path, log, warm):
    runs = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    corrected = written(tmp_path / "corrected.jsonl", *({**one, "success": False} for one in runs))
    assert stored(warm)
    assert {each.score for each in entries(warm)} == {1.0}
    assert run("import", corrected, "--memory", warm).exit_code == 0
    assert stored(warm) == []
    assert [each.score for each in entries(warm)] == [0.0] * 40


def test_runs_are_not_kept_where_that_is_not_wanted(tmp_path, log):
    nothing = ("--no-entries", "--no-atoms", "--summaries", "none")
    result = run("import", log, "--memory", tmp_path / "memory", *nothing)
    assert result.exit_code == 0, result.output
    assert "for recall" not in result.stdout
    assert not (tmp_path / "memory" / "chroma").exists()


def test_runs_that_cannot_be_kept_are_told_and_come_with_the_next_import(tmp_path, log, monkeypatch):
    from langgraph_toolmem.base.errors import StorageError

    def full(*_, **__):
        raise StorageError("the disk is full")

    monkeypatch.setattr(Entries, "imported", full)
    result = run("import", log, "--memory", tmp_path / "memory")
    assert_refused(result, "not all could be kept; import again: the disk is full")
    monkeypatch.undo()
    again = json.loads(run("import", log, "--memory", tmp_path / "memory", "--json").stdout)
    assert (again["calls_learned"], again["entries"], again["states"]["left"]) == (0, 40, 0)
    assert len(entries(tmp_path / "memory")) == 40
    assert len(stored(tmp_path / "memory")) > 0


def test_next_tools_are_suggested_from_an_import(warm):
    asked = {"role": "user", "content": "Delete the mail about topic77"}
    found = suggested(warm, asked)
    assert (found[0].tool, found[0].runs, found[0].success) == ("search_mail", 40, 1.0)
    assert "past states went on with it" in found[0].evidence


def test_words_of_users_go_where_the_namespace_says(tmp_path):
    runs = [{**logged(number), "user_id": user} for number, user in enumerate(["ann", "bob", "ann"])]
    file, folder = written(tmp_path / "log.jsonl", *runs), tmp_path / "memory"
    assert run("import", file, "--memory", folder, "--namespace", "toolmem/{user_id}").exit_code == 0

    apart = {"namespace": ("toolmem", "{user_id}")}
    assert {each.text.split("topic")[1][0] for each in stored(folder, "ann", **apart)} == {"0", "2"}
    assert {each.text.split("topic")[1][0] for each in stored(folder, "bob", **apart)} == {"1"}
    assert {each.query[-1] for each in entries(folder, "ann", **apart)} == {"0", "2"}
    assert {each.query[-1] for each in entries(folder, "bob", **apart)} == {"1"}


def test_users_are_known_by_their_entries_in_a_shared_namespace_too(tmp_path):
    from langgraph_toolmem import ToolMemory

    runs = [{**logged(number), "user_id": user} for number, user in enumerate(["ann", "bob", "ann"])]
    folder = tmp_path / "memory"
    assert run("import", written(tmp_path / "log.jsonl", *runs), "--memory", folder).exit_code == 0
    assert len(entries(folder)) == 3
    with ToolMemory(folder) as memory:
        memory.forget(user_id="ann")
    assert [each.query[-1] for each in entries(folder)] == ["1"]


def test_a_run_of_nobody_is_refused_where_the_namespace_needs_a_user(tmp_path):
    file, folder = written(tmp_path / "log.jsonl", {**logged(1), "user_id": "ann"}, logged(2)), tmp_path / "memory"
    result = run("import", file, "--memory", folder, "--namespace", "toolmem/{user_id}")

    assert_refused(result, "line 2 of the log has no 'user_id'")
    assert json.loads(run("inspect", "--memory", folder, "--json").stdout)["tools"] == {}
    assert_refused(run("import", file, "--memory", folder, "--namespace", "toolmem//x"), "namespace is a tuple")


def test_another_embedder_is_told_before_anything_is_learned(tmp_path, log):
    from langchain_core.embeddings import DeterministicFakeEmbedding

    from langgraph_toolmem import ToolMemory

    with ToolMemory(tmp_path / "memory", tools=TOOLS, embeddings=DeterministicFakeEmbedding(size=8)) as memory:
        memory.navigator.search("mail")
    result = run("import", log, "--memory", tmp_path / "memory")

    assert_refused(result, "the stored vectors were made by", "toolmem reembed")
    assert json.loads(run("report", "--memory", tmp_path / "memory", "--json").stdout)["turns"] == 0
    assert run("import", log, "--memory", tmp_path / "memory", "--summaries", "none").exit_code == 2
    nothing = ("--summaries", "none", "--no-entries", "--no-atoms")
    assert run("import", log, "--memory", tmp_path / "memory", *nothing).exit_code == 0


# --- import: a chat model writes ---


@pytest.fixture
def server(monkeypatch):
    """A chat model behind real HTTP; it writes what the last tool was."""
    pytest.importorskip("langchain_openai")
    from langgraph_toolmem.testing import OpenAIStubServer

    def reply(request: dict) -> str:
        asked = request["messages"][-1]["content"]
        return "The mail was found, it is to be deleted." if "mail-" in asked else "A mail is to be found."

    with OpenAIStubServer(reply) as started:
        monkeypatch.setenv("OPENAI_BASE_URL", started.url)
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        yield started


MODEL = ("--summaries", "openai:gpt-4.1-mini")


def test_a_chat_model_writes_what_is_missing(tmp_path, server):
    file = written(tmp_path / "log.jsonl", with_summary(1), logged(2), {**logged(3), "success": False})
    folder = tmp_path / "memory"
    result = run("import", file, "--memory", folder, *MODEL)

    assert result.exit_code == 0, result.output
    assert result.stderr == "3 states to be written by openai:gpt-4.1-mini, one call each\n"
    assert result.stdout.splitlines()[-1].startswith("Stored 4 new states of 2 runs in words")
    assert "(3 calls of openai:gpt-4.1-mini)" in result.stdout
    assert len(server.requests) == 3
    assert "Delete the mail about topic2" in server.requests[-1]["messages"][-1]["content"]
    assert "mail-0002" in server.requests[-1]["messages"][-1]["content"]
    assert "deleted" not in server.requests[-1]["messages"][-1]["content"]
    assert {(each.target, each.made_by, each.text) for each in stored(folder)} == {
        ("search_mail", "model", "A mail is to be found."),
        ("delete_mail", "model", "The mail was found, it is to be deleted."),
        ("delete_mail", "tool", "One mail was found; it is the one that the user means."),
    }

    again = json.loads(run("import", file, "--memory", folder, *MODEL, "--json").stdout)
    assert (again["states"]["model_calls"], again["states"]["stored"]) == (0, 0)
    assert len(server.requests) == 3


def test_calls_of_one_turn_take_one_call_of_the_model(tmp_path, server):
    one = logged(1)
    one["messages"][1]["tool_calls"] += call("c9", "search_mail", query="other")["tool_calls"]
    one["messages"].insert(3, {"role": "tool", "tool_call_id": "c9", "content": "[]"})
    folder = tmp_path / "memory"
    assert run("import", written(tmp_path / "log.jsonl", one), "--memory", folder, *MODEL).exit_code == 0

    assert len(server.requests) == 2
    assert sum(each.seen for each in stored(folder)) == 3


def test_model_calls_are_bounded_and_the_next_import_goes_on(tmp_path, log, server):
    folder = tmp_path / "memory"
    first = run("import", log, "--memory", folder, *MODEL, "--max-model-calls", "5")

    assert "80 states to be written by openai:gpt-4.1-mini, one call each, 5 of which are written now" in first.stderr
    assert "75 states without words so far: import again to go on." in first.stdout
    assert len(server.requests) == 5
    answer = json.loads(run("import", log, "--memory", folder, *MODEL, "--max-model-calls", "3", "--json").stdout)
    assert (answer["calls_learned"], answer["states"]["model_calls"], answer["states"]["left"]) == (0, 3, 72)
    assert sum(each.seen for each in stored(folder)) == 8


def test_a_model_that_fails_leaves_what_was_written(tmp_path, log, server, monkeypatch):
    asked = server.reply
    server.reply = lambda request: asked(request) if len(server.requests) <= 3 else 1 / 0
    monkeypatch.setenv("OPENAI_MAX_RETRIES", "0")
    folder = tmp_path / "memory"
    result = run("import", log, "--memory", folder, *MODEL)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "openai:gpt-4.1-mini failed after 3 calls" in result.stderr.splitlines()[-1]
    assert sum(each.seen for each in stored(folder)) == 3
    server.reply = asked
    answer = json.loads(run("import", log, "--memory", folder, *MODEL, "--json").stdout)
    assert (answer["calls_learned"], answer["states"]["model_calls"]) == (0, 77)


@pytest.mark.parametrize(("typed", "calls"), [("y\n", 2), ("n\n", 0)])
def test_a_person_at_a_terminal_is_asked_before_it_costs(tmp_path, server, monkeypatch, typed, calls):
    file = written(tmp_path / "log.jsonl", logged(1))
    monkeypatch.setattr("langgraph_toolmem.cli.imports.at_a_terminal", lambda: True)
    arguments = ["import", str(file), "--memory", str(tmp_path / "memory"), *MODEL]
    result = CliRunner().invoke(app, arguments, input=typed)

    assert result.exit_code == 0, result.output
    assert "2 states to be written by openai:gpt-4.1-mini, one call each. Go on? [y/N]" in result.stderr
    assert len(server.requests) == calls
    assert "learned 2 new tool calls" in result.stdout
    if not calls:
        assert "2 states without words so far" in result.stdout
        assert CliRunner().invoke(app, [*arguments, "--yes"]).exit_code == 0
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("best", "none of: none, extractive, provider:model"),
        ("openai:", "none of: none, extractive, provider:model"),
        ("nobody:x", "nobody"),
        ("openai:x", "api_key"),
    ],
)
def test_a_model_that_cannot_be_made_is_refused_before_anything_is_learned(tmp_path, log, monkeypatch, spec, said):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert_refused(run("import", log, "--memory", tmp_path / "memory", "--summaries", spec), said)
    assert not (tmp_path / "memory").exists()


@pytest.mark.parametrize(("module", "extra"), [("langchain.chat_models", "agents"), ("langchain_openai", "openai")])
def test_a_missing_package_is_named_with_the_line_to_type(tmp_path, log, module, extra):
    code = f"import sys; sys.modules[{module!r}] = None; from langgraph_toolmem.cli import main; main()"
    arguments = [sys.executable, "-c", code, "import", str(log), "--memory", str(tmp_path / "memory"), *MODEL]
    seen = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, check=False)

    assert (seen.returncode, seen.stdout) == (2, "")
    needed = 'needs an optional package. Type: pip install "langgraph-toolmem'
    assert seen.stderr == f'error: --summaries openai:gpt-4.1-mini {needed}[{extra}]"\n'


def test_the_weights_of_whole_runs_are_shown(tmp_path):
    runs = [logged(1), {**logged(2), "success": False}, {**logged(3), "messages": logged(3)["messages"][:3]}]
    folder = tmp_path / "memory"
    run("import", written(tmp_path / "log.jsonl", *runs), "--memory", folder)
    result = run("report", "--memory", folder)
    text = re.sub(r"[\s│]+", " ", result.stdout)

    # Out of the start: two good runs of 2 and 1 calls, N + Σ 1/n = 2 + 1/2 + 1; one bad one.
    assert "(start of a run) search_mail 2 of 3 3.50 –" in text
    assert "search_mail delete_mail 1 of 2 1.50 –" in text
    edges = json.loads(run("report", "--memory", folder, "--json").stdout)["sections"]["sit"]["edges"]
    assert edges[0] == {
        "source": START,
        "target": "search_mail",
        "good": 2,
        "bad": 1,
        "open": 0,
        "weight": 3.5,
        "success": 2 / 3,
    }


# --- doctor ---


@pytest.fixture
def nothing_wrong_with_packages(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "999")


@pytest.mark.usefixtures("nothing_wrong_with_packages")
def test_doctor_on_a_healthy_memory(warm):
    result = run("doctor", "--memory", warm)
    answer = json.loads(run("doctor", "--memory", warm, "--json").stdout)

    assert result.exit_code == 0, result.output
    assert f"Memory: {warm}" in result.stdout
    assert "readable" in result.stdout
    assert "NOT readable" not in result.stdout
    assert result.stdout.endswith("No problem found.\n")
    assert answer["ok"] is True
    assert answer["bytes"] > 0
    assert answer["folder"] == str(warm)


@pytest.mark.usefixtures("nothing_wrong_with_packages")
def test_doctor_looks_at_the_usual_folder_and_changes_nothing(tmp_path, warm, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("doctor")
    assert result.exit_code == 0
    assert "there is no .toolmem here" in result.stdout
    assert not (tmp_path / ".toolmem").exists()

    warm.rename(tmp_path / ".toolmem")
    assert json.loads(run("doctor", "--json").stdout)["folder"] == str(tmp_path / ".toolmem")


@pytest.mark.usefixtures("nothing_wrong_with_packages")
def test_doctor_explains_a_corrupt_graph_and_leaves_it(warm):
    (warm / "graph.pickle").write_bytes(b"not a graph at all")
    result = run("doctor", "--memory", warm)

    assert result.exit_code == 1
    assert "Problem: the snapshot of the graph cannot be read" in result.stdout
    assert "NOT readable" in result.stdout
    assert (warm / "graph.pickle").read_bytes() == b"not a graph at all"


@pytest.mark.usefixtures("nothing_wrong_with_packages")
def test_doctor_names_files_that_were_set_aside(warm):
    (warm / "graph.pickle.corrupt-1").write_bytes(b"x" * 2048)
    result = run("doctor", "--memory", warm)

    assert result.exit_code == 1
    assert "graph.pickle.corrupt-1 (2.0 kB) could not be read and was set aside" in result.stdout


@pytest.mark.usefixtures("nothing_wrong_with_packages")
def test_doctor_says_who_is_writing(warm):
    from langgraph_toolmem import ToolMemory

    with ToolMemory(warm, tools=TOOLS):
        result = run("doctor", "--memory", warm)
    assert result.exit_code == 0, result.output
    assert f"process {os.getpid()} is writing to it" in result.stdout


@pytest.mark.usefixtures("nothing_wrong_with_packages")
def test_doctor_on_a_wrong_place(tmp_path):
    assert run("doctor", "--memory", tmp_path / "none").exit_code == 1
    assert "there is no memory at" in run("doctor", "--memory", tmp_path / "none").stdout
    (tmp_path / "file").touch()
    assert "is a file" in run("doctor", "--memory", tmp_path / "file").stdout
    empty = run("doctor", "--memory", tmp_path)
    assert empty.exit_code == 0
    assert "nothing has been learned there yet" in empty.stdout


def test_doctor_names_missing_and_old_packages(monkeypatch, tmp_path):
    versions = dict.fromkeys(health.REQUIRED, "999") | {"numpy": "1.25.2", "torch": "2.3.1"}
    del versions["filelock"]

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.chdir(tmp_path)
    result = run("doctor")

    assert result.exit_code == 1
    assert 'filelock is not installed; type: pip install --upgrade "langgraph-toolmem"' in result.stdout
    assert "numpy 1.25.2 is older than 1.26" in result.stdout
    assert 'torch 2.3.1 is older than 2.4; type: pip install --upgrade "langgraph-toolmem[hgt]"' in result.stdout
    assert 'For local embedding models, type: pip install --upgrade "langgraph-toolmem[embeddings]"' in result.stdout


@pytest.mark.parametrize(
    ("version", "needed", "old"),
    [("1.10", "1.9", False), ("1.2rc1", "1.2", False), ("1.2.0", "1.2", False), ("1", "1.0.1", True)],
)
def test_releases_are_compared_by_number(version, needed, old):
    assert (health.Package("x", version, needed).problem is not None) is old


def test_doctors_list_of_packages_is_that_of_the_project_file():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    required = text.split("dependencies = [", 1)[1].split("\n]", 1)[0]
    assert dict(re.findall(r'"([\w-]+)>=([\d.]+)', required)) == health.REQUIRED
    for extra, (name, needed, _) in health.OPTIONAL.items():
        (line,) = re.findall(rf"^{extra} = \[(.*)\]$", text, re.MULTILINE)
        assert re.search(rf'"{re.escape(name)}(\[\w+\])?>={re.escape(needed)}', line)


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (5e12, "5.0 TB")]
)
def test_sizes_in_words(size, words):
    assert health.size_in_words(int(size)) == words


# --- tables ---


@pytest.mark.parametrize(
    ("turns", "right", "wrong", "sentence"),
    [
        (1000, 141, 2, "Of 1,000 model turns, 143 could have been skipped: 141 right, 2 wrong."),
        (1, 1, 0, "Of 1 model turn, 1 could have been skipped: 1 right, 0 wrong."),
        (5, 0, 0, "Of 5 model turns, none would have been skipped."),
        (0, 0, 0, "The log has no model turns, so there is nothing that could have been skipped."),
    ],
)
def test_headline(turns, right, wrong, sentence):
    assert tables.headline(turns, right, wrong) == sentence


def test_names_from_a_log_are_never_read_as_markup_or_as_terminal_codes():
    name = "[red]x[/red]:smile:\x1b[2J"
    view = GraphView(
        tools={name: ToolCounts(1, 0)},
        edges=[EdgeView(START, name, 1, 1, 0)],
        dataflow=[FlowView(name, "in", "[bold]p", name, "q", 1, 1)],
    )
    text = text_of(tables.show_graph, view)

    assert "[red]x[/red]:smile:\ufffd[2J 1 0" in text
    assert "argument [bold]p" in text
    assert "1 of 2" in text
    assert "\x1b" not in text


def test_long_tables_say_how_much_is_left():
    view = GraphView(tools={f"tool{i}": ToolCounts(i, 0) for i in range(25)})
    text = text_of(tables.show_graph, view)

    assert "tool24 24 0" in text
    assert "tool4 " not in text
    assert "… and 5 more" in text


def test_an_empty_memory_is_said_to_be_empty():
    assert text_of(tables.show_graph, GraphView()).startswith("Nothing is known yet.")


def test_inertia_in_words():
    text = text_of(tables.show_inertia, measure_inertia([["a", "b"]] * 50))
    assert "fitted 1.00 0.00 0.00" in text
    assert "Does the previous tool matter? Likelihood ratio G = 139, 1 degrees of freedom" in text
    assert "Does the tool before it matter? There is nothing to test." in text
    assert "This workload has inertia" in text

    huge = text_of(tables.show_inertia, measure_inertia([["a", "b"]] * 2000))
    assert "p below any number a computer holds" in huge
    assert text_of(tables.show_inertia, measure_inertia([])).strip() == "There are no tool calls to judge by."


def test_notes_on_a_log():
    errors = [LogError(f"line {number}: bad", line=number) for number in range(7)]

    notes = tables.skipped_notes(errors, 1)
    assert len(notes) == 7
    assert notes[-2] == "left out: 2 more malformed lines"
    assert notes[-1].startswith("note: 1 line had the id")
    assert tables.skipped_notes([], 0) == []
