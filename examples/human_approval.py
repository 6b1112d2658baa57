"""A tool that a human must approve: a call that the memory makes is interrupted like any other.

Run it: ``python -m examples.human_approval``. The memory learns what was really done: an approved call as it is,
an edited call as it was edited, and from a rejected one that it was not executed. An edit or a no also counts as a
wrong proposal, so the memory holds back next time.

Here the model looks things up, the memory may propose the refund, and a human looks at it. (Right after calls of its
own the memory makes a change only once the model was asked there often enough.)
Where it should not even do that, name the tool in
``InertiaPolicy(needs_approval={"refund"})``: then the model is asked each time.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from examples.desk import DONE, POLICY, TOOLS, make_model, past_run, show, warm_memory
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware


def make_graph(model: BaseChatModel, memory: ToolMemory, checkpointer: BaseCheckpointSaver[Any] | None = None) -> Any:
    """An agent with a memory and a gate before `refund`."""
    guarded: Any = {"refund": {"allowed_decisions": ["approve", "edit", "reject"]}}
    gate = HumanInTheLoopMiddleware(guarded)
    policy = POLICY.with_(never={"find_customer", "latest_order"})
    middleware = tool_memory_middleware(memory, inside=[gate], shortcut=policy)
    return create_agent(model, TOOLS, middleware=middleware, checkpointer=checkpointer)


# For LangGraph Studio, which brings its own checkpointer. The memory has seen runs, so it acts at once.
graph = make_graph(make_model(), warm_memory())


def decide(kind: str, call: dict[str, Any]) -> dict[str, Any]:
    """What the human says to a call."""
    if kind == "edit":
        return {"type": "edit", "edited_action": {"name": call["name"], "args": {**call["args"], "amount": 5}}}
    if kind == "reject":
        return {"type": "reject", "message": "No refund for this customer."}
    return {"type": "approve"}


def main() -> None:
    """The same refund approved, edited and rejected, each with a memory that has seen the same runs."""
    for kind in ("approve", "edit", "reject"):
        memory = warm_memory()
        agent = make_graph(make_model(), memory, InMemorySaver())
        before = memory.report().tools["refund"]
        config: Any = {"configurable": {"thread_id": "thread-1"}}
        DONE.clear()
        state = agent.invoke({"messages": [("user", "Refund the order of Zoe")]}, config)
        call = state["__interrupt__"][0].value["action_requests"][0]
        print(f"\n--- {call['name']}({call['args']}) waits for a human, who says: {kind}")
        state = agent.invoke(Command(resume={"decisions": [decide(kind, call)]}), config)
        show(state["messages"])
        print(f"  executed: {[args for tool, args in DONE if tool == 'refund'] or 'nothing'}")

        after = memory.report().tools["refund"]
        refunds, wrong = after.calls - before.calls, after.wrong - before.wrong
        print(f"  learned: {refunds} executed refund(s), {wrong} wrong proposal(s)")
        until_refund = past_run("Refund the order of Quinn")[:5]
        decision = memory.inertia.explain(until_refund)
        print(f"  next refund: {'proposed again' if decision.acts else f'the model is asked, {decision.reason}'}")


if __name__ == "__main__":
    main()
