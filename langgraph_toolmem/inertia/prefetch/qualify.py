"""Which tools may be run ahead, and why others may not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, Tool
from pydantic import BaseModel
from typing_extensions import get_type_hints

from langgraph_toolmem.core.catalogue import named
from langgraph_toolmem.inertia.guards import may_write, why_never
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch.settings import Prefetch
from langgraph_toolmem.runs.tools import ToolSpec

_OPT_OUT: Final = "noprefetch"
_OF_LANGCHAIN: Final = frozenset({"self", "run_manager", "callbacks"})
_MCP: Final = "langchain_mcp_adapters.tools"


class Gates(NamedTuple):
    """What of the host stands between the model's call and its execution.

    Attributes:
        wrapped: what wraps tool calls or may take them back, in words; "" if nothing is known to.
        tools: tools that a person must approve, or whose calls are limited.
    """

    wrapped: str = ""
    tools: frozenset[str] = frozenset()


class Qualified(NamedTuple):
    """The tools at hand.

    Attributes:
        may: those that may be run ahead, by name.
        why_not: the others, each with the reason.
    """

    may: Mapping[str, BaseTool]
    why_not: Mapping[str, str]

    @property
    def in_words(self) -> str:
        """For the log."""
        may = named(self.may)
        reasons: dict[str, list[str]] = {}
        for name, why in self.why_not.items():
            reasons.setdefault(why.removeprefix(f"{name} "), []).append(name)
        others = "; ".join(f"{named(names)}: {why}" for why, names in reasons.items())
        return f"Run ahead while the model is asked: {may or 'no tool'}." + (
            f" Not run ahead: {others}." if others else ""
        )


def qualified(
    tools: Mapping[str, BaseTool],
    specs: Mapping[str, ToolSpec],
    policy: InertiaPolicy,
    settings: Prefetch,
    gates: Gates,
) -> Qualified:
    """Which of the tools may be run ahead.

    Args:
        tools: as the host executes them.
        specs: what is known of them, all marks included.
        policy: says what reads.
        settings: which are wanted.
        gates: of the host.
    """
    why = {
        name: _why_not(tool, specs[name], policy, settings, gates) if name in specs else f"{name} is not described"
        for name, tool in tools.items()
    }
    return Qualified({n: tools[n] for n, no in why.items() if not no}, {n: no for n, no in why.items() if no})


def _why_not(tool: BaseTool, spec: ToolSpec, policy: InertiaPolicy, settings: Prefetch, gates: Gates) -> str:
    name = spec.name
    if settings.tools is not None and name not in settings.tools:
        return f"{name} is not named in Prefetch(tools=...)"
    reading = policy.with_(may_write=(), only=None)  # who named it for the shortcut did not mean this
    if may_write(name, {name: spec}, reading):
        return f"{name} is not declared to only read"
    if never := why_never(spec, reading):
        return never
    if _opted_out(tool):
        return f"{name} is marked no_prefetch"
    if injected := sorted(set(_injected(tool, spec))):
        return f"{name} takes what only the host can give: {', '.join(injected)}"
    if name in gates.tools:
        return f"{name} has to be approved, or its calls are limited"
    if gates.wrapped and settings.tools is None:
        return f"{name} is not named in Prefetch(tools=...), and {gates.wrapped} may hold its calls back"
    return ""


def _opted_out(tool: BaseTool) -> bool:
    metadata = tool.metadata or {}
    if any(_letters(tag) == _OPT_OUT for tag in tool.tags or ()) or metadata.get("prefetch") is False:
        return True
    return any(_letters(key) == _OPT_OUT and value is not False for key, value in metadata.items())


def _letters(text: Any) -> str:
    return re.sub(r"[^a-z]", "", str(text).lower())


def _injected(tool: BaseTool, spec: ToolSpec) -> Iterator[str]:
    """Parameters that the model does not fill."""
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
            hints = get_type_hints(code, include_extras=False)
        except (TypeError, ValueError, NameError):
            yield "something that cannot be told"
            continue
        for each in parameters:
            plain = each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY, each.POSITIONAL_ONLY)
            if not plain or each.name in spec.properties or each.name in _OF_LANGCHAIN:
                continue
            if not _is_config(hints.get(each.name)) and not _idle_in_mcp(code, each):
                yield each.name


def _code_of(tool: BaseTool) -> list[Callable[..., Any]]:
    """The host's own code in a tool."""
    if isinstance(tool, StructuredTool):
        return [code for code in (tool.func, tool.coroutine) if code is not None]
    ways = [way for way in ("_run", "_arun") if getattr(type(tool), way) is not getattr(BaseTool, way)]
    return [getattr(tool, way) for way in ways]


def _is_config(hint: Any) -> bool:
    return hint is RunnableConfig or RunnableConfig in getattr(hint, "__args__", ())


def _idle_in_mcp(code: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    """The runtime that MCP's adapter hands to its interceptors, where there are none."""
    if parameter.default is not None or getattr(code, "__module__", "") != _MCP:
        return False
    return not inspect.getclosurevars(code).nonlocals.get("tool_interceptors", True)
