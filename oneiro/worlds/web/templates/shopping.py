"""Tasks at the store, for the customer who is logged in."""

from __future__ import annotations

import numpy as np

from oneiro.worlds.web.sites.store_orders import EXPRESS, PAYMENTS, SHIPPING, STANDARD
from oneiro.worlds.web.tasks import Check
from oneiro.worlds.web.templates.base import Content, Slots, Template, holds, quoted, says
from oneiro.worlds.web.templates.script import Script, View
from oneiro.worlds.web.templates.store import (
    SHOPPER_ID,
    click_after,
    day,
    holds_row,
    last_id,
    listed,
    money,
    month_slots,
    row_of,
    some_product,
)
from oneiro.worlds.web.templates.words import one_of
from oneiro.worlds.web.templates.words_store import ADDRESSES, MESSAGES, NICKNAMES, REVIEWS

OWN = f"customer_id = {SHOPPER_ID}"
ADDRESS_COLUMNS = ("first_name", "last_name", "street", "city", "region", "postcode", "country", "phone")


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


IN_CATEGORY = "status = 'enabled' AND category_id IN (SELECT id FROM category WHERE path = ? OR path LIKE ? || '/%')"


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


def some_order(content: Content, rng: np.random.Generator, where: str = "1") -> Slots | None:
    """An order of the shopper."""
    row = content.pick(rng, f"SELECT * FROM sales_order WHERE {OWN} AND ({where}) ORDER BY id")
    return {"number": row["number"], "order": row["id"], "total": money(row["total"])} if row else None


class _Shopping(Template):
    site = "shopping"


# Questions -----------------------------------------------------------------------------------------------------------


class ProductPrice(_Shopping):
    name = "shopping/product-price"
    intents = (
        'How much does the "{product}" cost at the moment?',
        'I am thinking about the "{product}". What is its price today?',
    )
    skills = ("search", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng)
        return {"product": row["name"], "price": money(row["final_price"])} if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return [says("money", slots["price"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from search_product(see, slots["product"])
        yield see.stop(slots["price"])


class ProductAttribute(_Shopping):
    name = "shopping/product-attribute"
    intents = (
        'What does the page of the "{product}" give as its {attribute}?',
        'Look up the {attribute} of the "{product}".',
    )
    skills = ("search", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT p.name AS product, lower(a.name) AS attribute, max(a.value) AS value FROM product_attribute a "
            "JOIN product p ON p.id = a.product_id WHERE p.status = 'enabled' AND a.name != 'Brand' "
            "GROUP BY p.id, a.name HAVING count(*) = 1 ORDER BY p.id, a.name",
        )
        return dict(row) if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["value"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["product"])
        yield see.stop(slots["value"])


class CategoryExtreme(_Shopping):
    name = "shopping/category-extreme"
    intents = (
        'What is the {extreme} product in the category {category} of {department}? Give its full name.',
        'Under {department}, look at {category} and give the full name of the {extreme} product there.',
    )  # fmt: skip
    skills = ("navigate", "sort", "compare")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place = some_category(content, rng)
        if place is None:
            return None
        extreme = one_of(rng, ("cheapest", "most expensive"))
        direction = "ASC" if extreme == "cheapest" else "DESC"
        sql = f"SELECT name, final_price FROM listed WHERE {IN_CATEGORY} ORDER BY final_price {direction} LIMIT 2"
        rows = content.rows(sql, place["path"], place["path"])
        if len(rows) < 2 or rows[0]["final_price"] == rows[1]["final_price"]:
            return None
        return {**place, "extreme": extreme, "product": rows[0]["name"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["product"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_category(see, slots["trail"])
        yield from sort_by(see, "Price", "Ascending" if slots["extreme"] == "cheapest" else "Descending")
        yield see.stop(slots["product"])


class PriceRangeCount(_Shopping):
    name = "shopping/price-range-count"
    intents = (
        "How many products in the category {category} of {department} cost between {low} and {high}?",
        "Count what I could buy for {low} to {high} under {department}, {category}.",
    )
    skills = ("navigate", "filter", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place = some_category(content, rng)
        if place is None:
            return None
        sql = f"SELECT final_price FROM listed WHERE {IN_CATEGORY} ORDER BY final_price"
        prices = [row[0] for row in content.rows(sql, place["path"], place["path"])]
        if len(prices) < 5:
            return None
        first = int(rng.integers(1, len(prices) - 2))
        last = int(rng.integers(first + 1, len(prices) - 1))
        low, high = prices[first] // 500 * 5, prices[last] // 500 * 5 + 5
        count = sum(low * 100 <= price <= high * 100 for price in prices)
        return None if count == len(prices) else {**place, "low": f"${low}", "high": f"${high}", "count": count}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("number", slots["count"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_category(see, slots["trail"])
        yield see.type("Price from", slots["low"][1:])
        yield see.type("to", slots["high"][1:], enter=True)
        yield see.stop(str(slots["count"]))


class BrandCount(_Shopping):
    name = "shopping/brand-count"
    intents = (
        "How many products of the brand {brand} do you sell for at most {high}?",
        "Count the things made by {brand} that cost {high} or less.",
    )
    skills = ("filter", "form", "count")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        brand = one_of(rng, [row[0] for row in content.rows("SELECT DISTINCT brand FROM product ORDER BY brand")])
        sql = "SELECT final_price, brand FROM listed WHERE status = 'enabled' AND brand LIKE '%' || ? || '%' ORDER BY 1"
        rows = content.rows(sql, brand)
        if len(rows) < 5 or any(row["brand"] != brand for row in rows):
            return None
        high = rows[int(rng.integers(1, len(rows) - 1))]["final_price"] // 500 * 5 + 5
        count = sum(row["final_price"] <= high * 100 for row in rows)
        return None if count == len(rows) else {"brand": brand, "high": f"${high}", "count": count}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("number", slots["count"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Advanced Search")
        yield see.type("Brand", slots["brand"])
        yield see.type("Price to", slots["high"][1:], enter=True)
        yield see.stop(str(slots["count"]))


class StarCount(_Shopping):
    name = "shopping/star-count"
    intents = (
        'How many customers gave exactly {stars} stars to the "{product}"?',
        'Count the {stars}-star reviews of the "{product}".',
    )
    skills = ("search", "page", "read", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng, "reviews > 4")
        if row is None:
            return None
        stars = int(rng.integers(2, 6))
        sql = "SELECT count(*) FROM review WHERE product_id = ? AND status = 'approved' AND stars = ?"
        count = content.value(sql, row["id"], stars)
        return {"product": row["name"], "stars": stars, "count": count} if count > 1 else None

    def checks(self, slots: Slots) -> list[Check]:
        return [says("number", slots["count"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_reviews(see, slots["product"])
        yield from turn_all_pages(see)
        yield see.stop(str(slots["count"]))


class Critics(_Shopping):
    name = "shopping/critics"
    intents = (
        'Which reviewers gave the "{product}" fewer than three stars? List their nicknames.',
        'List the nicknames of everybody who rated the "{product}" with one or two stars.',
    )
    skills = ("search", "page", "read", "compare")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        bad = "SELECT nickname FROM review WHERE product_id = {} AND status = 'approved' AND stars < 3 ORDER BY id"
        row = some_product(content, rng, f"reviews > 3 AND (SELECT count(*) FROM ({bad.format('listed.id')})) > 1")
        names = [found[0] for found in content.rows(bad.format(row["id"]))] if row else []
        if row is None or len({name.lower() for name in names}) < len(names):
            return None
        return {"product": row["name"], "names": names}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("names", tuple(slots["names"]))]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_reviews(see, slots["product"])
        yield from turn_all_pages(see)
        yield see.stop(", ".join(slots["names"]))


class ReviewDate(_Shopping):
    name = "shopping/review-date"
    intents = (
        'On which day did {nickname} review the "{product}"?',
        'Give the date of the review that {nickname} wrote about the "{product}".',
    )
    skills = ("search", "page", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT r.nickname, max(r.created_at) AS date, p.name FROM review r JOIN product p ON p.id = r.product_id "
            "WHERE r.status = 'approved' AND p.status = 'enabled' GROUP BY p.id, r.nickname HAVING count(*) = 1 "
            "ORDER BY r.id",
        )
        return {"product": row["name"], "nickname": row["nickname"], "date": day(row["date"])} if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return [says("date", slots["date"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_reviews(see, slots["product"])
        yield from see.turn_pages_to("StaticText", f"Review by {slots['nickname']} on {slots['date']}")
        yield see.stop(slots["date"])


class OrderTotal(_Shopping):
    name = "shopping/order-total"
    intents = ("What was the total of my order {number}?", "How much did I pay in all for order number {number}?")
    skills = ("account", "page", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_order(content, rng, "status != 'canceled'")

    def checks(self, slots: Slots) -> list[Check]:
        return [says("money", slots["total"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_orders(see)
        yield from see.turn_pages_to("cell", slots["number"])
        yield see.stop(slots["total"])


class OrdersByStatus(_Shopping):
    name = "shopping/orders-by-status"
    intents = (
        "Which of my orders are {status}? List all their order numbers.",
        "List the order numbers of all orders of mine that have the status {status}.",
    )
    skills = ("account", "page", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        status = one_of(rng, ("canceled", "pending", "processing"))
        rows = content.rows(f"SELECT number FROM sales_order WHERE {OWN} AND status = ? ORDER BY id", status)
        return {"status": status, "numbers": [row["number"] for row in rows]} if 1 < len(rows) < 9 else None

    def checks(self, slots: Slots) -> list[Check]:
        return [says("names", tuple(slots["numbers"]))]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_orders(see)
        yield from turn_all_pages(see)
        yield see.stop(", ".join(slots["numbers"]))


class DearestOrder(_Shopping):
    name = "shopping/dearest-order"
    intents = (
        "On which day did I place my most expensive order of {year}? Canceled orders count as well.",
        "Of all my orders in {year}, canceled or not, which one cost most? Give its date.",
    )
    skills = ("account", "page", "compare")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        year = one_of(rng, ("2024", "2025", "2026"))
        sql = f"SELECT created_at, total FROM sales_order WHERE {OWN} AND created_at LIKE ? ORDER BY total DESC LIMIT 2"
        rows = content.rows(sql, f"{year}-%")
        if len(rows) < 2 or rows[0]["total"] == rows[1]["total"]:
            return None
        return {"year": year, "date": day(rows[0]["created_at"])}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("date", slots["date"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_orders(see)
        yield from turn_all_pages(see)
        yield see.stop(slots["date"])


class SpentInMonth(_Shopping):
    name = "shopping/spent-in-month"
    intents = (
        "How much did I spend here in {month}, leaving canceled orders out?",
        "Add up my orders of {month} that were not canceled. What is the sum?",
    )
    skills = ("account", "page", "count", "compare")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            f"SELECT substr(created_at, 1, 7) AS month, sum(total) AS total FROM sales_order WHERE {OWN} AND "
            "status != 'canceled' GROUP BY 1 HAVING count(*) BETWEEN 2 AND 5 ORDER BY 1",
        )
        return {**month_slots(row["month"]), "sum": money(row["total"])} if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return [says("money", slots["sum"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_orders(see)
        yield from turn_all_pages(see)
        yield see.stop(slots["sum"])


class Tracking(_Shopping):
    name = "shopping/tracking"
    intents = ("What is the tracking number of my order {number}?", "Find the tracking number for order {number}.")
    skills = ("account", "page", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        order = some_order(content, rng, "(SELECT count(*) FROM shipment WHERE order_id = sales_order.id) = 1")
        return order and {
            **order,
            "tracking": content.value("SELECT tracking FROM shipment WHERE order_id = ?", order["order"]),
        }

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["tracking"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.stop(slots["tracking"])


# Pages ---------------------------------------------------------------------------------------------------------------

ORDERS = {
    "by price, the most expensive first": ("Price", "Descending", "price", "desc"),
    "by price, the cheapest first": ("Price", "Ascending", "price", "asc"),
    "by rating, the best first": ("Rating", "Descending", "rating", "desc"),
    "by name, from A to Z": ("Product Name", "Ascending", "name", "asc"),
}


class ShowSorted(_Shopping):
    name = "shopping/show-sorted"
    intents = (
        "Show me everything in the category {category} of {department}, sorted {order}.",
        "Open {category} under {department} and sort the list {order}.",
    )
    skills = ("navigate", "sort")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place = some_category(content, rng)
        return place and {**place, "order": one_of(rng, list(ORDERS))}

    def checks(self, slots: Slots) -> list[Check]:
        return []

    def url(self, slots: Slots) -> str:
        _, _, column, direction = ORDERS[slots["order"]]
        query = f"product_list_order={column}&product_list_dir={direction}&price_from=&price_to="
        return f"/{slots['path']}.html?{query}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_category(see, slots["trail"])
        column, direction, _, _ = ORDERS[slots["order"]]
        yield from sort_by(see, column, direction)
        yield see.stop()


class OpenExtreme(_Shopping):
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

    def checks(self, slots: Slots) -> list[Check]:
        return []

    def url(self, slots: Slots) -> str:
        return f"/{slots['slug']}.html"

    def script(self, see: View, slots: Slots) -> Script:
        yield from search_product(see, slots["brand"])
        yield from sort_by(see, "Price", "Ascending" if slots["extreme"] == "cheapest" else "Descending")
        yield see.click("link", slots["product"])
        yield see.stop()


class OpenOrder(_Shopping):
    name = "shopping/open-order"
    intents = ("Show me the details of my order {number}.", "Open the page of order number {number}.")
    skills = ("account", "page", "navigate")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_order(content, rng)

    def checks(self, slots: Slots) -> list[Check]:
        return []

    def url(self, slots: Slots) -> str:
        return f"/sales/order/view/order_id/{slots['order']}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.stop()


# Cart and wish list --------------------------------------------------------------------------------------------------


class AddToCart(_Shopping):
    name = "shopping/add-to-cart"
    intents = (
        'Put {quantity} of the "{product}"{wish} into my cart.',
        'I want to buy the "{product}"{wish}. Add {quantity} to the cart, but do not order yet.',
    )
    skills = ("search", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_purchase(content, rng)

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT product_id, options, quantity FROM cart_item WHERE {OWN}"
        return [holds(self.site, query, (slots["id"], slots["chosen"], slots["quantity"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"cart_item": f"{OWN} AND product_id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from put_in_cart(see, slots)
        yield see.stop()


class CartCoupon(_Shopping):
    name = "shopping/cart-coupon"
    intents = (
        'Put {quantity} of the "{product}"{wish} into my cart and use the discount code {coupon} there.',
        'Add {quantity} of the "{product}"{wish} to the cart, then apply the code {coupon}. I will order later.',
    )
    skills = ("search", "form", "cart")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return with_coupon(content, rng, some_purchase(content, rng))

    def checks(self, slots: Slots) -> list[Check]:
        items = f"SELECT product_id, options, quantity FROM cart_item WHERE {OWN}"
        return [
            holds(self.site, items, (slots["id"], slots["chosen"], slots["quantity"])),
            holds(self.site, f"SELECT coupon FROM cart WHERE {OWN}", (slots["coupon"],)),
        ]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"cart_item": f"{OWN} AND product_id = {slots['id']}", "cart": OWN}

    def script(self, see: View, slots: Slots) -> Script:
        yield from put_in_cart(see, slots)
        yield see.click("link", f"My Cart ({slots['quantity']})")
        yield see.type("Discount code", slots["coupon"])
        yield see.click("button", "Apply Discount")
        yield see.stop()


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


class Wish(_Shopping):
    name = "shopping/wish"
    intents = (
        'Add the "{product}" to my wish list.',
        'I like the "{product}". Keep it on my wish list for later.',
    )
    skills = ("search", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng, not_wished())
        return {"product": row["name"], "id": row["id"]} if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return [wished(slots["id"], 1)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"wishlist_item": f"{OWN} AND product_id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["product"])
        yield see.click("button", "Add to Wish List")
        yield see.stop()


def not_wished() -> str:
    return f"id NOT IN (SELECT product_id FROM wishlist_item WHERE {OWN})"


def wished(product: int, count: int) -> Check:
    """So many times a product is on the wish list."""
    query = f"SELECT count(*) FROM wishlist_item WHERE {OWN} AND product_id = {product}"
    return holds("shopping", query, (count,))


class WishCheaper(_Shopping):
    name = "shopping/wish-cheaper"
    intents = (
        'Is the "{one}" cheaper than the "{other}"? Answer yes or no, and put the cheaper one on my wish list.',
        'Compare the prices of the "{one}" and the "{other}". Add the cheaper one to my wish list and tell me, yes or '
        "no, whether it is the first of the two.",
    )
    skills = ("search", "compare", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        one = some_product(content, rng, not_wished())
        if one is None:
            return None
        where = f"category_id = {one['category_id']} AND final_price != {one['final_price']} AND {not_wished()}"
        other = some_product(content, rng, where)
        if other is None:
            return None
        first = one["final_price"] < other["final_price"]
        cheap, dear = (one, other) if first else (other, one)
        names = {"one": one["name"], "other": other["name"], "cheap": cheap["name"], "dear": dear["name"]}
        return {**names, "answer": "yes" if first else "no", "id": cheap["id"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("yes_no", slots["answer"]), wished(slots["id"], 1)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"wishlist_item": f"{OWN} AND product_id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["dear"])
        yield from open_product(see, slots["cheap"])
        yield see.click("button", "Add to Wish List")
        yield see.stop(slots["answer"])


class Unwish(_Shopping):
    name = "shopping/unwish"
    intents = (
        'Remove the "{product}" from my wish list.',
        'I no longer want the "{product}". Take it off my wish list.',
    )
    skills = ("account", "delete")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng, f"NOT ({not_wished()})")
        return {"product": row["name"], "id": row["id"]} if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return [wished(slots["id"], 0)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"wishlist_item": f"{OWN} AND product_id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "My Wish List")
        yield click_after(see, slots["product"], "button", "Remove")
        yield see.stop()


# Orders --------------------------------------------------------------------------------------------------------------


def with_delivery(content: Content, rng: np.random.Generator, purchase: Slots | None) -> Slots | None:
    """A purchase, and where and how it is to be sent and paid."""
    if purchase is None:
        return None
    place = content.pick(
        rng,
        f"SELECT * FROM address a WHERE {OWN} AND (SELECT count(*) FROM address WHERE {OWN} AND city = a.city) = 1 "
        "ORDER BY id",
    )
    if place is None:
        return None
    return {
        **purchase,
        "city": place["city"],
        "street": place["street"],
        "place": ", ".join(place[key] for key in ("street", "city", "region", "postcode")),
        "method": one_of(rng, (STANDARD, EXPRESS)),
        "payment": one_of(rng, PAYMENTS),
        "coupon": "",
        "last": last_id(content, "sales_order"),
    }


class Checkout(_Shopping):
    name = "shopping/checkout"
    intents = (
        'Order {quantity} of the "{product}"{wish}. Send it to my address in {city} by {method}, and pay by {payment}.',
        'Buy {quantity} of the "{product}"{wish} for me: ship to {city}, {method}, payment method {payment}.',
    )
    skills = ("search", "form", "cart", "checkout")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return with_delivery(content, rng, some_purchase(content, rng))

    def checks(self, slots: Slots) -> list[Check]:
        order = "customer_id, status, subtotal, coupon, shipping_method, payment_method, ship_street"
        after = slots["last"]
        cost = slots["price"] * slots["quantity"]
        bought = (SHOPPER_ID, "pending", cost, slots["coupon"], slots["method"], slots["payment"], slots["street"])
        items = f"SELECT product_id, options, quantity FROM order_item WHERE order_id > {after}"
        return [
            holds(self.site, f"SELECT {order} FROM sales_order WHERE id > {after}", bought),
            holds(self.site, items, (slots["id"], slots["chosen"], slots["quantity"])),
            holds_row(self.site, "product", slots["id"], {"stock": slots["stock"] - slots["quantity"]}),
        ]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        new = slots["last"] + 1
        return {
            "sales_order": f"id = {new}",
            "order_item": f"order_id = {new}",
            "order_comment": f"order_id = {new}",
            "product": f"id = {slots['id']}",
        }

    def script(self, see: View, slots: Slots) -> Script:
        yield from put_in_cart(see, slots)
        yield see.click("link", f"My Cart ({slots['quantity']})")
        if slots["coupon"]:
            yield see.type("Discount code", slots["coupon"])
            yield see.click("button", "Apply Discount")
        yield see.click("link", "Proceed to Checkout")
        yield see.select("Ship to", slots["place"])
        yield see.click("radio", f"{slots['method']} {money(SHIPPING[slots['method']])}")
        yield see.click("radio", slots["payment"])
        yield see.click("button", "Place Order")
        yield see.stop()


class CheckoutCoupon(Checkout):
    name = "shopping/checkout-coupon"
    intents = (
        'With the discount code {coupon}, order {quantity} of the "{product}"{wish}. Send it to my address in {city} '
        "by {method}, and pay by {payment}.",
        'Buy {quantity} of the "{product}"{wish} and use my code {coupon}: ship to {city}, {method}, payment method '
        "{payment}.",
    )
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return with_coupon(content, rng, super().draw(content, rng))


class CancelOrder(_Shopping):
    name = "shopping/cancel-order"
    intents = ("Cancel my order {number}.", "I do not need order number {number} any more. Please cancel it.")
    skills = ("account", "page", "status")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        order = some_order(content, rng, "status = 'pending'")
        return order and {**order, "stocks": returned(content, order["order"])}

    def checks(self, slots: Slots) -> list[Check]:
        return canceled(self.site, slots)

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return canceling(slots)

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.click("button", "Cancel Order")
        yield see.stop()


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
        "sales_order": f"id = {slots['order']}",
        "order_comment": f"order_id = {slots['order']} AND text LIKE 'Canceled by %'",
        "product": f"id IN ({listed([product for product, _ in slots['stocks']])})",
    }


class Reorder(_Shopping):
    name = "shopping/reorder"
    intents = (
        "Put everything from my order {number} into the cart once more.",
        "I want the same things as in order {number} again. Fill my cart with them, but do not order yet.",
    )
    skills = ("account", "page", "cart")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        order = some_order(content, rng)
        if order is None or content.value(f"SELECT count(*) FROM cart_item WHERE {OWN}"):
            return None
        rows = content.rows(
            "SELECT i.product_id, i.options, i.quantity, p.stock, p.status FROM order_item i "
            "JOIN product p ON p.id = i.product_id WHERE i.order_id = ? ORDER BY i.id",
            order["order"],
        )
        if any(row["status"] != "enabled" or row["quantity"] > row["stock"] for row in rows):
            return None
        return {**order, "items": [list(row)[:3] for row in rows]}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT product_id, options, quantity FROM cart_item WHERE {OWN}"
        return [holds(self.site, query, *(tuple(item) for item in slots["items"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"cart_item": OWN}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.click("button", "Reorder")
        yield see.stop()


# Writing and the account ---------------------------------------------------------------------------------------------


class WriteReview(_Shopping):
    name = "shopping/write-review"
    intents = (
        'Review the "{product}" with {stars} stars as {nickname}. Summary: "{title}". Text: "{text}"',
        'Write a review of the "{product}": {stars} stars, nickname {nickname}, summary "{title}", review "{text}"',
    )
    skills = ("search", "form", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng)
        title, text = one_of(rng, REVIEWS)
        return (
            {
                "product": row["name"],
                "id": row["id"],
                "stars": int(rng.integers(2, 6)),
                "nickname": one_of(rng, NICKNAMES),
                "title": title,
                "text": text,
                "last": last_id(content, "review"),
            }
            if row
            else None
        )

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT product_id, stars, nickname, title, text FROM review WHERE id > {slots['last']}"
        return [holds(self.site, query, tuple(slots[key] for key in ("id", "stars", "nickname", "title", "text")))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"review": f"id > {slots['last']} AND product_id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["product"])
        yield see.click("link", "Read and write reviews")
        yield see.select("Your Rating", f"{slots['stars']} stars")
        yield see.type("Nickname", slots["nickname"])
        yield see.type("Summary", slots["title"])
        yield see.type("Review", slots["text"])
        yield see.click("button", "Submit Review")
        yield see.stop()


class Contact(_Shopping):
    name = "shopping/contact"
    intents = (
        'Write to the shop through its contact form: "{text}"',
        'Use the contact form to send the shop exactly this message: "{text}"',
    )
    skills = ("form", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        email = content.value("SELECT email FROM customer WHERE id = ?", SHOPPER_ID)
        return {"text": one_of(rng, MESSAGES), "email": email, "last": last_id(content, "contact_message")}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT email, message FROM contact_message WHERE id > {slots['last']}"
        return [holds(self.site, query, (slots["email"], slots["text"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"contact_message": f"id > {slots['last']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Contact Us")
        yield see.type("What’s on your mind?", slots["text"])
        yield see.click("button", "Submit")
        yield see.stop()


class Phone(_Shopping):
    name = "shopping/phone"
    intents = (
        "Change the phone number in my account information to {phone}.",
        "I have a new phone number, {phone}. Update my account information, but leave my addresses as they are.",
    )
    skills = ("account", "form", "edit")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        phone = f"{int(rng.integers(201, 990))}-555-{int(rng.integers(10_000)):04d}"
        columns = ("email", "password", "first_name", "last_name", "phone")
        return {"phone": phone, "row": row_of(content, "customer", SHOPPER_ID, columns, phone=phone)}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds_row(self.site, "customer", SHOPPER_ID, slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"customer": f"id = {SHOPPER_ID}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "My Account")
        yield see.click("link", "Account Information")
        yield from see.fill("Phone Number", slots["phone"])
        yield see.click("button", "Save")
        yield see.stop()


class NewAddress(_Shopping):
    name = "shopping/new-address"
    intents = (
        "Add {street}, {city}, {region} {postcode} to my address book.",
        "Save a new address in my address book: {street}, {city}, {region}, zip {postcode}.",
    )
    skills = ("account", "form", "create")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        parts = dict(zip(("street", "city", "region", "postcode"), one_of(rng, ADDRESSES), strict=True))
        owner = row_of(content, "customer", SHOPPER_ID, ("first_name", "last_name", "phone"))
        row = {**owner, **parts, "default_billing": 0, "default_shipping": 0}
        return {**parts, "row": row, "last": last_id(content, "address")}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT customer_id, {', '.join(slots['row'])} FROM address WHERE id > {slots['last']}"
        return [holds(self.site, query, (SHOPPER_ID, *slots["row"].values()))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"address": f"id > {slots['last']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "My Account")
        yield see.click("link", "Address Book")
        yield see.click("link", "Add New Address")
        yield see.type("Street Address", slots["street"])
        yield see.type("City", slots["city"])
        yield see.type("State/Province", slots["region"])
        yield see.type("Zip/Postal Code", slots["postcode"])
        yield see.click("button", "Save Address")
        yield see.stop()


class MoveAddress(_Shopping):
    name = "shopping/move-address"
    intents = (
        "I moved within town. In my default shipping address, change the street to {street}.",
        "Correct my default shipping address: the street is {street}, the rest stays as it is.",
    )
    skills = ("account", "form", "edit")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        street = one_of(rng, ADDRESSES)[0]
        number = content.value(f"SELECT id FROM address WHERE {OWN} AND default_shipping = 1")
        columns = (*ADDRESS_COLUMNS, "default_billing", "default_shipping")
        return number and {
            "street": street,
            "id": number,
            "row": row_of(content, "address", number, columns, street=street),
        }

    def checks(self, slots: Slots) -> list[Check]:
        return [holds_row(self.site, "address", slots["id"], slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"address": f"id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "My Account")
        yield see.click("link", "Change Shipping Address")
        yield from see.fill("Street Address", slots["street"])
        yield see.click("button", "Save Address")
        yield see.stop()


class DeleteAddress(_Shopping):
    name = "shopping/delete-address"
    intents = (
        "Delete the address in {city} from my address book.",
        "I no longer live in {city}. Remove that address from my address book.",
    )
    skills = ("account", "delete")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            f"SELECT id, city, street FROM address a WHERE {OWN} AND default_billing + default_shipping = 0 AND "
            f"(SELECT count(*) FROM address WHERE {OWN} AND city = a.city) = 1 ORDER BY id",
        )
        return dict(row) if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT count(*) FROM address WHERE id = {slots['id']}", (0,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"address": f"id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "My Account")
        yield see.click("link", "Address Book")
        yield click_after(see, slots["street"], "button", "Delete")
        yield see.stop()


TEMPLATES = (
    ProductPrice, ProductAttribute, CategoryExtreme, PriceRangeCount, BrandCount, StarCount, Critics, ReviewDate,
    OrderTotal, OrdersByStatus, DearestOrder, SpentInMonth, Tracking, ShowSorted, OpenExtreme, OpenOrder, AddToCart,
    CartCoupon, Wish, WishCheaper, Unwish, Checkout, CheckoutCoupon, CancelOrder, Reorder, WriteReview, Contact, Phone,
    NewAddress, MoveAddress, DeleteAddress,
)  # fmt: skip
