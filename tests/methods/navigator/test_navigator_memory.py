"""Plans through the memory: what runs have shown, which tools there are, and what is not allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import histories as h
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from langgraph_toolmem import EmbedderChangedError, Navigator, ToolMemory
from langgraph_toolmem.navigator.plan.chains import Plan
from langgraph_toolmem.navigator.plan.settings import PlanSettings
from langgraph_toolmem.runs.tools import read_tools

SCHEMAS = [
    h.schema("find_customer", "name"),
    h.schema("search_customers", "name"),
    h.schema("list_orders", "customer_id"),
    h.schema("refund_order", "order_id"),
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


def test_a_request_gives_a_complete_chain() -> None:
    with taught() as memory:
        plan = memory.navigator.plan("refund an order", known={"customer_name": "Ann"})
        assert best(plan) == ("find_customer", "list_orders", "refund_order")
        assert plan.chain is not None
        assert plan.chain.complete
        assert {"find_customer", "list_orders", "refund_order"} <= set(plan.tools)
        assert memory.navigator.plan("quantum chromodynamics").chains == ()


def test_what_runs_have_shown_makes_the_chain() -> None:
    with ToolMemory.ephemeral(tools=SCHEMAS) as memory:  # no tool says what it gives: by names alone
        cold = memory.navigator.plan(target="refund_order").chain
    with taught() as memory:
        warm = memory.navigator.plan(target="refund_order").chain
        assert cold is not None
        assert warm is not None
        assert cold.tools == warm.tools
        assert warm.score > cold.score
        assert best(memory.navigator.plan(target="refund_order", known=["customer_id"])) == (
            "list_orders",
            "refund_order",
        )
        assert best(memory.navigator.plan(target="refund_order", known={"order_id": "o1"})) == ("refund_order",)


def test_tools_that_may_not_be_used_are_in_no_chain() -> None:
    with taught() as memory:
        for options in ({"avoid": ["find_customer"]}, {"available": {s["name"] for s in SCHEMAS} - {"find_customer"}}):
            plan = memory.navigator.plan("refund an order", **options)
            assert "find_customer" not in plan.tools
            assert best(plan) == ("search_customers", "list_orders", "refund_order")


def test_another_way_after_a_failure() -> None:
    with taught() as memory:
        chain = memory.navigator.plan(target="refund_order", known=["customer_name"]).chain
        assert chain is not None
        again = memory.navigator.reroute(chain, ["find_customer"], known=["customer_name"])
        assert again.way == "equivalent"
        assert again.fallback == "search_customers"
        assert again.chain is not None
        assert again.chain.tools == ("search_customers", "list_orders", "refund_order")
        assert memory.navigator.reroute(chain, ["refund_order"]).way == "none"


def test_tools_that_come_later_are_found() -> None:
    with taught() as memory:
        memory.navigator.plan("refund an order")
        memory.core.catalogue.adopt(read_tools([*SCHEMAS, h.schema("cancel_parcel", "parcel_id")]))
        assert best(memory.navigator.plan("cancel the parcel"))[-1] == "cancel_parcel"


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


def test_a_navigator_searches_by_its_settings() -> None:
    with taught() as memory, taught(methods=[Navigator(settings=PlanSettings(depth=1))]) as shallow:
        assert best(memory.navigator.plan(target="refund_order")) == ("find_customer", "list_orders", "refund_order")
        assert best(shallow.navigator.plan(target="refund_order")) == ("refund_order",), "the customer lies too deep"


class Synonyms(Embeddings):
    """A client is a customer; all else is one thing."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken = False

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.broken:
            raise OSError("the model is away")
        self.asked += texts
        return [[1.0, 0.0] if "client" in text or "customer" in text else [0.0, 1.0] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


MEANT = [
    h.schema("sign_in", "phone", returns={"type": "object", "properties": {"customer_id": {"type": "string"}}}),
    h.schema("close_contract", "client_id"),
]


def test_an_embedder_of_ones_own_merges_parameters_that_mean_the_same(tmp_path: Path) -> None:
    def chain(memory: ToolMemory) -> tuple[str, ...]:
        return best(memory.navigator.plan(target="close_contract", known=["phone"]))

    with ToolMemory.ephemeral(tools=MEANT) as memory:
        assert chain(memory) == ("close_contract",)
    first, second = Synonyms(), Synonyms()
    with ToolMemory(tmp_path, tools=MEANT, embeddings=first) as memory:
        assert chain(memory) == ("sign_in", "close_contract")
        memory.finish(
            h.history(h.user("x"), h.call("sign_in", {"phone": "1"}, {"zip_code": "1"}), h.words()), thread_id="1"
        )
        assert chain(memory) == ("sign_in", "close_contract")
        assert "zipcode" in first.asked
        memory.navigator.regroup(
            {"split": [{"name": "other", "members": [{"tool": "sign_in", "output": "*"}]}]}, dry_run=False
        )
        assert chain(memory) == ("close_contract",), "a user's word goes before"
        memory.navigator.regroup(None, dry_run=False)
        assert len(first.asked) == len({*first.asked})
    with ToolMemory(tmp_path, tools=MEANT, embeddings=second) as memory:
        assert chain(memory) == ("sign_in", "close_contract")
        assert second.asked == ["zipcode"], "what only runs showed may be personal and is not kept"
    with ToolMemory(tmp_path, tools=MEANT, embeddings=second, read_only=True) as memory:
        assert chain(memory) == ("sign_in", "close_contract")


def test_a_failing_embedder_leaves_the_words(caplog: pytest.LogCaptureFixture) -> None:
    model = Synonyms()
    model.broken = True
    with ToolMemory.ephemeral(tools=MEANT, embeddings=model) as memory:
        for _ in range(3):
            assert best(memory.navigator.plan(target="close_contract", known=["phone"])) == ("close_contract",)
        assert memory.navigator.prune(most=1, unused=True)
        assert caplog.text.count("parameters are merged by words alone") == 1


async def test_a_changed_embedder_is_not_hidden_by_the_words(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=MEANT, embeddings=Synonyms()) as memory:
        memory.navigator.plan(target="close_contract")
    with ToolMemory(tmp_path, tools=MEANT, embeddings=DeterministicFakeEmbedding(size=4)) as memory:
        with pytest.raises(EmbedderChangedError):
            memory.navigator.plan(target="close_contract")
        with pytest.raises(EmbedderChangedError):
            await memory.navigator.aplan(target="close_contract")


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


async def test_the_async_twins_answer_the_same() -> None:
    async with taught() as memory:
        plan = await memory.navigator.aplan("refund an order")
        assert plan == memory.navigator.plan("refund an order")
        assert plan.chain is not None
        failed = ["find_customer"]
        assert await memory.navigator.areroute(plan.chain, failed) == memory.navigator.reroute(plan.chain, failed)
