"""Users: whose memory a run or a piece of text belongs to, found out once."""

from __future__ import annotations

import json
import logging
import os
import string
from pathlib import Path
from typing import Any, NamedTuple

from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError
from langgraph_toolmem.base.text import digest

logger = logging.getLogger("langgraph_toolmem.memory")

USER = "user_id"
NAMESPACE_FILE = "namespace.json"


class User(NamedTuple):
    """Whose a run is.

    Attributes:
        id: as the host names the user; None if nobody is named.
        digest: how the user appears in what is kept; None if nobody is named.
        namespace: of the user's personal memory.
    """

    id: str | None
    digest: str | None
    namespace: tuple[str, ...]


class Users:
    """Finds out whose memory is meant.

    Args:
        namespace: of personal memory, with or without a place for a user's id.
    """

    def __init__(self, namespace: tuple[str, ...]) -> None:
        self.namespace = namespace
        self.apart = has_user(namespace)
        self._warned = False

    def of(self, user_id: str | None, *, warn: bool = True) -> User:
        """A user.

        Args:
            user_id: the id, if anybody is named.
            warn: say so, once, where the namespace has no place for the id.

        Raises:
            NamespaceError: the namespace needs a user id and there is none.
        """
        namespace = resolve(self.namespace, user_id)
        if warn and user_id is not None and not self.apart and not self._warned:
            self._warned = True
            logger.warning(
                "A run carries a user id, but the namespace %r has no place for it: personal memory is shared by all "
                'users. Use namespace=("toolmem", "{user_id}") to keep it apart.',
                self.namespace,
            )
        return User(user_id, user_digest(user_id), namespace)

    def has(self, namespace: tuple[str, ...]) -> bool:
        """Whether a namespace is that of some user."""
        pairs = zip(self.namespace, namespace, strict=False)
        same = all(has_user((mine,)) or mine.format() == other for mine, other in pairs)
        return same and len(self.namespace) == len(namespace)

    @staticmethod
    def digest_of(user_id: str | None) -> str | None:
        return user_digest(user_id or None)


def check_namespace(namespace: Any, *, name: str, user_allowed: bool) -> tuple[str, ...]:
    """A namespace as given, checked.

    Raises:
        ConfigurationError: it is no tuple of non-empty texts, or has a placeholder that cannot be filled.
    """
    if not isinstance(namespace, tuple) or not namespace or not all(isinstance(n, str) and n for n in namespace):
        raise ConfigurationError(f'{name} is a tuple of texts such as ("toolmem", "{{user_id}}"), not {namespace!r}.')
    try:
        places = [place for label in namespace for _, place, _, _ in string.Formatter().parse(label)]
    except ValueError as error:
        raise ConfigurationError(f"{name} has braces that are no placeholder ({error}): {namespace!r}.") from error
    wanted = {place for place in places if place is not None}
    if wanted - {USER}:
        raise ConfigurationError(f"{name} has the placeholder {{{min(wanted - {USER})}}}; only {{user_id}} is known.")
    if wanted and not user_allowed:
        raise ConfigurationError(f"{name} is shared by all users and takes no {{user_id}}; use `namespace` for that.")
    return tuple(namespace)


def keep_namespace(folder: Path, namespace: tuple[str, ...]) -> None:
    """Keeps the template of the namespace in the memory's folder, so that the command line need not be told it.

    Raises:
        OSError: it cannot be written.
    """
    if namespace_kept(folder) != namespace:
        text = json.dumps({"namespace": list(namespace)})
        made = folder / f"{NAMESPACE_FILE}.{os.getpid()}"
        made.write_text(text + "\n", encoding="utf-8")
        made.replace(folder / NAMESPACE_FILE)


def namespace_kept(folder: Path) -> tuple[str, ...] | None:
    """The namespace that was used in a folder last; None if that was not kept."""
    try:
        found = json.loads((folder / NAMESPACE_FILE).read_text(encoding="utf-8"))["namespace"]
        return check_namespace(tuple(found), name="namespace", user_allowed=True)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def has_user(namespace: tuple[str, ...]) -> bool:
    return any(field == USER for label in namespace for _, field, _, _ in string.Formatter().parse(label))


def resolve(namespace: tuple[str, ...], user_id: str | None) -> tuple[str, ...]:
    """The namespace of one user.

    Raises:
        NamespaceError: it needs a user id and there is none. Nothing is shared by accident.
    """
    if not has_user(namespace):
        return namespace
    if not user_id:
        raise NamespaceError(
            f"The namespace {namespace!r} needs a user id. Pass user_id=…, or run the graph with it in its "
            'context or in config["configurable"]["user_id"].'
        )
    return tuple(label.format(user_id=user_id) for label in namespace)


def user_digest(user_id: str | None) -> str | None:
    """How a user appears in the evidence graph."""
    return None if user_id is None else digest("user", user_id)
