"""What tasks at the store share: products and orders to ask about, and the ways to their pages."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.store.tasks import (
    SHOPPER_ID,
    money,
    some_product,
)
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.script import Script, View

OWN = f"customer_id = {SHOPPER_ID}"

IN_CATEGORY = "status = 'enabled' AND category_id IN (SELECT id FROM category WHERE path = ? OR path LIKE ? || '/%')"


def some_category(content: Content, rng: np.random.Generator) -> Slots | None:
    """A category below a department, whose name only it has, with what stands for it in intents and scripts."""
    row = content.pick(
        rng,
        "SELECT path, name FROM category c WHERE level > 1 AND (SELECT count(*) FROM category WHERE name = c.name) = 1 "
        "ORDER BY id",
    )
    if row is None:
        return None
    parts = row["path"].split("/")
    paths = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    trail = [content.value("SELECT name FROM category WHERE path = ?", path) for path in paths]
    return {"category": row["name"], "department": trail[0], "path": row["path"], "trail": trail}


def some_purchase(content: Content, rng: np.random.Generator, where: str = "1") -> Slots | None:
    """A product that can be bought, with chosen options and a quantity; nothing while the cart holds something."""
    row = some_product(content, rng, f"stock > 3 AND ({where})")
    if row is None or content.value(f"SELECT count(*) FROM cart_item WHERE {OWN}"):
        return None
    values: dict[str, list[str]] = {}
    sql = "SELECT name, value FROM product_option WHERE product_id = ? ORDER BY id"
    for option in content.rows(sql, row["id"]):
        values.setdefault(option["name"], []).append(option["value"])
    options = [[name, one_of(rng, values[name])] for name in values]
    return {
        "product": row["name"],
        "id": row["id"],
        "price": row["final_price"],
        "stock": row["stock"],
        "quantity": int(rng.integers(1, 4)),
        "options": options,
        "chosen": ", ".join(f"{name}: {value}" for name, value in options),
        "wish": "".join(f", {name.lower()} {value}" for name, value in options),
    }


def with_coupon(content: Content, rng: np.random.Generator, purchase: Slots | None) -> Slots | None:
    """A purchase and a code that may be used for it."""
    if purchase is None:
        return None
    row = content.pick(
        rng,
        "SELECT coupon FROM cart_rule WHERE active = 1 AND coupon != '' AND customer_group = 'All' AND to_date = '' "
        "AND (from_date = '' OR from_date < '2026-06-01') AND minimum <= ? ORDER BY id",
        purchase["price"] * purchase["quantity"],
    )
    return {**purchase, "coupon": row["coupon"]} if row else None


def some_order(content: Content, rng: np.random.Generator, where: str = "1") -> Slots | None:
    """An order of the shopper."""
    row = content.pick(rng, f"SELECT * FROM sales_order WHERE {OWN} AND ({where}) ORDER BY id")
    return {"number": row["number"], "order": row["id"], "total": money(row["total"])} if row else None


def search_product(see: View, name: str) -> Script:
    """To the results of a search for a product."""
    yield from see.fill("Search", name, enter=True)


def open_product(see: View, name: str) -> Script:
    """From any page to a product's, by its name."""
    yield from search_product(see, name)
    yield see.click("link", name)


def open_reviews(see: View, name: str) -> Script:
    """From any page to the reviews of a product."""
    yield from open_product(see, name)
    yield see.click("link", "See all reviews")


def open_category(see: View, trail: list[str]) -> Script:
    """From any page to a category's, through those above it."""
    for name in trail:
        yield see.click("link", name)


def open_orders(see: View) -> Script:
    """From any page to the list of orders."""
    yield see.click("link", "My Account")
    yield see.click("link", "My Orders")


def turn_all_pages(see: View) -> Script:
    """To the last page of a list."""
    while see.has("link", "Next"):
        yield see.click("link", "Next")


def open_order(see: View, number: str) -> Script:
    """From any page to an order's."""
    yield from open_orders(see)
    yield from see.turn_pages_to("cell", number)
    yield see.click("link", "View Order", within=number)


def sort_by(see: View, column: str, direction: str) -> Script:
    """Sort a list of products."""
    yield see.select("Sort By", column)
    yield see.select("Direction", direction)
    yield see.click("button", "Apply")


def put_in_cart(see: View, slots: Slots) -> Script:
    """From any page: a product with its options and quantity into the cart."""
    yield from open_product(see, slots["product"])
    for name, value in slots["options"]:
        yield see.select(name, value)
    if slots["quantity"] != 1:
        yield from see.fill("Qty", str(slots["quantity"]))
    yield see.click("button", "Add to Cart")
