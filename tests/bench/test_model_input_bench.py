"""Desks whose identity stands outside the messages: what they are, and a share of them with real agents."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from forced import fixed

from benchmarks import input_desks, model_input
from benchmarks.input_desks import IN_PROMPT, KINDS, PLACES, REQUEST, InputDesk
from benchmarks.model_input import ACT, PREFETCH, WITHOUT, WRITES, AgentRunner, DeskFigures

REQUESTS = 50
SHARE = 60
"""Requests to each of the desks that stand for the benchmark's."""
CYCLE = 60
SAME_NAME_SEED = 9


def place_of(desk: InputDesk) -> tuple[str, str]:
    return desk.family, desk.place


def test_sixty_desks_have_every_kind_of_identity_at_every_place():
    desks = [InputDesk(seed, 60) for seed in range(CYCLE)]
    identity = [place_of(desk) for desk in desks if desk.family in KINDS]
    assert sorted(identity) == sorted((kind, place) for kind in KINDS for place in PLACES)
    others = {desk.family for desk in desks} - set(KINDS)
    assert others == {input_desks.NAMES, input_desks.SAME_NAME, input_desks.WITHDRAWN}
    assert {desk.known_users for desk in desks} == {True, False}
    assert {desk.order for desk in desks} == {"mixed", "blocks", "trial"}


@pytest.mark.parametrize("seed", range(7))
def test_the_identity_stands_at_its_place_alone(seed: int):
    desk = InputDesk(seed, REQUESTS)
    for visit in desk.visits:
        assert visit.identity not in visit.text
        assert (visit.identity in visit.prompt) == (desk.place in IN_PROMPT)
    compared = InputDesk(seed, REQUESTS, REQUEST)
    for visit, same in zip(desk.visits, compared.visits, strict=True):
        assert (same.plan, same.user_id, same.identity) == (visit.plan, visit.user_id, visit.identity)
        assert same.identity in same.text
        assert same.identity not in same.prompt.splitlines()


@pytest.mark.parametrize("seed", range(12))
def test_the_model_alone_makes_the_planned_calls(seed: int):
    figures = AgentRunner(InputDesk(seed, 12), WITHOUT).run()
    assert (figures.requests, figures.asked) == (12, figures.alone)
    assert (figures.unasked, figures.missing, figures.wrong_looks, figures.other_identity) == (0, 0, 0, 0)


def test_a_memory_that_serves_everybody_alike_is_caught():
    desk = InputDesk(0, REQUESTS)
    for tool in (desk.wording.look, desk.wording.change):
        method = fixed(tool, {desk.wording.parameter: desk.identities[0]})
        figures = AgentRunner(desk, WRITES, method=method).run()
        others = sum(visit.identity != desk.identities[0] for visit in desk.visits)
        assert figures.other_identity == others > 0
        assert (figures.wrong_looks if tool == desk.wording.look else figures.unasked) >= others
        assert len(figures.cases) == model_input.MOST_CASES


def test_a_prefetch_of_another_identity_is_counted():
    desk = InputDesk(0, REQUESTS)
    method = fixed(desk.wording.look, {desk.wording.parameter: desk.identities[0]}, acts=False)
    figures = AgentRunner(desk, PREFETCH, method=method).run()
    assert figures.other_identity > 0
    assert figures.wasted >= figures.other_identity
    assert (figures.saved, figures.wrong_looks) == (0, 0)


def test_a_tool_that_changes_is_counted_where_a_tool_of_its_name_reads():
    desk = InputDesk(SAME_NAME_SEED, REQUESTS)
    figures = AgentRunner(desk, ACT, method=fixed("account_action", {"account_id": "1"})).run()
    assert figures.unasked == sum(visit.agent == input_desks.OTHER_AGENT for visit in desk.visits) > 0
    assert figures.wrong_looks == REQUESTS - figures.unasked


@cache
def share_of_desks(mode: str) -> list[DeskFigures]:
    """The figures of the first twelve desks, which have every family."""
    return [AgentRunner(InputDesk(seed, SHARE), mode).run() for seed in range(12)]


each_mode = pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.xdist_group(f"desks in mode {mode}")) for mode in (WRITES, PREFETCH)]
)
"""Playing the desks in a mode takes 20 seconds: one worker does."""


@each_mode
def test_nothing_is_done_or_prefetched_for_another_identity(mode: str):
    others = {desk.seed: desk.other_identity for desk in share_of_desks(mode)}
    assert set(others.values()) == {0}


@each_mode
def test_no_change_is_made_unasked_or_left_out(mode: str):
    changed = {desk.seed: (desk.unasked, desk.missing) for desk in share_of_desks(mode)}
    assert set(changed.values()) == {(0, 0)}


@pytest.mark.xdist_group(f"desks in mode {WRITES}")
def test_look_ups_are_right():
    desks = share_of_desks(WRITES)
    assert sum(desk.wrong_looks for desk in desks) == 0
    assert sum(desk.saved for desk in desks) > 0.1 * sum(desk.alone for desk in desks)


def test_the_command_prints_and_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "figures.json"
    given = ["--desks", "1", "--requests", "6", "--workers", "1", "--modes", "act", "prefetch"]
    assert model_input.main([*given, "--json", str(out)]) == 0
    written = json.loads(out.read_text())
    assert [(row["name"], row["mode"]) for row in written["rows"]] == [
        ("in prompt", "act"), ("all", "act"), ("in prompt", "prefetch"), ("all", "prefetch"),
    ]  # fmt: skip
    assert [desk["place"] for desk in written["in_request"]] == [REQUEST]
    assert "no look-up of another identity" in capsys.readouterr().out
