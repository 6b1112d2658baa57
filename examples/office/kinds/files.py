"""Tasks with files and metrics."""

from __future__ import annotations

import random
import re

from ..check import Change, added, removed
from ..data import FOLDERS, METRICS, PROJECTS, make_metrics
from ..plan import Do, Kind, Slots, World


def _project_file(rng: random.Random, world: World) -> tuple[str, str]:
    file = rng.choice(world.records("files"))
    return file["folder"], next(p for p in PROJECTS if file["name"].startswith(p.lower()))


def _newest(world: World, folder: str, project: str) -> str:
    files = [f for f in world.records("files", folder=folder) if f["name"].startswith(project.lower())]
    return str(max(files, key=lambda file: str(file["modified"]))["id"])


class ShareFile(Kind):
    """Share the newest file of a project in a folder and send the link."""

    name, weight = "share_file", 18
    wordings = (
        "Share the newest {project} file in {folder} with {person} and mail the link.",
        "{person} needs the latest {project} document from {folder}: give access and send the link.",
        "Give {person} access to the most recent {project} file under {folder} and email the link.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        folder, project = _project_file(rng, world)
        return {"folder": folder, "project": project, "person": rng.choice(world.people)["name"]}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        file = do("search_files", words=slots["project"], folder=slots["folder"])["files"][0]
        person = do.person(slots["person"])
        link = do("share_file", file_id=file["id"], email=person["email"])["share"]["link"]
        do("send_email", to=person["email"], subject=file["name"], body=link)
        return f"{person['name']} has access to {file['name']}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        key, email = _newest(world, slots["folder"], slots["project"]), world.email_of(slots["person"])
        return [added("shares", file_id=key, email=email), added("sent", {"body": [key]}, to=email)]


class ShareWithTwo(Kind):
    """Share a file with two colleagues: both looked up in one turn, both given access in another."""

    name, weight = "share_with_two", 2
    wordings = (
        "Share the newest {project} file in {folder} with {person} and {other}.",
        "{person} and {other} need access to the latest {project} file in {folder}.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        folder, project = _project_file(rng, world)
        person, other = world.two_people(rng)
        return {"folder": folder, "project": project, "person": person, "other": other}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        file = do("search_files", words=slots["project"], folder=slots["folder"])["files"][0]
        found = do.all(
            ("find_person", {"name": slots["person"]}),
            ("find_person", {"name": slots["other"]}),
        )
        emails = [answer["people"][0]["email"] for answer in found]
        do.all(*(("share_file", {"file_id": file["id"], "email": email}) for email in emails))
        return f"Both have access to {file['name']}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        key = _newest(world, slots["folder"], slots["project"])
        emails = [world.email_of(slots["person"]), world.email_of(slots["other"])]
        return [added("shares", file_id=key, email=email) for email in emails]


class DeleteDrafts(Kind):
    """Delete the drafts of a folder; destructive, one by one."""

    name, weight = "delete_drafts", 1
    wordings = ("Delete all drafts in {folder}.", "Clear the drafts out of the folder {folder}.")

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        del world
        return {"folder": rng.choice(FOLDERS)}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        drafts = [f for f in do("list_files", folder=slots["folder"])["entries"] if "draft" in f["name"]]
        for file in drafts:
            do("delete_file", file_id=file["id"])
        return f"{len(drafts)} drafts are deleted."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        files = world.records("files", folder=slots["folder"])
        return [removed("files", file["id"]) for file in files if "draft" in file["name"]]


def _span(rng: random.Random) -> tuple[str, str]:
    first = rng.randrange(1, 15)
    return f"2024-05-{first:02}", f"2024-05-{first + rng.choice((6, 13)):02}"


class MetricNote(Kind):
    """Read a metric's summary, a text, and keep it as a note."""

    name, weight = "metric_note", 2
    wordings = (
        "Note down the average {metric} from {date} to {end_date}.",
        "What were the average {metric} between {date} and {end_date}? Keep it in a note.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        del world
        start, end = _span(rng)
        return {"metric": rng.choice(METRICS), "date": start, "end_date": end}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        text = do("get_metric", metric=slots["metric"], start=slots["date"], end=slots["end_date"])
        found = re.search(r"average ([\d.]+)", text)
        average = found.group(1) if found else "unknown"
        do("create_note", title=f"Average {slots['metric']}", text=average)
        return f"The average was {average}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        values = _values(world, slots)
        return [added("notes", {"text": [f"{sum(values) / len(values):.1f}"]})]


class DropAlert(Kind):
    """Plot a metric and share the plot if it fell; do nothing otherwise."""

    name, weight = "drop_alert", 3
    wordings = (
        "If {metric} fell from {date} to {end_date}, plot it and share the plot with {person}.",
        "Share a plot of {metric} from {date} to {end_date} with {person}, but only if the numbers fell.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        start, end = _span(rng)
        metric, person = rng.choice(METRICS), rng.choice(world.people)["name"]
        return {"metric": metric, "date": start, "end_date": end, "person": person}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        span = {"metric": slots["metric"], "start": slots["date"], "end": slots["end_date"]}
        if "fell by" not in do("get_metric", **span):
            return "They did not fall, so there is nothing to share."
        plot = do("plot_metric", **span)["plot"]
        person = do.person(slots["person"])
        do("share_file", file_id=plot["file_id"], email=person["email"])
        return f"They fell; {person['name']} has the plot."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        values = _values(world, slots)
        if values[-1] >= values[0]:
            return []
        name = f"{slots['metric'].replace(' ', '_')}_{slots['date']}_{slots['end_date']}.png"
        known = {file["id"] for file in world.records("files")}
        return [
            added("files", name=name),
            added("shares", file_id=lambda key: key not in known, email=world.email_of(slots["person"])),
        ]


def _values(world: World, slots: Slots) -> list[int]:
    series = make_metrics(world.seed)[slots["metric"]]
    return [value for day, value in series.items() if slots["date"] <= day <= slots["end_date"]]


KINDS = (ShareFile(), ShareWithTwo(), DeleteDrafts(), MetricNote(), DropAlert())
