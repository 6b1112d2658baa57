"""`toolmem watch`: beside a real process that writes, over compaction and kill -9, reading only what is new."""

from __future__ import annotations

import os
import pty
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from histories import FAILED, Learner, call, calls, reading, schema, shortcut, user, words
from kept import seen_by_others
from places import ROOT
from typer.testing import CliRunner

from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.cli import app, live
from langgraph_toolmem.cli.watch import Event, Watcher, read_record
from langgraph_toolmem.core.ledger import Followed
from langgraph_toolmem.graph.operations import (
    Arguments,
    Count,
    Outcome,
    Record,
    RunSeen,
    ToolCount,
    ToolDescribed,
    Unknown,
    Verdict,
)
from langgraph_toolmem.inertia.evidence import TurnClosed, TurnOpened
from langgraph_toolmem.stores import journal, plain_pickle
from langgraph_toolmem.stores.graph_file import JOURNAL, SNAPSHOT, GraphFile
from langgraph_toolmem.stores.plain_pickle import FormatVersionError
from langgraph_toolmem.stores.tail import GraphTail

NOON = 1_772_452_800.0  # 2026-03-02 12:00 UTC
PATIENCE = 60.0  # seconds after which a process that should have said something has failed

WRITER = """
import os, sys
sys.path.insert(0, "tests")
from histories import call, shortcut, user, words
from langgraph_toolmem import ToolMemory

memory = ToolMemory(sys.argv[1])
print("open", flush=True)
for line in sys.stdin:
    what, _, name = line.strip().partition(" ")
    if what == "learn":
        memory.observe([user(f"Do {name}"), *call(name, {"x": name}), words()], thread_id=name)
    elif what == "skip":
        memory.observe([user(f"Do {name}"), *shortcut(name, {"x": name})], thread_id=name)
    elif what == "compact":
        memory.forget(user_id="nobody")
    elif what == "close":
        memory.close()
    print("done", flush=True)
"""
"""Does what each line says: `learn <tool>`, `skip <tool>`, `compact`, `close`."""

WATCH = """
import os, sys
folder = os.path.realpath(sys.argv[1])

def refuse(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    elif event in ("os.remove", "os.rename", "os.mkdir", "os.truncate", "os.rmdir", "os.link", "os.utime"):
        path, writes = arguments[0], True
    else:
        return
    if writes and isinstance(path, str) and os.path.realpath(path).startswith(folder):
        os.write(2, f"WRITES {event} {path}\\n".encode())
        os._exit(99)

sys.addaudithook(refuse)
sys.argv = ["toolmem", "watch", "--memory", *sys.argv[1:]]
from langgraph_toolmem.cli import main
main()
"""
"""The program as a shell starts it; it ends with code 99 as soon as it writes anything into the folder."""


class Process:
    """A child whose lines are read by a thread, so that waiting for one can end."""

    def __init__(self, code: str, *arguments: object) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=ROOT,
        )
        self._lines: dict[str, queue.Queue[str]] = {"out": queue.Queue(), "err": queue.Queue()}
        for name, stream in (("out", self.child.stdout), ("err", self.child.stderr)):
            threading.Thread(target=self._read, args=(stream, self._lines[name]), daemon=True).start()

    @staticmethod
    def _read(stream: Any, lines: queue.Queue[str]) -> None:
        with stream:
            for line in stream:
                lines.put(line.rstrip("\n"))
        lines.put("")

    def line(self, stream: str = "out") -> str:
        """The next line; "" after the last."""
        return self._lines[stream].get(timeout=PATIENCE)

    def do(self, *commands: str) -> None:
        """For the writer: carries commands out, one after the other."""
        assert self.child.stdin is not None
        for command in commands:
            self.child.stdin.write(command + "\n")
            self.child.stdin.flush()
            assert self.line() == "done"

    def end(self, number: int) -> int:
        self.child.send_signal(number)
        return self.child.wait(PATIENCE)


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start_one(*arguments: Any) -> Process:
        started.append(Process(*arguments))
        return started[-1]

    yield start_one
    for process in started:
        if process.child.poll() is None:
            process.child.kill()
        process.child.wait(PATIENCE)
        if process.child.stdin is not None:
            process.child.stdin.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "memory"
    path.mkdir()
    return path


def learn(memory: ToolMemory, name: str) -> None:
    memory.observe([user(f"Do {name}"), *call(name, {"x": name}), words()], thread_id=name)


def compact(memory: ToolMemory) -> None:
    memory.forget(user_id="nobody")  # rewrites snapshot and journal


def told(events: list[Event]) -> list[str]:
    return [" ".join((*event.tools, event.what)) for event in events]


def tools_of(events: list[Event]) -> list[str]:
    return [tool for event in events for tool in event.tools]


def in_full(watcher: Watcher) -> None:
    """What the watcher shows is what the memory itself reports."""
    with ToolMemory(watcher.folder, read_only=True) as memory:
        expected = seen_by_others(memory.report())
    assert watcher.report().to_dict() == expected


# --- beside a real process that writes ---


@pytest.mark.slow
def test_each_step_appears_while_another_process_learns(folder, start):
    writer = start(WRITER, folder)
    assert writer.line() == "open"
    watch = start(WATCH, folder, "--plain", "--every", "0.1")
    assert watch.line("err") == f"following {folder}; times are UTC; Ctrl-C ends"

    writer.do("learn alpha")
    lines = [watch.line(), watch.line()]
    assert re.fullmatch(r"\d\d:\d\d:\d\d  alpha  asked the model: not foreseen", lines[0])
    assert re.fullmatch(r"\d\d:\d\d:\d\d  the model answered in words", lines[1])
    writer.do("skip beta")
    assert watch.line().endswith("  beta  skipped, ok")

    writer.do("learn gamma", "compact", "learn delta")
    seen = [watch.line().split("  ")[1] for _ in range(4)]
    assert [name for name in seen if "words" not in name] == ["gamma", "delta"]

    writer.do("learn epsilon")
    assert "epsilon" in watch.line()
    assert "words" in watch.line()
    assert writer.end(signal.SIGKILL) == -signal.SIGKILL
    heir = start(WRITER, folder)
    assert heir.line() == "open"
    heir.do("learn zeta", "close")
    assert "zeta" in watch.line()
    assert "words" in watch.line()

    assert watch.end(signal.SIGINT) == 0
    assert watch.line() == ""
    assert watch.line("err") == ""


def test_the_figures_stay_right_beside_a_process_that_is_killed(folder, start):
    writer = start(WRITER, folder)
    assert writer.line() == "open"
    with Watcher(folder) as watcher:
        assert watcher.look(NOON) == []
        assert watcher.writer() == f"process {writer.child.pid}"
        writer.do("learn alpha", "skip beta")
        assert tools_of(watcher.look(NOON)) == ["alpha", "beta"]
        in_full(watcher)
        writer.do("learn gamma", "compact")
        assert tools_of(watcher.look(NOON)) == ["gamma"]
        in_full(watcher)
        writer.do("learn delta")
        writer.end(signal.SIGKILL)
        assert tools_of(watcher.look(NOON)) == ["delta"]
        assert watcher.writer() == "nobody at present"
        in_full(watcher)
        assert watcher.report().turns == 7
        assert watcher.problems == ()


def test_it_ends_when_the_folder_disappears(folder, start):
    watch = start(WATCH, folder, "--plain", "--every", "0.1")
    assert watch.line("err").startswith("following")
    shutil.rmtree(folder)

    assert watch.line("err") == f"error: {folder} is not there any more"
    assert watch.child.wait(PATIENCE) == 2


def test_it_ends_when_a_release_with_another_format_writes_there(folder, start, monkeypatch):
    with ToolMemory(folder) as memory:
        learn(memory, "alpha")
    watch = start(WATCH, folder, "--plain", "--every", "0.1")
    assert watch.line("err").startswith("following")
    monkeypatch.setattr(plain_pickle, "FORMAT_VERSION", plain_pickle.FORMAT_VERSION + 1)
    (folder / "new").write_bytes(journal.header(9))
    (folder / "new").rename(folder / JOURNAL)

    said = watch.line("err")
    assert said.startswith("error: ")
    assert f"format version {plain_pickle.FORMAT_VERSION}" in said
    assert watch.child.wait(PATIENCE) == 2


@pytest.mark.slow
def test_it_ends_quietly_when_nobody_reads_on(folder, start):
    writer = start(WRITER, folder)
    assert writer.line() == "open"
    command = [sys.executable, "-c", WATCH, str(folder), "--plain", "--every", "0.1"]
    read_end, write_end = os.pipe()
    watch = subprocess.Popen(command, stdout=write_end, stderr=subprocess.PIPE, cwd=ROOT)
    os.close(write_end)
    assert watch.stderr is not None
    assert watch.stderr.readline().startswith(b"following")
    os.close(read_end)
    writer.do("learn alpha", "learn beta")

    assert watch.wait(PATIENCE) == 0
    with watch.stderr:
        assert watch.stderr.read() == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_the_panel_on_a_real_terminal(folder, number):
    with ToolMemory(folder) as memory:
        learn(memory, "alpha")
        master, terminal = pty.openpty()
        command = [sys.executable, "-c", WATCH, str(folder), "--every", "0.1"]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
        watch = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT, env=environment)
        os.close(terminal)
        screen = b""
        while b"alpha" not in screen:
            screen += os.read(master, 65536)
        learn(memory, "beta")
        while b"beta" not in screen:
            screen += os.read(master, 65536)
        watch.send_signal(number)
        try:
            while more := os.read(master, 65536):
                screen += more
        except OSError:  # how Linux says that the other side is closed
            pass
        assert watch.wait(PATIENCE) == 0
    os.close(master)
    text = screen.decode()
    assert f"toolmem watch  {folder}"[:60] in text
    assert "model turns" in text
    assert re.search(r"earlier   ?alpha  asked the model: not foreseen", text)
    assert re.search(r"\d\d:\d\d:\d\d  beta  asked the model: not foreseen", text)
    assert f"process {os.getpid()}" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    assert "Traceback" not in text


@pytest.mark.slow
def test_a_pipe_gets_no_control_characters_whatever_the_environment_says(folder, start, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    writer = start(WRITER, folder)
    assert writer.line() == "open"
    watch = start(WATCH, folder, "--every", "0.1")
    assert watch.line("err").startswith("following")
    writer.do("skip alpha\x1b[31m")

    assert re.fullmatch(r"\d\d:\d\d:\d\d  alpha\ufffd\[31m  skipped, ok", watch.line())
    assert watch.end(signal.SIGINT) == 0


def test_the_guard_of_these_tests_sees_a_write(folder, start):
    code = WATCH.replace("main()", "open(folder + '/x', 'w')")
    assert start(code, folder).child.wait(PATIENCE) == 99


def test_once_shows_the_state_and_stops(folder):
    empty = CliRunner().invoke(app, ["watch", "--memory", str(folder), "--once"])
    assert empty.exit_code == 0
    assert empty.stdout.startswith("0 model turns seen")

    with ToolMemory(folder) as memory:
        learn(memory, "alpha\x1b[2J")
        result = CliRunner().invoke(app, ["watch", "--memory", str(folder), "--once"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "2 model turns seen, 0 of them taken without the model.",
        "No proposal has been checked against the model yet.",
        f"Written to by process {os.getpid()}.",
        "earlier   alpha\ufffd[2J  asked the model: not foreseen",
        "earlier   the model answered in words",
    ]


# --- reading only what is new ---


def test_a_look_reads_what_is_new_and_the_snapshot_only_when_it_was_replaced(folder, monkeypatch):
    with ToolMemory(folder) as memory:
        for number in range(20):
            learn(memory, f"tool{number}")
    reads: list[str] = []
    loads, frames = plain_pickle.loads, journal.parse_frames
    monkeypatch.setattr(plain_pickle, "loads", lambda data: reads.append("snapshot") or loads(data))

    def parse_frames(data: bytes, *rest: Any) -> Any:
        found = frames(data, *rest)
        reads.append(f"{len(found[0])} records")
        return found

    monkeypatch.setattr(journal, "parse_frames", parse_frames)
    with Watcher(folder) as watcher:
        watcher.look(NOON)
        assert reads == ["snapshot"]
        reads.clear()
        with ToolMemory(folder) as memory:
            reads.clear()  # its own
            watcher.look(NOON)
            assert reads == []
            for _ in range(3):
                watcher.look(NOON)
            learn(memory, "one")
            learn(memory, "two")
            watcher.look(NOON)
            assert reads == ["8 records"]
            compact(memory)
            watcher.look(NOON)
            assert reads == ["8 records", "snapshot"]
            assert watcher.report().turns == 44


def test_the_evidence_is_not_kept(folder):
    with ToolMemory(folder) as memory:
        for number in range(30):
            learn(memory, f"tool{number}")
        compact(memory)
        learn(memory, "last")
        with Watcher(folder) as watcher:
            watcher.look(NOON)
            kept = watcher.graph.to_state()
            assert watcher.report().tools.keys() == {*(f"tool{number}" for number in range(30)), "last"}
    rows = (kept["successors"], kept["sources"], kept["values"], kept["tables"]["inertia"]["rules"])
    assert not any((*(table["rows"] for table in rows), kept["cases"]["cases"]))


@pytest.mark.parametrize("compacted", [0, 1, 2, 3])
def test_nothing_is_missed_when_the_journal_is_replaced_between_two_looks(folder, compacted):
    with ToolMemory(folder) as memory, Watcher(folder) as watcher:
        learn(memory, "before")
        watcher.look(NOON)
        learn(memory, "old")
        for number in range(compacted):
            compact(memory)
            learn(memory, f"new{number}")
        seen = tools_of(watcher.look(NOON))
        in_full(watcher)
        # The rest of the journal that was open, and the one in place now; what came and went in between is untold.
        newest = [f"new{compacted - 1}"] if compacted else []
        assert seen == ["old", *newest]
        assert watcher.look(NOON) == []


def test_a_writer_that_comes_and_goes_between_two_looks_is_seen(folder):
    with ToolMemory(folder) as memory:
        learn(memory, "first")
    with Watcher(folder) as watcher:
        watcher.look(NOON)
        with ToolMemory(folder) as memory:
            learn(memory, "short")
        assert tools_of(watcher.look(NOON)) == ["short"]
        in_full(watcher)


def test_what_is_forgotten_is_not_shown_any_more(folder):
    with ToolMemory(folder, namespace=("toolmem", "{user_id}")) as memory, Watcher(folder) as watcher:
        memory.observe([user("Do it"), *call("alpha")], thread_id="a", user_id="ann")
        memory.inertia.begin_turn([user("Do it again")], thread_id="b", user_id="ann")
        watcher.look(NOON)
        assert (watcher.report().turns, len(watcher.graph.runs)) == (2, 1)
        memory.forget(user_id="ann")
        watcher.look(NOON)
        assert (watcher.report().turns, len(watcher.graph.runs)) == (1, 0)
        in_full(watcher)


def test_a_memory_that_is_made_later_is_followed_from_its_first_step(folder):
    with Watcher(folder) as watcher:
        assert watcher.look(NOON) == []
        with ToolMemory(folder) as memory:
            learn(memory, "alpha")
            assert watcher.look(NOON)[0] == Event(("alpha",), "asked the model: not foreseen", NOON)


def test_another_memory_in_the_same_folder_is_shown_instead(folder):
    with ToolMemory(folder) as memory:
        for name in ("alpha", "beta", "gamma"):
            learn(memory, name)
            compact(memory)
    with Watcher(folder) as watcher:
        watcher.look(NOON)
        for file in folder.iterdir():
            file.unlink()
        with ToolMemory(folder) as memory:
            learn(memory, "other")
            assert watcher.look(NOON) == []
            assert watcher.report().tools.keys() == {"other"}
            learn(memory, "more")
            assert tools_of(watcher.look(NOON)) == ["more"]


def test_what_was_there_before_has_no_time_and_only_the_latest_is_told(folder):
    with ToolMemory(folder) as memory, Watcher(folder) as watcher:
        for number in range(30):
            learn(memory, f"tool{number}")
        events = watcher.look(NOON)
        assert {event.time for event in events} == {None}
        assert tools_of(events) == [f"tool{number}" for number in range(20, 30)]


def test_a_snapshot_whose_journal_is_missing_is_shown(folder):
    with ToolMemory(folder) as memory:
        learn(memory, "alpha")
    (folder / JOURNAL).unlink()
    with Watcher(folder) as watcher:
        assert watcher.look(NOON) == []
        assert watcher.report().turns == 2


def test_a_crash_between_snapshot_and_journal_counts_nothing_twice(folder):
    with ToolMemory(folder) as memory:
        learn(memory, "alpha")
        old = (folder / JOURNAL).read_bytes()
        compact(memory)
    (folder / JOURNAL).write_bytes(old)
    with Watcher(folder) as watcher:
        assert watcher.look(NOON) == []
        assert watcher.report().turns == 2
        with ToolMemory(folder) as memory:
            learn(memory, "beta")
            assert tools_of(watcher.look(NOON)) == ["beta"]
        in_full(watcher)


def test_a_record_that_is_being_written_is_read_when_it_is_whole(folder):
    with GraphFile(folder) as file:
        file.load()
        with GraphTail(folder) as tail:
            assert tail.look().events == []
            whole = journal.frame(["a" * 16, [["count", "turns", 1]]])
            for cut in range(1, len(whole)):
                with (folder / JOURNAL).open("ab") as handle:
                    handle.write(whole[cut - 1 : cut])
                assert tail.look().records == []
            with (folder / JOURNAL).open("ab") as handle:
                handle.write(whole[-1:])
            assert tail.look().records == [["a" * 16, [["count", "turns", 1]]]]


# --- what cannot be read ---


def test_a_damaged_journal_is_told_and_followed_again_once_it_is_mended(folder):
    with ToolMemory(folder) as memory:
        learn(memory, "alpha")
        watcher = Watcher(folder)
        watcher.look(NOON)
        memory.close()
    watcher.look(NOON)
    size = (folder / JOURNAL).stat().st_size
    with (folder / JOURNAL).open("ab") as handle:
        handle.write(b"no frame at all, and longer than the head of one")
    for _ in range(2):
        watcher.look(NOON)
        assert watcher.problems == (f"{JOURNAL}: the head of a record is damaged",)
    assert watcher.report().problems == watcher.problems
    with ToolMemory(folder) as memory:  # sets the rest aside and goes on in the same file
        assert (folder / JOURNAL).stat().st_size == size
        learn(memory, "beta")
        assert tools_of(watcher.look(NOON)) == ["beta"]
        assert watcher.problems == ()
    watcher.close()


@pytest.mark.parametrize("state", [b"no pickle", plain_pickle.dumps({"generation": 0, "state": {"tools": 3}})])
def test_a_snapshot_that_cannot_be_used_is_told_and_the_journal_is_shown(folder, state):
    with ToolMemory(folder) as memory:
        learn(memory, "alpha")
        (folder / SNAPSHOT).write_bytes(state)
        with Watcher(folder) as watcher:
            assert tools_of(watcher.look(NOON)) == ["alpha"]
            assert watcher.report().turns == 2
            (problem,) = watcher.problems
            assert "cannot be used" in problem


def test_records_that_are_not_understood_are_counted_and_left_out(folder):
    with GraphFile(folder) as file:
        file.load()
        for record in (3, ["k", 3], ["k", [["count"]]], [None, [["of the future", 1], ["count", "turns", 1]]]):
            file.append(record)
        with Watcher(folder) as watcher:
            assert watcher.look(NOON) == []
            assert watcher.report().turns == 1
            assert watcher.problems == ("3 records cannot be understood and are left out",)


@pytest.mark.parametrize("name", [SNAPSHOT, JOURNAL])
@pytest.mark.parametrize("step", [-1, 1])
def test_another_format_is_refused_with_the_file_named(folder, monkeypatch, name, step):
    with monkeypatch.context() as another:
        another.setattr(plain_pickle, "FORMAT_VERSION", plain_pickle.FORMAT_VERSION + step)
        content = {SNAPSHOT: plain_pickle.dumps({"generation": 1, "state": {}}), JOURNAL: journal.header(1)}
        (folder / name).write_bytes(content[name])
    with Watcher(folder) as watcher, pytest.raises(FormatVersionError, match=f"{name}: .*format version"):
        watcher.look(NOON)


def test_a_journal_without_a_readable_header_is_told(folder):
    (folder / JOURNAL).write_bytes(b"x" * 100)
    with Watcher(folder) as watcher:
        watcher.look(NOON)
        assert watcher.problems == (f"{JOURNAL} has no readable header",)


def test_a_folder_that_cannot_be_read_is_an_error_of_storage(folder):
    (folder / JOURNAL).mkdir()
    with Watcher(folder) as watcher, pytest.raises(StorageError, match="cannot be read"):
        watcher.look(NOON)


# --- what a record tells ---


def records_of(*parts: Any, learner: Learner | None = None) -> list[Record]:
    learner = learner or Learner([schema("add", "x"), schema("look", "x")])
    learner.records.clear()
    learner.learn(user("Please do number 12345"), *parts)
    return [record for _, record in learner.records]


def seen(record: Record) -> str | None:
    found = read_record(record)
    return None if found is None else " ".join((", ".join(found[0]), found[1])).strip()


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([call("add", {"x": "1"})], ["add asked the model: not foreseen"]),
        ([call("add", {"x": "1"}, FAILED)], ["add asked the model: not foreseen; it failed"]),
        ([calls([("add", {"x": "1"}, "ok"), ("look", {"x": "2"}, "ok")])], ["add, look asked the model: not foreseen"]),
        ([shortcut("add", {"x": "1"})], ["add skipped, ok"]),
        ([shortcut("add", {"x": "1"}, FAILED)], ["add skipped, failed"]),
        ([words()], ["the model answered in words"]),
    ],
)
def test_what_the_engines_records_tell(parts, said):
    assert [seen(record) for record in records_of(*parts)] == said


def booked(outcome: str, *, proposed: str = "add", made: str | None = "add") -> Record:
    """A model turn beside a proposal, as the engine puts it."""
    record: Record = [Count("turns"), Count("calls" if made else "answers"), ToolCount(proposed, outcome)]
    if outcome in ("right", "wrong"):
        record += [Count(outcome), ToolCount(proposed, "hits" if outcome == "right" else "misses")]
    return [*record, Outcome(made, "ok"), Arguments(made, {})] if made else record


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (booked("right"), "add asked the model: foreseen"),
        (booked("wrong"), "add asked the model: something else: other arguments"),
        (booked("wrong", made="look"), "look asked the model: something else than add"),
        (booked("wrong", made=None), "the model answered in words: something else than add"),
        (booked("hits"), "add asked the model: foreseen, but not surely enough"),
        (booked("misses"), "add asked the model: not foreseen"),
        ([Outcome("add", "failed")], "add failed, and is tried again"),
        ([Verdict("run", 1.0, "a secret", None)], "verdict on a run: good (1)"),
        ([RunSeen("run", 0, None), Verdict("run", 0.2, None, None)], "verdict on a run: bad (0.2)"),
        ([Count("calls"), Outcome("add", "rejected")], "add asked the model: not foreseen; a person rejected it"),
        (
            [Count("calls"), Followed("sit", "run", "turn", ["a"], 1, None)],
            "asked the model: not foreseen, as suggested",
        ),
        (
            [Count("calls"), Followed("sit", "run", "turn", [], 0, None)],
            "asked the model: not foreseen, not as suggested",
        ),
        ([Count("acted_ok"), ToolCount("add", "acted_ok")], "add skipped, ok"),
        (
            [Count("acted_stopped"), Count("wrong"), Outcome("add", "rejected")],
            "add skipped, but a person rejected the call",
        ),
        ([Count("acted_stopped"), Outcome("add", "rejected")], "add skipped, but the call was not executed"),
        ([Count("acted_ok"), Count("wrong"), Arguments("add", {})], "add skipped, but a person changed the call"),
        ([Count("acted_ok_soon", 0.1)], None),
        ([TurnOpened("turn", [], [], [], False, None), TurnClosed("turn")], None),
        ([ToolDescribed("add", {})], None),
        ([Unknown(["of the future", 1])], None),
        ([], None),
    ],
)
def test_what_a_record_tells(record, said):
    assert seen(record) == said


def test_foresight_of_a_real_engine_is_told():
    learner = Learner([reading("add", "x")], InertiaPolicy())
    events = [
        seen(record)
        for number in range(60)
        for record in records_of(user(f"add {number}"), call("add", {"x": str(number)}), words(), learner=learner)
    ]
    assert "add asked the model: not foreseen" in events
    assert "add asked the model: foreseen" in events


def test_no_argument_and_no_word_of_a_person_is_told():
    secret = "s3cret-4711"
    records = records_of(user(secret), call("add", {"x": secret}, secret), words(secret))
    assert secret in str(records)
    assert secret not in str([seen(record) for record in records])


def test_the_line_of_an_event():
    assert live.event_line(Event(("add", "look"), "skipped, ok", NOON + 187)) == "12:03:07  add, look  skipped, ok"
    assert live.event_line(Event((), "the model answered in words")) == "earlier   the model answered in words"
