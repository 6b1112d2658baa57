"""Recorded decider turns as training data for a small decider: chosen, split by run, one JSON line each.

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

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph.events import GOOD

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
    """What was written.

    Attributes:
        turns, runs: lines in the file, and runs that they are from.
        held_out_turns, held_out_runs: the same of the second file.
        recorded: turns in the log.
        left_out: how many were left out for which reason.
    """

    turns: int
    runs: int
    held_out_turns: int
    held_out_runs: int
    recorded: int
    left_out: dict[Reason, int]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def choose(
    turns: Iterable[DeciderTurn], *, min_score: float = GOOD, unjudged: bool = False, wrong_calls: bool = False
) -> Chosen:
    """The turns that are worth learning, each once.

    Args:
        turns: of a `DecisionLog`.
        min_score: least verdict on the run, 0 to 1.
        unjudged: runs that nobody judged count as well, as far as their request was answered.
        wrong_calls: turns with calls that failed, were refused or could not be made count as well.

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
            why = _why_not(turn, answered, min_score, unjudged, wrong_calls)
            if why is None and turn.same in taken:
                why = "duplicate"
            if why is None:
                taken[turn.same] = turn
            else:
                left_out[why] += 1
    return Chosen(list(taken.values()), dict(left_out))


def _why_not(
    turn: DeciderTurn, answered: set[str], min_score: float, unjudged: bool, wrong_calls: bool
) -> Reason | None:
    if turn.score is None and not unjudged:
        return "unjudged"
    if turn.score is None and turn.task not in answered:
        return "without an answer"
    if turn.score is not None and turn.score < min_score:
        return "judged too low"
    return None if turn.went_well or wrong_calls else "with calls that went wrong"


def split(turns: Sequence[DeciderTurn], share: float, *, seed: int = 0) -> tuple[list[DeciderTurn], list[DeciderTurn]]:
    """Turns to train on and turns to hold out. No run and no request is on both sides.

    Args:
        turns: what was chosen.
        share: of the groups of runs that are held out, at least one; runs with an equal request are one group.
        seed: draws which.

    Raises:
        ConfigurationError: the share is not between 0 and 1.
        InputError: all runs are of one request, so there is nothing to hold out.
    """
    if not is_share(share) or share in (0, 1):
        raise ConfigurationError(f"The share to hold out is a number between 0 and 1, not {share!r}.")
    group_of = _groups(turns)
    groups = sorted(set(group_of.values()), key=lambda group: digest("hold out", seed, group))
    if len(groups) < 2:
        raise InputError("All turns to export are of one run or one request: there is nothing to hold out.")
    held = set(groups[: min(max(1, round(share * len(groups))), len(groups) - 1)])
    train = [turn for turn in turns if group_of[turn.run] not in held]
    return train, [turn for turn in turns if group_of[turn.run] in held]


def _groups(turns: Iterable[DeciderTurn]) -> dict[str, str]:
    """Run -> its group: runs that share a request, directly or through others."""
    leader: dict[str, str] = {}

    def lead(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = name = leader[leader[name]]
        return name

    for turn in turns:
        one, other = sorted((lead(turn.run), lead(turn.task)))
        leader[other] = one
    return {turn.run: lead(turn.run) for turn in turns}


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


def held_out_path(path: Path) -> Path:
    """Return where the turns that are held out go: ``train.jsonl`` -> ``train.holdout.jsonl``."""
    return path.with_name(f"{path.stem}.holdout{path.suffix}")


def export_sft(
    log: DecisionLog,
    path: Path | str,
    *,
    form: Form = "chat",
    min_score: float = GOOD,
    unjudged: bool = False,
    wrong_calls: bool = False,
    holdout: float | None = None,
    seed: int = 0,
    ids: bool = False,
    overwrite: bool = False,
) -> SFTExport:
    """Writes recorded turns as JSONL; the same log and arguments give the same bytes.

    Lines hold what users said, and no ids of users, runs or threads unless they ask for them by their own words.

    Args:
        log: ``memory.navigator.decisions``.
        path: of the file. What is held out goes beside it, see `held_out_path`.
        form: ``"chat"`` or ``"prompt-completion"``.
        min_score, unjudged, wrong_calls: see `choose`.
        holdout: share of the runs that go into the second file; None: no second file.
        seed: draws which runs.
        ids: each line has ``"metadata"`` with the run (a digest), step, score and time, for joining; leave it out for
            services that refuse keys they do not know.
        overwrite: replace files that are there.

    Raises:
        ConfigurationError: an argument cannot work.
        InputError: nothing is left to export, a file is there already, or cannot be written.
        StorageError: the log cannot be read.
    """
    if form not in FORMS:
        raise ConfigurationError(f"form is one of {', '.join(FORMS)}, not {form!r}.")
    path = Path(path)
    files = [path] if holdout is None else [path, held_out_path(path)]
    for file in files:
        if file.is_dir():
            raise InputError(f"{file} is a folder; name a file.")
        if file.is_file() and not overwrite:
            raise InputError(f"{file} exists already; overwrite=True replaces it.")
    recorded = log.turns()
    chosen = choose(recorded, min_score=min_score, unjudged=unjudged, wrong_calls=wrong_calls)
    if not chosen.turns:
        raise InputError(_nothing(len(recorded), chosen.left_out))
    train, held = (chosen.turns, []) if holdout is None else split(chosen.turns, holdout, seed=seed)
    for file, turns in zip(files, (train, held), strict=False):
        write_lines(file, _lines(log, turns, form, ids))
    runs = [len({turn.run for turn in turns}) for turns in (train, held)]
    return SFTExport(len(train), runs[0], len(held), runs[1], len(recorded), chosen.left_out)


def _lines(log: DecisionLog, turns: Sequence[DeciderTurn], form: Form, ids: bool) -> Iterator[str]:
    for turn in turns:
        for messages, decision in log.texts([turn]):
            line = line_of(messages, decision, form)
            if ids:
                line["metadata"] = {"run": turn.run, "step": turn.step, "score": turn.score, "time": turn.time}
            # ASCII: some readers of JSONL take U+2028 and the like for the end of a line.
            yield json.dumps(_clean(line), ensure_ascii=True)


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


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes lines to a file as a whole: who opens it sees the old text or the new. A device or a pipe is written to.

    Raises:
        InputError: it cannot be written.
    """
    target = path.resolve()
    whole = not path.exists() or path.is_file()
    draft = target.with_name(f"{target.name}.{os.getpid()}.tmp") if whole else path
    try:
        with draft.open("w", encoding="ascii", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
        if whole:
            draft.replace(target)
    except OSError as error:
        _drop(draft, whole)
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error
    except BaseException:
        _drop(draft, whole)
        raise


def _drop(draft: Path, whole: bool) -> None:
    if whole:
        with contextlib.suppress(OSError):
            draft.unlink()
