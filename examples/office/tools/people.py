"""Who works here."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import ToolException

from .base import Access, same, tool, within


def find_person(office: Access, name: str) -> dict[str, Any]:
    """Find colleagues by name; gives id, e-mail address and team.

    Args:
        name: Full name, first name or family name.
    """
    return {"people": [person for person in office.all("people") if within(name, person["name"])]}


def search_directory(office: Access, query: str) -> dict[str, Any]:
    """Search the company directory (people and teams) by words.

    Args:
        query: Words of a name, team or address.
    """
    matches = [
        {"kind": "person", "score": 1.0, "record": person}
        for person in office.all("people")
        if within(query, person["name"], person["team"], person["email"])
    ]
    return {"query": query, "matches": matches}


def list_team(office: Access, team: str) -> dict[str, Any]:
    """List the members of a team.

    Args:
        team: Name of the team, for example "sales".
    """
    members = [person for person in office.all("people") if same(person["team"], team)]
    if not members:
        raise ToolException(f"Error: there is no team {team!r}.")
    return {"team": {"name": team, "size": len(members)}, "members": members}


TOOLS = (
    tool(find_person, "read_only"),
    tool(search_directory, "read_only"),
    tool(list_team, "read_only"),
)
