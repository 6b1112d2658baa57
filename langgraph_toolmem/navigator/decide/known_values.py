"""Values in the messages of a run that a plan need not look for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from langgraph_toolmem.runs.run import ExecutedCall, Run, UserMessage
from langgraph_toolmem.text.meaning import meaning_of
from langgraph_toolmem.text.schema import MAX_DEPTH, Leaf, is_field, is_table, shows_fields, type_of
from langgraph_toolmem.text.values import AMOUNT, DATE, EMAIL, URL, Value, date_of, figures_of, values_in

MOST: Final = 64
"""Values that are taken, at most; the latest ones."""
_MOST_LOOKED_AT: Final = 600
_IN_WORDS: Final = {EMAIL: "email", URL: "url", DATE: "date", AMOUNT: "amount"}


def known_values(run: Run, *, most: int = MOST) -> dict[str, Any]:
    """Name -> value of what was said and found since the user's latest message: `known` of `Navigator.plan`.

    - Arguments of calls that went well, by parameter.
    - Parts of their results, by the name of the field; one that says too little alone ("id") is named after what it is
      the id of, and left out where that is not known. Lists of several elements are left out: which one is meant is
      not said.
    - An e-mail address, URL, full date or amount of money in the user's words, as ``email``, ``url``, ``date`` (as ISO
      has it) and ``amount`` (its figures), where there is one of the kind and not several.

    What earlier requests were about is left out: the customer of the last one is seldom that of this one.

    Args:
        run: the run so far.
        most: values, at most.
    """
    found: dict[str, Any] = {}
    said = [index for index, event in enumerate(run.events) if isinstance(event, UserMessage)]
    for event in run.events[said[-1] if said else 0 :]:
        if isinstance(event, UserMessage):
            pairs = list(_in_words(event.text))
        else:
            pairs = [pair for step in event.steps if step.status == "ok" for pair in _of_step(step)]
        for name, value in pairs:
            found.pop(name, None)
            found[name] = value
    return dict(list(found.items())[-most:]) if most > 0 else {}


def _in_words(text: str) -> Iterator[tuple[str, Any]]:
    found: dict[str, set[str]] = {}
    for value in values_in(text, frozenset(_IN_WORDS)):
        if plain := _plain(value):
            found.setdefault(value.kind, set()).add(plain)
    for kind, values in found.items():
        if len(values) == 1:
            yield _IN_WORDS[kind], values.pop()


def _plain(value: Value) -> str:
    """A value as calls are given it; "" if that is not clear."""
    if value.kind == DATE:
        return date_of(value.text) or ""
    return figures_of(value.text) if value.kind == AMOUNT else value.text


def _of_step(step: ExecutedCall) -> Iterator[tuple[str, Any]]:
    for name, value in step.args.items():
        if _says_something(value) and (label := _named(name, step.tool, value)):
            yield label, value
    if shows_fields(step.output):
        for path, value in islice(_leaves(step.output, "", 0), _MOST_LOOKED_AT):
            if _says_something(value) and (label := _named(path, step.tool, value)):
                yield label, value


def _says_something(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != ""


def _named(path: str, tool: str, value: Any) -> str:
    """Return what a value is called; "" if nothing says what it is."""
    key = path.rsplit(".", 1)[-1].removesuffix("[]")
    types = frozenset({type_of(value)})
    if key and not meaning_of(Leaf(key, types), "").vague:
        return key
    meaning = meaning_of(Leaf(path, types), tool)
    return "" if meaning.vague else meaning.label


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, Mapping):
        if not is_table(value):
            for key, inner in value.items():
                if is_field(key):
                    yield from _leaves(inner, f"{path}.{key}" if path else key, depth + 1)
    elif isinstance(value, (list, tuple)):
        if len(value) == 1:
            yield from _leaves(value[0], f"{path}[]", depth + 1)
    else:
        yield path, value
