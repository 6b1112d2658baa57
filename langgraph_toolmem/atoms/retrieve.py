"""Search for atoms that fit a state and a goal.

    score(e) = (1 − β) · cos(q, e) + β · |Λ ∩ S_e| / (|S_e| + ε)

with Λ the known types and S_e those that the atom needs; an atom without required types has a feasibility of 1. cos(q,
e) is .5 · the cosine of the sub-goals + .4 · the cosine of the states + .1 · the cosine of sub-goal and tool
description, over words and their parts (`text.words`); with an embedding model, sub-goals are compared by its vectors.
A question may have several goals: the best one counts. The published score (`plain`) compares one text of state and all
goals, and gives an atom that needs nothing a feasibility of 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from langgraph_toolmem.atoms.atoms import Atom
from langgraph_toolmem.atoms.extract import Extractor, sparse
from langgraph_toolmem.atoms.slots import COMMON, SLOT, Known, filled
from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.values import KINDS
from langgraph_toolmem.text.words import similarity


@dataclass(frozen=True, slots=True)
class AtomHit:
    """An atom that fits.

    Attributes:
        atom: the atom.
        score: the hybrid score.
        similarity: cos(q, e).
        feasibility: |Λ ∩ S| / (|S| + ε); 1 without required types.
        tool: the available tool that replaces its own.
        likeness: 1 if it has the same name, otherwise the similarity of the two.
        filled: its arguments with known values in place of slots; other slots are kept.
        to_goal: similarity of the goal, or of the tool's description, to the question.
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
    """An available tool that replaces an atom's tool: likeness 1 if it has its name."""

    tool: str
    likeness: float


class Resolver:
    """Finds the tools of atoms among the available ones: by name, otherwise by description and parameters."""

    def __init__(self, tools: Extractor) -> None:
        self._tools = tools
        self._known: dict[tuple[str, str], Resolved | None] = {}  # call and description of an atom -> its tool

    def __call__(self, atom: Atom) -> Resolved | None:
        """Return the tool that replaces the atom's; None if all are too different."""
        if atom.tool in self._tools.specs:
            return Resolved(atom.tool, 1.0)
        # A search asks about all wordings of a call, and comparing with all tools is the slow part. The description is
        # no part of a call's digest: without it, an atom that has none hid the tool of one that has.
        compared = (atom.call, atom.about)
        if compared not in self._known:
            self._known[compared] = self._most_alike(atom)
        return self._known[compared]

    def _most_alike(self, atom: Atom) -> Resolved | None:
        # Without a description, parameters alone would match any two tools with an `id`.
        if not atom.about:
            return None
        best: Resolved | None = None
        for name in self._tools.specs:
            likeness = self._likeness(atom, name)
            if best is None or likeness > best.likeness:
                best = Resolved(name, likeness)
        # Below that, the most similar tool of another agent has another purpose.
        if best is None or best.likeness < 0.5:
            return None
        return best

    def _likeness(self, atom: Atom, name: str) -> float:
        """Return the similarity of tools: .7 · the similarity of their descriptions + .3 · the share of common
        parameters.
        """
        # Tools of one family have similar descriptions; their parameters distinguish them.
        spec = self._tools.specs[name]
        about = similarity(sparse(atom.about), sparse(self._tools.about(name)))
        given, takes = set(atom.arguments), set(spec.properties)
        must_fit = given | spec.required
        shared = 1.0
        if must_fit:
            shared = len(given & takes) / len(must_fit)
        return (1 - 0.3) * about + 0.3 * shared


Resolve = Callable[[Atom], Resolved | None]


def by_name(atom: Atom) -> Resolved:
    """Return an atom's tool as it was called."""
    return Resolved(atom.tool, 1.0)


class AtomQuestion(NamedTuple):
    """A question to the atoms.

    Attributes:
        state: the state of the run, without values.
        goals: possible next goals, without values.
        known: K.
    """

    state: str
    goals: tuple[str, ...]
    known: Known


class NearAtom(NamedTuple):
    """An atom, and its similarity to the goals of a question (`to_goal`)."""

    atom: Atom
    to_goal: float


class ScoredAtom(NamedTuple):
    """A near atom with the parts of its score."""

    near: NearAtom
    score: float
    similarity: float
    feasibility: float


def ranked(
    atoms: Iterable[NearAtom],
    question: AtomQuestion,
    *,
    k: int = 3,
    beta: float = 0.3,
    resolve: Resolve = by_name,
    plain: bool = False,
) -> list[AtomHit]:
    """Return the k atoms that fit best, best first; of equal ones those of more visits.

    Args:
        atoms: the atoms near to the goals of the question.
        question: the question.
        k: number of hits.
        beta: weight of feasibility, 0 to 1.
        resolve: finds tools; atoms without one are left out.
        plain: if True, the published score, and several atoms of a tool.
    """
    hits: dict[str, AtomHit] = {}
    for candidate in _scored(atoms, question, beta, plain=plain):
        atom = candidate.near.atom
        # Before the atom is resolved: `resolve` reads the ledger, and most atoms are of a tool with a hit already.
        if not plain and atom.tool in hits:
            continue
        resolved = resolve(atom)
        if resolved is None:
            continue
        # One hint for each tool: the model chooses among tools, and the best wording of a call is enough.
        key = resolved.tool
        if plain:
            key = atom.id
        if key not in hits:
            hits[key] = AtomHit(
                atom,
                candidate.score,
                candidate.similarity,
                candidate.feasibility,
                resolved.tool,
                resolved.likeness,
                filled(atom.arguments, question.known),
                candidate.near.to_goal,
            )
            if len(hits) == k:
                break
    return list(hits.values())


def _scored(atoms: Iterable[NearAtom], question: AtomQuestion, beta: float, *, plain: bool) -> list[ScoredAtom]:
    """Return atoms with their scores, best first; of equal ones those of more visits."""
    similarity_of = _similarity(question)
    feasibility_of_nothing = 1.0
    if plain:
        # By the published formula a call that needs nothing is as feasible as one that lacks everything.
        similarity_of, feasibility_of_nothing = _published_similarity(question), 0.0
    feasibility_of = _feasibility(question, feasibility_of_nothing)
    scored = []
    for near in atoms:
        cosine, feasible = similarity_of(near), feasibility_of(near.atom.required_slots)
        scored.append(ScoredAtom(near, (1 - beta) * cosine + beta * feasible, cosine, feasible))

    def best_first(candidate: ScoredAtom) -> tuple[float, int]:
        return -candidate.score, -candidate.near.atom.visits

    return sorted(scored, key=best_first)


def _similarity(question: AtomQuestion) -> Callable[[NearAtom], float]:
    """Return a function that gives cos(q, e) of an atom: it adds the similarity of states to the known similarity of
    goals.

    Many atoms have the same state, so each state is compared once.
    """
    asked = sparse(question.state)

    # The cache exists for one question only, because it contains words of users.
    @cache
    def to_state(state: str) -> float:
        return 0.4 * similarity(asked, sparse(state))

    def of(near: NearAtom) -> float:
        return near.to_goal + to_state(near.atom.state)

    return of


def _published_similarity(question: AtomQuestion) -> Callable[[NearAtom], float]:
    """Return the same of one text of state and all goals."""
    asked = sparse(f"{' '.join(question.goals)}\n{question.state}")

    def of(near: NearAtom) -> float:
        return similarity(asked, sparse(f"{near.atom.goal}\n{near.atom.state}"))

    return of


def _feasibility(question: AtomQuestion, of_nothing: float) -> Callable[[tuple[str, ...]], float]:
    """Return a function of the types that an atom needs: |Λ ∩ S| / (|S| + ε), or `of_nothing` if it needs none."""
    is_known = cache(question.known.has)

    @cache
    def of(needed: tuple[str, ...]) -> float:
        if not needed:
            return of_nothing
        return sum(map(is_known, needed)) / (len(needed) + 1e-5)

    return of


def to_goal(goal: str, atom: Atom, cosine: float | None = None) -> float:
    """Return the part of an atom's similarity that depends on a goal; `cosine` is that of an embedding model, if
    any.
    """
    asked = sparse(worded(goal))
    if cosine is None:
        alike = similarity(asked, sparse(worded(atom.goal)))
    else:
        # Embedding models give different texts a cosine below 0, words never do.
        alike = max(0.0, cosine)
    return 0.5 * alike + 0.1 * similarity(asked, sparse(atom.about))


@cached(mebibytes=4)
def worded(goal: str) -> str:
    """Return a goal with the words of its types, without the generic types (ID, TEXT, NUMBER)."""
    return SLOT.sub(_words_of_slot, goal)


def _words_of_slot(slot: re.Match[str]) -> str:
    # Words that any value may have ("id", "number") do not change the rank, but then a request for the weather got
    # hints about orders.
    label = slot[1]
    if label in COMMON or label in KINDS:
        return ""
    return label.replace("_", " ")
