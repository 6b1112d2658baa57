"""Messages in all accepted forms, and the content of tool messages as plain JSON values.

A text that is a JSON object, array, number or boolean becomes that value. Any other text stays text. Results are cached
by text and therefore **shared**: do not change them in place.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, NoReturn

from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.prompt_values import PromptValue

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.base.errors import MessageError
from langgraph_toolmem.runs.values import VALUE_LIMITS
from langgraph_toolmem.text.words import word_set

Status = Literal["ok", "failed", "rejected", "unanswered"]
LOOP_NOTE: Final = "Note: this call was not made. "
"""Beginning of the answer to a call that a loop guard stopped."""
STOPPED: Final = "Stopped by the loop guard: "
"""Beginning of the last answer of a run that a loop guard ended."""

HOW = (
    "Pass a list of LangChain messages, OpenAI-style dicts with 'role' and 'content', or (role, text) pairs, "
    'for example state["messages"].'
)


def entries_of(messages: Iterable[Any] | PromptValue) -> Iterable[Any]:
    """Return the entries of a list of messages, or of a prompt; raise MessageError for anything else."""
    if isinstance(messages, (list, tuple)):
        return messages
    if isinstance(messages, PromptValue):
        return messages.to_messages()
    if isinstance(messages, (str, bytes, Mapping, BaseMessage)) or not isinstance(messages, Iterable):
        raise MessageError(f"messages is {describe(messages)}, not a list of messages. {HOW}")
    return list(messages)


def describe(value: Any) -> str:
    """Return the type of a value that is not a message, and its first keys."""
    if not isinstance(value, Mapping):
        return type(value).__name__
    keys = ", ".join([repr(key) for key in list(value)[:8]])
    return f"dict with keys {keys or 'none'}"


def message_of(entry: Any) -> BaseMessage:
    """Convert an entry that is not a message object yet; repair common errors of logs."""
    if not isinstance(entry, dict):
        return convert_to_messages([entry])[0]
    fields = dict(entry)
    if isinstance(fields.get("data"), dict) and "content" not in fields:  # messages_to_dict
        fields = {**fields["data"], "type": fields.get("type")}
    role = fields.get("role", fields.get("type"))
    if isinstance(role, str) and role != "constructor":
        _repair_content(fields, role)
    for name in ("additional_kwargs", "response_metadata", "tool_calls", "invalid_tool_calls"):
        if fields.get(name, 0) is None:  # OpenAI's client dumps null for missing fields
            del fields[name]
    if role in ("assistant", "ai"):
        _repair_calls(fields)
    return convert_to_messages([fields])[0]


def _repair_content(fields: dict[str, Any], role: str) -> None:
    content = fields.get("content")
    if content is None:
        fields["content"] = ""
    elif role == "tool" and not _is_content(content):
        fields["content"] = json.dumps(content, default=str)


def _is_content(content: Any) -> bool:
    if isinstance(content, list):
        return all(isinstance(part, (str, dict)) for part in content)
    return isinstance(content, str)


def _repair_calls(fields: dict[str, Any]) -> None:
    """Replace the calls of an assistant dict by the readable ones."""
    fields.pop("invalid_tool_calls", None)
    calls = []
    for raw in fields.pop("tool_calls", ()):
        call = _call_of(raw)
        if call is not None:
            calls.append(call)
    if calls:
        fields["tool_calls"] = calls


def _call_of(raw: dict[str, Any]) -> dict[str, Any] | None:
    """Return a call in LangChain's form, from OpenAI's or LangChain's; None if its arguments cannot be read."""
    function = raw.get("function") or raw
    name, args = function.get("name"), function.get("arguments", function.get("args"))
    if isinstance(args, str):
        try:
            # Models write line breaks into the texts of their JSON, which only `strict=False` takes.
            args = json.loads(args.strip() or "{}", strict=False)
        except (ValueError, RecursionError):
            return None
    if args is None:
        args = {}
    if not isinstance(args, dict) or not isinstance(name, str):
        return None
    return {"name": name, "args": args, "id": raw.get("id"), "type": "tool_call"}


# --- content ---

# Types of content blocks of all providers: a list of other dicts is data that a tool returned.
_BLOCK_TYPES = word_set("""
text text-plain image image_url audio video file resource resource_link document reasoning thinking redacted_thinking
tool_use tool_call function_call json input_text output_text refusal search_result non_standard guard_content cachePoint
""")
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_NO_MEDIA = _TEXT_TYPES | {"reasoning", "thinking"}
_NOT_OF_MEDIA = frozenset({"id", "index", "cache_control"})
"""Fields of a block that differ if the same picture is sent again."""


class _KnownAnswer(NamedTuple):
    """A text by which a well-known component answers a call in place of the tool, or reports its failure.

    It is needed if `status` is lost (OpenAI's logs) or is "error" for a call that was not executed.
    """

    pattern: str
    status: Status


_RAISED = r"(?:Error: ToolException\(['\"])?"
_KNOWN_ANSWERS = (
    _KnownAnswer(r"Error: .* is not a valid tool, try one of \[", "rejected"),  # ToolNode: unknown tool
    # ToolNode: arguments refused by the schema (the longer form with handle_tool_errors=True)
    _KnownAnswer(r"(?:Error: ToolInvocationError\(['\"])?Error invoking tool '.*' with kwargs ", "rejected"),
    _KnownAnswer(r"Tool input validation error$", "rejected"),  # BaseTool(handle_validation_error=True)
    # MCP server: arguments refused by the schema
    _KnownAnswer(_RAISED + r"Input validation error: ", "rejected"),
    # FastMCP: likewise
    _KnownAnswer(_RAISED + r"Error executing tool \S+: \d+ validation errors? for \S+Arguments\b", "rejected"),
    _KnownAnswer(re.escape(LOOP_NOTE), "rejected"),
    _KnownAnswer(r"User rejected the tool call for `", "rejected"),  # HumanInTheLoopMiddleware: reject
    # HumanInTheLoopMiddleware: edit, where `edited_call` cannot read the notice
    _KnownAnswer(r"Note: a human reviewer replaced this tool call before it ran\.", "rejected"),
    _KnownAnswer(r"Tool call limit exceeded\. Do not ", "rejected"),  # ToolCallLimitMiddleware
    # ToolCallLimitMiddleware(exit_behavior="end")
    _KnownAnswer(r"Execution stopped before this tool call could run ", "rejected"),
    # TodoListMiddleware
    _KnownAnswer(r"Error: The `write_todos` tool should never be called multiple times in parallel", "rejected"),
    # deepagents: dangling calls
    _KnownAnswer(r"Tool call .* was cancelled - another message came in before ", "unanswered"),
    _KnownAnswer(r"Error executing tool '.*' with kwargs ", "failed"),  # ToolNode
    _KnownAnswer(r"Error: .*\n Please fix your mistakes\.$", "failed"),  # ToolNode(handle_tool_errors=True)
)
_KNOWN_ANSWER = re.compile("|".join([f"({known.pattern})" for known in _KNOWN_ANSWERS]), re.DOTALL)
# Most results begin differently, and the expression takes five times as long as a test of these beginnings.
_KNOWN_STARTS = ("Error", "Tool ", "Input ", "User ", "Note: ", "Execution ")


def text_of(content: Any, *, separator: str = "") -> str:
    """Join the strings and text blocks of a message's content, without reasoning and media.

    Models split one text into blocks at citations, so the default separator is empty. The first `VALUE_LIMITS.message`
    characters are read.
    """
    if isinstance(content, str):
        return content[: VALUE_LIMITS.message]
    if not isinstance(content, Sequence):
        return ""
    texts: list[str] = []
    left = VALUE_LIMITS.message
    for part in content:
        text = _text_of_part(part)
        if text is not None:
            texts.append(text[:left])
            left -= len(texts[-1]) + len(separator)
        if left <= 0:
            break
    return separator.join(texts)


def media_of(content: Any) -> str:
    """Return a digest of the pictures, files and other non-text blocks of a message; "" if it has none.

    All of a picture counts: two uncompressed ones of equal size may have equal ends.
    """
    if isinstance(content, str) or not isinstance(content, Sequence):
        return ""
    hashed = hashlib.blake2b(digest_size=12)
    has_media = False
    for part in content:
        if isinstance(part, Mapping) and part.get("type") not in _NO_MEDIA:
            has_media = True
            fields = dict(part)
            for name in _NOT_OF_MEDIA:
                fields.pop(name, None)
            _hash_into(hashed, fields)
    if not has_media:
        return ""
    return hashed.hexdigest()


def _hash_into(hashed: Any, value: Any) -> None:
    """Add plain data to a hash; each part with its length, so that no two values give the same bytes."""
    if isinstance(value, Mapping):
        hashed.update(b"{%d" % len(value))
        for name in sorted(value, key=str):
            _hash_into(hashed, str(name))
            _hash_into(hashed, value[name])
    elif isinstance(value, (list, tuple)):
        hashed.update(b"[%d" % len(value))
        for item in value:
            _hash_into(hashed, item)
    else:
        if not isinstance(value, bytes):
            value = str(value).encode("utf-8", "replace")
        hashed.update(b":%d:" % len(value))
        hashed.update(value)


def output_of(content: Any) -> Any:
    """Return the value of a tool message's content.

    The text of a single block is read like a string. Several blocks with an object or array each (an MCP server sends
    one block per list item) become a list; other texts are joined by line breaks. A list of dicts that are not content
    blocks is data already. Media and artifacts are left out, and so is a later block that begins with an HTTP status,
    which describes the answer.
    """
    if isinstance(content, str):
        return output_of_text(content)
    if not isinstance(content, Sequence):
        return ""
    if _is_data(content):
        return list(content)
    texts = _texts_of_blocks(content)
    if len(texts) > 1:
        values = [output_of_text(text) for text in texts]
        if all(isinstance(value, (dict, list)) for value in values):
            return values
    return output_of_text("\n".join(texts))


def _is_data(content: Sequence[Any]) -> bool:
    for part in content:
        if not isinstance(part, dict) or _is_block(part):
            return False
    return bool(content)


def _texts_of_blocks(content: Sequence[Any]) -> list[str]:
    texts: list[str] = []
    for part in content:
        if isinstance(part, dict) and part.get("type") in (None, "json") and "json" in part:
            texts.append(json.dumps(part["json"], default=str))
            continue
        text = _text_of_part(part)
        if text is None or (texts and _HTTP_STATUS.match(text)):
            continue
        texts.append(text[: VALUE_LIMITS.message])
    return texts


_HTTP_STATUS = re.compile(r"HTTP [1-5]\d\d\b")


def output_of_text(text: str) -> Any:
    """Return the value of one text (see the module).

    Of a longer one the first `VALUE_LIMITS.message` characters are read: the values of a JSON text that end there.
    """
    # Two caches: many short outputs stay when a few long ones fill theirs.
    if len(text) <= VALUE_LIMITS.message:
        return _kept(text)
    return _kept_head(text[: VALUE_LIMITS.message])


def status_of(content: Any, *, error: bool) -> Status:
    """Return the status of a call, by the known texts and by ``status="error"`` of the message."""
    text = text_of(content)
    if text.startswith(_KNOWN_STARTS):
        # Two of the texts are recognised by their end, so both ends of a long one are searched.
        if len(text) > 4_000:
            text = text[:2_000] + text[-2_000:]
        known = _KNOWN_ANSWER.match(text)
        if known:
            # Each text is a group of its own: the number of the group is its place in the table.
            return _KNOWN_ANSWERS[(known.lastindex or 1) - 1].status
    if error:
        return "failed"
    return "ok"


@dataclass(frozen=True, slots=True)
class EditedCall:
    """A person's replacement of the model's call, and its answer."""

    tool: str
    args: dict[str, Any]
    answer: Any


_EDITED = re.compile(r"Note: a human reviewer replaced this tool call before it ran\..*?Executed instead: ", re.DOTALL)


def edited_call(content: Any) -> EditedCall | None:
    """Return the call in HumanInTheLoopMiddleware's notice of an edit, or None.

    The notice reads ``… Executed instead: TOOL with arguments JSON.``, then the answer.
    """
    is_list = isinstance(content, Sequence) and not isinstance(content, str)
    first = content
    if is_list and content:
        first = content[0]
    head = _text_of_part(first)
    if head is None or not head.startswith("Note: "):
        return None
    notice = _EDITED.match(head)
    if notice is None:
        return None
    tool, mark, rest = head[notice.end() :].partition(" with arguments ")
    try:
        # The arguments may contain any text, a full stop too: only the JSON reader finds their end.
        args, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    if not mark or not isinstance(args, dict) or not rest.startswith(".", end):
        return None
    if is_list:
        return EditedCall(tool, args, list(content[1:]))
    answer = rest[end + 1 :].removeprefix("\n\nTool response:").removeprefix("\n")
    return EditedCall(tool, args, answer)


def was_refused_by_a_person(content: Any) -> bool:
    return text_of(content).startswith("User rejected the tool call for `")


def no_usage() -> UsageMetadata:
    """Return the usage of a message that a model did not make, so that a host can add up the usage of all messages."""
    return {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}  # type: ignore[typeddict-item]


def was_answered_by_a_person(message: BaseMessage) -> bool:
    """Return True if a person answered in the tool's place: HumanInTheLoopMiddleware's decision "respond".

    Only its mark distinguishes such an answer from a tool's. Before langchain-core 1.7.2 the mark is missing.
    """
    marks = message.additional_kwargs
    data = marks.get("lc_data")
    return (
        marks.get("lc_source") == "hitl_interrupt_decision"
        and isinstance(data, Mapping)
        and data.get("decision") == "respond"
    )


def _text_of_part(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    # Blocks in Bedrock's form have no "type".
    if isinstance(part, dict) and (part.get("type") in _TEXT_TYPES or "type" not in part):
        text = part.get("text")
        if isinstance(text, str):
            return text
    return None


def _is_block(part: dict[Any, Any]) -> bool:
    kind = part.get("type")
    if kind is None:
        return len(part) == 1 and bool(part.keys() & {"text", "json", "image", "document", "video"})
    return isinstance(kind, str) and kind in _BLOCK_TYPES


def _parse(text: str) -> Any:
    body = text.strip()
    if not body:
        return text
    if body in ("true", "false"):
        return body == "true"
    # Most outputs are prose: an exception of the JSON reader for each of them would cost more than this test.
    if body[0] not in "{[-0123456789":
        return text
    try:
        return json.loads(body, parse_float=_finite, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(digits)
    return number


def _refuse(constant: str) -> NoReturn:
    # NaN and Infinity are not JSON: a text that contains them stays text.
    raise ValueError(constant)


# --- long outputs ---

MAX_OPEN: Final = 64
"""Limit of objects and lists around a value of a long output. Deeper values are left out, and never end a part."""
_SIGNS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
"""Strings, so that the signs in them do not count, and the signs of JSON."""


@dataclass(frozen=True, slots=True)
class _Open:
    """An object or a list that is not closed yet, and the one around it."""

    closing: str
    around: _Open | None
    depth: int


def _opened(sign: str, around: _Open | None) -> _Open:
    closing, depth = "]", 1
    if sign == "{":
        closing = "}"
    if around is not None:
        depth += around.depth
    return _Open(closing, around, depth)


def _parse_head(text: str) -> Any:
    """Return the value of the beginning of a long text: of JSON the complete parts, without the rest."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    value = _parse(_complete_part(text))
    if isinstance(value, (dict, list)):
        return value
    return text


def _complete_part(text: str) -> str:
    """Return a JSON text up to its last comma that is not too deep, with the objects and lists around it closed."""
    end = 0
    open_at_end: _Open | None = None
    inner: _Open | None = None
    for match in _SIGNS.finditer(text):
        sign = text[match.start()]
        if sign in "{[":
            inner = _opened(sign, inner)
        elif sign in "}]":
            if inner is not None:
                inner = inner.around
        elif sign == "," and inner is not None and inner.depth <= MAX_OPEN:  # all before it is complete
            end, open_at_end = match.start(), inner
    closing = ""
    while open_at_end is not None:
        closing += open_at_end.closing
        open_at_end = open_at_end.around
    return text[:end] + closing


def _bytes_of_value(text: str) -> int:
    """Return the bytes of a text and its JSON value: 8 for each character, measured on recorded outputs."""
    return 8 * len(text)


_kept = cached(mebibytes=32, weigh=_bytes_of_value)(_parse)
_kept_head = cached(mebibytes=8, weigh=_bytes_of_value)(_parse_head)
