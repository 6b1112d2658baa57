"""Lessons for a team: no value of a user is in them.

What looks like a value becomes its kind (`words.values.delexicalised`, as in atoms); so does what stood in a call's
arguments. Of the other words none stays because it looks harmless. A word stays if any request may have it, if a tool's
schema has it, if two users said it, or if it is a critic's own: nothing that the runs hold is like it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import as_text
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.entries.lesson import Lesson
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.words.split import words
from langgraph_toolmem.words.values import delexicalised
from langgraph_toolmem.words.wording import is_usual

USERS: Final = 2
"""Users who said a word that is no value of any of them."""
LEFT: Final = 0.5
"""Share of the telling words that has to be left for a text to say anything."""
NAME_WORDS: Final = 2
"""An argument of so many words may be a name."""
_OURS: Final = "What went wrong: Where: call Instead:"
_WORD: Final = re.compile(r"[^\W_]+")
_SLOT: Final = re.compile(r"<[A-Z_]+>")


def masked(lesson: Lesson, runs: Sequence[Entry], everybody: Iterable[Entry], tools: Mapping[str, ToolSpec]) -> Lesson:
    """The lesson without values of its user.

    Args:
        lesson: of a user.
        runs: its runs.
        everybody: runs of all users, for words that several of them use.
        tools: schemas, by name.

    Raises:
        InputError: it is in a user's own words, or too little of it is known to be no value.
    """
    if lesson.failed and not lesson.by_critic:
        raise InputError(
            f"The lesson {lesson.id} cannot be shown to a team: it is in a user's own words. A critic, "
            "Entries(critic=…), writes lessons in words of its own."
        )
    values = {text for run in runs for call in run.calls for text in _texts(call.args)}
    declared = _stems([*_described(tools), *lesson.tools])
    # A name that two users know is a name: it stands alone in some argument.
    named = _stems(value for value in values if len(value.split()) <= NAME_WORDS)
    known = (_common(everybody) - named) | declared | _stems([_OURS])
    values = {value for value in values if not _stems([value]) <= declared}
    held = [text for run in runs for text in (run.query, run.comment, *(call.answer for call in run.calls))]
    strange = {stem for stem in _stems([*held, *values]) if stem not in known}
    query = _without(lesson, lesson.query, values, known.__contains__)
    own = lambda stem: stem in known or not any(_like(stem, other) for other in strange)  # noqa: E731 - of one line
    said = _without(lesson, lesson.words, values, own) if lesson.failed else ""
    return replace(lesson, query=query, words=said, comment="", words_of=lesson.words_of if said else "", scope="team")


def _without(lesson: Lesson, text: str, values: Collection[str], stays: Callable[[str], bool]) -> str:
    """A text without values; the line breaks go."""
    told = _telling(text)
    strange = {word for word in told if not all(map(stays, _stems([word])))}
    said = delexicalised(text, also={*strange, *values})
    left = _telling(_SLOT.sub(" ", said))
    if not strange.isdisjoint(left) or len(left) < LEFT * len(told):
        raise InputError(
            f"The lesson {lesson.id} cannot be shown to a team: too much of it may be a value of its user. Words count "
            f"as known if a tool's schema has them or {USERS} users said them."
        )
    return said


def _telling(text: str) -> list[str]:
    """The words of a text in lower case that not any request may have."""
    return [word for word in _WORD.findall(text.lower()) if not is_usual(word)]


def _like(stem: str, other: str) -> bool:
    return stem == other or (min(len(stem), len(other)) > 2 and (stem in other or other in stem))


def _common(everybody: Iterable[Entry]) -> set[str]:
    """Stems that at least `USERS` users said in requests."""
    said: dict[str, set[str]] = {}
    for entry in everybody:
        for stem in _stems([_SLOT.sub(" ", delexicalised(entry.query))]):
            said.setdefault(stem, set()).add(entry.user)
    return {stem for stem, users in said.items() if len(users) >= USERS}


def _described(tools: Mapping[str, ToolSpec]) -> Iterator[str]:
    for name, spec in tools.items():
        yield from (name, spec.description, *spec.properties)


def _stems(texts: Iterable[str]) -> set[str]:
    return {stem for text in texts for stem in words(text, stems=True)}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)
    elif value is not None and not isinstance(value, bool):
        yield as_text(value)
