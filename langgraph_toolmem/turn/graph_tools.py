"""The tools that a running graph holds, for a node that nobody told of them: what they say of themselves counts.

Found are those of a ``ToolNode``, and those that a model was bound with, in nodes, in what the nodes' functions refer
to, and in subgraphs. What is not found is not described, and is never called without the model.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.runs.tools import ToolSpec, gravest, read_tools

MAX_GRAPHS: Final = 64
_MAX_DEPTH: Final = 8
_MAX_LOOKED_AT: Final = 2_000
_CALL: Final = "__pregel_call"
"""Where LangGraph keeps, in the config of a node, how to start tasks; no public name, and the only way to the graph."""


class GraphTools:
    """Remembers which tools the graphs hold that it has looked at.

    Args:
        skip: objects of these classes are not looked into.
    """

    def __init__(self, skip: tuple[type, ...] = ()) -> None:
        self._skip = (BaseLanguageModel, *skip)
        self._known: dict[int, tuple[Any, dict[str, ToolSpec], list[BaseTool]]] = {}

    def of_run(self, config: RunnableConfig | None) -> dict[str, ToolSpec]:
        """The tools of the graph that a node runs in, by name; the same dict for the same graph, {} outside of one."""
        return self.of(_graph_of(config))

    def executed(self, config: RunnableConfig | None) -> list[BaseTool]:
        """The tools of that graph that it can execute; of several with one name none: which one, cannot be told."""
        holder = _graph_of(config)
        self.of(holder)
        return [] if holder is None else self._known[id(holder)][2]

    def of(self, holder: Any) -> dict[str, ToolSpec]:
        """The tools in an object: a model with its tools bound, a node, the nodes of a graph."""
        if holder is None:
            return {}
        found = self._known.get(id(holder))
        if found is None:
            if len(self._known) >= MAX_GRAPHS:
                self._known.clear()
            tools = list(_tools_in(holder, self._skip))
            names = Counter(tool.name for tool in tools if isinstance(tool, BaseTool))
            single = [tool for tool in tools if isinstance(tool, BaseTool) and names[tool.name] == 1]
            found = self._known[id(holder)] = (holder, _read(tools), single)
        return found[1]


def _graph_of(config: RunnableConfig | None) -> Any:
    """The nodes of the graph that a node runs in; None outside of one."""
    task = (config or {}).get("configurable", {}).get(_CALL)
    start = getattr(task, "keywords", {}).get("schedule_task")
    return getattr(getattr(start, "__self__", None), "nodes", None)


def _read(tools: Iterable[Any]) -> dict[str, ToolSpec]:
    """Specs by name; of several with one name the gravest marks. What cannot be read is passed over."""
    specs: dict[str, ToolSpec] = {}
    for tool in tools:
        try:
            [(name, spec)] = read_tools([tool]).items()
        except ConfigurationError:
            continue
        specs[name] = gravest(specs.get(name, spec), [spec])
    return specs


def _tools_in(holder: Any, skip: tuple[type, ...]) -> Iterator[Any]:
    queue, seen = [(holder, 0)], {id(holder)}
    for thing, depth in queue:
        if isinstance(thing, BaseTool):
            yield thing
            continue
        yield from _bound_with(thing)
        if depth < _MAX_DEPTH:
            for each in _parts(thing, skip):
                if id(each) not in seen and len(seen) < _MAX_LOOKED_AT:
                    seen.add(id(each))
                    queue.append((each, depth + 1))


def _bound_with(thing: Any) -> Iterator[Any]:
    """What ``bind_tools`` left in a binding: dicts of the provider's form."""
    kwargs = getattr(thing, "__dict__", {}).get("kwargs")  # attribute access can build a configurable model
    bound = kwargs.get("tools") if isinstance(kwargs, Mapping) else None
    yield from (tool for tool in bound or () if isinstance(tool, Mapping)) if isinstance(bound, (list, tuple)) else ()


def _parts(thing: Any, skip: tuple[type, ...]) -> Iterator[Any]:
    if isinstance(thing, Mapping):
        found: Iterable[Any] = list(thing.values())
    elif isinstance(thing, (list, tuple, set, frozenset)):
        found = list(thing)
    elif inspect.ismethod(thing):
        found = [thing.__func__, *_fields(thing.__self__)]
    elif inspect.isfunction(thing):
        found = _referred_to(thing)
    else:
        found = _fields(thing)
    for each in found:
        if isinstance(each, skip):
            continue
        plain = isinstance(each, (Mapping, list, tuple, set, frozenset))
        if plain or isinstance(each, (BaseTool, Runnable, Pregel)) or inspect.isroutine(each) or _is_node(each):
            yield each


def _is_node(thing: Any) -> bool:
    return type(thing).__module__.startswith("langgraph.")


def _fields(thing: Any) -> list[Any]:
    return list(getattr(thing, "__dict__", {}).values())


def _referred_to(function: Callable[..., Any]) -> list[Any]:
    try:
        closure = inspect.getclosurevars(function)
    except (TypeError, ValueError):  # a cell that is empty yet
        return []
    return [*closure.nonlocals.values(), *closure.globals.values()]


__all__ = ["GraphTools"]
