"""The embeddings of the reference figures as a LangChain class."""

from langchain_core.embeddings import Embeddings

from tests.openai_server import embed


class HashedEmbeddings(Embeddings):
    """64 hashed dimensions, as described in `oracles/mindsdb_end_to_end.json`."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [embed(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return embed(text)
