"""The memory at a chat model, for any graph.

>>> model = with_tool_memory(ChatOpenAI(model="gpt-5.1"), memory, tools=tools)  # doctest: +SKIP
"""

from langgraph_toolmem.models.wrapped import with_tool_memory

__all__ = ["with_tool_memory"]
