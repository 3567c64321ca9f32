"""Tables: text and back, and what is said of a text that is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_tuner import Row, Table

WORDS = st.text(min_size=1, max_size=12)
ROWS = st.builds(
    Row,
    st.dictionaries(WORDS, st.integers(-9, 1 << 20) | WORDS, max_size=4),
    st.floats(0.1, 1e6),
    st.floats(0.1, 1e6),
    WORDS,
    st.lists(st.from_regex(r"[a-z %:\[\]{}]+", fullmatch=True), max_size=3).map("\n".join),
)
TARGETS = st.builds(Target, isa=st.sampled_from(("avx2", "avx512")), threads=st.integers(1, 64))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(target=TARGETS, rows=st.dictionaries(WORDS, ROWS, max_size=4))
def test_a_table_is_its_text(target: Target, rows: dict[str, Row]) -> None:
    table = Table(target).with_rows(rows)
    text = table.to_json()
    assert Table.from_json(text) == table
    assert Table.from_json(text).to_json() == text
    assert Table(target).with_rows(dict(reversed(rows.items()))).to_json() == text


def test_rows_are_replaced_by_kernel() -> None:
    old, new = (Row({"unroll 0": n}, float(n), 9.0, "measured 1", "") for n in (4, 8))
    table = Table(Target(), {"a": old, "b": old}).with_rows({"b": new})
    assert dict(table.rows) == {"a": old, "b": new}


def test_a_text_that_is_no_table_is_named() -> None:
    good = json.loads(Table(Target(), {"a": Row({}, 1.0, 1.0, "measured 1", "")}).to_json())
    other = {**good, "schema": 99}
    time = {**good, "kernels": {"a": {**good["kernels"]["a"], "us": "fast"}}}
    choice = {**good, "kernels": {"a": {**good["kernels"]["a"], "choices": {"unroll 0": [8]}}}}
    more = {**good, "kernels": {"a": {**good["kernels"]["a"], "more": 1}}}
    texts = ["", "{}", "[1]", "null", *map(json.dumps, (other, time, choice, more))]
    for text in texts:
        with pytest.raises(InvalidArgumentError, match="no table of measured schedules") as raised:
            Table.from_json(text)
        assert raised.value.code == "tuner.table"
