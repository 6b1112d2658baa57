"""A resettable office: tools with real effects on its own data, tasks with checkers, a scripted assistant.

    from . import Office, make_tasks

    office = Office(seed=0)
    tools = office.tools()              # LangChain tools, 40 of them
    task = make_tasks(1, seed=0)[0]     # .request, .checker(office)
    office.reset(0)                     # as it was

`toolmem demo` runs 200 tasks without and with a tool memory and compares.
"""

from __future__ import annotations

from .office import ALTERNATIVES, TODAY, Office
from .tasks import Task, make_tasks

__all__ = ["ALTERNATIVES", "TODAY", "Office", "Task", "make_tasks"]
