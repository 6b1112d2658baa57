"""Tasks with meetings that are in the calendar already."""

from __future__ import annotations

import random

from ..check import Change, added, changed, removed
from ..data import DAYS, Record
from ..plan import Do, Kind, Slots, World
from .meetings import free_at

THINGS = ("bring the printed slides", "read the minutes", "send their numbers first", "book the trip")


class CancelWith(Kind):
    """Cancel the meetings with a colleague on a day, if there are any; destructive."""

    name, weight = "cancel_meetings", 1
    wordings = (
        "Cancel all my meetings with {person} on {date}.",
        "I cannot meet {person} on {date}, please cancel.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        date = rng.choice(DAYS)
        person = rng.choice(world.people)["name"]
        if rng.random() < 0.75:
            guest = rng.choice(rng.choice(world.events_on(date))["attendees"])
            person = world.records("people", email=guest)[0]["name"]
        return {"person": person, "date": date}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        guest = do.person(slots["person"])["email"]
        events = do("list_events", date=slots["date"], attendee=guest)["events"]
        for event in events:
            do("cancel_event", event_id=event["id"])
        return f"{len(events)} meetings are cancelled." if events else "There is nothing to cancel."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        guest = world.email_of(slots["person"])
        return [removed("events", e["id"]) for e in world.events_on(slots["date"]) if guest in e["attendees"]]


class Move(Kind):
    """Move a meeting to another day and tell everybody who attends."""

    name, weight = "move_meeting", 6
    wordings = (
        "Move my {title} from {date} to {new_date} and let the attendees know.",
        "Put the {title} of {date} on {new_date} instead and mail everybody who attends.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        date, new_date = rng.sample(DAYS, 2)
        return {"title": rng.choice(world.events_on(date))["title"], "date": date, "new_date": new_date}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        event = _titled(do("list_events", date=slots["date"])["events"], slots["title"])
        found = do(
            "find_free_slot",
            attendees=event["attendees"],
            date=slots["new_date"],
            duration_minutes=event["duration_minutes"],
        )
        start = found["slots"][0]["start"]
        do("move_event", event_id=event["id"], start=start)
        for guest in event["attendees"]:
            do("send_email", to=guest, subject=f"{event['title']} moved", body=f"New time: {start}")
        return f"{event['title']} is now at {start}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        event = _titled(world.events_on(slots["date"]), slots["title"])
        start = free_at(world, slots["new_date"], event["duration_minutes"], event["attendees"])
        mails = [added("sent", {"body": [slots["new_date"]]}, to=guest) for guest in event["attendees"]]
        return [changed("events", event["id"], start=start), *mails]


class Remind(Kind):
    """Write to everybody who attends a meeting."""

    name, weight = "remind_attendees", 8
    wordings = (
        "Remind everybody in the {title} on {date} to {thing}.",
        "Write to all attendees of the {title} on {date}: please {thing}.",
        "Mail the people in my {title} of {date}, they should {thing}.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        date = rng.choice(DAYS)
        return {
            "title": rng.choice(world.events_on(date))["title"],
            "date": date,
            "thing": rng.choice(THINGS),
        }

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        head = _titled(do("list_events", date=slots["date"])["events"], slots["title"])
        event = do("get_event", event_id=head["id"])["event"]
        for guest in event["attendees"]:
            do("send_email", to=guest, subject=f"Reminder: {event['title']}", body=f"Please {slots['thing']}")
        return f"I wrote to {len(event['attendees'])} people."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        event = _titled(world.events_on(slots["date"]), slots["title"])
        return [added("sent", {"body": [slots["thing"]]}, to=guest) for guest in event["attendees"]]


class AgendaNote(Kind):
    """Read a day's meetings and write them into a note."""

    name, weight = "agenda_note", 2
    wordings = (
        "Write my agenda for {date} into a note.",
        "Make a note of all meetings I have on {date}.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        del world
        return {"date": rng.choice(DAYS)}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        events = do("list_events", date=slots["date"])["events"]
        text = "; ".join(f"{event['start'][11:]} {event['title']}" for event in events)
        do("create_note", title=f"Agenda {slots['date']}", text=text)
        return f"The note has {len(events)} meetings."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        return [added("notes", {"text": [event["title"] for event in world.events_on(slots["date"])]})]


def _titled(events: list[Record], title: str) -> Record:
    return next(event for event in events if event["title"].casefold() == title.casefold())


KINDS = (CancelWith(), Move(), Remind(), AgendaNote())
