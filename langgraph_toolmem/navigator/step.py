"""The navigator's step at a model call: tools that similar requests called are revealed before anybody searches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, Final

from langgraph_toolmem.navigator import Navigator
from langgraph_toolmem.navigator.deferred import DeferredTools, ToolSearch, described, revealed_in, way_of
from langgraph_toolmem.runs.run import OWN_TOOLS
from langgraph_toolmem.runs.tools import ToolLike, read_tools
from langgraph_toolmem.turn.call import NOTHING, Call, Line, Scope, StepOutput
from langgraph_toolmem.turn.step import Step

SURE: Final = 0.55
"""Share of the votes of similar requests from which on a tool is revealed without a search."""
_HEAD: Final = "Runs with similar requests called these tools; call_tool calls them, search_tools finds others:"


class RevealTools(Step[Navigator]):
    """Has the model find its tools by a search, and shows those at once that similar requests called."""

    role: ClassVar[str] = "tool_search"
    about: ClassVar[str] = "shows the tools that similar requests called; calls no model"
    scope: Scope = "turn"

    def __init__(
        self,
        method: Navigator,
        tools: Iterable[ToolLike] | None = None,
        *,
        search: ToolSearch | None = None,
        always: Iterable[str] = (),
        messages_key: str = "messages",
    ) -> None:
        super().__init__(method)
        search = search or ToolSearch()
        self.deferred = DeferredTools(method, replace(search, always=(*search.always, *always)), messages_key)
        self.tools = self.deferred.tools
        self.given = None if tools is None else [*tools, *self.tools]
        if self.given is not None:
            specs = read_tools(self.given)
            self.core.catalogue.adopt({name: spec for name, spec in specs.items() if name not in OWN_TOOLS})

    def compute(self, call: Call) -> StepOutput:
        """The tools that similar requests called, of those that are found by search."""
        if way_of(call.model, self.deferred.options.mode) != "portable":
            return NOTHING
        tools = self.given if self.given is not None else call.offered
        deferred = {*self.deferred.names(tools)} - call.left_out.keys() - revealed_in(call.messages).keys()
        precedents = self.method.tool_search.precedents(call.user_id) if deferred else None
        if precedents is None:
            return NOTHING
        votes = precedents.votes(self.core.read(call.messages, call.thread_id).request)
        specs = self.deferred.specs(tools)
        sure = [name for name, vote in votes.items() if vote >= SURE and name in deferred and name in specs]
        found = sorted(sure, key=lambda name: (-votes[name], name))[: self.deferred.options.k]
        if not found:
            return NOTHING
        return StepOutput(
            lines=[Line(described(specs[name]), name) for name in found],
            head=_HEAD,
            sure=votes[found[0]],
            brief=(),
            event={"revealed": found},
            notes={"toolmem.revealed": len(found)},
        )
