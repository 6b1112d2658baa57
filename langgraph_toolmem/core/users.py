"""Users: whose memory a run belongs to, found out once."""

from __future__ import annotations

import logging
from typing import NamedTuple

from langgraph_toolmem.base.namespaces import has_user, resolve, user_digest

logger = logging.getLogger("langgraph_toolmem.memory")


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

    @staticmethod
    def digest_of(user_id: str | None) -> str | None:
        """How a user appears in what is kept."""
        return user_digest(user_id or None)
