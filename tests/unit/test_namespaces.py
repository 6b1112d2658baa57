"""Namespaces: whose memory a text belongs to."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from histories import history, user, words

from langgraph_toolmem import ConfigurationError, ToolMemory
from langgraph_toolmem.core.users import Users, check_namespace, has_user, user_digest

PERSONAL = ("toolmem", "{user_id}")


@pytest.mark.parametrize(
    ("namespace", "told"),
    [
        ("toolmem", "tuple of texts"),
        (["toolmem"], "tuple of texts"),
        ((), "tuple of texts"),
        (("a", ""), "tuple of texts"),
        (("a", 1), "tuple of texts"),
        (None, "tuple of texts"),
        (("a", "{tenant}"), "{tenant}"),
        (("a", "{}"), "{}"),
        (("a", "{user_id.name}"), "user_id.name"),
        (("a", "{user_id"), "no placeholder"),
        (("a", "}"), "no placeholder"),
    ],
)
def test_namespaces_that_cannot_work_are_named(namespace: Any, told: str):
    with pytest.raises(ConfigurationError) as error:
        check_namespace(namespace, name="namespace", user_allowed=True)

    assert told in str(error.value)
    assert "namespace" in str(error.value)


def test_a_user_is_put_in_its_place():
    assert has_user(PERSONAL)
    assert not has_user(("toolmem",))
    assert Users(PERSONAL).of("ann").namespace == ("toolmem", "ann")
    assert Users(("a", "user-{user_id}")).of("ann").namespace == ("a", "user-ann")
    assert Users(("toolmem",)).of(None).namespace == ("toolmem",)
    assert Users(PERSONAL).of("{x}").namespace == ("toolmem", "{x}")


def test_a_users_digest_is_stable_and_no_name():
    assert user_digest(None) is None
    assert user_digest("ann") == user_digest("ann") != user_digest("bo")
    assert "ann" not in str(user_digest("ann"))


def test_a_user_without_a_place_in_the_namespace_is_warned_of_once(caplog: pytest.LogCaptureFixture):
    with ToolMemory.ephemeral() as memory, caplog.at_level(logging.WARNING, "langgraph_toolmem"):
        for _ in range(2):
            memory.observe(history(user("Hello"), words("Hi!")), user_id="ann")

    assert caplog.text.count("carries a user id") == 1
