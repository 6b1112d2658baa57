"""What entries and verdicts stand up to: mixed-up users, forgetting in between, what hangs, fails or is closed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import histories as h
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from openai_server import OpenAIStubServer, make_chat_model
from test_recall_memory import PER_USER, Critic, asking, holding, mail, shown

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.base.errors import NamespaceError
from langgraph_toolmem.entries.render import BUDGET
from langgraph_toolmem.offline.coldstart import Bootstrap, Budget, Sandbox

# --- whose a verdict is ---


def test_a_verdict_on_another_users_run_of_the_same_id_is_not_taken_over(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, namespace=PER_USER, methods=[Entries()]) as memory:
        memory.finish(mail("Ann"), thread_id="1", success=False, comment="Zebulons word", user_id="zeb")
        memory.finish(mail("Bob"), thread_id="1", user_id="bob")
        (entry,) = memory.entries.recall("send a mail to Cid", user_id="bob")
        assert (entry.score, entry.comment) == (None, "")
        memory.feedback("1", score=1.0, comment="fine", user_id="bob")
        memory.finish(mail("Ann"), thread_id="1", user_id="zeb")
        (entry,) = memory.entries.recall("send a mail to Cid", user_id="zeb")
        assert (entry.score, entry.comment) == (0.0, "Zebulons word")
        with pytest.raises(NamespaceError, match="2 users have a thread '1'"):
            memory.feedback("1", score=0.2, comment="once more")
        memory.feedback("1", score=0.2, comment="once more", user_id="zeb")
        (entry,) = memory.entries.recall("send a mail to Cid", user_id="zeb")
        assert (entry.score, entry.comment) == (0.2, "once more")


def _later(memory: ToolMemory) -> None:
    memory.finish(mail("Ann"), thread_id="1", wait=True)
    memory.feedback("1", score=0.0, comment="Zebulons word", user_id="zeb")


def _before(memory: ToolMemory) -> None:
    memory.observe(mail("Ann")[:-1], thread_id="1")
    memory.feedback("1", score=0.0, comment="Zebulons word", user_id="zeb")
    memory.finish(mail("Ann"), thread_id="1")


def _observed(memory: ToolMemory) -> None:
    memory.observe(mail("Zebulons mother")[:-1], thread_id="1", user_id="zeb")
    memory.finish(mail("Zebulons mother"), thread_id="1")


def _on_anothers(memory: ToolMemory) -> None:
    memory.finish(mail("Ann"), thread_id="1", user_id="ann", wait=True)
    memory.feedback("1", score=0.0, comment="Zebulons word", user_id="zeb")


@pytest.mark.parametrize("said", [_later, _before, _observed, _on_anothers], ids=lambda said: said.__name__)
def test_where_a_user_is_named_only_once_forgetting_finds_all_the_same(tmp_path: Path, said: Any) -> None:
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        said(memory)
        assert memory.flush()
        assert holding(tmp_path, "Zebulon")
        memory.forget(user_id="zeb")
        assert holding(tmp_path, "Zebulon") == []
    assert holding(tmp_path, "Zebulon") == []


@pytest.mark.parametrize("namespace", [("toolmem",), PER_USER])
def test_a_verdict_left_by_nobody_goes_with_the_user_whose_run_it_is(
    tmp_path: Path, namespace: tuple[str, ...]
) -> None:
    with ToolMemory(tmp_path, namespace=namespace, methods=[Entries()]) as memory:
        memory.finish(mail("Ann"), thread_id="1", user_id="zeb", wait=True)
        with ToolMemory(tmp_path, namespace=namespace, read_only=True) as other:
            other.feedback("1", score=0.0, comment="Zebulons word")
        assert holding(tmp_path, "Zebulon")
        memory.forget(user_id="zeb")
        assert holding(tmp_path, "Zebulon") == []
        assert memory.flush()
    assert holding(tmp_path, "Zebulon") == []


# --- forgetting in between ---


def test_what_a_cold_start_is_judging_is_not_kept_when_its_user_is_forgotten(tmp_path: Path) -> None:
    call = {"name": "a", "args": {"of": "Zebulon"}, "id": "call_1", "type": "tool_call"}
    answered = [AIMessage("", tool_calls=[call]), ToolMessage("1", tool_call_id="call_1"), AIMessage("Done.")]

    class Agent:
        def invoke(self, state: dict[str, Any], config: Any) -> Any:
            return {"messages": [*state["messages"], *answered]}

    with ToolMemory(tmp_path, namespace=PER_USER, methods=[Entries()]) as memory:

        def reply(request: dict[str, Any]) -> str:
            if request["response_format"]["json_schema"]["name"] == "Judgement":
                memory.forget(user_id="zeb")
                return json.dumps({"why": "Zebulon.", "done": "yes"})
            return json.dumps({"queries": [{"text": "Please write a letter to Zebulon.", "tools": ["a"]}]})

        with OpenAIStubServer(reply) as server:
            model = make_chat_model(server, max_retries=0)
            sandbox = Sandbox(Agent(), [h.schema("a", "of")])
            options: Any = {"judge": model, "budget": Budget(queries=1), "user_id": "zeb"}
            done = Bootstrap(memory, sandbox, model, **options).run()
            assert done.stopped == "a user was forgotten meanwhile"
        assert memory.entries.recall("Please write a letter", user_id="zeb") == []
    assert holding(tmp_path, "Zebulon") == []


def test_what_was_reported_before_a_forgetting_does_not_come_back_after_it(tmp_path: Path) -> None:
    critic = Critic()

    def reports(number: int) -> None:
        for i in range(4):
            name = f"z{number}-{i}"
            memory.finish(mail(f"Zebulon {name}"), thread_id=name, success=False, comment="Zebulon", user_id="zeb")
            memory.entries.recollect(asking("Zebulon"), thread_id=f"{name}-next", user_id="zeb", budget=BUDGET)
            memory.feedback(name, score=0.1, comment="Zebulons word", user_id="zeb")

    with ToolMemory(tmp_path, methods=[Entries(critic=critic)]) as memory:
        threads = [threading.Thread(target=reports, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        memory.forget(user_id="zeb")  # while entries and critiques are being written
        assert holding(tmp_path, "Zebulon") == []
        assert memory.flush()
        assert holding(tmp_path, "Zebulon") == []
        assert memory.entries.recall("send a mail to Zebulon") == []


# --- work that does not end ---


def test_entries_do_not_wait_for_a_critic_that_hangs() -> None:
    critic = Critic()
    with ToolMemory.ephemeral(methods=[Entries(critic=critic)]) as memory:
        critic.go.clear()
        memory.finish(mail("Ann"), thread_id="1", success=False)
        until(lambda: critic.asked != [])
        memory.finish(mail("Bob"), thread_id="2", success=True)
        until(lambda: "send a mail to Bob" in shown(memory.entries.recollect(asking("Cid"))))
        until(lambda: memory.report().jobs.pending == 1)
        assert "still to be written: 1" in str(memory.report())
        critic.go.set()
        assert memory.flush()
        assert [bool(entry.critique) for entry in memory.entries.recall("send a mail to Cid") if entry.failed] == [True]


# --- parts that fail ---


def test_where_no_thread_is_to_be_had_verdicts_find_their_run_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", none_left)
            memory.finish(mail("Zebulon"), thread_id="1")
            memory.feedback("1", score=0.0, comment="wrong")
        (entry,) = memory.entries.recall("send a mail to Ann")
        assert (entry.score, entry.comment) == (0.0, "wrong")
    assert "background work could not begin" in caplog.text
    assert "Zebulon" not in caplog.text


def until(happened: Callable[[], bool]) -> None:
    """StepBudget, up to the test's time limit."""
    while not happened():
        time.sleep(0.01)
