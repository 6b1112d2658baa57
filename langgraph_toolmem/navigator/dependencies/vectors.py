"""Parameters that mean the same in other words, by an embedder.

A vector is made of a parameter's label and description, once for each text. Those of declared parameters are kept with
the memory; names of fields that only runs have shown may be personal, so their vectors stay in RAM. All that is new is
compared in one product of matrices: one text after the other took ten times as long.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

import numpy as np

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError, EmbedderChangedError, StorageError, log_failure
from langgraph_toolmem.stores.vectors import TextVectors
from langgraph_toolmem.text.embedders import Embedder
from langgraph_toolmem.text.meaning import Port
from langgraph_toolmem.text.vectors import VectorRows

logger = logging.getLogger("langgraph_toolmem.navigator.dependencies")

THRESHOLD: Final = 0.9
"""Cosine from which two meanings are one. Below it all-MiniLM-L6-v2 takes a first name for a last name."""
MAX_TEXTS: Final = 200_000
"""Texts whose vectors are in RAM; further ones are compared by words alone."""
BATCH: Final = 4_096
"""Texts that are embedded at a time: what was done before a failure is not done again."""
BLOCK: Final = 256
"""Texts that are compared with all others at a time."""


class ParameterVectors:
    """The meanings of parameters. Safe for threads.

    If the embedder fails, what it was asked for has no meaning but its words, and the log says so once; the next tools
    are tried again.

    Args:
        embedder: makes the vectors.
        kept: where those of declared parameters are kept; None: nowhere.
        threshold: cosine from which two meanings are one.
    """

    def __init__(self, embedder: Embedder, kept: TextVectors | None = None, *, threshold: float = THRESHOLD) -> None:
        self._embedder, self._kept, self._threshold = embedder, kept, threshold
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._rows = VectorRows()
        self._near: dict[int, list[tuple[float, int]]] = {}  # of a text, the cosines of others and their numbers
        self._failed = self._logged = False
        self._lock = threads.lock()

    def prepare(self, ports: Iterable[Port], *, again: bool = True) -> None:
        """Embeds what is new, all in one go.

        Args:
            ports: inputs, outputs or known values.
            again: try even if the embedder failed the last time.

        Raises:
            EmbedderChangedError: the kept vectors were made by another embedder.
        """
        with self._lock:
            new: dict[str, bool] = {}  # text -> whether a schema has it
            for port in ports:
                if not port.meaning.vague and (text := _text(port)) not in self._numbers:
                    new[text] = new.get(text, False) or bool(port.tool and port.origin != "observed")
            if not new or (self._failed and not again) or len(self._texts) + len(new) > MAX_TEXTS:
                return
            try:
                for declared in (True, False):
                    texts = [text for text, known in new.items() if known is declared]
                    for start in range(0, len(texts), BATCH):
                        self._add(texts[start : start + BATCH], self._kept if declared else None)
                self._failed = False
            except EmbedderChangedError:
                raise
            except (StorageError, ConfigurationError) as error:
                self._failed = True
                if not self._logged:
                    self._logged = True
                    log_failure(logger, logging.WARNING, "parameters are merged by words alone", error=error)

    def near(self, port: Port) -> list[str]:
        """The texts that mean the same as a port, its own first; none if it was not prepared."""
        number = self._numbers.get(text := _text(port))
        if number is None:
            return []
        others = sorted(self._near.get(number, ()), key=lambda found: (-found[0], found[1]))
        return [text, *(self._texts[other] for _, other in others)]

    def _add(self, texts: Sequence[str], kept: TextVectors | None) -> None:
        if kept is None:
            vectors = self._embedder.embed_documents(texts)
        else:
            keys = [blake2b(text.encode(), digest_size=16).hexdigest() for text in texts]
            found = kept.of(dict(zip(keys, texts, strict=True)))
            vectors = [list(found[key]) for key in keys]
        first = len(self._texts)
        for number, (text, vector) in enumerate(zip(texts, vectors, strict=True), start=first):
            self._rows.put(number, vector, name=text)
        self._texts += texts
        last = len(self._texts)
        for start in range(first, last, BLOCK):
            block = np.stack([self._rows.row(number) for number in range(start, min(start + BLOCK, last))])
            cosines = self._rows.cosines(block, last)
            for row, other in np.argwhere(cosines >= self._threshold).tolist():
                if other < start + row:
                    cosine = float(cosines[row, other])
                    self._near.setdefault(start + row, []).append((cosine, other))
                    self._near.setdefault(other, []).append((cosine, start + row))
        self._numbers.update(zip(texts, range(first, last), strict=True))


def _text(port: Port) -> str:
    described = port.leaf.description
    return f"{port.meaning.label}: {described}" if described else port.meaning.label
