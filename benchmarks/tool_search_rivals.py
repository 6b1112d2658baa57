"""What one would use instead of our tool search, as rankings."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from langchain_core.embeddings import Embeddings

from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.embedders import Embedder
from langgraph_toolmem.text.requests import split_clauses
from langgraph_toolmem.text.tools import kit_name, stems
from langgraph_toolmem.text.words import words

Rank = Callable[[str], list[str]]
"""From a request to names of tools, best first."""

DEPTH: Final = 20
RANK_OFFSET: Final = 60


def full_text(spec: ToolSpec) -> str:
    """Name, description, parameters, category and toolkit."""
    names = " ".join(words(spec.name))
    return " ".join([names, spec.description, " ".join(spec.properties), spec.category, kit_name(spec)])


class BM25:
    """Okapi BM25 (k1 1.5, b 0.75) over stems without stop words."""

    def __init__(self, texts: Sequence[str]) -> None:
        found = [Counter(stems(text)) for text in texts]
        lengths = np.array([each.total() for each in found], dtype=np.float64)
        rest = 1.5 * (0.25 + 0.75 * lengths / lengths.mean())
        lists: dict[str, list[tuple[int, float]]] = {}
        for place, counts in enumerate(found):
            for word, n in counts.items():
                lists.setdefault(word, []).append((place, n * 2.5 / (n + rest[place])))
        self._size = len(texts)
        self._lists = {
            word: (
                np.array([place for place, _ in each]),
                np.array([part for _, part in each]) * math.log(1 + (len(texts) - len(each) + 0.5) / (len(each) + 0.5)),
            )
            for word, each in lists.items()
        }

    def scores(self, text: str) -> npt.NDArray[np.float64]:
        """One per text."""
        found = np.zeros(self._size)
        for word in stems(text):
            if word in self._lists:
                places, parts = self._lists[word]
                found[places] += parts
        return found


def order(scores: npt.NDArray[np.floating]) -> list[int]:
    """Places by falling score."""
    return [int(place) for place in np.argsort(-scores, kind="stable")]


def fused(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Reciprocal rank fusion: Σ 1 / (60 + rank)."""
    scores = np.zeros(len(rankings[0]))
    for ranking in rankings:
        scores[list(ranking)] += 1 / (RANK_OFFSET + np.arange(1, len(ranking) + 1))
    return order(scores)


def best_ranks(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Each place by the best rank it has anywhere."""
    best = np.full(len(rankings[0]), len(rankings[0]), dtype=np.float64)
    for ranking in rankings:
        ranks = np.empty(len(ranking))
        ranks[list(ranking)] = np.arange(len(ranking))
        best = np.minimum(best, ranks)
    return order(-best)


def yardsticks(tools: Sequence[ToolSpec], embedder: Embedder | None) -> dict[str, Rank]:
    """The rankings of others."""
    names = [each.name for each in tools]
    texts = [full_text(each) for each in tools]
    lexical = BM25(texts)

    def named(places: Sequence[int]) -> list[str]:
        return [names[place] for place in places]

    found: dict[str, Rank] = {"BM25": lambda query: named(order(lexical.scores(query)))}
    if embedder is None:
        return found
    short = np.array(embedder.embed_documents([f"{each.name}: {each.description}" for each in tools]))
    full = np.array(embedder.embed_documents(texts))

    def near(matrix: npt.NDArray[np.float64], asked: Sequence[str]) -> list[list[int]]:
        return [order(row) for row in np.array(embedder.embed_documents(list(asked))) @ matrix.T]

    def hybrid(query: str) -> list[int]:
        return fused([order(lexical.scores(query)), near(full, [query])[0]])

    def in_clauses(query: str) -> list[int]:
        pieces = split_clauses(query)
        parts = list(dict.fromkeys((query, *pieces.sentences, *pieces.clauses)))
        each = [
            fused([order(lexical.scores(part)), dense]) for part, dense in zip(parts, near(full, parts), strict=True)
        ]
        return fused([each[0], best_ranks(each[1:] or each)])

    found["MiniLM, name + description (bigtool's way)"] = lambda query: named(near(short, [query])[0])
    found["MiniLM + BM25, fused"] = lambda query: named(hybrid(query))
    found["MiniLM + BM25, fused, with clauses"] = lambda query: named(in_clauses(query))
    return found


def graph_tool_call(folder: Path, embedder: Embedder | None) -> Rank:
    """graph-tool-call (PyPI) over the tools of a set; with an embedder its hybrid search."""
    from graph_tool_call import ToolGraph  # type: ignore[import-not-found,unused-ignore]

    graph = ToolGraph()
    graph.add_tools(json.loads((folder / "tools.json").read_text(encoding="utf-8")))
    if embedder is not None:
        graph.enable_embedding(lambda texts: embedder.embed_documents(list(texts)))
    return lambda query: [tool.name for tool in graph.retrieve(query, top_k=DEPTH)]


class Remembering(Embeddings):
    """Embeds each text once: splits and methods ask the same, and only `measure` takes times."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, list[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self._embedder.embed_documents(new), strict=True))
        return [self._known[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self.embed_documents([text])[0]
