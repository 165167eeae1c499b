"""The offline question writer: deterministic, extractive, no language model."""

import polars as pl

from kbeval_pipeline.evaluation.question_writers import SkippedRow, WrittenQuestion

NAME = "offline-extractive"

_TOKEN = r"[\p{Han}\p{Hiragana}\p{Katakana}]{2}|[\p{L}\p{N}][\p{L}\p{N}_'-]+"  # noqa: S105
_SENTENCE_END = r"([.!?]\s|[。！？]|\n\s*\n)"  # noqa: RUF001 - full-width punctuation is meant
_TERMS = 6
_SENTENCE_TOKENS = (5, 60)


class ExtractiveWriter:
    """Writes keyword questions, by `write_questions`."""

    name = NAME

    def __init__(self) -> None:
        self._corpus: pl.DataFrame | None = None
        self._statistics = pl.DataFrame()

    async def write(self, corpus: pl.DataFrame, drawn: pl.DataFrame, /) -> list[WrittenQuestion | SkippedRow]:
        """Write one question for each drawn document.

        Args:
            corpus: `doc_id, content` of all documents, for the term statistics.
            drawn: `doc_id, content` of the documents to write for.

        Returns:
            A question, or that there is none, in the order of `drawn`.
        """
        if self._corpus is not corpus:  # the same for every batch of a generation
            self._corpus, self._statistics = corpus, _inverse_frequency(corpus)
        return [
            SkippedRow(
                doc_id, f"no sentence of {_SENTENCE_TOKENS[0]} to {_SENTENCE_TOKENS[1]} words", failed=False
            )
            if question is None
            else WrittenQuestion(doc_id, question, answer)
            for doc_id, question, answer in _write(self._statistics, drawn).iter_rows()
        ]


def write_questions(corpus: pl.DataFrame, drawn: pl.DataFrame) -> pl.DataFrame:
    """Write one keyword question for each drawn document.

    For a document the sentence with the highest mean inverse document frequency is the answer; the
    question is its rarest terms in their order. No model is involved: the questions are extractive
    and test lexical retrieval only.

    Args:
        corpus: `doc_id, content` of all documents, for the term statistics.
        drawn: `doc_id, content` of the documents to write for.

    Returns:
        `doc_id, question, answer` in the order of `drawn`; question and answer are null for a
        document without a usable sentence.
    """
    return _write(_inverse_frequency(corpus), drawn)


def _inverse_frequency(corpus: pl.DataFrame) -> pl.DataFrame:
    return (
        _tokens(corpus.select("doc_id", pl.col("content").alias("sentence")))
        .select("doc_id", "token")
        .unique()
        .group_by("token")
        .len("n_documents")
        .select("token", idf=(pl.lit(corpus.height) / pl.col("n_documents")).log() + 1.0)
    )


def _write(inverse_frequency: pl.DataFrame, drawn: pl.DataFrame) -> pl.DataFrame:
    sentences = (
        drawn.select(
            "doc_id",
            sentence=pl.col("content").str.replace_all(_SENTENCE_END, "$1\0").str.split("\0"),
        )
        .explode("sentence")
        .with_columns(pl.col("sentence").str.replace_all(r"\s+", " ").str.strip_chars())
        .with_row_index("sentence_index")
    )
    weighted = _tokens(sentences).join(inverse_frequency, on="token", how="left", maintain_order="left")
    best = (
        weighted.group_by("doc_id", "sentence_index")
        .agg(n=pl.len(), weight=pl.col("idf").mean())
        .filter(pl.col("n").is_between(*_SENTENCE_TOKENS))
        .sort("weight", "sentence_index", descending=[True, False])
        .unique("doc_id", keep="first", maintain_order=True)
        .select("sentence_index")
    )
    terms = (
        weighted.join(best, on="sentence_index", how="semi", maintain_order="left")
        .unique(["sentence_index", "token"], keep="first", maintain_order=True)
        .with_columns(
            place=pl.col("idf").rank("ordinal", descending=True).over("sentence_index"),
        )
        .filter(pl.col("place") <= _TERMS)
        .group_by("doc_id", "sentence_index", maintain_order=True)
        .agg(question=pl.col("word").str.join(" ") + "?")
        .join(sentences.select("sentence_index", "sentence"), on="sentence_index")
        .select("doc_id", "question", answer=pl.col("sentence"))
    )
    return drawn.select("doc_id").join(terms, on="doc_id", how="left", maintain_order="left")


def _tokens(sentences: pl.DataFrame) -> pl.DataFrame:
    words = sentences.with_columns(word=pl.col("sentence").str.extract_all(_TOKEN))
    return (
        words.drop("sentence")
        .explode("word")
        .drop_nulls("word")
        .with_columns(token=pl.col("word").str.to_lowercase())
    )
