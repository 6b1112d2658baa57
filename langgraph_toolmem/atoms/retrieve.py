"""Search for atoms that fit a state and a goal.

    score(e) = (1 − β) · cos(q, e) + β · |Λ ∩ S_e| / (|S_e| + ε)

with Λ the types that are known and S_e those that the atom needs; an atom that needs nothing has a feasibility of 1.
cos(q, e) is .5 · that of the sub-goals + .4 · that of the states + .1 · that of sub-goal and tool description, over
words and their parts (`text.words`); with an embedding model, sub-goals are compared by its vectors. A question
may have several goals: the best one counts. The published score (`plain`) compares one text of state and all goals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

from langgraph_toolmem.atoms.atoms import Atom
from langgraph_toolmem.atoms.extract import Extractor, sparse
from langgraph_toolmem.atoms.slots import COMMON, SLOT, Known, filled
from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.looks import KINDS
from langgraph_toolmem.text.words import similarity

BETA: Final = 0.3
EPSILON: Final = 1e-5
K: Final = 3
GOAL, STATE, ABOUT = 0.5, 0.4, 0.1
"""Weights of the likeness of sub-goals, of states, and of a sub-goal and the tool's description."""
LEAST_ALIKE: Final = 0.5
"""Likeness of two tools from which one stands for the other."""
PARAMETERS: Final = 0.3
"""Share of the parameters in the likeness of tools; the rest is the description."""


@dataclass(frozen=True, slots=True)
class AtomHit:
    """An atom that fits.

    Attributes:
        atom: the atom.
        score: the hybrid score.
        similarity: cos(q, e).
        feasibility: |Λ ∩ S| / (|S| + ε); 1 if it needs nothing.
        tool: the available tool that stands for its own.
        likeness: 1 if that has the same name, otherwise how alike the two are.
        filled: its arguments with known values in place of slots; other slots stay.
        to_goal: how much the goal, or the tool's description, is like what is asked for.
    """

    atom: Atom
    score: float
    similarity: float
    feasibility: float
    tool: str
    likeness: float = 1.0
    filled: Mapping[str, object] = field(default_factory=dict)
    to_goal: float = 0.0


class Resolved(NamedTuple):
    """An available tool that stands for an atom's tool: likeness 1 if it has its name."""

    tool: str
    likeness: float


class Resolver:
    """Finds the tools of atoms among the available ones: by name, otherwise by description and parameters."""

    def __init__(self, tools: Extractor) -> None:
        self._tools = tools
        self._known: dict[str, Resolved | None] = {}

    def __call__(self, atom: Atom) -> Resolved | None:
        """Return the tool that stands for the atom's; None if none is alike enough."""
        if atom.tool in self._tools.specs:
            return Resolved(atom.tool, 1.0)
        if atom.call not in self._known:
            alike = [Resolved(name, self._likeness(atom, name)) for name in self._tools.specs] if atom.about else []
            best = max(alike, key=lambda each: each.likeness, default=None)
            self._known[atom.call] = best if best is not None and best.likeness >= LEAST_ALIKE else None
        return self._known[atom.call]

    def _likeness(self, atom: Atom, name: str) -> float:
        spec = self._tools.specs[name]
        said = similarity(sparse(atom.about), sparse(self._tools.about(name)))
        given, takes = set(atom.arguments), set(spec.properties)
        shared = len(given & takes) / len(given | spec.required) if given | spec.required else 1.0
        return (1 - PARAMETERS) * said + PARAMETERS * shared


Resolve = Callable[[Atom], Resolved | None]


def by_name(atom: Atom) -> Resolved:
    """Return an atom's tool as it was called."""
    return Resolved(atom.tool, 1.0)


class AtomQuestion(NamedTuple):
    """A question to the atoms.

    Attributes:
        state: where the run stands, without values.
        goals: what may be next, without values.
        known: K.
    """

    state: str
    goals: tuple[str, ...]
    known: Known


def ranked(
    atoms: Iterable[tuple[Atom, float]],
    question: AtomQuestion,
    *,
    k: int = K,
    beta: float = BETA,
    resolve: Resolve = by_name,
    plain: bool = False,
) -> list[AtomHit]:
    """Return the k atoms that fit best, best first; of equal ones those of more visits.

    Args:
        atoms: each with its likeness to the goals of the question (`to_goal`).
        question: what is asked.
        k: number of hits.
        beta: weight of feasibility, 0 to 1.
        resolve: finds tools; atoms without one are left out.
        plain: if True, the published score, and several atoms of a tool.
    """
    if plain:
        whole = sparse(f"{' '.join(question.goals)}\n{question.state}")
        given = [(similarity(whole, sparse(f"{atom.goal}\n{atom.state}")), like, atom) for atom, like in atoms]
    else:
        where = sparse(question.state)
        state = cache(lambda text: STATE * similarity(where, sparse(text)))
        given = [(like + state(atom.state), like, atom) for atom, like in atoms]
    has = cache(question.known.has)
    feasibility = cache(lambda needed: sum(map(has, needed)) / (len(needed) + EPSILON) if needed else 1.0)
    scored = [
        ((1 - beta) * cosine + beta * feasibility(atom.required_slots), cosine, like, atom)
        for cosine, like, atom in given
    ]
    scored.sort(key=lambda each: (-each[0], -each[3].visits))
    hits: dict[str, AtomHit] = {}
    for score, cosine, like, atom in scored:
        if not plain and atom.tool in hits:
            continue
        found = resolve(atom)
        key = atom.id if plain or found is None else found.tool
        if found is not None and key not in hits:
            arguments = filled(atom.arguments, question.known)
            hits[key] = AtomHit(atom, score, cosine, feasibility(atom.required_slots), *found, arguments, like)
            if len(hits) == k:
                break
    return list(hits.values())


def to_goal(goal: str, atom: Atom, cosine: float | None = None) -> float:
    """Return the part of an atom's likeness that depends on a goal; `cosine` is that of an embedding model, if any."""
    asked = sparse(worded(goal))
    alike = similarity(asked, sparse(worded(atom.goal))) if cosine is None else max(0.0, cosine)
    return GOAL * alike + ABOUT * similarity(asked, sparse(atom.about))


@cached(mebibytes=4)
def worded(goal: str) -> str:
    """Return a goal with the words of its types; types that any value may have say nothing."""
    return SLOT.sub(lambda slot: "" if slot[1] in COMMON or slot[1] in KINDS else slot[1].replace("_", " "), goal)
