"""The step of atoms at a model call: it shows single steps that worked in other runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from langgraph_toolmem.atoms import Atoms
from langgraph_toolmem.base.checks import checks_options, expect, is_bool, is_positive_count, is_share
from langgraph_toolmem.core.catalogue import without_own
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, read_tools
from langgraph_toolmem.turn.ask import StepGenerator
from langgraph_toolmem.turn.hints import Line, Scope, StepOutput
from langgraph_toolmem.turn.step import Call, Step

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.atoms.planning import Planned
    from langgraph_toolmem.atoms.retrieve import AtomHit


@checks_options
@dataclass(frozen=True)
class SGASettings:
    """Settings of planning, for ``tool_memory_middleware(memory, planning=SGASettings(…))``.

    Attributes:
        model: states the situation of the run and the next goals before each model call of the agent: a chat model or
            ``"provider:model"``. Defaults to None: both are read from the messages, without a model call.
        k: most patterns to show.
        beta: weight of known types against words, 0 to 1.
        budget: most tokens of the patterns (a quarter of their length in characters); the worst are left out.
        plain: If True, use only the published score: one text of state and all open goals, without record and
            threshold. It is computed over words, among the atoms nearest to each goal.
    """

    model: BaseChatModel | str | None = None
    k: int = 3
    beta: float = 0.3
    budget: int = 400
    plain: bool = False

    def __post_init__(self) -> None:
        """Check types and ranges; raise ConfigurationError with the field and the expected value."""
        for name in ("k", "budget"):
            expect(self, name, "a whole number from 1", is_positive_count)
        expect(self, "beta", "a share from 0 to 1", is_share)
        expect(self, "plain", "True or False", is_bool)

    @classmethod
    def paper(cls, **changes: Any) -> SGASettings:
        """Return SGA-MCTS as published: (1 − β) · cos + β · |Λ ∩ S| / (|S| + ε), the three best atoms."""
        changes.setdefault("plain", True)
        return cls(**changes)


class PlanHints(Step[Atoms]):
    """Shows steps that worked at a similar point of other runs; see `SGAPlanner` for the arguments.

    Args:
        method: owner of the step.
        settings: how atoms are looked up and shown.
        tools: the agent's tools, if the call does not name them. Defaults to the tools that the memory knows.
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
        self.specs: Mapping[str, ToolSpec] | None = None
        if tools is not None:
            self.specs = without_own(read_tools(tools))
        self._planner = HintPlanner(method, settings, failed=self._failed)

    def compute(self, call: Call) -> StepGenerator[Planned]:
        """Return the hints for this model call."""
        specs = call.tools
        if specs is None:
            specs = self._available(call)
        if specs is not None:
            specs = without_own(specs)
        planning = self._planner.planning(call.messages, specs, call.owner)
        return (yield from planning)

    def render(self, call: Call, found: Planned) -> StepOutput:
        """Return the hints as patterns."""
        from langgraph_toolmem.atoms.planning import ATOMS_HEAD

        lines = list(found.lines)
        hit_of: dict[Line, AtomHit] = {}
        if found.shown:
            user = self.core.users.of(call.user_id)
            lines = []
            for hit, line in zip(found.shown, found.lines, strict=True):
                # By call, not by atom: a call is withheld by its own record, in any wording.
                on_trial = line._replace(item=self.method.keeping.rows.key(hit.atom.call, user))
                lines.append(on_trial)
                hit_of[on_trial] = hit

        def seen(in_request: Sequence[Line]) -> Sequence[Line]:
            # Recorded here, where the lines with room in the request are known: the ledger counts only shown lines.
            kept = self.drawn(call, in_request)
            hits = [hit for line, hit in hit_of.items() if line in kept]
            if found.run is not None and hits:
                with self.errors:
                    self.method.note_shown(found.run, hits, call.user_id)
            return kept

        planner_calls = int(found.event.get("model_calls", 0))
        return StepOutput(
            lines=self.on_trial(call, lines),
            head=ATOMS_HEAD if found.shown else "",
            sure=found.sure,
            event=found.event,
            notes={"toolmem.hints": len(found.shown), "toolmem.planner_calls": planner_calls},
            seen=seen,
        )

    def _failed(self, error: Exception) -> None:
        self.errors.failed(error)  # read at each error: a node puts its own log there after the step is made

    def _available(self, call: Call) -> Mapping[str, ToolSpec] | None:
        """Return the tools that the model is offered at this step; None if unknown."""
        specs = self.specs
        if specs is None:
            specs = self.core.catalogue.specs
        available = {name: spec for name, spec in specs.items() if call.allows(name)}
        # None, not an empty dict: unknown tools do not mean that there are none.
        return available or None
