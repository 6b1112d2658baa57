"""State and open sub-goals of a run in words that hold for other runs too, without a model.

The state is what is known (types), what was done since the user spoke (by the descriptions of the tools, not by their
names), and what came back. The sub-goals are the parts of the request that no call so far was about, values replaced
by their types. Both are what atoms are stored under and looked up by.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from langgraph_toolmem.atoms.known import Known, leaves_of
from langgraph_toolmem.atoms.words import names_in
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import ExecutedCall
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.meaning import VERBS
from langgraph_toolmem.text.requests import NEXT, SENTENCE_END
from langgraph_toolmem.text.similarity import LexicalEmbedder, similarity
from langgraph_toolmem.text.tools import Wording
from langgraph_toolmem.text.values import DATE, EMAIL, ID, KINDS, NAME, PLAIN, TIME, delexicalised, quotes_in, values_in
from langgraph_toolmem.text.words import word_set

MAX_DONE: Final = 3
"""Latest calls that the state names."""
MAX_ABOUT: Final = 100
"""Characters said of a call."""
MAX_KNOWN: Final = 8
MAX_GOALS: Final = 12
MAX_GOAL: Final = 300
"""Characters of a sub-goal."""
MAX_CHARS: Final = 6000
LEAST_FIT: Final = 0.1
"""How well a part fits a call at least, for the call to have been about it."""
SHORTEST: Final = 3
"""Characters of a value that tells which part of a request a call was about."""


_ACTS: Final = VERBS | word_set("mail email tell ask give let use go write note call pay tweet ensure tag remind")
_JOINED = re.compile(rf"^(?:{NEXT})\b[, ]*", re.IGNORECASE)
_BREAK = re.compile(
    rf"{SENTENCE_END}|,?\s+(?:{NEXT})\b[, ]*"
    r"|[,;]?\s+and\s+(?=(?:" + "|".join(sorted(_ACTS)) + r")\b)",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w")
sparse = lru_cache(maxsize=8192)(LexicalEmbedder().sparse)


class Situation(NamedTuple):
    """A run before the next call.

    Attributes:
        state: in words, without values.
        goals: open parts of the request in order, without values; the whole request if no part is open.
        raw: the same parts as they were said.
    """

    state: str
    goals: tuple[str, ...]
    raw: tuple[str, ...]


class Abouts:
    """Short forms of tools' descriptions."""

    def __init__(self, specs: Mapping[str, ToolSpec]) -> None:
        self._specs = specs
        self._wording = Wording()
        for spec in specs.values():
            self._wording.learn(spec)
        self._own: dict[str, str] = {}

    def whole(self, tool: str) -> str:
        """The description without sentences that other tools share; "" if nothing is known."""
        if tool not in self._own:
            spec = self._specs.get(tool)
            text = "" if spec is None else self._wording.own_words(spec)
            self._own[tool] = text.removeprefix("Tool description:").strip()
        return self._own[tool]

    def short(self, tool: str) -> str:
        """Its first sentence, cut."""
        first = self.whole(tool).partition(". ")[0].rstrip(".")
        return first if len(first) <= MAX_ABOUT else first[:MAX_ABOUT].rpartition(" ")[0]


def situation(state: RunState, known: Known, abouts: Abouts, hidden: Mapping[str, str] | None = None) -> Situation:
    """Return where a run stands before its next turn.

    Args:
        state: the run so far.
        known: what it knows.
        abouts: what tools do.
        hidden: further values that must not be told, with their types; known only later, or by halves.
    """
    raw = open_parts(state)
    types = {text: label for text, label in known.texts().items() if len(text) >= SHORTEST}
    for mail in known.values(EMAIL):
        types |= dict.fromkeys(set(names_in(str(mail))) - types.keys(), NAME)
    types = {**(hidden or {}), **types}
    goals = tuple(delexicalised(part, types, also=types)[:MAX_GOAL] for part in raw)
    return Situation(_state(state, known, abouts), goals, raw)


def parts_of(text: str) -> tuple[str, ...]:
    """A request in parts that may be sub-goals of their own: sentences, and what "and" or "then" joins to them.

    What stands in quotes is not taken apart.

    >>> parts_of("Cancel order #W17 and mail me the receipt. If it is late, then tell Ann and Bob.")
    ('Cancel order #W17', 'mail me the receipt', 'If it is late', 'tell Ann and Bob')
    """
    text = text[:MAX_CHARS]
    quoted = quotes_in(text)
    pieces: list[str] = []
    begin = 0
    for match in _BREAK.finditer(text):
        if not any(start <= match.start() and match.end() <= end for start, end in quoted):
            pieces.append(text[begin : match.start()])
            begin = match.end()
    found = (_JOINED.sub("", part.strip(" ,.;:")) for part in (*pieces, text[begin:]))
    return tuple(dict.fromkeys(part for part in found if _WORD.search(part)))[:MAX_GOALS]


def open_parts(state: RunState) -> tuple[str, ...]:
    """The parts of the latest request of which a value was not used yet, or that name none; all, if none is left."""
    parts = parts_of(state.user.raw)
    used = {
        text.lower()
        for step in state.since_user
        if step.status == "ok"
        for _, value in leaves_of(step.args)
        if not isinstance(value, bool) and value is not None and len(text := canon(value)) >= SHORTEST
    }
    left = tuple(part for part in parts if not _is_used(part, used))
    return left or parts


def _is_used(part: str, used: Collection[str]) -> bool:
    low = part.lower()
    if not any(value in low for value in used):
        return False
    named = [value.text.lower() for value in values_in(part) if value.kind == ID or value.kind in PLAIN - {DATE, TIME}]
    return all(any(text in value or value in text for value in used) for text in named)


def part_of(step: ExecutedCall, parts: Sequence[str], about: str) -> int | None:
    """Return which part of a request a call was about; None if nothing tells.

    The one that has most of its values; of equals the one whose words are most like what the tool does.
    """
    values = {canon(value).lower() for _, value in leaves_of(step.args) if isinstance(value, (str, int, float))}
    values = {value for value in values if len(value) >= SHORTEST}
    said = sparse(about)
    best: tuple[float, int] | None = None
    for place, part in enumerate(parts):
        low = part.lower()
        fit = sum(value in low for value in values) + similarity(said, sparse(part))
        if fit >= LEAST_FIT and (best is None or fit > best[0]):
            best = fit, place
    return None if best is None else best[1]


def _state(state: RunState, known: Known, abouts: Abouts) -> str:
    telling = [label for label in known.to_plain() if label not in KINDS or label == "EMAIL"]
    shown = ", ".join(label.lower().replace("_", " ") for label in telling[-MAX_KNOWN:])
    said = [f"known: {shown or 'only what the user said'}"]
    done = [_done(step, abouts) for step in state.since_user[-MAX_DONE:]]
    said.append(f"done: {'; '.join(filter(None, done)) or 'nothing yet'}")
    if state.since_user:
        said.append(f"result: {_result(state.since_user[-1])}")
    return ". ".join(said)


def _done(step: ExecutedCall, abouts: Abouts) -> str:
    about = abouts.short(step.tool)
    return about if step.status == "ok" else f"{step.status}: {about}"


def _result(step: ExecutedCall) -> str:
    if step.status != "ok":
        return step.status
    output = step.output
    if isinstance(output, (list, tuple)):
        return ("none", "one")[len(output)] if len(output) < 2 else "several"
    if isinstance(output, Mapping):
        lists = [value for value in output.values() if isinstance(value, list)]
        if len(output) == 1 and lists:
            return ("none", "one")[len(lists[0])] if len(lists[0]) < 2 else "several"
        return "an object" if output else "none"
    return "none" if output is None or output == "" else "a value"
