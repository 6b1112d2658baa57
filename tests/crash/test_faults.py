"""Damaged files, a folder that is gone, a disk that is full: the host goes on, and somebody is told."""

from __future__ import annotations

from pathlib import Path

import campaign
import pytest
from langchain_core.messages import AIMessage
from queues import put, take

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.cli.health import examine
from langgraph_toolmem.core import jobs as job_queue
from langgraph_toolmem.core.jobs import JobQueue, Jobs
from langgraph_toolmem.stores.vectors import DATABASE

CALL = {"name": "search", "args": {"query": "a"}, "id": "1"}
RUN = [
    ("user", "Look for a"),
    AIMessage("", tool_calls=[CALL]),
    {"role": "tool", "tool_call_id": "1", "content": "{}"},
    ("assistant", "Found."),
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("faults")
    campaign.template(where / "template")
    return where


@pytest.mark.parametrize("kind", ["kill", "full"])
def test_a_sample_of_the_campaign(template: Path, kind: str) -> None:
    trial = campaign.one(template, campaign.KINDS.index(kind))
    assert trial.is_good, trial


def test_a_database_of_chroma_that_is_none_is_renamed_and_said(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        memory.finish(RUN, thread_id="old", success=True, wait=True)
    (tmp_path / "chroma" / DATABASE).write_bytes(b"no database" * 1000)
    assert any(DATABASE in problem for problem in examine(tmp_path)["problems"])
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        memory.finish(RUN, thread_id="new", success=True, wait=True)
        assert len(list(memory.entries.rows.all(memory.core.users.of(None)))) == 1
        assert any("chroma.corrupt-1" in problem for problem in memory.report().problems)
    assert any("chroma.corrupt-1" in problem for problem in examine(tmp_path)["problems"])


def test_what_waits_is_bounded_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_queue, "MAX_WAITING", 3)
    monkeypatch.setattr(Jobs, "begin", lambda *_: None)
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        for number in range(6):
            memory.finish(RUN, thread_id=str(number), success=True)
        assert memory.report().jobs.pending == 3
        said = "Nothing of a finished run could be put into the queue: 3 jobs wait"
        assert any(each.startswith(said) for each in memory.report().problems)
        queue = memory.core.jobs.queue
        for _ in range(3):
            [job] = queue.take(["write"])
            queue.retry(job, 0.0, "OSError at somewhere", dead=True)
        assert "3 write jobs were given up (OSError at somewhere)" in memory.report().problems


def test_jobs_are_done_although_the_clock_was_set_back(tmp_path: Path) -> None:
    now = [1e9]
    with JobQueue(tmp_path, now=lambda: now[0]) as queue:
        put(queue, "a")
        [job] = take(queue)
        queue.retry(job, 60)
        put(queue, "b")
        now[0] -= 1e6
        assert queue.next_due(["k"]) == 0
        assert [job.id for _ in "ab" for job in take(queue)] == ["a", "b"]
