"""Guards of the host around the navigator's calls: what one edits or refuses is told as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from agents import WAYS
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from navi_script import Shop, assert_well_formed, decisions, do, say, shown
from pydantic import BaseModel, ValidationError

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.nodes import create_navi_subgraph
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def store(shop: Shop) -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=shop.tools) as made:
        yield made


def scripted(*rounds: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=decisions(*rounds))


others: dict[str, StructuredTool] = {}


def reviewed(request: Any) -> Any:
    """What a person makes of a call: None, another call, or an answer in its place."""
    call = request.tool_call
    if call["name"] != "refund_order":
        return request
    answer = interrupt({"approve": call["args"]})
    if isinstance(answer, dict):
        tool = others.get(answer.get("name"), request.tool)
        return request.override(tool_call={**call, **answer}, tool=tool)
    if answer == "raise":
        raise PermissionError("not in this shop")
    return ToolMessage(answer, tool_call_id=call["id"], status="error")


def review(request: Any, execute: Any) -> Any:
    found = reviewed(request)
    return found if isinstance(found, ToolMessage) else execute(found)


async def areview(request: Any, execute: Any) -> Any:
    found = reviewed(request)
    return found if isinstance(found, ToolMessage) else await execute(found)


async def resumed(way: str, graph: Any, answer: Any) -> dict[str, Any]:
    config = {"configurable": {"thread_id": "1"}}
    state: dict[str, Any] = {}
    for feed in ({"messages": [("user", "Refund order o1")]}, Command(resume=answer)):
        state = graph.invoke(feed, config) if way == "sync" else await graph.ainvoke(feed, config)
    assert_well_formed(state["messages"])
    return state


@pytest.mark.parametrize("record", [True, False], ids=["recorded", "not recorded"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("answer", ["Denied by the reviewer.", "raise"])
async def test_a_refusal_in_any_words_is_not_gone_around(
    answer: str, way: str, record: bool, shop: Shop, store: ToolMemory
) -> None:
    judged: list[ToolMessage] = []
    model = scripted(do("refund_order", order_id="o1"), do("refund_order", order_id="o1"), say("It was refused."))
    graph = create_navi_subgraph(
        model,
        shop.tools,
        store,
        wrap_tool_call=review,
        awrap_tool_call=areview,
        is_failure=lambda said: not judged.append(said),
        record=record,
        checkpointer=InMemorySaver(),
    )
    run = (await resumed(way, graph, answer))["toolmem_navi"]
    assert shop.did == []
    assert (run["failed"], run["routes"], judged) == ({}, [], []), "a tool that never ran has not failed"
    assert [made["status"] for made in run["made"]] == ["refused"]
    assert "-> refused: " in shown(model.calls[1].messages)["Current observation"]
    assert "is not made again" in shown(model.calls[2].messages)["Current observation"]


@pytest.mark.parametrize("way", WAYS)
async def test_an_edited_call_is_told_as_it_was_made(way: str, shop: Shop, store: ToolMemory) -> None:
    model = scripted(
        do("refund_order", order_id="o1"),
        [do("refund_order", order_id="o1"), do("refund_order", order_id="o2")],
        say("o2 is refunded."),
    )
    graph = create_navi_subgraph(
        model,
        shop.tools,
        store,
        wrap_tool_call=review,
        awrap_tool_call=areview,
        on_decision=store.navigator.decisions,
        checkpointer=InMemorySaver(),
    )
    run = (await resumed(way, graph, {"args": {"order_id": "o2"}}))["toolmem_navi"]
    assert [args["order_id"] for _, args in shop.did] == ["o2"], "neither the asked one nor the made one comes again"
    made = [(call["args"]["order_id"], call["status"]) for call in run["made"]]
    assert made == [("o1", "refused"), ("o2", "ok")]
    assert shown(model.calls[1].messages)["Current observation"] == (
        'refund_order({"order_id": "o1"}) was changed before it was made, to refund_order({"order_id": "o2"}) '
        "-> ok: refunded"
    )
    assert shown(model.calls[2].messages)["Current observation"].count("is not made again") == 2
    assert not store.navigator.decisions.turns()[0].went_well, "what a person had to mend is no example to learn from"


@pytest.mark.parametrize("way", WAYS)
async def test_the_tool_that_ran_and_failed_is_out_not_the_one_asked_for(
    way: str, shop: Shop, store: ToolMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.broken = {"list_orders"}
    model = scripted(do("refund_order", order_id="o1"), say("It is down."))
    graph = create_navi_subgraph(
        model, shop.tools, store, wrap_tool_call=review, awrap_tool_call=areview, checkpointer=InMemorySaver()
    )
    monkeypatch.setitem(others, "list_orders", StructuredTool.from_function(shop.tools[2]))
    change = {"name": "list_orders", "args": {"customer_id": "c"}}
    run = (await resumed(way, graph, change))["toolmem_navi"]
    assert list(run["failed"]) == ["list_orders"] == [route["failed"] for route in run["routes"]]


def test_an_edited_call_that_answers_by_a_command_is_told_as_it_was_made() -> None:
    @tool
    def note(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Take a note."""
        return Command(update={"messages": [ToolMessage(f"noted {text}", tool_call_id=tool_call_id)]})

    def louder(request: Any, execute: Any) -> Any:
        call = request.tool_call
        return execute(request.override(tool_call={**call, "args": {"text": call["args"]["text"].upper()}}))

    with ToolMemory.ephemeral(tools=[note]) as memory:
        model = scripted([do("note", text="milk"), do("note", text="TEA")], say("Noted."))
        graph = create_navi_subgraph(model, [note], memory, wrap_tool_call=louder)
        graph.invoke({"messages": [("user", "note milk and TEA")]})
    assert shown(model.calls[1].messages)["Current observation"].splitlines() == [
        'note({"text": "milk"}) was changed before it was made, to note({"text": "MILK"}) -> ok: noted MILK',
        'note({"text": "TEA"}) -> ok: noted TEA',
    ]


def test_a_guard_that_fails_after_the_tool_ran_or_answers_by_itself(shop: Shop, store: ToolMemory) -> None:
    def guard(request: Any, execute: Any) -> Any:
        if request.tool_call["name"] == "list_orders":
            return ToolMessage("from the cache", tool_call_id=request.tool_call["id"])
        execute(request)
        raise RuntimeError("the answer breaks a rule")

    model = scripted([do("find_customer", name="Ann"), do("list_orders", customer_id="c")], say("Listed."))
    state = create_navi_subgraph(model, shop.tools, store, wrap_tool_call=guard).invoke({"messages": [("user", "Ann")]})
    assert [call["status"] for call in state["toolmem_navi"]["made"]] == ["failed", "ok"]


@pytest.mark.parametrize("way", WAYS)
async def test_an_approval_of_the_wrong_form_is_asked_for_again(way: str, shop: Shop, store: ToolMemory) -> None:
    class Approval(BaseModel):
        yes: bool

    def approve(request: Any, execute: Any) -> Any:
        interrupt("Refund?", response_schema=Approval)
        return execute(request)

    async def aapprove(request: Any, execute: Any) -> Any:
        interrupt("Refund?", response_schema=Approval)
        return await execute(request)

    model = scripted(do("refund_order", order_id="o1"), say("Refunded."))
    graph = create_navi_subgraph(
        model, shop.tools, store, wrap_tool_call=approve, awrap_tool_call=aapprove, checkpointer=InMemorySaver()
    )
    with pytest.raises(ValidationError):
        await resumed(way, graph, {"yes": "perhaps"})
    assert shop.did == []
    feed: Any = Command(resume={"yes": True})
    config: Any = {"configurable": {"thread_id": "1"}}
    state = graph.invoke(feed, config) if way == "sync" else await graph.ainvoke(feed, config)
    assert state["messages"][-1].text == "Refunded."
    assert len(shop.did) == 1
