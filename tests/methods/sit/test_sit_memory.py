"""SIT in the memory: what is suggested, what teaches, and the record of suggestions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import histories as h
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kept import ledger, sit
from symptoms import CURES, FINDINGS, SCHEMAS, asked, before_cure, names, summarised, teach, tool_call, whole

from langgraph_toolmem import SIT, Inertia, Navigator, SITPolicy, ToolMemory
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.graph.state import START
from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.sit.step import to_prompt

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


# --- what is suggested ---


def test_the_state_tells_apart_what_frequency_does_not(memory: ToolMemory) -> None:
    teach(memory, routers=7, passwords=3)
    for cause, cure in CURES.items():
        assert names(memory.sit.suggest(before_cure(cause), policy=PAPER, k=1)) == ["restart_router"]
        assert names(memory.sit.suggest(before_cure(cause), k=1)) == [cure]


@pytest.mark.parametrize("policy", [JUDGED, PAPER])
def test_a_summary_goes_before_the_latest_result(memory: ToolMemory, policy: SITPolicy) -> None:
    teach(memory, summaries=True)
    said = f"It looks as if {FINDINGS['password']}."
    [found] = memory.sit.suggest(before_cure("router"), summary=said, policy=policy, k=1)
    assert (found.tool, found.kind) == ("reset_password", "episodic")


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


def test_nothing_of_other_requests_is_shown_or_kept(tmp_path: Path) -> None:
    with made(tmp_path, policy=SITPolicy(), methods=[SIT()]) as memory:
        run = h.history(
            h.user("Refund the order"),
            h.call("read_logs", {"name": "x"}, "Zebulon of ida@mail.org"),
            summarised("Refund order A-4711 of ida@mail.org"),
            h.call("restart_router", {"name": "x"}),
            h.words(),
        )
        memory.finish(run, thread_id="r", success=True)
        here = h.history(h.user("Refund order B-1"), h.call("read_logs", {"name": "bob"}, "Order B-1"))
        assert to_prompt(memory.sit.suggest(here)).startswith("Likely next tools, from past runs:\n- restart_router: ")
        everything = repr(sit(memory).to_state()) + to_prompt(memory.sit.suggest(here))
        assert not [word for word in ("Zebulon", "4711", "ida") if word in everything]


# --- the summary tool is nowhere ---


def test_the_summary_tool_is_no_node() -> None:
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
        assert SUMMARY_TOOL not in [hit.name for hit in memory.navigator.search("write down where you stand")]
        everywhere = [START, "read_logs", *CURES.values(), "close_ticket"]
        assert {each.target for each in sit(memory).transitions()} <= {*everywhere}
        assert SUMMARY_TOOL not in names(memory.sit.suggest(before_cure("router"), available=[SUMMARY_TOOL], k=9))


def test_a_call_beside_the_summary_tool_is_learned_when_it_is_executed(memory: ToolMemory) -> None:
    """The summary tool's answer is not waited for: the process may end before it."""
    both = h.calls([("read_logs", {"name": "Zoe"}, "ok"), (SUMMARY_TOOL, {"summary": "beside"}, "ok")])
    new = memory.core.lifecycle.executed(
        [asked("Zoe"), both[0]], "call_0", tool="read_logs", args={"name": "Zoe"}, status="ok", owner=Owner("r")
    )
    assert new == 1
    assert memory.view().tools["read_logs"].ok == 1
    assert memory.observe(h.history(asked("Zoe"), both), thread_id="r") == 0


def test_a_recorder_that_tells_of_the_summary_tool_changes_no_step(memory: ToolMemory) -> None:
    """Ids of calls that repeat in each turn must not have it taken for an edited call of the turn before."""
    before = before_cure("router")
    asking, _ = summarised("where I stand")
    for step, name in ((before[:2], "read_logs"), ([*before, asking], SUMMARY_TOOL)):
        memory.core.lifecycle.executed(step, "call_0", tool=name, args={}, status="ok", owner=Owner("r"))
    memory.finish(whole("router", "Zoe", summary="where I stand"), thread_id="r", success=True)
    assert set(memory.view().tools) == {"read_logs", "restart_router", "close_ticket"}


# --- who teaches ---


@pytest.mark.parametrize("policy", [JUDGED, PAPER])
@pytest.mark.parametrize("success", [True, False, None])
def test_only_successful_runs_teach_if_that_is_the_policy(
    memory: ToolMemory, success: bool | None, policy: SITPolicy
) -> None:
    memory.finish(whole("router", "Zoe"), thread_id="r", success=success)
    found = memory.sit.suggest(before_cure("router"), k=1, policy=policy)
    assert [each.tool for each in found if each.kind != "search"] == (["restart_router"] if success else [])


def test_by_default_a_run_that_nobody_judged_teaches_and_feedback_may_turn_twice() -> None:
    def best(name: str = "Ida") -> Any:
        return memory.sit.suggest(before_cure("router", name))[0]

    with made(policy=SITPolicy()) as memory:
        memory.observe(whole("router", "Zoe"), thread_id="r")
        (first, *_) = memory.sit.suggest(before_cure("router", "Ida"))
        assert (first.tool, first.kind) == ("restart_router", "episodic")
        assert first.evidence.endswith("alike, not judged)")
        memory.finish(whole("password", "Kim"), thread_id="other", success=True)
        for score, tool in ((0.0, "reset_password"), (1.0, "restart_router"), (0.2, "reset_password")):
            memory.feedback("r", score=score)
            assert best().tool == tool


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
@settings(max_examples=15)
def test_observed_and_imported_runs_give_the_same_memory_judged_before_or_after(threads: list[Any], order: Any) -> None:
    """A thread of two requests, message by message, or from a log; its feedback first or last."""
    histories = {
        f"t{i}": (h.history(whole(cause, name, summary=text), *whole(cause, f"other {name}")), score)
        for i, (cause, name, text, score) in enumerate(threads)
    }

    def rows(memory: ToolMemory) -> Any:
        return sorted(map(repr, sit(memory).transitions())), [memory.sit.suggest(before_cure(c)) for c in CURES]

    def observed(memory: ToolMemory, *, early: bool, finished: bool) -> Any:
        for name, (messages, score) in histories.items():
            for upto in range(1, len(messages) + 1):
                memory.observe(messages[:upto], thread_id=name)
                begins = [i for i, each in enumerate(messages[:upto], 1) if each.get("role") == "user"]
                if early and score is not None and upto == begins[-1]:
                    memory.feedback(name, score=score, episode=len(begins))
            if finished:
                memory.finish(messages, thread_id=name)
        for name, (_, score) in histories.items():
            for episode in () if early or score is None else (1, 2):
                memory.feedback(name, score=score, episode=episode)
        return rows(memory)

    found = []
    for early, finished in ((True, False), (False, False), (False, True)):
        with made(now=lambda: 1e9) as memory:
            found.append(observed(memory, early=early, finished=finished))
    with made(now=lambda: 1e9) as memory:
        order.shuffle(some := [*histories])
        memory.import_runs([(parse_run(histories[name][0], thread_id=name), None, None) for name in some])
        found.append(observed(memory, early=False, finished=False))
    assert [rows for rows, _ in found[1:]] == [found[0][0]] * 3
    assert [names(each) for each in found[3][1]] == [names(each) for each in found[0][1]]


# --- the record ---


def shown(memory: ToolMemory, messages: Any, **how: Any) -> tuple[Any, ...]:
    advice = memory.sit.advise(messages, policy=SITPolicy.paper(k=1), **{"owner": Owner("now"), **how})
    memory.sit.note_shown(advice, [each.tool for each in advice.suggestions])
    return advice.suggestions


def record(memory: ToolMemory) -> tuple[float, ...]:
    return tuple(memory.core.ledger.figures("sit")[name] for name in ("shown", "followed", "right"))


def test_only_what_the_model_is_shown_at_its_turn_is_recorded(memory: ToolMemory) -> None:
    teach(memory)
    memory.sit.suggest(before_cure("password"), thread_id="now")
    memory.observe(h.history(before_cure("password"), h.call("reset_password")), thread_id="now")
    pending = [asked("Zoe"), tool_call("read_logs", {}, "c")]
    assert shown(memory, pending)
    assert record(memory) == (0, 0, 0)
    shown(memory, before_cure("router"), owner=Owner("words"))
    memory.observe(h.history(before_cure("router"), h.words()), thread_id="words")
    assert record(memory) == (1, 0, 0)


def test_advice_of_the_tool_adds_to_that_of_the_hint(memory: ToolMemory) -> None:
    """One turn of the model, two looks: it counts once, and what either named counts as named."""
    teach(memory, summaries=True)
    here = before_cure("password")
    shown(memory, here, summary=f"Logs: {FINDINGS['router']}")
    asking = h.history(here, summarised(f"Logs: {FINDINGS['password']}"))
    shown(memory, asking, summary=f"Logs: {FINDINGS['password']}")
    [turn] = ledger(memory).turns.values()
    assert [*turn["sit"].tools.values()] == ["restart_router", "reset_password"]
    memory.observe(h.history(asking, h.call("reset_password", {"name": "Zoe"}), h.words()), thread_id="now")
    assert record(memory) == (1, 1, 1)
