"""Tasks that end on a page of the store."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.shopping.tasks.parts import (
    open_category,
    open_order,
    search_product,
    some_category,
    some_order,
    sort_by,
)
from oneiro_web.templates.base import Content, Slots, one_of, quoted
from oneiro_web.templates.script import Script, View
from oneiro_web.templates.table import ShowPage, by, click

ORDERS = {
    "by price, the most expensive first": ("Price", "Descending", "price", "desc"),
    "by price, the cheapest first": ("Price", "Ascending", "price", "asc"),
    "by rating, the best first": ("Rating", "Descending", "rating", "desc"),
    "by name, from A to Z": ("Product Name", "Ascending", "name", "asc"),
}


def category_and_order(content: Content, rng: np.random.Generator) -> Slots | None:
    place = some_category(content, rng)
    return place and {**place, "order": one_of(rng, list(ORDERS))}


def sorted_list(slots: Slots) -> str:
    _, _, column, direction = ORDERS[slots["order"]]
    query = f"product_list_order={column}&product_list_dir={direction}&price_from=&price_to="
    return f"/{slots['path']}.html?{query}"


def sort_list(see: View, slots: Slots) -> Script:
    yield from open_category(see, slots["trail"])
    column, direction, _, _ = ORDERS[slots["order"]]
    yield from sort_by(see, column, direction)


def brand_extreme(content: Content, rng: np.random.Generator) -> Slots | None:
    brand = one_of(rng, [row[0] for row in content.rows("SELECT DISTINCT brand FROM product ORDER BY brand")])
    extreme = one_of(rng, ("cheapest", "most expensive"))
    direction = "ASC" if extreme == "cheapest" else "DESC"
    named = " AND ".join(f"name LIKE {quoted(f'%{word}%')}" for word in brand.split())
    rows = content.rows(f"SELECT * FROM listed WHERE status = 'enabled' AND {named} ORDER BY final_price {direction}")
    if len(rows) < 4 or rows[0]["final_price"] == rows[1]["final_price"] or any(row["brand"] != brand for row in rows):
        return None
    return {"brand": brand, "extreme": extreme, "product": rows[0]["name"], "slug": rows[0]["slug"]}


def sort_brand(see: View, slots: Slots) -> Script:
    yield from search_product(see, slots["brand"])
    yield from sort_by(see, "Price", "Ascending" if slots["extreme"] == "cheapest" else "Descending")


TEMPLATES = (
    ShowPage(
        "shopping/show-sorted",
        "Show me everything in the category {category} of {department}, sorted {order}.",
        "Open {category} under {department} and sort the list {order}.",
        skills="navigate sort",
        draw=category_and_order,
        way=[sort_list],
        page=sorted_list,
    ),
    ShowPage(
        "shopping/open-extreme",
        "Open the page of the {extreme} product of the brand {brand}.",
        "I want to see the {extreme} thing that {brand} makes. Take me to its page.",
        skills="search sort compare navigate",
        held_out=True,
        draw=brand_extreme,
        way=[sort_brand, click("link", "{product}")],
        page="/{slug}.html",
    ),
    ShowPage(
        "shopping/open-order",
        "Show me the details of my order {number}.",
        "Open the page of order number {number}.",
        skills="account page navigate",
        draw=some_order,
        way=[by(open_order, "{number}")],
        page="/sales/order/view/order_id/{order}",
    ),
)
