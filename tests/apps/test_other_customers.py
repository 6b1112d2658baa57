"""The model alone sees who is served: prompt, context, picture. Nobody gets another one's data."""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory
from langgraph_toolmem.inertia.context import PrefetchedContext
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

ASKS = ("Which invoices are open?", "Show open invoices", "open invoices please")
PAUSE = "Please pause my subscription"


@dataclass(slots=True)
class Served:
    """The run's context: who is served."""

    customer: str


@dynamic_prompt
def prompt(request: Any) -> str:
    return f"You help the customer {request.runtime.context.customer}."


class Office:
    """An agent with a look-up and a change, and the calls of its tools that were executed."""

    def __init__(self, **options: Any) -> None:
        self.done: list[tuple[str, str]] = []
        self.model = ScriptedChatModel(script=self.answer)
        memory = ToolMemory.ephemeral(reads={"list_invoices"})

        def list_invoices(customer_id: str) -> str:
            """List the open invoices of a customer."""
            self.done.append(("list_invoices", customer_id))
            return "I-1"

        def pause_subscription(customer_id: str) -> str:
            """Pause the subscription of a customer."""
            self.done.append(("pause_subscription", customer_id))
            return "paused"

        middleware = tool_memory_middleware(memory, outer=[prompt], **options)
        tools = [list_invoices, pause_subscription]
        self.agent = create_agent(
            self.model, tools, middleware=middleware, context_schema=Served, checkpointer=InMemorySaver()
        )

    @staticmethod
    def answer(messages: list[BaseMessage], _tools: Any) -> AIMessage:
        served = re.findall(r"customer (\w+)\.", str(messages[0].content))[0]
        made = [call["name"] for each in messages if isinstance(each, AIMessage) for call in each.tool_calls]
        asks = next(str(each.content) for each in messages if each.type == "human")
        for tool in ("list_invoices", "pause_subscription")[: 2 if asks == PAUSE else 1]:
            if tool not in made:
                return call_tool(tool, customer_id=served)
        return AIMessage("Done.")

    def serve(self, number: int, customer: str, text: str, user: str | None = None) -> list[tuple[str, str]]:
        """The calls that were executed for a request."""
        self.done.clear()
        config: Any = {"configurable": {"thread_id": f"t{number}", "user_id": user}}
        self.agent.invoke({"messages": [("user", text)]}, config, context=Served(customer))
        return list(self.done)


def pause_of(customer: str) -> list[tuple[str, str]]:
    return [("list_invoices", customer), ("pause_subscription", customer)]


@pytest.mark.parametrize("trials", [0.7, 1.0])
def test_a_changing_tool_is_called_for_the_customer_of_the_prompt_alone(trials: float) -> None:
    office = Office(shortcut=InertiaPolicy(may_write=frozenset({"pause_subscription"})))
    draw = random.Random(2)
    for number in range(60):
        customer = "C7" if draw.random() < trials else f"C{draw.randrange(100, 999)}"
        assert office.serve(number, customer, PAUSE) == pause_of(customer)
    for number in range(60, 72):
        customer = f"C{draw.randrange(100, 999)}"
        assert office.serve(number, customer, PAUSE) == pause_of(customer)
    assert len(office.model.calls) < 3 * 72, "the memory saves model calls"


def drawn(share: float) -> list[str]:
    """Customers, so many of them C7."""
    draw = random.Random(2)
    return ["C7" if draw.random() < share else f"C{draw.randrange(100, 999)}" for _ in range(36)]


ORDERS = {
    "one tenant, then another": ["acme"] * 24 + ["globex"] * 12,
    "one after the other": [f"C{number}" for number in range(6) for _ in range(6)],
    "mixed": drawn(0.0),
    "mostly one": drawn(0.7),
}


@pytest.mark.parametrize("known", [True, False], ids=["with user ids", "without"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_look_up_is_made_for_the_customer_of_the_prompt_alone(order: str, known: bool) -> None:
    office = Office()
    for number, customer in enumerate(ORDERS[order]):
        done = office.serve(number, customer, ASKS[number % 3], f"user of {customer}" if known else None)
        assert done == [("list_invoices", customer)]
    assert len(office.model.calls) < 2 * len(ORDERS[order]), "the memory saves model calls"


def test_on_the_next_day_nothing_is_looked_up_for_the_day_before() -> None:
    """The day stands in the system prompt alone."""
    read: list[str] = []

    def list_meetings(date: str) -> str:
        """List the meetings of a day (ISO date)."""
        read.append(date)
        return "standup at 9"

    def answer(messages: list[BaseMessage], _tools: Any) -> AIMessage:
        today = messages[0].text.split()[-1]
        return AIMessage("Here.") if messages[-1].type == "tool" else call_tool("list_meetings", date=today)

    memory = ToolMemory.ephemeral(reads={"list_meetings"})
    asks = ("What meetings do I have today?", "Show me today's meetings", "my meetings today please")
    model = ScriptedChatModel(script=answer)
    for number in range(48):
        today = f"2026-03-{2 + number // 16:02}"
        middleware = tool_memory_middleware(memory, outer=[])
        agent = create_agent(model, [list_meetings], system_prompt=f"Today is {today}", middleware=middleware)
        config: Any = {"configurable": {"thread_id": f"t{number}", "user_id": f"u{number % 7}"}}
        agent.invoke({"messages": [("user", asks[number % 3])]}, config)
        assert read == [today]
        read.clear()
    assert len(model.calls) < 2 * 48, "once the place of the day is known, the memory saves model calls"


def test_another_tenants_invoices_are_not_prefetched() -> None:
    office = Office(shortcut=False, prefetch=True)
    for number in range(24):
        office.serve(number, "acme", ASKS[number % 3], f"u{number % 5}")
    for number in range(24, 36):
        done = office.serve(number, "globex", ASKS[number % 3], f"v{number % 5}")
        time.sleep(0.02)  # what runs ahead and is not served may end later
        assert {customer for _, customer in (*done, *office.done)} == {"globex"}


def test_another_picture_is_looked_up_by_the_model() -> None:
    def find_product(sku: str) -> str:
        """Find a product by its SKU."""
        return f"{sku}: 20 EUR"

    def answer(messages: list[BaseMessage], _tools: Any) -> AIMessage:
        [asked] = [each for each in messages if each.type == "human"]
        sku = asked.content[1]["base64"]  # type: ignore[index]
        return AIMessage("Here.") if messages[-1].type == "tool" else call_tool("find_product", sku=sku)

    memory = ToolMemory.ephemeral(reads={"find_product"})
    agent = create_agent(
        ScriptedChatModel(script=answer), [find_product], middleware=tool_memory_middleware(memory, outer=[])
    )
    for number in range(30):
        sku = "SKU111" if number < 20 else "SKU222"
        picture = {"type": "image", "base64": sku, "mime_type": "image/png"}
        content = [{"type": "text", "text": "What does this cost?"}, picture]
        config: Any = {"configurable": {"thread_id": f"t{number}"}}
        result = agent.invoke({"messages": [{"role": "user", "content": content}]}, config)
        assert [message.content for message in result["messages"] if message.type == "tool"] == [f"{sku}: 20 EUR"]


SURE = InertiaPolicy(audit_rate=0.0).with_(max_wrong_per_100=None)
"""No call is checked by chance."""


class Counter:
    """An agent that reads the stock of a room; a picture in the request may say that nothing is wanted."""

    def __init__(self, memory: ToolMemory, **options: Any) -> None:
        self.read: list[str] = []
        self.model = ScriptedChatModel(script=self.answer)

        def read_stock(room: str) -> str:
            """Read the stock of a room."""
            self.read.append(room)
            return "12 chairs"

        middleware = tool_memory_middleware(memory, outer=[], **options)
        self.agent = create_agent(self.model, [read_stock], middleware=middleware, checkpointer=InMemorySaver())

    @staticmethod
    def answer(messages: list[BaseMessage], _tools: Any) -> AIMessage:
        [asked] = [each for each in messages if each.type == "human"]
        blocks = [{"type": "text", "text": asked.content}] if isinstance(asked.content, str) else asked.content
        shown = [block["base64"] for block in blocks if block["type"] == "image"]  # type: ignore[index]
        if shown == ["closed"] or messages[-1].type == "tool":
            return AIMessage("Done.")
        return call_tool("read_stock", room=asked.text.split()[-1])

    def serve(self, thread: str, room: str, picture: str | None, block_id: str = "") -> tuple[int, list[str]]:
        """Return the number of model calls for a request, and the rooms whose stock was read."""
        self.read.clear()
        before = len(self.model.calls)
        content: list[Any] = [{"type": "text", "text": f"Count the chairs in {room}"}]
        if picture is not None:
            content.append({"type": "image", "base64": picture, "mime_type": "image/png"} | {"id": block_id})
        message = {"role": "user", "content": content}
        self.agent.invoke({"messages": [message]}, {"configurable": {"thread_id": thread}})
        return len(self.model.calls) - before, list(self.read)


def room_of(number: int) -> str:
    return f"R{100 + number * 7}"


PLAN = "plan " * 2_000
"""A picture that is longer than what is compared of other texts."""


def learn_pictures(counter: Counter) -> None:
    """Serve requests with one picture until the memory makes their look-up."""
    for number in range(24):
        _, read = counter.serve(f"t{number}", room_of(number), PLAN, f"lc_{number}")
        assert read == [room_of(number)]


def pictures_served(counter: Counter, when: str) -> list[tuple[int, list[str]]]:
    """Serve a request with the known picture, with two that are new, the latter of equal length and ends."""
    tall = f"{PLAN[:5_000]}{when:5}{PLAN[5_005:]}"
    served = enumerate([PLAN, "closed", tall])
    return [counter.serve(f"{when} {number}", room_of(40 + number), shown, f"lc_{when}") for number, shown in served]


EXPECTED = [(1, [room_of(40)]), (1, []), (2, [room_of(42)])]
"""The known picture saves a model call; with any other the model is asked."""


def test_a_picture_of_past_requests_is_familiar_and_no_other_is(tmp_path: Path) -> None:
    """Two memories at one folder and one that opens it again agree: it is kept on disk."""
    with ToolMemory(tmp_path, methods=[Inertia()], reads={"read_stock"}) as memory:
        learn_pictures(Counter(memory, shortcut=SURE))
        with ToolMemory(tmp_path, methods=[Inertia()], reads={"read_stock"}) as other:
            assert pictures_served(Counter(other, shortcut=SURE), "other") == EXPECTED
        assert pictures_served(Counter(memory, shortcut=SURE), "same") == EXPECTED
        alone = Counter(memory, shortcut=SURE).serve("none", room_of(50), None)
        assert alone == (2, [room_of(50)]), "past requests had a picture"
    with ToolMemory(tmp_path, methods=[Inertia()], reads={"read_stock"}) as memory:
        assert pictures_served(Counter(memory, shortcut=SURE), "again") == EXPECTED


def test_look_ups_before_the_model_are_made_for_known_pictures_alone() -> None:
    counter = Counter(ToolMemory.ephemeral(reads={"read_stock"}), context=PrefetchedContext(held_out=0.0))
    learn_pictures(counter)
    served = pictures_served(counter, "then")
    assert served == EXPECTED
