"""A record without what came from one user; for logs that are kept as they were written."""

from __future__ import annotations

from collections.abc import Callable, Container

from langgraph_toolmem.graph.evidence import Record


def redact(
    record: Record,
    user: str,
    own: Container[object] = (),
    *,
    is_known: Callable[[str, str], bool] | None = None,
) -> Record:
    """The operations of a record that hold nothing of a user.

    A record belongs to one run and so to one user: if any operation names the user or one of the user's requests
    or runs (`own`), the request, its calls, the values and the places of values in it go. Pure counts stay.

    Args:
        record: the operations.
        user: digest of the user.
        own: ids of the user's requests and runs.
        is_known: whether a slot's descriptor was seen with others too, and so may stay; None: none was.
    """
    if not any(_owner(op) == user or (op[:1] in (["cc"], ["ce"], ["vd"]) and op[1] in own) for op in record):
        return record
    kept = []
    for operation in record:
        code = operation[0]
        if code in ("v", "w", "co", "cc", "ce", "o+", "ru", "vd", "sm", "ou"):
            continue
        if code == "a":
            slot = operation[1]
            judged = {d: hit for d, hit in operation[3].items() if "|" not in d or (is_known and is_known(slot, d))}
            operation = [*operation[:3], judged]
        kept.append(operation)
    return kept


def _owner(operation: list[object]) -> object:
    code = operation[0]
    if code == "v":
        return operation[6]
    if code in ("w", "co", "ru", "ou"):
        return operation[3]
    if code in ("vd", "sm"):
        return operation[4]
    if code == "o+" and isinstance(operation[2], dict):
        return operation[2].get("user")
    return None
