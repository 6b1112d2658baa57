"""Guards of the host around the navigator's calls: what one edits or refuses is told as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from agents import WAYS
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
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


async def resumed(graph: Any, answer: Any, way: str = "sync") -> dict[str, Any]:
    config = {"configurable": {"thread_id": "1"}}
    state: dict[str, Any] = {}
    for feed in ({"messages": [("user", "Refund order o1")]}, Command(resume=answer)):
        state = graph.invoke(feed, config) if way == "sync" else await graph.ainvoke(feed, config)
    assert_well_formed(state["messages"])
    return state


@pytest.mark.parametrize("answer", ["Denied by the reviewer.", "raise"])
async def test_a_refusal_in_any_words_is_not_gone_around(answer: str, shop: Shop, store: ToolMemory) -> None:
    model = scripted(do("refund_order", order_id="o1"), do("refund_order", order_id="o1"), say("It was refused."))
    graph = create_navi_subgraph(
        model,
        shop.tools,
        store,
        wrap_tool_call=review,
        checkpointer=InMemorySaver(),
    )
    run = (await resumed(graph, answer))["toolmem_navi"]
    assert shop.did == []
    assert (run["failed"], run["routes"]) == ({}, []), "a tool that never ran has not failed"
    assert [made["status"] for made in run["outcomes"]] == ["refused"]
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
        keep_decisions=True,
        checkpointer=InMemorySaver(),
    )
    run = (await resumed(graph, {"args": {"order_id": "o2"}}, way))["toolmem_navi"]
    assert [args["order_id"] for _, args in shop.did] == ["o2"], "neither the asked one nor the made one comes again"
    made = [(call["args"]["order_id"], call["status"]) for call in run["outcomes"]]
    assert made == [("o1", "refused"), ("o2", "ok")]
    good = [good for (good,) in store.navigator.decisions.ask("SELECT good FROM decisions ORDER BY step")]
    assert good == [0, 1], "a decision that a person had to correct is no example; one with a repeated call is not kept"


async def test_the_tool_that_ran_and_failed_is_out_not_the_one_asked_for(
    shop: Shop, store: ToolMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.broken = {"list_orders"}
    model = scripted(do("refund_order", order_id="o1"), say("It is down."))
    graph = create_navi_subgraph(model, shop.tools, store, wrap_tool_call=review, checkpointer=InMemorySaver())
    monkeypatch.setitem(others, "list_orders", StructuredTool.from_function(shop.tools[2]))
    change = {"name": "list_orders", "args": {"customer_id": "c"}}
    run = (await resumed(graph, change))["toolmem_navi"]
    assert list(run["failed"]) == ["list_orders"] == [route["failed"] for route in run["routes"]]


async def test_an_approval_of_the_wrong_form_is_asked_for_again(shop: Shop, store: ToolMemory) -> None:
    class Approval(BaseModel):
        yes: bool

    def approve(request: Any, execute: Any) -> Any:
        interrupt("Refund?", response_schema=Approval)
        return execute(request)

    model = scripted(do("refund_order", order_id="o1"), say("Refunded."))
    graph = create_navi_subgraph(model, shop.tools, store, wrap_tool_call=approve, checkpointer=InMemorySaver())
    with pytest.raises(ValidationError):
        await resumed(graph, {"yes": "perhaps"})
    assert shop.did == []
    feed: Any = Command(resume={"yes": True})
    config: Any = {"configurable": {"thread_id": "1"}}
    state = graph.invoke(feed, config)
    assert state["messages"][-1].text == "Refunded."
    assert len(shop.did) == 1
