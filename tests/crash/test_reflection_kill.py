"""kill -9 while runs finish and the worker writes: every run has one entry, no critique is asked for in vain."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from children import Child
from kept import episode
from openai_server import OpenAIStubServer, make_chat_model
from queues import pending

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.entries.entry import entry_id

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="kill -9")]

ME = ("toolmem", "me")
KILLS = 8  # in each of three folders
PROCESS = """
import http.client, json, os, random, sys, time
from pathlib import Path
from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.entries.critique import Critique

folder, port, life = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def critic(entry, similar):
    asked = http.client.HTTPConnection("127.0.0.1", port)
    said = json.dumps({"model": "m", "messages": [{"role": "user", "content": entry.query}]})
    asked.request("POST", "/v1/chat/completions", said)
    answer = json.loads(asked.getresponse().read())
    os.write(1, b"asked\\n")  # whole lines, whoever else writes
    return Critique.model_validate_json(answer["choices"][0]["message"]["content"])

sys.stdin.readline()
memory = ToolMemory(folder, methods=[Entries(critic=critic)], namespace=("toolmem", "me"))
memory.core.jobs.look()  # at what the one before left
dice = random.Random(life)
for number in range(12):
    name = f"{life}-{number}"
    call = {"id": f"c{name}", "function": {"name": "send_mail", "arguments": json.dumps({"to": name})}}
    messages = [
        {"role": "user", "content": f"Send the report to <{name}>"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "sent"},
        {"role": "assistant", "content": "Done."},
    ]
    outcome = dice.choice(["good", "bad", "late", "none"])
    success = {"good": True, "bad": False}.get(outcome)
    # No two complaints are the same: each is worth a critique.
    said = "not " + "".join(chr(97 + int(each)) if each.isdigit() else "x" for each in name)
    comment = said if outcome == "bad" else None
    memory.finish(messages, thread_id=name, success=success, comment=comment)
    if dice.random() < 0.2:
        memory.finish(messages, thread_id=name, success=success, comment=comment)  # reported twice
    if outcome == "late":
        memory.feedback(name, score=0.0, comment=said)
    os.write(1, f"{name} {outcome}\\n".encode())
    time.sleep(dice.uniform(0, 0.02))
time.sleep(60)
"""


def until(child: Child, moment: str) -> list[str]:
    """What it says until it finished its first run, or had its first critique made."""
    said: list[str] = []
    while moment != "start" and not any((line == "asked") == (moment == "asked") for line in said):
        said.append(child.line())
    return said


def run_of(name: str) -> str:
    return episode(name, f"Send the report to <{name}>")


def reply(request: dict[str, Any]) -> str:
    text = str(request["messages"][-1]["content"])
    name = re.findall(r"<([\w-]+)>", text)[0]
    time.sleep(0.01)  # so that some are killed while they wait
    return json.dumps({"went_wrong": f"{name} is no address.", "call": 1, "instead": "Look the address up."})


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_killed_at_any_moment_every_run_has_one_entry_and_one_critique(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    finished: dict[str, str] = {}
    by_moment: Counter[str] = Counter()
    with OpenAIStubServer(reply) as server:
        port = server.url.split(":")[-1].split("/")[0]
        following = Child(PROCESS, tmp_path, port, f"{seed}-0")
        try:
            for life in range(KILLS):
                child, following = following, Child(PROCESS, tmp_path, port, f"{seed}-{life + 1}")
                child.say()
                moment = dice.choice(["start", "run", "asked", "asked"])
                by_moment[moment] += 1
                said = until(child, moment)
                time.sleep(dice.uniform(0, 0.15))
                said += child.kill()
                finished.update(line.split() for line in said if line != "asked")
        finally:
            following.kill()
        by_then = len(server.requests)
        with ToolMemory(tmp_path, methods=[Entries(critic=make_chat_model(server))], namespace=ME) as memory:
            queue = memory.core.jobs.queue
            left = pending(queue)
            assert memory.flush(), queue.report()
            assert queue.report() == {"pending": 0, "failing": 0, "given_up": 0}
            entries = {entry.run: entry for entry in list(memory.entries.rows.all(memory.core.users.of(None)))}
            rows = memory.core.vectors.scoped(ME).count("entries")
            asked = Counter(re.findall(r"<([\w-]+)>", str(r["messages"][-1]["content"]))[0] for r in server.requests)
    assert len(by_moment) == 3
    assert len(finished) > 2 * KILLS
    assert by_then >= by_moment["asked"]  # critiques were made by processes that were killed
    assert left  # and work was left by them
    assert rows == len(entries)
    extra = entries.keys() - {run_of(name) for name in finished}
    assert len(extra) <= KILLS  # of each process at most the run it had not yet spoken of
    for name, outcome in finished.items():
        entry = entries[run_of(name)]
        assert entry.id == entry_id(entry.run)
        assert entry.score == {"good": 1.0, "bad": 0.0, "late": 0.0, "none": None}[outcome]
        expected = f"What went wrong: {name} is no address.\nWhere: call 1, send_mail.\nInstead: Look the address up."
        assert entry.critique == (expected if entry.failed else ""), name
        assert bool(asked[name]) == entry.failed
    failed = sum(entry.failed for entry in entries.values())
    assert failed <= sum(asked.values()) <= failed + KILLS  # at most once more than needed per kill
