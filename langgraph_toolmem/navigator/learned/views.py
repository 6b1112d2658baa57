"""What is said of tools, as vectors: the ground of all features of a pair.

A tool has three views: itself (name and description), what it takes and what it gives. Each is there twice, as the
memory's embedder has it and as weighted words. A score of a pair is then a product of one view of the producer and one
of the consumer, so that thousands of pairs cost one product of matrices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.navigator.dependencies.graph import ApiNode
from langgraph_toolmem.text.meaning import Port, entity_of, verb_of
from langgraph_toolmem.text.tools import Wording, embedded_text, kit_of, stems

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Embed = Callable[[Mapping[str, str]], Mapping[str, Sequence[float]]]
"""Texts by key -> their vectors by key."""

WIDTH: Final = 512
"""Numbers of a vector of words; words are folded into it by their hash."""
VIEWS: Final = ("tool", "takes", "gives")
MAX_PORTS: Final = 32
MAX_CHARS: Final = 600
KINDS: Final = ("string", "number", "boolean", "object", "")
SHAPE: Final = ("inputs", "needs", "outputs", "implied output", "worth", "gives many")


class Views:
    """Vectors and plain facts of tools.

    Args:
        nodes: the tools with their ports.
        embed: makes vectors of texts; keys are ``view:tool``.

    Attributes:
        names: the tools, sorted; `places` has their numbers.
        of: (kind, view) -> (N, D) vectors of length 1 (or 0: nothing is said); kinds are "meaning" and "words", views
            those of `VIEWS`, and "name" in words.
        labels: "kit", "verb", "entity" -> (N,) numbers of a tool's toolkit, first verb and noun; −1: it has none.
        shape: (N, S) as `SHAPE`; counts are logarithms.
        takes, gives: (N, T) how many inputs, and outputs, are of each of `KINDS`.
    """

    def __init__(self, nodes: Mapping[str, ApiNode], embed: Embed) -> None:
        self.names = sorted(nodes)
        self.places = {name: place for place, name in enumerate(self.names)}
        own = [nodes[name] for name in self.names]
        wording = Wording()
        for node in own:
            wording.learn(node.spec)
        texts = {
            "tool": [embedded_text(node.spec, wording) for node in own],
            "takes": [_said(node.inputs) for node in own],
            "gives": [_said(node.outputs) for node in own],
        }
        keyed = {f"{view}:{name}": text for view in VIEWS for name, text in zip(self.names, texts[view], strict=True)}
        vectors = embed({key: text for key, text in keyed.items() if text})
        self.of = {("meaning", view): _stacked(view, self.names, vectors) for view in VIEWS}
        self.of |= _weighted(
            {
                "tool": [stems(text) for text in texts["tool"]],
                "name": [wording.identifier(node.spec.name) for node in own],
                "takes": [_words(node.inputs) for node in own],
                "gives": [_words(node.outputs) for node in own],
            }
        )
        self.labels = {
            "verb": _numbered(verb_of(node.spec.name) for node in own),
            "kit": _numbered(kit_of(node.spec) for node in own),
            "entity": _numbered(entity_of(node.spec.name) for node in own),
        }
        self.shape = np.array([_shape(node) for node in own], dtype=np.float32).reshape(-1, len(SHAPE))
        self.takes, self.gives = (
            np.array([_types(ports) for ports in side], dtype=np.float32).reshape(-1, len(KINDS))
            for side in ([node.inputs for node in own], [node.outputs for node in own])
        )

    def __len__(self) -> int:
        return len(self.names)


def _said(ports: Sequence[Port]) -> str:
    said = (
        f"{port.meaning.label}: {port.leaf.description}" if port.leaf.description else port.meaning.label
        for port in ports[:MAX_PORTS]
    )
    return ". ".join(dict.fromkeys(said))[:MAX_CHARS]


def _words(ports: Sequence[Port]) -> list[str]:
    return [word for port in ports[:MAX_PORTS] for word in sorted(port.meaning.words)]


def _stacked(view: str, names: Sequence[str], vectors: Mapping[str, Sequence[float]]) -> Floats:
    found = np.zeros((len(names), len(next(iter(vectors.values()), ()))), dtype=np.float32)
    for place, name in enumerate(names):
        if (vector := vectors.get(f"{view}:{name}")) is not None:
            found[place] = vector
    return found


def _weighted(bags: Mapping[str, Sequence[Sequence[str]]]) -> dict[tuple[str, str], Floats]:
    """Words by their rarity among the tools, folded with a sign, of length 1."""
    uses = Counter(word for row in zip(*bags.values(), strict=True) for word in {word for bag in row for word in bag})
    total = len(next(iter(bags.values()), ()))
    weights = {word: _sign(word) * math.log(1 + total / count) for word, count in uses.items()}
    found = {}
    for view, rows in bags.items():
        made = np.zeros((total, WIDTH), dtype=np.float32)
        for place, bag in enumerate(rows):
            for word, times in Counter(bag).items():
                made[place, (crc32(word.encode()) >> 1) % WIDTH] += weights[word] * math.sqrt(times)
        found["words", view] = made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)
    return found


def _sign(word: str) -> float:
    return 1.0 if crc32(word.encode()) & 1 else -1.0


def _numbered(labels: Iterable[str]) -> Ints:
    known: dict[str, int] = {}
    return np.array([known.setdefault(label, len(known)) if label else -1 for label in labels], dtype=np.int64)


def _types(ports: Sequence[Port]) -> list[int]:
    found = Counter(kind_of(port) for port in ports)
    return [found[kind] for kind in KINDS]


def kind_of(port: Port) -> str:
    """Which of `KINDS` a value is; "" if nothing says so."""
    kinds = port.leaf.types
    if kinds & {"number", "integer"}:
        return "number"
    return next((kind for kind in ("string", "boolean") if kind in kinds), "object" if kinds else "")


def _shape(node: ApiNode) -> list[float]:
    counts = [math.log1p(len(ports)) for ports in (node.inputs, node.needs, node.outputs)]
    implied = any(port.origin == "implied" for port in node.outputs)
    return [*counts, float(implied), node.worth, float(any(port.leaf.many for port in node.outputs))]
