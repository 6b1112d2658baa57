"""The public names for a method of your own.

A method is notified of runs (`Method`), keeps rows on the core (`Core`), and does its part at a model call in a step
(`Step`). ``docs/methods.md`` has an example. Give it to a memory with ``methods=default_methods(Yours())``.
"""

from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.method import EndedRun, Import, JudgedRun, LearnedTurn, Method, Section, TextTable
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.stores.vectors import Hit, SearchHit, VectorItem
from langgraph_toolmem.turn.ask import Ask, StepGenerator
from langgraph_toolmem.turn.hints import StepOutput
from langgraph_toolmem.turn.step import Call, Step, StepNode

__all__ = [
    "Ask",
    "Call",
    "Core",
    "EndedRun",
    "Forgotten",
    "Hit",
    "Import",
    "JudgedRun",
    "LearnedTurn",
    "Method",
    "RowKind",
    "Rows",
    "SearchHit",
    "Section",
    "Step",
    "StepGenerator",
    "StepNode",
    "StepOutput",
    "TextTable",
    "User",
    "VectorItem",
]
