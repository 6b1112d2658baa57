"""The graph model (NaviAgent, arXiv 2506.19500, section 3), its training, and the table that the navigator reads.

    (1) L        = μ_t · L_CE + (1 − μ_t) · L_margin,  μ_t = μ₀ γᵗ: first tell links apart, then move them apart   [P]
    (2) L_CE     = cross-entropy with the weight w(u,v) as a soft label                                            [P]
    (3) L_margin = mean of max(0, m − s(u,v) + s(u′,v)), u′ in place of a link's source, m = m₀ (1 + σ(w))  [P; R for m]

In each epoch some links are predicted; these, and their inverses, are not edges in that epoch. The links for the
measurement are never edges in training; the table is made with all links as edges. All draws come from the seed.

The model is attention over the relations of a graph. For each relation r and head k, u the node that listens and v one
of those it hears:

    (4) e(u,v) = (W_Q^{k,r} h_u)ᵀ (W_K^{k,r} h_v) / √d_k + b_r^k + w(u,v)                                          [P]
    (5) out_u  = W_O ‖_k Σ_r Σ_v α(u,v) W_V^{k,r} h_v,    α = softmax of e over v within r                         [P]
    (6) p(u,v) = σ(wᵀ [z_u ‖ z_v] + b)                                                                             [R]

It differs from the heterogeneous graph transformer (Hu et al., WWW 2020) in the weight and the bias, in the softmax
within a relation, and in projections of its own for each relation. Within a relation b is the same for all of a softmax
and has no effect; it is kept because it was published. An encoder for each type of nodes: linear, GELU, layer norm [R].
Each layer is added to its input and normed [O]. The head (6) is separable: a_u + c_v ranks producers alike for all
consumers.

By default no model is made and none is trained: structure and counts weigh a link (`navigator.dependencies`). Figures
(docs/figures.md, "Learned links"), NESTFUL and BFCL:

| | the paper's model (`train_links`) | the default, no table |
|---|---|---|
| AUC of links never seen | 0.611, 0.661 | 0.685, 0.656 (the best untrained score) |
| plans with all producers of the last call | 41.5, 41.8 % | 40.1, 40.8 % |

Left out, because AUC stayed within its interval: early stopping, dropout, a second head for parameters, a factor for
similar names, and proposals of links without evidence in structure or runs. The paper reports accuracy 76.4 and AUC
0.75 on ToolBench, 78.4 and 0.71 on API-Bank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from langgraph_toolmem.base.errors import ConfigurationError, first_line
from langgraph_toolmem.navigator.dependencies import ToolDependencyGraph
from langgraph_toolmem.navigator.evidence import Flow, History
from langgraph_toolmem.papers.naviagent.learned import digest_of
from langgraph_toolmem.text.meaning import Port
from langgraph_toolmem.text.wording import Wording, embedded_text

if TYPE_CHECKING:
    from langgraph_toolmem.memory import ToolMemory

LEAST_LINKS: Final = 40
"""Least number of different links for training."""
ASKED: Final = 0.4
"""Share of the links that is predicted in an epoch, and removed from the edges; the others are the input."""
RIVALS: Final = 128
"""Other producers that a held-out link's own is ranked among."""
Embed = Callable[[list[str]], Sequence[Sequence[float]]]


class NodePair(NamedTuple):
    """A link, by the numbers of its nodes among those of their types."""

    source: int
    target: int


Links = dict[NodePair, float]


@dataclass(frozen=True)
class Training:
    """Settings of training; width, heads and layers are the paper's, which does not give the others.

    Attributes:
        width, heads, layers: of the attention.
        epochs: steps over the whole graph.
        rate: of AdamW.
        negatives: sources that replace a link's own, for each.
        start, gamma, margin: μ₀, γ and m₀ of the losses.
        held_out: share of the links for the measurement.
        seed: of all draws.
        device: "auto" (CUDA if available), "cpu", "cuda" …
    """

    width: int = 256
    heads: int = 8
    layers: int = 2
    # Of 12,000 tools and 8,000 links, so many epochs take 10 s on 16 processors, and 2 s with CUDA.
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
    """Train on a memory's runs, and keep the table of scores in its folder.

    Args:
        memory: with a navigator.
        training: the settings.

    Returns:
        "links", and the shares of other producers that rank below the right one of a held-out link: "learned" by the
        model, "structural" by structure alone. The table is used if the first is larger.

    Raises:
        ConfigurationError: the memory has too few links, or the device is missing.
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
    """Return a device. Raises ConfigurationError if it is missing."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        # A missing device fails at its first use.
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(f"device {wanted!r} cannot be used: {first_line(error)}") from error
    return device


# --- the losses ---


def adaptive_margin(right: Tensor, wrong: Tensor, weights: Tensor, least: float = 1.0) -> Tensor:
    """Return L_margin (3) over links and negatives.

    `right` are (P,) logits of links, `wrong` (P, K) of the same links with another source, `weights` (P,) their w, and
    `least` is m₀.
    """
    margin = least * (1 + torch.sigmoid(weights))
    return torch.relu(margin.unsqueeze(-1) - right.unsqueeze(-1) + wrong).mean()


def share_of_first(epoch: int, start: float, decay: float) -> float:
    """Return μ_t (1), the weight of the cross-entropy in epoch t; the margin has the rest."""
    return float(start * decay**epoch)


# --- the graph ---


class GraphTensors(NamedTuple):
    """A graph.

    Attributes:
        features: type of nodes -> (N, F): embedding ‖ log(1 + good uses) ‖ log(1 + failures) ‖ share of good ones ‖
            log(1 + in-degree) ‖ log(1 + out-degree) [R]; parameters have no uses. Degrees are structural, so that they
            do not reveal the links to predict.
        edges, weights: relation -> (2, E) and (E,).
    """

    features: dict[str, Tensor]
    edges: dict[Relation, Tensor]
    weights: dict[Relation, Tensor]

    def without(self, links: Tensor) -> GraphTensors:
        """Return the graph without some links between tools, (2, L), forward and backward."""
        edges, weights = dict(self.edges), dict(self.weights)
        total = len(self.features[API])
        for relation, pairs in ((BEFORE, links), (BACK[BEFORE], links.flip(0))):
            # One number for each pair of tools, so that one look-up finds all of them.
            keys = edges[relation][0] * total + edges[relation][1]
            kept = ~torch.isin(keys, pairs[0] * total + pairs[1])
            edges[relation], weights[relation] = edges[relation][:, kept], weights[relation][kept]
        return GraphTensors(self.features, edges, weights)


def links_of(history: History, graph: ToolDependencyGraph) -> dict[tuple[str, str], float]:
    """Return the observed links between tools (a successful call after another, or fed by it), with their w."""
    weights: dict[tuple[str, str], float] = {}
    for (source, target), count in history.transitions.items():
        if count > 0:
            weights[source, target] = history.weight(source, target)
    # A producer may be many steps before its consumer: transitions do not show such a link, but flows do.
    for flow, count in history.flows.items():
        if count > 0:
            link = flow.source, flow.target
            weights[link] = max(weights.get(link, 0.0), _share(count, flow.target, history))
    known: dict[tuple[str, str], float] = {}
    for source, target in sorted(weights):
        # The record may contain removed tools, and START.
        if source != target and source in graph and target in graph:
            known[source, target] = weights[source, target]
    return known


def _share(count: float, tool: str, history: History) -> float:
    return min(1.0, count / max(history.uses.get(tool, 0.0), 1.0))


def tensors_of(
    graph: ToolDependencyGraph,
    history: History,
    vectors: Mapping[str, np.ndarray[Any, Any]],
    device: torch.device,
    hidden: frozenset[tuple[str, str]] = frozenset(),
) -> GraphTensors:
    """Return a dependency graph with the observed links; `hidden` links, and flows along them, are left out."""
    numbers = _NodeNumbers.of(graph)
    links = {
        TAKES: _inputs(graph, numbers),
        GIVES: _outputs(graph, numbers),
        BEFORE: _successors(graph, history, numbers, hidden),
        FLOWS: _flows(graph, history, numbers, hidden),
    }
    edges: dict[Relation, Tensor] = {}
    weights: dict[Relation, Tensor] = {}
    for relation, of_relation in links.items():
        # (E, 2), also without any link: an empty list alone would have one dimension.
        pairs = torch.tensor(list(of_relation), dtype=torch.long, device=device).reshape(-1, 2)
        edges[relation] = pairs.T.contiguous()
        weights[relation] = torch.tensor(list(of_relation.values()), dtype=torch.float32, device=device)
        back = BACK[relation]
        edges[back], weights[back] = edges[relation].flip(0), weights[relation]
    features: dict[str, Tensor] = {}
    for kind, columns in _feature_columns(links, history, vectors, numbers).items():
        features[kind] = torch.tensor(np.concatenate(columns, axis=1), dtype=torch.float32, device=device)
    return GraphTensors(features, edges, weights)


@dataclass(frozen=True, slots=True)
class _NodeNumbers:
    """Numbers of the nodes of each type, in alphabetical order: rows of the features, ends of the edges."""

    tools: dict[str, int]
    parameters: dict[str, int]

    @classmethod
    def of(cls, graph: ToolDependencyGraph) -> _NodeNumbers:
        return cls(_numbered(graph.apis), _numbered(_parameter_names(graph)))

    def parameter(self, graph: ToolDependencyGraph, port: Port) -> int:
        """Return the number of the parameter that an input or output is."""
        return self.parameters[graph.cluster_of(port).id]


def _parameter_names(graph: ToolDependencyGraph) -> list[str]:
    return [cluster.id for cluster in graph.clusters.values()]


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(names))}


def _inputs(graph: ToolDependencyGraph, numbers: _NodeNumbers) -> Links:
    """Return the links from a parameter to the tools that take it."""
    links: Links = {}
    for name, node in graph.apis.items():
        for port in node.inputs:
            links[NodePair(numbers.parameter(graph, port), numbers.tools[name])] = 0.0
    return links


def _outputs(graph: ToolDependencyGraph, numbers: _NodeNumbers) -> Links:
    """Return the links from a tool to the parameters that it gives."""
    links: Links = {}
    for name, node in graph.apis.items():
        for port in node.outputs:
            links[NodePair(numbers.tools[name], numbers.parameter(graph, port))] = 0.0
    return links


def _successors(
    graph: ToolDependencyGraph, history: History, numbers: _NodeNumbers, hidden: frozenset[tuple[str, str]]
) -> Links:
    """Return the links between tools, with their w."""
    links: Links = {}
    for link, weight in links_of(history, graph).items():
        if link not in hidden:
            source, target = link
            links[NodePair(numbers.tools[source], numbers.tools[target])] = weight
    return links


def _flows(
    graph: ToolDependencyGraph, history: History, numbers: _NodeNumbers, hidden: frozenset[tuple[str, str]]
) -> Links:
    """Return the links between parameters along which values flowed, with their share of the consumer's uses."""
    links: Links = {}
    for flow, count in history.flows.items():
        # A flow between tools reveals a link between them.
        if flow.source not in graph or flow.target not in graph or (flow.source, flow.target) in hidden:
            continue
        share = _share(count, flow.target, history)
        end = _input_of(graph, flow)
        if end is None:
            continue
        for start in graph.apis[flow.source].outputs:
            if start.path == flow.path:
                pair = NodePair(numbers.parameter(graph, start), numbers.parameter(graph, end))
                links[pair] = max(links.get(pair, 0.0), share)
    return links


def _input_of(graph: ToolDependencyGraph, flow: Flow) -> Port | None:
    """Return the target input of a flow: of nested ones, which have one parameter, the first."""
    for port in graph.apis[flow.target].inputs:
        if port.parameter == flow.parameter:
            return port
    return None


def _feature_columns(
    links: Mapping[Relation, Links],
    history: History,
    vectors: Mapping[str, np.ndarray[Any, Any]],
    numbers: _NodeNumbers,
) -> dict[str, list[np.ndarray[Any, Any]]]:
    """Return type of nodes -> the columns of its features, each (N, …); see `GraphTensors`."""
    uses: list[list[float]] = []
    for name in numbers.tools:
        good, bad = history.good(name), history.failures.get(name, 0.0)
        uses.append([math.log1p(good), math.log1p(bad), good / max(good + bad, 1.0)])
    tools, parameters = len(numbers.tools), len(numbers.parameters)
    takes, gives = links[TAKES], links[GIVES]
    return {
        API: [
            vectors[API],
            np.array(uses),
            _degrees([pair.target for pair in takes], tools),
            _degrees([pair.source for pair in gives], tools),
        ],
        PARAMETER: [
            vectors[PARAMETER],
            _degrees([pair.target for pair in gives], parameters),
            _degrees([pair.source for pair in takes], parameters),
        ],
    }


def _degrees(ends: list[int], count: int) -> np.ndarray[Any, Any]:
    """Return log(1 + degree) of each of so many nodes, (N, 1)."""
    # The type is named: an empty list would be an array of floats, which cannot be counted.
    degrees = np.bincount(np.array(ends, dtype=np.int64), minlength=count)
    return np.log1p(degrees)[:, None]


# --- training ---


class Trainer:
    """Trains one model.

    Args:
        graph: the tools.
        history: counts of past runs.
        embed: makes vectors of texts.
        training: the settings.

    Attributes:
        losses: of each epoch.

    Raises:
        ConfigurationError: there are too few links, or the device is missing.
    """

    def __init__(self, graph: ToolDependencyGraph, history: History, embed: Embed, training: Training) -> None:
        self.graph, self.history, self.training = graph, history, training
        self.device = device_of(training.device)
        self.names = sorted(graph.apis)
        self.links = self._links()
        if len(self.links) < LEAST_LINKS:
            raise ConfigurationError(
                f"The memory has seen {len(self.links)} links between tools; {LEAST_LINKS} are needed. Train after "
                "more runs, or import their logs."
            )
        links = list(self.links)
        order = np.random.default_rng(training.seed).permutation(len(links))
        drawn = [links[place] for place in order]
        held_out = max(1, round(training.held_out * len(drawn)))
        self.test, self.learned = drawn[:held_out], drawn[held_out:]
        self._vectors = self._embedded(embed)
        hidden = frozenset((self.names[link.source], self.names[link.target]) for link in self.test)
        self.tensors = tensors_of(graph, history, self._vectors, self.device, hidden)
        self.model = self._new_model()
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=training.rate)
        self.losses: list[dict[str, float]] = []

    def _links(self) -> Links:
        places = _numbered(self.names)
        links: Links = {}
        for (source, target), weight in links_of(self.history, self.graph).items():
            links[NodePair(places[source], places[target])] = weight
        return links

    def _embedded(self, embed: Embed) -> dict[str, np.ndarray[Any, Any]]:
        """Return the vectors of descriptions of tools and of names of parameters, in the order of `_NodeNumbers`."""
        wording = Wording()
        for node in self.graph.apis.values():
            wording.learn(node.spec)
        texts = [embedded_text(self.graph.apis[name].spec, wording) for name in self.names]
        # One call, for remote embedders.
        vectors = np.array(embed([*texts, *sorted(_parameter_names(self.graph))]), dtype=np.float32)
        return {API: vectors[: len(texts)], PARAMETER: vectors[len(texts) :]}

    def _new_model(self) -> LinkModel:
        widths = {kind: features.shape[1] for kind, features in self.tensors.features.items()}
        training = self.training
        # The host's own random numbers are not affected.
        with torch.random.fork_rng():
            torch.manual_seed(training.seed)
            model = LinkModel(widths, training.width, training.heads, training.layers)
        model.to(self.device)
        return model

    def run(self) -> Trainer:
        """Train for all epochs."""
        self.model.train()
        self.losses = []
        for epoch in range(self.training.epochs):
            self.losses.append(self._epoch(epoch))
        return self

    def _epoch(self, epoch: int) -> dict[str, float]:
        """Take one step over the whole graph, and return the losses before it."""
        training = self.training
        draw = self._draw(epoch)
        asked = torch.tensor(draw.links, device=self.device).T
        true = torch.tensor(draw.is_wrong, device=self.device)
        tools = self.model(*self.tensors.without(asked))[API]
        target = tools[asked[1]]
        right = self.model.logits(tools[asked[0]], target)
        others = tools[torch.from_numpy(draw.sources).to(self.device)]
        left = self.model.logits(others, target.unsqueeze(1).expand(-1, training.negatives, -1))
        labels = torch.tensor([self.links[link] for link in draw.links], device=self.device)
        none = torch.zeros_like(left[true])
        entropy = binary_cross_entropy_with_logits(right, labels) + binary_cross_entropy_with_logits(left[true], none)
        # A drawn source that is a link too must not be separated: such a low logit costs no margin.
        margin = adaptive_margin(right, left.masked_fill(~true, -1e4), labels, training.margin)
        first = share_of_first(epoch, training.start, training.gamma)
        loss = first * entropy + (1 - first) * margin
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        return {"entropy": float(entropy.detach()), "margin": float(margin.detach()), "loss": float(loss.detach())}

    def _draw(self, epoch: int) -> _Draw:
        # By epoch, so that the draws of one do not depend on how many there were before.
        rng = np.random.default_rng((self.training.seed, epoch))
        size = max(1, round(ASKED * len(self.learned)))
        links = [self.learned[place] for place in rng.permutation(len(self.learned))[:size]]
        sources = rng.integers(len(self.names), size=(len(links), self.training.negatives))
        is_wrong: list[list[bool]] = []
        for link, drawn in zip(links, sources, strict=True):
            is_wrong.append([self._is_no_link(int(source), link.target) for source in drawn])
        return _Draw(links, sources, is_wrong)

    def _is_no_link(self, source: int, target: int) -> bool:
        return source != target and NodePair(source, target) not in self.links

    # --- the result ---

    def logits(self, tensors: GraphTensors) -> np.ndarray[Any, Any]:
        """Return (N, N) logits of producers and consumers."""
        self.model.eval()
        with torch.no_grad():
            tools = self.model(*tensors)[API]
            # The head is separable, so that all pairs are a sum of two vectors.
            own, other = self.model.head.weight[0].split(self.training.width)
            scores: np.ndarray[Any, Any] = ((tools @ own)[:, None] + tools @ other + self.model.head.bias).cpu().numpy()
        return scores

    def measured(self) -> dict[str, float]:
        """Return the ranks of unseen links: by the model, and by structure alone."""
        places = _numbered(self.names)
        # The score without training: the fit of output and input, without the counts of runs.
        structural = np.zeros((len(self.names), len(self.names)))
        for consumer in {link.target for link in self.test}:
            for port in self.graph.apis[self.names[consumer]].inputs:
                for link in self.graph.links_into(port):
                    producer = places[link.producer]
                    structural[producer, consumer] = max(structural[producer, consumer], link.fit)
        return {"learned": self._ranked(self.logits(self.tensors)), "structural": self._ranked(structural)}

    def _ranked(self, scores: np.ndarray[Any, Any]) -> float:
        """Return the mean share of other producers of a link's consumer that rank below its own; ties count half."""
        rng = np.random.default_rng(self.training.seed)
        shares: list[float] = []
        for link in self.test:
            # With many tools a sample is enough, and other links of the consumer are not rivals.
            drawn = rng.permutation(len(self.names))[:RIVALS]
            others = [int(source) for source in drawn if self._is_no_link(int(source), link.target)]
            if not others:
                shares.append(0.5)
                continue
            own, rivals = scores[link], scores[others, link.target]
            shares.append(float(((rivals < own) + (rivals == own) / 2).mean()))
        return float(np.mean(shares))

    def rows(self) -> list[tuple[str, str, str, str, float]]:
        """Return rows of the links by structure and runs, with p(a→b) [O]."""
        # All links are edges here, because the measurement is done.
        logits = self.logits(tensors_of(self.graph, self.history, self._vectors, self.device))
        numbers = {name: number for number, name in enumerate(self.names)}
        rows: list[tuple[str, str, str, str, float]] = []
        for consumer, column in zip(self.names, 1 / (1 + np.exp(-logits.T)), strict=True):
            for port in self.graph.apis[consumer].inputs:
                for link in self.graph.links_into(port, self.history):
                    # A dictionary of all producers for each consumer took 22 of 35 s at 12,000 tools.
                    probability = round(float(column[numbers[link.producer]]), 4)
                    rows.append((link.producer, link.output, consumer, link.input, probability))
        return rows


@dataclass(frozen=True, slots=True)
class _Draw:
    """The links of an epoch.

    Attributes:
        links: to predict.
        sources: (links, negatives): nodes that replace the source of each.
        is_wrong: the same shape: False if the drawn pair is a link too, or a tool with itself.
    """

    links: list[NodePair]
    sources: np.ndarray[Any, Any]
    is_wrong: list[list[bool]]


# --- the model ---

Relation = tuple[str, str, str]
"""Type of the source node, name, type of the target node."""
Tensors = Mapping[Relation, Tensor]
API, PARAMETER = "api", "parameter"
TAKES: Final[Relation] = (PARAMETER, "input of", API)
GIVES: Final[Relation] = (API, "gives", PARAMETER)
BEFORE: Final[Relation] = (API, "before", API)
FLOWS: Final[Relation] = (PARAMETER, "flows into", PARAMETER)
BACK: Final[Mapping[Relation, Relation]] = {
    TAKES: (API, "takes", PARAMETER),
    GIVES: (PARAMETER, "given by", API),
    BEFORE: (API, "after", API),
    FLOWS: (PARAMETER, "flows from", PARAMETER),
}
"""Relation -> its inverse [O]: a node is a source of its neighbours in both directions."""
RELATIONS: Final = (TAKES, BACK[TAKES], GIVES, BACK[GIVES], BEFORE, BACK[BEFORE], FLOWS, BACK[FLOWS])
"""Structure and behaviour [P], each both ways [O]. Their order is that of the weights: another order is another
model.
"""


class RelationalAttention(nn.Module):
    """One layer.

    Args:
        width: numbers of a node's vector, in and out.
        heads: divides `width`.
        relations: of the graph.
    """

    def __init__(self, width: int, heads: int, relations: Sequence[Relation]) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"heads={heads} does not divide width={width}.")
        self.width, self.heads, self.relations = width, heads, tuple(relations)
        shape = (len(self.relations), width, width)
        self.query = nn.Parameter(torch.empty(shape))
        self.key = nn.Parameter(torch.empty(shape))
        self.value = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.zeros(len(self.relations), heads))
        self.out = nn.Linear(width, width, bias=False)
        # Matrix by matrix: Xavier's bound is by the sizes of one projection, not of the stack.
        for projections in (self.query, self.key, self.value):
            for matrix in projections:
                nn.init.xavier_uniform_(matrix)

    def forward(self, nodes: Mapping[str, Tensor], edges: Tensors, weights: Tensors) -> dict[str, Tensor]:
        """(N, width) for each type of nodes; 0 without incoming edges.

        `edges` has (2, E) for each relation, the nodes heard and those that listen, and `weights` has (E,).
        """
        heard: dict[str, Tensor] = {}
        for kind, vectors in nodes.items():
            heard[kind] = torch.zeros_like(vectors)
        depth = self.width // self.heads
        for number, relation in enumerate(self.relations):
            source, _name, kind = relation
            if not edges[relation].shape[1]:
                continue
            speaking, listening = edges[relation]
            # Each node is projected once, and then looked up for each of its edges.
            query = self._projected(self.query[number], nodes[kind]).index_select(0, listening)
            key = self._projected(self.key[number], nodes[source]).index_select(0, speaking)
            value = self._projected(self.value[number], nodes[source]).index_select(0, speaking)
            logits = (query * key).sum(-1) / math.sqrt(depth) + self.bias[number] + weights[relation].unsqueeze(-1)
            shares = segment_softmax(logits, listening, len(nodes[kind]))
            heard[kind] = heard[kind].index_add(0, listening, (value * shares.unsqueeze(-1)).flatten(1))
        return {kind: self.out(vectors) for kind, vectors in heard.items()}

    def _projected(self, matrix: Tensor, vectors: Tensor) -> Tensor:
        """(N, heads, depth) of (N, width)."""
        return (vectors @ matrix.T).view(-1, self.heads, self.width // self.heads)


def segment_softmax(logits: Tensor, segments: Tensor, count: int) -> Tensor:
    """Softmax of (E, H) over the rows of each segment; (E,) `segments` says which of `count` a row is of."""
    where = segments.unsqueeze(-1).expand_as(logits)
    most = logits.new_full((count, logits.shape[1]), -torch.inf)
    # The maximum is subtracted so that powers do not overflow; the result is the same, and it needs no gradient.
    most = most.scatter_reduce(0, where, logits.detach(), "amax", include_self=True)
    powers = (logits - most.index_select(0, segments)).exp()
    total = powers.new_zeros(count, logits.shape[1]).index_add(0, segments, powers)
    return powers / total.index_select(0, segments)


class LinkModel(nn.Module):
    """Vectors of nodes, and the head for links between tools.

    Args:
        inputs: type of nodes -> numbers of their features.
        width, heads, layers: of the attention.
    """

    def __init__(self, inputs: Mapping[str, int], width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict()
        for kind, size in inputs.items():
            self.encoders[kind] = nn.Sequential(nn.Linear(size, width), nn.GELU(), nn.LayerNorm(width))
        self.layers = nn.ModuleList()
        self.norms = nn.ModuleList()
        for _ in range(layers):
            self.layers.append(RelationalAttention(width, heads, RELATIONS))
            self.norms.append(nn.ModuleDict({kind: nn.LayerNorm(width) for kind in inputs}))
        self.head = nn.Linear(2 * width, 1)

    def forward(self, features: Mapping[str, Tensor], edges: Tensors, weights: Tensors) -> dict[str, Tensor]:
        """(N, width) for each type of nodes."""
        nodes: dict[str, Tensor] = {}
        for kind, encoder in self.encoders.items():
            nodes[kind] = encoder(features[kind])
        for layer, norms in zip(self.layers, self.norms, strict=True):
            heard = layer(nodes, edges, weights)
            # A tool without edges keeps its own vector.
            nodes = {kind: norms[kind](nodes[kind] + heard[kind]) for kind in nodes}
        return nodes

    def logits(self, source: Tensor, target: Tensor) -> Tensor:
        """(P,) logits of (P, width) sources and targets."""
        scores: Tensor = self.head(torch.cat([source, target], dim=-1))
        return scores.squeeze(-1)
