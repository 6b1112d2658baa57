"""Words of a request that select one of several values.

"What is on my savings?" and "What is on my account?" lead to the same tool. The words decide its argument, so the
comparison of requests by their tool (`inertia.novelty`) does not see them. Two rules leave such a look-up to the model:

- The value is an element of a list, and the request names another row better ("savings"): it has all words of that row
  that it has of the value's own row, and more.
- The source of the value was wrong before, and the request has a word that never came with it, inserted between two
  words that stood side by side in requests with it: "my *wife's* account". People insert a word for other reasons too
  ("my own account"), so this counts only where it is unusual: at most a third of the most similar requests with the
  source, each compared with the others, have such a word (a conformal test, leave one out).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.graph.cases import CaseCall, PastCase
from langgraph_toolmem.graph.state import RunState, slot_key
from langgraph_toolmem.graph.tool_graph import MISS, ToolGraph
from langgraph_toolmem.inertia.decision import Option, Refusal
from langgraph_toolmem.runs.values import ABSENT, canon, flatten
from langgraph_toolmem.text.values import pieces_of, read_text
from langgraph_toolmem.text.words import has_digit, telling_stems

if TYPE_CHECKING:
    from langgraph_toolmem.inertia.calibrated import Situation

# Of 2,080 requests to a bank desk (eight seeds, an exact model; 12 % of them select another account, card, currency,
# period or city than usual), 21 had a look-up with other arguments than the model's, and 68 with look-ups before the
# model. With the first rule these were 18 and 49, with both 5 and 34. As sources are wrong less often, more model calls
# are saved: 16.3 in place of 13.5 %, and 31.6 in place of 30.3 %.
MOST_USUAL: Final = 1 / 3
"""Share of similar requests with an inserted word above which one more is no evidence."""
# At 1 the ideal shop, whose requests are long, loses 36 right look-ups for 7 wrong ones; at 1/3 it loses none. At .2
# the bank desk has 11 and 40 faults.


class OtherRow:
    """Leaves a look-up to the model if the request names another row of the list that its value comes from."""

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        # Before a change `Familiar` compares every word.
        if candidate.changes:
            return None
        return situation.selection.other_row(candidate)


class InsertedWord:
    """Leaves a look-up to the model after a new word at a place where a word may select another value."""

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        if candidate.changes:
            return None
        return situation.selection.inserted_word(candidate)


class Row(NamedTuple):
    """An element of a list: the value that an argument may have, and the stems of all its texts."""

    value: str
    stems: frozenset[str]


class Origin(NamedTuple):
    """The source of one argument of a call.

    Attributes:
        tool, parameter: the slot.
        source: its descriptor (`graph.sources`).
        value: the argument, as `canon` writes it.
    """

    tool: str
    parameter: str
    source: str
    value: str


class Selection:
    """The words of a request, compared with the rows of lists and with past requests that had the same source."""

    def __init__(self, graph: ToolGraph, state: RunState) -> None:
        self._graph, self._state = graph, state
        self._stems = _stems(state.user.raw)

    def _of_lists(self, option: Option) -> Iterator[Origin]:
        """Yield the arguments of a look-up that are elements of a list."""
        # Words select usual values too (a currency, a period): with these, the bank desk had as many faults.
        for parameter, source in option.sources.items():
            if source.startswith("l|"):
                for args in option.calls:
                    yield Origin(option.tool, parameter, source, canon(args[parameter]))

    # --- another row ---

    def other_row(self, option: Option) -> Refusal | None:
        """Refuse a look-up with the word that names another row of the list; None if there is none."""
        if not self._stems:
            return None
        for origin in self._of_lists(option):
            word = self._naming(origin)
            if word:
                return Refusal("denied", f"{word!r} in the request names another row than that of {origin.parameter}")
        return None

    def _rows(self, source: str) -> list[Row]:
        """Return the rows of the list that a source takes its value from."""
        most_rows = 64  # with eight fields each they take .6 ms
        _, tool, path, _ = source.split("|")
        index = self._state.outputs.get(tool)
        if index is None:
            return []
        base, _, below = path.rpartition("[*]")
        rows = []
        for element in _elements(self._state.steps[index].output, "$", f"{base}[*]"):
            rows.append(_row(element, f"${below}"))
            if len(rows) == most_rows:
                break
        return rows

    def _given(self, tool: str, parameter: str) -> set[str]:
        """Return the values that a slot has had since the user's latest message."""
        given = set()
        for step in self._state.since_user:
            if step.tool == tool:
                given.add(canon(step.args.get(parameter, ABSENT)))
        return given

    def _naming(self, origin: Origin) -> str:
        """Return a word of the request that names a row better than the row of a value; "" if there is none."""
        rows = self._rows(origin.source)
        used = self._given(origin.tool, origin.parameter)
        own = frozenset[str]()
        for row in rows:
            if row.value == origin.value:
                own |= row.stems & self._stems
        for row in rows:
            # A row that was looked up for this request has had its turn.
            if row.value == origin.value or row.value in used:
                continue
            named = row.stems & self._stems
            # Of "the lamp and the desk" each row has a word: neither is named better.
            if named > own:
                return min(named - own)
        return ""

    # --- an inserted word ---

    def inserted_word(self, option: Option) -> Refusal | None:
        """Refuse a look-up with the inserted word that may select another value; None if there is none."""
        for origin in self._of_lists(option):
            if not self._was_wrong(origin):
                continue
            word = self._inserted(origin)
            if word:
                return Refusal("denied", f"{word!r} is new in the request and may select another {origin.parameter}")
        return None

    def _was_wrong(self, origin: Origin) -> bool:
        """Return True if a source of a slot was wrong before: something other than the list's order selects."""
        counts = self._graph.sources.row(slot_key(origin.tool, origin.parameter)).get(origin.source)
        return counts is not None and counts[MISS] > 0

    def _inserted(self, origin: Origin) -> str:
        compared = 16  # most similar requests with the source
        past: list[tuple[str, ...]] = []
        for case_id in self._graph.cases.alike(self._state):
            case = self._graph.cases.cases[case_id]
            if _came_from(case, origin):
                past.append(_spoken(case.text))
                if len(past) == compared:
                    break
        wording = PastWords.of(past)
        for word in wording.inserted(_spoken(self._state.user.raw), own=0):
            if self._is_new(word, origin):
                usual = sum(any(wording.inserted(words, own=1)) for words in past)
                return word if (1 + usual) / (1 + len(past)) <= MOST_USUAL else ""
        return ""

    def _is_new(self, word: str, origin: Origin) -> bool:
        """Return True if a word is no value of the run's calls, and came in no past request with a source."""
        if has_digit(word):
            return False
        for step in self._state.since_user:
            for value in step.args.values():
                if word in pieces_of(canon(value)):
                    return False
        cases = self._graph.cases
        return not any(_came_from(cases.cases[case_id], origin) for case_id in cases.having(word))


@dataclass
class PastWords:
    """The words of past requests, and their pairs of neighbours, each with the number of its requests."""

    words: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)

    @classmethod
    def of(cls, requests: Iterable[Sequence[str]]) -> PastWords:
        counted = cls()
        for words in requests:
            counted.words.update(set(words))
            counted.pairs.update(set(pairwise(words)))
        return counted

    def inserted(self, words: Sequence[str], *, own: int) -> Iterator[str]:
        """Yield the words of a request that no other one has, one to three between two that are neighbours in another.

        Args:
            words: the request.
            own: 1 if it is one of the past requests, otherwise 0.
        """
        longest = 3
        neighbours = set(pairwise(words)) if own else set()
        start = 1
        while start < len(words) - 1:
            end = start
            while end < len(words) - 1 and self.words[words[end]] <= own:
                end += 1
            around = words[start - 1], words[end]
            if 0 < end - start <= longest and self.pairs[around] > (around in neighbours):
                yield from words[start:end]
            start = max(end, start + 1)


def _came_from(case: PastCase, origin: Origin) -> bool:
    """Return True if a past request led to a call with a value from a source, or with the same value."""
    calls = [call for call in case.calls.values() if call.tool == origin.tool]
    by_model = [call for call in calls if call.sources is not None]
    if not by_model:
        # The memory called from this source, or not at all. Without its own calls few words are known: look-ups before
        # the model saved 30.1 in place of 31.6 % of the calls of the bank desk.
        return bool(calls)
    return any(_has(call, origin) for call in by_model)


def _has(call: CaseCall, origin: Origin) -> bool:
    """Return True if a past call has a value from a source, or the same value."""
    read = _read_call(call.args, call.sources or "{}")
    if origin.source in read.sources.get(origin.parameter, ()):
        return True
    return canon(read.args.get(origin.parameter, ABSENT)) == origin.value


class ReadCall(NamedTuple):
    """The arguments of a past call and their sources."""

    args: dict[str, Any]
    sources: dict[str, list[str]]


@cached(mebibytes=4)
def _read_call(args: str, sources: str) -> ReadCall:
    return ReadCall(json.loads(args), json.loads(sources))


@cached(mebibytes=4)
def _spoken(text: str) -> tuple[str, ...]:
    """Return the words and marks of a text between its two edges."""
    words = []
    for word in read_text(text).words:
        # "My wife's account" has two words between "my" and "account".
        if word not in ("'s", "’s"):
            words.append(word)
    return ("", *words, "")


def _elements(value: Any, path: str, wanted: str) -> Iterator[Any]:
    """Yield the elements at the path of a list, as `runs.values.flatten` writes it."""
    if path == wanted:
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if wanted.startswith(f"{path}.{key}"):
                yield from _elements(inner, f"{path}.{key}", wanted)
    elif isinstance(value, list) and wanted.startswith(f"{path}[*]"):
        for inner in value:
            yield from _elements(inner, f"{path}[*]", wanted)


def _row(element: Any, path: str) -> Row:
    read = flatten(element)
    texts = [canon(value) for value in read.scalars.values()]
    for values in read.lists.values():
        texts += map(canon, values)
    return Row(canon(read.scalars.get(path, ABSENT)), _stems(" ".join(texts)))


@cached(mebibytes=4)
def _stems(text: str) -> frozenset[str]:
    """Return the stems of a text without stop words, single letters and short numbers."""
    stems = set()
    for stem in telling_stems(text):
        is_letter = len(stem) == 1 and stem.isascii()
        is_short_number = has_digit(stem) and len(stem) < 4
        if not is_letter and not is_short_number:
            stems.add(stem)
    return frozenset(stems)
