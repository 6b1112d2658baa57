"""SIT in the memory: what is suggested, what teaches, whose it is, and what happens while Chroma is away."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromadb
import histories as h
import pytest
from chromadb.config import Settings
from hypothesis import given, settings
from hypothesis import strategies as st
from kept import inertia, ledger, sit
from langchain_core.messages import HumanMessage, ToolMessage
from places import TESTS
from symptoms import (
    CURES,
    FINDINGS,
    SCHEMAS,
    Switched,
    asked,
    before_cure,
    names,
    stored,
    summarised,
    teach,
    tool_call,
    whole,
)

from langgraph_toolmem import (
    SIT,
    Inertia,
    Navigator,
    SITPolicy,
    ToolMemory,
    default_methods,
)
from langgraph_toolmem.core import jobs
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.state import START
from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.sit.step import to_prompt
from langgraph_toolmem.stores.vectors import VectorItem, VectorStore
from langgraph_toolmem.text.embedders import resolve_embedder

PER_USER = ("toolmem", "{user_id}")
PAPER = SITPolicy.paper()
JUDGED = SITPolicy(unlabelled=0.0)
"""Only judged runs teach."""


def made(path: Path | None = None, *, policy: SITPolicy | None = None, **options: Any) -> ToolMemory:
    methods = [Inertia(), SIT(policy or JUDGED), Navigator()]
    return ToolMemory(path, **{"tools": SCHEMAS, "methods": methods, **options})


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with made() as memory:
        yield memory


def kept(memory: ToolMemory, user_id: str | None = None) -> list[str]:
    """The texts of the stored summaries."""
    return [each.text for each in stored(memory, user_id)]


def edge(memory: ToolMemory, source: str, target: str) -> Any:
    return sit(memory).walks.out_of(source).get(target)


def holding(folder: Path, word: str) -> list[str]:
    """Files with a word in them, compressed or not: pickles and databases keep texts as they are."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and word.encode() in path.read_bytes()]
    return [str(path.relative_to(folder)) for path in found]


# --- what is suggested ---


def test_the_state_tells_apart_what_frequency_does_not(memory: ToolMemory) -> None:
    teach(memory, routers=7, passwords=3)
    assert edge(memory, "read_logs", "restart_router").good == 7
    assert edge(memory, "read_logs", "reset_password").good == 3
    by_frequency = SITPolicy(recall="tool", weight_words=0.0)
    for cause, cure in CURES.items():
        assert names(memory.sit.suggest(before_cure(cause), policy=by_frequency, k=1)) == ["restart_router"]
        assert names(memory.sit.suggest(before_cure(cause), k=1)) == [cure]


def test_how_many_are_suggested_and_the_first_step(memory: ToolMemory) -> None:
    teach(memory)
    here = before_cure("router")
    for options, count in (({}, 2), ({"k": 1}, 1), ({"policy": SITPolicy(k=3)}, 3)):
        assert len(memory.sit.suggest(here, **options)) == count  # type: ignore[arg-type]
    assert len(memory.sit.suggest(here, k=99)) <= len(SCHEMAS)
    for messages in ([asked("Zoe")], [HumanMessage("My page does not load")], []):
        [first, *_] = memory.sit.suggest(messages, policy=SITPolicy(weight_words=0.0))
        assert (first.tool, first.runs) == ("read_logs", 10)


def test_a_summary_of_the_caller_goes_before_the_extract(memory: ToolMemory) -> None:
    teach(memory, summaries=True)
    [found] = memory.sit.suggest(before_cure("router"), summary=f"It looks as if {FINDINGS['password']}.", k=1)
    assert (found.tool, found.kind) == ("reset_password", "episodic")
    assert found.summary is not None
    assert FINDINGS["password"] in found.summary
    assert found.summary_id in [each.id for each in stored(memory)]
    assert (found.runs, found.success) == (3, 1.0)


def test_a_memory_whose_policy_compares_what_agents_wrote_makes_no_extracts() -> None:
    with made(policy=PAPER) as memory:
        teach(memory, routers=1, passwords=1)
        teach(memory, routers=1, passwords=0, first=50, summaries=True)
        [text] = kept(memory)
        assert "Customer 50" in text


def test_a_destructive_tool_is_not_suggested_again_for_the_request_that_called_it() -> None:
    tools = [*SCHEMAS[:1], h.schema("delete_mail", "id", destructive=True), *SCHEMAS[1:]]
    with made(tools=tools, policy=SITPolicy()) as memory:
        for i in range(4):
            run = h.history(h.user("Delete the mails"), *[h.call("delete_mail", {"id": f"{i}{n}"}) for n in range(3)])
            memory.finish([*run, h.words()], thread_id=str(i), success=True)
        asking = [h.user("Delete the mails")]
        assert names(memory.sit.suggest(asking, k=9))[0] == "delete_mail"
        done = h.history(asking, h.call("delete_mail", {"id": "1"}))
        assert "delete_mail" not in names(memory.sit.suggest(done, k=9))
        assert "delete_mail" in names(memory.sit.suggest([*done, h.words(), *asking], k=9))


@pytest.mark.parametrize("text", ["Refund order A-4711 of ida@mail.org with 'gift card'.", None])
def test_what_the_model_is_shown_holds_no_values_of_other_requests(text: str | None) -> None:
    with made(policy=SITPolicy()) as memory:
        run = h.history(
            h.user("Refund order A-4711 of ida@mail.org"),
            h.call("read_logs", {"name": "ida@mail.org"}, "Order A-4711, 12.50"),
            summarised(text) if text else [],
            h.call("restart_router", {"name": "A-4711"}),
            h.words(),
        )
        memory.finish(run, thread_id="r", success=True)
        here = h.history(h.user("Refund order B-1"), h.call("read_logs", {"name": "bob"}, "Order B-1, 1.00"))
        said = to_prompt(memory.sit.suggest(here))
        assert "A past state that led to it" in said
        assert not re.search("4711|ida|mail.org|12.50|gift", said)


# --- the summary tool is nowhere ---


def test_the_summary_tool_is_no_node(memory: ToolMemory) -> None:
    declared = [*SCHEMAS, h.schema(SUMMARY_TOOL, "summary") | {"description": "Write down where you stand."}]
    with made(tools=declared) as memory:
        teach(memory, summaries=True)
        beside = h.calls([("read_logs", {"name": "Zoe"}, "ok"), (SUMMARY_TOOL, {"summary": "beside"}, "ok")])
        memory.finish(h.history(asked("Zoe"), beside, h.call("close_ticket")), thread_id="beside", success=True)
        memory.inertia.begin_turn([asked("Ida")], tools={SUMMARY_TOOL: memory.core.catalogue.specs["read_logs"]})
        graph = memory.core.graph
        assert SUMMARY_TOOL not in {*memory.view().tools, *memory.report().tools, *graph.tools, *graph.by_tool}
        assert not [e for e in memory.view().edges if SUMMARY_TOOL in (e.source, e.target)]
        assert SUMMARY_TOOL not in repr(graph.to_state() | {"seen": b""})
        assert SUMMARY_TOOL not in memory.core.catalogue.specs
        assert names_of_hits(memory, "write down where you stand") == []
        everywhere = [START, "read_logs", *CURES.values(), "close_ticket"]
        assert [SUMMARY_TOOL in sit(memory).walks.out_of(place) for place in everywhere] == [False] * 5
        assert SUMMARY_TOOL not in names(memory.sit.suggest(before_cure("router"), available=[SUMMARY_TOOL], k=9))


def names_of_hits(memory: ToolMemory, query: str) -> list[str]:
    return [hit.name for hit in memory.navigator.search(query) if hit.name == SUMMARY_TOOL]


def test_a_run_with_the_summary_tool_counts_as_one_without() -> None:
    def learned(text: str | None) -> tuple[Any, ...]:
        with made(now=lambda: 1e9) as memory:
            steps = [h.call("read_logs", {"name": "Zoe"}), h.call("restart_router", {"name": "Zoe"}), [h.words()]]
            messages = [asked("Zoe")]
            for number, step in enumerate(steps):
                memory.inertia.begin_turn(messages, thread_id="r")
                if text is not None and number == 1:
                    asking, answer = summarised(text)
                    memory.core.lifecycle.after_model(messages, [asking], thread_id="r")
                    messages = [*messages, asking, answer]
                    memory.inertia.begin_turn(messages, thread_id="r")
                memory.core.lifecycle.after_model(messages, [step[0]], thread_id="r")
                messages = [*messages, *step]
            memory.finish(messages, thread_id="r", success=True, wait=True)
            assert not inertia(memory).open_turns
            return memory.report(), sit(memory).walks.edges.rows, memory.core.graph.successors.rows, memory.view()

    assert learned("where I stand") == learned(None)
    assert learned(None)[0].turns == 3


def test_a_summary_is_of_the_state_before_the_user_spoke_again(memory: ToolMemory) -> None:
    messages = h.history(asked("Zoe"), summarised("old state"), h.user("Wait"), h.call("read_logs", {"name": "Zoe"}))
    memory.finish([*messages, h.words()], thread_id="r", success=True)
    assert "old state" not in kept(memory)
    assert len(kept(memory)) == 1


def test_a_call_beside_the_summary_tool_is_learned_when_it_is_executed(memory: ToolMemory) -> None:
    """The summary tool's answer is not waited for: the process may end before it."""
    both = h.calls([("read_logs", {"name": "Zoe"}, "ok"), (SUMMARY_TOOL, {"summary": "beside"}, "ok")])
    new = memory.core.lifecycle.executed(
        [asked("Zoe"), both[0]], "call_0", tool="read_logs", args={"name": "Zoe"}, status="ok", thread_id="r"
    )
    assert new == 1
    assert memory.view().tools["read_logs"].ok == 1
    assert memory.observe(h.history(asked("Zoe"), both), thread_id="r") == 0


def test_the_tokens_of_a_summary_are_not_lost(memory: ToolMemory) -> None:
    def costing(call_id: str, name: str, tokens: int) -> list[Any]:
        made = tool_call(name, {"summary": "x"}, call_id)
        made.usage_metadata = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
        return [made, ToolMessage("ok", tool_call_id=call_id)]

    memory.finish([asked("Zoe"), *costing("a", SUMMARY_TOOL, 100), *costing("b", "read_logs", 150)], thread_id="r")
    counters = memory.core.graph.counters
    assert (counters["tokens_in"], counters["tokens_out"], counters["turns_with_tokens"]) == (250, 2, 1)


def test_a_recorder_that_tells_of_the_summary_tool_changes_no_step(memory: ToolMemory) -> None:
    """Ids of calls that repeat in each turn must not have it taken for an edited call of the turn before."""
    before = before_cure("router")
    asking, _ = summarised("where I stand")
    for step, name, status in ((before[:2], "read_logs", "ok"), ([*before, asking], SUMMARY_TOOL, "ok")):
        memory.core.lifecycle.executed(step, "call_0", tool=name, args={}, status=status, thread_id="r")  # type: ignore[arg-type]
    memory.finish(whole("router", "Zoe", summary="where I stand"), thread_id="r", success=True)
    assert set(memory.view().tools) == {"read_logs", "restart_router", "close_ticket"}


# --- who teaches ---


@pytest.mark.parametrize(("success", "summaries", "weight"), [(True, 3, 1 + 1 / 3), (False, 0, 0), (None, 3, 0)])
def test_only_successful_runs_teach_if_that_is_the_policy(
    memory: ToolMemory, success: bool | None, summaries: int, weight: float
) -> None:
    memory.finish(whole("router", "Zoe"), thread_id="r", success=success)
    assert len(kept(memory)) == summaries
    assert edge(memory, "read_logs", "restart_router").weight() == pytest.approx(weight)
    found = memory.sit.suggest(before_cure("router"), policy=JUDGED.with_(weight_words=0.0))
    assert names(found)[:1] == (["restart_router"] if success else [])


def test_by_default_a_run_that_nobody_judged_teaches_a_little_until_its_verdict() -> None:
    with made(policy=SITPolicy()) as memory:
        memory.observe(whole("router", "Zoe"), thread_id="r")
        (first, *_) = memory.sit.suggest(before_cure("router"))
        assert (first.tool, first.kind, first.runs) == ("restart_router", "episodic", 0)
        assert "nobody judged" in first.evidence
        memory.finish(whole("password", "Kim"), thread_id="other", success=True)
        memory.feedback("r", score=0.0)
        assert names(memory.sit.suggest(before_cure("router"), policy=SITPolicy(weight_words=0.0)))[0] != first.tool
        assert not [text for text in kept(memory) if "Zoe" in text]


@pytest.mark.parametrize("first", ["messages", "verdict"])
@pytest.mark.parametrize("good", [True, False])
def test_a_verdict_may_come_before_or_after_the_messages(memory: ToolMemory, first: str, good: bool) -> None:
    if first == "verdict":
        memory.observe(whole("router", "Zoe")[:1], thread_id="r")  # it has begun
        memory.feedback("r", score=float(good))
    memory.observe(whole("router", "Zoe"), thread_id="r")
    if first == "messages":
        assert len(kept(memory)) == 3
        memory.feedback("r", score=float(good))
    assert len(kept(memory)) == (3 if good else 0)
    assert edge(memory, "read_logs", "restart_router")[:3] == ((1, 1 / 3, 0) if good else (0, 0, 1))


THREADS = st.lists(
    st.tuples(
        st.sampled_from(["router", "password"]),
        st.sampled_from(["Zoe", "Ida"]),
        st.sampled_from([None, "The link is gone."]),
        st.sampled_from([None, 0.0, 1.0]),
    ),
    min_size=1,
    max_size=4,
)


@given(threads=THREADS, order=st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_observed_and_imported_runs_give_the_same_rows_in_any_order_judged_before_or_after(
    threads: list[Any], order: Any
) -> None:
    """The whole of a thread of two requests, message by message, or from a log; its verdict first or last."""
    histories = {
        f"t{i}": (h.history(whole(cause, name, summary=text), *whole(cause, f"other {name}")), score)
        for i, (cause, name, text, score) in enumerate(threads)
    }

    def rows(memory: ToolMemory) -> Any:
        advice = [memory.sit.suggest(before_cure(cause)) for cause in CURES]
        return sorted(map(repr, stored(memory))), advice

    def observed(memory: ToolMemory, names: list[str], *, early: bool, finished: bool) -> Any:
        for name in names:
            messages, score = histories[name]
            for upto in range(1, len(messages) + 1):
                memory.observe(messages[:upto], thread_id=name)
                begins = [i for i, each in enumerate(messages[:upto], 1) if each.get("role") == "user"]
                if early and score is not None and upto == begins[-1]:
                    memory.feedback(name, score=score, episode=len(begins))
            if finished:
                memory.finish(messages, thread_id=name)
        for name in names:
            score = histories[name][1]
            for episode in () if early or score is None else (1, 2):
                memory.feedback(name, score=score, episode=episode)
        return rows(memory)

    found = []
    for early, finished in ((True, False), (False, False), (False, True)):
        order.shuffle(names_ := [*histories])
        with made(now=lambda: 1e9) as memory:
            found.append(observed(memory, names_, early=early, finished=finished))
    with made(now=lambda: 1e9) as memory:
        order.shuffle(names_)
        runs = [(parse_run(histories[name][0], thread_id=name), None, None) for name in names_]
        memory.import_runs(runs)
        assert memory.import_runs(runs)["sit"] == 0
        found.append(observed(memory, names_, early=False, finished=False))
    assert found[1:] == found[:1] * 3


def test_learning_a_run_twice_counts_once(memory: ToolMemory) -> None:
    run = whole("router", "Zoe", summary="The link is gone.")
    memory.finish(run, thread_id="r", success=True)
    before = sit(memory).walks.edges.rows, stored(memory)
    memory.observe(run, thread_id="r")
    memory.finish(run, thread_id="r", success=True)
    memory.feedback("r", score=1.0)
    assert (
        sit(memory).walks.edges.rows,
        stored(memory),
    ) == before


def test_a_changed_verdict_takes_the_summaries_out(memory: ToolMemory) -> None:
    memory.finish(whole("password", "Ida"), thread_id="other", success=True)
    others = kept(memory)
    memory.finish(whole("router", "Zoe"), thread_id="r", success=True)
    assert len(kept(memory)) > len(others)
    memory.feedback("r", score=0.2)
    assert kept(memory) == others
    assert edge(memory, "read_logs", "restart_router") == (0, 0, 1, 0)
    memory.feedback("r", score=0.9)
    assert edge(memory, "read_logs", "restart_router").good == 1


def test_a_thread_that_goes_on_after_its_verdict(memory: ToolMemory) -> None:
    """What a request taught goes when its verdict turns; the next request has a verdict of its own."""
    run = whole("router", "Zoe")
    memory.finish(run, thread_id="r", success=True)
    more = h.history(run, h.user("And the password?"), h.call("reset_password", {"name": "Zoe"}))
    memory.observe(more, thread_id="r")
    memory.feedback("r", score=0.0, episode=1)
    assert kept(memory) == []
    memory.finish([*more, h.words()], thread_id="r", success=True)
    assert len(kept(memory)) == 1


def test_runs_without_a_verdict_teach_with_a_lower_weight_if_that_is_allowed() -> None:
    with made(policy=SITPolicy(unlabelled=0.3)) as memory:
        teach(memory, success=None)
        assert len(kept(memory)) == 30
        assert edge(memory, "read_logs", "restart_router").weight(unlabelled=0.3) == pytest.approx(0.3 * 7)
        [found] = memory.sit.suggest(before_cure("password"), k=1)
        assert (found.tool, found.runs, found.success) == ("reset_password", 0, None)
        memory.feedback("taught-9", score=0.0)  # the last of the passwords
        assert len(kept(memory)) == 27


def test_the_default_method_stores_what_is_observed_once_suggestions_are_asked_for() -> None:
    """Who only uses the shortcut has no Chroma."""
    with ToolMemory.ephemeral(tools=SCHEMAS) as memory:
        memory.observe(whole("router", "Zoe"), thread_id="r")
        assert memory.flush()
        assert memory.core.vectors.empty
        memory.sit.suggest(before_cure("router"))
        memory.observe(whole("router", "Zoe"), thread_id="r")
        assert len(kept(memory)) == 3
    for make in (ToolMemory.ephemeral, lambda: ToolMemory.ephemeral(methods=[SIT()])):
        with make() as memory:
            memory.finish(whole("router", "Zoe"), thread_id="r")
            assert len(kept(memory)) == 3


# --- restarts ---


def test_a_restart_keeps_edges_and_summaries(tmp_path: Path) -> None:
    here = before_cure("password")
    with made(tmp_path) as memory:
        teach(memory, summaries=True)
        memory.observe(whole("password", "Open"), thread_id="open")
        before = memory.sit.suggest(here), kept(memory), sit(memory).walks.edges.rows
    with made(tmp_path) as memory:
        assert (memory.sit.suggest(here), kept(memory), sit(memory).walks.edges.rows) == before


def in_a_process(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    start = f"""
        import os, sys
        sys.path[:0] = [{str(TESTS)!r}, {str(Path(__file__).parent)!r}]
        from test_sit_memory import *
        folder = Path({str(folder)!r})
        """
    code = textwrap.dedent(start) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_killed_between_the_verdict_and_chroma(tmp_path: Path) -> None:
    """The next process that opens the folder stores the summaries."""
    killed = in_a_process(
        tmp_path,
        f"""
        memory = made(folder)
        memory.sit.rows.put = lambda *_, **__: os.kill(os.getpid(), {int(signal.SIGKILL)})
        memory.finish(whole("router", "Zoe", summary="The link is gone."), thread_id="r", success=True)
        memory.flush()
        """,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with made(tmp_path) as memory:
        assert "The link is gone." in kept(memory)


# --- users ---


def test_summaries_of_one_user_never_reach_another() -> None:
    with made(namespace=PER_USER) as memory:
        for user, cause in (("ann", "router"), ("bob", "password")):
            run = whole(cause, f"friend of {user}", summary=f"{user} wrote: pages do not load")
            memory.finish(run, thread_id="the same id", success=True, user_id=user)
        for user, other in (("ann", "bob"), ("bob", "ann")):
            assert len(kept(memory, user)) == 3
            assert other not in repr(kept(memory, user))
            found = memory.sit.suggest(before_cure("router"), summary="pages do not load", k=9, user_id=user)
            assert user in repr(found)
            assert other not in repr(found)
        assert kept(memory, "cleo") == []
        assert {each.kind for each in memory.sit.suggest(before_cure("router"), user_id="cleo")} <= {
            "procedural",
            "search",
        }


def test_somebody_elses_verdict_moves_nothing_into_their_namespace() -> None:
    with made(namespace=PER_USER) as memory:
        memory.observe(whole("router", "Zoe", summary="anns words"), thread_id="r", user_id="ann")
        memory.feedback("r", score=1.0, user_id="reviewer")
        assert kept(memory, "reviewer") == []
        assert "anns words" in kept(memory, "ann")
        memory.feedback("r", score=0.0, user_id="reviewer")
        assert (kept(memory, "reviewer"), kept(memory, "ann")) == ([], [])


def test_a_verdict_of_nobody_reaches_the_user_whose_run_was_finished_here() -> None:
    with made(namespace=PER_USER, methods=default_methods(SIT(JUDGED))) as memory:
        memory.finish(whole("router", "Zoe", summary="anns words"), thread_id="r", user_id="ann")
        memory.feedback("r", score=1.0)
        assert "anns words" in kept(memory, "ann")
        memory.feedback("r", score=0.0)
        assert kept(memory, "ann") == []


def test_runs_of_nobody_are_not_put_to_somebody() -> None:
    with made(namespace=PER_USER) as memory:
        nobodys = parse_run(whole("router", "Zoe", summary="nobodys words"), thread_id="r")
        memory.core.lifecycle.learn(nobodys, nobody := User(None, None, ("toolmem",)))
        memory.sit.learned(nobodys, nobody)
        memory.feedback("r", score=1.0, user_id="ann")
        memory.finish(whole("router", "Ida"), thread_id="s", success=True, user_id="ann")
        assert "nobodys words" not in kept(memory, "ann")


def test_in_a_shared_namespace_what_others_said_too_stays(memory: ToolMemory) -> None:
    for user in ("ann", "bob"):
        memory.finish(
            whole("router", "Zoe", summary="The link is gone."), thread_id=f"of {user}", success=True, user_id=user
        )
    memory.observe(whole("router", "Zoe", summary="anns own words"), thread_id="both", user_id="ann")
    go_on = h.history(whole("router", "Zoe", summary="anns own words"), h.user("more"), h.call("read_logs"), h.words())
    memory.observe(go_on, thread_id="both", user_id="bob")
    memory.forget(user_id="ann")
    assert "The link is gone." in kept(memory)
    assert "anns own words" not in kept(memory)
    assert [text for text in kept(memory) if text.startswith("Asked: more")]


@pytest.mark.parametrize(("success", "verdict"), [(True, None), (None, None), (True, 0.0)])
def test_forgotten_or_judged_anew_while_summaries_are_being_stored(
    success: bool | None, verdict: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(policy=SITPolicy(unlabelled=0.5)) as memory:
        put, meanwhile = memory.sit.rows.put, list[str]()

        def changed_meanwhile(*items: Any, **options: Any) -> Any:
            monkeypatch.undo()
            memory.forget(user_id="zoe") if verdict is None else memory.feedback("r", score=verdict)
            meanwhile.append("done")
            return put(*items, **options)

        monkeypatch.setattr(memory.sit.rows, "put", changed_meanwhile)
        memory.finish(whole("router", "Zoe", summary="zoes words"), thread_id="r", success=success, user_id="zoe")
        assert (kept(memory), meanwhile) == ([], ["done"])


@pytest.mark.parametrize("rows", [3, 1500])
@pytest.mark.slow
def test_chromas_files_hold_nothing_behind_the_last_row(tmp_path: Path, rows: int) -> None:
    """They are written with whatever was in memory; past 1,000 rows an index is written with rows in it."""
    items = [VectorItem(str(i), f"text {i} of many, {i * 7919} at {i * 104729}", {}) for i in range(rows)]
    embedder = resolve_embedder(None)
    with VectorStore(tmp_path, embedder=embedder, namespace=("toolmem",)) as vectors:
        vectors.upsert("x", items)
        vectors.upsert("another", items[:1])
    for file in (file for name in ("length.bin", "data_level0.bin") for file in tmp_path.rglob(name)):
        rest = file.read_bytes()
        used = len(rest) if rows > 1000 else 0
        file.write_bytes(rest[:used] + b"Zebulon!" * ((len(rest) - used) // 8) + bytes((len(rest) - used) % 8))
    with VectorStore(tmp_path, embedder=embedder, namespace=("toolmem",)) as vectors:
        before = vectors.query("x", items[2].text, k=3)
        vectors.scrub("another")
        assert vectors.query("x", items[2].text, k=3) == before
        assert vectors.count("x") == rows
    assert holding(tmp_path, "Zebulon") == []
    with VectorStore(tmp_path, embedder=embedder, namespace=("toolmem",)) as vectors:
        assert vectors.query("x", items[2].text, k=3) == before
        vectors.upsert("x", [VectorItem("new", "something else", {})])
        assert vectors.query("x", "something else", k=1)[0].id == "new"


@pytest.mark.slow
def test_what_another_memory_holds_open_is_cleaned_too(tmp_path: Path) -> None:
    with made(tmp_path) as memory:
        memory.finish(whole("router", "Zebulon"), thread_id="z", success=True, user_id="zoe")
        memory.flush()
        with made(tmp_path, read_only=True) as reader:
            reader.sit.suggest(before_cure("router"))
            memory.forget(user_id="zoe")
        assert kept(memory) == []
    assert holding(tmp_path, "Zebulon") == []


# --- Chroma away ---


@pytest.fixture
def client() -> Iterator[Switched]:
    inner = chromadb.EphemeralClient(settings=Settings(anonymized_telemetry=False))
    for each in inner.list_collections():
        inner.delete_collection(each.name)
    yield Switched(inner)
    inner.close()


def test_while_chroma_is_away_the_memory_answers_with_what_it_has(
    client: Switched, caplog: pytest.LogCaptureFixture
) -> None:
    with made(chroma=client) as memory:
        with client.down():
            teach(memory)
            advice = memory.sit.advise(before_cure("password"))
            assert "could not be read" in advice.missing
            assert "ConnectionError" in advice.missing
            assert names(advice.suggestions)[0] == "restart_router"  # by frequency
        told = [r for r in caplog.records if "a summaries job failed" in r.getMessage() and r.levelno > logging.DEBUG]
        assert len(told) == 1
        assert memory.flush()  # it is tried again by itself
        assert memory.sit.advise(before_cure("password")).missing == ""
        assert names(memory.sit.suggest(before_cure("password"), k=1)) == ["reset_password"]


def test_a_run_that_ends_does_not_wait_for_chroma(client: Switched, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(chroma=client, methods=[SIT(SITPolicy())]) as memory:
        before = client.switch["calls"]
        with monkeypatch.context() as idle:
            idle.setattr(jobs.Jobs, "begin", lambda *_, **__: True)  # nobody but the host is at work
            for i in range(20):
                memory.finish(whole("router", f"Customer{i}"), thread_id=f"r{i}", success=True)
        assert client.switch["calls"] == before
        [found] = memory.sit.suggest(before_cure("router"), k=1)  # it is written before it is looked for
        assert (found.tool, found.kind) == ("restart_router", "episodic")


# --- the record ---


def offered_then(
    memory: ToolMemory, does: str, *, thread_id: str, user_id: str | None = None, output: Any = "ok"
) -> None:
    """Advice before the cure, and what the model then does."""
    here = before_cure("password")
    memory.sit.advise(
        here, summary=f"Logs: {FINDINGS['password']}", k=1, thread_id=thread_id, user_id=user_id, shown=True
    )
    memory.observe(h.history(here, h.call(does, {"name": "Zoe"}, output)), thread_id=thread_id, user_id=user_id)


def record(memory: ToolMemory) -> tuple[float, ...]:
    return tuple(ledger(memory).figures("sit")[name] for name in ("shown", "followed", "right"))


def books(memory: ToolMemory, user_id: str | None = None) -> list[tuple[int, int, int]]:
    """Records of the summaries that have one."""
    found = [(s.offered, s.followed, s.right) for s in stored(memory, user_id)]
    return [each for each in found if any(each)]


@pytest.mark.parametrize(
    ("does", "output", "expected"),
    [
        ("reset_password", "ok", (1, 1, 1)),
        ("reset_password", h.FAILED, (1, 1, 0)),
        ("restart_router", "ok", (1, 0, 0)),
    ],
)
def test_what_became_of_a_suggestion_is_booked(
    memory: ToolMemory, does: str, output: Any, expected: tuple[int, ...]
) -> None:
    teach(memory, summaries=True)
    offered_then(memory, does, thread_id="now", output=output)
    assert record(memory) == expected
    assert books(memory) == [expected]
    assert ledger(memory).turns == {}


def test_only_what_the_model_is_shown_at_its_turn_is_booked(memory: ToolMemory) -> None:
    teach(memory, summaries=True)
    memory.sit.suggest(before_cure("password"))
    memory.sit.advise(before_cure("password"), thread_id="now")
    memory.observe(h.history(before_cure("password"), h.call("reset_password")), thread_id="now")
    pending = [asked("Zoe"), tool_call("read_logs", {}, "c")]
    assert memory.sit.advise(pending, shown=True).suggestions
    assert (record(memory), books(memory)) == ((0, 0, 0), [])
    memory.sit.advise(before_cure("router"), thread_id="words", shown=True)
    memory.observe(h.history(before_cure("router"), h.words()), thread_id="words")
    assert record(memory) == (1, 0, 0)


def test_a_suggestion_is_closed_once(memory: ToolMemory) -> None:
    teach(memory, summaries=True)
    here = before_cure("password")
    for _ in range(3):  # a step that is tried again
        memory.sit.advise(here, k=1, thread_id="now", shown=True)
    after = h.history(here, h.call("reset_password", {"name": "Zoe"}))
    for messages in (after, [*after, h.words()], [*after, h.words()]):
        memory.observe(messages, thread_id="now")
    memory.finish([*after, h.words()], thread_id="now", success=True)
    assert record(memory) == (1, 1, 1)
    assert books(memory) == [(1, 1, 1)]


def test_forks_have_a_record_each(memory: ToolMemory) -> None:
    """The thread is taken back to before the cure, and the model asked again."""
    teach(memory, summaries=True)
    here = [
        HumanMessage("The page of Zoe does not load", id="u" * 20),
        tool_call("read_logs", {"name": "Zoe"}, "call_" + "a" * 20),
        ToolMessage(f'{{"finding": "{FINDINGS["password"]}"}}', tool_call_id="call_" + "a" * 20, name="read_logs"),
    ]
    for fork, does in (("b", "restart_router"), ("c", "reset_password"), ("c", "reset_password")):
        memory.sit.advise(here, k=1, thread_id="now", shown=True)
        answer = tool_call(does, {"name": "Zoe"}, "call_" + fork * 20)
        memory.observe([*here, answer, ToolMessage("ok", tool_call_id="call_" + fork * 20)], thread_id="now")
        assert ledger(memory).turns == {}
    assert record(memory) == (3, 2, 2)  # the last fork did the very same again
    assert [sum(column) for column in zip(*books(memory), strict=True)] == [3, 2, 2]


def test_advice_of_the_tool_adds_to_that_of_the_hint(memory: ToolMemory) -> None:
    """One turn of the model, two looks: it counts once, and what either named counts as named."""
    teach(memory, summaries=True)
    here = before_cure("password")
    memory.sit.advise(here, summary=f"Logs: {FINDINGS['router']}", k=1, thread_id="now", shown=True)
    asking = h.history(here, summarised(f"Logs: {FINDINGS['password']}"))
    memory.sit.advise(asking, summary=f"Logs: {FINDINGS['password']}", k=1, thread_id="now", shown=True)
    [shown] = ledger(memory).turns.values()
    assert [*shown["sit"][2].values()] == ["restart_router", "reset_password"]
    memory.observe(h.history(asking, h.call("reset_password", {"name": "Zoe"}), h.words()), thread_id="now")
    assert record(memory) == (1, 1, 1)
    assert sorted(books(memory)) == [(1, 0, 0), (1, 1, 1)]


def test_a_graph_without_a_recorder_keeps_the_record_too(memory: ToolMemory) -> None:
    teach(memory, summaries=True)
    here = before_cure("password")
    memory.inertia.begin_turn(here, thread_id="now")
    memory.sit.advise(here, summary=f"Logs: {FINDINGS['password']}", k=1, thread_id="now", shown=True)
    memory.inertia.begin_turn(h.history(here, h.call("reset_password", {"name": "Zoe"})), thread_id="now")
    assert record(memory) == (1, 1, 1)
    assert books(memory) == [(1, 1, 1)]


def test_the_record_survives_a_restart(tmp_path: Path) -> None:
    with made(tmp_path) as memory:
        teach(memory, summaries=True)
        offered_then(memory, "reset_password", thread_id="now")
        before = books(memory)
        memory.sit.advise(before_cure("password", "Ida"), k=1, policy=PAPER, thread_id="open", shown=True)
    with made(tmp_path) as memory:
        assert record(memory) == (2, 1, 1)
        assert books(memory) == before == [(1, 1, 1)]
        memory.sit.advise(before_cure("password", "Ida"), thread_id="open", shown=True)  # the step is tried again
        assert record(memory) == (2, 1, 1)
        after = h.history(before_cure("password", "Ida"), h.call("reset_password", {"name": "Ida"}))
        memory.observe(after, thread_id="open")
        assert record(memory) == (2, 2, 2)


# --- several at once ---


@pytest.mark.slow
def test_threads_teach_and_ask_at_the_same_time(tmp_path: Path) -> None:
    with made(tmp_path, namespace=PER_USER) as memory:
        errors: list[BaseException] = []

        def work(user: str) -> None:
            try:
                teach(memory, routers=3, passwords=3, summaries=True, user_id=user, first=ord(user) * 100)
                for i in range(5):
                    offered_then(memory, "reset_password", thread_id=f"{user}{i}", user_id=user)
                if user == "d":
                    memory.forget(user_id=user)
            except BaseException as error:  # noqa: BLE001 - shown below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(user,)) for user in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        for user in "abc":
            assert sum(right for _, _, right in books(memory, user)) == 5
            own = {str(n) for n in range(ord(user) * 100, ord(user) * 100 + 6)}
            said = {number for text in kept(memory, user) for number in re.findall(r"Customer (\d+)", text)}
            assert said
            assert said <= own
        assert kept(memory, "d") == []
        assert record(memory) == (20, 20, 20)
