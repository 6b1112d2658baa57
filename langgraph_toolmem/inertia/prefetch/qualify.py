"""Qualification for prefetch: tools that may be, and predicted calls that are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, Tool
from pydantic import BaseModel
from typing_extensions import get_type_hints

from langgraph_toolmem.core.catalogue import named
from langgraph_toolmem.graph.state import WORDS
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.decision import Option
from langgraph_toolmem.inertia.guards import may_write, why_never
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Prefetch
from langgraph_toolmem.inertia.record import REVIEWED, SERVED, UNCLAIMED
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon_args

CREDIT: Final = 16.0
"""Look-ups that a new record may waste before any was served; the account of `least_probability` begins with them."""
LASTS: Final = 20.0
"""An account that is full lasts for so many look-ups, each of which wastes as much as it may."""
HIGHEST: Final = 0.9
"""The least probability grows no further, so that a record can improve."""
RARE: Final = 20
"""A tool is prefetched while so many of its calls were served for each unclaimed one."""
_OF_LANGCHAIN: Final = frozenset({"self", "run_manager", "callbacks"})
_MCP: Final = "langchain_mcp_adapters.tools"


class Interceptors(NamedTuple):
    """The host's code between the model's call and its execution.

    Attributes:
        wrapped: names of what wraps tool calls or may remove them; "" if nothing is known to.
        tools: tools that a person must approve, or whose calls are limited.
    """

    wrapped: str = ""
    tools: frozenset[str] = frozenset()


def qualified(
    tools: Mapping[str, BaseTool],
    specs: Mapping[str, ToolSpec],
    policy: InertiaPolicy,
    settings: Prefetch,
    interceptors: Interceptors,
) -> tuple[dict[str, BaseTool], str]:
    """Return those of the tools, as the host executes them, that may be prefetched, and one line for the log."""
    why = {
        name: _why_not(tool, specs[name], policy, settings, interceptors) if name in specs else "is not described"
        for name, tool in tools.items()
    }
    found = {name: tool for name, tool in tools.items() if not why[name]}
    reasons: dict[str, list[str]] = {}
    for name, no in why.items():
        if no:
            reasons.setdefault(no.removeprefix(f"{name} "), []).append(name)
    others = "; ".join(f"{named(names)}: {reason}" for reason, names in reasons.items())
    line = f"Prefetched while the model is asked: {named(found) or 'no tool'}."
    return found, f"{line} Not prefetched: {others}." if others else line


def _why_not(
    tool: BaseTool, spec: ToolSpec, policy: InertiaPolicy, settings: Prefetch, interceptors: Interceptors
) -> str:
    name = spec.name
    if settings.tools is not None and name not in settings.tools:
        return "is not named in Prefetch(tools=...)"
    if may_write(name, {name: spec}):
        return "is not declared to only read"
    if never := why_never(spec, policy.with_(only=None)):
        return never
    if _opted_out(tool):
        return "is marked no_prefetch"
    if injected := sorted(set(_injected(tool, spec))):
        return f"takes what only the host can give: {', '.join(injected)}"
    if name in interceptors.tools:
        return "has to be approved, or its calls are limited"
    if interceptors.wrapped and settings.tools is None:
        return f"is not named in Prefetch(tools=...), and {interceptors.wrapped} may hold its calls back"
    return ""


def _opted_out(tool: BaseTool) -> bool:
    marks = [*(tool.tags or ()), *(key for key, value in (tool.metadata or {}).items() if value is not False)]
    return any(str(mark).lower().replace("-", "_") == "no_prefetch" for mark in marks)


def _injected(tool: BaseTool, spec: ToolSpec) -> Iterator[str]:
    """Yield the parameters that the model does not fill."""
    schema: Any = tool.args_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        for name, field in schema.model_fields.items():
            if name not in spec.properties and field.alias not in spec.properties:
                yield name
    if isinstance(tool, Tool):  # a function of one text
        return
    for code in _code_of(tool):
        try:
            parameters = inspect.signature(code).parameters.values()
            hints = get_type_hints(code)
        except (TypeError, ValueError, NameError):
            yield "unknown parameters"
            continue
        for each in parameters:
            plain = each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY, each.POSITIONAL_ONLY)
            if not plain or each.name in spec.properties or each.name in _OF_LANGCHAIN:
                continue
            hint = hints.get(each.name)
            if RunnableConfig not in (hint, *getattr(hint, "__args__", ())) and not _idle_in_mcp(code, each):
                yield each.name


def _code_of(tool: BaseTool) -> list[Callable[..., Any]]:
    if isinstance(tool, StructuredTool):
        return [code for code in (tool.func, tool.coroutine) if code is not None]
    ways = [way for way in ("_run", "_arun") if getattr(type(tool), way) is not getattr(BaseTool, way)]
    return [getattr(tool, way) for way in ways]


def _idle_in_mcp(code: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    """Return True for the runtime that MCP's adapter passes to its interceptors, where there are none."""
    if parameter.default is not None or getattr(code, "__module__", "") != _MCP:
        return False
    return not inspect.getclosurevars(code).nonlocals.get("tool_interceptors", True)


def held_back(graph: ToolGraph, tool: str, *, named: bool = False) -> bool:
    """Return True if something holds back calls of a tool; `named`: the developer says that it may be prefetched."""
    record = graph.by_tool.get(tool, {})
    if record.get(REVIEWED, 0.0):
        return True
    return not named and record.get(UNCLAIMED, 0.0) * RARE > record.get(SERVED, 0.0)


class Lookup(NamedTuple):
    """A call to be prefetched.

    Attributes:
        tool: its name.
        args: its arguments; `text`: the same as `canon_args` writes them.
        probability: that the model asks for it; 1 if its streamed answer does.
    """

    tool: str
    args: Mapping[str, Any]
    text: str
    probability: float = 1.0

    @property
    def key(self) -> tuple[str, str]:
        return self.tool, self.text


def least_probability(settings: Prefetch, served: float, wasted: float) -> float:
    """Return the probability from which a predicted call is prefetched.

    A served look-up adds m = `Prefetch.max_wasted` to an account, a wasted one takes 1 from it. A call with
    probability p takes (1 - p) - m · p on average; it is made if that is at most 1/`LASTS` of the account. So
    what is wasted beyond the limit stays about `CREDIT`, also where predictions are right less often than they say.
    """
    if settings.max_wasted is None:
        return settings.min_probability
    account = CREDIT + settings.max_wasted * served - wasted
    least = (1 - account / LASTS) / (1 + settings.max_wasted)
    return float(max(settings.min_probability, min(HIGHEST, least)))


def choose(
    predicted: Sequence[Option],
    settings: Prefetch,
    least: float,
    may: Callable[[str, Mapping[str, Any]], bool],
) -> list[Lookup]:
    """Return the likeliest of the predicted calls, likeliest first, that may be prefetched."""
    found: dict[tuple[str, str], Lookup] = {}
    for each in predicted:
        if each.probability < least:
            break
        if each.tool == WORDS or each.changes or each.stale:
            continue
        for args in each.calls:
            lookup = Lookup(each.tool, args, canon_args(args), each.probability)
            if may(each.tool, args):
                found.setdefault(lookup.key, lookup)
    return list(found.values())[: settings.at_most]
