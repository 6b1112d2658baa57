"""Searchable words of tools, field by field, and a quick coarse index over them.

Names and parameters are identifiers. ``getUserName`` is split where the case changes; ``searchwebrequest`` has no such
place and is split into words that other tools use (``search web request``), if possible.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.meaning import names_in
from langgraph_toolmem.text.requests import SENTENCE_END
from langgraph_toolmem.text.schema import Described
from langgraph_toolmem.text.words import STOP_WORDS, stem, telling_stems, words


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
