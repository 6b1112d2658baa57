"""The step of atoms at a model call: single steps that worked elsewhere are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.language_models import BaseChatModel

from langgraph_toolmem.atoms import Atoms
from langgraph_toolmem.atoms.render import HEAD, to_lines
from langgraph_toolmem.atoms.settings import SGASettings
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.models import resolve_model
from langgraph_toolmem.core.catalogue import without_own
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, read_tools
from langgraph_toolmem.turn.ask import StepGenerator
from langgraph_toolmem.turn.call import Call, Scope, StepOutput
from langgraph_toolmem.turn.hints import PLANNING, Planning, merge_planning, planning_now
from langgraph_toolmem.turn.step import Keeps, Step

if TYPE_CHECKING:
    from langgraph_toolmem.atoms.planning import Planned


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
        self.specs = None if tools is None else without_own(read_tools(tools))
        self._planner = HintPlanner(method, self.settings, failed=lambda error: self.failed(error))

    def compute(self, call: Call) -> StepGenerator[Planned]:
        """The hints for this model call."""
        specs = call.tools if call.tools is not None else self._at_hand(call)
        kept = planning_now(call.state)
        who = {"thread_id": call.thread_id, "user_id": call.user_id}
        return (yield from self._planner.planning(call.messages, _without_own(specs), kept, **who))

    def render(self, call: Call, found: Planned) -> StepOutput:
        """Them, as patterns."""
        calls = int(found.event.get("model_calls", 0))
        notes = {"toolmem.hints": len(found.shown), "toolmem.planner_calls": calls}
        state = {PLANNING: found.record}
        if found.done is not None:
            return StepOutput(found.text, sure=found.done.share, state=state, event=found.event, notes=notes)
        lines = to_lines(found.shown)
        sure = max((hit.similarity for hit in found.shown), default=0.0)
        return StepOutput(lines=lines, head=HEAD, sure=sure, state=state, event=found.event, notes=notes)

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
