"""Tasks in the back office of the store, for its manager."""

from __future__ import annotations

import sqlite3
from typing import ClassVar

import numpy as np

from oneiro.worlds.web.sites.admin_reports import BESTSELLERS, LOW
from oneiro.worlds.web.sites.store_orders import CARRIERS, GROUPS
from oneiro.worlds.web.tasks import Check
from oneiro.worlds.web.templates.base import Content, Slots, Template, holds, quoted, says
from oneiro.worlds.web.templates.script import Script, View
from oneiro.worlds.web.templates.shopping import canceled, canceling, returned
from oneiro.worlds.web.templates.store import holds_row, last_id, listed, money, month_slots, row_of, some_product
from oneiro.worlds.web.templates.words import one_of
from oneiro.worlds.web.templates.words_store import ADDRESSES, NOTES, PRODUCTS, RULES, TITLES

PRODUCT_COLUMNS = (
    "name", "sku", "brand", "price", "special_price", "stock", "status", "category_id",
    "short_description", "description",
)  # fmt: skip
REVIEW_COLUMNS = ("status", "stars", "nickname", "title", "text")
RULE_COLUMNS = (
    "name", "description", "customer_group", "coupon", "action", "amount", "minimum", "from_date", "to_date", "active",
)  # fmt: skip
ORDER_COLUMNS = (
    "status", "ship_name", "ship_street", "ship_city", "ship_region", "ship_postcode", "ship_country", "ship_phone",
)  # fmt: skip
TIMES = (("01-01", "03-31"), ("04-01", "06-30"), ("07-01", "09-30"), ("10-01", "12-31"), ("01-01", "12-31"))
"""Parts of a year."""
OPEN = "status IN ('pending', 'processing')"


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


def some_order(content: Content, rng: np.random.Generator, where: str = "1") -> Slots | None:
    """An order of anybody."""
    row = content.pick(rng, f"SELECT id, number FROM sales_order WHERE {where} ORDER BY id")
    return {"number": row["number"], "order": row["id"]} if row else None


def with_row(content: Content, order: Slots | None, **new: str) -> Slots | None:
    """An order, and what its row must be at the end: as it is, but for the new values."""
    return order and {**order, "row": row_of(content, "sales_order", order["order"], ORDER_COLUMNS, **new)}


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


class _Admin(Template):
    site = "shopping_admin"


# Questions -----------------------------------------------------------------------------------------------------------


class CustomerPhone(_Admin):
    name = "shopping_admin/customer-phone"
    intents = (
        "What is the phone number of our customer {customer}?",
        "I need to call {customer}. Look up the phone number in the customer list.",
    )
    skills = ("filter", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_customer(content, rng, "phone != ''")
        return {"customer": row["name"], "phone": row["phone"]} if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["phone"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Customers")
        yield see.type("Name", slots["customer"], enter=True)
        yield see.stop(slots["phone"])


class OrderEmail(_Admin):
    name = "shopping_admin/order-email"
    intents = (
        "Give the email address of the customer who placed order {number}.",
        "Somebody wants to write to whoever placed order {number}. What is the email address?",
    )
    skills = ("filter", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        order = some_order(content, rng)
        email = order and content.value("SELECT customer_email FROM sales_order WHERE id = ?", order["order"])
        return order and {**order, "email": email}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["email"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.stop(slots["email"])


class OrderCount(_Admin):
    name = "shopping_admin/order-count"
    intents = (
        "How many {status} orders does {customer} have?",
        "Count the orders of {customer} that have the status {status}.",
    )
    skills = ("filter", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT customer_name, status, count(*) AS count FROM sales_order GROUP BY customer_name, status "
            "HAVING count(*) > 1 ORDER BY 1, 2",
        )
        if row is None or not found_once(content, row["customer_name"]):
            return None
        return {"customer": row["customer_name"], "status": row["status"], "count": row["count"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("number", slots["count"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Orders")
        yield see.type("Customer", slots["customer"])
        yield see.select("Status", slots["status"].capitalize())
        yield see.click("button", "Apply Filters")
        yield see.stop(str(slots["count"]))


class SalesInMonth(_Admin):
    name = "shopping_admin/sales-in-month"
    intents = (
        "What were our total sales in {month}, without canceled orders?",
        "Run the orders report for {month} and give the sales total.",
    )
    skills = ("report", "form", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        month = some_month(content, rng)
        sql = "SELECT sum(total) FROM sales_order WHERE status != 'canceled' AND created_at BETWEEN ? AND ? || ' 24:00'"
        total = content.value(sql, month["from"], month["to"])
        return {**month, "total": money(total)} if total else None

    def checks(self, slots: Slots) -> list[Check]:
        return [says("money", slots["total"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from show_report(see, "Orders Report", slots, "Month")
        yield see.stop(slots["total"])


class Bestseller(_Admin):
    name = "shopping_admin/bestseller"
    intents = (
        "Which product did we sell most often from {from} to {to}? Canceled orders do not count.",
        "Find the bestseller of the time from {from} to {to}, counting pieces in orders that were not canceled.",
    )
    skills = ("report", "form", "compare")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        first, last = one_of(rng, TIMES)
        year = one_of(rng, ("2025", "2026", "2024"))
        ends = {"from": f"{year}-{first}", "to": f"{year}-{last}"}
        rows = content.rows(BESTSELLERS.format(length=4), ends["from"], f"{ends['to']} 24:00")
        if len(rows) < 2 or rows[0]["quantity"] == rows[1]["quantity"]:
            return None
        return {**ends, "product": rows[0]["name"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["product"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from show_report(see, "Bestsellers Report", slots, "Year")
        yield see.stop(slots["product"])


class TopTerm(_Admin):
    name = "shopping_admin/top-term"
    intents = (
        "Which search term with {least} to {most} results was used most often?",
        "Look at the search terms that find {least} to {most} products. Which of them do people use most?",
    )
    skills = ("filter", "sort", "compare")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        least = int(rng.integers(0, 8))
        most = least + int(rng.integers(1, 5))
        sql = "SELECT term, uses FROM search_term WHERE results BETWEEN ? AND ? ORDER BY uses DESC LIMIT 2"
        rows = content.rows(sql, least, most)
        if len(rows) < 2 or rows[0]["uses"] == rows[1]["uses"]:
            return None
        return {"least": least, "most": most, "term": rows[0]["term"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["term"])]

    def script(self, see: View, slots: Slots) -> Script:
        ends = {"Results_from": str(slots["least"]), "Results_to": str(slots["most"])}
        yield from filtered(see, "Search Terms", **ends)
        yield see.stop(slots["term"])


class LowStock(_Admin):
    name = "shopping_admin/low-stock"
    intents = (
        "List the SKUs of all {brand} products of which we have fewer than {low} in stock.",
        "We are about to order from {brand}. Give the SKUs of their products with a stock below {low}.",
    )
    skills = ("report", "filter", "read")
    held_out = True

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

    def checks(self, slots: Slots) -> list[Check]:
        return [says("names", tuple(slots["skus"]))]

    def script(self, see: View, slots: Slots) -> Script:
        yield from filtered(see, "Low Stock Report", Product=slots["brand"])
        yield see.stop(", ".join(slots["skus"]))


class ReviewCount(_Admin):
    name = "shopping_admin/review-count"
    intents = (
        'How many reviews with {least} to {most} stars do we have for the "{product}", whatever their status?',
        'Count all reviews of the "{product}" that give it {least} to {most} stars, also those not approved.',
    )
    skills = ("filter", "count")

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

    def checks(self, slots: Slots) -> list[Check]:
        return [says("number", slots["count"])]

    def script(self, see: View, slots: Slots) -> Script:
        ends = {"Stars_from": str(slots["least"]), "Stars_to": str(slots["most"])}
        yield from filtered(see, "Reviews", Product=slots["product"], **ends)
        yield see.stop(str(slots["count"]))


class LargestOrder(_Admin):
    name = "shopping_admin/largest-order"
    intents = (
        "Who placed the largest order of {month}? Canceled orders count as well.",
        "Of all orders in {month}, canceled or not, find the one with the highest grand total. Who placed it?",
    )
    skills = ("filter", "sort", "compare")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        month = some_month(content, rng)
        sql = "SELECT customer_name, total FROM sales_order WHERE created_at LIKE ? ORDER BY total DESC LIMIT 2"
        rows = content.rows(sql, f"{month['from'][:7]}-%")
        if len(rows) < 2 or rows[0]["total"] == rows[1]["total"]:
            return None
        return {**month, "customer": rows[0]["customer_name"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["customer"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from filtered(see, "Orders", Purchase_Date_from=slots["from"], Purchase_Date_to=slots["to"])
        yield see.click("link", "Grand Total")
        yield see.click("link", "Grand Total ↑")
        yield see.stop(slots["customer"])


class CustomersFrom(_Admin):
    name = "shopping_admin/customers-from"
    intents = (
        "Which customers of the group {group} have their billing address in {region}? List their full names.",
        "List the full names of our {group} customers from {region}, going by the billing address.",
    )
    skills = ("filter", "read")

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

    def checks(self, slots: Slots) -> list[Check]:
        return [says("names", tuple(slots["names"]))]

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Customers")
        yield see.select("Group", slots["group"])
        yield see.type("State/Province", slots["region"])
        yield see.click("button", "Apply Filters")
        yield see.stop(", ".join(slots["names"]))


class CouponDiscount(_Admin):
    name = "shopping_admin/coupon-discount"
    intents = (
        "How much discount did the coupon {coupon} give our customers from {from} to {to}? Leave canceled orders out.",
        "What did the coupon code {coupon} cost us in discounts between {from} and {to}, without canceled orders?",
    )
    skills = ("report", "form", "read")
    held_out = True

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

    def checks(self, slots: Slots) -> list[Check]:
        return [says("money", slots["discount"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from show_report(see, "Coupons Report", slots, "Year")
        yield see.stop(slots["discount"])


class LifetimeSales(_Admin):
    name = "shopping_admin/lifetime-sales"
    intents = (
        "How much has {customer} spent with us so far, without canceled orders?",
        "What are the lifetime sales of our customer {customer}?",
    )
    skills = ("filter", "navigate", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_customer(content, rng, "(SELECT count(*) FROM sales_order WHERE customer_id = c.id) > 1")
        if row is None:
            return None
        sql = "SELECT coalesce(sum(total), 0) FROM sales_order WHERE customer_id = ? AND status != 'canceled'"
        total = content.value(sql, row["id"])
        return {"customer": row["name"], "total": money(total)} if total else None

    def checks(self, slots: Slots) -> list[Check]:
        return [says("money", slots["total"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_customer(see, slots["customer"])
        yield see.stop(slots["total"])


# Pages ---------------------------------------------------------------------------------------------------------------


class OpenBuyer(_Admin):
    name = "shopping_admin/open-buyer"
    intents = (
        "Open the page of the customer who placed order {number}.",
        "Take me to the customer record behind order {number}.",
    )
    skills = ("filter", "navigate")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        sql = "SELECT number, customer_id AS id, customer_name AS customer FROM sales_order ORDER BY id"
        row = content.pick(rng, sql)
        return dict(row) if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return []

    def url(self, slots: Slots) -> str:
        return f"/admin/customer/index/edit/id/{slots['id']}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.click("link", slots["customer"])
        yield see.stop()


class OpenProduct(_Admin):
    name = "shopping_admin/open-product"
    intents = ("Open the product with the SKU {sku} for editing.", "Go to the edit page of the product {sku}.")
    skills = ("filter", "navigate")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(rng, "SELECT id, sku FROM product ORDER BY id")
        return dict(row) if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return []

    def url(self, slots: Slots) -> str:
        return f"/admin/catalog/product/edit/id/{slots['id']}"

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Products")
        yield see.type("SKU", slots["sku"], enter=True)
        yield see.click("link", "Edit", within=slots["sku"])
        yield see.stop()


# Products ------------------------------------------------------------------------------------------------------------


class _EditProduct(_Admin):
    """One product changes in one column."""

    skills: ClassVar[tuple[str, ...]] = ("filter", "form", "edit")

    def checks(self, slots: Slots) -> list[Check]:
        return [holds_row(self.site, "product", slots["id"], slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"product": f"id = {slots['id']}"}


class ChangePrice(_EditProduct):
    name = "shopping_admin/change-price"
    intents = (
        'Change the price of the "{product}" to ${price}.',
        'The regular price of the "{product}" is ${price} from now on. Update it.',
    )

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng)
        if row is None:
            return None
        price = row["price"] // 100 * 100 + int(rng.integers(1, 16)) * 100 + 50
        expected = row_of(content, "product", row["id"], PRODUCT_COLUMNS, price=price)
        return {"product": row["name"], "id": row["id"], "price": f"{price / 100:.2f}", "row": expected}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["product"])
        yield from see.fill("Price", slots["price"])
        yield see.click("button", "Save")
        yield see.stop()


class SpecialPrice(_EditProduct):
    name = "shopping_admin/special-price"
    intents = (
        'Put the "{product}" on offer with a special price of ${price}.',
        'Give the "{product}" a special price: ${price}.',
    )

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng, "special_price IS NULL")
        if row is None:
            return None
        price = row["price"] * int(rng.integers(60, 90)) // 10000 * 100 + 90
        expected = row_of(content, "product", row["id"], PRODUCT_COLUMNS, special_price=price)
        return {"product": row["name"], "id": row["id"], "price": f"{price / 100:.2f}", "row": expected}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["product"])
        yield see.type("Special Price", slots["price"])
        yield see.click("button", "Save")
        yield see.stop()


class Restock(_EditProduct):
    name = "shopping_admin/restock"
    intents = (
        'A delivery of {count} pieces of the "{product}" has come in. Add them to the quantity we have in stock.',
        'Raise the stock quantity of the "{product}" by {count}.',
    )
    skills = ("filter", "form", "edit", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng)
        if row is None:
            return None
        count = int(rng.integers(1, 13)) * 5
        expected = row_of(content, "product", row["id"], PRODUCT_COLUMNS, stock=row["stock"] + count)
        return {"product": row["name"], "id": row["id"], "count": count, "row": expected}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["product"])
        yield from see.fill("Quantity", str(slots["row"]["stock"]))
        yield see.click("button", "Save")
        yield see.stop()


class DisableProduct(_EditProduct):
    name = "shopping_admin/disable-product"
    intents = (
        'Disable the product "{product}" so that it no longer shows in the store.',
        'Take the "{product}" out of the store by disabling it.',
    )

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng)
        return (
            {
                "product": row["name"],
                "id": row["id"],
                "row": row_of(content, "product", row["id"], PRODUCT_COLUMNS, status="disabled"),
            }
            if row
            else None
        )

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["product"])
        yield see.select("Enable Product", "Disabled")
        yield see.click("button", "Save")
        yield see.stop()


class CreateProduct(_Admin):
    name = "shopping_admin/create-product"
    intents = (
        'Add a new product "{product}" with the SKU {sku}, a price of ${price} and a quantity of {stock}.',
        'Create the product "{product}": SKU {sku}, price ${price}, {stock} pieces in stock.',
    )
    skills = ("form", "write", "create")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        product, sku = one_of(rng, PRODUCTS)
        return {
            "product": product,
            "sku": f"{sku}-{int(rng.integers(10, 100))}",
            "price": f"{int(rng.integers(8, 90))}.95",
            "stock": int(rng.integers(2, 20)) * 5,
            "last": last_id(content, "product"),
        }

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT name, sku, price, special_price, stock, status FROM product WHERE id > {slots['last']}"
        price = int(slots["price"].replace(".", ""))
        return [holds(self.site, query, (slots["product"], slots["sku"], price, None, slots["stock"], "enabled"))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"product": f"id > {slots['last']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Products")
        yield see.click("link", "Add Product")
        yield see.type("Product Name", slots["product"])
        yield see.type("SKU", slots["sku"])
        yield see.type("Price", slots["price"])
        yield from see.fill("Quantity", str(slots["stock"]))
        yield see.click("button", "Save")
        yield see.stop()


# Reviews -------------------------------------------------------------------------------------------------------------


class JudgeReview(_Admin):
    name = "shopping_admin/judge-review"
    intents = (
        'Set the status of the review that {nickname} wrote about the "{product}" to {status}.',
        'The review of the "{product}" by {nickname} should be {status}. Change its status.',
    )
    skills = ("filter", "form", "status")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        review = some_review(content, rng, "r.status = 'pending'")
        if review is None:
            return None
        status = one_of(rng, ("Approved", "Not Approved"))
        row = row_of(content, "review", review["id"], REVIEW_COLUMNS, status=status.lower())
        return {**review, "status": status, "row": row}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds_row(self.site, "review", slots["id"], slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"review": f"id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_review(see, slots)
        yield see.select("Status", slots["status"])
        yield see.click("button", "Save Review")
        yield see.stop()


class JudgeAll(_Admin):
    name = "shopping_admin/judge-all"
    intents = (
        '{action} all pending reviews of the "{product}".',
        'Go through the pending reviews of the "{product}". {action} every one of them.',
    )
    skills = ("filter", "form", "status", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT p.id, p.name FROM review r JOIN product p ON p.id = r.product_id WHERE r.status = 'pending' "
            "GROUP BY p.id HAVING count(*) BETWEEN 2 AND 6 ORDER BY p.id",
        )
        if row is None:
            return None
        sql = "SELECT id FROM review WHERE product_id = ? AND status = 'pending' ORDER BY id"
        reviews = [found[0] for found in content.rows(sql, row["id"])]
        return {"product": row["name"], "action": one_of(rng, ("Approve", "Reject")), "reviews": reviews}

    def checks(self, slots: Slots) -> list[Check]:
        status = "approved" if slots["action"] == "Approve" else "not approved"
        query = f"SELECT id, status FROM review WHERE id IN ({listed(slots['reviews'])})"
        return [holds(self.site, query, *((number, status) for number in slots["reviews"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"review": f"id IN ({listed(slots['reviews'])})"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Reviews")
        yield see.select("Status", "Pending")
        yield see.type("Product", slots["product"])
        yield see.click("button", "Apply Filters")
        for number in slots["reviews"]:
            yield see.click("checkbox", f"Select {number}")
        yield see.select("Action", slots["action"])
        yield see.click("button", "Submit")
        yield see.stop()


class DeleteReview(_Admin):
    name = "shopping_admin/delete-review"
    intents = (
        'Delete the review "{title}" that {nickname} wrote about the "{product}".',
        '{nickname} asks us to remove the review of the "{product}" with the title "{title}". Delete it.',
    )
    skills = ("filter", "delete")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_review(content, rng, "1")

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT count(*) FROM review WHERE id = {slots['id']}", (0,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"review": f"id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_review(see, slots)
        yield see.click("button", "Delete Review")
        yield see.stop()


# Orders --------------------------------------------------------------------------------------------------------------


class HoldOrder(_Admin):
    name = "shopping_admin/hold-order"
    intents = ("Put order {number} on hold.", "Something is wrong with order {number}. Set it on hold for now.")
    skills = ("filter", "status")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return with_row(content, some_order(content, rng, OPEN), status="on hold")

    def checks(self, slots: Slots) -> list[Check]:
        return [holds_row(self.site, "sales_order", slots["order"], slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"sales_order": f"id = {slots['order']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.click("button", "Hold")
        yield see.stop()


class CancelOrder(_Admin):
    name = "shopping_admin/cancel-order"
    intents = (
        "Cancel the pending order of {customer}.",
        "{customer} does not want the order that is still pending. Cancel it.",
    )
    skills = ("filter", "status")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT id, number, customer_name FROM sales_order WHERE status = 'pending' GROUP BY customer_name "
            "HAVING count(*) = 1 ORDER BY id",
        )
        if row is None or not found_once(content, row["customer_name"]):
            return None
        order = {"customer": row["customer_name"], "number": row["number"], "order": row["id"]}
        return with_row(content, {**order, "stocks": returned(content, row["id"])}, status="canceled")

    def checks(self, slots: Slots) -> list[Check]:
        return [*canceled(self.site, slots), holds_row(self.site, "sales_order", slots["order"], slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return canceling(slots)

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Orders")
        yield see.type("Customer", slots["customer"])
        yield see.select("Status", "Pending")
        yield see.click("button", "Apply Filters")
        yield see.click("link", "View", within=slots["number"])
        yield see.click("button", "Cancel")
        yield see.stop()


class ShipOrder(_Admin):
    name = "shopping_admin/ship-order"
    intents = (
        "Order {number} went out with {carrier}, tracking number {tracking}. Record the shipment.",
        "Ship order {number}: carrier {carrier}, tracking number {tracking}.",
    )
    skills = ("filter", "form", "status")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        order = with_row(content, some_order(content, rng, OPEN), status="complete")
        tracking = str(int(rng.integers(10**9, 10**10)))
        return order and {
            **order,
            "carrier": one_of(rng, CARRIERS),
            "tracking": tracking,
            "last": last_id(content, "shipment"),
        }

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT order_id, carrier, tracking FROM shipment WHERE id > {slots['last']}"
        return [
            holds(self.site, query, (slots["order"], slots["carrier"], slots["tracking"])),
            holds_row(self.site, "sales_order", slots["order"], slots["row"]),
        ]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"shipment": f"id > {slots['last']}", "sales_order": f"id = {slots['order']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.select("Carrier", slots["carrier"])
        yield see.type("Tracking Number", slots["tracking"])
        yield see.click("button", "Ship")
        yield see.stop()


class OrderNote(_Admin):
    name = "shopping_admin/order-note"
    intents = (
        'Add the comment "{text}" to order {number}, {notify}.',
        'Leave a note on order {number}, {notify}: "{text}"',
    )
    skills = ("filter", "form", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        order = some_order(content, rng)
        notify = one_of(rng, ("and notify the customer by email", "without notifying the customer"))
        return order and {
            **order,
            "text": one_of(rng, NOTES),
            "notify": notify,
            "told": int(notify.startswith("and")),
            "last": last_id(content, "order_comment"),
        }

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT order_id, text, notified FROM order_comment WHERE id > {slots['last']}"
        return [holds(self.site, query, (slots["order"], slots["text"], slots["told"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"order_comment": f"id > {slots['last']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.type("Comment", slots["text"])
        if slots["told"]:
            yield see.click("checkbox", "Notify Customer by Email")
        yield see.click("button", "Submit Comment")
        yield see.stop()


class OrderAddress(_Admin):
    name = "shopping_admin/order-address"
    intents = (
        "In the shipping address of order {number}, change the street to {street}.",
        "The street of order {number} is wrong. It must go to {street}; city and the rest are right.",
    )
    skills = ("filter", "form", "edit")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        street = one_of(rng, ADDRESSES)[0]
        order = with_row(content, some_order(content, rng, OPEN), ship_street=street)
        return order and {**order, "street": street}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds_row(self.site, "sales_order", slots["order"], slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"sales_order": f"id = {slots['order']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.click("link", "Edit")
        yield from see.fill("Street Address", slots["street"])
        yield see.click("button", "Save Order Address")
        yield see.stop()


# Customers, rules, pages ---------------------------------------------------------------------------------------------


class CustomerGroup(_Admin):
    name = "shopping_admin/customer-group"
    intents = (
        "Move the customer {customer} to the group {group}.",
        "{customer} now belongs to the customer group {group}. Change the record.",
    )
    skills = ("filter", "form", "edit")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        group = one_of(rng, GROUPS)
        row = some_customer(content, rng, f"group_name != {quoted(group)}")
        columns = ("email", "first_name", "last_name", "phone", "group_name")
        return (
            {
                "customer": row["name"],
                "group": group,
                "id": row["id"],
                "row": row_of(content, "customer", row["id"], columns, group_name=group),
            }
            if row
            else None
        )

    def checks(self, slots: Slots) -> list[Check]:
        return [holds_row(self.site, "customer", slots["id"], slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"customer": f"id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_customer(see, slots["customer"])
        yield see.select("Group", slots["group"])
        yield see.click("button", "Save Customer")
        yield see.stop()


class CreateRule(_Admin):
    name = "shopping_admin/create-rule"
    intents = (
        'Create a cart price rule "{rule}" for {group} customers: the coupon {coupon} gives {amount} percent off.',
        'Set up the price rule "{rule}": coupon code {coupon}, {amount}% discount, customer group {group}.',
    )
    skills = ("form", "write", "create")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        rule, coupon = one_of(rng, RULES)
        amount = int(rng.integers(1, 9)) * 5
        return {
            "rule": rule,
            "coupon": f"{coupon}{amount}",
            "amount": amount,
            "group": one_of(rng, GROUPS),
            "last": last_id(content, "cart_rule"),
        }

    def checks(self, slots: Slots) -> list[Check]:
        columns = "name, coupon, customer_group, action, amount, active, minimum, from_date, to_date"
        wanted = (slots["rule"], slots["coupon"], slots["group"], "by_percent", slots["amount"], 1, 0, "", "")
        return [holds(self.site, f"SELECT {columns} FROM cart_rule WHERE id > {slots['last']}", wanted)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"cart_rule": f"id > {slots['last']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Cart Price Rules")
        yield see.click("link", "Add New Rule")
        yield see.type("Rule Name", slots["rule"])
        yield see.select("Customer Group", slots["group"])
        yield see.type("Coupon Code (empty: no coupon needed)", slots["coupon"])
        yield see.type("Discount Amount", str(slots["amount"]))
        yield see.click("button", "Save")
        yield see.stop()


class EndRule(_Admin):
    name = "shopping_admin/end-rule"
    intents = (
        'Make the cart price rule "{rule}" inactive.',
        'The offer "{rule}" is over. Switch its cart price rule to inactive.',
    )
    skills = ("form", "status")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(rng, "SELECT id, name FROM cart_rule WHERE active = 1 ORDER BY id")
        return (
            {
                "rule": row["name"],
                "id": row["id"],
                "row": row_of(content, "cart_rule", row["id"], RULE_COLUMNS, active=0),
            }
            if row
            else None
        )

    def checks(self, slots: Slots) -> list[Check]:
        return [holds_row(self.site, "cart_rule", slots["id"], slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"cart_rule": f"id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Cart Price Rules")
        yield see.click("link", "Edit", within=slots["rule"])
        yield see.select("Status", "Inactive")
        yield see.click("button", "Save")
        yield see.stop()


class PageTitle(_Admin):
    name = "shopping_admin/page-title"
    intents = (
        'Rename the page "{page}" to "{title}".',
        'Change the title of the page "{page}" to "{title}" and leave its content alone.',
    )
    skills = ("form", "edit")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        page = one_of(rng, list(TITLES))
        title = one_of(rng, TITLES[page])
        number = content.value("SELECT id FROM cms_page WHERE title = ?", page)
        return number and {
            "page": page,
            "title": title,
            "id": number,
            "row": row_of(content, "cms_page", number, ("slug", "title", "body", "active"), title=title),
        }

    def checks(self, slots: Slots) -> list[Check]:
        return [holds_row(self.site, "cms_page", slots["id"], slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"cms_page": f"id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Pages")
        yield see.click("link", "Edit", within=slots["page"])
        yield from see.fill("Page Title", slots["title"])
        yield see.click("button", "Save")
        yield see.stop()


TEMPLATES = (
    CustomerPhone, OrderEmail, OrderCount, SalesInMonth, Bestseller, TopTerm, LowStock, ReviewCount, LargestOrder,
    CustomersFrom, CouponDiscount, LifetimeSales, OpenBuyer, OpenProduct, ChangePrice, SpecialPrice, Restock,
    DisableProduct, CreateProduct, JudgeReview, JudgeAll, DeleteReview, HoldOrder, CancelOrder, ShipOrder, OrderNote,
    OrderAddress, CustomerGroup, CreateRule, EndRule, PageTitle,
)  # fmt: skip
