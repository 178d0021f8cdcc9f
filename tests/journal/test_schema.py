"""Columns as data: every backend can derive its schema, and bad rows are told by name."""

import pytest

from oncewire.errors import JournalProblem
from oncewire.journal.row import COLUMNS, JOURNAL_VERSION, SCHEMA, check_version, rows_from_columns
from tests.journal.scenarios import SCENARIOS


def test_the_schema_has_every_column_in_order() -> None:
    assert tuple(column.name for column in SCHEMA) == COLUMNS
    assert {column.name for column in SCHEMA if not column.nullable} == {
        "seq", "at", "mono", "boot", "node", "kind",
    }  # fmt: skip
    row = SCENARIOS["window"]().rows[-1]
    for column, value in zip(SCHEMA, row, strict=True):
        assert value is None or type(value) is column.type


def test_a_batch_by_column_gives_rows() -> None:
    rows = SCENARIOS["plain"]().rows
    columns = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
    assert list(rows_from_columns(columns)) == rows
    del columns["size"]
    assert list(rows_from_columns(columns)) == [row._replace(size=None) for row in rows]
    del columns["node"]
    with pytest.raises(JournalProblem, match="node"):
        rows_from_columns(columns)


def test_a_journal_of_another_version_is_refused_with_what_to_do() -> None:
    check_version(JOURNAL_VERSION)
    check_version(str(JOURNAL_VERSION))
    for other in (0, 2, "2", None):
        with pytest.raises(JournalProblem, match="version") as raised:
            check_version(other)
        assert "Oncewire" in raised.value.remedy
