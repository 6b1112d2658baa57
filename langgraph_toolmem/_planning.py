"""The part of `ToolMemory` that keeps atoms: single steps of what worked, found by sub-goal and by what is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem._distilling import Distilling
from langgraph_toolmem.atoms.atoms import Atom, merge_all
from langgraph_toolmem.atoms.record import AtomRecord
from langgraph_toolmem.base.checks import is_count, is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError, StorageError
from langgraph_toolmem.base.namespaces import resolve, user_digest
from langgraph_toolmem.core.ledger import Booking
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, read_tools

if TYPE_CHECKING:
    from langgraph_toolmem.atoms.known import Known
    from langgraph_toolmem.atoms.retrieve import AtomHit

METHOD: Final = "atoms"
SETTLE: Final = 10.0
"""Seconds that `search_atoms` waits for what was finished just now and is being written."""


class Planning(Distilling):
    """Keeps the steps of runs that went well as atoms, finds them, and books what their hints came to (SGA-MCTS)."""

    def search_atoms(
        self,
        goal: str | Sequence[str],
        *,
        state: str = "",
        slots: Known | Mapping[str, Any] | Iterable[str] = (),
        k: int = 3,
        tools: Mapping[str, ToolSpec] | Iterable[ToolLike] | None = None,
        beta: float = 0.3,
        user_id: str | None = None,
        wait: float | None = None,
    ) -> list[AtomHit]:
        """The atoms that fit a state and a sub-goal, best first: at most one for each tool.

        Score of an atom: (1 − β) · cos(question, atom) + β · |Λ ∩ S| / (|S| + ε), with Λ the types in `slots`, S those
        that the atom needs and ε 1e-5, and a little for its record and its value; one that misled is left out.

        Args:
            goal: the next sub-goal, in words; or several that may be next.
            state: where the run stands, in words.
            slots: types of the values that are known, such as ``"ORDER_ID"``; with their values (one, or a list of
                which the last counts) the atoms' arguments are filled in.
            k: how many at most.
            tools: the tools at hand: an atom's tool is found among them by its name, else by what it does; atoms of
                other tools are left out. None: all of them.
            beta: weight of what is known, from 0 (words alone) to 1.
            user_id: whose atoms.
            wait: seconds to wait for atoms that have to be read from disk first; none are found if that was not
                enough. None: as long as it takes, and what was finished just now is waited for too.

        Raises:
            ConfigurationError: an argument cannot work.
            NamespaceError: the namespace needs a user id.
            StorageError: the atoms cannot be read.
        """
        goals = [goal] if isinstance(goal, str) else _texts(goal)
        if goals is None or not isinstance(state, str):
            raise ConfigurationError("goal and state are texts; goal may be several.")
        if not is_count(k, 1):
            raise ConfigurationError(f"k is a whole number from 1, not {k!r}.")
        if not is_share(beta):
            raise ConfigurationError(f"beta is a share from 0 to 1, not {beta!r}.")
        specs = tools if tools is None or _are_specs(tools) else read_tools(tools)  # type: ignore[arg-type]
        known = _known(slots)
        namespace = resolve(self.namespace, user_id)
        self._check_user(user_id)
        self._learn_atoms_from_now_on()
        if wait is None and not self._store.read_only and not self._queue.empty:
            self._worker.settle(timeout=SETTLE)
        if self._vectors.empty:
            return []
        how = {"k": k, "beta": beta, "tools": specs}
        return self._atoms.search(namespace, state, goals, known, wait=wait, **how) or []

    def keep_atoms(self, atoms: Iterable[Atom], *, user_id: str | None = None) -> int:
        """Keeps atoms that come from elsewhere, such as those of ``toolmem discover``, beside those of runs.

        Atoms with the same sources and the same origin take the place of what was handed over before, so that a
        search can hand over all it has again and again.

        Args:
            atoms: see `atoms.atoms.make_atom`.
            user_id: whose they are.

        Returns:
            How many different atoms they are.

        Raises:
            ConfigurationError: one of them is no atom, or cannot be stored (arguments are JSON values).
            NamespaceError: the namespace needs a user id.
            StorageError: they could not be stored, or the memory is read-only.
        """
        from langgraph_toolmem.atoms.support import Support

        given = _atoms_of(atoms)
        self._check_user(user_id)
        namespace = resolve(self.namespace, user_id)
        if self._store.read_only:
            raise StorageError("A memory opened with read_only=True keeps nothing: do this where it is written.")
        self._learn_atoms_from_now_on()
        if not given:
            return 0
        user, now = user_digest(user_id) or "", self._now()
        made = merge_all(given)
        self._put_in(namespace, [Support(each, "", user, each.value, now) for each in made])
        return len(made)

    def offer_atoms(
        self,
        messages: Any,
        hits: Iterable[AtomHit],
        *,
        run_id: str | None = None,
        user_id: str | None = None,
    ) -> None:
        """The model gets to see these atoms as hints, before its next turn. This is what nodes call.

        Each was retrieved once more. Whether the model calls a tool of theirs next is booked when that turn is
        learned, and whether it led to success with the verdict on the run.

        Args:
            messages: the history so far.
            hits: what `search_atoms` found and the prompt has room for.
            run_id: identity of the run (a thread id).
            user_id: whose run it is.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
        """
        run = self._read(messages, run_id)
        self._check_user(user_id)
        if run.next_key is None or self._store.read_only:
            return
        before = self._ledger.items(run.next_key, METHOD)
        new = {hit.tool: hit.atom.id for hit in hits if hit.tool not in before.values()}
        items = {key: tool for tool, key in new.items()}
        self._ledger.shown(METHOD, items, run=run.digest, turn=run.next_key, user_id=user_id)
        self._ledger.flush()

    def atoms(self, *, user_id: str | None = None) -> list[Atom]:
        """All atoms that were kept and whose runs went well, those of most visits first.

        Those that mislead are among them (`atom_records`), though `search_atoms` finds them no longer.

        Args:
            user_id: whose atoms.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: the atoms cannot be read.
        """
        namespace = resolve(self.namespace, user_id)
        self._check_user(user_id)
        if self._vectors.empty:
            return []
        return sorted(self._atoms.store(namespace).all(), key=lambda atom: (-atom.visits, atom.tool, atom.id))

    def atom_records(self, ids: Iterable[str], *, user_id: str | None = None) -> dict[str, AtomRecord]:
        """What became of the hints of atoms (by id): how often retrieved, followed, and followed to success or failure.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: the atoms cannot be read.
        """
        namespace = resolve(self.namespace, user_id)
        if self._vectors.empty:
            return {key: AtomRecord() for key in ids}
        store = self._atoms.store(namespace)
        return {key: store.record(key) for key in ids}

    def _book_atoms(self, booking: Booking) -> None:
        namespace = self._namespace_of(booking.run, booking.user_id)
        if namespace is not None:
            record = AtomRecord(booking.shown, booking.followed, booking.helped, booking.hurt)
            self._atoms.store(namespace).book(booking.ids, record)


def _atoms_of(given: object) -> list[Atom]:
    from langgraph_toolmem.atoms.support import storable

    if not isinstance(given, Iterable):
        raise ConfigurationError(f"keep_atoms takes atoms, not {type(given).__name__}.")
    found: list[Atom] = []
    for each in given:
        if not isinstance(each, Atom):
            raise ConfigurationError(f"keep_atoms takes atoms, not {type(each).__name__}.")
        try:
            found.append(storable(each))
        except InputError as error:
            raise ConfigurationError(f"Atom {len(found) + 1} cannot be kept. {error}") from error
    return found


def _are_specs(tools: object) -> bool:
    return isinstance(tools, Mapping) and all(isinstance(each, ToolSpec) for each in tools.values())


def _texts(given: Any) -> list[str] | None:
    """Several texts; None if that is not what was given."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        return None
    texts = list(given)
    return texts if all(isinstance(each, str) for each in texts) else None


def _known(slots: Any) -> Any:
    """Types, or what is known of them. Raises ConfigurationError if it is neither."""
    from langgraph_toolmem.atoms.known import Known

    if isinstance(slots, Known):
        return slots
    if isinstance(slots, Mapping):
        return Known({label: each if isinstance(each, (list, tuple)) else [each] for label, each in slots.items()})
    names = _texts(slots)
    if names is None:
        raise ConfigurationError("slots are names of types, or what is known of them by type.")
    return names
