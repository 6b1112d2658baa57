"""The search tool: the model asks in words for tools that it was not offered, and gets complete chains."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any, Final

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field

from langgraph_toolmem.navigator.select.candidates import find_candidates
from langgraph_toolmem.navigator.select.selection import Selection, searched_for, select_tools
from langgraph_toolmem.runs.run import OWN_TOOLS, SEARCH_TOOL
from langgraph_toolmem.turn.hints import new_selected
from langgraph_toolmem.turn.host import ErrorLog, emit, read_key, user_id_of
from langgraph_toolmem.turn.telemetry import annotate

DESCRIPTION: Final = (
    "Search for more tools. Only some of the tools are shown to you. If none of them does what is needed, say in a few "
    "words what the missing one should do. The tools found can be called from your next step on. Changes nothing."
)
NOTHING: Final = "No tool fits these words. Try other words, or go on with the tools you have."
FOUND: Final = 8
"""Tools that one search brings, at most."""
MAX_LINE: Final = 160


class SearchTools(BaseModel):
    """Arguments of the search tool."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    query: str = Field(description="What the tool should do, in a few words.")
    # Optional in its default only: a union would become part of the schema that the model sees.
    runtime: ToolRuntime[Any, Any] = Field(default=None)  # type: ignore[arg-type]


class SearchTool(BaseTool):
    """``search_more_tools``: any ToolNode can run it; sync and async. What it finds joins the selection in
    the private state.

    Args:
        navigator: it knows the tools.
        names_of: the tools that may be found; those of the ToolNode, else all it knows, if None.
        targets: tools found that bring their chain.
        messages_key: key of the messages in the host's state.
    """

    name: str = SEARCH_TOOL
    description: str = DESCRIPTION
    args_schema: Any = SearchTools
    tags: list[str] | None = Field(default_factory=lambda: ["read_only", "idempotent"])
    navigator: Any = Field(exclude=True, repr=False)
    names_of: Any = Field(default=None, exclude=True, repr=False)
    targets: int = 3
    messages_key: str = "messages"
    _errors: Any = None

    def model_post_init(self, context: Any, /) -> None:
        """Its failures are logged once each."""
        super().model_post_init(context)
        self._errors = ErrorLog(SEARCH_TOOL, logging.getLogger("langgraph_toolmem.navigator"))

    def _run(self, query: str, runtime: ToolRuntime[Any, Any] | None = None) -> Any:
        try:
            names = self._names(runtime)
            user = None if runtime is None else user_id_of(runtime.config or None, runtime)
            found = find_candidates(self.navigator, query, names, most=FOUND, targets=self.targets, user_id=user)
            chosen = select_tools(found.plan, found.hits, most=FOUND, available=names)
            text = self._said(chosen)
        except Exception as error:  # noqa: BLE001 - the run goes on
            self._errors.failed(error)
            return f"The tools could not be searched ({type(error).__name__}). Go on with the tools you have."
        if runtime is None or not runtime.tool_call_id:
            return text
        annotate({"toolmem.node": SEARCH_TOOL, "toolmem.offered": len(chosen.tools)})
        emit(runtime, {"node": SEARCH_TOOL, "query": query, **chosen.to_event(len(names))})  # type: ignore[arg-type]
        answer = ToolMessage(text, tool_call_id=runtime.tool_call_id, name=SEARCH_TOOL)
        messages = read_key(runtime.state, self.messages_key) or ()
        return Command(update={self.messages_key: [answer], **new_selected(searched_for(chosen, query), messages)})

    async def _arun(self, query: str, runtime: ToolRuntime[Any, Any] | None = None) -> Any:
        return await asyncio.to_thread(self._run, query, runtime)

    def _names(self, runtime: ToolRuntime[Any, Any] | None) -> Collection[str]:
        names: Collection[str] | None = None if self.names_of is None else self.names_of(runtime)
        if names is None:
            names = [tool.name for tool in getattr(runtime, "tools", None) or ()] or list(self.navigator.tools)
        return frozenset(names) - OWN_TOOLS

    def _said(self, chosen: Selection) -> str:
        if not chosen.tools:
            return NOTHING
        specs = self.navigator.tools
        lines = ["You can call these from now on:"]
        for name, reason in chosen.tools.items():
            spec = specs.get(name)
            about = " ".join(spec.description.split()) if spec is not None else ""
            about = about if len(about) <= MAX_LINE else f"{about[: MAX_LINE - 1]}…"
            lines.append(f"- {name}: {about} [{reason}]" if about else f"- {name} [{reason}]")
        return "\n".join(lines)
