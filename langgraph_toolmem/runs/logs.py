"""Recorded runs from a file: what people have. What wrote it is recognised.

Plain: one run a line (JSONL), an object with `messages`, and, where known, `thread_id` (or `run_id`, or `id`), `task`,
`success`, `user_id` and `times` (seconds since the start, beside each message); other keys are ignored. A bare list of
messages is a run as well, and so is a request with its response. The messages are OpenAI's, LangChain's or Anthropic's.
Blank lines are skipped, the text is UTF-8 with or without a byte order mark, and a gzip file is recognised by its first
bytes. A file may also be one JSON text. What LangSmith, OpenTelemetry and tau2-bench write: `formats`; a database of
LangGraph's checkpoints: `checkpoints`.

Lines that share an id are one run, seen at different moments: what the earlier line taught is not learned
twice. Lines without an id get one from their content and line number, so that reading the same file again
teaches nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, Union, cast

from langgraph_toolmem.base.errors import InputError, LogError, MessageError
from langgraph_toolmem.runs.checkpoints import threads_of, uri_of, without_password
from langgraph_toolmem.runs.formats import kind_of, plain_fields, plain_messages, runs_of
from langgraph_toolmem.runs.trajectory import parse_run

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

Source: TypeAlias = Union[str, Path, "BaseCheckpointSaver[Any]"]

logger = logging.getLogger("langgraph_toolmem.runs.logs")

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_OTHER_ENCODINGS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One line of a log.

    Attributes:
        line: 1-based line number.
        thread_id: `thread_id` or `id` of the line, else a digest of its content and line number.
        messages: the messages as they were written; `parse_run` has accepted them.
        success: the run's outcome, None if the line does not say.
        user_id: whose run it was, None if the line does not say.
        task: the task in words, None if the line does not say.
        times: seconds since the start beside each message, None if the line does not say.
    """

    line: int
    thread_id: str
    messages: list[Any]
    success: bool | None = None
    user_id: str | None = None
    task: str | None = None
    times: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class RunLog:
    """A whole log, checked to its last line.

    Attributes:
        runs: the readable runs in the file's order.
        skipped: one error per line that was left out (lenient reading only).
        shared_ids: number of runs whose id an earlier run of the file has too.
    """

    runs: tuple[LoggedRun, ...]
    skipped: tuple[LogError, ...]
    shared_ids: int


def load_runs(
    source: Source,
    *,
    lenient: bool = False,
    limit: int | None = None,
    on_line: Callable[[int], object] | None = None,
) -> RunLog:
    """Read and check a log before anything is learned from it, so that nothing is ever half-imported.

    Args:
        source: the file, a checkpointer, or the URI of one's database.
        lenient: leave malformed lines out instead of raising.
        limit: stop after so many runs; lines behind them are neither read nor checked.
        on_line: called with the number of bytes read so far, for a progress bar (compressed bytes for gzip).

    Raises:
        LogError: a line is malformed and `lenient` is off.
        InputError: the file cannot be read.
    """
    skipped: list[LogError] = []
    runs = tuple(islice(read_runs(source, lenient=lenient, skipped=skipped, on_line=on_line), limit))
    return RunLog(runs, tuple(skipped), len(runs) - len({run.thread_id for run in runs}))


def read_runs(
    source: Source,
    *,
    lenient: bool = False,
    skipped: list[LogError] | None = None,
    on_line: Callable[[int], object] | None = None,
) -> Iterator[LoggedRun]:
    """Yield the runs of a log one by one; a malformed line is found only when it is reached.

    Args:
        source: the file, a checkpointer, or the URI of one's database.
        lenient: leave malformed lines out instead of raising.
        skipped: with `lenient`, gets one error per line left out.
        on_line: called with the number of bytes read so far, for a progress bar (compressed bytes for gzip).

    Raises:
        LogError: a line is malformed and `lenient` is off.
        InputError: the file cannot be read.
    """
    name, number = _name(source), 0

    def left_out(error: LogError) -> None:
        problem = LogError(f"{name}, line {error.line}: {error}", line=error.line)
        if not lenient:
            raise problem from error
        logger.debug("left out: %s", problem)
        if skipped is not None:
            skipped.append(problem)

    try:
        for number, record in _records(source, on_line):
            try:
                run = _run(record, number)
            except LogError as error:
                left_out(error)
                continue
            if run is not None:
                yield run
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        left_out(LogError(f"the gzip file is damaged ({error})", line=number + 1))
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror or error}") from error


def _name(source: Source) -> str:
    if not isinstance(source, (str, Path)):
        return type(source).__name__
    return without_password(source) if "://" in str(source) else Path(source).name


def _records(source: Source, on_line: Callable[[int], object] | None) -> Iterator[tuple[int, bytes | LogError | Any]]:
    """Each run with its line: bytes of a line of a plain log, else what was read of it."""
    kept = uri_of(source) if isinstance(source, (str, Path)) else source
    if kept is not None:
        yield from enumerate(threads_of(kept), start=1)
        return
    with Path(cast("str | Path", source)).open("rb") as raw:
        lines = _told(_lines(raw), raw, on_line)
        first = next(((n, line) for n, line in enumerate(lines, start=1) if line.strip()), None)
        if first is None:
            return
        number, text = first
        try:
            value = _json(text.removeprefix(_BOM), number)
        except LogError:
            rest = b"".join(lines)
            values = _documents(text.removeprefix(_BOM) + rest)
            yield from _converted(values) if values else enumerate([text, *rest.split(b"\n")], start=number)
            return
        following = enumerate(lines, start=number + 1)
        if kind_of(value) == "plain":
            yield from chain([first], following)
        else:
            yield from _converted(chain([(number, value)], _parsed(following)))


def _told(lines: Iterable[bytes], raw: BinaryIO, on_line: Callable[[int], object] | None) -> Iterator[bytes]:
    for line in lines:
        if on_line is not None:
            on_line(raw.tell())
        yield line


def _parsed(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Any]]:
    for number, line in lines:
        if line.strip():
            try:
                yield number, _json(line, number)
            except LogError as error:
                yield number, error


def _documents(text: bytes) -> list[tuple[int, Any]]:
    """A file that is one JSON text, or several of many lines, as its records; none if it is not."""
    found, at, decoder = list[Any](), 0, json.JSONDecoder()
    try:
        whole = text.decode().strip()
        while at < len(whole):
            value, at = decoder.raw_decode(whole, at)
            found.append(value)
            at += len(whole[at:]) - len(whole[at:].lstrip())
    except (ValueError, RecursionError):
        return []
    if len(found) == 1 and isinstance(found[0], list) and not any(_is_message(each) for each in found[0]):
        found = found[0]
    return list(enumerate(found, start=1))


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and bool({"role", "type"} & value.keys()) and "messages" not in value


def _converted(values: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Records as runs; those of other programs are put together by thread."""
    records = list(values)
    yield from ((number, error) for number, error in records if isinstance(error, LogError))
    records = [(number, value) for number, value in records if not isinstance(value, LogError)]
    kind = kind_of(records[0][1])
    if kind == "plain":
        yield from records
        return
    try:
        yield from list(runs_of(kind, records))
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        line = records[0][0]
        yield line, LogError(f"not what {kind} writes ({type(error).__name__}: {error})", line=line)


def _lines(raw: BinaryIO) -> Iterator[bytes]:
    head = raw.read(3)
    raw.seek(0)
    if head.startswith(_GZIP_MAGIC):
        with gzip.open(raw, "rb") as unzipped:
            yield from unzipped
    else:
        yield from raw


def _run(record: bytes | LogError | Any, number: int) -> LoggedRun | None:
    if isinstance(record, LogError):
        raise record
    if isinstance(record, bytes):
        if number == 1:
            if record.startswith(_OTHER_ENCODINGS):
                raise LogError("the file is UTF-16; save it as UTF-8", line=number)
            record = record.removeprefix(_BOM)
        text = record.strip()
        if not text:
            return None
        value = _json(text, number)
    else:
        value, text = record, json.dumps(record, default=str).encode()
    fields: dict[str, Any] = {"messages": value} if isinstance(value, list) else value
    if not isinstance(fields, dict):
        raise LogError(f"expected an object with 'messages' or a list of messages, found {_kind(value)}", line=number)
    fields = plain_fields(fields)
    messages = plain_messages(_messages(fields, number))
    given = next((fields[key] for key in ("thread_id", "run_id", "id") if fields.get(key) not in (None, "")), None)
    try:
        thread_id = _identifier(given, "id", number) or _content_id(text, number)
        parse_run(messages, thread_id=thread_id)
    except MessageError as error:
        raise LogError(str(error), line=number) from error
    except RecursionError as error:
        raise LogError("nested too deeply", line=number) from error
    return LoggedRun(
        line=number,
        thread_id=thread_id,
        messages=messages,
        success=_verdict(fields.get("success"), number),
        user_id=_identifier(fields.get("user_id"), "user_id", number),
        task=fields["task"] if isinstance(fields.get("task"), str) else None,
        times=_times(fields.get("times"), messages),
    )


def _json(text: bytes, number: int) -> Any:
    try:
        return json.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise LogError(f"not UTF-8 (byte {error.start + 1} of the line)", line=number) from error
    except json.JSONDecodeError as error:
        hint = "; write one run a line" if text in (b"[", b"{") else ""
        raise LogError(f"not JSON ({error.msg} at character {error.colno}){hint}", line=number) from error
    except RecursionError as error:
        raise LogError("nested too deeply", line=number) from error
    except ValueError as error:  # an integer of thousands of digits
        raise LogError(f"not JSON ({error})", line=number) from error


def _messages(fields: dict[str, Any], number: int) -> list[Any]:
    if "messages" not in fields:
        found = ", ".join(repr(key) for key in list(fields)[:6]) or "nothing"
        raise LogError(f"no 'messages' in the object (it has {found})", line=number)
    messages = fields["messages"]
    if not isinstance(messages, list):
        raise LogError(f"'messages' must be a list, found {_kind(messages)}", line=number)
    if not messages:
        raise LogError("the list of messages is empty", line=number)
    if all(isinstance(item, dict) and "messages" in item for item in messages):
        raise LogError("the line is a list of runs; write one run a line", line=number)
    wrong = next((i for i, item in enumerate(messages) if not isinstance(item, dict)), None)
    if wrong is not None:
        raise LogError(f"message {wrong} must be an object, found {_kind(messages[wrong])}", line=number)
    return messages


def _verdict(value: Any, number: int) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if value in (0, 1):
        return bool(value)
    raise LogError(f"'success' must be true, false or null, found {_kind(value)}", line=number)


def _times(value: Any, messages: list[Any]) -> tuple[float, ...] | None:
    """Nothing hangs on them but what a replay says of seconds: what cannot be right is left out."""
    if not isinstance(value, list) or len(value) != len(messages):
        return None
    numbers = all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in value)
    return tuple(map(float, value)) if numbers else None


def _identifier(value: Any, key: str, number: int) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise LogError(f"'{key}' must be a string, found {_kind(value)}", line=number)
    return str(value)


def _content_id(text: bytes, number: int) -> str:
    return hashlib.blake2b(b"%d\n%s" % (number, text), digest_size=8).hexdigest()


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {dict: "an object", list: "a list", str: "a text", int: "a number", float: "a number"}
    return names[type(value)]
