"""Tasks around e-mail."""

from __future__ import annotations

import random

from ..check import Change, added, removed
from ..data import FOLDERS, TEAMS
from ..plan import Do, Kind, Slots, World

MESSAGES = (
    "the kitchen is closed on Friday",
    "the new badge readers work from Monday on",
    "expense reports are due this week",
    "the summer party is on June 21",
    "parking level 2 is being cleaned tomorrow",
)
REPLIES = (
    "I agree with the plan",
    "I need two more days",
    "the numbers look right",
    "we should talk about it next week",
    "I will take care of it",
)


class ForwardLatest(Kind):
    """Forward the newest e-mail of one colleague to another."""

    name, weight = "forward_latest", 16
    wordings = (
        "Forward the latest email from {sender} to {recipient}.",
        "Please send {sender}'s most recent email on to {recipient}.",
        "{recipient} needs the last email I got from {sender}, forward it please.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        sender, recipient = world.two_people(rng)
        return {"sender": sender, "recipient": recipient}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        sender = do.person(slots["sender"])
        email = do("list_emails", sender=sender["email"])["emails"][0]
        recipient = do.person(slots["recipient"])
        do("forward_email", email_id=email["id"], to=recipient["email"])
        return f'I forwarded "{email["subject"]}" to {recipient["name"]}.'

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        email = world.emails_from(slots["sender"])[0]
        return [added("sent", forward_of=email["id"], to=world.email_of(slots["recipient"]))]


class Reply(Kind):
    """Answer an e-mail that is named by its subject."""

    name, weight = "reply", 6
    wordings = (
        'Reply to the email "{subject}" that {message}.',
        'Answer the mail with the subject "{subject}": {message}.',
        'Let the sender of "{subject}" know that {message}.',
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        return {"subject": rng.choice(world.records("emails"))["subject"], "message": rng.choice(REPLIES)}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        head = do("list_emails", subject=slots["subject"])["emails"][0]
        email = do("read_email", email_id=head["id"])["email"]
        do("reply_email", email_id=email["id"], body=slots["message"])
        return f"I replied to {email['from']['name']}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        email = world.records("emails", subject=slots["subject"])[0]
        return [added("sent", {"body": [slots["message"]]}, reply_to=email["id"])]


class DeleteFrom(Kind):
    """Delete what a colleague wrote about a topic; destructive, one by one."""

    name, weight = "delete_emails", 1
    wordings = (
        "Delete all emails from {sender} about {topic}.",
        "Please remove every {topic} email that {sender} sent me.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        email = rng.choice(world.records("emails"))
        return {"sender": email["from"]["name"], "topic": email["subject"].split(" for ")[0].lower()}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        sender = do.person(slots["sender"])
        emails = do("list_emails", sender=sender["email"], subject=slots["topic"])["emails"]
        for email in emails:
            do("delete_email", email_id=email["id"])
        return f"{len(emails)} emails are deleted."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        emails = world.emails_from(slots["sender"])
        return [removed("emails", e["id"]) for e in emails if e["subject"].lower().startswith(slots["topic"])]


class SaveAttachment(Kind):
    """Save the attachment of a colleague's newest e-mail that has one."""

    name, weight = "save_attachment", 8
    wordings = (
        "Save the attachment of {sender}'s latest email with an attachment in {folder}.",
        "Put the newest file that {sender} mailed me into the folder {folder}.",
        "Store the last attachment I got from {sender} under {folder}.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        email = rng.choice([email for email in world.records("emails") if email["attachments"]])
        return {"sender": email["from"]["name"], "folder": rng.choice(FOLDERS)}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        sender = do.person(slots["sender"])
        head = do("list_emails", sender=sender["email"], has_attachment=True)["emails"][0]
        attachment = do("read_email", email_id=head["id"])["email"]["attachments"][0]
        do("save_attachment", attachment_id=attachment["id"], folder=slots["folder"])
        return f"{attachment['name']} is saved in {slots['folder']}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        email = next(email for email in world.emails_from(slots["sender"]) if email["attachments"])
        return [added("files", name=email["attachments"][0]["name"], folder=slots["folder"])]


class TellTeam(Kind):
    """Write to every member of a team; a loop over a list."""

    name, weight = "tell_team", 10
    wordings = (
        "Tell everyone in the {team} team that {message}.",
        "Write each member of the {team} team an email: {message}.",
        "The whole {team} team should know that {message}, mail them one by one.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        del world
        return {"team": rng.choice(TEAMS), "message": rng.choice(MESSAGES)}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        team = do("list_team", team=slots["team"])
        for member in team["members"]:
            do("send_email", to=member["email"], subject="For your information", body=slots["message"])
        return f"I wrote to all {team['team']['size']} members."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        members = world.records("people", team=slots["team"])
        return [added("sent", {"body": [slots["message"]]}, to=member["email"]) for member in members]


class TaskFromEmail(Kind):
    """Turn the newest e-mail of a colleague into a task for another."""

    name, weight = "task_from_email", 4
    wordings = (
        "Turn the latest email from {sender} into a task for {assignee}.",
        "Make a task for {assignee} out of the last email {sender} sent.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        sender, assignee = world.two_people(rng)
        return {"sender": sender, "assignee": assignee}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        sender = do.person(slots["sender"])
        head = do("list_emails", sender=sender["email"])["emails"][0]
        email = do("read_email", email_id=head["id"])["email"]
        assignee = do.person(slots["assignee"])
        do("create_task", title=email["subject"], assignee=assignee["email"])
        return f"{assignee['name']} has a new task: {email['subject']}."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        subject = world.emails_from(slots["sender"])[0]["subject"]
        assignee = world.email_of(slots["assignee"])
        return [added("tasks", {"title": [subject]}, assignee=assignee, status="open")]


class Thanks(Kind):
    """Nothing to do."""

    name, weight = "thanks", 1
    wordings = (
        "Thank you, that was all about {name} for today.",
        "No more questions, thanks for the help with {name}.",
    )

    def pick(self, rng: random.Random, world: World) -> Slots:
        """See `Kind`."""
        del world
        return {"name": rng.choice(("the mail", "the calendar", "the files"))}

    def plan(self, do: Do, slots: Slots) -> str:
        """See `Kind`."""
        del do, slots
        return "You are welcome."

    def expect(self, world: World, slots: Slots) -> list[Change]:
        """See `Kind`."""
        del world, slots
        return []


KINDS = (ForwardLatest(), Reply(), DeleteFrom(), SaveAttachment(), TellTeam(), TaskFromEmail(), Thanks())
