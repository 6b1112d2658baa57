"""Decisions and tools for tests of the navigator subgraph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

Part = dict[str, Any]


def do(api: str, rank: int = 1, /, **parameters: Any) -> Part:
    return {**_part("execute", rank), "api": api, "parameters": json.dumps(parameters)}


def ask(text: str, rank: int = 1) -> Part:
    return {**_part("clarify", rank), "text": text}


def seek(recall: str, rank: int = 1) -> Part:
    return {**_part("retrieve", rank), "recall": recall}


def say(text: str, rank: int = 1) -> Part:
    return {**_part("answer", rank), "text": text}


def _part(action: str, rank: int) -> Part:
    return {"rank": rank, "intent": "", "analysis": "", "action": action, "api": "", "recall": "", "text": ""}


def decision(*parts: Part) -> AIMessage:
    """As a model gives structured output by calling a tool."""
    call = {"name": "Decision", "args": {"sub_intents": list(parts)}, "id": "d", "type": "tool_call"}
    return AIMessage("", tool_calls=[call])


def decisions(*rounds: Sequence[Part] | Part | AIMessage | str) -> list[AIMessage | str]:
    """A script: a round is one part, several, or the model's message as it is."""
    return [
        each if isinstance(each, (AIMessage, str)) else decision(*([each] if isinstance(each, Mapping) else each))
        for each in rounds
    ]


def shown(messages: Sequence[BaseMessage]) -> dict[str, str]:
    """The sections of a prompt, the last one of each title."""
    sections = messages[1].text.split("## ")[1:]
    return {title: body.split("\n---")[0] for title, body in (part.split("\n---\n", 1) for part in sections)}


def calls_made(messages: Sequence[BaseMessage]) -> list[tuple[str, dict[str, Any]]]:
    return [(c["name"], c["args"]) for m in messages if isinstance(m, AIMessage) for c in m.tool_calls]


def assert_well_formed(messages: Sequence[BaseMessage]) -> None:
    """Every call is answered once, before the next message of the model."""
    waiting: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            waiting.remove(message.tool_call_id)
        else:
            assert not waiting, "a call was left without an answer"
            if isinstance(message, AIMessage):
                waiting = {str(call["id"]) for call in message.tool_calls}
    assert not waiting


class Shop:
    """Tools of a shop. `broken` ones raise; `did` is what was executed."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.did: list[tuple[str, dict[str, Any]]] = []

    def _run(self, tool: str, output: Any, **args: Any) -> Any:
        self.did.append((tool, args))
        if tool in self.broken:
            raise RuntimeError(f"{tool} is down")
        return output

    @property
    def tools(self) -> list[Callable[..., Any]]:
        def find_customer(name: str) -> dict[str, Any]:
            """Find a customer by name; gives the customer id."""
            return self._run("find_customer", {"customer_id": f"c-{name}"}, name=name)  # type: ignore[no-any-return]

        def search_customers(name: str) -> dict[str, Any]:
            """Search customers by name; gives the customer id."""
            return self._run("search_customers", {"customer_id": f"c-{name}"}, name=name)  # type: ignore[no-any-return]

        def list_orders(customer_id: str) -> list[dict[str, Any]]:
            """List the orders of a customer."""
            order = {"order_id": f"o-{customer_id}"}
            return self._run("list_orders", [order], customer_id=customer_id)  # type: ignore[no-any-return]

        def refund_order(order_id: str, cents: int | None = None) -> str:
            """Refund an order."""
            return str(self._run("refund_order", "refunded", order_id=order_id, cents=cents))

        return [find_customer, search_customers, list_orders, refund_order]
