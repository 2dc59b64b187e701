"""Questions about the store's products and the customer's own orders."""

from __future__ import annotations

from functools import partial

import numpy as np

from oneiro_web.sites.shopping.tasks.parts import (
    IN_CATEGORY,
    OWN,
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
from oneiro_web.sites.store.tasks import day, money, month_slots, some_product
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.script import Script, View
from oneiro_web.templates.table import Question, add, by, click, pick, write


def price(content: Content, rng: np.random.Generator) -> Slots | None:
    row = some_product(content, rng)
    return {"product": row["name"], "price": money(row["final_price"])} if row else None


def extreme(content: Content, rng: np.random.Generator) -> Slots | None:
    """A category and which end of its prices is asked for."""
    place = some_category(content, rng)
    return place and {**place, "extreme": one_of(rng, ("cheapest", "most expensive"))}


def sort_to_extreme(see: View, slots: Slots) -> Script:
    yield from open_category(see, slots["trail"])
    yield from sort_by(see, "Price", "Ascending" if slots["extreme"] == "cheapest" else "Descending")


def price_range(content: Content, rng: np.random.Generator) -> Slots | None:
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
    inside = [price for price in prices if low * 100 <= price <= high * 100]
    if len(inside) == len(prices):
        return None
    bounds = {"low": f"${low}", "high": f"${high}"}
    return {**place, **bounds, "count": len(inside), "cheapest": money(inside[0])}


def filter_by_price(see: View, slots: Slots) -> Script:
    yield from open_category(see, slots["trail"])
    yield see.type("Price from", slots["low"][1:])
    yield see.type("to", slots["high"][1:], enter=True)


def brand_below(content: Content, rng: np.random.Generator) -> Slots | None:
    brand = one_of(rng, [row[0] for row in content.rows("SELECT DISTINCT brand FROM product ORDER BY brand")])
    sql = "SELECT final_price, brand FROM listed WHERE status = 'enabled' AND brand LIKE '%' || ? || '%' ORDER BY 1"
    rows = content.rows(sql, brand)
    if len(rows) < 5 or any(row["brand"] != brand for row in rows):
        return None
    high = rows[int(rng.integers(1, len(rows) - 1))]["final_price"] // 500 * 5 + 5
    prices = [row["final_price"] for row in rows if row["final_price"] <= high * 100]
    if len(prices) == len(rows):
        return None
    return {"brand": brand, "high": f"${high}", "count": len(prices), "dearest": money(prices[-1])}


def stars(content: Content, rng: np.random.Generator) -> Slots | None:
    row = some_product(content, rng, "reviews > 4")
    if row is None:
        return None
    stars = int(rng.integers(2, 6))
    sql = (
        "SELECT count(*) AS count, max(created_at) AS newest FROM review "
        "WHERE product_id = ? AND status = 'approved' AND stars = ?"
    )
    (given,) = content.rows(sql, row["id"], stars)
    if given["count"] < 2:
        return None
    return {"product": row["name"], "stars": stars, "count": given["count"], "newest": day(given["newest"])}


def critics(content: Content, rng: np.random.Generator) -> Slots | None:
    bad = "SELECT nickname FROM review WHERE product_id = {} AND status = 'approved' AND stars < 3 ORDER BY id"
    row = some_product(content, rng, f"reviews > 3 AND (SELECT count(*) FROM ({bad.format('listed.id')})) > 1")
    names = [review[0] for review in content.rows(bad.format(row["id"]))] if row else []
    if row is None or len({name.lower() for name in names}) < len(names):
        return None
    return {"product": row["name"], "names": names}


def orders_by_status(content: Content, rng: np.random.Generator) -> Slots | None:
    """The orders of some months that have a status. Without the months, a content would have three answers."""
    rows = content.rows(f"SELECT DISTINCT substr(created_at, 1, 7) FROM sales_order WHERE {OWN} ORDER BY 1")
    first, last = sorted(one_of(rng, rows)[0] for _ in range(2))
    status = one_of(rng, ("canceled", "complete", "pending", "processing"))
    rows = content.rows(
        f"SELECT number FROM sales_order WHERE {OWN} AND status = ? AND substr(created_at, 1, 7) BETWEEN ? AND ? "
        "ORDER BY id",
        status,
        first,
        last,
    )
    if first == last or not 1 < len(rows) < 9:
        return None
    names = {"first": month_slots(first)["month"], "last": month_slots(last)["month"]}
    return {**names, "status": status, "numbers": [row["number"] for row in rows]}


def spent_in_month(content: Content, rng: np.random.Generator) -> Slots | None:
    row = content.pick(
        rng,
        f"SELECT substr(created_at, 1, 7) AS month, sum(total) AS total FROM sales_order WHERE {OWN} AND "
        "status != 'canceled' GROUP BY 1 HAVING count(*) BETWEEN 1 AND 5 ORDER BY 1",
    )
    return {**month_slots(row["month"]), "sum": money(row["total"])} if row else None


def turn_to_review(see: View, nickname: str, date: str) -> Script:
    yield from see.turn_pages_to("StaticText", f"Review by {nickname} on {date}")


def turn_to_order(see: View, number: str) -> Script:
    yield from open_orders(see)
    yield from see.turn_pages_to("cell", number)


ALL_ORDERS = [by(open_orders), by(turn_all_pages)]
ALL_REVIEWS = [by(open_reviews, "{product}"), by(turn_all_pages)]

TEMPLATES = (
    Question(
        "shopping/product-price",
        'How much does the "{product}" cost at the moment?',
        'I am thinking about the "{product}". What is its price today?',
        skills="search read",
        draw=price,
        way=[by(search_product, "{product}")],
        answer="money price",
    ),
    Question(
        "shopping/product-attribute",
        'What does the page of the "{product}" give as its {attribute}?',
        'Look up the {attribute} of the "{product}".',
        skills="search read",
        draw=pick(
            "SELECT p.name AS product, lower(a.name) AS attribute, max(a.value) AS value FROM product_attribute a "
            "JOIN product p ON p.id = a.product_id WHERE p.status = 'enabled' AND a.name != 'Brand' "
            "GROUP BY p.id, a.name HAVING count(*) = 1 ORDER BY p.id, a.name"
        ),
        way=[by(open_product, "{product}")],
        answer="text value",
    ),
    Question(
        "shopping/category-extreme",
        "What is the {extreme} product in the category {category} of {department}? Give its full name.",
        "Under {department}, look at {category} and give the full name of the {extreme} product there.",
        skills="navigate sort compare",
        draw=add(
            extreme,
            f"SELECT name AS product, final_price AS rank FROM listed WHERE {IN_CATEGORY.replace('?', ':path')} "
            "ORDER BY CASE :extreme WHEN 'cheapest' THEN final_price ELSE -final_price END",
        ),
        way=[sort_to_extreme],
        answer="text product",
    ),
    Question(
        "shopping/price-range-count",
        "How many products in the category {category} of {department} cost between {low} and {high}, and what is the "
        "lowest price among them?",
        "Count what I could buy for {low} to {high} under {department}, {category}, and give the lowest of these "
        "prices.",
        skills="navigate filter count",
        draw=price_range,
        way=[filter_by_price],
        answer="number count, money cheapest",
    ),
    Question(
        "shopping/brand-count",
        "How many products of the brand {brand} do you sell for at most {high}, and what is the highest price among "
        "them?",
        "Count the things made by {brand} that cost {high} or less, and give the highest of their prices.",
        skills="filter form count",
        held_out=True,
        draw=brand_below,
        way=[
            click("link", "Advanced Search"),
            write("Brand", "{brand}"),
            lambda see, slots: see.type("Price to", slots["high"][1:], enter=True),
        ],
        answer="number count, money dearest",
    ),
    Question(
        "shopping/star-count",
        'How many customers gave exactly {stars} stars to the "{product}", and on which day did the last of them?',
        'Count the {stars}-star reviews of the "{product}", and give the date of the newest of these.',
        skills="search page read count",
        draw=stars,
        way=ALL_REVIEWS,
        answer="number count, date newest",
    ),
    Question(
        "shopping/critics",
        'Which reviewers gave the "{product}" fewer than three stars? List their nicknames.',
        'List the nicknames of everybody who rated the "{product}" with one or two stars.',
        skills="search page read compare",
        held_out=True,
        draw=critics,
        way=ALL_REVIEWS,
        answer="names names",
    ),
    Question(
        "shopping/review-date",
        'On which day did {nickname} review the "{product}"?',
        'Give the date of the review that {nickname} wrote about the "{product}".',
        skills="search page read",
        draw=pick(
            "SELECT p.name AS product, r.nickname, max(r.created_at) AS date FROM review r "
            "JOIN product p ON p.id = r.product_id WHERE r.status = 'approved' AND p.status = 'enabled' "
            "GROUP BY p.id, r.nickname HAVING count(*) = 1 ORDER BY r.id",
            date=day,
        ),
        way=[by(open_reviews, "{product}"), by(turn_to_review, "{nickname}", "{date}")],
        answer="date date",
    ),
    Question(
        "shopping/order-total",
        "What was the total of my order {number}?",
        "How much did I pay in all for order number {number}?",
        skills="account page read",
        draw=partial(some_order, where="status != 'canceled'"),
        way=[by(turn_to_order, "{number}")],
        answer="money total",
    ),
    Question(
        "shopping/orders-by-status",
        "Which of the orders that I placed from {first} to {last} are {status}? List all their order numbers.",
        "List the order numbers of all orders of mine from {first} to {last} that have the status {status}.",
        skills="account page count",
        draw=orders_by_status,
        way=ALL_ORDERS,
        answer="names numbers",
    ),
    Question(
        "shopping/dearest-order",
        "On which day did I place my most expensive order of {year}? Canceled orders count as well.",
        "Of all my orders in {year}, canceled or not, which one cost most? Give its date.",
        skills="account page compare",
        draw=add(
            lambda content, rng: {"year": one_of(rng, ("2024", "2025", "2026"))},
            f"SELECT created_at AS date, total AS rank FROM sales_order WHERE {OWN} AND created_at LIKE :year || '-%' "
            "ORDER BY total DESC",
            date=day,
        ),
        way=ALL_ORDERS,
        answer="date date",
    ),
    Question(
        "shopping/spent-in-month",
        "How much did I spend here in {month}, leaving canceled orders out?",
        "Add up my orders of {month} that were not canceled. What is the sum?",
        skills="account page count compare",
        held_out=True,
        draw=spent_in_month,
        way=ALL_ORDERS,
        answer="money sum",
    ),
    Question(
        "shopping/tracking",
        "What is the tracking number of my order {number}?",
        "Find the tracking number for order {number}.",
        skills="account page read",
        draw=add(
            partial(some_order, where="(SELECT count(*) FROM shipment WHERE order_id = sales_order.id) = 1"),
            "SELECT tracking FROM shipment WHERE order_id = :order",
        ),
        way=[by(open_order, "{number}")],
        answer="text tracking",
    ),
)
