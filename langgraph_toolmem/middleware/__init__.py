"""The memory as LangChain middleware, for ``create_agent``.

>>> agent = create_agent(model, tools, middleware=tool_memory_middleware(memory))  # doctest: +SKIP
"""

from langgraph_toolmem.base import errors as _errors

try:
    import langchain.agents.middleware  # noqa: F401
except ImportError as error:
    raise _errors.MissingExtraError("langgraph_toolmem.middleware", "agents") from error

from langgraph_toolmem.middleware.assembly import LoopGuardMiddleware, tool_memory_middleware

__all__ = ["LoopGuardMiddleware", "tool_memory_middleware"]
