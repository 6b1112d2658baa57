"""Provenance: the origins that an argument's value may have, and the rule by which it may be used in a run.

Every value that the memory uses or shows as an argument is checked here. A source (`graph.sources`) gives a value of
this run. A value of another run (the most frequent one, the nearest request's, a whole call's) is used only if this run
shows it too: in the request, in an output, in the schema. A value that this run does not show is never used, unless the
developer declared the parameter (``ToolMemory(constants={"search.limit"})``): the form of a value does not distinguish
the tenant "acme" from a setting.

More rules:

- A place in prompt or context is a source once two different values there agreed with the model's, or for a value that
  it had before: with one customer only, the place and the customer cannot be distinguished.
- A value of prompt or context is not used if the request leaves more names or numbers unused than past requests did:
  "Where is the order of C820?" is about C820, even if the prompt names another customer.
- A known user's own earlier value is a value of another run. Ten desks (100 requests each) saved 852 of 2,466 model
  calls with such values, with 3 wrong look-ups (yesterday's date, another role); without them 874, with 0 wrong.
- Of two extents of a value in the request ("New", "New York") the one that was wrong less often is used; if neither was
  wrong, neither is used. Hits are no evidence: names of one word, for which both are right, outnumber the others. A
  name is not used before a word that occurred only in values, or that is new at a place with one wording ("San" in "San
  jose"). 160 office runs: right .96 and wrong .77 per 100 turns without this rule, 1.34 and .57 with it.
- A value of another request's wording is not used if it has more words than the parameter had after any of the nearest
  requests: of 490 look-ups in a swarm of two agents, 4 had "2026-12-04 and a hotel in Boston." without this rule, 0
  with it. In the four recorded sets right and wrong calls change by at most .2 and .0 per 100 turns.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.sources import evaluate, from_input, is_derived, value_digest, words_before
from langgraph_toolmem.graph.state import RunState, slot_key, tool_of
from langgraph_toolmem.graph.tool_graph import HIT, MISS, ToolGraph
from langgraph_toolmem.runs.values import ABSENT, canon, is_unread
from langgraph_toolmem.text.values import (
    A_NUMBER,
    TEXT_END,
    after_name,
    dates_in,
    is_open,
    pieces_of,
    read_text,
    right_of,
)
from langgraph_toolmem.text.wording import left_over


class Provenance:
    """Checks the values of one decision.

    Args:
        graph: the evidence.
        state: the run that the values are for.
        constants: parameters ("tool.parameter") whose values need not be shown by the run.
        neighbours: the nearest past requests.
    """

    def __init__(
        self,
        graph: ToolGraph,
        state: RunState,
        constants: Collection[str] = (),
        neighbours: Sequence[Neighbour] = (),
    ) -> None:
        self._graph, self._state, self._constants, self._neighbours = graph, state, constants, neighbours
        self._shown: dict[str, bool] = {}
        self._texts = (state.user.raw, *(text.raw for text in state.past_users))
        self._said = [raw.lower() for raw in self._texts]
        self._words = frozenset[str]().union(*map(pieces_of, self._texts))

    def value_of(self, descriptor: str, tool: str, parameter: str) -> Any:
        """Return the value that a source has in this run, or ABSENT. A value that `is_early` must not be used yet."""
        value = evaluate(descriptor, self._state, (tool, parameter))
        if value is ABSENT:
            return ABSENT
        if descriptor.startswith("ud|") and not self._composed(canon(value)):
            # Year and time of day in a date's format come from another run.
            return ABSENT
        return value

    def is_early(self, descriptor: str, tool: str, parameter: str, value: Any) -> bool:
        """Return True if a value comes from a place in prompt or context, or a date's neighbour, too early to count."""
        if not (from_input(descriptor) or is_derived(descriptor)):
            return False
        slot = slot_key(tool, parameter)
        contributors = self._graph.places.of(slot, descriptor)
        if contributors is None:
            return True
        # For places, the "runs" are digests of the values that were right.
        values = contributors.runs
        if len(values) >= 2:
            return False
        if value_digest(descriptor, canon(value)) not in values:
            return True
        # A date so many days later may be the same date. In a log of one day it is, and counts by its record: without
        # it the office's reads fell from 2.2 to 1.8 per 100 turns.
        if not is_derived(descriptor):
            return False
        counts = self._graph.sources.row(slot).get(descriptor)
        return counts is None or counts[HIT] < 3

    def may_use(self, tool: str, parameter: str, value: Any, schema: Any) -> bool:
        """Return True if a value of another run may be used in a call of this one."""
        # An argument too large to read is kept as one short text, which represents many values.
        if is_unread(value):
            return False
        return f"{tool_of(tool)}.{parameter}" in self._constants or self.shows(value, schema)

    def may_repeat(self, tool: str, args: Mapping[str, Any], properties: Mapping[str, Any]) -> bool:
        """Return True if a whole call of another run may be made in this one."""
        from_another_run = ("w",)
        for name, value in args.items():
            if not self.may_use(tool, name, value, properties.get(name)):
                return False
            if self.is_contested(tool, name, value, from_another_run, {}):
                return False
        return True

    def shows(self, value: Any, schema: Any = None) -> bool:
        """Return True if the run shows a value: all of its parts, for a list or an object."""
        if needs_no_source(value, schema):
            return True
        if isinstance(value, list):
            items = _part_of_schema(schema, "items")
            return all(self.shows(part, items) for part in value)
        if isinstance(value, dict):
            return self._shows_object(value, schema)
        text = canon(value)
        # Candidates of one decision share most of their values.
        if text not in self._shown:
            self._shown[text] = self._is_shown(text)
        return self._shown[text]

    def _shows_object(self, value: Mapping[str, Any], schema: Any) -> bool:
        named = _part_of_schema(schema, "properties")
        if not isinstance(named, Mapping):
            named = {}
        for name, part in value.items():
            # A name outside the schema may be data: a customer's id as a key.
            if name not in named and not self.shows(name):
                return False
            if not self.shows(part, named.get(name)):
                return False
        return True

    def is_contested(
        self, tool: str, parameter: str, value: Any, backing: Collection[str], others: Mapping[str, str]
    ) -> bool:
        """Return True if a value may be shorter or longer than the name in the request, and the record does not
        decide.

        Args:
            tool: the tool.
            parameter: the parameter.
            value: the value.
            backing: its sources.
            others: the sources that give other values, each with its value.
        """
        text = canon(value)
        placed = [descriptor for descriptor in backing if words_before(descriptor)]
        if not placed:
            from_other_runs = {"c", "cp", "n", "w"}.issuperset(backing)
            return from_other_runs and (self._is_part(text) or self._is_longer_than_known(tool, parameter, text))
        if self._may_go_on(tool, parameter, text):
            return True
        row = self._graph.sources.row(slot_key(tool, parameter))
        # One source with a better record than its rivals is enough.
        for own in placed:
            rivals = _other_extents(own, text, others)
            if _is_less_often_wrong(own, rivals, row):
                return False
        return True

    def _is_part(self, text: str) -> bool:
        """Return True if a value of another run may be a part of a name in the request."""
        request = self._state.user
        span = request.find(text)
        if span is None:
            return False
        if is_open(request, *span):
            return True
        # The first word always has a capital: past requests show whether it is a part of the name. "Tomasz Nunez:
        # address please" must not be answered with the address of "Nunez".
        if span.first != 1 or not is_open(request, *span, first_word=True):
            return False
        return not self._is_untaken(request.words[0])

    def _is_longer_than_known(self, tool: str, parameter: str, text: str) -> bool:
        """Return True if a value has more words than the parameter had after any of the nearest requests."""
        longest = 0
        for near in self._neighbours:
            if near.tool == tool and parameter in near.args:
                longest = max(longest, len(read_text(canon(near.args[parameter])).words))
        return 0 < longest < len(read_text(text).words)

    def _may_go_on(self, tool: str, parameter: str, text: str) -> bool:
        """Return True if a name in the request may continue with the next word: "San jose"."""
        request = self._state.user
        span = request.find(text)
        if span is None:
            return False
        following = after_name(request, span.last)
        if not following or self._is_untaken(following):
            return False
        # If names came before several different words, a new word is one more of them: "to Bob presently".
        known = set[str]()
        for near in self._neighbours:
            if near.tool == tool:
                known.add(_word_after(near.text, canon(near.args.get(parameter, ABSENT))))
        several = len(known - {TEXT_END, A_NUMBER}) >= 2
        # A word of past requests is not new, and may belong to the name.
        return bool(self._graph.cases.having(following)) or not several

    def _is_untaken(self, word: str) -> bool:
        """Return True if a past request had a word that is missing in its calls."""
        most_cases = 16  # the latest; a usual word is in 64
        cases = self._graph.cases
        for case_id in cases.having(word)[-most_cases:]:
            if word not in _taken(cases.arguments(case_id)):
                return True
        return False

    def distracts(self, tool: str, calls: Sequence[Mapping[str, Any]], neighbours: Sequence[Neighbour]) -> bool:
        """Return True if the request leaves more names and numbers unused than past requests with this tool did."""
        taken: list[str] = []
        for args in (*[step.args for step in self._state.since_user], *calls):
            taken += map(canon, args.values())
        left = left_over(self._state.user.raw, taken)
        if not left:
            return False
        for near in neighbours:
            if near.tool == tool and len(left) <= len(_left_before(near.text, near.made)):
                return False
        return True

    def _is_shown(self, text: str) -> bool:
        low = text.lower()
        for said in self._said:
            if stands_in(low, said):
                return True
        return self._composed(text) or in_outputs(text, self._state) or text in self._state.input_texts.values()

    def _composed(self, text: str) -> bool:
        """Return True if a value is made of the user's own words, and of a date's year that the run shows."""
        for raw in self._texts:
            for day in dates_in(raw):
                year, found, rest = text.partition(f"-{day}")
                if found and self._shows_year(year):
                    # The first and the last minute of a day are not a time of day.
                    for_no_moment = ("00", "59", "23", "t", "z")
                    text = " ".join([part for part in pieces_of(rest) if part not in for_no_moment])
        return pieces_of(text) <= self._words

    def _shows_year(self, year: str) -> bool:
        if year in self._state.seen.years():
            return True
        for raw in self._texts:
            if year in pieces_of(raw):
                return True
        # In an output only the year of a date counts: "2024" alone may be a number.
        begins = f"{year}-"
        for index in self._state.recent_outputs():
            if begins in self._state.output_text(index):
                return True
        return False


@cached(mebibytes=4)
def _left_before(text: str, made: tuple[str, ...]) -> frozenset[str]:
    """Return the unused names and numbers of a past request, given the arguments of its calls as JSON."""
    return left_over(text, _values_of(made))


@cached(mebibytes=4)
def _word_after(request: str, value: str) -> str:
    """Return the word that stood right after a value in a past request; TEXT_END if there was none."""
    text = read_text(request)
    span = text.find(value)
    if span is None:
        return TEXT_END
    return right_of(text, span.last)


@cached(mebibytes=4)
def _taken(made: tuple[str, ...]) -> frozenset[str]:
    """Return the words in the arguments of calls, given these as JSON."""
    return frozenset[str]().union(*[read_text(value).words for value in _values_of(made)])


def _values_of(made: tuple[str, ...]) -> list[str]:
    values: list[str] = []
    for args in map(json.loads, made):
        values += map(canon, args.values())
    return values


def encode_value(value: Any) -> str:
    """Return a value in the form of the evidence graph; "" for one that is left out."""
    if value is ABSENT:
        return ""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def decode_value(text: str) -> Any:
    """Return the value that `encode_value` wrote."""
    if not text:
        return ABSENT
    return json.loads(text)


def usual_values(graph: ToolGraph, slot: str, previous: str) -> dict[str, Any]:
    """Return the most frequent value of a slot in past runs: overall (``c``) and after the previous symbol (``cp``)."""
    usual: dict[str, Any] = {}
    for name, key in (("c", slot), ("cp", f"{slot}\x1e{previous}")):
        row = graph.values.row(key)
        if row:
            usual[name] = decode_value(_most_frequent(row))
    return usual


def _most_frequent(row: Mapping[str, Sequence[float]]) -> str:
    def times(item: str) -> float:
        return row[item][0]

    return max(row, key=times)


def in_outputs(text: str, state: RunState) -> bool:
    """Return True if a value is in one of the latest outputs, by itself or in prose."""
    low = text.lower()
    for index in state.recent_outputs():
        if stands_in(low, state.output_text(index)):
            return True
    return False


def stands_in(value: str, text: str) -> bool:
    """Return True if a value is in a text and is not a part of a word there."""
    # `find` in place of an expression: `re` would compile one for each value, and keep it.
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        before, after = text[start - 1 : start], text[end : end + 1]
        cut = (before.isalnum() and value[:1].isalnum()) or (after.isalnum() and value[-1:].isalnum())
        if not cut:
            return True
        start = text.find(value, start + 1)
    return False


def needs_no_source(value: Any, schema: Any) -> bool:
    """Return True for a value that is not specific to a run: an empty one, a boolean, one that the schema names."""
    if value is ABSENT or value is None or isinstance(value, bool) or value in ("", [], {}):
        return True
    return _in_schema(value, schema)


def _in_schema(value: Any, schema: Any) -> bool:
    """Return True if a parameter's schema names a value."""
    if not isinstance(schema, Mapping):
        return False
    if value in schema.get("enum", ()) or value in (schema.get("default", ABSENT), schema.get("const", ABSENT)):
        return True
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if _in_schema(value, branch):
            return True
    return False


def _part_of_schema(schema: Any, keyword: str) -> Any:
    if not isinstance(schema, Mapping):
        return None
    return schema.get(keyword)


def _other_extents(own: str, text: str, others: Mapping[str, str]) -> list[str]:
    """Return the sources that give another value after the same words of the request."""
    before = words_before(own)
    rivals = []
    for descriptor, value in others.items():
        if value != text and words_before(descriptor) == before:
            rivals.append(descriptor)
    return rivals


def _is_less_often_wrong(own: str, rivals: Sequence[str], row: Mapping[str, Sequence[float]]) -> bool:
    misses = _misses(row, own)
    for rival in rivals:
        if misses >= _misses(row, rival):
            return False
    return True


def _misses(row: Mapping[str, Sequence[float]], descriptor: str) -> float:
    """Return how often a source was wrong; for two extents in one place, only if they differ."""
    return row[descriptor][MISS] if descriptor in row else 0.0
