"""The whole way with a key: `toolmem eval tau2 --model` on a real `ChatOpenAI`, with the stub behind the protocol."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import minitau
import pytest
from langchain_core.messages import AIMessage, convert_to_messages
from openai_server import OpenAIStubServer

from langgraph_toolmem.cli import main
from langgraph_toolmem.evaluation.tau2.stub import Rates, StubModel, StubPlan, StubUser


class SimulatedUser:
    """The benchmark's user simulator in its shape: it keeps its messages in a state."""

    def __init__(self, task: Any) -> None:
        self._user = StubUser(task)

    def get_init_state(self, message_history: Any = None) -> Any:
        return SimpleNamespace(messages=list(message_history or ()))

    def set_seed(self, seed: int) -> None: ...

    def stop(self, message: Any = None, state: Any = None) -> None: ...

    def generate_next_message(self, message: Any, state: Any) -> tuple[Any, Any]:
        said, _ = self._user.generate_next_message(message, [])
        state.messages += [message, said]
        return said, state


def stub_of(messages: list[Any]) -> StubModel:
    """Return the stub of the task that a request is about, by the user's first words."""
    words = next(message.text for message in messages if message.type == "human")
    task = next(task for task in minitau.TASKS if task.user_scenario.instructions.reason_for_call == words)
    reads = {name for name, kind in minitau.Tools.kinds.items() if kind == "read"}
    criteria = task.evaluation_criteria
    return StubModel(StubPlan(criteria.actions, criteria.communicate_info, reads, set(minitau.Tools.kinds)), Rates(), 1)


def reply(request: dict[str, Any]) -> AIMessage:
    messages = convert_to_messages(request["messages"])
    return stub_of(messages)(messages, request.get("tools", []))


@pytest.fixture
def evaluate(tmp_path, monkeypatch) -> Callable[[], dict[str, Any]]:
    """Run the command on a local server; returns the result with the server's requests."""
    minitau.install(monkeypatch)
    build = ModuleType("tau2.runner.build")
    vars(build)["build_user"] = lambda kind, environment, task, **settings: SimulatedUser(task)
    monkeypatch.setitem(sys.modules, "tau2.runner.build", build)

    def run() -> dict[str, Any]:
        with OpenAIStubServer(reply) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", "none")
            command = ["eval", "tau2", "--domain", "library", "--model", "openai:gpt-5.1", "--price", "1:10"]
            with pytest.raises(SystemExit) as done:
                main([*command, "--arms", "without,with,context", "--out", str(tmp_path / "out")])
            assert not done.value.code
        result = json.loads((tmp_path / "out" / "result.json").read_text())
        return {"arms": result["figures"], "requests": len(server.requests)}

    return run


def test_the_table_counts_what_the_server_got_and_a_restart_asks_nothing(evaluate):
    first = evaluate()
    assert [arm["success"] for arm in first["arms"]] == [1.0, 1.0, 1.0]
    counted = sum(arm["usage"]["model_calls"] + arm["train"]["model_calls"] for arm in first["arms"])
    assert counted == first["requests"] > 0
    assert all(arm["cost"] > 0 for arm in first["arms"])
    again = evaluate()
    assert (again["requests"], again["arms"]) == (0, first["arms"])
