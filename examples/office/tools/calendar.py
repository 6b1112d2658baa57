"""The calendar of the person who asks. Times are local ISO times to the minute: ``2024-06-05T14:30``."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from langchain_core.tools import ToolException

from ..data import Record
from .base import Access, tool

_MINUTES = "%Y-%m-%dT%H:%M"


def _span(start: str, minutes: int) -> tuple[datetime, datetime]:
    try:
        begin = datetime.strptime(start, _MINUTES)
    except ValueError:
        raise ToolException(f"Error: {start!r} is no time like 2024-06-05T14:30.") from None
    return begin, begin + timedelta(minutes=minutes)


def _clash(event: Record, start: str, minutes: int) -> bool:
    begin, end = _span(start, minutes)
    event_begin, event_end = _span(event["start"], event["duration_minutes"])
    return event_begin < end and begin < event_end


def _day_events(office: Access, date: str) -> list[Record]:
    on_day = [event for event in office.all("events") if event["start"].startswith(date)]
    return sorted(on_day, key=lambda event: str(event["start"]))


def list_events(office: Access, date: str, attendee: str | None = None) -> dict[str, Any]:
    """List the meetings of a day.

    Args:
        date: ISO date.
        attendee: Only meetings with this e-mail address.
    """
    found = [e for e in _day_events(office, date) if attendee is None or attendee in e["attendees"]]
    return {"date": date, "events": found}


def read_calendar(office: Access, first_day: str, last_day: str) -> dict[str, Any]:
    """Read the calendar of several days.

    Args:
        first_day: ISO date.
        last_day: ISO date, included.
    """
    days: dict[str, list[Record]] = {}
    for event in sorted(office.all("events"), key=lambda event: str(event["start"])):
        day = event["start"][:10]
        if first_day <= day <= last_day:
            days.setdefault(day, []).append(event)
    return {"days": [{"date": day, "entries": entries} for day, entries in days.items()]}


def get_event(office: Access, event_id: str) -> dict[str, Any]:
    """Details of one meeting.

    Args:
        event_id: Id of the meeting, for example "evt_1a2b3c".
    """
    return {"event": office.get("events", event_id)}


def check_availability(office: Access, email: str, start: str, duration_minutes: int) -> dict[str, Any]:
    """Is a colleague free at a time?

    Args:
        email: E-mail address of the colleague.
        start: Start, ISO time to the minute.
        duration_minutes: Length in minutes.
    """
    busy = [
        {"id": event["id"], "start": event["start"]}
        for event in office.all("events")
        if email in event["attendees"] and _clash(event, start, duration_minutes)
    ]
    return {"email": email, "free": not busy, "conflicts": busy}


def find_free_slot(office: Access, attendees: list[str], date: str, duration_minutes: int) -> dict[str, Any]:
    """Find times between 9:00 and 17:00 when all attendees are free.

    Args:
        attendees: E-mail addresses.
        date: ISO date.
        duration_minutes: Length in minutes.
    """
    events = [e for e in _day_events(office, date) if set(e["attendees"]) & set(attendees)]
    slots = []
    for half_hour in range(18, 34):
        start = f"{date}T{half_hour // 2:02}:{half_hour % 2 * 30:02}"
        _, end = _span(start, duration_minutes)
        if end.strftime("%H:%M") <= "17:00" and not any(_clash(e, start, duration_minutes) for e in events):
            slots.append({"start": start, "end": end.strftime(_MINUTES)})
    if not slots:
        raise ToolException(f"Error: no time on {date} suits everybody.")
    return {"slots": slots[:3]}


def create_event(
    office: Access,
    title: str,
    start: str,
    duration_minutes: int,
    attendees: list[str],
    location: str = "online",
) -> dict[str, Any]:
    """Put a meeting into the calendar.

    Args:
        title: Title.
        start: Start, ISO time to the minute.
        duration_minutes: Length in minutes.
        attendees: E-mail addresses.
        location: Room, or "online".
    """
    _span(start, duration_minutes)
    event = office.add(
        "events",
        "evt",
        title=title,
        start=start,
        duration_minutes=duration_minutes,
        attendees=list(attendees),
        location=location,
    )
    return {"event": {"id": event["id"], "start": start}, "invited": len(attendees)}


def move_event(office: Access, event_id: str, start: str) -> dict[str, Any]:
    """Move a meeting to another time.

    Args:
        event_id: Id of the meeting.
        start: New start, ISO time to the minute.
    """
    event = office.get("events", event_id)
    _span(start, event["duration_minutes"])
    event["start"] = start
    return {"event": {"id": event_id, "start": start}}


def cancel_event(office: Access, event_id: str) -> str:
    """Cancel a meeting for good.

    Args:
        event_id: Id of the meeting.
    """
    return f'Cancelled "{office.remove("events", event_id)["title"]}".'


TOOLS = (
    tool(list_events, "read_only"),
    tool(read_calendar, "read_only"),
    tool(get_event, "read_only"),
    tool(check_availability, "read_only"),
    tool(find_free_slot, "read_only"),
    tool(create_event),
    tool(move_event),
    tool(cancel_event, "destructive"),
)
