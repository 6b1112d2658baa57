"""Records of agents and chat APIs: sessions of programs, saved states, sets of conversations, logged requests.

A new format is a function that yields the runs of all records of a file, and a `LogFormat` with the places that
identify a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.runs.logs.dialects import read_blocks, transcribe
from langgraph_toolmem.runs.logs.traces import history_of
from langgraph_toolmem.runs.logs.transcript import (
    Fields,
    LogFormat,
    NumberedFields,
    NumberedRecord,
    Transcript,
    TranscriptSnapshot,
    arguments_of,
    decoded,
    dicts,
    first_of,
    latest_snapshots,
    objects_of,
)

# --- logged calls of a model's API: requests with their responses ---


def _read_exchanges(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    snapshots = []
    histories: dict[str, list[Any]] = {}  # by the id of the response that ends them
    for line, record in objects_of(records):
        request, response = _side(record, "request"), _side(record, "response")
        history = history_of(_asked_by(request), _answer_of(response))
        # The Responses API keeps the history: a request has only the new messages, and the id of the previous response.
        previous = request.get("previous_response_id") or response.get("previous_response_id")
        if previous:
            history = [*histories.get(str(previous), ()), *history]
        if response.get("id"):
            histories[str(response["id"])] = history
        facts = {
            "thread_id": first_of(record, "thread_id", "session_id", "conversation_id"),
            "user_id": first_of(record, "user_id", "user"),
        }
        snapshots.append(TranscriptSnapshot(line, facts, transcribe(history)))
    yield from latest_snapshots(snapshots)


def _side(record: Fields, key: str) -> Fields:
    """Return the body of a request or response; the record itself if it has the fields of both."""
    fields = record
    side = decoded(record.get(key))
    if isinstance(side, dict):
        fields = side
    body = decoded(fields.get("body"))
    if isinstance(body, dict):
        return body
    return fields


def _asked_by(request: Fields) -> Any:
    for key in ("messages", "input", "contents"):
        if key in request:
            return request[key]
    return []


def _answer_of(response: Fields) -> Any:
    """Return the model's messages in a response."""
    if isinstance(response.get("candidates"), list):
        return _first_candidate(response["candidates"])
    # Further choices are alternatives, which the conversation does not continue.
    if isinstance(response.get("choices"), list):
        return response["choices"][:1]
    if response.get("type") == "message":
        return [response]
    return response.get("output")


def _first_candidate(candidates: list[Any]) -> list[Any]:
    """Return the content of Gemini's first candidate; [] if it was blocked."""
    if not candidates or not isinstance(candidates[0], dict):
        return []
    content = candidates[0].get("content")
    if not content:
        return []
    return [content]


EXCHANGES: Final = LogFormat(
    "requests and responses",
    (
        ("messages", "response.choices[].message"),
        ("messages", "choices[].message"),
        ("request.messages", "response.choices[].message"),
        ("request.messages", "response.content"),
        ("request.body.messages", "response.body.choices[].message"),
        ("request.contents", "response.candidates"),
        ("request.input", "response.output"),
        ("input", "output", "object=response"),
        ("object=response", "output"),
        ("contents[].parts",),
    ),
    _read_exchanges,
)


# --- Claude Code: one line for each message, or for each block of one ---


@dataclass(slots=True)
class _ClaudeSession:
    line: int
    transcript: Transcript = field(default_factory=Transcript)


def _read_claude_sessions(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    sessions: dict[str, _ClaudeSession] = {}
    roots: dict[str, str] = {}  # a message's first ancestor: it names a sub-agent's conversation
    other_lines = Transcript()
    for line, record in objects_of(records):
        message = record.get("message")
        if record.get("type") not in ("user", "assistant") or not isinstance(message, dict):
            other_lines.leave_out(f"{record.get('type')!r} lines")
            continue
        uuid, parent = str(record.get("uuid") or line), record.get("parentUuid")
        if uuid in roots:
            continue  # a resumed session repeats lines
        roots[uuid] = roots.get(str(parent), uuid)
        session = sessions.setdefault(_claude_thread(record, roots[uuid]), _ClaudeSession(line))
        _read_claude_line(record, message, session.transcript)
    for thread, session in sessions.items():
        yield session.line, {"thread_id": thread, "messages": session.transcript}
    yield 1, {"messages": other_lines}


def _claude_thread(record: Fields, root: str) -> str:
    """Return the conversation of a line, given the first ancestor of its message."""
    thread = str(record.get("sessionId") or record.get("session_id") or "session")
    # A sub-agent writes into the session's file; its messages are a separate conversation.
    if record.get("isSidechain"):
        return f"{thread}/{record.get('agentId') or root}"
    return thread


def _read_claude_line(record: Fields, message: Fields, transcript: Transcript) -> None:
    for mark in ("isMeta", "isCompactSummary", "isApiErrorMessage"):  # the program wrote the message
        if record.get(mark):
            transcript.leave_out(f"{mark!r} lines")
            return
    transcript.dialects["Anthropic messages"] = None
    read_blocks({"role": record["type"], **message}, transcript, turn=message.get("id"))


CLAUDE_CODE: Final = LogFormat(
    "Claude Code sessions",
    (("type=user|assistant", "sessionId", "message.role"), ("type=user|assistant", "session_id", "message.role")),
    _read_claude_sessions,
)


# --- Codex: items of the Responses API ---


def _read_codex(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    """Yield the session of a file; other lines repeat its items for the screen or contain settings."""
    items, first, session = [], 0, None
    for line, record in objects_of(records):
        payload = record.get("payload")
        if not isinstance(payload, dict):
            continue
        if record.get("type") == "session_meta":
            session = session or payload.get("id")
        elif record.get("type") == "response_item":
            first = first or line
            items.append(payload)
    yield first, {"thread_id": session, "messages": items}


CODEX: Final = LogFormat("Codex sessions", (("type=response_item", "payload.type"),), _read_codex)


# --- Gemini's Agent Development Kit ---


def _read_adk_sessions(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    for line, record in objects_of(records):
        contents = []
        for event in dicts(record["events"]):
            content = event.get("content")
            if isinstance(content, dict) and isinstance(content.get("parts"), list):
                contents.append({**content, "role": content.get("role") or _adk_role(event)})
        user = record.get("user_id") or record.get("userId")
        yield line, {"thread_id": record.get("id"), "user_id": user, "messages": contents}


def _adk_role(event: Fields) -> str:
    if event.get("author") == "user":
        return "user"
    # The author of other events is the name of an agent.
    return "model"


SESSIONS: Final = LogFormat("ADK sessions", (("events[].content.parts[]", "events[].author"),), _read_adk_sessions)


# --- AutoGen: the saved state of agents ---


def _read_states(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    for line, record in objects_of(records):
        agents = record.get("agent_states")
        if not isinstance(agents, dict):
            messages = _messages_of_state(record)
            if messages:
                yield line, {"thread_id": None, "messages": messages}
            continue
        for name, state in agents.items():
            messages = _messages_of_state(state)
            if messages:
                yield line, {"thread_id": f"{line}/{name}", "messages": messages}


def _messages_of_state(state: Any) -> list[Any]:
    """Return the messages of an agent's state; of a team's, each agent's state is wrapped."""
    if not isinstance(state, dict):
        return []
    inner = state.get("agent_state", state)
    context = inner.get("llm_context", inner)
    if not isinstance(context, dict):
        return []
    messages = context.get("messages", context.get("llm_messages"))
    if isinstance(messages, list):
        return messages
    return []


STATES: Final = LogFormat(
    "AutoGen states", (("llm_context.messages[]",), ("agent_states",), ("type=AssistantAgentState",)), _read_states
)

# --- conversations of `from` and `value` (ShareGPT, ToolBench's training set), and ToolBench's answer files ---

_ACTION: Final = re.compile(
    r"\s*(?:Thought:(?P<thought>.*?))?Action:(?P<tool>[^\n]{0,200})\n\s*Action Input:", re.DOTALL
)
_RESULT_ROLES: Final = ("function", "observation", "tool", "function_response")


def _read_conversations(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    for line, record in objects_of(records):
        # There are no ids: a result answers the latest call.
        transcript, waiting = Transcript(), ""
        transcript.dialects["ShareGPT messages"] = None
        for message in dicts(record["conversations"]):
            role, text = message.get("from"), str(message.get("value") or "")
            if role in _RESULT_ROLES:
                transcript.answer(text, waiting)
            elif role in ("assistant", "gpt", "function_call"):
                waiting = _read_sharegpt_answer(text, transcript) or waiting
            else:
                transcript.say(role, text)
        yield line, {"thread_id": record.get("id"), "messages": transcript}


def _read_sharegpt_answer(text: str, transcript: Transcript) -> str:
    """Add an answer of the model: text, or a call as ToolBench (`Action:`) or function-calling sets (JSON) write it."""
    transcript.end_answer()
    action = _ACTION.match(text)
    if action:
        transcript.say("assistant", (action["thought"] or "").strip())
        return transcript.call(action["tool"].strip(), _first_object(text[action.end() :]))
    called = arguments_of(text)
    if called and "name" in called:
        return transcript.call(called["name"], called.get("arguments", called.get("parameters")))
    transcript.say("assistant", text)
    return ""


def _first_object(text: str) -> object:
    try:
        # `raw_decode`: text may follow the arguments.
        arguments, _end = json.JSONDecoder(strict=False).raw_decode(text.strip())
    except (ValueError, RecursionError):
        return text
    return arguments


def _read_toolbench_answers(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    """Yield the histories of ToolBench's answer files: one for each answer of the model, branches included."""
    for line, record in objects_of(records):
        answer = record["answer_generation"]
        thread = digest("toolbench", line, str(answer.get("query")))
        snapshots = []
        for history in answer.get("train_messages") or ():
            facts = {"thread_id": thread, "task": answer.get("query"), "success": record.get("win")}
            snapshots.append(TranscriptSnapshot(line, facts, transcribe(history)))
        yield from latest_snapshots(snapshots)


CONVERSATIONS: Final = LogFormat(
    "ShareGPT conversations", (("conversations[].from", "conversations[].value"),), _read_conversations
)
TOOLBENCH: Final = LogFormat("ToolBench answers", (("answer_generation.train_messages",),), _read_toolbench_answers)


# --- SWE-agent and mini-swe-agent: structured calls alone, not commands in a text ---


def _read_trajectories(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    for line, record in objects_of(records):
        history = dicts(record.get("history")) or dicts(record.get("messages"))
        # The prompt may contain a whole demonstration, whose calls the model did not make.
        own = [message for message in history if not message.get("is_demo")]
        transcript = transcribe([_plain_message(message) for message in own])
        transcript.leave_out("demonstration messages", len(history) - len(own))
        for message in own:
            if _actions_of(message) and not message.get("tool_calls"):
                transcript.leave_out("actions written as text")
        yield line, {"messages": transcript}


def _actions_of(message: Fields) -> Any:
    extra = message.get("extra")  # mini-swe-agent's
    if isinstance(extra, dict):
        return extra.get("actions")
    return message.get("action")


def _plain_message(message: Fields) -> Fields:
    # `message_type` and other keys of theirs are arguments of LangChain's messages, with other meanings.
    keys = ("role", "content", "tool_calls", "tool_call_id", "tool_call_ids")
    return {key: message[key] for key in keys if key in message}


SWE_AGENT: Final = LogFormat(
    "SWE-agent trajectories",
    (("history[].role",), ("messages", "trajectory_format")),
    _read_trajectories,
)
