"""A record without what came from one user; for logs that are kept as they were written."""

from __future__ import annotations

from collections.abc import Container

from langgraph_toolmem.graph.evidence import Record
from langgraph_toolmem.graph.sources import holds_words


def redact(record: Record, user: str, cases: Container[object] = ()) -> Record:
    """The operations of a record that hold nothing of a user.

    A record belongs to one run and so to one user: if any operation names the user or one of the user's requests
    (`cases`), the request, its calls, the values and the wordings in it go. Pure counts stay.
    """
    if not any(_owner(op) == user or (op[:1] in (["cc"], ["ce"]) and op[1] in cases) for op in record):
        return record
    kept = []
    for operation in record:
        code = operation[0]
        if code in ("v", "w", "co", "cc", "ce", "o+", "ru", "vd"):
            continue
        if code == "a":
            judged = {d: hit for d, hit in operation[3].items() if not holds_words(d)}
            operation = [*operation[:3], judged]
        kept.append(operation)
    return kept


def _owner(operation: list[object]) -> object:
    code = operation[0]
    if code == "v":
        return operation[6]
    if code in ("w", "co", "ru"):
        return operation[3]
    if code == "vd":
        return operation[4]
    if code == "o+" and isinstance(operation[2], dict):
        return operation[2].get("user")
    return None
