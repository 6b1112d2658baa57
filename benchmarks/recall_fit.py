"""The constants of the two relevance models, by maximum likelihood on half of the groups and on splits of their own.

``python -m benchmarks.recall --fit`` prints them; they stand in ``langgraph_toolmem/entries/relevance.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from benchmarks.recall_data import Request, Split, held_out, split
from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.entries.entry import Entry, EntryCall, entry_id
from langgraph_toolmem.entries.ranker import Candidate, Ranked, rank
from langgraph_toolmem.entries.recall import LONGLIST
from langgraph_toolmem.entries.recollection import RecalledEntry
from langgraph_toolmem.entries.relevance import Floats
from langgraph_toolmem.entries.weights import Weights
from langgraph_toolmem.text.embedders import Embedder
from langgraph_toolmem.text.requests import terms_of

Similarity = Callable[[Split], Floats]
"""Of every query of a split with every entry of its memory."""

SEEDS: Final = range(100, 105)
"""Not those that are scored."""
SETS: Final = ("workbench_gpt4", "bfcl_v3_multi_turn", "nestful", "tau_retail_gold", "toolbench_catalog")
TEMPLATES: Final = {"words": 3.0, "meaning": 2.0}
"""How much workbench_gpt4 counts, each other set counting 1: there what is relevant is defined by the calls, which
makes votes look better than they are."""
RIDGE: Final = 1e-4


def memory_of(requests: Sequence[Request], embedder: Embedder | None = None) -> ToolMemory:
    """A memory of these requests; `Entry.run` is the place."""
    memory = ToolMemory.ephemeral(methods=[Entries()], embeddings=embedder)
    memory.entries.rows.put(
        [
            Entry(
                entry_id(str(place)),
                str(place),
                each.text,
                tuple(EntryCall(tool, {}, "ok") for tool in each.tools),
                score=1.0,
            )
            for place, each in enumerate(requests)
        ],
        memory.core.users.of(None),
    )
    return memory


def runs_in(memory: ToolMemory, recalled: Sequence[RecalledEntry]) -> list[Entry]:
    """The runs that are shown: those of a group are all shown with the first."""
    rows, user = memory.entries.rows, memory.core.users.of(None)
    return [entry for each in recalled for entry in (each.entry, *rows.get(each.others, user))]


def weighed(requests: Sequence[Request], cosines: Floats, query: str, learned: Weights, *, dense: bool) -> Ranked:
    """The requests nearest to a query as the memory weighs them."""
    longlist = LONGLIST * 2 if dense else LONGLIST
    nearest = np.argsort(-cosines, kind="stable")[:longlist]
    found = [Candidate(str(i), requests[i].text, requests[i].tools, cosine=float(cosines[i])) for i in nearest]
    return rank(query, found, learned, dense=dense)


def examples(requests: Sequence[Request], similarity: Similarity, *, dense: bool) -> tuple[Floats, Floats]:
    """Features and relevance of the shortlists of the queries whose groups are not left out."""
    features: list[Floats] = []
    relevant: list[bool] = []
    for seed in SEEDS:
        parts = split(requests, seed)
        learned = Weights([terms_of(each.text) for each in parts.memory], ["\n".join(r.tools) for r in parts.memory])
        cosines = similarity(parts)
        for number, query in enumerate(parts.queries):
            if not held_out(query.group):
                ranked = weighed(parts.memory, cosines[number], query.text, learned, dense=dense)
                features.append(ranked.features)
                relevant += [parts.memory[int(ranked.ids[i])].group == query.group for i in ranked.shortlist]
    return np.vstack(features), np.array(relevant, dtype=np.float64)


def fit(sets: Mapping[str, Sequence[Request]], similarity: Similarity, *, dense: bool) -> tuple[Floats, float]:
    """Coefficients and intercept of the model by wording, or by wording and meaning, among the nearest requests.

    Every set has its weight, however many queries it has.
    """
    templates = TEMPLATES["meaning" if dense else "words"]
    found = [(name, *examples(sets[name], similarity, dense=dense)) for name in SETS if name in sets]
    weights = [np.full(len(y), (templates if name == "workbench_gpt4" else 1.0) / len(y)) for name, _, y in found]
    together = logistic(
        np.vstack([x for _, x, _ in found]),
        np.concatenate([y for _, _, y in found]),
        np.concatenate(weights) / sum(map(np.sum, weights)),
    )
    return together[:-1], float(together[-1])


def logistic(x: Floats, y: Floats, weight: Floats, *, steps: int = 50) -> Floats:
    """Weighted logistic regression by Newton's method, intercept last, with a slight ridge on the others."""
    x = np.hstack([x, np.ones((len(x), 1))])
    ridge = np.full(x.shape[1], RIDGE)
    ridge[-1] = 0.0
    found = np.zeros(x.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(x @ found)))
        slope = x.T @ (weight * (p - y)) + ridge * found
        bend = (x * (weight * p * (1 - p))[:, None]).T @ x + np.diag(ridge)
        step = np.linalg.solve(bend, slope)
        found = found - step
        if float(np.abs(step).max()) < 1e-8:
            break
    return found
