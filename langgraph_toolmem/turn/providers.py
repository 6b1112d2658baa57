"""Models as data: those that refuse tool calls they did not make, and the place of hints in each provider's requests.

A shortcut puts a call that the model did not make into the history. Most APIs accept it; some demand a field that only
the model can produce with each tool call: Claude's thinking block, Gemini's thought signature, the
``reasoning_content`` of DeepSeek, Kimi and MiMo. `PROVIDER_RULES` lists them, `refusal_of` looks a model up.

Not listed, because they are not known to refuse it: Claude with adaptive thinking (only the manual mode demands that a
turn starts with a thinking block), Gemini 2.5 and older (signatures are optional), OpenAI's Responses API (a function
call is tied to its reasoning item by the item's id, and the memory's call is without a reasoning item), Qwen, GLM,
MiniMax.

`PLACEMENTS` says where each provider allows a hint after the last message; `placement_of` looks a model up.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeVar

from langchain_core.runnables import Runnable
from langchain_core.runnables.config import var_child_runnable_config

logger = logging.getLogger("langgraph_toolmem.turn.providers")

Settings = Mapping[str, tuple[Any, ...]]
"""Settings of a model or of one call, by dotted path such as ``"thinking.type"``, each with the values that count.

A path is looked up in the per-call settings, in the model's fields and in the mappings that carry settings on
(``extra_body``, ``model_kwargs``, ``additional_model_request_fields``). Without values, every value counts except None,
False, 0, "", "none", "off" and "disabled".
"""
Place = Literal["tail", "tail_list", "tail_marked", "in_tool", "instructions", ""]
"""The place of a hint. "tail": a message of the user's role after the last one. "tail_list": with a list as content.
"tail_marked": where the request asks for a cache (``cache_control`` in its settings), the mark goes to the last stable
block. "in_tool": inside the last message if it is a tool's answer, otherwise at the tail. "instructions": in the
setting of that name, which the provider does not store with the conversation; not possible in a graph. "": unknown.
"""

_UNSET: Final = (None, False, 0, "", "none", "off", "disabled")
"""Values that leave a setting off."""
_MODEL_FIELDS: Final = ("model", "model_name", "model_id", "base_model_id", "base_model")
"""Attributes and settings that hold the model's name."""
_CARRIERS: Final = ("extra_body", "model_kwargs", "additional_model_request_fields", "additionalModelRequestFields")
"""Mappings in which models and calls carry settings without a field of their own."""
_MAX_DEPTH: Final = 20
"""Wrappers around a model that are looked through."""


@dataclass(frozen=True, kw_only=True)
class Models:
    """Some models. A model is one of them if it meets every condition that is given.

    Attributes:
        clients: class names, looked up along the class's bases; or a model's ``_llm_type``, its ``ls_provider``, or
            the provider as ``init_chat_model`` calls it. Empty: any.
        models: regular expression that is searched in the model's name, regardless of case. Empty: any.
        on: settings of which at least one must be found to count. Empty: none needed.
        off: settings that exclude a model, if all that is found at their paths counts.
    """

    clients: tuple[str, ...] = ()
    models: str = ""
    on: Settings = field(default_factory=dict)
    off: Settings = field(default_factory=dict)


_MANUAL_THINKING: Final[Settings] = {"thinking.type": ("enabled",)}
_ANTHROPIC: Final = (
    "ChatAnthropic",
    "ChatAnthropicVertex",
    "anthropic",
    "anthropic_bedrock",
    "google_anthropic_vertex",
)
_CONVERSE: Final = ("ChatBedrockConverse", "bedrock_converse")

PROVIDER_RULES: Final[Mapping[str, Models]] = {
    # With manual extended thinking an assistant turn must start with a signed thinking block:
    # 400 "Expected `thinking` or `redacted_thinking`, but found `tool_use`".
    # https://platform.claude.com/docs/en/build-with-claude/extended-thinking
    # https://github.com/langchain-ai/langchain-aws/issues/844
    "claude-thinking": Models(
        clients=(*_ANTHROPIC, *_CONVERSE, "ChatBedrock", "bedrock", "amazon_bedrock"), on=_MANUAL_THINKING
    ),
    # Gateways hand it on; OpenRouter turns reasoning.max_tokens into it.
    # https://github.com/anomalyco/opencode/issues/3077
    # https://openrouter.ai/docs/guides/guides/model-migrations/claude-4-6
    "gateway-claude-thinking": Models(models=r"claude", on={**_MANUAL_THINKING, "reasoning.max_tokens": ()}),
    # Before Claude 4.6 gateways turn an effort into manual extended thinking.
    # https://github.com/openai/openai-agents-python/issues/1704
    "gateway-claude-effort": Models(
        clients=("BaseChatOpenAI", "ChatOpenRouter", "ChatLiteLLM", "openai", "openrouter", "litellm"),
        models=r"claude-3[.-]7"
        r"|claude-4(?:[.-][0-5])?-(?:opus|sonnet|haiku)"
        r"|claude-(?:opus|sonnet|haiku)-4(?:[.-][0-5])?(?=$|[:@]|-(?:\d{8}|v\d|latest|thinking))",
        on={"reasoning.effort": (), "reasoning.enabled": (), "reasoning_effort": ()},
    ),
    # From Gemini 3 on each step's function call must bring back its signature, at every thinking level:
    # 400 "Function call is missing a thought_signature in functionCall parts." Image models do not check; "-latest"
    # names point at the newest model. https://ai.google.dev/gemini-api/docs/thought-signatures
    "gemini-3": Models(models=r"gemini-(?:[3-9](?!\d)|[1-9]\d|(?:pro|flash|flash-lite)-latest)(?!.*image)"),
    # In thinking mode, which is on by default, an assistant message with tool calls must bring back its
    # reasoning_content: 400 "The `reasoning_content` in the thinking mode must be passed back to the API."
    # https://api-docs.deepseek.com/guides/thinking_mode, https://platform.kimi.ai/docs/guide/use-kimi-k2-thinking-model
    # https://mimo.mi.com/docs/en-US/quick-start/usage-guide/other/deep-thinking
    "reasoning-content": Models(
        models=r"deepseek-(?:reasoner|v[4-9](?!\d)|flash|pro)|kimi-k2(?:-thinking|[.p][5-9])|mimo-v2(?!-flash)",
        off={"thinking.type": ("disabled",), "reasoning.effort": ("none",), "reasoning.enabled": (False,)},
    ),
    # https://github.com/anomalyco/opencode/issues/9397
    "reasoning-content-if-on": Models(
        models=r"deepseek-(?:chat|v3)|mimo-v2-flash",
        on={**_MANUAL_THINKING, "reasoning.enabled": (), "reasoning.effort": ()},
    ),
}
"""Models without a shortcut, because their API refuses turns that they did not make; the first match is reported."""


PLACEMENTS: Final[tuple[tuple[Place, Models], ...]] = (
    # As measured on the payloads that these integrations build, unless a link is given.
    # langchain-anthropic 1.7.7: messages of one role are merged into one of several blocks; a system message behind
    # others is refused. https://docs.claude.com/en/docs/build-with-claude
    ("tail_marked", Models(clients=(*_ANTHROPIC, "ChatAnthropicBedrock"))),
    # langchain-aws 1.9.1: Converse glues two texts of the user into one; as a list they stay apart. Models other than
    # Claude refuse text of the user next to a tool's result.
    ("tail_list", Models(clients=_CONVERSE, models=r"claude")),
    ("in_tool", Models(clients=_CONVERSE)),
    # langchain-google-genai 4.4.2: a system message behind others goes to system_instruction, or is dropped silently.
    ("tail", Models(clients=("ChatGoogleGenerativeAI", "ChatVertexAI", "google_genai", "google_vertexai"))),
    # The API has answered 400 to a user's message behind a tool's.
    # https://github.com/langchain-ai/langchain/issues/27947
    ("in_tool", Models(clients=("ChatMistralAI", "mistralai"))),
    # langchain-ollama 1.1.0: the model's template decides if a system message behind others is seen.
    ("tail", Models(clients=("ChatOllama", "ollama"))),
    # The conversation stays on the server, with all that was ever in the input; the instructions do not.
    # https://platform.openai.com/docs/guides/conversation-state
    (
        "instructions",
        Models(
            clients=("BaseChatOpenAI", "openai", "azure_openai"),
            on={"use_previous_response_id": (), "previous_response_id": (), "conversation": ()},
        ),
    ),
    # langchain-openai 1.7.3: sent as they are. https://platform.openai.com/docs/guides/prompt-caching
    ("tail", Models(clients=("BaseChatOpenAI", "openai", "azure_openai"))),
)
"""The first match applies; all other models get hints in the system message."""


def refusal_of(model: Any, settings: Mapping[str, Any] | None = None) -> str:
    """Return the name of the rule by which a shortcut before this model would break its next call; "" without a known
    rule.

    Args:
        model: a chat model, a runnable around one, or ``"provider:model"``.
        settings: per-call keyword arguments, such as ``ModelRequest.model_settings``.
    """
    return _first(PROVIDER_RULES.items(), model, settings) or ""


def placement_of(model: Any, settings: Mapping[str, Any] | None = None) -> Place:
    """Return the place of hints for a model; "" if it is not listed."""
    return _first(PLACEMENTS, model, settings) or ""


T = TypeVar("T", bound=str)


def _first(rules: Iterable[tuple[T, Models]], model: Any, settings: Mapping[str, Any] | None) -> T | None:
    """Return the first name whose models include this one.

    Looks through bindings, sequences, retries, fallbacks (any of them counts) and models of ``init_chat_model``. If a
    setting is given at more than one place, one that turns thinking on is enough. The function only reads fields, and
    never raises.
    """
    try:
        calls: tuple[Mapping[str, Any], ...] = ()
        if isinstance(settings, Mapping):
            calls = (settings,)
        ambient = (var_child_runnable_config.get() or {}).get("configurable") or {}
        for leaf in _leaves(model, calls, ambient, 0):
            for name, models in rules:
                if leaf.meets(models):
                    return name
    except Exception as error:
        logger.debug("a model could not be looked up: %s", type(error).__name__, exc_info=error)
    return None


class _Leaf:
    """One chat model: its names, and all places of its settings."""

    def __init__(self, model: Any, fields: Mapping[str, Any], calls: Iterable[Mapping[str, Any]]) -> None:
        self._model = model
        self._places: list[Mapping[str, Any]] = []
        for layer in (fields, *calls):
            self._places += _with_carriers(layer)
        self._names = _names_of(model, self._places)

    def meets(self, rule: Models) -> bool:
        """Return True if every condition is met; the cheapest conditions come first."""
        if rule.models and not any(re.search(rule.models, name, re.IGNORECASE) for name in self._names):
            return False
        if rule.on and not any(self._found(rule.on)):
            return False
        excluding = list(self._found(rule.off))
        if excluding and all(excluding):
            return False
        return not rule.clients or not self._labels.isdisjoint(rule.clients)

    def _found(self, settings: Settings) -> Iterator[bool]:
        """Yield, for each value at the paths, True if it counts."""
        for path, values in settings.items():
            first, *rest = path.split(".")
            for place in self._places:
                value = _value_below(place.get(first), rest)
                if value is not None:
                    yield _value_counts(value, values)

    @cached_property
    def _labels(self) -> set[str]:
        """The names by which `Models.clients` may call this model."""
        labels = {name.partition(":")[0] for name in self._names}
        for place in self._places:
            provider = place.get("model_provider")
            if isinstance(provider, str):
                labels.add(provider.replace("-", "_").lower())
        if not isinstance(self._model, str):
            labels |= {base.__name__ for base in type(self._model).__mro__}
            labels.add(str(getattr(self._model, "_llm_type", "")))
            params = getattr(self._model, "_get_ls_params", None)
            if callable(params):
                labels.add(str(params().get("ls_provider", "")))
        return labels


def _with_carriers(layer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a layer of settings, and the mappings in it that carry further ones."""
    places = [layer]
    for key in _CARRIERS:
        carrier = layer.get(key)
        if isinstance(carrier, Mapping):
            places.append(carrier)
    return places


def _names_of(model: Any, places: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of a model: those in its settings, otherwise those of its attributes."""
    given: list[Any] = []
    for place in places:
        for key in _MODEL_FIELDS:
            given.append(place.get(key))
    names = [name for name in given if isinstance(name, str)]
    if isinstance(model, str):
        names.append(model)
    elif not names:
        # A client of its own may compute its name in a property.
        for key in ("model", "model_name"):
            name = getattr(model, key, None)
            if isinstance(name, str):
                names.append(name)
    return names


def _value_below(value: Any, keys: Iterable[str]) -> Any:
    """Return the value at some keys inside another one; None if it is missing."""
    for key in keys:
        if not isinstance(value, Mapping):  # a client's object of settings
            value = _fields(value)
        value = value.get(key)
    return value


def _value_counts(value: Any, values: Collection[Any]) -> bool:
    """Return True if a value of a setting counts: it is one of `values`, or without any, it is not off."""
    if isinstance(value, str):
        value = value.lower()
    if values:
        return value in values
    return bool(value) and value not in _UNSET


def _leaves(
    model: Any, calls: tuple[Mapping[str, Any], ...], configurable: Mapping[str, Any], depth: int
) -> Iterator[_Leaf]:
    """Yield the chat models inside. Only instance fields are read: attribute access can build a configurable model."""
    fields = _fields(model)
    if depth > _MAX_DEPTH:
        return
    if hasattr(type(model), "_generate"):  # a chat model may have fields that are called like a wrapper's
        yield _Leaf(model, fields, calls)
        return
    configurable = _with_bound_config(fields, configurable)
    if "_default_config" in fields:
        yield _configurable_leaf(fields, calls, configurable)
        return
    kwargs = fields.get("kwargs")
    if isinstance(kwargs, Mapping):
        calls = (*calls, kwargs)
    inside = _runnables_in(fields)
    if not inside:
        yield _Leaf(model, fields, calls)
    for part in inside:
        yield from _leaves(part, calls, configurable, depth + 1)


def _with_bound_config(fields: Mapping[str, Any], configurable: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run's configurable with that of ``with_config`` around the model; the run's own values win."""
    config = fields.get("config")
    if isinstance(config, Mapping):
        return {**(config.get("configurable") or {}), **configurable}
    return configurable


def _runnables_in(fields: Mapping[str, Any]) -> list[Runnable[Any, Any]]:
    inside: list[Runnable[Any, Any]] = []
    for value in fields.values():
        if isinstance(value, Runnable):
            inside.append(value)
        elif isinstance(value, (list, tuple)):  # fallbacks, the steps of a sequence
            inside += [part for part in value if isinstance(part, Runnable)]
    return inside


def _configurable_leaf(
    fields: Mapping[str, Any], calls: tuple[Mapping[str, Any], ...], configurable: Mapping[str, Any]
) -> _Leaf:
    """Return the model that ``init_chat_model`` would make for this run's configurable."""
    # Calls of `bind` and the like, which `init_chat_model` repeats on the model that it makes.
    queued = []
    for _name, _args, kwargs in fields.get("_queued_declarative_operations") or ():
        queued.append(kwargs)
    merged = {**fields["_default_config"], **_configured_now(fields, configurable)}
    return _Leaf(str(merged.get("model") or ""), merged, (*calls, *queued))


def _configured_now(fields: Mapping[str, Any], configurable: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configurable model that this run sets, without their prefix."""
    prefix, allowed = fields.get("_config_prefix") or "", fields.get("_configurable_fields")
    now = {}
    for key, value in configurable.items():
        field = key.removeprefix(prefix)
        if key.startswith(prefix) and (allowed == "any" or field in (allowed or ())):
            now[field] = value
    return now


def _fields(model: Any) -> Mapping[str, Any]:
    fields = getattr(model, "__dict__", None)
    if isinstance(fields, Mapping):
        return fields
    return {}
