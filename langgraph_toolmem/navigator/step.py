"""What the navigator does at a model call: the model is offered what the request needs, as complete chains."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.checks import is_count, names_given
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator import Navigator
from langgraph_toolmem.navigator.select.candidates import (
    MOST,
    Candidates,
    find_reroutes,
    progress_of,
    turn_candidates,
)
from langgraph_toolmem.navigator.select.search_tool import SearchTool
from langgraph_toolmem.navigator.select.selection import Reroute, Selection, select_tools
from langgraph_toolmem.navigator.tool_search.hit import TARGETS
from langgraph_toolmem.runs.run import OWN_TOOLS, SEARCH_TOOL
from langgraph_toolmem.runs.tools import ToolLike, read_tools
from langgraph_toolmem.turn.call import Call, StepOutput
from langgraph_toolmem.turn.hints import SELECTED, Selected, merge_selected, new_selected, selected_now
from langgraph_toolmem.turn.host import read_key, thread_id_of, user_id_of
from langgraph_toolmem.turn.memo import Memo
from langgraph_toolmem.turn.step import Keeps, Place, Step

__all__ = ["MOST", "TARGETS", "SelectTools"]

_NOT_NEEDED: Final = "not needed for this request"


class SelectTools(Step[Navigator]):
    """Offers the model the tools that a request needs, where there are many; see `ToolRetriever` for the arguments.

    What fits the request is looked up once per user turn; when a call fails, the tools of another way join.
    """

    role: ClassVar[str] = "chains"
    about: ClassVar[str] = "chooses the tools that the model is offered; calls no model"
    place: ClassVar[Place] = "around"
    keeps: ClassVar[Keeps] = {SELECTED: (Selected, merge_selected)}

    def __init__(
        self,
        method: Navigator,
        tools: Iterable[ToolLike] | None = None,
        *,
        most: int = MOST,
        targets: int = TARGETS,
        always: Iterable[str] = (),
        search_tool: bool = True,
        messages_key: str = "messages",
    ) -> None:
        super().__init__(method)
        for name, value in (("most", most), ("targets", targets)):
            if not is_count(value, 1):
                raise ConfigurationError(f"{name} is a whole number from 1, not {value!r}.")
        self.most, self.targets, self._messages_key = most, targets, messages_key
        self.always = tuple(name for name in names_given("always", always) if name not in OWN_TOOLS)
        specs = None if tools is None else read_tools(tools)
        if specs is not None and SEARCH_TOOL in specs:
            raise ConfigurationError(f"{SEARCH_TOOL!r} is the name of the search tool; none of the tools may have it.")
        self._specs = None if specs is None else {n: spec for n, spec in specs.items() if n not in OWN_TOOLS}
        if self._specs is not None:
            self.core.catalogue.adopt(self._specs)
        self.tool = SearchTool(navigator=method, names_of=self._at_hand, targets=targets, messages_key=messages_key)
        self.tools = [self.tool] if search_tool else []
        self._turns = Memo("turn")

    def compute(self, call: Call) -> StepOutput:
        """What this model call is offered."""
        names = self._names(call)
        if len(names) <= self.most:  # there is nothing to search for
            return StepOutput(left_out={SEARCH_TOOL: "all tools are offered"})
        kept = self._turns.get(call, self.core.forgettings)
        turn: _Turn = (kept or self._turns.put(call, self.core.forgettings, _Turn())).found
        in_graph, known = call.tools is None, selected_now(call.state, messages_key=call.messages_key)
        chosen = None if turn.broken else self._chosen(call, turn, names, known["tools"] if known else {})
        if chosen is None:
            return StepOutput(left_out={SEARCH_TOOL: "all tools are offered"})
        told, turn.told = turn.told, chosen
        if chosen == told or (in_graph and known is not None and chosen.tools.keys() <= known["tools"].keys()):
            return StepOutput(left_out={name: _NOT_NEEDED for name in names if name not in chosen.tools})
        return StepOutput(
            left_out={name: _NOT_NEEDED for name in names if name not in chosen.tools},
            state=new_selected(chosen.tools, call.messages) if in_graph else {},
            event=chosen.to_event(len(names)),
            notes={"toolmem.offered": len(chosen.tools), "toolmem.of": len(names)},
        )

    def _chosen(self, call: Call, turn: _Turn, names: list[str], known: Mapping[str, str]) -> Selection | None:
        """What is offered in this turn; None: all tools."""
        method = self.method
        with turn.lock:
            try:
                self.core.catalogue.adopt((self._specs if call.tools is None else call.tools) or {})
                where = progress_of(self.core.read(call.messages, call.thread_id))
                # The messages of the turn may have been summarised away since the last look.
                turn.called |= where.called
                if turn.found is None or turn.names != frozenset(names):
                    turn.names, turn.reroutes = frozenset(names), {}
                    how: dict[str, Any] = {"most": self.most, "targets": self.targets, "user_id": call.user_id}
                    turn.found = turn_candidates(method, where, turn.names, **how)
                failed = frozenset(tool for tool, ok in turn.called.items() if not ok)
                if failed and failed not in turn.reroutes:
                    turn.reroutes[failed] = find_reroutes(method, turn.found, turn.called, turn.names)
                if not turn.found.hits and not self.tools:
                    return None
                return select_tools(
                    turn.found.plan,
                    turn.found.hits,
                    most=self.most,
                    always=self.always,
                    called=turn.called,
                    reroutes=turn.reroutes.get(failed, ()),
                    asked=known,
                    earlier=where.earlier,
                    available=turn.names,
                )
            except Exception:
                turn.broken = True  # what is broken is not asked again at every step of the turn
                raise

    def _names(self, call: Call) -> list[str]:
        """Names of the tools that may be taken out, in order; what was chosen before is no bound."""
        specs, settled = self._specs if call.tools is None else call.tools, {*OWN_TOOLS, *call.insisted, *call.left_out}
        return [name for name in specs or () if name not in settled]

    def _at_hand(self, runtime: Any) -> Collection[str] | None:
        """The tools that may be found in the turn of a call; None if it is not known here (another process)."""
        if self._specs is not None:
            return self._specs.keys()
        if runtime is None:
            return None
        messages = list(read_key(runtime.state, self._messages_key) or ())
        config = runtime.config or None
        kept = self._turns.get(Call(messages, thread_id_of(config), user_id_of(config, runtime)), self.core.forgettings)
        return kept.found.names or None if kept is not None else None


@dataclass
class _Turn:
    """What is known in a user turn.

    Attributes:
        names: the tools there are.
        found: what fits the request; None: nobody looked yet.
        called: tools called -> whether the last call went well.
        reroutes: tools that failed -> other ways.
        told: what was last offered.
        broken: something failed; all tools are offered.
    """

    names: frozenset[str] = frozenset()
    found: Candidates | None = None
    called: dict[str, bool] = field(default_factory=dict)
    reroutes: dict[frozenset[str], tuple[Reroute, ...]] = field(default_factory=dict)
    told: Selection | None = None
    broken: bool = False
    lock: threading.Lock = field(default_factory=threads.lock)
