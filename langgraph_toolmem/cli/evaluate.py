"""`toolmem eval`: an agent with and without the memory, on tasks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.cli.prices import read_price
from langgraph_toolmem.cli.terminal import answer_json, note, progress, say, table, write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph_toolmem.evaluation import EvalSettings, Result, TaskSource
    from langgraph_toolmem.evaluation.arms import Arm, PaperComparison
    from langgraph_toolmem.evaluation.tau2.source import Tau2Source
    from langgraph_toolmem.report.report import TokenPrice

TAU2: Final = "tau2"


def evaluate(
    tasks: Annotated[str, typer.Argument(metavar="TASKS", help="A file of tasks (JSONL), or `tau2`: tau2-bench.")],
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="MODULE:FACTORY", help="Takes a run, returns a compiled graph.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Of the evaluation; the same folder goes on with it.")
    ] = Path("toolmem-eval"),
    arms: Annotated[
        str,
        typer.Option(
            metavar="A,B,…",
            help="without, with, shadow, changes, prefetch, context, hints, tool_search, all; `without,with,without` "
            "measures the noise.",
        ),
    ] = "without,with",
    trials: Annotated[int, typer.Option(min=1, help="Runs of each test task.")] = 1,
    seed: Annotated[int, typer.Option(help="Of all runs; the same in all arms.")] = 0,
    reads: Annotated[
        list[str] | None,
        typer.Option("--reads", metavar="NAME", help="A tool that only reads, or a pattern; repeatable."),
    ] = None,
    may_write: Annotated[
        list[str] | None,
        typer.Option("--may-write", metavar="NAME", help="A tool that the arms changes and all may call; repeatable."),
    ] = None,
    max_model_calls: Annotated[int | None, typer.Option(min=1, help="Stop after so many, over all starts.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0.0, help="Stop at this cost; needs --price.")] = None,
    price: Annotated[
        str | None,
        typer.Option(metavar="IN:OUT[:CACHED]", help="Money per million input, output and cached tokens: 2.5:10:1.25."),
    ] = None,
    currency: Annotated[str, typer.Option(metavar="NAME", help="Currency of the price.")] = "USD",
    learn_from_tests: Annotated[
        bool, typer.Option("--learn-from-tests", help="Keep what the memory learns in test runs too.")
    ] = False,
    asynchronous: Annotated[bool, typer.Option("--async", help="Call the graph's async methods.")] = False,
    domain: Annotated[str, typer.Option(help="With tau2: the domain.")] = "retail",
    task_set: Annotated[
        str | None, typer.Option(help="With tau2: such as telecom_small [default: the domain's].")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="PROVIDER:MODEL", help="With tau2: the agent's chat model.")
    ] = None,
    user_model: Annotated[
        str, typer.Option(metavar="NAME", help="With tau2: the user's model, for LiteLLM.")
    ] = "gpt-4.1",
    stub: Annotated[
        bool, typer.Option("--stub", help="With tau2: play the right actions without a key, and compare what changed.")
    ] = False,
    follow: Annotated[float, typer.Option(min=0, max=1, help="With --stub: share of hints that it follows.")] = 0.5,
    err: Annotated[float, typer.Option(min=0, max=1, help="With --stub: share of needless look-ups.")] = 0.05,
    rates_of: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG",
            help="With --stub: recorded runs of a real model, whose rates of needless, repeated and failed look-ups it "
            "takes, in place of --err.",
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="PAPER",
            help="Arms of a paper's comparison, in place of --arms: autotool, sit-graph, sga-mcts, memtoolagent.",
        ),
    ] = None,
    train_tasks: Annotated[int | None, typer.Option(min=0, help="With tau2: only the first N train tasks.")] = None,
    test_tasks: Annotated[int | None, typer.Option(min=1, help="With tau2: only the first N test tasks.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Compare an agent with and without the memory on tasks: success, model calls, tokens, seconds, cost.

    Train tasks come first and teach the memory; test tasks are measured. After Ctrl-C, a rate limit or a budget, the
    same command continues: at most one model call is paid twice.
    """
    from langgraph_toolmem.evaluation import EvalSettings, TaskFile, arms_named
    from langgraph_toolmem.evaluation.arms import comparison_of
    from langgraph_toolmem.evaluation.runner import named_function

    source: TaskSource
    if tasks == TAU2:
        from langgraph_toolmem.evaluation.tau2.source import TaskLimits, Tau2Source, sides_with_models

        # One of the two plays the agent, not both.
        if stub == (model is not None):
            raise ConfigurationError("tau2 needs either --model PROVIDER:MODEL or --stub")
        name, sides = "stub, user stub", None
        if model is not None:
            name, sides = f"{model}, user {user_model}", sides_with_models(model, user_model)
        bench = Tau2Source(domain, task_set=task_set, sides=sides, limits=TaskLimits(train_tasks, test_tasks))
        set_rates(bench, follow, err, rates_of)
        source = bench
        may_write = may_write or sorted(bench.changing_tools)
    elif agent is None:
        raise ConfigurationError("name the agent's factory: --agent MODULE:FACTORY")
    else:
        sys.path.insert(0, "")  # as with python -m: the user's module is in the working folder
        source, name = TaskFile(Path(tasks), named_function(agent, "--agent"), asynchronous=asynchronous), agent
    paper = None
    chosen: Sequence[Arm]
    if like is None:
        chosen = arms_named(arms.split(","), may_write=may_write or ())
    else:
        paper = comparison_of(like)
        chosen = paper.arms
    settings = EvalSettings(
        arms=chosen,
        trials=trials,
        seed=seed,
        agent=name,
        memory={"reads": reads or ()},
        learn_from_tests=learn_from_tests,
    )
    run_evaluation(source, settings, out, read_price(price, currency), max_model_calls, max_cost, as_json=as_json)
    if not as_json:
        show_more(out, paper, safety=stub)


def set_rates(bench: Tau2Source, follow: float, err: float, rates_of: Path | None) -> None:
    """Give a stub its rates: those of the options, or those of recorded runs of a real model."""
    from langgraph_toolmem.evaluation.tau2.stub import Rates, fitted_rates
    from langgraph_toolmem.runs.logs import load_runs

    bench.rates = Rates(follow, err)
    if rates_of is not None:
        bench.rates = fitted_rates(load_runs(rates_of).runs, bench.reading_tools, follow=follow)
        note(f"Rates of {rates_of.name}: {bench.rates}")


def show_more(out: Path, paper: PaperComparison | None, *, safety: bool) -> None:
    """Print the parts after the figures: differences between the arms of a stub, a paper's own figures."""
    if safety:
        show_safety(out)
    if paper is not None:
        show_reported(paper)


def run_evaluation(
    source: TaskSource,
    settings: EvalSettings,
    out: Path,
    paid: TokenPrice | None,
    max_model_calls: int | None,
    max_cost: float | None,
    *,
    as_json: bool,
) -> None:
    """Do the remaining runs; write ``result.json`` and ``result.html`` into the folder, and print the figures."""
    from langgraph_toolmem.base.text import dumps
    from langgraph_toolmem.evaluation import EvalStoppedError, Evaluation
    from langgraph_toolmem.evaluation.figures import page_of
    from langgraph_toolmem.evaluation.journal import EvalBudget

    evaluation = Evaluation(source, settings, out, EvalBudget(max_model_calls, max_cost, paid))
    stopped: EvalStoppedError | None = None
    with progress("evaluating", evaluation.planned, show=not as_json) as update:
        done = 0

        def on_run(_: Any) -> None:
            nonlocal done
            done += 1
            update(done)

        try:
            result = evaluation.run(on_run)
        # The runs so far were paid for: their figures are shown before the exit.
        except EvalStoppedError as error:
            stopped, result = error, evaluation.result()
    write_text(out / "result.json", dumps(result.to_dict(), indent=2))
    write_text(out / "result.html", page_of(result))
    if as_json:
        answer_json(result.to_dict())
    else:
        show_evaluation(result)
    if stopped is not None:
        note(str(stopped))
        # A code of its own, so that a script knows that the same command goes on.
        can_go_on = 3
        raise typer.Exit(can_go_on)


def show_evaluation(result: Result) -> None:
    """Print the figures of an evaluation."""
    from langgraph_toolmem.evaluation.figures import in_words

    for part in in_words(result):
        if isinstance(part, str):
            say(part)
        else:
            table(part.title, part.columns, part.rows, part.most)


def show_reported(paper: PaperComparison) -> None:
    """Print a paper's own figures after the result."""
    reported = paper.table()
    if reported.rows:
        table(reported.title, reported.columns, reported.rows, reported.most)
        note("They are of other agents, models and tasks: read the difference, not the level.")
    else:
        note(f"{paper.title}: its figures are not known here.")


def show_safety(out: Path) -> None:
    """Print the differences between the arms of an evaluation by stub."""
    from langgraph_toolmem.evaluation.journal import Journal
    from langgraph_toolmem.evaluation.tau2.source import safety_of

    records = Journal(out / "runs.jsonl").records
    arms: dict[str, None] = {}
    for record in records:
        if record.split == "test":
            arms[record.arm] = None
    # Each arm is compared with the first, which is the agent without the memory by default.
    first, *others = arms
    differences: list[list[str]] = []
    hints: list[list[str]] = []
    for arm in others:
        safety = safety_of(arm, first, records)
        differing = (safety.pairs, len(safety.rewards_changed), len(safety.changes_differ), safety.wrong_results)
        model_calls = (safety.model_calls_before, safety.model_calls)
        shown = (*model_calls, safety.shown_early, safety.hints_followed, safety.changes_in_hints)
        differences.append([arm, *map(_figure, differing)])
        hints.append([arm, *map(_figure, shown)])
    table(f"Against {first}", ("arm", "pairs", "rewards changed", "changes differ", "wrong results"), differences)
    columns = ("arm", "model calls before", "after", "shown early", "hints followed", "changes in hints")
    table("What the memory did", columns, hints)


def _figure(number: int) -> str:
    return f"{number:,}"
