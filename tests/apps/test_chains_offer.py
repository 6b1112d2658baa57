"""Tools chosen for a request: chains whole or not at all, the bound, other ways after failures, the search tool."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import histories as h
import pytest
from crowd import DESK, NOTE, calling, crowded, knowing, offers, plain, steps
from desk import Desk
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel
from shells import agent_of, graph_of

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.navigator.plan.chains import Chain, ChainStep, Gift, Plan, Subgraph
from langgraph_toolmem.navigator.select.candidates import (
    Candidates,
    find_candidates,
    find_reroutes,
    progress_of,
    turn_candidates,
)
from langgraph_toolmem.navigator.select.selection import Reroute, Selection, searched_for, select_tools
from langgraph_toolmem.navigator.tool_search.hit import ToolHit
from langgraph_toolmem.nodes import ToolRetriever
from langgraph_toolmem.runs.run import SEARCH_TOOL
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.turn.hints import SELECTED, merge_selected, new_selected, selected_now

pytestmark = pytest.mark.usefixtures("nothing_failed")


def chain(*tools: str) -> Chain:
    made = [ChainStep(tool, gives=(Gift("id", after, "id"),)) for tool, after in pairwise(tools)]
    return Chain(tools[-1], (*made, ChainStep(tools[-1])), (), 1.0)


def planned(*chains: Chain) -> Plan:
    return Plan(chains, Subgraph(), "alpha_beta")


def hits(*names: str) -> list[ToolHit]:
    return [ToolHit(name, 1 - index / 10, name) for index, name in enumerate(names)]


TWO = planned(chain("a", "b", "c"), chain("d", "e"))
AROUND = Reroute("b", chain("n", "b2", "c"), "b2")


@pytest.mark.parametrize(
    ("plan", "found", "options", "tools", "cut"),
    [
        (TWO, hits("c", "x", "e", "y"), {"most": 6}, "c b a e d x", ()),
        (TWO, hits("c", "x", "e"), {"most": 2}, "e d", (("a", "b", "c"),)),
        (planned(chain("a", "b", "c")), hits("c", "x", "e"), {"most": 2}, "c x", (("a", "b", "c"),)),
        (planned(chain("a", "b"), chain("a", "b", "c")), hits("b", "c"), {"most": 3}, "b a c", ()),
        (planned(chain("a", "b")), hits("b", "x"), {"most": 3, "always": "zw"}, "z w b", (("a", "b"),)),
        (planned(chain("a")), hits("a"), {"most": 1, "always": "zw"}, "z w", (("a",),)),
        (planned(chain("a")), hits("a", "x"), {"most": 3, "earlier": "stu"}, "a s t", ()),
        (planned(chain("a", "b")), hits("b", "x", "y"), {"most": 3, "called": {"q": False}}, "b a x q", ()),
        (
            planned(chain("a", "b", "c")),
            hits("c"),
            {"most": 3, "called": {"b": False}, "reroutes": [AROUND]},
            "c b a b2 n",
            (),
        ),
        (None, [], {"most": 4, "reroutes": [AROUND], "available": {"c"}}, "", ()),
        (
            TWO,
            hits("b", "e", "x"),
            {"most": 9, "always": "z", "called": {"q": True}, "earlier": "s", "available": {"b", "d", "e"}},
            "e d b",
            (),
        ),
    ],
)
def test_chains_come_whole_and_before_hits(plan: Any, found: Any, options: Any, tools: str, cut: Any) -> None:
    chosen = select_tools(plan, found, **options)
    assert ([*chosen.tools], chosen.cut) == (tools.split(), cut)


def test_what_the_model_asked_for_comes_on_top() -> None:
    asked = searched_for(Selection({"k": "fits"}), "pay  the\nbill" + "!" * 200)
    chosen = select_tools(planned(chain("a", "b")), hits("b", "x"), most=2, asked=asked)
    assert [*chosen.tools] == ["b", "a", "k"]
    assert len(chosen.tools["k"]) < 200


SCHEMAS = [
    h.schema("find_customer", "name"),
    h.schema("search_customers", "name"),
    h.schema("list_orders", "customer_id"),
    h.schema("refund_order", "order_id"),
    h.schema("water_plants", "litres"),
]
NAMES = {schema["name"] for schema in SCHEMAS}
MOST: Any = {"most": 5, "targets": 1}


def test_candidates_and_other_ways_come_from_tools_that_are_there() -> None:
    with ToolMemory.ephemeral(tools=SCHEMAS) as memory:
        for i in range(3):
            found = {"customer_id": f"c{i}77"}
            steps = [
                h.call("find_customer", {"name": f"N{i}"}, found),
                h.call("list_orders", found, [{"order_id": f"o{i}88"}]),
                h.call("refund_order", {"order_id": f"o{i}88"}),
            ]
            memory.finish(h.history(h.user(f"refund the order of N{i}"), *steps, h.words()), thread_id=str(i))
        navigator = memory.navigator
        candidates = find_candidates(navigator, "refund an order", NAMES, **MOST)
        assert candidates.plan is not None
        assert candidates.plan.chains[0].tools == ("find_customer", "list_orders", "refund_order")
        for words, names in (("quantum chromodynamics", NAMES), ("   ", NAMES), ("refund an order", ())):
            assert find_candidates(navigator, words, names, **MOST) == Candidates()
        left = find_candidates(navigator, "refund an order", NAMES - {"refund_order", "find_customer"}, **MOST)
        assert left.hits[0].name == "list_orders"
        assert left.plan is not None
        assert "find_customer" not in left.plan.tools
        where = progress_of(parse_run(h.history(h.user("refund an order"), h.words("Really?"), h.user("go ahead"))))
        assert turn_candidates(navigator, where, NAMES, **MOST).hits[0].name == "refund_order"
        ways = find_reroutes(navigator, candidates, {"find_customer": False}, NAMES)
        assert [(way.failed, way.fallback, way.chain.tools) for way in ways] == [
            ("find_customer", "search_customers", ("search_customers", "list_orders", "refund_order"))
        ]
        for called in ({"find_customer": True}, {"nobody": False}, {"refund_order": False}):
            assert find_reroutes(navigator, candidates, called, NAMES | {"nobody"}) == ()


def test_progress_tells_this_turn_from_earlier_ones() -> None:
    one = [h.user("one"), h.call("a", {}, {}), h.call("b", {}, {}), h.call("a", {}, {}), h.words(), h.user("two")]
    two = [h.call("c", {}, h.FAILED), h.call("d", {}, h.FAILED), h.call("d", {}, {})]
    where = progress_of(parse_run(h.history(*one, *two)))
    assert (where.request, where.before, where.earlier) == ("two", "one\ntwo", ("a", "b"))
    assert (dict(where.called), where.failed) == ({"c": False, "d": True}, {"c"})


def test_calls_of_the_search_tool_are_no_steps() -> None:
    search = h.call(SEARCH_TOOL, {"query": "q"}, "found")
    run = h.history(h.user("go"), search, h.call("a", {"x": 1}, {"y": 2}), search, h.call("b", {"y": 2}, {}), h.words())
    with ToolMemory.ephemeral() as memory:
        memory.finish(run, thread_id="r")
        view = memory.view()
        assert {*view.tools} == {"a", "b"}
        assert ("a", "b") in {(edge.source, edge.target) for edge in view.edges}


def test_offers_of_a_turn_add_up_and_another_turn_begins_anew() -> None:
    first, later = [h.user("one")], [h.user("one"), h.words(), h.user("two")]
    one = new_selected({"a": "r"}, first)[SELECTED]
    both = merge_selected(one, new_selected({"b": "s", "a": "other"}, first)[SELECTED])
    assert both is not None
    assert both["tools"] == {"a": "r", "b": "s"}
    assert merge_selected({}, one) == merge_selected(one, None) == one  # type: ignore[typeddict-item]
    three = new_selected({"c": "t"}, later)[SELECTED]
    assert merge_selected(both, three) == three
    assert selected_now({"messages": first, SELECTED: both}) == both
    assert selected_now({"messages": later, SELECTED: both}) is None
    assert selected_now(first) is None


DO_NOTE = [
    ("find_customer", {"name": "Ann"}),
    ("latest_order", {"customer_id": "C-1"}),
    ("add_note", {"order_id": "O-1", "note": "checked"}),
]
SEARCHED = [(SEARCH_TOOL, {"query": "archive a vehicle"}), ("archive_vehicle", {"vehicle_id": "7"})]


class Crowded(Desk):
    """A desk among other tools; `broken` takes the place of its tool."""

    broken: tuple[BaseTool, ...] = ()

    @property
    def tools(self) -> list[BaseTool]:  # type: ignore[override]
        names = {tool.name for tool in self.broken}
        return [*(tool for tool in crowded(Desk()) if tool.name not in names), *self.broken]


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with knowing(Crowded().tools) as made:
        yield made


def chains(memory: ToolMemory, says: Any, *, desk: Any = None, made: Any = None, **options: Any) -> Any:
    return agent_of(memory, desk or Crowded(), says, made=made, chains=ToolRetriever(memory, **options))


async def test_a_search_of_the_model_joins_the_chain_until_the_next_turn(memory: ToolMemory) -> None:
    agent = chains(memory, steps([*SEARCHED, *DO_NOTE], []), most=3)
    await agent.ask(NOTE, "async")
    first, *rest = offers(agent.model)
    names = [tool.name for tool in agent.desk.tools]
    assert {*first} == {*DESK, SEARCH_TOOL}
    assert sorted(first[1:], key=names.index) == first[1:]
    assert rest
    assert all({"archive_vehicle", *first} <= {*names} and names == rest[1] for names in rest[1:])
    await agent.ask("Archive a room", "async")
    assert len(offers(agent.model)[-1]) == 4
    assert "archive_vehicle" not in offers(agent.model)[-1]


async def test_too_few_tools_and_no_fit(memory: ToolMemory) -> None:
    names = [tool.name for tool in Crowded().tools]
    for text, options, expected in (
        (NOTE, {"most": len(names)}, names),
        ("quantum chromodynamics", {"most": 5}, [SEARCH_TOOL]),
        ("quantum chromodynamics", {"most": 5, "search_tool": False}, names),
    ):
        agent = chains(memory, steps([]), **options)
        await agent.ask(text)
        assert offers(agent.model) == [expected]


async def test_a_failure_brings_another_way_without_a_second_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(name: str) -> str:
        raise OSError("down")

    desk = Crowded()
    found = plain("search_customers", "Directory.", "name", func=lambda name: '{"customer_id": "C-1"}')
    desk.broken = (plain("find_customer", "Find a customer by name.", "name", func=down), found)
    searched: list[str] = []
    with knowing(desk.tools) as memory:
        real = memory.navigator.search
        monkeypatch.setattr(memory.navigator, "search", lambda q, **more: (searched.append(q), real(q, **more))[1])
        says = steps([DO_NOTE[0], ("search_customers", {"name": "Ann"}), *DO_NOTE[1:]])
        app = graph_of(memory, desk, says, ToolRetriever(memory, desk.tools, most=3, targets=1))
        state = await app.ask(NOTE)
    seen = offers(app.model)
    assert {*seen[0]} == {*DESK}
    assert all({*names} == {*DESK, "search_customers"} for names in seen[1:])
    assert searched == [NOTE]
    assert state["messages"][-1].text == "Done."


class Answer(BaseModel):
    """The structured answer."""

    text: str


async def test_provider_tools_structured_answers_and_always_stay(memory: ToolMemory) -> None:
    desk = SimpleNamespace(tools=[*crowded(Desk()), {"type": "web_search_preview"}])

    def answer(messages: Any, tools: Any) -> AIMessage:
        return calling(messages, ("Answer", {"text": "yes"}))

    made = {"response_format": ToolStrategy(Answer)}
    agent = chains(memory, answer, desk=desk, made=made, most=5, always=["approve_room", "nobody"])
    assert (await agent.ask(NOTE))["structured_response"] == Answer(text="yes")
    names = [tool.get("function", tool).get("name", tool["type"]) for tool in agent.model.calls[0].tools]
    assert {*DESK, "approve_room", "Answer", "web_search_preview", SEARCH_TOOL} == {*names}
