"""SIT at a model call: it suggests the tools that came next in similar situations, and has the summary tool.

With the summary tool the agent writes down its present state, and gets the most likely continuations back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, ConfigDict, Field

from langgraph_toolmem.base.checks import policy_given
from langgraph_toolmem.base.text import printable
from langgraph_toolmem.core.users import NOBODY, Owner
from langgraph_toolmem.runs.run import OWN_TOOLS, SUMMARY_TOOL
from langgraph_toolmem.runs.tools import names_of
from langgraph_toolmem.sit import SIT, Advice
from langgraph_toolmem.sit.suggest import SITPolicy, Suggestion
from langgraph_toolmem.turn.hints import Line, StepOutput
from langgraph_toolmem.turn.host import ErrorLog, read_key, thread_id_of, user_id_of
from langgraph_toolmem.turn.step import Call, Step

TOOLS_HEAD: Final = "Likely next tools, from past runs:"


def to_lines(suggestions: Sequence[Suggestion]) -> list[Line]:
    lines: list[Line] = []
    for suggestion in suggestions:
        text = f"- {printable(suggestion.tool)}: {printable(suggestion.evidence)}."
        lines.append(Line(text, about=suggestion.tool, item=suggestion.tool))
    return lines


def to_prompt(suggestions: Sequence[Suggestion]) -> str:
    """Return advice in a few lines, as the answer of the summary tool; "" without advice."""
    if not suggestions:
        return ""
    texts = [line.text for line in to_lines(suggestions)]
    return "\n".join([TOOLS_HEAD, *texts])


def to_event(suggestions: Sequence[Suggestion]) -> dict[str, Any]:
    plain = []
    for suggestion in suggestions:
        fields = asdict(suggestion)
        fields["score"] = round(suggestion.score, 4)
        plain.append(fields)
    return {"suggestions": plain}


# --- the summary tool ---


class SummarizeState(BaseModel):
    """Arguments of the summary tool."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    summary: str = Field(
        description="The present state in a few sentences: the request, the calls so far, their results, what is open."
    )
    # Optional only by its default: a union would become part of the schema that the model sees.
    runtime: ToolRuntime[Any, Any] = Field(default=None)  # type: ignore[arg-type]


def make_summary_tool(method: SIT, policy: SITPolicy | None, messages_key: str) -> BaseTool:
    """Return ``summarize_state``, which any ToolNode can run. Outside a graph it knows only the summary."""
    errors = ErrorLog(SUMMARY_TOOL, logging.getLogger("langgraph_toolmem.sit"))
    nothing = "Nothing like this was seen before. Go on as you think best."

    def answer(summary: str, runtime: ToolRuntime[Any, Any] | None = None) -> str:
        try:
            summary_call = _summary_call(runtime, messages_key)
            messages, owner = summary_call.messages, summary_call.owner
            # In a held-out episode the model may still call the tool, but gets no advice.
            if messages and method.core.held_out(messages, owner.thread_id):
                return nothing
            advice = method.advise(messages, owner, summary=summary, policy=policy)
            method.note_shown(advice, [suggestion.tool for suggestion in advice.suggestions])
        except Exception as error:  # noqa: BLE001 - the run goes on
            errors.failed(error)
            return f"No suggestion: the memory could not be asked ({type(error).__name__}). Go on as you think best."
        return to_prompt(advice.suggestions) or nothing

    return StructuredTool.from_function(
        answer,
        name=SUMMARY_TOOL,
        description=(
            "Use when you are not sure which tool comes next. Write a short summary of what the user wants, what was "
            "done, what came back and what is still open; name the symptom if something is unclear. Returns the "
            "look-ups that past successful runs made in similar situations. Changes nothing."
        ),
        args_schema=SummarizeState,
        tags=["read_only", "idempotent"],
    )


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """The history in which the summary tool is called, and its owner; empty outside a graph."""

    messages: list[Any] = field(default_factory=list)
    owner: Owner = NOBODY


def _summary_call(runtime: ToolRuntime[Any, Any] | None, messages_key: str) -> SummaryCall:
    """Return the history as it will be once the call is answered: the summary's turn ends it."""
    if runtime is None:
        return SummaryCall()
    messages = list(read_key(runtime.state, messages_key) or ())
    # A call without an answer is pending: the turn of the summary would not be over, and its text would be ignored.
    if messages and runtime.tool_call_id:
        messages.append(ToolMessage("", tool_call_id=runtime.tool_call_id, name=SUMMARY_TOOL))
    config: RunnableConfig = runtime.config or {}
    return SummaryCall(messages, Owner(thread_id_of(config), user_id_of(config, runtime)))


# --- the step ---


def _ends_with_summary(messages: Sequence[Any]) -> bool:
    if not messages:
        return False
    last = messages[-1]
    return isinstance(last, ToolMessage) and last.name == SUMMARY_TOOL


class Suggest(Step[SIT]):
    """Shows the most likely next tools to the model; see `SITSummary` for the arguments."""

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
        self.tools = []
        if summary_tool:
            self.tools.append(self.tool)

    def compute(self, call: Call) -> Advice | None:
        """Return the suggestions, unless the agent has just asked for some."""
        # The answer of the summary tool contains them, for a state that the agent itself described.
        if _ends_with_summary(call.messages):
            return None
        available = None
        if call.tools is not None:
            available = names_of(call.offered) - OWN_TOOLS
        return self.method.advise(call.messages, call.owner, policy=self.policy, available=available, tools=call.tools)

    def render(self, call: Call, found: Advice | None) -> StepOutput:
        """Return a line for each suggestion."""
        suggestions: tuple[Suggestion, ...] = ()
        if found is not None:
            suggestions = found.suggestions

        def seen(lines: Sequence[Line]) -> Sequence[Line]:
            # Recorded here, where the lines with room in the request are known: the ledger counts only shown lines.
            shown = self.drawn(call, lines)
            if found is not None:
                tools = [line.about for line in shown]
                with self.errors:
                    self.method.note_shown(found, tools)
            return shown

        return StepOutput(
            lines=self.on_trial(call, to_lines(suggestions)),
            head=TOOLS_HEAD,
            sure=max((suggestion.score for suggestion in suggestions), default=0.0),
            event=to_event(suggestions),
            notes={"toolmem.suggestions": len(suggestions)},
            seen=seen,
        )
