"""Tasks that end on a page of the store."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.shopping.tasks.parts import (
    Shopping,
    open_category,
    open_order,
    search_product,
    some_category,
    some_order,
    sort_by,
)
from oneiro_web.templates.base import Content, Slots, one_of, quoted
from oneiro_web.templates.script import Script, View

ORDERS = {
    "by price, the most expensive first": ("Price", "Descending", "price", "desc"),
    "by price, the cheapest first": ("Price", "Ascending", "price", "asc"),
    "by rating, the best first": ("Rating", "Descending", "rating", "desc"),
    "by name, from A to Z": ("Product Name", "Ascending", "name", "asc"),
}


class ShowSorted(Shopping):
    name = "shopping/show-sorted"
    intents = (
        "Show me everything in the category {category} of {department}, sorted {order}.",
        "Open {category} under {department} and sort the list {order}.",
    )
    skills = ("navigate", "sort")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place = some_category(content, rng)
        return place and {**place, "order": one_of(rng, list(ORDERS))}

    def url(self, slots: Slots) -> str:
        _, _, column, direction = ORDERS[slots["order"]]
        query = f"product_list_order={column}&product_list_dir={direction}&price_from=&price_to="
        return f"/{slots['path']}.html?{query}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_category(see, slots["trail"])
        column, direction, _, _ = ORDERS[slots["order"]]
        yield from sort_by(see, column, direction)
        yield see.stop()


class OpenExtreme(Shopping):
    name = "shopping/open-extreme"
    intents = (
        "Open the page of the {extreme} product of the brand {brand}.",
        "I want to see the {extreme} thing that {brand} makes. Take me to its page.",
    )
    skills = ("search", "sort", "compare", "navigate")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        brand = one_of(rng, [row[0] for row in content.rows("SELECT DISTINCT brand FROM product ORDER BY brand")])
        extreme = one_of(rng, ("cheapest", "most expensive"))
        direction = "ASC" if extreme == "cheapest" else "DESC"
        found = " AND ".join(f"name LIKE {quoted(f'%{word}%')}" for word in brand.split())
        sql = f"SELECT * FROM listed WHERE status = 'enabled' AND {found} ORDER BY final_price {direction}"
        rows = content.rows(sql)
        if (
            len(rows) < 4
            or rows[0]["final_price"] == rows[1]["final_price"]
            or any(row["brand"] != brand for row in rows)
        ):
            return None
        return {"brand": brand, "extreme": extreme, "product": rows[0]["name"], "slug": rows[0]["slug"]}

    def url(self, slots: Slots) -> str:
        return f"/{slots['slug']}.html"

    def script(self, see: View, slots: Slots) -> Script:
        yield from search_product(see, slots["brand"])
        yield from sort_by(see, "Price", "Ascending" if slots["extreme"] == "cheapest" else "Descending")
        yield see.click("link", slots["product"])
        yield see.stop()


class OpenOrder(Shopping):
    name = "shopping/open-order"
    intents = ("Show me the details of my order {number}.", "Open the page of order number {number}.")
    skills = ("account", "page", "navigate")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_order(content, rng)

    def url(self, slots: Slots) -> str:
        return f"/sales/order/view/order_id/{slots['order']}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.stop()


TEMPLATES = (ShowSorted, OpenExtreme, OpenOrder)
