"""What the version before kept in Chroma is taken over: as rows of now, once, whatever happens meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chromadb.config import Settings
from typer.testing import CliRunner

from langgraph_toolmem import Entries, StorageError, ToolMemory
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.cli import app
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.entries.entry import entry_id
from langgraph_toolmem.search.lexical import LexicalEmbedder
from langgraph_toolmem.stores.vectors import VectorStore

ANN = str(user_digest("ann"))
RUN = digest("run", "1")
CALL = {"tool": "find", "args": {"name": "Ann"}, "status": "ok", "answer": "C-1"}
ENTRY = {
    "run": RUN, "user": ANN, "time": 5.0, "score": 1.0, "recalled": 3, "helped": 1, "hurt": 1, "retired": False,
    "changed": 6.0, "entry": json.dumps({"calls": [CALL], "comment": "", "made_by": "run"}),
}  # fmt: skip
SUMMARY = {
    "source": "<start>", "target": "find", "run": RUN, "user": ANN, "time": 5.0, "made_by": "tool", "seen": 2,
    "offered": 4, "followed": 2, "right": 1, "merged": "m1:r1:u1", "retired": False,
}  # fmt: skip
WORDING = ["nothing is known", "find the customer", 1]
ATOM = {
    "atom": json.dumps(
        {
            "tool": "find", "arguments": {"name": "<NAME>"}, "required_slots": [], "about": "Finds.",
            "supports": [[RUN, ANN, 1.0, 5.0, "runs", 1.0, 1, [RUN], [], [WORDING]]],
        }
    ),
    "retrieved": 2, "followed": 1, "succeeded": 1, "failed": 0, "changed": 6.0,
}  # fmt: skip


def atom_id() -> str:
    from langgraph_toolmem.atoms.atoms import identity

    return identity("find", {"name": "<NAME>"}, [])


ROWS = {
    "entries": [(entry_id(RUN), "find Ann, please", ENTRY), ("damaged", "x", {"user": ANN})],
    "summaries": [("s1", "Asked: find Ann", SUMMARY), ("gone-s2", "<start> find", SUMMARY | {"offered": 40})],
    "atoms": [(atom_id(), "find the customer\nnothing is known", ATOM)],
    "atom_texts": [("t1", "find", {"of": "x"})],
}


@pytest.fixture(params=[1024, 256], ids=["other vectors", "same vectors"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder as the version before left it."""
    made = tmp_path / "memory"
    width: int = request.param
    client = chromadb.PersistentClient(str(made / "chroma"), settings=Settings(anonymized_telemetry=False))
    name = f"toolmem-lexical-v1:{width}"
    for kind, rows in ROWS.items():
        label = {
            "toolmem_format": 1, "toolmem_kind": kind, "toolmem_namespace": json.dumps(["toolmem"]),
            "toolmem_embedder": name, "toolmem_dimension": width,
        }  # fmt: skip
        collection = client.create_collection(f"tm.{kind}.toolmem.v1", metadata=label, embedding_function=None)
        ids, texts, metadatas = (list(column) for column in zip(*rows, strict=True))
        vectors: Any = LexicalEmbedder(width).embed_documents(texts)
        collection.upsert(ids=ids, documents=texts, metadatas=metadatas, embeddings=vectors)
    (made / "vectors.json").write_text(json.dumps({"format": 1, "embedder": name, "dimension": width}))
    client.close()
    return made


def kept(memory: ToolMemory) -> dict[str, Any]:
    """Texts and records of all rows, and what is in Chroma."""
    user = memory.core.users.of(None)
    found = {rows.kind.name: rows for each in memory.methods for rows in each.rows_kept()}
    return {kind: list(rows.all(user, retired=True)) for kind, rows in found.items()}


def test_rows_come_with_their_records_and_the_old_ones_go(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ToolMemory(folder) as memory:
        assert memory.flush()
        found = kept(memory)
        [entry], summaries, [atom] = found["entries"], found["summaries"], found["atoms"]
        assert (entry.query, entry.calls[0].tool, entry.user) == ("find Ann, please", "find", ANN)
        assert (entry.recalled, entry.helped, entry.hurt) == (3, 1, 1)
        assert [(each.id, each.offered, each.seen, each.bad(20)) for each in summaries] == [
            ("s1", 4, 2, False), ("s2", 40, 2, True),
        ]  # fmt: skip
        assert (atom.atom.goal, tuple(atom.record)) == ("find the customer", (2, 1, 1, 0))
        assert [each.query for each in memory.entries.recall("find Bob, please")] == ["find Ann, please"]
        assert "damaged row" in caplog.text
        memory.core.vectors.take_former(lambda label, page: pytest.fail(f"{label.kind} was left"))
    with ToolMemory(folder) as memory:
        assert kept(memory) == found
        assert memory.forget(user_id="ann") > 0
        assert kept(memory) == {"entries": [], "summaries": [], "atoms": []}


def test_cut_off_it_is_done_again_and_nothing_is_there_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take = VectorStore.take_former

    def cut_off(self: VectorStore, use: Any) -> None:
        take(self, lambda label, page: bool(use(label, page)) and False)  # before the old rows are deleted
        raise StorageError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(VectorStore, "take_former", cut_off)
        with ToolMemory(folder) as memory:
            with pytest.raises(StorageError, match="cut off"):
                memory.core.former.do()
            half = kept(memory)
            assert {kind: len(each) for kind, each in half.items()} == {"entries": 1, "summaries": 2, "atoms": 1}
    with ToolMemory(folder) as memory:
        memory.core.former.do()
        assert kept(memory) == half
        assert half["entries"][0].recalled == 3


def test_what_cannot_be_taken_over_waits_and_nobody_is_half_forgotten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise StorageError("away")

    with monkeypatch.context() as patched:
        patched.setattr(VectorStore, "take_former", away)
        with ToolMemory(folder) as memory, pytest.raises(StorageError, match="toolmem migrate"):
            memory.forget(user_id="ann")
    with ToolMemory(folder, methods=[Entries()]) as memory:
        memory.core.former.do()
        assert [each.query for each in kept(memory)["entries"]] == ["find Ann, please"]
    with ToolMemory(folder) as memory:  # what has no method stays until it has one
        memory.core.former.do()
        assert {kind: len(each) for kind, each in kept(memory).items()} == {"entries": 1, "summaries": 2, "atoms": 1}


def test_the_command_says_what_was_taken_and_doctor_says_that_something_waits(folder: Path) -> None:
    run = CliRunner().invoke
    assert "toolmem migrate" in run(app, ["doctor", "--memory", str(folder)]).output
    assert "Taken over: 1 atoms, 1 entries, 2 summaries." in run(app, ["migrate", "--memory", str(folder)]).output
    assert "nothing to take over" in run(app, ["migrate", "--memory", str(folder)]).output
    assert "toolmem migrate" not in run(app, ["doctor", "--memory", str(folder)]).output
    with ToolMemory(folder) as memory:
        assert len(kept(memory)["entries"]) == 1
