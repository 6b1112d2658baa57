"""Paired evaluation of an agent with and without the memory; only the command line imports it."""

from langgraph_toolmem.evaluation.arms import Arm, arms_named
from langgraph_toolmem.evaluation.figures import Comparison, Figures, Interval, Result, compared, figures_of, pass_hat_k
from langgraph_toolmem.evaluation.journal import RunRecord
from langgraph_toolmem.evaluation.runner import (
    EvalRun,
    EvalSettings,
    EvalStoppedError,
    EvalTask,
    Evaluation,
    TaskFile,
    TaskOutcome,
    TaskSource,
)

__all__ = [
    "Arm",
    "Comparison",
    "EvalRun",
    "EvalSettings",
    "EvalStoppedError",
    "EvalTask",
    "Evaluation",
    "Figures",
    "Interval",
    "Result",
    "RunRecord",
    "TaskFile",
    "TaskOutcome",
    "TaskSource",
    "arms_named",
    "compared",
    "figures_of",
    "pass_hat_k",
]
