"""The arms of an evaluation: the agent without the memory, and with features of it switched on.

`toolmem eval --like autotool` takes the comparison of a paper. An arm is a paper's method with one setting changed, as
in its table of baselines and ablations, if this package has it as a policy. The papers' own figures are of other
agents, models and tasks: they follow the result for comparison, and are not a target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem.atoms.step import SGASettings
from langgraph_toolmem.base.checks import did_you_mean
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.method import TextTable
from langgraph_toolmem.entries import RecallPolicy
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.sit.suggest import SITPolicy

WITHOUT: Final = "without"
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run the agent.

    Attributes:
        name: unique in the evaluation; a repeated arm has a number after it: "without#2".
        options: of `tool_memory_middleware`; None for an agent without a memory.
    """

    name: str
    options: Options | None = None

    @property
    def remembers(self) -> bool:
        """Return True if the agent has a memory in this arm."""
        return self.options is not None


_HINTS_ALONE: Final[Options] = {"shortcut": False, "suggest": True, "recall": True, "planning": True, "reflect": True}
_ARM_OPTIONS: Final[Mapping[str, Options]] = {
    "with": {},
    "shadow": {"shortcut": InertiaPolicy(shadow=True)},
    # Without the shortcut: a request that it answers does not show these features.
    "prefetch": {"shortcut": False, "prefetch": True},
    "hints": _HINTS_ALONE,
    "tool_search": {"shortcut": False, "tool_search": True},
    "context": {"context": True},
}
"""Options of the arms that need no tools by name."""
_CHANGES: Final = "changes"


def arms_named(names: Sequence[str], *, may_write: Collection[str] = ()) -> list[Arm]:
    """Return arms by name, such as ``["without", "with", "without"]``; a repeated arm measures the noise.

    Args:
        names: "without", "with", or a feature: see `docs/evaluation.md`.
        may_write: names of tools that the arms "changes" and "all" may call without the model.

    Raises:
        ConfigurationError: a name is unknown, or an arm lacks its tools.
    """
    known = {WITHOUT, *_ARM_OPTIONS, _CHANGES, "all"}
    arms: list[Arm] = []
    times: Counter[str] = Counter()
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigurationError(f"there is no arm {name!r}.{hint} Arms: {', '.join(sorted(known))}.")
        times[name] += 1
        unique = name
        if times[name] > 1:
            unique = f"{name}#{times[name]}"
        arms.append(Arm(unique, _options_of(name, frozenset(may_write))))
    if not arms:
        raise ConfigurationError("an evaluation needs at least one arm")
    return arms


def _options_of(name: str, may_write: frozenset[str]) -> Options | None:
    """Return the options of an arm. Raises ConfigurationError if it needs tools and there are none."""
    if name == WITHOUT:
        return None
    if name == _CHANGES:
        if not may_write:
            raise ConfigurationError("the arm 'changes' needs the tools that may change something: --may-write NAME")
        return {"shortcut": InertiaPolicy(may_write=may_write)}
    if name == "all":
        # Without named tools it makes only look-ups, as by default.
        shortcut = InertiaPolicy(may_write=may_write) if may_write else True
        return {**_HINTS_ALONE, "shortcut": shortcut, "prefetch": True}
    return _ARM_OPTIONS[name]


# --- the comparisons of the papers ---


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
