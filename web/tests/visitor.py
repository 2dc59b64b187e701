"""Somebody who looks at a site in process: pages, forms, and what a form changed in the database."""

from __future__ import annotations

import hashlib
import re
from html import unescape
from urllib.parse import urlencode, urljoin

from oneiro_web.sites import SITES, Reply, Web
from oneiro_web.sites.base import BOOKKEEPING

HOSTILE = (
    "' OR 1=1 --",
    '"><script>alert(1)</script>',
    "9" * 40,
    "-1",
    "%",
    "\x00",
    "💥" * 50,
    "../../etc/passwd",
    "{{ 7 * 7 }}",
)


class Visitor:
    """A browser's bare bones: one site, one session."""

    def __init__(self, site: str, content: int = 0, logged_in: bool = True) -> None:
        self.site, self.web = SITES[site], Web(content)
        self.cookies = self.web.sign_in(self.site) if logged_in else {}
        self.db = self.web.database(self.site)

    def get(self, path: str, /, **query: object) -> Reply:
        """The answer to a link."""
        address = urljoin(self.site.url, path) + (f"?{urlencode(query)}" if query else "")
        return self.web.request("GET", address, self._headers())

    def post(self, path: str, /, **form: object) -> Reply:
        """The answer to a form."""
        headers = {**self._headers(), "content-type": "application/x-www-form-urlencoded"}
        return self.web.request("POST", urljoin(self.site.url, path), headers, urlencode(form, doseq=True).encode())

    def _headers(self) -> dict[str, str]:
        return {"cookie": "; ".join(f"{key}={value}" for key, value in self.cookies.items())}

    def text(self, path: str, /, **query: object) -> str:
        """A page that must be there."""
        reply = self.get(path, **query)
        assert reply.status == 200, (path, reply.status)
        return reply.body.decode()

    def follow(self, reply: Reply) -> str:
        """The page a change leads to."""
        assert reply.status == 303, reply.body.decode()[:2000]
        return self.text(reply.header("location"))

    def value(self, sql: str, *values: object) -> object:
        """One value of the database."""
        row = self.db.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def changes(self, act: object) -> dict[str, tuple[int, int]]:
        """Rows gone and rows new by table, while `act` runs."""
        before = self.rows()
        act()  # type: ignore[operator]
        after = self.rows()
        found = {table: (len(before[table] - after[table]), len(after[table] - before[table])) for table in before}
        return {table: count for table, count in found.items() if count != (0, 0)}

    def rows(self) -> dict[str, set[tuple[object, ...]]]:
        """Every row of every table that tasks are about."""
        names = [row[0] for row in self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: {tuple(row) for row in self.db.execute(f"SELECT * FROM {name}")}
            for name in names
            if name not in BOOKKEEPING
        }


def fingerprint(site: str, content: int) -> str:
    """A hash of everything in a site's database."""
    dump = "\n".join(Web(content).database(SITES[site]).iterdump())
    return hashlib.sha256(dump.encode()).hexdigest()


def links(page: str) -> list[str]:
    """Where a page leads."""
    return [unescape(link) for link in re.findall(r'<a [^>]*?href="([^"]+)"', page)]


def crawl(visitor: Visitor, most: int) -> int:
    """Follow links from home, breadth first, one page of each pattern of address several times; how many answered."""
    queue, seen, patterns, answered = [visitor.site.home], {visitor.site.home}, {}, 0
    while queue and answered < most:
        path = queue.pop(0)
        page = visitor.text(path)
        answered += 1
        for link in links(page):
            address = urljoin(visitor.site.url, link)
            inside = address.removeprefix(f"http://{visitor.site.host}")
            pattern = re.sub(r"\d+", "0", inside)
            if inside != address and inside not in seen and patterns.get(pattern, 0) < 3:
                seen.add(inside)
                patterns[pattern] = patterns.get(pattern, 0) + 1
                queue.append(inside)
    return answered
