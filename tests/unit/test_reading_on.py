"""A thread is read once: what is read on from what was read before is what a full reading gives."""

from __future__ import annotations

import copy
import random

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_toolmem.graph.state import Folds, RunState
from langgraph_toolmem.runs.run import SUMMARY_TOOL, Execution, Run, Turn, UserMessage
from langgraph_toolmem.runs.trajectory import ExecutionLog, Reading, ThreadHistory, ThreadKnowledge

WORDS = ("Find the order of Ann", "Yes, please", "thanks", "Which one?", "And the one of Ben?", "hi")
TOOLS = ("find", "note", SUMMARY_TOOL)


class Thread:
    """A thread that goes on, is edited, trimmed, forked and loaded again, by chance."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.messages: list[BaseMessage] = []
        self.known: dict[str, str] = {}
        self.log = ExecutionLog(lambda _thread: self.known)
        self.folds = Folds()
        self.thread = self.dice.choice([None, "t"])
        self.number = 0

    def id(self, kind: str) -> str | None:
        self.number += 1
        return self.dice.choice([None, f"{kind}-{self.number}", f"{random.Random(self.number).getrandbits(96):024x}"])

    def step(self) -> None:
        dice, messages = self.dice, self.messages
        waiting = [
            call["id"]
            for each in messages[-6:]
            if isinstance(each, AIMessage)
            for call in each.tool_calls
            if not any(isinstance(m, ToolMessage) and m.tool_call_id == call["id"] for m in messages)
        ]
        what = dice.choices(
            ["user", "calls", "words", "answer", "late", "edit", "trim", "fork", "load", "seen", "system", "learned"],
            [4, 8, 3, 12, 1, 3, 0.3, 1, 2, 4, 0.3, 3],
        )[0]
        if what == "user":
            messages.append(HumanMessage(dice.choice(WORDS), id=self.id("u")))
        elif what == "calls":
            calls = [
                {"name": dice.choice(TOOLS), "args": {"summary": dice.choice(WORDS)}, "id": self.id("c") or f"c{i}"}
                for i in range(dice.choice([1, 1, 2]))
            ]
            marks = {"toolmem": {"by": "shortcut"}} if dice.random() < 0.2 else {}
            messages.append(AIMessage(dice.choice(("", "I look.")), tool_calls=calls, additional_kwargs=marks))
        elif what == "words":
            said = dice.choice([*WORDS, "Model call limits exceeded: run limit (3/3)"])
            messages.append(AIMessage(said, id=self.id("a")))
        elif what == "answer" and waiting:
            status = dice.choice(["success", "success", "error"])
            messages.append(ToolMessage(dice.choice(('{"id": 1}', "gone")), tool_call_id=waiting[-1], status=status))
        elif what == "late" and messages:
            call_id = waiting[0] if waiting else "c0"
            messages.append(ToolMessage('{"id": 2}', tool_call_id=call_id))
        elif what == "edit" and messages:
            message = messages[at := dice.randrange(len(messages))]
            if dice.random() < 0.4:
                messages[at] = message.model_copy(update={"content": dice.choice(WORDS)})
            elif isinstance(message, AIMessage) and message.tool_calls and dice.random() < 0.7:
                edited = {**message.tool_calls[0], "args": {"summary": dice.choice(WORDS)}}
                if dice.random() < 0.5:
                    message.tool_calls = [edited, *message.tool_calls[1:]]
                else:
                    message.tool_calls[0] = edited
            else:
                message.content = dice.choice(WORDS)
        elif what == "trim":
            del messages[: dice.randrange(4)]
        elif what == "fork" and messages:
            del messages[dice.randrange(len(messages)) :]
        elif what == "load":
            self.messages = copy.deepcopy(messages)
        elif what == "system":
            messages.insert(0, SystemMessage("Be kind."))
        elif what in ("seen", "learned"):
            run = self.log.read(self.messages, self.thread)
            if what == "learned":
                self.known |= {each.key: each.episode for each in run.events if isinstance(each, UserMessage)}
            elif turns := [each for each in run.events if isinstance(each, Turn) and each.steps]:
                turn = dice.choice(turns[-3:])
                self.log.begins(turn.key)
                step = turn.steps[0]
                self.log.saw(step.key, Execution(step.tool, dice.choice([step.args, {"x": 1}]), "failed"))

    def read_anew(self) -> Run:
        log, heads = self.log, self.log.heads if self.thread is None else {}
        knowledge = ThreadKnowledge(self.thread, log.executions, log.turns, self.known, heads)
        return Reading(knowledge).extend(self.messages)


@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(16, 80), marks=pytest.mark.long)], ids=str)
def test_reading_on_is_as_reading_anew(seeds: range) -> None:
    kept = 0
    for seed in seeds:
        thread = Thread(seed)
        for _ in range(80):
            thread.step()
            anew = thread.read_anew()
            ours = thread.log.read(thread.messages, thread.thread)
            assert ours == anew, seed
            call, half = ThreadHistory(thread.messages), thread.dice.randrange(len(thread.messages) + 1)
            before = ThreadHistory(thread.messages[:half])
            thread.log.read(before, thread.thread)
            for history in (call, before.plus(thread.messages[half:])):
                again = thread.log.read(history, thread.thread)
                assert again == thread.read_anew(), seed
            assert thread.log.read(call, thread.thread) is again or call.run == again
            kept += any(len(prefix.parts.messages) > 2 for prefix in thread.log.prefixes.values())
            state, folded = thread.folds.of(ours), RunState.of(anew)
            for name in vars(folded):
                assert getattr(state, name) == getattr(folded, name), (seed, name)
    assert kept > 10 * len(seeds)
