"""Why a call is not made without the model: text for a person, and a code that quotes nobody."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

Code: TypeAlias = Literal[
    "record_is_sure",
    "nothing_seen",
    "low_confidence",
    "unproven",
    "unfamiliar",
    "cases",
    "answer_in_words",
    "no_value",
    "invalid_arguments",
    "repeat",
    "unknown_tool",
    "excluded",
    "needs_approval",
    "destructive",
    "steers_the_run",
    "not_named",
    "stopped",
    "budget",
    "shadow",
    "audit",
    "held_out",
    "pace",
    "tool_choice",
    "provider",
    "switched_off",
    "not_the_models_turn",
    "other",
]
REASONS: Final = frozenset(get_args(Code))
"""All values of ``toolmem.reason``; "record_is_sure" is that of a call that is made."""


class Reason(str):
    """A reason's text, which may quote the user or an argument, with its code."""

    code: Code

    def __new__(cls, code: Code, text: str) -> Reason:
        made = super().__new__(cls, text)
        made.code = code
        return made

    def __getnewargs__(self) -> tuple[Code, str]:  # type: ignore[override]
        """For copies."""
        return self.code, str(self)
