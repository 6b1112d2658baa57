"""A server of MCP tools over stdio, run as a script, which does not import LangChain: that takes seconds."""

from __future__ import annotations

from typing import Any, Literal

from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

READS = ToolAnnotations(readOnlyHint=True)
SETS = ToolAnnotations(readOnlyHint=False, destructiveHint=False, idempotentHint=True)
WRITES = ToolAnnotations(title="Merge two tickets", readOnlyHint=False)


class Customer(BaseModel):
    customer_id: str
    name: str


class Filter(BaseModel):
    words: list[str] = Field(default_factory=list, max_length=5)
    priority: Literal["low", "high"] | None = None


def find_customer(name: str) -> Customer:
    """Finds a customer by name."""
    return Customer(customer_id=f"C-{name}", name=name)


def search_tickets(wanted: Filter, limit: int = Field(default=10, ge=1, le=50)) -> list[str]:
    """Searches the tickets of all customers."""
    return wanted.words[:limit]


def set_priority(ticket_id: str, priority: Literal["low", "high"]) -> str:
    """Sets the priority of a ticket."""
    return f"{ticket_id} is {priority}."


def merge_tickets(ticket_id: str, into: str) -> str:
    """Merges a ticket into another one."""
    return into


def opening_hours(day: str) -> str:
    """When the desk is open."""
    return f"{day}: 9 to 17"


TOOLS: list[tuple[Any, ToolAnnotations | None, tuple[bool | None, ...]]] = [
    (find_customer, READS, (True, None, None)),
    (search_tickets, READS, (True, None, None)),
    (set_priority, SETS, (False, False, True)),
    (merge_tickets, WRITES, (False, True, None)),
    (opening_hours, None, (None, None, None)),
]


if __name__ == "__main__":
    desk = FastMCP("ticket desk", log_level="WARNING")
    for tool, annotations, _ in TOOLS:
        desk.add_tool(tool, annotations=annotations)
    desk.run()
