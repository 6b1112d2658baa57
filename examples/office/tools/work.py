"""Tasks of projects, and the notebook of the person who asks."""

from __future__ import annotations

from typing import Any, Literal

from ..data import TODAY
from .base import Access, same, tool


def list_tasks(
    office: Access,
    project: str | None = None,
    assignee: str | None = None,
    status: Literal["open", "done"] | None = None,
    overdue: bool | None = None,
    limit: int = 50,
) -> dict[str, Any]:
    """List tasks.

    Args:
        project: Name of the project.
        assignee: E-mail address of who has to do it.
        status: "open" or "done".
        overdue: Only open tasks whose due date has passed.
        limit: How many at most.
    """
    found = [
        task
        for task in office.all("tasks")
        if (project is None or same(task["project"], project))
        and (assignee is None or same(task["assignee"], assignee))
        and (status is None or task["status"] == status)
        and (not overdue or (task["status"] == "open" and task["due"] < TODAY))
    ]
    return {"tasks": found[:limit], "total": len(found)}


def create_task(
    office: Access, title: str, assignee: str, due: str | None = None, project: str | None = None
) -> dict[str, Any]:
    """Create an open task.

    Args:
        title: What has to be done.
        assignee: E-mail address of who has to do it.
        due: ISO date.
        project: Name of the project.
    """
    task = office.add("tasks", "tsk", title=title, project=project, assignee=assignee, due=due or "", status="open")
    return {"task": {"id": task["id"], "title": title}}


def complete_task(office: Access, task_id: str) -> dict[str, Any]:
    """Mark a task as done.

    Args:
        task_id: Id of the task, for example "tsk_1a2b3c".
    """
    office.get("tasks", task_id)["status"] = "done"
    return {"task": {"id": task_id, "status": "done"}}


def assign_task(office: Access, task_id: str, assignee: str) -> dict[str, Any]:
    """Give a task to somebody.

    Args:
        task_id: Id of the task.
        assignee: E-mail address of the new assignee.
    """
    office.get("tasks", task_id)["assignee"] = assignee
    return {"task": {"id": task_id, "assignee": assignee}}


def update_task(
    office: Access,
    task_id: str,
    status: Literal["open", "done"] | None = None,
    assignee: str | None = None,
    due: str | None = None,
) -> dict[str, Any]:
    """Change any fields of a task at once.

    Args:
        task_id: Id of the task.
        status: New status.
        assignee: E-mail address of the new assignee.
        due: New due date.
    """
    task = office.get("tasks", task_id)
    changes = {"status": status, "assignee": assignee, "due": due}
    task.update({field: value for field, value in changes.items() if value is not None})
    return {"task": task}


def create_note(office: Access, title: str, text: str) -> str:
    """Write a note into the notebook.

    Args:
        title: Title of the note.
        text: Text of the note.
    """
    note = office.add("notes", "not", title=title, text=text)
    return f'Note {note["id"]} "{title}" is saved.'


TOOLS = (
    tool(list_tasks, "read_only"),
    tool(create_task),
    tool(complete_task),
    tool(assign_task),
    tool(update_task),
    tool(create_note),
)
