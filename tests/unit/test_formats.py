"""What is on disk has a format number, which rises whenever an event or a table has another shape.

A folder of an older format is refused with a clear error. Without a new number its events would be left out one by one,
as if they were damaged.
"""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Final

import langgraph_toolmem
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.memory import default_methods
from langgraph_toolmem.stores.database import DATABASE_FORMAT
from langgraph_toolmem.stores.snapshot import SNAPSHOT_FORMAT

EVENTS: Final = {4: "c308f888e45ef2ca"}
"""Format of the database: digest of the fields of all events and records. A changed digest needs the next number."""
TABLES: Final = {9: "4ba282d8c3caa117"}
"""Format of the snapshot: digest of the shapes of all tables. A changed digest needs the next number."""


PACKAGE: Final = Path(langgraph_toolmem.__file__).parent
KEPT: Final = re.compile(r"^class (\w+)\((?:Event|PlainRecord)\)", re.MULTILINE)


def kept_classes() -> list[type]:
    """Return the events and records of the package, in the order of their modules."""
    classes = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in KEPT.findall(path.read_text(encoding="utf-8")):
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            classes.append(getattr(import_module(module), name))
    return classes


def plain(shapes: object) -> str:
    """Return shapes as a text. The order of a set is that of the addresses of its types, so it is sorted."""
    return re.sub(r"frozenset\(\{(.*?)\}\)", lambda given: str(sorted(given[1].split(", "))), repr(shapes))


def test_events_of_another_shape_have_another_format() -> None:
    shapes = []
    for kept in kept_classes():
        named = [(field.name, str(field.type)) for field in fields(kept)]
        shapes.append((kept.__name__, named, sorted(getattr(kept, "cells", {}).items())))
    assert len(shapes) > 50
    assert {DATABASE_FORMAT: digest("events", plain(shapes))} == EVENTS


def test_tables_of_another_shape_have_another_format() -> None:
    with ToolMemory.ephemeral(methods=default_methods()) as memory:
        shapes = sorted((table.name, sorted(table.parts.items())) for table in memory.core.graph.tables)
    assert {SNAPSHOT_FORMAT: digest("tables", plain(shapes))} == TABLES
