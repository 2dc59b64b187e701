"""Orders in the back office."""

from __future__ import annotations

import sqlite3

from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.shopping.pages.orders import cancel_order
from oneiro_web.sites.shopping_admin.pages.grid import Column, Filter, grid
from oneiro_web.sites.store.forms import missing, row_id
from oneiro_web.sites.store.orders import CARRIERS

STATUSES = tuple((name, name.capitalize()) for name in ("pending", "processing", "complete", "canceled", "on hold"))
OPEN = ("pending", "processing")
COLUMNS = (
    Column("number", "ID"),
    Column("created_at", "Purchase Date"),
    Column("customer_name", "Customer"),
    Column("ship_name", "Ship-to Name"),
    Column("total", "Grand Total", "money"),
    Column("status", "Status", "status"),
)
FILTERS = (
    Filter("number", "ID", "number"),
    Filter("customer_name", "Customer", "customer_name"),
    Filter("customer_email", "Customer Email", "customer_email"),
    Filter("status", "Status", "status", "choice", STATUSES),
    Filter("created_at", "Purchase Date", "created_at", "day"),
    Filter("total", "Grand Total", "total", "money"),
)
ADDRESS = (
    ("ship_name", "Name"),
    ("ship_street", "Street Address"),
    ("ship_city", "City"),
    ("ship_region", "State/Province"),
    ("ship_postcode", "Zip/Postal Code"),
    ("ship_country", "Country"),
    ("ship_phone", "Phone Number"),
)


def orders(visit: Visit) -> Response:
    return grid(visit, "Orders", "sales_order", COLUMNS, FILTERS, edit="/admin/sales/order/view/order_id/")


def named(visit: Visit) -> sqlite3.Row:
    """The order in the address."""
    return visit.require("SELECT * FROM sales_order WHERE id = ?", row_id(visit))


def order(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    row = named(visit)
    return visit.page(
        "shopping_admin/order.html", status, order=row, carriers=CARRIERS, open=row["status"] in OPEN,
        items=visit.rows("SELECT * FROM order_item WHERE order_id = ? ORDER BY id", row["id"]),
        comments=visit.rows("SELECT * FROM order_comment WHERE order_id = ? ORDER BY id DESC", row["id"]),
        shipments=visit.rows("SELECT * FROM shipment WHERE order_id = ? ORDER BY id", row["id"]),
        errors=errors or {}, form=visit.form,
    )  # fmt: skip


def back(visit: Visit, row: sqlite3.Row, note: str) -> Response:
    return visit.redirect(f"/admin/sales/order/view/order_id/{row['id']}", note)


def write_comment(visit: Visit, order: int, status: str, text: str, notified: int = 0) -> None:
    visit.change(
        "INSERT INTO order_comment (order_id, created_at, status, text, notified) VALUES (?, ?, ?, ?, ?)",
        order, visit.now(), status, text, notified,
    )  # fmt: skip


def cancel(visit: Visit) -> Response:
    row = named(visit)
    if row["status"] not in OPEN:
        return back(visit, row, "You have not canceled the item.")
    cancel_order(visit, row["id"], "Canceled by the store.")
    return back(visit, row, "You canceled the order.")


def hold(visit: Visit) -> Response:
    """Put aside; `held_status` remembers where it was."""
    row = named(visit)
    if row["status"] not in OPEN:
        return back(visit, row, "You have not put the order on hold.")
    visit.change("UPDATE sales_order SET held_status = status, status = 'on hold' WHERE id = ?", row["id"])
    return back(visit, row, "You put the order on hold.")


def unhold(visit: Visit) -> Response:
    row = named(visit)
    if row["status"] != "on hold":
        return back(visit, row, "The order was not on hold.")
    visit.change("UPDATE sales_order SET status = held_status, held_status = '' WHERE id = ?", row["id"])
    return back(visit, row, "You released the order from holding status.")


def comment(visit: Visit) -> Response:
    row = named(visit)
    errors = missing(visit.form, ("comment",))
    if errors:
        return order(visit, 400, errors)
    write_comment(visit, row["id"], row["status"], visit.form["comment"], int(bool(visit.form.get("notify"))))
    return back(
        visit,
        row,
        "The comment was added and the customer was notified."
        if visit.form.get("notify")
        else "The comment was added.",
    )


def ship(visit: Visit) -> Response:
    """A shipment completes an order; for a complete one it adds another tracking number."""
    row, carrier, tracking = named(visit), visit.form.get("carrier", ""), visit.form.get("tracking", "")
    if row["status"] not in (*OPEN, "complete"):
        return back(visit, row, "This order cannot be shipped.")
    errors = {}
    if carrier not in CARRIERS:
        errors["carrier"] = "Please choose a carrier."
    if len(tracking) > 40:
        errors["tracking"] = "Please enter at most 40 characters."
    if errors:
        return order(visit, 400, errors)
    sql = "INSERT INTO shipment (order_id, created_at, carrier, tracking) VALUES (?, ?, ?, ?)"
    visit.change(sql, row["id"], visit.now(), carrier, tracking)
    if row["status"] != "complete":
        visit.change("UPDATE sales_order SET status = 'complete' WHERE id = ?", row["id"])
    return back(visit, row, "The shipment has been created.")


def address_page(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    row = named(visit)
    form = visit.form or dict(row)
    return visit.page(
        "shopping_admin/order_address.html", status, order=row, form=form, labels=ADDRESS, errors=errors or {}
    )


def address(visit: Visit) -> Response:
    row = named(visit)
    names = [name for name, _ in ADDRESS]
    errors = missing(visit.form, names)
    if errors:
        return address_page(visit, 400, errors)
    sets = ", ".join(f"{name} = ?" for name in names)
    visit.change(f"UPDATE sales_order SET {sets} WHERE id = ?", *(visit.form[name] for name in names), row["id"])
    return back(visit, row, "You updated the order address.")
