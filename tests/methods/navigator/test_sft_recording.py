"""The log of decisions: what it keeps, from several processes, through kill -9, and what it forgets."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kept import episode
from langgraph.checkpoint.memory import InMemorySaver
from navi_script import Shop, decisions, do, say, seek

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.navigator.decide.recording import REST_SECONDS, DecisionLog
from langgraph_toolmem.nodes.navi import create_navi_subgraph
from langgraph_toolmem.stores.database import NAME, query_readonly
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")
APART = ("toolmem", "{user_id}")
REQUEST = "the orders of Ann"
HISTORY = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello."}]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def store(shop: Shop, tmp_path: Path) -> Iterator[ToolMemory]:
    with ToolMemory(tmp_path / "memory", tools=shop.tools) as made:
        yield made


def event(
    step: int = 1, thread_id: str = "r", text: str = "hello", answer: str = "Hello.", **more: Any
) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Decide."}, {"role": "user", "content": text}]
    return {
        "messages": messages,
        "decision": {"sub_intents": [say(answer)]},
        "thread_id": thread_id,
        "run": episode(thread_id, text),
        "step": step,
        **more,
    }


def known(store: ToolMemory, thread_id: str) -> None:
    """As a node does before the model is asked."""
    store.core.know(store.core.read(HISTORY, thread_id))


def lies_in(body: bytes, folder: Path) -> bool:
    """Whether a piece of packed texts is in any file; their beginnings are alike, and a page may end anywhere."""
    found = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return any(body[place : place + 20] in found for place in range(len(body) - 200, len(body) - 20, 20))


def run(store: ToolMemory, shop: Shop, *rounds: Any, config: Any = None, feed: Any = None) -> Any:
    graph = create_navi_subgraph(
        ScriptedChatModel(script=decisions(*rounds)),
        shop.tools,
        store,
        on_decision=store.navigator.decisions,
        checkpointer=None if config is None else InMemorySaver(),
    )
    feed = feed or {"messages": [("user", REQUEST)]}
    return graph.invoke(feed, config)


def test_each_turn_is_kept_with_what_came_of_it(shop: Shop, store: ToolMemory) -> None:
    shop.broken = {"list_orders"}
    run(
        store,
        shop,
        [do("find_customer", name="Ann"), say("I begin.")],
        do("list_orders", customer_id="c-Ann"),
        [do("no_such_api"), do("find_customer", name="Ben")],
        seek("an API that lists orders"),
        say("The orders cannot be had."),
        config={"configurable": {"thread_id": "t1"}},
    )
    turns = store.navigator.decisions.turns()
    assert [turn.step for turn in turns] == [1, 2, 3, 4, 5]
    assert [(turn.calls, turn.failed, turn.left_out) for turn in turns] == [
        (1, 0, 0),
        (1, 1, 0),
        (1, 0, 1),
        (0, 0, 0),
        (0, 0, 0),
    ]
    assert [turn.went_well for turn in turns] == [True, False, False, True, True]
    assert [turn.final for turn in turns] == [False, False, False, False, True]
    assert {turn.run for turn in turns} == {store.core.episodes.named("t1", None)}
    assert len({turn.task for turn in turns}) == 1
    texts = list(store.navigator.decisions.texts(turns))
    assert [message["role"] for message in texts[0][0]] == ["system", "user"]
    assert REQUEST in texts[0][0][1]["content"]
    assert texts[4][1]["sub_intents"][0]["text"] == "The orders cannot be had."


def test_nothing_is_recorded_unless_it_is_asked_for(shop: Shop, store: ToolMemory) -> None:
    script = decisions(say("Hello."))
    create_navi_subgraph(ScriptedChatModel(script=script), shop.tools, store).invoke({"messages": [("user", "hello")]})
    assert store.navigator.decisions.turns() == []
    assert store.core.folder is not None
    assert query_readonly(store.core.folder / NAME, "SELECT * FROM decisions") is None


def test_a_node_that_runs_again_replaces_what_it_recorded(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    log(event(1, calls=1))
    log.observed({"run": episode("r", "hello"), "step": 1, "calls": [{"tool": "a", "status": "ok"}]})
    assert [turn.failed for turn in log.turns()] == [0]
    log(event(1, calls=2, answer="Good evening."))  # it died before its checkpoint, and the model was asked again
    (turn,) = log.turns()
    assert (turn.calls, turn.failed) == (2, None)
    assert [decision["sub_intents"][0]["text"] for _, decision in log.texts([turn])] == ["Good evening."]
    log(event(1, text="hello again"))
    log(event(1, thread_id="other"))
    assert len(log) == 3
    log.close()


def test_the_oldest_turns_leave(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, most=3)
    for step in range(1, 6):
        log(event(step))
    assert [turn.step for turn in log.turns()] == [3, 4, 5]
    log.close()


def test_verdicts_come_from_finish_and_feedback(store: ToolMemory) -> None:
    for thread_id in ("good", "late", "nobody"):
        store.navigator.decisions(event(thread_id=thread_id))
    store.finish(HISTORY, thread_id="good", success=True)
    known(store, "late")
    store.feedback("late", score=0.25)
    assert [turn.score for turn in store.navigator.decisions.turns()] == [1.0, 0.25, None]


def test_a_run_without_an_id_has_its_verdict_by_its_first_message(shop: Shop, store: ToolMemory) -> None:
    state = run(store, shop, do("find_customer", name="Ann"), say("Found."))
    store.finish(state["messages"], success=True)
    assert [(turn.score, turn.went_well) for turn in store.navigator.decisions.turns()] == [(1.0, True), (1.0, True)]


def test_a_verdict_of_another_user_with_the_same_run_id_does_not_count(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, namespace=APART) as store:
        store.navigator.decisions(event(user_id="ann"))
        known(store, "r")
        store.feedback("r", score=1.0, user_id="ben")
        assert [turn.score for turn in store.navigator.decisions.turns()] == [None]
        store.feedback("r", score=1.0, user_id="ann")
        assert [turn.score for turn in store.navigator.decisions.turns()] == [1.0]


def test_forget_takes_a_user_s_turns_from_the_disk(shop: Shop, tmp_path: Path) -> None:
    secrets = {"ann": "Eisenhower-4711", "ben": "Rosenkohl-0815"}
    with ToolMemory(tmp_path, tools=shop.tools, namespace=APART) as store:
        for user, secret in secrets.items():
            config = {"configurable": {"thread_id": f"of-{user}", "user_id": user}}
            feed = {"messages": [("user", f"{secret} {' '.join(secret + str(n) for n in range(50))}")]}
            run(store, shop, say(f"{secret}."), config=config, feed=feed)
        assert len(store.navigator.decisions) == 2
        with closing(sqlite3.connect(tmp_path / NAME)) as database:
            ann, ben = (body for (body,) in database.execute("SELECT body FROM turns ORDER BY seq"))
        assert lies_in(ann, tmp_path)
        assert lies_in(ben, tmp_path)
        assert store.forget(user_id="ann") > 0
        left = list(store.navigator.decisions.texts(store.navigator.decisions.turns()))
        assert len(left) == 1
        assert secrets["ben"] in json.dumps(left)
        assert secrets["ann"] not in json.dumps(left)
        assert not lies_in(ann, tmp_path)
        assert lies_in(ben, tmp_path)
    with ToolMemory(tmp_path, namespace=APART) as later:  # one that never recorded anything itself
        later.forget(user_id="ben")
        assert later.navigator.decisions.turns() == []
    assert not lies_in(ben, tmp_path)


def test_forget_finds_turns_of_runs_whose_user_was_named_elsewhere(tmp_path: Path) -> None:
    with ToolMemory(tmp_path) as store:
        store.navigator.decisions(event())  # by a host that names no user here
        store.finish(HISTORY, thread_id="r", user_id="ann")
        store.navigator.decisions(event(2))
        store.navigator.decisions(event(thread_id="of another"))
        assert store.forget(user_id="ann") >= 2
        assert [turn.run for turn in store.navigator.decisions.turns()] == [episode("of another", "hello")]


def test_turns_of_nobody_are_not_kept_where_memory_is_kept_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ToolMemory(tmp_path, namespace=APART) as store:
        store.navigator.decisions(event())
        store.navigator.decisions(event(2))
        assert len(store.navigator.decisions) == 0
    assert sum("names none" in record.getMessage() for record in caplog.records) == 1


def test_a_disk_that_fails_hurts_no_run(shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    (tmp_path / NAME).mkdir()
    with ToolMemory(tmp_path, tools=shop.tools, now=lambda: clock[0]) as store:
        state = run(store, shop, do("find_customer", name="Ann"), say("Found."))
        assert state["messages"][-1].text == "Found."
        logged = [record for record in caplog.records if "could not be recorded" in record.getMessage()]
        assert len(logged) == 1
        assert REQUEST not in logged[0].getMessage()
        (tmp_path / NAME).rmdir()
        store.navigator.decisions(event())
        assert len(store.navigator.decisions) == 0  # it is left alone for a while
        clock[0] += REST_SECONDS
        store.navigator.decisions(event())
        assert len(store.navigator.decisions) == 1


def test_a_log_beside_another_only_looks_if_it_is_told_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer, reader = DecisionLog(tmp_path), DecisionLog(tmp_path, read_only=True)
    assert reader.turns() == []
    assert not (tmp_path / NAME).exists()
    writer(event())
    reader(event(2))
    assert [turn.step for turn in reader.turns()] == [1]
    assert len(list(reader.texts(reader.turns()))) == 1
    assert "read-only" in caplog.text
    writer.close()
    before = sorted(path.name for path in tmp_path.iterdir())
    assert len(reader) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    (tmp_path / NAME).write_bytes(b"no database " * 200)
    with pytest.raises(StorageError, match="cannot be read"):
        reader.turns()
    reader.close()


WRITER = """
import sys
from pathlib import Path
from langgraph_toolmem.navigator.decide.recording import DecisionLog

folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
log = DecisionLog(folder)
print("ready", flush=True)
sys.stdin.readline()
for step in range(1, count + 1):
    messages = [{"role": "user", "content": f"{name} {step} " + "long " * 2000}]
    log.record({"messages": messages, "decision": {"sub_intents": []}, "thread_id": name, "step": step})
    print(step, flush=True)
"""


def writer(folder: Path, name: str, count: int) -> subprocess.Popen[str]:
    made = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert made.stdout is not None
    assert made.stdout.readline() == "ready\n"
    return made


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
@pytest.mark.slow
def test_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    after = 7
    process = writer(tmp_path, "one", 10_000)
    tell(process)
    assert process.stdout is not None
    for _ in range(after):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read().split()  # `communicate` leaves out what `readline` has in its buffer
    process.communicate(timeout=60)
    acknowledged = int(rest[-1]) if rest else after
    log = DecisionLog(tmp_path)
    steps = [turn.step for turn in log.turns()]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) in (acknowledged, acknowledged + 1)
    assert len(list(log.texts(log.turns()))) == len(steps)
    log(event(1))
    assert len(log) == len(steps) + 1
    log.close()
