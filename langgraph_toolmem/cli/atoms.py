"""`toolmem atoms`: which atoms a memory keeps, which of them a goal brings up, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import count
from langgraph_toolmem.core.contributions import Answer, Command

if TYPE_CHECKING:
    from langgraph_toolmem.atoms.record import AtomRecord
    from langgraph_toolmem.atoms.retrieve import AtomHit


def atoms(
    method: Any,
    goal: Annotated[
        str | None, typer.Argument(metavar="[GOAL]", help="What is to be achieved next, in words [default: list all].")
    ] = None,
    state: Annotated[str, typer.Option(metavar="TEXT", help="With a goal: where the run stands, in words.")] = "",
    known: Annotated[
        list[str] | None,
        typer.Option(
            "--known", metavar="TYPE[=VALUE]", help="With a goal: what is known, as ORDER_ID or ORDER_ID=W2; again."
        ),
    ] = None,
    most: Annotated[int, typer.Option("--most", "-k", min=1, help="Atoms shown, at most.")] = 20,
    user_id: str | None = None,
) -> Answer:
    """Show what a memory keeps for planning: single steps of what worked, and how their hints fared.

    Without a goal all atoms, those of most visits first, also those that are shown no longer because they mislead.
    With one, what an agent would be shown, best first, one for each tool. Writes nothing and does not disturb a process
    that does.
    """
    from langgraph_toolmem.atoms.render import pattern
    from langgraph_toolmem.atoms.retrieve import AtomHit

    if goal is not None and not goal.strip():
        raise InputError("the goal is empty; without one all atoms are listed")
    if goal is None and (known or state):
        raise InputError("--known and --state are for a goal: what is to be achieved next?")
    all_of_them = method.all(user_id=user_id)
    if goal is None:
        hits = [AtomHit(atom, 0.0, 0.0, 0.0, atom.tool) for atom in all_of_them[:most]]
    else:
        hits = method.search(goal, state=state, slots=_known(known or []), k=most, user_id=user_id)
    records = method.records((hit.atom.id for hit in hits), user_id=user_id)
    searched = goal is not None
    lines = []
    if not hits:
        lines.append("None of the atoms fits." if all_of_them else "No atoms yet.")
    for number, hit in enumerate(hits, start=1):
        lines.append(f"{number}. {pattern(hit).removeprefix('- ')}")
        lines += [f"   {line}" for line in _lines(hit, records[hit.atom.id], searched=searched)]
    if not searched and len(hits) < len(all_of_them):
        lines.append(f"{count(len(all_of_them) - len(hits), 'more atom')}; --most shows more")
    shown = [_plain(hit, records[hit.atom.id], searched=searched) for hit in hits]
    return Answer({"goal": goal, "atoms": len(all_of_them), "shown": shown}, lines)


def _known(given: list[str]) -> dict[str, list[str]]:
    """What ``--known`` names; a type without a value stands for itself."""
    known: dict[str, list[str]] = {}
    for each in given:
        label, equals, value = each.partition("=")
        label = label.strip().strip("<>").upper()
        if not label:
            raise InputError(f"--known takes TYPE or TYPE=VALUE, not {each!r}")
        known.setdefault(label, []).append(value if equals else f"<{label}>")
    return known


def _plain(hit: AtomHit, record: AtomRecord, *, searched: bool) -> dict[str, Any]:
    from langgraph_toolmem.atoms.atoms import to_plain

    plain = {"atom": to_plain(hit.atom), "record": {**record._asdict(), "misleads": record.misleads}}
    if not searched:
        return plain
    scores = {name: getattr(hit, name) for name in ("score", "similarity", "feasibility")}
    return {**plain, **scores, "filled": dict(hit.filled)}


def _lines(hit: AtomHit, record: AtomRecord, *, searched: bool) -> Iterator[str]:
    atom = hit.atom
    if searched:
        yield f"score {hit.score:.2f}: likeness {hit.similarity:.2f}, share of what it needs {hit.feasibility:.2f}"
    if atom.state:
        yield f"where: {atom.state}"
    yield f"needs: {', '.join(atom.required_slots) or 'nothing'}; gives: {', '.join(atom.produces) or 'nothing new'}"
    fate = f"shown {record.retrieved:,} times, followed {record.followed:,}"
    if record.succeeded or record.failed:
        fate += f"; runs that followed it went well {record.succeeded:,}, badly {record.failed:,}"
    origin = "runs" if atom.origin == "runs" else "a search"
    yield f"from {count(atom.visits, 'step')} of {origin}, value {atom.value:.2f}; {fate}"
    if record.misleads:
        yield "it misleads: agents are shown it no longer"


COMMANDS = (Command(atoms),)
