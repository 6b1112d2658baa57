"""The wording of requests and of tools: what is compared, searched and embedded.

A request has sentences and clauses, and terms for comparing it with others. "Plot visits since October 6" and "Plot
visits since 2023-11-12" are the same request with another date, and "… since Sunday" is slightly different. So among
the terms, the kind of a value (`text.values`) replaces the value.

A tool has searchable words, field by field. Its name and parameters are identifiers: ``getUserName`` is split where the
case changes; ``searchwebrequest`` has no such place and is split into words that other tools use (``search web
request``), if possible.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.meaning import names_in
from langgraph_toolmem.text.schema import Described
from langgraph_toolmem.text.values import RANKED, values_in
from langgraph_toolmem.text.words import (
    FEATURE_WEIGHTS,
    LEXICON,
    STOP_STEMS,
    STOP_WORDS,
    has_digit,
    stem,
    telling_stems,
    words,
)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds of reading a request.

    Attributes:
        chars: read characters: a longer text is a pasted document.
        terms: compared words and pairs of words.
        sentences: searched sentences.
        clauses: searched clauses.
        small_talk: longest small talk in characters.
    """

    chars: int = 4_000
    terms: int = 400
    sentences: int = 8
    clauses: int = 16
    small_talk: int = 200


REQUEST_LIMITS: Final = RequestLimits()
# --- sentences and clauses ---

SENTENCE_END: Final = (
    # Not after e.g., i.e., Mr., vs., No., or a single initial.
    r"(?-i:(?<=[.?!;…])(?<!\b[eE]\.g\.)(?<!\bi\.e\.)(?<!\b[MD]r\.)(?<!\bMrs\.)(?<!\bvs\.)(?<!\bNo\.)(?<!\b[A-Z]\.)\s+"
    r"|(?<=[。！？；])\s*"
    r"|(?<!\s)\s*[\r\n]+\s*(?:[-*•]\s+|\(?\d{1,2}[.)]\s+)?)"
)
"""A regular expression for the text between two sentences, list markers included."""
NEXT: Final = "and then|then|after that|afterwards|also|additionally|otherwise|if so|if not|finally|lastly"
"""A regular expression for words that begin the next clause."""
_CLAUSE = re.compile(
    # Of two joining words the longer one comes first: an alternation takes the first that matches.
    r"(?:,|(?<!\s))\s+(?:and then|and also|as well as|along with|together with|followed by|such as|and|or"
    r"|then|also|additionally|plus|including|finally)\s+"
    r"|,\s+|;\s*|:\s+|[，、；]\s*",
    re.IGNORECASE,
)


class Pieces(NamedTuple):
    """A request in parts, without repetition, in the order of the text.

    Attributes:
        sentences: at least one, unless the text has no word.
        clauses: the clauses of all sentences. A sentence without a joining word is one clause.
    """

    sentences: tuple[str, ...]
    clauses: tuple[str, ...]


def split_clauses(text: str) -> Pieces:
    """Return the sentences and clauses of a request. Of long texts only the beginning is read.

    >>> split_clauses("Find a flight to Oslo and book a hotel. Mail me.").clauses
    ('Find a flight to Oslo', 'book a hotel', 'Mail me')
    """
    # A request may need several tools. Of 765 requests over 2,490 APIs, a fused search of words and vectors found all
    # tools among the first 20 for 77.5 % by clauses, and for 71.8 % by the whole request.
    sentences = _different(re.split(SENTENCE_END, text[: REQUEST_LIMITS.chars]))[: REQUEST_LIMITS.sentences]
    clauses: list[str] = []
    for sentence in sentences:
        for clause in _CLAUSE.split(sentence):
            clauses.append(clause.rstrip(".?!…。！？ "))
    return Pieces(sentences, _different(clauses)[: REQUEST_LIMITS.clauses])


def _different(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the parts that contain a word, each once."""
    different: dict[str, None] = {}
    for part in parts:
        stripped = part.strip()
        if re.search(r"\w", stripped):
            different[stripped] = None
    return tuple(different)


# --- terms ---


def tokens(text: str) -> list[str]:
    """Return the stems of a request and the kinds of its values, in order.

    >>> tokens("Move the 9:30 meeting to March 3rd")
    ['mov', 'the', '<time>', 'meet', 'to', '<date>']
    """
    text = text[: REQUEST_LIMITS.chars]
    sequence: list[str] = []
    end_of_last = 0
    for value in values_in(text, RANKED):
        sequence += words(text[end_of_last : value.start], stems=True)
        sequence.append(f"<{value.kind.lower()}>")
        end_of_last = value.end
    sequence += words(text[end_of_last:], stems=True)
    return sequence


@cached(mebibytes=6)
def terms_of(text: str) -> tuple[str, ...]:
    """Return the different words of a text, and its different pairs of neighbouring words joined by a space.

    The first and the last word form a pair with the edge of the text. At most `REQUEST_LIMITS.terms`.
    """
    sequence = tokens(text)
    if not sequence:
        return ()
    edge = "<edge>"
    pairs = [f"{first} {second}" for first, second in pairwise([edge, *sequence, edge])]
    return tuple(dict.fromkeys(sequence + pairs))[: REQUEST_LIMITS.terms]


def is_usual(term: str) -> bool:
    """Return True for a word that any request may contain ("please", "the"), or a pair of such words."""
    for word in term.split(" "):
        if stem(word) not in STOP_STEMS:
            return False
    return True


@cached(mebibytes=6)
def term_weight(term: str) -> float:
    """Return the weight of a word or a pair of words, judged by its form alone."""
    weight = 1.0
    if " " in term:
        weight = FEATURE_WEIGHTS.pair
    if is_usual(term):
        weight *= FEATURE_WEIGHTS.stop
    return weight


# --- small talk ---


def is_small_talk(text: str, usual: frozenset[str]) -> bool:
    """Return True if a text is not a request.

    Args:
        usual: further words without a request.

    >>> is_small_talk("Good morning, how are you?", frozenset({"how", "are", "you"}))
    True
    >>> is_small_talk("Good morning, book me a room.", frozenset())
    False
    """
    if len(text) > REQUEST_LIMITS.small_talk:
        return False
    # A wish ("have a nice day") is removed, and a suffix after an apostrophe: "that's" is "that", "don't" is "do".
    plain = re.sub(r"(?<=\w)(?:n't|'\w+)\b|\b(?:good|great|nice) day\b", "", text.replace("’", "'"))
    for word in words(plain):
        if word not in LEXICON.small_talk and word not in usual:
            return False
    return True


# --- unused names and numbers ---


def left_over(text: str, taken: Iterable[str]) -> frozenset[str]:
    """Return the names in a text, and words with a digit, that are not in a value of a call."""
    remaining = set(names_within(text) | _numbers(text))
    for value in taken:
        remaining -= _parts(value)
    return frozenset(remaining)


@cached(mebibytes=2)
def names_within(text: str) -> frozenset[str]:
    """Return the capitalised words inside sentences, in lower case. A word all in capitals is not a name."""
    names: set[str] = set()
    # After a letter, a comma or a colon: the first word of a sentence always has a capital.
    for word in re.findall(r"(?<=[\w,;:] )[^\W\d_]\w+", text):
        if word[0].isupper() and not word.isupper():
            names.add(word.lower())
    return frozenset(names)


@cached(mebibytes=2)
def _numbers(text: str) -> frozenset[str]:
    return frozenset([part for part in _parts(text) if has_digit(part)])


@cached(mebibytes=4)
def _parts(text: str) -> frozenset[str]:
    return frozenset([part.strip(".,;:!?()'\"") for part in text.lower().split()])


# --- words of tools ---


@dataclass(frozen=True, slots=True)
class WordingLimits:
    """Bounds of reading tools.

    Attributes:
        chars: characters of a description; the rest of a long one is detail, and would outweigh the name.
        parameters: parameters of a tool.
        many_tools: least number of tools with a word that may be a piece of others, or with a sentence that is left
            out.
        embedded: characters of a tool's text for an embedder.
    """

    chars: int = 4_000
    parameters: int = 100
    many_tools: int = 3
    embedded: int = 1_000


WORDING_LIMITS: Final = WordingLimits()


def kit_name(spec: Described) -> str:
    """Return the name of a tool's toolkit, "" if it is on its own.

    It is declared, or taken from a name like ``kit.tool``, ``kit/tool``, ``kit:tool`` or ``kit__tool``.
    """
    if spec.toolkit:
        return spec.toolkit
    # "::" comes before ":", which is a part of it.
    for joint in ("/", "::", ":", "__", "."):
        kit, _, tool = spec.name.rpartition(joint)
        if kit and tool:
            return kit
    return ""


def kit_of(spec: Described) -> str:
    """Return the identity of a toolkit, "" if the tool is on its own: equal names in two categories differ."""
    name = kit_name(spec)
    if not name:
        return ""
    return f"{spec.category}\n{name}"


# The tags of operations are no field: on five public APIs they moved the first hit by at most one request in 100
# (docs/figures.md, "Tool search inside one API").
class ToolFields(NamedTuple):
    """The stems of a tool, without stop words, in order and with repetition."""

    name: tuple[str, ...]
    description: tuple[str, ...]
    parameters: tuple[str, ...]
    described: tuple[str, ...]
    """Of the descriptions of the parameters."""
    toolkit: tuple[str, ...]
    category: tuple[str, ...]


class Wording:
    """The words of a catalogue of tools, which determine the splits of glued words."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._sentences: Counter[str] = Counter()
        self.pieces = cached(mebibytes=8)(self._pieces)
        self.identifier = cached(mebibytes=8)(self._identifier)

    def learn(self, spec: Described) -> None:
        self._count(spec, 1)

    def forget(self, spec: Described) -> None:
        self._count(spec, -1)

    def _count(self, spec: Described, sign: int) -> None:
        used = {*words(spec.description[: WORDING_LIMITS.chars]), *words(kit_name(spec)), *words(spec.name)}
        self._uses.update(dict.fromkeys(used, sign))
        self._sentences.update(dict.fromkeys(_sentences(spec), sign))
        # A word of one tool may be a piece of another's glued word.
        self.pieces.cache_clear()
        self.identifier.cache_clear()

    def fields(self, spec: Described) -> ToolFields:
        """Return the searchable stems of a tool. The words of its toolkit are not counted again in its name."""
        # All tools of a kit share its words: counted in each name, they would hide the tool's own words.
        toolkit = self.identifier(kit_name(spec))
        in_toolkit = set(toolkit)
        parameters: list[str] = []
        descriptions: list[str] = []
        for name in list(spec.properties)[: WORDING_LIMITS.parameters]:
            parameters += self.identifier(name)
            description = spec.properties[name].get("description")
            if isinstance(description, str):
                descriptions.append(description)
        return ToolFields(
            name=tuple([word for word in self.identifier(spec.name) if word not in in_toolkit]),
            description=tuple(telling_stems(spec.description[: WORDING_LIMITS.chars])),
            parameters=tuple(parameters),
            described=tuple(telling_stems(" ".join(descriptions)[: WORDING_LIMITS.chars])),
            toolkit=toolkit,
            category=tuple(telling_stems(f"{spec.category} {names_in(spec.route)}")),
        )

    def _identifier(self, text: str) -> tuple[str, ...]:
        """Return the stems of an identifier; a glued word is included as a whole and in its pieces."""
        stems = telling_stems(text)
        for word in words(text):
            for piece in self.pieces(word):
                if piece not in STOP_WORDS:
                    stems.append(stem(piece))
        return tuple(stems)

    def own_words(self, spec: Described) -> str:
        """Return the description without sentences of three or more tools; all of it if none is left.

        Servers put "This tool belongs to the …" before each description, which makes all tools similar for an embedder.
        """
        sentences = _sentences(spec)
        own = [sentence for sentence in sentences if self._sentences[sentence] < WORDING_LIMITS.many_tools]
        return " ".join(own or sentences)

    def plain(self, text: str) -> str:
        """Return an identifier as words."""
        plain: list[str] = []
        for word in words(text):
            plain += self.pieces(word) or (word,)
        return " ".join(plain)

    def _pieces(self, word: str) -> tuple[str, ...]:
        """Return the words that a glued word consists of; empty if it is one word.

        They are the fewest known words that compose it, each used by more tools than the glued word.
        """
        shortest, longest, longest_piece = 6, 48, 14  # letters
        if not (shortest <= len(word) <= longest and word.isascii() and word.isalpha()):
            return ()
        least_uses = max(WORDING_LIMITS.many_tools, self._uses[word] + 1)
        # The cheapest way to split word[:end], by `end`.
        best: list[_Split | None] = [_Split(0, ())] + [None] * len(word)
        for end in range(2, len(word) + 1):
            for start in range(max(0, end - longest_piece), end - 1):
                before = best[start]
                piece = word[start:end]
                if before is None or len(piece) == len(word) or not self._is_piece(piece, least_uses):
                    continue
                cost = before.cost + 1
                if len(piece) <= 3:
                    # Three letters are a word by chance more often than more letters are.
                    cost += 2
                known = best[end]
                if known is None or cost < known.cost:
                    best[end] = _Split(cost, (*before.pieces, piece))
        whole = best[len(word)]
        if whole is None:
            return ()
        return whole.pieces

    def _is_piece(self, piece: str, least_uses: int) -> bool:
        # Two letters are a word by chance in almost every glued word.
        if len(piece) < 3:
            return piece in ("by", "id", "of", "in", "to")
        return self._uses[piece] >= least_uses


class _Split(NamedTuple):
    cost: int
    pieces: tuple[str, ...]


def embedded_text(spec: Described, wording: Wording) -> str:
    """Return the text of a tool for an embedder: its name in words, description, parameters and category."""
    name = wording.plain(spec.name)
    kit = kit_name(spec)
    if kit:
        name = f"{kit}: {_without(name, wording.plain(kit))}"
    parameters = ", ".join(list(spec.properties)[: WORDING_LIMITS.parameters])
    parts = [name, wording.own_words(spec), parameters, spec.category]
    return ". ".join([part for part in parts if part])[: WORDING_LIMITS.embedded]


def _without(name: str, kit: str) -> str:
    """Return a tool's words without those of its toolkit, if any are left."""
    kit_words = set(kit.split())
    own = [word for word in name.split() if word not in kit_words]
    return " ".join(own) or name


def _sentences(spec: Described) -> list[str]:
    return re.split(SENTENCE_END, " ".join(spec.description[: WORDING_LIMITS.chars].split()))


def tool_text(spec: Described) -> str:
    """Return the searchable text of a tool: its name, its description, the names of its parameters."""
    return f"{spec.name}. {spec.description.strip()} ({', '.join(spec.properties)})"
