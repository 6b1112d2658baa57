"""The tree search on a world of four tools: statistics, shared states, cycles, pivots, ways back."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from rooms import KEYS, SPECS, TASK, Rooms, Script, WithSnapshots, call

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.offline.discovery.search import (
    Goal,
    Proposal,
    Search,
    SearchSettings,
    State,
    StoppedError,
    needed,
)
from langgraph_toolmem.offline.discovery.world import Cursor, EnvironmentCall, Observation, Taken

FIND = call("find_key", 2.0, name="Cellar")
OPEN = call("open_safe", 1.0, key_id=KEYS["Cellar"])
WRONG = call("open_safe", 4.0, key_id=KEYS["Garden"])
LAMP = call("light_lamp", 1.0, lamp_id="lamp_1")
OTHER_LAMP = call("light_lamp", 1.0, lamp_id="lamp_2")
BELL = call("ring_bell", 3.0)


def search(world: Rooms, policy: Script, *, cursor: Cursor | None = None, **settings: Any) -> Search:
    cursor = cursor or Cursor(world, TASK)
    return Search(
        cursor,
        policy,
        SPECS,
        lambda _state, _answer: bool(cursor.success()),
        settings=SearchSettings(**settings),
        rng=random.Random(0),
    )


def tools(found: Search) -> list[str]:
    return [taken.call.tool for taken in found.outcome.paths[0].taken]


def test_the_reward_is_that_of_the_paper() -> None:
    settings = SearchSettings()
    assert settings.reward(1) == pytest.approx(0.9 + 0.1 / 2)
    assert settings.reward(9) == pytest.approx(0.9 + 0.1 / 10)
    assert SearchSettings(length_weight=1.0).reward(3) == 0.25
    assert (settings.exploration, settings.iterations, settings.depth) == (1.41, 50, 10)


def test_the_shortest_path_wins_though_the_policy_prefers_what_is_wrong() -> None:
    found = search(Rooms(), Script(WRONG, FIND, OPEN))
    outcome = found.run()
    assert outcome.solved
    assert tools(found) == ["open_safe"]
    assert dict(outcome.paths[0].taken[0].call.args) == {"key_id": "key_22"}
    assert outcome.paths[0].reward == SearchSettings().reward(1)


def test_statistics_are_sums_over_the_paths_walked() -> None:
    found = search(Rooms(), Script(OPEN, LAMP), iterations=12, patience=12, depth=3)
    outcome = found.run()
    root = next(iter(found.nodes.values()))
    assert root.visits == outcome.iterations
    assert root.arms is not None
    assert sum(arm.visits for arm in root.arms) == outcome.iterations
    assert math.isclose(sum(arm.total for arm in root.arms), root.total)
    assert root.total > 0
    assert sum(arm.prior for arm in root.arms) == pytest.approx(1.0)


def test_two_orders_lead_to_one_node() -> None:
    found = search(Rooms(), Script(LAMP, OTHER_LAMP), iterations=30, depth=2)
    found.run()
    assert found.outcome.shared > 0
    lit = [node for node in found.nodes.values() if len(node.state.changed) == 2 and len(node.state.changes) == 2]
    assert len(lit) == 1  # lamp_1 and lamp_2, in whatever order
    assert lit[0].entrances > 1


def test_what_is_done_to_the_same_thing_keeps_its_order() -> None:
    state = State(TASK).at(Goal("x"))
    on, off = (Taken(EnvironmentCall("set", {"id": "dev_1", "to": to}), Observation("ok")) for to in ("on", "off"))
    other = Taken(EnvironmentCall("set", {"id": "dev_2", "to": "on"}), Observation("ok"))

    def after(*taken: Taken) -> str:
        result = state
        for each in taken:
            result = result.after(each, reads=False)
        return result.key

    assert after(on, off) != after(off, on)
    assert after(on, other, off) == after(other, on, off) == after(on, off, other)
    assert after(on) != after(on, on) != state.key


def test_a_read_that_tells_nothing_new_leads_back() -> None:
    state = State(TASK)
    told = Taken(
        EnvironmentCall("find", {"q": "Ann"}), Observation({"people": [{"name": "Ann", "id": "p_1"}], "total": 1})
    )
    known = state.after(told, reads=True)
    assert known.key != state.key
    assert known.after(told, reads=True).key == known.key
    empty = Taken(EnvironmentCall("find", {"q": "Bob"}), Observation({"people": [], "total": 0}))
    assert known.after(empty, reads=True).key == known.key
    otherwise = Taken(EnvironmentCall("find", {"q": "ann lee"}), told.observation)
    assert known.after(otherwise, reads=True).key == known.after(told, reads=True).key
    assert known.at(Goal("another")).key != known.key


def test_cycles_end() -> None:
    world = Rooms()
    found = search(world, Script(FIND, call("find_key", 1.0, name="Garden")), iterations=50)
    outcome = found.run()
    assert not outcome.solved
    assert outcome.nodes == 4  # nothing, one key, the other, both
    assert outcome.iterations < 10  # all was tried
    assert world.log.count("find_key") == 2  # the same question in the same world is asked once


def test_after_a_failure_the_pivot_is_first() -> None:
    world = Rooms()
    policy = Script(BELL, LAMP, OTHER_LAMP, pivots=[OPEN])
    found = search(world, policy, iterations=1)
    assert found.run().solved
    assert world.log == ["reset", "ring_bell", "reset", "open_safe"]  # what failed may have changed something
    assert policy.reflected == ["ring_bell"]


@pytest.mark.parametrize("kind", [Rooms, WithSnapshots])
def test_with_and_without_snapshots_the_same_is_found(kind: type[Rooms]) -> None:
    world = kind()
    cursor = Cursor(world, TASK)
    found = search(world, Script(LAMP, WRONG, OPEN, OTHER_LAMP), cursor=cursor, iterations=25, patience=25, depth=3)
    found.run()
    plain = search(Rooms(), Script(LAMP, WRONG, OPEN, OTHER_LAMP), iterations=25, patience=25, depth=3)
    plain.run()
    assert [path.taken for path in found.outcome.paths] == [path.taken for path in plain.outcome.paths]
    assert set(found.nodes) == set(plain.nodes)
    if kind is WithSnapshots:
        assert cursor.replayed == 0
        assert "restore" in world.log
    else:
        assert cursor.replayed > 0


def test_a_world_that_does_not_repeat_itself_is_noticed() -> None:
    class Moody(Rooms):
        def step(self, call: EnvironmentCall) -> Observation:
            super().step(call)
            return Observation({"mood": f"mood_{len(self.log)}"})

    world = Moody()
    cursor = Cursor(world, TASK)
    assert not search(world, Script(LAMP, OTHER_LAMP), cursor=cursor, iterations=10, depth=3).run().solved
    assert cursor.diverged > 0


def test_it_stops_when_told_and_when_the_calls_are_used_up() -> None:
    with pytest.raises(StoppedError):
        search(Rooms(), Script(LAMP)).run(lambda: True)
    world = Rooms()
    cursor = Cursor(world, TASK, most=5)
    Search(cursor, Script(LAMP, OTHER_LAMP), SPECS, lambda _s, _a: False).run()
    assert 5 <= cursor.steps + cursor.replayed <= 7
    assert cursor.spent


def test_a_task_that_is_done_before_anything_was() -> None:
    policy = Script(LAMP)
    found = Search(Cursor(Rooms(), TASK), policy, SPECS, lambda _s, _a: True)
    outcome = found.run()
    assert (outcome.already, outcome.solved, outcome.iterations) == (True, False, 0)
    assert policy.planned == []


def test_plan_and_finish_are_actions() -> None:
    world = Rooms()
    cursor = Cursor(world, TASK)
    policy = Script(Proposal("plan", 3.0), OPEN, Proposal("finish", 1.0, answer="It is open."))
    answers: list[tuple[int, str]] = []

    def check(state: State, answer: str) -> bool:
        answers.append((len(state.taken), answer))
        return bool(cursor.success())

    found = Search(cursor, policy, SPECS, check, stepwise=False, settings=SearchSettings(depth=2))
    outcome = found.run()
    assert outcome.solved
    assert outcome.paths[0].answer == "It is open."
    assert {answer for _, answer in answers} == {"It is open."}
    assert len(policy.planned) > 1
    assert {node.state.goal.number for node in found.nodes.values()} >= {0, 1}


def test_success_has_to_be_a_verdict() -> None:
    class Wordy(Rooms):
        def success(self) -> bool | None:
            return "yes"  # type: ignore[return-value]

    cursor = Cursor(Wordy(), TASK)
    cursor.reset()
    with pytest.raises(InputError, match="success"):
        cursor.success()


def test_reads_of_which_nothing_was_made_are_no_part_of_a_path() -> None:
    find = Taken(EnvironmentCall("find_key", {"name": "Cellar"}), Observation({"keys": [{"id": "key_22"}]}))
    idle = Taken(EnvironmentCall("find_key", {"name": "Garden"}), Observation({"keys": [{"id": "key_11"}]}))
    opened = Taken(EnvironmentCall("open_safe", {"key_id": "key_22"}), Observation({"safe": "open"}))
    reads = {"find_key": True}
    assert needed((idle, find, opened), reads, "Open it") == (find, opened)
    assert needed((find, idle, opened), reads, "Open it") == (find, opened)
    assert needed((find, opened), reads, "Open it with key_22") == (opened,)
    assert needed((find,), reads, "Which key?") == (find,)
    joined = Taken(EnvironmentCall("write", {"text": "The keys: key_11; key_22"}), Observation("ok"))
    assert needed((idle, find, joined), reads, "Write them down") == (idle, find, joined)
