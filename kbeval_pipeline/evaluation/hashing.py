"""Content hashes: how texts and test sets are told apart."""

import hashlib

import polars as pl

from kbeval_pipeline.duckdb_connection import connect


def content_hashes(texts: pl.Series) -> pl.Series:
    """Hash each text.

    Args:
        texts: strings, null allowed.

    Returns:
        SHA-256 of the UTF-8 bytes as hexadecimal text; null stays null.
    """
    with connect() as connection:
        connection.register("texts", pl.DataFrame({"text": texts.cast(pl.String)}).to_arrow())
        arrow = connection.sql("SELECT sha256(text) AS hash FROM texts").to_arrow_table()
    return pl.Series(texts.name, pl.DataFrame(pl.from_arrow(arrow))["hash"], dtype=pl.String)


def frame_hash(frame: pl.DataFrame) -> str:
    """Hash the content of a frame: column names, and values row by row in the given order.

    Args:
        frame: columns of text, numbers or booleans.

    Returns:
        SHA-256 as hexadecimal text.
    """
    return hashlib.sha256(frame.write_ndjson().encode()).hexdigest()
