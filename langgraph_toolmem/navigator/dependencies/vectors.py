"""Parameters that mean the same in other words, by an embedder.

Vectors of declared parameters are kept with the memory. Names of fields that only runs have shown may be personal, so
their vectors stay in RAM.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError, EmbedderChangedError, StorageError, log_failure
from langgraph_toolmem.navigator.dependencies.graph import Key
from langgraph_toolmem.stores.vectors import TextVectors
from langgraph_toolmem.text.embedders import Embedder
from langgraph_toolmem.text.meaning import IDENTIFIERS, Port

logger = logging.getLogger("langgraph_toolmem.navigator.dependencies")

THRESHOLD: Final = 0.9
"""Cosine from which two parameters are one. Below it all-MiniLM-L6-v2 takes a first name for a last name."""
MAX_KEYS: Final = 200_000
"""Parameters whose vectors are in RAM; further ones are compared by words alone."""
BATCH: Final = 4_096
"""Texts that are embedded at a time: what was done before a failure is not done again."""
BLOCK: Final = 256
"""Vectors that are compared with all earlier ones at a time."""


class ParameterVectors:
    """Merges parameters: each joins the nearest earlier one from `THRESHOLD` on. Safe for threads.

    If the embedder fails, words decide, and the log says so once; the next tools are tried again.

    Args:
        embedder: makes the vectors.
        kept: where those of declared parameters are kept; None: nowhere.
        threshold: cosine from which two parameters are one.
    """

    def __init__(self, embedder: Embedder, kept: TextVectors | None = None, *, threshold: float = THRESHOLD) -> None:
        self._embedder, self._kept, self._threshold = embedder, kept, threshold
        self._keys: list[Key] = []
        self._roots: dict[Key, Key] = {}
        self._vectors: npt.NDArray[np.float32] = np.zeros((0, 0), dtype=np.float32)  # of the keys, in their order
        self._failed = self._logged = False
        self._lock = threads.lock()

    def root(self, key: Key) -> Key:
        """Return the parameter that stands for another one; itself if none does."""
        return self._roots.get(key, key)

    def prepare(self, ports: Iterable[Port], *, again: bool = True) -> None:
        """Embed and merge what is new, all in one go.

        Args:
            ports: inputs, outputs or known values.
            again: try even if the embedder failed the last time.

        Raises:
            EmbedderChangedError: the kept vectors were made by another embedder.
        """
        with self._lock:
            new: dict[Key, tuple[str, bool]] = {}  # text, and whether a schema has it
            for port in ports:
                key = port.meaning.words, port.meaning.shape
                if not port.meaning.vague and key not in self._roots:
                    described, declared = port.leaf.description, bool(port.tool and port.origin != "observed")
                    text = f"{port.meaning.label}: {described}" if described else port.meaning.label
                    if key not in new or (declared and not new[key][1]):
                        new[key] = text, declared
            if not new or (self._failed and not again) or len(self._keys) + len(new) > MAX_KEYS:
                return
            try:
                for declared in (True, False):
                    keys = [key for key, (_, said) in new.items() if said is declared]
                    for start in range(0, len(keys), BATCH):
                        texts = {key: new[key][0] for key in keys[start : start + BATCH]}
                        self._add(texts, self._kept if declared else None)
                self._failed = False
            except EmbedderChangedError:
                raise
            except (StorageError, ConfigurationError) as error:
                self._failed = True
                if not self._logged:
                    self._logged = True
                    log_failure(logger, logging.WARNING, "parameters are merged by words alone", error=error)

    def _add(self, texts: dict[Key, str], kept: TextVectors | None) -> None:
        if kept is None:
            vectors = [*self._embedder.embed_documents([*texts.values()])]
        else:
            digests = {text: blake2b(text.encode(), digest_size=16).hexdigest() for text in texts.values()}
            found = kept.of({digest: text for text, digest in digests.items()})
            vectors = [list(found[digests[text]]) for text in texts.values()]
        if not vectors:
            return
        first = len(self._keys)
        try:
            added = np.asarray(vectors, dtype=np.float32)
            self._vectors = np.concatenate([self._vectors, added]) if first else added
        except ValueError as error:
            raise ConfigurationError("The vectors of the parameters have different lengths.") from error
        self._keys += texts
        for start in range(first, len(self._keys), BLOCK):
            cosines = self._vectors[start : start + BLOCK] @ self._vectors.T
            for number, row in enumerate(cosines, start=start):
                near = np.flatnonzero(row[:number] >= self._threshold)
                key = self._keys[number]
                others = (self._keys[other] for other in near[np.argsort(-row[near], kind="stable")].tolist())
                self._roots[key] = next((self._roots[other] for other in others if _may_join(key, other)), key)


def _may_join(key: Key, other: Key) -> bool:
    """Return True unless one is a thing and one its id, or one a text and one a truth value."""
    return key[1] == other[1] and bool(key[0] & IDENTIFIERS) == bool(other[0] & IDENTIFIERS)
