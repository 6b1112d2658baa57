"""The summary tool: the agent writes down where it stands, and gets the likeliest continuations back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, ConfigDict, Field

from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.sit.render import to_prompt
from langgraph_toolmem.turn.host import ErrorLog, read_key, thread_id_of, user_id_of

DESCRIPTION: Final = (
    "Use when you are not sure which tool comes next. Write a short summary of what the user wants, what was done, "
    "what came back and what is still open; name the symptom if something is unclear. Returns the tools that past "
    "successful runs called in similar situations. Changes nothing."
)
NOTHING: Final = "Nothing like this was seen before. Go on as you think best."


class SummarizeState(BaseModel):
    """Arguments of the summary tool."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    summary: str = Field(
        description="The present state in a few sentences: the request, the calls so far, their results, what is open."
    )
    # Optional in its default only: a union would become part of the schema that the model sees.
    runtime: ToolRuntime[Any, Any] = Field(default=None)  # type: ignore[arg-type]


class SummaryTool(BaseTool):
    """``summarize_state``: any ToolNode can run it; sync and async. Called outside a graph it knows the summary alone.

    Args:
        method: of the memory.
        policy: how the evidence is used; the method's own if None.
        messages_key: key of the messages in the host's state.
    """

    name: str = SUMMARY_TOOL
    description: str = DESCRIPTION
    args_schema: Any = SummarizeState
    tags: list[str] | None = Field(default_factory=lambda: ["read_only", "idempotent"])
    method: Any = Field(exclude=True, repr=False)
    policy: Any = Field(default=None, exclude=True, repr=False)
    messages_key: str = "messages"
    _errors: Any = None

    def model_post_init(self, context: Any, /) -> None:
        """Its failures are logged once each."""
        super().model_post_init(context)
        self._errors = ErrorLog(SUMMARY_TOOL, logging.getLogger("langgraph_toolmem.sit"))

    def _run(self, summary: str, runtime: ToolRuntime[Any, Any] | None = None) -> str:
        try:
            messages, who = self._where(runtime)
            if messages and self.method.core.held_out(messages, who["thread_id"]):
                return NOTHING
            advice = self.method.advise(messages, summary=summary, policy=self.policy, shown=True, **who)
        except Exception as error:  # noqa: BLE001 - the run goes on
            self._errors.failed(error)
            return f"No suggestion: the memory could not be asked ({type(error).__name__}). Go on as you think best."
        return to_prompt(advice.suggestions, missing=advice.missing) or NOTHING

    async def _arun(self, summary: str, runtime: ToolRuntime[Any, Any] | None = None) -> str:
        return await asyncio.to_thread(self._run, summary, runtime)

    def _where(self, runtime: ToolRuntime[Any, Any] | None) -> tuple[list[Any], dict[str, Any]]:
        """The history as it will be once this call is answered, and whose it is. Outside a graph there is none."""
        if runtime is None:
            return [], {}
        messages = list(read_key(runtime.state, self.messages_key) or ())
        if runtime.tool_call_id:
            messages.append(ToolMessage("", tool_call_id=runtime.tool_call_id, name=SUMMARY_TOOL))
        config: Mapping[str, Any] = runtime.config or {}
        return messages, {"thread_id": thread_id_of(config), "user_id": user_id_of(config, runtime)}  # type: ignore[arg-type]
