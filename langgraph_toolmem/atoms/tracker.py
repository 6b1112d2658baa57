"""The known-info tracker K of a thread, kept in its private state: facts stay when their messages are gone.

Only what is new in the messages is read into what was known; which event was read last is kept with it. Where that
event is not found any more (trimmed, edited, another branch) all messages are read again, which adds nothing twice.
Secrets are not kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from langgraph_toolmem.atoms.known import MAX_VALUE, Known
from langgraph_toolmem.atoms.slots import Slots
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.runs.run import Run, UserMessage
from langgraph_toolmem.text.embedders import clean
from langgraph_toolmem.text.meaning import SECRETS
from langgraph_toolmem.text.words import words

MAX_KEPT: Final = 8
"""Values kept per type, the latest."""
MAX_CHARS: Final = 16_000
"""Characters of all types and values."""
MAX_TYPE: Final = 40
_INT64: Final = 2**63
_SECRETS: Final = SECRETS | {"token", "accesstoken", "authorization"}


def tracked(run: Run, slots: Slots, kept: Any = None, read: str = "") -> Known:
    """Return what a run knows now.

    Args:
        run: the history as far as it is still there.
        slots: types by the tools' schemas.
        kept: what `to_kept` gave at an earlier point of the run; anything unusable is nothing.
        read: what `mark_of` gave there.
    """
    try:
        known = Known.from_plain({key: each for key, each in (kept or {}).items() if isinstance(key, str)})
    except (InputError, AttributeError):
        known = Known()
    events = run.events
    new = next((index + 1 for index in range(len(events) - 1, -1, -1) if _mark(events[index]) == read), 0)
    for event in events[new:]:
        known.push(event, slots)
    return _without_secrets(_encodable(known))


def mark_of(run: Run) -> str:
    """Identity of the last event of a run with all that is known of it; "" if there is none."""
    return _mark(run.events[-1]) if run.events else ""


def to_kept(known: Known) -> dict[str, list[Any]]:
    """JSON values for the private state, bounded: the latest values, and of too many types those that came last."""
    kept: dict[str, list[Any]] = {}
    room = MAX_CHARS
    for label, values in reversed(known.to_plain().items()):
        plain = [value for each in values if (value := _plain(each)) is not None][-MAX_KEPT:]
        room -= len(label) + sum(len(str(value)) for value in plain)
        if room < 0:
            break
        if plain:
            kept[label] = plain
    return dict(reversed(kept.items()))


def add_facts(known: Known, facts: Iterable[tuple[str, str]], said: str) -> tuple[list[tuple[str, str]], int]:
    """Adds what a model read, as far as it stands in the material.

    Args:
        known: is changed.
        facts: types and values.
        said: all that was said, called and answered, in lower case.

    Returns:
        What was added, and how many were refused: no type, too long, a secret, or not in the material.
    """
    added: list[tuple[str, str]] = []
    refused = 0
    for name, value in facts:
        label, text = type_named(name), " ".join(clean(value).split())
        if not label or _is_secret(label) or not 0 < len(text) <= MAX_VALUE or text.lower() not in said:
            refused += 1
            continue
        known.add(label, text)
        added.append((label, text))
    return added, refused


def type_named(name: str) -> str:
    """A type as K has them, from however somebody writes it; "" if it is none.

    >>> type_named("<order id>"), type_named("2nd address1")
    ('ORDER_ID', 'ND_ADDRESS_1')
    """
    label = "_".join(word for word in words(name) if word.isascii()).upper().lstrip("_0123456789")
    return label if len(label) <= MAX_TYPE else ""


def _encodable(known: Known) -> Known:
    """Without lone surrogates, which no request and no checkpoint takes."""
    plain = known.to_plain()
    if not any(isinstance(value, str) and clean(value) != value for values in plain.values() for value in values):
        return known
    return Known({label: [clean(v) if isinstance(v, str) else v for v in vs] for label, vs in plain.items()})


def _without_secrets(known: Known) -> Known:
    plain = known.to_plain()
    hidden = {str(value).lower() for label, values in plain.items() if _is_secret(label) for value in values}
    if not hidden:
        return known
    left = {label: values for label, values in plain.items() if not _is_secret(label)}
    # The same value may be known as a text or a number too.
    return Known({label: [v for v in values if str(v).lower() not in hidden] for label, values in left.items()})


def _is_secret(label: str) -> bool:
    words = label.lower().split("_")
    return not _SECRETS.isdisjoint((*words, "".join(words)))


def _mark(event: Any) -> str:
    if isinstance(event, UserMessage):
        return digest("said", event.key, event.text)
    return digest("turn", event.key, *(f"{step.key} {step.status}" for step in event.steps))


def _plain(value: Any) -> Any:
    """As a checkpoint can hold it; None if it cannot."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else str(value)
    return value if isinstance(value, float) else None
