import polars as pl
import pytest

from kbeval_pipeline.errors import UserError

TABLE = {"table": "src.docs"}


def documents(knowledge_base) -> list[tuple[str, str]]:
    return [(document.id, document.content) for document in knowledge_base.documents()]


def test_ids_are_canonical_text_and_columns_case_insensitive(make, tables) -> None:
    tables.frames["src.docs"] = pl.DataFrame({"ID": [10.0, 2.0, 2.5], "Content": ["ten", "two", "half"]})
    assert documents(make(TABLE)) == [("10", "ten"), ("2", "two"), ("2.5", "half")]
    tables.frames["src.docs"] = pl.DataFrame({"id": ["02", "2"], "content": ["text", "other"]})
    assert documents(make(TABLE)) == [("02", "text"), ("2", "other")]
    assert make(TABLE).search("text", 5)[0].chunk_id == "02#0"


def test_faulty_rows_are_reported_by_number(make, tables) -> None:
    tables.frames["src.docs"] = pl.DataFrame(
        {"id": [1, None, 3, 4, 5], "content": ["one", "two", None, " \n", "five"]}
    )
    knowledge_base = make(TABLE)
    assert documents(knowledge_base) == [("1", "one"), ("5", "five")]
    assert [(item.where, item.cause) for item in knowledge_base.skipped_documents()] == [
        ("row 2", "the id is null"),
        ("row 3", "the content is null"),
        ("row 4", "the content is empty or blank"),
    ]


def test_of_duplicate_ids_one_is_kept_whatever_the_order(make, tables) -> None:
    frame = pl.DataFrame({"id": [1, 2, 1], "content": ["a", "b", "c"]})
    tables.frames["src.docs"] = frame
    forwards = make(TABLE)
    kept = documents(forwards)
    skipped = forwards.skipped_documents()
    assert len(kept) == 2
    assert len(skipped) == 1
    assert 'the id "1" is taken by another row' in skipped[0].cause
    fingerprint = forwards.fingerprint()
    tables.frames["src.docs"] = frame.reverse()
    assert documents(make(TABLE)) == kept
    assert make(TABLE).fingerprint() == fingerprint


def test_query_and_own_columns(make, tables) -> None:
    tables.frames["pages"] = pl.DataFrame({"url": ["u1", "u2"], "body": ["one", "two"], "lang": ["en", "de"]})
    settings = {
        "sql": "SELECT url, body FROM pages WHERE lang = 'de'",
        "id_column": "URL",
        "content_column": "body",
    }
    assert documents(make(settings)) == [("u2", "two")]


def test_missing_column_names_those_found(make, tables) -> None:
    tables.frames["src.docs"] = pl.DataFrame({"key": [1], "content": ["one"]})
    with pytest.raises(UserError, match=r'column "id" \(id_column\) is missing .* found: key, content'):
        make(TABLE).fingerprint()
    tables.frames["src.docs"] = pl.DataFrame({"Id": [1], "ID": [1], "content": ["one"]})
    with pytest.raises(UserError, match="has several: Id, ID"):
        make(TABLE).fingerprint()


def test_content_that_is_no_text(make, tables) -> None:
    tables.frames["src.docs"] = pl.DataFrame({"id": [1], "content": [["one"]]})
    with pytest.raises(UserError, match="not text"):
        make(TABLE).fingerprint()
    tables.frames["src.docs"] = pl.DataFrame({"id": [1], "content": [42]})
    assert documents(make(TABLE)) == [("1", "42")]


def test_empty_table(make, tables) -> None:
    tables.frames["src.docs"] = pl.DataFrame(schema={"id": pl.Int64, "content": pl.String})
    with pytest.raises(UserError, match=r'"kb" has no document in table src\.docs'):
        make(TABLE).fingerprint()
