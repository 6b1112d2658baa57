"""Tasks that make meetings."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

from ..check import Change, added
from ..data import DAYS, Record
from ..plan import Do, Kind, Slots, World

TITLES = (
    "Kick-off",
    "Handover",
    "Demo rehearsal",
    "Data review",
    "Coffee chat",
    "Contract talk",
    "Feedback round",
)
LENGTHS = ("30", "45", "60")


def free_at(world: World, day: str, minutes: int, attendees: list[str]) -> Callable[[object], bool]:
    """A judge of start times: on that day, in office hours, and nobody is in another meeting."""
    busy = [event for event in world.events_on(day) if set(event["attendees"]) & set(attendees)]

    def judge(value: object) -> bool:
        start, end = _span({"start": str(value), "duration_minutes": minutes})
        in_hours = str(value).startswith(day) and start.hour >= 9 and end <= start.replace(hour=17, minute=0)
        return in_hours and not any(start < _span(e)[1] and _span(e)[0] < end for e in busy)

    return judge


def _span(event: Record) -> tuple[datetime, datetime]:
    start = datetime.fromisoformat(event["start"])
    return start, start + timedelta(minutes=event["duration_minutes"])


class Schedule(Kind):
    """A meeting with one colleague at the first time that suits."""

    name, weight = "schedule_meeting", 24
    wordings = (
        'Schedule a {minutes} minute meeting "{title}" with {person} on {date}.',
        'Find {minutes} minutes with {person} on {date} for "{title}" and book them.',
        'Please set up "{title}" with {person}, {minutes} minutes, on {date}.',
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        return {
            "minutes": rng.choice(LENGTHS),
            "title": rng.choice(TITLES),
            "person": rng.choice(world.people)["name"],
            "date": rng.choice(DAYS),
        }

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        guest = do.person(slots["person"])["email"]
        start = _book(do, slots, [guest])
        return f"{slots['title']} is booked for {start}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        return [_booked(world, slots, [world.email_of(slots["person"])])]


class ScheduleTwo(Kind):
    """A meeting with two colleagues, looked up in one turn."""

    name, weight = "schedule_with_two", 3
    wordings = (
        'Set up a {minutes} minute "{title}" with {person} and {other} on {date}.',
        'I want to meet {person} and {other} on {date}: "{title}", {minutes} minutes.',
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        person, other = world.two_people(rng)
        return {
            "minutes": rng.choice(LENGTHS),
            "title": rng.choice(TITLES),
            "person": person,
            "other": other,
            "date": rng.choice(DAYS),
        }

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        found = do.all(
            ("find_person", {"name": slots["person"]}),
            ("find_person", {"name": slots["other"]}),
        )
        start = _book(do, slots, [answer["people"][0]["email"] for answer in found])
        return f"{slots['title']} with both is booked for {start}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        guests = [world.email_of(slots["person"]), world.email_of(slots["other"])]
        return [_booked(world, slots, guests)]


class MeetOrTask(Kind):
    """A meeting if the colleague is free at the time, a task otherwise."""

    name, weight = "meet_or_task", 3
    wordings = (
        'If {person} is free on {date} at {time}, book {minutes} minutes for "{title}"; '
        "otherwise make it a task for {person_again}.",
        'Is {person} free on {date} at {time}? Then book "{title}" for {minutes} minutes, '
        "else create a task with that title for {person_again}.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        date = rng.choice(DAYS)
        time = f"{rng.randrange(9, 16):02}:00"
        person = rng.choice(world.people)["name"]
        if rng.random() < 0.5:
            event = rng.choice(world.events_on(date))
            time = event["start"][11:]
            guest = rng.choice(event["attendees"])
            person = world.records("people", email=guest)[0]["name"]
        return {
            "person": person,
            "person_again": person,
            "date": date,
            "time": time,
            "minutes": rng.choice(LENGTHS),
            "title": rng.choice(TITLES),
        }

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        guest = do.person(slots["person"])["email"]
        start, minutes = f"{slots['date']}T{slots['time']}", int(slots["minutes"])
        if do("check_availability", email=guest, start=start, duration_minutes=minutes)["free"]:
            do("create_event", title=slots["title"], start=start, duration_minutes=minutes, attendees=[guest])
            return f"{slots['title']} is booked for {start}."
        do("create_task", title=slots["title"], assignee=guest)
        return f"{slots['person']} is busy then, so I made a task."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        guest = world.email_of(slots["person"])
        start, minutes = f"{slots['date']}T{slots['time']}", int(slots["minutes"])
        begin, end = _span({"start": start, "duration_minutes": minutes})
        busy = [e for e in world.events_on(slots["date"]) if guest in e["attendees"]]
        if any(begin < _span(e)[1] and _span(e)[0] < end for e in busy):
            return [added("tasks", title=slots["title"], assignee=guest, status="open")]
        title = slots["title"]
        return [added("events", title=title, start=start, duration_minutes=minutes, attendees=[guest])]


def _book(do: Do, slots: Slots, guests: list[str]) -> str:
    minutes = int(slots["minutes"])
    found = do("find_free_slot", attendees=guests, date=slots["date"], duration_minutes=minutes)
    start = str(found["slots"][0]["start"])
    do("create_event", title=slots["title"], start=start, duration_minutes=minutes, attendees=guests)
    return start


def _booked(world: World, slots: Slots, guests: list[str]) -> Change:
    minutes = int(slots["minutes"])
    return added(
        "events",
        title=slots["title"],
        start=free_at(world, slots["date"], minutes, guests),
        duration_minutes=minutes,
        attendees=guests,
    )


KINDS = (Schedule(), ScheduleTwo(), MeetOrTask())
