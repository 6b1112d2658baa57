"""`toolmem recall`: which past runs a request brings up, and why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_toolmem.base.text import count, shortened
from langgraph_toolmem.core.contributions import Answer, Command

if TYPE_CHECKING:
    from langgraph_toolmem.entries.entry import Entry
    from langgraph_toolmem.entries.recollection import RecalledEntry


def recall(
    method: Any,
    query: Annotated[str, typer.Argument(metavar="REQUEST", help="What a user says.")],
    nearest: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Show the N most similar ones, whether they are worth recalling or not."),
    ] = None,
    user_id: str | None = None,
) -> Answer:
    """Show which past runs would be recalled for a request, and why.

    Runs that nobody judged are among them; an agent shows those to its model only if it was told to. Writes nothing
    and does not disturb a process that does.
    """
    from langgraph_toolmem.entries.policy import RecallPolicy

    policy = None if nearest is None else RecallPolicy(kind="fixed", n=nearest, max_n=nearest)
    found = method.ranked(query, user_id=user_id, policy=policy, k=nearest)
    core = method.core
    known = 0 if core.vectors.empty else method.rows.count(core.users.of(user_id))
    waiting = core.jobs.report()["pending"]
    lines = []
    if not found:
        what = "worth recalling for this" if nearest is None else "like this at all"
        lines.append(f"None of {count(known, 'past run')} is {what}." if known else "No past runs yet.")
    for number, each in enumerate(found, start=1):
        lines += _lines(number, each, of_fixed=nearest is not None)
    if waiting:
        lines.append(f"Not looked at: {waiting:,} entries and verdicts that still have to be written.")
    shown = [{"score": each.score, "evidence": each.evidence, "entry": each.entry.to_dict()} for each in found]
    return Answer({"query": query, "entries": known, "waiting": waiting, "recalled": shown}, lines)


def verdict_in_words(entry: Entry) -> str:
    """`went well (score 1)`, `went wrong (score 0)`, `nobody judged it`."""
    if entry.score is None:
        return "nobody judged it"
    return f"{'went well' if entry.good else 'went wrong'} (score {entry.score:g})"


def one_line(text: str) -> str:
    """The text on a line, cut if it is long."""
    return shortened(" ".join(text.split()), 300)


def _lines(number: int, each: RecalledEntry, *, of_fixed: bool) -> Iterator[str]:
    entry = each.entry
    yield f"{number}. {one_line(entry.query)}"
    yield f"   {verdict_in_words(entry)}{f': {one_line(entry.comment)}' if entry.comment else ''}"
    yield f"   {'similarity' if of_fixed else 'probably relevant'}: {each.score:.2f}; {each.evidence}"
    yield f"   calls: {' → '.join(call.tool for call in entry.calls) or 'none'}"
    yield from (f"   {line}" for line in entry.critique.splitlines())
    record = f"shown {entry.recalled:,} times, helped {entry.helped:,}, hurt {entry.hurt:,}"
    when = datetime.fromtimestamp(entry.time, tz=timezone.utc)
    yield f"   {record}; from {when:%Y-%m-%d %H:%M} UTC, made by: {entry.made_by}"


COMMANDS = (Command(recall),)
