"""Kinds of user messages: thanks, replies, requests, follow-ups. English, and a few words of other languages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from langgraph_toolmem.words.small_talk import is_small_talk
from langgraph_toolmem.words.split import STOP_WORDS, stem, words
from langgraph_toolmem.words.vocabulary import VERBS, word_set

ABOUT_THE_SAME: Final = 0.3
"""Share of a message's content words in the talk before it from which both have one topic."""
LAST_WORDS: Final = 600
"""Characters at the end of an answer that are searched for a question."""
BEFORE: Final = 240
"""Characters of the previous request that a follow-up carries along."""
SHORT: Final = 12
"""Longest follow-up, in words."""

_MARK = re.compile(r"[#<\[{|]{1,3}\w+[#>\]}|]{1,3}")
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
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
_WANTED = re.compile(
    r"[?？]|\bplease\b|\blet me know\b|\btell me\b|\breply\b|\bi(?:'ll| will)? need (?:your|to know|to verify)\b"
    r"|\bconfirm (?:if|that|whether)\b",
    re.IGNORECASE,
)
_REPLIES = re.compile(
    r"\W*(?:yes|yeah|yep|yup|sure|ok|okay|no|nope|correct|right|exactly|certainly|of course|go ahead|alright"
    r"|sounds good|that's (?:right|correct|fine)|i (?:confirm|don't|do|did|am|can't|cannot|couldn't|believe|think)|my"
    r"|it's|the one|here|ja|nein|oui|non|si|sí|sim|não)\b",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"[?？]|\b(?:can|could|would|will) you\b|\bplease\b|\bi(?:'d| would) like\b|\bi (?:want|need|have to)\b|\bhelp me\b"
    r"|\bwe need\b|\bif\b",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\W*(?:and|but|also|or|what about|how about|same|again|instead|und|et|y)\b"
    r"|.*\b(?:first|second|third|last|next|other|same|another) ones?\b",
    re.IGNORECASE,
)
_POINTS = re.compile(
    r"\b(?:it|that|this|those|these|them|ones?|he|she|they|him|her|its|same|others?|another|again|instead)\b",
    re.IGNORECASE,
)
_STOP: Final = frozenset(STOP_WORDS) | word_set("one ones same first second third last other others another again")


def request_in(said: Sequence[str], earlier: Sequence[str]) -> str:
    """Return the request of an episode: the user's messages, one a line, without thanks and the like.

    A follow-up ("and the second one?") carries the previous request in brackets, cut to BEFORE characters.

    Args:
        said: the user's messages in the episode.
        earlier: those before it in the thread.
    """
    asked = [text for text in said if not asks_nothing(text)] or list(said)
    if asked and leans(asked[0]) and (before := _asked_before(earlier)):
        asked.insert(1, f"[before: {before}]")
    return "\n".join(asked)


def asks_nothing(text: str) -> bool:
    """Return True if a message only says thanks, yes or hello, or is a mark."""
    left = _MARK.sub(" ", text).replace("’", "'")
    if not left.strip() or is_small_talk(left, _SMALL):
        return True
    return bool(_THANKS.match(left)) and not _is_request(left)


def replies(text: str, answer: str, said: Sequence[str]) -> bool:
    """Return True if a message replies to the model's last words, given the user's messages of the request so far."""
    if not asks_back(answer):
        return False
    if _REPLIES.match(text) or not _is_request(text):
        return True
    telling = _telling(text)
    talk = set().union(*map(_telling, (*said, answer)))
    return not telling or len(telling & talk) / len(telling) >= ABOUT_THE_SAME


def leans(text: str) -> bool:
    """Return True if a message makes sense only with the messages before it."""
    telling = len(_telling(text))
    if len(words(text)) > SHORT or telling > 3:
        return False
    return telling <= 1 or bool(_GOES_ON.match(text)) or (telling <= 2 and bool(_POINTS.search(text)))


def _asked_before(earlier: Sequence[str]) -> str:
    found: list[str] = []
    for text in reversed(earlier):
        if not asks_nothing(text):
            found.insert(0, " ".join(text.split()))
            if not leans(text) or len(" ".join(found)) >= BEFORE:
                break
    text = " ".join(found)
    return text if len(text) <= BEFORE else f"{text[: BEFORE - 2].rpartition(' ')[0]} …"


def asks_back(answer: str) -> bool:
    """Return True if the end of an answer asks the user for something."""
    last = _SENTENCE.findall(answer[-LAST_WORDS:])[-4:]
    return any(
        _WANTED.search(sentence) and ("would you like me to" in sentence.lower() or not _COURTESY.search(left))
        for sentence in last
        if (left := _BY_THE_WAY.sub("", sentence))
    )


def _is_request(text: str) -> bool:
    if _ASKS.search(text):
        return True
    return any((found := words(sentence)) and found[0] in _ACTS for sentence in _SENTENCE.findall(text))


def _telling(text: str) -> set[str]:
    return {stem(word) for word in words(text) if word not in _STOP}


_SMALL: Final = word_set("you your i it is that's the all for now have a day was to me my and so much been just")
_ACTS: Final = VERBS | word_set("mail email tell ask give use go write call pay ensure tag remind make reply forward")
