"""All formats of records, the recognition of a file's format, and the reading of its records as runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from langgraph_toolmem.base.errors import LogError
from langgraph_toolmem.runs.logs.agents_sdk import AGENTS_SDK
from langgraph_toolmem.runs.logs.autogen import STATES
from langgraph_toolmem.runs.logs.claude_code import CLAUDE_CODE
from langgraph_toolmem.runs.logs.dialects import DIALECTS, dialect_of
from langgraph_toolmem.runs.logs.exchanges import EXCHANGES
from langgraph_toolmem.runs.logs.gemini import SESSIONS
from langgraph_toolmem.runs.logs.langfuse import LANGFUSE
from langgraph_toolmem.runs.logs.langsmith import LANGSMITH
from langgraph_toolmem.runs.logs.responses import CODEX
from langgraph_toolmem.runs.logs.shapes import LogFormat, NumberedRecord, describe_nearest, dicts, has_shape, numbered
from langgraph_toolmem.runs.logs.sharegpt import CONVERSATIONS, TOOLBENCH
from langgraph_toolmem.runs.logs.spans import SPANS
from langgraph_toolmem.runs.logs.swe_agent import SWE_AGENT
from langgraph_toolmem.runs.logs.transcript import Fields

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
    """Return the only known record inside another object: an event's span, the data of an answer."""
    if not isinstance(record, dict) or format_of(record) is not None:
        return record
    known = []
    for inner in record.values():
        if isinstance(inner, dict) and format_of(inner) is not None:
            known.append(inner)
    # With two known parts, the record is ambiguous.
    if len(known) == 1:
        return known[0]
    return record


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
