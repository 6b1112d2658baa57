"""Relevance of an atom to the request, whatever the state says.

Before the first call of a user turn all runs are in the same state: nothing was done yet. By its state alone the first
step of any task would then fit a question about the weather.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from langgraph_toolmem.atoms.atoms import Atom, wordings_of
from langgraph_toolmem.atoms.known import COMMON
from langgraph_toolmem.atoms.situation import sparse
from langgraph_toolmem.atoms.words import SLOT
from langgraph_toolmem.text.similarity import similarity
from langgraph_toolmem.text.values import KINDS

LEAST: Final = 0.15
"""Likeness in words of a goal with what an atom was for or what its tool does, from which it has to do with it."""


def fits(goals: Iterable[str], atom: Atom) -> bool:
    """Return True if the words of a goal are like those of the atom's sub-goals or of its tool's description.

    Args:
        goals: what may be next, without values.
        atom: the atom.
    """
    said = [*(wording.goal for wording in wordings_of(atom)), atom.about]
    asked = [sparse(_worded(goal)) for goal in goals]
    return any(similarity(one, sparse(_worded(text))) >= LEAST for text in said if text for one in asked)


def nearest(goals: Iterable[str], atom: Atom) -> str:
    """The one of an atom's sub-goals that is most like what is asked for; the most frequent of equals."""
    asked = [sparse(_worded(goal)) for goal in goals]
    said = dict.fromkeys(wording.goal for wording in wordings_of(atom) if wording.goal)
    return max(
        said, key=lambda text: max((similarity(one, sparse(_worded(text))) for one in asked), default=0.0), default=""
    )


def _worded(goal: str) -> str:
    """With the words of types in their place; those that any value may have say nothing."""
    return SLOT.sub(lambda slot: "" if slot[1] in COMMON or slot[1] in KINDS else slot[1].replace("_", " "), goal)
