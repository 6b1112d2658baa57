"""What a parameter means: the words that say so, taken from its name, its place, its description and its tool.

``city``, ``city_name`` and ``name`` ("Name of a city") mean the same; ``id`` of ``create_ticket``'s output and
``ticket_id`` do too. Roles are kept apart from the meaning: ``origin_city`` and ``destination_city`` are both a city,
one where it begins, one where it ends. All of this is our own choice [O]; the paper merges by description embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from langgraph_toolmem.words.schema import Leaf
from langgraph_toolmem.words.split import words
from langgraph_toolmem.words.vocabulary import (
    ADJECTIVES,
    ALIASES,
    COMPOUNDS,
    FILTERING,
    FROM,
    GENERIC,
    MEMBERS,
    NOISE,
    PREPOSITIONS,
    STRICT_VERBS,
    TAIL_ROLES,
    TO,
    VERBS,
    WRAPPERS,
    word_set,
)

Shape = Literal["scalar", "flag", "object"]

_NAMED: Final = re.compile(r"\s*([A-Za-z_][\w ]{0,30}?)\s*:\s")
_LISTED: Final = re.compile(r"\b(?:list|array|set|collection|sequence) of ([\w '-]{2,60})", re.IGNORECASE)
_FILLERS: Final = word_set("the a an this that each your its our any one some his her their which")
_SCAN: Final = 40  # words of a description that are looked at
_FORMATS: Final = {"email": "email", "uuid": "id", "uri": "url", "url": "url", "ipv4": "ip", "ipv6": "ip"}
_IE: Final = word_set("movies cookies calories zombies selfies series species rookies")
_MANNER: Final = re.compile(r"\w+(?:ly|ed)")


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one value means.

    Attributes:
        words: the words that say it, singular; never empty.
        role: "from", "to" or "": where the value stands if there are two of a kind.
        shape: scalar (texts and numbers are one: many interfaces send numbers as texts), flag or object.
        context: words around it (its tool's noun, the levels above it in an output) that it may be called by.
        vague: nothing says of what it is the id, name, count …
        source: where the words come from: "name", "place", "description" or "tool".
    """

    words: frozenset[str]
    role: Literal["from", "to", ""] = ""
    shape: Shape = "scalar"
    context: frozenset[str] = frozenset()
    vague: bool = False
    source: Literal["name", "place", "description", "tool"] = "name"

    @property
    def label(self) -> str:
        """The words in a stable order, identifiers last."""
        return " ".join(sorted(self.words, key=lambda word: (word in GENERIC, word)))


def meaning_of(leaf: Leaf, tool: str) -> Meaning:
    """The meaning of a parameter or of a part of an output.

    Args:
        leaf: the value.
        tool: name of the tool it belongs to.
    """
    path, described = leaf.path, leaf.description
    levels = [level for level in path.replace("[]", "").split(".") if level]
    if not levels:
        # A docstring's "Returns:" section reads "name: what it is".
        named = _NAMED.match(described)
        levels = [named[1]] if named else []
    shape = _shape(leaf)
    owner = entity_of(tool)
    own, role = _own_words(levels[-1] if levels else "", flag=shape == "flag")
    listed = path.endswith("[]") and shape == "scalar"
    if listed and (said := _listed(described)):
        own = said
    if not own and leaf.format in _FORMATS:
        own = (_FORMATS[leaf.format],)
    above = [_own_words(level)[0] for level in levels[:-1]]
    nameless = WRAPPERS | MEMBERS if verb_of(tool) in FILTERING or not verb_of(tool) else WRAPPERS
    places = [words_of[-1] for words_of in above if words_of and words_of[-1] not in nameless]
    around = [word for words_of in above for word in words_of[:-1] if word not in GENERIC]
    # A list of texts that is called "orders" often holds their ids.
    context = frozenset(filter(None, [owner, *places, *around, "id" if listed else ""]))
    if own and not GENERIC.issuperset(own):
        kept = own if len(own) == 1 else tuple(word for word in own if word != "name") or own
        return Meaning(frozenset(kept), role, shape, context - set(kept))
    heads = own or ("result",)
    whose = _generic_owner(heads, places, described, owner)
    if whose is None:
        return Meaning(frozenset(heads), role, shape, context, vague=True)
    word, source = whose
    kept = tuple(head for head in heads if head != "name")
    return Meaning(frozenset((word, *kept)), role, shape, context - {word, *kept}, source=source)


@lru_cache(maxsize=8_192)
def _listed(description: str) -> tuple[str, ...]:
    """The elements of a list by its description: "list of the stock symbols that …" → symbol."""
    found = _LISTED.search(description)
    phrase: list[str] = []
    for word in canonical_words(words(found[1])) if found else ():
        if word in PREPOSITIONS or word in ("that", "which", "where", "with"):
            break
        if word not in _FILLERS and word not in NOISE and word not in ADJECTIVES and not _MANNER.fullmatch(word):
            phrase.append(word)
    kept = tuple(dict.fromkeys(phrase[-2:] if phrase and phrase[-1] in GENERIC else phrase[-1:]))
    return kept if kept and not WRAPPERS.issuperset(kept) else ()


def _generic_owner(
    heads: Sequence[str], places: Sequence[str], described: str, owner: str
) -> tuple[str, Literal["place", "description", "tool"]] | None:
    """Of what it is the id, name …: the level above it, else what its description says, else its tool's noun."""
    for word in reversed(places):
        if word not in GENERIC:
            return word, "place"
    if word := noun_in(described, heads[-1]):
        return word, "description"
    return (owner, "tool") if owner and owner not in heads else None


@lru_cache(maxsize=65_536)
def _own_words(name: str, *, flag: bool = False) -> tuple[tuple[str, ...], Literal["from", "to", ""]]:
    """The words of a name that carry its meaning, and its role."""
    found = canonical(name)
    if "or" in found[1:]:  # one of several: the first is as good as the others
        found = found[: found.index("or", 1)]
    if len(found) > 1 and found[0] in ("is", "has") and not flag:
        found = found[1:]  # a prefix that keeps a name from being a reserved word
    role: Literal["from", "to", ""] = ""
    left: list[str] = []
    for index, word in enumerate(found):
        last = index == len(found) - 1
        side: Literal["from", "to", ""] = "from" if word in FROM else "to" if word in TO else ""
        if side and len(found) > 1 and (not last or word in TAIL_ROLES):
            role = role or side
        else:
            left.append(word)
    if len(left) > 1:
        left = [word for word in left if word not in NOISE and (len(word) > 1 or not word.isascii())] or left
    return tuple(dict.fromkeys(left)) or found, role


@lru_cache(maxsize=65_536)
def canonical(name: str) -> tuple[str, ...]:
    """The words of a name: singular, in lower case, one spelling each.

    >>> canonical("customerIDs"), canonical("zip_code"), canonical("lat")
    (('customer', 'id'), ('zipcode',), ('latitude',))
    """
    plain = [singular(word) for word in words(name.replace("IDs", "Ids"))][:12]
    found: list[str] = []
    index = 0
    while index < len(plain):
        pair = tuple(plain[index : index + 2])
        if len(pair) == 2 and (both := COMPOUNDS.get((pair[0], pair[1]))):
            found.append(both)
            index += 2
        else:
            found.append(ALIASES.get(plain[index], plain[index]))
            index += 1
    return tuple(found)


@lru_cache(maxsize=65_536)
def singular(word: str) -> str:
    """The singular of an English noun; anything else stays as it is."""
    if len(word) < 4 or not word.isascii() or not word.endswith("s") or word.endswith(("ss", "us", "is", "news")):
        return word
    if word.endswith("ies"):
        return word[:-1] if len(word) < 5 or word in _IE else word[:-3] + "y"
    return word[:-2] if word.endswith(("sses", "ches", "shes", "xes", "zes")) else word[:-1]


@lru_cache(maxsize=65_536)
def entity_of(tool: str) -> str:
    """The noun a tool is about; "" if its name has none.

    >>> [entity_of(name) for name in ("get_order_details", "contacts.search", "Search_Book_By_Keyword", "sort")]
    ['order', 'contact', 'book', '']
    """
    nouns = _nouns(tool)
    return next((word for word in reversed(nouns) if word not in GENERIC and len(word) > 1), "")


@lru_cache(maxsize=65_536)
def implied_words(tool: str) -> frozenset[str]:
    """What a tool without a declared output seems to give, by its name: ``find_user_id_by_email`` a user id."""
    nouns = _nouns(tool)
    owner = entity_of(tool)
    return frozenset({owner, "id"}) if owner and nouns and nouns[-1] == "id" else frozenset()


@lru_cache(maxsize=65_536)
def verb_of(tool: str) -> str:
    """The first verb in a tool's name; "" if there is none."""
    return next((word for word in canonical(tool) if word in VERBS), "")


def _nouns(tool: str) -> list[str]:
    found = list(canonical(tool))
    end = next((i for i, word in enumerate(found) if i and word in PREPOSITIONS), len(found))
    found = found[:end]
    while found and found[-1] in STRICT_VERBS and len(found) > 1:
        found.pop()
    after = -1
    for index, word in enumerate(found[:-1]):
        # After a verb, "order" and "list" are nouns.
        if word in STRICT_VERBS or (after < 0 and word in VERBS):
            after = index
    return [word for word in found[after + 1 :] if word not in ADJECTIVES and word not in STRICT_VERBS]


def noun_in(description: str, head: str) -> str:
    """Of what a description says that something is the `head`: "ID of the visitor", "the visitor's ID" → visitor."""
    if not description:
        return ""
    said = _canonical_text(description)
    for index, word in enumerate(said):
        if word != head:
            continue
        if index + 1 < len(said) and said[index + 1] in ("of", "for"):
            found = _first_noun(said[index + 2 : index + 8])
        else:
            found = _first_noun(said[max(0, index - 1) : index])
        if found:
            return found
    return ""


@lru_cache(maxsize=8_192)
def _canonical_text(text: str) -> tuple[str, ...]:
    # "'s" falls into a piece of its own, which is no word.
    return tuple(word for word in canonical_words(words(text)[:_SCAN]) if word != "s")


def canonical_words(plain: Iterable[str]) -> list[str]:
    """As `canonical`, of words that are split already; two are never joined."""
    return [ALIASES.get(word, word) for word in map(singular, plain)]


def _first_noun(said: Sequence[str]) -> str:
    for word in said:
        if word in PREPOSITIONS or word in ("that", "which", "where"):
            return ""
        skipped = word in _FILLERS or word in ADJECTIVES or word in NOISE or _MANNER.fullmatch(word)
        if not skipped and word not in GENERIC and word.isalpha() and len(word) > 2:
            return word if word not in STRICT_VERBS else ""
    return ""


def _shape(leaf: Leaf) -> Shape:
    if leaf.types == {"boolean"}:
        return "flag"
    if leaf.types and leaf.types <= {"object", "array"} and not leaf.path.endswith("[]"):
        return "object"
    return "scalar"
