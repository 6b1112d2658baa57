"""Settings of planning: the arguments of its node and middleware as one value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from langgraph_toolmem.base.checks import expect, is_count, is_share, options_named

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

When = Literal["step", "goal", "turn"]
"""When a planner's model is asked: before each model call of the agent, when what is open has changed or a call has
failed, or once per user turn."""

BUDGET: Final = 400
"""Tokens of the patterns, if nothing else is said."""


@options_named
@dataclass(frozen=True)
class SGASettings:
    """Settings of planning, for ``tool_memory_middleware(memory, planning=SGASettings(…))``.

    Attributes:
        model: says where the run stands and what comes next, in one structured call: a chat model or
            ``"provider:model"``. None: that is read off the messages, without a model call.
        when: when the model is asked; see `When`.
        k: patterns shown, at most.
        beta: weight of what is known against words, 0 to 1.
        budget: tokens of the patterns at most (a quarter of their length in characters is counted); those that do not
            fit are left out, the worst first.
        plain: the published score and no more: one question of state and all that is open, no record, no gate.
    """

    model: BaseChatModel | str | None = None
    when: When = "step"
    k: int = 3
    beta: float = 0.3
    budget: int = BUDGET
    plain: bool = False

    def __post_init__(self) -> None:
        """Checks types and ranges. Raises ConfigurationError that names the field and what is expected."""
        for name in ("k", "budget"):
            expect(self, name, "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "beta", "a share from 0 to 1", is_share)
        expect(self, "when", f"one of {', '.join(map(repr, get_args(When)))}", lambda v: v in get_args(When))
        expect(self, "plain", "True or False", lambda v: isinstance(v, bool))

    @classmethod
    def paper(cls, **changes: Any) -> SGASettings:
        """SGA-MCTS as published: (1 − β) · cos + β · |Λ ∩ S| / (|S| + ε), the three best atoms, whatever they score."""
        return cls(**{"plain": True, **changes})

    def with_(self, **changes: Any) -> SGASettings:
        """A copy with some fields changed."""
        return replace(self, **changes)


__all__ = ["SGASettings"]
