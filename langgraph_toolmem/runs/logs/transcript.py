"""One conversation as plain chat messages, built from the parts of a log, with a count of the left-out parts.

A format is recognised by places in a record (`Signature`), and an unknown record is compared with them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from langgraph_toolmem.base.text import digest

Fields = dict[str, Any]
NumberedFields: TypeAlias = tuple[int, Fields]
"""The fields of a record or of a run, and the number of its line."""


class CalledFunction(NamedTuple):
    """Name and arguments of a call as in a log: of any type, and the arguments often as JSON."""

    name: Any
    arguments: Any


def function_of(call: Fields) -> CalledFunction:
    """Return the function of a call: OpenAI nests it below "function", LangChain says "args"."""
    function = call.get("function") or call
    return CalledFunction(function.get("name"), function.get("arguments", function.get("args")))


def inner_object(fields: Fields, key: str) -> Fields:
    """Return the object under a key, otherwise the fields themselves."""
    inner = fields.get(key)
    if isinstance(inner, dict):
        return inner
    return fields


def first_of(fields: Fields, *keys: str) -> Any:
    """Return the first value under one of the keys that is not empty, or None."""
    for key in keys:
        value = fields.get(key)
        if value:
            return value
    return None


BROKEN_ARGUMENTS: Final = "calls whose arguments are not a JSON object"
ROLES: Final = {"human": "user", "ai": "assistant", "model": "assistant", "gpt": "assistant", "bot": "assistant"}


class Transcript:
    """Messages of one conversation while they are read, front to back.

    Attributes:
        messages: chat messages as `parse_run` takes them.
        left_out: number of parts that were not read, by kind.
        dialects: names of the message formats that were recognised, in order.
    """

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.left_out: Counter[str] = Counter()
        self.dialects: dict[str, None] = {}
        self._numbered = 0
        # Ids of calls without a result, by tool: several formats pair results with calls only by name and order.
        self._waiting: defaultdict[str, deque[str]] = defaultdict(deque)
        self._turns: dict[str, Fields] = {}
        self._answer: Fields | None = None  # message of the model to which further parts of the same answer are added

    def leave_out(self, kind: str, number: int = 1) -> None:
        """Count parts that are not read."""
        if number:
            self.left_out[kind] += number

    def keep(self, message: Fields) -> None:
        """Add a message that is a chat message already."""
        self._answer = None
        self.messages.append(message)
        for call in message.get("tool_calls") or ():
            function = function_of(call)
            if arguments_of(function.arguments) is None:
                self.leave_out(BROKEN_ARGUMENTS)
            self._waiting[str(function.name)].append(str(call.get("id") or ""))

    def say(self, role: Any, text: str, *, turn: str | None = None) -> None:
        """Add a text of the user, the model or the system."""
        role = ROLES.get(str(role), str(role))
        if role != "assistant":
            self._answer = None
            self.messages.append({"role": role, "content": text})
            return
        answer = self._message_of_the_model(turn)
        answer["content"] += text

    def call(self, name: Any, arguments: Any, call_id: Any = None, *, turn: str | None = None) -> str:
        """Add a call of the model to its current message; return the call's id.

        Args:
            name: name of the tool.
            arguments: a dict, or its JSON.
            call_id: id in the log; made if it is missing.
            turn: id of the model's answer, if a log writes its parts separately.
        """
        values = arguments_of(arguments)
        if values is None:
            self.leave_out(BROKEN_ARGUMENTS)
            return ""
        if not isinstance(name, str) or not name:
            self.leave_out("calls without a tool's name")
            return ""
        if not call_id:  # Gemini, ToolBench and older OpenAI logs have none
            self._numbered += 1
            call_id = f"call_{self._numbered}"
        answer = self._message_of_the_model(turn)
        answer.setdefault("tool_calls", []).append({"id": str(call_id), "name": name, "args": values})
        self._waiting[name].append(str(call_id))
        return str(call_id)

    def answer(self, content: Any, call_id: Any = None, *, name: Any = None, failed: object = False) -> None:
        """Add the result of a call: by its id, or of the oldest call of the tool `name` without a result."""
        if not call_id:
            waiting = self._waiting[str(name)]
            if not waiting:
                self.leave_out("results of no call")
                return
            call_id = waiting.popleft()
        self._answer = None
        message = {"role": "tool", "tool_call_id": str(call_id), "content": result_text(content)}
        if failed:
            message["status"] = "error"
        self.messages.append(message)

    def end_answer(self) -> None:
        """Begin a new message with the model's next part."""
        self._answer = None

    def _message_of_the_model(self, turn: str | None) -> Fields:
        if turn is not None and turn in self._turns:
            return self._turns[turn]
        if self._answer is None or turn is not None:
            self._answer = {"role": "assistant", "content": ""}
            self.messages.append(self._answer)
        if turn is not None:
            self._turns[turn] = self._answer
        return self._answer


def arguments_of(value: Any) -> Fields | None:
    """Return a call's arguments; {} without arguments, None if they are not a JSON object."""
    if value is None:
        return {}
    if isinstance(value, str):
        try:
            # Models write line breaks into the texts of their JSON, which only `strict=False` accepts.
            value = json.loads(value.strip() or "{}", strict=False)
        except (ValueError, RecursionError):
            return None
    if isinstance(value, dict):
        return value
    return None


def result_text(content: Any) -> str:
    """Return a result as text: texts of content blocks joined, other values as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content and all(is_text(block) for block in content):
        return joined_text(content)
    return json.dumps(content, ensure_ascii=False, default=str)


def is_text(block: Any) -> bool:
    """Return True for a text or a text block."""
    return isinstance(block, str) or (isinstance(block, dict) and isinstance(block.get("text"), str))


def joined_text(content: Any) -> str:
    """Join the texts of a message's content."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Iterable):
        return ""
    text = ""
    for block in content:
        if isinstance(block, str):
            text += block
        else:
            text += str(block.get("text") or "")
    return text


def decoded(value: Any) -> Any:
    """Return the value of a text that is JSON of an object or a list; other values as they are."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


@dataclass(frozen=True, slots=True)
class TranscriptSnapshot:
    """A conversation at one moment, from a log of model calls: its line, its id and other facts, its messages."""

    line: int
    facts: Fields
    transcript: Transcript


def latest_snapshots(snapshots: Sequence[TranscriptSnapshot]) -> Iterator[NumberedFields]:
    """Yield runs of one thread in order, without the histories with which a later one begins.

    Each call of a model is logged with the whole history before it. Agents may take turns in one thread, so a history
    is compared with all later ones. System messages differ between calls (the date) and are not compared.
    """
    covered: set[str] = set()
    kept: list[TranscriptSnapshot] = []
    # From the back: a history is covered if its last position was passed by a later one.
    for snapshot in reversed(snapshots):
        positions = _positions(snapshot.transcript.messages)
        if positions and positions[-1] not in covered:
            kept.append(snapshot)
        covered.update(positions)
    if snapshots and not kept:
        # No message was read: the count of left-out parts is passed on, so that the log shows the reason.
        nothing = Transcript()
        for snapshot in snapshots:
            nothing.left_out.update(snapshot.transcript.left_out)
        yield snapshots[0].line, {"messages": nothing}
    for snapshot in reversed(kept):
        yield snapshot.line, {**snapshot.facts, "messages": snapshot.transcript}


def _positions(messages: Iterable[Any]) -> list[str]:
    """Return a digest of each message and of all before it."""
    position = ""
    positions: list[str] = []
    for message in messages:
        fields = message
        if not isinstance(message, dict):
            fields = {"content": message}
        # A prompt that names the date differs between the calls of one conversation.
        if fields.get("role", fields.get("type")) == "system":
            continue
        calls = []
        for call in fields.get("tool_calls") or ():
            function = function_of(call)
            calls.append([function.name, arguments_of(function.arguments)])
        content = json.dumps([joined_text(_content_of(fields)), calls], sort_keys=True, default=str)
        position = digest(position, content)
        positions.append(position)
    return positions


def _content_of(fields: Fields) -> Any:
    content = fields.get("content")
    if content is None and isinstance(fields.get("data"), dict):  # messages_to_dict
        content = fields["data"].get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return [block for block in content if isinstance(block, (str, dict))]
    return json.dumps(content, default=str)


# --- places that identify a format ---

Signature: TypeAlias = tuple[str, ...]
"""Places that a record has: ``a.b`` is a key in an object, ``a[].b`` one in an element of a list, ``a=x|y`` a value."""


class NumberedRecord(NamedTuple):
    """A record of a file with its line number, or a `LogError` for an unreadable record."""

    line: int
    record: Any


def numbered(records: Iterable[Any]) -> list[NumberedRecord]:
    """Return records with their places, from 1."""
    return [NumberedRecord(*place) for place in enumerate(records, start=1)]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A message format.

    Attributes:
        name: its name, for people.
        signatures: a message is of the format if it has all places of one signature.
        convert: adds a message to a transcript.
    """

    name: str
    signatures: tuple[Signature, ...]
    convert: Callable[[Fields, Transcript], None]


@dataclass(frozen=True, slots=True)
class LogFormat:
    """Records as one program writes them.

    Attributes:
        name: its name, for people.
        signatures: see `Dialect`.
        read: yields line number and fields of each run (`messages` may be a `Transcript`), from all records of a file.
    """

    name: str
    signatures: tuple[Signature, ...]
    read: Callable[[list[NumberedRecord]], Iterator[NumberedFields]]


def has_shape(value: Any, signatures: Iterable[Signature]) -> bool:
    """Return True if a value has every place of one of the signatures."""
    return any(_first_missing(value, signature) is None for signature in signatures)


def describe_nearest(value: Any, known: Iterable[Dialect | LogFormat]) -> str:
    """Return the known format that shares the largest part of its places with a value, and the first that differs."""
    best, most, missing = "", 0.0, ""
    for candidate in known:
        for signature in candidate.signatures:
            share = _share_of_signature(value, signature)
            if share > most:
                best, most, missing = candidate.name, share, _first_missing(value, signature) or ""
    if not best:
        return "no known format is near it"
    return f"the nearest known format is {best}, which has {missing!r}"


def _share_of_signature(value: Any, signature: Signature) -> float:
    return sum([_share_of_path(value, place) for place in signature]) / len(signature)


def _share_of_path(value: Any, place: str) -> float:
    """Return the share of a place's keys that a value has, from the front; the place itself counts as one more."""
    path = place.partition("=")[0]
    keys = path.split(".")
    shared = int(_has_place(value, place))
    for end in range(1, len(keys) + 1):
        shared += _has_place(value, ".".join(keys[:end]))
    return shared / (len(keys) + 1)


def _first_missing(value: Any, signature: Signature) -> str | None:
    for place in signature:
        if not _has_place(value, place):
            return place
    return None


def _has_place(value: Any, place: str) -> bool:
    path, _, wanted = place.partition("=")
    values: list[str] = []
    if wanted:
        values = wanted.split("|")
    return _has_path(value, path.split("."), values)


def _has_path(value: Any, keys: Sequence[str], wanted: Sequence[str]) -> bool:
    if not keys:
        return not wanted or str(value) in wanted
    name = keys[0].removesuffix("[]")
    if not isinstance(value, dict) or name not in value:
        return False
    inner = value[name]
    if name == keys[0]:
        return _has_path(inner, keys[1:], wanted)
    if not isinstance(inner, list):
        return False
    return any(_has_path(element, keys[1:], wanted) for element in inner)


def dicts(values: Any) -> list[Fields]:
    """Return the objects of a list; [] for other values."""
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, dict)]


def objects_of(records: Iterable[NumberedRecord]) -> Iterator[NumberedFields]:
    """Yield the records that are objects."""
    for line, record in records:
        if isinstance(record, dict):
            yield line, record
