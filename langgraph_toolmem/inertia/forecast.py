"""The shortcut's forecast of the model's answer: the input of prefetch and of look-ups before the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from langchain_core.tools import BaseTool

from langgraph_toolmem.inertia.decision import Decision
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.turn.step import Call, Forecast


@dataclass(frozen=True, slots=True)
class InertiaForecast(Forecast):
    """The decision about a model turn.

    Attributes:
        decision: the decision, with the predicted turns.
        policy: the policy that decided.
        offered: names of the tools that were offered.
        lookups: tools that may be looked up before the model is asked, by name.
    """

    decision: Decision
    policy: InertiaPolicy
    offered: frozenset[str]
    lookups: Mapping[str, BaseTool] = field(default_factory=dict)


def forecast_of(call: Call) -> InertiaForecast | None:
    """Return the shortcut's forecast of a model call, or None."""
    forecast = call.forecast
    return forecast if isinstance(forecast, InertiaForecast) else None
