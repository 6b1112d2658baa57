"""Tools as the memory sees them: a name, the parameters that a model may fill, and the declared effects.

`read_tools` reads all forms that ``bind_tools`` or ``ToolNode`` accepts: LangChain tools, plain functions, OpenAI,
Anthropic and MCP tool dicts, MCP tools, and specs such as `navigator.openapi` makes. Arguments that the host injects
(state, store, runtime, ids) are not parameters here.

Effects are True, False or None (not declared). Sources, the strongest first: tags (``destructive``, in any spelling:
"Destructive", "READ-ONLY"), keys of ``metadata`` or of the dict by these names, MCP annotations. Annotations are read
by the MCP specification, if the server declares an effect:

* A writing tool without ``destructiveHint`` is destructive: that is the specification's default. A server declares
  writing with ``readOnlyHint: false``, or with an ``idempotentHint`` and no ``readOnlyHint``.
* ``destructiveHint`` has no meaning if ``readOnlyHint`` is true; servers that send all defaults send it as true then.
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

from langgraph_toolmem.base.errors import ConfigurationError, first_line
from langgraph_toolmem.text.meaning import route_of
from langgraph_toolmem.text.schema import compact, followed

logger = logging.getLogger("langgraph_toolmem.runs.tools")

# LangChain's schema of a `Tool` that wraps a function of one text.
_ONE_TEXT: dict[str, Any] = {"type": "object", "properties": {"__arg1": {"type": "string"}}, "required": ["__arg1"]}


@dataclass(frozen=True)
class ToolSpec:
    """One tool.

    Attributes:
        name: Its name; dots are fine.
        description: Text for the model, or "".
        parameters: JSON schema (object) of what a model may fill, without injected arguments.
        returns: JSON schema of the result, if declared (``returns`` in a tool dict, ``outputSchema`` of MCP).
        read_only: True if it changes nothing; None if not declared, like the next two (see the module).
        destructive: True if it may destroy something.
        idempotent: True if calling it again with the same arguments has no further effect.
        tags: Tags of the tool.
        toolkit: Its service, server or API, "" if not declared.
        category: Topic of the toolkit, "" if not declared.
        route: HTTP method and path template, such as ``GET /orders/{order_id}``; "" if it is not an HTTP operation.
        controls: True if its answer ends or steers the run: it returns a ``Command`` or has ``return_direct``.
        seen: True if it was described; False if the spec is inferred from its calls.
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
        resolved: dict[str, dict[str, Any]] = {}
        for name, schema in followed(self.parameters, self.parameters).get("properties", {}).items():
            resolved[name] = {}
            # JSON schema also allows True for "any value".
            if isinstance(schema, Mapping):
                resolved[name] = dict(followed(schema, self.parameters))
        return resolved

    @functools.cached_property
    def streams(self) -> bool:
        """True if an answer does not end: ``returns`` says ``"x-stream": true``, or the route is a watch."""
        if self.returns is not None and self.returns.get("x-stream") is True:
            return True
        route = route_of(self.route)
        return route is not None and route.streams

    @functools.cached_property
    def required(self) -> frozenset[str]:
        """Names of the parameters that every call must give."""
        return frozenset(followed(self.parameters, self.parameters).get("required", ()))

    def problem(self, args: Mapping[str, Any]) -> str | None:
        """Return the first error of arguments in one line that names the parameter; None if they are valid.

        A parameter outside the schema is an error even if additional ones are allowed, unless the schema names no
        parameters. Values are not coerced: ``"5"`` is not an integer. Never raises.
        """
        if not hasattr(args, "keys"):
            return f"arguments of {self.name} are {type(args).__name__}, not a mapping"
        # Before the validator, which reports these two errors for the whole object instead of the parameter.
        missing = sorted(self.required - args.keys())
        if missing:
            return f"missing parameter {missing[0]!r}"
        if self.properties:
            for name in args:
                if name not in self.properties:
                    return f"unknown parameter {name!r}"
        return self.schema_problem(dict(args)) or self._model_problem(dict(args))

    def schema_problem(self, args: dict[str, Any]) -> str | None:
        """Return the first error of arguments by the JSON schema only, in one line, or None."""
        if isinstance(self._validator, str):
            return self._validator
        try:
            for error in self._validator.iter_errors(args):
                return _line(f"{_where(error.instance_path)}: {error.message}")
        except (ValueError, TypeError, RecursionError) as unreadable:
            return _line(f"arguments of {self.name} are no JSON values: {unreadable}")
        return None

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
        """False if the schema cannot be compiled: then no arguments are valid."""
        return not isinstance(self._validator, str)

    @functools.cached_property
    def _validator(self) -> Any:
        # A text says why the validator is missing; then all arguments are invalid.
        try:
            return jsonschema_rs.validator_for(self.parameters, retriever=_no_network)
        except Exception as error:  # noqa: BLE001 - schemas are the host's, and any that does not compile is unusable
            reason = _line(f"the schema of {self.name} cannot be used: {error}")
            logger.warning("%s; no call of this tool will be proposed", reason)
            return reason


SideEffects: TypeAlias = Literal["reads", "changes", "destroys", "controls"]


def side_effects(spec: ToolSpec) -> SideEffects:
    """Return the effect of a call by the tool's marks only. Undeclared tools count as changing something."""
    # In this order: a tool that is marked both destructive and read-only counts as destructive.
    if spec.destructive:
        return "destroys"
    if spec.controls:
        return "controls"
    if spec.read_only:
        return "reads"
    return "changes"


ToolLike: TypeAlias = BaseTool | Callable[..., Any] | Mapping[str, Any] | BaseModel | ToolSpec
"""Input of `read_tools`. A pydantic instance is MCP's ``Tool``."""


def read_tools(tools: Iterable[ToolLike]) -> dict[str, ToolSpec]:
    """Read tools into specs by name; raise ConfigurationError for one that cannot be read, or a name that repeats."""
    if isinstance(tools, (str, bytes, Mapping, BaseTool)) or not isinstance(tools, Iterable):
        raise ConfigurationError(
            f"`tools` must be a list of LangChain tools, functions or tool dicts, got {type(tools).__name__}."
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
    """Return the name of a tool in any form that a chat model accepts; None for a provider's own tool."""
    if isinstance(tool, Mapping):
        name = _body_of(tool).get("name")
    else:
        name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
    if isinstance(name, str) and name:
        return name
    return None


def names_of(tools: Iterable[Any]) -> frozenset[str]:
    """Return the names of tools in any form that a chat model accepts, without a provider's own tools."""
    names = set()
    for tool in tools:
        name = name_of(tool)
        if name is not None:
            names.add(name)
    return frozenset(names)


def _body_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a tool dict with its name: OpenAI nests it below "function"."""
    function = tool.get("function")
    if isinstance(function, Mapping):
        return function
    return tool


def _read(tool: Any, index: int) -> ToolSpec:
    if isinstance(tool, ToolSpec):
        return tool
    try:
        spec = _read_known(tool)
    except Exception as error:
        text = f"tools[{index}] ({_describe(tool)}) cannot be read: {first_line(error)}"
        raise ConfigurationError(text) from error
    if spec is None:
        raise ConfigurationError(
            f"tools[{index}] ({_describe(tool)}) is neither a LangChain tool, a function nor a tool dict. Pass one of "
            "these."
        )
    return spec


def _read_known(tool: Any) -> ToolSpec | None:
    """Return the spec of a tool in one of the accepted forms; None for anything else."""
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
    return None


def _from_base_tool(tool: BaseTool) -> ToolSpec:
    parameters, model = _parameters_of(tool)
    spec = _spec(tool.name, tool.description, parameters, _declared_of(tool), tool.tags, model)
    if tool.return_direct or _returns_command(tool):
        return replace(spec, controls=True)
    return spec


def _parameters_of(tool: BaseTool) -> tuple[dict[str, Any], type[BaseModel] | None]:
    """Return the JSON schema of a tool's arguments, and the pydantic model with which it validates them."""
    if isinstance(tool, Tool) and tool.args_schema is None:
        # A copy, as for all schemas here: changing one tool's schema must not change another's.
        return copy.deepcopy(_ONE_TEXT), None
    schema: Any = tool.tool_call_schema
    if isinstance(schema, Mapping):
        return _object_schema(schema), None
    if issubclass(schema, BaseModel):
        return _object_schema(schema.model_json_schema()), _own_model(tool, schema)
    # a pydantic.v1 model
    return _object_schema(schema.schema()), None


def _declared_of(tool: BaseTool) -> dict[str, Any]:
    """Return the declarations in the extras (since langchain-core 1.2) and in the metadata, which take precedence."""
    declared = dict(getattr(tool, "extras", None) or {})
    declared.update(tool.metadata or {})
    return declared


def _returns_command(tool: BaseTool) -> bool:
    """Return True if its function is annotated to return a ``Command``; annotations as text count.

    A tuple (content and artifact) does not count: MCP adapters annotate one with a ``Command`` on any tool.
    """
    for name in ("func", "coroutine", "_run", "_arun"):
        annotations = getattr(getattr(tool, name, None), "__annotations__", None) or {}
        returned = str(annotations.get("return", ""))
        if re.search(r"\bCommand\b", returned) and not re.match(r"(?i)(typing\.)?tuple\b", returned):
            return True
    return False


def _own_model(tool: BaseTool, offered: type[BaseModel]) -> type[BaseModel]:
    # The tool's whole model if no argument is injected: the offered one lacks the validators.
    own = tool.args_schema
    if not (isinstance(own, type) and issubclass(own, BaseModel)):
        return offered
    nothing_injected = own.model_fields.keys() == offered.model_fields.keys()
    if nothing_injected:
        return own
    return offered


def _from_class(tool: type) -> ToolSpec:
    if issubclass(tool, BaseModel):
        parameters = _object_schema(tool.model_json_schema())
        return _spec(tool.__name__, tool.__doc__ or "", parameters, {}, (), tool)
    return _from_mapping(convert_to_openai_tool(tool))


def as_tool(function: Callable[..., Any]) -> BaseTool:
    """Return a LangChain tool that calls a function; its docstring is the description."""
    name = getattr(function, "__name__", None) or type(function).__name__
    description = inspect.getdoc(function) or name
    if inspect.iscoroutinefunction(function):
        return StructuredTool.from_function(coroutine=function, name=name, description=description)
    return StructuredTool.from_function(function, name=name, description=description)


def _from_mapping(tool: Mapping[str, Any]) -> ToolSpec:
    # OpenAI (nested or flat), Anthropic (``input_schema``) or MCP (``inputSchema``) form
    body = _body_of(tool)
    schema = _first(body, "parameters", "input_schema", "inputSchema")
    if schema is None:
        schema = {"type": "object", "properties": {}}
    declared = {**tool, **body}
    tags = _first(declared, "tags")
    return _spec(body.get("name"), body.get("description"), _object_schema(schema), declared, tags, None)


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
    if not isinstance(description, str):
        description = ""
    returns = _first(declared, "returns", "outputSchema", "output_schema")
    if isinstance(returns, Mapping):
        returns = copy.deepcopy(dict(returns))
    else:
        returns = None
    tag_names = tuple([str(tag) for tag in tags or ()])
    effects = _effects(declared, tag_names)
    return ToolSpec(
        name=name,
        description=description,
        parameters=parameters,
        returns=returns,
        read_only=effects.read_only,
        destructive=effects.destructive,
        idempotent=effects.idempotent,
        tags=tag_names,
        toolkit=_text(declared, "toolkit"),
        category=_text(declared, "category"),
        route=_text(declared, "route"),
        arguments_model=model,
    )


def _text(declared: Mapping[str, Any], key: str) -> str:
    text = declared.get(key)
    if isinstance(text, str):
        return text
    return ""


# --- declared effects ---


@dataclass(slots=True)
class _Effects:
    """Declared effects of a tool."""

    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None


def _effects(declared: Mapping[str, Any], tags: tuple[str, ...]) -> _Effects:
    """Return the effects by tags and keys, then by MCP's annotations (see the module)."""
    annotations = declared.get("annotations")
    if isinstance(annotations, BaseModel):
        annotations = annotations.model_dump()
    # langchain-mcp-adapters puts the annotations flat into the metadata, MCP itself below "annotations".
    flags = _flags(declared)
    if isinstance(annotations, Mapping):
        flags = {**flags, **_flags(annotations)}
    for tag in tags:
        effect = _plain(tag)
        if effect in ("readonly", "destructive", "idempotent"):
            flags[effect] = True
    hint = _Effects(flags.get("readonlyhint"), flags.get("destructivehint"), flags.get("idempotenthint"))
    # The developer's own declarations take precedence over a server's hints.
    effects = _Effects(flags.get("readonly"), flags.get("destructive"), flags.get("idempotent"))
    if effects.read_only is None:
        effects.read_only = hint.read_only
    if effects.idempotent is None:
        effects.idempotent = hint.idempotent
    if effects.destructive is None:
        effects.destructive = _destructive_by_hints(hint, reads=bool(effects.read_only))
    return effects


def _destructive_by_hints(hint: _Effects, *, reads: bool) -> bool | None:
    """Return the effects by MCP's annotations: a writing tool without ``destructiveHint`` is destructive."""
    writes = hint.read_only is False or hint.idempotent is not None
    if hint.destructive is None:
        if writes and not reads:
            return True
        return None
    # Servers that send all defaults send true for reading tools, for which it has no meaning.
    return hint.destructive and not reads


def _plain(name: str) -> str:
    # "READ-ONLY", "readOnly" and "read_only" are one.
    return re.sub(r"[\W_]+", "", name).lower()


def _flags(declared: Mapping[str, Any]) -> dict[str, bool]:
    """Return True and False values by plain key; MCP's adapter has None for undeclared ones."""
    flags: dict[str, bool] = {}
    for key, value in declared.items():
        if isinstance(value, bool):
            flags.setdefault(_plain(str(key)), value)
    return flags


def _object_schema(schema: Any) -> dict[str, Any]:
    """Copy the JSON schema of an object; raises TypeError if it is not one."""
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
    """Return the first value under one of the keys that is not None."""
    for key in keys:
        value = mapping.get(key)
        if value is not None:
            return value
    return None


def _where(path: Iterable[Any]) -> str:
    steps = [str(step) for step in path]
    if not steps:
        return "arguments"
    return f"parameter {'.'.join(steps)!r}"


def _line(text: str) -> str:
    # A validator quotes the whole value; the line goes into logs and to the model.
    flat = " ".join(text.split())
    if len(flat) <= 300:
        return flat
    return flat[:299] + "…"


def _describe(tool: Any) -> str:
    name = name_of(tool)
    if name is None:
        return type(tool).__name__
    return f"{type(tool).__name__} {name!r}"


def _no_network(uri: str) -> NoReturn:
    # A schema from a server must not make this process fetch addresses.
    raise ValueError(f"remote reference {uri} is not fetched")


# --- notes: a memory's data of a tool, to search and plan without it ---

MAX_RETURNS: Final = 20_000
"""Characters of JSON above which the schema of a result is shortened, because there may be thousands of tools."""
_RESTRICTIVE: Final = {"read_only": False, "destructive": True, "idempotent": False, "controls": True}
"""The more restrictive value of each effect."""
EFFECTS: Final = tuple(_RESTRICTIVE)


def changes_of(spec: ToolSpec, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the note to keep of a tool, in plain containers; {} if `known`, the last note, says the same.

    A note has description and parameters always; result schema, effects, tags, toolkit and category if declared. A
    field that is no longer declared is recorded as empty.
    """
    optional: dict[str, Any] = {
        "toolkit": spec.toolkit,
        "category": spec.category,
        "route": spec.route,
        "read_only": spec.read_only,
        "destructive": spec.destructive,
        "idempotent": spec.idempotent,
        "controls": spec.controls,
        "tags": list(spec.tags),
        "returns": _kept_returns(spec, known),
    }
    note: dict[str, Any] = {"description": spec.description, "parameters": spec.parameters}
    for name, value in optional.items():
        # Notes are merged field by field: only an empty field removes an earlier one.
        was_declared = _is_declared(known.get(name))
        if was_declared or _is_declared(value):
            note[name] = value
    for name, value in note.items():
        if name not in known or known[name] != value:
            return note
    return {}


def _is_declared(value: Any) -> bool:
    return value is not None and value not in ("", [])


def _kept_returns(spec: ToolSpec, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of a result: shortened if it is long, or is not JSON and cannot be stored."""
    if spec.returns is None or known.get("returns") == spec.returns:
        return spec.returns
    try:
        is_short = len(json.dumps(spec.returns)) <= MAX_RETURNS
    except (TypeError, ValueError, RecursionError):
        is_short = False
    if is_short:
        return spec.returns
    return compact(spec.returns) or None


def spec_of(name: str, note: Mapping[str, Any]) -> ToolSpec:
    """Return the tool of a note; a field of the wrong type counts as not declared."""
    # Notes come from the disk, and from other workers, who may be of another release.
    declared: dict[str, Any] = {}
    for effect in EFFECTS:
        if isinstance(note.get(effect), bool):
            declared[effect] = note[effect]
    if isinstance(note.get("returns"), dict):
        declared["returns"] = note["returns"]
    if isinstance(note.get("tags"), list):
        declared["tags"] = tuple(map(str, note["tags"]))
    return ToolSpec(
        name,
        str(note.get("description", "")),
        note["parameters"],
        toolkit=str(note.get("toolkit", "")),
        category=str(note.get("category", "")),
        route=str(note.get("route", "")),
        **declared,
    )


def restricted(spec: ToolSpec, others: Iterable[ToolSpec]) -> ToolSpec:
    """Return a tool with the restrictive marks of others of its name, without their permissions."""
    marks = _marks_of(spec)
    for other in others:
        for effect, restrictive in _RESTRICTIVE.items():
            if getattr(other, effect) is restrictive:
                marks[effect] = restrictive
    return _remarked(spec, marks)


def _marks_of(spec: ToolSpec) -> dict[str, Any]:
    return {effect: getattr(spec, effect) for effect in EFFECTS}


def agreed(spec: ToolSpec, other: ToolSpec) -> ToolSpec:
    """Return a tool that represents two of one name: forbidden if either forbids, permitted if both permit."""
    marks, theirs = _marks_of(spec), _marks_of(other)
    for effect, restrictive in _RESTRICTIVE.items():
        if marks[effect] is theirs[effect]:
            continue
        if restrictive in (marks[effect], theirs[effect]):
            marks[effect] = restrictive
        else:  # one of them permits, and the other is undeclared
            marks[effect] = None
    return _remarked(spec, marks)


def _remarked(spec: ToolSpec, marks: Mapping[str, Any]) -> ToolSpec:
    for effect, mark in marks.items():
        if getattr(spec, effect) is not mark:
            return replace(spec, **marks)
    return spec


def grave_marks(spec: ToolSpec) -> ToolSpec:
    """Return a tool with only its restrictive marks, which other programs must not lose."""
    marks = _marks_of(spec)
    for effect, restrictive in _RESTRICTIVE.items():
        if marks[effect] is not restrictive:
            marks[effect] = None
    return replace(spec, **marks)


def without_choices(spec: ToolSpec) -> ToolSpec:
    """Return a tool whose parameters list no values."""
    properties = {}
    for name, schema in spec.properties.items():
        kept = dict(schema)
        for key in ("enum", "const", "default", "examples"):
            kept.pop(key, None)
        properties[name] = kept
    return replace(spec, parameters={**spec.parameters, "properties": properties})
