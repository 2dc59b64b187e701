"""The one table, in its three forms."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from oneiro.report.table import Cell, Table
from oneiro.runtime.errors import OneiroError


@pytest.fixture
def table() -> Table:
    table = Table("Levels", ["arm", "success", "seconds", "nothing"], {"success": "%", "seconds": "s"}, note="a note")
    table.add("[bold]tiny", Cell(0.742, 0.685, 0.791, 256), 12000, None)
    table.add("ceiling", Cell(0.984, n=256), 0.012345, None)
    return table


def printed(table: Table) -> str:
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_percent_interval_and_count_are_printed_and_empty_columns_are_not(table: Table) -> None:
    text = printed(table)
    assert "74.2 [68.5, 79.1]" in text and "98.4" in text and "success, %" in text
    assert "12,000" in text and "0.0123" in text and "a note" in text
    assert "nothing" not in text
    assert text.count("256") == 2


def test_names_in_brackets_are_text_not_markup(table: Table) -> None:
    assert "[bold]tiny" in printed(table)


def test_counts_that_differ_within_a_row_stand_in_their_cells() -> None:
    table = Table("t", ["a", "b"])
    table.add(Cell(0.5, 0.4, 0.6, 10), Cell(0.5, 0.4, 0.6, 20))
    assert table.counts() is None
    assert "(n=10)" in printed(table) and "(n=20)" in printed(table)


def test_a_table_survives_json(table: Table) -> None:
    data = json.loads(json.dumps(table.data()))
    assert data["rows"][0]["success"] == {"value": 0.742, "low": 0.685, "high": 0.791, "n": 256}
    assert data["rows"][0]["arm"] == "[bold]tiny" and data["rows"][0]["seconds"] == 12000
    again = Table.read(data)
    assert again.rows == table.rows and printed(again) == printed(table)


@pytest.mark.parametrize(
    "data",
    [
        None,
        3,
        {},
        {"title": "t"},
        {"title": "t", "columns": ["a"], "rows": [3]},
        {"title": "t", "columns": ["a"], "rows": [{"a": {"val": 1}}]},
    ],
)
def test_what_is_no_table_is_refused_in_one_line(data: object) -> None:
    with pytest.raises(OneiroError, match="not a table"):
        Table.read(data)


def test_a_row_must_fit(table: Table) -> None:
    with pytest.raises(ValueError, match="4 columns, the row has 1"):
        table.add("short")


def test_intervals_are_drawn_on_the_range_of_their_column(table: Table) -> None:
    assert table.scale("success") == (0.0, 1.0)
    other = Table("t", ["x"])
    other.add(Cell(5, 3, 8))
    assert other.scale("x") == (0.0, 8)
    changes = Table("t", ["change"], units={"change": "%"})
    changes.add(Cell(-0.1, -0.2, 0.05))
    changes.add(Cell(0.3, 0.2, 0.4))
    assert changes.scale("change") == (-0.2, 0.4)
