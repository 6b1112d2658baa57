"""Policies: the paper's figures, ranges, plain forms."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from langgraph_toolmem import ConfigurationError, EnvironmentAdapter, InertiaPolicy


def test_the_default_is_calibrated():
    policy = InertiaPolicy()

    assert (policy.kind, policy.min_precision, policy.max_wrong_per_100, policy.audit_rate) == (
        "calibrated",
        0.9,
        1,
        0.05,
    )
    assert (policy.shadow, policy.max_in_a_row, policy.max_share, policy.announces) == (False, None, None, False)


def test_the_papers_figures():
    policy = InertiaPolicy.paper()

    assert (policy.threshold, policy.alpha, policy.kappa, policy.window) == (0.1, 0.5, 1.1, 2)
    assert (policy.max_share, policy.max_in_a_row, policy.recovery_after, policy.announces) == (0.3, 1, 2, True)
    assert InertiaPolicy.paper(threshold=0.2, max_share=None).max_share is None


def test_announcing_can_be_chosen():
    assert InertiaPolicy(announce=True).announces
    assert not InertiaPolicy.paper(announce=False).announces


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "bold"},
        {"min_precision": 1.1},
        {"min_precision": -0.1},
        {"min_precision": float("nan")},
        {"audit_rate": 2},
        {"alpha": -1},
        {"max_wrong_per_100": -1},
        {"max_wrong_per_100": 101},
        {"max_share": 1.5},
        {"window": 0},
        {"window": 4},
        {"kappa": 1},
        {"recovery_after": 0},
        {"never": "delete"},
        {"needs_approval": "delete"},
        {"kind": ["paper"]},
        {"min_precision": "0.9"},
        {"min_precision": True},
        {"min_precision": None},
        {"audit_rate": None},
        {"max_wrong_per_100": "1"},
        {"max_wrong_per_100": float("nan")},
        {"max_share": "0.3"},
        {"window": "2"},
        {"window": 2.0},
        {"window": True},
        {"threshold": "x"},
        {"threshold": float("inf")},
        {"kappa": "1.1"},
        {"recovery_after": 1.5},
        {"recovery_tool": 3},
        {"never": None},
        {"never": 5},
        {"never": [1]},
        {"allow_destructive": {"delete": True}},
        {"max_in_a_row": -1},
        {"max_in_a_row": 1.0},
        {"witnesses_for_writes": -1},
        {"witnesses_for_writes": None},
        {"shadow": "no"},
        {"announce": 1},
        {"environment": {"room": "kitchen"}},
    ],
)
def test_what_cannot_work_is_refused_by_name(wrong: dict[str, Any]):
    name = next(iter(wrong))
    with pytest.raises(ConfigurationError, match=rf"InertiaPolicy\.{name} is .+, (not|but it holds) "):
        InertiaPolicy(**wrong)
    with pytest.raises(ConfigurationError, match=name):
        InertiaPolicy.paper(**wrong)


def test_tool_names_are_any_collection():
    policy = InertiaPolicy(never=["b", "a"], allow_repeats=("c",))  # type: ignore[arg-type]

    assert policy.never == {"a", "b"}
    assert policy.allow_repeats == {"c"}


def test_a_policy_does_not_change_and_is_copied_with_changes():
    policy = InertiaPolicy()
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.shadow = True  # type: ignore[misc]

    assert policy.with_(shadow=True).shadow
    assert not policy.shadow
    with pytest.raises(ConfigurationError):
        policy.with_(min_precision=2)


@pytest.mark.parametrize(
    "policy",
    [
        InertiaPolicy(),
        InertiaPolicy(never=frozenset({"b", "a"}), max_wrong_per_100=None),
        InertiaPolicy.paper(alpha=0.7),
    ],
)
def test_plain_form_and_back(policy: InertiaPolicy):
    plain = json.loads(json.dumps(policy.to_dict()))

    assert InertiaPolicy.from_dict(plain) == policy


def test_the_adapter_has_no_plain_form():
    policy = InertiaPolicy.paper(environment=lambda tool, steps: {})

    assert "environment" not in policy.to_dict()
    assert policy == InertiaPolicy.paper()
    assert "environment" not in repr(policy)


def test_the_kind_alone_means_the_papers_figures():
    assert InertiaPolicy.from_dict({"kind": "paper"}) == InertiaPolicy.paper()
    assert InertiaPolicy.from_dict({"kind": "paper", "alpha": 0.3}) == InertiaPolicy.paper(alpha=0.3)


def test_an_unknown_field_is_named():
    with pytest.raises(ConfigurationError, match=r"no field 'min_precison'.*min_precision"):
        InertiaPolicy.from_dict({"min_precison": 0.5})


def test_what_is_an_adapter():
    class Knows:
        def parameters(self, tool: str, steps: Any) -> dict[str, Any]:
            return {}

    assert isinstance(Knows(), EnvironmentAdapter)
    assert not isinstance(lambda tool, steps: {}, EnvironmentAdapter)
