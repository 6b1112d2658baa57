"""A ticket desk as an MCP server over stdio: for tests of MCP tools.

Its annotations say what a memory must know before it makes a call of its own: which tools only read, which
write, which may be repeated, and which destroy something. Every name is a customer here, with two tickets.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

desk = FastMCP("ticket desk", log_level="WARNING")

READS = ToolAnnotations(readOnlyHint=True)
ADDS = ToolAnnotations(readOnlyHint=False, destructiveHint=False)
SETS = ToolAnnotations(readOnlyHint=False, destructiveHint=False, idempotentHint=True)
DESTROYS = ToolAnnotations(readOnlyHint=False, destructiveHint=True)
WRITES = ToolAnnotations(title="Merge two tickets", readOnlyHint=False)
"""It says nothing about destroying; the MCP specification then takes the worst for granted."""

done: list[dict[str, Any]] = []
"""Every call that was executed, in order."""


class Customer(BaseModel):
    """Who writes to the desk."""

    customer_id: str
    name: str


class Ticket(BaseModel):
    """One request of a customer."""

    ticket_id: str
    subject: str


class Filter(BaseModel):
    """What to look for; what is left out does not matter."""

    words: list[str] = Field(default_factory=list, max_length=5)
    priority: Literal["low", "normal", "high"] | None = None
    days: int | None = Field(default=None, ge=1, description="Only tickets of the last days.")


@desk.tool(annotations=READS)
def find_customer(name: str) -> Customer:
    """Finds a customer by name."""
    note("find_customer", name=name)
    number = int(hashlib.blake2b(name.encode(), digest_size=3).hexdigest(), 16)
    return Customer(customer_id=f"C-{number}", name=name)


@desk.tool(annotations=READS)
def list_tickets(customer_id: str) -> list[Ticket]:
    """Lists a customer's tickets, the newest first."""
    note("list_tickets", customer_id=customer_id)
    ids = (f"{customer_id.replace('C-', 'T-')}-{n}" for n in (2, 1))
    return [Ticket(ticket_id=i, subject=subject_of(i)) for i in ids]


@desk.tool(annotations=READS)
def get_ticket(ticket_id: str) -> str:
    """Reads one ticket."""
    note("get_ticket", ticket_id=ticket_id)
    return f"{ticket_id}, {subject_of(ticket_id)}: please have a look at it."


@desk.tool(annotations=READS)
def search_tickets(wanted: Filter, limit: int = Field(default=10, ge=1, le=50)) -> list[Ticket]:
    """Searches the tickets of all customers."""
    note("search_tickets", wanted=wanted.model_dump(), limit=limit)
    return [Ticket(ticket_id=f"T-{n}-1", subject=" ".join(wanted.words)) for n in range(min(limit, 3))]


@desk.tool(annotations=ADDS)
def add_comment(ticket_id: str, text: str) -> dict[str, Any]:
    """Adds a comment to a ticket."""
    note("add_comment", ticket_id=ticket_id, text=text)
    return {"ticket_id": ticket_id, "comments": 1}


@desk.tool(annotations=SETS)
def set_priority(ticket_id: str, priority: Literal["low", "normal", "high"]) -> dict[str, Any]:
    """Sets the priority of a ticket."""
    note("set_priority", ticket_id=ticket_id, priority=priority)
    return {"ticket_id": ticket_id, "priority": priority}


@desk.tool(annotations=WRITES)
def merge_tickets(ticket_id: str, into: str) -> dict[str, Any]:
    """Merges a ticket into another one."""
    note("merge_tickets", ticket_id=ticket_id, into=into)
    return {"ticket_id": into}


@desk.tool(annotations=DESTROYS)
def delete_ticket(ticket_id: str) -> dict[str, Any]:
    """Deletes a ticket for good."""
    note("delete_ticket", ticket_id=ticket_id)
    return {"deleted": ticket_id}


@desk.tool()
def opening_hours(day: str) -> str:
    """When the desk is open."""
    note("opening_hours", day=day)
    return f"{day}: 9 to 17"


@desk.resource("desk://done")
def what_was_done() -> str:
    """Every call that was executed, as JSON: no tool, so no model sees it."""
    return json.dumps(done)


def note(tool: str, /, **args: Any) -> None:
    """Writes down what is executed."""
    done.append({"tool": tool, "args": args})


def subject_of(ticket_id: str) -> str:
    """The newer ticket of each customer is about a printer."""
    return "printer out of paper" if ticket_id.endswith("-2") else "password forgotten"


def main() -> None:
    """Serves over stdin and stdout until stdin is closed."""
    desk.run()


if __name__ == "__main__":
    main()
