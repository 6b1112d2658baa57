"""What SIT does at a model call: it suggests the tools that came next in similar situations."""

from __future__ import annotations

from typing import Any, ClassVar

from langchain_core.messages import ToolMessage

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.runs.run import OWN_TOOLS, SUMMARY_TOOL
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.sit import SIT, Advice
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.render import HEAD, to_event, to_lines
from langgraph_toolmem.sit.tool import SummaryTool
from langgraph_toolmem.turn.call import Call, Said
from langgraph_toolmem.turn.step import Step


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
        method.remember_states(self.policy)

    def look(self, call: Call) -> Advice:
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

    def say(self, call: Call, advice: Advice) -> Said:
        """Them, as advice."""
        return Said(
            lines=to_lines(advice.suggestions),
            head=HEAD,
            sure=max((each.score for each in advice.suggestions), default=0.0),
            event=to_event(advice.suggestions, missing=advice.missing),
            notes={"toolmem.suggestions": len(advice.suggestions)},
        )


def _names(call: Call) -> set[Any]:
    return {name for tool in call.offered if (name := name_of(tool)) is not None and name not in OWN_TOOLS}
