"""Namespaces of a LangGraph store under which entries stand, and labels that such stores refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from langgraph.store.base import InvalidNamespaceError, ListNamespacesOp, MatchCondition

from langgraph_toolmem.base.errors import ConfigurationError

ENTRIES: Final = "tool_runs"
"""Label under which the entries of a namespace stand."""
_USER_PLACES: Final = ("{langgraph_user_id}", "{user_id}")
_REFUSED: Final = {"%": "%25", ".": "%2E", "\x00": "%00"}

Namespace = tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Whose entries are meant (None: everybody's), and under which namespace they stand."""

    user: str | None
    namespace: Namespace


class Pattern:
    """The namespaces under which entries stand: a template with at most one place for a user."""

    def __init__(self, template: Namespace, user_id: str | None) -> None:
        self._user = user_id
        if user_id is not None:
            template = tuple(user_id if label in _USER_PLACES else label for label in template)
            self._at = None
        else:
            self._at = next((at for at, label in enumerate(template) if label in _USER_PLACES), None)
        self.template = template
        self._whole = (*template, ENTRIES)

    @property
    def names_user(self) -> bool:
        """Whether a namespace says whose entries are meant."""
        return self._user is not None or self._at is not None

    def is_entries(self, namespace: Namespace) -> bool:
        """Whether entries of anybody stand exactly there."""
        return len(namespace) == len(self._whole) and self._agrees(namespace)

    def match(self, prefix: Namespace) -> Place | None:
        """Whose entries stand under a prefix; None if nobody's, or the prefix does not say whose."""
        if len(prefix) > len(self._whole) or not self._agrees(prefix):
            return None
        if self._at is None:
            return Place(self._user, self._whole)
        if len(prefix) <= self._at:
            return None
        user = prefix[self._at]
        return Place(user, (*self._whole[: self._at], user, *self._whole[self._at + 1 :]))

    def _agrees(self, prefix: Namespace) -> bool:
        pairs = enumerate(zip(prefix, self._whole, strict=False))
        return all(at == self._at or label == mine for at, (label, mine) in pairs)


def checked_template(namespace: Any) -> Namespace:
    """A template as it was given. Raises ConfigurationError if it cannot work."""
    if isinstance(namespace, str):
        namespace = (namespace,)
    if not isinstance(namespace, tuple) or not namespace or not all(isinstance(n, str) and n for n in namespace):
        raise ConfigurationError(f"namespace is a tuple of texts, not {namespace!r}.")
    other = [label for label in namespace if label.startswith("{") and label not in _USER_PLACES]
    if other or sum(label in _USER_PLACES for label in namespace) > 1:
        raise ConfigurationError(f"namespace has at most one place, {' or '.join(_USER_PLACES)}: {namespace!r}.")
    return namespace


def checked_user(user_id: Any) -> str | None:
    """A user id as it was given, or None. Raises ConfigurationError if it cannot work."""
    if user_id is None or (isinstance(user_id, str) and user_id and not user_id.startswith("{")):
        return user_id
    raise ConfigurationError(f"user_id is a text that is not empty and no placeholder, not {user_id!r}.")


def labels_of(namespace: Any) -> Namespace:
    """A namespace as it was given. Raises InvalidNamespaceError if it is none."""
    labels = tuple(namespace)
    if isinstance(namespace, str) or not all(isinstance(label, str) and label for label in labels):
        raise InvalidNamespaceError(f"A namespace is a tuple of texts that are not empty, not {namespace!r}.")
    return labels


def encoded(namespace: Namespace) -> Namespace:
    """Labels without what stores refuse; different ones stay different."""
    return tuple("".join(_REFUSED.get(char, char) for char in label) for label in namespace)


def decoded(namespace: Namespace) -> Namespace:
    """The inverse of `encoded`."""
    return tuple(
        label.replace("%00", "\x00").replace("%2E", ".").replace("%25", "%") if "%" in label else label
        for label in namespace
    )


def fits(namespace: Namespace, op: ListNamespacesOp) -> bool:
    """Whether a namespace is one of those that are to be listed."""
    return all(_agrees(namespace, condition) for condition in op.match_conditions or ())


def _agrees(namespace: Namespace, condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))
