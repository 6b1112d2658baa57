"""Tools as the memory sees them: a name, the parameters that a model may fill, and the declared effects.

`read_tools` reads what people hand to ``bind_tools`` or ``ToolNode``: LangChain tools, plain functions, OpenAI,
Anthropic and MCP tool dicts, MCP tools, and specs such as `navigator.openapi` makes. Arguments that the host injects
(state, store, runtime, ids) are no parameters here.

Effects are True, False or None (not declared). Sources, the strongest first: tags (``destructive``, in any spelling:
"Destructive", "READ-ONLY"), keys of ``metadata`` or of the dict by these names, MCP annotations. Annotations are read
by the MCP specification, if the server says anything about effects:

* A writing tool without ``destructiveHint`` is destructive: that is the specification's default. A server declares
  writing with ``readOnlyHint: false``, or with an ``idempotentHint`` and no ``readOnlyHint``.
* ``destructiveHint`` has no meaning where ``readOnlyHint`` is true; servers that send all defaults send it true there.
* No annotations, or only others (``title``), declare nothing. Many servers send none, and by the defaults all their
  tools would be destructive.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NoReturn, TypeAlias

import jsonschema_rs
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ValidationError

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.text.meaning import route_of
from langgraph_toolmem.text.schema import compact

logger = logging.getLogger("langgraph_toolmem.runs.tools")

_HINTS = ("read_only", "destructive", "idempotent")
_PROBLEM_CHARS = 300
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
# LangChain's schema of a `Tool` that wraps a function of one text.
_ONE_TEXT: dict[str, Any] = {"type": "object", "properties": {"__arg1": {"type": "string"}}, "required": ["__arg1"]}


@dataclass(frozen=True)
class ToolSpec:
    """One tool.

    Attributes:
        name: Its name; dots are fine.
        description: Text that the model reads, "" if none.
        parameters: JSON schema (object) of what a model may fill, without injected arguments.
        returns: JSON schema of the result, if declared (``returns`` in a tool dict, ``outputSchema`` of MCP).
        read_only: True if it changes nothing; None if not declared, like the next two (see the module).
        destructive: True if it may destroy something.
        idempotent: True if calling it again with the same arguments changes nothing more.
        tags: Tags of the tool.
        toolkit: Its service, server or API, "" if not declared.
        category: Topic of the toolkit, "" if not declared.
        route: HTTP method and path template, such as ``GET /orders/{order_id}``; "" if it is no HTTP operation.
        controls: True if its answer ends or steers the run: it returns a ``Command`` or has ``return_direct``.
        seen: True if somebody described it; False if the spec is inferred from its calls.
        arguments_model: pydantic model with which the tool itself validates, if it has one.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    returns: dict[str, Any] | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    tags: tuple[str, ...] = ()
    toolkit: str = ""
    category: str = ""
    route: str = ""
    controls: bool | None = None
    seen: bool = True
    arguments_model: type[BaseModel] | None = field(default=None, repr=False, compare=False)

    @functools.cached_property
    def properties(self) -> dict[str, dict[str, Any]]:
        """Parameter name to its schema, with an outermost local ``$ref`` resolved."""
        return {
            name: dict(self._resolved(schema)) if isinstance(schema, Mapping) else {}
            for name, schema in self._resolved(self.parameters).get("properties", {}).items()
        }

    @functools.cached_property
    def streams(self) -> bool:
        """True if an answer does not end: ``returns`` says ``"x-stream": true``, or the route is a watch."""
        route = route_of(self.route)
        return (self.returns or {}).get("x-stream") is True or (route is not None and route.streams)

    @functools.cached_property
    def required(self) -> frozenset[str]:
        return frozenset(self._resolved(self.parameters).get("required", ()))

    def problem(self, args: Mapping[str, Any]) -> str | None:
        """Return the first error of arguments in one line that names the parameter; None if they are valid.

        A parameter that the schema does not name is an error even where additional ones are allowed, unless the
        schema names none at all. Values are not coerced: ``"5"`` is no integer. Never raises.
        """
        if not hasattr(args, "keys"):
            return f"arguments of {self.name} are {type(args).__name__}, not a mapping"
        if missing := sorted(self.required - args.keys()):
            return f"missing parameter {missing[0]!r}"
        if self.properties and (unknown := [name for name in args if name not in self.properties]):
            return f"unknown parameter {unknown[0]!r}"
        return self.schema_problem(dict(args)) or self._model_problem(dict(args))

    def schema_problem(self, args: dict[str, Any]) -> str | None:
        """Return the first error of arguments by the JSON schema alone, in one line; None if there is none."""
        if isinstance(self._validator, str):
            return self._validator
        try:
            error = next(iter(self._validator.iter_errors(args)), None)
        except (ValueError, TypeError, RecursionError) as unreadable:
            return _line(f"arguments of {self.name} are no JSON values: {unreadable}")
        if error is None:
            return None
        return _line(f"{_where(error.instance_path)}: {error.message}")

    def _model_problem(self, args: dict[str, Any]) -> str | None:
        if self.arguments_model is None:
            return None
        try:
            self.arguments_model.model_validate(args)
        except ValidationError as invalid:
            error = invalid.errors(include_url=False, include_context=False, include_input=False)[0]
            return _line(f"{_where(error['loc'])}: {error['msg']}")
        except Exception as error:  # noqa: BLE001 - a validator is the host's code and may raise anything
            return _line(f"arguments of {self.name} cannot be validated: {error!r}")
        return None

    @property
    def has_readable_schema(self) -> bool:
        return not isinstance(self._validator, str)

    @functools.cached_property
    def _validator(self) -> Any:
        # A text says why there is no validator; then no arguments are valid.
        try:
            return jsonschema_rs.validator_for(self.parameters, retriever=_no_network)
        except Exception as error:  # noqa: BLE001 - schemas are the host's, and any that does not compile is unusable
            reason = _line(f"the schema of {self.name} cannot be used: {error}")
            logger.warning("%s; no call of this tool will be proposed", reason)
            return reason

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Follow local ``$ref`` s from the outermost level of a schema; keys next to a ``$ref`` win."""
        for _ in range(8):
            reference = schema.get("$ref")
            if not isinstance(reference, str) or not reference.startswith("#"):
                return schema
            target: Any = self.parameters
            for part in filter(None, reference[1:].split("/")):
                part = part.replace("~1", "/").replace("~0", "~")
                target = target.get(part) if isinstance(target, Mapping) else None
            if not isinstance(target, Mapping):
                return schema
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        return schema


SideEffects: TypeAlias = Literal["reads", "changes", "destroys", "controls"]


def side_effects(spec: ToolSpec) -> SideEffects:
    """Return the effect of a call by the tool's marks alone. Undeclared tools count as changing something."""
    if spec.destructive:
        return "destroys"
    if spec.controls:
        return "controls"
    return "reads" if spec.read_only else "changes"


ToolLike: TypeAlias = BaseTool | Callable[..., Any] | Mapping[str, Any] | BaseModel | ToolSpec
"""Input of `read_tools`. A pydantic instance is MCP's ``Tool``."""


def read_tools(tools: Iterable[ToolLike]) -> dict[str, ToolSpec]:
    """Read tools into specs by name; raise ConfigurationError for one that cannot be read, or a name that repeats."""
    if isinstance(tools, (str, bytes, Mapping, BaseTool)) or not isinstance(tools, Iterable):
        raise ConfigurationError(
            f"tools is {type(tools).__name__}, not a list. Pass a list of LangChain tools, functions or tool dicts."
        )
    specs: dict[str, ToolSpec] = {}
    for index, tool in enumerate(tools):
        spec = _read(tool, index)
        if spec.name in specs:
            first = list(specs).index(spec.name)
            raise ConfigurationError(
                f"tools[{index}] and tools[{first}] are both named {spec.name!r}. Rename or drop one of them."
            )
        specs[spec.name] = spec
    return specs


def name_of(tool: Any) -> str | None:
    """Return the name of a tool in any form that a chat model takes; None for a provider's own tool."""
    if isinstance(tool, Mapping):
        function = tool.get("function")
        tool = function if isinstance(function, Mapping) else tool
        found = tool.get("name")
    else:
        found = getattr(tool, "name", None) or getattr(tool, "__name__", None)
    return found if isinstance(found, str) and found else None


def _read(tool: Any, index: int) -> ToolSpec:
    if isinstance(tool, ToolSpec):
        return tool
    try:
        if isinstance(tool, BaseTool):
            return _from_base_tool(tool)
        if isinstance(tool, Mapping):
            return _from_mapping(tool)
        if isinstance(tool, type):
            return _from_class(tool)
        if isinstance(tool, BaseModel) and hasattr(tool, "inputSchema"):
            return _from_mapping(tool.model_dump(by_alias=True))
        if callable(tool):
            return _from_base_tool(as_tool(tool))
    except Exception as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise ConfigurationError(f"tools[{index}] ({_describe(tool)}) cannot be read: {reason}") from error
    raise ConfigurationError(
        f"tools[{index}] ({_describe(tool)}) is neither a LangChain tool, a function nor a tool dict"
    )


def _from_base_tool(tool: BaseTool) -> ToolSpec:
    model: type[BaseModel] | None = None
    if isinstance(tool, Tool) and tool.args_schema is None:
        parameters = copy.deepcopy(_ONE_TEXT)
    else:
        schema: Any = tool.tool_call_schema
        if isinstance(schema, Mapping):
            parameters = _object_schema(schema)
        elif issubclass(schema, BaseModel):
            parameters, model = _object_schema(schema.model_json_schema()), _own_model(tool, schema)
        else:  # a pydantic.v1 model
            parameters = _object_schema(schema.schema())
    declared = {**(getattr(tool, "extras", None) or {}), **(tool.metadata or {})}  # extras since langchain-core 1.2
    spec = _spec(tool.name, tool.description, parameters, declared, tool.tags, model)
    return replace(spec, controls=True) if tool.return_direct or _returns_command(tool) else spec


def _returns_command(tool: BaseTool) -> bool:
    """Return True if its function is annotated to return a ``Command``; annotations as text count.

    A tuple (content and artifact) does not count: MCP adapters annotate one with a ``Command`` on any tool.
    """
    ways = (getattr(tool, name, None) for name in ("func", "coroutine", "_run", "_arun"))
    returned = [str((getattr(way, "__annotations__", None) or {}).get("return", "")) for way in ways]
    return any(re.search(r"\bCommand\b", text) and not re.match(r"(?i)(typing\.)?tuple\b", text) for text in returned)


def _own_model(tool: BaseTool, offered: type[BaseModel]) -> type[BaseModel]:
    # The tool's whole model where nothing is injected: the offered one lacks the validators.
    own = tool.args_schema
    if not (isinstance(own, type) and issubclass(own, BaseModel)):
        return offered
    return own if own.model_fields.keys() == offered.model_fields.keys() else offered


def _from_class(tool: type) -> ToolSpec:
    if issubclass(tool, BaseModel):
        parameters = _object_schema(tool.model_json_schema())
        return _spec(tool.__name__, tool.__doc__ or "", parameters, {}, (), tool)
    return _from_mapping(convert_to_openai_tool(tool))


def as_tool(function: Callable[..., Any]) -> BaseTool:
    name = getattr(function, "__name__", None) or type(function).__name__
    description = inspect.getdoc(function) or name
    if inspect.iscoroutinefunction(function):
        return StructuredTool.from_function(coroutine=function, name=name, description=description)
    return StructuredTool.from_function(function, name=name, description=description)


def _from_mapping(tool: Mapping[str, Any]) -> ToolSpec:
    # OpenAI (nested or flat), Anthropic (``input_schema``) or MCP (``inputSchema``) form
    inner = tool.get("function")
    body: Mapping[str, Any] = inner if isinstance(inner, Mapping) else tool
    schema = _first(body, "parameters", "input_schema", "inputSchema")
    parameters = _object_schema(_NO_PARAMETERS if schema is None else schema)
    both = {**tool, **body}
    return _spec(body.get("name"), body.get("description"), parameters, both, _first(both, "tags"), None)


def _spec(
    name: Any,
    description: Any,
    parameters: dict[str, Any],
    declared: Mapping[str, Any],
    tags: Any,
    model: type[BaseModel] | None,
) -> ToolSpec:
    if not isinstance(name, str) or not name:
        raise TypeError("it has no name; provider-side tools such as web search are not tools the agent executes")
    returns = _first(declared, "returns", "outputSchema", "output_schema")
    tag_names = tuple(str(tag) for tag in tags or ())
    texts: dict[str, Any] = {key: text for key in _TEXTS if isinstance(text := declared.get(key), str)}
    return ToolSpec(
        name=name,
        description=description if isinstance(description, str) else "",
        parameters=parameters,
        returns=copy.deepcopy(dict(returns)) if isinstance(returns, Mapping) else None,
        tags=tag_names,
        arguments_model=model,
        **texts,
        **_effects(declared, tag_names),  # type: ignore[arg-type]
    )


def _effects(declared: Mapping[str, Any], tags: tuple[str, ...]) -> dict[str, bool | None]:
    nested = declared.get("annotations")
    if isinstance(nested, BaseModel):
        nested = nested.model_dump()
    # langchain-mcp-adapters puts the annotations flat into the metadata, MCP itself below "annotations".
    places = (nested, declared) if isinstance(nested, Mapping) else (declared,)
    tagged = {_plain(tag) for tag in tags}
    own = {effect: True if _plain(effect) in tagged else _flag(places, effect) for effect in _HINTS}
    hints = {effect: _flag(places, f"{effect}_hint") for effect in _HINTS}
    known = {effect: hints[effect] if word is None else word for effect, word in own.items()}
    hint, writes = hints["destructive"], hints["read_only"] is False or hints["idempotent"] is not None
    if own["destructive"] is None and known["read_only"]:
        known["destructive"] = None if hint is None else False
    elif own["destructive"] is None:
        known["destructive"] = True if hint is None and writes else hint
    return known


def _plain(name: str) -> str:
    # "READ-ONLY", "readOnly" and "read_only" are one.
    return re.sub(r"[\W_]+", "", name).lower()


def _flag(places: Iterable[Mapping[str, Any]], name: str) -> bool | None:
    """Return the first True or False under a key of this name; MCP's adapter puts None where nothing is declared."""
    wanted, pairs = _plain(name), (pair for place in places for pair in place.items())
    return next((value for key, value in pairs if isinstance(value, bool) and _plain(str(key)) == wanted), None)


def _object_schema(schema: Any) -> dict[str, Any]:
    """Copy the JSON schema of an object; raises TypeError if it is none."""
    if not isinstance(schema, Mapping):
        raise TypeError(f"its parameters are {type(schema).__name__}, not a JSON schema")
    copied: dict[str, Any] = copy.deepcopy(dict(schema))
    for key in ("properties", "required"):
        if copied.get(key, ()) is None:  # some MCP servers send null for "none"
            del copied[key]
    if not isinstance(copied.get("properties", {}), dict):
        raise TypeError("'properties' of its parameters is not a dict of JSON schemas")
    required = copied.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise TypeError("'required' of its parameters is not a list of names")
    if copied.get("type", "object") not in ("object", ["object"]):
        raise TypeError(f"its parameters are of JSON type {copied['type']!r}, not 'object'")
    return copied


def _first(mapping: Mapping[str, Any], *keys: str) -> Any:
    return next((mapping[key] for key in keys if mapping.get(key) is not None), None)


def _where(path: Iterable[Any]) -> str:
    steps = [str(step) for step in path]
    return f"parameter {'.'.join(steps)!r}" if steps else "arguments"


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _PROBLEM_CHARS else flat[: _PROBLEM_CHARS - 1] + "…"


def _describe(tool: Any) -> str:
    name = name_of(tool)
    return f"{type(tool).__name__} {name!r}" if name else type(tool).__name__


def _no_network(uri: str) -> NoReturn:
    raise ValueError(f"remote reference {uri} is not fetched")


# --- notes: what a memory keeps of a tool, to search and plan without it ---

MAX_RETURNS: Final = 20_000
"""Characters of JSON above which the schema of a result is kept in brief: there may be thousands of tools."""
_TEXTS: Final = ("toolkit", "category", "route")
_NOTHING: Final[tuple[Any, ...]] = (None, "", [])
EFFECTS: Final = ("read_only", "destructive", "idempotent", "controls")
_GRAVE: Final = dict(zip(EFFECTS, (False, True, False, True), strict=True))
"""The more restrictive value of each effect."""


def changes_of(spec: ToolSpec, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the note to keep of a tool, in plain containers; {} if `known`, the last note, says the same.

    A note has description and parameters always; result schema, effects, tags, toolkit and category if declared. A
    field that was declared before and is no longer is noted as empty.
    """
    fields: dict[str, Any] = {name: getattr(spec, name) for name in (*_TEXTS, *EFFECTS)}
    fields |= {"tags": list(spec.tags), "returns": spec.returns}
    if spec.returns is not None and known.get("returns") != spec.returns:
        try:
            short = len(json.dumps(spec.returns)) <= MAX_RETURNS
        except (TypeError, ValueError, RecursionError):  # no JSON: it cannot be kept as it is
            short = False
        fields["returns"] = spec.returns if short else compact(spec.returns) or None
    note = {"description": spec.description, "parameters": spec.parameters}
    note |= {name: value for name, value in fields.items() if value not in _NOTHING or known.get(name) not in _NOTHING}
    return note if any(name not in known or known[name] != value for name, value in note.items()) else {}


def spec_of(name: str, note: Mapping[str, Any]) -> ToolSpec:
    returns, tags = note.get("returns"), note.get("tags")
    rest: dict[str, Any] = {field: str(note.get(field, "")) for field in _TEXTS}
    rest |= {field: effect for field in EFFECTS if isinstance(effect := note.get(field), bool)}
    return ToolSpec(
        name,
        str(note.get("description", "")),
        note["parameters"],
        returns=returns if isinstance(returns, dict) else None,
        tags=tuple(map(str, tags)) if isinstance(tags, list) else (),
        **rest,
    )


def restricted(spec: ToolSpec, others: Iterable[ToolSpec]) -> ToolSpec:
    """Return a tool with the restrictive marks of others of its name. No permission comes from them."""
    others = list(others)
    marks: dict[str, Any] = {}
    for effect, grave in _GRAVE.items():
        forbidden = any(getattr(other, effect) is grave for other in others)
        marks[effect] = grave if forbidden else getattr(spec, effect)
    return _remarked(spec, marks)


def agreed(spec: ToolSpec, other: ToolSpec) -> ToolSpec:
    """Return a tool that stands for two of one name: what either forbids is forbidden, what both permit permitted."""
    marks: dict[str, Any] = {}
    for effect, grave in _GRAVE.items():
        own, theirs = getattr(spec, effect), getattr(other, effect)
        if grave in (own, theirs):
            marks[effect] = grave
        else:
            marks[effect] = own if own is theirs else None
    return _remarked(spec, marks)


def _remarked(spec: ToolSpec, marks: Mapping[str, Any]) -> ToolSpec:
    same = all(getattr(spec, effect) is mark for effect, mark in marks.items())
    return spec if same else replace(spec, **marks)


def grave_marks(spec: ToolSpec) -> ToolSpec:
    """Return a tool with its restrictive marks alone: other programs must not lose them."""
    marks: dict[str, Any] = {field: mark if getattr(spec, field) is mark else None for field, mark in _GRAVE.items()}
    return replace(spec, **marks)


def without_choices(spec: ToolSpec) -> ToolSpec:
    properties = {
        name: {key: value for key, value in schema.items() if key not in ("enum", "const", "default", "examples")}
        for name, schema in spec.properties.items()
    }
    return replace(spec, parameters={**spec.parameters, "properties": properties})
