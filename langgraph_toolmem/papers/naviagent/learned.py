"""A table of scores of links (NaviAgent, arXiv 2506.19500, section 3): training writes it, plans read it without torch.

A score is the probability that an output of one tool feeds an input of another. The table is JSON, ``links.json`` in
the memory's folder. It is used if it ranks held-out links better than structure does. Tools that changed since and
links outside the table have no scores.

By default there is no table, and only structure and counts decide (`navigator.dependencies`). Figures
(docs/figures.md, "Learned links"): AUC of unseen links 0.611 and 0.661 by the published model, 0.685 and 0.656 by the
best untrained score; plans 40.1 -> 41.5 % and 40.8 -> 41.8 % with the table. A table that orders links better does not
always make better plans: a regression on features of the pair (AUC 0.883 and 0.798) cost .9 and 2.6 points.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from langgraph_toolmem.base.errors import StorageError, log_failure
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.method import Section
from langgraph_toolmem.navigator.dependencies import LinkScores
from langgraph_toolmem.navigator.evidence import LINK_TABLE
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.stores.snapshot import replace_file

logger = logging.getLogger("langgraph_toolmem.navigator")


class LinkTable:
    """Scores of links.

    Args:
        table: "rows" (producer, its output, consumer, its input, score), "digests" (tool -> `digest_of`), and its
            quality: "learned" and "structural", 0 to 1.
        specs: the known tools.

    Raises:
        StorageError: the table cannot be read.
    """

    def __init__(self, table: Mapping[str, Any], specs: Mapping[str, ToolSpec]) -> None:
        scores: dict[tuple[str, str, str, str], float] = {}
        try:
            unchanged = _unchanged(table["digests"], specs)
            self.figures = {name: table[name] for name in ("links", "learned", "structural")}
            # On the memory's own held-out links: a table of few links may be worse than none.
            self.better = self.figures["learned"] > self.figures["structural"]
            for producer, output, consumer, taken, score in table["rows"]:
                probability = float(score)
                # A changed tool may have other inputs and outputs under its old name.
                if producer in unchanged and consumer in unchanged:
                    scores[producer, str(output), consumer, str(taken)] = probability
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(f"{LINK_TABLE} cannot be read: {error!r}. Train again, or delete it.") from error
        self.scores: LinkScores = scores


def _unchanged(digests: Mapping[str, str], specs: Mapping[str, ToolSpec]) -> set[str]:
    """Return the tools that are unchanged since training."""
    unchanged = set()
    for tool, digest in digests.items():
        if tool in specs and digest_of(specs[tool]) == digest:
            unchanged.add(tool)
    return unchanged


@dataclass(frozen=True, slots=True)
class _TableReading:
    """The table as it was read: of which file and tools; None if it could not be read."""

    stamp: object
    specs: Mapping[str, ToolSpec]
    table: LinkTable | None


class TrainedLinks:
    """The table of a memory, read again when its file or the tools change.

    Another process may train: so the file is checked for each plan, and read only if it changed.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._in_ram: bytes | None = None
        self._reading: _TableReading | None = None

    def _used(self) -> LinkTable | None:
        stamp = self._stamp()
        if stamp is None:
            return None
        specs = self._core.catalogue.known
        reading = self._reading
        if reading is None or reading.stamp != stamp or reading.specs != specs:
            reading = self._reading = _TableReading(stamp, dict(specs), self._load(specs))
        if reading.table is None or not reading.table.better:
            return None
        return reading.table

    def scores(self) -> LinkScores | None:
        """Return the scores of the table, if they are better than structure alone."""
        used = self._used()
        if used is None:
            return None
        return used.scores

    def keep(self, table: Mapping[str, Any]) -> None:
        """Keep a table; it is used from now on. Raises StorageError if the folder cannot be written."""
        data, path = json.dumps(table).encode(), self._path
        if path is None:
            self._in_ram, self._reading = data, None
            return
        # Renamed into place: a process that reads it meanwhile sees the old table or the new one.
        try:
            replace_file(path, data)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error}. Check space and permissions.") from error

    def report(self) -> Section | None:
        """Return the quality of the table; None if it is not used."""
        used = self._used()
        if used is None:
            return None
        figures = used.figures
        sentence = (
            f"Links between tools: {figures['links']:,} learned; of other producers {figures['learned']:.0%} rank "
            f"below the right one of a link it had not seen, {figures['structural']:.0%} by structure alone."
        )
        return Section("Navigator", figures, (sentence,), ())

    @property
    def _path(self) -> Path | None:
        if self._core.home is None:
            return None
        return self._core.home / LINK_TABLE

    def _stamp(self) -> object:
        """Return values that change when another table is kept; None without a table."""
        path = self._path
        if path is None:
            return self._in_ram
        try:
            status = path.stat()
        except OSError:
            return None
        # The inode too: a table that was replaced within one tick of the clock may have the same size.
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _load(self, specs: Mapping[str, ToolSpec]) -> LinkTable | None:
        path = self._path
        try:
            if path is None:
                data = self._in_ram or b""
            else:
                data = path.read_bytes()
            return LinkTable(json.loads(data), specs)
        except (OSError, ValueError, RecursionError, StorageError) as error:
            # A plan works without the table: a damaged one must not fail it.
            log_failure(logger, logging.WARNING, "learned links are not used", error=error)
            return None


def digest_of(spec: ToolSpec) -> str:
    """Return a digest of a tool's name, description and schemas: a changed tool has another one."""
    said = repr((spec.name, spec.description, spec.parameters, spec.returns, spec.toolkit, spec.category))
    return blake2b(said.encode(errors="replace"), digest_size=8).hexdigest()
