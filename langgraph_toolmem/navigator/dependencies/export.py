"""The dependency graph for drawing and for other tools. No search uses it."""

from __future__ import annotations

from langgraph_toolmem.graph.export import Drawing
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import History


def drawing(graph: ToolDependencyGraph, history: History | None = None) -> Drawing:
    """Nodes ``api:NAME`` and ``parameter:ID``; structural and behavioural edges.

    Node attributes: `kind` ("api" or "parameter"), `label`, for APIs `ok`, `failed` and `pruned`; the outputs of a
    pruned one are no edges. Edge attributes: `kind`
    "input" (parameter → API; `path`, `role` "required" or "optional"), "output" (API → parameter; `path`, `origin`),
    "follows" (API → API; `weight` = N(i→j)/N(j), `count`) or "flows" (parameter → parameter; `count`).
    """
    known = history or History()
    drawn = Drawing("tool dependencies")
    for name in graph.apis:
        ok, failed = known.uses.get(name, 0), known.failures.get(name, 0)
        pruned = name in graph.left_out
        drawn.nodes[f"api:{name}"] = {"kind": "api", "label": name, "ok": ok, "failed": failed, "pruned": pruned}
    for number, cluster in graph.clusters.by_id.items():
        drawn.nodes[f"parameter:{number}"] = {"kind": "parameter", "label": cluster.label}
    for name, number, direction, port in graph.edges():
        if direction == "in":
            role = "required" if port.required else "optional"
            drawn.edges.append(
                (f"parameter:{number}", f"api:{name}", {"kind": "input", "path": port.path, "role": role})
            )
        else:
            drawn.edges.append(
                (f"api:{name}", f"parameter:{number}", {"kind": "output", "path": port.path, "origin": port.origin})
            )
    for (source, target), count in known.transitions.items():
        if source in graph and target in graph:
            weight = known.weight(source, target)
            drawn.edges.append(
                (f"api:{source}", f"api:{target}", {"kind": "follows", "weight": weight, "count": count})
            )
    for flow, count in known.flows.items():
        if flow.source not in graph or flow.target not in graph:
            continue
        outputs = [port for port in graph.apis[flow.source].outputs if port.path == flow.path]
        inputs = [port for port in graph.apis[flow.target].inputs if port.parameter == flow.parameter]
        if outputs and inputs:
            source_id, target_id = graph.cluster_of(outputs[0]).id, graph.cluster_of(inputs[0]).id
            drawn.edges.append((f"parameter:{source_id}", f"parameter:{target_id}", {"kind": "flows", "count": count}))
    return drawn
