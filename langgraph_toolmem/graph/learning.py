"""The events that teach the evidence graph one finished turn. Pure: nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph import events as op
from langgraph_toolmem.graph.cases import MAX_CALLS, Neighbour
from langgraph_toolmem.graph.events import Record
from langgraph_toolmem.graph.provenance import encode_value, in_outputs, usual_values
from langgraph_toolmem.graph.seen_input import from_input, value_digest
from langgraph_toolmem.graph.sources import discover, evaluate, is_derived
from langgraph_toolmem.graph.state import WORDS, RunState, paper_window, parallel, slot_key, windows
from langgraph_toolmem.graph.tool_graph import COLUMNS, MAX_SOURCES, ToolGraph
from langgraph_toolmem.runs.run import ExecutedCall, Turn
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, MAX_VALUE_CHARS, canon, canon_args, fit

MAX_CASE_TEXT: Final = 2000
MAX_CASE_SOURCES: Final = 12
MAX_OUTPUTS: Final = 8


def json_type(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", tuple: "array"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "object")


def attempt_digest(step: ExecutedCall, attempt: int | str) -> str:
    """Return the key that counts an attempt of a call once: failed ones by number, a late success by "ok"."""
    return digest("attempt", step.key, attempt)


def turn_digest(turn: Turn) -> str:
    """Return the key that has a turn learned once: its executed calls, or its position if it has none."""
    if len(turn.steps) == 1:
        return turn.steps[0].key
    if turn.steps:
        return digest("calls", *(step.key for step in turn.steps))
    return digest("words", turn.key)


@dataclass(slots=True)
class LearnedTurn:
    """A model turn that is being learned.

    Attributes:
        state: the run before the turn.
        turn: the turn, with the records of its tools in place of their names (`graph.records`), as in `state`.
        run: digest of the run (an episode).
        thread: digest of its thread and user, which counts as one contributor of values.
        user: digest of the user, if known.
        specs: the available tools, by the names of their records.
        hour: current time, in hours since 1970.
        options: what the caller of this pass changes, by name of the method.
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
    """Return the events that teach one settled turn."""
    state, turn, user, hour = learned.state, learned.turn, learned.user, learned.hour
    record = _count_turn(turn)
    executed = [step for step in turn.steps if step.status != "rejected"]
    if turn.chosen_by == "model":
        asked = [step.tool for step in turn.steps]
        following = WORDS if not asked else (asked[0] if len(asked) == 1 else parallel(asked))
        ok = all(step.status == "ok" for step in turn.steps)
        record.append(op.Successor(windows(state), following, 0 if ok else 1))
    elif len(turn.steps) == 1 and turn.steps[0].review == "edited":
        # A person put another call in place of the shortcut's: the right one.
        record.append(op.Successor(windows(state), turn.steps[0].tool, 0 if turn.steps[0].status == "ok" else 1))
    shortcuts = int(turn.chosen_by == "shortcut")
    if shortcuts or (user is not None and graph.owner(learned.run) is None):
        record.append(op.RunSeen(learned.run, shortcuts, user))
    request = state.user_key
    position = len(state.since_user)
    if request and state.user.raw:
        if not graph.cases.knows(request):
            record.append(op.Request(request, state.user.raw[:MAX_CASE_TEXT], user, state.asked))
        if not turn.steps and turn.chosen_by == "model":
            record.append(op.RequestEnd(request, position))
    if len(executed) > 1 and turn.chosen_by == "model":
        record += _learn_group(graph, state, executed, user)
    tools = list(state.tools)
    for offset, step in enumerate(turn.steps):
        if step.status != "failed" or not graph.has_seen(attempt_digest(step, 1)):  # those counted as they happened
            record.append(op.Outcome(step.tool, step.status, tools[-1] if tools else None, hour))
        if step in executed:
            # the paper's windows: the model's choice is evidence, the shortcut's is feedback
            keys = [key for length in (1, 2, 3) if (key := paper_window(tools, length))]
            if keys and step.chosen_by != "context":
                column = COLUMNS.index(f"{step.chosen_by}_{'ok' if step.status == 'ok' else 'failed'}")
                record.append(op.Successor(keys, step.tool, column))
            record.append(op.Repeat(step.tool, int((step.tool, canon_args(step.args)) in state.called)))
        sources: dict[str, list[str]] | None = None
        given: list[str] = []
        if step in executed and (step.chosen_by == "model" or step.review == "edited"):
            events, sources, given = _learn_arguments(graph, learned, step)
            record += events
        if step in executed:
            record.append(
                op.Arguments(step.tool, {name: json_type(value) for name, value in step.args.items()}, given, user)
            )
        if request and state.user.raw and position + offset < MAX_CALLS:
            args = canon_args(step.args)
            further = len(turn.steps) - 1 if offset == 0 else 0
            call = op.RequestCall(request, position + offset, step.tool, args, step.status, sources, further)
            record.append(call)
        tools.append(step.tool)
    return record


def _count_turn(turn: Turn) -> Record:
    record: Record = [op.Count("turns")]
    if turn.chosen_by == "model":
        record.append(op.Count("calls", len(turn.steps)) if turn.steps else op.Count("answers", 1))
        if turn.input_tokens or turn.output_tokens:
            used = {"tokens_in": turn.input_tokens, "tokens_out": turn.output_tokens, "turns_with_tokens": 1}
            record += [op.Count(name, amount) for name, amount in used.items()]
            record += [op.Count("tokens_cached", turn.cached_tokens)] if turn.cached_tokens else []
    return record


def _learn_arguments(
    graph: ToolGraph, learned: LearnedTurn, step: ExecutedCall
) -> tuple[Record, dict[str, list[str]], list[str]]:
    """Return the events, the possible sources of each value, and the parameters that no earlier output had."""
    state, user = learned.state, learned.user
    properties = learned.specs[step.tool].properties if step.tool in learned.specs else {}
    record: Record = []
    given: list[str] = []
    sources: dict[str, list[str]] = {}
    previous = state.symbols[-1]
    same_tool = [n for n in learned.neighbours if n.tool == step.tool]
    for parameter in [*properties, *(p for p in step.args if p not in properties)]:
        value = step.args.get(parameter, ABSENT)
        slot = slot_key(step.tool, parameter)
        schema = properties.get(parameter)
        truth = canon(value)
        judged: dict[str, int] = {}
        for descriptor in graph.sources.row(slot):
            if from_input(descriptor):
                if (same := state.seen.agrees(descriptor, truth)) is not None:
                    judged[descriptor] = int(same)
            elif "|" in descriptor:
                fitted = fit(evaluate(descriptor, state, (step.tool, parameter)), schema)
                if fitted is not ABSENT:
                    judged[descriptor] = int(canon(fitted) == truth)
        # sources whose content changes as the memory grows: usual values, and the nearest past request
        for name, usual in usual_values(graph, slot, previous).items():
            judged[name] = int(canon(usual) == truth)
        if same_tool:
            judged["n"] = int(canon(same_tool[0].carried.get(parameter, ABSENT)) == truth)
        if value is not ABSENT:
            room = MAX_SOURCES - 4
            for descriptor in discover(value, state, (step.tool, parameter))[:room]:
                judged.setdefault(descriptor, 1)
        right = [d for d, hit in judged.items() if hit and "|" in d]
        if right:
            sources[parameter] = right[:MAX_CASE_SOURCES]
        if (
            value is not ABSENT
            and not any(each.startswith(("o|", "l|", "od|")) for each in right)
            and not _may_be_from_output(value, truth, state)
        ):
            given.append(parameter)
        if judged:
            counted = [name for name, hit in judged.items() if hit and (from_input(name) or is_derived(name))]
            agreed = {name: value_digest(name, truth) for name in counted}
            record.append(op.Sources(slot, previous, judged, user, agreed))
        encoded = encode_value(value)
        if len(encoded) <= MAX_VALUE_CHARS:
            record.append(op.Value(slot, previous, encoded, learned.thread, user))
    return record, sources, given


def varying(steps: Sequence[ExecutedCall]) -> str:
    """Return the one parameter in which calls of one tool differ; "" if they differ in none or in more."""
    if len({step.tool for step in steps}) != 1:
        return ""
    names = {name for step in steps for name in step.args}
    differ = [name for name in names if len({canon(step.args.get(name, ABSENT)) for step in steps}) > 1]
    return differ[0] if len(differ) == 1 else ""


def _learn_group(graph: ToolGraph, state: RunState, steps: Sequence[ExecutedCall], user: str | None) -> Record:
    # sources of the values of parallel calls of one tool
    parameter = varying(steps)
    if not parameter:
        return []
    tool = steps[0].tool
    truth = sorted(canon(step.args.get(parameter, ABSENT)) for step in steps)
    slot = slot_key(parallel([tool]), parameter)
    known = [
        f"l|{source}|{path}|rest"
        for source in list(state.outputs)[-MAX_OUTPUTS:]
        if (seen := state.latest_output(source)) is not None and "|" not in source
        for path in seen.lists
        if "|" not in path
    ]
    judged: dict[str, int] = {}
    for descriptor in dict.fromkeys([*graph.sources.row(slot), *known]):
        offered = evaluate(descriptor, state, (tool, parameter))
        hit = isinstance(offered, list) and sorted(map(canon, offered)) == truth
        if hit or (offered is not ABSENT and descriptor in graph.sources.row(slot)):
            judged[descriptor] = int(hit)
    return [op.Sources(slot, state.symbols[-1], judged, user)] if judged else []


def _may_be_from_output(value: Any, text: str, state: RunState) -> bool:
    """Return True if a value without a source in the outputs may stem from prose in one."""
    if isinstance(value, (list, dict)):
        return bool(state.outputs)
    if isinstance(value, bool) or value is None:
        return False
    return in_outputs(text, state)
