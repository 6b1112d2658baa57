"""Conversations in LangGraph's checkpoints: of a checkpointer, or of a database of one."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph_toolmem.base.errors import InputError, MissingExtraError
from langgraph_toolmem.runs.logs.transcript import Fields

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple


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
    from langchain_core.messages import BaseMessage, messages_to_dict

    if isinstance(source, str):
        saved = _saved_at(source)
    else:
        saved = _latest(source)
    saved.sort(key=_time_of)
    for latest in saved:
        messages = latest.checkpoint["channel_values"].get("messages")
        # A graph without messages may use the same database.
        if not isinstance(messages, list) or not messages:
            continue
        if all(isinstance(message, BaseMessage) for message in messages):
            yield {
                "thread_id": latest.config["configurable"]["thread_id"],
                "user_id": latest.metadata.get("user_id"),
                "messages": messages_to_dict(messages),
            }


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
