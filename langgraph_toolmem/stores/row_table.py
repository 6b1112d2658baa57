"""Rows of texts in ``memory.db``: the rows, their owners, and the progress of Chroma's index.

A collection holds the rows of one kind and namespace. Each write gives its rows new numbers, and the collection keeps
the number up to which its rows are indexed. The index contains each *text* of a part once, under a key that `text_key`
makes. Keys whose last row may be deleted wait in ``stale`` until the index has dropped them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.text import digest, dumps, loads
from langgraph_toolmem.stores.database import NAME, Database, Values

MAX_NAMED: Final = 5
"""Damaged rows that problems name one by one."""
ALL_ROWS: Final = (1 << 62) - 1
"""No row has a larger number."""
DAMAGED_COLLECTION: Final = f"the label of a collection of texts in {NAME} is damaged"
_ROW_COLUMNS: Final = "number, id, key, part, text, metadata"


class MovedError(StorageError):
    """Another process changed the collection between reading and writing."""


@dataclass(frozen=True, slots=True)
class TextRow:
    """A row of a collection; `number` is that of its latest write."""

    number: int
    id: str
    key: str
    part: str
    text: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row of a found text; its text is not read yet."""

    number: int
    id: str
    key: str
    part: str


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The state of a collection.

    Attributes:
        changed: number of its writes, by any process.
        indexed: number up to which its rows are in the index.
        turn: number of times that the index was written.
        doomed: pending work of the writing process: "scrub", "drop" (scrub, and delete the collection), or "".
    """

    changed: int = 0
    indexed: int = 0
    turn: int = 0
    doomed: str = ""


@dataclass(frozen=True, slots=True)
class StoredCollection:
    """An existing collection, and its state."""

    name: str
    kind: str
    namespace: tuple[str, ...]
    progress: IndexProgress


@dataclass(frozen=True, slots=True)
class StaleKey:
    """A key whose last row may be deleted; `number` is that of its row in ``stale``."""

    number: int
    key: str


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row to be written; `owners` are digests."""

    id: str
    part: str
    text: str
    metadata: Mapping[str, Any]
    owners: Sequence[str]

    @property
    def key(self) -> str:
        return text_key(self.part, self.text)


def text_key(part: str, text: str) -> str:
    """Return the key of a text of a part: keys of a part have the same prefix, and keys of one text the same end."""
    return f"{digest(part)}-{digest(text)}"


def text_digest(key: str) -> str:
    """Return the end of a key: the same for one text in every part."""
    return key.partition("-")[2]


class RowTable(Database):
    """Rows, stale keys and collections. Safe to use from several threads and processes."""

    tables: ClassVar = {
        "rows": """
            number INTEGER PRIMARY KEY AUTOINCREMENT, first INTEGER NOT NULL, collection TEXT NOT NULL,
            id TEXT NOT NULL, key TEXT NOT NULL, part TEXT NOT NULL, owners TEXT NOT NULL, text TEXT NOT NULL,
            metadata TEXT NOT NULL,
            UNIQUE (collection, id), UNIQUE (collection, first), UNIQUE (collection, key, number)
        """,
        "stale": "number INTEGER PRIMARY KEY AUTOINCREMENT, collection TEXT NOT NULL, key TEXT NOT NULL",
        "collections": """
            name TEXT PRIMARY KEY, kind TEXT NOT NULL, namespace TEXT NOT NULL, changed INTEGER NOT NULL,
            indexed INTEGER NOT NULL, turn INTEGER NOT NULL, doomed TEXT NOT NULL
        """,
    }

    def __init__(self, folder: Path | None, *, read_only: bool = False, problems: list[str] | None = None) -> None:
        super().__init__(folder, read_only=read_only, problems=problems)
        self._begun = False
        self._damaged: set[int] = set()
        self._mended = False  # the indexes, since the table was opened

    @property
    def begun(self) -> bool:
        """True if there is a collection."""
        # Once true it is kept, so that only a memory without rows asks again.
        if not self._begun:
            self._begun = bool(self.ask("SELECT 1 FROM collections LIMIT 1"))
        return self._begun

    # --- reading ---

    def progress(self, name: str) -> IndexProgress:
        """Return the state of a collection."""
        sql = "SELECT changed, indexed, turn, doomed FROM collections WHERE name = ?"
        for changed, indexed, turn, doomed in self.ask(sql, (name,)):
            return IndexProgress(changed, indexed, turn, doomed)
        # A collection is made by its first write.
        return IndexProgress()

    def turns(self) -> int:
        """Return how often the index of any collection was written."""
        return self._number("SELECT ifnull(sum(turn), 0) FROM collections")

    def collections(self) -> list[StoredCollection]:
        """Return every collection, by name."""
        sql = "SELECT name, kind, namespace, changed, indexed, turn, doomed FROM collections ORDER BY name"
        collections = []
        for name, kind, label, changed, indexed, turn, doomed in self.ask(sql):
            namespace = _namespace_of(label)
            if namespace is None or not _are_texts((name, kind, doomed)):
                self._say(DAMAGED_COLLECTION)
                continue
            progress = IndexProgress(changed, indexed, turn, doomed)
            collections.append(StoredCollection(name, kind, namespace, progress))
        return collections

    def count(self, name: str) -> int:
        return self._number("SELECT count(*) FROM rows WHERE collection = ?", (name,))

    def count_keys(self, name: str, *, indexed: bool = False) -> int:
        """Return how many different texts there are, or were when the index came to its number."""
        upto = ALL_ROWS
        if indexed:
            upto = self.progress(name).indexed
        return self._number("SELECT count(DISTINCT key) FROM rows WHERE collection = ? AND number <= ?", (name, upto))

    def keys(self, name: str, upto: int = ALL_ROWS) -> set[str]:
        """Return the keys of texts whose rows go up to a number."""
        sql = "SELECT DISTINCT key FROM rows WHERE collection = ? AND number <= ?"
        return set(self._column(sql, (name, upto)))

    def keys_of_part(self, name: str, part: str, most: int) -> list[str]:
        """Return the keys of a part's texts, up to a limit."""
        # "." is the character after "-": the range contains the keys that begin with the part's digest and "-".
        begin = digest(part)
        sql = "SELECT DISTINCT key FROM rows WHERE collection = ? AND key BETWEEN ? AND ? LIMIT ?"
        return self._column(sql, (name, f"{begin}-", f"{begin}.", most))

    def live(self, name: str, keys: Collection[str], upto: int = ALL_ROWS) -> set[str]:
        """Return those of some keys that have a row up to a number."""
        if not keys:
            return set()
        wanted = "collection = ? AND number <= ? AND key IN (SELECT value FROM json_each(?))"
        return set(self._column(f"SELECT DISTINCT key FROM rows WHERE {wanted}", (name, upto, json.dumps(list(keys)))))

    def ids(self, name: str, owner: str = "") -> list[str]:
        """Return ids in the order of their first arrival; those of an owner (digest) if one is named."""
        sql = "SELECT id FROM rows WHERE collection = ? AND (? = '' OR instr(owners, ?)) ORDER BY first"
        return self._column(sql, (name, owner, _owned([owner])))

    def namespaces_of(self, owner: str) -> list[tuple[str, ...]]:
        """Return the namespaces with rows of an owner (digest), of all kinds.

        Raises:
            StorageError: the label of a collection is damaged, so that rows may be left.
        """
        sql = """SELECT DISTINCT namespace FROM collections JOIN rows ON collection = name
            WHERE instr(owners, ?) ORDER BY namespace"""
        namespaces = []
        for (label,) in self.ask(sql, (_owned([owner]),)):
            namespace = _namespace_of(label)
            # Texts of a user who is forgotten must not stay behind without a word.
            if namespace is None:
                raise StorageError(f"{DAMAGED_COLLECTION}: not all texts of a user can be found. Restore {NAME}.")
            namespaces.append(namespace)
        return namespaces

    def of_ids(self, name: str, ids: Iterable[str]) -> list[TextRow]:
        """Return the rows with these ids, in any order."""
        sql = f"SELECT {_ROW_COLUMNS} FROM rows WHERE collection = ? AND id IN (SELECT value FROM json_each(?))"
        wanted = dict.fromkeys(ids)
        values = (name, json.dumps(list(wanted)))
        rows = self._rows(sql, values)
        # SQLite takes the ids from the index: rows of other ids mean that it is out of order (`benchmarks.fuzz`, seed
        # 501605). The rows themselves are whole.
        if any(row.id not in wanted for row in rows):
            self._mend_order()
            rows = self._rows(sql, values)
        return [row for row in rows if row.id in wanted]

    def page(self, name: str, start: int, size: int) -> list[TextRow]:
        """Return rows in the order of their first arrival, from one on."""
        sql = f"SELECT {_ROW_COLUMNS} FROM rows WHERE collection = ? ORDER BY first LIMIT ? OFFSET ?"
        return self._rows(sql, (name, size, start))

    def of_keys(self, name: str, keys: Sequence[str], most: int) -> list[FoundRow]:
        """Return the latest rows of each of some texts, up to a limit for each, the latest first."""
        wanted = set(keys)
        rows = self._found_rows(name, keys, most)
        if self._is_out_of_order(rows, wanted):
            self._mend_order()
            rows = self._found_rows(name, keys, most)
        found = []
        for row in rows:
            if row.key in wanted:
                found.append(row)
            # SQLite takes the key from the row, which may be damaged (`benchmarks.fuzz`, seed 500227).
            elif not self._is_whole(row.number):
                self._say_damaged(row.number)
        return found

    def _found_rows(self, name: str, keys: Sequence[str], most: int) -> list[FoundRow]:
        """Return the rows that the index has under some keys."""
        # The newest rows of each key are taken by number from the index on (collection, key, number).
        sql = """SELECT rows.number, rows.id, rows.key, rows.part FROM json_each(:keys) AS wanted JOIN rows
            ON rows.number IN (SELECT number FROM rows AS newest WHERE newest.collection = :name
            AND newest.key = wanted.value ORDER BY newest.number DESC LIMIT :most) ORDER BY rows.number DESC"""
        rows = []
        for number, *cells in self.ask(sql, {"name": name, "keys": json.dumps(keys), "most": most}):
            if _are_texts(cells):
                rows.append(FoundRow(number, *cells))
            else:
                self._say_damaged(number)
        return rows

    def _is_out_of_order(self, rows: Iterable[FoundRow], wanted: Collection[str]) -> bool:
        """Return True if the index gave a whole row under another key than its own."""
        for row in rows:
            if row.key not in wanted and self._is_whole(row.number):
                return True
        return False

    def _is_whole(self, number: int) -> bool:
        """Return True if a row has the key of its own part and text."""
        for key, part, text in self.ask("SELECT key, part, text FROM rows WHERE number = ?", (number,)):
            return _are_texts((part, text)) and key == text_key(part, text)
        return False

    def _mend_order(self) -> None:
        """Rebuild the indexes of the file after a look-up met rows that it did not ask for. Done once."""
        if self._mended:
            return
        self._mended = True
        if self.read_only:
            self._say(f"an index of {NAME} is out of order; a process that may write rebuilds it")
            return
        try:
            self.rebuild_indexes()
        except StorageError:
            return  # a row is damaged too: the next access checks the whole file, repairs it and names the loss
        self._say(f"an index of {NAME} was out of order and was rebuilt from its rows")

    def behind(self, name: str, most: int) -> list[TextRow]:
        """Return rows that are not indexed yet, the oldest first."""
        sql = f"""SELECT {_ROW_COLUMNS} FROM rows WHERE collection = :name AND number > (
            SELECT indexed FROM collections WHERE name = :name) ORDER BY number LIMIT :most"""
        return self._rows(sql, {"name": name, "most": most})

    def stale(self, name: str, most: int) -> list[StaleKey]:
        """Return keys of texts that were removed or replaced, the oldest first."""
        # A damaged key is a text too, which no index has: it is dropped with the others.
        sql = "SELECT number, CAST(key AS TEXT) FROM stale WHERE collection = ? ORDER BY number LIMIT ?"
        return [StaleKey(number, key) for number, key in self.ask(sql, (name, most))]

    def _rows(self, sql: str, values: Values) -> list[TextRow]:
        """Return the readable rows, and name the damaged ones. Damaged metadata are {}: the reader leaves such a row
        out.
        """
        rows = list[TextRow]()
        for number, name, key, part, text, metadata in self.ask(sql, values):
            known = _metadata(metadata)
            is_readable = _are_texts((name, key, part, text))
            if known is None or not is_readable:
                self._say_damaged(number)
            if is_readable:
                rows.append(TextRow(number, name, key, part, text, known or {}))
        return rows

    def _say_damaged(self, number: int) -> None:
        self._damaged.add(number)
        if len(self._damaged) <= MAX_NAMED:
            self._say(f"row {number} of the texts in {NAME} is damaged and left out")

    def _column(self, sql: str, values: Sequence[Any]) -> list[str]:
        column = []
        for (value,) in self.ask(sql, values):
            # A damaged cell may be of another type.
            if isinstance(value, str):
                column.append(value)
        return column

    def _number(self, sql: str, values: Sequence[Any] = ()) -> int:
        return sum(int(number) for (number,) in self.ask(sql, values))

    # --- writing ---

    def put(
        self, name: str, kind: str, namespace: Sequence[str], rows: Iterable[NewRow], *, seen: int | None = None
    ) -> None:
        """Write rows in one transaction; each replaces the row with its id.

        Raises:
            MovedError: the collection was written since its state was `seen` (`IndexProgress.changed`).
        """
        replaced = """INSERT INTO stale (collection, key)
            SELECT collection, key FROM rows WHERE collection = :name AND id = :id AND key != :key"""
        put = """INSERT OR REPLACE INTO rows (first, collection, id, key, part, owners, text, metadata)
            SELECT ifnull((SELECT first FROM rows WHERE collection = :name AND id = :id),
            ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'rows'), 0) + 1),
            :name, :id, :key, :part, :owners, :text, :metadata"""
        label = {"name": name, "kind": kind, "namespace": json.dumps(list(namespace))}
        with self.writing() as database:
            database.execute("INSERT OR IGNORE INTO collections VALUES (:name, :kind, :namespace, 0, 0, 0, '')", label)
            # A collection that gets rows again is no longer to be deleted; its old texts are.
            changed = "UPDATE collections SET changed = changed + 1, doomed = replace(doomed, 'drop', 'scrub')"
            # In the transaction of the write: no other process can come in between.
            [(before,)] = database.execute(f"{changed} WHERE name = ? RETURNING changed - 1", (name,)).fetchall()
            if seen is not None and before != seen:
                raise MovedError("Another process writes to the same rows. Do it again.")
            for row in rows:
                columns = {
                    "name": name,
                    "id": row.id,
                    "key": row.key,
                    "part": row.part,
                    "owners": _owned(row.owners),
                    "text": row.text,
                    "metadata": dumps(dict(row.metadata)),
                }
                database.execute(replaced, columns)
                database.execute(put, columns)

    def delete(self, name: str, ids: Iterable[str] | None = None, *, doomed: str = "") -> None:
        """Delete rows with these ids, or all; `doomed`: see `IndexProgress`."""
        which = "collection = :name AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))"
        wanted = None
        if ids is not None:
            wanted = json.dumps(list(ids))
        values = {"name": name, "ids": wanted, "doomed": doomed}
        with self.writing() as database:
            # Before the rows are deleted: their keys tell the index what to drop.
            database.execute(
                f"INSERT INTO stale (collection, key) SELECT DISTINCT collection, key FROM rows WHERE {which}", values
            )
            database.execute(f"DELETE FROM rows WHERE {which}", values)
            database.execute(
                """UPDATE collections SET changed = changed + 1, doomed = CASE
                WHEN :doomed = '' OR doomed = 'drop' THEN doomed ELSE :doomed END WHERE name = :name""",
                values,
            )

    def reindex(self, name: str, keys: Iterable[str]) -> None:
        """Have texts indexed again: their rows get new numbers."""
        # A new number is larger than the number up to which the index came.
        wanted = "collection = ? AND key IN (SELECT value FROM json_each(?))"
        columns = "first, collection, id, key, part, owners, text, metadata"
        sql = f"INSERT OR REPLACE INTO rows ({columns}) SELECT {columns} FROM rows WHERE {wanted} ORDER BY number"
        with self.writing() as database:
            database.execute(sql, (name, json.dumps(list(keys))))

    def drop_from_index(self, name: str, keys: Iterable[str]) -> None:
        """Make the index drop keys without a row."""
        with self.writing() as database:
            database.executemany("INSERT INTO stale (collection, key) VALUES (?, ?)", [(name, key) for key in keys])

    def advance(self, name: str, indexed: int, stale: Iterable[StaleKey]) -> None:
        """Record the progress of the index: rows up to a number are in it, and some stale keys were removed."""
        with self.writing() as database:
            sql = "UPDATE collections SET turn = turn + 1, indexed = max(indexed, ?) WHERE name = ?"
            database.execute(sql, (indexed, name))
            database.executemany("DELETE FROM stale WHERE number = ?", [(each.number,) for each in stale])

    def unindex(self, name: str | None = None) -> None:
        """Record that the index of a collection, or of all, is empty."""
        with self.writing() as database:
            sql = "UPDATE collections SET turn = turn + 1, indexed = 0 WHERE ? IN (name, '')"
            database.execute(sql, (name or "",))

    def finish_pending(self, name: str, seen: int) -> None:
        """Record that the pending work is done, unless the collection was written since `seen`
        (`IndexProgress.changed`).
        """
        # Rows that were written after `seen` may need a scrub of their own.
        with self.writing() as database:
            over = "name = ? AND changed = ?"
            dropped = f"SELECT name FROM collections WHERE {over} AND doomed = 'drop'"
            database.execute(f"DELETE FROM stale WHERE collection IN ({dropped})", (name, seen))
            database.execute(f"DELETE FROM collections WHERE {over} AND doomed = 'drop'", (name, seen))
            database.execute(f"UPDATE collections SET doomed = '' WHERE {over}", (name, seen))


def _are_texts(cells: Iterable[Any]) -> bool:
    return all(isinstance(cell, str) for cell in cells)


def _namespace_of(label: Any) -> tuple[str, ...] | None:
    """Return the namespace in a collection's row; None if the cell is damaged."""
    try:
        namespace = json.loads(label)
    except (ValueError, TypeError, RecursionError):
        return None
    if isinstance(namespace, list) and _are_texts(namespace):
        return tuple(namespace)
    return None


def _metadata(text: Any) -> dict[str, Any] | None:
    """Return the metadata of a row; None if they are damaged."""
    try:
        metadata = loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    if isinstance(metadata, dict):
        return metadata
    return None


def _owned(owners: Iterable[str]) -> str:
    # A bar on each side: `instr` then finds whole digests only.
    return "".join(f"|{owner}|" for owner in owners)
