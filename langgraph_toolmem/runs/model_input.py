"""The part of the model's request outside the thread's messages: prompt and run context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Primitive: TypeAlias = "str | int | float | bool"


@dataclass(frozen=True, slots=True)
class ModelInput:
    """Text and data that the model sees besides the thread's messages.

    Attributes:
        system: text of the system prompt, and of user messages that are in the request but not in the state.
        context: primitive fields of the run's context, by name.
        complete: True if the input is complete, because the memory is the last before the model. If False, prompt and
            context give no values.
    """

    system: str = ""
    context: Mapping[str, Primitive] = field(default_factory=dict)
    complete: bool = False


UNSEEN: Final = ModelInput()
"""The input of a model call whose prompt the memory cannot see."""
