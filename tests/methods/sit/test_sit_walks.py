"""Edge weights of whole runs, by hand and by property."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.sit.evidence import Edge, Walks


def walked(walks: Walks, run: str, *tools: str) -> None:
    for i, (source, target) in enumerate(zip(("<start>", *tools), tools, strict=False)):
        walks.add(run, f"{run}{i}", source, target)


def test_short_successful_runs_weigh_more():
    walks = Walks()
    walked(walks, "short", "a", "b")
    walked(walks, "long", "a", "c", "d", "b")
    for run in ("short", "long"):
        walks.judge(run, 1.0)

    out = walks.out_of("a")
    assert out["b"].weight() == 1 + 1 / 2
    assert out["c"].weight() == 1 + 1 / 4
    assert out["b"].weight(c=4) == 1 + 4 / 2
    assert walks.out_of("<start>")["a"] == Edge(2, 1 / 2 + 1 / 4, 0, 0)


def test_a_transition_used_twice_in_a_run_counts_twice():
    walks = Walks()
    walked(walks, "r", "a", "a", "a")
    walks.judge("r", 1)

    assert walks.out_of("a")["a"] == Edge(2, pytest.approx(2 / 3), 0, 0)


def test_runs_that_failed_or_have_no_verdict_do_not_teach():
    walks = Walks()
    walked(walks, "bad", "a", "b")
    walked(walks, "open", "a", "c")
    walks.judge("bad", 0.2)

    out = walks.out_of("a")
    assert out["b"] == Edge(0, 0, 1, 0)
    assert (out["c"].weight(), out["c"].weight(unlabelled=0.3)) == (0, 0.3)
    assert walks.waiting() == 1


def test_a_verdict_may_change():
    walks = Walks()
    walked(walks, "r", "a", "b")
    walks.judge("r", 0)
    walks.judge("r", 1)

    assert walks.out_of("a")["b"] == Edge(1, 0.5, 0, 0)


tools = st.sampled_from("abc")
steps = st.lists(
    st.tuples(st.sampled_from("xyz"), st.sampled_from("123456"), tools, tools), max_size=12, unique_by=lambda s: s[:2]
)
verdicts = st.dictionaries(st.sampled_from("xyz"), st.sampled_from([0.0, 1.0]))


@settings(max_examples=60, deadline=None)
@given(st.data(), steps, verdicts)
def test_the_order_of_arrival_does_not_matter(data: st.DataObject, made: list[tuple[str, ...]], said: dict[str, float]):
    operations = [("add", *s) for s in made] + [("judge", run, score) for run, score in said.items()]
    one, other = Walks(), Walks()
    for walks, order in ((one, operations), (other, data.draw(st.permutations(operations)))):
        for name, *arguments in order:
            getattr(walks, name)(*arguments)
            getattr(walks, name)(*arguments)  # again

    assert all(_nearly(one.out_of(source), other.out_of(source)) for source in "abc")


def _nearly(one: dict[str, Edge], other: dict[str, Edge]) -> bool:
    return all(
        tuple(one.get(t, Edge(0, 0, 0, 0))) == pytest.approx(tuple(other.get(t, Edge(0, 0, 0, 0)))) for t in one | other
    )
