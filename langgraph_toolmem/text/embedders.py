"""Embedders: the built-in one, and a small wrapper with a stable name for a developer's setting.

`LexicalEmbedder` is a bag of words and of parts of words: no model, no download, the same vector in every process.
`resolve_embedder` takes ``None`` (the built-in lexical embedder), a LangChain ``Embeddings``, or a text:
``"sentence-transformers:<name or folder>"`` or ``"provider:model"``. Imports, downloads and calls happen when the first
vector is needed. Every returned vector is a list of finite floats of length 1.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from operator import mul
from pathlib import Path
from typing import Any, ClassVar, Final, cast
from zlib import crc32

from langchain_core.embeddings import Embeddings

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError, StorageError, ToolMemoryError
from langgraph_toolmem.text.schema import Described
from langgraph_toolmem.text.words import STOP_STEMS, features, grams

_FORMS: Final = (
    "Give None (the built-in lexical embedder), a LangChain Embeddings object, or a text of the form "
    '"sentence-transformers:<name or folder>" or "provider:model", such as "openai:text-embedding-3-small".'
)
BUILTIN: Final = "toolmem-lexical-v"
"""Begins the name of the built-in embedder; its version and dimension follow."""
_SENTENCE_TRANSFORMERS: Final = "sentence-transformers:"


class LexicalEmbedder(Embeddings):
    """The built-in embedder.

    Args:
        dimension: length of the dense vectors. `sparse` does not fold, so prefer it if possible.

    Attributes:
        version: raised with every change of a text's vector, so that stored vectors are rebuilt.
    """

    version: ClassVar[int] = 2

    def __init__(self, dimension: int = 256) -> None:
        self.dimension = dimension

    def sparse(self, text: str) -> dict[str, float]:
        """Return the text as feature -> weight, of length 1."""
        weights = _weighted(text)
        length = math.hypot(*weights.values())
        for feature in weights:
            weights[feature] /= length
        return weights

    def embed_query(self, text: str) -> list[float]:
        """Return the text as `dimension` floats of length 1, folded with a sign so that clashes average out."""
        dense = [0.0] * self.dimension
        for feature, weight in _weighted(text).items():
            # CRC-32, since Python's own hash of a text differs between processes.
            key = crc32(feature.encode("utf-8", "surrogatepass"))
            if not key & 1:
                weight = -weight
            dense[(key >> 1) % self.dimension] += weight
        length = math.hypot(*dense)
        if length == 0.0:
            # Every feature met its opposite: rare, but possible.
            dense[0] = length = 1.0
        return [value / length for value in dense]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def _weighted(text: str) -> dict[str, float]:
    """Return the weighted features of a text, and parts of its words."""
    # Without parts of words an approximate index misses texts, because many have equal distances.
    part_weight = 0.25
    weights = features(text)
    for stem in list(weights):
        # Parts of "the" and "with" would make all texts alike.
        if stem not in STOP_STEMS:
            weights.update(dict.fromkeys(grams(stem), part_weight))
    return weights


class Embedder:
    """An embedder with an identity, loaded at its first use, with checked answers.

    Args:
        name: identity stored with the vectors: the same name means vectors that can be compared.
        load: makes the LangChain ``Embeddings``. Called once, at the first text, under a lock.
        builtin: True if the answers come from `LexicalEmbedder`, so that a lexical index is more exact.
    """

    def __init__(self, name: str, load: Callable[[], Embeddings], *, builtin: bool = False) -> None:
        self.name, self.builtin = name, builtin
        self._load = load
        self._embeddings: Embeddings | None = None
        self._dimension: int | None = None
        self._lock = threads.lock()

    def __repr__(self) -> str:
        return f"Embedder({self.name!r})"

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector of length 1 per text.

        Raises:
            ConfigurationError: the embedder cannot be made.
            StorageError: it failed, or its answer cannot be used.
        """
        if not texts:
            return []

        def embed(embeddings: Embeddings, cleaned: list[str]) -> list[list[float]]:
            return embeddings.embed_documents(cleaned)

        return self._vectors(texts, embed)

    def of(self, texts: Mapping[str, str]) -> dict[str, list[float]]:
        """Return the vector of each text by name. Raises as `embed_documents`."""
        if not texts:
            return {}
        vectors = self.embed_documents(list(texts.values()))
        return dict(zip(texts, vectors, strict=True))

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question, of length 1. Raises as `embed_documents`."""

        def embed(embeddings: Embeddings, cleaned: list[str]) -> list[list[float]]:
            return [embeddings.embed_query(cleaned[0])]

        return self._vectors([text], embed)[0]

    def dimension(self) -> int:
        """Return the length of the vectors. Embed one word if none was embedded before."""
        if self._dimension is None:
            self.embed_query("dimension")
        return cast("int", self._dimension)

    def _loaded(self) -> Embeddings:
        # Several threads of a host may embed their first text at once: a model is loaded once.
        with self._lock:
            if self._embeddings is None:
                try:
                    self._embeddings = self._load()
                except ToolMemoryError:
                    raise
                except Exception as error:
                    raise ConfigurationError(
                        f"The embedder {self.name!r} cannot be loaded: {_first_line(error)}"
                    ) from error
            return self._embeddings

    def _vectors(self, texts: Sequence[str], embed: Callable[[Embeddings, list[str]], Any]) -> list[list[float]]:
        embeddings = self._loaded()
        try:
            answer = embed(embeddings, [clean(text) for text in texts])
        except ToolMemoryError:
            raise
        except Exception as error:
            raise StorageError(f"The embedder {self.name!r} failed: {_first_line(error)}") from error
        return self._checked(answer, len(texts))

    def _checked(self, answer: Any, expected: int) -> list[list[float]]:
        """Return an embedder's answer as vectors of length 1. Raise StorageError if it cannot be used."""
        # At the first vector, because it takes long to load.
        import numpy as np

        try:
            vectors = np.array(answer, dtype=np.float64)
            count, dimension = vectors.shape
        except (TypeError, ValueError) as error:
            raise StorageError(f"The embedder {self.name!r} answered with something that is not vectors.") from error
        # A missing vector would assign the following ones to wrong texts.
        if count != expected:
            raise StorageError(f"The embedder {self.name!r} gave {count} vectors, not {expected}.")
        # Chroma's collections have one dimension, and refuse another one at each write.
        if self._dimension and dimension != self._dimension:
            raise StorageError(
                f"The embedder {self.name!r} gave {dimension} numbers; it gave {self._dimension} before."
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(lengths).all() or not lengths.all():
            raise StorageError(f"The embedder {self.name!r} gave a vector of length 0, NaN or infinity.")
        self._dimension = dimension
        unit_vectors: list[list[float]] = (vectors / lengths).tolist()
        return unit_vectors


def resolve_embedder(spec: Embeddings | Embedder | str | None) -> Embedder:
    """Return the embedder for a developer's setting, without loading it.

    Args:
        spec: ``None``: the built-in lexical embedder. LangChain ``Embeddings``: named after its class and model.
            ``"sentence-transformers:<name or folder>"``: a folder is used as it is, a name is searched on this computer
            before it is downloaded. ``"provider:model"``: LangChain's ``init_embeddings``.

    Raises:
        MissingExtraError: a required optional package is missing.
        ConfigurationError: `spec` is anything else.
    """
    if isinstance(spec, Embedder):
        return spec
    if spec is None or isinstance(spec, LexicalEmbedder):
        lexical = spec or LexicalEmbedder()
        return Embedder(f"{BUILTIN}{lexical.version}:{lexical.dimension}", _returning(lexical), builtin=True)
    if isinstance(spec, Embeddings):
        return Embedder(_name_of(spec), _returning(spec))
    if not isinstance(spec, str):
        raise ConfigurationError(f"`embeddings` cannot be a {type(spec).__name__}. {_FORMS}")
    if spec.startswith(_SENTENCE_TRANSFORMERS):
        return _sentence_transformers(spec.removeprefix(_SENTENCE_TRANSFORMERS).strip())
    parts = re.fullmatch(r"([a-z][a-z0-9_-]+):((?s:.+))", spec.strip())
    if parts is None:
        raise ConfigurationError(f"`embeddings` cannot be {spec!r}. {_FORMS}")
    return _provider(parts[1], parts[2].strip())


def _returning(embeddings: Embeddings) -> Callable[[], Embeddings]:
    """Return an embedder that needs no loading, for `Embedder`."""

    def load() -> Embeddings:
        return embeddings

    return load


def _provider(provider: str, model: str) -> Embedder:
    # A missing package is reported when the memory is made, not at the first text in the background.
    if importlib.util.find_spec("langchain") is None:
        raise MissingExtraError(f'embeddings="{provider}:{model}"', "agents")

    def load() -> Embeddings:
        from langchain.embeddings import init_embeddings

        return init_embeddings(model, provider=provider)

    # As `_name_of` writes the class: "azure_openai" is `AzureOpenAIEmbeddings`.
    return Embedder(f"{provider.replace('_', '')}:{model}", load)


def _sentence_transformers(model: str) -> Embedder:
    what = f'embeddings="{_SENTENCE_TRANSFORMERS}{model}"'
    if not model:
        raise ConfigurationError(f"{what} names no model. {_FORMS}")
    if importlib.util.find_spec("sentence_transformers") is None:
        raise MissingExtraError(what, "embeddings")
    folder = Path(model).expanduser()
    if folder.is_dir():
        # Named after its content: a moved folder keeps the stored vectors, another model in it does not.
        name = f"{_SENTENCE_TRANSFORMERS}{folder.resolve().name}@{_fingerprint(folder)}"
        return Embedder(name, _loading_transformer(str(folder)))
    if model.startswith((".", "~", os.sep)):
        raise ConfigurationError(f"{what}: there is no such folder.")
    return Embedder(f"{_SENTENCE_TRANSFORMERS}{model}", _loading_transformer(model))


def _loading_transformer(model: str) -> Callable[[], Embeddings]:
    def load() -> Embeddings:
        return _SentenceTransformer(model)

    return load


class _SentenceTransformer(Embeddings):
    """A SentenceTransformer as LangChain ``Embeddings``, one text batch at a time."""

    def __init__(self, model: str) -> None:
        module: Any = importlib.import_module("sentence_transformers")
        try:
            # Local files first: without a network, a look-up takes long to fail.
            self._model: Any = module.SentenceTransformer(model, local_files_only=True)
        except Exception:  # noqa: BLE001 - which error says "not here" differs between versions
            self._model = module.SentenceTransformer(model)
        # Fast tokenizers raise "Already borrowed" when two threads use one.
        self._lock = threads.lock()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._encode("encode_document", texts)

    def embed_query(self, text: str) -> list[float]:
        return self._encode("encode_query", [text])[0]

    def _encode(self, method: str, texts: list[str]) -> list[list[float]]:
        # From version 5 these two put a model's own prompts before questions and documents.
        encode = getattr(self._model, method, self._model.encode)
        with self._lock:
            return cast("list[list[float]]", encode(texts, show_progress_bar=False).tolist())


def _name_of(embeddings: Embeddings) -> str:
    """``"openai:text-embedding-3-small"`` for ``OpenAIEmbeddings(model="text-embedding-3-small")``.

    It equals the name of the text form if class and provider have the same name, so changing the form keeps the stored
    vectors.
    """
    # LangChain's cache around another embedder gives the same vectors.
    inner = getattr(embeddings, "underlying_embeddings", None)
    if isinstance(inner, Embeddings):
        return _name_of(inner)
    kind = type(embeddings).__name__
    # As LangChain names its providers: `OpenAIEmbeddings` is that of "openai".
    name = kind.removesuffix("Embeddings").lower() or kind.lower()
    model = _model_of(embeddings)
    if model:
        name += f":{model}"
    dimensions = getattr(embeddings, "dimensions", None)
    if isinstance(dimensions, int):
        name += f"/{dimensions}"
    return name


def _model_of(embeddings: Embeddings) -> str:
    # LangChain's integrations have no common name for the model.
    for attribute in ("model", "model_name", "model_id", "repo_id", "deployment"):
        model = getattr(embeddings, attribute, None)
        if isinstance(model, str) and model:
            return model
    return ""


def _fingerprint(folder: Path) -> str:
    """Return a digest of a model folder that is independent of its path: names, sizes and both ends of each file."""
    # Hashing gigabytes of weights takes seconds.
    end_bytes = 64 * 1024
    digest = blake2b(digest_size=6)
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if _is_hidden(relative) or not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{relative.as_posix()}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(end_bytes))
            file.seek(max(0, size - end_bytes))
            digest.update(file.read(end_bytes))
    return digest.hexdigest()


def _is_hidden(path: Path) -> bool:
    for part in path.parts:
        if part.startswith("."):
            return True
    return False


def clean(text: str) -> str:
    """Return the text without lone surrogates, which models write and encoders refuse: they become ``?``."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def _first_line(error: Exception) -> str:
    name = type(error).__name__
    for line in str(error).strip().splitlines():
        return f"{name}: {line}"
    return name


def description_similarity(embedder: Embedder, specs: Mapping[str, Described]) -> Callable[[str, str], float]:
    """Return a function that compares a thought with a tool's description; it returns 0 for an unknown tool."""
    texts: dict[str, str] = {}
    for name, spec in specs.items():
        texts[name] = f"{name} {spec.description}".strip()
    # Descriptions stay the same, and a thought is compared with each tool.
    vector = cached(mebibytes=32)(embedder.embed_query)

    def similarity(thought: str, tool: str) -> float:
        if tool not in texts:
            return 0.0
        # The vectors have length 1, so the sum of products is their cosine.
        cosine: float = sum(map(mul, vector(thought), vector(texts[tool])))
        return cosine

    return similarity
