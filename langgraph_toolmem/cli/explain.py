"""Answers of a memory to one request: `toolmem explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.errors import MissingExtraError
from langgraph_toolmem.base.text import one_line, shortened
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
    explained = _ExplainedRequest(memory, request, user_id)
    parts: dict[str, Callable[[], Any]] = {
        "next_call": explained.next_call,
        "next_tools": explained.next_tools,
        "tools": explained.tools,
        "plan": explained.plan,
        "runs": explained.runs,
        "steps": explained.steps,
    }
    explanation: dict[str, Any] = {"request": request, "missing": {}}
    for name, ask in parts.items():
        try:
            explanation[name] = ask()
        except MissingExtraError as error:  # the other methods still answer
            explanation[name] = None
            explanation["missing"][name] = str(error)
    return explanation


class _ExplainedRequest:
    """A request that each method is asked about; the answers are JSON values."""

    def __init__(self, memory: ToolMemory, request: str, user_id: str | None) -> None:
        self._memory, self._request, self._user_id = memory, request, user_id
        self._messages = [{"role": "user", "content": request}]

    def next_call(self) -> Any:
        return self._memory.inertia.explain(self._messages, user_id=self._user_id).to_event()

    def next_tools(self) -> Any:
        hints = self._memory.sit.suggest(self._messages, k=MOST, user_id=self._user_id)
        return [asdict(hint) for hint in hints]

    def tools(self) -> Any:
        hits = self._memory.navigator.search(self._request, k=MOST, user_id=self._user_id)
        return [{"tool": hit.name, "score": hit.score} for hit in hits]

    def plan(self) -> Any:
        return self._memory.navigator.plan(self._request, k=1, budget=BUDGET, user_id=self._user_id).to_dict()

    def runs(self) -> Any:
        runs = []
        for run in self._memory.entries.ranked(self._request, user_id=self._user_id):
            runs.append({"score": run.score, "evidence": run.evidence, "entry": run.entry.to_dict()})
        return runs

    def steps(self) -> Any:
        return list(_steps(self._memory, self._request, self._user_id))


def _steps(memory: ToolMemory, request: str, user_id: str | None) -> Iterator[dict[str, Any]]:
    from langgraph_toolmem.atoms.planning import pattern

    for hit in memory.atoms.search(request, k=MOST, user_id=user_id):
        atom = hit.atom
        fate = memory.atoms.records([atom.call], user_id=user_id)[atom.call]
        yield {
            "tool": hit.tool,
            "hint": pattern(hit).removeprefix("- "),  # the mark of a list in a prompt
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
    # A part without an answer is None.
    next_tools, tools = found["next_tools"] or (), found["tools"] or ()
    _show("Next tools, as past runs went on", [f"{hit['tool']}: {hit['evidence']}" for hit in next_tools])
    _show("Tools for the request", [f"{hit['tool']} ({hit['score']:.2f})" for hit in tools])
    _show("Plan", _plan(found["plan"]))
    _show("Past runs", _lines_of(found["runs"], _run))
    _show("Steps of past runs", _lines_of(found["steps"], _step))


def _lines_of(
    parts: Iterable[dict[str, Any]] | None, write: Callable[[dict[str, Any]], Iterator[str]]
) -> Iterator[str]:
    for part in parts or ():
        yield from write(part)


def _show(title: str, lines: Iterable[str]) -> None:
    said = list(lines)
    say(title, style="bold")
    for line in said or ["nothing"]:
        say(f"  {line}")


def _next_call(decision: dict[str, Any]) -> Iterator[str]:
    proposal = decision["proposal"]
    if proposal is not None:
        given = ", ".join([f"{name}={value!r}" for name, value in proposal["args"].items()])
        yield f"{proposal['tool']}({given}), probability {proposal['confidence']:.2f}; {proposal['evidence']}"
    outcome = "the model is asked"
    if decision["decision"] == "shortcut":
        outcome = "without the model"
    yield f"{outcome}: {decision['reason']}"


def _plan(plan: dict[str, Any] | None) -> Iterator[str]:
    for calls in (plan or {}).get("chains", ()):
        yield " → ".join([step["tool"] for step in calls["steps"]])
        for step in calls["steps"]:
            yield from _feeds(step)
        for ask in calls["asks"]:
            source = "the user says it"
            if ask["system_value"]:
                source = "nothing found gives it"
            yield f"  {ask['tool']}.{ask['input']}: {source}"


def _feeds(step: dict[str, Any]) -> Iterator[str]:
    for feed in step["feeds"]:
        if feed["source"] == "step":
            yield f"  {step['tool']}.{feed['input']}: {feed['output'] or 'result'} of {feed['origin']}"


def _run(found: dict[str, Any]) -> Iterator[str]:
    entry = found["entry"]
    calls = " → ".join([call["tool"] for call in entry["calls"]]) or "none"
    yield f"{_short_line(entry['query'])}: {_score_in_words(entry['score'])}"
    yield f"  relevant {found['score']:.2f}; {found['evidence']}"
    yield f"  calls: {calls}"
    for text in (entry["comment"], entry["critique"]):
        if text:
            yield f"  {_short_line(text)}"


def _score_in_words(score: float | None) -> str:
    if score is None:
        return "not judged"
    if score >= 0.5:
        return f"went well (score {score:g})"
    return f"went wrong (score {score:g})"


def _step(found: dict[str, Any]) -> Iterator[str]:
    record = found["record"]
    yield f"{found['hint']} ({found['score']:.2f})"
    yield f"  seen {found['visits']:,} times, shown {record['shown']:,}, followed {record['followed']:,}"


def _short_line(text: str) -> str:
    most_chars = 300
    return shortened(one_line(text), most_chars)
