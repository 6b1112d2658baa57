"""Hard preference guiding by hand: which tools are left out, which stay and why, and what a prompt says of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_toolmem.entries.entry import Entry, EntryCall, entry_id
from langgraph_toolmem.entries.preferences import (
    HEAD,
    MAX_LINES,
    Preference,
    guide,
    preferences,
    to_event,
    to_prompt,
    tool_prefix,
)
from langgraph_toolmem.runs.run import SUMMARY_TOOL

OFFERED = ("fast", "slow", "mail")
BAD, GOOD = 0.0, 1.0


def runs(*rated: tuple[float, str], blamed: str = "") -> list[Entry]:
    """Entries from ``(score, "tool tool")``."""
    return [
        Entry(
            id=entry_id(str(i)),
            run=str(i),
            query="Find it",
            calls=tuple(EntryCall(tool, {}, "ok") for tool in tools.split()),
            time=float(i),
            score=score,
            blamed=blamed,
        )
        for i, (score, tools) in enumerate(rated)
    ]


def out(entries: Sequence[Entry], offered: Sequence[str] = OFFERED, **options: Any) -> list[str]:
    return list(guide(preferences(entries, domain_of=options.get("domain_of")), offered, **options).left_out)


# --- tools ---


def test_two_bad_ratings_take_a_tool_out_and_one_does_not() -> None:
    assert out(runs((BAD, "fast"))) == []
    assert out(runs((BAD, "fast"), (BAD, "fast"))) == ["fast"]
    assert out(runs((BAD, "fast"), (BAD, "fast"), (GOOD, "fast"))) == []
    assert out([]) == []


def test_the_reason_is_one_line_with_the_counts() -> None:
    found = guide(preferences(runs((BAD, "fast"), (BAD, "fast"), (BAD, "fast"), (GOOD, "fast"))), OFFERED)
    assert found.left_out == {"fast": "rated badly in 3 similar runs, well in 1"}
    assert guide(preferences(runs((BAD, "fast"), (BAD, "fast"))), OFFERED).left_out == {
        "fast": "rated badly in 2 similar runs, well in none"
    }


def test_a_tool_that_is_not_offered_is_not_told_of() -> None:
    assert guide(preferences(runs((BAD, "old"), (BAD, "old"))), OFFERED) == guide([], OFFERED)


def test_tools_that_were_only_rated_badly_together_are_not_told_apart() -> None:
    found = guide(preferences(runs((BAD, "fast mail"), (BAD, "fast mail"))), OFFERED)
    assert found.left_out == {}
    assert found.kept == dict.fromkeys(
        ("fast", "mail"),
        "rated badly in 2 similar runs, well in none, each time with another tool that may be the reason",
    )


def test_a_run_of_its_own_tells_the_tool_to_blame() -> None:
    found = guide(preferences(runs((BAD, "fast mail"), (BAD, "fast mail"), (BAD, "fast"))), OFFERED)
    assert list(found.left_out) == ["fast"]
    assert list(found.kept) == ["mail"]
    # Runs 0 and 2 need a reason each; together they are the reason of run 1 too.
    assert out(runs((BAD, "fast"), (BAD, "fast mail"), (BAD, "mail"))) == ["fast", "mail"]


def test_a_tool_that_did_well_elsewhere_is_no_other_reason() -> None:
    assert out(runs((BAD, "find fast"), (BAD, "find fast"), (GOOD, "find slow")), ("find", *OFFERED)) == ["fast"]


def test_a_critique_tells_the_tool_to_blame() -> None:
    entries = runs((BAD, "fast mail"), (BAD, "fast mail"), blamed="fast")
    assert out(entries) == ["fast"]


def test_a_tool_of_another_agent_may_be_the_reason() -> None:
    assert out(runs((BAD, "fast elsewhere"), (BAD, "fast elsewhere"))) == []


def test_something_is_always_left() -> None:
    entries = runs((BAD, "fast"), (BAD, "fast"), (BAD, "slow"), (BAD, "slow"))
    assert out(entries) == ["fast", "slow"]
    found = guide(preferences(entries), ["fast", "slow"])
    assert found.left_out == {}
    assert found.kept["fast"] == "rated badly in 2 similar runs, well in none, but no tool would be left"
    assert list(found.kept) == ["fast", "slow"]
    assert out(entries, ["fast", "slow", SUMMARY_TOOL]) == [], "the summary tool does nothing in the world"
    assert out(runs((BAD, "fast"), (BAD, "fast")), ["fast"]) == []


def test_what_is_to_be_kept_stays_and_gets_no_blame() -> None:
    entries = runs((BAD, "fast"), (BAD, "fast"))
    assert out(entries, keep=["fast"]) == []
    assert guide(preferences(entries), OFFERED, keep=["fast"]).kept == {}
    todo = runs((BAD, "fast todo"), (BAD, "fast todo"))
    assert out(todo, (*OFFERED, "todo")) == []
    assert out(todo, (*OFFERED, "todo"), keep=["todo"]) == ["fast"]
    assert out(entries, ["fast", "slow"], keep=["slow"]) == ["fast"], "a kept tool may be the one that is left"


def test_the_summary_tool_is_never_left_out() -> None:
    entries = runs((BAD, f"fast {SUMMARY_TOOL}"), (BAD, f"fast {SUMMARY_TOOL}"))
    assert out(entries, (*OFFERED, SUMMARY_TOOL)) == ["fast"]


# --- domains ---

DOMAINS = ("cal.find", "cal.make", "cal.drop", "mail.send")


def test_a_domain_goes_with_all_its_tools_but_those_that_are_liked() -> None:
    entries = runs((BAD, "cal.find"), (BAD, "cal.make"), (BAD, "cal.make"))
    assert out(entries, DOMAINS) == ["cal.make"]
    found = guide(preferences(entries, domain_of=tool_prefix), DOMAINS, domain_of=tool_prefix)
    assert found.left_out == {
        "cal.find": "rated badly in 3 similar runs, well in none (group cal)",
        "cal.make": "rated badly in 2 similar runs, well in none",
        "cal.drop": "rated badly in 3 similar runs, well in none (group cal)",
    }
    # Good runs of a tool speak for its domain as well: four bad ones against two.
    entries += runs(*[(GOOD, "x")] * 4, (GOOD, "cal.drop"), (GOOD, "cal.drop"), (BAD, "cal.find"))[4:]
    assert out(entries, DOMAINS, domain_of=tool_prefix) == ["cal.find", "cal.make"]


def test_a_domain_is_not_blamed_for_one_of_its_tools() -> None:
    entries = runs((BAD, "cal.make"), (BAD, "cal.make"))
    assert [p.name for p in preferences(entries, domain_of=tool_prefix)] == ["cal", "cal.make"]
    assert out(entries, DOMAINS, domain_of=tool_prefix) == ["cal.make"]
    assert out(entries, DOMAINS, domain_of=tool_prefix, keep=["cal.make"]) == []


def test_domains_that_were_only_rated_badly_together_are_not_told_apart() -> None:
    both = runs((BAD, "cal.find mail.send"), (BAD, "cal.make mail.drop"))
    assert out(both, DOMAINS, domain_of=tool_prefix) == []
    assert out([*both, *runs((GOOD, ""), (GOOD, ""), (BAD, "cal.drop"))[2:]], DOMAINS, domain_of=tool_prefix) == [
        "cal.find",
        "cal.make",
        "cal.drop",
    ]


# --- whatever comes ---

TOOLS = ("a", "b", "c.x", "c.y", "d.x", SUMMARY_TOOL)
RATED = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0]), st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3, unique=True)),
    max_size=12,
)


@given(RATED, st.sets(st.sampled_from(TOOLS), min_size=1), st.sets(st.sampled_from(TOOLS)), st.booleans())
def test_the_rules_hold_whatever_was_rated(
    rated: list[tuple[float, list[str]]], offered: set[str], keep: set[str], grouped: bool
) -> None:
    domain_of = tool_prefix if grouped else None
    entries = runs(*((score, " ".join(tools)) for score, tools in rated))
    names = sorted(offered)
    found = guide(preferences(entries, domain_of=domain_of), names, domain_of=domain_of, keep=keep)
    assert set(found.left_out) <= offered - keep - {SUMMARY_TOOL}
    assert not set(found.left_out) & set(found.kept)
    assert offered <= {SUMMARY_TOOL} or offered - set(found.left_out) - {SUMMARY_TOOL}
    for tool, why in found.left_out.items():
        assert "\n" not in why
        if not grouped:
            bad = sum(score == 0 and tool in tools for score, tools in rated)
            good = sum(score == 1 and tool in tools for score, tools in rated)
            assert bad - good >= 2
    again = guide(preferences(entries[::-1], domain_of=domain_of), names, domain_of=domain_of, keep=keep)
    assert again == found


# --- words ---


def test_a_prompt_tells_what_is_liked_and_avoided() -> None:
    found = preferences(runs((BAD, "fast"), (BAD, "fast"), (BAD, "fast"), (GOOD, "slow"), (GOOD, "slow")))
    assert to_prompt(found, OFFERED).splitlines() == [
        HEAD,
        "- fast: rated badly in 3 similar runs, well in none.",
        "- slow: rated well in 2 similar runs, badly in none.",
    ]
    assert "fast" not in to_prompt(found, OFFERED, left_out=["fast"])
    assert to_prompt(found, ["mail"]) == ""
    assert to_prompt([], OFFERED) == ""
    assert to_prompt(preferences(runs((BAD, "fast mail"), (BAD, "fast mail"))), OFFERED) == "", "nobody can tell"


def test_a_prompt_tells_of_domains_only_where_they_are_offered() -> None:
    found = preferences(runs((BAD, "cal.find"), (BAD, "cal.make")), domain_of=tool_prefix)
    line = "- cal: rated badly in 2 similar runs, well in none (group cal)."
    assert to_prompt(found, DOMAINS, domain_of=tool_prefix).splitlines()[1:] == [line]
    assert to_prompt(found, ["mail.send"], domain_of=tool_prefix) == ""
    assert to_prompt(found, DOMAINS) == ""


def test_a_prompt_is_short() -> None:
    many = [Preference("tool", f"t{i}", True, 2 + i, 0, ()) for i in range(20)]
    lines = to_prompt(many, [f"t{i}" for i in range(20)]).splitlines()
    assert len(lines) == 1 + MAX_LINES
    assert lines[1].startswith("- t19:")


def test_an_event_is_plain_values() -> None:
    found = preferences(runs((BAD, "fast"), (BAD, "fast"), (BAD, "mail slow"), (BAD, "mail slow")))
    event = to_event(found, guide(found, OFFERED))
    assert json.loads(json.dumps(event)) == event
    assert list(event["left_out"]) == ["fast"]
    assert set(event["kept"]) == {"slow", "mail"}
    assert {(p["name"], p["liked"], p["ratings"]) for p in event["preferences"]} == {
        ("fast", False, 2),
        ("mail", False, 2),
        ("slow", False, 2),
    }


@pytest.mark.parametrize("names", [(), ("fast",), ("fast", "fast", "slow")], ids=["none", "one", "twice"])
def test_any_list_of_names_will_do(names: tuple[str, ...]) -> None:
    assert out(runs((BAD, "fast"), (BAD, "fast")), names) == (["fast"] if "slow" in names else [])
