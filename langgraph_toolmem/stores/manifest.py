"""Which embedder made the stored vectors: the label on a collection and the manifest in the memory's folder.

Vectors of two embedders cannot be compared, and nothing in the numbers tells. So every collection carries a
`Label`, and a folder a small JSON file that can be read without opening Chroma.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph_toolmem.base.errors import EmbedderChangedError, StorageError
from langgraph_toolmem.search.embedders import Embedder

FORMAT = 2

logger = logging.getLogger("langgraph_toolmem.stores.manifest")


@dataclass(frozen=True, slots=True)
class Label:
    """What a collection holds and what made its vectors."""

    kind: str
    namespace: tuple[str, ...]
    embedder: str
    dimension: int

    def to_metadata(self) -> dict[str, str | int]:
        """As metadata of a Chroma collection."""
        return {
            "toolmem_format": FORMAT,
            "toolmem_kind": self.kind,
            "toolmem_namespace": json.dumps(self.namespace),
            "toolmem_embedder": self.embedder,
            "toolmem_dimension": self.dimension,
        }

    @staticmethod
    def from_metadata(metadata: Mapping[str, Any] | None) -> Label | None:
        """The label in a collection's metadata, or ``None`` if this package did not make the collection.

        Raises:
            StorageError: it has another format.
        """
        if not metadata or not isinstance(metadata.get("toolmem_format"), int):
            return None
        _require_format(metadata["toolmem_format"], "The collection")
        try:
            namespace = json.loads(metadata["toolmem_namespace"])
            return Label(
                kind=str(metadata["toolmem_kind"]),
                namespace=tuple(str(part) for part in namespace),
                embedder=str(metadata["toolmem_embedder"]),
                dimension=int(metadata["toolmem_dimension"]),
            )
        except (KeyError, TypeError, ValueError):
            return None


def require_same(made_by: str, dimension: int, embedder: Embedder, where: str, *, now: int | None = None) -> None:
    """Refuse to go on with another embedder than the one that made what is stored.

    Args:
        made_by: name of the embedder that made the stored vectors.
        dimension: their length.
        now: length of the present embedder's vectors, if one is at hand.

    Raises:
        EmbedderChangedError: names both and the way out.
    """
    if made_by == embedder.name and now in (None, dimension):
        return
    present = embedder.name if now is None else f"{embedder.name} ({now} numbers)"
    raise EmbedderChangedError(
        f"{where}: the stored vectors were made by {made_by} ({dimension} numbers), "
        f"the embedder is now {present}. Go back to the former embedder, or make all vectors "
        "again with this one: `toolmem doctor --memory FOLDER --reembed SPEC`."
    )


class Manifest:
    """The JSON file beside the embedded Chroma: ``{"format": 2, "embedder": name, "dimension": n}``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[str, int] | None:
        """Embedder name and dimension; ``None`` if there is no file or a damaged one (labels say it too).

        Raises:
            StorageError: the file cannot be read, or has another format.
        """
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            form, name, dimension = int(data["format"]), str(data["embedder"]), int(data["dimension"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self.path} cannot be read: {error}. Check its permissions.") from error
        except (KeyError, TypeError, ValueError) as error:
            logger.warning("%s is damaged (%s); going by the collections' own labels", self.path, error)
            return None
        _require_format(form, str(self.path))
        return name, dimension

    def write(self, embedder: str, dimension: int) -> None:
        """Put the file in place, whole or not at all.

        Raises:
            StorageError: the folder cannot be written.
        """
        text = json.dumps({"format": FORMAT, "embedder": embedder, "dimension": dimension}, indent=2)
        # Two stores of one process may write at once; each has its own draft.
        draft = self.path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            draft.write_text(text + "\n", encoding="utf-8")
            draft.replace(self.path)
        except OSError as error:
            raise StorageError(f"{self.path} cannot be written: {error}. Check space and permissions.") from error


def _require_format(form: int, what: str) -> None:
    if form != FORMAT:
        raise StorageError(
            f"{what} has format {form}; this version of langgraph-toolmem reads format {FORMAT} alone. Use the version "
            "that wrote it, or another folder."
        )
