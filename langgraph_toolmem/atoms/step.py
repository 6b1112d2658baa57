"""What atoms do at a model call: single steps that worked elsewhere are shown, and repeats are taken back once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage

from langgraph_toolmem.atoms import Atoms
from langgraph_toolmem.atoms.render import HEAD, to_lines
from langgraph_toolmem.atoms.rules import Complaint, complaints
from langgraph_toolmem.atoms.settings import SGASettings
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.models import resolve_model
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.catalogue import without_own
from langgraph_toolmem.runs.run import OWN_TOOLS, Run, UserMessage
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, read_tools
from langgraph_toolmem.turn.ask import Asking
from langgraph_toolmem.turn.call import Call, Said
from langgraph_toolmem.turn.hints import PLANNING, Planning, merge_planning, planning_now
from langgraph_toolmem.turn.step import Keeps, Scope, Step

if TYPE_CHECKING:
    from langgraph_toolmem.atoms.planning import Planned

GUARD: Final = "sga_guard"
_HEAD: Final = "Your last answer was not carried out:"
_TAIL: Final = "Go on in another way. If exactly that call is right all the same, make it again."

Complaints = list[tuple[str, Complaint]]
"""What the decision rules say against calls, each with the call's tool."""


class PlanHints(Step[Atoms]):
    """Shows steps that worked at such a point of other runs; see `SGAPlanner` for the arguments.

    Args:
        method: whose step it is.
        settings: how atoms are looked up and shown.
        tools: the agent's tools, where the call does not say; those that the memory knows if None.
    """

    role: ClassVar[str] = "sga"
    about: ClassVar[str] = "shows steps that worked at such a point of other runs; calls no model by default"
    scope: Scope = "point"
    keeps: ClassVar[Keeps] = {PLANNING: (Planning, merge_planning)}

    def __init__(
        self, method: Atoms, settings: SGASettings | None = None, *, tools: Iterable[ToolLike] | None = None
    ) -> None:
        super().__init__(method)
        from langgraph_toolmem.atoms.planning import HintPlanner  # only when planning is used

        settings = settings or SGASettings()
        self.settings = settings.with_(model=_model(settings.model))
        self.reviews = self.settings.guard
        self.specs = None if tools is None else without_own(read_tools(tools))
        self._planner = HintPlanner(method, self.settings, failed=lambda error: self.failed(error))

    def look(self, call: Call) -> Asking[Planned]:
        """The hints for this model call."""
        specs = call.tools if call.tools is not None else self._at_hand(call)
        kept = planning_now(call.state)
        who = {"thread_id": call.thread_id, "user_id": call.user_id}
        return (yield from self._planner.planning(call.messages, _without_own(specs), kept, **who))

    def say(self, call: Call, found: Planned) -> Said:
        """Them, as patterns."""
        calls = int(found.event.get("model_calls", 0))
        notes = {"toolmem.hints": len(found.shown), "toolmem.planner_calls": calls}
        state = {PLANNING: found.record}
        if found.done is not None:
            return Said(found.text, sure=found.done.share, state=state, event=found.event, notes=notes)
        lines = to_lines(found.shown, rules=self.settings.rules)
        sure = max((hit.similarity for hit in found.shown), default=0.0)
        return Said(lines=lines, head=HEAD, sure=sure, state=state, event=found.event, notes=notes)

    def review(self, call: Call, answer: Sequence[Any]) -> str:
        """The decision rules: a call of the run that is repeated without a change."""
        run = self.core.read(call.messages, call.thread_id)
        return complaint_text(complaints_of(run, answer, self.core.catalogue.marked(call.tools)))

    def reviewed(self, call: Call, before: Sequence[Any], again: Sequence[Any] | None) -> tuple[str, Said]:
        """What to tell of it."""
        run, specs = self.core.read(call.messages, call.thread_id), self.core.catalogue.marked(call.tools)
        second = None if again is None else complaints_of(run, again, specs)
        outcome = "not answered" if second is None else "passed" if second else "changed"
        return GUARD, guard_said(complaints_of(run, before, specs), outcome)

    def _at_hand(self, call: Call) -> Mapping[str, ToolSpec] | None:
        """The tools that the model is offered at this step; None if nobody knows."""
        specs = self.core.catalogue.specs if self.specs is None else self.specs
        return {name: spec for name, spec in specs.items() if call.allows(name)} or None


def _model(model: Any) -> BaseChatModel | None:
    if isinstance(model, str):
        return resolve_model(model, name="model")
    if model is not None and not isinstance(model, BaseChatModel):
        raise ConfigurationError(f'model is a chat model or "provider:model", not {type(model).__name__}.')
    return model


def _without_own(specs: Mapping[str, ToolSpec] | None) -> dict[str, ToolSpec] | None:
    return None if specs is None else without_own(specs)


def complaints_of(run: Run, answer: Sequence[Any], specs: Mapping[str, ToolSpec]) -> Complaints:
    """What the decision rules say against the calls of an answer."""
    calls = [
        (call["name"], call["args"])
        for message in answer
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["name"] not in OWN_TOOLS
    ]
    return [(calls[each.call][0], each) for each in complaints(run, calls, specs)]


def complaint_text(found: Complaints) -> str:
    """What the model is told; "" if there is no complaint."""
    return "\n".join([_HEAD, *(f"- {complaint.text}" for _, complaint in found), _TAIL]) if found else ""


def guard_said(found: Complaints, outcome: str) -> Said:
    """What is told of complaints.

    The outcome is "taken back" (in a graph), "changed", "not answered" (in an agent), or "passed": the second answer
    is against the rules too, and stands.
    """
    against = [{"tool": tool, "rule": complaint.rule, "text": complaint.text} for tool, complaint in found]
    return Said(event={"complaints": against, "outcome": outcome}, notes={"toolmem.complaints": len(found)})


def guarded_point(run: Run) -> str:
    """The point of a run at which an answer is taken back once: the latest user message and the latest call."""
    said = call = ""
    for event in run.events:
        if isinstance(event, UserMessage):
            said = event.key
        elif event.steps:
            call = event.steps[-1].key
    return digest("point", said, call)
