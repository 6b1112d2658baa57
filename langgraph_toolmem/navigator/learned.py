"""A table of scores of links: training writes it (`hgt`), and plans read it without a model.

A score says how likely an output of one tool feeds an input of another. The table is JSON, ``links.json`` in the
memory's folder. It is used if it ranks held-out links better than structure does. Tools that changed since have no
scores, and neither have links that the table does not hold.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import StorageError, log_failure
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.method import Section
from langgraph_toolmem.navigator.dependencies.links import LinkScores
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.stores.snapshot import replace_file

logger = logging.getLogger("langgraph_toolmem.navigator")

TABLE: Final = "links.json"


class LinkTable:
    """Scores of links.

    Args:
        table: "rows" (producer, its output, consumer, its input, score), "digests" (tool -> `digest_of`), and how
            good it is: "learned" and "structural", 0 to 1.
        specs: the tools there are.

    Raises:
        StorageError: the table cannot be read.
    """

    def __init__(self, table: Mapping[str, Any], specs: Mapping[str, ToolSpec]) -> None:
        try:
            same = {tool for tool, said in table["digests"].items() if tool in specs and digest_of(specs[tool]) == said}
            self.figures = {name: table[name] for name in ("links", "learned", "structural")}
            self.better = self.figures["learned"] > self.figures["structural"]
            rows = [((str(a), str(o), str(b), str(i)), float(p)) for a, o, b, i, p in table["rows"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(f"{TABLE} cannot be read: {error!r}. Train again, or delete it.") from error
        self.scores: LinkScores = {link: score for link, score in rows if link[0] in same and link[2] in same}


class TrainedLinks:
    """The table of a memory, read again when its file or the tools change."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._in_ram: bytes | None = None
        self._read: tuple[object, Mapping[str, ToolSpec], LinkTable | None] | None = None

    def _used(self) -> LinkTable | None:
        stamp = self._stamp()
        if stamp is None:
            return None
        specs = self._core.catalogue.known
        if self._read is None or self._read[0] != stamp or self._read[1] != specs:
            self._read = stamp, dict(specs), self._load(specs)
        found = self._read[2]
        return found if found is not None and found.better else None

    def scores(self) -> LinkScores | None:
        """Return the scores of the table, if there is one that is better than structure alone."""
        used = self._used()
        return None if used is None else used.scores

    def keep(self, table: Mapping[str, Any]) -> None:
        """Keep a table; it is used from now on. Raises StorageError if the folder cannot be written."""
        data, path = json.dumps(table).encode(), self._path
        if path is None:
            self._in_ram, self._read = data, None
            return
        try:
            replace_file(path, data)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error}. Check space and permissions.") from error

    def report(self) -> Section | None:
        """Return how good the table is; None if none is used."""
        used = self._used()
        if used is None:
            return None
        said = used.figures
        sentence = (
            f"Links between tools: {said['links']:,} learned; of other producers {said['learned']:.0%} rank below the "
            f"right one of a link it had not seen, {said['structural']:.0%} by structure alone."
        )
        return Section("Navigator", said, (sentence,), ())

    @property
    def _path(self) -> Path | None:
        return None if self._core.home is None else self._core.home / TABLE

    def _stamp(self) -> object:
        if self._path is None:
            return None if self._in_ram is None else id(self._in_ram)
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _load(self, specs: Mapping[str, ToolSpec]) -> LinkTable | None:
        try:
            data = self._path.read_bytes() if self._path is not None else self._in_ram or b""
            return LinkTable(json.loads(data), specs)
        except (OSError, ValueError, RecursionError, StorageError) as error:
            log_failure(logger, logging.WARNING, "learned links are not used", error=error)
            return None


def digest_of(spec: ToolSpec) -> str:
    """Return a digest of a tool's name, description and schemas: a tool that changed has another one."""
    said = repr((spec.name, spec.description, spec.parameters, spec.returns, spec.toolkit, spec.category))
    return blake2b(said.encode(errors="replace"), digest_size=8).hexdigest()
