"""SIT at a model call: it suggests the tools that came next in similar situations, and has the summary tool.

With the summary tool the agent writes down where it stands, and gets the likeliest continuations back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Final

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, ConfigDict, Field

from langgraph_toolmem.base.checks import policy_given
from langgraph_toolmem.base.text import printable
from langgraph_toolmem.runs.run import OWN_TOOLS, SUMMARY_TOOL
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.sit import SIT, Advice
from langgraph_toolmem.sit.suggest import SITPolicy, Suggestion
from langgraph_toolmem.turn.hints import Line, StepOutput
from langgraph_toolmem.turn.host import ErrorLog, read_key, thread_id_of, user_id_of
from langgraph_toolmem.turn.step import Call, Step

HEAD: Final = "Likely next tools, from past runs:"


def to_lines(suggestions: Sequence[Suggestion]) -> list[Line]:
    lines: list[Line] = []
    for each in suggestions:
        text = f"- {printable(each.tool)}: {printable(each.evidence)}."
        lines.append(Line(text, about=each.tool, item=each.tool))
    return lines


def to_prompt(suggestions: Sequence[Suggestion]) -> str:
    """Return advice in a few lines, as the summary tool answers; "" if there is none."""
    return "\n".join([HEAD, *(line.text for line in to_lines(suggestions))]) if suggestions else ""


def to_event(suggestions: Sequence[Suggestion]) -> dict[str, Any]:
    return {"suggestions": [{**asdict(each), "score": round(each.score, 4)} for each in suggestions]}


# --- the summary tool ---

DESCRIPTION: Final = (
    "Use when you are not sure which tool comes next. Write a short summary of what the user wants, what was done, "
    "what came back and what is still open; name the symptom if something is unclear. Returns the look-ups that past "
    "successful runs made in similar situations. Changes nothing."
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


def make_summary_tool(method: SIT, policy: SITPolicy | None, messages_key: str) -> BaseTool:
    """Return ``summarize_state``: any ToolNode can run it; called outside a graph it knows the summary alone."""
    errors = ErrorLog(SUMMARY_TOOL, logging.getLogger("langgraph_toolmem.sit"))

    def answer(summary: str, runtime: ToolRuntime[Any, Any] | None = None) -> str:
        try:
            messages, who = _where(runtime, messages_key)
            if messages and method.core.held_out(messages, who["thread_id"]):
                return NOTHING
            advice = method.advise(messages, summary=summary, policy=policy, **who)
            found = advice.suggestions
            method.note_shown(advice, [each.tool for each in found])
        except Exception as error:  # noqa: BLE001 - the run goes on
            errors.failed(error)
            return f"No suggestion: the memory could not be asked ({type(error).__name__}). Go on as you think best."
        return to_prompt(found) or NOTHING

    how: dict[str, Any] = {"name": SUMMARY_TOOL, "description": DESCRIPTION, "args_schema": SummarizeState}
    return StructuredTool.from_function(answer, **how, tags=["read_only", "idempotent"])


def _where(runtime: ToolRuntime[Any, Any] | None, messages_key: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the history as it will be once the call is answered, and its owner. Outside a graph there is none."""
    if runtime is None:
        return [], {}
    messages = list(read_key(runtime.state, messages_key) or ())
    if messages and runtime.tool_call_id:
        messages.append(ToolMessage("", tool_call_id=runtime.tool_call_id, name=SUMMARY_TOOL))
    config: Mapping[str, Any] = runtime.config or {}
    return messages, {"thread_id": thread_id_of(config), "user_id": user_id_of(config, runtime)}  # type: ignore[arg-type]


# --- the step ---


class Suggest(Step[SIT]):
    """Puts the likeliest next tools before the model; see `SITSummary` for the arguments."""

    role: ClassVar[str] = "sit"
    about: ClassVar[str] = "suggests next tools from similar past states; calls no model"

    def __init__(
        self,
        method: SIT,
        *,
        policy: SITPolicy | None = None,
        summary_tool: bool = True,
        messages_key: str = "messages",
    ) -> None:
        super().__init__(method)
        self.policy = policy_given(policy, SITPolicy)
        self.tool = make_summary_tool(method, self.policy, messages_key)
        self.tools = [self.tool] if summary_tool else []

    def compute(self, call: Call) -> Advice | None:
        """Return the suggestions, unless the agent has just asked for some."""
        last = call.messages[-1] if call.messages else None
        if isinstance(last, ToolMessage) and last.name == SUMMARY_TOOL:
            return None
        return self.method.advise(
            call.messages,
            policy=self.policy,
            available=None if call.tools is None else set(filter(None, map(name_of, call.offered))) - OWN_TOOLS,
            tools=call.tools,
            thread_id=call.thread_id,
            user_id=call.user_id,
        )

    def render(self, call: Call, found: Advice | None) -> StepOutput:
        """Return a line for each suggestion."""
        suggestions = () if found is None else found.suggestions

        def seen(lines: Sequence[Line]) -> Sequence[Line]:
            lines = self.drawn(call, lines)
            if found is not None:
                self.record(lambda: self.method.note_shown(found, [line.about for line in lines]))
            return lines

        return StepOutput(
            lines=self.on_trial(call, to_lines(suggestions)),
            head=HEAD,
            sure=max((each.score for each in suggestions), default=0.0),
            event=to_event(suggestions),
            notes={"toolmem.suggestions": len(suggestions)},
            seen=seen,
        )
