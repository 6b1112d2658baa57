"""Resolution of an atom's tool to one at hand: by its name, else by description and parameters.

An atom outlives the names of the tools it was learned with. Of another name it is the tool whose description and
parameters are most like its own, if they are alike enough; how alike is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from langgraph_toolmem.atoms.atoms import Atom
from langgraph_toolmem.atoms.situation import Abouts
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.similarity import LexicalEmbedder, LexicalIndex, similarity

LEAST: Final = 0.5
"""Likeness below which it is no tool at hand."""
PARAMETERS: Final = 0.3
"""Share of the parameters in the likeness; the rest is the description."""
CANDIDATES: Final = 8
"""Tools whose likeness is computed, the best by search of their descriptions."""


class Resolved(NamedTuple):
    """A tool at hand that stands for an atom's tool: 1 if it has its name, else how alike they are."""

    tool: str
    likeness: float


class Resolver:
    """Finds atoms' tools among some tools.

    Args:
        specs: the tools at hand, by name.
    """

    def __init__(self, specs: Mapping[str, ToolSpec]) -> None:
        self._specs = specs
        self._abouts = Abouts(specs)
        self._embed = LexicalEmbedder().sparse
        self._index: LexicalIndex | None = None
        self._known: dict[tuple[str, str, tuple[str, ...]], Resolved | None] = {}

    def resolve(self, atom: Atom) -> Resolved | None:
        """The tool that stands for the atom's, None if none is alike enough."""
        if atom.tool in self._specs:
            return Resolved(atom.tool, 1.0)
        key = (atom.tool, atom.about, tuple(sorted(atom.arguments)))
        if key not in self._known:
            self._known[key] = self._search(atom)
        return self._known[key]

    def _search(self, atom: Atom) -> Resolved | None:
        if not atom.about:
            return None
        if self._index is None:
            self._index = LexicalIndex((name, self._abouts.whole(name)) for name in self._specs)
        about = self._embed(atom.about)
        best: Resolved | None = None
        for name, _ in self._index.search(atom.about, CANDIDATES):
            said = similarity(about, self._embed(self._abouts.whole(name)))
            likeness = (1 - PARAMETERS) * said + PARAMETERS * _shared(atom, self._specs[name])
            if likeness >= LEAST and (best is None or likeness > best.likeness):
                best = Resolved(name, likeness)
        return best


def _shared(atom: Atom, spec: ToolSpec) -> float:
    """Share of the atom's arguments that the tool takes, less what it must have and the atom does not give."""
    given, takes = set(atom.arguments), set(spec.properties)
    both = given & takes
    wanted = given | spec.required
    return len(both) / len(wanted) if wanted else 1.0
