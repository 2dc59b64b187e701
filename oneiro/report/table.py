"""The one table: on the console, as JSON and on the page. A measured cell carries its 95 % interval and its n."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from oneiro.runtime.errors import OneiroError, printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Value = float | int | str | None


@dataclass(frozen=True)
class Cell:
    """A text, a number, or a measurement: value, 95 % interval from `low` to `high`, number of cases."""

    value: Value
    low: float | None = None
    high: float | None = None
    n: int | None = None

    @property
    def measured(self) -> bool:
        return self.low is not None and self.high is not None

    def words(self, form: str) -> str:
        """`0.74 (0.68 to 0.79)`, each number written by `form`; the value alone where there is no interval."""
        value = form.format(self.value)
        return f"{value} ({form.format(self.low)} to {form.format(self.high)})" if self.measured else value


@dataclass
class Table:
    """Rows of cells under named columns.

    `units` maps a column to its unit. "%" means that cells hold fractions and show as percent; any other unit is text
    behind the column's name.
    """

    title: str
    columns: Sequence[str]
    units: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    rows: list[list[Cell]] = field(default_factory=list)

    def add(self, *cells: Cell | Value) -> None:
        """Append a row, one cell per column."""
        if len(cells) != len(self.columns):
            raise ValueError(f"table '{self.title}' has {len(self.columns)} columns, the row has {len(cells)} cells")
        self.rows.append([cell if isinstance(cell, Cell) else Cell(cell) for cell in cells])

    def data(self) -> dict[str, Any]:
        """As JSON: a row is an object by column; a measured cell is `{"value", "low", "high", "n"}`, the rest bare."""
        rows = [{column: _bare(cell) for column, cell in zip(self.columns, row, strict=True)} for row in self.rows]
        head = {"title": self.title, "columns": list(self.columns), "units": dict(self.units)}
        return {**head, "rows": rows, "note": self.note}

    @classmethod
    def read(cls, data: Any) -> Table:
        """The table that `data` came from."""
        try:
            table = cls(data["title"], list(data["columns"]), data.get("units") or {}, data.get("note") or "")
            for row in data["rows"]:
                table.add(*(_cell(row.get(column)) for column in table.columns))
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise OneiroError(
                f"not a table: {type(error).__name__} {error}; see docs/report.md for its form"
            ) from error
        return table

    # How it looks, the same on the console and on the page

    def filled_columns(self) -> list[int]:
        """The places of the columns that hold anything: the others are not shown."""
        return [place for place in range(len(self.columns)) if any(row[place].value is not None for row in self.rows)]

    def names(self) -> int:
        """How many columns at the start name their row: the texts before the first number; the first one always."""
        numbers = (
            place
            for place in range(len(self.columns))
            if any(isinstance(row[place].value, int | float) for row in self.rows)
        )
        return max(1, next(numbers, 1))

    def heading(self, column: str) -> str:
        unit = self.units.get(column, "")
        return f"{column}, {unit}" if unit else column

    def text(self, cell: Cell, column: str) -> str:
        """`74.2`, `1.5`, `12,000` or the text itself."""
        return _number(cell.value, self.units.get(column, ""))

    def interval(self, cell: Cell, column: str) -> str:
        """`68.5, 79.1`, or nothing where there is no interval."""
        if not cell.measured:
            return ""
        unit = self.units.get(column, "")
        return f"{_number(cell.low, unit)}, {_number(cell.high, unit)}"

    def scale(self, column: str) -> tuple[float, float]:
        """The range that intervals of a column are drawn on: 0 to 1 for shares, else 0 and what its cells span."""
        place = list(self.columns).index(column)
        ends = [end for row in self.rows for end in (row[place].low, row[place].high) if end is not None]
        shares = self.units.get(column) == "%" and all(0 <= end <= 1 for end in ends)
        return (0.0, 1.0) if shares or not ends else (min(0.0, *ends), max(0.0, *ends))

    def counts(self) -> list[int | None] | None:
        """The n of each row, where every measured cell of a row has the same; else None."""
        counts = [{cell.n for cell in row if cell.n is not None} for row in self.rows]
        if not any(counts) or any(len(row) > 1 for row in counts):
            return None
        return [next(iter(row), None) for row in counts]

    def __rich__(self) -> RichTable:
        from rich import box
        from rich.markup import escape
        from rich.table import Table as RichTable

        counts = self.counts()
        title, note = (escape(printable(text)) for text in (self.title, self.note))
        shown = RichTable(title=title, caption=note, box=box.SIMPLE_HEAD)
        shown.title_justify = shown.caption_justify = "left"
        filled = self.filled_columns()
        for place in filled:
            numeric = any(isinstance(row[place].value, int | float) for row in self.rows)
            heading = escape(self.heading(self.columns[place]))
            shown.add_column(heading, justify="right" if numeric else "left", overflow="fold", no_wrap=place == 0)
        if counts:
            shown.add_column("n", justify="right")
        for number, row in enumerate(self.rows):
            texts = [escape(self._line(row[place], self.columns[place], counts)) for place in filled]
            shown.add_row(*texts, *([_number(counts[number], "")] if counts else []))
        return shown

    def _line(self, cell: Cell, column: str, counts: list[int | None] | None) -> str:
        interval = self.interval(cell, column)
        text = self.text(cell, column) + (f" [{interval}]" if interval else "")
        return text + (f" (n={cell.n})" if counts is None and cell.n else "")


def _number(value: Value, unit: str) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return printable(value)
    if unit == "%":
        return f"{100 * value:.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _bare(cell: Cell) -> Any:
    return asdict(cell) if cell.measured or cell.n is not None else cell.value


def _cell(value: Any) -> Cell:
    cell = Cell(**value) if isinstance(value, dict) else Cell(value)
    numbers = (cell.low, cell.high, cell.n)
    if not isinstance(cell.value, Value) or not all(isinstance(number, float | int | None) for number in numbers):
        raise TypeError(f"cell {str(value)[:60]}")
    return cell
