"""Customers, their deals, and notes about them."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.tools import ToolException

from ..data import Record
from .base import Access, same, tool, within


def _head(customer: Record) -> Record:
    return {key: customer[key] for key in ("id", "company", "status", "owner", "city")}


def search_customers(
    office: Access,
    company: str | None = None,
    status: str | None = None,
    owner: str | None = None,
    limit: int = 50,
) -> dict[str, Any]:
    """Search customers.

    Args:
        company: Words of the company's name.
        status: "lead", "active" or "churn risk".
        owner: E-mail address of the account manager.
        limit: How many at most.
    """
    found = [
        _head(customer)
        for customer in office.all("customers")
        if not customer["archived"]
        and (company is None or within(company, customer["company"]))
        and (status is None or same(customer["status"], status))
        and (owner is None or same(customer["owner"], owner))
    ]
    return {"customers": found[:limit], "total": len(found)}


def lookup_account(office: Access, words: str) -> dict[str, Any]:
    """Look up accounts by any words: company, status or account manager.

    Args:
        words: What to look for.
    """
    found = [
        {"account": _head(customer)}
        for customer in office.all("customers")
        if not customer["archived"] and within(words, customer["company"], customer["status"], customer["owner"])
    ]
    return {"accounts": found}


def get_customer(office: Access, customer_id: str) -> dict[str, Any]:
    """Everything known about one customer, with the contact person.

    Args:
        customer_id: Id of the customer, for example "cus_1a2b3c".
    """
    return {"customer": office.get("customers", customer_id)}


def list_deals(office: Access, customer_id: str) -> dict[str, Any]:
    """List the deals with a customer.

    Args:
        customer_id: Id of the customer.
    """
    office.get("customers", customer_id)
    deals = [deal for deal in office.all("deals") if deal["customer_id"] == customer_id]
    return {"customer_id": customer_id, "deals": deals}


def update_customer(
    office: Access, customer_id: str, field: Literal["status", "owner", "city"], value: str
) -> dict[str, Any]:
    """Change one field of a customer.

    Args:
        customer_id: Id of the customer.
        field: Which field.
        value: New value.
    """
    customer = office.get("customers", customer_id)
    if field == "owner" and "@" not in value:
        raise ToolException("Error: the owner must be an e-mail address.")
    customer[field] = value
    return {"customer": _head(customer)}


def add_note(office: Access, customer_id: str, text: str) -> dict[str, Any]:
    """Add a note to a customer's file.

    Args:
        customer_id: Id of the customer.
        text: Text of the note.
    """
    office.get("customers", customer_id)
    note = office.add("customer_notes", "cno", customer_id=customer_id, text=text)
    return {"note": {"id": note["id"], "customer_id": customer_id}}


def archive_customer(office: Access, customer_id: str) -> str:
    """Archive a customer: it disappears from every list.

    Args:
        customer_id: Id of the customer.
    """
    customer = office.get("customers", customer_id)
    customer["archived"] = True
    return f"{customer['company']} is archived."


TOOLS = (
    tool(search_customers, "read_only"),
    tool(lookup_account, "read_only"),
    tool(get_customer, "read_only"),
    tool(list_deals, "read_only"),
    tool(update_customer),
    tool(add_note),
    tool(archive_customer, "destructive"),
)
