"""Runs as values: user messages, model turns, the tool calls in them, and the episodes of a thread.

A *thread* is a conversation. An *episode* is one request in it: from the message that asks for something to its answer,
including the model's questions, the user's replies and confirmations. A user message opens an episode, unless

1. it is not a request (thanks, "yes", a greeting, a mark such as ``###STOP###``) and a request precedes it;
2. the episode has only greetings so far, or the previous message is unanswered;
3. the model's last words ask the user for something ("Which one?", "Please confirm …"; not "Anything else?") and the
   message replies: it begins with yes or no, or has no new request, or shares the topic.

These are fixed rules, without a model. `core.episodes` keeps the result, so that it is the same when the thread is
trimmed later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.runs.messages import Status
from langgraph_toolmem.text.wording import is_small_talk
from langgraph_toolmem.text.words import LEXICON, STOP_WORDS, stem, word_set, words

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
        run = self
        while (episode := run.current) is not run:
            yield episode
            run = Run(episode.earlier, self.thread_id, self.truncated, None)
        yield run

    @property
    def current(self) -> Run:
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
_SAYING_NOTHING: Final = STOP_WORDS | word_set("one ones same first second third last other others another again")


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
        if word not in _SAYING_NOTHING:
            stems.add(stem(word))
    return stems


_SMALL: Final = word_set("you your i it is that's the all for now have a day was to me my and so much been just")
