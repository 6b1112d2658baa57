"""The stream event of a planning step, and the reason why a hint was not shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.record import NO_RECORD, AtomRecord
from langgraph_toolmem.atoms.retrieve import AtomHit

NOTHING_SHOWN: Final = "none of the atoms found is worth showing"


def why_not(
    hit: AtomHit,
    fine: Sequence[AtomHit],
    chosen: Sequence[AtomHit],
    shown: Sequence[AtomHit],
    refused: Collection[str],
    unlike: Collection[str],
) -> str:
    """Why a hint is not shown; "" if it is.

    Args:
        hit: the hint.
        fine: those that may be shown.
        chosen: the best of them.
        shown: those of them for which there was room.
        refused: tools of which a person rejected a call.
        unlike: ids of atoms that have nothing to do with what is asked for.
    """
    ids = [[each.atom.id for each in hits] for hits in (shown, chosen, fine)]
    if hit.atom.id in ids[0]:
        return ""
    if hit.atom.id in ids[1]:
        return "no room in the prompt"
    if hit.atom.id in ids[2]:
        return "others fit better"
    if hit.tool in refused:
        return "a person rejected it"
    return "too unlike" if hit.atom.id in unlike else "called already"


def event_of(
    state: str,
    goals: Sequence[str],
    known: Known,
    hits: Sequence[AtomHit],
    shown: int,
    why: str,
    told: Mapping[str, Any],
    reasons: Mapping[str, str] | None = None,
    records: Mapping[str, AtomRecord] | None = None,
) -> dict[str, Any]:
    """Plain values for a stream event.

    Args:
        state, goals, known: what atoms were looked up by.
        hits: what was found, best first.
        shown: how many of them are shown.
        why: why none is, if that is known.
        told: how the question was made.
        reasons: why a hint is not shown, by id of its atom.
        records: results of earlier hints of the atoms, by id.
    """
    return {
        "state": state,
        "goals": list(goals),
        "slots": sorted(known.types),
        "shown": shown,
        "why": why or ("" if shown else NOTHING_SHOWN),
        "candidates": [
            {
                "atom": hit.atom.id,
                "tool": hit.tool,
                "learned_as": hit.atom.tool,
                "goal": hit.atom.goal,
                "score": round(hit.score, 4),
                "similarity": round(hit.similarity, 4),
                "feasibility": round(hit.feasibility, 4),
                "likeness": round(hit.likeness, 4),
                "filled": {name: value for name, value in hit.filled.items() if value != hit.atom.arguments.get(name)},
                "record": (records or {}).get(hit.atom.id, NO_RECORD)._asdict(),
                "why_not": (reasons or {}).get(hit.atom.id, ""),
            }
            for hit in hits
        ],
        **told,
    }
