"""Users and workers: namespaces, user ids from anywhere, forgetting a user, workers that share a store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from desk import EAGER, NAMES, Desk, build, expected, history, request, run, thread
from kept import inertia
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel

from langgraph_toolmem import InertiaPolicy, InputError, NamespaceError, ToolMemory
from langgraph_toolmem.core.users import Owner, Users, user_digest
from langgraph_toolmem.stores import shared
from langgraph_toolmem.turn.host import user_id_of

PER_USER = ("toolmem", "{user_id}")
SHADOW = InertiaPolicy(shadow=True)


# --- whose run it is ---


def test_without_a_user_id_a_namespace_that_needs_one_refuses(desk: Desk) -> None:
    with ToolMemory.ephemeral(tools=desk.tools, namespace=PER_USER) as memory:
        messages = history(0)
        for call in (
            memory.observe,
            memory.finish,
            memory.inertia.predict,
            memory.inertia.explain,
        ):
            for nobody in (None, ""):
                with pytest.raises(NamespaceError, match="user_id"):
                    call(messages, user_id=nobody)
        for nobody in (None, ""):
            with pytest.raises(NamespaceError, match="user_id"):
                memory.inertia.begin_turn(messages, Owner(user_id=nobody))
        assert memory.report().turns == 0
        assert memory.observe(messages, user_id="ann") == 4


@dataclass
class Who:
    user_id: str


class WhoModel(BaseModel):
    user_id: str | None = None


@pytest.mark.parametrize(
    ("configurable", "context", "server", "user"),
    [
        ({}, {"user_id": "ann"}, None, "ann"),
        ({}, Who("ann"), None, "ann"),
        ({}, WhoModel(user_id="ann"), None, "ann"),
        ({"user_id": "bob"}, {"user_id": "ann"}, None, "ann"),
        ({"user_id": "bob"}, {"other": 1}, None, "bob"),
        ({"user_id": "bob"}, WhoModel(), None, "bob"),
        ({"user_id": "bob"}, None, "srv", "srv"),
        ({"user_id": "bob", "langgraph_user_id": "lg"}, None, None, "lg"),
        ({"user_id": 7}, None, None, "7"),
        ({"user_id": ""}, None, None, None),
        ({}, None, None, None),
    ],
)
def test_where_the_user_id_comes_from(configurable: Any, context: Any, server: Any, user: str | None) -> None:
    info = None if server is None else SimpleNamespace(user=SimpleNamespace(identity=server))
    runtime: Any = SimpleNamespace(context=context, server_info=info)
    assert user_id_of({"configurable": configurable}, runtime) == user


def test_a_user_is_put_in_its_place() -> None:
    for namespace, user, placed in (
        (PER_USER, "ann", ("toolmem", "ann")),
        (("a", "user-{user_id}"), "ann", ("a", "user-ann")),
        (("toolmem",), None, ("toolmem",)),
        (PER_USER, "{x}", ("toolmem", "{x}")),
    ):
        assert Users(namespace).of(user).namespace == placed
    assert user_digest(None) is None
    assert user_digest("ann") == user_digest("ann") != user_digest("bo")
    assert "ann" not in str(user_digest("ann"))


def test_a_user_without_a_place_in_the_namespace_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with ToolMemory.ephemeral(methods=[]) as memory:
        for number in range(2):
            memory.observe(history(number), user_id="ann")
    assert caplog.text.count("carries a user id") == 1


# --- feedback ---

SECRET = "Xanthippe"


def comments(memory: ToolMemory) -> str:
    return repr(memory.core.graph.runs)


def test_a_verdict_that_names_nobody_belongs_to_the_owner_of_the_run(desk: Desk) -> None:
    with ToolMemory.ephemeral(tools=desk.tools) as memory:
        memory.observe(history(1), thread_id="r", user_id="ann")
        memory.feedback("r", score=0.2, comment=f"{SECRET} was unhappy")
        memory.finish(history(2), thread_id="s", user_id="bob", success=True, comment="fine")
        assert SECRET in comments(memory)
        assert {entry.author for entry in memory.core.graph.runs.values() if entry.comment != "fine"} == {
            user_digest("ann")
        }
        memory.forget(user_id="ann")
        assert SECRET not in comments(memory)
        assert "fine" in comments(memory)
        assert memory.report().runs_judged == 1


def test_a_word_on_another_users_run_goes_with_its_author_and_with_the_run(desk: Desk) -> None:
    for gone, judged in (("boss", 1), ("ann", 0)):
        with ToolMemory.ephemeral(tools=desk.tools) as memory:
            memory.observe(history(1), thread_id="r", user_id="ann")
            memory.feedback("r", score=0.9, comment="as the boss I like it", user_id="boss")
            assert memory.forget(user_id=gone) > 0
            assert "boss" not in comments(memory)
            assert memory.report().runs_judged == judged


@pytest.mark.parametrize("namespace", [("toolmem",), PER_USER])
def test_a_verdict_on_a_thread_id_that_two_users_share(desk: Desk, namespace: tuple[str, ...]) -> None:
    with ToolMemory.ephemeral(tools=desk.tools, namespace=namespace) as memory:
        for number, user in enumerate(("ann", "ben")):
            memory.finish(history(number), thread_id="main", user_id=user, success=True)
        assert memory.flush()
        with pytest.raises(NamespaceError, match="2 users"):
            memory.feedback("main", score=0.0)
        with pytest.raises(InputError, match="another user's"):
            memory.feedback("main", score=0.0, user_id="eve")
        memory.feedback("main", score=0.0, user_id="ann", wait=True)
        scores = {entry.owner: entry.score for entry in memory.core.graph.runs.values()}
        assert scores == {user_digest("ann"): 0.0, user_digest("ben"): 1.0}
        assert [entry.score for entry in memory.entries.recall(request(NAMES[1]), user_id="ben")][:1] == [1.0]


# --- several workers, one store ---


@pytest.fixture
def always_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "SHARED_LIMITS", replace(shared.SHARED_LIMITS, poll_seconds=0.0))


def worker(desk: Desk, store: InMemoryStore, **options: Any) -> ToolMemory:
    memory = ToolMemory(None, tools=desk.tools, store=store, **options)
    assert memory.core.shared_log is not None
    memory.core.shared_log.patience = 5.0
    return memory


def numbers(memory: ToolMemory) -> Any:
    memory.observe([])  # takes in what the others learned
    report = memory.report().to_dict()
    for now in ("jobs", "cpu_seconds", "cpu_seconds_behind"):  # each worker's own, and not written yet
        report.pop(now)
    return report, memory.view().edges


@pytest.mark.usefixtures("always_polling")
def test_graphs_on_two_workers_and_threads_that_move_between_them(desk: Desk) -> None:
    store, saver = InMemoryStore(), InMemorySaver()
    with worker(desk, store) as one, worker(desk, store) as two:
        graphs = [
            build(m, desk.tools, policy=EAGER.with_(audit_rate=0.3), checkpointer=saver, interrupt_before=["tools"])
            for m in (one, two)
        ]
        for i in range(20):
            run(graphs[i % 2][0], i)
            step = i
            while graphs[0][0].get_state(thread(f"thread-{i}")).next:
                step += 1
                graphs[step % 2][0].invoke(None, thread(f"thread-{i}"))
        assert desk.done == [call for i in range(20) for call in expected(NAMES[i % 12])]
        assert numbers(one) == numbers(two)
        with worker(desk, store) as three:
            assert numbers(three) == numbers(one)
            assert inertia(three).open_turns == {}
        report = one.report()
        assert (report.turns, report.answers) == (80, 20)
        assert report.skipped == 80 - sum(len(model.calls) for _, model in graphs) > 0


def test_a_memory_whose_runs_name_no_user_says_so_once(desk: Desk) -> None:
    with ToolMemory.ephemeral(tools=desk.tools) as memory:
        memory.finish(history(0), thread_id="a")
        assert memory.report().problems == ()
        memory.finish(history(1), thread_id="b")
        assert ["no run named its user" in problem for problem in memory.report().problems] == [True]
        memory.finish(history(2), thread_id="c", user_id="ann")
        assert memory.report().problems == ()
