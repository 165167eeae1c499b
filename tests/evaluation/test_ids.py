import datetime as dt
import math
from decimal import Decimal
from uuid import UUID

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbeval_pipeline.evaluation.ids import canonical_id, canonical_ids, with_canonical_ids


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2, "2"),
        (2.0, "2"),
        ("2", "2"),
        ("02", "02"),
        ("2.0", "2.0"),
        (" 2", " 2"),
        ("", ""),
        ("nan", "nan"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e-7, "1e-07"),
        (1e22, "10000000000000000000000"),
        (2.0**100, "1267650600228229401496703205376"),
        (2.0**200, str(2**200)),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (2**70, "1180591620717411303424"),
        (Decimal("2.00"), "2"),
        (Decimal("2.50"), "2.5"),
        (Decimal("1E+3"), "1000"),
        (Decimal("-0.0"), "0"),
        (Decimal("0.0000001"), "1e-07"),
        (Decimal("12345678901234567890123456789.10"), "12345678901234567890123456789.1"),
        (Decimal("NaN"), None),
        (math.nan, None),
        (None, None),
        (True, "true"),
        (False, "false"),
        (np.float32(2.0), "2"),
        (np.int64(7), "7"),
        (np.bool_(True), "true"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.datetime(2026, 1, 2, 3, 4), "2026-01-02 03:04:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_canonical_text_of_one_id(value: object, text: str | None) -> None:
    assert canonical_id(value) == text


@pytest.mark.parametrize(
    "series",
    [
        pl.Series([1, None, -3]),
        pl.Series([2**64 - 1], dtype=pl.UInt64),
        pl.Series(["02", "2.0", None, ""]),
        pl.Series([True, False, None]),
        pl.Series([0.1, 2.5], dtype=pl.Float32),
        pl.Series([dt.date(2026, 1, 2), None]),
        pl.Series([dt.datetime(2026, 1, 2, 3, 4), dt.datetime(2026, 1, 2, 3, 4, 5, 6)]),
        pl.Series([dt.datetime(2026, 1, 2, tzinfo=dt.UTC)]),
        pl.Series([dt.time(1, 2)]),
        pl.Series([UUID(int=5), "x", 2.0, None], dtype=pl.Object),
        pl.Series(["a", "b"], dtype=pl.Categorical),
        pl.Series([None, None]),
        pl.Series([Decimal("2.00"), Decimal("2.50"), Decimal("0.00"), Decimal("100.00"), None]),
        pl.Series([Decimal("0.0000001"), Decimal("-0.00001"), Decimal("100")]),
        pl.Series([Decimal("100"), Decimal("-20")]),
    ],
)
def test_column_agrees_with_single_values(series: pl.Series) -> None:
    result = canonical_ids(series.alias("id"))
    assert result.dtype == pl.String
    assert result.name == "id"
    assert result.to_list() == [canonical_id(value) for value in series.to_list()]


@settings(deadline=None)
@given(st.lists(st.floats() | st.none() | st.integers(-(2**60), 2**60).map(float)))
def test_float_column_agrees_with_single_values(values: list[float | None]) -> None:
    series = pl.Series(values, dtype=pl.Float64)
    assert canonical_ids(series).to_list() == [canonical_id(value) for value in values]


@settings(deadline=None)
@given(st.lists(st.decimals(-(10**9), 10**9, places=8)))
def test_decimal_column_agrees_with_single_values(values: list[Decimal]) -> None:
    series = pl.Series(values, dtype=pl.Decimal(30, 8))
    assert canonical_ids(series).to_list() == [canonical_id(value) for value in values]


@settings(deadline=None)
@given(st.integers(-(2**53), 2**53))
def test_equal_numbers_are_the_same_id(value: int) -> None:
    assert canonical_id(value) == canonical_id(float(value)) == canonical_id(str(value))
    assert canonical_id(value) == canonical_id(Decimal(value)) == str(value)


def test_only_the_named_columns_are_replaced() -> None:
    frame = pl.DataFrame({"doc_id": [2.0], "rank": [1.0]})
    assert with_canonical_ids(frame, "doc_id").rows() == [("2", 1.0)]
