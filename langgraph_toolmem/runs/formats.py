"""Logs that other programs write, as runs: objects with `messages` in OpenAI's or LangChain's form.

=============  =====================================================================================================
``langsmith``  runs of LangSmith (``client.list_runs()``, an export of a project), or examples of a data set
``spans``      OpenTelemetry spans with GenAI attributes: OTLP JSON, or what the console exporter prints
``tau2``       results of tau2-bench (`simulations`) and of tau-bench (`traj`)
``plain``      everything else: `plain_messages` reads OpenAI's and Anthropic's messages, requests with responses
=============  =====================================================================================================

Many records tell of one conversation. Those of one thread are put together: a history that a later one begins with
is left out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

Fields = dict[str, Any]
Value = tuple[int, Any]
"""Line number, and what stands there."""

_CLASSES: Final = {"Human": "human", "AI": "ai", "Tool": "tool", "System": "system", "Function": "function"}
_THREADS: Final = ("thread_id", "session_id", "conversation_id")
_VERDICTS: Final = ("success", "correctness", "correct", "user_score", "score")
"""Keys of LangSmith's feedback that judge a whole run."""
_ROLES: Final = {"human": "user", "ai": "assistant", "model": "assistant"}


def kind_of(value: Any) -> str:
    """What program wrote a record."""
    if not isinstance(value, dict):
        return "plain"
    if "simulations" in value or "traj" in value:
        return "tau2"
    if "resourceSpans" in value or (("context" in value or "traceId" in value) and "attributes" in value):
        return "spans"
    both = isinstance(value.get("inputs"), dict) and "outputs" in value
    return "langsmith" if both and "messages" not in value else "plain"


def runs_of(kind: str, values: Iterable[Value]) -> Iterator[tuple[int, Fields]]:
    """The conversations of records of a kind that is not plain, each with its line."""
    return _READERS[kind]([(line, value) for line, value in values if isinstance(value, dict)])


# --- one record, one run ---


def plain_fields(fields: Fields) -> Fields:
    """A line as it is, or with the `messages` of a request and its response (OpenAI, Anthropic) put together."""
    request = next((fields[key] for key in ("request", "body") if isinstance(fields.get(key), dict)), fields)
    response = fields.get("response", fields if "choices" in fields or "output" in fields else None)
    if isinstance(response, dict) and isinstance(response.get("body"), dict):
        response = response["body"]
    asked = request.get("messages", request.get("input"))
    if isinstance(asked, str):
        asked = [{"role": "user", "content": asked}]
    if not isinstance(asked, list) or (request is fields and response is None and "messages" in fields):
        return fields
    return {**fields, "messages": [*asked, *_answer(response if isinstance(response, dict) else {})]}


def _answer(response: Mapping[str, Any]) -> list[Any]:
    """What a model said: OpenAI's chat completion or response, or Anthropic's message."""
    if isinstance(choices := response.get("choices"), list):
        return [each["message"] for each in choices[:1] if isinstance(each, dict) and "message" in each]
    if isinstance(output := response.get("output"), list):
        return output
    return [{"role": "assistant", "content": response["content"]}] if "content" in response else []


def plain_messages(messages: Sequence[Any]) -> list[Any]:
    """Content blocks or items (Anthropic, OpenAI's Responses) as messages with calls; others as they are."""
    made: list[Any] = []
    for each in messages:
        if not isinstance(each, dict):
            made.append(each)
        elif "parts" in each:
            made += _of_parts(each)
        elif each.get("type") in _ITEMS and "role" not in each:
            _ITEMS[each["type"]](made, each)
        elif isinstance(content := each.get("content"), list) and not each.get("tool_calls"):
            made += _of_blocks(each, content)
        else:
            made.append(_constructed(each))
    return made


def _constructed(message: Fields) -> Fields:
    """A message as LangChain dumps it: the class's name says whose it is."""
    name, fields = message.get("id"), message.get("kwargs")
    if message.get("type") != "constructor" or not isinstance(name, list) or not isinstance(fields, dict):
        return message
    kind = str(name[-1]).removesuffix("Chunk").removesuffix("Message")
    return {**fields, "type": _CLASSES.get(kind, kind.lower())}


def _of_blocks(message: Fields, content: list[Any]) -> list[Fields]:
    blocks = [block for block in content if isinstance(block, dict)]
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    if not calls and not results:
        return [message]
    text = _text(block for block in content if block not in calls and block not in results)
    made: list[Fields] = [
        {
            "role": "tool",
            "tool_call_id": block.get("tool_use_id", ""),
            "content": _text(block.get("content") or ""),
            **({"status": "error"} if block.get("is_error") else {}),
        }
        for block in results
    ]
    if calls:
        called = [{"id": block.get("id"), "name": block.get("name"), "args": block.get("input")} for block in calls]
        made.append({**message, "content": text, "tool_calls": called})
    elif text:
        made.append({**message, "content": text})
    return made


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Iterable) else ()
    return "".join(part if isinstance(part, str) else str(part.get("text") or "") for part in parts)


def _item_call(made: list[Any], item: Fields) -> None:
    last = made[-1] if made else {}
    if not (isinstance(last, dict) and last.get("role") == "assistant"):
        made.append(last := {"role": "assistant", "content": ""})
    calls = [*last.get("tool_calls", ()), {"id": item.get("call_id"), "name": item.get("name")}]
    calls[-1]["args"] = item.get("arguments")
    made[-1] = {**last, "tool_calls": calls}


def _item_result(made: list[Any], item: Fields) -> None:
    made.append({"role": "tool", "tool_call_id": item.get("call_id", ""), "content": item.get("output", "")})


_ITEMS: Final[dict[str, Callable[[list[Any], Fields], None]]] = {
    "function_call": _item_call,
    "function_call_output": _item_result,
    "reasoning": lambda _made, _item: None,
}


# --- many records, one thread ---


def _grown(line: int, histories: Iterable[list[Any]], common: Fields) -> Iterator[tuple[int, Fields]]:
    """The histories of a thread in their order, but for those that the next one begins with."""
    kept = [history for history in histories if history]
    for history, after in pairwise([*kept, []]):
        if after[: len(history)] != history:
            yield line, {**common, "messages": history}


def _langsmith(values: list[Value]) -> Iterator[tuple[int, Fields]]:
    traces: defaultdict[str, list[Value]] = defaultdict(list)
    for line, run in values:
        traces[str(run.get("trace_id") or run.get("id") or line)].append((line, run))
    for trace, records in sorted(traces.items(), key=lambda each: min(_began(run) for _, run in each[1])):
        runs = sorted((run for _, run in records), key=_began)
        whole = [run for run in runs if not run.get("parent_run_id")]
        metadata: dict[str, Any] = {}
        for run in [*runs, *whole]:
            metadata |= (run.get("extra") or {}).get("metadata") or run.get("metadata") or {}
        told = [history for run in whole if (history := _root_history(run))]
        asked = [] if told else [_asked(run) for run in runs if run.get("run_type") == "llm"]
        common: Fields = {"thread_id": next((str(metadata[key]) for key in _THREADS if metadata.get(key)), trace)}
        common["user_id"] = metadata.get("user_id")
        common["success"] = next((verdict for run in whole if (verdict := _judged(run)) is not None), None)
        yield from _grown(records[0][0], told or asked, common)


def _began(run: Fields) -> str:
    return str(run.get("start_time") or "")


def _root_history(run: Fields) -> list[Any]:
    """What a run of an agent was given and gave, if these are messages."""
    given = _listed((run.get("inputs") or {}).get("messages"))
    outputs = run.get("outputs") or {}
    gave = _listed(outputs.get("messages"))
    if not gave and isinstance(outputs.get("output"), dict):
        gave = _listed(outputs["output"].get("messages") or outputs["output"])
    if not gave or run.get("run_type") == "llm":
        return []
    said = {_said(message) for message in gave}
    return plain_messages(gave if given and _said(given[0]) in said else [*given, *gave])


def _asked(run: Fields) -> list[Any]:
    """The prompt of a model's call and its answer."""
    given = _listed((run.get("inputs") or {}).get("messages"))
    outputs = run.get("outputs") or {}
    generations = outputs.get("generations") or []
    while isinstance(generations, list) and generations and isinstance(generations[0], list):
        generations = generations[0]
    answers = [each["message"] for each in generations[:1] if isinstance(each, dict) and "message" in each]
    return plain_messages([*given, *(answers or _answer(outputs))])


def _listed(messages: Any) -> list[Any]:
    """Messages, also where a model is given a list of lists, or one message alone."""
    if isinstance(messages, list) and messages and isinstance(messages[0], list):
        messages = messages[0]
    if isinstance(messages, dict):
        messages = [messages] if {"role", "type"} & messages.keys() else []
    return messages if isinstance(messages, list) else []


def _said(message: Any) -> str:
    if isinstance(message, dict):
        for key in ("kwargs", "data"):
            message = message[key] if isinstance(message.get(key), dict) else message
        return json.dumps(message.get("content"), sort_keys=True)
    return json.dumps(message[-1] if isinstance(message, list) and message else message)


def _judged(run: Fields) -> bool | None:
    stats = run.get("feedback_stats") or {}
    means = (stats[key].get("avg") for key in _VERDICTS if isinstance(stats.get(key), dict))
    return next((mean >= 0.5 for mean in means if isinstance(mean, (int, float))), None)


def _spans(values: list[Value]) -> Iterator[tuple[int, Fields]]:
    threads: defaultdict[str, list[tuple[str, int, Fields]]] = defaultdict(list)
    for line, value in values:
        for span in _each_span(value):
            facts = _attributes(span.get("attributes"))
            for event in span.get("events") or ():
                facts = {**_attributes(event.get("attributes")), **facts}
            trace = span.get("traceId") or (span.get("context") or {}).get("trace_id")
            thread = facts.get("gen_ai.conversation.id") or trace or line
            began = span.get("startTimeUnixNano") or span.get("start_time") or ""
            threads[str(thread)].append((str(began), line, facts))
    for thread, spans in threads.items():
        spans.sort(key=lambda each: each[0])
        chats = [each for each in spans if each[2].get("gen_ai.operation.name", "chat") in ("chat", "generate_content")]
        users = [facts.get("user.id") or facts.get("enduser.id") for _, _, facts in spans]
        common = {"thread_id": thread, "user_id": next(filter(None, users), None)}
        yield from _grown(spans[0][1], [_told(facts) for _, _, facts in chats or spans], common)


def _each_span(value: Fields) -> Iterator[Fields]:
    if "resourceSpans" not in value:
        yield value
    for resource in value.get("resourceSpans") or ():
        for scope in resource.get("scopeSpans") or ():
            yield from scope.get("spans") or ()


def _attributes(given: Any) -> Fields:
    """Attributes as the console exporter writes them, or as OTLP does."""
    if isinstance(given, dict):
        return given
    return {each["key"]: _any_value(each.get("value")) for each in given or () if isinstance(each, dict)}


def _any_value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kind, held = next(iter(value.items()), ("", None))
    if kind == "arrayValue":
        return [_any_value(each) for each in (held or {}).get("values") or ()]
    return _attributes((held or {}).get("values")) if kind == "kvlistValue" else held


def _told(facts: Fields) -> list[Any]:
    """What a model was asked and said, by the GenAI conventions, or as OpenLLMetry numbers it."""
    told: list[Any] = []
    for name, numbered in (("gen_ai.input.messages", "gen_ai.prompt"), ("gen_ai.output.messages", "gen_ai.completion")):
        held = facts.get(name)
        if isinstance(held, str):
            held = json.loads(held)
        told += held if isinstance(held, list) else _numbered(facts, numbered)
    return plain_messages(told)


def _numbered(facts: Fields, name: str) -> Iterator[Fields]:
    number = 0
    while f"{name}.{number}.role" in facts:
        at, calls = f"{name}.{number}", list[Fields]()
        while f"{at}.tool_calls.{len(calls)}.name" in facts:
            calls.append({key: facts.get(f"{at}.tool_calls.{len(calls)}.{key}") for key in ("id", "name", "arguments")})
        message = {"role": facts[f"{at}.role"], "content": facts.get(f"{at}.content") or ""}
        if call_id := facts.get(f"{at}.tool_call_id"):
            message["tool_call_id"] = call_id
        yield {**message, "tool_calls": calls} if calls else message
        number += 1


def _of_parts(message: Fields) -> list[Fields]:
    """A message of the GenAI conventions: text, calls and results are parts of it."""
    parts = [part for part in message["parts"] if isinstance(part, dict)]
    made: list[Fields] = []
    for part in parts:
        if part.get("type") == "tool_call_response":
            answer = part.get("response", part.get("result"))
            content = answer if isinstance(answer, str) else json.dumps(answer)
            made.append({"role": "tool", "tool_call_id": part.get("id") or "", "content": content})
    text = "".join(str(part.get("content") or "") for part in parts if part.get("type") == "text")
    calls = [
        {key: part.get(key) for key in ("id", "name", "arguments")} for part in parts if part.get("type") == "tool_call"
    ]
    if text or calls or not made:
        role = str(message.get("role"))
        made.append({"role": _ROLES.get(role, role), "content": text} | ({"tool_calls": calls} if calls else {}))
    return made


def _tau2(values: list[Value]) -> Iterator[tuple[int, Fields]]:
    for line, value in values:
        if "traj" in value:
            name = f"{value.get('task_id')}/{value.get('trial', 0)}"
            yield line, {"thread_id": name, "messages": value["traj"], "success": _rewarded(value.get("reward"))}
        for run in value.get("simulations") or ():
            messages = [*_of_the_agent(run.get("messages") or ())]
            reward = (run.get("reward_info") or {}).get("reward")
            yield (
                line,
                {"thread_id": run.get("id"), "messages": messages, "success": _rewarded(reward), **_clock(messages)},
            )


def _of_the_agent(messages: Iterable[Any]) -> Iterator[Fields]:
    """What the agent saw: the user's own tools are not among it."""
    for message in messages:
        if parts := message.get("tool_messages"):
            yield from _of_the_agent(parts)
        elif message.get("role") == "tool":
            if message.get("requestor") != "user":
                status = {"status": "error"} if message.get("error") else {}
                yield {**message, "tool_call_id": message.get("id") or "", **status}
        elif message.get("role") != "user" or not message.get("tool_calls"):
            yield message


def _clock(messages: list[Fields]) -> Fields:
    try:
        stamps = [datetime.fromisoformat(str(message["timestamp"])) for message in messages]
    except (KeyError, ValueError):
        return {}
    return {"times": [(stamp - stamps[0]).total_seconds() for stamp in stamps]}


def _rewarded(reward: Any) -> bool | None:
    return reward >= 1 - 1e-6 if isinstance(reward, (int, float)) else None


_READERS: Final = {"langsmith": _langsmith, "spans": _spans, "tau2": _tau2}
