"""The file store."""

from __future__ import annotations

from typing import Any

from .base import Access, latest, same, tool, within


def search_files(office: Access, words: str, folder: str | None = None, limit: int = 50) -> dict[str, Any]:
    """Search files by words of their names, newest first.

    Args:
        words: Words of the file's name.
        folder: Only in this folder.
        limit: How many at most.
    """
    found = [
        file
        for file in latest(office.all("files"), "modified")
        if within(words, file["name"]) and (folder is None or same(file["folder"], folder))
    ]
    return {"files": found[:limit], "total": len(found)}


def list_files(office: Access, folder: str) -> dict[str, Any]:
    """List a folder, by name.

    Args:
        folder: Name of the folder.
    """
    found = [file for file in office.all("files") if same(file["folder"], folder)]
    return {"folder": folder, "entries": sorted(found, key=lambda file: str(file["name"]))}


def share_file(office: Access, file_id: str, email: str) -> dict[str, Any]:
    """Give a colleague access to a file.

    Args:
        file_id: Id of the file, for example "fil_1a2b3c".
        email: E-mail address of the colleague.
    """
    office.get("files", file_id)
    share = office.add("shares", "shr", file_id=file_id, email=email)
    return {"share": {"id": share["id"], "link": f"https://files.acme-office.example/{file_id}"}}


def delete_file(office: Access, file_id: str) -> str:
    """Delete a file for good.

    Args:
        file_id: Id of the file.
    """
    return f"Deleted {office.remove('files', file_id)['name']}."


TOOLS = (
    tool(search_files, "read_only"),
    tool(list_files, "read_only"),
    tool(share_file),
    tool(delete_file, "destructive"),
)
