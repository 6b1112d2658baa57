"""Settings of planning: the arguments of its node and middleware as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.checks import expect, is_count, is_share

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

BUDGET: Final = 400
"""Tokens of the patterns by default."""


@dataclass(frozen=True)
class SGASettings:
    """Settings of planning, for ``tool_memory_middleware(memory, planning=SGASettings(…))``.

    Attributes:
        model: says before each model call of the agent where the run stands and what comes next: a chat model or
            ``"provider:model"``. Defaults to None: both are read off the messages, without a model call.
        k: patterns shown, at most.
        beta: weight of what is known against words, 0 to 1.
        budget: tokens of the patterns at most (a quarter of their length in characters); the worst are left out.
        plain: if True, the published score only: one text of state and all open goals, no record, no threshold. It is
            computed over words, among the atoms nearest to each goal.
    """

    model: BaseChatModel | str | None = None
    k: int = 3
    beta: float = 0.3
    budget: int = BUDGET
    plain: bool = False

    def __post_init__(self) -> None:
        """Check types and ranges; raise ConfigurationError with the field and what is expected."""
        for name in ("k", "budget"):
            expect(self, name, "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "beta", "a share from 0 to 1", is_share)
        expect(self, "plain", "True or False", lambda v: isinstance(v, bool))

    @classmethod
    def paper(cls, **changes: Any) -> SGASettings:
        """Return SGA-MCTS as published: (1 − β) · cos + β · |Λ ∩ S| / (|S| + ε), the three best atoms."""
        return cls(**{"plain": True, **changes})


__all__ = ["SGASettings"]
