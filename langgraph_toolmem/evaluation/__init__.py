"""Paired evaluation of an agent with and without the memory; only the command line imports it."""

from langgraph_toolmem.evaluation.arms import Arm, arms_named
from langgraph_toolmem.evaluation.figures import Comparison, Figures, Interval, compared, figures_of, pass_hat_k
from langgraph_toolmem.evaluation.journal import RunRecord
from langgraph_toolmem.evaluation.run import EvalRun, TaskOutcome
from langgraph_toolmem.evaluation.runner import EvalSettings, EvalStoppedError, Evaluation, Result, TaskSource
from langgraph_toolmem.evaluation.tasks import EvalTask, TaskFile

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
