"""A customer's own orders at the store."""

from __future__ import annotations

import sqlite3

from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.shopping.pages.cart import in_cart, put
from oneiro_web.sites.shopping.pages.catalogue import customer, show
from oneiro_web.sites.store.forms import paged, row_id

PER_PAGE = 10
SUMMARY = "id, number, created_at, ship_name, total, status"
"""The columns that a list of orders shows."""


def history(visit: Visit) -> Response:
    owner = customer(visit)["id"]
    count = visit.value("SELECT count(*) FROM sales_order WHERE customer_id = ?", owner)
    page, pages, offset = paged(visit, count, PER_PAGE)
    sql = f"SELECT {SUMMARY} FROM sales_order WHERE customer_id = ? ORDER BY id DESC LIMIT ? OFFSET ?"
    rows = visit.rows(sql, owner, PER_PAGE, offset)
    return show(visit, "orders", orders=rows, count=count, page=page, pages=pages)


def own(visit: Visit) -> sqlite3.Row:
    """The order in the address, if it belongs to who asks."""
    sql = "SELECT * FROM sales_order WHERE id = ? AND customer_id = ?"
    return visit.require(sql, row_id(visit), customer(visit)["id"])


def view(visit: Visit) -> Response:
    order = own(visit)
    comments_query = "SELECT * FROM order_comment WHERE order_id = ? AND notified = 1"
    return show(
        visit, "order", order=order,
        items=visit.rows("SELECT * FROM order_item WHERE order_id = ? ORDER BY id", order["id"]),
        shipments=visit.rows("SELECT * FROM shipment WHERE order_id = ? ORDER BY id", order["id"]),
        comments=visit.rows(f"{comments_query} ORDER BY id DESC", order["id"]),
    )  # fmt: skip


def reorder(visit: Visit) -> Response:
    """The same items into the cart, as far as they can be bought."""
    order, left_out = own(visit), []
    for item in visit.rows("SELECT * FROM order_item WHERE order_id = ? ORDER BY id", order["id"]):
        product = visit.one("SELECT stock FROM product WHERE id = ? AND status = 'enabled'", item["product_id"])
        held = in_cart(visit, order["customer_id"], item["product_id"])
        if product is None or held + item["quantity"] > product["stock"]:
            left_out.append(item["name"])
        else:
            put(visit, order["customer_id"], item["product_id"], item["options"], item["quantity"])
    return visit.redirect("/checkout/cart", f"Not available now: {', '.join(left_out)}." if left_out else "")


def cancel(visit: Visit) -> Response:
    """Only what nobody has begun to pack."""
    order = own(visit)
    address = f"/sales/order/view/order_id/{order['id']}"
    if order["status"] != "pending":
        return visit.redirect(address, "This order can no longer be canceled.")
    cancel_order(visit, order["id"], "Canceled by the customer.")
    return visit.redirect(address, f"Order # {order['number']} was canceled.")


def cancel_order(visit: Visit, order: int, reason: str) -> None:
    """The order is canceled and its items go back into stock."""
    visit.change("UPDATE sales_order SET status = 'canceled', held_status = '' WHERE id = ?", order)
    visit.change(
        "INSERT INTO order_comment (order_id, created_at, status, text) VALUES (?, ?, 'canceled', ?)",
        order, visit.now(), reason,
    )  # fmt: skip
    for item in visit.rows("SELECT product_id, quantity FROM order_item WHERE order_id = ?", order):
        visit.change("UPDATE product SET stock = stock + ? WHERE id = ?", item["quantity"], item["product_id"])
