"""Trains on a memory, and leaves what was learned for the navigator: vectors, heads and a table that needs no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.hgt.model import API, PARAMETER
from langgraph_toolmem.hgt.train import Material, Trainer, Training
from langgraph_toolmem.navigator import Navigator
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.learned import plain
from langgraph_toolmem.navigator.learned.arrays import Array, dumped
from langgraph_toolmem.navigator.learned.features import PairFeatures
from langgraph_toolmem.navigator.learned.heads import head_logits
from langgraph_toolmem.navigator.learned.plain import sigmoid
from langgraph_toolmem.navigator.learned.scorer import StructuralFits, table_of
from langgraph_toolmem.navigator.learned.trained import EXPORTED, HGT, LEAST_LINKS, links_of, numbered
from langgraph_toolmem.navigator.learned.views import Floats, Ints, Views

MOST_BY_INPUT: Final = 4_000_000
"""Numbers of the table of tools by inputs; a larger one is left out."""
CHECKPOINT: Final = "links-hgt.ckpt"


def train(
    navigator: Navigator,
    training: Training | None = None,
    *,
    told: Callable[[int, Mapping[str, float]], None] | None = None,
) -> dict[str, Any]:
    """Trains on what a memory has seen and keeps the result; the navigator uses it from now on if it is the best.

    Two models: one that does not see the links that the plain scorer was measured on, which gives the figures, and one
    that sees all, which is kept. The first one's checkpoint is in the memory's folder until it is done.

    Args:
        navigator: of the memory.
        training: how.
        told: gets the epoch and its losses.

    Returns:
        The manifest: how good it is ("learned") beside structure ("structural") and what it was made of.

    Raises:
        ConfigurationError: the memory has not seen enough links, or there is no such device.
        StorageError: the embedder failed, or the result cannot be kept.
    """
    training, keeping = training or Training(), navigator.links
    graph, history = keeping.snapshot()
    views = Views(graph.apis, keeping.embed)
    links = numbered(links_of(history), views)
    if len(links) < LEAST_LINKS:
        raise ConfigurationError(f"The memory has seen {len(links)} links between tools; {LEAST_LINKS} are needed.")
    fits = StructuralFits(graph, views)
    every = Material(graph, views, fits, history, links, keeping.embed, plain.two_steps(links))
    out, kept = plain.held_out(links)
    part = Material(graph, views, fits, without(history, views, out), kept, keeping.embed, plain.two_steps(kept))
    place = keeping.path(CHECKPOINT)
    first = Trainer(part, training, place).run(told)
    worth = measured(first, out, links)
    if place is not None:
        place.unlink(missing_ok=True)
    best = Trainer(every, training).run(told)
    specs = {name: node.spec for name, node in graph.apis.items()}
    arrays, manifest = exported(best, specs)
    structural = plain.structural_within(fits, out, links, len(views))
    manifest |= {**keeping.manifest(len(links)), "learned": worth, "structural": structural}
    keeping.keep(HGT, dumped(manifest, arrays))
    return manifest


def without(history: History, views: Views, hidden: Ints) -> History:
    """Counts of the past as if some links had not been seen."""
    out = {(views.names[a], views.names[b]) for a, b in hidden.tolist()}
    return replace(
        history,
        transitions={edge: n for edge, n in history.transitions.items() if edge not in out},
        weights={edge: w for edge, w in history.weights.items() if edge not in out},
        flows={flow: n for flow, n in history.flows.items() if (flow.source, flow.target) not in out},
    )


def measured(trainer: Trainer, asked: Ints, links: Ints) -> float:
    """AUC within a consumer on links that a model has never seen, as the plain scorer is measured."""
    asked, rest = plain.rivals(asked, links, len(trainer.material.views))
    logits = pair_scorer(trainer)(np.concatenate([asked, plain.paired(rest, asked[:, 1].tolist())]))
    ends = np.cumsum([len(each) for each in rest])[:-1]
    return plain.within(logits[: len(asked)], np.split(logits[len(asked) :], ends))


def pair_scorer(trainer: Trainer, arrays: Mapping[str, Array] | None = None) -> Callable[[Ints], Floats]:
    """(P, 2) pairs -> (P,) logits by the exported vectors and head, in numpy."""
    arrays = vectors_of(trainer) if arrays is None else arrays
    tools, material, kind = arrays["vectors"], trainer.material, trainer.training.sizes.head
    head = {name.removeprefix("links."): each for name, each in arrays.items() if name.startswith("links.")}
    known = PairFeatures(material.views, material.fits, material.links) if trainer.training.features else None

    def logits(pairs: Ints) -> Floats:
        features = None
        if known is not None:
            hidden = np.where(known.known(pairs)[:, np.newaxis], pairs, -1)
            features = trainer.scaled(known.of(pairs, hidden=hidden))
        return head_logits(kind, head, tools[pairs[:, 0]], tools[pairs[:, 1]], features)

    return logits


def vectors_of(trainer: Trainer) -> dict[str, Array]:
    """Vectors with all links as edges, and the heads' weights."""
    model = trainer.model.eval()
    nothing = np.zeros((0, 2), dtype=np.int64)
    with torch.no_grad():
        tensors = trainer.material.tensors(nothing).to(trainer.device)
        nodes = model(tensors.features, tensors.edges, tensors.weights)
        found = {"vectors": nodes[API], "parameter_vectors": nodes[PARAMETER]}
        for name, head in (("links", model.links), ("parameters", model.parameters_given)):
            found |= {f"{name}.{part}": each for part, each in head.state_dict().items()}
    return {name: each.float().cpu().numpy() for name, each in found.items()}


def exported(trainer: Trainer, specs: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the manifest of `LearnedLinks`."""
    material = trainer.material
    views, arrays = material.views, vectors_of(trainer)
    slope, shift = odds(*trainer.validation_logits())
    shortlist = plain.Shortlist(views, PairFeatures(views, material.fits, material.links), material.fits)
    uses = [material.history.uses.get(name, 0.0) for name in views.names]
    consumers = sorted(range(len(views)), key=lambda place: -uses[place])[:EXPORTED]
    producers = [shortlist.candidates(consumer) for consumer in consumers]
    logits = pair_scorer(trainer, arrays)(plain.paired(producers, consumers))
    likely = np.split(sigmoid(slope * logits + shift), np.cumsum([len(each) for each in producers])[:-1])
    table = table_of(views.names, zip(consumers, producers, likely, strict=True), specs)
    manifest = {
        "model": "hgt",
        "head": trainer.training.sizes.head,
        "odds": [slope, shift],
        "epochs": len(trainer.losses),
    }
    return {**arrays, **table, **_by_input(trainer, arrays)}, manifest


def _by_input(trainer: Trainer, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """p(a→i) of each tool for each parameter that is an input."""
    nothing = np.zeros((0, 2), dtype=np.int64)
    inputs = trainer.material.tensors(nothing).inputs
    used = sorted(set(inputs.values()))
    tools, parameters = arrays["vectors"], arrays["parameter_vectors"]
    if not used or len(tools) * len(used) > MOST_BY_INPUT:
        return {}
    head = {name.removeprefix("parameters."): each for name, each in arrays.items() if name.startswith("parameters.")}
    kind = trainer.training.sizes.head
    columns = [
        sigmoid(head_logits(kind, head, tools, np.repeat(parameters[place][np.newaxis], len(tools), axis=0)))
        for place in used
    ]
    columns_of = {place: column for column, place in enumerate(used)}
    said = json.dumps({f"{tool}\n{path}": columns_of[place] for (tool, path), place in inputs.items()}).encode()
    return {"inputs": np.frombuffer(said, dtype=np.uint8), "by_input": np.stack(columns, axis=1).astype(np.float32)}


def odds(right: Floats, rest: list[Floats]) -> tuple[float, float]:
    """a and c of σ(a · logit + c) among the best rivals of links that were not learned."""
    best = [np.sort(each)[-plain.CANDIDATES :] for each in rest]
    logits = np.concatenate([right, *best]).astype(np.float64)
    labels = np.concatenate([np.ones(len(right)), np.zeros(len(logits) - len(right))])
    line = plain.regression(logits[:, np.newaxis], labels, np.ones(len(logits)), 1.0)
    return float(max(line[0], 1e-3)), float(line[1])
