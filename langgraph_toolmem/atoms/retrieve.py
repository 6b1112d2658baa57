"""Search for atoms that fit a state and a goal.

    score(e) = (1 − β) · cos(q, e) + β · |Λ ∩ S_e| / (|S_e| + ε)

with Λ the types that are known and S_e those that the atom needs; an atom that needs nothing has a feasibility of 1.
The cosine is .5 · that of the sub-goals + .4 · that of the states + .1 · that of sub-goal and tool description, of
words and their parts (`text.similarity`), or of vectors where an embedding model made them. An atom has several
wordings, a question may have several goals: the best pair counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Final

from langgraph_toolmem.atoms.atoms import Atom, wordings_of
from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.record import prior
from langgraph_toolmem.atoms.resolve import Resolver
from langgraph_toolmem.atoms.rows import GOOD, AtomRows, StoredAtom, query_text
from langgraph_toolmem.atoms.situation import sparse
from langgraph_toolmem.atoms.slots import satisfied
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.core.rows import MOST_NEAR, Learned
from langgraph_toolmem.core.users import User
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.similarity import similarity
from langgraph_toolmem.text.values import ID, KINDS

BETA: Final = 0.3
EPSILON: Final = 1e-5
K: Final = 3
GOAL, STATE, ABOUT = 0.5, 0.4, 0.1
"""Weights of the likeness of sub-goals, of states, and of a sub-goal and the tool's description."""
LONGLIST: Final = 64
"""Atoms that are weighed for each goal of a question; more where too few of them are of tools at hand."""


@dataclass(frozen=True, slots=True)
class AtomHit:
    """An atom that fits.

    Attributes:
        atom: the atom.
        score: the hybrid score, with the prior where one was given.
        similarity: cosine of the best of its wordings.
        feasibility: |Λ ∩ S| / (|S| + ε); 1 if it needs nothing.
        tool: the tool at hand that stands for its own.
        likeness: 1 if that has the same name, else how alike the two are.
        filled: its arguments with what is known put in; other slots stay.
        goal: the sub-goal of it that is most like what is asked for; "": its most frequent one.
    """

    atom: Atom
    score: float
    similarity: float
    feasibility: float
    tool: str
    likeness: float = 1.0
    filled: Mapping[str, Any] = field(default_factory=dict)
    goal: str = ""


class AtomSearch:
    """Finds atoms of a memory. Safe to use from several threads.

    Args:
        rows: the atoms.
        dense: an embedding model makes the vectors.
    """

    def __init__(self, rows: AtomRows, *, dense: bool) -> None:
        self._rows, self._dense = rows, dense
        self._by_tool = Learned(rows, _one_per_tool)

    def __call__(
        self,
        user: User,
        state: str,
        goals: Sequence[str],
        slots: Known | Iterable[str],
        *,
        k: int = K,
        beta: float = BETA,
        tools: Mapping[str, ToolSpec] | None = None,
        plain: bool = False,
    ) -> list[AtomHit]:
        """The atoms that fit best, best first, without those that mislead; arguments as for `fitting`.

        `plain`: the published score: one question of state and all goals, cosines of whole texts, no prior.

        Raises:
            StorageError: Chroma or the embedder fails.
        """
        goals = [" ".join(goals)] if plain else goals
        vectors = [self._rows.embedder.embed_query(query_text(state, goal)) for goal in dict.fromkeys(goals)]
        count, most = self._rows.size(user), LONGLIST
        wanted = min(k, _reachable(self._by_tool.of(user), tools))
        while True:
            near: dict[str, StoredAtom] = {}
            cosines: dict[str, float] = {}
            for vector in vectors:
                for each in self._rows.near(vector, user, k=most, part=GOOD):
                    near[each.id] = each.item
                    cosines[each.id] = max(each.similarity, cosines.get(each.id, -1.0))
            found = [(each.atom, each.record) for each in near.values() if each.atom is not None]
            hits = fitting(
                [atom for atom, _ in found],
                state,
                goals,
                slots,
                k,
                beta,
                tools=tools,
                cosines=cosines if self._dense or plain else None,
                priors=None if plain else {atom.id: prior(atom, record) for atom, record in found},
                one_per_tool=not plain,
            )
            if len(hits) >= wanted or most >= min(count, MOST_NEAR):
                return hits
            most *= 4

    def forget(self, user: User) -> None:
        """Forget a user's atoms."""
        self._by_tool.forget(user)


def _one_per_tool(sample: Iterable[StoredAtom]) -> tuple[Atom, ...]:
    found = {each.atom.tool: each.atom for each in sample if each.atom is not None and not each.record.misleads}
    return tuple(found.values())


def _reachable(atoms: Sequence[Atom], tools: Mapping[str, ToolSpec] | None) -> int:
    """Return how many tools at hand there are atoms of: more need not be looked for."""
    if tools is None:
        return len(atoms)
    resolver = _resolver(_Tools(tools))
    return len({found.tool for atom in atoms if (found := resolver.resolve(atom)) is not None})


def fitting(
    atoms: Sequence[Atom],
    state: str,
    goal: str | Sequence[str],
    slots: Known | Iterable[str] = (),
    k: int = K,
    beta: float = BETA,
    eps: float = EPSILON,
    tools: Mapping[str, ToolSpec] | None = None,
    *,
    cosines: Mapping[str, float] | None = None,
    priors: Mapping[str, float] | None = None,
    one_per_tool: bool = True,
) -> list[AtomHit]:
    """The k atoms that fit best, best first; of equal ones the first.

    Args:
        atoms: those that are weighed.
        state: where the run stands, as in `Situation.state`.
        goal: the next sub-goal, or several that may be next.
        slots: what is known, or its types Λ alone.
        k: how many at most.
        beta: weight of feasibility, 0 to 1.
        eps: ε of the module's formula.
        tools: the tools at hand; atoms whose tool none of them stands for are left out. None: all of them.
        cosines: by id, those of an embedding model; None: of the words.
        priors: what is added to an atom's score, by id.
        one_per_tool: only the best atom of each tool.

    Raises:
        InputError: an argument is out of range.
    """
    goals = [goal] if isinstance(goal, str) else list(goal)
    if not 0.0 <= beta <= 1.0 or eps < 0.0:
        raise InputError(f"beta lies between 0 and 1 and eps is not negative, not {beta!r} and {eps!r}.")
    if not atoms or not goals or k <= 0:
        return []
    known = slots if isinstance(slots, Known) else None
    types = slots.types if isinstance(slots, Known) else frozenset(slots)
    if cosines is None:
        cosines = _cosines(atoms, state, goals)
    scored: list[tuple[float, float, float, Atom]] = []
    for atom in atoms:
        needed = atom.required_slots
        feasible = 1.0 if not needed else satisfied(needed, types) / (len(needed) + eps)
        score = (1 - beta) * cosines[atom.id] + beta * feasible + (priors or {}).get(atom.id, 0.0)
        scored.append((score, cosines[atom.id], feasible, atom))
    scored.sort(key=lambda each: -round(each[0], 9))
    resolver = None if tools is None else _resolver(_Tools(tools))
    hits: list[AtomHit] = []
    used: set[str] = set()
    for score, similar, feasible, atom in scored:
        resolved = None if resolver is None else resolver.resolve(atom)
        if resolver is not None and resolved is None:
            continue
        tool = atom.tool if resolved is None else resolved.tool
        if one_per_tool and tool in used:
            continue
        used.add(tool)
        likeness = 1.0 if resolved is None else resolved.likeness
        hits.append(AtomHit(atom, score, similar, feasible, tool, likeness, filled(atom.arguments, known)))
        if len(hits) == k:
            break
    return hits


def _cosines(atoms: Iterable[Atom], state: str, goals: Iterable[str]) -> dict[str, float]:
    """Return the likeness of atoms (by id) to a state and goals, by their words."""
    asked, where = [sparse(goal) for goal in goals], sparse(state)

    @cache
    def like_goals(text: str) -> float:
        words = sparse(text)
        return max(similarity(each, words) for each in asked)

    @cache
    def like_state(text: str) -> float:
        return similarity(where, sparse(text))

    return {
        atom.id: max(GOAL * like_goals(each.goal) + STATE * like_state(each.state) for each in wordings_of(atom))
        + ABOUT * like_goals(atom.about)
        for atom in atoms
    }


class _Tools:
    """Tools at hand, equal if they have the same names, descriptions and parameters."""

    def __init__(self, specs: Mapping[str, ToolSpec]) -> None:
        self.specs = specs
        self._key = tuple(
            (name, spec.description, *spec.properties, None, *sorted(spec.required)) for name, spec in specs.items()
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tools) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=16)
def _resolver(tools: _Tools) -> Resolver:
    return Resolver(tools.specs)


def filled(arguments: Mapping[str, Any], known: Known | None) -> dict[str, Any]:
    """Arguments with the latest known value in place of each slot of which one is known.

    Where none is known of a type, a type may stand for it that no other comes near: the TOTAL that an answer of a tool
    of another name gave for an ORDER_TOTAL, an ID of which nothing more is known for an ORDER_ID.
    """
    return {name: _fill(value, known) for name, value in arguments.items()}


def _fill(value: Any, known: Known | None) -> Any:
    if isinstance(value, Mapping):
        return {name: _fill(inner, known) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fill(inner, known) for inner in value]
    if known is None or not isinstance(value, str) or not (value[:1] == "<" and value[-1:] == ">"):
        return value
    label = value[1:-1]
    found = known.latest(label)
    if found is None and (other := _alternative(label, known)):
        found = known.latest(other)
    return value if found is None else found


def _alternative(label: str, known: Known) -> str:
    """The known type that stands for another; "" if there is none, or more than one."""
    if label in KINDS or "_" not in label:
        near = [each for each in known.types if each.endswith(f"_{label}")] if label not in KINDS else []
    else:
        near = [each for each in known.types if label.endswith(f"_{each}") and each not in KINDS - {ID}]
    return near[0] if len(near) == 1 and len(known.values(near[0])) == 1 else ""
