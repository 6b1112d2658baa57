"""What the model alone sees says who is served: prompt, context, picture. Nobody gets another one's data."""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem import InertiaPolicy, ToolMemory
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
