"""Many tools: the model is offered those that the request needs, as complete chains, and can ask for more.

Run it: ``python -m examples.many_tools``. The agent has the desk's tools among 300 others. "Refund the order of Ann"
fits `refund` by its words. What that one needs two others give, and `find_customer` shares no word with the request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, StructuredTool

from examples.desk import TOOLS, calling, past_run, reply, requests
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, count_tokens

MOST = 12
"""Tools that the model is offered."""
THINGS = ("invoice", "ticket", "contract", "meeting", "vehicle", "warehouse", "employee", "course", "room", "license")
DEEDS = ("create", "update", "delete", "list", "search", "archive", "export", "approve", "assign", "print")
PLACES = ("sales", "support", "finance")


def generated() -> list[BaseTool]:
    """300 tools of other departments."""
    return [_tool(place, deed, thing) for place in PLACES for deed in DEEDS for thing in THINGS]


def _tool(place: str, deed: str, thing: str) -> BaseTool:
    def act(**args: str) -> str:
        return json.dumps({"done": True, **args})

    key = "text" if deed == "search" else f"{thing}_id"
    schema = {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    about = f"{deed.capitalize()} a {thing} of the {place} department."
    return StructuredTool(name=f"{place}_{deed}_{thing}", description=about, args_schema=schema, func=act)


def make_graph(model: BaseChatModel, tools: Sequence[BaseTool], memory: ToolMemory) -> Any:
    """An agent with many tools, of which each model call sees a few."""
    # Without shortcuts, to see all calls of the model.
    return create_agent(model, tools, middleware=tool_memory_middleware(memory, chains=MOST, shortcut=False))


def ask(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]] = ()) -> AIMessage:
    """The model: works with what it is offered, and asks for what is missing."""
    request, results = messages[0].text, [m for m in messages if m.type == "tool"]
    if "order" in request:
        return reply(messages, tools)
    if not results:  # none of the offered tools does that
        return calling("search_more_tools", query="archive a warehouse of the finance department")
    if len(results) == 1:
        return calling("finance_archive_warehouse", warehouse_id="W-7")
    return AIMessage("Building 7 is archived.")


def main() -> None:
    """Two requests, with what the model was offered."""
    tools = [*generated(), *TOOLS]
    model = ScriptedChatModel(script=ask)
    with ToolMemory.ephemeral(tools=tools) as memory:
        for i, text in enumerate(requests(9)):  # past runs show which tool gives what
            memory.finish(past_run(text), thread_id=f"past-{i}", success=True)
        agent = make_graph(model, tools, memory)
        for text in ("Refund the order of Ann", "Put building 7 away"):
            print(f"\n> {text}")
            for mode, part in agent.stream({"messages": [("user", text)]}, stream_mode=["custom", "updates"]):
                if mode == "custom" and part["toolmem"]["node"] in ("chains", "search_more_tools"):
                    offered = part["toolmem"]["offered"]
                    print(f"  {part['toolmem']['node']}: {len(offered)} of {part['toolmem']['of']} tools")
                    for name in [*offered][:3]:
                        print(f"    {name}: {offered[name]}")
                for message in part.get("model", {}).get("messages", ()) if mode == "updates" else ():
                    for call in message.tool_calls:
                        print(f"  {call['name']}({json.dumps(call['args'])})")
                    if message.text:
                        print(f"  {message.text}")
        seen = sum(count_tokens(list(call.tools)) for call in model.calls)
        all_tools = len(model.calls) * count_tokens([tool.description for tool in tools])
        print(f"\n{len(model.calls)} model calls read about {seen:,} tokens of tool schemas.")
        print(f"The descriptions of all tools alone would have been {all_tools:,}.")


if __name__ == "__main__":
    main()
