"""Customers in the back office, and who may enter it."""

from __future__ import annotations

from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.shopping.pages.account import change_email, person_errors
from oneiro_web.sites.shopping_admin.pages.grid import Column, Filter, grid
from oneiro_web.sites.store.forms import next_path, row_id
from oneiro_web.sites.store.orders import GROUPS

GROUP_OPTIONS = tuple((name, name) for name in GROUPS)
SOURCE = (
    "(SELECT c.*, c.first_name || ' ' || c.last_name AS name, coalesce(a.region, '') AS region,"
    " coalesce(a.postcode, '') AS postcode FROM customer c"
    " LEFT JOIN address a ON a.customer_id = c.id AND a.default_billing = 1)"
)
COLUMNS = (
    Column("id", "ID"),
    Column("name", "Name"),
    Column("email", "Email"),
    Column("group_name", "Group"),
    Column("phone", "Phone"),
    Column("postcode", "ZIP"),
    Column("region", "State/Province"),
    Column("created_at", "Customer Since"),
)
FILTERS = (
    Filter("name", "Name", "name"),
    Filter("email", "Email", "email"),
    Filter("phone", "Phone", "phone"),
    Filter("group_name", "Group", "group_name", "choice", GROUP_OPTIONS),
    Filter("region", "State/Province", "region"),
    Filter("created_at", "Customer Since", "created_at", "day"),
)


def log_in_page(visit: Visit, status: int = 200, error: str = "") -> Response:
    after = visit.form.get("next") or visit.query.get("next", "")
    return visit.page("shopping_admin/login.html", status, error=error, form=visit.form, after=after)


def log_in(visit: Visit) -> Response:
    name = visit.form.get("username", "")
    known = visit.one("SELECT password FROM admin_user WHERE username = ?", name)
    if known is None or known["password"] != visit.form.get("password"):
        return log_in_page(visit, 400, "The account sign-in was incorrect. Please try again.")
    return visit.log_in(name, next_path(visit, visit.site.home))


def log_out(visit: Visit) -> Response:
    return visit.log_out("/admin/auth/login")


def customers(visit: Visit) -> Response:
    return grid(visit, "Customers", SOURCE, COLUMNS, FILTERS, edit="/admin/customer/index/edit/id/", descending=False)


def edit_page(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    row = visit.require("SELECT * FROM customer WHERE id = ?", row_id(visit))
    spent = visit.require(
        "SELECT count(*) AS orders, coalesce(sum(total), 0) AS total FROM sales_order"
        " WHERE customer_id = ? AND status != 'canceled'",
        row["id"],
    )
    return visit.page(
        "shopping_admin/customer.html", status, customer=row, form=visit.form or dict(row), errors=errors or {},
        groups=GROUP_OPTIONS, spent=spent,
        addresses=visit.rows("SELECT * FROM address WHERE customer_id = ? ORDER BY id", row["id"]),
        orders=visit.rows("SELECT * FROM sales_order WHERE customer_id = ? ORDER BY id DESC LIMIT 10", row["id"]),
    )  # fmt: skip


def edit(visit: Visit) -> Response:
    row, form = visit.require("SELECT * FROM customer WHERE id = ?", row_id(visit)), visit.form
    errors = person_errors(visit, row["id"])
    if form.get("group_name") not in GROUPS:
        errors["group_name"] = "Please choose a group."
    if errors:
        return edit_page(visit, 400, errors)
    visit.change(
        "UPDATE customer SET first_name = ?, last_name = ?, phone = ?, group_name = ? WHERE id = ?",
        form["first_name"], form["last_name"], form.get("phone", ""), form["group_name"], row["id"],
    )  # fmt: skip
    change_email(visit, row["id"], row["email"], form["email"].lower())
    return visit.redirect(f"/admin/customer/index/edit/id/{row['id']}", "You saved the customer.")
