"""Conversations in LangGraph's checkpoints: of a checkpointer, or of a database of one."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.errors import InputError, MissingExtraError
from langgraph_toolmem.runs.logs.transcript import Fields

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

_ROOT: Final = "SELECT DISTINCT thread_id FROM checkpoints WHERE checkpoint_ns = ''"
_MAGIC: Final = b"SQLite format 3\0"


def uri_of(source: str | Path) -> str | None:
    """Return the URI of a database of checkpoints; None for a file that is none."""
    if re.match(r"(sqlite|postgres(ql)?)://", str(source)):
        return str(source)
    path = Path(source)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return f"sqlite:///{path}" if file.read(len(_MAGIC)) == _MAGIC else None


def without_password(source: object) -> str:
    """Return a URI for messages, without user and password."""
    return re.sub(r"(?<=://)[^@/]*@", "", str(source))


def read_threads(source: str | BaseCheckpointSaver[Any]) -> Iterator[Fields]:
    """Yield the conversations of a checkpointer, each from its latest checkpoint, the one changed last at the end."""
    from langchain_core.messages import BaseMessage, messages_to_dict

    found = _saved_at(source) if isinstance(source, str) else _latest(source)
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


def _saved_at(uri: str) -> list[CheckpointTuple]:
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
