"""Users, and the namespaces of their personal memory."""

from __future__ import annotations

import json
import logging
import os
import string
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError
from langgraph_toolmem.base.text import digest

logger = logging.getLogger("langgraph_toolmem.memory")

T = TypeVar("T")

USER_PLACEHOLDER = "user_id"
NAMESPACE_FILE = "namespace.json"
NO_USERS = (
    "values of several threads are kept, and no run named its user: forget(user_id=...) will find nothing. Name users "
    'with config={"configurable": {"user_id": ...}}'
)


class Owner(NamedTuple):
    """Thread and user of a run, as the host names them; None if it does not."""

    thread_id: str | None = None
    user_id: str | None = None


NOBODY: Final = Owner()
"""The owner of a run of which the host names neither thread nor user."""


class User(NamedTuple):
    """The user of a run: id as the host gives it and the digest that is stored, both None without a named user, and the
    namespace of their personal memory.
    """

    id: str | None
    digest: str | None
    namespace: tuple[str, ...]


class Users:
    """Users of a memory, given the namespace of personal memory, with or without a placeholder for a user's id."""

    def __init__(self, namespace: tuple[str, ...]) -> None:
        self.namespace = namespace
        self.apart = has_user(namespace)
        self._warned = False
        self.refused = 0
        """Number of runs that were not learned in this process, because the namespace needs a user id."""

    def problems(self) -> list[str]:
        """Return a sentence if runs had no user id and the namespace needs one."""
        if not self.refused:
            return []
        return [
            f"The namespace {self.namespace!r} needs a user id, and was given none {self.refused:,} times: nothing was "
            'learned there. Run the graph with the id in its context or in config["configurable"]["user_id"].'
        ]

    def learner(self, user_id: str | None) -> User:
        """Return the user of a run to learn from, and count the refusals. Raises NamespaceError as `of`."""
        try:
            return self.of(user_id)
        except NamespaceError:
            self.refused += 1
            raise

    def of(self, user_id: str | None, *, warn: bool = True) -> User:
        """Return a user; warn once if the namespace has no placeholder for the id. Raises NamespaceError if it needs an
        id.
        """
        namespace = self.namespace
        if self.apart:
            if not user_id:
                raise NamespaceError(
                    f"The namespace {namespace!r} needs a user id. Pass user_id=…, or run the graph with it in its "
                    'context or in config["configurable"]["user_id"].'
                )
            namespace = tuple([label.format(user_id=user_id) for label in namespace])
        if warn and user_id is not None and not self.apart and not self._warned:
            self._warned = True
            logger.warning(
                "A run carries a user id, but the namespace %r has no place for it: personal memory is shared by all "
                'users. Use namespace=("toolmem", "{user_id}") to keep it apart.',
                self.namespace,
            )
        return User(user_id, user_digest(user_id), namespace)

    def has(self, namespace: tuple[str, ...]) -> bool:
        """Return True if a namespace is that of these users, or of one of them."""
        if len(self.namespace) != len(namespace):
            return False
        for template, label in zip(self.namespace, namespace, strict=True):
            if not has_user((template,)) and template.format() != label:
                return False
        return True


def check_namespace(namespace: Any, *, name: str, user_allowed: bool) -> tuple[str, ...]:
    """Return a namespace; raise ConfigurationError if it is not a tuple of texts, or has an unknown placeholder."""
    if not isinstance(namespace, tuple) or not namespace or not all(isinstance(n, str) and n for n in namespace):
        raise ConfigurationError(f'{name} is a tuple of texts such as ("toolmem", "{{user_id}}"), not {namespace!r}.')
    try:
        wanted = _placeholders(namespace)
    except ValueError as error:
        raise ConfigurationError(f"{name} has braces that are no placeholder ({error}): {namespace!r}.") from error
    unknown = wanted - {USER_PLACEHOLDER}
    if unknown:
        raise ConfigurationError(f"{name} has the placeholder {{{min(unknown)}}}; only {{user_id}} is known.")
    if wanted and not user_allowed:
        raise ConfigurationError(f"{name} is shared by all users and takes no {{user_id}}; use `namespace` for that.")
    return tuple(namespace)


def keep_namespace(folder: Path, namespace: tuple[str, ...]) -> None:
    """Store the template of the namespace in the memory's folder, for the command line. May raise OSError."""
    if namespace_kept(folder) != namespace:
        text = json.dumps({"namespace": list(namespace)})
        # Replaced as a whole: another process may read it at this moment.
        made = folder / f"{NAMESPACE_FILE}.{os.getpid()}"
        made.write_text(text + "\n", encoding="utf-8")
        made.replace(folder / NAMESPACE_FILE)


def namespace_kept(folder: Path) -> tuple[str, ...] | None:
    """Return the namespace last used in a folder; None if none was stored."""
    try:
        namespace = json.loads((folder / NAMESPACE_FILE).read_text(encoding="utf-8"))["namespace"]
        return check_namespace(tuple(namespace), name="namespace", user_allowed=True)
    # A damaged file counts as missing: the command line then uses the default, or `--namespace`.
    except (OSError, ValueError, LookupError, TypeError):
        return None


def has_user(namespace: tuple[str, ...]) -> bool:
    """Return True if a namespace has a placeholder for a user's id."""
    return USER_PLACEHOLDER in _placeholders(namespace)


def _placeholders(namespace: tuple[str, ...]) -> set[str]:
    names: set[str] = set()
    for label in namespace:
        for _, name, _, _ in string.Formatter().parse(label):
            if name is not None:
                names.add(name)
    return names


def by_namespace(items: Iterable[T], of: Callable[[T], tuple[str, ...]]) -> list[tuple[User, list[T]]]:
    """Return items by the namespace of their rows, each as a user without an id."""
    by_name: dict[tuple[str, ...], list[T]] = {}
    for item in items:
        by_name.setdefault(of(item), []).append(item)
    return [(User(None, None, namespace), of_user) for namespace, of_user in by_name.items()]


def user_digest(user_id: str | None) -> str | None:
    # Only digests are stored: an id may be a name or an address.
    if user_id is None:
        return None
    return digest("user", user_id)
