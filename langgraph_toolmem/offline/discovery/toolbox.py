"""Tools as the model-free policy sees them: what each input wants, and which words a tool has to do with.

Everything here comes from schemas and descriptions, by the same tables of general English as the navigator's.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

from langgraph_toolmem.atoms.slots import listed_choices
from langgraph_toolmem.offline.discovery.states import only_reads
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.search.lexical import STOP_WORDS, stem, words
from langgraph_toolmem.words.meaning import canonical
from langgraph_toolmem.words.ports import Port, inputs_of
from langgraph_toolmem.words.vocabulary import FROM, IDENTIFIERS, TO, word_set

Kind = Literal["choice", "flag", "number", "date", "time", "email", "url", "id", "prose", "headline", "search", "name"]

PROSE: Final = word_set("body text message content note comment description reason summary prompt feedback caption")
HEADLINE: Final = word_set("title subject headline")
SEARCHED: Final = word_set("query word words keyword keywords term terms search")
_MAIL: Final = re.compile(r"\be-?mail[\s-]?adress|\be-?mail address", re.IGNORECASE)
_TIME: Final = re.compile(r"\b(?:date-?time|iso time|timestamp|time to the|time of day)\b|\btime,", re.IGNORECASE)
_DATE: Final = re.compile(r"\b(?:iso )?date\b|\bday\b", re.IGNORECASE)
_EXAMPLE: Final = re.compile(r"(?:such as|e\.g\.|example|like)[^\w\"']*[\"']([A-Za-z]+[_-])\w+[\"']")
_ALIKE: Final = tuple(
    word_set(group)
    for group in (
        "tell write mail email notify inform remind message send know answer",
        "make create add schedule book plan put turn store save keep",
        "change update set mark edit modify",
        "move reschedule postpone put",
        "delete remove clear drop",
        "cancel",
        "finish complete close done",
        "give assign hand transfer take takes",
        "share access give",
        "forward send pass",
        "file document",
        "find look search list read show get",
        "meeting event appointment meet calendar",
        "colleague person people everyone everybody member",
        "newest latest last recent",
        "reply answer respond",
        "plot draw chart",
    )
)
"""Words of general English that stand for each other in requests and descriptions."""
_DESTROYS: Final = word_set("delete remove clear drop cancel archive erase destroy")
NAME_WEIGHT, ABOUT_WEIGHT, INPUT_WEIGHT = 3.0, 1.0, 0.5
ALIKE = 0.4
"""What a word counts that stands for one of the text, against the word itself."""


@dataclass(frozen=True)
class Input:
    """One value that a call takes.

    Attributes:
        path: ``city``, ``address.zip``, ``attendees[]``.
        port: what its schema says.
        kind: what sort of value it wants.
        words: stems that say what it is: of its name and of its description.
        own: stems of its name alone.
        role: "from" (a beginning, a sender), "to" (an end, a recipient) or "".
        example: how its values begin, if an example is given: ``msg_``.
        choices: what it may be, if its schema or description lists it.
    """

    path: str
    port: Port
    kind: Kind
    words: frozenset[str]
    own: frozenset[str]
    role: str
    example: str
    choices: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.removesuffix("[]").rsplit(".", 1)[-1]

    @property
    def required(self) -> bool:
        """Whether a call must have it."""
        return self.port.leaf.required

    @property
    def many(self) -> bool:
        """Whether it is the element of a list."""
        return self.path.endswith("[]")


class Toolbox:
    """A set of tools, read once.

    Args:
        specs: the tools, by name.

    Attributes:
        inputs: what each tool takes.
        reads: whether it changes nothing.
        destroys: whether it may destroy something.
        words: stems of each tool's name, description and inputs, with weights.
        said_of: by the name of an input, stems that any tool uses to describe it.
        choices_of: by the name of an input, the values that any tool lists for it.
    """

    def __init__(self, specs: Mapping[str, ToolSpec]) -> None:
        self.specs = dict(specs)
        self.inputs = {name: tuple(map(_input, inputs_of(spec))) for name, spec in specs.items()}
        self.reads = {name: only_reads(spec, name) for name, spec in specs.items()}
        self.destroys = {
            name: bool(spec.destructive) or bool(_DESTROYS & set(canonical(name))) for name, spec in specs.items()
        }
        self.words = {name: _tool_words(spec, self.inputs[name]) for name, spec in specs.items()}
        count = Counter(word for found in self.words.values() for word in found)
        total = len(specs) + 1
        self._rarity = {word: math.log(total / times) for word, times in count.items()}
        self._sizes = {
            name: 1.0 + math.fsum(weight * self._rarity[word] for word, weight in found.items())
            for name, found in self.words.items()
        }
        self.said_of: dict[str, frozenset[str]] = {}
        self.choices_of: dict[str, tuple[str, ...]] = {}
        examples: dict[str, str] = {}
        for found in self.inputs.values():
            for each in found:
                self.said_of[each.name] = self.said_of.get(each.name, frozenset()) | each.words
                self.choices_of[each.name] = tuple(dict.fromkeys((*self.choices_of.get(each.name, ()), *each.choices)))
                if each.example:
                    examples.setdefault(each.name, each.example)
        # An example given once holds for all inputs of that name.
        self.inputs = {
            name: tuple(replace(each, example=each.example or examples.get(each.name, "")) for each in found)
            for name, found in self.inputs.items()
        }

    def relevance(self, said: frozenset[str]) -> dict[str, float]:
        """How much each tool has to do with words: rare ones that both have, those of its name first; from 0 on."""
        alike = {word: _alike(word) - {word} for word in said}
        scores: dict[str, float] = {}
        for name, found in self.words.items():
            worth = {word: weight * self._rarity[word] for word, weight in found.items()}
            # Each word counts once, by the best of what it stands for.
            parts = (
                max(worth.get(word, 0.0), ALIKE * max((worth.get(other, 0.0) for other in others), default=0.0))
                for word, others in alike.items()
            )
            scores[name] = math.fsum(parts) / math.sqrt(self._sizes[name])
        return scores

    def destruction_said(self, tool: str, said: frozenset[str]) -> bool:
        """Whether the words of a request say that something is to be destroyed in the way of this tool."""
        verbs = frozenset(map(stem, _DESTROYS & set(canonical(tool))))
        return bool(verbs & widened(said)) if verbs else bool(self.words[tool].keys() & said)

    def shared(self, tool: str, said: frozenset[str]) -> float:
        """How rare all the words are that a tool and a text share."""
        return math.fsum(self._rarity[word] for word in said & self.words[tool].keys())

    def news(self, tool: str, said: frozenset[str], known: frozenset[str]) -> float:
        """How rare the rarest word is that a tool and the request share and nothing known is called by, 0 to 1."""
        words_of = self.words[tool]
        most = max(self._rarity.values(), default=0.0) or 1.0
        return max((self._rarity[word] for word in said & words_of.keys() - known), default=0.0) / most


_SAME: Final = {"mail": "email", "mails": "email", "emails": "email"}


@lru_cache(maxsize=4096)
def stems_of(text: str) -> frozenset[str]:
    """The stems of a text's words, without those that say nothing."""
    return frozenset(stem(_SAME.get(word, word)) for word in words(text) if _counts(word))


def widened(stems: frozenset[str]) -> frozenset[str]:
    """The stems with those of words that may stand for theirs."""
    return stems | {other for word in stems for other in _alike(word)}


def _counts(word: str) -> bool:
    return word not in _SAY_NOTHING and (len(word) > 1 or word.isdigit())


_SAY_NOTHING: Final = frozenset(STOP_WORDS)
"""By words and not by stems: a note is no "not"."""


@lru_cache(maxsize=4096)
def _alike(word: str) -> frozenset[str]:
    stems = (frozenset(stem(_SAME.get(other, other)) for other in group) for group in _ALIKE)
    return frozenset(other for group in stems if word in group for other in group)


def is_common(word: str) -> bool:
    """Whether a word is one of those that stand for others: a plain verb or noun."""
    return len(_alike(stem(word))) > 0


def _tool_words(spec: ToolSpec, inputs: Iterable[Input]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in inputs:
        found |= dict.fromkeys(each.words, INPUT_WEIGHT)
    found |= dict.fromkeys(stems_of(spec.description), ABOUT_WEIGHT)
    return found | dict.fromkeys(stems_of(spec.name), NAME_WEIGHT)


def _input(port: Port) -> Input:
    name = port.path.replace("[]", "").rsplit(".", 1)[-1]
    plain = words(name)
    description = port.leaf.description
    own = frozenset(map(stem, plain)) | frozenset(map(stem, port.meaning.words))
    said = stems_of(description.split(", for example")[0])
    example = _EXAMPLE.search(description)
    role = "from" if FROM & set(plain) or said & _SENDERS else "to" if TO & set(plain) or said & _TAKERS else ""
    choices = port.leaf.choices or listed_choices(description)
    return Input(
        port.path, port, _kind(port, plain), own | said, own, role, example[1] if example else "", tuple(choices)
    )


_SENDERS: Final = frozenset(map(stem, ("sender", "owner", "author", "origin")))
_TAKERS: Final = frozenset(map(stem, ("recipient", "assignee", "receiver", "destination")))


def _kind(port: Port, plain: Iterable[str]) -> Kind:
    leaf, said = port.leaf, set(plain)
    if leaf.choices:
        return "choice"
    if leaf.types == {"boolean"}:
        return "flag"
    if leaf.types and leaf.types <= {"integer", "number"}:
        return "number"
    if leaf.format == "email" or (said & {"email", "mail"} and not said & IDENTIFIERS):
        return "email"
    if leaf.format in ("uri", "url") or said & {"url", "uri", "link"}:
        return "url"
    if said & SEARCHED:
        return "search"
    if _MAIL.search(leaf.description):
        return "email"
    if said & {"id", "ids", "uuid"} or leaf.format == "uuid" or (port.meaning.words & IDENTIFIERS):
        return "id"
    if said & HEADLINE:
        return "headline"
    if said & PROSE:
        return "prose"
    if leaf.format == "date-time" or _TIME.search(leaf.description):
        return "time"
    if leaf.format == "date" or said & {"date", "day"} or _DATE.search(leaf.description):
        return "date"
    return "name"
