"""The schema of a site: what its lists hold, how they are filtered and sorted, and what can be done with a row.

`compose` makes templates of it; each site writes its own in `tasks/composed.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots
from oneiro_web.templates.table import Allowed, Step, choose, enter, write

Row = dict[str, Any]


@dataclass(frozen=True)
class Filter:
    """A way to narrow a list."""

    name: str
    phrases: tuple[str, ...]
    """How an intent says it after the noun, with `{name}` for the value: `with the status "{status}"`."""
    kind: Literal["text", "choice", "from", "named"] = "text"
    """`text` finds a part, `choice` is one of a drop-down list, `from` a lower bound; `named` only names what the list
    shows anyway.
    """
    label: str = ""
    """Of the form's field."""
    column: str = ""
    """Of the source; the name if empty."""
    param: str = ""
    """In the list's address; the column if empty."""
    searched: tuple[str, ...] = ()
    """Columns in which the site looks for a text; the column if empty."""
    read: Callable[[Any], Any] = lambda value: value
    """A row's value as it is compared."""
    shown: Callable[[Any], str] = str
    """A value as it is written into the form and the intent."""
    unique: bool = False
    """No two rows share a value."""
    narrow: bool = False
    """A choice or bound of which a list has only a few rows."""
    tells: tuple[str, ...] = ()
    """Other columns that a value gives away."""

    @property
    def source_column(self) -> str:
        return self.column or self.name

    def value(self, row: Row) -> Any:
        """By which a row is found; None where it has none."""
        raw = row[self.source_column]
        return None if raw in (None, "") else self.read(raw)

    def matching(self, rows: Sequence[Row], value: Any) -> list[Row]:
        """The rows that the list shows when this value is asked for."""
        if self.kind == "text":
            part, columns = str(value).lower(), self.searched or (self.source_column,)
            return [row for row in rows if any(part in str(row[name]).lower() for name in columns)]
        own = [(row, self.value(row)) for row in rows]
        if self.kind == "from":
            return [row for row, its in own if its is not None and its >= value]
        return [row for row, its in own if its is not None and its == value]

    def step(self, alone: bool) -> list[Step]:
        """Into the form; a single text is sent by Enter."""
        text = f"{{{self.name}}}"
        if self.kind == "named":
            return []
        if self.kind == "choice":
            return [choose(self.label, text)]
        return [enter(self.label, text) if alone else write(self.label, text)]

    def query(self, value: Any) -> tuple[str, str]:
        """In the address of the list."""
        return self.param or self.source_column, str(value) if self.kind == "choice" else self.shown(value)


@dataclass(frozen=True)
class Sort:
    """An order of the list; the first row is meant."""

    name: str
    phrases: tuple[str, ...]
    """After the noun: `with the highest price`."""
    column: str
    steps: tuple[Step, ...]
    down: bool = True
    """The largest first."""
    in_form: bool = False
    """The steps fill the filters' form; it is still to be sent."""


@dataclass(frozen=True)
class Field:
    """What a row says and a task may ask for."""

    column: str
    words: str
    kind: str = "text"
    """Of the answer, as in `says`; `number` and `money` can be compared and added."""
    read: Callable[[Any], Any] = lambda value: value
    on_page: bool = False
    """Not in the list, but on the row's own page."""
    least: int | None = None
    but: tuple[str, ...] = ()
    """Smaller numbers, and these texts, are never asked for: too many rows have them, so that they are good guesses."""

    def is_guessable(self, value: Any) -> bool:
        """Whether a value is too common to be asked for."""
        return value in (None, "", *self.but) or (self.least is not None and value < self.least)


@dataclass(frozen=True)
class Act:
    """What can be done with a row. `{row}` in the phrases is the row; `:rowid` in SQL its id, and so on."""

    name: str
    phrases: tuple[str, ...]
    steps: tuple[Step, ...]
    when: Callable[[Row], bool] = lambda row: True
    texts: tuple[str, ...] = ()
    """One of them is the slot `text`."""
    fill: Callable[[Content, Row, Slots], Slots | None] = lambda content, row, slots: slots
    """More slots; None where the row will not do."""
    rows: Mapping[str, tuple[Any, ...]] | Callable[[Slots], list[Check]] | None = None
    changes: Mapping[str, str] | Callable[[Slots], Allowed] | None = None
    edits: str = ""
    in_list: bool = False
    """Done in the list, not on the row's own page."""


@dataclass(frozen=True, eq=False)
class Entity:
    """A kind of rows and the list that shows them."""

    name: str
    one: str
    """In an intent: `order`."""
    site: str
    source: str
    """A query with an order; its column `id` names a row."""
    title: Field
    """By which answers name a row."""
    way: tuple[Step, ...]
    """From the first page to the list."""
    many: str = ""
    submit: tuple[Step, ...] = ()
    """Sends the filters' form."""
    scope: tuple[str, ...] = ()
    """Columns that say which list it is, slots of their own: a project, a forum."""
    of: tuple[str, ...] = ("",)
    """After the noun: ` of {project}`."""
    start: str = ""
    """The first page, with slots of the scope."""
    fields: tuple[Field, ...] = ()
    filters: tuple[Filter, ...] = ()
    pairs: tuple[str, ...] = ()
    """Filters that are used together: `status+customer`."""
    sorts: tuple[Sort, ...] = ()
    sorted: tuple[str, ...] = ()
    """Filters that are used together with an order."""
    acts: tuple[Act, ...] = ()
    counts: tuple[str, ...] = ()
    """Choices by filters of which the list says how many there are, and so many different numbers that none is a good
    guess.
    """
    page: str = ""
    """The list's address, where a task may ask for it."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """What else stands in the query of that address."""
    open: tuple[Step, ...] = ()
    """From the list to a row's page."""
    opens: Callable[[Row], bool] = lambda row: True
    """Whether that is the way to this row's page."""
    row_page: str = ""
    size: int = 20
    """Rows of a page of the list."""

    def choices(self) -> Iterator[tuple[tuple[Filter, ...], Sort | None]]:
        """Every way to choose rows: filters, and perhaps an order whose first row is meant."""
        by_name = {one.name: one for one in self.filters}
        for one in self.filters:
            yield (one,), None
        for pair in self.pairs:
            yield tuple(by_name[name] for name in pair.split("+")), None
        for sort in self.sorts:
            if self.scope:
                yield (), sort
            for name in self.sorted:
                if by_name[name].source_column != sort.column:
                    yield (by_name[name],), sort


@lru_cache(maxsize=1536)  # all kinds on all contents of training; 0.3 MB and 7 ms each
def rows_of(entity: Entity, content: int) -> tuple[Row, ...]:
    """The rows of a kind on a content."""
    return tuple(dict(row) for row in Content(entity.site, content).rows(entity.source))
