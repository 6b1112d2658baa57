"""What is in the office on the first day, from a seed.

Records are JSON values; ids look like ``msg_4f1c22``.
"""

from __future__ import annotations

import hashlib
import random
from datetime import date, timedelta
from typing import Any

Record = dict[str, Any]
Database = dict[str, dict[str, Record]]
"""collection -> id -> record"""

TODAY = "2024-06-03"  # a Monday
ME = "alex.morgan@acme-office.example"
DAYS = tuple((date(2024, 6, 3) + timedelta(days=n)).isoformat() for n in range(12) if n % 7 < 5)  # two working weeks
METRICS = ("active users", "signups", "page views", "support tickets", "revenue")
FOLDERS = ("Contracts", "Invoices", "Reports", "Designs")
PROJECTS = ("Apollo", "Borealis", "Cascade", "Delta", "Ember", "Fjord")
TEAMS = ("sales", "finance", "design", "platform", "support")
STATUSES = ("lead", "active", "churn risk")
TOPICS = (
    "budget",
    "invoice",
    "contract",
    "onboarding",
    "roadmap",
    "pricing",
    "hiring",
    "security audit",
    "offsite",
    "newsletter",
    "migration",
    "training",
)
_FIRST = (
    "Aisha",
    "Bruno",
    "Carla",
    "Dmitri",
    "Elena",
    "Farid",
    "Greta",
    "Hiro",
    "Ines",
    "Jonas",
    "Kavya",
    "Liam",
    "Mona",
    "Nadia",
    "Oscar",
    "Priya",
    "Quentin",
    "Rosa",
    "Sven",
    "Tara",
    "Umar",
    "Vera",
    "Wei",
    "Yara",
    "Zoltan",
)
_LAST = (
    "Adler",
    "Brandt",
    "Costa",
    "Dubois",
    "Eriksen",
    "Fischer",
    "Garcia",
    "Haddad",
    "Ivanova",
    "Jensen",
    "Kumar",
    "Lindqvist",
    "Moreau",
    "Novak",
    "Okafor",
    "Petrov",
    "Quinn",
    "Rossi",
    "Silva",
    "Tanaka",
    "Ueda",
    "Vargas",
    "Weber",
    "Xu",
    "Zhang",
)
_COMPANY = (
    "Alder Foods",
    "Bluewater Shipping",
    "Cobalt Labs",
    "Driftwood Hotels",
    "Evergreen Energy",
    "Foxglove Media",
    "Granite Bank",
    "Harbor Clinics",
    "Iris Optics",
    "Juniper Travel",
    "Kestrel Drones",
    "Lakeside Schools",
    "Maple Insurance",
    "Northwind Trading",
    "Orchid Pharma",
    "Pinecrest Homes",
    "Quartz Mining",
    "Redwood Paper",
    "Sable Fashion",
    "Tundra Logistics",
    "Umber Ceramics",
    "Violet Games",
    "Willow Bikes",
    "Zephyr Airlines",
)
_MEETINGS = (
    "Budget review",
    "Design sync",
    "Hiring panel",
    "Incident review",
    "Launch planning",
    "Pricing workshop",
    "Quarterly review",
    "Retrospective",
    "Roadmap session",
    "Security briefing",
    "Sprint planning",
    "Vendor call",
)
_TASKS = (
    "Write the release notes",
    "Update the price list",
    "Check the backup",
    "Prepare the slides",
    "Review the contract",
    "Call the supplier",
    "Clean up the wiki",
    "Renew the certificate",
    "Collect the feedback",
    "Order new laptops",
    "Test the login page",
    "Plan the interviews",
)


def make_id(prefix: str, *parts: object) -> str:
    """A short id that depends on the parts only, so that a reset office gives the same ids again."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=3).hexdigest()
    return f"{prefix}_{digest}"


def make_database(seed: int) -> Database:
    """All collections of a fresh office."""
    rng = random.Random(seed)
    people = _people(rng)
    return {
        "people": people,
        "emails": _emails(rng, people),
        "sent": {},
        "events": _events(rng, people),
        "customers": (customers := _customers(rng, people)),
        "deals": _deals(rng, customers),
        "customer_notes": {},
        "tasks": _tasks(rng, people),
        "notes": {},
        "files": _files(rng, people),
        "shares": {},
    }


def make_metrics(seed: int) -> dict[str, dict[str, int]]:
    """Daily values: metric -> ISO date -> value, for the 60 days before `TODAY`."""
    rng = random.Random(seed * 7919 + 1)
    series: dict[str, dict[str, int]] = {}
    for metric in METRICS:
        value = rng.randrange(200, 2000)
        series[metric] = {}
        for back in range(60, 0, -1):
            value = max(20, value + rng.randint(-40, 42))
            series[metric][(date.fromisoformat(TODAY) - timedelta(days=back)).isoformat()] = value
    return series


def _people(rng: random.Random) -> dict[str, Record]:
    last = rng.sample(_LAST, len(_LAST))
    people = {}
    for n, (first, family) in enumerate(zip(_FIRST, last, strict=True)):
        name = f"{first} {family}"
        email = f"{first}.{family}@acme-office.example".lower()
        key = make_id("usr", name)
        people[key] = {"id": key, "name": name, "email": email, "team": TEAMS[n % len(TEAMS)]}
    return people


def _emails(rng: random.Random, people: dict[str, Record]) -> dict[str, Record]:
    emails = {}
    for n in range(96):
        sender = list(people.values())[n % len(people)]
        topic, project = rng.choice(TOPICS), rng.choice(PROJECTS)
        day = date.fromisoformat(TODAY) - timedelta(days=rng.randrange(1, 28))
        key = make_id("msg", n, sender["email"], topic)
        attachments = []
        if rng.random() < 0.6:
            name = f"{topic.replace(' ', '_')}_{project.lower()}.pdf"
            attachments = [{"id": make_id("att", key), "name": name, "size_kb": rng.randrange(20, 900)}]
        emails[key] = {
            "id": key,
            "from": {"name": sender["name"], "email": sender["email"]},
            "subject": f"{topic.capitalize()} for {project} #{n + 100}",
            "received": f"{day.isoformat()}T{rng.randrange(7, 19):02}:{n % 60:02}",
            "body": f"Hello Alex,\nplease look at the {topic} for {project} before {rng.choice(DAYS)}.\n"
            f"Regards, {sender['name'].split()[0]}",
            "attachments": attachments,
        }
    return emails


def _events(rng: random.Random, people: dict[str, Record]) -> dict[str, Record]:
    events = {}
    for day in DAYS:
        for title, hour in zip(rng.sample(_MEETINGS, 5), rng.sample(range(9, 17), 5), strict=True):
            guests = rng.sample(list(people.values()), rng.randint(1, 4))
            key = make_id("evt", day, title)
            events[key] = {
                "id": key,
                "title": title,
                "start": f"{day}T{hour:02}:00",
                "duration_minutes": rng.choice((30, 45, 60)),
                "attendees": [guest["email"] for guest in guests],
                "location": rng.choice(("Room Oak", "Room Elm", "online")),
            }
    return events


def _customers(rng: random.Random, people: dict[str, Record]) -> dict[str, Record]:
    sales = [person for person in people.values() if person["team"] == "sales"]
    customers = {}
    for company in _COMPANY:
        first, family = rng.choice(_FIRST), rng.choice(_LAST)
        key = make_id("cus", company)
        domain = company.split()[0].lower()
        customers[key] = {
            "id": key,
            "company": company,
            "status": rng.choice(STATUSES),
            "owner": rng.choice(sales)["email"],
            "city": rng.choice(("Lisbon", "Oslo", "Vienna")),
            "contact": {"name": f"{first} {family}", "email": f"{first}.{family}@{domain}.example".lower()},
            "archived": False,
        }
    return customers


def _deals(rng: random.Random, customers: dict[str, Record]) -> dict[str, Record]:
    deals = {}
    for customer in customers.values():
        for n in range(rng.choice((0, 0, 1, 2))):
            key = make_id("dea", customer["id"], n)
            deals[key] = {
                "id": key,
                "customer_id": customer["id"],
                "amount": rng.randrange(5, 90) * 1000,
                "stage": rng.choice(("open", "won", "lost")),
            }
    return deals


def _tasks(rng: random.Random, people: dict[str, Record]) -> dict[str, Record]:
    tasks = {}
    for n in range(100):
        person = list(people.values())[n % len(people)]
        title, project = rng.choice(_TASKS), rng.choice(PROJECTS[:3] if n % 2 else PROJECTS)
        due = date.fromisoformat(TODAY) + timedelta(days=rng.randrange(-12, 20))
        key = make_id("tsk", n, title)
        tasks[key] = {
            "id": key,
            "title": title,
            "project": project,
            "assignee": person["email"],
            "due": due.isoformat(),
            "status": "done" if rng.random() < 0.25 else "open",
        }
    return tasks


def _files(rng: random.Random, people: dict[str, Record]) -> dict[str, Record]:
    files = {}
    for folder in FOLDERS:
        for project in PROJECTS:
            for suffix in ("final", "draft") if rng.random() < 0.6 else ("final",):
                name = f"{project.lower()}_{folder.lower().rstrip('s')}_{suffix}.pdf"
                key = make_id("fil", folder, name)
                files[key] = {
                    "id": key,
                    "name": name,
                    "folder": folder,
                    "owner": rng.choice(list(people.values()))["email"],
                    "modified": f"2024-05-{rng.randrange(1, 29):02}",
                }
    return files
