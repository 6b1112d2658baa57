"""Folders and logs of older versions: read once, and written in the present form."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from histories import call, history, reading, schema, user
from kept import inertia, ledger, navigator, seen_by_others, sit
from places import TESTS

from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.cli.watch import Watcher
from langgraph_toolmem.stores import journal, plain_pickle
from langgraph_toolmem.stores.graph_file import JOURNAL, SNAPSHOT

DATA = TESTS / "data" / "format4"
"""What version 4 wrote, with every operation it had: a snapshot and a journal after it (a user was forgotten, tools
were pruned, turns and offers are open, summaries wait), the log of two workers, and what that version knew of both."""
KNOWN = json.loads((DATA / "known.json").read_text())
TOOLS = [
    reading("find_customer", "name", description="Finds a customer by name."),
    reading("open_file", "id", "mode"),
    schema("write_mail", "email text"),
    schema("pay", "amount:number"),
]
NAMED = {"may_write": frozenset({"write_mail", "pay"})}
EAGER = InertiaPolicy(**NAMED).with_(min_precision=0.3, audit_rate=0.0, max_wrong_per_100=None)
POLICIES = (EAGER, InertiaPolicy(**NAMED), InertiaPolicy.paper(**NAMED))


def now() -> float:
    return float(KNOWN["clock"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (SNAPSHOT, JOURNAL):
        shutil.copy(DATA / name, tmp_path)
    return tmp_path


def figures(memory: ToolMemory) -> dict[str, Any]:
    """The report in the words of version 4."""
    report = memory.report().to_dict()
    assert report.pop("problems") == ()
    for later in ("jobs", "holdout", "judged_by_model", "newest_runs"):
        del report[later]  # what version 4 did not know
    inertia, sit, entries, atoms = (report["sections"].get(name) for name in ("inertia", "sit", "entries", "atoms"))
    for later in (
        "undeclared",
        "suggested",
        "never_skipped",
        "withdrawn",
        "budget_open",
        "wrong_per_100",
        "learning",
        "unskipped",
        "changing",
    ):
        del inertia[later]  # the budget is another one, which starts anew
    verdicts = ("runs", "helped", "hurt")
    hints = {
        name: {"offered": shown["shown"], "followed": shown["followed"], "right": shown["right"]}
        for name, shown in (("sit", sit), ("sga", atoms))
        if shown["shown"]
    }
    del report["sections"]
    return {
        **report,
        **inertia,
        **{name: sit[name] for name in ("summaries", "summaries_waiting", "runs_waiting")},
        "hints": hints,
        "entries": entries["kept"],
        "recall": {name: entries[name] for name in verdicts},
        "atoms": {name: atoms[name] for name in ("made", "learned", *verdicts)},
    }


def knows(memory: ToolMemory) -> dict[str, Any]:
    here = [user("Write to Zoe please")]
    after = history(here, call("find_customer", {"name": "Zoe"}, {"person": {"id": "id-Zoe", "email": "zoe@x.org"}}))
    successes, uses = navigator(memory).recent(now(), 30)
    found = {
        "repr": repr(memory).rpartition(": ")[2],
        "report": figures(memory),
        "view": {**asdict(memory.view()), "walks": [asdict(each) for each in sit(memory).walks.records()]},
        "decisions": [asdict(memory.inertia.explain(at, policy=policy)) for at in (here, after) for policy in POLICIES],
        "pruned": memory.navigator.pruned(),
        "rules": memory.navigator.cluster_constraints().to_dict(),
        "shifts": navigator(memory).shifts,
        "recent": [sorted([*link, n] for link, n in successes.items()), uses],
        "outputs": navigator(memory).outputs,
    }
    return lasting(json.loads(json.dumps(found, default=asdict)))


def lasting(found: dict[str, Any]) -> dict[str, Any]:
    """What is known, without what is done about it: of decisions the likeliest call, and its record by its rules."""
    report = {n: v for n, v in found["report"].items() if n not in ("budget_open", "wrong_per_100")}
    likeliest = [
        {name: judged[name] for name in ("tool", "args_text", "rules", "confidence")}
        for decision in found["decisions"]
        for judged in decision["judged"][:1]
    ]
    return {**found, "report": report, "decisions": likeliest}


def test_a_folder_of_format_4_is_taken_over_with_all_it_knows(folder: Path) -> None:
    with ToolMemory(folder, tools=TOOLS, now=now, read_only=True) as memory:
        assert knows(memory) == lasting(KNOWN["folder"])
    assert (folder / JOURNAL).read_bytes() == (DATA / JOURNAL).read_bytes(), "nothing was written"
    with ToolMemory(folder, tools=TOOLS, now=now) as memory:
        assert knows(memory) == lasting(KNOWN["folder"])
        assert len(inertia(memory).open_turns) == len(sit(memory).drafts) - 7 == len(ledger(memory).turns) / 2 == 2
        found = journal.parse((folder / JOURNAL).read_bytes())
        assert {operation[0] for _, record in found.records for operation in record} > {"turn_opened", "followed"}
        shutil.copytree(folder, folder / "killed")
    for place in (folder, folder / "killed"):
        with ToolMemory(place, tools=TOOLS, now=now) as memory:
            assert knows(memory) == lasting(KNOWN["folder"])
            memory.feedback("ann-2-1", score=0.0)
            report = memory.report()
            for method in ("atoms", "entries"):
                assert (report[method]["helped"], report[method]["hurt"]) == (5, 1)
        versions = [plain_pickle.read_version((place / SNAPSHOT).read_bytes())]
        versions.append(journal.parse((place / JOURNAL).read_bytes()).version)
        assert versions == [plain_pickle.FORMAT_VERSION] * 2


def test_a_turn_that_was_open_goes_with_its_user(folder: Path) -> None:
    with ToolMemory(folder, tools=TOOLS, now=now) as memory:
        before = memory.report().turns
        memory.observe(history(user("Write to Gil2 please"), call("pay", {"amount": 1})), thread_id="open-2")
        # Turns have other keys now: the one under way while the version changed is counted as begun, and as ended.
        assert (memory.report().turns, len(inertia(memory).open_turns)) == (before + 1, 2)
        assert memory.report()["sit"]["shown"] == KNOWN["folder"]["report"]["hints"]["sit"]["offered"]
        memory.forget(user_id="bob")
        memory.forget(user_id="ann")
        assert len(inertia(memory).open_turns) == 0


def test_a_folder_of_format_4_can_be_watched(folder: Path) -> None:
    with Watcher(folder) as watcher:
        assert watcher.look(now())[-1].what
        report = watcher.report().to_dict()
    with ToolMemory(folder, read_only=True) as memory:
        assert report == seen_by_others(memory.report())


def _third(state: dict[str, Any]) -> None:
    del state["evolving"]


def _second(state: dict[str, Any]) -> None:
    _third(state)
    del state["recalls"]


def _first(state: dict[str, Any]) -> None:
    _second(state)
    for name in ("periods", "walks", "drafts", "offers"):
        del state[name]
    state["counters"] |= {"tokens": 900, "turns_with_tokens": 3}


@pytest.mark.parametrize(("version", "older"), [(1, _first), (2, _second), (3, _third)])
def test_formats_before_that_are_taken_over_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: int, older: Callable[[dict[str, Any]], None]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(plain_pickle, "FORMAT_VERSION", 4)
        whole: Any = plain_pickle.loads((DATA / SNAPSHOT).read_bytes())
        older(whole["state"])
        whole["generation"] = 7
        patch.setattr(plain_pickle, "FORMAT_VERSION", version)
        (folder / SNAPSHOT).write_bytes(plain_pickle.dumps(whole))
        tokens = [["n", "tokens", 300], ["n", "turns_with_tokens", 1]] if version == 1 else []
        record = [None, [["n", "turns", 1], *tokens, ["t", "pay", "ok"]]]
        (folder / JOURNAL).write_bytes(journal.header(7) + journal.frame(record))
    with ToolMemory(folder, tools=TOOLS) as memory:
        report = memory.report()
        assert (report.problems, report.tokens_saved) == ((), None)
        assert report.turns == whole["state"]["counters"]["turns"] + 1
        assert (memory.navigator.pruned(), memory.navigator.propagate()) == ([], [])
        assert bool(report.periods) == (version > 1)
        memory.observe(history(user("Pay 3"), call("pay", {"amount": 3})), thread_id="new")
    with ToolMemory(folder, tools=TOOLS) as memory:
        assert memory.report().turns == report.turns + 1
    assert not list(folder.glob("*.corrupt-*"))
