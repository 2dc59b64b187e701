"""What tasks in the back office share: rows to ask about, and the ways to their pages."""

from __future__ import annotations

import sqlite3

import numpy as np

from oneiro_web.sites.store.tasks import (
    month_slots,
)
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.script import Script, View


def some_order(content: Content, rng: np.random.Generator, where: str = "1") -> Slots | None:
    """An order of anybody."""
    row = content.pick(rng, f"SELECT id, number FROM sales_order WHERE {where} ORDER BY id")
    return {"number": row["number"], "order": row["id"]} if row else None


def some_customer(content: Content, rng: np.random.Generator, where: str = "1") -> sqlite3.Row | None:
    """A customer, whose name no other name holds."""
    row = content.pick(
        rng, f"SELECT *, first_name || ' ' || last_name AS name FROM customer c WHERE {where} ORDER BY id"
    )
    return row if row and found_once(content, row["name"]) else None


def found_once(content: Content, customer: str) -> bool:
    """Whether a filter by this name finds one customer only."""
    sql = "SELECT count(*) FROM customer WHERE first_name || ' ' || last_name LIKE '%' || ? || '%'"
    return bool(content.value(sql, customer) == 1)


def some_review(content: Content, rng: np.random.Generator, where: str) -> Slots | None:
    """A review that its author and its product tell apart from all others."""
    row = content.pick(
        rng,
        "SELECT r.id, r.nickname, r.title, r.product_id, p.name AS product FROM review r JOIN product p "
        f"ON p.id = r.product_id WHERE {where} ORDER BY r.id",
    )
    sql = "SELECT count(*) FROM review WHERE product_id = ? AND nickname LIKE '%' || ? || '%'"
    return dict(row) if row and content.value(sql, row["product_id"], row["nickname"]) == 1 else None


def some_month(content: Content, rng: np.random.Generator) -> Slots:
    """A month of the last two years that is over."""
    rows = content.rows(
        "SELECT DISTINCT substr(created_at, 1, 7) FROM sales_order WHERE created_at < '2026-06' ORDER BY 1"
    )
    return month_slots(one_of(rng, rows)[0])


def filtered(see: View, grid: str, **texts: str) -> Script:
    """From any page to a grid with filters; underscores in their names stand for blanks."""
    yield see.click("link", grid)
    for name, text in texts.items():
        yield see.type(name.replace("_", " "), text)
    yield see.click("button", "Apply Filters")


def open_order(see: View, number: str) -> Script:
    """From any page to an order's."""
    yield see.click("link", "Orders")
    yield see.type("ID", number, enter=True)
    yield see.click("link", "View", within=number)


def open_product(see: View, name: str) -> Script:
    """From any page to a product's form."""
    yield see.click("link", "Products")
    yield see.type("Name", name, enter=True)
    yield see.click("link", "Edit", within=name)


def open_customer(see: View, name: str) -> Script:
    """From any page to a customer's."""
    yield see.click("link", "Customers")
    yield see.type("Name", name, enter=True)
    yield see.click("link", "Edit", within=name)


def open_review(see: View, slots: Slots) -> Script:
    """From any page to a review, by its author and its product."""
    yield from filtered(see, "Reviews", Nickname=slots["nickname"], Product=slots["product"])
    yield see.click("link", "Edit", within=slots["nickname"])


def show_report(see: View, report: str, slots: Slots, period: str) -> Script:
    """From any page to a report over a range of days."""
    yield see.click("link", report)
    yield see.select("Period", period)
    yield see.type("From", slots["from"])
    yield see.type("To", slots["to"])
    yield see.click("button", "Show Report")
