"""Recorded decider turns as training data for a small decider: chosen, one JSON line each.

Fine-tuning is on successful runs, as in NaviAgent (arXiv 2506.19500): by default only turns of runs that were judged
good, and of these only turns all of whose calls went well. The prompt of a line is word for word what the model was
sent: rules, request, candidate APIs, toolchains as trees, the last three observation–action pairs. What is learned is
the last message alone, the decision as JSON. Two forms of a line:

- ``chat``: ``{"messages": [system, user, assistant]}``. The assistant message is the only one of its role and carries
  ``"weight": 1``, as OpenAI's fine-tuning takes it. Axolotl's ``chat_template`` trains on assistant messages by
  default; TRL needs ``assistant_only_loss=True`` and a chat template with ``{% generation %}`` for it.
- ``prompt-completion``: ``{"prompt": [system, user], "completion": [assistant]}``. TRL's ``SFTTrainer`` computes the
  loss on the completion alone by default, whatever the chat template.

A model trained on this answers in JSON text: run it with ``create_navi_subgraph(..., method="json_schema")``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.stores.snapshot import replace_file

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.decide.recording import DeciderTurn, DecisionLog

Form = Literal["chat", "prompt-completion"]
Reason = Literal["unjudged", "judged too low", "without an answer", "with calls that went wrong", "duplicate"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Turns to train on, by run in the order the runs began, and how many were left out for which reason."""

    turns: list[DeciderTurn]
    left_out: dict[Reason, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SFTExport:
    """Counts of an export.

    Attributes:
        turns, runs: lines in the file, and runs that they are from.
        recorded: turns in the log.
        left_out: how many were left out for which reason.
    """

    turns: int
    runs: int
    recorded: int
    left_out: dict[Reason, int]


def choose(turns: Iterable[DeciderTurn], *, min_score: float = GOOD, unjudged: bool = False) -> Chosen:
    """The turns that are worth learning, each once.

    Args:
        turns: of a `DecisionLog`.
        min_score: least verdict on the run, 0 to 1.
        unjudged: runs that nobody judged count as well, as far as their request was answered.

    Raises:
        ConfigurationError: `min_score` is out of range.
    """
    if not is_share(min_score):
        raise ConfigurationError(f"min_score is a number from 0 to 1, not {min_score!r}.")
    by_run: dict[str, list[DeciderTurn]] = {}
    for turn in sorted(turns, key=lambda turn: turn.number):
        by_run.setdefault(turn.run, []).append(turn)
    left_out: Counter[Reason] = Counter()
    taken: dict[str, DeciderTurn] = {}
    for run in by_run.values():
        answered = {turn.task for turn in run if turn.final}
        for turn in run:
            why = _why_not(turn, answered, min_score, unjudged)
            if why is None and turn.same in taken:
                why = "duplicate"
            if why is None:
                taken[turn.same] = turn
            else:
                left_out[why] += 1
    return Chosen(list(taken.values()), dict(left_out))


def _why_not(turn: DeciderTurn, answered: set[str], min_score: float, unjudged: bool) -> Reason | None:
    if turn.score is None and not unjudged:
        return "unjudged"
    if turn.score is None and turn.task not in answered:
        return "without an answer"
    if turn.score is not None and turn.score < min_score:
        return "judged too low"
    return None if turn.went_well else "with calls that went wrong"


def line_of(messages: Sequence[Mapping[str, Any]], decision: Mapping[str, Any], form: Form = "chat") -> dict[str, Any]:
    """One line: the prompt as it was sent, and the decision as the assistant's JSON text.

    Args:
        messages: the prompt in chat format.
        decision: the decision as JSON values.
        form: see the top of this module.
    """
    action = {"role": "assistant", "content": json.dumps(decision, ensure_ascii=False, separators=(",", ":"))}
    if form == "prompt-completion":
        return {"prompt": [dict(message) for message in messages], "completion": [action]}
    return {"messages": [*(dict(message) for message in messages), {**action, "weight": 1}]}


def export_sft(
    log: DecisionLog,
    path: Path | str,
    *,
    form: Form = "chat",
    min_score: float = GOOD,
    unjudged: bool = False,
    overwrite: bool = False,
) -> SFTExport:
    """Writes recorded turns as JSONL; the same log and arguments give the same bytes.

    Lines hold what users said, and no ids of users, runs or threads unless they ask for them by their own words.

    Args:
        log: ``memory.navigator.decisions``.
        path: of the file.
        form: ``"chat"`` or ``"prompt-completion"``.
        min_score, unjudged: see `choose`.
        overwrite: replace a file that is there.

    Raises:
        ConfigurationError: an argument cannot work.
        InputError: nothing is left to export, the file is there already, or cannot be written.
        StorageError: the log cannot be read.
    """
    if form not in FORMS:
        raise ConfigurationError(f"form is one of {', '.join(FORMS)}, not {form!r}.")
    path = Path(path)
    if path.is_dir() or (path.is_file() and not overwrite):
        raise InputError(f"{path} exists already; name another file, or replace a file with overwrite=True.")
    recorded = log.turns()
    chosen = choose(recorded, min_score=min_score, unjudged=unjudged)
    if not chosen.turns:
        raise InputError(_nothing(len(recorded), chosen.left_out))
    lines = (
        # ASCII: some readers of JSONL take U+2028 and the like for the end of a line.
        json.dumps(_clean(line_of(messages, decision, form)), ensure_ascii=True)
        for turn in chosen.turns
        for messages, decision in log.texts([turn])
    )
    text = "".join(f"{line}\n" for line in lines)
    try:
        replace_file(path, text.encode("ascii"), fsync=False)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error
    return SFTExport(len(chosen.turns), len({turn.run for turn in chosen.turns}), len(recorded), chosen.left_out)


def _clean(value: Any) -> Any:
    """Halves of surrogate pairs, which readers of UTF-8 refuse, become U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _nothing(recorded: int, left_out: Mapping[Reason, int]) -> str:
    if not recorded:
        return (
            "No decisions are recorded in this memory. Record them with create_navi_subgraph(model, tools, memory, "
            "on_decision=memory.navigator.decisions) and run the agent."
        )
    why = ", ".join(f"{number:,} {reason}" for reason, number in left_out.items())
    told = f"None of {recorded:,} recorded turns is left to export ({why})."
    if left_out.get("unjudged"):
        told += (
            " Say how runs went (memory.finish(..., success=True), memory.feedback, toolmem feedback), or take those "
            "that nobody judged with unjudged=True."
        )
    return told
