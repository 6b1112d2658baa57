"""Runs that say the same, shown as one: one line with the number of runs in place of equal mistakes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.entries.recollection import RecalledEntry
from langgraph_toolmem.text.requests import terms_of

SAID_ALIKE: Final = 0.5
"""Dice coefficient of their terms from which two texts say the same."""


def grouped(found: Iterable[RecalledEntry]) -> list[RecalledEntry]:
    """Return recalled runs with one in place of each group that says the same, in the order given.

    Runs say the same if they ended alike, called the same tools for the same user, and their critiques and the
    comments on them agree. The first of a group that has a critique stands for it, else the first with a comment, else
    the first. Runs without feedback stay apart.
    """
    groups: list[list[RecalledEntry]] = []
    for each in found:
        group = next((group for group in groups if all(_same(each.entry, other.entry) for other in group)), None)
        if group is None:
            groups.append([each])
        else:
            group.append(each)
    return [_joined(group) for group in groups]


def _joined(group: list[RecalledEntry]) -> RecalledEntry:
    head = max(group, key=lambda each: (bool(each.entry.critique), bool(each.entry.comment), each.score))
    others = tuple(each.entry.id for each in group if each is not head)
    return replace(head, score=max(each.score for each in group), others=others)


def _same(one: Entry, other: Entry) -> bool:
    if one.score is None or other.score is None:
        return False
    ended = (one.failed, one.user, one.tools) == (other.failed, other.user, other.tools)
    return ended and _alike(one.comment, other.comment) and _alike(one.critique, other.critique)


def _alike(one: str, other: str) -> bool:
    """Whether two texts may stand together: either says nothing, or both say the same."""
    if one == other or not one or not other:
        return True
    a, b = set(terms_of(one)), set(terms_of(other))
    return 2 * len(a & b) >= SAID_ALIKE * (len(a) + len(b))
