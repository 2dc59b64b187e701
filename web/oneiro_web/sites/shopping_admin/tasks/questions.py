"""Questions that the back office answers."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.shopping_admin.pages.reports import BESTSELLERS, LOW
from oneiro_web.sites.shopping_admin.tasks.parts import (
    Admin,
    filtered,
    found_once,
    open_customer,
    open_order,
    show_report,
    some_customer,
    some_month,
    some_order,
)
from oneiro_web.sites.store.tasks import (
    money,
)
from oneiro_web.templates.base import Content, Question, Slots, one_of
from oneiro_web.templates.script import Script, View

TIMES = (("01-01", "03-31"), ("04-01", "06-30"), ("07-01", "09-30"), ("10-01", "12-31"), ("01-01", "12-31"))
"""Parts of a year."""


class CustomerPhone(Question, Admin):
    name = "shopping_admin/customer-phone"
    intents = (
        "What is the phone number of our customer {customer}?",
        "I need to call {customer}. Look up the phone number in the customer list.",
    )
    skills = ("filter", "read")
    answer = ("text", "phone")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_customer(content, rng, "phone != ''")
        return {"customer": row["name"], "phone": row["phone"]} if row else None

    def look_up(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Customers")
        yield see.type("Name", slots["customer"], enter=True)


class OrderEmail(Question, Admin):
    name = "shopping_admin/order-email"
    intents = (
        "Give the email address of the customer who placed order {number}.",
        "Somebody wants to write to whoever placed order {number}. What is the email address?",
    )
    skills = ("filter", "read")
    answer = ("text", "email")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        order = some_order(content, rng)
        email = order and content.value("SELECT customer_email FROM sales_order WHERE id = ?", order["order"])
        return order and {**order, "email": email}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])


class OrderCount(Question, Admin):
    name = "shopping_admin/order-count"
    intents = (
        "How many {status} orders does {customer} have?",
        "Count the orders of {customer} that have the status {status}.",
    )
    skills = ("filter", "count")
    answer = ("number", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT customer_name, status, count(*) AS count FROM sales_order GROUP BY customer_name, status "
            "HAVING count(*) > 1 ORDER BY 1, 2",
        )
        if row is None or not found_once(content, row["customer_name"]):
            return None
        return {"customer": row["customer_name"], "status": row["status"], "count": row["count"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Orders")
        yield see.type("Customer", slots["customer"])
        yield see.select("Status", slots["status"].capitalize())
        yield see.click("button", "Apply Filters")


class SalesInMonth(Question, Admin):
    name = "shopping_admin/sales-in-month"
    intents = (
        "What were our total sales in {month}, without canceled orders?",
        "Run the orders report for {month} and give the sales total.",
    )
    skills = ("report", "form", "read")
    answer = ("money", "total")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        month = some_month(content, rng)
        sql = "SELECT sum(total) FROM sales_order WHERE status != 'canceled' AND created_at BETWEEN ? AND ? || ' 24:00'"
        total = content.value(sql, month["from"], month["to"])
        return {**month, "total": money(total)} if total else None

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from show_report(see, "Orders Report", slots, "Month")


class Bestseller(Question, Admin):
    name = "shopping_admin/bestseller"
    intents = (
        "Which product did we sell most often from {from} to {to}? Canceled orders do not count.",
        "Find the bestseller of the time from {from} to {to}, counting pieces in orders that were not canceled.",
    )
    skills = ("report", "form", "compare")
    answer = ("text", "product")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        first, last = one_of(rng, TIMES)
        year = one_of(rng, ("2025", "2026", "2024"))
        ends = {"from": f"{year}-{first}", "to": f"{year}-{last}"}
        rows = content.rows(BESTSELLERS.format(length=4), ends["from"], f"{ends['to']} 24:00")
        if len(rows) < 2 or rows[0]["quantity"] == rows[1]["quantity"]:
            return None
        return {**ends, "product": rows[0]["name"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from show_report(see, "Bestsellers Report", slots, "Year")


class TopTerm(Question, Admin):
    name = "shopping_admin/top-term"
    intents = (
        "Which search term with {least} to {most} results was used most often?",
        "Look at the search terms that find {least} to {most} products. Which of them do people use most?",
    )
    skills = ("filter", "sort", "compare")
    answer = ("text", "term")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        least = int(rng.integers(0, 8))
        most = least + int(rng.integers(1, 5))
        sql = "SELECT term, uses FROM search_term WHERE results BETWEEN ? AND ? ORDER BY uses DESC LIMIT 2"
        rows = content.rows(sql, least, most)
        if len(rows) < 2 or rows[0]["uses"] == rows[1]["uses"]:
            return None
        return {"least": least, "most": most, "term": rows[0]["term"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        ends = {"Results_from": str(slots["least"]), "Results_to": str(slots["most"])}
        yield from filtered(see, "Search Terms", **ends)


class LowStock(Question, Admin):
    name = "shopping_admin/low-stock"
    intents = (
        "List the SKUs of all {brand} products of which we have fewer than {low} in stock.",
        "We are about to order from {brand}. Give the SKUs of their products with a stock below {low}.",
    )
    skills = ("report", "filter", "read")
    held_out = True
    answer = ("names", "skus")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            f"SELECT brand FROM product WHERE stock < {LOW} GROUP BY brand HAVING count(*) BETWEEN 2 AND 6 "
            "ORDER BY brand",
        )
        sql = "SELECT count(*) FROM product WHERE name LIKE '%' || ? || '%' AND brand != ?"
        if row is None or content.value(sql, row["brand"], row["brand"]):
            return None
        skus = content.rows(f"SELECT sku FROM product WHERE brand = ? AND stock < {LOW} ORDER BY id", row["brand"])
        return {"brand": row["brand"], "low": LOW, "skus": [sku[0] for sku in skus]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from filtered(see, "Low Stock Report", Product=slots["brand"])


class ReviewCount(Question, Admin):
    name = "shopping_admin/review-count"
    intents = (
        'How many reviews with {least} to {most} stars do we have for the "{product}", whatever their status?',
        'Count all reviews of the "{product}" that give it {least} to {most} stars, also those not approved.',
    )
    skills = ("filter", "count")
    answer = ("number", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        least = int(rng.integers(1, 5))
        most = int(rng.integers(least + 1, 6))
        row = content.pick(
            rng,
            "SELECT p.name, count(*) AS count FROM review r JOIN product p ON p.id = r.product_id WHERE "
            "r.stars BETWEEN ? AND ? GROUP BY p.id HAVING count(*) > 2 ORDER BY p.id",
            least,
            most,
        )
        return {"product": row["name"], "least": least, "most": most, "count": row["count"]} if row else None

    def look_up(self, see: View, slots: Slots) -> Script:
        ends = {"Stars_from": str(slots["least"]), "Stars_to": str(slots["most"])}
        yield from filtered(see, "Reviews", Product=slots["product"], **ends)


class LargestOrder(Question, Admin):
    name = "shopping_admin/largest-order"
    intents = (
        "Who placed the largest order of {month}? Canceled orders count as well.",
        "Of all orders in {month}, canceled or not, find the one with the highest grand total. Who placed it?",
    )
    skills = ("filter", "sort", "compare")
    held_out = True
    answer = ("text", "customer")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        month = some_month(content, rng)
        sql = "SELECT customer_name, total FROM sales_order WHERE created_at LIKE ? ORDER BY total DESC LIMIT 2"
        rows = content.rows(sql, f"{month['from'][:7]}-%")
        if len(rows) < 2 or rows[0]["total"] == rows[1]["total"]:
            return None
        return {**month, "customer": rows[0]["customer_name"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from filtered(see, "Orders", Purchase_Date_from=slots["from"], Purchase_Date_to=slots["to"])
        yield see.click("link", "Grand Total")
        yield see.click("link", "Grand Total ↑")


class CustomersFrom(Question, Admin):
    name = "shopping_admin/customers-from"
    intents = (
        "Which customers of the group {group} have their billing address in {region}? List their full names.",
        "List the full names of our {group} customers from {region}, going by the billing address.",
    )
    skills = ("filter", "read")
    answer = ("names", "names")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT a.region, c.group_name, group_concat(c.first_name || ' ' || c.last_name, '|') AS names "
            "FROM customer c JOIN address a ON a.customer_id = c.id AND a.default_billing = 1 "
            "GROUP BY a.region, c.group_name HAVING count(*) BETWEEN 2 AND 6 ORDER BY 1, 2",
        )
        if row is None:
            return None
        return {"region": row["region"], "group": row["group_name"], "names": sorted(row["names"].split("|"))}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Customers")
        yield see.select("Group", slots["group"])
        yield see.type("State/Province", slots["region"])
        yield see.click("button", "Apply Filters")


class CouponDiscount(Question, Admin):
    name = "shopping_admin/coupon-discount"
    intents = (
        "How much discount did the coupon {coupon} give our customers from {from} to {to}? Leave canceled orders out.",
        "What did the coupon code {coupon} cost us in discounts between {from} and {to}, without canceled orders?",
    )
    skills = ("report", "form", "read")
    held_out = True
    answer = ("money", "discount")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        coupon = content.pick(rng, "SELECT DISTINCT coupon FROM sales_order WHERE coupon != '' ORDER BY 1")
        first, last = one_of(rng, (("01-01", "06-30"), ("07-01", "12-31"), ("01-01", "12-31"), ("04-01", "09-30")))
        year = one_of(rng, ("2024", "2025", "2026"))
        if coupon is None:
            return None
        found = {"coupon": coupon[0], "from": f"{year}-{first}", "to": f"{year}-{last}"}
        row = content.rows(
            "SELECT sum(discount) AS discount, count(*) AS uses FROM sales_order WHERE status != 'canceled' "
            "AND coupon = ? AND created_at BETWEEN ? AND ? || ' 24:00'",
            *found.values(),
        )[0]
        return {**found, "discount": money(row["discount"])} if row["uses"] > 1 else None

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from show_report(see, "Coupons Report", slots, "Year")


class LifetimeSales(Question, Admin):
    name = "shopping_admin/lifetime-sales"
    intents = (
        "How much has {customer} spent with us so far, without canceled orders?",
        "What are the lifetime sales of our customer {customer}?",
    )
    skills = ("filter", "navigate", "read")
    answer = ("money", "total")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_customer(content, rng, "(SELECT count(*) FROM sales_order WHERE customer_id = c.id) > 1")
        if row is None:
            return None
        sql = "SELECT coalesce(sum(total), 0) FROM sales_order WHERE customer_id = ? AND status != 'canceled'"
        total = content.value(sql, row["id"])
        return {"customer": row["name"], "total": money(total)} if total else None

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_customer(see, slots["customer"])


TEMPLATES = (
    CustomerPhone,
    OrderEmail,
    OrderCount,
    SalesInMonth,
    Bestseller,
    TopTerm,
    LowStock,
    ReviewCount,
    LargestOrder,
    CustomersFrom,
    CouponDiscount,
    LifetimeSales,
)
