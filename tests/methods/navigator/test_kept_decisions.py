"""Decisions kept for fine-tuning: which ones, for how long, whose, and the lines that are written of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kept import episode
from navi_script import Shop, decisions, do, say

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError, InputError, StorageError
from langgraph_toolmem.navigator.decide import recording
from langgraph_toolmem.nodes import create_navi_subgraph
from langgraph_toolmem.stores.database import NAME
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")
APART = ("toolmem", "{user_id}")
HISTORY = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello."}]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def store(shop: Shop, tmp_path: Path) -> Iterator[ToolMemory]:
    with ToolMemory(tmp_path / "memory", tools=shop.tools) as made:
        yield made


def keep(
    store: ToolMemory, thread: str = "r", step: int = 1, *, text: str = "hello", answer: str = "Hello.", **more: Any
) -> None:
    messages = [{"role": "system", "content": "Decide."}, {"role": "user", "content": text}]
    decision = {"sub_intents": [say(answer)]}
    store.navigator.decisions.add(episode(thread, "hello"), step, messages, decision, **{"good": True, **more})


def kept(store: ToolMemory, columns: str = "step, good") -> list[tuple[Any, ...]]:
    return store.navigator.decisions.ask(f"SELECT {columns} FROM decisions ORDER BY seq")


def run(store: ToolMemory, shop: Shop, *rounds: Any, **options: Any) -> Any:
    model = ScriptedChatModel(script=decisions(*rounds))
    graph = create_navi_subgraph(model, shop.tools, store, **{"keep_decisions": True, **options})
    return graph.invoke({"messages": [("user", "the orders of Ann")]})


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().decode("ascii").splitlines()]


def test_nothing_is_kept_unless_asked_for_nor_in_a_read_only_memory(
    shop: Shop, store: ToolMemory, tmp_path: Path
) -> None:
    run(store, shop, say("Hello."), keep_decisions=False)
    assert len(store.navigator.decisions) == 0
    keep(store)
    with ToolMemory(tmp_path / "memory", read_only=True) as reader:
        keep(reader, step=2)
        assert kept(reader, "step") == kept(store, "step") == [(1,)]


def test_a_node_that_runs_again_replaces_its_decision(store: ToolMemory) -> None:
    log = store.navigator.decisions
    keep(store, good=None)
    log.judge(episode("r", "hello"), 1, good=True)
    assert kept(store) == [(1, 1)]
    keep(store, good=None, answer="Good evening.")  # it died before its checkpoint, and the model was asked again
    assert kept(store) == [(1, None)]
    assert "Good evening." in kept(store, "line")[0][0]
    keep(store, text="hello again")
    keep(store, "other")
    assert len(log) == 3


def test_the_oldest_leave(store: ToolMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_DECISIONS", 3)
    for step in range(1, 6):
        keep(store, step=step)
    assert kept(store, "step") == [(3,), (4,), (5,)]


def test_a_disk_that_fails_hurts_no_run(shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / NAME).mkdir()
    with ToolMemory(tmp_path, tools=shop.tools) as store:
        state = run(store, shop, do("find_customer", name="Ann"), say("Found."))
        assert state["messages"][-1].text == "Found."
        assert [r for r in caplog.records if "could not keep a decision" in r.getMessage()]
        with pytest.raises(StorageError):
            keep(store)


# --- whose ---


def test_forget_finds_runs_whose_user_was_named_elsewhere(store: ToolMemory) -> None:
    keep(store)  # by a host that names no user here
    store.finish(HISTORY, thread_id="r", user_id="ann")
    keep(store, step=2)
    keep(store, "of another")
    store.forget(user_id="ann")
    assert kept(store, "run") == [(episode("of another", "hello"),)]


# --- what is written ---


def test_good_decisions_of_good_runs_are_written_once(store: ToolMemory, tmp_path: Path) -> None:
    out = tmp_path / "train.jsonl"
    log = store.navigator.decisions
    keep(store, "good", 1, text="first", good=None)
    log.judge(episode("good", "hello"), 1, good=True)
    keep(store, "good", 2, text="failed", good=False)
    keep(store, "good", 3, text="never seen", good=None)
    keep(store, "late", 1, text="fair")
    keep(store, "bad", 1, text="bad")
    keep(store, "unjudged", 1, text="unjudged")
    keep(store, "again", 1, text="first")
    for thread, success in (("good", True), ("again", True), ("bad", False), ("late", None)):
        store.finish(HISTORY, thread_id=thread, success=success)
    store.feedback("late", score=0.5)

    def written(**options: Any) -> list[str]:
        out.unlink(missing_ok=True)
        count = log.export(out, **options)
        found = [line["messages"][1]["content"] for line in lines(out)]
        assert count == len(found)
        return found

    assert written() == ["first", "fair"]
    before = out.read_bytes()
    assert written()
    assert out.read_bytes() == before
    assert written(min_score=0.6) == ["first"]
    assert written(min_score=0) == ["first", "fair", "bad"]
    assert written(min_score=None) == ["first", "fair", "bad", "unjudged"]
    assert lines(out)[0]["messages"][2] == {
        "role": "assistant",
        "content": json.dumps({"sub_intents": [say("Hello.")]}, separators=(",", ":")),
        "weight": 1,
    }


def test_a_decision_of_nobody_is_not_kept_and_a_score_of_another_user_does_not_count(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, namespace=APART) as store:
        keep(store)
        assert len(store.navigator.decisions) == 0, "nobody could have it forgotten"
        keep(store, user_id="ann")
        store.core.know(store.core.read(HISTORY, "r"))
        store.feedback("r", score=1.0, user_id="ben")
        with pytest.raises(InputError):
            store.navigator.decisions.export(tmp_path / "out.jsonl")
        store.feedback("r", score=1.0, user_id="ann")
        assert store.navigator.decisions.export(tmp_path / "out.jsonl") == 1


def test_files_that_exist_or_cannot_be_written_are_refused(store: ToolMemory, tmp_path: Path) -> None:
    log = store.navigator.decisions
    with pytest.raises(InputError, match="keep_decisions"):
        log.export(tmp_path / "out.jsonl")
    keep(store)
    (tmp_path / "there.jsonl").write_text("mine\n")
    for target in (tmp_path / "there.jsonl", tmp_path, tmp_path / "no" / "folder" / "x.jsonl"):
        with pytest.raises(InputError):
            log.export(target, min_score=None)
    with pytest.raises(ConfigurationError, match="min_score"):
        log.export(tmp_path / "out.jsonl", min_score=2.0)
    assert (tmp_path / "there.jsonl").read_text() == "mine\n"
