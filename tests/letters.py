"""An embedder whose vectors can be worked out by hand."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings


class Letters(Embeddings):
    """Counts each letter of `model`; `asked` has the texts. Fails while `broken`."""

    def __init__(self, model: str = "abc") -> None:
        self.model = model
        self.asked: list[str] = []
        self.broken = False

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        if self.broken:
            raise TimeoutError("no answer")
        return [[text.lower().count(letter) + 0.01 for letter in self.model] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]
