"""Which values could stand in an input, and how well each fits: general rules, no knowledge of particular tools.

A value fits by its looks (a mail address, a date), by what it is (the id of an event), by the word before it in the
request ("from", "to"), by whether the user named it, and by whether it was used before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from langgraph_toolmem.atoms.words import EMAIL, ID, NAME, NUMBER, TEXT, URL
from langgraph_toolmem.offline.discovery.context import Candidate, Context
from langgraph_toolmem.offline.discovery.facts import REQUEST, Fact, dates, in_words, phrases, single_words
from langgraph_toolmem.offline.discovery.toolbox import Input, stems_of
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, canon, fit
from langgraph_toolmem.search.lexical import stem, words
from langgraph_toolmem.words.schema import resolved

STRONG: Final = 0.75
"""Fit from which a value is given though it is optional."""
LEAST: Final = 0.35
"""Fit below which a value is not tried."""
MAX_WORDS: Final = 12
"""Words of a request that are tried by themselves."""
_TYPED: Final = frozenset({"email", "url", "id"})
_GIVERS: Final = frozenset({"from", "of", "by"})
_GOALS: Final = frozenset({"to", "for", "with", "onto", "at"})
_CLOCK: Final = re.compile(r"\b([01]?\d|2[0-3]):[0-5]\d\b")
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d$")
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


def candidates(tool: str, wanted: Input, context: Context) -> list[Candidate]:
    """The best values for an input, each once, the best first."""
    used = frozenset(context.used_by.get((tool, wanted.path), ())) if wanted.kind in _TYPED else None
    key = (wanted, context.toolbox.reads[tool], used)
    known = context.found.get(key)
    if known is None:
        found = _found(tool, wanted, context)
        further = _further(tool, wanted, context) if context.wide else ()
        known = context.found[key] = fitting(context.toolbox.specs[tool], wanted, found, further)
    return known


def fitting(
    spec: ToolSpec, wanted: Input, found: Iterable[Candidate], further: Iterable[Candidate] = ()
) -> list[Candidate]:
    """Those that have the type of the input, each once, the best first; behind them all that are further ones."""
    schema = _schema(spec, wanted.path)
    others = [each for each in further if fit(each.value, schema) == each.value]
    kept: dict[str, Candidate] = {}
    for each in found:
        if each.fit < LEAST:
            continue
        value = fit(each.value, schema)
        if value is ABSENT or value is None:
            continue
        key = canon(value)
        if key not in kept or kept[key].fit < each.fit:
            kept[key] = Candidate(value, min(1.0, each.fit), each.fact)
    most = {"prose": 2, "headline": 3, "name": 8, "search": 8}.get(wanted.kind, 5)
    best = sorted(kept.values(), key=lambda each: -each.fit)[:most]
    return [*best, *(each for each in others if canon(each.value) not in kept)]


def _further(tool: str, wanted: Input, context: Context) -> Iterator[Candidate]:
    """The single words of the request, for a text that must be given to a tool that only reads."""
    text = wanted.kind in ("name", "search", "headline") and wanted.required and not wanted.choices
    if text and context.toolbox.reads[tool]:
        for place, word in enumerate(single_words(context.request.text)[:MAX_WORDS]):
            yield Candidate(word, LEAST - 0.01 * place)


def _found(tool: str, wanted: Input, context: Context) -> Iterator[Candidate]:
    if wanted.kind == "choice":
        yield from _choices(wanted, context)
    elif wanted.kind == "flag":
        if (wanted.own - _SMALL) & context.request.stems:
            yield Candidate(True, 0.9)
    elif wanted.kind == "number":
        yield from _numbers(wanted, context)
    elif wanted.kind == "date":
        yield from _dates(wanted, context)
    elif wanted.kind == "time":
        yield from _times(tool, wanted, context)
    elif wanted.kind == "prose":
        yield from _prose(tool, context)
    elif wanted.kind == "headline":
        yield from _headlines(tool, wanted, context)
    elif wanted.kind in ("name", "search"):
        yield from _names(wanted, context)
    else:
        kinds = {"email": EMAIL, "url": URL, "id": ID}
        yield from _typed(tool, wanted, context, kinds[wanted.kind])


_SMALL: Final = frozenset(map(stem, ("is", "has", "only", "with", "include")))


def _choices(wanted: Input, context: Context) -> Iterator[Candidate]:
    text = " ".join(words(context.request.text))
    for choice in wanted.choices:
        spot = re.search(rf"\b{re.escape(' '.join(words(choice)))}\b", text)
        if spot:
            yield Candidate(choice, 0.92 - 0.05 * spot.start() / max(1, len(text)))
        elif wanted.required:
            yield Candidate(choice, 0.5 if choice_is_meant(choice, context) else 0.4)


def values_of(choice: str, wanted: Input, context: Context) -> Iterator[Candidate]:
    """Values for "the value" of a field: such as are known for that field, or look like those that are."""
    text = " ".join(words(context.request.text))
    name = next((each for each in context.toolbox.choices_of if each.lower() == choice.lower()), choice)
    for known in context.toolbox.choices_of.get(name, ()):
        if re.search(rf"\b{re.escape(' '.join(words(known)))}\b", text):
            yield Candidate(known, 0.95)
    leaf = choice.lower()
    now = [fact for fact in context.facts if fact.step >= 0 and fact.path.rsplit(".", 1)[-1].lower() == leaf]
    kinds = {fact.kind for fact in now}
    current = {canon(fact.value) for fact in now}
    other = current - context.used
    for fact in context.facts:
        if not isinstance(fact.value, list) and fact.kind and fact.kind in kinds and canon(fact.value) not in other:
            role = _role_fit(replace(wanted, role="to"), fact)
            yield Candidate(fact.value, 0.5 + _standing(fact, context) + role, fact)


def choice_is_meant(choice: str, context: Context) -> bool:
    """Whether what is known is called by the name of a choice: a value known as a status speaks for "status"."""
    return any(stem(choice.lower()) in fact.words and fact.named for fact in context.facts)


def _numbers(wanted: Input, context: Context) -> Iterator[Candidate]:
    name, about = frozenset(map(stem, words(wanted.name))), stems_of(wanted.port.leaf.description)
    for fact in context.facts:
        if fact.kind != NUMBER or isinstance(fact.value, (bool, str, list)):
            continue
        near = bool(fact.words & name)
        if fact.step == REQUEST:
            said = 0.8 if fact.words & about else 0.4 if wanted.required else 0.0
            yield Candidate(fact.value, 1.0 if near else said, fact)
        elif near and wanted.required:
            yield Candidate(fact.value, 0.6 + _standing(fact, context), fact)


def _dates(wanted: Input, context: Context) -> Iterator[Candidate]:
    of_request = dates(context.request.facts)
    for number, fact in enumerate(of_request):
        score = 0.9
        if wanted.role == "from" and len(of_request) > 1:
            score = 0.95 if number == 0 else 0.5
        elif wanted.role == "to" and len(of_request) > 1:
            score = 0.95 if number == len(of_request) - 1 else 0.5
        elif wanted.own & _LAST and len(of_request) > 1:
            score = 0.95 if number == len(of_request) - 1 else 0.6
        elif canon(fact.value) in context.used:
            score = 0.85
        if _ISO.match(str(fact.value)) or "ISO" not in wanted.port.leaf.description:
            yield Candidate(fact.value, score, fact)
    for fact in dates(context.facts):
        if fact.step != REQUEST and fact.words & wanted.own:
            yield Candidate(fact.value, 0.4 + _standing(fact, context), fact)


_LAST: Final = frozenset(map(stem, ("last", "end", "until", "final", "return")))


def _times(tool: str, wanted: Input, context: Context) -> Iterator[Candidate]:
    clock = _CLOCK.search(context.request.text)
    if clock:
        for fact in dates(context.request.facts):
            yield Candidate(f"{fact.value}T{clock[0].zfill(5)}", 1.0, fact)
    changes = not context.toolbox.reads[tool]
    for fact in context.facts:
        if not isinstance(fact.value, str) or not _INSTANT.match(fact.value):
            continue
        if changes and fact.of_thing:
            continue  # the time of a thing that is there is no time to put one at
        said = 0.3 if fact.words & wanted.own else 0.0
        said -= 0.2 if clock else 0.0  # the user named a time
        yield Candidate(fact.value, 0.35 + said + _standing(fact, context) + 0.1 * (fact.row == 0), fact)


def _typed(tool: str, wanted: Input, context: Context, kind: str) -> Iterator[Candidate]:
    used = context.used_by.get((tool, wanted.path), set())
    together: list[str] = []
    of_request: list[str] = []
    people = context.addresses if kind == EMAIL and wanted.many else ()
    if len(people) > 1:
        yield Candidate(list(people), 1.0)
    for fact in context.facts:
        if isinstance(fact.value, list):
            if wanted.many and (fact.kind == kind or fact.words & wanted.own):
                near = 0.3 if fact.words & wanted.own else 0.0
                near -= 0.3 if people and not set(people) <= set(fact.value) else 0.0  # others than the user named
                yield Candidate(fact.value, 0.4 + near + _standing(fact, context), fact)
            continue
        if not isinstance(fact.value, (str, int)) or isinstance(fact.value, bool):
            continue
        score = _typed_fit(wanted, fact, kind, context)
        if score <= 0:
            continue
        if canon(fact.value) in used and not fact.named:
            score -= 0.1
        if wanted.many:
            if fact.named and fact.step != REQUEST and fact.value not in together:
                together.append(str(fact.value))
            elif fact.step == REQUEST and str(fact.value) not in of_request:
                of_request.append(str(fact.value))
            yield Candidate([fact.value], score - 0.1, fact)
        else:
            yield Candidate(fact.value, score, fact)
    if len(together) > 1:
        yield Candidate(together, 0.85)
    if len(of_request) > 1:
        yield Candidate(of_request, 0.8)


def _typed_fit(wanted: Input, fact: Fact, kind: str, context: Context) -> float:
    if kind == ID:
        return _id_fit(wanted, fact, context)
    if fact.kind != kind:
        return 0.0
    score = 0.5 + _standing(fact, context)
    if fact.words & context.request.stems - _PLAIN:
        score += 0.15  # it is called what the user calls it
    return score + _role_fit(wanted, fact)


_PLAIN: Final = frozenset(map(stem, ("email", "mail", "address", "id", "name", "user", "date")))


def _id_fit(wanted: Input, fact: Fact, context: Context) -> float:
    text = canon(fact.value)
    if wanted.example:
        if not text.startswith(wanted.example):
            return 0.0
        return 0.65 + _standing(fact, context)
    if fact.kind not in (ID, NUMBER) and "id" not in fact.words:
        return 0.0
    meant = wanted.port.meaning.words - {"id"}
    if fact.step == REQUEST:
        return 0.8 if fact.kind == ID else 0.0
    shared = {stem(word) for word in meant} & fact.words
    return (0.65 if shared else 0.15) + _standing(fact, context) if "id" in fact.words else 0.0


def _role_fit(wanted: Input, fact: Fact) -> float:
    said = "from" if fact.before in _GIVERS else "to" if fact.before in _GOALS else ""
    if not wanted.role or not said:
        return 0.0
    return 0.15 if wanted.role == said else -0.15


def _standing(fact: Fact, context: Context) -> float:
    """What speaks for a value whatever it is for: 0 to 0.3."""
    if fact.step == REQUEST:
        return 0.2
    score = 0.15 if fact.named else 0.0
    score += 0.1 if fact.step == context.latest else 0.05 if fact.step == context.latest - 1 else 0.0
    score += 0.05 if fact.row <= 0 else max(0.0, 0.03 - 0.003 * fact.row)
    return score - (0.02 if canon(fact.value) in context.used else 0.0)


def _prose(tool: str, context: Context) -> Iterator[Candidate]:
    if context.toolbox.reads[tool]:
        return
    request = context.request
    message = request.message
    if message:
        yield Candidate(message, 0.8)
    for fact in context.facts:
        if fact.kind == TEXT and fact.step == REQUEST:
            yield Candidate(fact.value, 0.4, fact)
        elif isinstance(fact.value, str) and fact.step >= 0 and _leaf_stems(fact) & request.stems and not fact.named:
            yield Candidate(fact.value, 0.55 if fact.kind != URL and not fact.value.startswith("http") else 0.9, fact)
    asked = [taken for taken in context.state.taken if context.toolbox.reads[taken.call.tool]]
    if asked:
        latest = {id(taken): number for number, taken in enumerate(asked)}
        about = max(
            asked, key=lambda taken: (context.toolbox.shared(taken.call.tool, request.stems), latest[id(taken)])
        )
        told = in_words(about.observation.output)
        if told:
            wanted = 0.72 if request.stems & _TOLD else 0.5
            yield Candidate(told, wanted - (0.1 if message else 0.0))
    yield Candidate(request.text, 0.65)


_TOLD: Final = frozenset(
    map(stem, ("list", "summary", "summarise", "report", "overview", "agenda", "average", "total", "note", "know"))
)
"""Words of requests that want an answer put into a text."""


def _leaf_stems(fact: Fact) -> frozenset[str]:
    return _stems_of_leaf(fact.path)


@lru_cache(maxsize=4096)
def _stems_of_leaf(path: str) -> frozenset[str]:
    leaf = path.replace("[*]", "").rsplit(".", 1)[-1]
    return frozenset(map(stem, words(leaf))) - _PLAIN


def _headlines(tool: str, wanted: Input, context: Context) -> Iterator[Candidate]:
    for fact in context.facts:
        if fact.kind == TEXT and fact.step == REQUEST:
            yield Candidate(fact.value, 0.95, fact)
        elif fact.step >= 0 and _leaf_stems(fact) & _TITLES and isinstance(fact.value, str):
            yield Candidate(fact.value, 0.45 + _standing(fact, context), fact)
        elif fact.kind == NAME and fact.step == REQUEST:
            yield Candidate(fact.value, 0.3 if wanted.required else 0.2, fact)
    if context.toolbox.reads[tool]:
        about = re.search(r"\babout ([\w-]+(?: [\w-]+)?)", context.request.text)
        if about and about[1] in phrases(context.request.text):
            yield Candidate(about[1], 0.85)
        for place, phrase in enumerate(phrases(context.request.text)[:6]):
            yield Candidate(phrase, 0.6 - 0.02 * place)
    else:
        yield Candidate(context.request.text, 0.5)


_TITLES: Final = frozenset(map(stem, ("title", "subject", "headline", "name")))


def _names(wanted: Input, context: Context) -> Iterator[Candidate]:
    request = context.request
    text = " ".join(words(request.text))
    for choice in wanted.choices:
        if re.search(rf"\b{re.escape(' '.join(words(choice)))}\b", text):
            yield Candidate(choice, 0.95)
    if wanted.choices:
        return
    for fact in request.facts:
        if fact.kind in (NAME, TEXT):
            near = 0.2 if fact.words & wanted.own else 0.0
            known = -0.25 if wanted.required and context.is_told(fact) else 0.0
            less = 0.1 if fact.kind == TEXT or not fact.sure else 0.0
            yield Candidate(fact.value, 0.6 + near + known - less, fact)
        elif fact.kind in (ID, EMAIL) and wanted.kind == "search":
            yield Candidate(fact.value, 0.6, fact)
        elif fact.kind == ID and wanted.required:
            yield Candidate(fact.value, 0.55, fact)
    for fact in context.facts:
        if fact.step != REQUEST and isinstance(fact.value, str) and fact.words & wanted.own and fact.kind != ID:
            yield Candidate(fact.value, 0.3 + _standing(fact, context), fact)
    if wanted.required:
        for place, phrase in enumerate(phrases(request.text)[:12]):
            head, _, tail = phrase.rpartition(" ")
            if head and stem(tail) in wanted.own:  # "the design team", for a team
                yield Candidate(head, 0.85)
            yield Candidate(phrase, (0.8 if _beside(phrase, wanted, request.text) else 0.5) - 0.01 * place)


def _beside(phrase: str, wanted: Input, text: str) -> bool:
    """Whether a phrase stands right before or behind the name of the input: "the design team"."""
    for own in wanted.own:
        if re.search(rf"\b{re.escape(phrase)} {own}\w*\b|\b{own}\w* {re.escape(phrase)}\b", text, re.IGNORECASE):
            return True
    return False


def _schema(spec: ToolSpec, path: str) -> dict[str, Any] | None:
    """The schema at a path; of a list as a whole, not of its element."""
    schema: Any = spec.parameters
    for level in path.removesuffix("[]").split("."):
        schema = resolved(schema, spec.parameters).get("properties", {}).get(level.removesuffix("[]"))
        if isinstance(schema, Mapping) and level.endswith("[]"):
            schema = resolved(schema, spec.parameters).get("items")
        if not isinstance(schema, Mapping):
            return None
    return dict(resolved(schema, spec.parameters))


__all__ = ["STRONG", "Candidate", "Context", "candidates", "choice_is_meant", "fitting"]
