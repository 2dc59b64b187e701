"""One episode's web: its own copy of every database, and requests answered in process.

    web = Web(content=3)
    reply = web.request("GET", "http://onestopmarket.com/")

A copy is made when a site is first asked for, in about a millisecond. Pages that do not write are remembered over all
episodes (`oneiro_web.sites.replies`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import SplitResult, unquote, urlsplit

from starlette.types import Message, Scope

from oneiro_web.sites import content_cache
from oneiro_web.sites.base import BOOKKEEPING, COOKIE, SHARED_SCHEMA, Site, application, begin_session
from oneiro_web.sites.replies import Past, Replies


@dataclass(frozen=True)
class Reply:
    """An answer of a site."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str:
        """The first header of this (lower-case) name, or ''."""
        return next((value for key, value in self.headers if key == name), "")


NOWHERE = Reply(
    403, (("content-type", "text/html; charset=utf-8"),), b"<title>Blocked</title><p>This address is blocked."
)


REPLIES: Replies[Reply] = Replies(2048)
"""About 10 kB each."""
READ_HEADERS = ("cookie", "content-type", "content-length")
"""The others never reach a site, so that its pages cannot depend on them."""


class Web:
    """The sites of one episode. Nothing written here is seen by another."""

    at_once: int = 1
    """Requests that may be answered at the same time: a database takes one."""

    def __init__(self, content: int = 0) -> None:
        self.content = content
        self.databases: dict[str, sqlite3.Connection] = {}
        self.pasts: dict[str, Past] = {}

    def database(self, site: Site) -> sqlite3.Connection:
        """This episode's copy of the site's database."""
        store = site.store.name
        if store not in self.databases:
            copy = connect()
            original(site.name, self.content).backup(copy)
            self.databases[store] = copy
            self.pasts[store] = Past(copy, store, self.content)
        return self.databases[store]

    def sign_in(self, site: Site) -> dict[str, str]:
        """The cookies of the site's own user, logged in."""
        if not site.user:
            return {}
        db, past = self.database(site), self.pasts[site.store.name]
        past.look()
        token = begin_session(db, site.name, site.user)
        past.wrote("sign in", site.name)
        return {COOKIE: token}

    def request(self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        """The answer of the site that `url` names by its host; no other host is reached from here."""
        parts = urlsplit(url)
        site = site_at(parts.hostname or "") if parts.scheme == "http" else None
        if site is None:
            return NOWHERE
        self.database(site)
        past = self.pasts[site.store.name]
        read = tuple([(key, value) for key, value in (headers or {}).items() if key in READ_HEADERS])
        state = past.look()
        if parts.path.startswith("/static/"):  # a style sheet depends on no database and no visitor
            state, read = b"static", ()
        known = REPLIES.get((site, state, url, read)) if method == "GET" and state else None
        if known is not None:
            return known
        reply = self.answer(site, method, url, parts, read, body)
        if not past.wrote(site.name, method, url, read, body) and method == "GET" and state:
            REPLIES.keep((site, state, url, read), reply)
        return reply

    def answer(
        self, site: Site, method: str, url: str, parts: SplitResult, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> Reply:
        """What the site's application says."""
        scope: Scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(parts.path) or "/", "raw_path": (parts.path or "/").encode("ascii", "replace"),
            "query_string": parts.query.encode("ascii", "replace"), "root_path": "",
            "headers": [(b"host", parts.netloc.encode()), *[(key.encode(), value.encode()) for key, value in headers]],
            "server": (parts.hostname, 80), "client": None,
            **self.scope(site),
        }  # fmt: skip
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        running = application(site)(scope, receive, send)
        try:
            running.send(None)  # pages never wait, so one push runs them to the end, without an event loop
        except StopIteration:
            pass
        else:
            running.close()
            raise RuntimeError(f"{url}: a page waited for something")
        start = sent[0]
        headers_sent = tuple((key.decode(), value.decode("latin-1")) for key, value in start["headers"])
        return Reply(start["status"], headers_sent, b"".join(message.get("body", b"") for message in sent[1:]))

    def scope(self, site: Site) -> dict[str, object]:
        """What a site's application finds in its ASGI scope."""
        return {"site": site, "db": self.database(site)}

    def close(self) -> None:
        """Forget the databases."""
        for database in self.databases.values():
            database.close()
        self.databases.clear()
        self.pasts.clear()


def connect() -> sqlite3.Connection:
    """An empty database in memory. A server's thread may use it too, one request at a time."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=512)
    db.row_factory = sqlite3.Row
    return db


@lru_cache(maxsize=256)  # half a megabyte each; others are read again from the disk
def original(site: str, content: int) -> sqlite3.Connection:
    """A site's database as every episode with this content begins."""
    from oneiro_web.sites import SITES

    store = SITES[site].store
    shared = next(known for known in SITES.values() if known.store is store)
    if shared.name != site:
        return original(shared.name, content)
    db = connect()
    known = content_cache.load(store.name, content)
    if known is not None:
        db.deserialize(known)
        return db
    db.executescript(SHARED_SCHEMA + store.schema)
    db.execute("BEGIN")
    store.fill(db, content)
    db.execute("COMMIT")
    note_writes(db)
    content_cache.save(store.name, content, db.serialize())
    return db


def note_writes(db: sqlite3.Connection) -> None:
    """From now on `touched` names each table that is written to, so that a guard need not compare the others."""
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        if table not in BOOKKEEPING:
            for event in ("INSERT", "UPDATE", "DELETE"):
                # Not OR IGNORE: inside a trigger the statement that fired it decides on conflicts.
                known = f"SELECT 1 FROM touched WHERE name = '{table}'"
                note = f"INSERT INTO touched SELECT '{table}' WHERE NOT EXISTS ({known})"
                db.execute(f'CREATE TRIGGER "{table} {event}" AFTER {event} ON "{table}" BEGIN {note}; END')


def site_at(host: str) -> Site | None:
    """The site of a host: its public one, or `NAME.localhost` behind `oneiro web serve`."""
    from oneiro_web.sites import HOSTS

    return HOSTS.get(host)
