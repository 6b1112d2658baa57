"""Short histories, in OpenAI's message format, for tests of the graph and the predictor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory
from langgraph_toolmem.atoms.atoms import Atom
from langgraph_toolmem.atoms.extract import Extractor
from langgraph_toolmem.atoms.slots import Known, Slots
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.events import Record
from langgraph_toolmem.graph.sources import read_input
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import UNSEEN, ModelInput, Run
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.trajectory import parse_run

Message = Any
"""A dict in OpenAI's format, or a LangChain message."""
FAILED = object()
"""As an output: the call failed."""


def schema(name: str, required: str = "", optional: str = "", **extra: Any) -> dict[str, Any]:
    """A tool dict; parameters are ``"name"`` (a string) or ``"name:type"``, separated by spaces."""
    both = [*required.split(), *optional.split()]
    properties = {p.partition(":")[0]: {"type": p.partition(":")[2] or "string"} for p in both}
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [p.partition(":")[0] for p in required.split()],
    }
    return {"name": name, "description": f"{name}.", "parameters": parameters, **extra}


def reading(name: str, required: str = "", optional: str = "", **extra: Any) -> dict[str, Any]:
    """A tool dict as `schema` makes it, of a tool that is declared to only read."""
    return schema(name, required, optional, read_only=True, **extra)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def words(text: str = "Done.") -> Message:
    return {"role": "assistant", "content": text}


def call(tool: str, args: Mapping[str, Any] | None = None, output: Any = "ok", *, text: str = "") -> list[Message]:
    """One call of the model and its answer."""
    return calls([(tool, args or {}, output)], text=text)


def calls(made: Sequence[tuple[str, Mapping[str, Any], Any]], *, text: str = "") -> list[Message]:
    """Several calls of one turn and their answers."""
    asked = [
        {"id": f"call_{i}", "type": "function", "function": {"name": tool, "arguments": json.dumps(args)}}
        for i, (tool, args, _) in enumerate(made)
    ]
    history: list[Message] = [{"role": "assistant", "content": text, "tool_calls": asked}]
    for i, (_, _, output) in enumerate(made):
        failed = output is FAILED
        content = "it failed" if failed else output if isinstance(output, str) else json.dumps(output)
        answer = {"role": "tool", "tool_call_id": f"call_{i}", "content": content}
        history.append({**answer, "status": "error"} if failed else answer)
    return history


def shortcut(tool: str, args: Mapping[str, Any] | None = None, output: Any = "ok") -> list[Message]:
    """One call that the shortcut made and its answer."""
    history = call(tool, args, output)
    history[0]["additional_kwargs"] = {"toolmem": {"by": "inertia"}}
    return history


def history(*parts: Message | Iterable[Message]) -> list[Message]:
    """Parts joined to one list."""
    joined: list[Message] = []
    for part in parts:
        joined += list(part) if isinstance(part, (list, tuple)) else [part]
    return joined


def run_of(*parts: Message | Iterable[Message], thread_id: str = "r") -> Run:
    return parse_run(history(*parts), thread_id=thread_id)


def state_of(*parts: Message | Iterable[Message]) -> RunState:
    return RunState.of(run_of(*parts))


class Learner:
    """A memory with nothing but the shortcut, and the records that were applied to its graph."""

    def __init__(
        self,
        tools: Sequence[Mapping[str, Any]] | None = None,
        policy: InertiaPolicy | None = None,
        similarity: Any = 0.0,
        seed: int = 0,
        reads: Iterable[str] = (),
        constants: Iterable[str] = (),
    ) -> None:
        self.policy = policy or InertiaPolicy(audit_rate=0.0)
        score = similarity if callable(similarity) else lambda thought, tool: similarity
        self.inertia = Inertia(self.policy, seed=seed)
        self.memory = ToolMemory.ephemeral(tools=tools, reads=reads, constants=constants, methods=[self.inertia])
        self.inertia.similarity = score
        self.core, self.graph = self.memory.core, self.memory.core.graph
        self.records: list[tuple[str, Record]] = []
        self._apply = self.core.apply
        self.core.apply = self._keep  # type: ignore[method-assign]

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        return self.core.catalogue.specs

    def _keep(self, key: str | None, record: Record, **whose: Any) -> bool:
        if key is not None:  # of a turn
            self.records.append((key, record))
        return self._apply(key, record, **whose)

    def learn(
        self,
        *parts: Message | Iterable[Message],
        thread_id: str = "r",
        user: str | None = None,
        on_turn: Any = None,
        seen: ModelInput = UNSEEN,
    ) -> int:
        """Learns a whole run; how many turns were new."""
        run, whose = run_of(*parts, thread_id=thread_id), User(user, user, ("toolmem",))
        options = {"policy": self.policy, "on_turn": on_turn}
        return self.core.lifecycle.learn(run, whose, last_turn_too=True, model_input=seen, inertia=options)[1]

    def decide(
        self,
        *parts: Message | Iterable[Message],
        user: str | None = None,
        thought: str = "",
        specs: Mapping[str, ToolSpec] | None = None,
        seen: ModelInput = UNSEEN,
    ) -> Any:
        """The decision before the model's next turn."""
        run = run_of(*parts, thread_id="now")
        assert run.awaiting_model
        state = RunState.of(run)
        state.thought = thought or state.thought
        state.seen = read_input(seen)
        catalogue = self.inertia.core.catalogue
        tools = {"specs": catalogue.recorded(specs), "names": catalogue.records(specs)}
        return self.inertia.decide(self.inertia.situation_of(state, policy=self.policy, **tools))


def atoms_of(run: Run, specs: Mapping[str, ToolSpec], **how: Any) -> list[Atom]:
    """The atoms of one run."""
    return [each.atom for each in Extractor(specs).steps(run, **how)]


def known_of(run: Run, specs: Mapping[str, ToolSpec]) -> Known:
    """What a run knows after its last event."""
    known, slots = Known(), Slots(specs)
    for event in run.events:
        known.push(event, slots)
    return known
