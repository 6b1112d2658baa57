"""Records of a file or a database of checkpoints: how they are stored, and which program wrote them.

A file is JSON lines, or JSON texts of many lines; UTF-8 with or without a byte order mark, gzip too. Its format is
recognised by the first record with known places (`FORMATS`). Checkpoints are those of LangGraph, of a checkpointer or
of a database of one.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from langgraph_toolmem.base.errors import InputError, LogError, MissingExtraError
from langgraph_toolmem.runs.logs.dialects import DIALECTS, dialect_of
from langgraph_toolmem.runs.logs.sessions import (
    CLAUDE_CODE,
    CODEX,
    CONVERSATIONS,
    EXCHANGES,
    SESSIONS,
    STATES,
    SWE_AGENT,
    TOOLBENCH,
)
from langgraph_toolmem.runs.logs.traces import AGENTS_SDK, LANGFUSE, LANGSMITH, SPANS
from langgraph_toolmem.runs.logs.transcript import (
    Fields,
    LogFormat,
    NumberedRecord,
    describe_nearest,
    dicts,
    has_shape,
    numbered,
)

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

_SPACE: Final = re.compile(r"\s*")


def read_records(path: Path) -> list[NumberedRecord]:
    """Return line number and record of everything in a file.

    Raises:
        InputError: the file cannot be read.
    """
    content = _content_of(path).removeprefix(codecs.BOM_UTF8)
    lines: list[NumberedRecord] = []
    # Only a line feed ends a line: `splitlines` would also split at separators that JSON texts may contain.
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            lines.append(NumberedRecord(number, _json(line)))
    # The first line is not JSON by itself: the file may be one text of many lines, or several of them.
    if lines and isinstance(lines[0].record, LogError):
        lines = read_documents(content.decode(errors="replace")) or lines
    return unwrap(lines)


def _content_of(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        # By its first bytes: logs are compressed under any name.
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} cannot be read: the gzip file is damaged ({error})") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    return content


def _json(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except RecursionError:
        return LogError("nested too deeply", line=0)
    except UnicodeDecodeError as error:
        return LogError(f"not UTF-8 (byte {error.start + 1} of the line)", line=0)
    except ValueError as error:
        return LogError(f"not JSON ({error}); write one run a line", line=0)


def read_documents(text: str) -> list[NumberedRecord]:
    """Return the values of one JSON text, or of several of many lines; [] if the text is neither."""
    values, decoder = list[Any](), json.JSONDecoder()
    position = _end_of_space(text, 0)
    try:
        while position < len(text):
            value, end = decoder.raw_decode(text, position)
            values.append(value)
            position = _end_of_space(text, end)
    except (ValueError, RecursionError):
        return []
    return numbered(values)


def _end_of_space(text: str, start: int) -> int:
    # A slice of the rest for each document would make the reading quadratic.
    space = _SPACE.match(text, start)
    assert space is not None  # the expression matches the empty text too
    return space.end()


# --- formats ---

_SAMPLE: Final = 50
"""Number of records that are read to find the format: sessions and traces begin with lines of other kinds."""


def _read_plain(records: list[NumberedRecord]) -> Iterator[tuple[int, Any]]:
    for line, record in records:
        if isinstance(record, dict) and "messages" not in record and "conversation" in record:
            record = {**record, "messages": record["conversation"]}
        yield line, record


PLAIN_RUNS: Final = LogFormat("runs", (("messages",), ("conversation[].role",)), _read_plain)
FORMATS: Final = (
    AGENTS_SDK, LANGFUSE, CLAUDE_CODE, CODEX, SPANS, TOOLBENCH, CONVERSATIONS, SWE_AGENT, SESSIONS, STATES, EXCHANGES,
    PLAIN_RUNS, LANGSMITH,
)  # fmt: skip
"""Most specific first; a record with messages is always a run."""


def format_of(record: Any) -> LogFormat | None:
    """Return the format of a record; None if it is unknown."""
    for known in FORMATS:
        if has_shape(record, known.signatures):
            return known
    return None


def unwrap(records: list[NumberedRecord]) -> list[NumberedRecord]:
    """Return the records in a file that is one list, or one object with a list of them, without their envelopes."""
    return [NumberedRecord(line, _without_envelope(record)) for line, record in _one_by_one(records)]


def _one_by_one(records: list[NumberedRecord]) -> list[NumberedRecord]:
    if len(records) != 1:
        return records
    line, whole = records[0]
    if isinstance(whole, list) and _holds_records(whole):
        return numbered(whole)
    if isinstance(whole, dict) and format_of(whole) is None:
        return _listed_in(line, whole) or records
    return records


def _listed_in(line: int, whole: Fields) -> list[NumberedRecord]:
    """Return the records in an object's first list with records, or the object as one run, or []."""
    for inner in whole.values():
        entries = dicts(inner)
        if not entries:
            continue
        if _has_known_record(entries):
            return numbered(inner)
        if _holds_messages(inner):
            return [NumberedRecord(line, {**whole, "messages": inner})]
    return []


def _without_envelope(record: Any) -> Any:
    """Return the only known record inside another object (an event's span, the data of an answer), or the object as a
    run if one of its lists has messages.
    """
    if not isinstance(record, dict) or format_of(record) is not None:
        return record
    # The first tau-bench has a run's messages under `traj`: 200 such runs were not read.
    known: list[Any] = []
    for inner in record.values():
        if isinstance(inner, dict) and format_of(inner) is not None:
            known.append(inner)
        elif isinstance(inner, list) and _are_messages(inner):
            known.append({**record, "messages": inner})
    # With two known parts, the record is ambiguous.
    if len(known) == 1:
        return known[0]
    return record


def _are_messages(entries: list[Any]) -> bool:
    """Return True if all entries of a list are messages of known formats, and there are some."""
    return bool(entries) and all(dialect_of(entry) is not None for entry in entries)


def _holds_records(entries: list[Any]) -> bool:
    """Return True for a list of records, False for a list of messages (a run of its own)."""
    if _has_known_record(entries):
        return True
    if not entries or not all(isinstance(entry, (dict, list)) for entry in entries):
        return False
    first = entries[0]
    if isinstance(first, list) and first and isinstance(first[0], str):  # a pair of role and text
        return False
    return not _holds_messages(entries)


def _has_known_record(entries: list[Any]) -> bool:
    return any(format_of(entry) is not None for entry in entries[:_SAMPLE])


def _holds_messages(entries: list[Any]) -> bool:
    return any(dialect_of(entry) is not None for entry in entries[:_SAMPLE])


def recognise(records: Iterable[NumberedRecord]) -> LogFormat:
    """Return the format of a file: that of the first record with a known one, otherwise plain runs."""
    for numbered_record in islice(records, _SAMPLE):
        known = format_of(numbered_record.record)
        if known is not None:
            return known
    return PLAIN_RUNS


def read_runs(records: list[NumberedRecord], known: LogFormat) -> Iterator[tuple[int, Any]]:
    """Yield line number and fields of each run, or a `LogError` for an unreadable record."""
    if known is PLAIN_RUNS:
        yield from known.read(records)
        return
    for line, record in records:
        if isinstance(record, LogError):
            yield line, record
    line = 1
    if records:
        line = records[0].line
    try:
        yield from known.read(records)
    # A reader expects the format as its program writes it, without checking types: other shapes raise this error.
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        yield line, LogError(f"not what {known.name} are ({type(error).__name__}: {error})", line=line)


def describe_unknown(record: Fields) -> str:
    """Return the known format that is most similar to an unknown record, and the first place that differs."""
    return describe_nearest(record, (*FORMATS, *DIALECTS))


# --- checkpoints ---


def uri_of(source: str | Path) -> str | None:
    """Return the URI of a database of checkpoints; None for another file."""
    if re.match(r"(sqlite|postgres(ql)?)://", str(source)):
        return str(source)
    path = Path(source)
    if not path.is_file():
        return None
    magic = b"SQLite format 3\0"
    with path.open("rb") as file:
        if file.read(len(magic)) != magic:
            return None
    return f"sqlite:///{path}"


def without_password(source: object) -> str:
    """Return a URI for messages, without user and password."""
    return re.sub(r"(?<=://)[^@/]*@", "", str(source))


def read_threads(source: str | BaseCheckpointSaver[Any]) -> Iterator[Fields]:
    """Yield the conversations of a checkpointer, each from its latest checkpoint, the one changed last at the end."""
    from langchain_core.messages import messages_to_dict

    if isinstance(source, str):
        saved = _saved_at(source)
    else:
        saved = _latest(source)
    saved.sort(key=_time_of)
    for latest in saved:
        messages = _conversation(latest.checkpoint["channel_values"])
        # A graph without messages may use the same database.
        if messages is not None:
            yield {
                "thread_id": latest.config["configurable"]["thread_id"],
                "user_id": latest.metadata.get("user_id"),
                "messages": messages_to_dict(messages),
            }


def _conversation(channels: Mapping[str, Any]) -> list[BaseMessage] | None:
    """Return the messages of a thread: `messages`, otherwise the only list of messages; None if there is none."""
    kept = dict(channels)
    # The functional API keeps the value that an entrypoint saves: the messages, or a dict with them.
    previous = kept.pop("__previous__", None)
    if isinstance(previous, Mapping):
        kept |= previous
    else:
        kept["__previous__"] = previous
    lists: dict[str, list[BaseMessage]] = {}
    for name, value in kept.items():
        # Input and output of the last invocation are not the thread.
        if name not in ("__start__", "__end__") and _is_list_of_messages(value):
            lists[name] = value
    if "messages" in lists:
        return lists["messages"]
    # Of several lists, none is known to be the conversation with the user.
    if len(lists) == 1:
        return next(iter(lists.values()))
    return None


def _is_list_of_messages(value: Any) -> TypeGuard[list[BaseMessage]]:
    from langchain_core.messages import BaseMessage

    return isinstance(value, list) and bool(value) and all(isinstance(message, BaseMessage) for message in value)


def _time_of(saved: CheckpointTuple) -> str:
    return str(saved.checkpoint.get("ts", ""))


def _latest(saver: BaseCheckpointSaver[Any]) -> list[CheckpointTuple]:
    # A checkpointer lists the latest of each thread first. Checkpoints of subgraphs are not the conversation.
    latest: dict[str, CheckpointTuple] = {}
    for saved in saver.list(None):
        place = saved.config["configurable"]
        if not place.get("checkpoint_ns"):
            latest.setdefault(place["thread_id"], saved)
    return list(latest.values())


def _saved_at(uri: str) -> list[CheckpointTuple]:
    try:
        with _opened(uri) as saver:
            return _latest_of_database(saver)
    except MissingExtraError:
        raise
    except Exception as error:  # any driver's
        raise InputError(f"{without_password(uri)} cannot be read as LangGraph's checkpoints: {error}") from error


def _latest_of_database(saver: Any) -> list[CheckpointTuple]:
    """Return the latest checkpoint of each thread, without loading the others as `list` does."""
    rows = list(saver.conn.execute("SELECT DISTINCT thread_id FROM checkpoints WHERE checkpoint_ns = ''"))
    latest = []
    for row in rows:
        if isinstance(row, dict):  # psycopg, as LangGraph's checkpointer sets it up
            thread = row["thread_id"]
        else:
            thread = row[0]
        saved = saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
        if saved is not None:
            latest.append(saved)
    return latest


@contextmanager
def _opened(uri: str) -> Iterator[Any]:
    try:
        if not uri.startswith("sqlite:"):
            from langgraph.checkpoint.postgres import PostgresSaver

            with PostgresSaver.from_conn_string(uri) as saver:
                yield saver
            return
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError as error:
        raise MissingExtraError(without_password(uri), "checkpoints") from error
    where = Path(uri.removeprefix("sqlite://").removeprefix("/")).resolve().as_uri()
    with closing(sqlite3.connect(f"{where}?mode=ro", uri=True, check_same_thread=False)) as connection:
        only = SqliteSaver(connection)
        only.is_setup = True  # the tables exist: do not create them in a read-only database
        yield only
