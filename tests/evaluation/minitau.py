"""A small environment in tau2-bench's shape: a library desk with five tasks. `install` puts it in as `tau2`."""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

PEOPLE = {
    f"R{n}": {"user_id": f"R{n}", "name": name, "loans": [f"#W{n}"]} for n, name in enumerate(["Ann", "Bo", "Cy"])
}
LOANS = {f"#W{n}": {"order_id": f"#W{n}", "user_id": f"R{n}", "book": f"Book {n}", "state": "out"} for n in range(3)}


class ToolCall(BaseModel):
    id: str = ""
    name: str
    arguments: dict[str, Any]
    requestor: str = "assistant"


class Message(BaseModel):
    role: str
    content: str | None = None
    tool_calls: list[ToolCall] | None = None
    raw_data: dict[str, Any] | None = None


class ToolMessage(BaseModel):
    id: str
    role: str = "tool"
    content: str | None = None
    requestor: str = "assistant"
    error: bool = False


class MultiToolMessage(BaseModel):
    role: str = "tool"
    tool_messages: list[ToolMessage]


class Kind(str, Enum):
    READ = "read"
    WRITE = "write"


class Tools:
    kinds: ClassVar = {
        "find_user_id_by_name": Kind.READ,
        "get_user_details": Kind.READ,
        "get_order_details": Kind.READ,
        "renew_loan": Kind.WRITE,
        "cancel_loan": Kind.WRITE,
    }
    arguments: ClassVar = {
        "find_user_id_by_name": "name",
        "get_user_details": "user_id",
        "get_order_details": "order_id",
        "renew_loan": "order_id",
        "cancel_loan": "order_id",
    }

    def __init__(self) -> None:
        self.people, self.loans = deepcopy(PEOPLE), deepcopy(LOANS)

    def has_tool(self, name: str) -> bool:
        return name in self.kinds

    def use(self, name: str, args: dict[str, Any]) -> Any:
        (value,) = args.values()
        if name == "find_user_id_by_name":
            return next(user for user, person in self.people.items() if person["name"] == value)
        if name == "get_user_details":
            return self.people[value]
        if name != "get_order_details":
            self.loans[value]["state"] = {"renew_loan": "renewed", "cancel_loan": "cancelled"}[name]
        return self.loans[value]


class Phone:
    def __init__(self) -> None:
        self.card = "locked"


class Environment:
    def __init__(self) -> None:
        self.tools, self.phone = Tools(), Phone()

    def get_policy(self) -> str:
        return "Renew or cancel loans for the person who has them."

    def get_tools(self) -> list[Any]:
        def schema(name: str, argument: str) -> dict[str, Any]:
            parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
            return {"function": {"name": name, "description": name.replace("_", " "), "parameters": parameters}}

        return [SimpleNamespace(name=n, openai_schema=schema(n, a)) for n, a in Tools.arguments.items()]

    def get_response(self, call: ToolCall) -> ToolMessage:
        error = False
        try:
            if call.requestor == "user":
                self.phone.card = "unlocked"
                result: Any = "unlocked"
            else:
                result = self.tools.use(call.name, call.arguments)
        except (LookupError, ValueError, StopIteration) as problem:
            result, error = f"Error: {problem}", True
        content = result if isinstance(result, str) else json.dumps(result)
        return ToolMessage(id=call.id, content=content, requestor=call.requestor, error=error)

    def state(self) -> Any:
        return deepcopy((self.tools.loans, self.phone.card))


def _task(number: int, person: int, tool: str, *, unlock: bool = False) -> Any:
    name, loan = PEOPLE[f"R{person}"]["name"], f"#W{person}"
    calls = [
        ("find_user_id_by_name", {"name": name}, "assistant"),
        ("get_user_details", {"user_id": f"R{person}"}, "assistant"),
        ("get_order_details", {"order_id": loan}, "assistant"),
        *([("unlock_card", {}, "user")] if unlock else []),
        (tool, {"order_id": loan}, "assistant"),
    ]
    actions = [SimpleNamespace(name=n, arguments=a, requestor=r) for n, a, r in calls]
    wish = {"renew_loan": "renewed", "cancel_loan": "cancelled"}[tool]
    reason = f"You want your loan {loan} {wish}." + (" Your card is locked." if unlock else "")
    instructions = SimpleNamespace(reason_for_call=reason, known_info=f"You are {name}.")
    return SimpleNamespace(
        id=str(number),
        user_scenario=SimpleNamespace(instructions=instructions),
        evaluation_criteria=SimpleNamespace(actions=actions, communicate_info=[f"Book {person}"]),
    )


TASKS = [
    _task(0, 0, "renew_loan"), _task(1, 1, "renew_loan"), _task(2, 2, "renew_loan"), _task(3, 1, "cancel_loan"),
    _task(4, 2, "renew_loan", unlock=True),
]  # fmt: skip


class Orchestrator:
    def __init__(self, *, domain: str, agent: Any, user: Any, environment: Any, task: Any, **_: Any) -> None:
        self.agent, self.user, self.environment, self.task = agent, user, environment, task
        self.messages: list[Any] = []

    def run(self) -> None:
        opening = Message(role="assistant", content="Hi! How can I help you today?")
        agent_state, user_state = self.agent.get_init_state([opening]), self.user.get_init_state()
        self.messages, message, to_user = [opening], opening, True
        for _ in range(100):
            side, state = (self.user, user_state) if to_user else (self.agent, agent_state)
            message, _ = side.generate_next_message(message, state)
            self.messages.append(message)
            if message.tool_calls:
                results = [self.environment.get_response(call) for call in message.tool_calls]
                self.messages += results
                message = results[0] if len(results) == 1 else MultiToolMessage(tool_messages=results)
                continue
            if to_user and "###STOP###" in (message.content or ""):
                return
            to_user = not to_user
        raise AssertionError("the conversation does not end")


def run_simulation(orchestrator: Orchestrator, *, evaluation_type: str) -> Any:
    orchestrator.run()
    criteria, right = orchestrator.task.evaluation_criteria, Environment()
    for action in criteria.actions:
        right.get_response(ToolCall(name=action.name, arguments=action.arguments, requestor=action.requestor))
    said = " ".join(m.content or "" for m in orchestrator.messages if m.role == "assistant")
    fine = orchestrator.environment.state() == right.state() and all(info in said for info in criteria.communicate_info)
    reward = SimpleNamespace(reward=float(fine))
    return SimpleNamespace(messages=orchestrator.messages, reward_info=reward, termination_reason="user_stop")


class Registry:
    def get_env_constructor(self, name: str) -> Any:
        return {"library": Environment}[name]

    def get_tasks_loader(self, name: str) -> Any:
        return {"library": lambda: TASKS}[name]

    def get_task_splits_loader(self, name: str) -> Any:
        return lambda: {"train": ["0", "1", "2"], "test": ["3", "4"]}


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the modules in under the benchmark's names."""
    kinds = SimpleNamespace(ALL="all", ALL_IGNORE_BASIS="all_ignore_basis")
    message = {
        "ToolCall": ToolCall, "AssistantMessage": Message, "UserMessage": Message, "ToolMessage": ToolMessage,
    }  # fmt: skip
    modules: dict[str, dict[str, Any]] = {
        "tau2": {"__path__": []},
        "tau2.registry": {"registry": Registry()},
        "tau2.data_model.message": message,
        "tau2.environment.toolkit": {"get_tool_types": lambda tools: tools.kinds},
        "tau2.orchestrator.orchestrator": {"Orchestrator": Orchestrator},
        "tau2.runner.simulation": {"run_simulation": run_simulation},
        "tau2.evaluator.evaluator": {"EvaluationType": kinds},
    }
    for parent in {name.rpartition(".")[0] for name in modules} - {"", *modules}:
        modules[parent] = {"__path__": []}
    for name, members in modules.items():
        module = ModuleType(name)
        module.__spec__ = SimpleNamespace(name=name)  # type: ignore[assignment]
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
