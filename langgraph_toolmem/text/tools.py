"""Searchable words of tools, field by field, and a quick coarse index over them.

Names and parameters are identifiers. ``getUserName`` is split where the case changes; ``searchwebrequest`` has no
such place and is split into words that other tools use (``search web request``), if there are any.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.meaning import names_in
from langgraph_toolmem.text.requests import SENTENCE_END
from langgraph_toolmem.text.schema import Described
from langgraph_toolmem.text.words import STOP_WORDS, stem, telling_stems, words

MAX_CHARS: Final = 4000
"""Characters of a description that are read; the rest of a long one is detail, and would drown the name."""
MAX_PARAMETERS: Final = 100
EMBEDDED_CHARS: Final = 1000
"""Characters of the text that an embedder gets."""
LEAST_SPLIT: Final = 6
"""Letters from which a word may be several."""
LONGEST_SPLIT: Final = 48
SHORTEST_PIECE: Final = 3
LONGEST_PIECE: Final = 14
USES: Final = 3
"""Tools that use a word, at least, for it to be a piece of others."""
_SMALL: Final = frozenset({"by", "id", "of", "in", "to"})
_SENTENCE = re.compile(SENTENCE_END)
_JOINTS: Final = ("/", "::", ":", "__", ".")


def kit_name(spec: Described) -> str:
    """Return the name of a tool's toolkit, "" if it is on its own.

    It is declared, or taken from a name like ``kit.tool``, ``kit/tool``, ``kit:tool`` or ``kit__tool``.
    """
    if spec.toolkit:
        return spec.toolkit
    parted = (spec.name.rpartition(joint) for joint in _JOINTS)
    return next((before for before, found, after in parted if found and before and after), "")


def kit_of(spec: Described) -> str:
    """Return the identity of a toolkit, "" if the tool is on its own: equal names in two categories are two."""
    name = kit_name(spec)
    return f"{spec.category}\n{name}" if name else ""


class Fields(NamedTuple):
    """The stems of a tool, without words that any text has, in order and with repetition."""

    name: tuple[str, ...]
    description: tuple[str, ...]
    parameters: tuple[str, ...]
    described: tuple[str, ...]
    """Of the descriptions of the parameters."""
    toolkit: tuple[str, ...]
    category: tuple[str, ...]


class Wording:
    """The words of a catalogue of tools, by which glued ones can be split."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._said: Counter[str] = Counter()  # sentences of descriptions
        self.pieces = cached(mebibytes=8)(self._pieces)
        self.identifier = cached(mebibytes=8)(self._identifier)

    def learn(self, spec: Described) -> None:
        self._count(spec, 1)

    def forget(self, spec: Described) -> None:
        self._count(spec, -1)

    def _count(self, spec: Described, sign: int) -> None:
        words_of = {*words(spec.description[:MAX_CHARS]), *words(kit_name(spec)), *words(spec.name)}
        self._uses.update(dict.fromkeys(words_of, sign))
        self._said.update(dict.fromkeys(_sentences(spec), sign))
        self.pieces.cache_clear()
        self.identifier.cache_clear()

    def fields(self, spec: Described) -> Fields:
        """Return what is searched of a tool. The words of its toolkit are not counted again in its name."""
        toolkit = self.identifier(kit_name(spec))
        shared = set(toolkit)
        names = list(spec.properties)[:MAX_PARAMETERS]
        said = (spec.properties[name].get("description") for name in names)
        return Fields(
            name=tuple(word for word in self.identifier(spec.name) if word not in shared),
            description=tuple(telling_stems(spec.description[:MAX_CHARS])),
            parameters=tuple(word for name in names for word in self.identifier(name)),
            described=tuple(telling_stems(" ".join(text for text in said if isinstance(text, str))[:MAX_CHARS])),
            toolkit=toolkit,
            category=tuple(telling_stems(f"{spec.category} {names_in(spec.route)}")),
        )

    def _identifier(self, text: str) -> tuple[str, ...]:
        """Return the stems of an identifier; a glued word is there as a whole and in its pieces."""
        pieces = (piece for word in words(text) for piece in self.pieces(word))
        return (*telling_stems(text), *(stem(piece) for piece in pieces if piece not in STOP_WORDS))

    def own_words(self, spec: Described) -> str:
        """Return the description without the sentences that USES tools or more share; all of it if none is left.

        Servers put "This tool belongs to the …" before each description, and an embedder that reads it finds all
        tools alike.
        """
        own = [sentence for sentence in _sentences(spec) if self._said[sentence] < USES]
        return " ".join(own or _sentences(spec))

    def plain(self, text: str) -> str:
        """Return an identifier as words."""
        return " ".join(" ".join(self.pieces(word)) or word for word in words(text))

    def _pieces(self, word: str) -> tuple[str, ...]:
        """Return the words that a glued one consists of; nothing if it is one word.

        The fewest known words that make it up, each used by more tools than the glued one.
        """
        if not (LEAST_SPLIT <= len(word) <= LONGEST_SPLIT and word.isascii() and word.isalpha()):
            return ()
        least = max(USES, self._uses[word] + 1)
        best: list[tuple[int, tuple[str, ...]] | None] = [(0, ())] + [None] * len(word)
        for end in range(2, len(word) + 1):
            for start in range(max(0, end - LONGEST_PIECE), end - 1):
                before = best[start]
                piece = word[start:end]
                if before is None or len(piece) == len(word):
                    continue
                if not (piece in _SMALL if len(piece) < SHORTEST_PIECE else self._uses[piece] >= least):
                    continue
                cost = before[0] + (1 if len(piece) > SHORTEST_PIECE else 3)
                reached = best[end]
                if reached is None or cost < reached[0]:
                    best[end] = (cost, (*before[1], piece))
        last = best[len(word)]
        return last[1] if last else ()


def embedded_text(spec: Described, wording: Wording) -> str:
    """Return what an embedder gets of a tool."""
    kit = kit_name(spec)
    own = wording.plain(spec.name)
    parts = [
        f"{kit}: {_without(own, wording.plain(kit))}" if kit else own,
        wording.own_words(spec),
        ", ".join(list(spec.properties)[:MAX_PARAMETERS]),
        spec.category,
    ]
    return ". ".join(part for part in parts if part)[:EMBEDDED_CHARS]


def _without(name: str, kit: str) -> str:
    """Return a tool's words without those of its toolkit, if any are left."""
    known = set(kit.split())
    return " ".join(word for word in name.split() if word not in known) or name


def _sentences(spec: Described) -> list[str]:
    return _SENTENCE.split(" ".join(spec.description[:MAX_CHARS].split()))


def tool_text(spec: Described) -> str:
    """Return what is searched of a tool: its name, its description, the names of its parameters."""
    return f"{spec.name}. {spec.description.strip()} ({', '.join(spec.properties)})"
