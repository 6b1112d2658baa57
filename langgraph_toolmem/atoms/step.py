"""The step of atoms at a model call: single steps that worked elsewhere are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from langgraph_toolmem.atoms import Atoms
from langgraph_toolmem.atoms.settings import SGASettings
from langgraph_toolmem.core.catalogue import without_own
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, read_tools
from langgraph_toolmem.turn.ask import StepGenerator
from langgraph_toolmem.turn.step import Call, Scope, Step, StepOutput

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

    def __init__(
        self, method: Atoms, settings: SGASettings | None = None, *, tools: Iterable[ToolLike] | None = None
    ) -> None:
        super().__init__(method)
        from langgraph_toolmem.atoms.models import chat_model
        from langgraph_toolmem.atoms.planning import HintPlanner  # only when planning is used

        settings = settings or SGASettings()
        if settings.model is not None:
            settings = replace(settings, model=chat_model(settings.model, "model"))
        self.settings = settings
        self.specs = None if tools is None else without_own(read_tools(tools))
        self._planner = HintPlanner(method, settings, failed=lambda error: self.errors.failed(error))

    def compute(self, call: Call) -> StepGenerator[Planned]:
        """Return the hints for this model call."""
        specs = call.tools if call.tools is not None else self._available(call)
        specs = None if specs is None else without_own(specs)
        who = {"thread_id": call.thread_id, "user_id": call.user_id}
        return (yield from self._planner.planning(call.messages, specs, **who))

    def render(self, call: Call, found: Planned) -> StepOutput:
        """Return them as patterns."""
        from langgraph_toolmem.atoms.planning import HEAD

        calls = int(found.event.get("model_calls", 0))
        return StepOutput(
            lines=found.lines,
            head=HEAD if found.shown else "",
            sure=found.sure,
            event=found.event,
            notes={"toolmem.hints": len(found.shown), "toolmem.planner_calls": calls},
        )

    def _available(self, call: Call) -> Mapping[str, ToolSpec] | None:
        """Return the tools that the model is offered at this step; None if nobody knows."""
        specs = self.core.catalogue.specs if self.specs is None else self.specs
        return {name: spec for name, spec in specs.items() if call.allows(name)} or None
