"""What a state knows, value by value: from the request and from what tools answered, each with what it may be.

Values of the request are found by their looks (`atoms.words`) or by the words around them; values of answers keep the
row they stand in, so that an id and a name of the same thing are known to belong together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from langgraph_toolmem.atoms.words import DATE, NAME, NUMBER, TEXT, Value, kind_of, values_in
from langgraph_toolmem.offline.discovery.environment import Taken
from langgraph_toolmem.offline.discovery.toolbox import Toolbox, is_common, stems_of
from langgraph_toolmem.runs.values import MAX_VALUE_CHARS, flatten
from langgraph_toolmem.search.lexical import stem, words
from langgraph_toolmem.words.meaning import meaning_of
from langgraph_toolmem.words.schema import Leaf
from langgraph_toolmem.words.vocabulary import VERBS, word_set

REQUEST: Final = -1
MAX_ROWS: Final = 12
"""Rows of a list whose values are offered."""
MAX_REQUEST: Final = 6_000
"""Characters of a request that are read for values."""
SHORTEST_NAME: Final = 2
"""Characters of a first word that is taken for a name."""
MAX_PROSE: Final = 1_500
"""Characters of an answer that is put into words."""
_MESSAGE: Final = (
    re.compile(r":\s+(.+)$", re.DOTALL),
    re.compile(
        r"\b(?:tell|write|mail|e-?mail|know|notes?|reply|answer|say|inform|notify|remind|mention|reason is)\b"
        r"[^.;]*?\bthat\s+(.+)$",
        re.DOTALL | re.IGNORECASE,
    ),
)
"""What somebody is to be told stands behind a colon, or behind "that" where a verb of telling went before."""
_BEFORE: Final = re.compile(r"([\w-]+)\W*$")
_TOKEN: Final = re.compile(r"[^\W\d_][\w'-]*|[^\w\s]+|\w+")
_WORD: Final = re.compile(r"[^\W\d_][\w'-]*")
_QUOTED: Final = re.compile(
    r"“([^“”]+)”|„([^„“”]+)[“”]|«\s*([^«»]+?)\s*»|「([^「」]+)」|『([^『』]+)』|‹\s*([^‹›]+?)\s*›"
)
"""Quotation marks that may stand right beside a letter."""
_SENTENCE_START: Final = re.compile(r"(?:^|[.!?:;\n])\s*$")


@dataclass(frozen=True)
class Fact:
    """One value that is known.

    Attributes:
        value: a JSON value; a list if it is one as a whole.
        kind: EMAIL, DATE, ID, NAME …, by its looks; "" for words.
        words: stems that say what it is.
        step: index of the call that told it, `REQUEST` for the user's own.
        path: where it stands in the answer.
        row: index in the outermost list, -1 outside of lists.
        before: the word before it in the request (of a row: before its name in the request), "" if none.
        named: it, or another value of its row, stands in the request.
        order: where it stands, among all.
        of_thing: its row has an id: the value describes something that is there.
        sure: False for a name that may be none: the first word of a sentence has a capital anyway.
    """

    value: Any
    kind: str
    words: frozenset[str]
    step: int = REQUEST
    path: str = ""
    row: int = -1
    before: str = ""
    named: bool = False
    order: int = 0
    of_thing: bool = False
    sure: bool = True


@dataclass(frozen=True)
class Request:
    """A request, read once.

    Attributes:
        text: the user's words.
        stems: of its words.
        facts: its values.
        message: what somebody is to be told, "" if nothing seems to be.
    """

    text: str
    stems: frozenset[str]
    facts: tuple[Fact, ...]
    message: str

    def names(self) -> list[Fact]:
        """The values that are names by their looks."""
        return [fact for fact in self.facts if fact.kind == NAME and fact.sure]


@lru_cache(maxsize=256)
def read_request(text: str) -> Request:
    """The values of a request."""
    facts = [
        Fact(_plain(value), value.kind, stems_of(_around(text, value)), before=_before(text, value.start), named=True,
             order=value.start)
        for value in _named(text)
    ]  # fmt: skip
    facts += [
        Fact(value.text, NAME, stems_of(_around(text, value)), named=True, order=value.start, sure=False)
        for value in _first_words(text)
    ]
    message = next((found[1].strip().rstrip(".?!") for pattern in _MESSAGE if (found := pattern.search(text))), "")
    return Request(text, stems_of(text), tuple(facts), message)


def facts_of(taken: Taken, index: int, request: Request, toolbox: Toolbox) -> list[Fact]:
    """The values in an answer."""
    output: Any = taken.observation.output
    if isinstance(output, str):
        return [
            Fact(_plain(value), value.kind, frozenset(), index, "$", order=value.start)
            for value in values_in(output)
            if value.kind not in (TEXT, NAME)
        ]
    flat = flatten(output)
    found: list[Fact] = []
    place = 0
    for path, value in flat.scalars.items():
        found.append(_fact(value, taken, index, path, -1, place, request, toolbox))
        place += 1
    rows: dict[tuple[str, int], list[int]] = {("$", -1): list(range(len(found)))} if found else {}
    for path, values in flat.lists.items():
        for value, row in zip(values, flat.rows[path], strict=True):
            if row < MAX_ROWS:
                rows.setdefault((path.split("[*]")[0], row), []).append(len(found))
                found.append(_fact(value, taken, index, path, row, place, request, toolbox))
                place += 1
    found += _whole_lists(taken, index, output, toolbox)
    return _with_names(found, rows, request)


def in_words(output: Any) -> str:
    """An answer as text: its texts, one row a line; "" if it has none."""
    if isinstance(output, str):
        return output[:MAX_PROSE]
    flat = flatten(output)
    lines: dict[tuple[str, int], list[str]] = {}
    for path, values in flat.lists.items():
        for value, row in zip(values, flat.rows[path], strict=True):
            lines.setdefault((path.split("[*]")[0], row), []).append(str(value))
    text = "\n".join("; ".join(parts) for parts in lines.values())
    return (text or "; ".join(str(value) for value in flat.scalars.values()))[:MAX_PROSE]


@lru_cache(maxsize=256)
def phrases(text: str) -> tuple[str, ...]:
    """Short runs of plain words in a request, and their ends: what a name in small letters may be."""
    found: dict[str, None] = {}
    run: list[str] = []
    for token in (*_TOKEN.findall(text), "."):
        if token.isalpha() and token == token.lower() and stems_of(token) and token not in _JOINTS:
            run.append(token)
            continue
        for start in range(max(0, len(run) - 3), len(run)):
            found[" ".join(run[start:])] = None
        run = []
    return tuple(found)


@lru_cache(maxsize=256)
def single_words(text: str) -> tuple[str, ...]:
    """The words of a request that say something, each once: those with a capital first."""
    found = dict.fromkeys(word for word in _WORD.findall(text[:MAX_REQUEST]) if stems_of(word))
    return tuple(sorted(found, key=lambda word: not word[0].isupper()))


_JOINTS: Final = word_set(
    "between during until since down into onto over under after before everybody everyone instead otherwise else "
    "still again please each every them their whoever whole only most"
)
"""Words that stand between the parts of a sentence."""


def _named(text: str) -> Iterator[Value]:
    """The values; of a name that begins a sentence with its first word and without, unless that is plainly no name."""
    for value in values_in(text):
        first = re.search(r"([A-Z][\w-]*)\s$", text[: value.start]) if value.kind == NAME else None
        if first and _SENTENCE_START.search(text[: first.start()]) and _may_be_a_name(first[1]):
            yield Value(NAME, text[first.start() : value.end], first.start(), value.end)
        yield value
    yield from _of_other_languages(text)


def _first_words(text: str) -> Iterator[Value]:
    """First words of sentences that may be names: that of "Ann needs a desk", and not that of "Rename the desk"."""
    text = text[:MAX_REQUEST]
    taken = {place for value in values_in(text) for place in range(value.start, value.end)}
    for word in _WORD.finditer(text):
        plain = re.sub(r"['’]s?$", "", word[0])
        begins = word[0][0].isupper() and _SENTENCE_START.search(text[max(0, word.start() - 3) : word.start()])
        if not begins or word.start() in taken or len(plain) < SHORTEST_NAME or not _may_be_a_name(plain):
            continue
        behind = _WORD.match(text, word.end() + 1)
        if behind is None or (behind.start() not in taken and behind[0].lower() not in _DETERMINERS):
            yield Value(NAME, plain, word.start(), word.start() + len(plain))


_DETERMINERS: Final = word_set(
    "a an the my our your his her its their this that these those all any every some me us it"
)
"""Words that stand right behind a verb, and not behind a name."""


def _of_other_languages(text: str) -> Iterator[Value]:
    """What English rules pass over: other quotation marks, names in other alphabets, names behind a capital noun."""
    found = values_in(text)
    text = text[:MAX_REQUEST]
    for quoted in _QUOTED.finditer(text):
        part = next(filter(None, quoted.groups()))
        if all(value.text != part for value in found):
            yield Value(TEXT, part, quoted.start() + 1, quoted.end() - 1)
    taken = {place for value in found if value.kind != NAME for place in range(value.start, value.end)}
    run: list[re.Match[str]] = []
    for word in (*_WORD.finditer(text), None):
        begins = word is not None and bool(_SENTENCE_START.search(text[max(0, word.start() - 3) : word.start()]))
        beside = not run or word is None or text[run[-1].end() : word.start()].isspace()
        if word is not None and beside and word[0][0].isupper() and not begins and word.start() not in taken:
            run.append(word)
            continue
        if any(not each[0][0].isascii() for each in run):
            yield Value(NAME, text[run[0].start() : run[-1].end()], run[0].start(), run[-1].end())
        run = []
    for value in found:
        _, _, rest = value.text.partition(" ")
        if value.kind == NAME and " " in rest:  # "Kunden Jürgen Müller"
            yield Value(NAME, rest, value.end - len(rest), value.end)


def _may_be_a_name(word: str) -> bool:
    plain = word.lower()
    return bool(stems_of(plain)) and plain not in VERBS and not is_common(plain) and plain not in _JOINTS


def _plain(value: Value) -> Any:
    if value.kind == NAME:
        return re.sub(r"['’]s$", "", value.text)
    if value.kind == NUMBER and value.text.isdigit():
        return int(value.text)
    return value.text


def _around(text: str, value: Value) -> str:
    after = words(text[value.end : value.end + 30])[:1]
    return " ".join([*words(text[max(0, value.start - 30) : value.start])[-2:], *after])


def _before(text: str, start: int) -> str:
    found = _BEFORE.search(text[:start])
    return found[1].lower() if found else ""


def _fact(
    value: Any, taken: Taken, index: int, path: str, row: int, place: int, request: Request, toolbox: Toolbox
) -> Fact:
    text = isinstance(value, str)
    kind = kind_of(value) if text and len(value) <= MAX_VALUE_CHARS else NUMBER if not text else ""
    said = _said(taken.call.tool, path)
    leaf = path.replace("[*]", "").rsplit(".", 1)[-1]
    said |= toolbox.said_of.get(leaf, frozenset())
    spot = _where(value, request.text) if text else -1
    before = _before(request.text, spot) if spot >= 0 else ""
    return Fact(value, kind, said, index, path, row, before, spot >= 0, place)


def _where(value: str, text: str) -> int:
    if not 2 < len(value) <= 80:
        return -1
    found = re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE)
    return found.start() if found else -1


@lru_cache(maxsize=8192)
def _said(tool: str, path: str) -> frozenset[str]:
    plain = path.removeprefix("$").removeprefix(".").replace("[*]", "[]")
    meaning = meaning_of(Leaf(plain), tool)
    own = [stem(word) for level in plain.replace("[]", "").split(".")[-2:] for word in words(level)]
    return frozenset(map(stem, meaning.words)) | frozenset(own)


def _whole_lists(taken: Taken, index: int, output: Any, toolbox: Toolbox) -> Iterator[Fact]:
    """Lists of texts as values of their own: an event's attendees."""

    def walk(value: Any, path: str, row: int) -> Iterator[tuple[str, int, list[Any]]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from walk(inner, f"{path}.{key}", row)
        elif isinstance(value, list):
            if value and all(isinstance(each, str) for each in value):
                yield path, row, value
            for number, inner in enumerate(value[:MAX_ROWS]):
                if isinstance(inner, (dict, list)):
                    yield from walk(inner, f"{path}[*]", number if row < 0 else row)

    for path, row, value in walk(output, "$", -1):
        leaf = path.replace("[*]", "").rsplit(".", 1)[-1]
        said = _said(taken.call.tool, f"{path}[*]") | toolbox.said_of.get(leaf, frozenset())
        yield Fact(list(value), kind_of(value[0]), said, index, path, row)


def _with_names(found: Sequence[Fact], rows: dict[tuple[str, int], list[int]], request: Request) -> list[Fact]:
    """The rows that the user means: their name stands in the request, or they share more words with it than others."""
    shared: dict[str, dict[int, int]] = {}
    for (path, row), members in rows.items():
        stems = {each for i in members if isinstance(found[i].value, str) for each in stems_of(found[i].value)}
        shared.setdefault(path, {})[row] = len(stems & request.stems)
    meant = {
        (path, row)
        for path, counts in shared.items()
        for row, count in counts.items()
        if count == max(counts.values()) > (min(counts.values()) if len(counts) > 1 else 0)
    }
    meant = _superlative(found, rows, meant, request)
    result = list(found)
    for members in rows.values():
        if any("id" in found[i].words for i in members):
            for i in members:
                result[i] = replace(result[i], of_thing=True)
    for key in meant:
        before = next((found[i].before for i in rows[key] if found[i].before), "")
        for i in rows[key]:
            result[i] = _marked(result[i], before)
    return [
        _marked(fact, "") if isinstance(fact.value, list) and (fact.path.split("[*]")[0], fact.row) in meant else fact
        for fact in result
    ]


_LATEST: Final = frozenset(map(stem, ("latest", "newest", "recent", "last")))
_EARLIEST: Final = frozenset(map(stem, ("earliest", "oldest", "first")))


def _superlative(
    found: Sequence[Fact], rows: dict[tuple[str, int], list[int]], meant: set[tuple[str, int]], request: Request
) -> set[tuple[str, int]]:
    """Of the rows that are meant, or of all, the one with the latest date, where the user asks for the latest one."""
    latest = bool(_LATEST & request.stems)
    if not latest and not _EARLIEST & request.stems:
        return meant
    dated: dict[str, dict[int, str]] = {}
    for (path, row), members in rows.items():
        if meant and (path, row) not in meant and any(other == path for other, _ in meant):
            continue
        when = [str(found[i].value) for i in members if found[i].kind == DATE]
        if when:
            dated.setdefault(path, {})[row] = when[0]
    chosen = {(path, (max if latest else min)(times, key=lambda row: times[row])) for path, times in dated.items()}
    return {key for key in meant if key[0] not in dated} | chosen


def _marked(fact: Fact, before: str) -> Fact:
    return replace(fact, before=fact.before or before, named=True)


def dates(facts: Iterable[Fact]) -> list[Fact]:
    """Those that are dates without a time."""
    return [fact for fact in facts if fact.kind == DATE and isinstance(fact.value, str) and len(fact.value) <= 10]
