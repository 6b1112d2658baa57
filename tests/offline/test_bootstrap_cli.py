"""`toolmem bootstrap`: how a sandbox is named, that nothing runs unasked, and what a person sees."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph.state import CompiledStateGraph
from places import ROOT
from typer.testing import CliRunner

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.cli import app
from langgraph_toolmem.cli.bootstrap import progress_bar
from langgraph_toolmem.offline.coldstart import Budget, Progress, Sandbox, load_sandbox
from langgraph_toolmem.stores.database import NAME
from langgraph_toolmem.testing import OpenAIStubServer

MODEL = ("--model", "openai:gpt-4.1-mini")
SAFE = "--sandbox-is-safe"
REQUESTS = ["Where does Ann Lee sit?", "Book the green room for noon", "Write to Ben that lunch is off"]
SANDBOX = '''
import asyncio, time
from langchain_core.messages import AIMessage, ToolMessage

def tool(name, **more):
    return {"name": name, "description": name, "parameters": {"type": "object", "properties": {}}, **more}

class Desk:
    """A sandbox of its own kind."""
    tools = [tool("look_up"), tool("cancel_all", destructive=True)]
    about = "Ann Lee and Ben Moss work here."
    def __init__(self, memory=None):
        self.memory = memory
    def invoke(self, state, config):
        text = state["messages"][0].text
        with open("executed.txt", "a") as file:
            file.write(text + "\\n")
        if "green" in text:
            raise RuntimeError("no rooms here")
        call = {"name": "look_up", "args": {"of": text}, "id": "c-" + text}
        return {"messages": [*state["messages"], AIMessage("", tool_calls=[call]),
                ToolMessage("desk 4", tool_call_id=call["id"]), AIMessage("Done.")]}
    def verdict(self, query, messages):
        return "Ann" in query

class Slow(Desk):
    async def ainvoke(self, state, config):
        with open("executed.txt", "a") as file:
            file.write("begun\\n")
        await asyncio.sleep(60)

class Silent(Desk):
    verdict = None

async def later():
    await asyncio.sleep(0)
    return Desk()

made = Desk()
nothing = object()
def broken():
    raise LookupError("no such office")
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a sandbox in it, where the command is typed."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk_sandbox.py").write_text(SANDBOX, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("desk_sandbox", None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIStubServer]:
    """A chat model behind real HTTP: it invents all requests at once, and judges."""

    def reply(request: dict[str, Any]) -> str:
        if request["response_format"]["json_schema"]["name"] == "Judgement":
            return json.dumps({"why": "It is not what I meant.", "done": "no"})
        return json.dumps({"queries": [{"text": text, "tools": ["look_up"]} for text in REQUESTS]})

    with OpenAIStubServer(reply) as started:
        monkeypatch.setenv("OPENAI_BASE_URL", started.url)
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        yield started


def run(*arguments: object, typed: str | None = None) -> Any:
    return CliRunner().invoke(app, ["bootstrap", *map(str, arguments)], input=typed)


def executed(folder: Path) -> list[str]:
    file = folder / "executed.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def entries(folder: Path) -> list[Any]:
    with ToolMemory(folder) as memory:
        return list(memory.entries.rows.all(memory.core.users.of(None), retired=True))


AGENT = ("--memory", "memory", "--agent", "desk_sandbox:Desk", "--queries", 3)


def test_a_cold_start_on_the_command_line(here, server):
    result = run(*AGENT, *MODEL, SAFE)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "Of 3 invented requests that were run, 2 became entries: 1 went well, 1 went wrong, 0 nobody judged. It took 5 "
        f"model calls and {server.usage['total_tokens']:,} tokens so far.",
        "1 run failed; --retry-failed runs them again.",
        "Error in the sandbox: RuntimeError: no rooms here",
        "To take them all away: toolmem bootstrap --drop --memory memory",
    ]
    assert executed(here) == REQUESTS
    assert {(e.query, e.score, e.made_by) for e in entries(here / "memory")} == {
        (REQUESTS[0], 1.0, "bootstrap"),
        (REQUESTS[2], 0.0, "bootstrap"),
    }
    asked = server.requests[0]["messages"][1]["content"]
    assert "Ann Lee and Ben Moss work here." in asked

    again = json.loads(run(*AGENT, *MODEL, SAFE, "--json").stdout)
    assert (again["run"], again["good"], again["wrong"], again["failed"]) == (3, 1, 1, 1)
    assert executed(here) == REQUESTS
    assert run(*AGENT, SAFE, "--retry-failed").exit_code == 0  # no model is needed for that
    assert executed(here) == [*REQUESTS, REQUESTS[1]]


def test_nothing_is_executed_unless_a_person_says_so(here, server, monkeypatch):
    refused = run(*AGENT, *MODEL)
    assert (refused.exit_code, refused.stdout) == (2, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith("error: The agent's tools are really executed")
    assert "--sandbox-is-safe" in line
    assert (executed(here), server.requests, (here / "memory").exists()) == ([], [], False)

    monkeypatch.setattr("langgraph_toolmem.cli.bootstrap.at_a_terminal", lambda: True)
    no = run(*AGENT, *MODEL, typed="n\n")
    assert no.exit_code == 130
    assert "desk_sandbox:Desk is going to be run on up to 3 invented requests." in no.stderr
    assert "Marked destructive: cancel_all." in no.stderr
    assert "The agent's tools are really executed" in no.stderr
    assert (executed(here), server.requests) == ([], [])
    assert run(*AGENT, *MODEL, typed="y\n").exit_code == 0
    assert executed(here) == REQUESTS
    later = run("--memory", "later", "--agent", "desk_sandbox:later", *MODEL, typed="n\n")
    assert (later.exit_code, len(executed(here))) == (130, 3)


def test_requests_can_be_looked_at_before_they_are_run(here, server):
    result = run(*AGENT, *MODEL, "--invent-only")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[:3] == REQUESTS
    assert "3 requests wait to be run, with the same command without --invent-only." in result.stdout
    assert executed(here) == []
    doctor = CliRunner().invoke(app, ["doctor", "--memory", "memory"])
    assert "a cold start was not ended: 0 requests were run, 3 wait; toolmem bootstrap goes on" in doctor.stdout

    assert json.loads(run(*AGENT, "--invent-only", "--json").stdout)["queries"] == REQUESTS
    assert run(*AGENT, SAFE).exit_code == 0
    assert executed(here) == REQUESTS
    assert len(server.requests) == 1
    assert "cold start" not in CliRunner().invoke(app, ["doctor", "--memory", "memory"]).stdout


def test_a_judge_and_a_critic_and_what_is_told_without_them(here, server):
    silent = (*AGENT[:3], "desk_sandbox:Silent", *AGENT[4:])
    plain = run(*silent, *MODEL, SAFE)
    assert "0 went well, 0 went wrong, 2 nobody judged." in plain.stdout
    assert "give the sandbox a `verdict`, or name a --judge" in plain.stdout
    assert run("--memory", "memory", "--drop").stdout == "Dropped 2 entries.\n"

    judged = run(*silent, *MODEL, SAFE, "--judge", MODEL[1])
    assert "0 went well, 2 went wrong, 0 nobody judged." in judged.stdout
    assert [e.comment for e in entries(here / "memory")] == ["It is not what I meant."] * 2

    reply = server.reply
    critique = json.dumps({"went_wrong": "Nobody was asked.", "call": 1, "instead": "Ask."})
    server.reply = lambda r: critique if r["response_format"]["json_schema"]["name"] == "Critique" else reply(r)
    assert run(*silent, *MODEL, SAFE, "--judge", MODEL[1], "--memory", "other", "--critic", MODEL[1]).exit_code == 0
    assert {e.critique.splitlines()[0] for e in entries(here / "other")} == {"What went wrong: Nobody was asked."}


def test_dropping_asks_a_person_and_begins_anew(here, server, monkeypatch):
    assert run(*AGENT, *MODEL, SAFE).exit_code == 0
    monkeypatch.setattr("langgraph_toolmem.cli.bootstrap.at_a_terminal", lambda: True)
    kept = run("--memory", "memory", "--drop", typed="n\n")
    assert (kept.exit_code, len(entries(here / "memory"))) == (130, 2)
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert json.loads(run("--path", "memory", "--drop", "--json").stdout)["dropped"] == 2
    assert entries(here / "memory") == []
    assert run("--path", "memory", "--drop", "--yes").stdout == "Dropped 0 entries.\n"


def test_budgets_are_told_when_they_end_it(here, server):
    result = run(*AGENT, *MODEL, SAFE, "--max-model-calls", 1)
    assert result.exit_code == 0
    assert "Stopped early: all of 1 model calls are made." in result.stdout
    assert executed(here) == []
    result = run(*AGENT, *MODEL, SAFE, "--max-tokens", 1)
    assert "Stopped early: all of 1 tokens are used." in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--agent MODULE:FACTORY is missing"),
        (("--agent", "nothing"), "is not module:factory"),
        (("--agent", "no_such_module:x"), "cannot be imported: ModuleNotFoundError"),
        (("--agent", "desk_sandbox:absent"), "has no 'absent'"),
        (("--agent", "desk_sandbox:nothing"), "has invoke or ainvoke"),
        (("--agent", "desk_sandbox:broken"), "desk_sandbox:broken failed: LookupError: no such office"),
        (("--agent", "desk_sandbox:Desk"), "name the model that invents some with --model"),
        (("--agent", "desk_sandbox:Desk", "--model", "best"), "--model 'best' is none of: provider:model"),
        (("--agent", "desk_sandbox:Desk", "--judge", "best"), "--judge 'best'"),
        (("--agent", "desk_sandbox:Desk", "--about", "none.txt"), "none.txt cannot be read"),
        (("--agent", "desk_sandbox:Desk", "--user-id", "ann", "--namespace", "x/{who}"), "namespace"),
        (("--agent", "desk_sandbox:Desk", "--namespace", "x/{user_id}"), "needs a user id"),
    ],
    ids=lambda value: " ".join(map(str, value[1:])) or "none" if isinstance(value, tuple) else "",
)
def test_what_cannot_work_is_one_line(here, options, said):
    result = run("--memory", "memory", SAFE, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr.splitlines()[-1]
    assert executed(here) == []


def test_sandboxes_are_named_in_many_ways(here):
    memory = ToolMemory.ephemeral()
    found = load_sandbox("desk_sandbox:Desk", memory=memory)
    assert isinstance(found, Sandbox)
    assert found.agent.memory is memory
    assert found.about == "Ann Lee and Ben Moss work here."
    for spec in ("desk_sandbox:made", "desk_sandbox.py:Desk", "desk_sandbox.py:made"):
        named = load_sandbox(spec)
        assert isinstance(named, Sandbox)
        assert named.verdict is not None
    office = load_sandbox("examples.bootstrap_office:make", folder=ROOT)
    assert isinstance(office, Sandbox)
    assert isinstance(office.agent, CompiledStateGraph)
    with pytest.raises(ConfigurationError, match="cannot be imported: FileNotFoundError"):
        load_sandbox("none.py:x")


async def test_a_factory_may_be_a_coroutine_function(here):
    found = load_sandbox("desk_sandbox:later")
    assert not isinstance(found, Sandbox)
    assert isinstance(await found, Sandbox)


def test_an_async_factory_on_the_command_line(here, server):
    result = run("--memory", "memory", "--agent", "desk_sandbox:later", "--queries", 3, *MODEL, SAFE)
    assert "2 became entries" in result.stdout


def test_progress_is_drawn_on_a_terminal_only(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for shown in (True, False):
        monkeypatch.setattr(sys, "stderr", Terminal())
        with progress_bar(Budget(queries=3), show=shown) as update:
            update(Progress(wanted=3, good=1, wrong=1, failed=0, model_calls=1234))
        drawn = sys.stderr.getvalue()  # type: ignore[attr-defined]
        assert ("2/3" in drawn and "1 well, 1 wrong, 0 failed; 1,234 model calls" in drawn) == shown


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a child there")
def test_ctrl_c_ends_it_cleanly_and_the_same_command_goes_on(here, server):
    slow = [*AGENT[:3], "desk_sandbox:Slow", *map(str, AGENT[4:]), *MODEL, SAFE]
    code = "from langgraph_toolmem.cli import main; main()"
    going = subprocess.Popen(
        [sys.executable, "-c", code, "bootstrap", *slow],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    while not executed(here):
        assert going.poll() is None, going.communicate()
    going.send_signal(signal.SIGINT)
    out, err = going.communicate(timeout=60)
    assert (going.returncode, out) == (130, "")
    assert err.splitlines() == [
        "0 of 3 requests were run; the same command again goes on from there",
        "error: interrupted",
    ]
    assert (here / "memory" / NAME).exists()
    assert run(*AGENT, SAFE).exit_code == 0
    assert executed(here) == ["begun", *REQUESTS]
    assert len(server.requests) == 1
