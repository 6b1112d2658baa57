"""Episodes: one request in a thread is the unit of learning, keeping and judging."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from kept import sit
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from langgraph_toolmem import SIT, Entries, InputError, NamespaceError, ToolMemory
from langgraph_toolmem.runs.run import Run, UserMessage
from langgraph_toolmem.runs.trajectory import parse_run

TOPICS = (
    "Find the customer Ann Lee",
    "Book a room in Oslo for March",
    "Delete the oldest invoice of Bob",
    "Play some quiet piano music",
    "Translate the contract to French",
)
TOOLS = ("find_customer", "book_room", "delete_invoice", "play_music", "translate")


def part(number: int, *, ids: str = "", thread: str = "t") -> list[AnyMessage]:
    """A request, two calls with the same ids in every thread, an answer."""
    tool, name = TOOLS[number % 5], f"{thread}-{number}"
    found: list[AnyMessage] = [HumanMessage(TOPICS[number % 5], id=_id(name))]
    for place in range(2):
        call_id = f"call_{ids or number}Xy7Kq9Rt2Lm4Pz8Wv{place}"
        call = {"name": tool, "args": {"n": place}, "id": call_id, "type": "tool_call"}
        found += [AIMessage("", tool_calls=[call], id=_id(f"{name}a{place}")), ToolMessage("ok", tool_call_id=call_id)]
    return [*found, AIMessage(f"That is done: {number}.", id=_id(name + "z"))]


def _id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def chat(*numbers: int, thread: str = "t") -> list[AnyMessage]:
    return [message for number in numbers for message in part(number, thread=thread)]


def asked(memory: ToolMemory) -> dict[str, float | None]:
    memory.flush()
    return {entry.query: entry.score for entry in memory.entries.rows.all(memory.core.users.of(None))}


def said(run: Run) -> list[list[str]]:
    return [[event.text for event in each.events if isinstance(event, UserMessage)] for each in run.episodes()]


# --- borders -----------------------------------------------------------------------------------------------


def test_where_an_episode_begins() -> None:
    run = parse_run(
        [
            ("user", "Hello!"),
            ("ai", "Hi, how can I help you?"),
            ("user", "I want to cancel my order"),
            ("ai", "Which one? Please give me its number."),
            ("user", "#W12"),
            ("ai", "Order #W12 will be cancelled. Do you confirm?"),
            ("user", "Yes, please."),
            ("ai", "It is cancelled. Is there anything else I can help you with?"),
            ("user", "Can you tell me the price of the blue lamp?"),
            ("ai", "It costs 20 euro."),
            ("user", "Thanks, that's all."),
            ("ai", "Should I send the receipt by mail?"),
            ("user", "Book a table for two at an Italian restaurant tonight"),
        ]
    )
    assert said(run) == [
        ["Hello!", "I want to cancel my order", "#W12", "Yes, please."],
        ["Can you tell me the price of the blue lamp?", "Thanks, that's all."],
        ["Book a table for two at an Italian restaurant tonight"],
    ]
    assert [each.request for each in run.episodes()] == [
        "I want to cancel my order\n#W12",
        "Can you tell me the price of the blue lamp?",
        "Book a table for two at an Italian restaurant tonight",
    ]


# --- identity ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thread_id", ["t", None])
def test_a_trimmed_thread_teaches_nothing_twice(thread_id: str | None) -> None:
    whole = chat(0, 1, 2)
    with ToolMemory.ephemeral(methods=[]) as memory:
        assert memory.observe(whole, thread_id=thread_id) == 9
        for cut in range(len(whole)):
            run = memory.core.read(whole[cut:], thread_id)
            assert memory.observe(whole[cut:], thread_id=thread_id) == 0, cut
            if thread_id or cut < len(whole) - 2:  # without a thread's id its calls tell
                assert run.digest == memory.core.read(whole, thread_id).digest


def test_a_summarised_thread_stays_in_its_episode_after_a_restart(tmp_path: Path) -> None:
    whole = chat(0, 1)
    with ToolMemory(tmp_path, methods=[]) as memory:
        memory.observe(whole[:-1], thread_id="t")
        before = memory.core.read(whole, "t")
    summary = HumanMessage("All went well.", additional_kwargs={"lc_source": "summarization"})
    with ToolMemory(tmp_path, methods=[]) as memory:
        rest = memory.core.read([summary, *whole[-2:]], "t")
        assert rest.digest == before.digest
        assert memory.observe([summary, *whole[-3:]], thread_id="t") == 1  # the answer
        memory.feedback("t", score=1, episode=2)
        assert memory.core.graph.score(before.digest) == 1


def test_forks_and_edits() -> None:
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        memory.finish(chat(0, 1), thread_id="t")
        memory.finish(chat(0, 2), thread_id="t", success=False)  # asked something else at that point
        assert asked(memory) == {TOPICS[0]: None, TOPICS[1]: None, TOPICS[2]: 0.0}
        edited = [HumanMessage(TOPICS[3], id=part(2)[0].id), *part(2)[1:]]
        memory.finish([*chat(0), *edited], thread_id="t")
        assert asked(memory) == {TOPICS[0]: None, TOPICS[1]: None, TOPICS[3]: 0.0}
        memory.feedback("t", score=1, episode=part(1)[0].id)
        assert asked(memory)[TOPICS[1]] == 1


# --- verdicts ----------------------------------------------------------------------------------------------


def test_feedback_is_on_the_latest_finished_episode() -> None:
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        memory.observe(chat(0), thread_id="t")
        memory.observe(chat(0, 1)[:-2], thread_id="t")  # it is being worked on
        memory.feedback("t", score=1)
        first, second = memory.core.read(chat(0, 1), "t").episodes()
        assert (memory.core.graph.score(first.digest), memory.core.graph.score(second.digest)) == (1, None)


def test_a_thread_with_one_verdict_gives_each_episode_its_share() -> None:
    with ToolMemory.ephemeral(methods=[SIT(), Entries()]) as memory:
        for _ in range(2):
            memory.finish(chat(0, 1, 2, 3), thread_id="t", success=True)
        assert set(asked(memory).values()) == {1.0}
        assert [each.digest for each in memory.core.read(chat(0, 1, 2, 3), "t").episodes()] == list(sit(memory).runs)
        assert [each[2:] for each in _taught(memory).values()] == [(1.0, 0.25)] * 8
        memory.feedback("t", score=0, episode=1)  # a verdict on it alone goes before its share
        memory.finish(chat(0, 1, 2, 3), thread_id="t")
        assert [each[2:] for each in _taught(memory).values()] == [(0.0, 1.0)] * 2 + [(1.0, 0.25)] * 6


def test_what_cannot_be_judged_is_said(tmp_path: Path) -> None:
    with ToolMemory.ephemeral() as memory:
        memory.finish(chat(0, 1), thread_id="t")
        with pytest.raises(InputError, match="No thread 'other' was learned"):
            memory.feedback("other", score=1)
        with pytest.raises(InputError, match="no episode 7: give a number from 1 to 2"):
            memory.feedback("t", score=1, episode=7)
    with ToolMemory.ephemeral(namespace=("toolmem", "{user_id}")) as memory:
        memory.observe(chat(0), thread_id="t", user_id="ann")
        with pytest.raises(NamespaceError, match="user_id="):
            memory.feedback("t", score=1)


def _taught(memory: ToolMemory) -> dict[str, tuple[str, str, float | None, float]]:
    """Each transition, with the score of its episode and the weight of that."""
    core = memory.core
    return {
        each.step: (each.source, each.target, core.graph.score(each.run), core.weight_of(each.run))
        for each in sit(memory).transitions()
    }


def _play(seed: int, steps: int) -> tuple[list[Any], dict[int, bool]]:
    """What happens to a thread at random, and the verdicts that stand in the end."""
    draw, done, length, stand = random.Random(seed), [], 0, dict[int, bool]()
    for _ in range(steps):
        if length == 0 or (length < 5 and draw.random() < 0.4):
            length += 1
            verdict = draw.choice((None, True, False))
            done.append(("finish", length, verdict))
            if verdict is not None:
                stand[length] = verdict
        elif draw.random() < 0.3:
            done.append(("observe", draw.randint(1, length), None))
        else:
            episode, good = draw.randint(1, length), draw.random() < 0.5
            done.append(("feedback", episode, good))
            stand[episode] = good
    return done, stand


def _do(memory: ToolMemory, what: str, number: int, good: bool | None) -> None:
    if what == "finish":
        memory.finish(chat(*range(number)), thread_id="t", success=good)
    elif what == "observe":
        memory.observe(chat(*range(number)), thread_id="t")
    else:
        memory.feedback("t", score=float(bool(good)), episode=number)


def _expected(length: int, stand: dict[int, bool]) -> dict[str, Any]:
    with ToolMemory.ephemeral(methods=[SIT()]) as fresh:
        for number in range(1, length + 1):
            fresh.finish(chat(*range(number)), thread_id="t", success=stand.get(number))
        return _taught(fresh)


def test_judging_a_turn_changes_what_it_taught_and_nothing_else() -> None:
    for seed in range(40):
        done, stand = _play(seed, 8)
        with ToolMemory.ephemeral(methods=[SIT()]) as memory:
            for each in done:
                _do(memory, *each)
            length = max(number for what, number, _ in done if what == "finish")
            assert _taught(memory) == _expected(length, stand), seed


def test_also_after_restarts_and_from_another_process(tmp_path: Path) -> None:
    for seed in range(3):
        done, stand = _play(100 + seed, 6)
        folder = tmp_path / str(seed)
        for each in done:
            with ToolMemory(folder, methods=[SIT(), Entries()]) as memory:
                if each[0] == "feedback":
                    with ToolMemory(folder, methods=[SIT(), Entries()], read_only=True) as beside:
                        _do(beside, *each)
                    memory.flush()
                else:
                    _do(memory, *each)
        length = max(number for what, number, _ in done if what == "finish")
        with ToolMemory(folder, methods=[SIT(), Entries()]) as memory:
            memory.flush()
            assert _taught(memory) == _expected(length, stand), seed
            want = {TOPICS[n - 1]: None if n not in stand else float(stand[n]) for n in range(1, length + 1)}
            assert asked(memory) == want
