"""Names for what works in a process: whether a process that left something is gone."""

from __future__ import annotations

import os
import socket
import sys
import uuid

_mine: set[str] = set()  # owners that live in this process


def new_owner() -> str:
    """A name for what works in this process; `is_dead` tells of it."""
    name = f"{socket.gethostname()}|{os.getpid()}|{uuid.uuid4().hex}"
    _mine.add(name)
    return name


def ended(owner: str) -> None:
    """An owner in this process works no more."""
    _mine.discard(owner)


def is_dead(owner: str) -> bool:
    """Whether an owner, or the process behind it, is certainly gone."""
    try:
        host, process, _ = owner.split("|")
        number = int(process)
    except ValueError:
        return True
    if host != socket.gethostname():
        return False
    if number == os.getpid():
        return owner not in _mine  # a former process that had this number
    if sys.platform == "win32":
        return False  # there, asking would end it
    try:
        os.kill(number, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False
