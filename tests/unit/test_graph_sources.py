"""Values as the graph compares them, and the sources of arguments: each kind by hand, then by property."""

from __future__ import annotations

import math
from typing import Any

import pytest
from histories import call, history, run_of, state_of, user, words
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.graph.provenance import decode_value, encode_value
from langgraph_toolmem.graph.sources import describe, discover, evaluate
from langgraph_toolmem.runs.values import ABSENT, VALUE_LIMITS, canon, fit, flatten
from langgraph_toolmem.text.schema import type_of

# --- values ---


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [(5, "5"), (5.0, 5), (5.0, "5"), (True, "true"), (None, "null"), ({"b": 1, "a": 2}, {"a": 2, "b": 1})],
)
def test_values_a_tool_treats_alike_have_the_same_text(one: Any, other: Any):
    assert canon(one) == canon(other)


@pytest.mark.parametrize(("one", "other"), [(5, 5.5), (True, 1), ("a", "A"), (ABSENT, ""), (ABSENT, None), ([1], [2])])
def test_different_values_have_different_texts(one: Any, other: Any):
    assert canon(one) != canon(other)


@pytest.mark.parametrize(
    ("value", "kind", "fitted"),
    [
        ("x", "string", "x"),
        (5, "string", "5"),
        (5.0, "string", "5"),
        (True, "string", ABSENT),
        (None, "string", ABSENT),
        (["x"], "string", ABSENT),
        ("5", "integer", 5),
        ("-5", "integer", -5),
        ("5.0", "integer", 5),
        (5.0, "integer", 5),
        (5.5, "integer", ABSENT),
        ("5.5", "integer", ABSENT),
        ("five", "integer", ABSENT),
        ("1e5", "integer", ABSENT),
        ("9" * 5000, "integer", ABSENT),
        (True, "integer", ABSENT),
        (math.inf, "integer", ABSENT),
        ("5.5", "number", 5.5),
        (5, "number", 5),
        (False, "number", ABSENT),
        (None, "number", ABSENT),
        (True, "boolean", True),
        ("False", "boolean", False),
        ("yes", "boolean", ABSENT),
        (1, "boolean", ABSENT),
        ([1], "array", [1]),
        ("[1]", "array", ABSENT),
        ({"a": 1}, "object", {"a": 1}),
        ([], "object", ABSENT),
        (None, "null", None),
        (0, "null", ABSENT),
    ],
)
def test_casts_to_the_declared_type(value: Any, kind: str, fitted: Any):
    found = fit(value, {"type": kind})

    assert found == fitted or found is fitted
    assert type(found) is type(fitted)


@pytest.mark.parametrize(
    ("value", "schema", "fitted"),
    [
        ("5", {"type": ["integer", "null"]}, 5),
        (None, {"type": ["integer", "null"]}, None),
        (5, {"type": ["string", "integer"]}, 5),
        ("x", {"type": ["integer", "string"]}, "x"),
        ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
        (None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("five", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, ABSENT),
        ("5", {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "integer"}]}, "5"),
        ("5", {}, "5"),
        ([5], None, [5]),
    ],
)
def test_casts_where_several_types_are_allowed(value: Any, schema: Any, fitted: Any):
    found = fit(value, schema)

    assert found == fitted or found is fitted
    assert type(found) is type(fitted)


@given(json_values, st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"]))
@settings(max_examples=100)
def test_what_fits_is_of_the_type_and_stays_as_it_is(value: Any, kind: str):
    fitted = fit(value, {"type": kind})
    if fitted is not ABSENT:
        assert type_of(fitted) == kind or (kind == "number" and type_of(fitted) == "integer")
        assert fit(fitted, {"type": kind}) == fitted


def test_an_output_is_addressed():
    flat = flatten(
        {"user": {"id": 7, "note": None, "empty": ""}, "orders": [{"id": "a", "tags": ["x", "y"]}, {"id": "b"}]}
    )

    assert flat.scalars == {"$.user.id": 7}
    assert flat.lists == {"$.orders[*].id": ["a", "b"], "$.orders[*].tags[*]": ["x", "y"]}


def test_the_keys_of_a_dict_of_dicts_are_a_list():
    flat = flatten({"items": {"11": {"price": 1}, "22": {"price": 2}}})

    assert flat.lists == {"$.items.*~": ["11", "22"]}
    assert flat.scalars == {"$.items.11.price": 1, "$.items.22.price": 2}


def test_large_and_deep_outputs_are_cut():
    assert len(flatten(list(range(5000))).lists["$[*]"]) == VALUE_LIMITS.leaves
    deep: Any = 1
    for _ in range(VALUE_LIMITS.depth):
        deep = {"a": deep}
    assert flatten(deep).scalars == {"$" + ".a" * VALUE_LIMITS.depth: 1}
    assert flatten({"a": deep}).scalars == {}


@given(json_values)
@settings(max_examples=60)
def test_values_survive_as_text(value: Any):
    assert decode_value(encode_value(value)) == value
    assert decode_value(encode_value(ABSENT)) is ABSENT


# --- sources ---


SLOT = ("read", "id")
LISTED = call("search", {"query": "invoices"}, {"hits": [{"id": "m1", "from": "Ann Lee"}, {"id": "m2", "from": "Bo"}]})


@pytest.mark.parametrize(
    ("descriptor", "parts", "value"),
    [
        ("i|search|query", [LISTED], "invoices"),
        ("i|search|page", [LISTED], ABSENT),
        ("o|whoami|$.user.id", [call("whoami", {}, {"user": {"id": 7}})], 7),
        ("o|whoami|$", [call("whoami", {}, "ann")], "ann"),
        ("o|whoami|$.user.name", [call("whoami", {}, {"user": {"id": 7}})], ABSENT),
        ("o|never|$.x", [LISTED], ABSENT),
        ("l|search|$.hits[*].id|next", [LISTED], "m1"),
        ("l|search|$.hits[*].id|next", [LISTED, call("read", {"id": "m1"})], "m2"),
        ("l|search|$.hits[*].id|next", [LISTED, call("read", {"id": "m1"}), call("read", {"id": "m2"})], ABSENT),
        ("ua|mail from|name", [user("Open the mail from Ann Lee now")], "Ann Lee"),
        ("ua|from|first", [user("Open the mail from Ann Lee now")], "Ann"),
        ("ua|from|last", [user("Open the mail from Ann Lee now")], "Lee"),
        ("ua|from|token", [user("Open the mail from Ann Lee now")], ABSENT),
        ("ua|from|name", [user("Open the mail from ann lee now")], ABSENT),
        ("ua|from|joined", [user("Open the mail from Ann de la Lee now")], "Ann de la Lee"),
        ("ua|pay|numbered", [user("Please pay Ann Lee 12.50 for it")], "Ann Lee 12.50"),
        ("ua|call|name", [user("Please call 王伟 back")], "王伟"),
        ("ua|for|>now", [user("Look for red shoes now")], "red shoes"),
        ("ua|for|>.", [user("Look for red shoes, please")], "red shoes"),
        ("ua|for|>now", [user("Look for red shoes, and now")], ABSENT),
        ("us|#A999", [user("Cancel order #W123 and #W456")], "#W123"),
        ("us|#A999", [user("Cancel order #W123 and #W456"), call("read", {"id": "#W123"})], "#W456"),
        ("ud|2024-%s", [user("What is on November 3rd?")], "2024-11-03"),
        ("ud|2024-%s 10:00:00", [user("What is on 3 November?")], "2024-11-03 10:00:00"),
        ("td|0|3|", [user("Who is free three days after 2024-11-29?")], "2024-12-02"),
        ("td|1|-1|T23:59:00", [user("From 2024-11-29 to March 1, 2025")], "2025-02-28T23:59:00"),
        ("td|0|3|", [user("Who is free?")], ABSENT),
        ("od|whoami|$.since|7|", [call("whoami", {}, {"since": "2024-02-23 10:00"})], "2024-03-01"),
        ("od|whoami|$.since|7|", [call("whoami", {}, {"since": "lately"})], ABSENT),
        ("us|#A999", [user("Cancel order #W123"), words("Sure?"), user("yes")], "#W123"),
    ],
)
def test_each_kind_of_source(descriptor: str, parts: list[Any], value: Any):
    state = state_of(*(parts if any(isinstance(p, dict) for p in parts) else [user("Go."), *parts]))

    assert evaluate(descriptor, state, SLOT) == value
    assert describe(descriptor)


AGAIN = [user("Go."), LISTED, call("read", {"id": "m1"}), words(), user("Go on.")]


@pytest.mark.parametrize(
    ("later", "used", "following"),
    [
        ([], {"m1"}, "m2"),
        ([LISTED], set(), "m1"),
        ([LISTED, call("read", {"id": "m1"})], {"m1"}, "m2"),
        ([call("read", {"id": "m2"})], {"m1", "m2"}, ABSENT),
    ],
)
def test_a_list_that_was_read_for_this_request_begins_anew(later: list[Any], used: set[str], following: Any):
    state = state_of(*AGAIN, *later)

    assert state.used_of_list(SLOT, state.outputs["search"]) == used
    assert evaluate("l|search|$.hits[*].id|next", state, SLOT) == following


def test_the_first_element_of_a_list_read_again_has_the_list_as_its_source():
    found = discover("m1", state_of(*AGAIN, LISTED), SLOT)

    assert "l|search|$.hits[*].id|next" in found


def test_copies_of_a_state_count_their_own_uses():
    state = state_of(*AGAIN, LISTED)
    copied = state.copy()
    copied.push(run_of(user("Go."), call("read", {"id": "m1"})).events[-1])

    assert evaluate("l|search|$.hits[*].id|next", copied, SLOT) == "m2"
    assert evaluate("l|search|$.hits[*].id|next", state, SLOT) == "m1"


def test_the_output_of_a_failed_call_is_no_source():
    from histories import FAILED

    state = state_of(user("Go."), call("whoami", {}, {"id": 1}), call("whoami", {}, FAILED))

    assert evaluate("o|whoami|$.id", state, SLOT) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("m1", {"l|search|$.hits[*].id|next"}),
        ("invoices", {"i|search|query"}),
        ("Ann Lee", {"ua|of|name", "l|search|$.hits[*].from|next"}),
        ("nowhere", set()),
        (True, set()),
        (None, set()),
        ({"a": 1}, set()),
        ([], set()),
        ("", set()),
    ],
)
def test_discovered_by_hand(value: Any, expected: set[str]):
    state = state_of(user("Open the mail of Ann Lee now"), LISTED)
    found = set(discover(value, state, SLOT))

    assert expected <= found
    assert expected or not found


def test_a_date_without_a_source_is_found_near_another_date():
    state = state_of(
        user("What is due within a week of 2024-11-29?"), call("whoami", {}, {"since": "2024-12-01T08:00"})
    )

    assert set(discover("2024-12-06", state, SLOT)) == {"td|0|7|", "od|whoami|$.since|5|"}
    assert not any(each.startswith(("td|", "od|")) for each in discover("2024-11-29", state, SLOT))
    assert discover("2025-06-06", state, SLOT) == []


KEYS = st.sampled_from(["id", "name", "a|b", "x y", "@", "[*]", "next"])
LEAVES = st.sampled_from(["m1", "m2", "Ann Lee", "ann", "#W1234", "a|b", "%", "", 5, 5.0, "5", 12.5, None, True])
OUTPUTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
WORDS = st.lists(
    st.sampled_from(
        ["Open", "order", "#W1234", "#W5678", "of", "Ann", "Lee", "ann", "'late fee'", "on", "November 3rd", "5", "7",
         "2024-04-30", "|", "a|b", "%", "number", "ANN", ",", "may 2"]
    ),
    max_size=10,
)  # fmt: skip
VALUES = LEAVES | st.sampled_from(
    ["late fee", "2024-11-03", "2024-05-02 10:00", "#W5678", "order #W1234", "Tasks of Ann", "Lee", "7", "Open 5"]
)


@given(
    st.lists(WORDS, min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(["search", "read", "a|b"]), VALUES, OUTPUTS), max_size=4),
    VALUES | st.lists(VALUES, max_size=3) | OUTPUTS,
)
@settings(max_examples=120)
def test_whatever_is_found_gives_the_value_again(texts, made, value):
    first, *others = texts
    events = [user(" ".join(first) or "Go.")]
    for tool, argument, output in made:
        events += call(tool, {"id": argument}, output)
    for text in others:
        events += [words(), user(" ".join(text) or "Go.")]
    state = state_of(history(*events))

    for descriptor in discover(value, state, SLOT):
        assert canon(evaluate(descriptor, state, SLOT)) == canon(value), descriptor
        assert describe(descriptor)
