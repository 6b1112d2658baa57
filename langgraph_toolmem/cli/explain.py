"""Answers of a memory to one request: `toolmem explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.errors import MissingExtraError
from langgraph_toolmem.base.text import shortened
from langgraph_toolmem.cli.terminal import say

if TYPE_CHECKING:
    from langgraph_toolmem.memory import ToolMemory

MOST: Final = 5
"""Hits of each kind."""
BUDGET: Final = 5.0
"""Seconds to search for a plan."""


def explain(memory: ToolMemory, request: str, user_id: str | None) -> dict[str, Any]:
    """Ask each method of a memory for its answer to a request; learn nothing.

    Returns:
        JSON values: ``next_call`` (as in stream events), ``next_tools``, ``tools``, ``plan``, ``runs``, ``steps``, and
        ``missing``: why a part has no answer, by its name.
    """
    asked = [{"role": "user", "content": request}]
    parts: dict[str, Callable[[], Any]] = {
        "next_call": lambda: memory.inertia.explain(asked, user_id=user_id).to_event(),
        "next_tools": lambda: list(map(asdict, memory.sit.suggest(asked, k=MOST, user_id=user_id))),
        "tools": lambda: [
            {"tool": hit.name, "score": hit.score} for hit in memory.navigator.search(request, k=MOST, user_id=user_id)
        ],
        "plan": lambda: memory.navigator.plan(request, k=1, budget=BUDGET, user_id=user_id).to_dict(),
        "runs": lambda: [
            {"score": found.score, "evidence": found.evidence, "entry": found.entry.to_dict()}
            for found in memory.entries.ranked(request, user_id=user_id)
        ],
        "steps": lambda: list(_steps(memory, request, user_id)),
    }
    found: dict[str, Any] = {"request": request, "missing": {}}
    for name, ask in parts.items():
        try:
            found[name] = ask()
        except MissingExtraError as error:
            found[name] = None
            found["missing"][name] = str(error)
    return found


def _steps(memory: ToolMemory, request: str, user_id: str | None) -> Iterator[dict[str, Any]]:
    from langgraph_toolmem.atoms.planning import pattern

    for hit in memory.atoms.search(request, k=MOST, user_id=user_id):
        atom = hit.atom
        fate = memory.atoms.records([atom.call], user_id=user_id)[atom.call]
        yield {
            "tool": hit.tool,
            "hint": pattern(hit).removeprefix("- "),
            "score": hit.score,
            "needs": list(atom.required_slots),
            "visits": atom.visits,
            "record": {**fate._asdict(), "misleads": fate.misleads},
        }


def show_explanation(found: dict[str, Any]) -> None:
    """Print an explanation."""
    for why in dict.fromkeys(found["missing"].values()):
        say(f"Not looked at: {why}")
    if found["next_call"] is not None:
        _show("Next call", _next_call(found["next_call"]))
    _show("Next tools, as past runs went on", (f"{e['tool']}: {e['evidence']}" for e in found["next_tools"] or ()))
    _show("Tools for the request", (f"{e['tool']} ({e['score']:.2f})" for e in found["tools"] or ()))
    _show("Plan", _plan(found["plan"]))
    _show("Past runs", (line for each in found["runs"] or () for line in _run(each)))
    _show("Steps of past runs", (line for each in found["steps"] or () for line in _step(each)))


def _show(title: str, lines: Iterator[str]) -> None:
    said = list(lines)
    say(title, style="bold")
    for line in said or ["nothing"]:
        say(f"  {line}")


def _next_call(decision: dict[str, Any]) -> Iterator[str]:
    proposal = decision["proposal"]
    if proposal is not None:
        given = ", ".join(f"{name}={value!r}" for name, value in proposal["args"].items())
        yield f"{proposal['tool']}({given}), probability {proposal['confidence']:.2f}; {proposal['evidence']}"
    yield f"{'without the model' if decision['decision'] == 'shortcut' else 'the model is asked'}: {decision['reason']}"


def _plan(plan: dict[str, Any] | None) -> Iterator[str]:
    for chain in (plan or {}).get("chains", ()):
        yield " → ".join(step["tool"] for step in chain["steps"])
        for step in chain["steps"]:
            for feed in step["feeds"]:
                if feed["source"] == "step":
                    yield f"  {step['tool']}.{feed['input']}: {feed['output'] or 'result'} of {feed['origin']}"
        for ask in chain["asks"]:
            where = "nothing found gives it" if ask["system_value"] else "the user says it"
            yield f"  {ask['tool']}.{ask['input']}: {where}"


def _run(found: dict[str, Any]) -> Iterator[str]:
    entry = found["entry"]
    score = entry["score"]
    verdict = "not judged" if score is None else f"went {'well' if score >= 0.5 else 'wrong'} (score {score:g})"
    yield f"{one_line(entry['query'])}: {verdict}"
    yield f"  relevant {found['score']:.2f}; {found['evidence']}"
    yield f"  calls: {' → '.join(call['tool'] for call in entry['calls']) or 'none'}"
    yield from (f"  {one_line(entry[name])}" for name in ("comment", "critique") if entry[name])


def _step(found: dict[str, Any]) -> Iterator[str]:
    record = found["record"]
    yield f"{found['hint']} ({found['score']:.2f})"
    yield f"  seen {found['visits']:,} times, shown {record['shown']:,}, followed {record['followed']:,}"


def one_line(text: str) -> str:
    """Return the text on a line, cut if it is long."""
    return shortened(" ".join(text.split()), 300)
