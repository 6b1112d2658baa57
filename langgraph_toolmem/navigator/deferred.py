"""Deferred tools: the model finds them by a search, and the list of tools in its prompt never changes.

A provider's prompt cache holds the beginning of a prompt, and tools stand at its very beginning, so a list that is
chosen anew for each request is paid in full each time. Here the list stays: some tools that are always offered, and
`search_tools`. The state keeps the answer of a search as text, with the names as the artifact ``{"revealed": […]}``.
What a provider needs of its own is made at the model call (`DeferredTools.offer`) and taken back from the answer
(`DeferredTools.take`), so the model may change within a thread, and everything else in an agent (approval, limits,
recorder) sees calls of the real tools.

==============  =====================================================================================================
``anthropic``   all tools are sent, deferred; the answer of a search becomes ``tool_reference`` blocks
``openai``      from gpt-5.4: ``tool_search`` that the client executes
``portable``    `call_tool` runs what was found; it becomes the real call in the answer, and `call_tool` in the prompt
==============  =====================================================================================================
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, get_args

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_function
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from langgraph_toolmem.base.checks import checks_options, is_count, names_given, nearest
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.tool_search import targets_of
from langgraph_toolmem.runs.run import CALL_TOOL, OWN_TOOLS, SEARCH_TOOL
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, name_of, read_tools
from langgraph_toolmem.turn.hints import NOTHING, Line, Scope, StepOutput, left_out_now
from langgraph_toolmem.turn.host import ErrorLog, annotate, emit, read_key, user_id_of
from langgraph_toolmem.turn.step import Call, Step

if TYPE_CHECKING:
    from langgraph_toolmem.navigator import Navigator

logger = logging.getLogger("langgraph_toolmem.navigator")

Mode = Literal["auto", "anthropic", "openai", "portable"]
Way = Literal["anthropic", "tool_search", "portable"]

MAX_REVEALED: Final = 200
"""Tools found in a thread that stay revealed; of more, the latest."""
MAX_ABOUT: Final = 160
MAX_CHOICES: Final = 1_200
"""Characters of the items that a long description lists by name."""
_CHOICE: Final = re.compile(r"\s*[-*•]\s+[`'\"]?[\w./-]{1,64}[`'\"]?\s*:\s")
MAX_SCHEMA: Final = 3_000
"""Characters of a description, and of a schema with its descriptions."""

SEARCH_ABOUT: Final = (
    "Search for tools by what they do. Most tools are not in your list; search before you say that something cannot "
    "be done. One search finds a tool together with those that give what it needs. Changes nothing."
)
CALL_ABOUT: Final = (
    "Call a tool that search_tools found. `name` is its name, `arguments` its arguments by its schema. Tools of your "
    "own list are called directly."
)
QUERY_ABOUT: Final = "What the tool should do, in a few words."
_QUERY: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": QUERY_ABOUT}},
    "required": ["query"],
}
# A dict is sent as it is: in strict mode `arguments` would be closed, and come empty.
_CALL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": CALL_TOOL,
        "description": CALL_ABOUT,
        "parameters": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "arguments": {"type": "object", "additionalProperties": True},
            },
            "required": ["name", "arguments"],
        },
    },
}
SURE: Final = 0.55
"""Share of the votes of similar requests from which on a tool is revealed without a search."""
_HEAD: Final = "Runs with similar requests called these tools; call_tool calls them, search_tools finds others:"
_NOTHING: Final = "No tool fits these words. Try other words."
_CLAUDE: Final = re.compile(r"claude-(?:opus|sonnet|haiku)-(?:4[-.](?:[5-9]|[1-9]\d)(?!\d)|(?:[5-9]|[1-9]\d)(?!\d))")
_GPT: Final = re.compile(r"^gpt-(?:5\.(?:[4-9]|[1-9]\d)|[6-9]|[1-9]\d)(?!\d)")


@checks_options
@dataclass(frozen=True)
class ToolSearch:
    """Settings of the search for an agent's tools.

    Attributes:
        k: tools that a search reveals; a chain may bring more. With no more tools than this, all are offered.
        always: names of tools that are always offered, such as those of other middleware.
        mode: how they reach the model (see the module); "auto" chooses by the model, "portable" where it is not known.

    Raises:
        ConfigurationError: a value cannot work.
    """

    k: int = 5
    always: Iterable[str] = ()
    mode: Mode = "auto"

    def __post_init__(self) -> None:
        if not is_count(self.k, 1):
            raise ConfigurationError(f"ToolSearch: k is a whole number from 1, not {self.k!r}.")
        object.__setattr__(self, "always", names_given("always", self.always))
        if self.mode not in get_args(Mode):
            raise ConfigurationError(f"ToolSearch: mode is one of {', '.join(get_args(Mode))}, not {self.mode!r}.")


def find_tools(
    navigator: Navigator,
    query: str,
    names: Collection[str],
    k: int,
    *,
    request: str = "",
    user_id: str | None = None,
) -> dict[str, str]:
    """Return the tools that fit a query with what each gives, those first that complete a chain to the best of them.

    Args:
        k: tools at most; more only where the first chain is longer.
        request: the user's words: what earlier runs with such a request called is found sooner.

    Raises:
        EmbedderChangedError: stored vectors were made by another embedder.
    """
    if not query.strip() or not names:
        return {}
    hits = navigator.tool_search.search(query, 2 * k, available=names, user_id=user_id, request=request)
    chosen: dict[str, str] = {}
    targets = targets_of(hits)[:3]
    for chain in navigator.plan(f"{request} {query}", target=targets, available=names, k=1).chains if targets else ():
        new = [step for step in chain.steps if step.tool not in chosen]
        if not chosen or len(chosen) + len(new) <= k:
            for step in reversed(new):
                gift = step.gives[0] if step.gives else None
                chosen[step.tool] = f"gives {gift.output or 'its result'} to {gift.tool}" if gift is not None else ""
    for hit in hits:
        if len(chosen) < k:
            chosen.setdefault(hit.name, "")
    return chosen


def described(spec: ToolSpec, why: str = "") -> str:
    """Return a tool on one line: its name, what it does, and the schema of its arguments."""
    about = " ".join(spec.description.split())
    if len(about) > MAX_ABOUT:
        about = " ".join([f"{about[: MAX_ABOUT - 1]}…", *_choices(spec.description)])
    parameters = {key: value for key, value in spec.parameters.items() if key != "description"}
    schema = json.dumps(_without("title", parameters), ensure_ascii=False, separators=(",", ":"))
    if len(schema) > MAX_SCHEMA:
        parameters = _without("description", _without("title", parameters))
        schema = json.dumps(parameters, ensure_ascii=False, separators=(",", ":"))
    parts = [f"- {spec.name}: {about}" if about else f"- {spec.name}", f"({why})" if why else "", f"arguments {schema}"]
    return " ".join(part for part in parts if part)


def _choices(description: str) -> list[str]:
    """Return the items that a description lists by name, such as the subagents of deepagents' ``task``.

    No schema has them. An item behind `MAX_CHOICES` characters is left out.
    """
    items: list[str] = []
    left = MAX_CHOICES
    for line in description.splitlines():
        if _CHOICE.match(line):
            item = " ".join(line.split())
            left -= len(item)
            if left < 0:
                break
            items.append(item)
    return items


def revealed_in(messages: Iterable[Any]) -> dict[str, int]:
    """Return the tools that searches of a thread found, with the number of the search in its turn, the latest last."""
    found: dict[str, int] = {}
    number = 0
    for message in messages:
        if isinstance(message, HumanMessage):
            number = 0
        elif isinstance(message, ToolMessage) and message.name == SEARCH_TOOL:
            number += 1
            for name in _revealed(message):
                found.setdefault(name, number)
    return dict(list(found.items())[-MAX_REVEALED:])


def way_of(model: Any, mode: Mode = "auto") -> Way:
    """Return how deferred tools reach a model. The client's URL decides: `ls_provider` is "openai" for any."""
    if mode in ("anthropic", "portable"):
        return mode
    kinds = {base.__name__ for base in type(model).__mro__}
    name = str(getattr(model, "model_name", None) or getattr(model, "model", ""))
    url = str(getattr(getattr(model, "root_client", None), "base_url", "") or "")
    own_openai = "ChatOpenAI" in kinds and url.startswith("https://api.openai.com/")
    if mode == "openai" or (own_openai and getattr(model, "use_responses_api", None) is not False and _GPT.match(name)):
        return "tool_search"
    of_anthropic = "ChatAnthropic" in kinds and str(getattr(model, "anthropic_api_url", "")).startswith(
        "https://api.anthropic.com"
    )
    if (of_anthropic or "ChatAnthropicBedrock" in kinds) and _CLAUDE.search(name):
        return "anthropic"
    return "portable"


class Offer(NamedTuple):
    """The tools to bind, the history as this model is to see it, and the way; None: all tools are offered."""

    tools: list[Any]
    messages: list[Any]
    way: Way | None = None


class DeferredTools:
    """The offers of one agent. It keeps nothing of a thread: what was revealed stands in the messages."""

    def __init__(self, navigator: Navigator, options: ToolSearch, messages_key: str = "messages") -> None:
        self.navigator, self.options = navigator, options
        self.search_tool = SearchTools(deferred=self, messages_key=messages_key)
        self.call_tool = CallTool(deferred=self)
        self.tools: list[BaseTool] = [self.search_tool, self.call_tool]
        self._costs: dict[tuple[int, int], tuple[int, int]] = {}

    def names(self, tools: Iterable[Any]) -> list[str]:
        """Return the tools that are found by search; none where there are too few."""
        kept = {*OWN_TOOLS, *self.options.always}
        found = [tool.name for tool in tools if isinstance(tool, BaseTool) and tool.name not in kept]
        return found if len(found) > self.options.k else []

    def specs(self, tools: Iterable[Any]) -> Mapping[str, ToolSpec]:
        """Return the tools that can be called, by name."""
        found = self.navigator.core.catalogue.offered(tools)
        return {name: spec for name, spec in found.items() if name not in OWN_TOOLS}

    # --- to the model ---

    def offer(
        self, tools: Sequence[Any], messages: Sequence[Any], model: Any, *, insisted: Collection[str] = ()
    ) -> Offer:
        """Return what this model is asked with; `insisted`: names of ``tool_choice`` and of structured answers."""
        deferred = {*self.names(tools)} - {*insisted}
        ours = {SEARCH_TOOL, CALL_TOOL}
        for tool in tools:
            if (name := name_of(tool)) in ours and not isinstance(tool, (SearchTools, CallTool)):
                raise ConfigurationError(f"A tool of the agent is named {name!r}, as one of tool search. Rename it.")
        if not deferred:
            return Offer([tool for tool in tools if name_of(tool) not in ours], list(messages))
        way = way_of(model, self.options.mode)
        always = [tool for tool in tools if (name := name_of(tool)) not in deferred and name not in ours]
        if way == "portable":
            offered = [*always, self.search_tool, _CALL]
            return Offer(offered, _bridged(messages, {*insisted, *_names(offered)}), way)
        later = {tool.name: tool for tool in tools if isinstance(tool, BaseTool) and tool.name in deferred}
        if way == "anthropic":
            offered = _with_cache_mark([*always, self.search_tool], later.values())
            hidden = [tool.model_copy(update={"extras": _deferring(tool)}) for tool in later.values()]
            return Offer([*hidden, *offered], _referenced(messages, later.keys()), way)
        search = {"type": "tool_search", "execution": "client", "description": SEARCH_ABOUT, "parameters": _QUERY}
        return Offer([*always, search], _loaded(messages, later), way)

    # --- from the model ---

    def take(self, answer: AIMessage, tools: Iterable[Any], *, insisted: Collection[str] = ()) -> AIMessage:
        """Return the answer with calls of the real tools. What cannot be read stays `call_tool`, which says why."""
        answer = _with_searches(answer)
        if not answer.tool_calls:
            return answer
        specs, known = self.specs(tools), {*OWN_TOOLS, *insisted, *_names(tools)}
        calls = []
        for call in answer.tool_calls:
            if call["name"] == CALL_TOOL:
                name, arguments, problem = read_call(call["args"], specs)
                if problem is None:
                    call = {**call, "name": name, "args": arguments}
            elif call["name"] not in known:  # `call_tool` answers with the nearest names, not with all
                call = {**call, "name": CALL_TOOL, "args": _bridge(call)}
            calls.append(call)
        return answer if calls == answer.tool_calls else answer.model_copy(update={"tool_calls": calls})

    def note(self, offer: Offer, answer: AIMessage, tools: Sequence[Any], messages: Sequence[Any]) -> None:
        """Record by which search the called tools were found, and tokens of tools sent and saved."""
        key = len(tools), len(offer.tools)
        if key not in self._costs:
            self._costs[key] = _tokens(offer.tools, offer.way == "anthropic"), _tokens(tools)
        sent, everything = self._costs[key]
        deferred, revealed = {*self.names(tools)}, revealed_in(messages)
        called = [revealed.get(call["name"], 0) for call in answer.tool_calls if call["name"] in deferred]
        first, never = called.count(1), called.count(0)
        self.navigator.evidence.searched(first, len(called) - first - never, never, sent, max(0, everything - sent))


def read_call(given: Any, specs: Mapping[str, ToolSpec]) -> tuple[str, dict[str, Any], str | None]:
    """Return a `call_tool` call as the real tool's name and arguments, and what is wrong with it, if anything."""
    given = given if isinstance(given, Mapping) else {}
    name, arguments = given.get("name"), given.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            return "", {}, "`arguments` is no JSON object. Give the arguments of the tool as an object."
    arguments = {} if arguments is None else arguments
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return "", {}, "call_tool takes `name`, a text, and `arguments`, an object."
    if name in OWN_TOOLS:
        return name, {}, f"{name} is called directly, not by call_tool."
    spec = specs.get(name)
    if spec is None:
        near = nearest(name, specs)
        guess = f" The nearest name is {near!r}." if near is not None else ""
        return name, {}, f"There is no tool {name!r}.{guess} search_tools finds tools by what they do."
    # ToolNode validates only schemas that are models. A schema that cannot be read checks nothing.
    checked = spec.arguments_model is None and spec.has_readable_schema
    if checked and (problem := spec.schema_problem(arguments)) is not None:
        schema = json.dumps(spec.parameters, ensure_ascii=False, separators=(",", ":"))
        return name, {}, f"{name} was not called: {problem}. Its arguments: {schema[:MAX_SCHEMA]}"
    return name, arguments, None


class _WithRuntime(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    # Optional in its default only: a union would become part of the schema that the model sees.
    runtime: ToolRuntime[Any, Any] = Field(default=None)  # type: ignore[arg-type]


class _Query(_WithRuntime):
    query: str = Field(description=QUERY_ABOUT)


class _NamedCall(_WithRuntime):
    name: Any = None
    arguments: Any = None


class SearchTools(BaseTool):
    """`search_tools`: the model asks in words, and gets tools as complete chains. Any ToolNode can run it."""

    name: str = SEARCH_TOOL
    description: str = SEARCH_ABOUT
    args_schema: Any = _Query
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    tags: list[str] | None = Field(default_factory=lambda: ["read_only", "idempotent"])
    deferred: Any = Field(exclude=True, repr=False)
    messages_key: str = "messages"
    _errors: ErrorLog = PrivateAttr(default_factory=lambda: ErrorLog(SEARCH_TOOL, logger))

    def _run(self, query: str, runtime: ToolRuntime[Any, Any] | None = None) -> tuple[str, dict[str, list[str]]]:
        try:
            return self._found(query, runtime)
        except Exception as error:  # noqa: BLE001 - the run goes on
            self._errors.failed(error)
            return f"The tools could not be searched ({type(error).__name__}). Try again later.", {"revealed": []}

    def _found(self, query: str, runtime: ToolRuntime[Any, Any] | None) -> tuple[str, dict[str, list[str]]]:
        deferred: DeferredTools = self.deferred
        navigator, state = deferred.navigator, getattr(runtime, "state", None)
        messages = read_key(state, self.messages_key) or ()
        tools = getattr(runtime, "tools", None) or ()
        specs = deferred.specs(tools) if tools else navigator.tools
        out = left_out_now(state, messages_key=self.messages_key) if state is not None else {}
        before = revealed_in(messages)
        names = [name for name in (deferred.names(tools) or specs) if name not in out and name not in before]
        user = None if runtime is None else user_id_of(runtime.config or None, runtime)
        if tools:
            navigator.core.catalogue.adopt(specs)
        found = find_tools(navigator, query, names, deferred.options.k, request=_request(messages), user_id=user)
        annotate({"toolmem.node": SEARCH_TOOL, "toolmem.found": len(found)})
        event = {"node": SEARCH_TOOL, "query": query, "found": found}
        emit(runtime, event, on=navigator.core.events)  # type: ignore[arg-type]
        lines = [described(specs[name], why) for name, why in found.items() if name in specs]
        if before:
            lines.append(f"Found before: {', '.join(before)}.")
        return "\n".join(lines) or _NOTHING, {"revealed": [*found]}


class CallTool(BaseTool):
    """`call_tool`: never executed for a call that can be read, since that becomes the real call in the answer."""

    name: str = CALL_TOOL
    description: str = CALL_ABOUT
    args_schema: Any = _NamedCall
    handle_tool_error: Any = True
    tags: list[str] | None = Field(default_factory=lambda: ["read_only"])
    deferred: Any = Field(exclude=True, repr=False)

    def _run(self, name: Any = None, arguments: Any = None, runtime: ToolRuntime[Any, Any] | None = None) -> str:
        specs = self.deferred.specs(getattr(runtime, "tools", None) or ())
        _, _, problem = read_call({"name": name, "arguments": arguments}, specs)
        raise ToolException(
            problem or f"{name} cannot be called now: it was taken out, or the model's answer was not read by `take`."
        )


class RevealTools(Step["Navigator"]):
    """Has the model find its tools by a search, and shows those at once that similar requests called."""

    role: ClassVar[str] = "tool_search"
    about: ClassVar[str] = "shows the tools that similar requests called; calls no model"
    scope: Scope = "turn"

    def __init__(
        self,
        method: Navigator,
        tools: Iterable[ToolLike] | None = None,
        *,
        search: ToolSearch | None = None,
        always: Iterable[str] = (),
        messages_key: str = "messages",
    ) -> None:
        super().__init__(method)
        search = search or ToolSearch()
        self.deferred = DeferredTools(method, replace(search, always=(*search.always, *always)), messages_key)
        self.tools = self.deferred.tools
        self.given = None if tools is None else [*tools, *self.tools]
        if self.given is not None:
            specs = read_tools(self.given)
            self.core.catalogue.adopt({name: spec for name, spec in specs.items() if name not in OWN_TOOLS})

    def compute(self, call: Call) -> StepOutput:
        """The tools that similar requests called, of those that are found by search."""
        if way_of(call.model, self.deferred.options.mode) != "portable":
            return NOTHING
        tools = self.given if self.given is not None else call.offered
        deferred = {*self.deferred.names(tools)} - call.left_out.keys() - revealed_in(call.messages).keys()
        precedents = self.method.tool_search.precedents(call.user_id) if deferred else None
        if precedents is None:
            return NOTHING
        votes = precedents.votes(self.core.read(call.messages, call.thread_id).request)
        specs = self.deferred.specs(tools)
        sure = [name for name, vote in votes.items() if vote >= SURE and name in deferred and name in specs]
        found = sorted(sure, key=lambda name: (-votes[name], name))[: self.deferred.options.k]
        if not found:
            return NOTHING
        return StepOutput(
            lines=[Line(described(specs[name]), name) for name in found],
            head=_HEAD,
            sure=votes[found[0]],
            event={"revealed": found},
            notes={"toolmem.revealed": len(found)},
        )


# --- one function for each way ---


def _bridged(messages: Sequence[Any], offered: Collection[str]) -> list[Any]:
    """Turn calls of tools that are not offered into `call_tool`, whoever made them, and name their answers so."""
    made: list[Any] = []
    renamed: set[str | None] = set()
    for message in messages:
        if isinstance(message, AIMessage) and any(call["name"] not in offered for call in message.tool_calls):
            calls = []
            for call in message.tool_calls:
                if call["name"] not in offered:
                    renamed.add(call["id"])
                    call = {**call, "name": CALL_TOOL, "args": _bridge(call)}
                calls.append(call)
            made.append(message.model_copy(update={"tool_calls": calls}))
        elif isinstance(message, ToolMessage) and message.tool_call_id in renamed and message.name:
            made.append(message.model_copy(update={"name": CALL_TOOL}))
        else:
            made.append(message)
    return made


def _bridge(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": call["name"], "arguments": call["args"]}


def _referenced(messages: Sequence[Any], there: Collection[str]) -> list[Any]:
    """Turn answers of searches into references to tools that are there."""

    def blocks(message: ToolMessage) -> Any:
        return [{"type": "tool_reference", "tool_name": name} for name in _revealed(message) if name in there]

    return [
        message.model_copy(update={"content": found})
        if isinstance(message, ToolMessage) and message.name == SEARCH_TOOL and (found := blocks(message))
        else message
        for message in messages
    ]


def _loaded(messages: Sequence[Any], tools: Mapping[str, BaseTool]) -> list[Any]:
    """Turn calls of `search_tools` and their answers into items of ``tool_search``, the answers with schemas.

    A search that another model made stays a call.
    """
    made: list[Any] = []
    items: set[str] = set()
    for message in messages:
        if isinstance(message, AIMessage) and (kept := _kept_items(message)):
            items |= {item["call_id"] for _, item in kept}
            content: list[Any] = [*message.content] if isinstance(message.content, list) else []
            for place, item in kept:
                content.insert(place, item)
            calls = [call for call in message.tool_calls if call["id"] not in items]
            message = message.model_copy(update={"content": content, "tool_calls": calls})
        elif isinstance(message, ToolMessage) and message.tool_call_id in items:
            shown = [convert_to_openai_function(tools[name]) for name in _revealed(message) if name in tools]
            found = [{"type": "function", **each, "defer_loading": True} for each in shown]
            output = {"type": "tool_search_output", "execution": "client", "call_id": message.tool_call_id}
            message = HumanMessage([{**output, "status": "completed", "tools": found}])
        made.append(message)
    return made


def _with_searches(answer: AIMessage) -> AIMessage:
    """Turn searches that OpenAI sends as content into calls of `search_tools`; keep the items next to the content."""
    if not isinstance(answer.content, list):
        return answer
    items = [
        (place, block)
        for place, block in enumerate(answer.content)
        if isinstance(block, dict) and block.get("type") == "tool_search_call" and block.get("execution") == "client"
    ]
    if not items:
        return answer
    known = {call["id"] for call in answer.tool_calls}
    calls: list[Any] = list(answer.tool_calls)
    for _, item in items:
        arguments = item.get("arguments") or {}
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                arguments = {"query": arguments}
        if item["call_id"] not in known:
            calls.append({"name": SEARCH_TOOL, "args": arguments, "id": item["call_id"], "type": "tool_call"})
    content = [block for place, block in enumerate(answer.content) if place not in dict(items)]
    kept = {**answer.additional_kwargs, "toolmem": {"tool_search": [list(pair) for pair in items]}}
    return answer.model_copy(update={"content": content, "tool_calls": calls, "additional_kwargs": kept})


def _kept_items(message: AIMessage) -> list[tuple[int, dict[str, Any]]]:
    kept = message.additional_kwargs.get("toolmem")
    return [(place, item) for place, item in (kept.get("tool_search") or ())] if isinstance(kept, Mapping) else []


def _deferring(tool: BaseTool) -> dict[str, Any]:
    extras = {key: value for key, value in (getattr(tool, "extras", None) or {}).items() if key != "cache_control"}
    return {**extras, "defer_loading": True}


def _with_cache_mark(offered: list[Any], deferred: Iterable[BaseTool]) -> list[Any]:
    """Move a cache mark of a deferred tool, which is refused there, to the last tool that is offered."""
    marks = [mark for tool in deferred if (mark := (getattr(tool, "extras", None) or {}).get("cache_control"))]
    if not marks:
        return offered
    last = offered[-1]
    return [*offered[:-1], last.model_copy(update={"extras": {**(last.extras or {}), "cache_control": marks[-1]}})]


def _revealed(message: ToolMessage) -> list[str]:
    artifact = message.artifact
    names = artifact.get("revealed") if isinstance(artifact, Mapping) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _names(tools: Iterable[Any]) -> set[str]:
    return {name for tool in tools if (name := name_of(tool)) is not None}


def _request(messages: Iterable[Any]) -> str:
    return next((m.text for m in reversed([*messages]) if isinstance(m, HumanMessage)), "")


def _tokens(tools: Iterable[Any], offered_only: bool = False) -> int:
    """Return the number of tokens of about four characters."""
    seen = [t for t in tools if not (offered_only and (getattr(t, "extras", None) or {}).get("defer_loading"))]
    return sum(len(json.dumps(t if isinstance(t, dict) else convert_to_openai_function(t))) for t in seen) // 4


def _without(text: str, schema: Any) -> Any:
    """Return the schema without its texts of this key; a parameter of that name stays."""
    if isinstance(schema, Mapping):
        kept = {key: value for key, value in schema.items() if key != text or not isinstance(value, str)}
        return {key: _without(text, value) for key, value in kept.items()}
    return [_without(text, each) for each in schema] if isinstance(schema, list) else schema
