"""The dashboard and the reports of the back office. Canceled orders count nowhere."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.shopping_admin.pages.grid import Column, Filter, grid
from oneiro_web.sites.store.forms import REQUIRED, day, paged

PERIODS = (("day", "Day"), ("month", "Month"), ("year", "Year"))
LENGTHS = {"day": 10, "month": 7, "year": 4}
PER_PAGE = 20
LOW = 10
"""A product with fewer pieces is low in stock."""

SALES = """
SELECT substr(o.created_at, 1, {length}) AS period, count(*) AS orders, sum(o.items) AS items,
  sum(o.subtotal) AS subtotal, sum(o.discount) AS discount, sum(o.shipping) AS shipping, sum(o.total) AS total
FROM (SELECT s.*, (SELECT sum(quantity) FROM order_item WHERE order_id = s.id) AS items FROM sales_order s) o
WHERE o.status != 'canceled' AND o.created_at >= ? AND o.created_at <= ?
GROUP BY period ORDER BY period"""
BESTSELLERS = """
SELECT period, name, price, quantity FROM (
  SELECT *, row_number() OVER (PARTITION BY period ORDER BY quantity DESC, product_id) AS place FROM (
    SELECT substr(o.created_at, 1, {length}) AS period, i.product_id, i.name, i.price, sum(i.quantity) AS quantity
    FROM sales_order o JOIN order_item i ON i.order_id = o.id
    WHERE o.status != 'canceled' AND o.created_at >= ? AND o.created_at <= ?
    GROUP BY period, i.product_id))
WHERE place <= 5 ORDER BY period, place"""
COUPONS = """
SELECT substr(created_at, 1, {length}) AS period, coupon, count(*) AS uses, sum(subtotal) AS subtotal,
  sum(discount) AS discount, sum(total) AS total
FROM sales_order WHERE status != 'canceled' AND coupon != '' AND created_at >= ? AND created_at <= ?
GROUP BY period, coupon ORDER BY period, coupon"""

STOCK_COLUMNS = (Column("id", "ID"), Column("name", "Product"), Column("sku", "SKU"), Column("stock", "Stock Qty"))
STOCK_FILTERS = (
    Filter("name", "Product", "name"),
    Filter("sku", "SKU", "sku"),
    Filter("stock", "Stock Qty", "stock", "number"),
)


SUMS = """
SELECT coalesce(sum(total), 0) AS total, coalesce(avg(total), 0) AS average
FROM sales_order WHERE status != 'canceled'"""
LAST_ORDERS = """
SELECT o.id, o.number, o.customer_name, o.total, o.status,
  (SELECT sum(quantity) FROM order_item WHERE order_id = o.id) AS items
FROM sales_order o ORDER BY id DESC LIMIT 5"""
BEST = """
SELECT p.id, p.name, p.price, b.quantity FROM (
  SELECT product_id, sum(quantity) AS quantity FROM order_item
  WHERE order_id NOT IN (SELECT id FROM sales_order WHERE status = 'canceled')
  GROUP BY product_id ORDER BY 2 DESC, 1 LIMIT 5) b
JOIN product p ON p.id = b.product_id ORDER BY b.quantity DESC, p.id"""
COUNTS = """
SELECT (SELECT count(*) FROM sales_order WHERE status = 'pending') AS orders,
  (SELECT count(*) FROM review WHERE status = 'pending') AS reviews, (SELECT count(*) FROM customer) AS customers"""


def dashboard(visit: Visit) -> Response:
    return visit.page(
        "shopping_admin/dashboard.html", sums=visit.require(SUMS), counts=visit.require(COUNTS),
        orders=visit.rows(LAST_ORDERS), best=visit.rows(BEST),
        terms=visit.rows("SELECT * FROM search_term ORDER BY uses DESC, id LIMIT 5"),
    )  # fmt: skip


def report(visit: Visit, title: str, sql: str, columns: tuple[Column, ...], totals: tuple[str, ...]) -> Response:
    """A report over a range of days; without a range only its form."""
    period = visit.query.get("period", "")
    period = period if period in LENGTHS else "day"
    errors: dict[str, str] = {}
    ends = {}
    filtered = "from" in visit.query or "to" in visit.query
    for name in ("from", "to"):
        text = visit.query.get(name, "")
        ends[name] = day(text)
        if filtered and not ends[name]:
            errors[name] = "Please enter a date like 2026-06-15." if text else REQUIRED
    if filtered and not errors and ends["from"] > ends["to"]:
        errors["to"] = "The last day is before the first one."
    rows: list[Any] = []
    if filtered and not errors:
        rows = visit.rows(sql.format(length=LENGTHS[period]), ends["from"], f"{ends['to']} 24:00")
    page, pages, offset = paged(visit, len(rows), PER_PAGE)
    return visit.page(
        "shopping_admin/report.html", 400 if errors else 200, title=title, columns=columns,
        kinds=[(column.name, column.kind) for column in columns], periods=PERIODS, period=period, errors=errors,
        shown=filtered and not errors, rows=rows[offset : offset + PER_PAGE], page=page, pages=pages,
        totals={name: sum(row[name] for row in rows) for name in totals},
    )  # fmt: skip


def sales(visit: Visit) -> Response:
    columns = (
        Column("period", "Interval"), Column("orders", "Orders"), Column("items", "Sales Items"),
        Column("subtotal", "Sales Subtotal", "money"), Column("discount", "Sales Discount", "money"),
        Column("shipping", "Sales Shipping", "money"), Column("total", "Sales Total", "money"),
    )  # fmt: skip
    names = ("orders", "items", "subtotal", "discount", "shipping", "total")
    return report(visit, "Orders Report", SALES, columns, names)


def bestsellers(visit: Visit) -> Response:
    columns = (
        Column("period", "Interval"),
        Column("name", "Product"),
        Column("price", "Price", "money"),
        Column("quantity", "Order Quantity"),
    )
    return report(visit, "Bestsellers Report", BESTSELLERS, columns, ("quantity",))


def coupons(visit: Visit) -> Response:
    columns = (
        Column("period", "Interval"), Column("coupon", "Coupon Code"), Column("uses", "Uses"),
        Column("subtotal", "Sales Subtotal", "money"), Column("discount", "Sales Discount", "money"),
        Column("total", "Sales Total", "money"),
    )  # fmt: skip
    return report(visit, "Coupons Report", COUPONS, columns, ("uses", "subtotal", "discount", "total"))


def low_stock(visit: Visit) -> Response:
    source = f"(SELECT * FROM product WHERE stock < {LOW})"
    return grid(
        visit, "Low Stock Report", source, STOCK_COLUMNS, STOCK_FILTERS, sort="stock", descending=False,
        edit="/admin/catalog/product/edit/id/",
    )  # fmt: skip
