"""The events that teach the evidence graph one finished turn. Pure: nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph import events as op
from langgraph_toolmem.graph.cases import CASE_LIMITS, Neighbour
from langgraph_toolmem.graph.events import Record
from langgraph_toolmem.graph.provenance import encode_value, in_outputs, usual_values
from langgraph_toolmem.graph.sources import discover, evaluate, from_input, is_derived, value_digest
from langgraph_toolmem.graph.state import WORDS, RunState, paper_window, parallel, slot_key, windows
from langgraph_toolmem.graph.tool_graph import MAX_SOURCES, SUCCESSOR_COLUMNS, ToolGraph
from langgraph_toolmem.runs.run import ExecutedCall, Turn
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, VALUE_LIMITS, canon, canon_args, fit
from langgraph_toolmem.text.schema import type_of


def attempt_digest(step: ExecutedCall, attempt: int | str) -> str:
    """Return the key that counts an attempt of a call once: failed ones by number, a late success by "ok"."""
    return digest("attempt", step.key, attempt)


def turn_digest(turn: Turn) -> str:
    """Return the key by which a turn is learned once: its executed calls, or its position without calls."""
    if len(turn.steps) == 1:
        return turn.steps[0].key
    if turn.steps:
        return digest("calls", *[step.key for step in turn.steps])
    return digest("words", turn.key)


@dataclass(slots=True)
class LearnedTurn:
    """A model turn that is being learned.

    Attributes:
        state: the run before the turn.
        turn: the turn, with the records of its tools in place of their names (`ToolRecords`), as in `state`.
        run: digest of the run (an episode).
        thread: digest of its thread and user, which counts as one contributor of values.
        user: digest of the user, if known.
        specs: the available tools, by the names of their records.
        hour: current time, in hours since 1970.
        options: the caller's options for this pass, by name of the method.
        scratch: values that methods keep between turns of this pass, by their name.
        neighbours: past requests that a method compared with this one, for the record of carried values.
        thread_id: the thread as the host names it, "" if unknown.
    """

    state: RunState
    turn: Turn
    run: str
    thread: str
    user: str | None
    specs: Mapping[str, ToolSpec]
    hour: int
    options: Mapping[str, Any]
    scratch: dict[str, Any]
    neighbours: Sequence[Neighbour] = ()
    thread_id: str = ""


def learn_turn(graph: ToolGraph, learned: LearnedTurn) -> Record:
    """Return the events of one settled turn."""
    state, turn = learned.state, learned.turn
    record = _count_turn(turn)
    record += _successor(state, turn)
    record += _run_seen(graph, learned)
    request_known = bool(state.user_key and state.user.raw)
    if request_known:
        record += _request(graph, learned)
    # A rejected call never ran, so its arguments are not learned.
    executed = [step for step in turn.steps if step.status != "rejected"]
    if len(executed) > 1 and turn.chosen_by == "model":
        record += _learn_group(graph, state, executed, learned.user)
    tools = list(state.tools)
    for offset, step in enumerate(turn.steps):
        record += _outcome(graph, step, tools, learned.hour)
        origins = _argument_origins(graph, learned, step)
        if step.status != "rejected":
            record += _repetition(state, step, tools)
            record += origins.record
            record.append(op.Arguments(step.tool, _types_of(step.args), origins.given, learned.user))
        if request_known:
            record += _request_call(state, turn, offset, origins.sources)
        # A parallel call follows the one before it, as in the run's own order.
        tools.append(step.tool)
    return record


def _types_of(args: Mapping[str, Any]) -> dict[str, str]:
    return {name: type_of(value) for name, value in args.items()}


def _count_turn(turn: Turn) -> Record:
    record: Record = [op.Count("turns")]
    # Tokens and calls are the model's. Shortcuts are counted with their run.
    if turn.chosen_by != "model":
        return record
    if turn.steps:
        record.append(op.Count("calls", len(turn.steps)))
    else:
        record.append(op.Count("answers", 1))
    if turn.input_tokens or turn.output_tokens:
        record.append(op.Count("tokens_in", turn.input_tokens))
        record.append(op.Count("tokens_out", turn.output_tokens))
        record.append(op.Count("turns_with_tokens", 1))
        if turn.cached_tokens:
            record.append(op.Count("tokens_cached", turn.cached_tokens))
    return record


def _successor(state: RunState, turn: Turn) -> Record:
    """Return the successor of the run's latest symbols: a tool, parallel calls, or an answer in words."""
    # A person replaced the shortcut's call: the person's call is right.
    is_edited = len(turn.steps) == 1 and turn.steps[0].review == "edited"
    if turn.chosen_by != "model" and not is_edited:
        return []
    following = WORDS
    if len(turn.steps) == 1:
        following = turn.steps[0].tool
    elif turn.steps:
        following = parallel([step.tool for step in turn.steps])
    outcome = "model_ok"
    for step in turn.steps:
        if step.status != "ok":
            outcome = "model_failed"
    return [op.Successor(windows(state), following, SUCCESSOR_COLUMNS.index(outcome))]


def _run_seen(graph: ToolGraph, learned: LearnedTurn) -> Record:
    shortcuts = int(learned.turn.chosen_by == "shortcut")
    owner_is_new = learned.user is not None and graph.owner(learned.run) is None
    if not shortcuts and not owner_is_new:
        return []
    return [op.RunSeen(learned.run, shortcuts, learned.user)]


def _request(graph: ToolGraph, learned: LearnedTurn) -> Record:
    state, turn = learned.state, learned.turn
    record: Record = []
    if not graph.cases.knows(state.user_key):
        most_chars = 2_000  # of a request: a longer one is a pasted document
        record.append(op.Request(state.user_key, state.user.raw[:most_chars], learned.user, state.asked))
    if not turn.steps and turn.chosen_by == "model":
        record.append(op.RequestEnd(state.user_key, len(state.since_user)))
    return record


def _outcome(graph: ToolGraph, step: ExecutedCall, tools: Sequence[str], hour: int) -> Record:
    if step.status == "failed" and graph.has_seen(attempt_digest(step, 1)):
        # The step that ran the tool counted the failure at once, because a retry would hide it from this pass.
        return []
    before = None
    if tools:
        before = tools[-1]
    return [op.Outcome(step.tool, step.status, before, hour)]


def _repetition(state: RunState, step: ExecutedCall, tools: list[str]) -> Record:
    """Return the counts of the paper's windows, and whether the run made the call before."""
    record: Record = []
    keys = []
    for length in (1, 2, 3):
        key = paper_window(tools, length)
        if key:
            keys.append(key)
    if keys and step.chosen_by != "context":
        # In these windows the model's choice is evidence, and the shortcut's is feedback.
        outcome = "failed"
        if step.status == "ok":
            outcome = "ok"
        record.append(op.Successor(keys, step.tool, SUCCESSOR_COLUMNS.index(f"{step.chosen_by}_{outcome}")))
    repeated = (step.tool, canon_args(step.args)) in state.called
    record.append(op.Repeat(step.tool, int(repeated)))
    return record


def _request_call(state: RunState, turn: Turn, offset: int, sources: dict[str, list[str]] | None) -> Record:
    """Return a call as one that followed the request."""
    position = len(state.since_user) + offset
    if position >= CASE_LIMITS.calls:
        return []
    step = turn.steps[offset]
    further = 0
    # The first call of a turn counts the others.
    if offset == 0:
        further = len(turn.steps) - 1
    args = canon_args(step.args)
    return [op.RequestCall(state.user_key, position, step.tool, args, step.status, sources, further)]


@dataclass(slots=True)
class ArgumentOrigins:
    """The sources of the values of one call.

    Attributes:
        record: the events that count which sources were right.
        sources: per argument, the right sources; None if they are not learned from the call.
        given: parameters whose value was not in an earlier output.
    """

    record: Record = field(default_factory=list)
    sources: dict[str, list[str]] | None = None
    given: list[str] = field(default_factory=list)


def _argument_origins(graph: ToolGraph, learned: LearnedTurn, step: ExecutedCall) -> ArgumentOrigins:
    """Return the sources of a call's values; empty for a call of the memory, which would confirm its own guesses."""
    chosen_by_others = step.chosen_by == "model" or step.review == "edited"
    if step.status == "rejected" or not chosen_by_others:
        return ArgumentOrigins()
    judge = _SourceJudge(graph, learned, step)
    origins = ArgumentOrigins(sources={})
    properties: Mapping[str, Any] = {}
    if step.tool in learned.specs:
        properties = learned.specs[step.tool].properties
    for parameter in dict.fromkeys([*properties, *step.args]):
        _learn_argument(origins, judge, parameter, properties.get(parameter))
    return origins


def _learn_argument(origins: ArgumentOrigins, judge: _SourceJudge, parameter: str, schema: Any) -> None:
    """Add the sources of one argument."""
    most_sources = 12  # of a call that is kept as one that followed a request
    state, user = judge.learned.state, judge.learned.user
    value = judge.step.args.get(parameter, ABSENT)
    truth = canon(value)
    judged = judge.judged(parameter, schema, value, truth)
    right = [descriptor for descriptor, hit in judged.items() if hit and "|" in descriptor]
    if right and origins.sources is not None:
        origins.sources[parameter] = right[:most_sources]
    if _is_given(value, truth, right, state):
        origins.given.append(parameter)
    slot, previous = slot_key(judge.step.tool, parameter), state.symbols[-1]
    if judged:
        agreed = _agreed_values(judged, truth)
        origins.record.append(op.Sources(slot, previous, judged, user, agreed))
    encoded = encode_value(value)
    if len(encoded) <= VALUE_LIMITS.characters:
        origins.record.append(op.Value(slot, previous, encoded, judge.learned.thread, user))


def _is_given(value: Any, truth: str, right: Sequence[str], state: RunState) -> bool:
    """Return True for a value that no earlier output of the run has; `right`: its sources."""
    if value is ABSENT or _from_output(right):
        return False
    return not _may_be_from_output(value, truth, state)


def _agreed_values(judged: Mapping[str, int], truth: str) -> dict[str, str]:
    """Return the right sources that count only after two different values, each with the digest of this value."""
    agreed = {}
    for descriptor, hit in judged.items():
        if hit and (from_input(descriptor) or is_derived(descriptor)):
            agreed[descriptor] = value_digest(descriptor, truth)
    return agreed


class _SourceJudge:
    """Compares the sources of a call's arguments with the values that the call has."""

    def __init__(self, graph: ToolGraph, learned: LearnedTurn, step: ExecutedCall) -> None:
        self.learned, self.step = learned, step
        self._graph = graph
        self._same_tool: Neighbour | None = None
        for near in learned.neighbours:
            if near.tool == step.tool:
                self._same_tool = near
                break

    def judged(self, parameter: str, schema: Any, value: Any, truth: str) -> dict[str, int]:
        """Return the sources that had a value: 1 if it was the right one, else 0."""
        state, slot = self.learned.state, (self.step.tool, parameter)
        key = slot_key(*slot)
        judged = self._known_sources(slot, schema, truth)
        # Sources whose content changes as the memory grows: usual values, and the nearest past request.
        for name, usual in usual_values(self._graph, key, state.symbols[-1]).items():
            judged[name] = int(canon(usual) == truth)
        if self._same_tool is not None:
            judged["n"] = int(canon(self._same_tool.carried.get(parameter, ABSENT)) == truth)
        if value is not ABSENT:
            # Usual values and past requests have a place among the sources of a slot.
            room = MAX_SOURCES - 4
            for descriptor in discover(value, state, slot)[:room]:
                judged.setdefault(descriptor, 1)
        return judged

    def _known_sources(self, slot: tuple[str, str], schema: Any, truth: str) -> dict[str, int]:
        """Return the sources that were right before and have a value in this run."""
        state = self.learned.state
        judged: dict[str, int] = {}
        for descriptor in self._graph.sources.row(slot_key(*slot)):
            if from_input(descriptor):
                # After a restart only digests of prompt and context are available: they are compared, not read.
                same = state.seen.agrees(descriptor, truth)
                if same is not None:
                    judged[descriptor] = int(same)
            elif "|" in descriptor:
                fitted = fit(evaluate(descriptor, state, slot), schema)
                if fitted is not ABSENT:
                    judged[descriptor] = int(canon(fitted) == truth)
        return judged


def _from_output(descriptors: Sequence[str]) -> bool:
    return any(descriptor.startswith(("o|", "l|", "od|")) for descriptor in descriptors)


def varying(steps: Sequence[ExecutedCall]) -> str:
    """Return the only parameter in which calls of one tool differ; "" if they are equal or differ in more."""
    if len({step.tool for step in steps}) != 1:
        return ""
    parameters: dict[str, None] = {}
    for step in steps:
        parameters.update(dict.fromkeys(step.args))
    differing = []
    for name in parameters:
        # A call without the argument differs from a call with it.
        values = {canon(step.args.get(name, ABSENT)) for step in steps}
        if len(values) > 1:
            differing.append(name)
    if len(differing) != 1:
        return ""
    return differing[0]


def _learn_group(graph: ToolGraph, state: RunState, steps: Sequence[ExecutedCall], user: str | None) -> Record:
    """Return the sources of the values of parallel calls of one tool: lists of which each call took one element."""
    parameter = varying(steps)
    if not parameter:
        return []
    tool = steps[0].tool
    truth = sorted([canon(step.args.get(parameter, ABSENT)) for step in steps])
    slot = slot_key(parallel([tool]), parameter)
    counted = graph.sources.row(slot)
    judged: dict[str, int] = {}
    for descriptor in dict.fromkeys([*counted, *_lists_in_outputs(state)]):
        offered = evaluate(descriptor, state, (tool, parameter))
        # Parallel calls are made in any order.
        hit = isinstance(offered, list) and sorted(map(canon, offered)) == truth
        if hit or (offered is not ABSENT and descriptor in counted):
            judged[descriptor] = int(hit)
    if not judged:
        return []
    return [op.Sources(slot, state.symbols[-1], judged, user)]


def _lists_in_outputs(state: RunState) -> list[str]:
    descriptors = []
    for index in state.recent_outputs():
        tool = state.steps[index].tool
        if "|" in tool:
            continue
        for path in state.observation(index).lists:
            if "|" not in path:
                descriptors.append(f"l|{tool}|{path}|rest")
    return descriptors


def _may_be_from_output(value: Any, text: str, state: RunState) -> bool:
    """Return True if a value without a source in the outputs may stem from prose in one."""
    if isinstance(value, (list, dict)):
        return bool(state.outputs)
    if isinstance(value, bool) or value is None:
        return False
    return in_outputs(text, state)
