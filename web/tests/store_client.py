"""Somebody who visits the store or its back office in process, and which rows that changes."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlencode

from oneiro_web.sites import SITES, Web
from oneiro_web.sites.base import BOOKKEEPING
from oneiro_web.sites.web import Reply

SHOP, ADMIN = SITES["shopping"], SITES["shopping_admin"]
ADDRESS = {
    "first_name": "Ann", "last_name": "Lee", "street": "1 New Road", "city": "Ames", "region": "Iowa",
    "postcode": "50010", "country": "United States", "phone": "515-555-0100",
}  # fmt: skip
DELIVERY = {"shipping_method": "Standard Delivery", "payment_method": "Check / Money Order"}


class Client:
    """Somebody with cookies at one site of a web; the site's own user unless told otherwise."""

    def __init__(self, site=SHOP, web=None, *, signed_in=True):
        self.web, self.site = web or Web(0), site
        self.cookies = self.web.sign_in(site) if signed_in else {}
        self.db = self.web.database(site)

    def send(self, method, path, form=None) -> Reply:
        headers = {"cookie": "; ".join(f"{key}={value}" for key, value in self.cookies.items())}
        reply = self.web.request(method, f"http://{self.site.host}{path}", headers, urlencode(form or {}).encode())
        for key, value in reply.headers:
            if key == "set-cookie":
                name, _, text = value.partition(";")[0].partition("=")
                self.cookies[name] = text.strip('"')
        return reply

    def get(self, path) -> str:
        """The text of a page that is there."""
        reply = self.send("GET", path)
        if reply.status == 303:
            return self.get(reply.header("location"))
        assert reply.status == 200, (reply.status, path)
        return reply.body.decode()

    def post(self, path, status=303, /, **form) -> str:
        """Send a form and return the page that it ends at."""
        reply = self.send("POST", path, form)
        assert reply.status == status, (reply.status, reply.body.decode()[-2000:])
        return self.get(reply.header("location")) if status == 303 else reply.body.decode()

    def one(self, sql, *values):
        return self.db.execute(sql, values).fetchone()

    def value(self, sql, *values):
        row = self.one(sql, *values)
        return row[0] if row else None


def content(db) -> dict[tuple[str, int], tuple]:
    """Every row by table and rowid, without the tables that no task is about."""
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        (table, row[0]): tuple(row)[1:]
        for table in tables
        if table not in BOOKKEEPING
        for row in db.execute(f"SELECT rowid, * FROM {table}")
    }


class Changes:
    """Which rows a block of code added, removed and changed: tables with counts."""

    def __init__(self, client):
        self.db = client.db

    def __enter__(self):
        self.before = content(self.db)
        return self

    def __exit__(self, *error):
        after = content(self.db)
        self.added = Counter(table for table, _ in after.keys() - self.before.keys())
        self.removed = Counter(table for table, _ in self.before.keys() - after.keys())
        both = after.keys() & self.before.keys()
        self.changed = Counter(key[0] for key in both if after[key] != self.before[key])

    def are(self, added=None, changed=None, removed=None):
        assert (self.added, self.changed, self.removed) == (added or {}, changed or {}, removed or {})


def plain_product(client, stock=5):
    """A product without options that can be bought."""
    return client.one(
        "SELECT * FROM listed WHERE status = 'enabled' AND stock >= ?"
        " AND id NOT IN (SELECT product_id FROM product_option) ORDER BY id LIMIT 1",
        stock,
    )
