"""BM25 over chunks, by tantivy."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kbeval_pipeline.project import Language
from kbeval_pipeline.resources.knowledge_bases.tokens import Analyzer, prepare

_TOKENIZER = "kbeval"
# One heap for the whole build, so that it makes one segment; memory is only taken as it is filled.
_HEAP_BYTES = 2_000_000_000


def build_lexical_index(folder: Path, texts: Iterable[str], language: Language) -> None:
    """Index chunks; a chunk is known by its place in the order given.

    One writer thread keeps this order within the index, and so the order of hits with equal scores.

    Args:
        folder: where to build; made when absent.
        texts: the chunks.
        language: stop words and stemmer.
    """
    import tantivy  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", tokenizer_name=_TOKENIZER, index_option="freq")
    builder.add_unsigned_field("row", fast=True)
    index = tantivy.Index(builder.build(), path=str(folder), reuse=False)
    index.config_reader("manual")
    index.register_tokenizer(_TOKENIZER, Analyzer(language).build())
    writer = index.writer(_HEAP_BYTES, 1)
    for row, text in enumerate(texts):
        document = tantivy.Document()
        document.add_text("text", prepare(text))
        document.add_unsigned("row", row)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()


class LexicalIndex:
    """An opened index; safe to use from several threads.

    Args:
        folder: where it was built.
        language: as it was built.

    Raises:
        ValueError: when the files are not an index.
    """

    def __init__(self, folder: Path, language: Language) -> None:
        import tantivy  # noqa: PLC0415

        self._tantivy = tantivy
        self._analyzer = Analyzer(language)
        index = tantivy.Index.open(str(folder))
        # The default reader polls the folder from a thread of its own; this index never changes.
        index.config_reader("manual")
        index.register_tokenizer(_TOKENIZER, self._analyzer.build())
        index.reload()
        self._schema = index.schema
        self._searcher: Any = index.searcher()

    def search(self, question: str, k: int) -> list[tuple[int, float]]:
        """Rank chunks by BM25 (k1 1.2, b 0.75) over the question's distinct terms, any of which may match.

        Args:
            question: any text.
            k: the most chunks to return.

        Returns:
            Rows and scores, best first, equal scores in the order of rows.
        """
        query = self._tantivy.Query
        terms = self._analyzer.terms(question)
        limit = min(k, self._searcher.num_docs)
        if not terms or not limit:
            return []
        should = self._tantivy.Occur.Should
        clauses = [
            (should, query.term_query(self._schema, "text", term, index_option="freq")) for term in terms
        ]
        hits = self._searcher.search(query.boolean_query(clauses), limit, count=False).hits
        rows = self._searcher.fast_field_values("row", [address for _, address in hits])
        scored = [(int(row), float(score)) for row, (score, _) in zip(rows, hits, strict=True)]
        return sorted(scored, key=lambda hit: (-hit[1], hit[0]))
