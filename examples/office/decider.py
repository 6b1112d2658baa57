"""A scripted decider for the office, in place of a language model that gives structured output.

It understands the wordings of the demo and nothing else. What it shares with a competent model: it sees the prompt
only, calls candidate APIs only, remembers the results it was shown, searches when a candidate is missing, takes what
stands in for an API that failed if it is among the candidates, and says so if nothing is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from examples.office.alternatives import ADAPTERS
from examples.office.assistant import understand
from examples.office.plan import GaveUp, Pending, Replay, Result
from langgraph_toolmem.testing import ScriptedChatModel

_SECTION = re.compile(r"^## ([^\n]+)\n---\n(.*?)\n---$", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"^(\w+)\((?=\{)", re.MULTILINE)
_OUTCOME = re.compile(r"\) -> (ok|failed|refused): ")


class OfficeDecider:
    """The script of a `ScriptedChatModel`; one for one run at a time."""

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._searched: set[str] = set()

    def __call__(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        """The decision, as the call of the tool that stands for the structured output."""
        shown = dict(_SECTION.findall(messages[1].text))
        if not tools:
            return AIMessage("I had to stop before I was done.")
        if "Calls that were made" not in shown:
            self._results.clear()
        if "Last decision" not in shown:
            self._searched.clear()
        self._results += results_of(shown.get("Current observation", ""))
        part = {"rank": 1, "intent": shown["Request"][:60], "analysis": "", "recall": "", "text": "", "api": ""}
        parts = [{**part, **chosen} for chosen in self._choose(shown["Request"], shown.get("Candidate APIs", ""))]
        call = {"name": tools[0]["function"]["name"], "args": {"sub_intents": parts}, "id": "decision"}
        return AIMessage("", tool_calls=[{**call, "type": "tool_call"}])

    def _choose(self, request: str, candidates: str) -> list[dict[str, Any]]:
        offered = frozenset(re.findall(r"^- (\w+)\(", candidates, re.MULTILINE))
        found = understand(request)
        if found is None:
            return [{"action": "answer", "text": "This is none of the wordings I know."}]
        kind, slots = found
        try:
            return [{"action": "answer", "text": kind.plan(Replay(self._results, offered), slots)}]
        except Pending as pending:
            return [
                {"action": "execute", "api": call.tool, "parameters": json.dumps(call.args)} for call in pending.calls
            ]
        except GaveUp as missing:
            wanted = str(missing)
            if wanted not in self._searched:
                self._searched.add(wanted)
                return [{"action": "retrieve", "recall": f"An API that can {wanted.replace('_', ' ')}"}]
            return [{"action": "answer", "text": f"I could not do this: {wanted} does not work and nothing else does."}]
        except (LookupError, TypeError, StopIteration, ValueError):
            return [{"action": "answer", "text": "I could not do this: I did not find what it is about."}]


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
            found.append(Result(tool, args, outcome[1] == "ok", _value(rest[outcome.end() :].rstrip("\n"))))
    return found


def stand_ins(tool: str) -> Sequence[str]:
    """The tools that the decider knows to use in place of another one."""
    return [adapter.tool for adapter in ADAPTERS.get(tool, ())]


def _value(text: str) -> Any:
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return text
    return value if isinstance(value, dict | list) else text
