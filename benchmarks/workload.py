"""A synthetic but plausible workload of any size, seeded.

An agent has `tools` tools and is asked for the same kinds of things again and again: a kind of request is a
chain of two to four tools and a sentence with a gap; kinds are drawn by Zipf's law, what fills the gap from many
names. The first call takes the name from the user's words, each later one an id from the output before it, and
each tool has an option with a usual value.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

_VERBS: Final = ("find", "list", "open", "update", "send", "archive", "check", "book", "cancel", "assign")
_LOOKUPS: Final = ("find", "list", "check")
_NOUNS: Final = (
    "invoice", "order", "ticket", "contract", "meeting", "parcel", "claim", "report", "lead", "refund",
    "asset", "policy", "vendor", "shift", "device", "room", "course", "permit", "recipe", "sample",
)  # fmt: skip
_OPENINGS: Final = ("Please", "Could you", "I need you to", "Would you kindly", "Can you")
_FIRST: Final = (
    "Ana", "Bilal", "Chloe", "Dmitri", "Emeka", "Farah", "Greta", "Hiro", "Ines", "Jonas",
    "Keiko", "Lars", "Mona", "Nadia", "Olu", "Priya", "Quentin", "Rosa", "Sven", "Tariq",
)  # fmt: skip
_LAST: Final = (
    "Adler", "Brandt", "Costa", "Duran", "Eriksen", "Fischer", "Gupta", "Haddad", "Ivanov", "Jensen",
    "Kovacs", "Lindt", "Moreau", "Novak", "Okafor", "Petrov", "Quist", "Rossi", "Silva", "Tanaka",
)  # fmt: skip
_OPTIONS: Final = ("standard", "express", "draft", "full")
_USUAL: Final = 0.9
"""How often a tool's option has its usual value."""
ZIPF: Final = 1.1
_DETOUR: Final = 0.1
"""How often a run leaves its chain after a call."""


@dataclass(frozen=True)
class _Kind:
    chain: tuple[int, ...]
    opening: str
    goal: str


class Workload:
    """Draws runs.

    Args:
        tools: number of tools.
        seed: of everything that is drawn.
    """

    def __init__(self, tools: int, *, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self.names = [_name(i) for i in range(tools)]
        self._kinds = [self._kind() for _ in range(max(40, 2 * tools))]
        self._cumulated = list(accumulate((rank + 1) ** -ZIPF for rank in range(len(self._kinds))))
        self._drawn = 0

    def schemas(self) -> list[dict[str, Any]]:
        """The tools in OpenAI's format."""
        return [_schema(i, name) for i, name in enumerate(self.names)]

    def runs(self, count: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Draws runs: (run id, messages in OpenAI's format), an answer in words at the end of each."""
        for _ in range(count):
            self._drawn += 1
            yield f"run-{self._drawn}", self._run()

    def _kind(self) -> _Kind:
        draw = self._random
        chain = tuple(draw.randrange(len(self.names)) for _ in range(draw.randint(2, 4)))
        words = [self.names[i].replace("_", " the ", 1).replace("_", " ") for i in chain]
        goal = ", then ".join(dict.fromkeys((words[0], words[-1])))
        return _Kind(chain, draw.choice(_OPENINGS), goal)

    def _run(self) -> list[dict[str, Any]]:
        draw = self._random
        kind = self._kinds[bisect(self._cumulated, draw.random() * self._cumulated[-1])]
        name = f"{draw.choice(_FIRST)} {draw.choice(_LAST)}"
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"{kind.opening} {kind.goal} for {name}."}]
        value = name
        for position, planned in enumerate(kind.chain):
            tool = draw.randrange(len(self.names)) if draw.random() < _DETOUR else planned
            usual = _OPTIONS[tool % len(_OPTIONS)]
            args = {
                "target": value,
                "mode": usual if draw.random() < _USUAL else draw.choice(_OPTIONS),
                "limit": 10,
            }
            call_id = f"call_{draw.getrandbits(96):024x}"
            thought = f"I should {self.names[tool].replace('_', ' ')} now." if position else ""
            messages.append(_asked(thought, call_id, self.names[tool], args))
            ids = [f"{_NOUNS[tool % len(_NOUNS)][:3].upper()}-{draw.randrange(10**7):07d}" for _ in range(3)]
            messages.append(_answered(call_id, self.names[tool], ids, name))
            value = ids[0]
        messages.append({"role": "assistant", "content": f"Done: {value}."})
        return messages


def _name(number: int) -> str:
    verb, noun = number % len(_VERBS), (number // len(_VERBS)) % len(_NOUNS)
    desk = number // (len(_VERBS) * len(_NOUNS))
    return f"{_VERBS[verb]}_{_NOUNS[noun]}" + (f"_desk{desk}" if desk else "")


def _schema(number: int, name: str) -> dict[str, Any]:
    verb, _, noun = name.partition("_")
    properties = {
        "target": {"type": "string", "description": f"Which {noun.replace('_', ' ')}: a name or an id."},
        "mode": {"type": "string", "enum": list(_OPTIONS)},
        "limit": {"type": "integer", "minimum": 1},
    }
    function = {
        "name": name,
        "description": f"{verb.capitalize()} the {noun.replace('_', ' ')} of somebody (function {number}).",
        "parameters": {"type": "object", "properties": properties, "required": ["target", "mode"]},
    }
    return {"type": "function", "function": function, "read_only": verb in _LOOKUPS}


def _asked(thought: str, call_id: str, tool: str, args: dict[str, Any]) -> dict[str, Any]:
    # LangChain's own form of a call: its arguments need no parsing, as in a running graph.
    call = {"name": tool, "args": args, "id": call_id, "type": "tool_call"}
    return {"role": "assistant", "content": thought, "tool_calls": [call]}


def _answered(call_id: str, tool: str, ids: list[str], name: str) -> dict[str, Any]:
    items = ", ".join(f'{{"id": "{i}", "state": "open"}}' for i in ids)
    text = f'{{"id": "{ids[0]}", "owner": "{name}", "items": [{items}]}}'
    return {"role": "tool", "tool_call_id": call_id, "name": tool, "content": text}
