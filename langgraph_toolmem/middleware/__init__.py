"""The memory as LangChain middleware, for ``create_agent``.

>>> agent = create_agent(model, tools, middleware=tool_memory_middleware(memory))  # doctest: +SKIP
"""

from langgraph_toolmem.base import errors as _errors

try:
    import langchain.agents.middleware  # noqa: F401
except ImportError as error:
    raise _errors.MissingExtraError("langgraph_toolmem.middleware", "agents") from error

from langgraph_toolmem.middleware.assembly import tool_memory_middleware
from langgraph_toolmem.middleware.chains import ToolChainMiddleware
from langgraph_toolmem.middleware.inertia import InertiaMiddleware
from langgraph_toolmem.middleware.preferences import PreferenceMiddleware
from langgraph_toolmem.middleware.recall import RecallMiddleware
from langgraph_toolmem.middleware.recorder import RecorderMiddleware
from langgraph_toolmem.middleware.reflection import ReflectionMiddleware
from langgraph_toolmem.middleware.sga import SGAMiddleware
from langgraph_toolmem.middleware.sit import SITMiddleware

__all__ = [
    "InertiaMiddleware",
    "PreferenceMiddleware",
    "RecallMiddleware",
    "RecorderMiddleware",
    "ReflectionMiddleware",
    "SGAMiddleware",
    "SITMiddleware",
    "ToolChainMiddleware",
    "tool_memory_middleware",
]
