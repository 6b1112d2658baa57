"""Tasks with customers."""

from __future__ import annotations

import random

from ..check import Change, added, changed
from ..data import DAYS, STATUSES
from ..plan import Do, Kind, Slots, World

REASONS = (
    "they asked for a new offer",
    "their budget was cut",
    "they like the new version",
    "they were unhappy",
)
NEWS = (
    "the new price list is out",
    "our office moves in July",
    "support is closed on June 20",
    "the audit went well",
)


def _company(rng: random.Random, world: World) -> str:
    return str(rng.choice(world.records("customers"))["company"])


class Mark(Kind):
    """Set a customer's status and note the reason."""

    name, weight = "mark_customer", 12
    wordings = (
        "Mark {company} as {status} and note that {reason}.",
        "Set the status of {company} to {status}, the reason is that {reason}.",
        "{company} is now {status}: {reason}. Please update and make a note.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        customer = rng.choice(world.records("customers"))
        status = rng.choice([status for status in STATUSES if status != customer["status"]])
        return {"company": customer["company"], "status": status, "reason": rng.choice(REASONS)}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        customer = do("search_customers", company=slots["company"])["customers"][0]
        do("update_customer", customer_id=customer["id"], field="status", value=slots["status"])
        do("add_note", customer_id=customer["id"], text=slots["reason"])
        return f"{customer['company']} is now marked as {slots['status']}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        key = world.customer(slots["company"])["id"]
        return [
            changed("customers", key, status=slots["status"]),
            added("customer_notes", {"text": [slots["reason"]]}, customer_id=key),
        ]


class HandOver(Kind):
    """Give customers of one account manager to another; a loop over a search."""

    name, weight = "hand_over_customers", 4
    wordings = (
        "Hand all {status} customers of {person} over to {colleague}.",
        "{colleague} takes over every {status} customer from {person}.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        customer = rng.choice(world.records("customers"))
        person = world.records("people", email=customer["owner"])[0]["name"]
        colleague = rng.choice([p["name"] for p in world.people if p["name"] != person])
        return {"status": customer["status"], "person": person, "colleague": colleague}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        person, colleague = do.person(slots["person"]), do.person(slots["colleague"])
        found = do("search_customers", owner=person["email"], status=slots["status"])["customers"]
        for customer in found:
            do("update_customer", customer_id=customer["id"], field="owner", value=colleague["email"])
        return f"{colleague['name']} has {len(found)} more customers."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        owner = world.email_of(slots["person"])
        found = world.records("customers", owner=owner, status=slots["status"])
        return [changed("customers", c["id"], owner=world.email_of(slots["colleague"])) for c in found]


class FollowUp(Kind):
    """A task for the account manager of a customer, and an e-mail about it."""

    name, weight = "follow_up", 20
    wordings = (
        "Make a follow-up task about {company} for its account manager, due {date}, and tell them by email.",
        "The account manager of {company} should follow up by {date}: create the task and mail them.",
        "Create a task to follow up with {company} until {date} for whoever manages it and write to them.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        return {"company": _company(rng, world), "date": rng.choice(DAYS)}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        customer = do("search_customers", company=slots["company"])["customers"][0]
        title = f"Follow up with {customer['company']}"
        do("create_task", title=title, assignee=customer["owner"], due=slots["date"])
        do("send_email", to=customer["owner"], subject=title, body=f"It is due on {slots['date']}")
        return f"{customer['owner']} has the task and knows."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        customer = world.customer(slots["company"])
        return [
            added("tasks", {"title": [customer["company"]]}, assignee=customer["owner"], due=slots["date"]),
            added("sent", to=customer["owner"]),
        ]


class WriteContact(Kind):
    """Write to the contact person of a customer and keep a note of it."""

    name, weight = "write_contact", 14
    wordings = (
        "Write to our contact at {company} that {news} and note it in their file.",
        "Tell the contact person of {company} by email that {news}, and add a note.",
        "Let {company} know that {news}; email their contact and keep a note about it.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        return {"company": _company(rng, world), "news": rng.choice(NEWS)}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        head = do("search_customers", company=slots["company"])["customers"][0]
        customer = do("get_customer", customer_id=head["id"])["customer"]
        do("send_email", to=customer["contact"]["email"], subject=customer["company"], body=slots["news"])
        do("add_note", customer_id=customer["id"], text=slots["news"])
        return f"I wrote to {customer['contact']['name']}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        customer = world.customer(slots["company"])
        return [
            added("sent", {"body": [slots["news"]]}, to=customer["contact"]["email"]),
            added("customer_notes", {"text": [slots["news"]]}, customer_id=customer["id"]),
        ]


class ArchiveIfIdle(Kind):
    """Archive a customer unless a deal is open; then note that it stays."""

    name, weight = "archive_if_idle", 2
    wordings = (
        "Archive {company} if it has no open deals, otherwise add a note that it stays.",
        "If no deal with {company} is open, archive it; else note that it stays.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        return {"company": _company(rng, world)}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        customer = do("search_customers", company=slots["company"])["customers"][0]
        deals = do("list_deals", customer_id=customer["id"])["deals"]
        if any(deal["stage"] == "open" for deal in deals):
            do("add_note", customer_id=customer["id"], text="It stays: a deal is open")
            return f"{customer['company']} stays, a deal is open."
        do("archive_customer", customer_id=customer["id"])
        return f"{customer['company']} is archived."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        key = world.customer(slots["company"])["id"]
        if world.records("deals", customer_id=key, stage="open"):
            return [added("customer_notes", {"text": ["stays"]}, customer_id=key)]
        return [changed("customers", key, archived=True)]


class WhoManages(Kind):
    """A question; the answer is words and nothing changes."""

    name, weight = "who_manages", 2
    wordings = ("Who is the account manager of {company}?", "Tell me who looks after {company}.")

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        return {"company": _company(rng, world)}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        customer = do("search_customers", company=slots["company"])["customers"][0]
        return f"{customer['company']} is looked after by {customer['owner']}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        del world, slots
        return []


KINDS = (Mark(), HandOver(), FollowUp(), WriteContact(), ArchiveIfIdle(), WhoManages())
