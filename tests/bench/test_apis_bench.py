"""The benchmark of plans over OpenAPI documents, on a small document."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.apis import measure
from tests.methods.navigator.openapi_documents import SHOP


def test_natural_producers_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "shop.json"
    file.write_text(json.dumps(SHOP), encoding="utf-8")
    found, plans = measure(file)
    assert [found[name] for name in ("operations", "ids", "first", "in_chain")] == [7, 9, 9, 9]
    assert (found["writes"], found["optional"], len(plans)) == (0, 0, 7)
