"""The grids of the back office: rows of a query with filters, sortable columns and pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.store.forms import cents, day, like, paged, whole

PER_PAGE = 20


@dataclass(frozen=True)
class Filter:
    """A field above a grid, or two (`NAME_from`, `NAME_to`) for a range."""

    name: str
    label: str
    column: str
    kind: str = "text"
    """`text` finds a part; `choice` is one of `options`; `money`, `day` and `number` are ranges."""
    options: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Column:
    """A column of a grid."""

    name: str
    label: str
    kind: str = "text"
    """`text`, `money`, or `status` (shown as a tag)."""
    sort: str = ""
    """What to sort by, if not by the name."""


READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "money": (cents, "Please enter an amount."),
    "number": (whole, "Please enter a number."),
    "day": (day, "Please enter a date like 2026-06-15."),
}


def conditions(visit: Visit, filters: Sequence[Filter]) -> tuple[str, list[Any], dict[str, str], list[tuple[str, str]]]:
    """SQL for the filters in the address, its values, errors by field, and (label, text) of the filters that hold."""
    where, values = "1", []
    errors: dict[str, str] = {}
    active: list[tuple[str, str]] = []
    for item in filters:
        if item.kind in READERS:
            read, error = READERS[item.kind]
            for end, sign in (("from", ">="), ("to", "<=")):
                text = visit.query.get(f"{item.name}_{end}", "").strip()
                value = read(text) if text else None
                if text and value in (None, ""):
                    errors[f"{item.name}_{end}"] = error
                elif text:
                    where += f" AND {item.column} {sign} ?"
                    values.append(f"{value} 24:00" if item.kind == "day" and end == "to" else value)
                    active.append((f"{item.label} {end}", text))
            continue
        text = visit.query.get(item.name, "").strip()
        names = dict(item.options)
        if item.kind == "choice" and text in names:
            where, values = f"{where} AND {item.column} = ?", [*values, text]
            active.append((item.label, names[text]))
        elif item.kind == "text" and text:
            where, values = f"{where} AND {item.column} LIKE ? ESCAPE '!'", [*values, like(text)]
            active.append((item.label, text))
    return where, values, errors, active


def grid(
    visit: Visit, title: str, source: str, columns: Sequence[Column], filters: Sequence[Filter] = (), *,
    sort: str = "id", descending: bool = True, edit: str = "", status: int = 200, **more: Any,
) -> Response:  # fmt: skip
    """A page with one grid. `source` is what to select from; `edit` is the address of a row, before its id."""
    where, values, errors, active = conditions(visit, filters)
    wanted = visit.query.get("sort", sort)
    by = next((column for column in columns if column.name == wanted), None)
    key = (by.sort or by.name) if by else sort
    down = visit.query.get("dir", "desc" if descending else "asc") == "desc"
    count = visit.value(f"SELECT count(*) FROM {source} WHERE {where}", *values)
    page, pages, offset = paged(visit, count, PER_PAGE)
    shown = ", ".join(dict.fromkeys(["id", *(column.name for column in columns)]))
    order = f"{key} {'DESC' if down else 'ASC'}, id {'DESC' if down else 'ASC'}"
    rows = visit.rows(
        f"SELECT {shown} FROM {source} WHERE {where} ORDER BY {order} LIMIT {PER_PAGE} OFFSET {offset}", *values
    )
    rest = urlencode({name: text for name, text in visit.query.items() if text and name not in ("sort", "dir", "p")})
    address = f"{visit.request.url.path}?{rest}{'&' if rest else ''}"
    heads = []
    for column in columns:
        marked = f"{column.label} {'↓' if down else '↑'}" if column is by else column.label
        direction = "desc" if column is by and not down else "asc"
        heads.append((marked, f"{address}sort={column.name}&dir={direction}"))
    return visit.page(
        "shopping_admin/grid.html", status, title=title, columns=[(column.name, column.kind) for column in columns],
        heads=heads, filters=filters, rows=rows, count=count, page=page, pages=pages, errors=errors, active=active,
        edit=edit, **{"mass": (), "new": None, **more},
    )  # fmt: skip
