"""The prefetched calls of one model call, and the listener that begins them while the model's answer streams."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig

from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.inertia.prefetch.task import PrefetchTask
from langgraph_toolmem.runs.values import canon_args, readable
from langgraph_toolmem.turn.host import ErrorLog

# --- owners of results ---

Position: TypeAlias = tuple[Owner, str]
"""Position of the model's next answer in a plain graph: owner, and id of the message before it."""


class Branch(NamedTuple):
    """A sequence of steps. A thread may have several at the same time (`Send`).

    Attributes:
        owner: thread and user of the run.
        namespace: of the running graph, as LangGraph names its checkpoints.
    """

    owner: Owner
    namespace: str


def position_of(owner: Owner, before: Any) -> Position | None:
    """Return the position of the coming answer; None if it is uncertain."""
    message = getattr(before, "id", None)
    # Ids of messages repeat between threads, and threads between users: with two of the three, a result could reach
    # another user.
    if not message or not all(owner):
        return None
    return owner, message


def namespace_of(config: RunnableConfig | None) -> str:
    """Return the namespace of the graph that a node belongs to; "" for the outermost graph, or outside a graph."""
    configurable: Mapping[str, Any] = (config or {}).get("configurable") or {}
    path = str(configurable.get("checkpoint_ns") or "")
    return path.rpartition("|")[0]


def last_answer(messages: Sequence[Any]) -> int | None:
    """Return the position of the model's latest answer, or None."""
    for position in reversed(range(len(messages))):
        if isinstance(messages[position], AIMessage):
            return position
    return None


# --- the calls of one answer ---


@dataclass(eq=False)
class PrefetchBatch:
    """The calls prefetched for one model call.

    Attributes:
        branch: the sequence of steps; only its owner is served, and its next step discards the remaining tasks.
        changes: returns True if a tool may change something.
        tasks: neither served nor discarded yet, by tool and arguments.
        matched: True if the model has answered and asks for the remaining tasks.
        answer: that answer, in an agent.
        listener: begins the calls of a streamed answer, in an agent.
    """

    branch: Branch
    changes: Callable[[str], bool]
    tasks: dict[tuple[str, str], PrefetchTask] = field(default_factory=dict)
    matched: bool = False
    answer: weakref.ref[AIMessage] | None = None
    listener: AnswerListener | None = None

    def match(self, answer: AIMessage) -> list[PrefetchTask]:
        """Keep the calls that the model asks for, unless it also asks for a change; return the others."""
        # Tools of one answer run in parallel: a look-up before the change may have another result than one after it.
        asked: set[tuple[str, str]] = set()
        for call in answer.tool_calls:
            if self.changes(call["name"]):
                asked.clear()
                break
            asked.add((call["name"], canon_args(readable(call["args"]))))
        self.matched = True
        others = [key for key in self.tasks if key not in asked]
        return [self.tasks.pop(key) for key in others]


class AnswerListener(BaseCallbackHandler):
    """Reports each tool call of a streamed answer as soon as its arguments are complete. It does not make a model
    stream.

    It stops reporting at a call that may change something.
    """

    run_inline = True
    ignore_chat_model = True  # the start of the run; tokens are reported anyway

    def __init__(
        self, changes: Callable[[str], bool], begin: Callable[[str, dict[str, Any]], object], errors: ErrorLog
    ) -> None:
        self._changes, self._begin, self._errors = changes, begin, errors
        self._calls: dict[UUID, _StreamedCall] = {}

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **_: Any) -> None:
        """Read the pieces of tool calls in a chunk."""
        # A callback that raises would end the host's stream.
        with self._errors:
            message = getattr(chunk, "message", None)
            for piece in getattr(message, "tool_call_chunks", None) or ():
                call = self._calls.setdefault(run_id, _StreamedCall())
                self._read(call, piece)

    def _read(self, call: _StreamedCall, piece: Mapping[str, Any]) -> None:
        index, text = piece.get("index"), piece.get("args") or ""
        # Providers mark the calls of an answer by index, by id, or by neither.
        mark = (index, piece.get("id"))
        next_begins = piece.get("name") and (mark != call.mark or index is None)
        if next_begins:
            self._close(call, call.text or "{}")
            call.name, call.mark, call.text = piece["name"], mark, ""
            call.stopped = call.stopped or self._changes(call.name)
        call.text += text
        # Parsing is tried only at a closing brace: at each token its cost would grow with the square of the length.
        if text.rstrip().endswith("}"):
            self._close(call, call.text)

    def _close(self, call: _StreamedCall, text: str) -> None:
        if not call.name or call.stopped:
            return
        try:
            args = json.loads(text)
        except ValueError:  # not complete
            return
        if isinstance(args, dict):
            name, call.name = call.name, ""
            self._begin(name, args)


@dataclass
class _StreamedCall:
    """The latest tool call of a streamed answer; `name` is "" after it was reported."""

    name: str = ""
    mark: tuple[Any, Any] = (None, None)
    text: str = ""
    stopped: bool = False
