"""The mailbox of the person who asks."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import ToolException

from ..data import Record
from .base import Access, latest, same, tool, within


def _head(email: Record) -> Record:
    head = {key: email[key] for key in ("id", "from", "subject", "received")}
    return {**head, "attachment_count": len(email["attachments"])}


def list_emails(
    office: Access,
    sender: str | None = None,
    subject: str | None = None,
    has_attachment: bool | None = None,
    limit: int = 50,
) -> dict[str, Any]:
    """List received e-mails, newest first, without their bodies.

    Args:
        sender: E-mail address of the sender.
        subject: Words that occur in the subject.
        has_attachment: Only those with (true) or without (false) an attachment.
        limit: How many at most.
    """
    found = [
        _head(email)
        for email in latest(office.all("emails"), "received")
        if (sender is None or same(email["from"]["email"], sender))
        and (subject is None or within(subject, email["subject"]))
        and (has_attachment is None or bool(email["attachments"]) == has_attachment)
    ]
    return {"emails": found[:limit], "total": len(found)}


def search_mailbox(office: Access, query: str) -> dict[str, Any]:
    """Search all received e-mails by words in sender and subject.

    Args:
        query: Words or an e-mail address.
    """
    found = [
        {"mail": _head(email), "folder": "inbox"}
        for email in latest(office.all("emails"), "received")
        if within(query, email["from"]["email"], email["from"]["name"], email["subject"])
    ]
    return {"hits": found}


def read_email(office: Access, email_id: str) -> dict[str, Any]:
    """Read one e-mail with body and attachments.

    Args:
        email_id: Id of the e-mail, for example "msg_1a2b3c".
    """
    return {"email": office.get("emails", email_id)}


def export_email(office: Access, email_id: str) -> str:
    """Export one e-mail as plain text.

    Args:
        email_id: Id of the e-mail.
    """
    email = office.get("emails", email_id)
    attachments = "".join(f"Attachment: {a['name']} ({a['id']})\n" for a in email["attachments"])
    return (
        f"Message: {email['id']}\nFrom: {email['from']['name']} <{email['from']['email']}>\n"
        f"Date: {email['received']}\nSubject: {email['subject']}\n{attachments}\n{email['body']}"
    )


def send_email(office: Access, to: str, subject: str, body: str) -> dict[str, Any]:
    """Send an e-mail to one address.

    Args:
        to: E-mail address of the recipient.
        subject: Subject line.
        body: Text of the e-mail.
    """
    if "@" not in to:
        raise ToolException(f"Error: {to!r} is not an e-mail address.")
    sent = office.add("sent", "out", to=to, subject=subject, body=body)
    return {"status": "sent", "message": {"id": sent["id"], "to": to}}


def reply_email(office: Access, email_id: str, body: str) -> dict[str, Any]:
    """Reply to the sender of an e-mail.

    Args:
        email_id: Id of the e-mail to answer.
        body: Text of the reply.
    """
    email = office.get("emails", email_id)
    to, subject = email["from"]["email"], f"Re: {email['subject']}"
    sent = office.add("sent", "out", to=to, subject=subject, body=body, reply_to=email_id)
    return {"status": "sent", "message": {"id": sent["id"], "to": to}}


def forward_email(office: Access, email_id: str, to: str) -> dict[str, Any]:
    """Forward an e-mail to somebody else.

    Args:
        email_id: Id of the e-mail.
        to: E-mail address of the recipient.
    """
    email = office.get("emails", email_id)
    if "@" not in to:
        raise ToolException(f"Error: {to!r} is not an e-mail address.")
    subject = f"Fwd: {email['subject']}"
    sent = office.add("sent", "out", to=to, subject=subject, body=email["body"], forward_of=email_id)
    return {"status": "sent", "message": {"id": sent["id"], "to": to}}


def delete_email(office: Access, email_id: str) -> str:
    """Delete an e-mail for good.

    Args:
        email_id: Id of the e-mail.
    """
    return f'Deleted the e-mail "{office.remove("emails", email_id)["subject"]}".'


def save_attachment(office: Access, attachment_id: str, folder: str) -> dict[str, Any]:
    """Save an attachment of a received e-mail as a file.

    Args:
        attachment_id: Id of the attachment, for example "att_1a2b3c".
        folder: Folder of the file store.
    """
    for email in office.all("emails"):
        for attachment in email["attachments"]:
            if attachment["id"] == attachment_id:
                owner, modified = email["from"]["email"], email["received"][:10]
                name = attachment["name"]
                file = office.add("files", "fil", name=name, folder=folder, owner=owner, modified=modified)
                return {"file": file}
    raise ToolException(f"Error: there is no attachment {attachment_id!r}.")


TOOLS = (
    tool(list_emails, "read_only"),
    tool(search_mailbox, "read_only"),
    tool(read_email, "read_only"),
    tool(export_email, "read_only"),
    tool(send_email),
    tool(reply_email),
    tool(forward_email),
    tool(delete_email, "destructive"),
    tool(save_attachment),
)
