"""The agents of a memory: a bounded record of those that were seen last."""

from __future__ import annotations

from langgraph_toolmem import InertiaPolicy
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.review import AgentPolicy, Agents


def test_a_new_agent_takes_the_place_of_the_one_that_was_seen_longest_ago() -> None:
    graph = ToolGraph()
    agents = graph.register(Agents)
    for number in range(Agents.most_agents + 1):
        agent = AgentPolicy(f"agent {number}", InertiaPolicy())
        graph.apply(None, agents.begun(agent, 1_000 + number, acted=False))

    names = [row["name"] for row in agents.figures()]
    assert len(names) == Agents.most_agents
    assert (names[0], names[-1]) == (f"agent {Agents.most_agents}", "agent 1")
