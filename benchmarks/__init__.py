"""Reproducible measurements of this package: run ``python -m benchmarks.<name>``. See README.md in this folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Read JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def conclude(checks: Iterable[tuple[bool, str]], figures: Any, file: Path | None) -> int:
    """Print whether each target holds, write the figures to a file if one is named, and return the exit code."""
    for holds, text in checks:
        print(f"{'holds ' if holds else 'MISSED'}  {text}")
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0
