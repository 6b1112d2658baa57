"""The office's tools, one module per domain: plain functions whose first parameter is `Access`."""

from __future__ import annotations

from . import calendar, crm, files, mail, metrics, people, work
from .base import Access, Spec

DOMAINS: tuple[tuple[Spec, ...], ...] = (
    people.TOOLS,
    mail.TOOLS,
    calendar.TOOLS,
    crm.TOOLS,
    work.TOOLS,
    metrics.TOOLS,
    files.TOOLS,
)

__all__ = ["DOMAINS", "Access", "Spec"]
