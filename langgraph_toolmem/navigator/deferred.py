"""Deferred tools: the model finds them by a search, and the list of tools in its prompt never changes.

A provider's prompt cache contains the beginning of a prompt, and tools come first in it, so a list that changes with
each request is paid in full each time. Here the list is constant: some tools that are always offered, and
`search_tools`. The state keeps the answer of a search as text, with the names as the artifact ``{"revealed": […]}``.
The provider's own form is made at the model call (`DeferredTools.offer`) and converted back from the answer
(`DeferredTools.take`), so the model may change within a thread, and the rest of the agent (approval, limits, recorder)
sees calls of the real tools. The provider's forms are in `navigator.providers`.

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

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_function
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.base.checks import checks_options, is_count, names_given, nearest
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.catalogue import without_own
from langgraph_toolmem.navigator import targets_of
from langgraph_toolmem.navigator.evidence import ToolsSearched
from langgraph_toolmem.navigator.providers import (
    Mode,
    ToolForm,
    bridge,
    bridged,
    deferred_copy,
    form_for,
    loaded,
    referenced,
    revealed_in,
    with_cache_mark,
    with_searches,
)
from langgraph_toolmem.runs.run import CALL_TOOL, OWN_TOOLS, SEARCH_TOOL
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, name_of, read_tools
from langgraph_toolmem.turn.hints import NO_OUTPUT, Line, Scope, StepOutput, left_out_now
from langgraph_toolmem.turn.host import ErrorLog, annotate, emit, read_key, thread_id_of, user_id_of
from langgraph_toolmem.turn.step import Call, Step

if TYPE_CHECKING:
    from langgraph_toolmem.navigator import Navigator
    from langgraph_toolmem.navigator.plan.planner import Chain

logger = logging.getLogger("langgraph_toolmem.navigator")

# On recorded runs 85 to 88 % of such tools are called, and 30 to 64 % of the requests need no search.
LEAST_VOTE: Final = 0.55
"""Least share of the votes of similar requests that reveals a tool without a search."""
MAX_ABOUT: Final = 160
MAX_CHOICES: Final = 1_200
"""Characters of the items that a long description lists by name."""
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


@checks_options
@dataclass(frozen=True)
class ToolSearch:
    """Settings of the search for an agent's tools.

    Attributes:
        k: tools that a search reveals; a chain may bring more. With at most this number of tools, all are offered.
        always: names of tools that are always offered, such as those of other middleware.
        mode: how they reach the model (see the module); "auto" chooses by the model, "portable" for an unknown one.

    Raises:
        ConfigurationError: a value is invalid.
    """

    k: int = 5
    always: Iterable[str] = ()
    mode: Mode = "auto"

    def __post_init__(self) -> None:
        if not is_count(self.k, 1):
            raise ConfigurationError(f"ToolSearch: `k` must be a whole number from 1, got {self.k!r}.")
        object.__setattr__(self, "always", names_given("always", self.always))
        if self.mode not in get_args(Mode):
            modes = ", ".join(get_args(Mode))
            raise ConfigurationError(f"ToolSearch: `mode` must be one of {modes}, got {self.mode!r}.")


# --- search results and their text ---


def find_tools(
    navigator: Navigator,
    query: str,
    names: Collection[str],
    k: int,
    *,
    request: str = "",
    user_id: str | None = None,
) -> dict[str, str]:
    """Return the tools that fit a query with their outputs, beginning with the chain to the best of them.

    Args:
        k: most tools; more only if the first chain is longer.
        request: the user's words: tools of earlier runs with a similar request rank higher.

    Raises:
        EmbedderChangedError: stored vectors were made by another embedder.
    """
    if not query.strip() or not names:
        return {}
    # Twice as many as are shown, because chains contain some of them.
    hits = navigator.tool_search.search(query, 2 * k, available=names, user_id=user_id, request=request)
    chosen: dict[str, str] = {}
    targets = targets_of(hits)[:3]
    if targets:
        plan = navigator.plan(f"{request} {query}", target=targets, available=names, k=1)
        chosen = _tools_of_chains(plan.chains, k)
    for hit in hits:
        if len(chosen) < k:
            chosen.setdefault(hit.name, "")
    return chosen


def _tools_of_chains(chains: Iterable[Chain], k: int) -> dict[str, str]:
    """Return the tools of whole chains with their outputs, at most k; more only if the first chain is longer."""
    chosen: dict[str, str] = {}
    for chain in chains:
        new = [step for step in chain.steps if step.tool not in chosen]
        # The first chain is taken completely: a part of it could not be called.
        if chosen and len(chosen) + len(new) > k:
            continue
        for step in reversed(new):
            chosen[step.tool] = ""
            if step.gives:
                gift = step.gives[0]
                chosen[step.tool] = f"gives {gift.output or 'its result'} to {gift.tool}"
    return chosen


def described(spec: ToolSpec, why: str = "") -> str:
    """Return a tool on one line: its name, its description, and the schema of its arguments."""
    about = " ".join(spec.description.split())
    if len(about) > MAX_ABOUT:
        about = " ".join([f"{about[: MAX_ABOUT - 1]}…", *_choices(spec.description)])
    line = f"- {spec.name}"
    if about:
        line = f"{line}: {about}"
    if why:
        line = f"{line} ({why})"
    return f"{line} arguments {_brief_schema(spec.parameters)}"


def _brief_schema(parameters: Mapping[str, Any]) -> str:
    """Return a schema as JSON without titles, and without descriptions if it is long."""
    brief = _without("title", dict(parameters))
    # The tool's own description is in its line.
    brief.pop("description", None)
    schema = _compact_json(brief)
    if len(schema) > MAX_SCHEMA:
        schema = _compact_json(_without("description", brief))
    return schema


def _compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _without(key: str, schema: Any) -> Any:
    """Return the schema without its texts of this key; a parameter of that name is kept."""
    if isinstance(schema, list):
        return [_without(key, item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {}
    for name, value in schema.items():
        # The schema of a parameter named "title" is not a text.
        if name != key or not isinstance(value, str):
            kept[name] = _without(key, value)
    return kept


def _choices(description: str) -> list[str]:
    """Return the items that a description lists by name, such as the subagents of deepagents' ``task``.

    Schemas do not have them. An item after `MAX_CHOICES` characters is left out.
    """
    items: list[str] = []
    left = MAX_CHOICES
    named_item = re.compile(r"\s*[-*•]\s+[`'\"]?[\w./-]{1,64}[`'\"]?\s*:\s")
    for line in description.splitlines():
        if named_item.match(line):
            item = " ".join(line.split())
            left -= len(item)
            if left < 0:
                break
            items.append(item)
    return items


# --- the offers of an agent ---


class Offer(NamedTuple):
    """The tools to bind, the history for this model, and the mode; None if all tools are offered."""

    tools: list[Any]
    messages: list[Any]
    form: ToolForm | None = None


class DeferredTools:
    """The offers of one agent.

    The tools shown to a thread are read from its messages. Only the tools of its latest request are kept, in RAM.
    """

    MAX_THREADS: ClassVar[int] = 1024
    """Threads whose latest tools are kept."""

    def __init__(self, navigator: Navigator, options: ToolSearch, messages_key: str = "messages") -> None:
        self.navigator, self.options = navigator, options
        self.search_tool = SearchTools(deferred=self, messages_key=messages_key)
        self.call_tool = CallTool(deferred=self)
        self.tools: list[BaseTool] = [self.search_tool, self.call_tool]
        # Tokens of tools, by the numbers of all tools and of those offered: schemas are counted once an agent.
        self._costs: dict[tuple[int, int], _ToolTokens] = {}
        self._requested: dict[str, list[Any]] = {}

    def names(self, tools: Iterable[Any]) -> list[str]:
        """Return the tools that are found by search; empty if there are too few."""
        never_deferred = {*OWN_TOOLS, *self.options.always}
        names = []
        for tool in tools:
            # Tools as dicts belong to the provider, such as a web search: they cannot be called by name.
            if isinstance(tool, BaseTool) and tool.name not in never_deferred:
                names.append(tool.name)
        # One search would find all of them, and asking for it costs a model call.
        if len(names) <= self.options.k:
            return []
        return names

    def specs(self, tools: Iterable[Any]) -> Mapping[str, ToolSpec]:
        """Return the tools that can be called, by name."""
        return without_own(self.navigator.core.catalogue.offered(tools))

    # --- to the model ---

    def offer(
        self,
        tools: Sequence[Any],
        messages: Sequence[Any],
        model: Any,
        *,
        insisted: Collection[str] = (),
        thread_id: str | None = None,
    ) -> Offer:
        """Return the offer for this model; `insisted`: names of ``tool_choice`` and of structured answers."""
        _check_names(tools)
        if thread_id is not None:
            self._keep_requested(thread_id, tools)
        # A tool that the model has to call now must be in its list.
        deferred = set(self.names(tools)) - set(insisted)
        always, later = _parted(tools, deferred)
        if not deferred:
            return Offer(always, list(messages))
        # With 500 tools a turn pays 267 tokens for this constant list, and 1,439 for one list a search
        # (`python -m benchmarks.many_tools`).
        form = form_for(model, self.options.mode)
        if form == "portable":
            offered = [*always, self.search_tool, _call_form()]
            return Offer(offered, bridged(messages, {*insisted, *_names(offered)}), form)
        if form == "anthropic":
            hidden = [deferred_copy(tool) for tool in later.values()]
            shown = with_cache_mark([*always, self.search_tool], later.values())
            return Offer([*hidden, *shown], referenced(messages, later.keys()), form)
        return Offer([*always, _search_form()], loaded(messages, later), form)

    def _keep_requested(self, thread_id: str, tools: Iterable[Any]) -> None:
        # At the end, so that the first thread is the least recently used.
        self._requested.pop(thread_id, None)
        self._requested[thread_id] = list(tools)
        drop_oldest(self._requested, self.MAX_THREADS)

    def searchable(self, built: Iterable[Any], thread_id: str | None) -> list[Any]:
        """Return the tools that a search in a thread looks through, given those of the tool node.

        A tool that a middleware adds at run time is only in the request: the tool node knows only the tools that the
        agent was built with.
        """
        tools = list(built)
        known = set(_names(tools))
        for tool in self._requested.get(thread_id or "", ()):
            if name_of(tool) not in known:
                tools.append(tool)
        return tools

    # --- from the model ---

    def take(self, answer: AIMessage, tools: Iterable[Any], *, insisted: Collection[str] = ()) -> AIMessage:
        """Return the answer with calls of the real tools. An unreadable call stays `call_tool`, which returns the
        reason.
        """
        answer = with_searches(answer)
        if not answer.tool_calls:
            return answer
        specs = self.specs(tools)
        known = {*OWN_TOOLS, *insisted, *_names(tools)}
        calls = []
        for call in answer.tool_calls:
            if call["name"] == CALL_TOOL:
                bridged_call = read_call(call["args"], specs)
                if bridged_call.problem is None:
                    call = {**call, "name": bridged_call.name, "args": bridged_call.arguments}
            elif call["name"] not in known:
                # ToolNode would list the names of all tools; `call_tool` answers with the most similar one.
                call = {**call, "name": CALL_TOOL, "args": bridge(call)}
            calls.append(call)
        # An unchanged message stays the same object, because hosts compare by identity.
        if calls == answer.tool_calls:
            return answer
        return answer.model_copy(update={"tool_calls": calls})

    def note(self, offer: Offer, answer: AIMessage, tools: Sequence[Any], messages: Sequence[Any]) -> None:
        """Record the searches that found the called tools, and tokens of tools sent and saved."""
        key = len(tools), len(offer.tools)
        tokens = self._costs.get(key)
        if tokens is None:
            # Anthropic does not count deferred tools before they are referenced.
            counted = [tool for tool in offer.tools if not _is_hidden(tool)]
            tokens = self._costs[key] = _ToolTokens(_tokens(counted), _tokens(tools))
        deferred = set(self.names(tools))
        revealed = revealed_in(messages)
        # The number of the search that found each called tool; 0 without a search.
        numbers: list[int] = []
        for call in answer.tool_calls:
            if call["name"] in deferred:
                numbers.append(revealed.get(call["name"], 0))
        first, never = numbers.count(1), numbers.count(0)
        later = len(numbers) - first - never
        saved = max(0, tokens.of_all - tokens.sent)
        self.navigator.evidence.searched(ToolsSearched(first, later, never, tokens.sent, saved))


class _ToolTokens(NamedTuple):
    """Tokens of the tools that are sent, and of all tools of the agent."""

    sent: int
    of_all: int


def _tokens(tools: Iterable[Any]) -> int:
    """Return the number of tokens, of about four characters each."""
    characters = 0
    for tool in tools:
        form = tool
        if not isinstance(tool, dict):
            form = convert_to_openai_function(tool)
        characters += len(json.dumps(form))
    return characters // 4


def _is_hidden(tool: Any) -> bool:
    extras = getattr(tool, "extras", None) or {}
    return bool(extras.get("defer_loading"))


def _check_names(tools: Iterable[Any]) -> None:
    for tool in tools:
        name = name_of(tool)
        if name in (SEARCH_TOOL, CALL_TOOL) and not isinstance(tool, (SearchTools, CallTool)):
            raise ConfigurationError(f"A tool of the agent is named {name!r}, as one of tool search. Rename it.")


def _parted(tools: Iterable[Any], deferred: Collection[str]) -> tuple[list[Any], dict[str, BaseTool]]:
    """Return the tools that are always offered, and the deferred ones by name, without the two tools of tool search."""
    always = []
    later = {}
    for tool in tools:
        name = name_of(tool)
        if name in (SEARCH_TOOL, CALL_TOOL):
            continue
        if name not in deferred:
            always.append(tool)
        elif isinstance(tool, BaseTool):
            later[tool.name] = tool
    return always, later


def _names(tools: Iterable[Any]) -> set[str]:
    names: set[str] = set()
    for tool in tools:
        name = name_of(tool)
        if name is not None:
            names.add(name)
    return names


def _search_form() -> dict[str, Any]:
    """Return `search_tools` as OpenAI's ``tool_search`` that the client executes."""
    query = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": QUERY_ABOUT}},
        "required": ["query"],
    }
    return {"type": "tool_search", "execution": "client", "description": SEARCH_ABOUT, "parameters": query}


def _call_form() -> dict[str, Any]:
    """Return `call_tool` in OpenAI's form of functions."""
    # A dict is sent as it is. For a tool, strict mode would close the schema of `arguments`, so that it stayed empty.
    return {
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


# --- a call of `call_tool` ---


class BridgedCall(NamedTuple):
    """A `call_tool` call as the real tool's name and arguments, with its error, if any."""

    name: str
    arguments: dict[str, Any]
    problem: str | None = None


def read_call(given: Any, specs: Mapping[str, ToolSpec]) -> BridgedCall:
    """Return the call that the arguments of `call_tool` describe."""
    if not isinstance(given, Mapping):
        given = {}
    name, arguments = given.get("name"), given.get("arguments")
    # A model may write nested arguments as a text.
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            problem = "`arguments` is no JSON object. Give the arguments of the tool as an object."
            return BridgedCall("", {}, problem)
    if arguments is None:
        arguments = {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return BridgedCall("", {}, "call_tool takes `name`, a text, and `arguments`, an object.")
    refusal = _problem_of(name, arguments, specs)
    if refusal is not None:
        return BridgedCall(name, {}, refusal)
    return BridgedCall(name, arguments)


def _problem_of(name: str, arguments: dict[str, Any], specs: Mapping[str, ToolSpec]) -> str | None:
    if name in OWN_TOOLS:
        return f"{name} is called directly, not by call_tool."
    spec = specs.get(name)
    if spec is None:
        near = nearest(name, specs)
        guess = ""
        if near is not None:
            guess = f" The nearest name is {near!r}."
        return f"There is no tool {name!r}.{guess} search_tools finds tools by what they do."
    # ToolNode validates only schemas that are models. A schema that cannot be read checks nothing.
    if spec.arguments_model is not None or not spec.has_readable_schema:
        return None
    problem = spec.schema_problem(arguments)
    if problem is None:
        return None
    schema = _compact_json(spec.parameters)
    return f"{name} was not called: {problem}. Its arguments: {schema[:MAX_SCHEMA]}"


# --- the two tools ---


class _WithRuntime(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    # Optional only by its default: a union would become part of the schema that the model sees.
    runtime: ToolRuntime[Any, Any] = Field(default=None)  # type: ignore[arg-type]


class _SearchArguments(_WithRuntime):
    query: str = Field(description=QUERY_ABOUT)


class _NamedCall(_WithRuntime):
    name: Any = None
    arguments: Any = None


def _search_errors() -> ErrorLog:
    return ErrorLog(SEARCH_TOOL, logger)


class SearchTools(BaseTool):
    """`search_tools`: the model searches in words, and gets tools as complete chains. Any ToolNode can run it."""

    name: str = SEARCH_TOOL
    description: str = SEARCH_ABOUT
    args_schema: Any = _SearchArguments
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    tags: list[str] | None = Field(default_factory=["read_only", "idempotent"].copy)
    deferred: Any = Field(exclude=True, repr=False)
    messages_key: str = "messages"
    _errors: ErrorLog = PrivateAttr(default_factory=_search_errors)

    def _run(self, query: str, runtime: ToolRuntime[Any, Any] | None = None) -> tuple[str, dict[str, list[str]]]:
        # ToolNode ends the run if a tool raises, unless the host handles errors.
        try:
            return self._found(query, runtime)
        except Exception as error:  # noqa: BLE001 - the run goes on
            self._errors.failed(error)
            return f"The tools could not be searched ({type(error).__name__}). Try again later.", {"revealed": []}

    def _found(self, query: str, runtime: ToolRuntime[Any, Any] | None) -> tuple[str, dict[str, list[str]]]:
        deferred: DeferredTools = self.deferred
        navigator, state = deferred.navigator, getattr(runtime, "state", None)
        messages = read_key(state, self.messages_key) or ()
        user = None
        if runtime is not None:
            user = user_id_of(runtime.config or None, runtime)
        tools = deferred.searchable(getattr(runtime, "tools", None) or (), _thread_of(runtime))
        specs: Mapping[str, ToolSpec] = navigator.tools
        if tools:
            specs = deferred.specs(tools)
            navigator.core.catalogue.adopt(specs)
        before = revealed_in(messages)
        names = self._names_searched(deferred.names(tools) or specs, state, before)
        reasons = find_tools(navigator, query, names, deferred.options.k, request=_request(messages), user_id=user)
        annotate({"toolmem.node": SEARCH_TOOL, "toolmem.found": len(reasons)})
        event = {"node": SEARCH_TOOL, "query": query, "found": reasons}
        emit(runtime, event, on=navigator.core.events)  # type: ignore[arg-type]
        return _result_text(reasons, specs, before), {"revealed": list(reasons)}

    def _names_searched(self, names: Iterable[str], state: Any, before: Iterable[str]) -> list[str]:
        """Return the names that a search looks through, given the tools that earlier searches found."""
        # Tools of earlier searches are still available: finding them again would be useless.
        hidden = set(before)
        if state is not None:
            hidden.update(left_out_now(state, messages_key=self.messages_key))
        return [name for name in names if name not in hidden]


def _thread_of(runtime: ToolRuntime[Any, Any] | None) -> str | None:
    config = None
    if runtime is not None:
        config = runtime.config
    return thread_id_of(config, runtime)


def _result_text(reasons: Mapping[str, str], specs: Mapping[str, ToolSpec], before: Iterable[str]) -> str:
    """Return the answer of a search: a line for each tool, and the names of those that were found before."""
    lines = []
    for name, why in reasons.items():
        # Past runs may name a tool that no longer exists.
        if name in specs:
            lines.append(described(specs[name], why))
    found_before = ", ".join(before)
    if found_before:
        lines.append(f"Found before: {found_before}.")
    return "\n".join(lines) or "No tool fits these words. Try other words."


def _request(messages: Iterable[Any]) -> str:
    for message in reversed(list(messages)):
        if isinstance(message, HumanMessage):
            return str(message.text)
    return ""


class CallTool(BaseTool):
    """`call_tool`: executed only for unreadable calls, because a readable one becomes the real call in the answer."""

    name: str = CALL_TOOL
    description: str = CALL_ABOUT
    args_schema: Any = _NamedCall
    # The text of its ToolException is the answer that the model reads.
    handle_tool_error: Any = True
    tags: list[str] | None = Field(default_factory=["read_only"].copy)
    deferred: Any = Field(exclude=True, repr=False)

    def _run(self, name: Any = None, arguments: Any = None, runtime: ToolRuntime[Any, Any] | None = None) -> str:
        specs = self.deferred.specs(getattr(runtime, "tools", None) or ())
        problem = read_call({"name": name, "arguments": arguments}, specs).problem
        raise ToolException(
            problem or f"{name} cannot be called now: it was taken out, or the model's answer was not read by `take`."
        )


class RevealTools(Step["Navigator"]):
    """Lets the model find its tools by a search, and shows at once the tools that similar requests called."""

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
        self.given: list[Any] | None = None
        if tools is not None:
            self.given = [*tools, *self.tools]
            self.core.catalogue.adopt(without_own(read_tools(self.given)))

    def compute(self, call: Call) -> StepOutput:
        """Return the deferred tools that similar requests called."""
        # Only the portable mode can show a tool without a search: the providers' blocks answer a search.
        if form_for(call.model, self.deferred.options.mode) != "portable":
            return NO_OUTPUT
        tools: Iterable[Any] = call.offered
        if self.given is not None:
            tools = self.given
        votes = self._votes(call, tools)
        if not votes:
            return NO_OUTPUT
        specs = self.deferred.specs(tools)

        def most_votes_first(name: str) -> tuple[float, str]:
            return -votes[name], name

        names = sorted(votes, key=most_votes_first)[: self.deferred.options.k]
        return StepOutput(
            lines=[Line(described(specs[name]), name) for name in names],
            head="Runs with similar requests called these tools; call_tool calls them, search_tools finds others:",
            sure=votes[names[0]],
            event={"revealed": names},
            notes={"toolmem.revealed": len(names)},
        )

    def _votes(self, call: Call, tools: Iterable[Any]) -> dict[str, float]:
        """Return the hidden tools that most similar requests called, with their share of the votes."""
        hidden = set(self.deferred.names(tools)) - call.left_out.keys() - revealed_in(call.messages).keys()
        if not hidden:
            return {}
        precedents = self.method.tool_search.precedents(call.user_id)
        if precedents is None:
            return {}
        callable_now = hidden & self.deferred.specs(tools).keys()
        votes = precedents.votes(self.core.read(call.messages, call.thread_id).request)
        return {name: vote for name, vote in votes.items() if vote >= LEAST_VOTE and name in callable_now}
