"""Discovery: tool calls are searched offline, in a world that can be reset, and what won becomes atoms.

    from langgraph_toolmem import ToolMemory
    from langgraph_toolmem.offline.discovery import Discovery, IntoMemory, Task, ToolsEnvironment

    def make():
        office = Office()
        return ToolsEnvironment(office.tools(), reset=office.reset, success=office.is_right)

    with Discovery(make, [Task("t1", "Forward the latest email from Ann to Ben")], model=model) as discovery:
        with ToolMemory("memory") as memory:
            print(discovery.run(sink=IntoMemory(memory)))

**The tools are really executed.**

===============  ==========================================================================
``environment``  what is searched, and how to come back to a state
``plain``        what tools answer, in JSON values
``adapters``     environments made of LangChain tools, of a cold start's sandbox, of recorded runs, of an import path
``states``       what a state is, and when two are the same
``tree``         Monte Carlo tree search over states
``selection``    how far a search goes, and which action is taken next
``policy``       what a search asks for: plans, actions, reflections
``asking``       a policy that asks a chat model
``questions``    model calls: counted before they are made, made once
``checker``      whether a task is done: the environment's word, or a judge's
``harvest``      paths that ended well become runs, and their steps atoms
``state``        how far it is, on disk
``sink``         where atoms go, and where tasks come from
``report``       what it came to
``runner``       all together
===============  ==========================================================================

After SGA-MCTS, which searches benchmarks this way; here it is the user's own tools.
"""

from __future__ import annotations

from langgraph_toolmem.offline.discovery.adapters import (
    RecordedEnvironment,
    ToolsEnvironment,
    of_sandbox,
)
from langgraph_toolmem.offline.discovery.environment import Environment, EnvironmentCall, Observation, Task
from langgraph_toolmem.offline.discovery.policy import Policy, Proposal, Reflection
from langgraph_toolmem.offline.discovery.report import DiscoveryProgress, DiscoveryReport
from langgraph_toolmem.offline.discovery.runner import Discovery
from langgraph_toolmem.offline.discovery.selection import SearchSettings
from langgraph_toolmem.offline.discovery.sink import AtomSink, IntoMemory, JsonLines, read_tasks
from langgraph_toolmem.offline.discovery.states import Goal, State

__all__ = [
    "AtomSink",
    "Discovery",
    "DiscoveryProgress",
    "DiscoveryReport",
    "Environment",
    "EnvironmentCall",
    "Goal",
    "IntoMemory",
    "JsonLines",
    "Observation",
    "Policy",
    "Proposal",
    "RecordedEnvironment",
    "Reflection",
    "SearchSettings",
    "State",
    "Task",
    "ToolsEnvironment",
    "of_sandbox",
    "read_tasks",
]
