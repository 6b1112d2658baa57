"""The navigator subgraph in real LangGraph apps: rounds, failures, questions, approvals, limits."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from agents import WAYS
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, interrupt
from navi_script import Shop, ask, assert_well_formed, calls_made, decisions, do, say, seek, shown

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.navigator.decide.state import NaviLimits
from langgraph_toolmem.nodes.navi import create_navi_subgraph
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.hints import LEFT_OUT
from langgraph_toolmem.turn.points import turn_of

REFUND = "Refund the order of Ann"
CHAIN = (
    do("find_customer", name="Ann"),
    do("list_orders", customer_id="c-Ann"),
    do("refund_order", order_id="o-c-Ann"),
)

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


async def run(graph: Any, way: str, feed: Any = REFUND, **options: Any) -> dict[str, Any]:
    feed = {"messages": [("user", feed)]} if isinstance(feed, str) else feed
    config = options.pop("config", {"configurable": {"thread_id": "1"}})
    if way == "sync":
        return graph.invoke(feed, config, **options)  # type: ignore[no-any-return]
    return await graph.ainvoke(feed, config, **options)  # type: ignore[no-any-return]


def events(graph: Any, feed: Any, config: Any = None) -> list[dict[str, Any]]:
    feed = {"messages": [("user", feed)]} if isinstance(feed, str) else feed
    found = [part["toolmem"] for part in graph.stream(feed, config, stream_mode="custom")]
    return [event for event in found if event["node"] == "navi"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_task_in_rounds(way: str, shop: Shop, store: ToolMemory) -> None:
    model = scripted(*CHAIN, say("Ann's order is refunded."))
    state = await run(create_navi_subgraph(model, shop.tools, store), way)
    assert calls_made(state["messages"]) == [(name, {k: v for k, v in args.items() if v}) for name, args in shop.did]
    assert [name for name, _ in shop.did] == ["find_customer", "list_orders", "refund_order"]
    assert state["messages"][-1].text == "Ann's order is refunded."
    assert_well_formed(state["messages"])
    assert len(model.calls) == 4, "one for each round and one for the answer, none to search"
    record = state["toolmem_navi"]
    assert (record["stop"], record["failed"], record["decisions"]) == ("answered", {}, 4)
    report = store.report()
    assert (report.turns, report.answers) == (4, 1), "the memory learned from the run"


def test_the_first_decision_sees_candidates_and_toolchains(shop: Shop, store: ToolMemory) -> None:
    for _ in range(3):
        create_navi_subgraph(scripted(*CHAIN, say("done")), shop.tools, store).invoke({"messages": [("user", REFUND)]})
    model = scripted(say("Nothing."))
    create_navi_subgraph(model, shop.tools, store).invoke({"messages": [("user", REFUND)]})
    parts = shown(model.calls[0].messages)
    assert "- refund_order(order_id, cents?): Refund an order." in parts["Candidate APIs"]
    tree = parts["Toolchains of the last search, the best first"]
    assert tree.startswith("refund_order")
    assert "list_orders" in tree
    assert "find_customer" in tree


@pytest.mark.parametrize("way", WAYS)
async def test_independent_parts_run_side_by_side(way: str, shop: Shop, store: ToolMemory) -> None:
    model = scripted(
        [do("find_customer", name="Ann"), do("find_customer", name="Ben"), do("list_orders", 2)],
        [do("list_orders", customer_id="c-Ann"), do("list_orders", customer_id="c-Ben")],
        say("Two orders."),
    )
    state = await run(create_navi_subgraph(model, shop.tools, store), way)
    assert [len(m.tool_calls) for m in state["messages"] if isinstance(m, AIMessage)] == [2, 2, 0]
    assert_well_formed(state["messages"])
    assert len(model.calls) == 3
    assert "list_orders" in shown(model.calls[1].messages)["Parts of it that still wait"]
    seen = shown(model.calls[1].messages)["Current observation"]
    assert "c-Ann" in seen
    assert "c-Ben" in seen


@pytest.mark.parametrize("way", WAYS)
async def test_a_failure_leads_to_a_tool_that_stands_in(way: str, shop: Shop, store: ToolMemory) -> None:
    for finder in ("find_customer", "search_customers"):  # what both give is known from runs
        steps = (do(finder, name="Ann"), *CHAIN[1:], say("done"))
        create_navi_subgraph(scripted(*steps), shop.tools, store).invoke({"messages": [("user", REFUND)]})
    shop.did.clear()
    shop.broken = {"find_customer"}
    model = scripted(
        CHAIN[0], do("find_customer", name="Anna"), do("search_customers", name="Ann"), *CHAIN[1:], say("ok")
    )
    graph = create_navi_subgraph(model, shop.tools, store)
    state = await run(graph, way)
    assert [name for name, _ in shop.did] == ["find_customer", "search_customers", "list_orders", "refund_order"]
    (route,) = state["toolmem_navi"]["routes"]
    assert (route["failed"], route["way"], route["fallback"]) == ("find_customer", "equivalent", "search_customers")
    assert route["chain"] == ["search_customers", "list_orders", "refund_order"]
    parts = shown(model.calls[1].messages)
    assert "search_customers can stand in for find_customer" in parts["Current observation"]
    assert "find_customer: Error" in parts["APIs that failed: never call them"]
    assert "- find_customer(" not in parts["Candidate APIs"]
    assert "was not called: it failed before" in shown(model.calls[2].messages)["Current observation"]
    assert state["messages"][-1].response_metadata["toolmem"]["failed"] == ["find_customer"]
    assert_well_formed(state["messages"])
    tools = store.view().tools
    assert tools["find_customer"].failed == 1


def test_a_failure_without_history_leads_to_a_fresh_search(shop: Shop, store: ToolMemory) -> None:
    shop.broken = {"refund_order"}
    model = scripted(*CHAIN, say("I could not refund it: refund_order is down."))
    state = create_navi_subgraph(model, shop.tools, store).invoke({"messages": [("user", REFUND)]})
    (route,) = state["toolmem_navi"]["routes"]
    assert route["failed"] == "refund_order"
    assert route["way"] in ("fresh", "none")
    assert "refund_order" not in route["chain"]


def test_where_nothing_is_left_the_decider_is_told(store: ToolMemory) -> None:
    @tool
    def launch(code: str) -> str:
        """Launch."""
        raise RuntimeError(code)

    with ToolMemory.ephemeral(tools=[launch]) as memory:
        model = scripted(do("launch", code="x"), say("It could not be launched."))
        state = create_navi_subgraph(model, [launch], memory).invoke({"messages": [("user", "launch x")]})
    assert state["toolmem_navi"]["routes"][0]["way"] == "none"
    seen = shown(model.calls[1].messages)
    assert "no other way is known for what launch does" in seen["Current observation"]
    assert "Candidate APIs" not in seen


@pytest.mark.parametrize("way", WAYS)
async def test_searching_brings_other_candidates(way: str, shop: Shop, store: ToolMemory) -> None:
    limits = NaviLimits(candidates=2)
    model = scripted(seek("an API that refunds an order"), do("refund_order", order_id="o1"), say("Refunded."))
    state = await run(create_navi_subgraph(model, shop.tools, store, limits=limits), way, "find customers by name")
    assert "refund_order" not in shown(model.calls[0].messages)["Candidate APIs"]
    assert "refund_order" in shown(model.calls[1].messages)["Candidate APIs"]
    assert [name for name, _ in shop.did] == ["refund_order"]
    assert "an API that refunds an order" in state["toolmem_navi"]["sought"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_question_waits_for_the_user_and_repeats_nothing(way: str, shop: Shop, store: ToolMemory) -> None:
    model = scripted(
        [ask("Which Ann?"), do("find_customer", name="Ann"), seek("an API that lists orders")],
        do("list_orders", customer_id="c-Ann"),
        say("Listed."),
    )
    graph = create_navi_subgraph(model, shop.tools, store, checkpointer=InMemorySaver())
    state = await run(graph, way)
    (waiting,) = state["__interrupt__"]
    assert waiting.value == {"node": "navi", "question": "Which Ann?", "questions": ["Which Ann?"]}
    assert len(model.calls) == 1
    state = await run(graph, way, Command(resume="Ann Lee"))
    seen = shown(model.calls[1].messages)["Current observation"]
    assert "The user was asked: Which Ann?\nThe user said: Ann Lee" in seen
    assert [name for name, _ in shop.did] == ["find_customer", "list_orders"], "nothing ran twice"
    assert len(model.calls) == 3
    assert state["messages"][-1].text == "Listed."
    assert_well_formed(state["messages"])


@pytest.mark.parametrize("way", WAYS)
async def test_an_approval_repeats_none_of_the_calls_beside_it(way: str, shop: Shop, store: ToolMemory) -> None:
    def approve(request: Any, execute: Any) -> Any:
        call = request.tool_call
        if call["name"] == "refund_order" and interrupt({"approve": call["args"]}) != "yes":
            text = f"User rejected the tool call for `{call['name']}` with id {call['id']}"
            return ToolMessage(text, tool_call_id=call["id"], status="error")
        return execute(request)

    async def aapprove(request: Any, execute: Any) -> Any:
        call = request.tool_call
        if call["name"] == "refund_order" and interrupt({"approve": call["args"]}) != "yes":
            text = f"User rejected the tool call for `{call['name']}` with id {call['id']}"
            return ToolMessage(text, tool_call_id=call["id"], status="error")
        return await execute(request)

    for answer, refunds in (("yes", 1), ("no", 0)):
        shop.did.clear()
        model = scripted(
            [do("find_customer", name="Ann"), do("refund_order", order_id="o1")],
            do("refund_order", order_id="o1"),
            say("That is all."),
        )
        graph = create_navi_subgraph(
            model, shop.tools, store, wrap_tool_call=approve, awrap_tool_call=aapprove, checkpointer=InMemorySaver()
        )
        assert (await run(graph, way))["__interrupt__"][0].value == {"approve": {"order_id": "o1"}}
        state = await run(graph, way, Command(resume=answer))
        assert [name for name, _ in shop.did].count("find_customer") == 1
        assert [name for name, _ in shop.did].count("refund_order") == refunds
        assert state["toolmem_navi"]["failed"] == {}, "a person's no does not say that the tool is down"
        assert_well_formed(state["messages"])


def test_wrong_parameters_never_reach_the_tool(shop: Shop, store: ToolMemory) -> None:
    model = scripted(do("find_customer", customer="Ann"), do("find_customer", name="Ann"), say("Found."))
    state = create_navi_subgraph(model, shop.tools, store).invoke({"messages": [("user", REFUND)]})
    assert shop.did == [("find_customer", {"name": "Ann"})]
    assert "missing parameter 'name'" in shown(model.calls[1].messages)["Current observation"]
    assert_well_formed(state["messages"])


@pytest.mark.parametrize("way", WAYS)
async def test_output_that_does_not_parse_is_repaired_once(way: str, shop: Shop, store: ToolMemory) -> None:
    model = scripted("I think I should search.", do("find_customer", name="Ann"), say("Found."))
    state = await run(create_navi_subgraph(model, shop.tools, store), way)
    assert "could not be used: there was no structured output" in model.calls[1].messages[-1].text
    assert state["messages"][-1].text == "Found."
    broken = AIMessage("", tool_calls=[{"name": "Decision", "args": {"sub_intents": 3}, "id": "d"}])
    model = scripted(CHAIN[0], broken, broken)
    state = await run(create_navi_subgraph(model, shop.tools, store), way)
    assert len(model.calls) == 3
    assert state["toolmem_navi"]["stop"] == "unreadable"
    assert state["messages"][-1].text == (
        "I could not finish this: the decision could not be read, not even when it was asked for again. "
        "Done so far: find_customer."
    )


@pytest.mark.parametrize("way", WAYS)
async def test_a_decider_that_loops_is_stopped_and_answers(way: str, shop: Shop, store: ToolMemory) -> None:
    def again(messages: Any, tools: Any) -> AIMessage:
        if not tools:
            return AIMessage("I found Ann and could not do the rest.")
        return decisions(CHAIN[0])[0]  # type: ignore[return-value]

    model = ScriptedChatModel(script=again)
    state = await run(create_navi_subgraph(model, shop.tools, store), way)
    assert shop.did == [("find_customer", {"name": "Ann"})], "what succeeded is not called again"
    assert state["toolmem_navi"]["stop"] == "no progress"
    assert len(model.calls) == 1 + NaviLimits().idle + 1
    assert state["messages"][-1].text == "I found Ann and could not do the rest."
    assert "nothing new came" in shown(model.calls[-1].messages)["Why it has to stop"]


def test_the_number_of_decisions_is_limited(shop: Shop, store: ToolMemory) -> None:
    names = iter(range(100))

    def another(messages: Any, tools: Any) -> AIMessage:
        if not tools:
            raise ConnectionError("the model is down")
        return decisions(do("find_customer", name=str(next(names))))[0]  # type: ignore[return-value]

    graph = create_navi_subgraph(ScriptedChatModel(script=another), shop.tools, store, limits=NaviLimits(decisions=4))
    logging.getLogger("langgraph_toolmem.navigator.decide").disabled = True
    try:
        state = graph.invoke({"messages": [("user", REFUND)]})
    finally:
        logging.getLogger("langgraph_toolmem.navigator.decide").disabled = False
    assert len(shop.did) == 4
    assert state["toolmem_navi"]["stop"] == "limit"
    assert state["messages"][-1].text.startswith("I could not finish this: the limit of decisions")


def test_before_the_graphs_steps_run_out_there_is_an_answer(shop: Shop, store: ToolMemory) -> None:
    names = iter(range(100))

    def another(messages: Any, tools: Any) -> AIMessage:
        return decisions(do("find_customer", name=str(next(names))))[0] if tools else AIMessage("Stopped.")  # type: ignore[return-value]

    graph = create_navi_subgraph(ScriptedChatModel(script=another), shop.tools, store)
    state = graph.invoke({"messages": [("user", REFUND)]}, {"recursion_limit": 20})
    assert state["toolmem_navi"]["stop"] == "out of steps"
    assert state["messages"][-1].text == "Stopped."


def test_a_tool_that_is_removed_while_a_plan_is_running(shop: Shop, store: ToolMemory) -> None:
    there = {"find_customer", "search_customers", "list_orders", "refund_order"}

    def script(messages: Any, tools: Any) -> AIMessage:
        step = len(model.calls)
        if step == 1:
            there.discard("list_orders")
        return decisions(CHAIN[0], CHAIN[1], say("I could not list the orders."))[step]  # type: ignore[return-value]

    model = ScriptedChatModel(script=script)
    graph = create_navi_subgraph(model, shop.tools, store, available=lambda: there)
    state = graph.invoke({"messages": [("user", REFUND)]})
    assert [name for name, _ in shop.did] == ["find_customer"]
    assert state["toolmem_navi"]["failed"] == {"list_orders": "it is no longer there"}
    assert "list_orders was not called: it is no longer there" in shown(model.calls[2].messages)["Current observation"]
    assert_well_formed(state["messages"])


@pytest.mark.parametrize("way", WAYS)
async def test_inside_a_hosts_graph(way: str, shop: Shop, store: ToolMemory) -> None:
    class Host(MessagesState, total=False):
        toolmem_navi: dict[str, Any]
        note: str

    model = scripted([CHAIN[0], ask("Sure?")], say("First done."), CHAIN[0], say("Second done."))
    builder = StateGraph(Host)
    builder.add_node("before", lambda state: {"note": "kept"})
    builder.add_node("navi", create_navi_subgraph(model, shop.tools, store))
    builder.add_edge(START, "before")
    builder.add_edge("before", "navi")
    builder.add_edge("navi", END)
    graph = builder.compile(checkpointer=InMemorySaver())
    assert (await run(graph, way))["__interrupt__"][0].value["question"] == "Sure?"
    first = await run(graph, way, Command(resume="yes"))
    assert first["note"] == "kept"
    assert first["toolmem_navi"]["stop"] == "answered"
    assert first["toolmem_navi"]["subgraph"]["nodes"]
    second = await run(graph, way, "And once more")
    assert second["messages"][-1].text == "Second done."
    assert len(shop.did) == 2, "another request is another run: what was done in the last one may be done again"
    assert shown(model.calls[2].messages)["Request"] == "And once more"
    assert "Assistant: First done." in shown(model.calls[2].messages)["Earlier in the conversation"]
    assert_well_formed(second["messages"])


def test_each_decision_is_told_to_the_stream(shop: Shop, store: ToolMemory) -> None:
    shop.broken = {"find_customer"}
    model = scripted(CHAIN[0], do("search_customers", name="Ann"), say("Found."))
    told = events(create_navi_subgraph(model, shop.tools, store), REFUND)
    assert [event["event"] for event in told] == ["candidates", "decision", "another way", "decision", "decision"]
    decided = [event for event in told if event["event"] == "decision"]
    assert [event["action"] for event in decided] == ["execute", "execute", "answer"]
    assert decided[0]["sub_intents"][0]["api"] == "find_customer"
    assert decided[0]["subgraph"]["nodes"]
    assert decided[0]["chain"]
    assert decided[0]["model_calls"] == 1
    assert told[2]["route"]["failed"] == "find_customer"
    assert list(decided[1]["failed"]) == ["find_customer"]
    assert all(node["id"] != "api:find_customer" for node in decided[1]["subgraph"]["nodes"])
    json.dumps(told)


def test_studio_sees_labels_and_what_each_node_is(shop: Shop, store: ToolMemory) -> None:
    graph = create_navi_subgraph(scripted(), shop.tools, store).get_graph()
    assert {"begin", "decide", "tools", "retrieve", "clarify", "observe", "conclude", "record"} <= set(graph.nodes)
    assert all((graph.nodes[name].metadata or {}).get("toolmem_about") for name in ("begin", "decide", "clarify"))
    labels = {(edge.target, edge.data) for edge in graph.edges if edge.source == "decide"}
    assert ("tools", "execute") in labels
    assert ("conclude", "stop") in labels


def test_decisions_are_handed_out_with_their_prompts(
    shop: Shop, store: ToolMemory, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[dict[str, Any]] = []
    graph = create_navi_subgraph(
        scripted(CHAIN[0], say("x")), shop.tools, store, on_decision=seen.append, checkpointer=InMemorySaver()
    )
    graph.invoke({"messages": [("user", REFUND)]}, {"configurable": {"thread_id": "t9"}})
    assert [(each["step"], each["thread_id"]) for each in seen] == [(1, "t9"), (2, "t9")]
    assert [message["role"] for message in seen[0]["messages"]] == ["system", "user"]
    assert seen[0]["decision"]["sub_intents"][0]["api"] == "find_customer"

    def fails(_: Any) -> None:
        raise RuntimeError("mine")

    state = create_navi_subgraph(scripted(say("x")), shop.tools, store, on_decision=fails).invoke(
        {"messages": [("user", REFUND)]}
    )
    assert state["messages"][-1].text == "x"
    assert "RuntimeError" in caplog.text


def test_a_memory_that_fails_leaves_all_tools(
    shop: Shop, store: ToolMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise OSError("no disk")

    for part, name in (
        *((store.navigator, name) for name in ("plan", "reroute", "search")),
        *((store.core.events, name) for name in ("observe", "executed")),
    ):
        monkeypatch.setattr(part, name, broken)
    shop.broken = {"find_customer"}
    model = scripted(CHAIN[0], do("search_customers", name="Ann"), say("Found."))
    state = create_navi_subgraph(model, shop.tools, store).invoke({"messages": [("user", REFUND)]})
    assert [name for name, _ in shop.did] == ["find_customer", "search_customers"]
    assert state["messages"][-1].text == "Found."
    (route,) = state["toolmem_navi"]["routes"]
    assert (route["way"], route["similar"][0]) == ("fresh", "search_customers"), "what is similar is found without it"
    assert "no disk" not in "".join(r.getMessage() for r in caplog.records if r.levelno > logging.DEBUG)


def test_an_error_of_the_model_reaches_the_host(shop: Shop, store: ToolMemory) -> None:
    def down(messages: Any, tools: Any) -> AIMessage:
        raise ConnectionError("no network")

    with pytest.raises(ConnectionError, match="no network"):
        create_navi_subgraph(ScriptedChatModel(script=down), shop.tools, store).invoke({"messages": [("user", "x")]})


def test_tools_that_are_left_out_for_this_user_are_no_candidates(shop: Shop, store: ToolMemory) -> None:
    model = scripted(say("x"))
    asked = [HumanMessage(REFUND, id="m1")]
    left_out = {"at": turn_of(asked), "tools": {"refund_order": "the user said so"}}
    create_navi_subgraph(model, shop.tools, store).invoke({"messages": asked, LEFT_OUT: left_out})
    text = model.calls[0].messages[1].text
    assert "find_customer" in text
    assert "refund_order" not in text


def test_tools_get_the_hosts_state_injected(store: ToolMemory) -> None:
    class Host(MessagesState):
        tenant: str

    @tool
    def whose(state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Whose shop it is."""
        return f"{state['tenant']} {len(state['messages'])} {'toolmem_navi' in state}"

    model = scripted(do("whose"), say("x"))
    graph = create_navi_subgraph(model, [whose], store, state_schema=Host)
    state = graph.invoke({"messages": [("user", "whose shop?")], "tenant": "acme"})
    (answer,) = [m for m in state["messages"] if isinstance(m, ToolMessage)]
    assert answer.text == "acme 2 False"


@pytest.mark.parametrize("way", WAYS)
async def test_messages_under_another_key(way: str, shop: Shop, store: ToolMemory) -> None:
    graph = create_navi_subgraph(scripted(CHAIN[0], say("x")), shop.tools, store, messages_key="chat")
    state = await run(graph, way, {"chat": [("user", REFUND)]})
    assert [type(m).__name__ for m in state["chat"]] == ["HumanMessage", "AIMessage", "ToolMessage", "AIMessage"]
    assert shop.did


def test_a_memory_that_knows_no_tools_learns_them(shop: Shop) -> None:
    with ToolMemory.ephemeral() as memory:
        model = scripted(say("x"))
        create_navi_subgraph(model, shop.tools, memory).invoke({"messages": [("user", "refund an order")]})
        assert "refund_order" in shown(model.calls[0].messages)["Toolchains of the last search, the best first"]


def test_no_way_around_writes_something_only_to_get_a_value() -> None:
    @tool
    def list_mails(sender: str) -> list[dict[str, str]]:
        """List mails; gives mail ids."""
        raise RuntimeError("down")

    @tool
    def send_mail(to: str, body: str) -> dict[str, str]:
        """Send a mail; gives the mail id."""
        raise AssertionError("nothing was to be sent")

    @tool
    def forward_mail(mail_id: str) -> str:
        """Forward a mail."""
        return "forwarded"

    gives = {"type": "object", "properties": {"mail_id": {"type": "string"}}}
    tools = [list_mails, send_mail, forward_mail]
    for each in (list_mails, send_mail):
        each.metadata = {"outputSchema": gives}
    with ToolMemory.ephemeral(tools=tools) as memory:
        plain = memory.navigator.plan(target="forward_mail", known=["sender"]).chain
        assert plain is not None
        assert plain.tools == ("list_mails", "forward_mail")
        around = memory.navigator.reroute(plain, ["list_mails"], known=["sender"]).chain
        assert around is not None
        assert around.tools == ("send_mail", "forward_mail"), "this is what the test is about"
        model = scripted(do("list_mails", sender="ann"), say("I could not list the mails."))
        graph = create_navi_subgraph(model, tools, memory)
        state = graph.invoke({"messages": [("user", "forward the mail of ann")]})
    (route,) = state["toolmem_navi"]["routes"]
    assert "send_mail" not in route["chain"][:-1]
