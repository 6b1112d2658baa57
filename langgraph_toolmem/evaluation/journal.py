"""The journal of an evaluation: each finished run is one line of ``runs.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.jsontext import dumps
from langgraph_toolmem.evaluation.answers import Usage, append_line, lines_of

# A judge may add up parts, such as ten times .1, which is less than 1.
SUCCESS: Final = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One finished run.

    Attributes:
        arm: name of the arm.
        task: id of the task.
        split: "train" or "test".
        trial: from 0.
        seed: of the task and trial.
        score: from 0 to 1.
        usage: the run's model calls and tokens.
        seconds: from the first message to the score; answers kept from an interrupted start count with their own time.
        cost: money; None without a price.
        memory_calls: steps that the memory took in the model's place.
        error: the kind and text of an error that ended the run, or "".
        folder: the memory's folder after the run, if it was kept.
        trace: one line for each step.
        details: the source's own.
    """

    arm: str
    task: str
    split: str
    trial: int
    seed: int
    score: float
    usage: Usage
    seconds: float
    cost: float | None = None
    memory_calls: int = 0
    error: str = ""
    folder: str = ""
    trace: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_plain(cls, item: Mapping[str, Any]) -> RunRecord:
        """Return the run of a line. Raises ValueError, TypeError or KeyError if it holds none."""
        fields = dict(item)
        fields["usage"] = Usage(**item["usage"])
        return cls(**fields)

    @property
    def success(self) -> bool:
        """Return True for the full score."""
        return self.score >= SUCCESS


class Journal:
    """The finished runs of an evaluation.

    Args:
        path: the file; it is created with the first run.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records: list[RunRecord] = []
        for number, line in enumerate(lines_of(path), 1):
            try:
                self.records.append(RunRecord.from_plain(json.loads(line)))
            except (ValueError, TypeError, KeyError) as error:
                raise InputError(f"line {number} of {path} is no finished run: {error}") from error

    def find(self, arm: str, task: str, trial: int) -> RunRecord | None:
        """Return a finished run, if there is one."""
        for record in self.records:
            if (record.arm, record.task, record.trial) == (arm, task, trial):
                return record
        return None

    def append(self, record: RunRecord) -> None:
        """Write a finished run to the disk."""
        append_line(self._path, dumps(asdict(record)))
        self.records.append(record)

    def folder_of(self, arm: str) -> str:
        """Return the folder of the memory after the latest run of an arm that kept it; "" if there is none."""
        for record in reversed(self.records):
            if record.arm == arm and record.folder:
                return record.folder
        return ""
