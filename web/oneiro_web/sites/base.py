"""What the five sites share: a database per episode, plain functions as pages, log-in, notes, a clock.

A page is a function of a `Visit` that returns a response. Starlette routes to it; it never waits, so the same
application answers in process (`oneiro_web.sites.web`) and behind a server.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jinja2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

TODAY = datetime(2026, 6, 15, 9, 0)
"""When every episode begins. Each change of a site's content takes a minute."""

COOKIE = "session"
SITE_NAMES = ("shopping", "shopping_admin", "reddit", "gitlab", "map")
"""The sites, as WebArena calls them; each has its folder here."""
MAX_FORM_BYTES = 1 << 16  # a longer form is refused
MAX_FIELD_CHARS = 4000  # a longer field is cut

SHARED_SCHEMA = """
CREATE TABLE session (token TEXT PRIMARY KEY, site TEXT NOT NULL, user TEXT NOT NULL, note TEXT NOT NULL DEFAULT '');
CREATE TABLE clock (ticks INTEGER NOT NULL);
INSERT INTO clock VALUES (0);
CREATE TABLE touched (name TEXT PRIMARY KEY);
"""
BOOKKEEPING = ("session", "clock", "touched", "sqlite_sequence")
"""Tables that no task is about. `touched` names the others that were written to since the episode began."""

Endpoint = Callable[["Visit"], Response]


@dataclass(frozen=True)
class Store:
    """One database: its tables and how they are filled. Sites may share one."""

    name: str
    schema: str
    fill: Callable[[sqlite3.Connection, int], None]
    """Content from a seed: the same seed gives the same rows, other seeds other names, prices and texts."""


@dataclass(frozen=True, eq=False)
class Site:
    """One site under WebArena's name."""

    name: str
    title: str
    host: str
    """The public host its addresses show."""
    home: str
    """The path of its first page."""
    store: Store
    user: str
    """Who is logged in when an episode begins; '' for nobody."""
    pages: Sequence[Route]
    account: tuple[str, str] | None = None
    """What a person logs in with: name and password."""

    @property
    def url(self) -> str:
        """The address of the first page."""
        return f"http://{self.host}{self.home}"


class Visit:
    """One request: who asks, for what, and the database it reads and changes."""

    def __init__(self, site: Site, db: sqlite3.Connection, request: Request, form: dict[str, str]) -> None:
        self.site, self.db, self.request, self.form = site, db, request, form
        self.path: dict[str, Any] = request.path_params
        self.query: Mapping[str, str] = request.query_params
        self.token = request.cookies.get(COOKIE, "")
        row = self.one("SELECT user, note FROM session WHERE token = ? AND site = ?", self.token, site.name)
        self.user: str = row["user"] if row else ""
        self.note: str = row["note"] if row else ""

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """All rows of a query."""
        return self.db.execute(sql, values).fetchall()

    def one(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """The first row of a query."""
        row: sqlite3.Row | None = self.db.execute(sql, values).fetchone()
        return row

    def value(self, sql: str, *values: Any) -> Any:
        """The first column of the first row; None without a row."""
        row = self.one(sql, *values)
        return row[0] if row else None

    def require(self, sql: str, *values: Any) -> sqlite3.Row:
        """The first row of a query; without one the page does not exist."""
        row = self.one(sql, *values)
        if row is None:
            raise HTTPException(404)
        return row

    def change(self, sql: str, *values: Any) -> int:
        """Write, and return the id of a new row."""
        return self.db.execute(sql, values).lastrowid or 0

    def number(self, name: str, default: int = 1, least: int = 1, most: int = 10**6) -> int:
        """A number from the query string, whatever somebody wrote there."""
        text = self.query.get(name, "")
        return min(max(int(text), least), most) if text.isascii() and text.isdigit() and len(text) < 9 else default

    def now(self) -> str:
        """The time of this change: a minute after the one before."""
        self.db.execute("UPDATE clock SET ticks = ticks + 1")
        return (TODAY + timedelta(minutes=self.value("SELECT ticks FROM clock"))).strftime("%Y-%m-%d %H:%M")

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """A rendered template. A note left by the page before is shown once."""
        if self.note:
            self.change("UPDATE session SET note = '' WHERE token = ?", self.token)
        html = templates().get_template(template).render(visit=self, site=self.site, user=self.user, **values)
        return HTMLResponse(html, status)

    def redirect(self, path: str, note: str = "") -> Response:
        """On to another page of this site after a change, with a note to show there."""
        if note and self.token:
            self.change("UPDATE session SET note = ? WHERE token = ?", note, self.token)
        return RedirectResponse(path, 303)

    def log_in(self, user: str, path: str) -> Response:
        """Begin a session for `user` and go on to `path`."""
        token = begin_session(self.db, self.site.name, user)
        response = RedirectResponse(path, 303)
        response.set_cookie(COOKIE, token, httponly=True, samesite="lax")
        return response

    def log_out(self, path: str) -> Response:
        """End the session."""
        self.change("DELETE FROM session WHERE token = ?", self.token)
        response = RedirectResponse(path, 303)
        response.delete_cookie(COOKIE)
        return response

    def link(self, **changes: Any) -> str:
        """This page's address with some parameters changed; None drops one."""
        values = {**self.query, **changes}
        query = urlencode({key: value for key, value in values.items() if value not in (None, "")})
        return f"{self.request.url.path}?{query}" if query else self.request.url.path


def begin_session(db: sqlite3.Connection, site: str, user: str) -> str:
    """A row for somebody who is logged in; its token."""
    number = db.execute("SELECT count(*) FROM session").fetchone()[0]
    token = f"{site}-{number + 1}"
    db.execute("INSERT INTO session (token, site, user) VALUES (?, ?, ?)", (token, site, user))
    return token


def route(path: str, endpoint: Endpoint, *, post: bool = False, login: str | None = None) -> Route:
    """A page at `path`. `post`: it takes a form. `login`: where to send who is not logged in."""

    async def answer(request: Request) -> Response:
        site, db = request.scope["site"], request.scope["db"]
        visit = Visit(site, db, request, await read_form(request) if request.method == "POST" else {})
        if login is not None and not visit.user:
            # after logging in a form cannot be sent again, so only a page is gone back to
            onward = f"?{urlencode({'next': request.url.path})}" if request.method == "GET" else ""
            return RedirectResponse(login + onward, 303)
        return endpoint(visit)

    return Route(path, answer, methods=["POST"] if post else ["GET"], name=endpoint.__name__)


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; one that is far too long is refused. Repeated names (checkboxes) are joined by commas."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413)
    fields: dict[str, str] = {}
    for key, value in parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=200):
        value = value.strip()[:MAX_FIELD_CHARS]
        fields[key] = f"{fields[key]},{value}" if key in fields else value
    return fields


@cache
def application(site: Site) -> Starlette:
    """The site as an ASGI application. Whoever calls it puts `site` and `db` into the scope."""
    return Starlette(routes=[Route("/static/{name}", style), *site.pages], exception_handlers={HTTPException: refuse})


async def style(request: Request) -> Response:
    """A style sheet."""
    text = styles().get(request.path_params["name"])
    if text is None:
        raise HTTPException(404)
    return Response(text, media_type="text/css", headers={"cache-control": "max-age=86400"})


@cache
def styles() -> dict[str, str]:
    """Every style sheet by the name it is served under: `style.css` for all sites, `SITE.css` for one."""
    shared = resources.files("oneiro_web.sites") / "style.css"
    own = {f"{name}.css": resources.files(f"oneiro_web.sites.{name}") / "style.css" for name in SITE_NAMES}
    return {name: file.read_text(encoding="utf-8") for name, file in {"style.css": shared, **own}.items()}


async def refuse(request: Request, error: Exception) -> Response:
    """What a person sees instead of a page that does not exist or a form that is refused."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    text = {404: "This page does not exist.", 405: "This address takes no such request."}.get(status, "Not accepted.")
    return Visit(request.scope["site"], request.scope["db"], request, {}).page("refused.html", status, text=text)


@cache
def templates() -> jinja2.Environment:
    """The HTML of all sites: `base.html` and others that they share, `SITE/page.html` of one."""
    own = {name: jinja2.PackageLoader(f"oneiro_web.sites.{name}", "html") for name in SITE_NAMES}
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("oneiro_web.sites", "html"), jinja2.PrefixLoader(own)]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
    )
    environment.filters["money"] = lambda cents: f"${cents / 100:,.2f}"
    environment.filters["day"] = lambda stamp: datetime.fromisoformat(stamp).strftime("%b %-d, %Y")
    return environment


def insert(db: sqlite3.Connection, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows with equal keys in equal order into a table, when content is made."""
    rows = list(rows)
    if rows:
        names = list(rows[0])
        sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        db.executemany(sql, [tuple(row.values()) for row in rows])
