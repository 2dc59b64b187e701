"""Checks on the databases of an episode. They are read only: a query in a task cannot change what it grades."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from oneiro_web.errors import WebError
from oneiro_web.grading.result import Checked, shown
from oneiro_web.sites import SITES, Site, Web
from oneiro_web.sites.web import original
from oneiro_web.tasks import DatabaseCheck, DatabaseGuard

MOST_STEPS = 50_000
"""Thousands of SQLite's instructions that a query may take."""
_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


@contextmanager
def read_only(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Queries on `db` that can neither write, attach, load nor run for ever."""
    steps = 0

    def allow(action: int, first: str | None, second: str | None, *rest: object) -> int:
        loads = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
        return sqlite3.SQLITE_OK if action in _READS and not loads else sqlite3.SQLITE_DENY

    def count() -> int:
        nonlocal steps
        steps += 1
        return int(steps > MOST_STEPS)

    db.set_authorizer(allow)
    db.set_progress_handler(count, 1000)
    try:
        yield db
    finally:
        db.set_progress_handler(None, 0)
        db.set_authorizer(None)


def query(db: sqlite3.Connection, sql: str, most: int | None = None) -> list[tuple[Any, ...]]:
    """The rows of a query, at most so many."""
    try:
        with read_only(db):
            cursor = db.execute(sql)
            return [tuple(row) for row in (cursor.fetchall() if most is None else cursor.fetchmany(most))]
    except sqlite3.Error as error:
        raise WebError(f"the query {shown(sql, 120)} of a task fails: {error}") from None


def check_rows(check: DatabaseCheck, web: Web) -> Checked:
    """A query gives the expected rows."""
    rows = query(web.database(_site(check.site)), check.query, len(check.rows) + 1)
    right = rows == list(check.rows) if check.ordered else Counter(rows) == Counter(check.rows)
    return Checked(
        "db_check",
        float(right),
        f"{check.site}: {shown(rows, 100)} is {'' if right else 'not '}{shown(check.rows, 100)}",
    )


def check_unchanged(guard: DatabaseGuard, web: Web) -> Checked:
    """All databases of the episode hold what they held when it began, but for the allowed rows."""
    allowed: dict[tuple[str, str], list[tuple[str, tuple[str, ...] | None]]] = {}
    for name, tables in guard.allow.items():
        for written, condition in tables.items():
            table, columns = _table(written)
            allowed.setdefault((_site(name).store.name, table), []).append((condition or "1", columns))
    for site in SITES.values():
        store = site.store.name
        if store not in web.databases:
            continue
        now, before = web.databases[store], original(site.name, web.content)
        if _tables(now) != _tables(before):
            return Checked("db_guard", 0.0, f"{store}: the tables are others")
        for (table,) in query(now, "SELECT name FROM touched"):
            rules = allowed.get((store, table), [])
            rule = " OR ".join(f"({condition})" for condition, _ in rules) or "0"
            if Counter(query(now, _others(table, rule))) != _before(site.name, web.content, table, rule):
                return Checked("db_guard", 0.0, f"{store}: {table} was changed where it must not be")
            for condition, columns in rules:
                if columns is not None and not _kept(now, before, table, condition, columns):
                    return Checked("db_guard", 0.0, f"{store}: {table}: more than {', '.join(columns)} was changed")
    return Checked("db_guard", 1.0, "nothing else was changed")


def _site(name: str) -> Site:
    if name not in SITES:
        raise WebError(f"a task checks the database of {name!r}, which is no site of ours: {', '.join(SITES)}")
    return SITES[name]


def _tables(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return query(db, "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name")


def _table(written: str) -> tuple[str, tuple[str, ...] | None]:
    """`project(stars, updated)`: a table and some of its columns; None for all of them."""
    match = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)(?:\(([A-Za-z0-9_, ]+)\))?", written)
    if match is None:
        raise WebError(f"{written!r} is no name of a table")
    return match[1], tuple(match[2].split(", ")) if match[2] else None


def _kept(now: sqlite3.Connection, before: sqlite3.Connection, table: str, rule: str, columns: tuple[str, ...]) -> bool:
    """Whether the rows to which a rule applied are still there, with the same values in all other columns."""
    names = [column[0] for column in before.execute(f'SELECT * FROM "{table}" LIMIT 0').description]
    select = f'SELECT rowid, {", ".join(name for name in names if name not in columns)} FROM "{table}"'
    rows = query(before, f"{select} WHERE {rule}")
    return Counter(query(now, f"{select} WHERE rowid IN ({', '.join(str(row[0]) for row in rows)})")) == Counter(rows)


def _others(table: str, rule: str) -> str:
    """The rows of a table to which a rule does not apply."""
    return f'SELECT * FROM "{table}" WHERE ({rule}) IS NOT TRUE'


@lru_cache(maxsize=1024)
def _before(site: str, content: int, table: str, rule: str) -> Counter[tuple[Any, ...]]:
    return Counter(query(original(site, content), _others(table, rule)))
