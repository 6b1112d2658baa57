"""What a tool's output says: texts and content blocks as plain JSON values.

A text that is a JSON object, array, number or boolean becomes that value; a Python literal such as
``"{'a': 1}"`` (what ``str()`` of a tool's dict looks like) becomes the same value in JSON types; anything
else stays text.
Results are cached by text and therefore **shared**: nobody may change them in place.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NoReturn

Status = Literal["ok", "failed", "rejected", "unanswered"]

_SHORT = 2_000
_LONG = 200_000
_LITERAL_LIMIT = 100_000

_BLOCK_TYPES = frozenset(
    {
        "text",
        "text-plain",
        "image",
        "image_url",
        "audio",
        "video",
        "file",
        "resource",
        "resource_link",
        "document",
    }
    | {"reasoning", "thinking", "redacted_thinking", "tool_use", "tool_call", "function_call", "json"}
    | {"input_text", "output_text", "refusal", "search_result", "non_standard", "guard_content", "cachePoint"}
)
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})

# Only texts made of these tokens go to `ast.literal_eval`: on others the parser may print a SyntaxWarning.
_LITERAL = re.compile(
    r"""(?: [\[\]{}(),:\s]
          | '(?:[^'\\\n]|\\[\\'"abfnrtv]|\\x[0-9a-f]{2}|\\u[0-9a-f]{4})*'
          | "(?:[^"\\\n]|\\[\\'"abfnrtv]|\\x[0-9a-f]{2}|\\u[0-9a-f]{4})*"
          | (?:True|False|None)(?!\w)
          | -?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])
        )*""",
    re.VERBOSE,
)


# How the texts of well-known components begin that answer a call in place of the tool, or report its failure.
# They matter where `status` is lost (OpenAI-format logs) and where "error" is said of a call nobody executed.
_KNOWN_ANSWERS: tuple[tuple[str, Status], ...] = (
    (r"Error: .* is not a valid tool, try one of \[", "rejected"),  # ToolNode: unknown tool
    # ToolNode: arguments refused by the schema (the longer form with handle_tool_errors=True)
    (r"(?:Error: ToolInvocationError\(['\"])?Error invoking tool '.*' with kwargs ", "rejected"),
    (r"Tool input validation error$", "rejected"),  # BaseTool(handle_validation_error=True)
    # MCP server: arguments refused by the schema (the longer form with handle_tool_errors=True)
    (r"(?:Error: ToolException\(['\"])?Input validation error: ", "rejected"),
    # FastMCP server: arguments refused by the schema
    (
        r"(?:Error: ToolException\(['\"])?Error executing tool \S+: \d+ validation errors? for \S+Arguments\b",
        "rejected",
    ),
    (r"User rejected the tool call for `", "rejected"),  # HumanInTheLoopMiddleware: reject
    (
        r"Note: a human reviewer replaced this tool call before it ran\.",
        "rejected",
    ),  # ... edit, if `edited_call` cannot
    (r"Tool call limit exceeded\. Do not ", "rejected"),  # ToolCallLimitMiddleware
    (r"Execution stopped before this tool call could run ", "rejected"),  # ... exit_behavior="end"
    (
        r"Error: The `write_todos` tool should never be called multiple times in parallel",
        "rejected",
    ),  # TodoList
    (
        r"Tool call .* was cancelled - another message came in before ",
        "unanswered",
    ),  # deepagents: dangling calls
    (r"Error executing tool '.*' with kwargs ", "failed"),  # ToolNode
    (r"Error: .*\n Please fix your mistakes\.$", "failed"),  # ToolNode(handle_tool_errors=True)
)
_KNOWN_ANSWER = re.compile("|".join(f"({pattern})" for pattern, _ in _KNOWN_ANSWERS), re.DOTALL)
_KNOWN_STATUS = tuple(status for _, status in _KNOWN_ANSWERS)
_KNOWN_STARTS = ("Error", "Tool ", "Input ", "User ", "Note: ", "Execution ")
_KNOWN_CHARS = 4_000


def text_of(content: Any, *, separator: str = "") -> str:
    """Text of a message's content: strings and text blocks joined; reasoning and media left out.

    Models split one text into blocks at citations, so nothing goes between them by default.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    return separator.join(part for part in map(_text_of_part, content) if part is not None)


def output_of(content: Any) -> Any:
    """Value of a tool message's content.

    Blocks: the text of a single block is read like a string; several blocks that each hold an object or
    array (an MCP server sends one block per list item) become a list; several texts are joined by line
    breaks. A list of dicts that are no content blocks is data already. Media and artifacts are left out.
    """
    if isinstance(content, str):
        return output_of_text(content)
    if not isinstance(content, Sequence):
        return ""
    if content and all(isinstance(part, dict) and not _is_block(part) for part in content):
        return list(content)
    texts: list[str] = []
    values: list[Any] = []
    for part in content:
        if isinstance(part, dict) and part.get("type") in (None, "json") and "json" in part:
            texts.append(json.dumps(part["json"], default=str))
        elif (text := _text_of_part(part)) is not None:
            texts.append(text)
    if len(texts) > 1:
        values = [output_of_text(text) for text in texts]
        if all(isinstance(value, (dict, list)) for value in values):
            return values
    return output_of_text("\n".join(texts))


def output_of_text(text: str) -> Any:
    """Value of one text; see the module. Cached: at most about 10 million characters of text are kept."""
    if len(text) <= _SHORT:
        return _short(text)
    return _long(text) if len(text) <= _LONG else _parse(text)


def status_of(content: Any, *, error: bool) -> Status:
    """What became of a call, by the known texts and by ``status="error"`` of the message."""
    text = text_of(content)
    if text.startswith(_KNOWN_STARTS) and (found := _KNOWN_ANSWER.match(_ends(text))):
        return _KNOWN_STATUS[(found.lastindex or 1) - 1]
    return "failed" if error else "ok"


_EDITED = re.compile(r"Note: a human reviewer replaced this tool call before it ran\..*?Executed instead: ", re.DOTALL)
_WITH_ARGUMENTS = " with arguments "
_EDIT_ANSWER = "\n\nTool response:"


def edited_call(content: Any) -> tuple[str, dict[str, Any], Any] | None:
    """The call that a person put in place of the model's, as HumanInTheLoopMiddleware's notice tells it.

    Returns:
        Tool, arguments and the answer without the notice; None if the content begins with no such notice.
    """
    head = content if isinstance(content, str) else _text_of_part(content[0]) if _has_parts(content) else None
    if head is None or not head.startswith("Note: ") or (found := _EDITED.match(head)) is None:
        return None
    tool, mark, rest = head[found.end() :].partition(_WITH_ARGUMENTS)
    try:
        args, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    if not mark or not isinstance(args, dict) or not rest.startswith(".", end):
        return None
    answer = rest[end + 1 :].removeprefix(_EDIT_ANSWER).removeprefix("\n")
    return tool, args, answer if isinstance(content, str) else list(content[1:])


def was_refused_by_a_person(content: Any) -> bool:
    """Whether an answer stands for a call that HumanInTheLoopMiddleware's reviewer rejected."""
    return text_of(content).startswith("User rejected the tool call for `")


def _has_parts(content: Any) -> bool:
    return isinstance(content, Sequence) and not isinstance(content, str) and len(content) > 0


def _ends(text: str) -> str:
    return text if len(text) <= _KNOWN_CHARS else text[: _KNOWN_CHARS // 2] + text[-_KNOWN_CHARS // 2 :]


def _text_of_part(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and (part.get("type") in _TEXT_TYPES or "type" not in part):
        text = part.get("text")
        return text if isinstance(text, str) else None
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
    if body[0] not in "{[":
        return _scalar(body, text)
    try:
        return json.loads(body, parse_float=_finite, parse_constant=_refuse)
    except (ValueError, RecursionError):
        pass
    if len(body) > _LITERAL_LIMIT or _LITERAL.fullmatch(body) is None:
        return text
    try:
        return _json_types(ast.literal_eval(body))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _scalar(body: str, text: str) -> Any:
    if body in ("true", "false"):
        return body == "true"
    if body[0] not in "-0123456789":
        return text
    try:
        return json.loads(body, parse_float=_finite, parse_constant=_refuse)
    except ValueError:
        return text


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(digits)
    return number


def _refuse(constant: str) -> NoReturn:
    # NaN and Infinity are not JSON: a text that holds them stays text.
    raise ValueError(constant)


def _json_types(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return _finite(repr(value))
    if isinstance(value, (list, tuple)):
        return [_json_types(item) for item in value]
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else json.dumps(_json_types(key)): _json_types(item)
            for key, item in value.items()
        }
    raise ValueError(type(value).__name__)


_short = lru_cache(maxsize=2048)(_parse)
_long = lru_cache(maxsize=32)(_parse)
