"""What a tool does to the world, by what is said of it: it reads, changes, destroys, or steers the run.

The gravest word wins: a mark (tags, metadata, MCP annotations; see `runs.tools`), then the name, the description and
the parameters. Who says nothing changes something. A tool reads only if it is marked so, or if a verb that reads stands
at the head of the last segment of its name, its schema was really seen, and nothing about it looks like a change:
``get_or_create`` and a description that ends in "and marks it as read" do not only read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from langgraph_toolmem.words.nature_words import (
    ALL_CHANGES,
    BOTH,
    CONTROL,
    DESTROYS,
    HARMLESS_STATES,
    IRREGULAR,
    NOUN_HEADS,
    READS,
    SHELL,
    STEMS,
    VERBS,
)
from langgraph_toolmem.words.schema import Described
from langgraph_toolmem.words.split import stem, words
from langgraph_toolmem.words.vocabulary import word_set

Kind = Literal["reads", "changes", "destroys", "controls"]

MAX_KNOWN: Final = 4_096


class Nature(NamedTuple):
    """What a tool does, and why we think so.

    Attributes:
        kind: what it does.
        why: in words, to stand after "because".
        by_name: it counts as reading by its name alone.
    """

    kind: Kind
    why: str
    by_name: bool = False


_known: dict[int, tuple[Described, Nature]] = {}


def nature_of(spec: Described, *, trust_names: bool = True) -> Nature:
    """What a tool does to the world.

    Args:
        spec: the tool, with all marks that anybody gave it.
        trust_names: whether a verb that reads in its name is believed; else only marks are.
    """
    found = _known.get(id(spec))
    if found is None or found[0] is not spec:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        found = _known[id(spec)] = (spec, _nature(spec))  # kept with it: an id may be used again
    nature = found[1]
    if nature.by_name and not trust_names:
        return Nature("changes", "nobody marked it read-only, and names are not trusted (trust_names=False)")
    return nature


def _nature(spec: Described) -> Nature:
    last = _segments(spec.name)[-1]
    if spec.destructive:
        return Nature("destroys", "it is marked destructive")
    if spec.controls:
        return Nature("controls", "its answer ends the run or steers it")
    if _begins(last, CONTROL):
        return Nature("controls", f"its name says that it ends the run or hands it over: {' '.join(last)!r}")
    if spec.read_only:
        return Nature("reads", "it is marked read-only")
    if spec.destructive is None and (verb := _destroying(last)):
        return Nature("destroys", f"its name says so: {verb!r}")
    if spec.read_only is False:
        return Nature("changes", "it is marked as one that writes")
    if not spec.seen:
        return Nature("changes", "nobody described it: its calls alone do not tell what it does")
    if sign := _change_in_name(spec.name) or _change_in_schema(spec) or change_in_text(spec.description):
        return Nature("changes", f"nobody marked it read-only, and {sign}")
    if _head_of(last) or "".join(last) in SHELL:
        return Nature("reads", f"its name says so: {last[0]!r}", by_name=True)
    return Nature("changes", "nobody marked it read-only, and its name does not begin with a verb that reads")


# --- names ---


def _segments(name: str) -> list[list[str]]:
    """The words of each segment: after dots, slashes, colons and the double underscores of MCP clients."""
    return [found for part in re.split(r"[./:]|__", name) if (found := words(part))] or [[""]]


def _begins(name: Sequence[str], phrases: frozenset[tuple[str, ...]]) -> bool:
    return any(tuple(name[:n]) in phrases for n in (1, 2, 3)) or (*name, "$") in phrases


def _head_of(name: Sequence[str]) -> str:
    """The verb that reads at the head of a name; "" if there is none."""
    if name[0] in READS:
        return name[0]
    return "look up" if tuple(name[:2]) == ("look", "up") else ""


def _destroying(name: Sequence[str]) -> str:
    """The verb of a name that destroys: at its head, its end or after "and", "or", "then"."""
    places = {0, len(name) - 1, *(i + 1 for i, word in enumerate(name[:-1]) if word in _AND)}
    return next((name[i] for i in sorted(places) if name[i] in DESTROYS), "")


_AND: Final = frozenset({"and", "or", "then", "else", "if", "n"})
_PARTICLES: Final = frozenset({"in", "out", "off", "into"})


def _change_in_name(name: str) -> str:
    *before, last = _segments(name)
    found = next((word for segment in before for word in segment if word in VERBS), "") or _second_verb(last)
    return f"{found!r} is in its name" if found else ""


def _second_verb(name: Sequence[str]) -> str:
    """What else a name says than to read: "create" in "get or create", "in" in "check in"; "" if nothing."""
    head = name[0]
    for i, word in enumerate(name[1:], 1):
        after_and, directly = name[i - 1] in _AND, i == 1
        if word in VERBS or (after_and and (word in BOTH or (i == 2 and word not in READS))):
            return word
        if head in NOUN_HEADS and word in BOTH and (directly or i == len(name) - 1) and word not in _THINGS:
            return word
        if head in ("check", "scan", "sign", "clock", "tick") and directly and word in _PARTICLES:
            return f"{head} {word}"
        if head in ("show", "display") and word in _ON_SCREEN:
            return word
        if (head, word) in _ODD or (word == "next" and i + 1 < len(name) and name[i + 1] in _QUEUED):
            return f"{head} {word}"
    return ""


_THINGS: Final = word_set("""
order booking post comment message email mail record event file book plan schedule request report review log note
ticket call text bill invoice document stock stocks charge charges process queue store draft open close
""")
"""Words that are things more often than deeds behind "list", "view", "search" or "check"."""
_ON_SCREEN: Final = word_set("""
alert banner dialog message modal notification popup prompt toast
""")
_QUEUED: Final = word_set("""
id item job message number sequence task ticket work
""")
_ODD: Final = frozenset(
    {("check", "item"), ("check", "box"), ("check", "todo"), ("check", "task"), ("read", "aloud"), ("get", "rid")}
)


# --- parameters ---

_ORDERS: Final = word_set("""
confirm confirmed confirmation confirmations overwrite upsert commit ack acknowledge acknowledged sql statement
command mutation script body payload
""")
"""Parameters that a tool which only reads has no use for."""
_DEEDS: Final = frozenset({"action", "operation", "op", "method", "verb", "http_method"})
_AS: Final = word_set("""
as if after on read seen all it them missing
""")


def _change_in_schema(spec: Described) -> str:
    for name, schema in spec.properties.items():
        said = words(name)
        deed = name.lower() in _DEEDS and not _only_reads(schema.get("enum"))
        if deed or (said and (said[0] == "new" or said[-1] in _ORDERS or _orders(said, schema))):
            return f"its parameter {name!r} is for a change"
    return ""


def _orders(said: Sequence[str], schema: Mapping[str, Any]) -> bool:
    if any(word in VERBS and not (place and said[place - 1] in _ABOUT) for place, word in enumerate(said)):
        return True
    return said[0] in BOTH and (schema.get("type") == "boolean" or (len(said) > 1 and said[1] in _AS))


_ABOUT: Final = frozenset(["last", "after", "before", "since", "is", "was", "can"])


def _only_reads(choices: Any) -> bool:
    return isinstance(choices, list) and all(_head_of(words(str(choice)) or [""]) for choice in choices)


# --- descriptions ---

_SENTENCE: Final = re.compile(r"[.;!?](?:\s|$)|[\n•|]+|:\s")
_CAPABLE: Final = re.compile(
    r"\b(?:which|that)\s+(?:also\s+|can\s+)?(?:allows?|enables?|lets?|provides?|helps?|offers?|manages?|is|are|be)\b.*"
)
"""What a service is for: "… of the shop, which allows users to place orders"."""
_TOKEN: Final = re.compile(r"[^\W\d_]+(?:'[a-z]+)?|,")
_NOT: Final = word_set("""
no not never without nothing don't doesn't won't isn't aren't cannot nor neither
""")
_LINKS: Final = word_set("""
and or then also but it which that automatically immediately atomically will additionally , & +
""")
_STARTS: Final = word_set("""
the a an any all one it its them their this that these every each your new as
""")
_SUBORDINATE: Final = word_set("""
if whether that which who when where until unless because since while once as
""")
_IS: Final = frozenset({"is", "are", "be", "gets", "get", "being"})
_NEEDED: Final = frozenset({"needed", "required", "necessary", "order", "able", "want", "wants"})
_MODAL: Final = word_set("""
must should can could to may might cannot
""")
_NO_EFFECT: Final = re.compile(r"\b(?:no|without|free of|any)\s+side[- ]effects?|side[- ]effect[- ]free")


def change_in_text(text: str) -> str:
    """What in a description tells of a change, in words; "" if nothing does.

    What a service is for, what was done before ("recently added"), what is denied ("does not change anything") and
    what is needed for something else ("the id needed to cancel") tell of none.
    """
    lowered = text[:4_000].lower()
    if "side effect" in _NO_EFFECT.sub("", lowered).replace("-", " "):
        return "its description tells of side effects"
    for sentence in _SENTENCE.split(lowered):
        tokens = _TOKEN.findall(_CAPABLE.sub("", sentence))
        for found in _deeds(tokens):
            return f"its description says {found!r}"
    return ""


def _deeds(tokens: Sequence[str]) -> Iterator[str]:
    for i, word in enumerate(tokens):
        if word not in ALL_CHANGES and stem(word) not in STEMS and word not in IRREGULAR:
            continue
        before = tokens[max(0, i - 4) : i]
        if _NOT & set(before[-3:]) or (word in ("enable", "enables") and tokens[i + 1 : i + 2] in (["you"], ["users"])):
            continue
        if _is_deed(word, i, tokens, before):
            yield " ".join(tokens[max(0, i - 1) : i + 2])


def _is_deed(word: str, i: int, tokens: Sequence[str], before: Sequence[str]) -> bool:
    previous, following = tokens[i - 1] if i else "", tokens[i + 1] if i + 1 < len(tokens) else ""
    if word in IRREGULAR or word.endswith("ed"):
        if word not in ALL_CHANGES:
            return _is_done(word, i, tokens)
    elif word.endswith("ing") and word not in ALL_CHANGES:
        return previous in ("by", "after", "then", "and", "also")
    base = word in ALL_CHANGES
    only_verb = word in VERBS if base else stem(word) in _VERB_STEMS
    if base and "to" in before:
        needed = _NEEDED & set(tokens[max(0, i - 6) : i])
        if previous == "to" or needed:
            return not needed and (only_verb or bool({"use", "used"} & set(before)))
    if not base and not word.endswith("s"):
        return False
    joined = previous in _LINKS or i == 0
    if only_verb:
        return not base or joined
    if following in _IS or following in ("was", "were", "have", "has"):
        return False
    both_deeds = i == 2 and previous in ("and", "or", "then") and _reads(tokens[0])
    return joined and (following in _STARTS or both_deeds or previous in ("then", "also", "automatically", "will"))


def _reads(word: str) -> bool:
    return word in READS or word.removesuffix("s") in READS or word.removesuffix("es") in READS


_VERB_STEMS: Final = frozenset(map(stem, VERBS))


def _is_done(word: str, i: int, tokens: Sequence[str]) -> bool:
    """Whether a participle tells what the tool does: "the mail is marked as read", not "orders that are marked"."""
    at = next((k for k in range(i - 1, max(-1, i - 4), -1) if tokens[k] in _IS), -1)
    if at < 1:
        return False
    if tokens[at - 1] in ("will", "it", "one", "then") and (at < 2 or tokens[at - 2] not in _SUBORDINATE):
        return True
    begin = next((k + 1 for k in range(at - 1, -1, -1) if tokens[k] in (",", "and", "then", "but")), 0)
    told = tokens[begin:at]
    return word not in HARMLESS_STATES and not (set(told) & (_SUBORDINATE | _MODAL))


__all__ = ["Kind", "Nature", "change_in_text", "nature_of"]
