"""Policies: the paper's figures, ranges, plain forms."""

from __future__ import annotations

import json

import pytest

from langgraph_toolmem import Bound, ConfigurationError, InertiaPolicy, PaperPolicy


def test_the_papers_figures():
    policy = InertiaPolicy.paper()

    assert isinstance(policy, PaperPolicy)
    assert (policy.threshold, policy.alpha, policy.kappa, policy.window) == (0.1, 0.5, 1.1, 2)
    assert (policy.max_share, policy.max_in_a_row, policy.recovery_after, policy.announce) == (0.3, 1, 2, True)
    assert (policy.reads.max_wrong_per_100, policy.writes.max_wrong_per_100, policy.audit_rate) == (None, None, 0)
    assert InertiaPolicy.paper(threshold=0.2, max_share=None).max_share is None


def test_reads_and_writes_have_bounds_of_their_own():
    policy = InertiaPolicy(reads=Bound(0.8), writes=Bound(0.95, None))

    assert policy.bound_of(changes=False) == Bound(0.8, 1)
    assert policy.bound_of(changes=True) == Bound(0.95, None)
    assert policy.with_(min_precision=0.5) == InertiaPolicy(reads=Bound(0.5), writes=Bound(0.5, None))
    assert policy.with_(reads=Bound(0.7, 3), max_wrong_per_100=2).reads == Bound(0.7, 2)


@pytest.mark.parametrize(
    "policy",
    [
        InertiaPolicy(),
        InertiaPolicy(Bound(0.8), Bound(0.95, None), never=frozenset({"b", "a"}), only=frozenset({"c"})),
        InertiaPolicy.paper(alpha=0.7),
    ],
)
def test_plain_form_and_back(policy: InertiaPolicy):
    plain = json.loads(json.dumps(policy.to_dict()))

    assert InertiaPolicy.from_dict(plain) == policy


def test_the_kind_alone_means_the_papers_figures():
    assert InertiaPolicy.from_dict({"kind": "paper"}) == InertiaPolicy.paper()
    assert InertiaPolicy.from_dict({"kind": "paper", "alpha": 0.3}) == InertiaPolicy.paper(alpha=0.3)
    assert PaperPolicy.from_dict({"alpha": 0.3}) == InertiaPolicy.paper(alpha=0.3)
    for kind in ("bold", ["paper"], None):
        with pytest.raises(ConfigurationError, match="kind must be 'calibrated' or 'paper', got"):
            InertiaPolicy.from_dict({"kind": kind})


def test_a_bound_may_be_told_in_part():
    assert InertiaPolicy.from_dict({"reads": {"min_precision": 0.8}}) == InertiaPolicy(reads=Bound(0.8))
    paper = InertiaPolicy.from_dict({"kind": "paper", "writes": {"min_precision": 0.8}})
    assert paper == InertiaPolicy.paper(writes=Bound(0.8, None))
    with pytest.raises(ConfigurationError, match="Bound has no field 'precision'"):
        InertiaPolicy.from_dict({"reads": {"precision": 0.8}})
