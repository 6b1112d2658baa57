"""`toolmem recall`: which past runs a request brings up, and why; `toolmem lessons`: what alike ones say together."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import count, shortened
from langgraph_toolmem.core.contributions import Answer, Command

if TYPE_CHECKING:
    from langgraph_toolmem.entries.entry import Entry
    from langgraph_toolmem.entries.lesson import Lesson
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


def lessons(
    method: Any,
    lesson_id: Annotated[str | None, typer.Argument(metavar="LESSON", help="The id of one; else all.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back: its runs are shown by themselves again.")] = False,
    share: Annotated[
        bool, typer.Option("--share", help="Show it to all users of the namespace, its user's values masked.")
    ] = False,
    team: Annotated[bool, typer.Option("--team", help="Of those that all users are shown.")] = False,
    user_id: str | None = None,
) -> Answer:
    """Show what alike runs say together, in place of each of them; take one back, or mark it for a team."""
    found, scope = method.lessons, "team" if team else "user"
    if (undo or share) and (lesson_id is None or undo == share):
        raise InputError("name one lesson, with either --undo or --share")
    if undo:
        chosen = [found.undo(lesson_id, user_id=user_id, scope=scope)]
    elif share:
        chosen = [found.share(lesson_id, user_id=user_id)]
    else:
        chosen = found(*([lesson_id] if lesson_id else ()), user_id=user_id, scope=scope)
    lines = [line for each in chosen for line in _lesson(each)]
    none = "No such lesson." if lesson_id else "No lessons yet."
    return Answer({"lessons": [each.to_dict() for each in chosen]}, lines or [none])


def _lesson(lesson: Lesson) -> Iterator[str]:
    state = "undone" if lesson.undone else "retired" if lesson.retired else f"for a {lesson.scope}"
    yield f"{lesson.id}: {one_line(lesson.query)}"
    yield f"   {count(lesson.times, 'run')} went {'wrong' if lesson.failed else 'well'}, {state}"
    yield f"   calls: {' → '.join(lesson.tools) or 'none'}"
    yield from (f"   {line}" for line in lesson.words.splitlines())
    yield f"   shown {lesson.recalled:,} times, helped {lesson.helped:,}, hurt {lesson.hurt:,}"


def verdict_in_words(entry: Entry) -> str:
    """`went well (score 1)`, `went wrong (score 0)`, `nobody judged it`."""
    if entry.score is None:
        return "nobody judged it"
    by = ", by a model" if entry.by_judge else ""
    return f"{'went well' if entry.good else 'went wrong'} (score {entry.score:g}{by})"


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
    yield from [f"   lesson: {entry.lesson}"] if entry.lesson else []
    yield f"   {record}; from {when:%Y-%m-%d %H:%M} UTC, made by: {entry.made_by}"


COMMANDS = (Command(recall), Command(lessons, writes=lambda given: given["undo"] or given["share"]))
