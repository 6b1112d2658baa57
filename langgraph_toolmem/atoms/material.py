"""A run as a planner's model reads it: bounded texts under titles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.situation import Abouts, Situation
from langgraph_toolmem.runs.run import ExecutedCall, Run, UserMessage
from langgraph_toolmem.runs.values import canon

MAX_REQUEST: Final = 2_000
"""Characters of what the user said."""
MAX_STEPS: Final = 8
"""Latest calls."""
MAX_CALL: Final = 600
"""Characters of a call with its answer."""
MAX_KNOWN: Final = 40
MAX_TOOLS: Final = 60
MAX_ABOUT: Final = 100


def material_of(
    run: Run, where: Situation, known: Known, goals: Iterable[str], tools: Iterable[str], abouts: Abouts
) -> dict[str, str]:
    """The material by title.

    Args:
        run: the history as far as it is still there.
        where: where it stands.
        known: what is known, by type.
        goals: what is open, without a model.
        tools: names of the tools at hand; the model reads what they do.
        abouts: what tools do.
    """
    asked = [event.text for event in run.events if isinstance(event, UserMessage)]
    facts = [f"{label} = {canon(known.latest(label))}" for label in known.to_plain()][-MAX_KNOWN:]
    does = [abouts.short(name) or name for name in list(tools)[:MAX_TOOLS]]
    return {
        "What the user said before": "\n".join(asked[:-1])[-MAX_REQUEST:],
        "What the user asks for": asked[-1][:MAX_REQUEST] if asked else "(the message is gone; see the draft)",
        "Calls so far": "\n".join(map(_line, _steps(run)[-MAX_STEPS:])) or "(none)",
        "Known": "\n".join(facts) or "(nothing)",
        "What the tools can do": "\n".join(f"- {about[:MAX_ABOUT]}" for about in does),
        "Draft": f"state: {where.state}\nopen: {' | '.join(goals)}",
    }


def said_in(run: Run) -> str:
    """All that was said, called and answered, in lower case and with single blanks."""
    parts: list[str] = []
    for event in run.events:
        if isinstance(event, UserMessage):
            parts.append(event.text)
        else:
            parts += [part for step in event.steps for part in (canon(step.args), canon(step.output))]
    return " ".join(" ".join(parts).split()).lower()


def called(run: Run) -> list[str]:
    """The tools that were called, in order."""
    return list(dict.fromkeys(step.tool for step in _steps(run)))


def _steps(run: Run) -> list[ExecutedCall]:
    return [step for event in run.events if not isinstance(event, UserMessage) for step in event.steps]


def _line(step: ExecutedCall) -> str:
    line = f"{step.tool}({canon(step.args)}) -> {step.status}: {canon(step.output)}"
    return line if len(line) <= MAX_CALL else f"{line[: MAX_CALL - 1]}…"
