"""The navigator: complete toolchains, and another way when a tool fails. A scripted decider, so no key is needed.

It works in the office of `examples.office`. The second request is made while one of its tools is down. In LangGraph
Studio (``langgraph dev`` in the folder of ``langgraph.json``) try "Forward the latest email from Priya Ueda": it asks
back and waits.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph.state import CompiledStateGraph

from examples.office.agent import PROMPT
from examples.office.decider import make_decider
from examples.office.office import Office
from examples.office.tasks import make_tasks
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.nodes import create_navi_subgraph

Graph = CompiledStateGraph[Any, Any, Any, Any]


def make_graph(office: Office, memory: ToolMemory) -> Graph:
    """The subgraph, here on its own; in an app of yours it is one node: ``builder.add_node("navi", ...)``."""
    return create_navi_subgraph(make_decider(), office.tools(), memory, instructions=PROMPT)


def warm_memory(office: Office, runs: int = 30) -> ToolMemory:
    """A memory that saw some runs: it knows which tool gives what another one takes."""
    memory = ToolMemory.ephemeral(tools=office.tools())
    for task in make_tasks(runs, seed=1):
        office.reset(task.seed)
        make_graph(office, memory).invoke({"messages": [("user", task.request)]})
    office.reset()
    return memory


def show(graph: Graph, request: str) -> None:
    """A request with its decisions, as the stream tells them."""
    print(f"\n{request}")
    feed: Any = {"messages": [("user", request)]}
    parts: Any = graph.stream(feed, stream_mode=["custom", "updates"])
    for mode, part in parts:
        if mode == "custom":
            _tell(part["toolmem"])
        for update in part.values() if mode == "updates" else ():
            for message in (update or {}).get("messages", ()):
                if isinstance(message, AIMessage) and not message.tool_calls:
                    print(f"  answer: {message.text}")


def _tell(event: dict[str, Any]) -> None:
    if event.get("event") == "candidates":
        print(f"  toolchain: {' -> '.join(event['chain'])}; {len(event['alternatives'])} others")
    elif event.get("event") == "decision" and event["action"] != "answer":
        for part in event["sub_intents"]:
            print(f"  {part['action']} {part['api']} {part['parameters'] if part['api'] else part['recall']}")
    elif event.get("event") == "another way":
        route = event["route"]
        print(f"  {route['failed']} failed; {route['way']}: {' -> '.join(route['chain'])}")


def main() -> None:
    """One request twice: with all tools, and with one of them down."""
    office = Office(0)
    with warm_memory(office) as memory:
        graph = make_graph(office, memory)
        people = list(office.state()["people"].values())
        request = f"Forward the latest email from {people[0]['name']} to {people[1]['name']}."
        show(graph, request)
        office.reset()
        office.inject("list_emails", probability=1.0)
        show(graph, request)


_office = Office(0)
graph = make_graph(_office, ToolMemory.ephemeral(tools=_office.tools()))
"""For LangGraph Studio; its decider understands the wordings of `examples.office`."""


if __name__ == "__main__":
    main()
