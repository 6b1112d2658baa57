"""Recorded runs from a file or a database of checkpoints; the program that wrote it is recognised.

Plain: one run a line (JSONL), an object with `messages` and, if known, `thread_id` (or `run_id`, or `id`), `task`,
`success`, `user_id` and `times` (seconds since the start, one per message); other keys are ignored. A bare list of
messages is a run as well. Messages are OpenAI's, LangChain's or Anthropic's. The text is UTF-8 with or without a byte
order mark, gzip is recognised by its first bytes, and a file may also be JSON texts of many lines. Other programs'
records: runs of LangSmith (``client.list_runs()``, an export of a project); OpenTelemetry spans with GenAI attributes
(OTLP JSON, or the console exporter's).

Lines that share an id are one run, seen at different moments: the memory learns each turn once. Lines without an id get
one from their content and line number, so that reading the same file again teaches nothing. Many records of other
programs describe one conversation; a history with which a later one of the thread begins is left out.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Union

from langgraph_toolmem.base.errors import InputError, LogError, MessageError, MissingExtraError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.runs.trajectory import parse_run

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

Source: TypeAlias = Union[str, Path, "BaseCheckpointSaver[Any]"]
Fields = dict[str, Any]
Value = tuple[int, Any]
"""Line number and record; a `LogError` in place of one that cannot be read."""

logger = logging.getLogger("langgraph_toolmem.runs.logs")

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


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
    """A whole log: its readable runs, errors of lines that were left out, and how many runs repeat an earlier id."""

    runs: tuple[LoggedRun, ...]
    skipped: tuple[LogError, ...]
    shared_ids: int


def load_runs(source: Source, *, lenient: bool = False, limit: int | None = None) -> RunLog:
    """Read and check a log before anything is learned from it, so that nothing is ever half-imported.

    Args:
        source: the file, a checkpointer that works without ``await``, or a database of one (``sqlite:///FILE``,
            ``postgresql://…``).
        lenient: leave malformed lines out instead of raising `LogError`.
        limit: stop after so many runs; lines behind them are not checked.
    """
    skipped = list[LogError]()

    def read() -> Iterator[LoggedRun]:
        for number, record in _records(source):
            try:
                yield _run(record, number)
            except LogError as error:
                problem = LogError(f"{_name(source)}, line {number}: {error}", line=number)
                if not lenient:
                    raise problem from error
                logger.debug("left out: %s", problem)
                skipped.append(problem)

    runs = tuple(islice(read(), limit))
    return RunLog(runs, tuple(skipped), len(runs) - len({run.thread_id for run in runs}))


def _name(source: Source) -> str:
    if not isinstance(source, (str, Path)):
        return type(source).__name__
    return without_password(source) if "://" in str(source) else Path(source).name


def _records(source: Source) -> Iterable[Value]:
    if not isinstance(source, (str, Path)):
        return enumerate(_threads(source), start=1)
    try:
        if uri := _uri_of(source):
            return enumerate(_threads(uri), start=1)
        text = Path(source).read_bytes()
        text = gzip.decompress(text) if text.startswith(_GZIP_MAGIC) else text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{source} cannot be read: the gzip file is damaged ({error})") from error
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror or error}") from error
    text = text.removeprefix(_BOM)
    lines = [(number, _json(line)) for number, line in enumerate(text.split(b"\n"), start=1) if line.strip()]
    if lines and isinstance(lines[0][1], LogError):
        lines = _documents(text) or lines
    return _converted(lines)


def _json(text: bytes) -> Any:
    try:
        return json.loads(text.decode())
    except RecursionError:
        return LogError("nested too deeply", line=0)
    except UnicodeDecodeError as error:
        return LogError(f"not UTF-8 (byte {error.start + 1} of the line)", line=0)
    except ValueError as error:
        return LogError(f"not JSON ({error}); write one run a line", line=0)


def _documents(text: bytes) -> list[Value]:
    """Return the records of a file that is one JSON text, or several of many lines; [] if it is not."""
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


def _converted(records: list[Value]) -> Iterable[Value]:
    kind = _writer(records[0][1]) if records else "plain"
    if kind == "plain":
        return records
    broken = [(number, value) for number, value in records if isinstance(value, LogError)]
    try:
        return broken + list(_READERS[kind]([(line, value) for line, value in records if isinstance(value, dict)]))
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        line = records[0][0]
        return [*broken, (line, LogError(f"not what {kind} writes ({type(error).__name__}: {error})", line=line))]


def _run(value: Any, number: int) -> LoggedRun:
    if isinstance(value, LogError):
        raise value
    fields: dict[str, Any] = {"messages": value} if isinstance(value, list) else value
    if not isinstance(fields, dict):
        raise LogError(f"expected an object with 'messages' or a list of messages, found {_type(value)}", line=number)
    messages = _plain_messages(_messages(fields, number))
    given = next((fields[key] for key in ("thread_id", "run_id", "id") if fields.get(key) not in (None, "")), None)
    try:
        thread_id = _identifier(given, "id", number) or digest(number, json.dumps(value, default=str))
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


def _messages(fields: dict[str, Any], number: int) -> list[Any]:
    if "messages" not in fields:
        found = ", ".join(repr(key) for key in list(fields)[:6]) or "nothing"
        raise LogError(f"no 'messages' in the object (it has {found})", line=number)
    messages = fields["messages"]
    if not isinstance(messages, list):
        raise LogError(f"'messages' must be a list, found {_type(messages)}", line=number)
    if not messages:
        raise LogError("the list of messages is empty", line=number)
    if all(isinstance(item, dict) and "messages" in item for item in messages):
        raise LogError("the line is a list of runs; write one run a line", line=number)
    wrong = next((i for i, item in enumerate(messages) if not isinstance(item, dict)), None)
    if wrong is not None:
        raise LogError(f"message {wrong} must be an object, found {_type(messages[wrong])}", line=number)
    return messages


def _verdict(value: Any, number: int) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if value in (0, 1):
        return bool(value)
    raise LogError(f"'success' must be true, false or null, found {_type(value)}", line=number)


def _times(value: Any, messages: list[Any]) -> tuple[float, ...] | None:
    # Only a replay's seconds depend on them: wrong ones are left out.
    if not isinstance(value, list) or len(value) != len(messages):
        return None
    return tuple(map(float, value)) if all(type(each) in (int, float) for each in value) else None


def _identifier(value: Any, key: str, number: int) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise LogError(f"'{key}' must be a string, found {_type(value)}", line=number)
    return str(value)


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {dict: "an object", list: "a list", str: "a text", int: "a number", float: "a number"}
    return names[type(value)]


# --- records of other programs ---

_CLASSES: Final = {"Human": "human", "AI": "ai", "Tool": "tool", "System": "system", "Function": "function"}
_THREADS: Final = ("thread_id", "session_id", "conversation_id")
_VERDICTS: Final = ("success", "correctness", "correct", "user_score", "score")
"""Keys of LangSmith's feedback on a whole run."""
_ROLES: Final = {"human": "user", "ai": "assistant", "model": "assistant"}


def _writer(value: Any) -> str:
    if not isinstance(value, dict):
        return "plain"
    if "resourceSpans" in value or (("context" in value or "traceId" in value) and "attributes" in value):
        return "spans"
    both = isinstance(value.get("inputs"), dict) and "outputs" in value
    return "langsmith" if both and "messages" not in value else "plain"


# --- one record, one run ---


def _plain_messages(messages: Sequence[Any]) -> list[Any]:
    """Turn content blocks (Anthropic, GenAI conventions) into messages with calls."""
    made: list[Any] = []
    for each in messages:
        if not isinstance(each, dict):
            made.append(each)
        elif "parts" in each:
            made += _of_parts(each)
        elif isinstance(content := each.get("content"), list) and not each.get("tool_calls"):
            made += _of_blocks(each, content)
        else:
            made.append(_constructed(each))
    return made


def _constructed(message: Fields) -> Fields:
    # as LangChain dumps it, with the name of its class
    name, fields = message.get("id"), message.get("kwargs")
    if message.get("type") != "constructor" or not isinstance(name, list) or not isinstance(fields, dict):
        return message
    kind = str(name[-1]).removesuffix("Chunk").removesuffix("Message")
    return {**fields, "type": _CLASSES.get(kind, kind.lower())}


def _of_blocks(message: Fields, content: list[Any]) -> list[Fields]:
    blocks = [block for block in content if isinstance(block, dict)]
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    if not calls and not results:
        return [message]
    text = _text(block for block in content if block not in calls and block not in results)
    made = [
        _result(block.get("tool_use_id"), _text(block.get("content") or ""), block.get("is_error")) for block in results
    ]
    if calls:
        called = [{"id": block.get("id"), "name": block.get("name"), "args": block.get("input")} for block in calls]
        made.append({**message, "content": text, "tool_calls": called})
    elif text:
        made.append({**message, "content": text})
    return made


def _result(call_id: Any, content: Any, failed: object = None) -> Fields:
    return {"role": "tool", "tool_call_id": call_id or "", "content": content} | ({"status": "error"} if failed else {})


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Iterable) else ()
    return "".join(part if isinstance(part, str) else str(part.get("text") or "") for part in parts)


# --- many records, one thread ---


def _grown(line: int, histories: Iterable[list[Any]], common: Fields) -> Iterator[tuple[int, Fields]]:
    """Yield the histories of a thread in order, without those with which the next one begins."""
    kept = [history for history in histories if history]
    for history, after in pairwise([*kept, []]):
        if after[: len(history)] != history:
            yield line, {**common, "messages": history}


def _langsmith(values: list[Value]) -> Iterator[tuple[int, Fields]]:
    traces: defaultdict[str, list[Value]] = defaultdict(list)
    for line, run in values:
        traces[str(run.get("trace_id") or run.get("id") or line)].append((line, run))
    for trace, records in sorted(traces.items(), key=lambda each: min(_began(run) for _, run in each[1])):
        runs = sorted((run for _, run in records), key=_began)
        whole = [run for run in runs if not run.get("parent_run_id")]
        metadata: dict[str, Any] = {}
        for run in [*runs, *whole]:
            metadata |= (run.get("extra") or {}).get("metadata") or run.get("metadata") or {}
        histories = [history for run in whole if (history := _root_history(run))]
        asked = [] if histories else [_model_call(run) for run in runs if run.get("run_type") == "llm"]
        common: Fields = {"thread_id": next((str(metadata[key]) for key in _THREADS if metadata.get(key)), trace)}
        common["user_id"] = metadata.get("user_id")
        common["success"] = next((verdict for run in whole if (verdict := _judged(run)) is not None), None)
        yield from _grown(records[0][0], histories or asked, common)


def _began(run: Fields) -> str:
    return str(run.get("start_time") or "")


def _root_history(run: Fields) -> list[Any]:
    # input and output of an agent's run, if these are messages
    given = _listed((run.get("inputs") or {}).get("messages"))
    outputs = run.get("outputs") or {}
    gave = _listed(outputs.get("messages"))
    if not gave and isinstance(outputs.get("output"), dict):
        gave = _listed(outputs["output"].get("messages") or outputs["output"])
    if not gave or run.get("run_type") == "llm":
        return []
    contents = {_content_of(message) for message in gave}
    return _plain_messages(gave if given and _content_of(given[0]) in contents else [*given, *gave])


def _model_call(run: Fields) -> list[Any]:
    # the prompt of a model's call and its answer
    given = _listed((run.get("inputs") or {}).get("messages"))
    outputs = run.get("outputs") or {}
    generations = outputs.get("generations") or []
    while isinstance(generations, list) and generations and isinstance(generations[0], list):
        generations = generations[0]
    answers = [each["message"] for each in generations[:1] if isinstance(each, dict) and "message" in each]
    return _plain_messages([*given, *answers])


def _listed(messages: Any) -> list[Any]:
    # A model may be given a list of lists, or one message alone.
    if isinstance(messages, list) and messages and isinstance(messages[0], list):
        messages = messages[0]
    if isinstance(messages, dict):
        messages = [messages] if {"role", "type"} & messages.keys() else []
    return messages if isinstance(messages, list) else []


def _content_of(message: Any) -> str:
    if isinstance(message, dict):
        for key in ("kwargs", "data"):
            message = message[key] if isinstance(message.get(key), dict) else message
        return json.dumps(message.get("content"), sort_keys=True)
    return json.dumps(message[-1] if isinstance(message, list) and message else message)


def _judged(run: Fields) -> bool | None:
    stats = run.get("feedback_stats") or {}
    means = (stats[key].get("avg") for key in _VERDICTS if isinstance(stats.get(key), dict))
    return next((mean >= 0.5 for mean in means if isinstance(mean, (int, float))), None)


def _spans(values: list[Value]) -> Iterator[tuple[int, Fields]]:
    threads: defaultdict[str, list[tuple[str, int, Fields]]] = defaultdict(list)
    for line, value in values:
        for span in _each_span(value):
            facts = _attributes(span.get("attributes"))
            for event in span.get("events") or ():
                facts = {**_attributes(event.get("attributes")), **facts}
            trace = span.get("traceId") or (span.get("context") or {}).get("trace_id")
            thread = facts.get("gen_ai.conversation.id") or trace or line
            began = span.get("startTimeUnixNano") or span.get("start_time") or ""
            threads[str(thread)].append((str(began), line, facts))
    for thread, spans in threads.items():
        spans.sort(key=lambda each: each[0])
        chats = [each for each in spans if each[2].get("gen_ai.operation.name", "chat") in ("chat", "generate_content")]
        users = [facts.get("user.id") or facts.get("enduser.id") for _, _, facts in spans]
        common = {"thread_id": thread, "user_id": next(filter(None, users), None)}
        yield from _grown(spans[0][1], [_chat(facts) for _, _, facts in chats or spans], common)


def _each_span(value: Fields) -> Iterator[Fields]:
    if "resourceSpans" not in value:
        yield value
    for resource in value.get("resourceSpans") or ():
        for scope in resource.get("scopeSpans") or ():
            yield from scope.get("spans") or ()


def _attributes(given: Any) -> Fields:
    # a dict from the console exporter, a list of pairs in OTLP
    if isinstance(given, dict):
        return given
    return {each["key"]: _any_value(each.get("value")) for each in given or () if isinstance(each, dict)}


def _any_value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kind, held = next(iter(value.items()), ("", None))
    if kind == "arrayValue":
        return [_any_value(each) for each in (held or {}).get("values") or ()]
    return _attributes((held or {}).get("values")) if kind == "kvlistValue" else held


def _chat(facts: Fields) -> list[Any]:
    messages: list[Any] = []  # prompt and answer by the GenAI conventions
    for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
        held = facts.get(name) or []
        messages += json.loads(held) if isinstance(held, str) else held
    return _plain_messages(messages)


def _of_parts(message: Fields) -> list[Fields]:
    # a message of the GenAI conventions
    parts = [part for part in message["parts"] if isinstance(part, dict)]
    made: list[Fields] = []
    for part in parts:
        if part.get("type") == "tool_call_response":
            answer = part.get("response", part.get("result"))
            made.append(_result(part.get("id"), answer if isinstance(answer, str) else json.dumps(answer)))
    text = "".join(str(part.get("content") or "") for part in parts if part.get("type") == "text")
    calls = [
        {key: part.get(key) for key in ("id", "name", "arguments")} for part in parts if part.get("type") == "tool_call"
    ]
    if text or calls or not made:
        role = str(message.get("role"))
        made.append({"role": _ROLES.get(role, role), "content": text} | ({"tool_calls": calls} if calls else {}))
    return made


_READERS: Final = {"langsmith": _langsmith, "spans": _spans}


# --- checkpoints of LangGraph ---

_ROOT = "SELECT DISTINCT thread_id FROM checkpoints WHERE checkpoint_ns = ''"
_MAGIC = b"SQLite format 3\0"


def _uri_of(source: str | Path) -> str | None:
    if re.match(r"(sqlite|postgres(ql)?)://", str(source)):
        return str(source)
    path = Path(source)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return f"sqlite:///{path}" if file.read(len(_MAGIC)) == _MAGIC else None


def without_password(source: object) -> str:
    return re.sub(r"(?<=://)[^@/]*@", "", str(source))


def _threads(source: str | BaseCheckpointSaver[Any]) -> Iterator[Fields]:
    """Yield the conversations of a checkpointer, each from its latest checkpoint, the one changed last at the end."""
    from langchain_core.messages import BaseMessage, messages_to_dict

    found = _by_uri(source) if isinstance(source, str) else _latest(source)
    for kept in sorted(found, key=lambda each: str(each.checkpoint.get("ts", ""))):
        messages = kept.checkpoint["channel_values"].get("messages")
        if isinstance(messages, list) and messages and all(isinstance(each, BaseMessage) for each in messages):
            user, thread = kept.metadata.get("user_id"), kept.config["configurable"]["thread_id"]
            yield {"thread_id": thread, "user_id": user, "messages": messages_to_dict(messages)}


def _latest(saver: BaseCheckpointSaver[Any]) -> list[CheckpointTuple]:
    # A checkpointer lists the latest of each thread first. Checkpoints of subgraphs are not the conversation.
    found: dict[str, CheckpointTuple] = {}
    for each in saver.list(None):
        where = each.config["configurable"]
        if not where.get("checkpoint_ns"):
            found.setdefault(where["thread_id"], each)
    return list(found.values())


def _by_uri(uri: str) -> list[CheckpointTuple]:
    try:
        with _opened(uri) as saver:
            threads = [row["thread_id"] if isinstance(row, dict) else row[0] for row in saver.conn.execute(_ROOT)]
            where: list[Any] = [{"configurable": {"thread_id": each, "checkpoint_ns": ""}} for each in threads]
            return [found for each in where if (found := saver.get_tuple(each)) is not None]
    except MissingExtraError:
        raise
    except Exception as error:  # any driver's
        raise InputError(f"{without_password(uri)} cannot be read as LangGraph's checkpoints: {error}") from error


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
