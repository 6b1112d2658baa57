"""A tiny world for tests of discovery: a safe that opens with a key, a lamp, and a bell that always fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph_toolmem.offline.discovery.search import Goal, Proposal, Reflection, State
from langgraph_toolmem.offline.discovery.world import EnvironmentCall, Observation, Task
from langgraph_toolmem.runs.tools import read_tools


def tool(name: str, about: str, /, *, reads: bool = False, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"name": name, "description": about, "parameters": schema, "tags": ["read_only"] if reads else []}


TOOLS = [
    tool("find_key", "Find a key by the name on it.", reads=True, name="Name on the key."),
    tool("open_safe", "Open a safe with a key.", key_id='Id of the key, for example "key_1".'),
    tool("light_lamp", "Light or put out a lamp.", lamp_id='Id of the lamp, for example "lamp_1".'),
    tool("ring_bell", "Ring the bell."),
]
SPECS = read_tools(TOOLS)
KEYS = {"Garden": "key_11", "Cellar": "key_22"}
TASK = Task("t1", "Open the safe with the Cellar key.", {"key": "Cellar"})


class Rooms:
    """See the module. `log` has every call that was made, with "reset" in between."""

    tools = TOOLS

    def __init__(self) -> None:
        self.log: list[str] = []
        self.opened: list[str] = []
        self.lit: set[str] = set()
        self.wanted = ""

    def reset(self, task: Task) -> None:
        self.log.append("reset")
        self.opened, self.lit, self.wanted = [], set(), KEYS[task.data["key"]]

    def step(self, call: EnvironmentCall) -> Observation:
        self.log.append(call.tool)
        if call.tool == "find_key":
            key = KEYS.get(str(call.args["name"]))
            return Observation({"keys": [{"id": key, "name": call.args["name"]}] if key else []})
        if call.tool == "open_safe":
            if call.args["key_id"] not in KEYS.values():
                return Observation("Error: no such key.", ok=False)
            self.opened.append(str(call.args["key_id"]))
            return Observation({"safe": "open"})
        if call.tool == "light_lamp":
            self.lit ^= {str(call.args["lamp_id"])}
            return Observation({"lamp": sorted(self.lit)})
        return Observation("Error: the bell is broken.", ok=False)

    def success(self) -> bool | None:
        return self.opened == [self.wanted] and not self.lit


class WithSnapshots(Rooms):
    def snapshot(self) -> Any:
        return list(self.opened), set(self.lit)

    def restore(self, kept: Any) -> None:
        self.log.append("restore")
        self.opened, self.lit = list(kept[0]), set(kept[1])


class Script:
    """A policy that always proposes the same calls; what was asked of it is written down."""

    def __init__(self, *proposals: Proposal, pivots: Sequence[Proposal] = ()) -> None:
        self.proposals, self.pivots = proposals, tuple(pivots)
        self.planned: list[State] = []
        self.reflected: list[str] = []

    def plan(self, state: State) -> Goal:
        self.planned.append(state)
        return Goal("open it", len(self.planned) - 1, 2)

    def propose(self, state: State) -> Sequence[Proposal]:
        return self.proposals

    def reflect(self, state: State, failed: Any) -> Reflection:
        self.reflected.append(failed.call.tool)
        return Reflection("it was tried", "it failed", self.pivots)


class Keeper(Script):
    """Looks up the key that the request names and opens the safe with it."""

    def propose(self, state: State) -> Sequence[Proposal]:
        found = [row["id"] for taken in state.taken for row in taken.observation.output.get("keys", ())]
        names = [name for name in KEYS if name in state.task.request]
        return [*(call("open_safe", key_id=key) for key in found), *(call("find_key", name=name) for name in names)]


def call(tool_name: str, weight: float = 1.0, /, **args: str) -> Proposal:
    return Proposal("call", weight, EnvironmentCall(tool_name, args))
