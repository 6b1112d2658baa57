"""Recorded runs from a file or a database of checkpoints; the program that wrote it is recognised.

Plain: one run a line (JSONL), an object with `messages` and, if known, `thread_id` (or `run_id`, or `id`), `task`,
`success`, `user_id` and `times` (seconds since the start, one per message); other keys are ignored. A bare list of
messages is a run as well. Messages may be in any format of `dialects`. The records of other programs are in `sessions`
and `traces`. A part that cannot be read is counted in `RunLog.left_out`, never dropped in silence.

Lines that share an id are one run, seen at different moments: the memory learns each turn once. Lines without an id get
one from their content and line number, so that reading the same file again has no effect. Many records of other
programs describe one conversation; a history that is the beginning of a later one of the thread is left out.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from langgraph_toolmem.base.errors import LogError, MessageError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.runs.logs.dialects import dialect_of, message_of_pair, transcribe
from langgraph_toolmem.runs.logs.files import (
    describe_unknown,
    read_records,
    read_runs,
    read_threads,
    recognise,
    uri_of,
    without_password,
)
from langgraph_toolmem.runs.logs.transcript import Fields, Transcript
from langgraph_toolmem.runs.run import Run, Turn
from langgraph_toolmem.runs.trajectory import parse_run

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

Source: TypeAlias = Union[str, Path, "BaseCheckpointSaver[Any]"]

logger = logging.getLogger("langgraph_toolmem.runs.logs")


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One line of a log; `thread_id` may be a digest of its content and number; `times` in seconds, per message."""

    line: int
    thread_id: str
    messages: list[Any]
    success: bool | None = None
    user_id: str | None = None
    task: str | None = None
    times: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class RunLog:
    """A whole log.

    Attributes:
        runs: its readable runs.
        skipped: errors of lines that were left out.
        shared_ids: number of runs that repeat an earlier id.
        formats: names of the formats that were recognised: of the records, then of the messages.
        calls: number of different calls in the runs.
        results: number of those calls that have a result.
        left_out: number of parts that were not read, by kind.
    """

    runs: tuple[LoggedRun, ...]
    skipped: tuple[LogError, ...]
    shared_ids: int
    formats: tuple[str, ...] = ()
    calls: int = 0
    results: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)

    def summary(self) -> str:
        """Return one line: the recognised formats, and the numbers of runs, calls and results."""
        formats = ", ".join(self.formats) or "nothing recognised"
        line = f"{formats}: {len(self.runs):,} runs, {self.calls:,} calls, {self.results:,} results"
        if self.left_out:
            line += f"; left out: {_counts(self.left_out)}"
        return line


def _counts(left_out: Mapping[str, int]) -> str:
    return ", ".join([f"{number:,} {kind}" for kind, number in left_out.items()])


class _Account:
    """Counts of a log while its runs are read."""

    def __init__(self) -> None:
        self.formats: dict[str, None] = {}
        self.left_out: Counter[str] = Counter()
        self.calls: dict[str, bool] = {}  # by the key of the step, which equal states of a thread share

    def add(self, transcript: Transcript) -> None:
        self.formats.update(transcript.dialects)
        self.left_out.update(transcript.left_out)

    def count(self, run: Run) -> None:
        for turn in run.events:
            if isinstance(turn, Turn):
                for step in turn.steps:
                    has_result = step.status != "unanswered"
                    self.calls[step.key] = self.calls.get(step.key, False) or has_result


def load_runs(source: Source, *, lenient: bool = False, limit: int | None = None) -> RunLog:
    """Read and check a log before learning, so that a log is never imported partly.

    Args:
        source: the file, a synchronous checkpointer, or a database of one (``sqlite:///FILE``, ``postgresql://…``).
        lenient: leave malformed lines out instead of raising `LogError`.
        limit: stop after this number of runs; further lines are not checked.

    Returns:
        The runs, with the recognised formats, the number of calls and the parts left out.

    Raises:
        InputError: The source cannot be read.
        LogError: A line is malformed, and `lenient` is False.
    """
    skipped = list[LogError]()
    account = _Account()

    def read() -> Iterator[LoggedRun]:
        for number, record in _numbered_runs(source, account):
            transcript = None
            if isinstance(record, dict):
                transcript = record.get("messages")
            if isinstance(transcript, Transcript):
                account.add(transcript)
                # A trace without messages is not an error: the counts say what was left out of it.
                if not transcript.messages:
                    continue
            try:
                yield _run(record, number, account)
            except LogError as error:
                problem = LogError(f"{_name(source)}, line {number}: {error}", line=number)
                if not lenient:
                    raise problem from error
                logger.debug("left out: %s", problem)
                skipped.append(problem)

    # All at once: an error in the last line is raised before the first run is learned.
    runs = tuple(islice(read(), limit))
    ids = {run.thread_id for run in runs}
    return RunLog(
        runs,
        tuple(skipped),
        shared_ids=len(runs) - len(ids),
        formats=tuple(account.formats),
        calls=len(account.calls),
        results=sum(account.calls.values()),
        left_out=dict(account.left_out),
    )


def _name(source: Source) -> str:
    """Return the name of a source for messages."""
    if not isinstance(source, (str, Path)):
        return type(source).__name__
    if "://" in str(source):
        return without_password(source)
    return Path(source).name


def _numbered_runs(source: Source, account: _Account) -> Iterator[tuple[int, Any]]:
    checkpoints: str | BaseCheckpointSaver[Any] | None
    if isinstance(source, (str, Path)):
        checkpoints = uri_of(source)
    else:
        checkpoints = source
    if checkpoints is not None:
        account.formats["LangGraph checkpoints"] = None
        yield from enumerate(read_threads(checkpoints), start=1)
        return
    assert isinstance(source, (str, Path))
    records = read_records(Path(source))
    known = recognise(records)
    account.formats[known.name] = None
    yield from read_runs(records, known)


def _run(value: Any, number: int, account: _Account) -> LoggedRun:
    if isinstance(value, LogError):
        raise value
    fields = _fields_of(value, number)
    try:
        transcript = _transcript_of(fields, number, account)
        thread_id = _thread_of(fields, number) or _digest_of(value, transcript, number)
        run = parse_run(transcript.messages, thread_id=thread_id)
    except MessageError as error:
        raise LogError(str(error), line=number) from error
    except RecursionError as error:
        raise LogError("nested too deeply", line=number) from error
    if not transcript.messages:
        left_out = _counts(transcript.left_out) or "nothing"
        raise LogError(f"no message that can be read (left out: {left_out})", line=number)
    account.count(run)
    return LoggedRun(
        line=number,
        thread_id=thread_id,
        messages=transcript.messages,
        success=_success(fields.get("success"), number),
        user_id=_identifier(fields.get("user_id"), "user_id", number),
        task=_task(fields.get("task")),
        times=_times(fields.get("times"), transcript.messages),
    )


def _fields_of(value: Any, number: int) -> Fields:
    """Return a run as an object; a bare list is a list of messages."""
    if isinstance(value, list):
        return {"messages": value}
    if not isinstance(value, dict):
        raise LogError(f"expected an object with 'messages' or a list of messages, found {_type(value)}", line=number)
    return value


def _task(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return None


def _transcript_of(fields: Fields, number: int, account: _Account) -> Transcript:
    messages = fields.get("messages")
    if isinstance(messages, Transcript):
        return messages
    transcript = transcribe(_messages(fields, number))
    account.add(transcript)
    return transcript


def _thread_of(fields: Fields, number: int) -> str | None:
    for key in ("thread_id", "run_id", "id"):
        value = fields.get(key)
        if value is not None and value != "":
            return _identifier(value, "id", number)
    return None


def _digest_of(value: Any, transcript: Transcript, number: int) -> str:
    """Return an id by content and line number, so that reading the same file again has no effect."""
    # A transcript is an object of this process: its text would hold an address.
    if isinstance(value, dict) and value["messages"] is transcript:
        value = {**value, "messages": transcript.messages}
    return digest(number, json.dumps(value, default=str))


def _messages(fields: Fields, number: int) -> list[Any]:
    if "messages" not in fields:
        keys = _keys_of(fields)
        raise LogError(f"no 'messages' in the object (it has {keys}); {describe_unknown(fields)}", line=number)
    messages = fields["messages"]
    if not isinstance(messages, list):
        raise LogError(f"'messages' must be a list, found {_type(messages)}", line=number)
    if not messages:
        raise LogError("the list of messages is empty", line=number)
    if all(isinstance(item, dict) and "messages" in item for item in messages):
        raise LogError("the line is a list of runs; write one run a line", line=number)
    for index, message in enumerate(messages):
        problem = _problem_of(message)
        if problem:
            raise LogError(f"message {index} {problem}", line=number)
    return messages


def _problem_of(message: Any) -> str:
    """Return why an entry is not a message, or ""."""
    if message_of_pair(message) is not message:
        return ""
    if not isinstance(message, dict):
        return f"must be an object, found {_type(message)}"
    if dialect_of(message) is None:
        return f"is of no known format (it has {_keys_of(message)}); {describe_unknown(message)}"
    return ""


def _keys_of(fields: Fields) -> str:
    return ", ".join([repr(key) for key in list(fields)[:6]]) or "nothing"


def _success(value: Any, number: int) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if value in (0, 1):
        return bool(value)
    raise LogError(f"'success' must be true, false or null, found {_type(value)}", line=number)


def _times(value: Any, messages: list[Any]) -> tuple[float, ...] | None:
    # Only a replay's seconds depend on them: wrong ones are left out.
    if not isinstance(value, list) or len(value) != len(messages):
        return None
    times: list[float] = []
    for seconds in value:
        if type(seconds) not in (int, float):  # a boolean is an int, too
            return None
        times.append(float(seconds))
    return tuple(times)


def _identifier(value: Any, key: str, number: int) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise LogError(f"'{key}' must be a string, found {_type(value)}", line=number)
    return str(value)


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    names = {dict: "an object", list: "a list", str: "a text", int: "a number", float: "a number"}
    return names[type(value)]
