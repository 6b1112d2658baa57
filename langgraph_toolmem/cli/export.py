"""`toolmem export`: what a memory recorded, as training data."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import count
from langgraph_toolmem.cli.inputs import open_memory
from langgraph_toolmem.cli.options import Json, MemoryFolder
from langgraph_toolmem.cli.terminal import answer_json, note

if TYPE_CHECKING:
    from langgraph_toolmem.offline.finetuning import SFTExport


class SFTForm(str, Enum):
    """Form of a line of training data."""

    CHAT = "chat"
    PROMPT_COMPLETION = "prompt-completion"


def export(
    memory: MemoryFolder,
    sft: Annotated[
        Path | None,
        typer.Option("--sft", metavar="OUT.jsonl", help="Write recorded turns of the decider as training data."),
    ] = None,
    form: Annotated[
        SFTForm,
        typer.Option("--format", help="chat: OpenAI, Axolotl; prompt-completion: TRL, with the loss on the action."),
    ] = SFTForm.CHAT,
    min_score: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Only runs with a verdict of at least this.")
    ] = 0.5,
    only_good: Annotated[
        bool, typer.Option("--only-good/--unjudged", help="Leave runs that nobody judged out, or take them in.")
    ] = True,
    wrong_calls: Annotated[
        bool, typer.Option("--wrong-calls", help="Take turns in whose calls failed, or could not be made.")
    ] = False,
    holdout: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Write this share of the runs to OUT.holdout.jsonl instead.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of which runs are held out.")] = 0,
    ids: Annotated[bool, typer.Option("--ids", help="Put run (a digest), step, score and time on each line.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    as_json: Json = False,
) -> None:
    """Write what the decider was asked and what it decided, to fine-tune a small one.

    One JSON line per turn: the prompt as it was sent, and the decision as the only assistant message. Turns are
    recorded where an agent was made with create_navi_subgraph(..., on_decision=memory.navigator.decisions). The file
    holds what users said. Does not disturb a process that writes to the memory.
    """
    if sft is None:
        raise ConfigurationError("say what to export: --sft OUT.jsonl writes training data for a decider")
    from langgraph_toolmem.offline.finetuning import export_sft, held_out_path

    with open_memory(memory, read_only=True) as opened:
        waiting = opened.report().jobs.pending
        done = export_sft(
            opened.navigator.decisions,
            sft,
            form=form.value,
            min_score=min_score,
            unjudged=not only_good,
            wrong_calls=wrong_calls,
            holdout=holdout,
            seed=seed,
            ids=ids,
            overwrite=force,
        )
    held = None if holdout is None else held_out_path(sft)
    if waiting:
        note(f"not looked at: {waiting:,} entries and verdicts that still have to be written")
    if as_json:
        files = {"file": str(sft), "held_out_file": None if held is None else str(held)}
        answer_json({**files, "format": form.value, **done.to_dict()})
        return
    _say(done, sft, held)


def _say(done: SFTExport, file: Path, held: Path | None) -> None:
    typer.echo(f"Wrote {count(done.turns, 'turn')} of {count(done.runs, 'run')} to {file}.")
    if held is not None:
        typer.echo(f"Held out {count(done.held_out_turns, 'turn')} of {count(done.held_out_runs, 'run')} in {held}.")
    if done.left_out:
        why = ", ".join(f"{number:,} {reason}" for reason, number in done.left_out.items())
        typer.echo(f"Left out of {count(done.recorded, 'recorded turn')}: {why}.")
