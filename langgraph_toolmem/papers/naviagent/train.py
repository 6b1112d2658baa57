"""Training on what a memory holds, and the table that the navigator reads.

In each epoch some links are asked about; these, and their way back, are no edges then. The links that the result is
measured on are no edges in any epoch; the table is made with all links as edges. Everything is drawn from the seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.papers.naviagent.learned import digest_of
from langgraph_toolmem.papers.naviagent.model import API, PARAMETER, RELATIONS, LinkModel, Relation
from langgraph_toolmem.text.tools import Wording, embedded_text

if TYPE_CHECKING:
    from langgraph_toolmem.memory import ToolMemory

LEAST_LINKS: Final = 40
"""Different links from which something is learned."""
ASKED: Final = 0.4
"""Share of the links that is asked about in an epoch."""
RIVALS: Final = 128
"""Other producers that a held-out link's own is ranked among."""
TAKES, GIVES, BEFORE, FLOWS = RELATIONS[::2]
Links = dict[tuple[int, int], float]
Embed = Callable[[list[str]], Sequence[Sequence[float]]]


@dataclass(frozen=True)
class Training:
    """Settings of training; width, heads and layers are the paper's, nothing else is known from it.

    Attributes:
        width, heads, layers: of the attention.
        epochs: steps over the whole graph.
        rate: of AdamW.
        negatives: sources that replace a link's own, for each.
        start, gamma, margin: μ₀, γ and m₀ of the losses.
        held_out: share of the links that the result is measured on.
        seed: of everything that is drawn.
        device: "auto" (CUDA if there is any), "cpu", "cuda" …
    """

    width: int = 256
    heads: int = 8
    layers: int = 2
    epochs: int = 40
    rate: float = 1e-3
    negatives: int = 4
    start: float = 1.0
    gamma: float = 0.97
    margin: float = 1.0
    held_out: float = 0.15
    seed: int = 0
    device: str = "auto"


def train_links(memory: ToolMemory, training: Training | None = None) -> dict[str, float]:
    """Train on what a memory has seen, and keep the table of scores in its folder.

    Args:
        memory: with a navigator.
        training: how.

    Returns:
        "links", and the shares of other producers that rank below the right one of a held-out link: "learned" by the
        model, "structural" by structure alone. The table is used if the first is more.

    Raises:
        ConfigurationError: the memory has not seen enough links, or there is no such device.
        StorageError: the embedder failed, or the table cannot be kept.
    """
    navigator = memory.navigator
    graph, history = navigator.snapshot()
    trainer = Trainer(graph, history, navigator.core.vectors.embedder.embed_documents, training or Training())
    trainer.run()
    figures: dict[str, float] = {"links": len(trainer.links), **trainer.measured()}
    digests = {name: digest_of(node.spec) for name, node in graph.apis.items()}
    navigator.links.keep({**figures, "digests": digests, "rows": trainer.rows()})
    return figures


def device_of(wanted: str) -> torch.device:
    """Return a device. Raises ConfigurationError if there is none such here."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(f"device {wanted!r} cannot be used: {str(error).splitlines()[0]}") from error
    return device


# --- the losses ---


def adaptive_margin(right: Tensor, wrong: Tensor, weights: Tensor, least: float = 1.0) -> Tensor:
    """Return the mean of max(0, m − s(u,v) + s(u′,v)) over links and negatives, m = m₀ (1 + σ(w)) [P; R for m].

    Args:
        right: (P,) logits of links.
        wrong: (P, K) logits of the same links with another source.
        weights: (P,) w of the links.
        least: m₀, in logits.
    """
    margin = least * (1 + torch.sigmoid(weights))
    return torch.relu(margin.unsqueeze(-1) - right.unsqueeze(-1) + wrong).mean()


def share_of_first(epoch: int, start: float, decay: float) -> float:
    """Return μ_t = μ₀ γᵗ, the weight of the cross-entropy in epoch t; the margin has the rest [P]."""
    return float(start * decay**epoch)


# --- the graph ---


class GraphTensors(NamedTuple):
    """A graph.

    Attributes:
        features: type of nodes -> (N, F): embedding ‖ log(1 + good uses) ‖ log(1 + failures) ‖ share of good ones ‖
            log(1 + in-degree) ‖ log(1 + out-degree) [R]; of parameters no uses are known. Degrees are structural, so
            that they tell nothing of links that are to be predicted.
        edges, weights: relation -> (2, E) and (E,).
    """

    features: dict[str, Tensor]
    edges: dict[Relation, Tensor]
    weights: dict[Relation, Tensor]

    def without(self, links: Tensor) -> GraphTensors:
        """Return the same without some links between tools, (2, L), forward and backward."""
        edges, weights = dict(self.edges), dict(self.weights)
        total = len(self.features[API])
        for relation, pairs in ((BEFORE, links), (_back(BEFORE), links.flip(0))):
            keys = edges[relation][0] * total + edges[relation][1]
            kept = ~torch.isin(keys, pairs[0] * total + pairs[1])
            edges[relation], weights[relation] = edges[relation][:, kept], weights[relation][kept]
        return GraphTensors(self.features, edges, weights)


def _back(relation: Relation) -> Relation:
    return RELATIONS[RELATIONS.index(relation) + 1]


def links_of(history: History, graph: ToolDependencyGraph) -> dict[tuple[str, str], float]:
    """Return the links that runs have shown between tools, one well after another or fed by it, with their w."""
    found = {link: history.weight(*link) for link, count in history.transitions.items() if count > 0}
    for flow, count in history.flows.items():
        link = flow.source, flow.target
        if count > 0:
            found[link] = max(found.get(link, 0.0), _share(count, flow.target, history))
    return {(a, b): found[a, b] for a, b in sorted(found) if a != b and a in graph and b in graph}


def _share(count: float, tool: str, history: History) -> float:
    return min(1.0, count / max(history.uses.get(tool, 0.0), 1.0))


def tensors_of(
    graph: ToolDependencyGraph,
    history: History,
    vectors: Mapping[str, np.ndarray[Any, Any]],
    device: torch.device,
    hidden: frozenset[tuple[str, str]] = frozenset(),
) -> GraphTensors:
    """Return a dependency graph with what runs have shown; `hidden` links, and flows along them, are left out."""
    tools = {name: number for number, name in enumerate(sorted(graph.apis))}
    parameters = {name: number for number, name in enumerate(sorted(each.id for each in graph.clusters.values()))}
    found: dict[Relation, Links] = {relation: {} for relation in (TAKES, GIVES, BEFORE, FLOWS)}
    for name, node in graph.apis.items():
        found[TAKES].update(((parameters[graph.cluster_of(port).id], tools[name]), 0.0) for port in node.inputs)
        found[GIVES].update(((tools[name], parameters[graph.cluster_of(port).id]), 0.0) for port in node.outputs)
    for (a, b), weight in links_of(history, graph).items():
        if (a, b) not in hidden:
            found[BEFORE][tools[a], tools[b]] = weight
    for (a, path, b, taken), count in history.flows.items():
        if a in graph and b in graph and (a, b) not in hidden:
            starts = [port for port in graph.apis[a].outputs if port.path == path]
            ends = [port for port in graph.apis[b].inputs if port.parameter == taken][:1]
            for pair in ((start, end) for start in starts for end in ends):
                link = parameters[graph.cluster_of(pair[0]).id], parameters[graph.cluster_of(pair[1]).id]
                found[FLOWS][link] = max(found[FLOWS].get(link, 0.0), _share(count, b, history))
    edges, weights = {}, {}
    for relation, links in found.items():
        edges[relation] = torch.tensor(list(links), dtype=torch.long, device=device).reshape(-1, 2).T.contiguous()
        weights[relation] = torch.tensor(list(links.values()), dtype=torch.float32, device=device)
        edges[_back(relation)], weights[_back(relation)] = edges[relation].flip(0), weights[relation]
    used = [(history.good(name), history.failures.get(name, 0.0)) for name in tools]
    rows = [[math.log1p(good), math.log1p(bad), good / max(good + bad, 1.0)] for good, bad in used]
    takes, gives = np.array([*found[TAKES]]).reshape(-1, 2), np.array([*found[GIVES]]).reshape(-1, 2)
    columns = {
        API: [vectors[API], np.array(rows), _degree(takes[:, 1], len(tools)), _degree(gives[:, 0], len(tools))],
        PARAMETER: [
            vectors[PARAMETER], _degree(gives[:, 1], len(parameters)), _degree(takes[:, 0], len(parameters))
        ],
    }  # fmt: skip
    features = {
        kind: torch.tensor(np.concatenate(each, axis=1), dtype=torch.float32, device=device)
        for kind, each in columns.items()
    }
    return GraphTensors(features, edges, weights)


def _degree(ends: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    return np.log1p(np.bincount(ends.astype(np.int64), minlength=count))[:, None]


# --- training ---


class Trainer:
    """Trains one model.

    Args:
        graph: the tools.
        history: what runs have shown.
        embed: makes vectors of texts.
        training: how.

    Attributes:
        losses: of each epoch.

    Raises:
        ConfigurationError: there are not enough links, or there is no such device.
    """

    def __init__(self, graph: ToolDependencyGraph, history: History, embed: Embed, training: Training) -> None:
        self.graph, self.history, self.training = graph, history, training
        self.device = device_of(training.device)
        self.names = sorted(graph.apis)
        places = {name: place for place, name in enumerate(self.names)}
        self.links: Links = {(places[a], places[b]): w for (a, b), w in links_of(history, graph).items()}
        if len(self.links) < LEAST_LINKS:
            raise ConfigurationError(
                f"The memory has seen {len(self.links)} links between tools; {LEAST_LINKS} are needed."
            )
        drawn = [[*self.links][place] for place in np.random.default_rng(training.seed).permutation(len(self.links))]
        part = max(1, round(training.held_out * len(drawn)))
        self.test, self.learned = drawn[:part], drawn[part:]
        wording = Wording()
        for node in graph.apis.values():
            wording.learn(node.spec)
        texts = [embedded_text(graph.apis[name].spec, wording) for name in self.names]
        vectors = np.array(embed([*texts, *sorted(each.id for each in graph.clusters.values())]), dtype=np.float32)
        self._vectors = {API: vectors[: len(texts)], PARAMETER: vectors[len(texts) :]}
        hidden = frozenset((self.names[a], self.names[b]) for a, b in self.test)
        self.tensors = tensors_of(graph, history, self._vectors, self.device, hidden)
        with torch.random.fork_rng():
            torch.manual_seed(training.seed)
            widths = {kind: each.shape[1] for kind, each in self.tensors.features.items()}
            self.model = LinkModel(widths, training.width, training.heads, training.layers).to(self.device)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=training.rate)
        self.losses: list[dict[str, float]] = []

    def run(self) -> Trainer:
        """Train for all epochs."""
        self.model.train()
        self.losses = [self._epoch(epoch) for epoch in range(self.training.epochs)]
        return self

    def _epoch(self, epoch: int) -> dict[str, float]:
        how, rng = self.training, np.random.default_rng((self.training.seed, epoch))
        order = rng.permutation(len(self.learned))[: max(1, round(ASKED * len(self.learned)))]
        links = [self.learned[place] for place in order]
        wrong = rng.integers(len(self.names), size=(len(links), how.negatives))
        fine = [[a != b and (a, b) not in self.links for a in row] for row, (_, b) in zip(wrong, links, strict=True)]
        asked, true = torch.tensor(links, device=self.device).T, torch.tensor(fine, device=self.device)
        tools = self.model(*self.tensors.without(asked))[API]
        target = tools[asked[1]]
        right = self.model.logits(tools[asked[0]], target)
        left = self.model.logits(
            tools[torch.from_numpy(wrong).to(self.device)], target.unsqueeze(1).expand(-1, how.negatives, -1)
        )
        labels = torch.tensor([self.links[link] for link in links], device=self.device)
        none = torch.zeros_like(left[true])
        entropy = binary_cross_entropy_with_logits(right, labels) + binary_cross_entropy_with_logits(left[true], none)
        margin = adaptive_margin(right, left.masked_fill(~true, -1e4), labels, how.margin)
        first = share_of_first(epoch, how.start, how.gamma)
        loss = first * entropy + (1 - first) * margin
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        return {"entropy": float(entropy.detach()), "margin": float(margin.detach()), "loss": float(loss.detach())}

    # --- the result ---

    def logits(self, tensors: GraphTensors) -> np.ndarray[Any, Any]:
        """Return (N, N) logits of producers and consumers."""
        self.model.eval()
        with torch.no_grad():
            tools = self.model(*tensors)[API]
            # The head is separable, so that all pairs are a sum of two vectors.
            own, other = self.model.head.weight[0].split(self.training.width)
            found: np.ndarray[Any, Any] = ((tools @ own)[:, None] + tools @ other + self.model.head.bias).cpu().numpy()
        return found

    def measured(self) -> dict[str, float]:
        """Return how links rank that training did not see: by the model, and by structure alone."""
        structural = np.zeros((len(self.names), len(self.names)))
        for b in {b for _, b in self.test}:
            for port in self.graph.apis[self.names[b]].inputs:
                for link in self.graph.links_into(port):
                    a = self.names.index(link.producer)
                    structural[a, b] = max(structural[a, b], link.fit)
        return {"learned": self._ranked(self.logits(self.tensors)), "structural": self._ranked(structural)}

    def _ranked(self, scores: np.ndarray[Any, Any]) -> float:
        """Return the mean share of other producers of a link's consumer that rank below its own; ties count half."""
        rng, found = np.random.default_rng(self.training.seed), []
        for a, b in self.test:
            drawn = rng.permutation(len(self.names))[:RIVALS]
            rivals = scores[[each for each in drawn if each != b and (each, b) not in self.links], b]
            found.append(float(((rivals < scores[a, b]) + (rivals == scores[a, b]) / 2).mean()) if len(rivals) else 0.5)
        return float(np.mean(found))

    def rows(self) -> list[tuple[str, str, str, str, float]]:
        """Return rows of the links that structure and runs show, with p(a→b) [O]."""
        logits = self.logits(tensors_of(self.graph, self.history, self._vectors, self.device))
        found = []
        for consumer, column in zip(self.names, 1 / (1 + np.exp(-logits.T)), strict=True):
            likely = dict(zip(self.names, map(float, column), strict=True))
            for port in self.graph.apis[consumer].inputs:
                links = self.graph.links_into(port, self.history)
                found += [(a.producer, a.output, consumer, a.input, round(likely[a.producer], 4)) for a in links]
        return found
