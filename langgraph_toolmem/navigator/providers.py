"""Providers' forms of deferred tools: the mode for a model, and the changes of each mode to the messages.

The thread keeps searches and calls in one plain form. For a model call, the functions here turn the history into the
provider's form; `with_searches` turns an answer back. The functions do not change the messages that they get.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeGuard

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_function

from langgraph_toolmem.runs.run import CALL_TOOL, SEARCH_TOOL

Mode = Literal["auto", "anthropic", "openai", "portable"]
ToolForm = Literal["anthropic", "tool_search", "portable"]


# --- the form for a model ---


def form_for(model: Any, mode: Mode = "auto") -> ToolForm:
    """Return how deferred tools reach a model.

    The client's URL decides, because LangChain's `ls_provider` is "openai" for every server with that interface, and
    most of them refuse ``tool_search``.
    """
    if mode in ("anthropic", "portable"):
        return mode
    if mode == "openai" or _searches_at_openai(model):
        return "tool_search"
    if _defers_at_anthropic(model):
        return "anthropic"
    return "portable"


def _searches_at_openai(model: Any) -> bool:
    """Return True for gpt-5.4 and later at OpenAI's own URL, unless the Responses API is switched off."""
    url = str(getattr(getattr(model, "root_client", None), "base_url", "") or "")
    if "ChatOpenAI" not in _class_names(model) or not url.startswith("https://api.openai.com/"):
        return False
    if getattr(model, "use_responses_api", None) is False:
        return False
    from_5_4 = re.compile(r"^gpt-(?:5\.(?:[4-9]|[1-9]\d)|[6-9]|[1-9]\d)(?!\d)")
    return from_5_4.match(_model_name(model)) is not None


def _defers_at_anthropic(model: Any) -> bool:
    """Return True for Claude 4.5 and later at Anthropic's own URL or on Bedrock."""
    kinds = _class_names(model)
    url = str(getattr(model, "anthropic_api_url", ""))
    at_anthropic = "ChatAnthropic" in kinds and url.startswith("https://api.anthropic.com")
    if not at_anthropic and "ChatAnthropicBedrock" not in kinds:
        return False
    # A date may follow the version ("claude-sonnet-4-20250514" is Claude 4), so a version has at most two digits.
    from_4_5 = re.compile(r"claude-(?:opus|sonnet|haiku)-(?:4[-.](?:[5-9]|[1-9]\d)(?!\d)|(?:[5-9]|[1-9]\d)(?!\d))")
    return from_4_5.search(_model_name(model)) is not None


def _class_names(model: Any) -> set[str]:
    """Return the names of a model's classes: the providers' packages need not be installed."""
    return {base.__name__ for base in type(model).__mro__}


def _model_name(model: Any) -> str:
    return str(getattr(model, "model_name", None) or getattr(model, "model", ""))


# --- searches in the history ---


def revealed_by(message: ToolMessage) -> list[str]:
    """Return the tools that one answer of `search_tools` found."""
    # The host's state is not trusted: a checkpoint may contain any artifact.
    if not isinstance(message.artifact, Mapping):
        return []
    names = message.artifact.get("revealed")
    if not isinstance(names, list):
        return []
    return [name for name in names if isinstance(name, str)]


def revealed_in(messages: Iterable[Any]) -> dict[str, int]:
    """Return the tools that searches of a thread found, with the number of the search in its turn, the latest last."""
    most = 200  # limit of tools; the latest stay revealed
    searches: dict[str, int] = {}
    number = 0
    for message in messages:
        if isinstance(message, HumanMessage):
            number = 0
        elif isinstance(message, ToolMessage) and message.name == SEARCH_TOOL:
            number += 1
            for name in revealed_by(message):
                searches.setdefault(name, number)
    return dict(list(searches.items())[-most:])


# --- portable: `call_tool` ---


def bridge(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `call_tool` for a call of a real tool."""
    return {"name": call["name"], "arguments": call["args"]}


def bridged(messages: Sequence[Any], offered: Collection[str]) -> list[Any]:
    """Turn all calls of tools that are not offered into `call_tool`, and rename their answers accordingly."""
    bridged_messages: list[Any] = []
    renamed: set[str | None] = set()
    for message in messages:
        if isinstance(message, AIMessage):
            message, ids = _bridged_calls(message, offered)
            renamed |= ids
        elif isinstance(message, ToolMessage) and message.tool_call_id in renamed and message.name:
            message = message.model_copy(update={"name": CALL_TOOL})
        bridged_messages.append(message)
    return bridged_messages


def _bridged_calls(message: AIMessage, offered: Collection[str]) -> tuple[AIMessage, set[str | None]]:
    """Return a message with calls as `call_tool` if necessary, and the ids of those calls."""
    calls = []
    renamed: set[str | None] = set()
    for call in message.tool_calls:
        if call["name"] not in offered:
            renamed.add(call["id"])
            call = {**call, "name": CALL_TOOL, "args": bridge(call)}
        calls.append(call)
    if not renamed:
        return message, renamed
    return message.model_copy(update={"tool_calls": calls}), renamed


# --- anthropic: deferred tools and references ---


def deferred_copy(tool: BaseTool) -> BaseTool:
    """Return a tool as one that Anthropic loads only after a reference to it."""
    extras = _extras(tool)
    # Anthropic answers 400 to a cache mark on a deferred tool; `with_cache_mark` moves it.
    extras.pop("cache_control", None)
    copy: BaseTool = tool.model_copy(update={"extras": {**extras, "defer_loading": True}})
    return copy


def with_cache_mark(offered: list[Any], deferred: Iterable[BaseTool]) -> list[Any]:
    """Return the offered tools with the last cache mark of the deferred tools on the last offered tool."""
    mark = None
    for tool in deferred:
        mark = _extras(tool).get("cache_control") or mark
    if not mark:
        return offered
    *others, last = offered
    return [*others, last.model_copy(update={"extras": {**_extras(last), "cache_control": mark}})]


def _extras(tool: BaseTool) -> dict[str, Any]:
    """Return a copy of a tool's provider fields; the oldest supported LangChain does not have them."""
    return dict(getattr(tool, "extras", None) or {})


def referenced(messages: Sequence[Any], deferred: Collection[str]) -> list[Any]:
    """Turn answers of searches into references to the deferred tools."""
    referenced_messages: list[Any] = []
    for message in messages:
        if isinstance(message, ToolMessage) and message.name == SEARCH_TOOL:
            references: list[Any] = []
            for name in revealed_by(message):
                # A reference to a tool that is not sent is refused.
                if name in deferred:
                    references.append({"type": "tool_reference", "tool_name": name})
            # An answer without references stays a text.
            if references:
                message = message.model_copy(update={"content": references})
        referenced_messages.append(message)
    return referenced_messages


# --- openai: `tool_search` that the client executes ---


class _SearchItem(NamedTuple):
    """A ``tool_search_call`` of OpenAI, and its place in the content of the message. In a message it is a list."""

    place: int
    item: dict[str, Any]


def loaded(messages: Sequence[Any], tools: Mapping[str, BaseTool]) -> list[Any]:
    """Turn calls of `search_tools` and their answers into items of ``tool_search``, the answers with schemas.

    A search that another model made stays a call.
    """
    loaded_messages: list[Any] = []
    item_ids: set[str] = set()
    for message in messages:
        if isinstance(message, AIMessage):
            kept = _kept_items(message)
            if kept:
                for search in kept:
                    item_ids.add(search.item["call_id"])
                message = _with_items(message, kept, item_ids)
        elif isinstance(message, ToolMessage) and message.tool_call_id in item_ids:
            message = HumanMessage([_search_output(message, tools)])
        loaded_messages.append(message)
    return loaded_messages


def _with_items(message: AIMessage, kept: Iterable[_SearchItem], item_ids: Collection[str]) -> AIMessage:
    """Return a message with the kept items back at their places, without the calls that represented them."""
    content: list[Any] = []
    if isinstance(message.content, list):
        content += message.content
    for search in kept:
        content.insert(search.place, search.item)
    calls = [call for call in message.tool_calls if call["id"] not in item_ids]
    return message.model_copy(update={"content": content, "tool_calls": calls})


def _search_output(message: ToolMessage, tools: Mapping[str, BaseTool]) -> dict[str, Any]:
    shown = []
    for name in revealed_by(message):
        if name in tools:
            shown.append({"type": "function", **convert_to_openai_function(tools[name]), "defer_loading": True})
    return {
        "type": "tool_search_output",
        "execution": "client",
        "call_id": message.tool_call_id,
        "status": "completed",
        "tools": shown,
    }


def with_searches(answer: AIMessage) -> AIMessage:
    """Turn searches that OpenAI sends as content into calls of `search_tools`; keep the items next to the content."""
    if not isinstance(answer.content, list):
        return answer
    searches: list[_SearchItem] = []
    content = []
    for place, block in enumerate(answer.content):
        if _is_search_call(block):
            searches.append(_SearchItem(place, block))
        else:
            content.append(block)
    if not searches:
        return answer
    known = {call["id"] for call in answer.tool_calls}
    calls: list[Any] = list(answer.tool_calls)
    for search in searches:
        call_id = search.item["call_id"]
        if call_id not in known:
            arguments = _arguments_of(search.item)
            calls.append({"name": SEARCH_TOOL, "args": arguments, "id": call_id, "type": "tool_call"})
    kept = {**answer.additional_kwargs, "toolmem": {"tool_search": [list(search) for search in searches]}}
    return answer.model_copy(update={"content": content, "tool_calls": calls, "additional_kwargs": kept})


def _is_search_call(block: Any) -> TypeGuard[dict[str, Any]]:
    if not isinstance(block, dict) or block.get("type") != "tool_search_call":
        return False
    # A search that OpenAI executes itself has its answer already.
    return block.get("execution") == "client"


def _arguments_of(item: Mapping[str, Any]) -> Any:
    arguments = item.get("arguments") or {}
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return {"query": arguments}


def _kept_items(message: AIMessage) -> list[_SearchItem]:
    kept = message.additional_kwargs.get("toolmem")
    if not isinstance(kept, Mapping):
        return []
    return [_SearchItem(*plain) for plain in kept.get("tool_search") or ()]
