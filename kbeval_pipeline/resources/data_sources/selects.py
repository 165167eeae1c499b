"""Checking a user's statement: one SELECT, no files; and which tables it names."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbeval_pipeline.errors import UserError

if TYPE_CHECKING:
    from sqlglot import exp

_LEADING = re.compile(r"\s+|\(|--[^\n]*|/\*.*?\*/", re.DOTALL)
_FIRST_WORD = re.compile(r"[A-Za-z_]+|.")
_READS_FILES = re.compile(
    r"(read_.*|.*_scan|scan_.*|glob|sniff_csv|parquet_.*|query|query_table|which_secret|"
    r"(iceberg|delta|st|postgres|mysql|sqlite)_(read|query|attach|metadata|snapshots|execute).*|"
    r"pg_read_.*|pg_ls_.*|pg_stat_file|lo_import|lo_export|lo_get|dblink.*|"
    r"load_file|load_extension|readfile|writefile|openrowset|openquery|opendatasource)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class TableReference:
    """A table as a statement names it: one to three parts, and the node that holds them."""

    parts: tuple[str, ...]
    node: "exp.Table"


def parse_select(sql: str, dialect: str | None) -> "exp.Query":
    """Parse a statement and refuse it unless it is one SELECT that only reads tables.

    Args:
        sql: the statement as the user wrote it.
        dialect: sqlglot's name of its dialect.

    Returns:
        The parsed statement.

    Raises:
        UserError: saying what the statement is instead.
    """
    import sqlglot  # noqa: PLC0415
    from sqlglot import exp  # noqa: PLC0415

    start = 0
    while leading := _LEADING.match(sql, start):
        start = leading.end()
    first = _FIRST_WORD.match(sql, start)
    if first is None:
        raise UserError("the statement is empty, expected one SELECT")
    if first[0].upper() not in ("SELECT", "WITH", "FROM"):
        raise UserError(f"expected one SELECT, but the statement starts with {first[0].upper()}")
    try:
        trees = [tree for tree in sqlglot.parse(sql, dialect=dialect) if tree is not None]
    except sqlglot.errors.SqlglotError as error:
        raise UserError(f"the statement cannot be parsed: {_parse_message(error)}") from None
    if len(trees) != 1:
        raise UserError(f"expected one SELECT, found {len(trees)} statements")
    tree = trees[0]
    if not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery):
        raise UserError(f"expected one SELECT, but the statement is {_article(tree.key.upper())}")
    for node in tree.walk():
        if isinstance(node, exp.DML | exp.DDL | exp.Command) and not isinstance(node, exp.Query):
            raise UserError(f"expected one SELECT, but the statement holds {_article(node.key.upper())}")
        if isinstance(node, exp.Into):
            raise UserError("expected one SELECT, but SELECT ... INTO makes a table")
        if isinstance(node, exp.Lock):
            raise UserError("expected one SELECT, but SELECT ... FOR UPDATE or SHARE locks rows")
        if isinstance(node, exp.Func) and _READS_FILES.fullmatch(_function_name(node)):
            raise UserError(
                f"the function {_function_name(node).lower()} reads from outside the data sources, which a "
                "statement must not do; define a data source for it and select from its tables"
            )
    return tree


def _parse_message(error: Any) -> str:
    details = getattr(error, "errors", None)
    if not details:
        return str(error).splitlines()[0]
    first = details[0]
    near = f"{first['start_context'][-30:]}{first['highlight']}{first['end_context'][:10]}".strip()
    return f'{first["description"]} (line {first["line"]}, near "{near}")'


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "AEIOU" else f"a {word}"


def _function_name(node: Any) -> str:
    from sqlglot import exp  # noqa: PLC0415

    return str(node.name if isinstance(node, exp.Anonymous) else node.sql_name())


def table_references(tree: "exp.Query") -> Iterator[TableReference]:
    """Find the tables that a statement reads.

    Args:
        tree: a parsed statement.

    Yields:
        Each mention of a table; names of common table expressions and table functions are left out.

    Raises:
        UserError: when a name has more than three parts.
    """
    from sqlglot import exp  # noqa: PLC0415

    temporary = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Func):
            continue
        if not isinstance(node.this, exp.Identifier):
            raise UserError(
                f'the table name "{node.sql()}" has too many parts, expected datasource.schema.table at most'
            )
        parts = tuple(part for part in (node.catalog, node.db, node.name) if part)
        if len(parts) == 1 and parts[0].lower() in temporary:
            continue
        yield TableReference(parts, node)


def strip_data_source(tree: "exp.Query", references: Sequence[TableReference]) -> None:
    """Take the data source's name off tables and qualified columns, in place.

    Args:
        tree: a parsed statement, all of whose tables are of one data source.
        references: its tables.
    """
    from sqlglot import exp  # noqa: PLC0415

    known = {reference.parts for reference in references}
    for reference in references:
        reference.node.set("catalog", None)
        if len(reference.parts) == 2:
            reference.node.set("db", None)
    for column in tree.find_all(exp.Column):
        parts = _qualifier(column)
        if parts in known:
            column.set("catalog", None)
            if len(parts) == 2:
                column.set("db", None)


def rename_tables(tree: "exp.Query", references: Sequence[TableReference], names: Sequence[str]) -> None:
    """Give every table another name, in place; its old name stays as its alias.

    Args:
        tree: a parsed statement.
        references: its tables.
        names: the new name of each reference.
    """
    from sqlglot import exp  # noqa: PLC0415

    # Two tables that differ only in their data source need two aliases.
    shared = Counter(parts[-1].lower() for parts in {reference.parts for reference in references})
    labels = {
        reference.parts: reference.parts[-1]
        if shared[reference.parts[-1].lower()] == 1
        else ".".join(reference.parts)
        for reference in references
    }
    for column in tree.find_all(exp.Column):
        parts = _qualifier(column)
        if len(parts) > 1 and parts in labels:
            column.set("catalog", None)
            column.set("db", None)
            column.set("table", exp.to_identifier(labels[parts], quoted=True))
    for reference, name in zip(references, names, strict=True):
        node = reference.node
        if not node.alias:
            alias = exp.TableAlias(this=exp.to_identifier(labels[reference.parts], quoted=True))
            if isinstance(node.args.get("alias"), exp.TableAlias):
                node.args["alias"].set("this", alias.this)
            else:
                node.set("alias", alias)
        node.set("catalog", None)
        node.set("db", None)
        node.set("this", exp.to_identifier(name, quoted=True))


def _qualifier(column: "exp.Column") -> tuple[str, ...]:
    return tuple(part for part in (column.catalog, column.db, column.table) if part)
