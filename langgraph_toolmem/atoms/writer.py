"""Atoms in a chat model's words: each kind of step is asked about once.

What a chat model says of a step (`abstract.Pattern`) holds for every step with the same model-free atom, so that its
answer is remembered and put to use again: an agent that does the same things every day asks about few steps.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from langgraph_toolmem.atoms.abstract import ASIDE, Pattern, applied, asked
from langgraph_toolmem.atoms.atoms import Atom, from_plain, to_plain
from langgraph_toolmem.atoms.extract import Extracted
from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError, log_failure
from langgraph_toolmem.base.models import resolve_model
from langgraph_toolmem.runs.run import ExecutedCall

logger = logging.getLogger("langgraph_toolmem.atoms")

MAX_REMEMBERED: Final = 10_000
"""Answers that are remembered; the one that was put to use least lately goes."""


class AtomWriter:
    """Words atoms with a chat model. Safe to use from several threads.

    Args:
        model: a chat model with structured output, or ``"provider:model"``.
        most: model calls at most; None: any number.

    Attributes:
        calls: model calls so far.

    Raises:
        ConfigurationError: it is no model, or one without structured output.
        MissingExtraError: a name is given, and a package is missing.
    """

    def __init__(self, model: BaseChatModel | str, *, most: int | None = None) -> None:
        found = resolve_model(model, name="atom_model") if isinstance(model, str) else model
        if not isinstance(found, BaseChatModel):
            raise ConfigurationError(f'atom_model is a chat model or "provider:model", not {type(model).__name__}.')
        try:
            found.with_structured_output(Pattern)
        except NotImplementedError as error:
            raise ConfigurationError(f"{type(found).__name__} gives no structured output.") from error
        self._model, self._most = found, most
        self._lock = threads.lock()
        self._remembered: dict[str, Pattern | None] = {}
        self.calls = 0

    def pattern(self, each: Extracted, *, config: RunnableConfig = ASIDE) -> Pattern | None:
        """The model's words for a step; None if it has no usable ones, or may not be asked any more.

        Raises:
            Exception: whatever the model's client raises.
        """
        with self._lock:
            if each.atom.id in self._remembered:
                found = self._remembered[each.atom.id] = self._remembered.pop(each.atom.id)
                return found
            if self._most is not None and self.calls >= self._most:
                return None
            self.calls += 1
        found = asked(self._model, each.atom, each.step, request=each.request, known=each.known, config=config)
        with self._lock:
            self._remembered[each.atom.id] = found
            if len(self._remembered) > MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        return found

    def write(self, each: Extracted) -> Atom:
        """The atom in the model's words; as it is if there are none. Raises nothing."""
        try:
            found = self.pattern(each)
        except Exception as error:  # noqa: BLE001 - whatever a provider raises: the model-free atom is there
            log_failure(logger, logging.WARNING, "the model-free atom is kept: the model did not answer", error=error)
            return each.atom
        return worded(each, found)


def worded(each: Extracted, pattern: Pattern | None) -> Atom:
    """The atom with what of a model's words stands the check."""
    return applied(pattern, each.atom, each.step, request=each.request)


def to_job(each: Extracted) -> dict[str, Any]:
    """Return what has to be kept of a step until a model has worded it; JSON values."""
    return {
        "atom": to_plain(each.atom),
        "args": dict(each.step.args),
        "request": each.request,
        "known": list(each.known),
    }


def from_job(plain: dict[str, Any]) -> Extracted:
    """The inverse of `to_job`, for the parts that a model sees.

    Raises:
        InputError: a part is missing or of another type.
    """
    atom = from_plain(plain["atom"])
    step = ExecutedCall(atom.tool, plain["args"], None, "ok", "model", "", "")
    return Extracted("", atom, step, plain["request"], tuple(plain["known"]))
