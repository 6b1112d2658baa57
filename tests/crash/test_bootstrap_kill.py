"""kill -9 while a cold start goes on: no request is lost, none is run again after its end, each has one entry."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from children import Child
from openai_server import OpenAIStubServer

from langgraph_toolmem import ToolMemory

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="kill -9")]

KILLS = 3
PLACES = ["Rome", "Oslo", "Bern", "Lima", "Cairo", "Delhi", "Quito", "Tunis", "Paris", "Milan", "Dakar", "Seoul"]
REQUESTS = [f"Book the {room} room in {place} for everybody" for place in PLACES for room in ("blue", "green")]
PROCESS = """
import http.client, json, os, sys, time
from pathlib import Path
from langchain_core.messages import AIMessage, ToolMessage
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.offline.coldstart import Bootstrap, Budget, Sandbox
from langgraph_toolmem.testing import ScriptedChatModel

folder, port = Path(sys.argv[1]), int(sys.argv[2])

def tell(line):
    os.write(1, f"{line}\\n".encode())  # whole lines, whoever else writes

class Agent:
    def invoke(self, state, config):
        text, thread = state["messages"][0].text, config["configurable"]["thread_id"]
        tell(f"begin {thread} {text}")
        time.sleep(0.03)
        call = {"name": "book", "args": {"room": text}, "id": f"c{thread}"}
        asked = AIMessage("", tool_calls=[call])
        return {"messages": [*state["messages"], asked, ToolMessage("ok", tool_call_id=call["id"]), AIMessage("Done.")]}

tools = [{"name": "book", "description": "Books a room.", "parameters": {"type": "object", "properties": {}}}]
verdict = lambda text, _: None if "Rome" in text else "blue" in text

def ask(messages, tools):
    name = tools[0]["function"]["name"]
    said = json.dumps({"model": name, "messages": [{"role": "user", "content": messages[-1].text}]})
    asked = http.client.HTTPConnection("127.0.0.1", port)
    asked.request("POST", "/v1/chat/completions", said)
    answer = json.loads(json.loads(asked.getresponse().read())["choices"][0]["message"]["content"])
    return AIMessage("", tool_calls=[{"name": name, "args": answer, "id": "c"}])

model = ScriptedChatModel(script=ask)
sys.stdin.readline()
with ToolMemory(folder, tools=tools) as memory:
    sandbox = Sandbox(Agent(), tools, verdict=verdict)
    made = Bootstrap(memory, sandbox, model, judge=model, budget=Budget(queries=24))
    def over(_):
        for entry in memory.entries.rows.all(memory.core.users.of(None), retired=True):
            tell(f"over {entry.query}")
    done = made.run(over)
    tell(f"ended {done.run}")
"""


def until(child: Child, word: str) -> list[str]:
    said: list[str] = []
    while not said or not said[-1].startswith(word):
        said.append(child.line())
    return said


def reply(request: dict[str, Any]) -> str:
    asked = str(request["messages"][-1]["content"])
    if request["model"] == "Judgement":
        return json.dumps({"why": "It is booked.", "done": "yes"})
    new = [text for text in REQUESTS if text not in asked][:4]
    return json.dumps({"queries": [{"text": text, "tools": ["book"]} for text in new]})


def test_killed_at_any_moment_each_request_is_finished_once(tmp_path: Path) -> None:
    dice = random.Random(5)
    begun: Counter[str] = Counter()
    threads: list[str] = []
    over: set[str] = set()
    again: list[str] = []
    with OpenAIStubServer(reply) as server:
        port = server.url.split(":")[-1].split("/")[0]
        following = Child(PROCESS, tmp_path, port)
        for life in range(KILLS + 1):
            child, following = following, Child(PROCESS, tmp_path, port)
            child.say()
            if life < KILLS:
                said = until(child, "over" if life % 3 == 2 else "begin")
                time.sleep(dice.uniform(0, 0.12) if life % 3 else 0)  # 0: in the middle of a run
            else:
                said = until(child, "ended")
            said += child.kill()
            known = set(over)  # what had been said to be over before this process began
            for line in said:
                word, _, rest = line.partition(" ")
                if word == "begin":
                    thread, _, text = rest.partition(" ")
                    threads.append(thread)
                    begun[text] += 1
                    again += [text] if text in known | over else []
                elif word == "over":
                    over.add(rest)
        following.kill()

    assert said[-1] == "ended 24"
    assert not again
    with ToolMemory(tmp_path) as memory:
        assert memory.flush()
        entries = list(memory.entries.rows.all(memory.core.users.of(None), retired=True))
    assert max(Counter(entry.query for entry in entries).values()) == 1 <= len(entries) == 24
    for entry in entries:
        assert entry.made_by == "bootstrap"
        assert entry.score == (1.0 if "Rome" in entry.query or "blue" in entry.query else 0.0)
