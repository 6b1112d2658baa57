"""Discovery: tool calls are searched offline, in a world that can be reset, and what won becomes atoms.

    from langgraph_toolmem import ToolMemory
    from langgraph_toolmem.offline.discovery import Discovery, Task, ToolsEnvironment

    def make():
        office = Office()
        return ToolsEnvironment(office.tools(), reset=office.reset, success=office.is_right)

    with Discovery(make, [Task("t1", "Forward the latest email from Ann to Ben")], model=model) as discovery:
        with ToolMemory("memory") as memory:
            print(discovery.run(memory=memory))

**The tools are really executed.** After SGA-MCTS, which searches benchmarks this way; here it is the user's own tools.

==========  ===========================================================
``world``   what is searched, and how to come back to a state
``search``  Monte Carlo tree search over states, and what guides it
``model``   a policy that asks a chat model
``runner``  all together: tasks, workers, what is on disk, the report
==========  ===========================================================
"""

from __future__ import annotations

from langgraph_toolmem.offline.discovery.runner import Discovery, DiscoveryReport
from langgraph_toolmem.offline.discovery.search import Goal, Policy, Proposal, Reflection, SearchSettings, State
from langgraph_toolmem.offline.discovery.world import Environment, EnvironmentCall, Observation, Task, ToolsEnvironment

__all__ = [
    "Discovery",
    "DiscoveryReport",
    "Environment",
    "EnvironmentCall",
    "Goal",
    "Observation",
    "Policy",
    "Proposal",
    "Reflection",
    "SearchSettings",
    "State",
    "Task",
    "ToolsEnvironment",
]
