"""Questions about the store's products and the customer's own orders."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.shopping.tasks.parts import (
    IN_CATEGORY,
    OWN,
    Shopping,
    open_category,
    open_order,
    open_orders,
    open_product,
    open_reviews,
    search_product,
    some_category,
    some_order,
    sort_by,
    turn_all_pages,
)
from oneiro_web.sites.store.tasks import (
    day,
    money,
    month_slots,
    some_product,
)
from oneiro_web.templates.base import Content, Question, Slots, one_of
from oneiro_web.templates.script import Script, View


class ProductPrice(Question, Shopping):
    name = "shopping/product-price"
    intents = (
        'How much does the "{product}" cost at the moment?',
        'I am thinking about the "{product}". What is its price today?',
    )
    skills = ("search", "read")
    answer = ("money", "price")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng)
        return {"product": row["name"], "price": money(row["final_price"])} if row else None

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from search_product(see, slots["product"])


class ProductAttribute(Question, Shopping):
    name = "shopping/product-attribute"
    intents = (
        'What does the page of the "{product}" give as its {attribute}?',
        'Look up the {attribute} of the "{product}".',
    )
    skills = ("search", "read")
    answer = ("text", "value")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT p.name AS product, lower(a.name) AS attribute, max(a.value) AS value FROM product_attribute a "
            "JOIN product p ON p.id = a.product_id WHERE p.status = 'enabled' AND a.name != 'Brand' "
            "GROUP BY p.id, a.name HAVING count(*) = 1 ORDER BY p.id, a.name",
        )
        return dict(row) if row else None

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["product"])


class CategoryExtreme(Question, Shopping):
    name = "shopping/category-extreme"
    intents = (
        'What is the {extreme} product in the category {category} of {department}? Give its full name.',
        'Under {department}, look at {category} and give the full name of the {extreme} product there.',
    )  # fmt: skip
    skills = ("navigate", "sort", "compare")
    answer = ("text", "product")

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

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_category(see, slots["trail"])
        yield from sort_by(see, "Price", "Ascending" if slots["extreme"] == "cheapest" else "Descending")


class PriceRangeCount(Question, Shopping):
    name = "shopping/price-range-count"
    intents = (
        "How many products in the category {category} of {department} cost between {low} and {high}?",
        "Count what I could buy for {low} to {high} under {department}, {category}.",
    )
    skills = ("navigate", "filter", "count")
    answer = ("number", "count")

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

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_category(see, slots["trail"])
        yield see.type("Price from", slots["low"][1:])
        yield see.type("to", slots["high"][1:], enter=True)


class BrandCount(Question, Shopping):
    name = "shopping/brand-count"
    intents = (
        "How many products of the brand {brand} do you sell for at most {high}?",
        "Count the things made by {brand} that cost {high} or less.",
    )
    skills = ("filter", "form", "count")
    held_out = True
    answer = ("number", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        brand = one_of(rng, [row[0] for row in content.rows("SELECT DISTINCT brand FROM product ORDER BY brand")])
        sql = "SELECT final_price, brand FROM listed WHERE status = 'enabled' AND brand LIKE '%' || ? || '%' ORDER BY 1"
        rows = content.rows(sql, brand)
        if len(rows) < 5 or any(row["brand"] != brand for row in rows):
            return None
        high = rows[int(rng.integers(1, len(rows) - 1))]["final_price"] // 500 * 5 + 5
        count = sum(row["final_price"] <= high * 100 for row in rows)
        return None if count == len(rows) else {"brand": brand, "high": f"${high}", "count": count}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Advanced Search")
        yield see.type("Brand", slots["brand"])
        yield see.type("Price to", slots["high"][1:], enter=True)


class StarCount(Question, Shopping):
    name = "shopping/star-count"
    intents = (
        'How many customers gave exactly {stars} stars to the "{product}"?',
        'Count the {stars}-star reviews of the "{product}".',
    )
    skills = ("search", "page", "read", "count")
    answer = ("number", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng, "reviews > 4")
        if row is None:
            return None
        stars = int(rng.integers(2, 6))
        sql = "SELECT count(*) FROM review WHERE product_id = ? AND status = 'approved' AND stars = ?"
        count = content.value(sql, row["id"], stars)
        return {"product": row["name"], "stars": stars, "count": count} if count > 1 else None

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_reviews(see, slots["product"])
        yield from turn_all_pages(see)


class Critics(Question, Shopping):
    name = "shopping/critics"
    intents = (
        'Which reviewers gave the "{product}" fewer than three stars? List their nicknames.',
        'List the nicknames of everybody who rated the "{product}" with one or two stars.',
    )
    skills = ("search", "page", "read", "compare")
    held_out = True
    answer = ("names", "names")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        bad = "SELECT nickname FROM review WHERE product_id = {} AND status = 'approved' AND stars < 3 ORDER BY id"
        row = some_product(content, rng, f"reviews > 3 AND (SELECT count(*) FROM ({bad.format('listed.id')})) > 1")
        names = [found[0] for found in content.rows(bad.format(row["id"]))] if row else []
        if row is None or len({name.lower() for name in names}) < len(names):
            return None
        return {"product": row["name"], "names": names}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_reviews(see, slots["product"])
        yield from turn_all_pages(see)


class ReviewDate(Question, Shopping):
    name = "shopping/review-date"
    intents = (
        'On which day did {nickname} review the "{product}"?',
        'Give the date of the review that {nickname} wrote about the "{product}".',
    )
    skills = ("search", "page", "read")
    answer = ("date", "date")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT r.nickname, max(r.created_at) AS date, p.name FROM review r JOIN product p ON p.id = r.product_id "
            "WHERE r.status = 'approved' AND p.status = 'enabled' GROUP BY p.id, r.nickname HAVING count(*) = 1 "
            "ORDER BY r.id",
        )
        return {"product": row["name"], "nickname": row["nickname"], "date": day(row["date"])} if row else None

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_reviews(see, slots["product"])
        yield from see.turn_pages_to("StaticText", f"Review by {slots['nickname']} on {slots['date']}")


class OrderTotal(Question, Shopping):
    name = "shopping/order-total"
    intents = ("What was the total of my order {number}?", "How much did I pay in all for order number {number}?")
    skills = ("account", "page", "read")
    answer = ("money", "total")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_order(content, rng, "status != 'canceled'")

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_orders(see)
        yield from see.turn_pages_to("cell", slots["number"])


class OrdersByStatus(Question, Shopping):
    name = "shopping/orders-by-status"
    intents = (
        "Which of my orders are {status}? List all their order numbers.",
        "List the order numbers of all orders of mine that have the status {status}.",
    )
    skills = ("account", "page", "count")
    answer = ("names", "numbers")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        status = one_of(rng, ("canceled", "pending", "processing"))
        rows = content.rows(f"SELECT number FROM sales_order WHERE {OWN} AND status = ? ORDER BY id", status)
        return {"status": status, "numbers": [row["number"] for row in rows]} if 1 < len(rows) < 9 else None

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_orders(see)
        yield from turn_all_pages(see)


class DearestOrder(Question, Shopping):
    name = "shopping/dearest-order"
    intents = (
        "On which day did I place my most expensive order of {year}? Canceled orders count as well.",
        "Of all my orders in {year}, canceled or not, which one cost most? Give its date.",
    )
    skills = ("account", "page", "compare")
    answer = ("date", "date")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        year = one_of(rng, ("2024", "2025", "2026"))
        sql = f"SELECT created_at, total FROM sales_order WHERE {OWN} AND created_at LIKE ? ORDER BY total DESC LIMIT 2"
        rows = content.rows(sql, f"{year}-%")
        if len(rows) < 2 or rows[0]["total"] == rows[1]["total"]:
            return None
        return {"year": year, "date": day(rows[0]["created_at"])}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_orders(see)
        yield from turn_all_pages(see)


class SpentInMonth(Question, Shopping):
    name = "shopping/spent-in-month"
    intents = (
        "How much did I spend here in {month}, leaving canceled orders out?",
        "Add up my orders of {month} that were not canceled. What is the sum?",
    )
    skills = ("account", "page", "count", "compare")
    held_out = True
    answer = ("money", "sum")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            f"SELECT substr(created_at, 1, 7) AS month, sum(total) AS total FROM sales_order WHERE {OWN} AND "
            "status != 'canceled' GROUP BY 1 HAVING count(*) BETWEEN 2 AND 5 ORDER BY 1",
        )
        return {**month_slots(row["month"]), "sum": money(row["total"])} if row else None

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_orders(see)
        yield from turn_all_pages(see)


class Tracking(Question, Shopping):
    name = "shopping/tracking"
    intents = ("What is the tracking number of my order {number}?", "Find the tracking number for order {number}.")
    skills = ("account", "page", "read")
    answer = ("text", "tracking")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        order = some_order(content, rng, "(SELECT count(*) FROM shipment WHERE order_id = sales_order.id) = 1")
        return order and {
            **order,
            "tracking": content.value("SELECT tracking FROM shipment WHERE order_id = ?", order["order"]),
        }

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])


TEMPLATES = (
    ProductPrice,
    ProductAttribute,
    CategoryExtreme,
    PriceRangeCount,
    BrandCount,
    StarCount,
    Critics,
    ReviewDate,
    OrderTotal,
    OrdersByStatus,
    DearestOrder,
    SpentInMonth,
    Tracking,
)
