"""Tasks with the tasks of projects."""

from __future__ import annotations

import random

from ..check import Change, added, changed
from ..data import PROJECTS, TODAY, Record
from ..plan import Do, Kind, Slots, World


def _open(world: World, **fields: str) -> list[Record]:
    return world.records("tasks", status="open", **fields)


class CompleteTasks(Kind):
    """Close the open tasks of a colleague in a project; a loop."""

    name, weight = "complete_tasks", 10
    wordings = (
        "Mark all open {project} tasks of {person} as done.",
        "{person} has finished everything in {project}, close those tasks.",
        "Complete every open task that {person} has in {project}.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        task = rng.choice(_open(world))
        person = world.records("people", email=task["assignee"])[0]["name"]
        return {"person": person, "project": task["project"]}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        person = do.person(slots["person"])
        found = do("list_tasks", assignee=person["email"], project=slots["project"], status="open")["tasks"]
        for task in found:
            do("complete_task", task_id=task["id"])
        return f"{len(found)} tasks are done."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        email = world.email_of(slots["person"])
        found = _open(world, assignee=email, project=slots["project"])
        return [changed("tasks", task["id"], status="done") for task in found]


class HandOverTasks(Kind):
    """Give a colleague's overdue tasks to another; a loop with two people."""

    name, weight = "hand_over_tasks", 5
    wordings = (
        "Give {person}'s overdue tasks to {colleague}.",
        "{colleague} takes over all overdue tasks of {person}.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        task = rng.choice([task for task in _open(world) if task["due"] < TODAY])
        person = world.records("people", email=task["assignee"])[0]["name"]
        colleague = rng.choice([p["name"] for p in world.people if p["name"] != person])
        return {"person": person, "colleague": colleague}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        person = do.person(slots["person"])
        found = do("list_tasks", assignee=person["email"], overdue=True)["tasks"]
        colleague = do.person(slots["colleague"])
        for task in found:
            do("assign_task", task_id=task["id"], assignee=colleague["email"])
        return f"{colleague['name']} has {len(found)} more tasks."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        overdue = [t for t in _open(world, assignee=world.email_of(slots["person"])) if t["due"] < TODAY]
        return [changed("tasks", t["id"], assignee=world.email_of(slots["colleague"])) for t in overdue]


class StatusReport(Kind):
    """Send somebody the titles of a project's open tasks."""

    name, weight = "status_report", 4
    wordings = (
        "Send {person} a list of the open tasks in {project}.",
        "{person} wants to know what is still open in {project}, write an email.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        return {"person": rng.choice(world.people)["name"], "project": rng.choice(PROJECTS)}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        person = do.person(slots["person"])
        found = do("list_tasks", project=slots["project"], status="open")["tasks"]
        body = "\n".join(f"- {task['title']} ({task['due']})" for task in found)
        do("send_email", to=person["email"], subject=f"Open tasks in {slots['project']}", body=body)
        return f"I sent {person['name']} {len(found)} tasks."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        titles = [task["title"] for task in _open(world, project=slots["project"])]
        return [added("sent", {"body": titles}, to=world.email_of(slots["person"]))]


KINDS = (CompleteTasks(), HandOverTasks(), StatusReport())
