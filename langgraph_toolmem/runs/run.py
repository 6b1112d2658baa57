"""Runs as values: messages and their content, the calls of a model, and the episodes of a thread.

A *thread* is a conversation. An *episode* is one request in it: from the message that asks for something to its answer,
including the model's questions, the user's replies and confirmations. A user message opens an episode, unless

1. it is not a request (thanks, "yes", a greeting, a mark such as ``###STOP###``) and a request precedes it;
2. the episode has only greetings so far, or the previous message is unanswered;
3. the model's last words ask the user for something ("Which one?", "Please confirm …"; not "Anything else?") and the
   message replies: it begins with yes or no, or has no new request, or shares the topic.

These are fixed rules, without a model. `core.episodes` keeps the result, so that it is the same when the thread is
trimmed later.

Messages are read in all accepted forms. The content of a tool message becomes plain JSON values: a text that is a JSON
object, array, number or boolean becomes that value, and any other text stays text. Results are cached by text and
therefore **shared**: do not change them in place.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.prompt_values import PromptValue

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.base.errors import MessageError
from langgraph_toolmem.base.text import digest, loads
from langgraph_toolmem.runs.values import VALUE_LIMITS
from langgraph_toolmem.text.wording import is_small_talk
from langgraph_toolmem.text.words import LEXICON, STOP_WORDS, stem, word_set, words

Status = Literal["ok", "failed", "rejected", "unanswered"]

Chooser = Literal["model", "shortcut", "context"]
Review = Literal["", "edited", "rejected"]

SUMMARY_TOOL: Final = "summarize_state"
"""The tool that writes a summary. Its calls are not steps; its text belongs to the next turn."""
SEARCH_TOOL: Final = "search_tools"
CALL_TOOL: Final = "call_tool"
"""The tools by which the model finds and calls deferred tools. Their calls are not steps either."""
OWN_TOOLS: Final = frozenset({SUMMARY_TOOL, SEARCH_TOOL, CALL_TOOL})
"""The memory's own tools. Their calls are not learned."""


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    """One tool call.

    Attributes:
        tool: Name of the executed tool.
        args: Arguments as executed, JSON values: the model's, or those of a person who edited the call. A short text
            represents one that is too large to read (`values.readable`). Shared with the message; do not change them.
        output: Parsed JSON if the answer is a JSON object, array, number or boolean, otherwise its text; None if
            unanswered. Of a longer answer the first `VALUE_LIMITS.message` characters are read. Shared by all readers
            of this text; do not change it.
        status: ``ok``: executed. ``failed``: raised, or answered with ``status="error"``. ``rejected``: not executed
            as written (a person rejected, replaced or answered it, a limit blocked it, unknown tool, arguments that
            do not fit the schema). ``unanswered``: no answer (yet).
        chosen_by: The author of the call.
        call_id: Id of the call in its message, or "".
        key: Identity of the executed call, 16 hexadecimal digits.
        review: ``edited`` if tool and arguments are a person's, ``rejected`` if a person rejected the call, or "".
    """

    tool: str
    args: dict[str, Any]
    output: Any
    status: Status
    chosen_by: Chooser
    call_id: str
    key: str
    review: Review = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """One tool call as a recorder saw it.

    Attributes:
        tool: Name of the executed tool.
        args: Its arguments, without those that the host injects.
        status: ``ok`` or ``failed``, of the latest attempt.
        over: True if this is the last attempt.
    """

    tool: str
    args: dict[str, Any]
    status: Literal["ok", "failed"]
    over: bool = True


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant message.

    Attributes:
        steps: Its calls in order; empty if the model answered in words.
        text: Its thought or answer, without reasoning blocks.
        chosen_by: The author of the message.
        key: Identity of the turn's position (of the history before it), known before the model answers.
        settled: True if every call has its answer, or the history continues after the turn.
        input_tokens, output_tokens: Usage of the model call; 0 if unknown.
        cached_tokens: Input tokens that the provider read from its cache.
        summary: Text that the agent wrote with the summary tool right before this turn, if any.
        episode: Digest of its episode.
        answer: Identity of an answer in words, independent of its position in a history; "" for calls.
    """

    steps: tuple[ExecutedCall, ...]
    text: str
    chosen_by: Chooser
    key: str
    settled: bool
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    summary: str | None = None
    episode: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message of the user.

    Attributes:
        text: Its text.
        key: Its identity.
        episode: Digest of its episode.
        media: Digest of its pictures, files and other non-text blocks, or "".
    """

    text: str
    key: str
    episode: str = ""
    media: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A parsed history of messages: a thread, or one episode of it (`episodes`).

    Attributes:
        events: User messages and model turns in order, without system messages.
        thread_id: As given to `parse_run`.
        truncated: True if the head is missing (trimmed) or replaced by a summary.
        next_key: Key of the next model turn; None while calls of the last turn are pending.
        earlier: Events of the thread before this episode.
    """

    events: tuple[UserMessage | Turn, ...]
    thread_id: str | None
    truncated: bool
    next_key: str | None
    earlier: tuple[UserMessage | Turn, ...] = ()

    @property
    def digest(self) -> str:
        """Digest of the current episode. It hides the thread's id, which may name a person."""
        if self.events and self.events[-1].episode:
            return self.events[-1].episode
        return digest("run", self.thread_id or self.scope)

    @property
    def scope(self) -> str:
        """Key of the first event, in place of a missing thread id."""
        if not self.events:
            return ""
        return self.events[0].key

    def episodes(self) -> list[Run]:
        """Return the episodes of a thread in order, each with the events before it."""
        latest_first = list(self.backwards())
        latest_first.reverse()
        return latest_first

    def backwards(self) -> Iterator[Run]:
        """Yield the episodes of a thread from the latest to the first, lazily."""
        run, episode = self, self.current
        while episode is not run:
            yield episode
            run = Run(episode.earlier, self.thread_id, self.truncated, None)
            episode = run.current
        yield run

    @property
    def current(self) -> Run:
        """The latest episode; the run itself if it has only one."""
        start, events = len(self.events), self.events
        while start and events[start - 1].episode == events[-1].episode:
            start -= 1
        if not start:
            return self
        return Run(events[start:], self.thread_id, False, self.next_key, events[:start])

    @property
    def request(self) -> str:
        """The user's messages of the current episode, one a line, without thanks and the like, or ""."""
        texts: list[str] = []
        requests: list[str] = []
        for event in self.current.events:
            if not isinstance(event, UserMessage) or not event.text.strip():
                continue
            text = event.text.strip()
            texts.append(text)
            if not asks_nothing(text):
                requests.append(text)
        # A conversation may begin with only a greeting; then the greeting is the request.
        return "\n".join(requests or texts)

    @property
    def awaiting_model(self) -> bool:
        """True if the model's turn is next: without pending calls, and not right after an answer in words."""
        if self.next_key is None:
            return False
        if not self.events:
            return True
        last = self.events[-1]
        return isinstance(last, UserMessage) or bool(last.steps)


Primitive: TypeAlias = "str | int | float | bool"


@dataclass(frozen=True, slots=True)
class ModelInput:
    """Text and data that the model sees besides the thread's messages.

    Attributes:
        system: text of the system prompt, and of user messages that are in the request but not in the state.
        context: primitive fields of the run's context, by name.
        complete: True if the input is complete, because the memory is the last before the model. If False, prompt and
            context give no values.
    """

    system: str = ""
    context: Mapping[str, Primitive] = field(default_factory=dict)
    complete: bool = False


UNSEEN: Final = ModelInput()
"""The input of a model call whose prompt the memory cannot see."""


# --- episodes ---


def opens(text: str, before: Sequence[UserMessage | Turn]) -> bool:
    """Return True if a user message opens an episode, given the events of the current one (see the module)."""
    texts = [event.text for event in before if isinstance(event, UserMessage)]
    has_only_greetings = bool(texts) and all(map(asks_nothing, texts))
    if asks_nothing(text) or has_only_greetings:
        return False
    if not before:
        return True
    last = before[-1]
    if isinstance(last, UserMessage):  # it is unanswered
        return False
    # Calls without an answer in words: the user interrupted with another request.
    return bool(last.steps) or not replies(text, last.text, texts)


# --- kinds of user messages; English, and a few words of other languages ---

# A mark in place of words, such as "###STOP###" or "[DONE]".
_BRACKETED = re.compile(r"[#<\[{|]{1,3}\w+[#>\]}|]{1,3}")
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
# Courtesy questions at the end of an answer: a message after them is a new request.
_COURTESY = re.compile(
    r"\b(?:else|(?:any|other|more|further) (?:questions?|help|assistance|requests?)|feel free|hesitate"
    r"|need (?:any|help)|help you with|can i (?:help|assist)|how (?:can|may) i|try again later|hold on|note that)\b",
    re.IGNORECASE,
)
_BY_THE_WAY = re.compile(r",? (?:or|and) (?:if you|if there|is there|let me know if you)\b[^.?!？]*", re.IGNORECASE)
_THANKS = re.compile(
    r"\W*(?:(?:great|perfect|ok|okay|no|alright|got it|i see|understood|yes)\b\W*)*"
    r"(?:thanks?\b|that(?:'s| is| will be|'ll be) (?:all|everything|it)\b|i appreciate|i understand)",
    re.IGNORECASE,
)
# The model asks the user for something, not always with a question mark: "I'll need your order number."
_WANTED = re.compile(
    r"[?？]|\bplease\b|\blet me know\b|\btell me\b|\breply\b|\bi(?:'ll| will)? need (?:your|to know|to verify)\b"
    r"|\bconfirm (?:if|that|whether)\b",
    re.IGNORECASE,
)
# Beginnings of a reply. "My" and "it's" name the requested value: "My email is …".
_REPLIES = re.compile(
    r"\W*(?:yes|yeah|yep|yup|sure|ok|okay|no|nope|correct|right|exactly|certainly|of course|go ahead|alright"
    r"|sounds good|that's (?:right|correct|fine)|i (?:confirm|don't|do|did|am|can't|cannot|couldn't|believe|think)|my"
    r"|it's|the one|here|ja|nein|oui|non|si|sí|sim|não)\b",
    re.IGNORECASE,
)
# The user asks for something; a message without these may still be an order (`_is_order`).
_ASKS = re.compile(
    r"[?？]|\b(?:can|could|would|will) you\b|\bplease\b|\bi(?:'d| would) like\b|\bi (?:want|need|have to)\b|\bhelp me\b"
    r"|\bwe need\b|\bif\b",
    re.IGNORECASE,
)
# Words that point at one of several things: they do not define a topic.
_POINTING: Final = STOP_WORDS | word_set("one ones same first second third last other others another again")


# Next to thanks, yes and hello these make no request either: "thank you for all that, have a nice day".
_SMALL: Final = word_set("you your i it is that's the all for now have a day was to me my and so much been just")


def asks_nothing(text: str) -> bool:
    """Return True if a message only says thanks, yes or hello, or is a mark."""
    # Simulated users of benchmarks end a conversation with a mark such as ###STOP###.
    unmarked = _BRACKETED.sub(" ", text).replace("’", "'")
    if not unmarked.strip() or is_small_talk(unmarked, _SMALL):
        return True
    return bool(_THANKS.match(unmarked)) and not _is_request(unmarked)


def replies(text: str, answer: str, texts: Sequence[str]) -> bool:
    """Return True if a message replies to the model's last words, given the user's messages of the request so far."""
    if not asks_back(answer):
        return False
    if _REPLIES.match(text) or not _is_request(text):
        return True
    telling = _content_words(text)
    if not telling:
        return True
    talk = _content_words("\n".join([*texts, answer]))
    # Both have one topic if this share of the message's words was said before.
    return len(telling & talk) / len(telling) >= 0.3


def asks_back(answer: str) -> bool:
    """Return True if the end of an answer asks the user for something."""
    # Only the end counts: an answer may explain with questions, and then close without one.
    last_words = answer[-600:]
    sentences = _SENTENCE.findall(last_words)
    return any(_wants_a_reply(sentence) for sentence in sentences[-4:])


def _wants_a_reply(sentence: str) -> bool:
    if not _WANTED.search(sentence):
        return False
    # "Order 5 is on its way, or is there anything else?": the second half is only courtesy
    without_courtesy = _BY_THE_WAY.sub("", sentence)
    if not without_courtesy:
        return False
    return "would you like me to" in sentence.lower() or not _COURTESY.search(without_courtesy)


def _is_request(text: str) -> bool:
    if _ASKS.search(text):
        return True
    return any(_is_order(sentence) for sentence in _SENTENCE.findall(text))


def _is_order(sentence: str) -> bool:
    """Return True if a sentence begins with a verb that tools have."""
    first_words = words(sentence)[:1]
    return bool(first_words) and first_words[0] in LEXICON.acts


def _content_words(text: str) -> set[str]:
    stems = set()
    for word in words(text):
        if word not in _POINTING:
            stems.add(stem(word))
    return stems


# --- messages ---

LOOP_NOTE: Final = "Note: this call was not made. "
"""Beginning of the answer to a call that a loop guard stopped."""
STOPPED: Final = "Stopped by the loop guard: "
"""Beginning of the last answer of a run that a loop guard ended."""

ACCEPTED_MESSAGES = (
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
        raise MessageError(f"`messages` must be a list of messages, got {describe(messages)}. {ACCEPTED_MESSAGES}")
    return list(messages)


def describe(value: Any) -> str:
    """Return the type of a value that is not a message, and its first keys."""
    if not isinstance(value, Mapping):
        return type(value).__name__
    keys = ", ".join([repr(key) for key in list(value)[:8]])
    return f"dict with keys {keys or 'none'}"


def message_of(entry: Any) -> BaseMessage:
    """Return an entry as a message object; common errors of logs are repaired."""
    if isinstance(entry, BaseMessage):
        return entry
    if not isinstance(entry, dict):
        return _converted(entry)
    fields = dict(entry)
    if isinstance(fields.get("data"), dict) and "content" not in fields:  # messages_to_dict
        fields = {**fields["data"], "type": fields.get("type")}
    role = fields.get("role", fields.get("type"))
    if isinstance(role, str) and role != "constructor":
        _repair_content(fields, role)
    _drop_nulls(fields)
    if role in ("assistant", "ai"):
        _repair_calls(fields)
    return _converted(fields)


def _converted(entry: Any) -> BaseMessage:
    [message] = convert_to_messages([entry])
    return message


def _drop_nulls(fields: dict[str, Any]) -> None:
    """Delete fields that OpenAI's client dumps as null because they are missing."""
    for name in ("additional_kwargs", "response_metadata", "tool_calls", "invalid_tool_calls"):
        if name in fields and fields[name] is None:
            del fields[name]


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
    # A picture of 20 MB takes 0.06 s at each reading of the thread (tests/unit/test_sizes.py).
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
    if isinstance(content, str):
        return _edit_in(content)
    if not isinstance(content, Sequence) or not content:
        return None
    notice, *answer = content
    edit = _edit_in(_text_of_part(notice) or "")
    if edit is None:
        return None
    return replace(edit, answer=answer)


def _edit_in(text: str) -> EditedCall | None:
    """Return the call in the text of a notice, with the text after it as the answer; None without a notice."""
    if not text.startswith("Note: "):
        return None
    notice = _EDITED.match(text)
    if notice is None:
        return None
    tool, mark, rest = text[notice.end() :].partition(" with arguments ")
    try:
        # The arguments may contain any text, a full stop too: only the JSON reader finds their end.
        args, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    if not mark or not isinstance(args, dict) or not rest.startswith(".", end):
        return None
    answer = rest[end + 1 :].removeprefix("\n\nTool response:").removeprefix("\n")
    return EditedCall(tool, args, answer)


def was_refused_by_a_person(content: Any) -> bool:
    """Return True for HumanInTheLoopMiddleware's answer to a call that a person rejected."""
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
        return loads(body)
    except (ValueError, RecursionError):
        return text


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
    return text[:end] + _closing(open_at_end)


def _closing(inner: _Open | None) -> str:
    """Return the signs that close an object or list, and all around it."""
    signs = ""
    while inner is not None:
        signs += inner.closing
        inner = inner.around
    return signs


def _bytes_of_value(text: str) -> int:
    """Return the bytes of a text and its JSON value: 8 for each character, measured on recorded outputs."""
    return 8 * len(text)


_kept = cached(mebibytes=32, weigh=_bytes_of_value)(_parse)
_kept_head = cached(mebibytes=8, weigh=_bytes_of_value)(_parse_head)
