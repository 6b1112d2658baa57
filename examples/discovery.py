"""Discovery: no agent and no past runs yet, only tools on a sandbox. A tree search finds out what solves a task.

Run it: ``python -m examples.discovery``. It needs no key: `Clerk`, a policy written for this shop, says what to try.
With tools of your own a chat model does, ``Discovery(make, tasks, model=model)``. What the search found is kept in a
memory as atoms, and an agent would be shown them for a request that nobody searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.tools import StructuredTool

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.offline.discovery import (
    Discovery,
    EnvironmentCall,
    Goal,
    IntoMemory,
    Proposal,
    Reflection,
    State,
    Task,
    ToolsEnvironment,
    read_tasks,
)
from langgraph_toolmem.offline.discovery.environment import Taken
from langgraph_toolmem.offline.discovery.policy import call

TASKS = Path(__file__).with_suffix(".jsonl")
NAMES = ("Ann", "Ben", "Cleo", "Dora")


class Shop:
    """The sandbox: four customers with an order each. `reset` brings the first day back."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Nothing has happened yet."""
        self.orders = {f"O-{n}1": {"of": f"C-{n}", "state": "open", "parcel": f"P-{n}2"} for n in range(1, 5)}
        self.sent: list[str] = []

    def find_customer(self, name: str) -> dict[str, str]:
        """Find a customer by name."""
        return {"customer_id": f"C-{NAMES.index(name) + 1}", "name": name}

    def latest_order(self, customer_id: str) -> dict[str, str]:
        """Get the latest order of a customer."""
        return next({"order_id": key, **order} for key, order in self.orders.items() if order["of"] == customer_id)

    def cancel_order(self, order_id: str) -> dict[str, str]:
        """Cancel an order."""
        self.orders[order_id]["state"] = "cancelled"
        return {"order_id": order_id, "state": "cancelled"}

    def send_invoice(self, order_id: str) -> dict[str, str]:
        """Send the invoice of an order to its customer."""
        self.sent.append(order_id)
        return {"order_id": order_id, "invoice": "sent"}

    def is_done(self, task: Task) -> bool:
        """Whether what was asked for was done, and nothing else."""
        order = f"O-{NAMES.index(task.data['customer']) + 1}1"
        cancelled = [key for key, each in self.orders.items() if each["state"] == "cancelled"]
        return (cancelled, self.sent) == (([order], []) if task.data["wanted"] == "cancel" else ([], [order]))


def make() -> ToolsEnvironment:
    """An environment of its own, for ``--env`` and for each of several workers."""
    shop = Shop()
    reads = [StructuredTool.from_function(each, tags=["read_only"]) for each in (shop.find_customer, shop.latest_order)]
    tools: list[Any] = [*reads, shop.cancel_order, shop.send_invoice]
    return ToolsEnvironment(tools, reset=shop.reset, success=shop.is_done)


class Clerk:
    """A policy without a model: it proposes what can be called with what is known, and not which of it is right."""

    def plan(self, state: State) -> Goal:
        """The request is the one goal."""
        return Goal(state.task.request, 0, 1)

    def propose(self, state: State, possible: Sequence[EnvironmentCall] | None) -> Sequence[Proposal]:
        """First the customer, then the order, then what can be done with it."""
        known = {name: value for taken in state.taken for name, value in taken.observation.output.items()}
        if "order_id" in known:
            tools = (("cancel_order", "order_id"), ("send_invoice", "order_id"))
            return [call(tool, {name: known[name]}) for tool, name in tools]
        if "customer_id" in known:
            return [call("latest_order", {"customer_id": known["customer_id"]})]
        return [call("find_customer", {"name": name}) for name in NAMES if name in state.task.request]

    def widen(self, state: State) -> Sequence[Proposal]:
        """There is nothing else."""
        return ()

    def reflect(self, state: State, failed: Taken) -> Reflection:
        """Nothing is learned from a failure."""
        return Reflection("", "")


def main() -> None:
    """Searches the tasks, and asks the memory for a step that it takes from there."""
    with ToolMemory.ephemeral() as memory, Discovery(make, read_tasks(TASKS), policy=Clerk()) as discovery:
        report = discovery.run(sink=IntoMemory(memory))
        now = report.progress
        print(f"{now.solved} of {now.tasks} tasks were solved, with {report.explored} calls; {report.atoms} atoms:")
        for atom in memory.atoms.all():
            print(f"  to {atom.goal}: {atom.tool}({dict(atom.arguments)})")
        print("\nWhat an agent is shown that is to cancel the order of Dora, whom no task named, and knows the order:")
        for hit in memory.atoms.search("cancel the order of Dora", slots={"ORDER_ID": "O-41"}, k=1):
            print(f"  {hit.tool}({dict(hit.filled)})")


if __name__ == "__main__":
    main()
