"""Heads of the graph model in numpy: exported vectors are scored without torch (`hgt.model` tells what heads are)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from langgraph_toolmem.navigator.learned.views import Floats


def head_logits(
    kind: str, head: Mapping[str, Floats], source: Floats, target: Floats, features: Floats | None = None
) -> Floats:
    """(P,) logits of pairs.

    Args:
        kind: "mlp", "bilinear" or "separable".
        head: weights and biases of its two layers: "first.weight", "first.bias", "last.weight", "last.bias".
        source, target: (P, width) vectors of both ends.
        features: (P, F) of the pairs, if the head takes any.
    """
    direct = 0.0 if features is None else features @ head["direct.weight"][0]
    if kind == "bilinear":
        given = ((source @ head["first.weight"].T) * target).sum(axis=1, keepdims=True)
    elif kind == "separable":
        given = np.concatenate([source, target], axis=1)
    else:
        ends = [source, target, source * target, *(() if features is None else (features,))]
        inner = _linear(head, "first", np.concatenate(ends, axis=1))
        given = 0.5 * inner * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
    found: Floats = _linear(head, "last", given)[:, 0] + direct
    return found


def _linear(head: Mapping[str, Floats], name: str, given: Floats) -> Floats:
    found: Floats = given @ head[f"{name}.weight"].T + head[f"{name}.bias"]
    return found
