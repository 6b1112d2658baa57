"""SIT at a model call: it suggests the tools that came next in similar situations, and has the summary tool.

With the summary tool the agent writes down where it stands, and gets the likeliest continuations back.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Final

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, ConfigDict, Field

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import printable, quoted
from langgraph_toolmem.runs.run import OWN_TOOLS, SUMMARY_TOOL
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.sit import SIT, Advice
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.suggest import Suggestion
from langgraph_toolmem.turn.call import Call, Line, StepOutput
from langgraph_toolmem.turn.host import ErrorLog, read_key, thread_id_of, user_id_of
from langgraph_toolmem.turn.step import Step

MAX_SUMMARY: Final = 240
"""Characters of a past state that the model is shown."""
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|[^\s,;:()]*[\d@][^\s,;:()]*")
HEAD: Final = "Likely next tools, from past runs:"


def to_prompt(suggestions: Sequence[Suggestion], *, missing: str = "", with_states: bool = True) -> str:
    """Advice in a few lines, as the summary tool answers; "" if there is nothing to say.

    Args:
        suggestions: best first.
        missing: what could not be read, with the error in brackets, which is not for the model.
        with_states: quote the past state that speaks for a tool.
    """
    lines = [line.text for line in to_lines(suggestions, with_states=with_states)]
    if missing:
        lines.append(f"Not looked at: {missing.partition(' (')[0]}.")
    return "\n".join([HEAD, *lines] if suggestions else lines)


def to_lines(suggestions: Sequence[Suggestion], *, with_states: bool = False) -> list[Line]:
    """A line for each suggestion; what other runs said stands in quotes."""
    lines = []
    for suggestion in suggestions:
        # The tool's answer says it all and stays in the thread; a hint says the strongest reason, and goes.
        said = suggestion.evidence if with_states else suggestion.evidence.partition("; ")[0]
        if with_states and suggestion.summary:
            said += f". A past state that led to it: {quoted(_without_values(suggestion.summary), MAX_SUMMARY)}"
        lines.append(Line(f"- {printable(suggestion.tool)}: {said}.", suggestion.tool))
    return lines


def to_event(suggestions: Sequence[Suggestion], *, missing: str = "", **more: Any) -> dict[str, Any]:
    """Plain values for a stream event."""
    plain = [{**asdict(s), "score": round(s.score, 4)} for s in suggestions]
    return {"suggestions": plain, "missing": missing, **more}


def _without_values(text: str) -> str:
    """Return a past state without values of its request: of an extract what was done and how it looked, no ids."""
    lines = text.splitlines()
    done = next((i for i, line in enumerate(lines) if line.startswith("Done: ")), 0)
    return _VALUE.sub("…", "\n".join(lines[done:]))


# --- the summary tool ---

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


# --- the step ---


class Suggest(Step[SIT]):
    """Puts the likeliest next tools before the model; see `SITSummary` for the arguments.

    Args:
        method: whose step it is.
        policy: how states are compared; the method's own if None.
        summary_tool: give the agent the summary tool.
        messages_key: key of the messages in the host's state, for the tool.
    """

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
        if policy is not None and not isinstance(policy, SITPolicy):
            raise ConfigurationError(f"policy is a SITPolicy, not {type(policy).__name__}.")
        self.policy = policy or method.policy
        self.tool = SummaryTool(method=method, policy=policy, messages_key=messages_key)
        self.tools = [self.tool] if summary_tool else []
        method.store_for(self.policy)

    def compute(self, call: Call) -> Advice:
        """The suggestions; none right after the summary tool gave some."""
        last = call.messages[-1] if call.messages else None
        if isinstance(last, ToolMessage) and last.name == SUMMARY_TOOL:
            return Advice([])
        return self.method.advise(
            call.messages,
            policy=self.policy,
            available=None if call.tools is None else _names(call),
            tools=call.tools,
            thread_id=call.thread_id,
            user_id=call.user_id,
            shown=True,
        )

    def render(self, call: Call, advice: Advice) -> StepOutput:
        """Them, as advice."""
        return StepOutput(
            lines=to_lines(advice.suggestions),
            head=HEAD,
            sure=max((each.score for each in advice.suggestions), default=0.0),
            event=to_event(advice.suggestions, missing=advice.missing),
            notes={"toolmem.suggestions": len(advice.suggestions)},
        )


def _names(call: Call) -> set[Any]:
    return {name for tool in call.offered if (name := name_of(tool)) is not None and name not in OWN_TOOLS}
