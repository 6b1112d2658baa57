"""Runs from messages: by hand on small histories, by property, and through the real LangGraph components."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
)
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    messages_to_dict,
)
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from langgraph_toolmem.base.errors import MessageError
from langgraph_toolmem.base.text import canonical, looks_unique
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn, UserMessage, output_of
from langgraph_toolmem.runs.trajectory import ExecutionLog, parse_run
from langgraph_toolmem.testing import ScriptedChatModel


def unique(number: int) -> str:
    return f"call_{uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128).hex[:24]}"


def call(name: str, call_id: str | None, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def ai(*calls: dict[str, Any], text: str = "", **fields: Any) -> AIMessage:
    return AIMessage(text, tool_calls=list(calls), **fields)


def answer(call_id: str, content: Any = "done", **fields: Any) -> ToolMessage:
    return ToolMessage(content, tool_call_id=call_id, **fields)


def steps(run: Run) -> list[ExecutedCall]:
    return [step for event in run.events if isinstance(event, Turn) for step in event.steps]


def turns(run: Run) -> list[Turn]:
    return [event for event in run.events if isinstance(event, Turn)]


def openai_call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# --- what a run is


def test_dicts_tuples_and_objects_are_the_same_history() -> None:
    objects: list[BaseMessage] = [
        HumanMessage("Hi"),
        ai(call("f", "call_1", a=1), text="so"),
        answer("call_1", "[1, 2]"),
        AIMessage("end"),
    ]
    dicts = [
        ("user", "Hi"),
        {"role": "assistant", "content": "so", "tool_calls": [openai_call("call_1", "f", '{"a": 1}')]},
        {"role": "tool", "tool_call_id": "call_1", "content": "[1, 2]"},
        {"role": "assistant", "content": "end", "tool_calls": None},
    ]
    expected = parse_run(objects)
    assert parse_run(dicts) == expected
    assert parse_run(iter(dicts)) == expected
    assert parse_run(ChatPromptValue(messages=objects)) == expected
    assert parse_run(messages_to_dict(objects)) == expected
    assert parse_run([message.model_dump() for message in objects]) == expected
    assert parse_run([message.to_json() for message in objects]) == expected


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
        (" [1, 2]\n", [1, 2]),
        ("12.5", 12.5),
        ("-3", -3),
        ("true", True),
        ("{'a': 1}", "{'a': 1}"),
        ("null", "null"),
        ('"quoted"', '"quoted"'),
        ("007", "007"),
        ("1e999", "1e999"),
        ("NaN", "NaN"),
        ('{"a": NaN}', '{"a": NaN}'),
        ("[3in x 5in]", "[3in x 5in]"),
        ("[" * 50_000, "[" * 50_000),
        ("9" * 5_000, "9" * 5_000),
        ("", ""),
        ("  ", "  "),
        ("truest", "truest"),
        ("two\nlines", "two\nlines"),
        ([], ""),
        (["a", "b"], "a\nb"),
        ([{"type": "text", "text": '{"a": 1}'}, {"type": "text", "text": '{"a": 2}'}], [{"a": 1}, {"a": 2}]),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": '{"a": 2}'}], 'a\n{"a": 2}'),
        ([{"id": 1, "text": "x"}, {"id": 2, "text": "y"}], [{"id": 1, "text": "x"}, {"id": 2, "text": "y"}]),
        ([{"json": {"a": 1}}], {"a": 1}),
        ([{"type": "image", "base64": "x"}], ""),
    ],
)
def test_outputs(content: Any, output: Any) -> None:
    found = output_of(content)
    assert found == output
    assert type(found) is type(output)


# --- calls: parallel, unanswered, rejected, repeated


LONG = "A" * 9_000


def shown(content: Any) -> str:
    """The media of a user's message, as a run holds them."""
    run = parse_run([HumanMessage(content)])
    assert isinstance(run.events[0], UserMessage)
    return run.events[0].media


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({"type": "image", "base64": LONG}, {"type": "image", "base64": LONG}, True),
        ({"type": "image", "base64": LONG, "id": "lc_1"}, {"type": "image", "base64": LONG, "id": "lc_2"}, True),
        ({"type": "image", "base64": LONG}, {"cache_control": {}, "base64": LONG, "type": "image"}, True),
        ({"type": "image", "base64": LONG}, {"type": "image", "base64": LONG[:4_000] + "B" + LONG[4_001:]}, False),
        ({"type": "image_url", "image_url": {"url": "a"}}, {"type": "image_url", "image_url": {"url": "b"}}, False),
        ({"type": "file", "file_id": "f1"}, {"type": "file", "file_id": "f2"}, False),
        ({"type": "image", "base64": b"ab"}, {"type": "image", "base64": b"ac"}, False),
    ],
    ids=["the same", "its id", "its cache mark", "within", "an address", "a file", "bytes"],
)
def test_the_same_picture_is_known_again_and_no_other(one: Any, other: Any, alike: bool) -> None:
    text = {"type": "text", "text": "What is it?"}
    assert (shown([text, one]) == shown([{"type": "text", "text": "And this?"}, other])) == alike
    assert shown([one, other]) != shown([one]) != ""


def test_a_message_of_text_alone_has_no_media() -> None:
    assert shown("Hello") == shown([{"type": "text", "text": "Hello"}, "there"]) == shown([]) == ""


def test_a_picture_belongs_to_its_episode() -> None:
    """A reply to a question back has the picture of the message before; the next request has none."""
    picture = [{"type": "text", "text": "Repair this"}, {"type": "image", "base64": LONG}]
    history = [HumanMessage(picture), AIMessage("Shall I send somebody on Monday?"), HumanMessage("Yes please")]
    first = RunState.of(parse_run(history[:1], thread_id="t")).media
    assert RunState.of(parse_run(history, thread_id="t")).media == first != ()
    asked = {"name": "send", "args": {}, "id": "c1", "type": "tool_call"}
    history += [AIMessage("", tool_calls=[asked]), ToolMessage("ok", tool_call_id="c1"), AIMessage("Somebody comes.")]
    assert RunState.of(parse_run([*history, HumanMessage("List my orders")], thread_id="t")).media == ()


def test_calls_stay_pending_until_all_are_answered() -> None:
    history = [HumanMessage("x"), ai(call("f", "c1"), call("g", "c2")), answer("c1")]
    run = parse_run(history)
    assert [step.status for step in steps(run)] == ["ok", "unanswered"]
    assert not turns(run)[0].settled
    assert run.next_key is None
    assert not run.awaiting_model
    gone_on = parse_run([*history, HumanMessage("and?")])
    assert turns(gone_on)[0].settled
    assert steps(gone_on)[1].status == "unanswered"
    assert steps(gone_on)[1].output is None
    assert gone_on.awaiting_model


def test_the_same_id_twice_in_one_message_is_answered_in_order() -> None:
    run = parse_run([("user", "x"), ai(call("f", "c", a=1), call("f", "c", a=2)), answer("c", "1"), answer("c", "2")])
    assert [(step.args["a"], step.output) for step in steps(run)] == [(1, 1), (2, 2)]


@pytest.mark.parametrize("arguments", ["{bad", "[1]", '"x"', "{'a': 1}"])
def test_a_call_with_broken_arguments_is_left_out(arguments: str) -> None:
    history: list[Any] = [
        ("user", "x"),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [openai_call("c1", "f", arguments), openai_call("c2", "g", '{"a": 1}')],
        },
        answer("c2", "fine"),
    ]
    run = parse_run(history)
    assert [step.tool for step in steps(run)] == ["g"]
    assert run.awaiting_model
    assert steps(parse_run([*history, answer("c1", "arguments are no JSON")])) == steps(run)


# --- the known texts, from the components that write them


@tool
def half(number: int) -> float:
    """Half of an even number."""
    if number % 2:
        raise ValueError("odd")
    return number / 2


@tool
def whole(number: int) -> int:
    """The number."""
    return number


def executed(calls: list[dict[str, Any]], **node: Any) -> list[Any]:
    """What ToolNode answers, as messages and as an OpenAI log that has lost `status`."""
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([half, whole], **node))
    builder.add_edge(START, "tools")
    return list(builder.compile().invoke({"messages": [HumanMessage("x"), ai(*calls)]})["messages"])


def without_status(messages: list[Any]) -> list[Any]:
    return [
        {"role": "tool", "tool_call_id": m.tool_call_id, "content": m.content} if isinstance(m, ToolMessage) else m
        for m in messages
    ]


def test_what_tool_node_answers() -> None:
    calls = [
        call("nothing", "c1"),
        call("half", "c2", number="many"),
        call("half", "c3", number=3),
        call("half", "c4", number=4),
    ]
    messages = executed(calls, handle_tool_errors=True)
    for history in (messages, without_status(messages)):
        found = steps(parse_run(history))
        assert [step.status for step in found] == ["rejected", "rejected", "failed", "ok"]
        assert found[3].output == 2.0


def test_a_tool_that_handles_its_validation_errors() -> None:
    strict = half.model_copy(update={"handle_validation_error": True})
    message = strict.invoke(call("half", "c1", number="many"))
    assert [step.status for step in steps(parse_run([ai(call("half", "c1")), message]))] == ["rejected"]


def agent_run(answers: list[AIMessage], middleware: list[Any], *, resume: Any = None) -> list[Any]:
    tools: list[BaseTool] = [half, whole]
    model = ScriptedChatModel(script=[*answers, AIMessage("end")])
    agent = create_agent(model, tools, middleware=middleware, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    result = agent.invoke({"messages": [HumanMessage("x")]}, config)
    if resume is not None:
        result = agent.invoke(Command(resume={"decisions": resume}), config)
    return list(result["messages"])


@pytest.mark.parametrize(
    ("decision", "status", "review", "number", "output"),
    [
        ({"type": "reject"}, "rejected", "rejected", 4, None),
        ({"type": "reject", "message": "too dear"}, "rejected", "rejected", 4, None),
        ({"type": "edit", "edited_action": {"name": "half", "args": {"number": 8}}}, "ok", "edited", 8, 4),
        ({"type": "approve"}, "ok", "", 4, 2),
    ],
)
def test_what_a_human_decides(
    decision: dict[str, Any], status: str, review: str, number: int, output: int | None
) -> None:
    reviewer = HumanInTheLoopMiddleware({"half": True})
    messages = agent_run([ai(call("half", "c1", number=4))], [reviewer], resume=[decision])
    for history in (messages, without_status(messages)):
        (step,) = steps(parse_run(history))
        assert (step.status, step.review) == (status, review)
        assert step.args == {"number": number}
        assert output is None or step.output == output


@pytest.mark.parametrize(("decision", "status"), [("respond", "rejected"), ("approve", "ok")])
def test_an_answer_in_the_tools_place_is_no_execution(decision: str, status: str) -> None:
    marks = {"lc_source": "hitl_interrupt_decision", "lc_data": {"decision": decision}}
    said = ToolMessage("I phoned: 2", tool_call_id="c1", additional_kwargs=marks)
    (step,) = steps(parse_run([HumanMessage("x"), ai(call("half", "c1", number=4)), said]))
    assert (step.status, step.review, step.output) == (status, "", "I phoned: 2")


@pytest.mark.parametrize("behaviour", ["continue", "end"])
@pytest.mark.parametrize("limited", ["half", None])
def test_what_a_call_limit_blocks(behaviour: Any, limited: str | None) -> None:
    limit = ToolCallLimitMiddleware(tool_name=limited, run_limit=1, exit_behavior=behaviour)
    both = [ai(call("half", "c1", number=2)), ai(call("half", "c2", number=4))]
    messages = agent_run(both, [limit])
    for history in (messages, without_status(messages)):
        assert [step.status for step in steps(parse_run(history))] == ["ok", "rejected"]


@pytest.mark.parametrize(
    ("text", "status", "output"),
    [
        ("Tool call f with id c1 was cancelled - another message came in before it could end.", "unanswered", None),
        ("Input validation error: 'a' is required", "rejected", ...),
        ("Error: ToolException(\"Input validation error: 'a'\")\n Please", "rejected", ...),
        ("Error: The `write_todos` tool should never be called multiple times in parallel.", "rejected", ...),
        (f"Error: {'x' * 20_000}\n Please fix your mistakes.", "failed", ...),
        ("Error: product not found", "ok", ...),
        ("User rejected the offer", "ok", ...),
        ("The tool call limit exceeded", "ok", ...),
    ],
)
def test_known_texts_tell_what_became_of_a_call(text: str, status: str, output: Any) -> None:
    (step,) = steps(parse_run([("user", "x"), ai(call("f", "c1")), answer("c1", text), ("user", "y")]))
    assert (step.status, step.output) == (status, text if output is ... else output)


# --- trimmed and summarised


def long_history(turns_: int) -> list[BaseMessage]:
    history: list[BaseMessage] = [HumanMessage("Do it all", id=str(uuid.UUID(int=2**127 + 0x1234567890ABCDEF)))]
    for number in range(turns_):
        call_id = unique(number + 1)
        history += [ai(call("whole", call_id, number=number)), answer(call_id, str(number))]
    return history


def test_summarisation_keeps_the_keys_of_what_is_left() -> None:
    history = long_history(6)
    model = ScriptedChatModel(script=["All went well."])
    middleware = SummarizationMiddleware(model, trigger=("messages", 5), keep=("messages", 4))
    update = middleware.before_model({"messages": list(history)}, None)  # type: ignore[arg-type, typeddict-item]
    assert update is not None
    messages = update["messages"]
    assert isinstance(messages[0], RemoveMessage)
    whole_run = parse_run(history)
    rest = ExecutionLog(lambda _: known(whole_run)).read(messages)
    assert rest.truncated
    assert rest.digest == whole_run.digest
    assert not any(isinstance(event, UserMessage) for event in rest.events)
    kept = [step.key for step in steps(rest)]
    assert kept
    assert kept == [step.key for step in steps(whole_run)][-len(kept) :]
    assert [turn.key for turn in turns(rest)][1:] == [turn.key for turn in turns(whole_run)][-len(kept) + 1 :]
    assert rest.next_key == whole_run.next_key


def test_what_makes_a_history_truncated() -> None:
    assert not parse_run([]).truncated
    assert not parse_run([SystemMessage("s"), HumanMessage("x")]).truncated
    assert parse_run([SystemMessage("s"), AIMessage("Hello")]).truncated
    assert parse_run([answer("c1"), HumanMessage("x")]).truncated
    assert parse_run([HumanMessage("s", additional_kwargs={"lc_source": "summarization"})]).truncated
    assert parse_run([HumanMessage("Here is a summary of the conversation to date:\n\nx")]).truncated
    assert parse_run([SystemMessage("Summary of the conversation so far: x"), HumanMessage("y")]).truncated
    assert not parse_run(
        [HumanMessage("x"), HumanMessage("Here is a summary of the conversation to date: y")]
    ).truncated


# --- errors


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([("user", "x"), 5], ["messages[1]", "int"]),
        ([{"content": "x"}], ["messages[0]", "'content'"]),
        ([("user", "x"), {"role": "wizard", "content": "x"}], ["messages[1]", "wizard"]),
        ([{"role": "tool", "content": "x"}], ["messages[0]", "tool_call_id"]),
        ([{"role": "assistant", "tool_calls": [5]}], ["messages[0]"]),
        ([{"role": "assistant", "content": 5}], ["messages[0]"]),
        ([None], ["messages[0]", "NoneType"]),
        ([("a", "b", "c")], ["messages[0]"]),
        ({"messages": []}, ["dict", 'state["messages"]']),
        ("hello", ["str"]),
        (None, ["NoneType"]),
        (HumanMessage("x"), ["HumanMessage"]),
    ],
)
def test_errors_name_the_entry_and_say_what_to_pass(messages: Any, words: list[str]) -> None:
    with pytest.raises(MessageError, match="Pass a list of LangChain messages") as caught:
        parse_run(messages)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


# --- keys


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("call_J7kQ2mXb9TzR4vLp8NwYc3Hd", True),
        ("toolu_01A09q90qw90lq917835lq9X", True),
        ("chatcmpl-tool-3f0c9a7be1d24c5f8a6b7c9d0e1f2a3b", True),
        ("tooluse_kZJMlvQm3J6eAy-E5GIl7Q", True),
        ("call_9f86d081884c7d659a2feaa0", True),
        ("7b1d3c52-9f4e-4a6b-8c21-0e5d7f9a1b3c", True),
        ("lc_run--7b1d3c52-9f4e-4a6b-8c21-0e5d7f9a1b3c", True),
        ("call_000", False),
        ("call_1", False),
        ("1", False),
        ("", False),
        ("call_0000000000000001", False),
        ("call_get_order_details_01", False),
        ("getReservationDetails01", False),
        ("functions.get_weather:0", False),
        ("run1-step-3-call-2", False),
        ("00000000-0000-0000-0000-000000000001", False),
        ("call_20240101_000000000001", False),
        ("D681PevKs", False),
    ],
)
def test_which_ids_look_unique(identifier: str, expected: bool) -> None:
    assert looks_unique(identifier) is expected


def test_the_scope_of_counted_ids() -> None:
    def key(text: str = "x", message_id: str | None = None, **run: Any) -> str:
        return steps(parse_run([HumanMessage(text), ai(call("f", "call_0"), id=message_id), answer("call_0")], **run))[
            0
        ].key

    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    assert key(thread_id="a") == key("x", first, thread_id="a") != key(thread_id="b")
    assert key(thread_id="a") != key("y", thread_id="a")
    assert key("x", first) == key("y", first) != key("x", second)
    assert key("x") == key("x") != key("y")
    assert key("x", "1") != key("y", "1")


def known(run: Run) -> dict[str, str]:
    """What a memory keeps of the user messages of a thread."""
    return {event.key: event.episode for event in run.events if isinstance(event, UserMessage)}


def test_canonical_arguments() -> None:
    assert canonical({"b": 1, "a": {"d": 2, "c": 3}}) == canonical({"a": {"c": 3, "d": 2}, "b": 1})
    assert canonical({"a": object()}) == canonical({"a": object()})
    loop: dict[str, Any] = {}
    loop["a"] = loop
    assert isinstance(canonical(loop), str)


# --- properties

texts = st.sampled_from(
    ["", "x", "y", "{'a': 1}", '{"a": 1}', "3", "\ud800", "Error: x is not a valid tool, try one of ["]
)
names = st.sampled_from(["f", "g", "mail.send"])
message_ids = st.sampled_from([None, None, "1", "7b1d3c52-9f4e-4a6b-8c21-0e5d7f9a1b3c"])
call_ids = st.sampled_from(["call_0", "call_1", unique(1), unique(2), ""])
arguments = st.dictionaries(st.sampled_from("ab"), st.integers(0, 1) | texts, max_size=2)
marks = st.sampled_from([{}, {}, {"toolmem": {}}, {"lc_source": "summarization"}])


@st.composite
def readable(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from("ahhtttrsd"))
    if kind == "a":
        calls = draw(st.lists(st.builds(lambda n, i, a: call(n, i, **a), names, call_ids, arguments), max_size=3))
        return ai(*calls, text=draw(texts), id=draw(message_ids), additional_kwargs=draw(marks))
    if kind == "h":
        return HumanMessage(draw(texts), id=draw(message_ids), additional_kwargs=draw(marks))
    if kind == "t":
        return answer(draw(call_ids), draw(texts), status=draw(st.sampled_from(["success", "error"])))
    if kind == "d":
        calls = [openai_call(draw(call_ids), draw(names), draw(st.sampled_from(['{"a": 1}', "{bad", ""])))]
        return {"role": "assistant", "content": draw(texts), "tool_calls": calls}
    return RemoveMessage(id="x") if kind == "r" else SystemMessage(draw(texts))


histories = st.lists(readable(), max_size=12)
thread_ids = st.sampled_from([None, "r"])


@settings(max_examples=80)
@given(histories, thread_ids)
@pytest.mark.slow
def test_keys_of_a_prefix_are_a_prefix_of_the_keys(history: list[Any], thread_id: str | None) -> None:
    whole_run = parse_run(history, thread_id=thread_id)
    keys = [step.key for step in steps(whole_run)]
    assert len(set(keys)) == len(keys)
    for length in range(len(history)):
        part = parse_run(history[:length], thread_id=thread_id)
        found = [step.key for step in steps(part)]
        assert found == keys[: len(found)]
        assert [event.key for event in part.events] == [event.key for event in whole_run.events][: len(part.events)]


@settings(max_examples=80)
@given(histories, thread_ids)
def test_the_key_of_a_turn_is_known_before_it(history: list[Any], thread_id: str | None) -> None:
    whole_run = parse_run(history, thread_id=thread_id)
    for length in range(len(history)):
        before, after = (parse_run(history[:end], thread_id=thread_id) for end in (length, length + 1))
        if len(after.events) == len(before.events) or before.next_key is None:
            continue
        added = whole_run.events[len(before.events)]
        if isinstance(added, Turn):
            assert before.next_key == added.key


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(
    [
        "role",
        "type",
        "content",
        "tool_calls",
        "invalid_tool_calls",
        "id",
        "tool_call_id",
        "data",
        "additional_kwargs",
    ]
)
roles = st.sampled_from(["user", "assistant", "ai", "tool", "system", "function", "remove", "constructor", "x"])
odd_dicts = st.builds(lambda d, r: {**d, "role": r}, st.dictionaries(fields, json_values, max_size=4), roles)
odd = st.one_of(json_values, odd_dicts, st.dictionaries(fields, json_values, max_size=4), st.tuples(roles, json_values))


@settings(max_examples=150)
@given(st.lists(readable() | odd, max_size=4))
def test_any_list_is_read_or_refused(history: list[Any]) -> None:
    try:
        run = parse_run(history)
    except MessageError:
        with pytest.raises(MessageError, match=r"^messages\[\d\] "):
            parse_run(history)
    else:
        json.dumps([step.key for step in steps(run)])
