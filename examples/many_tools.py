"""Many tools: the model finds those that the request needs by a search, as complete chains.

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
from langgraph_toolmem.testing import ScriptedChatModel

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
    """An agent with many tools, whose model finds them by a search: its list of tools stays the same."""
    # Without shortcuts, to see all calls of the model.
    return create_agent(model, tools, middleware=tool_memory_middleware(memory, tool_search=True, shortcut=False))


def ask(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]] = ()) -> AIMessage:
    """The model: searches for what the request needs, and calls what was found."""
    request, results = messages[0].text, [m for m in messages if m.type == "tool"]
    if not results:
        return calling("search_tools", query=request)
    if "order" not in request:
        deed = calling("call_tool", name="finance_archive_warehouse", arguments={"warehouse_id": "W-7"})
        return deed if len(results) == 1 else AIMessage("Building 7 is archived.")
    answer = reply([m for m in messages if m not in results[:1] and not _is_search(m)], tools)
    for call in answer.tool_calls:
        call["args"] = {"name": call["name"], "arguments": call["args"]}
        call["name"] = "call_tool"
    return answer


def _is_search(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and any(call["name"] == "search_tools" for call in message.tool_calls)


def main() -> None:
    """Two requests, with what was found and called."""
    tools = [*generated(), *TOOLS]
    model = ScriptedChatModel(script=ask)
    with ToolMemory.ephemeral(tools=tools) as memory:
        for i, text in enumerate(requests(9)):  # past runs show which tool gives what
            memory.finish(past_run(text), thread_id=f"past-{i}", success=True)
        agent = make_graph(model, tools, memory)
        for text in ("Refund the order of Ann", "Archive a warehouse of the finance department"):
            print(f"\n> {text}")
            for mode, part in agent.stream({"messages": [("user", text)]}, stream_mode=["custom", "updates"]):
                if mode == "custom" and part["toolmem"]["node"] == "search_tools":
                    for name, why in part["toolmem"]["found"].items():
                        print(f"    {name} {why}")
                for message in part.get("model", {}).get("messages", ()) if mode == "updates" else ():
                    for call in message.tool_calls:
                        print(f"  {call['name']}({json.dumps(call['args'])})")
                    if message.text:
                        print(f"  {message.text}")
        memory.flush()
        print(f"\n{next(line for line in memory.report().sentences() if line.startswith('Tool search'))}")


if __name__ == "__main__":
    main()
