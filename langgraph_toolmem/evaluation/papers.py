"""The comparisons of the papers, as arms of an evaluation: `toolmem eval --like autotool`.

An arm is a paper's method with one setting changed, as in its table of baselines and ablations, if this package has it
as a policy. The papers' own figures are of other agents, models and tasks: they follow the result for comparison, and
are not a target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.atoms.step import SGASettings
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.method import TextTable
from langgraph_toolmem.entries import RecallPolicy
from langgraph_toolmem.evaluation.arms import WITHOUT, Arm, Options, did_you_mean
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.sit.suggest import SITPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ReportedFigure:
    """A figure of a paper.

    Attributes:
        task: benchmark and measure.
        without: of the paper's agent without the method, or of the best rival if it says so.
        with_method: with it.
    """

    task: str
    without: str
    with_method: str


@dataclass(frozen=True, slots=True)
class PaperComparison:
    """A paper's comparison, as far as this package has it.

    Attributes:
        title: of the method, with its source.
        model: of the paper's agent.
        arms: the first is the agent without the memory.
        reported: the paper's figures; empty if unknown.
    """

    title: str
    model: str
    arms: tuple[Arm, ...]
    reported: tuple[ReportedFigure, ...]

    def table(self) -> TextTable:
        """Return the paper's figures as a table."""
        rows = [(figure.task, figure.without, figure.with_method) for figure in self.reported]
        columns = ("task, measure", "without", "with")
        return TextTable(f"Reported by {self.title}, {self.model}", columns, tuple(rows))


def _alone(**options: Any) -> Options:
    """Return options of hints without the shortcut, so that an arm shows only the hints' effect."""
    return {"shortcut": False, **options}


def _arms(methods: Mapping[str, Options]) -> tuple[Arm, ...]:
    """Return an arm for each method, after the arm without the memory, with which the others are compared."""
    arms = [Arm(WITHOUT)]
    for name, options in methods.items():
        arms.append(Arm(name, options))
    return tuple(arms)


def _autotool() -> PaperComparison:
    paper = InertiaPolicy.paper
    arms: dict[str, Options] = {
        "autotool": {"shortcut": paper()},
        # The paper's own variations: each stays within 3 points of progress there.
        "theta 0.2": {"shortcut": paper(threshold=0.2)},
        "alpha 0.3": {"shortcut": paper(alpha=0.3)},
        "alpha 0.7": {"shortcut": paper(alpha=0.7)},
        "window 1": {"shortcut": paper(window=1)},
        "window 3": {"shortcut": paper(window=3)},
        # The paper always has its caps: at most 30 % of the calls, never two in a row.
        "no caps": {"shortcut": paper(max_share=None, max_in_a_row=None)},
        "default": {},
    }
    reported = (
        ReportedFigure("ScienceWorld, model calls a task", "23.3", "17.8"),
        ReportedFigure("AlfWorld, model calls a task", "24.1", "20.4"),
        ReportedFigure("ToolQuery-Academic, model calls a task", "7.58", "6.32"),
    )
    return PaperComparison("AutoTool (arXiv 2511.14650)", "Llama-4-Scout", _arms(arms), reported)


def _sit_graph() -> PaperComparison:
    paper = SITPolicy.paper
    arms = {
        "sit-graph": _alone(suggest=paper()),
        # k = 2 was the paper's best: one suggestion constrains too much, three add noise.
        "k 1": _alone(suggest=paper(k=1)),
        "k 3": _alone(suggest=paper(k=3)),
        "default": _alone(suggest=True),
    }
    return PaperComparison("SIT-Graph (arXiv 2512.07287)", "several models", _arms(arms), ())


def _sga_mcts() -> PaperComparison:
    paper = SGASettings.paper
    arms = {
        "sga-mcts": _alone(planning=paper()),
        # Without the share of known slots (beta), the score is the cosine alone.
        "beta 0": _alone(planning=paper(beta=0.0)),
        "k 1": _alone(planning=paper(k=1)),
        "k 5": _alone(planning=paper(k=5)),
        # Whole past runs in place of single steps.
        "whole runs": _alone(recall=True),
        "default": _alone(planning=True),
    }
    reported = (
        ReportedFigure("StableToolBench, success %", "11.5 (LangMem 19.3)", "43.8"),
        ReportedFigure("ToolHop, success %", "36.9 (LangMem 39.7)", "41.9"),
        ReportedFigure("BFCL v3 multi-turn, success %", "44.4 (LangMem 46.1)", "48.7"),
    )
    return PaperComparison("SGA-MCTS", "Qwen3-8B", _arms(arms), reported)


def _memtoolagent() -> PaperComparison:
    arms = {
        # The paper's fixed numbers: improbable runs are not left out (least=0).
        "n 5": _alone(recall=RecallPolicy(least=0.0, max_n=5)),
        "n 10": _alone(recall=RecallPolicy(least=0.0, max_n=10)),
        "n 15": _alone(recall=RecallPolicy(least=0.0, max_n=15)),
        "preferences": _alone(preferences=True),
        "default": _alone(recall=True),
    }
    reported = (
        ReportedFigure("WorkBench, success %", "57.6", "85.1"),
        ReportedFigure("NESTFUL, full sequence %", "15.6", "30.4"),
        ReportedFigure("PEToolBench, tool accuracy", "0.70", "0.82"),
        ReportedFigure("PEToolBench, tool accuracy by preferences alone", "0.72", "0.84"),
    )
    return PaperComparison("MemToolAgent (arXiv 2606.07909)", "Claude 3.7", _arms(arms), reported)


NAVIAGENT: Final = (
    "NaviAgent (arXiv 2506.19500) is an agent of its own and no feature of another one, so it has no arms. Build its "
    "graph in a factory of yours (docs/planning.md) and compare two evaluations. The paper reports 36.4, 44.9 and "
    "55.5 % of ToolBench's tasks (Qwen2.5-14B, Qwen2.5-32B, DeepSeek-V3), 26.9, 32.8 and 40.7 % for its best rival."
)
_PAPERS: Final = {
    "autotool": _autotool,
    "sit-graph": _sit_graph,
    "sga-mcts": _sga_mcts,
    "memtoolagent": _memtoolagent,
}


def comparison_of(paper: str) -> PaperComparison:
    """Return the comparison of a paper.

    Args:
        paper: "autotool", "sit-graph", "sga-mcts" or "memtoolagent".

    Raises:
        ConfigurationError: the name is unknown, or the paper's method is not a feature of an agent.
    """
    if paper == "naviagent":
        raise ConfigurationError(NAVIAGENT)
    if paper not in _PAPERS:
        hint = did_you_mean(paper, _PAPERS)
        raise ConfigurationError(f"there is no comparison like {paper!r}.{hint} Papers: {', '.join(_PAPERS)}.")
    return _PAPERS[paper]()
