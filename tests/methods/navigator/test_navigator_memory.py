"""Plans through the memory: what runs have shown, which tools there are, and what is not allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import histories as h
import pytest

from langgraph_toolmem import ConfigurationError, Navigator, ToolMemory
from langgraph_toolmem.navigator.plan.planner import Plan
from langgraph_toolmem.runs.tools import read_tools

SCHEMAS = [
    h.schema("find_customer", "name"),
    h.schema("search_customers", "name"),
    h.schema("list_orders", "customer_id"),
    h.schema("refund_order", "order_id"),
]


MEANT = [
    h.schema("sign_in", "phone", returns={"type": "object", "properties": {"customer_id": {"type": "string"}}}),
    h.schema("close_contract", "client_id"),
]


def taught(**options: Any) -> ToolMemory:
    memory = ToolMemory.ephemeral(**{"tools": SCHEMAS, **options})
    for i in range(4):
        found = {"customer_id": f"c{i}77"}
        finder = "search_customers" if i == 3 else "find_customer"
        memory.finish(
            h.history(
                h.user(f"refund the order of N{i}"),
                h.call(finder, {"name": f"N{i}"}, found),
                h.call("list_orders", found, [{"order_id": f"o{i}88"}]),
                h.call("refund_order", {"order_id": f"o{i}88"}),
                h.words(),
            ),
            thread_id=str(i),
            success=True,
        )
    return memory


def best(plan: Plan) -> tuple[str, ...]:
    assert plan.chain is not None
    return plan.chain.tools


async def test_a_request_gives_a_complete_chain_and_another_one_after_a_failure() -> None:
    with ToolMemory.ephemeral(tools=SCHEMAS) as memory:  # no tool says what it gives: by names alone
        cold = memory.navigator.plan(target="refund_order").chain
    async with taught() as memory:
        navigator, known = memory.navigator, {"customer_name": "Ann"}
        chain = (found := await navigator.aplan("refund an order", known=known)).chain
        assert found == navigator.plan("refund an order", known=known)
        assert cold is not None
        assert chain is not None
        assert chain.tools == cold.tools == ("find_customer", "list_orders", "refund_order")
        assert chain.complete
        assert chain.score > cold.score
        assert navigator.plan("quantum chromodynamics").chains == ()
        assert best(navigator.plan(target="refund_order", known=["customer_id"])) == ("list_orders", "refund_order")
        for options in ({"avoid": ["find_customer"]}, {"available": {s["name"] for s in SCHEMAS} - {"find_customer"}}):
            plan = navigator.plan("refund an order", **options)
            assert "find_customer" not in plan.tools
            assert best(plan) == ("search_customers", "list_orders", "refund_order")
        again = await navigator.areroute(chain, ["find_customer"], known=known)
        assert (again.way, again.fallback) == ("equivalent", "search_customers")
        assert navigator.reroute(chain, ["refund_order"]).way == "none"
        memory.core.catalogue.adopt(read_tools([*SCHEMAS, h.schema("cancel_parcel", "parcel_id")]))
        assert best(navigator.plan("cancel the parcel"))[-1] == "cancel_parcel"


def test_aliases_of_a_navigator_join_parameters() -> None:
    aliases = {"sign_in.customer_id": "client", "close_contract.client_id": "client"}
    with ToolMemory.ephemeral(tools=MEANT, methods=[Navigator(aliases=aliases)]) as memory:
        assert best(memory.navigator.plan(target="close_contract")) == ("sign_in", "close_contract")
    for wrong in ({"a.b": 3}, ["a.b"]):
        with pytest.raises(ConfigurationError, match="aliases"):
            Navigator(aliases=wrong)  # type: ignore[arg-type]


def test_a_memory_without_the_tools_plans_like_the_one_that_had_them(tmp_path: Path) -> None:
    def gives(name: str) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {"type": "string"}}}

    tools = [
        h.schema("lookup", "phone") | {"returns": gives("account_key")},
        h.schema("register", "phone") | {"returns": gives("account_key"), "destructive": True},
        h.schema("close_account", "account_key") | {"tags": ["bank"], "toolkit": "Bank"},
    ]
    with ToolMemory(tmp_path, tools=tools) as memory:
        expected = memory.navigator.plan(target="close_account", known=["phone"])
    assert best(expected) == ("lookup", "close_account")
    for read_only in (False, True):
        with ToolMemory(tmp_path, read_only=read_only) as memory:
            assert memory.navigator.plan(target="close_account", known=["phone"]) == expected


async def test_runs_of_a_user_say_what_the_request_is_about() -> None:
    with ToolMemory.ephemeral(tools=SCHEMAS, namespace=("toolmem", "{user_id}")) as memory:
        for i in range(8):
            run = h.history(h.user(f"zork {i}"), h.call("list_orders", {"customer_id": "c1"}, {"n": i}), h.words())
            memory.finish(run, thread_id=str(i), success=True, user_id="ann")
        memory.entries.recall("zork 99", user_id="ann")  # waits until they are written
        assert memory.navigator.plan("zork 99").chains == memory.navigator.plan("zork 99", user_id="bob").chains == ()
        found = memory.navigator.plan("zork 99", user_id="ann")
        assert best(found)[-1] == "list_orders"
        assert await memory.navigator.aplan("zork 99", user_id="ann") == found


def test_a_producer_that_failed_stands_behind_an_equal_one_and_comes_back() -> None:
    makers = ("find_customer", "lookup_customer")
    made = [h.schema(name, "name") for name in makers]
    for each in made:
        each["returns"] = {"type": "object", "properties": {"customer_id": {"type": "string"}}}
    with ToolMemory.ephemeral(tools=[*made, h.schema("list_orders", "customer_id")]) as memory:

        def first() -> str:
            assert memory.flush()
            memory.navigator.history(at_once=True)
            return memory.navigator.plan(target="list_orders").chain.tools[0]

        assert first() == "find_customer"
        for i in range(5):
            failed = h.call("find_customer", {"name": f"n{i}"}, h.FAILED)
            memory.finish(h.history(h.user("orders"), failed, h.words()), thread_id=f"failed-{i}")
        assert first() == "lookup_customer"
        for i in range(5):
            found = {"customer_id": f"c{i}77"}
            good = [h.call("find_customer", {"name": f"m{i}"}, found), h.call("list_orders", found, [])]
            memory.finish(h.history(h.user("orders"), *good, h.words()), thread_id=f"good-{i}")
        assert first() == "find_customer"
