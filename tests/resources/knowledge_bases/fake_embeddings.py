"""LangChain embeddings that count what they are asked, and give what the tests need."""

import hashlib
from typing import ClassVar

from langchain_core.embeddings import Embeddings

TOPICS = ("apple", "boat", "cloud", "drum")


class CountingEmbeddings(Embeddings):
    """A text's vector counts its topic words; the texts embedded are kept in `embedded`."""

    embedded: ClassVar[list[str]] = []

    def __init__(self, api_key: str = "", size: int = len(TOPICS)) -> None:
        self._size = size

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.embedded.extend(texts)
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        counts = [float(text.count(topic)) for topic in TOPICS]
        noise = int(hashlib.sha256(text.encode()).hexdigest()[:4], 16) / 1e7
        counts[-1] += noise
        return [*counts, *([0.0] * (self._size - len(counts)))]


class BrokenEmbeddings(Embeddings):
    """Gives a vector that is not a number."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float("nan")] for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return [float("nan")]


class NeedsKey(Embeddings):
    """Refuses its arguments and repeats them."""

    def __init__(self, api_key: str) -> None:
        raise ValueError(f"bad key {api_key}")

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return []

    def embed_query(self, text: str) -> list[float]:
        return []
