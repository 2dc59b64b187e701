"""What the tasks on the store and on its back office share."""

from __future__ import annotations

import sqlite3
from calendar import monthrange
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from oneiro_web.actions import Action, Kind
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, quoted
from oneiro_web.templates.script import Lost, View, walk

SHOPPER_ID = 1
"""The customer who is logged in at the store."""


def money(cents: int) -> str:
    """A sum as the pages show it."""
    return f"${cents / 100:,.2f}"


def day(stamp: str) -> str:
    """A day as the store shows it."""
    return datetime.fromisoformat(stamp).strftime("%b %-d, %Y")


def month_slots(month: str) -> Slots:
    """`2026-02` in words, with its first and its last day."""
    year, number = map(int, month.split("-"))
    return {
        "month": datetime(year, number, 1).strftime("%B %Y"),
        "from": f"{month}-01",
        "to": f"{month}-{monthrange(year, number)[1]}",
    }


def some_product(content: Content, rng: np.random.Generator, where: str = "1") -> sqlite3.Row | None:
    """A product that the store shows."""
    row = content.pick(rng, f"SELECT id FROM listed WHERE status = 'enabled' AND ({where}) ORDER BY id")
    return row and content.rows("SELECT * FROM listed WHERE id = ?", row["id"])[0]


def last_id(content: Content, table: str) -> int:
    """The highest id of a table; new rows have higher ones."""
    return int(content.value(f"SELECT coalesce(max(id), 0) FROM {table}"))


def row_of(content: Content, table: str, number: int, columns: Sequence[str], **new: Any) -> dict[str, Any]:
    """Some columns of a row as they must be at the end: as they are, but for the new values."""
    row = content.rows(f"SELECT {', '.join(columns)} FROM {table} WHERE id = ?", number)[0]
    return {**dict(row), **new}


def listed(values: Sequence[Any]) -> str:
    """Values as an SQL list."""
    return ", ".join(quoted(value) if isinstance(value, str) else str(value) for value in values)


def click_after(see: View, text: str, role: str, name: str) -> Action:
    """Click the first such node below a text, for lists whose items are no nodes of their own."""
    if see.page is None:
        raise Lost("no page was observed yet")
    seen = False
    for node in walk(see.page.root):
        if seen and node.id and node.role == role and node.name == name:
            return Action(Kind.CLICK, node.id)
        seen = seen or (text in node.name and node.role in ("StaticText", "link", "heading", "cell"))
    raise Lost(f"{see.page.url}: no {role} {name!r} after {text!r}")


def returned(content: Content, order: int) -> list[list[int]]:
    """What the products of an order have in stock when its items are back."""
    rows = content.rows(
        "SELECT p.id, p.stock + sum(i.quantity) FROM order_item i JOIN product p ON p.id = i.product_id "
        "WHERE i.order_id = ? GROUP BY p.id ORDER BY p.id",
        order,
    )
    return [list(row) for row in rows]


def canceled(site: str, slots: Slots) -> list[Check]:
    """An order is canceled and its items are back in stock."""
    products = listed([product for product, _ in slots["stocks"]])
    stocks = [(product, stock) for product, stock in slots["stocks"]]
    return [
        holds(site, f"SELECT status FROM sales_order WHERE id = {slots['order']}", ("canceled",)),
        holds(site, f"SELECT id, stock FROM product WHERE id IN ({products})", *stocks),
    ]


def canceling(slots: Slots) -> dict[str, str | None]:
    """What canceling an order changes."""
    return {
        "sales_order(status)": f"id = {slots['order']}",
        "order_comment": f"order_id = {slots['order']} "
        "AND text IN ('Canceled by the customer.', 'Canceled by the store.')",
        "product(stock)": f"id IN ({listed([product for product, _ in slots['stocks']])})",
    }
