"""The kinds of tasks, one module per domain."""

from __future__ import annotations

from ..plan import Kind
from . import calendar, crm, files, mail, meetings, work

KINDS: tuple[Kind, ...] = (
    *mail.KINDS,
    *calendar.KINDS,
    *meetings.KINDS,
    *crm.KINDS,
    *work.KINDS,
    *files.KINDS,
)

__all__ = ["KINDS"]
