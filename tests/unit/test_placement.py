"""Hints at the tail of a request, by provider, on the payloads that LangChain's integrations build. Nothing is sent."""

from __future__ import annotations

import json
from operator import methodcaller
from typing import Any

import pytest
from desk import Desk, script
from desk import request as desk_request
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from planned import HEAD, taught

from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn import host
from langgraph_toolmem.turn.hints import StepOutput, messages_with_hints, new_hint, placed
from langgraph_toolmem.turn.providers import placement_of

HINT = "Likely next tools: search."
SYSTEM = SystemMessage("You are kind.")
CALL = {"name": "search", "args": {"q": "x"}, "id": "call_1", "type": "tool_call"}
USER = [HumanMessage("Find x")]
TOOL: list[BaseMessage] = [*USER, AIMessage("", tool_calls=[CALL]), ToolMessage("found", tool_call_id="call_1")]


def payload(model: Any, messages: list[BaseMessage], **settings: Any) -> dict[str, Any]:
    """What an integration would send; it has no public name for that."""
    built: dict[str, Any] = methodcaller("_get_request_payload", messages, **settings)(model)
    return built


def request(model: Any, messages: list[BaseMessage], **settings: Any) -> tuple[list[BaseMessage], dict[str, Any]]:
    before = [message.model_copy(deep=True) for message in messages]
    system, hinted, left = placed(HINT, system=SYSTEM, messages=messages, model=model, settings=settings)
    assert messages == before  # what is given stays as it is
    return [*([system] if system else []), *hinted], dict(left)


@pytest.mark.parametrize(
    ("model", "where"),
    [
        ("openai:gpt-4.1", "tail"),
        ("azure_openai:gpt-4.1", "tail"),
        ("anthropic:claude-sonnet-4-5", "tail_marked"),
        ("google_genai:gemini-2.5-pro", "tail"),
        ("mistralai:mistral-large", "in_tool"),
        ("ollama:llama3", "tail"),
        ("bedrock_converse:anthropic.claude-3-5-sonnet", "tail_list"),
        ("bedrock_converse:amazon.nova-pro", "in_tool"),
        ("acme:one", ""),
        (ScriptedChatModel(script=["a"]), ""),
    ],
)
def test_which_placement_a_model_has(model: Any, where: str) -> None:
    assert placement_of(model) == where


def test_an_unknown_model_gets_it_in_the_system_message_and_one_warning_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "warned", set())
    for _ in range(2):
        messages, _ = request(ScriptedChatModel(script=["a"]), TOOL)
        assert messages == [SystemMessage(f"You are kind.\n\n{HINT}"), *TOOL]
    (record,) = caplog.records
    assert "ScriptedChatModel" in record.getMessage()
    assert "prompt cache" in record.getMessage()


@pytest.mark.parametrize("messages", [USER, TOOL], ids=["after the user", "after a tool"])
def test_openai(messages: list[BaseMessage]) -> None:
    openai = pytest.importorskip("langchain_openai")
    model = openai.ChatOpenAI(model="gpt-4.1", api_key="none")
    plain = payload(model, [SYSTEM, *messages])["messages"]
    hinted = payload(model, request(model, messages)[0])["messages"]
    assert hinted[: len(plain)] == plain
    assert hinted[len(plain) :] == [{"role": "user", "content": HINT}]


@pytest.mark.parametrize(
    ("fields", "before"), [({}, ""), ({"model_kwargs": {"instructions": "Be brief."}}, "Be brief.\n\n")]
)
def test_a_conversation_that_the_provider_keeps_holds_no_hint(fields: dict[str, Any], before: str) -> None:
    openai = pytest.importorskip("langchain_openai")
    model = openai.ChatOpenAI(model="gpt-5.1", api_key="none", use_previous_response_id=True, **fields)
    messages, settings = request(model, TOOL)
    hinted, plain = payload(model, messages, **settings), payload(model, [SYSTEM, *TOOL])
    assert hinted["input"] == plain["input"]
    assert hinted["instructions"] == before + HINT
    told = payload(model, messages, **request(model, TOOL, instructions="Be kind.")[1])
    assert told["instructions"] == f"Be kind.\n\n{HINT}"
    state = {"messages": TOOL, **new_hint("sit", StepOutput(HINT), TOOL)}
    assert messages_with_hints(state, model) == TOOL, "a list of messages has no other place"
    assert messages_with_hints(state, "openai:gpt-4.1")[-1].text.endswith(HINT)


def _reads(requests: list[list[Any]]) -> list[int]:
    """Blocks that each request reads from what those before it wrote: the longest prefix that ends at a breakpoint."""

    def blocks(request: list[Any]) -> tuple[list[str], list[int]]:
        found, marks = [], list[int]()
        for message in request[2:]:
            content = message["content"]
            for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
                plain = {name: value for name, value in block.items() if name != "cache_control"}
                found.append(json.dumps([message["role"], plain], sort_keys=True))
                if "cache_control" in block:
                    marks.append(len(found))
        return found, [*marks, *([len(found)] if request[0] else [])]

    written: list[list[str]] = []
    reads = []
    for each in requests:
        found, marks = blocks(each)
        reads.append(max((len(one) for one in written if found[: len(one)] == one), default=0))
        written += [found[:mark] for mark in marks]
    return reads


def test_where_a_user_may_not_speak_after_a_tool() -> None:
    messages, _ = request("mistralai:mistral-large", TOOL)
    assert messages[-1] == ToolMessage(f"found\n\n{HINT}", tool_call_id="call_1")
    messages, _ = request("mistralai:mistral-large", USER)
    assert [message.text for message in messages[1:]] == ["Find x", HINT]
    messages, _ = request("bedrock_converse:anthropic.claude-3-5-sonnet", TOOL)
    assert messages[-1].content == [{"type": "text", "text": HINT}]


@pytest.mark.xdist_group("anthropic")
@pytest.mark.parametrize("where", ["before ours", "behind ours"])
def test_with_the_caching_middleware_the_cache_is_read_as_without_the_memory(where: str) -> None:
    anthropic = pytest.importorskip("langchain_anthropic")
    caching = pytest.importorskip("langchain_anthropic.middleware").AnthropicPromptCachingMiddleware

    class Wire(anthropic.ChatAnthropic):  # type: ignore[name-defined, misc]
        """Writes down what would be sent, and answers as the desk's script does."""

        sent: list[dict[str, Any]]

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **settings: Any) -> ChatResult:
            self.sent.append(payload(self, messages, **settings))
            user, *others = (message for message in messages if message.type != "system")
            answer = script([user, *(message for message in others if message.type != "human")], [])
            return ChatResult(generations=[ChatGeneration(message=answer)])

    def sent(*middleware: Any) -> list[dict[str, Any]]:
        model = Wire(model="claude-sonnet-4-5", api_key="none", sent=[])
        agent = create_agent(model, Desk().tools, system_prompt="You are kind.", middleware=middleware)
        agent.invoke({"messages": [HumanMessage(desk_request("Zoe"))]})
        return model.sent

    inside, front = ([caching()], []) if where == "behind ours" else ([], [caching()])
    with taught() as memory:
        hinted = sent(*front, *tool_memory_middleware(memory, shortcut=False, planning=True, outer=inside))
        uncached = sent(*tool_memory_middleware(memory, shortcut=False, planning=True))
    plain = sent(caching())
    told = [json.dumps(each["messages"]) for each in hinted]
    assert [HEAD in each for each in told] == [True, True, True, False]
    assert "nothing more was called" in told[3]
    reads = [_reads([[each.get("cache_control"), None, *each["messages"]] for each in run]) for run in (plain, hinted)]
    assert reads[0] == reads[1]
    assert reads[0][-1] > 0
    last = hinted[1]["messages"][-1]["content"]
    assert [block["type"] for block in last] == ["tool_result", "text"]
    assert ["cache_control" in block for block in last] == [True, False]
    assert "cache_control" not in hinted[1]
    assert "cache_control" not in json.dumps(uncached), "nobody asked for a cache: nothing is marked"
