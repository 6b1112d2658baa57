"""A scripted decider for the office, in place of a language model that gives structured output.

It understands the wordings of the demo and nothing else. What it shares with a competent model: it sees the prompt
only, calls candidate APIs only, remembers the results it was shown, thinks ahead and searches for what is missing among
the candidates, takes what stands in for an API that failed if it is among them, and says so if nothing is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from langgraph_toolmem.testing import ScriptedChatModel

from .alternatives import ADAPTERS
from .assistant import understand
from .plan import Do, GaveUp, Kind, Pending, Replay, Result, Slots

_SECTION = re.compile(r"^## ([^\n]+)\n---\n(.*?)\n---$", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"^(\w+)\((?=\{)", re.MULTILINE)
_SAID = re.compile(r"^The user said: (.+)$", re.MULTILINE)
_HALF = re.compile(r"Forward the latest email from (?P<sender>[\w ]+?)\.?")
"""A wording that leaves something open; what the user answers completes it."""
_OUTCOME = re.compile(r"\) -> (ok|failed|refused): ")


class OfficeDecider:
    """The script of a `ScriptedChatModel`; one for one run at a time."""

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._searched: set[str] = set()
        self._said = ""

    def __call__(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        """The decision, as the call of the tool that stands for the structured output."""
        shown = dict(_SECTION.findall(messages[1].text))
        if not tools:
            return AIMessage("I had to stop before I was done.")
        if "Calls that were made" not in shown:
            self._results.clear()
        if "Last decision" not in shown:
            self._searched.clear()
            self._said = ""
        self._results += results_of(shown.get("Current observation", ""))
        self._said = "".join(_SAID.findall(shown.get("Current observation", ""))[:1]) or self._said
        part = {"rank": 1, "intent": shown["Request"][:60], "analysis": "", "recall": "", "text": "", "api": ""}
        parts = [{**part, **chosen} for chosen in self._choose(shown["Request"], shown.get("Candidate APIs", ""))]
        call = {"name": tools[0]["function"]["name"], "args": {"sub_intents": parts}, "id": "decision"}
        return AIMessage("", tool_calls=[{**call, "type": "tool_call"}])

    def _choose(self, request: str, candidates: str) -> list[dict[str, Any]]:
        offered = frozenset(re.findall(r"^- (\w+)\(", candidates, re.MULTILINE))
        found = understand(request)
        if found is None and (half := _HALF.fullmatch(request)):
            if not self._said:
                return [{"action": "clarify", "text": "To whom shall it be forwarded?"}]
            found = understand(f"Forward the latest email from {half['sender']} to {self._said}.")
        if found is None:
            return [{"action": "answer", "text": "This is none of the wordings I know."}]
        kind, slots = found
        try:
            return [{"action": "answer", "text": kind.plan(Replay(self._results, offered), slots)}]
        except Pending as pending:
            calls = [
                {"action": "execute", "api": call.tool, "parameters": json.dumps(call.args)} for call in pending.calls
            ]
            return [*calls, *self._searches(foreseen(kind, slots), offered)]
        except GaveUp as missing:
            wanted = str(missing)
            if searches := self._searches([wanted, *foreseen(kind, slots)], offered):
                return searches
            return [{"action": "answer", "text": f"I could not do this: {wanted} does not work and nothing else does."}]
        except (LookupError, TypeError, StopIteration, ValueError):
            return [{"action": "answer", "text": "I could not do this: I did not find what it is about."}]

    def _searches(self, tools: Sequence[str], offered: frozenset[str]) -> list[dict[str, Any]]:
        """For each of these tools that is not offered, and nothing in its place: an imagined API, once."""
        missing = [tool for tool in dict.fromkeys(tools) if not offered.intersection([tool, *alternatives(tool)])]
        new = [tool for tool in missing if tool not in self._searched]
        self._searched.update(new)
        return [{"action": "retrieve", "recall": f"An API that can {tool.replace('_', ' ')}"} for tool in new]


def make_decider() -> ScriptedChatModel:
    """A chat model that decides for the office."""
    return ScriptedChatModel(script=OfficeDecider())


def results_of(observation: str) -> list[Result]:
    """The calls with their outcomes in an observation."""
    found = []
    starts = [match.start() for match in _CALL.finditer(observation)]
    for start, end in zip(starts, [*starts[1:], len(observation)], strict=False):
        tool, _, rest = observation[start:end].partition("(")
        args, stop = json.JSONDecoder().raw_decode(rest)
        outcome = _OUTCOME.match(rest, stop)
        if outcome is not None:
            output = rest[outcome.end() :].rstrip("\n").replace("\n    ", "\n")
            found.append(Result(tool, args, outcome[1] == "ok", value_of(output)))
    return found


def alternatives(tool: str) -> Sequence[str]:
    """The tools that the decider knows to use in place of another one."""
    return [adapter.tool for adapter in ADAPTERS.get(tool, ())]


def foreseen(kind: Kind, slots: Slots) -> list[str]:
    """The tools that a task of this kind is likely to need, as one who only thinks it through would say."""
    ahead = _Ahead()
    with suppress(LookupError, TypeError, ValueError, AttributeError, StopIteration):
        kind.plan(ahead, slots)  # where it ends, it depends on what comes back
    return ahead.tools


class _Ahead(Do):
    """Carries out nothing; notes what would be called."""

    def __init__(self) -> None:
        self.tools: list[str] = []

    def all(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        self.tools += [tool for tool, _ in calls]
        return [_Something() for _ in calls]


class _Something:
    """An outcome that is not known yet: it has whatever is looked for in it."""

    def __getitem__(self, _: object) -> _Something:
        return self

    def __getattr__(self, _: str) -> _Something:
        return self

    def __call__(self, *_: object, **__: object) -> _Something:
        return self

    def __iter__(self) -> Iterator[_Something]:
        return iter([self])

    def __len__(self) -> int:
        return 1

    def __contains__(self, _: object) -> bool:
        return True

    def __lt__(self, _: object) -> bool:
        return True

    def __eq__(self, _: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 1.0


def value_of(text: str) -> Any:
    """What a tool gave, from its text."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return text
    return value if isinstance(value, dict | list) else text
