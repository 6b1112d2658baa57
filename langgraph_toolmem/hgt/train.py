"""Training on what a memory holds, and the table that the navigator reads.

In each epoch some links are asked about; these, and their way back, are no edges then. The links that end training
early, and those that the result is measured on, are no edges in any epoch; the table is made with all links as edges.
The graph is worked on as a whole, and everything is drawn from the seed.
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
from langgraph_toolmem.graph.view import START
from langgraph_toolmem.hgt.model import API, PARAMETER, RELATIONS, LinkModel, Relation
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import Link
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.learned import digest_of
from langgraph_toolmem.text.meaning import canonical
from langgraph_toolmem.text.tools import Wording, embedded_text

if TYPE_CHECKING:
    from langgraph_toolmem.memory import ToolMemory

LEAST_LINKS: Final = 40
"""Different links from which something is learned."""
LOOK_EVERY: Final = 5
"""Epochs from one validation to the next."""
RIVALS: Final = 128
"""Other producers that a held-out link's own is ranked among."""
BEFORE: Final = (API, "before", API)
GIVES: Final = (API, "gives", PARAMETER)
_BACK: Final = dict(zip(RELATIONS[::2], RELATIONS[1::2], strict=True))
Pairs = list[tuple[int, int]]
Embed = Callable[[list[str]], Sequence[Sequence[float]]]


@dataclass(frozen=True)
class Training:
    """Settings of training; width, heads and layers are the paper's, nothing else is known from it.

    Attributes:
        width, heads, layers: of the attention.
        dropout: share of a vector's numbers that a head does not see while it learns.
        epochs: at most.
        patience: epochs without a better validation before it ends.
        rate, decay: of AdamW.
        asked: share of the links that is asked about in an epoch.
        negatives: sources that replace a link's own, for each.
        start, gamma, margin: μ₀, γ and m₀ of the losses.
        held_out: share of the links for early stopping; as many again are for measuring.
        seed: of everything that is drawn.
        device: "auto" (CUDA if there is any), "cpu", "cuda" …
    """

    width: int = 256
    heads: int = 8
    layers: int = 2
    dropout: float = 0.5
    epochs: int = 200
    patience: int = 30
    rate: float = 1e-3
    decay: float = 1e-3
    asked: float = 0.4
    negatives: int = 4
    start: float = 1.0
    gamma: float = 0.97
    margin: float = 1.0
    held_out: float = 0.15
    seed: int = 0
    device: str = "auto"


def train_links(
    memory: ToolMemory,
    training: Training | None = None,
    *,
    told: Callable[[int, Mapping[str, float]], None] | None = None,
) -> dict[str, float]:
    """Train on what a memory has seen, and keep the table of scores in its folder.

    Args:
        memory: with a navigator.
        training: how.
        told: gets each epoch and its losses.

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
    trainer.run(told)
    figures: dict[str, float] = {"links": len(trainer.links), **trainer.measured()}
    navigator.links.keep({**figures, "digests": _digests(graph), "rows": trainer.rows()})
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

    def without(self, links: Tensor, relation: Relation) -> GraphTensors:
        """Return the same without some edges of a relation, (2, L), and of the same one backward."""
        edges, weights = dict(self.edges), dict(self.weights)
        total = max(map(len, self.features.values())) + 1
        for each, pairs in ((relation, links), (_BACK[relation], links.flip(0))):
            keys = edges[each][0] * total + edges[each][1]
            kept = ~torch.isin(keys, pairs[0] * total + pairs[1])
            edges[each], weights[each] = edges[each][:, kept], weights[each][kept]
        return GraphTensors(self.features, edges, weights)


def links_of(history: History, graph: ToolDependencyGraph) -> list[tuple[str, str]]:
    """Return the links that runs have shown between tools: one well after another, or fed by it."""
    found = {edge for edge, count in history.transitions.items() if count > 0}
    found |= {(flow.source, flow.target) for flow, count in history.flows.items() if count > 0}
    return sorted((a, b) for a, b in found if a != b and a != START and a in graph and b in graph)


def numbers_of(graph: ToolDependencyGraph) -> dict[str, int]:
    """Return the number of each parameter node, by its id."""
    return {cluster: number for number, cluster in enumerate(sorted(each.id for each in graph.clusters.values()))}


def tensors_of(
    graph: ToolDependencyGraph,
    history: History,
    vectors: Mapping[str, np.ndarray[Any, Any]],
    device: torch.device,
    hidden: frozenset[tuple[str, str]] = frozenset(),
) -> GraphTensors:
    """Return a dependency graph with what runs have shown; `hidden` links, and flows along them, are left out."""
    places = {name: place for place, name in enumerate(sorted(graph.apis))}
    numbers = numbers_of(graph)
    found: dict[Relation, dict[tuple[int, int], float]] = {relation: {} for relation in RELATIONS[::2]}
    takes, gives, before, flows = found.values()

    def add(edges: dict[tuple[int, int], float], source: int, target: int, weight: float) -> None:
        edges[source, target] = max(edges.get((source, target), 0.0), min(1.0, weight))

    for name, node in graph.apis.items():
        for port in node.outputs:
            add(gives, places[name], numbers[graph.cluster_of(port).id], 0.0)
        for port in node.inputs:
            flowed = history.flows_into(name, port.parameter)
            fed = sum(n for flow, n in flowed if (flow.source, name) not in hidden)
            add(takes, numbers[graph.cluster_of(port).id], places[name], fed / max(history.uses.get(name, 0.0), 1.0))
    for a, b in links_of(history, graph):
        if (a, b) not in hidden:
            add(before, places[a], places[b], history.weight(a, b))
    for (a, path, b, taken), count in history.flows.items():
        if a in graph and b in graph and (a, b) not in hidden:
            share = count / max(history.uses.get(b, 1.0), 1.0)
            add(before, places[a], places[b], share)
            for end in [port for port in graph.apis[b].inputs if port.parameter == taken][:1]:
                for start in (port for port in graph.apis[a].outputs if port.path == path):
                    add(flows, numbers[graph.cluster_of(start).id], numbers[graph.cluster_of(end).id], share)
    edges, weights = {}, {}
    for relation, pairs in found.items():
        edges[relation] = torch.tensor(list(pairs), dtype=torch.long, device=device).reshape(-1, 2).T.contiguous()
        weights[relation] = torch.tensor(list(pairs.values()), dtype=torch.float32, device=device)
        edges[_BACK[relation]], weights[_BACK[relation]] = edges[relation].flip(0), weights[relation]
    used = []
    for name in places:
        good, bad = history.good(name), history.failures.get(name, 0.0)
        used.append([math.log1p(good), math.log1p(bad), good / (good + bad) if good + bad else 0.0])
    columns = {
        API: [vectors[API], np.array(used), _degree(takes, 1, len(places)), _degree(gives, 0, len(places))],
        PARAMETER: [vectors[PARAMETER], _degree(gives, 1, len(numbers)), _degree(takes, 0, len(numbers))],
    }
    features = {
        kind: torch.tensor(np.concatenate(each, axis=1), dtype=torch.float32, device=device)
        for kind, each in columns.items()
    }
    return GraphTensors(features, edges, weights)


def _degree(edges: Mapping[tuple[int, int], float], side: int, count: int) -> np.ndarray[Any, Any]:
    ends = np.array([edge[side] for edge in edges], dtype=np.int64)
    return np.log1p(np.bincount(ends, minlength=count))[:, None]


# --- training ---


class Trainer:
    """Trains one model.

    Args:
        graph: the tools.
        history: what runs have shown.
        embed: makes vectors of texts.
        training: how.

    Attributes:
        model: the best one so far, after `run`.
        losses: of each epoch.

    Raises:
        ConfigurationError: there are not enough links, or there is no such device.
    """

    def __init__(self, graph: ToolDependencyGraph, history: History, embed: Embed, training: Training) -> None:
        self.graph, self.history, self.training = graph, history, training
        self.device = device_of(training.device)
        self.names = sorted(graph.apis)
        places = {name: place for place, name in enumerate(self.names)}
        named = links_of(history, graph)
        if len(named) < LEAST_LINKS:
            raise ConfigurationError(f"The memory has seen {len(named)} links between tools; {LEAST_LINKS} are needed.")
        self.links: Pairs = [(places[a], places[b]) for a, b in named]
        self._known = set(self.links)
        rng = np.random.default_rng(training.seed)
        order, part = rng.permutation(len(self.links)).tolist(), max(1, round(training.held_out * len(self.links)))
        self.validation, self.test, self.learned = (
            [self.links[place] for place in each] for each in (order[:part], order[part : 2 * part], order[2 * part :])
        )
        wording = Wording()
        for node in graph.apis.values():
            wording.learn(node.spec)
        texts = [embedded_text(graph.apis[name].spec, wording) for name in self.names]
        labels = [*numbers_of(graph)]
        vectors = np.array(embed([*texts, *labels]), dtype=np.float32)
        self._vectors = {API: vectors[: len(texts)], PARAMETER: vectors[len(texts) :]}
        hidden = frozenset((self.names[a], self.names[b]) for a, b in [*self.validation, *self.test])
        self.tensors = tensors_of(graph, history, self._vectors, self.device, hidden)
        with torch.random.fork_rng():
            torch.manual_seed(training.seed)
            widths = {kind: each.shape[1] for kind, each in self.tensors.features.items()}
            self.model = LinkModel(widths, training.width, training.heads, training.layers, training.dropout)
        self.model.to(self.device)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=training.rate, weight_decay=training.decay)
        self.losses: list[dict[str, float]] = []

    def run(self, told: Callable[[int, Mapping[str, float]], None] | None = None) -> Trainer:
        """Train until the validation gets no better; `told` gets each epoch and its losses."""
        best, at, state = -1.0, 0, self.model.state_dict()
        for epoch in range(self.training.epochs):
            with torch.random.fork_rng():
                torch.manual_seed(1_000_003 * self.training.seed + epoch)
                self.losses.append(self._epoch(epoch))
            if told is not None:
                told(epoch, self.losses[-1])
            if epoch % LOOK_EVERY == LOOK_EVERY - 1 or epoch == self.training.epochs - 1:
                worth = self._ranked(self.validation, self.logits(self.tensors)[0])
                if worth > best:
                    best, at = worth, epoch
                    state = {name: each.detach().clone() for name, each in self.model.state_dict().items()}
                elif epoch - at >= self.training.patience:
                    break
        self.model.load_state_dict(state)
        return self

    def _epoch(self, epoch: int) -> dict[str, float]:
        how, rng = self.training, np.random.default_rng((self.training.seed, epoch))
        self.model.train()
        self._optimizer.zero_grad()
        order = rng.permutation(len(self.learned))[: max(1, round(how.asked * len(self.learned)))]
        links = [self.learned[place] for place in order.tolist()]
        wrong = rng.integers(len(self.names), size=(len(links), how.negatives))
        asked = torch.tensor(links, device=self.device)
        sources = torch.from_numpy(wrong).to(self.device)
        pairs = zip(wrong.tolist(), links, strict=True)
        true = [[a != b and (a, b) not in self._known for a in row] for row, (_, b) in pairs]
        fine = torch.tensor(true, device=self.device)
        gives = self.tensors.edges[GIVES]
        given = gives[:, torch.from_numpy(rng.random(gives.shape[1]) < 0.2).to(self.device)]
        nodes = self.model(*self.tensors.without(asked.T, BEFORE).without(given, GIVES))
        tools, parameters = nodes[API], nodes[PARAMETER]
        target = tools[asked[:, 1]]
        right = self.model.logits(self.model.links, tools[asked[:, 0]], target)
        left = self.model.logits(self.model.links, tools[sources], target.unsqueeze(1).expand(-1, how.negatives, -1))
        labels = torch.tensor([self.history.weight(self.names[a], self.names[b]) for a, b in links], device=self.device)
        none = torch.zeros_like(left[fine])
        entropy = binary_cross_entropy_with_logits(right, labels) + binary_cross_entropy_with_logits(left[fine], none)
        margin = adaptive_margin(right, left.masked_fill(~fine, -1e4), labels, how.margin)
        first = share_of_first(epoch, how.start, how.gamma)
        loss = first * entropy + (1 - first) * margin
        if given.shape[1]:
            other = torch.from_numpy(rng.integers(len(tools), size=given.shape[1])).to(self.device)
            for source, label in ((given[0], torch.ones), (other, torch.zeros)):
                logits = self.model.logits(self.model.parameters_given, tools[source], parameters[given[1]])
                loss = loss + binary_cross_entropy_with_logits(logits, label(len(logits), device=self.device)) / 2
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        return {"entropy": float(entropy.detach()), "margin": float(margin.detach()), "loss": float(loss.detach())}

    def logits(self, tensors: GraphTensors) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return (N, N) of producers and consumers, and (N, M) of tools and the parameters they may give."""
        self.model.eval()
        with torch.no_grad():
            nodes = self.model(*tensors)
            found = []
            for head, ends in ((self.model.links, nodes[API]), (self.model.parameters_given, nodes[PARAMETER])):
                # The head is separable, so that all pairs are a sum of two vectors.
                own, other = head.weight[0].split(self.training.width)
                found.append(((nodes[API] @ own)[:, None] + (ends @ other)[None] + head.bias).cpu().numpy())
        return found[0], found[1]

    def _ranked(self, links: Pairs, scores: np.ndarray[Any, Any]) -> float:
        """Return the mean share of other producers of a link's consumer that rank below its own; ties count half."""
        rng, found = np.random.default_rng(self.training.seed), []
        for a, b in links:
            drawn = rng.permutation(len(self.names))[:RIVALS].tolist()
            rivals = scores[[each for each in drawn if each != b and (each, b) not in self._known], b]
            found.append(float(((rivals < scores[a, b]) + (rivals == scores[a, b]) / 2).mean()) if len(rivals) else 0.5)
        return float(np.mean(found))

    # --- the result ---

    def measured(self) -> dict[str, float]:
        """Return how links rank that training did not see: by the model, and by structure alone."""
        structural = np.zeros((len(self.names), len(self.names)))
        places = {name: place for place, name in enumerate(self.names)}
        for b in {b for _, b in self.test}:
            for port in self.graph.apis[self.names[b]].inputs:
                for link in self.graph.links_into(port):
                    a = places[link.producer]
                    structural[a, b] = max(structural[a, b], link.fit)
        learned = self._ranked(self.test, self.logits(self.tensors)[0])
        return {"learned": learned, "structural": self._ranked(self.test, structural)}

    def rows(self) -> list[tuple[str, str, str, str, float]]:
        """Return rows of links with the score √(p(a→b) p(a→i)) (½ + ½ likeness(o, i)) [O]."""
        between, towards = self.logits(tensors_of(self.graph, self.history, self._vectors, self.device))
        numbers = numbers_of(self.graph)
        places = {name: place for place, name in enumerate(self.names)}
        found = []
        for consumer, column in zip(self.names, between.T, strict=True):
            for port in self.graph.apis[consumer].inputs:
                parameter = numbers[self.graph.cluster_of(port).id]
                for link in self.graph.links_into(port, self.history):
                    a = places[link.producer]
                    found.append(_row(link, column[a], towards[a, parameter]))
        return found


def _likeness(link: Link) -> float:
    """Return how much an output and an input are called the same, 0 to 1; 1 if they are of one cluster."""
    if link.kind in ("cluster", "route") and link.fit > 0:
        return 1.0
    one, other = (set(canonical(path.replace("[]", "").rsplit(".", 1)[-1])) for path in (link.output, link.input))
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0


def _row(link: Link, between: float, towards: float) -> tuple[str, str, str, str, float]:
    likely = math.sqrt(1 / (1 + math.exp(-between)) / (1 + math.exp(-towards)))
    score = round(likely * (0.5 + 0.5 * _likeness(link)), 4)
    return link.producer, link.output, link.consumer, link.input, score


def _digests(graph: ToolDependencyGraph) -> dict[str, str]:
    return {name: digest_of(node.spec) for name, node in graph.apis.items()}
