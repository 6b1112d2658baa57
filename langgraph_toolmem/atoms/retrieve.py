"""Atoms in RAM, and which of them fit a state and a goal.

    score(e) = (1 − β) · cos(q, e) + β · |Λ ∩ S_e| / (|S_e| + ε)

with Λ the types that are known and S_e those that the atom needs; an atom that needs nothing has a feasibility of 1.
The cosine is that of the words (`texts`), or of vectors where an embedder made them. An atom has several wordings, a
question may have several goals: the best pair counts.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.atoms.atoms import Atom, wordings_of
from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.resolve import Resolver
from langgraph_toolmem.atoms.slots import satisfied
from langgraph_toolmem.atoms.texts import LONGLIST, Look, TextRows
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.words.values import ID, KINDS

Floats = npt.NDArray[np.float64]

BETA: Final = 0.3
EPSILON: Final = 1e-5
K: Final = 3
LOOKS: Final = 8
"""Longlists at most for one question: the rows of a first one may all be of one tool."""
SPARSE: Final = 2
"""Times as many rows as wordings until the rows are numbered again."""


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
    """

    atom: Atom
    score: float
    similarity: float
    feasibility: float
    tool: str
    likeness: float = 1.0
    filled: Mapping[str, Any] = field(default_factory=dict)


class AtomIndex:
    """The atoms of one namespace. Not safe for threads by itself."""

    def __init__(self) -> None:
        self._atoms: dict[str, Atom] = {}
        self._rows: dict[str, range] = {}
        self._texts = TextRows()
        self._owner: list[str] = []
        self._needs = array("i")
        self._needed: dict[tuple[str, ...], int] = {}
        self._tools = array("i")
        self._tool_numbers: dict[str, int] = {}
        self._vectors: npt.NDArray[np.float32] | None = None
        self._resolvers: dict[tuple[tuple[str, str], ...], Resolver] = {}

    def __len__(self) -> int:
        return len(self._atoms)

    def __contains__(self, key: object) -> bool:
        return key in self._atoms

    def get(self, key: str) -> Atom | None:
        """The atom of that id."""
        return self._atoms.get(key)

    def every(self) -> list[Atom]:
        """All atoms, in the order in which they came."""
        return list(self._atoms.values())

    def add(self, atom: Atom, vectors: Sequence[Sequence[float]] | None = None) -> None:
        """Keeps an atom, in the place of one of the same id.

        Args:
            atom: the atom.
            vectors: of length 1, one for each of `texts_of`; with all atoms or with none.

        Raises:
            InputError: vectors are missing, too many or of another dimension.
        """
        wordings = wordings_of(atom)
        self._check(vectors, len(wordings))
        known = self._atoms.get(atom.id)
        if known is not None and vectors is None and found_by(known) == found_by(atom):
            self._atoms[atom.id] = atom
            return
        self.remove(atom.id)
        if self._texts.end > SPARSE * (len(self._texts) + LONGLIST):
            self._number_again()
        self._put_in(atom, vectors)

    def _put_in(self, atom: Atom, vectors: Any) -> None:
        self._atoms[atom.id] = atom
        need = self._needed.setdefault(atom.required_slots, len(self._needed))
        tool = self._tool_numbers.setdefault(atom.tool, len(self._tool_numbers))
        begin, about = self._texts.end, _first_sentence(atom.about)
        for wording in wordings_of(atom):
            self._texts.add(wording.state, wording.goal, about, need)
            self._owner.append(atom.id)
            self._needs.append(need)
            self._tools.append(tool)
        rows = self._rows[atom.id] = range(begin, self._texts.end)
        if vectors is not None:
            self._put(rows, np.asarray(vectors, dtype=np.float32))

    def _number_again(self) -> None:
        """Rows that were left are given up: the numbers of the others begin at 0."""
        atoms, rows, vectors = self._atoms, self._rows, self._vectors
        self._atoms, self._rows, self._texts, self._owner = {}, {}, TextRows(), []
        self._needs, self._needed, self._vectors = array("i"), {}, None
        self._tools, self._tool_numbers = array("i"), {}
        for key, atom in atoms.items():
            self._put_in(atom, None if vectors is None else vectors[rows[key]])

    def remove(self, key: str) -> bool:
        """Takes an atom out; ``False`` if it was not there."""
        if self._atoms.pop(key, None) is None:
            return False
        for row in self._rows.pop(key):
            self._texts.remove(row)
            self._owner[row] = ""
        return True

    def settle(self) -> None:
        """Does what the next search would have to do first: seconds after 100,000 atoms came at once."""
        self._texts.settle()

    def search(
        self,
        state: str,
        goal: str | Sequence[str],
        slots: Known | Iterable[str] = (),
        k: int = K,
        beta: float = BETA,
        eps: float = EPSILON,
        tools: Mapping[str, ToolSpec] | None = None,
        *,
        vectors: Sequence[Sequence[float]] | None = None,
        priors: Mapping[str, float] | None = None,
        one_per_tool: bool = True,
        exclude: Collection[str] = (),
    ) -> list[AtomHit]:
        """The k atoms that fit best, best first.

        Args:
            state: where the run stands, as in `Situation.state`.
            goal: the next sub-goal, or several that may be next.
            slots: what is known, or its types Λ alone.
            k: how many at most.
            beta: weight of feasibility, 0 to 1.
            eps: ε of the module's formula.
            tools: the tools at hand; atoms whose tool none of them stands for are left out. None: all of them.
            vectors: of length 1, one for each goal, where the atoms have vectors; see `query_texts`.
            priors: what is added to an atom's score, by id.
            one_per_tool: only the best atom of each tool.
            exclude: ids of atoms that are not to be shown.

        Raises:
            InputError: an argument is out of range.
        """
        goals = [goal] if isinstance(goal, str) else list(goal)
        if not 0.0 <= beta <= 1.0 or eps < 0.0:
            raise InputError(f"beta lies between 0 and 1 and eps is not negative, not {beta!r} and {eps!r}.")
        if not self._atoms or not goals or k <= 0:
            return []
        known = slots if isinstance(slots, Known) else None
        types = slots.types if isinstance(slots, Known) else frozenset(slots)
        by_need = self._feasible(types, eps)
        look = self._look(state, goals, vectors, beta, by_need)
        resolver = None if tools is None else self._resolver(tools)
        hits: list[AtomHit] = []
        taken: set[str] = set(exclude)
        used: set[str] = set()
        done: set[str] = set()  # tools of atoms that no further atom is wanted of
        for _ in range(LOOKS):
            rows, similar = look.best()
            feasible = by_need[np.frombuffer(self._needs, dtype=np.int32)[rows]]
            scores = (1 - beta) * similar + beta * feasible
            if priors:
                scores += [priors.get(self._owner[row], 0.0) for row in rows]
            for place in np.lexsort((rows, -np.round(scores, 9))):
                key = self._owner[rows[place]]
                if key in taken:
                    continue
                taken.add(key)
                atom = self._atoms[key]
                resolved = None if resolver is None else resolver.resolve(atom)
                if one_per_tool or (resolver is not None and resolved is None):
                    done.add(atom.tool)
                if resolver is not None and resolved is None:
                    continue
                tool = atom.tool if resolved is None else resolved.tool
                if one_per_tool and tool in used:
                    continue
                used.add(tool)
                hits.append(
                    AtomHit(
                        atom,
                        float(scores[place]),
                        float(similar[place]),
                        float(feasible[place]),
                        tool,
                        1.0 if resolved is None else resolved.likeness,
                        filled(atom.arguments, known),
                    )
                )
                if len(hits) == k:
                    break
            if len(hits) == k or not len(rows) or not look.skip(self._seen(rows, done)):
                break
        return sorted(hits, key=lambda hit: -round(hit.score, 9))

    def _seen(self, rows: npt.NDArray[np.intp], tools: Iterable[str]) -> npt.NDArray[np.bool_]:
        """For all rows, whether they are among these or of one of these tools."""
        wanted = np.zeros(len(self._tool_numbers), dtype=np.bool_)
        wanted[[self._tool_numbers[tool] for tool in tools]] = True
        found: npt.NDArray[np.bool_] = wanted[np.frombuffer(self._tools, dtype=np.int32)]
        found[rows] = True
        return found

    def _look(
        self,
        state: str,
        goals: Sequence[str],
        vectors: Sequence[Sequence[float]] | None,
        beta: float,
        by_need: Floats,
    ) -> Look:
        if (vectors is None) != (self._vectors is None):
            raise InputError("Atoms and question have vectors, or neither of them.")
        if vectors is None or self._vectors is None:
            return self._texts.look(state, goals, times=1 - beta, plus=beta * by_need)
        asked = np.asarray(vectors, dtype=np.float32)
        if asked.ndim != 2 or asked.shape[1] != self._vectors.shape[1]:
            raise InputError(f"A question's vectors have {self._vectors.shape[1]} numbers each.")
        cosines = (self._vectors[: self._texts.end] @ asked.T).max(axis=1).astype(np.float64)
        # Cosines below 0 come last, and are there: what is out is below them.
        guess = 1.0 + (1 - beta) * cosines + beta * by_need[np.frombuffer(self._needs, dtype=np.int32)]
        guess[~self._texts.there] = -1.0
        return Look(guess, lambda rows: cosines[rows], whole=self._texts.end <= LONGLIST)

    def _feasible(self, types: Collection[str], eps: float) -> Floats:
        """Feasibility by what atoms need."""
        return np.array(
            [1.0 if not needed else satisfied(needed, types) / (len(needed) + eps) for needed in self._needed]
        )

    def _resolver(self, tools: Mapping[str, ToolSpec]) -> Resolver:
        key = tuple((name, spec.description) for name, spec in tools.items())
        if key not in self._resolvers:
            if len(self._resolvers) >= 4:
                del self._resolvers[next(iter(self._resolvers))]
            self._resolvers[key] = Resolver(tools)
        return self._resolvers[key]

    def _check(self, vectors: Sequence[Sequence[float]] | None, count: int) -> None:
        if vectors is None:
            if self._vectors is not None:
                raise InputError("The other atoms have vectors; this one needs them too.")
            return
        if self._vectors is None and self._atoms:
            raise InputError("The other atoms have no vectors; this one cannot have any.")
        dimensions = {len(vector) for vector in vectors}
        if self._vectors is not None:
            dimensions.add(self._vectors.shape[1])
        if len(vectors) != count or len(dimensions) != 1 or 0 in dimensions:
            raise InputError(f"{count} vectors of one dimension are needed, one for each wording.")

    def _put(self, rows: Sequence[int], vectors: npt.NDArray[np.float32]) -> None:
        if self._vectors is None:
            self._vectors = np.zeros((2 * len(rows), vectors.shape[1]), dtype=np.float32)
        if rows[-1] >= len(self._vectors):
            grown = np.zeros((2 * (rows[-1] + 1), vectors.shape[1]), dtype=np.float32)
            grown[: len(self._vectors)] = self._vectors
            self._vectors = grown
        self._vectors[list(rows)] = vectors


def texts_of(atom: Atom) -> list[str]:
    """What an embedder gets of an atom: one text for each of its wordings."""
    return query_texts_of((wording.state, wording.goal) for wording in wordings_of(atom))


def query_texts(state: str, goals: Sequence[str]) -> list[str]:
    """What an embedder gets of a question: one text for each goal."""
    return query_texts_of((state, goal) for goal in goals)


def query_texts_of(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """State and goal as one text."""
    return [f"{goal}\n{state}".strip() for state, goal in pairs]


def found_by(atom: Atom) -> tuple[Any, ...]:
    """What an atom is found by."""
    return atom.required_slots, atom.about, [(each.state, each.goal) for each in wordings_of(atom)]


def _first_sentence(about: str) -> str:
    return about.partition(". ")[0]


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
