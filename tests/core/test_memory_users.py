"""Users and workers: namespaces, user ids from anywhere, forgetting a user, workers that share a store."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from desk import EAGER, NAMES, Desk, build, call_id, expected, history, request, run, thread
from kept import inertia
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel

from langgraph_toolmem import InertiaPolicy, InputError, NamespaceError, StorageError, ToolMemory
from langgraph_toolmem.core.users import Users, user_digest
from langgraph_toolmem.graph.tool_graph import AUTHOR, COMMENT, OWNER, SCORE
from langgraph_toolmem.stores import shared as shared_log
from langgraph_toolmem.stores import snapshot
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
            memory.inertia.begin_turn,
        ):
            for nobody in (None, ""):
                with pytest.raises(NamespaceError, match="user_id"):
                    call(messages, user_id=nobody)
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


# --- one user's values are no source for another's ---


def spoken(number: int, secret: str, *, name: str = "Ann") -> list[BaseMessage]:
    """A run whose note holds something that is not in the request."""
    messages = history(number, name)
    for message in messages:
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                if call["name"] == "add_note":
                    call["args"]["note"] = secret
        if isinstance(message, ToolMessage) and "saved" in message.text:
            message.content = json.dumps({"saved": True, "text": secret})
    messages[0] = HumanMessage(f"{request(name)} with {secret} please", id=messages[0].id)
    return messages


def offered(memory: ToolMemory, user: str | None, messages: list[BaseMessage]) -> str:
    decisions = [
        memory.inertia.explain(messages[:n], policy=EAGER.with_(min_precision=0), user_id=user) for n in (1, 3, 5)
    ]
    return " ".join(str(option.args) for decision in decisions for option in decision.options)


# --- forgetting ---

SECRETS = ("Xanthippe", "quetzalcoatl", "4929-1111-2222")


def everything_in(folder: Path) -> bytes:
    return b"\n".join(f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file())


def private(number: int) -> list[BaseMessage]:
    """A run full of one user's words: in the request, the arguments, the outputs and the answer."""
    name, word, card = SECRETS
    messages = spoken(number, f"{word} {card}", name=name)
    messages.insert(-1, HumanMessage(f"And once more for {name}: {word}", id=call_id("more", number)))
    return messages


def taught(memory: ToolMemory) -> None:
    for i in range(5):
        memory.finish(
            private(i), thread_id=f"private-{i}", user_id="ann", success=True, comment=f"{SECRETS[0]} is glad"
        )
        memory.finish(history(100 + i), thread_id=f"bob-{i}", user_id="bob", success=True, comment="fine")
    memory.feedback("private-2", score=0.3, comment=f"{SECRETS[1]} was rude", user_id="ann")
    looking_on = InertiaPolicy(shadow=True)
    memory.inertia.begin_turn(private(50)[:1], thread_id="open", user_id="ann", policy=looking_on)
    memory.inertia.begin_turn(private(51)[:3], thread_id="open too", user_id="ann", policy=looking_on)


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.slow
def test_forgetting_a_user_takes_the_words_from_disk(desk: Desk, tmp_path: Path, reopened: bool) -> None:
    memory = ToolMemory(tmp_path, tools=desk.tools, namespace=PER_USER)
    taught(memory)
    if reopened:
        memory.close()
        memory = ToolMemory(tmp_path, tools=desk.tools, namespace=PER_USER)
        memory.observe(private(9), thread_id="private-9", user_id="ann")
    for secret in SECRETS:
        assert secret.encode() in everything_in(tmp_path)
    turns, begun = memory.report().turns, len(inertia(memory).open_turns)
    assert begun
    assert memory.forget(user_id="ann") > 5
    for secret in SECRETS:
        assert secret.encode() not in everything_in(tmp_path), secret
    report = memory.report()
    assert report.turns == turns - begun, "counts hold nothing of a person, but turns that had only begun are undone"
    assert report.runs_judged == 5
    assert not inertia(memory).open_turns
    assert memory.core.graph.counters.get("would_act_open", 0) == 0
    assert memory.forget(user_id="ann") == 0
    texts = [case[0] for case in memory.core.graph.cases.cases.values()]
    assert sorted(texts) == sorted(request(NAMES[(100 + i) % 12]) for i in range(5)), "bob's requests stay"
    memory.close()
    for secret in SECRETS:
        assert secret.encode() not in everything_in(tmp_path), secret
    with ToolMemory(tmp_path, tools=desk.tools, namespace=PER_USER) as again:
        assert again.report().runs_judged == 5
        assert "customer" in offered(again, "bob", history(77))


def accounts(number: int, names: Sequence[str], asked: str) -> list[BaseMessage]:
    """A run in which outputs have people's names as JSON keys, and a path through one gives an argument."""
    owned = {name: {"balance_id": f"B-{number}-{name}", "overdrawn": [1] * i} for i, name in enumerate(names)}
    output = {**owned, f"{names[0]}_is_new": True, f"{names[0]}_orders": [1, 2]}
    found = {"name": "find_customer", "args": {"name": "all"}, "id": call_id("a", number), "type": "tool_call"}
    order = {"customer_id": owned[asked]["balance_id"]}
    used = {"name": "latest_order", "args": order, "id": call_id("b", number), "type": "tool_call"}
    return [
        HumanMessage(f"Go on, {number}", id=call_id("u", number)),
        AIMessage("", tool_calls=[found]),  # type: ignore[list-item]
        ToolMessage(json.dumps(output), tool_call_id=found["id"]),
        AIMessage("", tool_calls=[used]),  # type: ignore[list-item]
        ToolMessage("shipped", tool_call_id=used["id"]),
        AIMessage("Done.", id=call_id("w", number)),
    ]


@pytest.mark.slow
def test_json_keys_that_name_a_person_are_forgotten(desk: Desk, tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=desk.tools, namespace=PER_USER) as memory:
        for i in range(4):
            memory.finish(accounts(i, [SECRETS[0], "shop"], SECRETS[0]), thread_id=f"a{i}", user_id="ann")
            memory.finish(accounts(10 + i, ["shop", "bank"], "shop"), thread_id=f"b{i}", user_id="bob")
        memory.finish(accounts(20, [SECRETS[0], "shop"], "shop"), thread_id="both", user_id="ann")
        assert f"$.{SECRETS[0]}.balance_id" in repr(memory.core.graph.sources.rows)
        memory.forget(user_id="ann")
        assert SECRETS[0] not in repr(memory.core.graph.to_state())
        assert SECRETS[0].encode() not in everything_in(tmp_path)
        assert "o|find_customer|$.shop.balance_id" in repr(memory.core.graph.sources.rows), "bob was seen with it too"


def test_turns_that_had_only_begun_are_undone_by_forgetting(desk: Desk) -> None:
    with ToolMemory.ephemeral(tools=desk.tools, namespace=PER_USER) as memory:
        for i in range(30):
            memory.finish(history(i), thread_id=f"bob-{i}", user_id="bob")
        before = copy.deepcopy(
            (memory.core.graph.counters, memory.core.graph.successors.rows, inertia(memory).rules.rows)
        )
        for i in range(5):
            feed = [HumanMessage(request(NAMES[i]), id=call_id("ann", i))]
            assert memory.inertia.begin_turn(feed, thread_id=f"ann-{i}", user_id="ann", policy=SHADOW).options
        assert memory.report().turns == before[0]["turns"] + 5
        memory.forget(user_id="ann")
        counters, successors, rules = (
            memory.core.graph.counters,
            memory.core.graph.successors.rows,
            inertia(memory).rules.rows,
        )
        assert {k: v for k, v in counters.items() if v} == before[0]
        for now, then in ((successors, before[1]), (rules, before[2])):
            assert {
                k: {i: c for i, c in row.items() if any(c)} for k, row in now.items() if any(map(any, row.values()))
            } == then


# --- verdicts ---


def comments(memory: ToolMemory) -> str:
    return repr(memory.core.graph.runs)


def test_a_verdict_that_names_nobody_belongs_to_the_owner_of_the_run(desk: Desk) -> None:
    with ToolMemory.ephemeral(tools=desk.tools) as memory:
        memory.observe(history(1), thread_id="r", user_id="ann")
        memory.feedback("r", score=0.2, comment=f"{SECRETS[0]} was unhappy")
        memory.finish(history(2), thread_id="s", user_id="bob", success=True, comment="fine")
        assert SECRETS[0] in comments(memory)
        assert {entry[AUTHOR] for entry in memory.core.graph.runs.values() if entry[COMMENT] != "fine"} == {
            user_digest("ann")
        }
        memory.forget(user_id="ann")
        assert SECRETS[0] not in comments(memory)
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
        scores = {entry[OWNER]: entry[SCORE] for entry in memory.core.graph.runs.values()}
        assert scores == {user_digest("ann"): 0.0, user_digest("ben"): 1.0}
        assert [entry.score for entry in memory.entries.recall(request(NAMES[1]), user_id="ben")][:1] == [1.0]


def test_a_value_told_often_by_one_user_is_forgotten_although_many_others_came_after(desk: Desk) -> None:
    with ToolMemory.ephemeral(tools=desk.tools, namespace=PER_USER) as memory:
        one = [m for i in range(10) for m in spoken(i, SECRETS[1])]
        memory.finish(one, thread_id="one", user_id="ann")
        for i in range(70):
            memory.finish(spoken(100 + i, f"word{i}"), thread_id=f"bob-{i}", user_id="bob")
        memory.forget(user_id="ann")
        assert SECRETS[1] not in repr(memory.core.graph.to_state())


@pytest.mark.slow
def test_forgetting_needs_the_disk_and_says_if_it_failed(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with ToolMemory(tmp_path, tools=desk.tools, namespace=PER_USER) as memory:
        taught(memory)
        with monkeypatch.context() as patch:
            patch.setattr(snapshot, "write_draft", no_space)
            with pytest.raises(StorageError, match="still holds"):
                memory.forget(user_id="ann")
        memory.forget(user_id="ann")
        for secret in SECRETS:
            assert secret.encode() not in everything_in(tmp_path)


@pytest.mark.slow
def test_files_that_were_set_aside_are_named_when_a_user_is_forgotten(desk: Desk, tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=desk.tools, namespace=PER_USER) as memory:
        taught(memory)
    snapshot = tmp_path / "graph.pickle"
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    with ToolMemory(tmp_path, tools=desk.tools, namespace=PER_USER) as memory:
        memory.forget(user_id="ann")
        assert "graph.pickle.corrupt-1" in memory.report().problems[-1]
        assert "forgotten" in memory.report().problems[-1]


# --- several workers, one store ---


@pytest.fixture
def always_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_log, "POLL_SECONDS", 0.0)


def worker(desk: Desk, store: InMemoryStore, **options: Any) -> ToolMemory:
    memory = ToolMemory(None, tools=desk.tools, store=store, **options)
    assert memory.core.shared_log is not None
    memory.core.shared_log.patience = 5.0
    return memory


def numbers(memory: ToolMemory) -> Any:
    memory.observe([])  # takes in what the others learned
    report = memory.report().to_dict()
    report.pop("jobs")  # what is being written just now
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
