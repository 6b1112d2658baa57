"""What parameters mean, by their names, places, descriptions and tools."""

from __future__ import annotations

import pytest

from langgraph_toolmem.navigator.history import Flow, History
from langgraph_toolmem.navigator.plan.problem import value_source
from langgraph_toolmem.text.meaning import Port, meaning_of
from langgraph_toolmem.text.schema import Leaf


def leaf(path: str, description: str = "", *types: str, **more: object) -> Leaf:
    return Leaf(path, frozenset(types), description, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "tool", "description", "words"),
    [
        ("city", "get_weather", "", "city"),
        ("city_name", "get_weather", "", "city"),
        ("name", "get_weather", "Name of a city", "city"),
        ("name", "get_weather", "The city's name", "city"),
        ("id", "create_ticket", "", "ticket id"),
        ("data.results[].id", "search_tickets", "", "ticket id"),
        ("author.id", "get_book", "", "author id"),
        ("id", "answer", "8-digit ID of the newly created event.", "event id"),
        ("customerIDs", "x", "", "customer id"),
        ("lng", "x", "", "longitude"),
        ("title", "Media.FindMovies", "", "movie"),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else None,
)
def test_words(path: str, tool: str, description: str, words: str):
    assert meaning_of(leaf(path, description), tool).words == {*words.split()}


@pytest.mark.parametrize(
    ("path", "role", "words"),
    [
        ("origin_city", "from", "city"),
        ("destinationCity", "to", "city"),
        ("from_currency", "from", "currency"),
        ("data_source", "", "source data"),
        ("destination", "", "destination"),
    ],
    ids=str,
)
def test_roles_are_no_part_of_the_meaning(path: str, role: str, words: str):
    found = meaning_of(leaf(path), "search_flights")
    assert (found.role, found.words) == (role, {*words.split()})


def test_a_bare_id_of_nothing_is_vague():
    assert meaning_of(leaf("id"), "").vague
    assert not meaning_of(leaf("id"), "get_user").vague


def port(name: str, tool: str = "use", **said: object) -> Port:
    value = leaf(name, "", **said)  # type: ignore[arg-type]
    return Port(tool, name, "in", value, meaning_of(value, tool))


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (port("order_id"), "produced"),
        (port("page_token"), "produced"),
        (port("colour", choices=("red", "blue")), "user"),
        (port("city"), "either"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.path,
)
def test_who_gives_a_value(wanted: Port, kind: str):
    assert value_source(wanted, History())[0] == kind


def test_the_record_is_believed_more_than_the_name():
    fed = History(uses={"use": 4}, flows={Flow("get", "text", "use", "query"): 3})
    given = History(given={("use", "order_id"): 5})
    thin = History(uses={"use": 2}, flows={Flow("get", "text", "use", "query"): 2})

    assert value_source(port("query"), fed)[0] == "produced"
    assert value_source(port("order_id"), given)[0] == "user"
    assert value_source(port("query"), thin)[0] == "either"
