"""The state of one run, folded over its events: the complete input of a prediction; and the names of its tools.

Windows are the contexts under which the successors of a state are counted. They hold the run's symbols: START, tools
(``name!`` when the call failed), USER for a later user message, WORDS for an answer. The paper's windows contain only
tools.

The evidence graph uses names of *records* as names of tools; outside of it there are only tools. Two agents may have
different tools of one name: ``search(query)`` and ``search(customer_id, limit)``, and evidence about one is wrong for
the other. The first tool of a name has its record under the name. A tool with different parameters (names, types) has
its own record under the name and a digest of its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_
from typing import Any, ClassVar, Final, TypeAlias

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph.sources import NOTHING_SEEN, SeenDigests, SeenInput
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import Observation, canon, canon_args, flatten, is_unread
from langgraph_toolmem.text.schema import type_of
from langgraph_toolmem.text.values import Text, read_text

START: Final = "<start>"
CUT: Final = "<cut>"
USER: Final = "<user>"
WORDS: Final = "<words>"
PARALLEL: Final = "<parallel>"
SEPARATOR: Final = "\x1f"
ReadEvent: TypeAlias = "Callable[[UserMessage | Turn], UserMessage | Turn]"


def as_it_is(event: UserMessage | Turn) -> UserMessage | Turn:
    """Return an event unchanged."""
    return event


class RunState:
    """The state of a run after some of its events.

    Attributes:
        symbols: the run as a sequence: START (CUT if the head of the history is missing), tools (``name`` or
            ``name!`` when the call failed), USER for a later user message, WORDS for an answer in words.
        tools: only the tools, in order.
        user: the latest user message; `past_users` has the earlier ones, latest first.
        asked: the words that the latest user message answers: the assistant's, and unanswered user messages in between;
            "" if it is not an answer.
        thought: the model's latest words since that message.
        since_user: calls since the latest user message.
        latest: calls of the latest turn; () if the user spoke since, or the model answered in words.
        inputs: (tool, parameter) -> its latest value; `input_texts`: the same as `canon` writes it.
        media: digests of the pictures and files in the user's messages of the episode, one per message with media.
        seen: prompt and context of the next model call.
        stopped: True if a call of the latest turn was never executed (a person or a limit stopped it, the schema
            refused it).
        max_past_texts: limit of kept user messages before the latest.
        max_asked: limit of kept characters of the assistant's words, from the end.
        max_outputs: limit of outputs that are searched for values.
    """

    max_past_texts: ClassVar[int] = 4
    max_asked: ClassVar[int] = 2_000
    max_outputs: ClassVar[int] = 8

    def __init__(self, *, cut: bool = False) -> None:
        self.symbols: list[str] = [CUT if cut else START]
        self.tools: list[str] = []
        self.steps: list[ExecutedCall] = []
        self.user: Text = read_text("")
        self.user_key = ""
        self.past_users: list[Text] = []
        self.asked = ""
        self._words = ""
        self.thought = ""
        self.since_user: list[ExecutedCall] = []
        self.latest: tuple[ExecutedCall, ...] = ()
        self.episode = ""
        self.since_episode: list[ExecutedCall] = []
        self.media: tuple[str, ...] = ()
        self.stopped = False
        self.seen: SeenInput | SeenDigests = NOTHING_SEEN
        self.inputs: dict[tuple[str, str], Any] = {}
        self.input_texts: dict[tuple[str, str], str] = {}
        self.outputs: dict[str, int] = {}
        self._observations: dict[int, tuple[ExecutedCall, Observation]] = {}
        self._output_texts: dict[int, tuple[ExecutedCall, str]] = {}
        self.used: dict[tuple[str, str], frozenset[str]] = {}
        self._used_now: dict[tuple[str, str], frozenset[str]] = {}  # since the latest user message
        self._first_now = 0  # the first call since that message
        self.called: set[tuple[str, str]] = set()

    def copy(self) -> RunState:
        """Return a copy that can be continued independently. Outputs are read once for all copies."""
        other = RunState.__new__(RunState)
        for name, value in vars(self).items():
            own = value
            if isinstance(value, (list, dict, set)):
                own = value.copy()
            setattr(other, name, own)
        # An output of 200,000 characters is read once in a thread, not once in each of its states.
        other._observations, other._output_texts = self._observations, self._output_texts
        return other

    @classmethod
    def of(cls, run: Run, read: ReadEvent = as_it_is) -> RunState:
        """Return the state after a run; `read` puts records in place of tools (`ToolRecords`)."""
        state = cls(cut=run.truncated)
        for event in run.events:
            state.push(read(event))
        return state

    def push(self, event: UserMessage | Turn) -> None:
        self.stopped = False
        if isinstance(event, UserMessage):
            self.latest = ()
            self._push_user(event)
            return
        self.latest = event.steps
        for step in event.steps:
            if step.status == "rejected":
                self.stopped = True
        # The memory's turns hold no thought of the model.
        if event.chosen_by == "model" and event.text:
            self.thought = event.text
        if not event.steps:
            self.symbols.append(WORDS)
            self._words = event.text[-self.max_asked :]
        else:
            self._words = ""
            for step in event.steps:
                self._push_step(step)

    def _push_user(self, message: UserMessage) -> None:
        if self.user.raw:
            self.past_users = [self.user, *self.past_users[: self.max_past_texts - 1]]
        # The first message begins the run and follows nothing.
        if self.symbols != [START]:
            self.symbols.append(USER)
        if message.episode != self.episode or not message.episode:
            self.episode = message.episode
            self.media = ()
            if message.episode:
                self.since_episode = []
        if message.media:
            self.media += (message.media,)
        self.user = read_text(message.text)
        self.user_key = message.key
        self.asked = self._words
        # An unanswered message belongs to the words that the next message answers.
        self._words = f"{self._words}\n{message.text}".strip()[-self.max_asked :]
        self.thought = ""
        self.since_user = []
        self._used_now = {}
        self._first_now = len(self.steps)

    def _push_step(self, step: ExecutedCall) -> None:
        ok = step.status == "ok"
        index = len(self.steps)
        symbol = step.tool
        if not ok:
            symbol += "!"
        self.symbols.append(symbol)
        self.tools.append(step.tool)
        self.steps.append(step)
        self.since_user.append(step)
        self.since_episode.append(step)
        self.called.add((step.tool, canon_args(step.args)))
        for name, value in step.args.items():
            # A text that represents an argument too large to read is not a value.
            if is_unread(value):
                continue
            slot, text = (step.tool, name), canon(value)
            self.inputs[slot], self.input_texts[slot] = value, text
            used = {text}
            if isinstance(value, list) and len(value) == 1:
                # Some tools take a list, for which other calls have one element each.
                used.add(canon(value[0]))
            # Copies of a state share the sets, so a set is replaced, never changed.
            self.used[slot] = self.used.get(slot, frozenset()) | used
            self._used_now[slot] = self._used_now.get(slot, frozenset()) | used
        # An output of a failed call is a message about the failure.
        if ok and step.output is not None:
            self.outputs[step.tool] = index

    def observation(self, index: int) -> Observation:
        """Return the addressed output of call `index`, read at the first use."""
        step = self.steps[index]
        read, observation = self._observations.get(index, (None, None))
        if observation is None or read is not step:
            # Copies share read outputs: a copy that continued differently has another call at this position.
            observation = flatten(step.output)
            self._observations[index] = step, observation
        return observation

    def output_text(self, index: int) -> str:
        """Return all values in the output of call `index` as lines in lower case, read at the first use."""
        step = self.steps[index]
        read, text = self._output_texts.get(index, (None, ""))
        if read is not step:
            seen = self.observation(index)
            parts = [seen.prose, *map(canon, seen.scalars.values())]
            for values in seen.lists.values():
                parts += map(canon, values)
            text = "\n".join(parts).lower()
            self._output_texts[index] = step, text
        return text

    def latest_output(self, tool: str) -> Observation | None:
        index = self.outputs.get(tool)
        if index is None:
            return None
        return self.observation(index)

    def used_of_list(self, slot: tuple[str, str], index: int) -> frozenset[str]:
        """Return the values of a slot that a loop over the output of call `index` has used."""
        # A list that was read for this request begins anew: its first element may be that of the last request. In 260
        # requests to a bank desk with look-ups before the model, 21 were for another account without this rule, and 8
        # with it.
        if index >= self._first_now:
            return self._used_now.get(slot, frozenset())
        return self.used.get(slot, frozenset())

    def recent_outputs(self) -> list[int]:
        """Return the calls whose outputs are searched for values: the latest one of each tool, of up to 8 tools."""
        # A tool keeps its first position in the dict, even if it is called again later.
        latest = sorted(self.outputs.values())[-self.max_outputs :]
        return [index for index in self.outputs.values() if index >= latest[0]]


class Folds:
    """The states of threads up to their latest model turn, folded once: later readings of a thread begin with them.

    Attributes:
        max_threads: limit of threads with a kept state; the least recently read are dropped.
    """

    max_threads: ClassVar[int] = 128

    def __init__(self) -> None:
        self._kept: dict[str | None, tuple[tuple[UserMessage | Turn, ...], RunState]] = {}
        self._lock = threads.lock()

    def begin(self, run: Run) -> tuple[RunState, int]:
        """Return a state to continue, and the number of the run's events in it."""
        events, state = self._kept.get(run.thread_id or run.scope, ((), None))
        # Unchanged messages of a thread are the same objects (`runs.trajectory`): no text is compared. An edited or
        # rewound thread is folded from its beginning.
        if state is None or len(events) > len(run.events) or not all(map(is_, events, run.events)):
            return RunState(cut=run.truncated), 0
        return state.copy(), len(events)

    def keep(self, run: Run, count: int, state: RunState) -> None:
        """Keep the state after `count` events of the run, all of them before its latest turn."""
        with self._lock:
            thread = run.thread_id or run.scope
            # Moved to the end, so that the first of the dictionary is the least recently read.
            self._kept.pop(thread, None)
            self._kept[thread] = run.events[:count], state.copy()
            drop_oldest(self._kept, self.max_threads)

    def of(self, run: Run, read: ReadEvent = as_it_is) -> RunState:
        """Return the state after a run; see `RunState.of`."""
        state, start = self.begin(run)
        last = latest_turn(run)
        for index in range(start, len(run.events)):
            # The latest turn may still change: its tools may not have answered yet.
            if index == last > start:
                self.keep(run, index, state)
            state.push(read(run.events[index]))
        return state

    def forget(self) -> None:
        with self._lock:
            self._kept.clear()


# --- symbols, windows and keys ---


def tool_in_words(name: str) -> str:
    """Return a predicted tool, or the symbol in its place, as a text for people."""
    if name.startswith(PARALLEL):
        return f"several {name.removeprefix(PARALLEL) or 'tools'} at once"
    if name == WORDS:
        return "an answer in words"
    return name


def latest_turn(run: Run) -> int:
    """Return the position of the latest model turn among a run's events; 0 without one."""
    for index in range(len(run.events) - 1, 0, -1):
        if isinstance(run.events[index], Turn):
            return index
    return 0


def windows(state: RunState) -> list[str]:
    """Return the context keys of every window length, shortest first."""
    symbols = state.symbols
    keys = []
    for length in (0, 1, 2, 3, 5):
        # A run that is shorter than the window is a context as a whole.
        if length > len(symbols):
            keys.append(f"w*{SEPARATOR}{SEPARATOR.join(symbols)}")
            break
        tail = symbols[len(symbols) - length :]
        keys.append(f"w{length}{SEPARATOR}{SEPARATOR.join(tail)}")
    return keys


def paper_window(tools: list[str], length: int) -> str | None:
    if len(tools) < length:
        return None
    return f"p{length}{SEPARATOR}{SEPARATOR.join(tools[len(tools) - length :])}"


def parallel(tools: Iterable[str]) -> str:
    """Return the symbol of parallel calls: PARALLEL, with the tool if all calls are of one tool."""
    kinds = set(tools)
    if len(kinds) == 1:
        return PARALLEL + kinds.pop()
    return PARALLEL


def slot_key(tool: str, parameter: str) -> str:
    return f"{tool}{SEPARATOR}{parameter}"


# --- records of tools ---

Shape: TypeAlias = Mapping[str, frozenset[str]]
"""Parameter -> the JSON types of its values; empty if the schema has none."""


def tool_of(record: str) -> str:
    """Return the name of a record's tool."""
    if "~" not in record:
        return record
    return re.sub(r"~[0-9a-f]{6}$", "", record)


def is_apart(record: str) -> bool:
    """Return True for the record of a tool whose name was first used with other parameters."""
    return "~" in record and tool_of(record) != record


def name_apart(tool: str, shape: Shape) -> str:
    """Return the name of a separate record, for a tool whose name has a record with other parameters."""
    parameters = []
    for name in sorted(shape):
        types = " ".join(sorted(shape[name]))
        parameters.append(f"{name} {types}")
    # The digest is the same in every process, so all workers use one record.
    return f"{tool}~{digest('parameters', *parameters)[:6]}"


def shape_of(spec: ToolSpec) -> Shape:
    """Return names and types of a tool's parameters."""
    return {name: _types(schema) for name, schema in spec.properties.items()}


def are_alike(one: Shape, other: Shape) -> bool:
    """Return True if two tools have the same parameters; a missing type equals all types."""
    if one.keys() != other.keys():
        return False
    for name, types in one.items():
        # A server may leave out a type that another version declares.
        if types and other[name] and types != other[name]:
            return False
    return True


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    types = _declared_types(schema)
    if types == {"null"}:
        return types
    # Pydantic writes `str | None` with "null", other libraries leave the parameter out of ``required``.
    return types - {"null"}


def _declared_types(schema: Mapping[str, Any]) -> frozenset[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset([name for name in declared if isinstance(name, str)])
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if branches:
        return _types_of_branches(branches)
    choices: list[Any] = []
    if "const" in schema:
        choices = [schema["const"]]
    return frozenset([type_of(choice) for choice in schema.get("enum", choices)])


def _types_of_branches(branches: list[Any]) -> frozenset[str]:
    """Return the types of all branches; empty if one of them has none."""
    types = frozenset[str]()
    for branch in branches:
        if not isinstance(branch, Mapping):
            return frozenset()
        of_branch = _types(branch)
        if not of_branch:
            return frozenset()
        types |= of_branch
    return types


@dataclass(frozen=True)
class ToolRecords:
    """The records of calls, as one agent sees them.

    Attributes:
        offered: tool -> its record, for the agent's tools whose record has another name.
        known: tool -> the shapes of all its records, for names with several.
    """

    offered: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, Mapping[str, Shape]] = field(default_factory=dict)

    def of(self, step: ExecutedCall) -> str:
        """Return the record of a call: that of the agent's tool, unless the arguments are another's."""
        own = self.offered.get(step.tool, step.tool)
        records = self.known.get(step.tool)
        if records is None:
            return own
        # A thread may contain calls of another agent with another tool of the same name. Optional arguments may be
        # missing; unknown arguments are another tool's.
        if step.args.keys() <= records.get(own, {}).keys():
            return own
        for name, shape in records.items():
            if step.args.keys() <= shape.keys():
                return name
        return own

    def read(self, event: UserMessage | Turn) -> UserMessage | Turn:
        """Return an event with records in place of tools; the same event if all names are equal."""
        if not (self.known or self.offered) or isinstance(event, UserMessage):
            return event
        steps = []
        for step in event.steps:
            record = self.of(step)
            if record != step.tool:
                step = replace(step, tool=record)
            steps.append(step)
        return _with_steps(event, steps)

    @cached_property
    def apart(self) -> frozenset[str]:
        """The records with another name than their tool's."""
        apart = set(self.offered.values())
        for records in self.known.values():
            for record in records:
                if is_apart(record):
                    apart.add(record)
        return frozenset(apart)

    def with_records(self, tools: frozenset[str]) -> frozenset[str]:
        """Return names of tools, and the names of their records."""
        records = set()
        for record in self.apart:
            if tool_of(record) in tools:
                records.add(record)
        return tools | records

    def in_words(self, text: str) -> str:
        """Return a text with tools in place of their records."""
        for record in self.apart:
            text = text.replace(record, tool_of(record))
        return text


ALIKE: Final = ToolRecords()
"""All names have one record."""


def as_called(turn: Turn) -> Turn:
    """Return a turn with the tools in place of their records; the inverse of `ToolRecords.read`."""
    steps = []
    for step in turn.steps:
        if is_apart(step.tool):
            step = replace(step, tool=tool_of(step.tool))
        steps.append(step)
    return _with_steps(turn, steps)


def _with_steps(turn: Turn, steps: Sequence[ExecutedCall]) -> Turn:
    """Return a turn with other calls; the same turn if all are its own, because a thread's fold recognises it by
    identity.
    """
    if all(map(is_, steps, turn.steps)):
        return turn
    return replace(turn, steps=tuple(steps))
