"""The kinds of tasks, one module per domain."""

from __future__ import annotations

from examples.office.kinds import calendar, crm, files, mail, meetings, work
from examples.office.plan import Kind

KINDS: tuple[Kind, ...] = (
    *mail.KINDS,
    *calendar.KINDS,
    *meetings.KINDS,
    *crm.KINDS,
    *work.KINDS,
    *files.KINDS,
)

__all__ = ["KINDS"]
