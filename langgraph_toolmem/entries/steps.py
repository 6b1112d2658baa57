"""The steps of entries at a model call: past runs are shown, avoided tools removed, finished runs kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from langchain_core.messages import ToolMessage

from langgraph_toolmem.base.checks import names_given, policy_given, score_of
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.method import EndedRun, Method
from langgraph_toolmem.entries import Entries, RecallPolicy
from langgraph_toolmem.entries.entry import RUNS_HEAD, request_of, to_event, to_lines
from langgraph_toolmem.entries.preferences import left_out
from langgraph_toolmem.entries.preferences import to_event as preference_event
from langgraph_toolmem.graph.state import tool_of
from langgraph_toolmem.runs.tools import names_of
from langgraph_toolmem.turn.hints import Line, Scope, StepOutput
from langgraph_toolmem.turn.step import Call, Step

if TYPE_CHECKING:
    from langgraph_toolmem.entries.preferences import Preference
    from langgraph_toolmem.entries.recall import RecalledEntry

StateScore: TypeAlias = Callable[[Any], "bool | float | None"]
"""Scores a run by the graph's state: True or False, a score from 0 (bad) to 1 (good), or None."""


class Recall(Step[Entries]):
    """Shows the model past runs with similar requests, once per user turn; see `MemoryRecall` for the arguments."""

    role: ClassVar[str] = "recall"
    about: ClassVar[str] = "shows past runs with similar requests, once per user turn; calls no model"
    scope: Scope = "turn"

    def __init__(self, method: Entries, *, policy: RecallPolicy | None = None) -> None:
        super().__init__(method)
        self._policy = policy_given(policy, RecallPolicy)

    def compute(self, call: Call) -> list[RecalledEntry]:
        """Return the past runs to show."""
        return self.method.recollect(call.messages, call.owner, policy=self._policy)

    def render(self, call: Call, found: Sequence[RecalledEntry]) -> StepOutput:
        """Return a line for each run. Changes that were made already, or that are not made any more, are only counted
        in it.
        """
        if not found:
            return StepOutput(event=to_event(found), notes={"toolmem.recalled": 0})
        shown = self._without_critiques(call, found)
        texts = to_lines(shown, self.method.reads(call.tools), hidden=self._hidden(call))
        user = self.core.users.of(call.user_id)
        lines: list[Line] = []
        recalled_of: dict[Line, RecalledEntry] = {}
        for recalled, text in zip(shown, texts, strict=False):  # the last ones may have had no room
            line = Line(text, item=self.method.rows.key(recalled.entry.id, user))
            lines.append(line)
            recalled_of[line] = recalled

        def seen(in_request: Sequence[Line]) -> Sequence[Line]:
            # Recorded here, where the lines with room in the request are known: the ledger counts only shown lines.
            kept = self.drawn(call, in_request)
            runs = []
            for line, recalled in recalled_of.items():
                if line in kept:
                    runs.append(recalled)
            with self.errors:
                self.method.note_shown(call.messages, runs, call.owner)
            return kept

        head = ""
        if lines:
            head = RUNS_HEAD
        return StepOutput(
            head=head,
            lines=self.on_trial(call, lines),
            seen=seen,
            sure=max((recalled.score for recalled in shown), default=0.0),
            event=to_event(shown),
            notes={"toolmem.recalled": len(shown)},
        )

    def _hidden(self, call: Call) -> frozenset[str] | None:
        """Return the tools whose changes are only counted; None for all."""
        state = self.core.state_of(self.core.read(call.messages, call.thread_id))
        # If similar requests ended at this point, a change in a past run must not look like the next step.
        if self.core.ending(state) is not None:
            return None
        made = set()
        for step in state.since_episode:
            made.add(tool_of(step.tool))
        return frozenset(made)

    def _without_critiques(self, call: Call, recalled_runs: Sequence[RecalledEntry]) -> list[RecalledEntry]:
        """Return past runs without the critiques that are withheld, or that were found not to help."""
        user = self.core.users.of(call.user_id)
        # A critique has a record of its own: it may hurt while the run without it helps.
        on_trial: list[Line] = []
        items: dict[str, str] = {}
        for recalled in recalled_runs:
            entry = recalled.entry
            if entry.critique:
                items[entry.id] = self.method.rows.key(f"critique of {entry.id}", user)
                on_trial.append(Line("", item=items[entry.id]))
        kept = {line.item for line in self.drawn(call, self.on_trial(call, on_trial))}
        shown: list[RecalledEntry] = []
        for recalled in recalled_runs:
            item = items.get(recalled.entry.id)
            if item is not None and item not in kept:
                recalled = replace(recalled, entry=replace(recalled.entry, critique=""))
            shown.append(recalled)
        return shown


class Preferences(Step[Entries]):
    """Removes tools with bad scores of this user on similar requests; see `PreferenceGuide` for the arguments."""

    role: ClassVar[str] = "preferences"
    about: ClassVar[str] = "leaves out tools that this user rated badly on similar requests; calls no model"
    scope: Scope = "turn"

    def __init__(self, method: Entries, *, keep: Iterable[str] = ()) -> None:
        super().__init__(method)
        self.keep = frozenset(names_given("keep", keep))

    def compute(self, call: Call) -> list[Preference]:
        # With the thread: without it the whole history would be read again, here and by the next step.
        request = request_of(self.core.read(call.messages, call.thread_id))
        return self.method.preferences(request, user_id=call.user_id, settle=False)

    def render(self, call: Call, found: Sequence[Preference]) -> StepOutput:
        """Return the tools to leave out, among those that this call offers, if known; at least one tool remains."""
        # `insisted`: a request that names a tool which is not offered would be an error.
        proposed = left_out(found, names_of(call.offered), keep=self.keep | call.insisted)
        user = self.core.users.of(call.user_id)
        on_trial: list[Line] = []
        for tool in proposed:
            on_trial.append(Line(tool, item=self.method.rows.key(f"without {tool}", user)))
        kept = {line.text for line in self.drawn(call, self.on_trial(call, on_trial))}
        out = {tool: why for tool, why in proposed.items() if tool in kept}
        return StepOutput(left_out=out, event=preference_event(found, out), notes={"toolmem.left_out": len(out)})


class Reflection(Step[Method]):
    """Keeps each run with its feedback at its end; see `ReflectionWriter` for the arguments."""

    role: ClassVar[str] = "reflection"
    about: ClassVar[str] = "keeps the finished run with its feedback; critiques are written in the background"
    ends: ClassVar[bool] = True

    def __init__(self, method: Method, *, verdict: StateScore | None = None) -> None:
        super().__init__(method)
        if verdict is not None and not callable(verdict):
            raise ConfigurationError(f"`verdict` must be a function of the state, got {type(verdict).__name__}.")
        self._verdict = verdict

    def on_end(self, call: Call) -> StepOutput:
        score = None
        if self._verdict is not None:
            with self.errors:  # the run is kept anyway
                score = score_of("A verdict", self._verdict(call.state))
        core = self.core
        new = core.lifecycle.finish(call.messages, call.owner, success=score)
        notes: dict[str, str | int | float | bool] = {"toolmem.learned_turns": new}
        if score is not None:
            notes["toolmem.score"] = score
        return StepOutput(event={"score": score, "learned_turns": new}, notes=notes)

    def on_error(self, call: Call, error: Exception, failed_call: str | None) -> None:
        """Keep the run with the calls so far, and with the kind of the error, because its text may quote a user.

        If the thread is resumed, the run's end replaces it. Pending calls are not learned, because they may be executed
        then.
        """
        # Atoms are kept of runs that went well only.
        if not isinstance(self.method, Entries):
            return
        core = self.core
        messages = list(call.messages)
        # The tool's error has no message in the state: without one, its call would count as pending.
        if failed_call is not None:
            messages.append(ToolMessage("", tool_call_id=failed_call, status="error"))
        run, user = core.read(messages, call.thread_id).current, core.users.of(call.user_id)
        if not core.read_only:  # feedback on the thread is about the last answer that the user saw: the error
            with core.lock:
                core.apply(None, core.episodes.over(run), user=user.digest, run=run.digest)
        score, comment = core.feedback_of(run.digest, core.owner_of(run.digest, user.digest))
        if score is None:
            comment = f"the run ended with {type(error).__name__}"
        self.method.ended(EndedRun(run, user, score, comment))
