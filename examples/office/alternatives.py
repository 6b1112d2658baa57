"""How one tool stands in for another: its arguments from the other's, the other's output from its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Args = Mapping[str, Any]


def _same_args(args: Args) -> dict[str, Any]:
    return dict(args)


def _same_output(output: Any, args: Args) -> Any:
    del args
    return output


@dataclass(frozen=True)
class Adapter:
    """A way to get what a tool would give.

    Attributes:
        tool: the tool to call.
        args: its arguments, from the arguments of the tool it stands in for.
        output: the output that tool would have had, from this one's output and those arguments.
    """

    tool: str
    args: Callable[[Args], dict[str, Any]] = _same_args
    output: Callable[[Any, Args], Any] = _same_output


def _people(output: Any, args: Args) -> Any:
    del args
    return {"people": [match["record"] for match in output["matches"]]}


def _emails(output: Any, args: Args) -> Any:
    wanted = args.get("has_attachment")
    emails = [hit["mail"] for hit in output["hits"]]
    return {"emails": [e for e in emails if wanted is None or bool(e["attachment_count"]) == wanted]}


def _email(output: Any, args: Args) -> Any:
    head, _, body = str(output).partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    name, _, address = fields["From"].rstrip(">").partition(" <")
    attachments = re.findall(r"^Attachment: (.+) \((att_\w+)\)$", head, re.MULTILINE)
    return {
        "email": {
            "id": args["email_id"],
            "from": {"name": name, "email": address},
            "subject": fields["Subject"],
            "received": fields["Date"],
            "body": body,
            "attachments": [{"id": key, "name": file} for file, key in attachments],
        }
    }


def _events(output: Any, args: Args) -> Any:
    entries = [entry for day in output["days"] for entry in day["entries"]]
    attendee = args.get("attendee")
    return {"events": [e for e in entries if attendee is None or attendee in e["attendees"]]}


def _customers(output: Any, args: Args) -> Any:
    accounts = [hit["account"] for hit in output["accounts"]]
    fields = [name for name in ("status", "owner") if args.get(name)]
    return {"customers": [a for a in accounts if all(a[name] == args[name] for name in fields)]}


def _metric(output: Any, args: Args) -> str:
    values = [point["value"] for point in output["points"]]
    change = values[-1] - values[0]
    trend = "rose" if change > 0 else "fell" if change < 0 else "did not change"
    return f"{args['metric']}: average {sum(values) / len(values):.1f}; it {trend} by {abs(change)}."


def _files(output: Any, args: Args) -> Any:
    words = str(args["words"]).casefold().split()
    found = [e for e in output["entries"] if all(word in e["name"].casefold() for word in words)]
    return {"files": sorted(found, key=lambda entry: str(entry["modified"]), reverse=True)}


def _words(*names: str) -> Callable[[Args], dict[str, Any]]:
    def words(args: Args) -> dict[str, Any]:
        return {names[0]: " ".join(str(args[name]) for name in names[1:] if args.get(name))}

    return words


ADAPTERS: dict[str, tuple[Adapter, ...]] = {
    "find_person": (Adapter("search_directory", _words("query", "name"), _people),),
    "list_emails": (Adapter("search_mailbox", _words("query", "sender", "subject"), _emails),),
    "read_email": (Adapter("export_email", _same_args, _email),),
    "list_events": (Adapter("read_calendar", lambda a: {"first_day": a["date"], "last_day": a["date"]}, _events),),
    "search_customers": (Adapter("lookup_account", _words("words", "company", "status", "owner"), _customers),),
    "get_metric": (Adapter("query_metric", _same_args, _metric),),
    "search_files": (Adapter("list_files", lambda a: {"folder": a["folder"]}, _files),),
    "complete_task": (Adapter("update_task", lambda a: {**a, "status": "done"}),),
    "assign_task": (Adapter("update_task"),),
}
