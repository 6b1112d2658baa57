"""Kinds of tasks, and how their plans are carried out.

A plan is a plain function that makes calls through `do` and uses what comes back:

    person = do("find_person", name=slots["person"])["people"][0]
    do("send_email", to=person["email"], subject=…, body=…)

The same plan serves twice: `Direct` carries it out at once (the ideal script of a task), and `Replay` runs it
again from the start at every turn over the calls that are in the conversation already, and stops at the first
one that is missing. So the assistant needs no state besides the conversation, and it does not matter who made
a call.
"""

from __future__ import annotations

import json
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from langchain_core.tools import StructuredTool

from .alternatives import ADAPTERS, Adapter
from .check import Change
from .data import Database, Record, make_database

Slots = dict[str, str]
"""What varies in a request: slot name -> the words in the text."""

HARMLESS = frozenset({"limit", "location", "style"})
"""Arguments that make no difference to what a plan needs."""

ATTEMPTS = 4  # after that many failures of a call the assistant gives up
_SLOT_PATTERNS = {"date": r"\d{4}-\d\d-\d\d", "minutes": r"\d+", "time": r"\d\d:\d\d"}


@dataclass(frozen=True)
class Call:
    """A tool call that should be made."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """A tool call that was made, by whomever."""

    tool: str
    args: Mapping[str, Any]
    ok: bool
    output: Any


class Pending(Exception):  # noqa: N818 - it is no error
    """The plan needs these calls next."""

    def __init__(self, calls: Sequence[Call]) -> None:
        """See the class."""
        super().__init__(", ".join(call.tool for call in calls))
        self.calls = tuple(calls)


class GaveUp(Exception):  # noqa: N818 - it is a decision
    """A call failed too often."""


class Do(ABC):
    """Carries out calls; returns their parsed outputs."""

    @abstractmethod
    def all(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        """Several independent calls at once."""

    def __call__(self, tool: str, /, **args: Any) -> Any:
        """One call."""
        return self.all((tool, args))[0]

    def person(self, name: str) -> Record:
        """Look up a colleague."""
        found: Record = self("find_person", name=name)["people"][0]
        return found


class Direct(Do):
    """Calls the tools at once and keeps a list of the calls."""

    def __init__(self, tools: Sequence[StructuredTool]) -> None:
        """See the class."""
        self.calls: list[Call] = []
        self._tools = {tool.name: tool for tool in tools}

    def all(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        """See `Do`."""
        self.calls += [Call(tool, args) for tool, args in calls]
        return [self._tools[tool].invoke(args) for tool, args in calls]


@dataclass
class Replay(Do):
    """Answers calls from the results at hand; raises `Pending` for those that are missing.

    Attributes:
        results: every call of the conversation since the user spoke, with its output.
        offered: names of the tools that may be called.
    """

    results: Sequence[Result]
    offered: frozenset[str]

    def all(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        """See `Do`."""
        found = [self._one(tool, args) for tool, args in calls]
        missing = [item for item in found if isinstance(item, Call)]
        if missing:
            raise Pending(missing)
        return found

    def _one(self, tool: str, args: dict[str, Any]) -> Any:
        options = [Adapter(tool), *ADAPTERS.get(tool, ())]
        options = [option for option in options if option.tool in self.offered]
        failures = 0
        for option in options:
            wanted = option.args(args)
            for result in self.results:
                if result.tool == option.tool and _matches(result.args, wanted):
                    if result.ok:
                        return option.output(result.output, args)
                    failures += 1
        if failures >= ATTEMPTS or not options:
            raise GaveUp(tool)
        option = options[failures % len(options)]
        return Call(option.tool, option.args(args))


def _matches(made: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return _plain(made) == _plain(wanted)


def _plain(args: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: json.dumps(sorted(map(str, value)) if isinstance(value, list) else str(value).strip()).casefold()
        for key, value in args.items()
        if value is not None and key not in HARMLESS
    }


class World:
    """A fresh office as somebody sees it who makes up tasks: its records, without going through tools."""

    def __init__(self, seed: int) -> None:
        """See the class."""
        self.seed = seed
        self.database: Database = make_database(seed)
        self.people = list(self.database["people"].values())

    def records(self, collection: str, **fields: Any) -> list[Record]:
        """Records whose fields have these values."""
        return [
            record
            for record in self.database[collection].values()
            if all(record[name] == value for name, value in fields.items())
        ]

    def email_of(self, name: str) -> str:
        """Address of a colleague."""
        return str(self.records("people", name=name)[0]["email"])

    def two_people(self, rng: random.Random) -> tuple[str, str]:
        """Names of two different colleagues."""
        first, second = rng.sample(self.people, 2)
        return first["name"], second["name"]

    def emails_from(self, name: str) -> list[Record]:
        """Received e-mails of a colleague, newest first."""
        found = [email for email in self.records("emails") if email["from"]["name"] == name]
        return sorted(found, key=lambda email: str(email["received"]), reverse=True)

    def events_on(self, day: str) -> list[Record]:
        """Meetings of a day, earliest first."""
        found = [event for event in self.records("events") if event["start"].startswith(day)]
        return sorted(found, key=lambda event: str(event["start"]))

    def customer(self, company: str) -> Record:
        """A customer by the company's name."""
        return self.records("customers", company=company)[0]


class Kind(ABC):
    """A kind of task: how it is worded, how it is solved, and what it changes.

    Attributes:
        name: name of the kind.
        weight: how often it comes up, against the others.
        wordings: texts with ``{slots}``.
    """

    name: ClassVar[str]
    weight: ClassVar[int] = 2
    wordings: ClassVar[tuple[str, ...]]

    @abstractmethod
    def pick(self, rng: random.Random, world: World) -> Slots:
        """Draw what varies, so that the task can be solved."""

    @abstractmethod
    def plan(self, do: Do, slots: Slots) -> str:
        """Solve it; returns the closing words."""

    @abstractmethod
    def expect(self, world: World, slots: Slots) -> list[Change]:
        """What must have changed in the end, worked out from the fresh records and not from the plan."""

    def understand(self, text: str) -> Slots | None:
        """The slots, if the text is one of this kind's wordings."""
        for wording in self.wordings:
            found = _pattern(wording).fullmatch(text.strip())
            if found:
                return found.groupdict()
        return None


_patterns: dict[str, re.Pattern[str]] = {}


def _pattern(wording: str) -> re.Pattern[str]:
    if wording not in _patterns:
        parts = re.split(r"\{(\w+)\}", wording)
        text = "".join(
            re.escape(part) if n % 2 == 0 else f"(?P<{part}>{_SLOT_PATTERNS.get(part.split('_')[-1], '.+?')})"
            for n, part in enumerate(parts)
        )
        _patterns[wording] = re.compile(text, re.IGNORECASE)
    return _patterns[wording]
