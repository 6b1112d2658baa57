from __future__ import annotations

import importlib.machinery
import math
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_openai import OpenAIEmbeddings
from places import ROOT

from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError, StorageError
from langgraph_toolmem.text.embedders import Embedder, LexicalEmbedder, resolve_embedder
from langgraph_toolmem.text.words import LexicalIndex, features, similarity, words


class Answers(Embeddings):
    """Gives what it was told to give, as an embedder with a bug would."""

    def __init__(self, documents: Any) -> None:
        self.documents, self.seen = documents, list[str]()

    def embed_documents(self, texts: list[str]) -> Any:
        self.seen += texts
        if isinstance(self.documents, Exception):
            raise self.documents
        return self.documents

    def embed_query(self, text: str) -> Any:
        return self.embed_documents([text])[0]


# words, stems, features


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("get_user-name.v2", ["get", "user", "name", "v", "2"]),
        ("HTTPServerError", ["http", "server", "error"]),
        ("Café MÜNCHEN straße", ["cafe", "munchen", "strasse"]),
        ("天気", ["天", "気", "天気"]),
        ("--- !!", []),
    ],
)
def test_words_of_a_text(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_hashes_are_the_same_in_another_process() -> None:
    code = (
        "from langgraph_toolmem.text.embedders import LexicalEmbedder as E;"
        "print(sorted(E().sparse('sendEmail to Zoë').items()), E(8).embed_query('sendEmail to Zoë'))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    embedder = LexicalEmbedder()
    assert str(sorted(embedder.sparse("sendEmail to Zoë").items())) in outputs.pop()


# the lexical embedder


@settings(max_examples=60)
@given(st.text(max_size=80))
def test_any_text_has_a_vector_of_length_one_and_is_most_similar_to_itself(text: str) -> None:
    embedder = LexicalEmbedder(64)
    sparse, dense = embedder.sparse(text), embedder.embed_query(text)
    assert math.hypot(*sparse.values()) == pytest.approx(1)
    assert math.hypot(*dense) == pytest.approx(1)
    assert len(dense) == 64
    assert similarity(sparse, sparse) == pytest.approx(1)
    assert 0 <= similarity(sparse, embedder.sparse("another text")) <= 1


# the index


def test_the_index_ranks_by_bm25() -> None:
    index = LexicalIndex([("a", "zebra"), ("b", "mushroom"), ("c", "mushroom soup")])
    assert [name for name, _ in index.search("zebra", 5)] == ["a"]
    assert [name for name, _ in index.search("mushroom", 5)] == ["b", "c"]
    # By hand for one document that is the query, without length effect: each feature of weight w scores
    # w (k1 + 1) / (w + k1) of the most it could.
    alone = LexicalIndex([("a", "zebra")])
    weights = features("zebra").values()
    k1 = LexicalIndex.k1
    expected = sum(w * w * (k1 + 1) / (w + k1) for w in weights) / sum(w * (k1 + 1) for w in weights)
    assert alone.search("zebra", 1)[0][1] == pytest.approx(expected)


# resolving


def test_the_name_tells_class_model_and_dimension() -> None:
    openai = partial(OpenAIEmbeddings, model="text-embedding-3-small", api_key="x")
    for spec, name in (
        (None, "toolmem-lexical-v2:256"),
        (LexicalEmbedder(64), "toolmem-lexical-v2:64"),
        (openai(), "openai:text-embedding-3-small"),
        ("openai:text-embedding-3-small", "openai:text-embedding-3-small"),
        (openai(dimensions=256), "openai:text-embedding-3-small/256"),
        (DeterministicFakeEmbedding(size=4), "deterministicfakeembedding"),
    ):
        embedder = resolve_embedder(spec)
        assert embedder.name == name
        assert resolve_embedder(embedder) is embedder
    assert resolve_embedder(None).embed_query("send mail") == pytest.approx(LexicalEmbedder().embed_query("send mail"))
    assert resolve_embedder(None).dimension() == 256


@pytest.mark.parametrize("spec", ["minilm", "", ":", "C:\\model", 42, object(), ["openai:x"]])
def test_anything_else_is_refused_with_the_three_forms(spec: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_embedder(spec)
    for form in ("None", "LangChain Embeddings", "sentence-transformers:", "provider:model"):
        assert form in str(caught.value)


def test_missing_packages_are_named_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"\[embeddings\]"):
        resolve_embedder("sentence-transformers:all-MiniLM-L6-v2")
    monkeypatch.setitem(sys.modules, "langchain", None)
    with pytest.raises(MissingExtraError, match=r"\[agents\]"):
        resolve_embedder("openai:text-embedding-3-small")


@pytest.fixture
def sentence_transformers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """A alternative for the package, which is as large as torch; the real one is tested where it is installed."""
    made: list[tuple[str, dict[str, Any]]] = []

    class SentenceTransformer:
        def __init__(self, model: str, **options: Any) -> None:
            made.append((model, options))
            if options.get("local_files_only") and not Path(model).is_dir():
                raise OSError("not in the cache")

        def encode(self, texts: list[str], show_progress_bar: bool) -> Any:
            assert show_progress_bar is False
            return np.array([[float(len(text)), 1.0] for text in texts])

    module = types.ModuleType("sentence_transformers")
    module.__spec__ = importlib.machinery.ModuleSpec("sentence_transformers", None)
    module.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    return made


def test_the_name_of_a_folder_follows_its_content_not_its_place(
    tmp_path: Path, sentence_transformers: list[tuple[str, dict[str, Any]]]
) -> None:
    names = []
    for place, content in (("x", "same"), ("y", "same"), ("z", "else")):
        folder = tmp_path / place / "mini"
        folder.mkdir(parents=True)
        (folder / "model.bin").write_text(content)
        names.append(resolve_embedder(f"sentence-transformers:{folder}").name)
    assert names[0] == names[1] != names[2]


def test_a_model_name_is_looked_for_here_first(sentence_transformers: list[tuple[str, dict[str, Any]]]) -> None:
    resolve_embedder("sentence-transformers:some/model").embed_query("x")
    assert sentence_transformers == [("some/model", {"local_files_only": True}), ("some/model", {})]
    for model in ("", "./no/such/folder"):
        with pytest.raises(ConfigurationError, match=r"names no model|no such folder"):
            resolve_embedder(f"sentence-transformers:{model}")


# answers


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ([[math.nan, 1.0]], "NaN or infinity"),
        ([[0.0, 0.0]], "length 0"),
        ([[]], "length 0"),
        ([], "not vectors"),
        ([[1.0], [1.0]], "2 vectors, not 1"),
        ([[1.0, 2.0], [1.0]], "not vectors"),
        (None, "not vectors"),
        ([["x"]], "not vectors"),
        (TimeoutError("no answer\nmore"), "failed: TimeoutError: no answer$"),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused(answer: Any, complaint: str) -> None:
    embedder = resolve_embedder(Answers(answer))
    with pytest.raises(StorageError, match=complaint):
        embedder.embed_documents(["x"])


def test_answers_are_made_unit_vectors_of_one_dimension_of_clean_texts() -> None:
    answers = Answers([[3.0, 4.0]])
    embedder = resolve_embedder(answers)
    assert embedder.embed_documents(["a\ud83d"]) == [[0.6, 0.8]]
    assert answers.seen == ["a?"]
    answers.documents = [[1.0, 2.0, 3.0]]
    with pytest.raises(StorageError, match="3 numbers; it gave 2 before"):
        embedder.embed_query("x")


def test_the_embedder_is_loaded_once_by_many_threads() -> None:
    loads: list[int] = []
    started = threading.Barrier(4)

    def load() -> Embeddings:
        loads.append(1)
        return DeterministicFakeEmbedding(size=3)

    embedder = Embedder("fake", load)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda text: (started.wait(), embedder.embed_query(text)), "abcd"))
    assert loads == [1]
