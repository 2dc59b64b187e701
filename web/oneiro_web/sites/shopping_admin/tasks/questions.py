"""Questions that the back office answers."""

from __future__ import annotations

from functools import partial

import numpy as np

from oneiro_web.sites.shopping_admin.pages.reports import BESTSELLERS, LOW
from oneiro_web.sites.shopping_admin.tasks.parts import (
    filtered,
    found_once,
    open_customer,
    open_order,
    show_report,
    some_customer,
    some_month,
    some_order,
)
from oneiro_web.sites.store.tasks import money
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.table import Question, Step, add, by, choose, choose_capital, click, enter, pick, split, write

TIMES = (("01-01", "03-31"), ("04-01", "06-30"), ("07-01", "09-30"), ("10-01", "12-31"), ("01-01", "12-31"))
"""Parts of a year."""


def grid(name: str, **texts: str) -> Step:
    """A grid with filters; underscores in their names stand for blanks."""
    return lambda see, slots: filtered(see, name, **{key: text.format_map(slots) for key, text in texts.items()})


def report(name: str, period: str) -> Step:
    """A report over the days of the slots `from` and `to`."""
    return lambda see, slots: show_report(see, name, slots, period)


def phone(content: Content, rng: np.random.Generator) -> Slots | None:
    row = some_customer(content, rng, "phone != ''")
    return {"customer": row["name"], "phone": row["phone"]} if row else None


def order_count(content: Content, rng: np.random.Generator) -> Slots | None:
    row = content.pick(
        rng,
        "SELECT customer_name AS customer, status, count(*) AS count, max(total) AS total FROM sales_order "
        "GROUP BY customer_name, status HAVING count(*) > 1 ORDER BY 1, 2",
    )
    if row is None or not found_once(content, row["customer"]):
        return None
    return {**dict(row), "total": money(row["total"])}


def month_sales(content: Content, rng: np.random.Generator) -> Slots | None:
    month = some_month(content, rng)
    sql = "SELECT sum(total) FROM sales_order WHERE status != 'canceled' AND created_at BETWEEN ? AND ? || ' 24:00'"
    total = content.value(sql, month["from"], month["to"])
    return {**month, "total": money(total)} if total else None


def bestseller(content: Content, rng: np.random.Generator) -> Slots | None:
    first, last = one_of(rng, TIMES)
    year = one_of(rng, ("2025", "2026", "2024"))
    ends = {"from": f"{year}-{first}", "to": f"{year}-{last}"}
    rows = content.rows(BESTSELLERS.format(length=4), ends["from"], f"{ends['to']} 24:00")
    if len(rows) < 2 or rows[0]["quantity"] == rows[1]["quantity"]:
        return None
    return {**ends, "product": rows[0]["name"]}


PLACES = ("most", "second most", "third most", "fourth most", "fifth most", "sixth most")


def ranked_term(content: Content, rng: np.random.Generator) -> Slots | None:
    """A search term by its place among those with so many results, where its neighbours have other numbers."""
    least = int(rng.integers(0, 8))
    most = least + int(rng.integers(1, 7))
    place = int(rng.integers(len(PLACES)))
    sql = "SELECT term, uses FROM search_term WHERE results BETWEEN ? AND ? ORDER BY uses DESC LIMIT ?"
    rows = content.rows(sql, least, most, place + 2)
    beside = [row["uses"] for row in rows[max(0, place - 1) :]]
    if len(rows) < place + 2 or len({*beside}) < len(beside):
        return None
    return {"least": least, "most": most, "place": PLACES[place], "term": rows[place]["term"]}


def low_stock(content: Content, rng: np.random.Generator) -> Slots | None:
    row = content.pick(
        rng,
        f"SELECT brand FROM product WHERE stock < {LOW} GROUP BY brand HAVING count(*) BETWEEN 2 AND 6 ORDER BY brand",
    )
    sql = "SELECT count(*) FROM product WHERE name LIKE '%' || ? || '%' AND brand != ?"
    if row is None or content.value(sql, row["brand"], row["brand"]):
        return None
    skus = content.rows(f"SELECT sku FROM product WHERE brand = ? AND stock < {LOW} ORDER BY id", row["brand"])
    return {"brand": row["brand"], "low": LOW, "skus": [sku[0] for sku in skus]}


def review_count(content: Content, rng: np.random.Generator) -> Slots | None:
    least = int(rng.integers(1, 5))
    most = int(rng.integers(least + 1, 6))
    row = content.pick(
        rng,
        "SELECT p.name, count(*) AS count, max(r.created_at) AS newest FROM review r JOIN product p "
        "ON p.id = r.product_id WHERE r.stars BETWEEN ? AND ? GROUP BY p.id HAVING count(*) > 2 ORDER BY p.id",
        least,
        most,
    )
    if row is None:
        return None
    bounds = {"product": row["name"], "least": least, "most": most}
    return {**bounds, "count": row["count"], "newest": row["newest"][:10]}


def coupon_discount(content: Content, rng: np.random.Generator) -> Slots | None:
    coupon = content.pick(rng, "SELECT DISTINCT coupon FROM sales_order WHERE coupon != '' ORDER BY 1")
    first, last = one_of(rng, (("01-01", "06-30"), ("07-01", "12-31"), ("01-01", "12-31"), ("04-01", "09-30")))
    year = one_of(rng, ("2024", "2025", "2026"))
    if coupon is None:
        return None
    bounds = {"coupon": coupon[0], "from": f"{year}-{first}", "to": f"{year}-{last}"}
    row = content.rows(
        "SELECT sum(discount) AS discount, count(*) AS uses FROM sales_order WHERE status != 'canceled' "
        "AND coupon = ? AND created_at BETWEEN ? AND ? || ' 24:00'",
        *bounds.values(),
    )[0]
    return {**bounds, "discount": money(row["discount"])} if row["uses"] > 1 else None


def lifetime_sales(content: Content, rng: np.random.Generator) -> Slots | None:
    row = some_customer(content, rng, "(SELECT count(*) FROM sales_order WHERE customer_id = c.id) > 1")
    sql = "SELECT coalesce(sum(total), 0) FROM sales_order WHERE customer_id = ? AND status != 'canceled'"
    total = content.value(sql, row["id"]) if row else 0
    return {"customer": row["name"], "total": money(total)} if row and total else None


TEMPLATES = (
    Question(
        "shopping_admin/customer-phone",
        "What is the phone number of our customer {customer}?",
        "I need to call {customer}. Look up the phone number in the customer list.",
        skills="filter read",
        draw=phone,
        way=[click("link", "Customers"), enter("Name", "{customer}")],
        answer="text phone",
    ),
    Question(
        "shopping_admin/order-email",
        "Give the email address of the customer who placed order {number}.",
        "Somebody wants to write to whoever placed order {number}. What is the email address?",
        skills="filter read",
        draw=add(
            partial(some_order, where="customer_id != 1"),  # whose orders are many
            "SELECT customer_email AS email FROM sales_order WHERE id = :order",
        ),
        way=[by(open_order, "{number}")],
        answer="text email",
    ),
    Question(
        "shopping_admin/order-count",
        "How many {status} orders does {customer} have, and what is the highest grand total among them?",
        "Count the orders of {customer} that have the status {status}, and give the highest grand total of these.",
        skills="filter count",
        draw=order_count,
        way=[
            click("link", "Orders"),
            write("Customer", "{customer}"),
            choose_capital("Status", "status"),
            click("button", "Apply Filters"),
        ],
        answer="number count, money total",
    ),
    Question(
        "shopping_admin/sales-in-month",
        "What were our total sales in {month}, without canceled orders?",
        "Run the orders report for {month} and give the sales total.",
        skills="report form read",
        draw=month_sales,
        way=[report("Orders Report", "Month")],
        answer="money total",
    ),
    Question(
        "shopping_admin/bestseller",
        "Which product did we sell most often from {from} to {to}? Canceled orders do not count.",
        "Find the bestseller of the time from {from} to {to}, counting pieces in orders that were not canceled.",
        skills="report form compare",
        draw=bestseller,
        way=[report("Bestsellers Report", "Year")],
        answer="text product",
    ),
    Question(
        "shopping_admin/top-term",
        "Which search term with {least} to {most} results was used {place} often?",
        "Look at the search terms that find {least} to {most} products. Which of them do people use {place} often?",
        skills="filter sort compare",
        draw=ranked_term,
        way=[grid("Search Terms", Results_from="{least}", Results_to="{most}")],
        answer="text term",
    ),
    Question(
        "shopping_admin/low-stock",
        "List the SKUs of all {brand} products of which we have fewer than {low} in stock.",
        "We are about to order from {brand}. Give the SKUs of their products with a stock below {low}.",
        skills="report filter read",
        held_out=True,
        draw=low_stock,
        way=[grid("Low Stock Report", Product="{brand}")],
        answer="names skus",
    ),
    Question(
        "shopping_admin/review-count",
        'How many reviews with {least} to {most} stars do we have for the "{product}", whatever their status, and on '
        "which day was the newest of them created?",
        'Count all reviews of the "{product}" that give it {least} to {most} stars, also those not approved, and give '
        "the date of the newest.",
        skills="filter count",
        draw=review_count,
        way=[grid("Reviews", Product="{product}", Stars_from="{least}", Stars_to="{most}")],
        answer="number count, date newest",
    ),
    Question(
        "shopping_admin/largest-order",
        "Who placed the largest order of {month}? Canceled orders count as well.",
        "Of all orders in {month}, canceled or not, find the one with the highest grand total. Who placed it?",
        skills="filter sort compare",
        held_out=True,
        draw=add(
            some_month,
            "SELECT customer_name AS customer, total AS rank FROM sales_order "
            "WHERE created_at LIKE substr(:from, 1, 7) || '-%' ORDER BY total DESC",
        ),
        way=[
            grid("Orders", Purchase_Date_from="{from}", Purchase_Date_to="{to}"),
            click("link", "Grand Total"),
            click("link", "Grand Total ↑"),
        ],
        answer="text customer",
    ),
    Question(
        "shopping_admin/customers-from",
        "Which customers of the group {group} have their billing address in {region}? List their full names.",
        "List the full names of our {group} customers from {region}, going by the billing address.",
        skills="filter read",
        draw=pick(
            "SELECT a.region, c.group_name AS 'group', group_concat(c.first_name || ' ' || c.last_name, '|') AS names "
            "FROM customer c JOIN address a ON a.customer_id = c.id AND a.default_billing = 1 "
            "GROUP BY a.region, c.group_name HAVING count(*) BETWEEN 2 AND 6 ORDER BY 1, 2",
            names=split("|"),
        ),
        way=[
            click("link", "Customers"),
            choose("Group", "{group}"),
            write("State/Province", "{region}"),
            click("button", "Apply Filters"),
        ],
        answer="names names",
    ),
    Question(
        "shopping_admin/coupon-discount",
        "How much discount did the coupon {coupon} give our customers from {from} to {to}? Leave canceled orders out.",
        "What did the coupon code {coupon} cost us in discounts between {from} and {to}, without canceled orders?",
        skills="report form read",
        held_out=True,
        draw=coupon_discount,
        way=[report("Coupons Report", "Year")],
        answer="money discount",
    ),
    Question(
        "shopping_admin/lifetime-sales",
        "How much has {customer} spent with us so far, without canceled orders?",
        "What are the lifetime sales of our customer {customer}?",
        skills="filter navigate read",
        draw=lifetime_sales,
        way=[by(open_customer, "{customer}")],
        answer="money total",
    ),
)
