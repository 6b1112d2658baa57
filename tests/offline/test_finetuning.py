"""Training data out of recorded turns: which turns, split how, in which form, in which files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, convert_to_messages
from langgraph.checkpoint.memory import InMemorySaver
from navi_script import Part, Shop, do, say
from openai_server import OpenAIStubServer, make_chat_model

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.navigator.decide.decision import Decision
from langgraph_toolmem.navigator.decide.recording import DeciderTurn, DecisionLog
from langgraph_toolmem.nodes.navi import create_navi_subgraph
from langgraph_toolmem.offline.finetuning import choose, export_sft, line_of
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.structured import StructuredModel

pytestmark = pytest.mark.usefixtures("nothing_failed")


def event(thread_id: str, step: int = 1, *, text: str = "", action: Part | None = None, **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Decide."}, {"role": "user", "content": text or f"{thread_id} {step}"}]
    decision = {"sub_intents": [action or say("Hello.")]}
    return {
        "messages": messages,
        "decision": decision,
        "thread_id": thread_id,
        "step": step,
        "request": thread_id,
        **more,
    }


def well(thread_id: str, step: int) -> dict[str, Any]:
    return {"run": digest("run", thread_id), "step": step, "calls": [{"tool": "find_customer", "status": "ok"}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six good runs of two turns, a bad one, one that nobody judged, and one that broke off."""
    with ToolMemory(tmp_path / "memory") as store:
        for thread_id in ("a", "b", "c", "d", "e", "f", "bad", "unjudged", "broken"):
            store.navigator.decisions(event(thread_id, 1, action=do("find_customer", name="Ann"), calls=1))
            store.navigator.decisions.observed(well(thread_id, 1))
            if thread_id != "broken":
                store.navigator.decisions(event(thread_id, 2))
            if thread_id in "abcdef":
                store.core.lifecycle.judge(digest("run", thread_id), 1.0, None, None)
        store.core.lifecycle.judge(digest("run", "bad"), 0.0, None, None)
    return tmp_path / "memory"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().decode("ascii").splitlines()]


# --- end to end: what the model was sent is what is trained on ---


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def memory_folder(tmp_path: Path) -> Path:
    return tmp_path / "memory"


@pytest.fixture
def store(shop: Shop, memory_folder: Path) -> Iterator[ToolMemory]:
    with ToolMemory(memory_folder, tools=shop.tools) as made:
        yield made


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
def test_lines_are_what_the_model_was_sent(method: Any, shop: Shop, store: ToolMemory, memory_folder: Path) -> None:
    rounds: list[Any] = [
        [do("find_customer", name="Ann"), do("find_customer", name="Бен\u2028 \U0001f600")],
        "no decision",
        [do("list_orders", customer_id="c-Ann")],
        [do("refund_order", order_id="o-c-Ann")],
        [do("search_customers", name="Ann")],
        [say("Refunded, \u201cas asked\u201d.")],
    ]

    def reply(request: dict[str, Any]) -> Any:
        parts = rounds[len(server.requests) - 1]
        text = parts if isinstance(parts, str) else json.dumps({"sub_intents": parts})
        if "response_format" in request:
            return text
        name = request["tools"][0]["function"]["name"]
        call = {"name": name, "args": text, "id": None, "error": None, "type": "invalid_tool_call"}
        return AIMessage("", invalid_tool_calls=[call])  # arguments as they are

    config: Any = {"configurable": {"thread_id": "t1", "user_id": "ann@example.com"}}
    with OpenAIStubServer(reply=reply) as server:
        model = make_chat_model(server)
        graph = create_navi_subgraph(
            model,
            shop.tools,
            store,
            method=method,
            on_decision=store.navigator.decisions,
            checkpointer=InMemorySaver(),
        )
        feed: Any = {"messages": [("user", "refund Ann's order")]}
        state = graph.invoke(feed, config)
        store.finish(state["messages"], thread_id="t1", success=True, user_id="ann@example.com")
    out = memory_folder.parent / "train.jsonl"
    with ToolMemory(memory_folder, read_only=True) as beside:  # while another one writes
        done = export_sft(beside.navigator.decisions, out)
    assert (done.turns, done.runs) == (5, 1)
    sent = [request["messages"] for n, request in enumerate(server.requests) if n != 2]  # the third is the repair
    written = lines(out)
    assert len(written) == len(sent) == 5
    for line, prompt, parts in zip(written, sent, [rounds[0], *rounds[2:]], strict=True):
        *messages, action = line["messages"]
        assert messages == [{"role": m["role"], "content": m["content"]} for m in prompt]
        assert [message["role"] for message in messages] == ["system", "user"]
        assert (action["role"], action["weight"]) == ("assistant", 1)
        # A fine-tuned model that writes this is understood.
        answer = StructuredModel(ScriptedChatModel(script=[action["content"]]), Decision, method="text").ask(
            convert_to_messages(messages)
        )
        assert answer.value == Decision.model_validate({"sub_intents": parts})
    last = written[-1]["messages"][1]["content"]
    assert last.count("Decided:") == 3  # the window
    assert "Toolchains of the last search" in written[0]["messages"][1]["content"]
    assert "ann@example.com" not in out.read_text()
    assert '"t1"' not in out.read_text()


# --- which turns ---


def turn(number: int, run: str = "r", **more: Any) -> DeciderTurn:
    fields = {"task": run, "step": 1, "time": 0.0, "score": 1.0, "calls": 0, "failed": 0, "left_out": 0}
    return DeciderTurn(**{"number": number, "run": run, **fields, "final": True, "same": str(number), **more})


def test_turns_of_good_runs_whose_calls_went_well() -> None:
    turns = [
        turn(1, "good", calls=2),
        turn(2, "good", calls=1, failed=1),
        turn(3, "good", calls=1, failed=None),
        turn(4, "good", left_out=1),
        turn(5, "fair", score=0.5),
        turn(6, "bad", score=0.4),
        turn(7, "unjudged", score=None),
        turn(8, "broken", score=None, final=False),
        turn(9, "again", same="1"),
    ]

    def numbers(**options: Any) -> list[int]:
        return [each.number for each in choose(turns, **options).turns]

    assert numbers() == [1, 5]
    assert choose(turns).left_out == {
        "with calls that went wrong": 3,
        "judged too low": 1,
        "unjudged": 2,
        "duplicate": 1,
    }
    assert numbers(min_score=0.6) == [1]
    assert numbers(min_score=0.0) == [1, 5, 6]
    assert numbers(unjudged=True) == [1, 5, 7]
    assert choose(turns, unjudged=True).left_out["without an answer"] == 1


def test_turns_come_run_by_run() -> None:
    turns = [turn(4, "a"), turn(1, "a"), turn(2, "b"), turn(3, "a")]
    assert [each.number for each in choose(turns).turns] == [1, 3, 4, 2]


# --- lines and files ---


def test_the_two_forms_of_a_line() -> None:
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    action = {"role": "assistant", "content": '{"sub_intents":["é"]}'}
    decision = {"sub_intents": ["é"]}
    assert line_of(prompt, decision) == {"messages": [*prompt, {**action, "weight": 1}]}
    assert line_of(prompt, decision, "prompt-completion") == {"prompt": prompt, "completion": [action]}


def test_texts_that_break_readers_of_lines_are_written_so_that_they_do_not(tmp_path: Path) -> None:
    log = DecisionLog(None)
    log(event("r", text="one\u2028two\x85three\nfour \ud83d\ude00 \ud800 end \ufeff"))
    export_sft(log, tmp_path / "out.jsonl", unjudged=True)
    (line,) = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    said = json.loads(line)["messages"][1]["content"]
    assert said == "one\u2028two\x85three\nfour \U0001f600 \ufffd end \ufeff"
    log.close()


def test_the_same_log_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    with ToolMemory(folder, read_only=True) as store:
        for name in ("one", "two"):
            export_sft(store.navigator.decisions, tmp_path / f"{name}.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes() != b""


def test_options_say_which_turns_are_written(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "train.jsonl"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def written(**options: Any) -> tuple[Any, list[dict[str, Any]]]:
        with ToolMemory(folder, read_only=True) as store:
            return export_sft(store.navigator.decisions, out, overwrite=True, **options), lines(out)

    done, found = written()
    assert (done.turns, done.runs, done.recorded, len(found)) == (12, 6, 17, 12)
    assert done.left_out == {"judged too low": 2, "unjudged": 3}
    assert all(set(line) == {"messages"} for line in found)
    done, _ = written(unjudged=True)
    assert (done.turns, done.left_out) == (14, {"judged too low": 2, "without an answer": 1})
    assert written(min_score=0)[0].turns == 14
    _, found = written(form="prompt-completion")
    assert all(set(line) == {"prompt", "completion"} for line in found)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_files_that_are_there_and_places_that_cannot_be_written_are_refused(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "train.jsonl"
    there = tmp_path / "there.jsonl"
    there.write_text("mine\n")
    with ToolMemory(folder, read_only=True) as store:
        for target, options in (
            (there, {}),
            (tmp_path, {}),
            (tmp_path / "no" / "folder" / "x.jsonl", {}),
            (out, {"min_score": 2.0}),
        ):
            with pytest.raises((InputError, ConfigurationError)):
                export_sft(store.navigator.decisions, target, **options)
    assert not out.exists()
    assert there.read_text() == "mine\n"
    for asked, word in (([], "on_decision"), ([event("r")], "unjudged=True")):
        log = DecisionLog(None)
        for each in asked:
            log(each)
        with pytest.raises(InputError, match=word):
            export_sft(log, out)
        log.close()
