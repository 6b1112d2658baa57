"""The closed loop on a few small desks: what it must find, and that it can find something."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from forced import Forced

from benchmarks import closed_loop as bench
from benchmarks.desks import GROUPS, TWO, Call, Desk, World
from langgraph_toolmem import Inertia

REQUESTS = 40


def figures(mode: str, seeds: range, *, method: type[Inertia] = Inertia, deviation: float = 0.0) -> dict[str, Any]:
    desks = [bench.Loop(Desk(seed, REQUESTS, deviation=deviation), mode, method=method).run() for seed in seeds]
    return bench.summary(mode, deviation, desks)


@pytest.mark.parametrize("mode", ["shadow", "act", "prefetch"])
def test_no_change_is_made_unasked_by_default(mode: str):
    found = figures(mode, range(3))
    assert (found["requests"], found["unasked"]) == (3 * REQUESTS, {})
    assert (found["acted"] > 0) == (mode == "act")
    assert bool(found["ahead"].get("served")) == (mode == "prefetch")


def test_a_memory_that_always_acts_is_caught():
    found = figures("writes", range(2), method=Forced)
    assert found["unasked_per_10_000"] > 1000
    assert found["wrong_writes_by_policy_per_10_000"] > 1000
    assert found["states_that_differ_percent"] > 10
    assert all(name.split()[-1] in (bench.BY_POLICY, bench.LED) for name in found["unasked"])


def test_both_runners_make_the_same_calls():
    found = bench.agreement(Desk(1, 12), "writes", method=Forced)
    assert found["same"] == found["requests"] == 12


def test_the_same_seed_gives_the_same_figures():
    first, second = (bench.Loop(Desk(1, REQUESTS, deviation=0.05), "writes").run() for _ in range(2))
    assert first == second
    assert first["count"]["acted"] > 0


def test_every_desk_has_a_condition_on_an_earlier_output_that_its_output_shows():
    seen = Counter[str]()
    for seed in range(60):
        desk = Desk(seed, 150)
        first = desk.kinds[0].branches[0]
        assert desk.kinds[0].steps.index(first.source) < first.after - 1
        assert 4 <= len(desk.tools) <= 12
        assert all(2 <= len(kind.steps) <= 5 for kind in desk.kinds)
        for kind in desk.kinds:
            seen.update(branch.kind for branch in kind.branches)
        ordinary = [each for each in desk.requests if each.kind == 0]
        shown = {True: set[str](), False: set[str]()}
        for request in ordinary:
            output = World(desk).execute(Call(first.source, {"ref": f"XX-{request.subject}"}))
            shown[desk.meets(first, request)].add(output)
        assert not shown[True] & shown[False]
        if first.kind not in TWO:
            assert 0 < len(shown[True]) < len(ordinary) / 3
    assert set(seen) == {"said", *(kind for group in GROUPS.values() for kind in group)}


def test_the_model_alone_ends_and_deviates_as_often_as_it_shall():
    for deviation in (0.0, 0.05):
        turns, deviations, written = 0, 0, 0
        for seed in range(10):
            desk = Desk(seed, 60, deviation=deviation)
            counted = bench.Loop(desk, "without")
            plain = desk.answer

            def answer(request: Any, messages: Any, plain: Any = plain) -> Any:
                nonlocal turns, deviations, written
                found = plain(request, messages)
                turns, deviations = turns + 1, deviations + (found.act != found.rule)
                if request.odd and not isinstance(found.act, str):
                    written += found.act.tool in desk.writes  # noqa: B023 - called at once
                return found

            desk.answer = answer  # type: ignore[method-assign]
            counted.run()
            assert counted.count["alone"] < bench.MOST_TURNS * 60
        assert written == 0
        assert deviations / turns == pytest.approx(deviation, abs=0.02)


def test_the_command_prints_and_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "figures.json"
    given = ["--desks", "1", "--requests", "6", "--workers", "1", "--modes", "without", "writes", "--groups", "plain"]
    assert bench.main([*given, "--real", "3", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert [each["mode"] for each in found["modes"]] == ["without 0%", "writes 0%"]
    assert found["real"][0]["same"] == 3
    assert "saved_percent" in capsys.readouterr().out
