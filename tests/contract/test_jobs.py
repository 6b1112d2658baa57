"""The contract of jobs: done once, tried again, given up, kept through reopening, forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langchain_core.messages import AIMessage
from letters import Letters
from plugs import NOW, memory_of, rows, run_of
from queues import dead
from test_rows import Place, PlaceRows

from langgraph_toolmem import Atoms, Entries, ToolMemory
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.extend import Core, EndedRun, Method
from langgraph_toolmem.testing import ScriptedChatModel


class Places(Method):
    """A method of the test's own: what runs asked for, written in the background."""

    name: ClassVar[str] = "places"

    def open(self, core: Core) -> None:
        super().open(core)
        self.rows = core.rows(PlaceRows())
        core.jobs.handle("place", self.keep_all)

    def ended(self, ended: EndedRun) -> None:
        where: dict[str, Any] = {"user": ended.user.digest or "", "namespace": ended.user.namespace}
        payload = {"request": ended.run.request, "user_id": ended.user.id}
        self.core.jobs.put("place", payload, run=ended.run.digest, **where)

    def keep_all(self, jobs: Any) -> None:
        for job in jobs:
            self.keep(job)

    def keep(self, job: Any) -> None:
        user = self.core.users.of(job.payload["user_id"])
        self.rows.put([Place(job.run, job.payload["request"], 1)], user)


class Case:
    """A memory with one method whose work is done by hand, at a time that the test says."""

    def __init__(self, make: Callable[[], Method], folder: Path | None) -> None:
        self.make, self.folder = make, folder
        self.now, self.meaning = NOW, Letters("aeiot")
        self.memory = self.opened()

    def opened(self) -> ToolMemory:
        how: dict[str, Any] = {"now": lambda: self.now, "embeddings": self.meaning}
        return memory_of(self.folder, self.make(), **how)

    def finish(self, number: int, user: str | None = None, *, success: bool = True) -> None:
        self.memory.finish(run_of(number), thread_id=f"t-{number}", success=success, user_id=user)

    def work(self, after: float = 0.0) -> dict[str, Any]:
        """Does what is due so many seconds later; what is kept then."""
        self.now += after
        while self.memory.core.jobs.work() == 0:
            pass
        return rows(self.memory)

    def report(self) -> tuple[int, int, int]:
        found = self.memory.core.jobs.queue.report()
        return found["pending"], found["failing"], found["dead"]


pytestmark = pytest.mark.usefixtures("by_hand")
MAKE = {"own": Places, "entries": Entries, "atoms": lambda: Atoms(keep=True)}


@pytest.fixture(params=MAKE)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = Case(MAKE[request.param], tmp_path / "memory")
    yield made
    made.memory.close()


def test_a_job_is_done_once(case: Case) -> None:
    case.finish(0)
    assert rows(case.memory) == {}
    assert case.report() == (1, 0, 0)
    kept, asked = case.work(), [*case.meaning.asked]
    assert kept
    assert case.report() == (0, 0, 0)
    assert case.work(after=3600) == kept
    assert case.meaning.asked == asked != []


def test_what_fails_is_tried_again_later_and_later_and_never_given_up(case: Case) -> None:
    case.finish(0)
    case.meaning.broken = True
    tried = []
    for after in (0.0, 0.0, 1.1, 1.1, 1.1, *[700.0] * 9):
        before = len(case.meaning.asked)
        assert case.work(after) == {}
        tried.append(len(case.meaning.asked) > before)
    assert tried == [True, False, True, False, True, *[True] * 9]
    assert case.report() == (1, 1, 0)
    case.meaning.broken = False
    assert case.work(after=700)
    assert case.report() == (0, 0, 0)


def test_forget_takes_the_jobs_of_a_user_and_leaves_the_others(case: Case) -> None:
    case.finish(0, "ann")
    case.finish(1, "bob")
    ann, bob = (str(case.memory.core.users.of(name).digest) for name in ("ann", "bob"))
    assert case.report() == (2, 0, 0)
    assert case.memory.forget(user_id="ann")
    assert case.report() == (1, 0, 0)
    kept = str(case.work())
    assert (ann in kept, bob in kept) == (False, True)


# --- slow ones, and what cannot be done ---


class Slow(Places):
    """Asks a model in the background."""

    def __init__(self, model: ScriptedChatModel) -> None:
        self.model = model

    def open(self, core: Core) -> None:
        Method.open(self, core)
        self.rows = core.rows(PlaceRows())
        core.jobs.handle("place", self.keep_all, find=lambda _: self.model.invoke("How many?").text)


def away(messages: Any, tools: Any) -> AIMessage:
    raise ConnectionError("nobody answers")


SLOW = {
    "own": Slow,
    "entries": lambda model: Entries(critic=model),
    "atoms": lambda model: Atoms(keep=True, model=model),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_slow_job_is_given_up_after_six_failures_and_can_be_revived(name: str, tmp_path: Path) -> None:
    asked = []

    def counting(messages: Any, tools: Any) -> AIMessage:
        asked.append(1)
        return away(messages, tools)

    model = ScriptedChatModel(script=counting)
    case = Case(lambda: SLOW[name](model), tmp_path / "memory")
    case.finish(0, success=name != "entries")  # a critique is of a run that went wrong
    case.work()
    first = len(asked)
    assert first > 0
    for _ in range(8):
        case.work(after=700)
    assert len(asked) == 6 * first
    assert case.report() == (0, 0, 1)
    assert [attempts for _, attempts, _ in dead(case.memory.core.jobs.queue)] == [6]
    assert case.memory.core.jobs.queue.requeue() == 1
    case.work(after=1)
    assert len(asked) == 7 * first
    case.memory.close()


def test_a_job_that_cannot_be_read_is_given_up_at_once() -> None:
    class Unreadable(Places):
        def keep(self, job: Any) -> None:
            raise InputError("this is no place")

    case = Case(Unreadable, None)
    case.finish(0)
    case.finish(1)
    case.work()
    assert case.report() == (0, 0, 2)
    case.memory.close()
