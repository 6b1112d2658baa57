"""Stand-ins without a key: a model that knows the task's right actions, and a user that answers it.

The model is not a player of fixed actions. It goes on from the results that its request shows, whoever asked for them;
reads again where a result is missing or is another record's; asks before it changes something; follows a hint at a
stated rate; and errs at others: needless look-ups, look-ups made twice, and look-ups with a wrong id (`Rates`). Its
draws depend on the run's seed and on the point in the plan, so they agree in all arms.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import SkipValidation

from langgraph_toolmem.base.text import canonical, digest
from langgraph_toolmem.evaluation.tau2.rates import Rates
from langgraph_toolmem.turn.hints import FRAME

CONFIRM: Final = "Please confirm (yes or no): "
DO_THIS: Final = "Please do this on your device: "
WHO: Final = "May I have your email address, or your name and zip code?"
LAST: Final = "Is there anything else?"
STOP: Final = "###STOP###"
ID_FIELDS: Final = ("order_id", "user_id", "product_id", "customer_id", "line_id", "bill_id")
MAX_READS: Final = 3
"""Times that a look-up is made whose result does not fit."""
TOKENS_PER_CHAR: Final = 0.25


@dataclass(slots=True)
class StubPlan:
    """The task's right actions, and what is worth a read before them.

    Attributes:
        actions: of the agent and of the user, in order.
        says: texts that the last answer must contain.
        reads: names of the tools that only read.
        tools: names of all tools of the agent.
    """

    actions: Sequence[Any]
    says: Sequence[str]
    reads: set[str]
    tools: set[str]


@dataclass(slots=True)
class StubModel:
    """Answers as the model of one run.

    Attributes:
        plan: of the task.
        rates: see there.
        seed: of the run.
        on_request: is called with the messages of each request.
        hints_followed: number of calls made because of a hint.
        changes_in_hints: changing tools that hints named, in past records, and the rest of the plan does not have.
    """

    plan: StubPlan
    rates: Rates
    seed: int
    on_request: Callable[[Sequence[BaseMessage]], None] = lambda _: None
    hints_followed: int = 0
    changes_in_hints: list[str] = field(default_factory=list)

    def __call__(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        """Return the answer to a request."""
        self.on_request(messages)
        answer = self._answer(_Shown(messages), {tool["function"]["name"] for tool in tools if "function" in tool})
        size = sum(len(str(message.content)) + len(str(getattr(message, "tool_calls", ""))) for message in messages)
        said = len(str(answer.content)) + len(str(answer.tool_calls))
        tokens = int(size * TOKENS_PER_CHAR), int(said * TOKENS_PER_CHAR)
        usage: Any = {"input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": sum(tokens)}
        answer.usage_metadata = usage
        return answer

    def _answer(self, shown: _Shown, offered: set[str]) -> AIMessage:
        number, action = self._next(shown)
        if action is None:
            return AIMessage(" ".join([*map(str, self.plan.says), "All done.", LAST]))
        if action.requestor == "user":
            return AIMessage(DO_THIS + json.dumps({"name": action.name, "arguments": action.arguments}))
        if hinted := self._hinted(shown, number):
            return self._call(hinted[0], hinted[1], shown, offered)
        if (departure := self._departure(shown, number, action)) is not None:
            return self._call(departure[0], departure[1], shown, offered)
        name, args = action.name, action.arguments
        if name not in self.plan.reads:
            if (record := self._unread(shown, args)) is not None:
                return self._call(record[0], record[1], shown, offered)
            text = f"{name} {canonical(args)}"
            if not shown.confirmed(text):
                return AIMessage(CONFIRM + text)
        elif name.startswith("find_") and number == 0 and not shown.user_said(args):
            return AIMessage(WHO)
        return self._call(name, args, shown, offered)

    def _next(self, shown: _Shown) -> tuple[int, Any]:
        """Return the first action of the plan that is not done, with its number; None if all are."""
        left = shown.counts()
        for number, action in enumerate(self.plan.actions):
            key = (action.name, canonical(action.arguments))
            if action.requestor == "user":
                if not shown.user_did(action):
                    return number, action
            elif action.name in self.plan.reads:
                if not shown.has(*key):
                    return number, action
            elif left.get(key, 0):
                left[key] -= 1
            else:
                return number, action
        return len(self.plan.actions), None

    def _call(self, name: str, args: Mapping[str, Any], shown: _Shown, offered: set[str]) -> AIMessage:
        """Return a call; with tools behind a search, search first, and call what the search found."""
        identity = f"s{digest('call', self.seed, len(shown.messages), name, canonical(dict(args)))}"
        if name not in offered and "search_tools" in offered:
            if not shown.found_by_search(name):
                asked = {"query": name.replace("_", " ")}
                return AIMessage("", tool_calls=[tool_call(name="search_tools", args=asked, id=identity)])
            indirect = {"name": name, "arguments": dict(args)}
            return AIMessage("", tool_calls=[tool_call(name="call_tool", args=indirect, id=identity)])
        return AIMessage("", tool_calls=[tool_call(name=name, args=dict(args), id=identity)])

    def _draws(self, what: str, number: int) -> float:
        return random.Random(digest(what, self.seed, number)).random()

    def _departure(self, shown: _Shown, number: int, action: Any) -> tuple[str, Mapping[str, Any]] | None:
        """Return a look-up that the plan does not have, at the rates of a model that errs; None: go on by the plan."""
        if self._draws("err", number) < self.rates.err and (needless := self._needless(shown)):
            return needless
        done = self.plan.actions[number - 1] if number else None
        if done is not None and done.requestor != "user" and self._draws("again", number) < self.rates.again:
            look_up = (done.name, canonical(done.arguments))
            if done.name in self.plan.reads and shown.counts().get(look_up, 0) == 1:
                return done.name, done.arguments
        if action.name in self.plan.reads and self._draws("failed", number) < self.rates.failed:
            wrong = _with_a_wrong_id(action.arguments)
            if wrong is not None and not shown.counts().get((action.name, canonical(wrong)), 0):
                return action.name, wrong
        return None

    def _unread(self, shown: _Shown, args: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Return a read of the record that a change is about, if it was not read."""
        for name in ID_FIELDS:
            reader = f"get_{name.removesuffix('_id')}_details"
            if name in args and reader in self.plan.reads and not shown.has(reader, canonical({name: args[name]})):
                return reader, {name: args[name]}
        return None

    def _needless(self, shown: _Shown) -> tuple[str, dict[str, Any]] | None:
        """Return a look-up of a known record that the plan does not have and that was not made."""
        planned = {(action.name, canonical(action.arguments)) for action in self.plan.actions}
        for name, value in shown.known_ids():
            reader = f"get_{name.removesuffix('_id')}_details"
            key = (reader, canonical({name: value}))
            if reader in self.plan.reads and key not in planned and not shown.has(*key):
                return reader, {name: value}
        return None

    def _hinted(self, shown: _Shown, number: int) -> tuple[str, Mapping[str, Any]] | None:
        """Return the call that a hint leads to, if the model follows one here."""
        named = [name for name in self.plan.tools if re.search(rf"\b{name}\b", shown.hint)]
        if not named or self._draws("follow", number) >= self.rates.follow:
            return None
        planned = {action.name: action for action in self.plan.actions[number:] if action.requestor != "user"}
        for name in sorted(named, key=shown.hint.index):
            action = planned.get(name)
            if name not in self.plan.reads:
                if action is None:
                    self.changes_in_hints.append(name)
                continue  # a change keeps its place in the plan: the policy demands what comes before it
            if action is not None and not shown.has(name, canonical(action.arguments)):
                self.hints_followed += 1
                return name, action.arguments
            for field_name, value in shown.known_ids():
                if name == f"get_{field_name.removesuffix('_id')}_details":
                    args = {field_name: value}
                    if not shown.has(name, canonical(args)):
                        self.hints_followed += 1
                        return name, args
        return None


class StubChatModel(BaseChatModel):
    """A chat model that asks a `StubModel`; hints stand where OpenAI's models take them."""

    script: SkipValidation[StubModel]

    @property
    def _llm_type(self) -> str:
        return "openai"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Bind tools as any chat model does."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        answer = self.script(list(messages), list(kwargs.get("tools", ())))
        return ChatResult(generations=[ChatGeneration(message=answer)])


class _Shown:
    """The contents of a request: exchanges, the user's words, a hint."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        self.messages = messages
        self._results: dict[tuple[str, str], list[tuple[str, bool]]] = {}
        self._found: list[str] = []
        self.hint = ""
        calls: dict[Any, tuple[str, dict[str, Any]]] = {}
        for message in messages:
            for call in getattr(message, "tool_calls", ()):
                name, args = call["name"], call["args"]
                if name == "call_tool" and "name" in args:
                    name, args = args["name"], args.get("arguments", {})
                calls[call["id"]] = (name, args)
            if isinstance(message, ToolMessage) and message.tool_call_id in calls:
                name, args = calls[message.tool_call_id]
                if name == "search_tools":
                    self._found.append(message.text)
                fits = message.status == "error" or _is_about(args, message.text)
                self._results.setdefault((name, canonical(args)), []).append((message.text, fits))
            text = str(message.content)
            if FRAME in text:  # for some models a hint is in the system message, behind the policy
                self.hint = text[text.index(FRAME) + len(FRAME) :]

    def has(self, name: str, args: str) -> bool:
        """Return True if a result of the call is shown and is about its arguments."""
        results = self._results.get((name, args), [])
        return any(fits for _, fits in results) or len(results) >= MAX_READS

    def counts(self) -> dict[tuple[str, str], int]:
        """Return how often each call has a result."""
        return {key: len(results) for key, results in self._results.items()}

    def found_by_search(self, name: str) -> bool:
        """Return True if a search showed the tool."""
        return any(re.search(rf"\b{name}\b", text) for text in self._found)

    def known_ids(self) -> list[tuple[str, str]]:
        """Return ids with their fields, from the arguments and results that are shown."""
        found: list[tuple[str, str]] = []
        for (_, args), results in self._results.items():
            for text in (args, *(text for text, _ in results)):
                for name in ID_FIELDS:
                    found += [(name, value) for value in re.findall(rf'"{name}": ?"([^"]+)"', text)]
                found += [("order_id", value) for value in re.findall(r'"(#W\d+)"', text)]
        return list(dict.fromkeys(found))

    def confirmed(self, text: str) -> bool:
        """Return True if the user said yes to the change."""
        asked = False
        for message in self.messages:
            if isinstance(message, AIMessage) and message.text == CONFIRM + text:
                asked = True
            elif asked and isinstance(message, HumanMessage) and message.text.lower().startswith("yes"):
                return True
        return False

    def user_said(self, args: Mapping[str, Any]) -> bool:
        """Return True if the arguments are in the user's words, or the user was asked for them."""
        words = " ".join(message.text for message in self.messages if isinstance(message, HumanMessage)).lower()
        was_asked = any(isinstance(message, AIMessage) and message.text == WHO for message in self.messages)
        return was_asked or all(str(value).lower() in words for value in args.values())

    def user_did(self, action: Any) -> bool:
        """Return True if the user reported that an action is done."""
        report = _report(action.name, action.arguments)
        return any(isinstance(message, HumanMessage) and report in message.text for message in self.messages)


def _with_a_wrong_id(args: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments whose first id names no record; None without an id."""
    for name in ID_FIELDS:
        if isinstance(args.get(name), str):
            return {**args, name: f"{args[name]}0"}
    return None


def _is_about(args: Mapping[str, Any], text: str) -> bool:
    """Return False for a result that names another record than the call asked for."""
    try:
        result = json.loads(text)
    except ValueError:
        return True
    if not isinstance(result, dict):
        return True
    return all(result[name] == value for name, value in args.items() if name in ID_FIELDS and name in result)


def _report(name: str, args: Mapping[str, Any]) -> str:
    return f"I did it ({name} {canonical(dict(args))})."


class StubUser:
    """The user of one task, by its instructions: says why they call, who they are, yes, and what they did.

    Args:
        task: of the benchmark.
    """

    def __init__(self, task: Any) -> None:
        self._messages = import_module("tau2.data_model.message")
        told = task.user_scenario.instructions
        self._why = str(getattr(told, "reason_for_call", None) or told)
        self._who = str(getattr(told, "known_info", None) or "I told you all that I know.")
        self._doing: tuple[str, dict[str, Any]] | None = None
        self.tools: Any = None

    def get_init_state(self, message_history: Any = None) -> list[Any]:
        """Return the state: none is needed."""
        return []

    def set_seed(self, seed: int) -> None:
        """Do nothing: the user is the same in each run."""

    def stop(self, message: Any = None, state: Any = None) -> None:
        """Do nothing: the conversation is over."""

    def generate_next_message(self, message: Any, state: list[Any]) -> tuple[Any, list[Any]]:
        """Return the user's words, or a call on the user's device."""
        if message.role == "tool":
            assert self._doing is not None
            return self._says(f"{_report(*self._doing)} It says: {message.content}"), state
        text = message.content or ""
        if text.startswith(DO_THIS):
            wanted = json.loads(text.removeprefix(DO_THIS))
            self._doing = (wanted["name"], wanted["arguments"])
            call = self._messages.ToolCall(
                id=f"u{digest('user', text)}", name=wanted["name"], arguments=wanted["arguments"], requestor="user"
            )
            return self._messages.UserMessage(role="user", content=None, tool_calls=[call]), state
        if text.startswith(CONFIRM):
            return self._says("Yes, please do that."), state
        if text == WHO:
            return self._says(self._who), state
        if text.endswith(LAST):
            return self._says(f"No, thank you. {STOP}"), state
        return self._says(self._why), state

    def _says(self, text: str) -> Any:
        return self._messages.UserMessage(role="user", content=text)
