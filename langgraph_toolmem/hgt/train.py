"""Training of the graph model on what a memory holds: full batches, or neighbourhoods of a large graph.

In each epoch some links are asked about; these, and their way back, are no edges then. Links for early stopping and
those that the result is measured on are edges in no epoch. Everything is drawn anew from the seed and the epoch's
number, so that training that was interrupted goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from langgraph_toolmem.base.errors import ConfigurationError, StorageError
from langgraph_toolmem.hgt.loss import adaptive_margin, share_of_first, soft_cross_entropy
from langgraph_toolmem.hgt.model import API, PARAMETER, LinkModel, Sizes
from langgraph_toolmem.hgt.tensors import WHOLE, GraphTensors, neighbourhood, tensors_of
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.learned import plain
from langgraph_toolmem.navigator.learned.features import NAMES, Fits, PairFeatures
from langgraph_toolmem.navigator.learned.views import Embed, Floats, Ints, Views

BEFORE: Final = (API, "before", API)
GIVES: Final = (API, "gives", PARAMETER)
LOOK_EVERY: Final = 5
"""Epochs from one validation to the next."""


@dataclass(frozen=True)
class Training:
    """How a model is trained; no value is known from the paper but the sizes.

    Attributes:
        sizes: of the model.
        epochs: at most.
        patience: epochs without a better validation before it ends.
        rate, decay: of AdamW.
        asked: share of the links that is asked about in an epoch.
        negatives: sources that replace a link's own, for each.
        mixed: negatives by chance and hard ones beside these.
        features: whether the head sees the features of a pair that the plain scorer sees.
        soft: labels are the links' weights, as published; else 1, which foresees links better [O].
        start, gamma, margin: μ₀, γ and m₀. With γ 1 the margin never counts, which foresees links better [O].
            `published` has the paper's losses.
        validation: share of the links for early stopping.
        batch: links of a step, where the graph is too large to be worked on as a whole.
        seed: of everything that is drawn.
        device: "auto", "cpu", "cuda" …
        autocast: bfloat16 where torch finds it safe.
    """

    sizes: Sizes = field(default_factory=Sizes)
    epochs: int = 200
    patience: int = 30
    rate: float = 1e-3
    decay: float = 1e-3
    asked: float = 0.4
    negatives: int = 4
    mixed: bool = True
    features: bool = True
    soft: bool = False
    start: float = 1.0
    gamma: float = 1.0
    margin: float = 1.0
    validation: float = 0.15
    batch: int = 512
    seed: int = 0
    device: str = "auto"
    autocast: bool = False

    @classmethod
    def published(cls, **more: Any) -> Training:
        """Soft labels and the μ schedule [P]; γ 0.97 [O]."""
        return cls(soft=True, gamma=0.97, **more)


@dataclass
class Material:
    """What is learned from.

    Attributes:
        graph, views, fits, history: the tools and what runs have shown.
        links: (L, 2) links that may be learned.
        embed: makes vectors of parameters.
        together: pairs used on one way without being linked.
    """

    graph: ToolDependencyGraph
    views: Views
    fits: Fits
    history: History
    links: Ints
    embed: Embed
    together: Collection[tuple[int, int]] = ()

    def tensors(self, hidden: Ints) -> GraphTensors:
        """The graph without some links."""
        names = self.views.names
        pairs = [(names[a], names[b]) for a, b in hidden.tolist()]
        return tensors_of(self.graph, self.views, self.history, self.embed, hidden=pairs)


def device_of(wanted: str) -> torch.device:
    """The device that is meant; "auto": CUDA if there is any.

    Raises:
        ConfigurationError: there is no such device here.
    """
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(f"device {wanted!r} cannot be used: {str(error).splitlines()[0]}") from error
    return device


class Trainer:
    """Trains one model.

    Args:
        material: what is learned from.
        training: how.
        checkpoint: where the state is written after each validation, and read from if it is there.

    Attributes:
        model: the best one so far, after `run`.
        losses: of each epoch.
        best: AUC within a consumer on the validation links, and the epoch; −1: before the first one.
    """

    def __init__(self, material: Material, training: Training, checkpoint: Path | None = None) -> None:
        self.material, self.training, self._checkpoint = material, training, checkpoint
        self.device = device_of(training.device)
        self.validation, self.learned = plain.held_out(material.links, training.seed + 1, training.validation)
        self.regression: plain.Weights | None = None
        if training.features:
            fitted = plain.fit(
                material.views, material.fits, self.learned, together=material.together, seed=training.seed
            )
            self.features, self.regression = fitted.features, fitted.weights
        else:
            self.features = PairFeatures(material.views, material.fits, self.learned)
        self.tensors = material.tensors(self.validation).to(self.device)
        self._pools()
        widths = {kind: each.shape[1] for kind, each in self.tensors.features.items()}
        with torch.random.fork_rng():
            torch.manual_seed(training.seed)
            self.model = LinkModel(widths, training.sizes, len(NAMES) if training.features else 0).to(self.device)
        if self.regression is not None:
            self.model.links.begin_with(self.regression.weights, self.regression.bias)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=training.rate, weight_decay=training.decay)
        self.losses: list[dict[str, float]] = []
        self.best: tuple[float, int] = (-1.0, -1)
        self._best_state: dict[str, Tensor] = {}

    # --- what is asked ---

    def _pools(self) -> None:
        """Links, negatives and their features, drawn once; epochs choose among them."""
        rng, links, count = np.random.default_rng(self.training.seed), self.learned, self.training.negatives
        chance, hard, _ = plain.negatives(rng, self.features, links, self.material.together)
        self._mixed = np.concatenate([chance, hard]) if self.training.mixed else chance[:0]
        sources = rng.integers(len(self.material.views), size=(len(links), count))
        replaced = np.stack([sources, np.repeat(links[:, 1:], count, axis=1)], axis=2)
        fine = (replaced[..., 0] != replaced[..., 1]) & ~self.features.known(replaced.reshape(-1, 2)).reshape(-1, count)
        # A source that is none of a negative is drawn once more; what is still none is not counted.
        self._fine = torch.from_numpy(fine)
        self._replaced = replaced
        asked, rest = plain.rivals(
            self.validation, self.material.links, len(self.material.views), self.training.seed, 128
        )
        self._asked, self._rest = asked, rest
        names, history = self.material.views.names, self.material.history
        weights = [history.weight(names[a], names[b]) for a, b in links.tolist()]
        self._weights = torch.tensor(weights, dtype=torch.float32)
        if not self.training.features:
            self._given: dict[str, Tensor] = {}
            return
        of = self.features.of
        raw = {
            "links": of(links, hidden=links),
            "replaced": of(replaced.reshape(-1, 2), hidden=np.repeat(links, count, axis=0)),
            "mixed": of(self._mixed),
            "asked": of(np.concatenate([asked, plain.paired(rest, asked[:, 1].tolist())])),
        }
        self._given = {name: torch.from_numpy(self.scaled(each)).to(self.device) for name, each in raw.items()}

    def scaled(self, features: Floats) -> Floats:
        """Features as the head gets them."""
        assert self.regression is not None
        mean, scale = self.regression.mean, self.regression.scale
        found: Floats = np.clip((features - mean) / scale, -5, 5).astype(np.float32)
        return found

    # --- training ---

    def run(self, told: Callable[[int, Mapping[str, float]], None] | None = None) -> Trainer:
        """Trains until the validation gets no better.

        Args:
            told: gets the epoch and its losses and AUC.

        Raises:
            StorageError: the checkpoint is of another training, or cannot be written.
        """
        first = self._resume()
        if first == 0:
            self._look(-1)  # what it begins with counts, too: the losses may lead away from it
        for epoch in range(first, self.training.epochs):
            found = self._epoch(epoch)
            if epoch % LOOK_EVERY == LOOK_EVERY - 1 or epoch == self.training.epochs - 1:
                found["auc"] = self._look(epoch)
                self._save(epoch)
            self.losses.append(found)
            if told is not None:
                told(epoch, found)
            if epoch - self.best[1] >= self.training.patience:
                break
        if self._best_state:
            self.model.load_state_dict(self._best_state)
        return self

    def _look(self, epoch: int) -> float:
        found = self.validated()
        if found > self.best[0]:
            self.best = found, epoch
            self._best_state = {name: each.detach().clone() for name, each in self.model.state_dict().items()}
        return found

    def _epoch(self, epoch: int) -> dict[str, float]:
        with torch.random.fork_rng():
            torch.manual_seed(1_000_003 * self.training.seed + epoch)
            return self._steps(epoch)

    def _steps(self, epoch: int) -> dict[str, float]:
        how = self.training
        rng = np.random.default_rng((how.seed, epoch))
        self.model.train()
        asked = rng.permutation(len(self.learned))[: max(1, round(how.asked * len(self.learned)))]
        steps = [asked] if len(self.tensors) <= WHOLE else np.array_split(asked, -(-len(asked) // how.batch))
        sums: dict[str, float] = {}
        for step in steps:
            self._optimizer.zero_grad()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=how.autocast):
                parts = self._losses(step, rng, whole=len(self.tensors) <= WHOLE)
            first = share_of_first(epoch, how.start, how.gamma)
            loss = first * parts["entropy"] + (1 - first) * parts["margin"] + parts["parameters"]
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self._optimizer.step()
            for name, part in parts.items():
                sums[name] = sums.get(name, 0.0) + float(part.detach()) / len(steps)
        return sums

    def _losses(self, asked: Ints, rng: np.random.Generator, *, whole: bool) -> dict[str, Tensor]:
        links, given = torch.from_numpy(self.learned[asked]).to(self.device), self._given
        chosen = torch.from_numpy(asked)
        mixed = rng.permutation(len(self._mixed))[: 2 * len(asked)]
        wrong = torch.from_numpy(self._replaced[asked]).to(self.device)
        others = torch.from_numpy(self._mixed[mixed]).to(self.device)
        gives = self.tensors.edges[GIVES]
        hidden = torch.from_numpy(rng.random(gives.shape[1]) < 0.2).to(self.device)
        edges, weights = self.tensors.without(links.T, BEFORE)
        without = GraphTensors(self.tensors.features, edges, weights, {}).without(gives[:, hidden], GIVES)
        seeds = torch.cat([links.flatten(), wrong.flatten(), others.flatten()])
        api, parameters = self._vectors(*without, seeds, rng, whole=whole)
        head = self.model.links
        width = wrong.shape[1]

        def scored(pairs: Tensor, name: str, rows: Tensor | None) -> Tensor:
            extra = None if not given or rows is None else given[name][rows.to(self.device)]
            found: Tensor = head(api[pairs[:, 0]], api[pairs[:, 1]], extra)
            return found.float()

        right = scored(links, "links", chosen)
        rows = (chosen[:, None] * width + torch.arange(width)).flatten()
        left = scored(wrong.flatten(0, 1), "replaced", rows).view(-1, width)
        labels, fine = self._weights[chosen].to(self.device), self._fine[chosen].to(self.device)
        rivals = left.masked_fill(~fine, -1e4)
        aims = labels if self.training.soft else torch.ones_like(labels)
        entropy = soft_cross_entropy(right, aims) + soft_cross_entropy(left[fine], torch.zeros_like(left[fine]))
        if len(others):
            apart = scored(others, "mixed", torch.from_numpy(mixed))
            entropy = entropy + soft_cross_entropy(apart, torch.zeros_like(apart))
            # Some of each link's, so that consumers can be told from each other, too.
            rivals = torch.cat([rivals, apart[: len(right) * (len(apart) // len(right))].view(len(right), -1)], dim=1)
        margin = adaptive_margin(right, rivals, labels, self.training.margin)
        return {
            "entropy": entropy,
            "margin": margin,
            "parameters": self._parameter_loss(api, parameters, gives[:, hidden], rng),
        }

    def _vectors(
        self, edges: Any, weights: Any, seeds: Tensor, rng: np.random.Generator, *, whole: bool
    ) -> tuple[Tensor, Tensor]:
        """(N, width) of tools and of parameters; beyond a neighbourhood that is worked on, 0."""
        if whole:
            nodes = self.model(self.tensors.features, edges, weights)
            return nodes[API], nodes[PARAMETER]
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        depth = self.training.sizes.layers
        picked, some, their = neighbourhood(self.tensors, edges, weights, {API: seeds}, depth, generator)
        features = {kind: self.tensors.features[kind][each] for kind, each in picked.items()}
        nodes = self.model(features, some, their)
        full = {
            kind: each.new_zeros(len(self.tensors.features[kind]), each.shape[1]).index_copy(0, picked[kind], each)
            for kind, each in nodes.items()
        }
        return full[API], full[PARAMETER]

    def _parameter_loss(self, api: Tensor, parameters: Tensor, gives: Tensor, rng: np.random.Generator) -> Tensor:
        if not gives.shape[1] or not len(parameters):
            return api.new_zeros(())
        other = torch.from_numpy(rng.integers(len(api), size=gives.shape[1])).to(api.device)
        head = self.model.parameters_given
        right = head(api[gives[0]], parameters[gives[1]]).float()
        wrong = head(api[other], parameters[gives[1]]).float()
        return soft_cross_entropy(
            torch.cat([right, wrong]), torch.cat([torch.ones_like(right), torch.zeros_like(wrong)])
        )

    # --- validation ---

    def validated(self) -> float:
        """AUC within a consumer on the validation links."""
        right, rest = self.validation_logits()
        return plain.within(right, rest)

    def validation_logits(self) -> tuple[Floats, list[Floats]]:
        """Logits of the validation links and, for each, of its rivals."""
        self.model.eval()
        with torch.no_grad():
            nodes = self.model(self.tensors.features, self.tensors.edges, self.tensors.weights)[API]
            pairs = np.concatenate([self._asked, plain.paired(self._rest, self._asked[:, 1].tolist())])
            ends = torch.from_numpy(pairs).to(self.device)
            logits = self.model.links(nodes[ends[:, 0]], nodes[ends[:, 1]], self._given.get("asked"))
        found = logits.float().cpu().numpy()
        count = len(self._asked)
        return found[:count], np.split(found[count:], np.cumsum([len(each) for each in self._rest])[:-1])

    # --- checkpoints ---

    def _key(self) -> str:
        return repr((self.training, len(self.material.views), self.material.links.tolist()))

    def _save(self, epoch: int) -> None:
        if self._checkpoint is None:
            return
        state = {
            "key": self._key(),
            "epoch": epoch,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "best": list(self.best),
            "best_state": self._best_state,
            "losses": self.losses,
        }
        draft = self._checkpoint.with_suffix(".tmp")
        try:
            torch.save(state, draft)
            draft.replace(self._checkpoint)
        except (OSError, RuntimeError) as error:
            raise StorageError(
                f"{self._checkpoint} cannot be written: {error}. Check space and permissions."
            ) from error

    def _resume(self) -> int:
        if self._checkpoint is None or not self._checkpoint.is_file():
            return 0
        try:
            state = torch.load(self._checkpoint, map_location=self.device, weights_only=True)
        except Exception as error:
            raise StorageError(f"{self._checkpoint} cannot be read: {error}. Delete it to begin anew.") from error
        if state["key"] != self._key():
            return 0  # other links or settings: it is of no use
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.best, self._best_state = (float(state["best"][0]), int(state["best"][1])), state["best_state"]
        self.losses = state["losses"]
        return int(state["epoch"]) + 1
