"""Price rules, search terms and written pages in the back office."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.shopping_admin.pages.grid import Column, Filter, grid
from oneiro_web.sites.store.forms import cents, day, dollars, missing, row_id, whole
from oneiro_web.sites.store.orders import GROUPS

CUSTOMER_GROUPS = tuple((name, name) for name in ("All", *GROUPS))
ACTIONS = (("by_percent", "Percent of product price discount"), ("cart_fixed", "Fixed amount discount for whole cart"))
ACTIVE = (("1", "Active"), ("0", "Inactive"))
RULES = "/admin/sales_rule/promo_quote"
RULE_COLUMNS = (
    Column("id", "ID"),
    Column("name", "Rule"),
    Column("coupon", "Coupon Code"),
    Column("from_date", "Start"),
    Column("to_date", "End"),
    Column("state", "Status", "status"),
    Column("customer_group", "Customer Group"),
)
STATES = (("active", "Active"), ("inactive", "Inactive"))
RULE_SOURCE = "(SELECT *, CASE active WHEN 1 THEN 'active' ELSE 'inactive' END AS state FROM cart_rule)"
RULE_FILTERS = (
    Filter("name", "Rule", "name"),
    Filter("coupon", "Coupon Code", "coupon"),
    Filter("state", "Status", "state", "choice", STATES),
)
TERM_COLUMNS = (Column("term", "Search Query"), Column("results", "Results"), Column("uses", "Uses"))
TERM_FILTERS = (
    Filter("term", "Search Query", "term"),
    Filter("results", "Results", "results", "number"),
    Filter("uses", "Uses", "uses", "number"),
)
PAGE_COLUMNS = (
    Column("id", "ID"),
    Column("title", "Title"),
    Column("slug", "URL Key"),
    Column("updated_at", "Modified"),
)


def rules(visit: Visit) -> Response:
    return grid(
        visit, "Cart Price Rules", RULE_SOURCE, RULE_COLUMNS, RULE_FILTERS, edit=f"{RULES}/edit/id/",
        new=(f"{RULES}/new", "Add New Rule"),
    )  # fmt: skip


def rule_form(visit: Visit, title: str, form: Any, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    return visit.page(
        "shopping_admin/rule.html", status, title=title, form=form, errors=errors or {}, groups=CUSTOMER_GROUPS,
        actions=ACTIONS, states=ACTIVE,
    )  # fmt: skip


def checked(visit: Visit, own: int = 0) -> tuple[dict[str, Any], dict[str, str]]:
    """The columns of a rule from its form, and what is wrong with them."""
    form = visit.form
    errors = missing(form, ("name", "amount"))
    row: dict[str, Any] = {
        key: form.get(key, "") for key in ("name", "description", "customer_group", "coupon", "action")
    }
    row["active"] = whole(form.get("active", ""), 0, 1)
    percent = row["action"] == "by_percent"
    row["amount"] = whole(form.get("amount", ""), 1, 100) if percent else cents(form.get("amount", ""))
    row["minimum"] = cents(form.get("minimum") or "0")
    for name, options in (("customer_group", CUSTOMER_GROUPS), ("action", ACTIONS)):
        if row[name] not in dict(options):
            errors[name] = "Please choose an option."
    if row["active"] is None:
        errors["active"] = "Please choose an option."
    if form.get("amount") and not row["amount"]:
        errors["amount"] = "Please enter a percentage from 1 to 100." if percent else "Please enter an amount."
    if row["minimum"] is None:
        errors["minimum"] = "Please enter an amount."
    for name in ("from_date", "to_date"):
        row[name] = day(form.get(name, ""))
        if form.get(name) and not row[name]:
            errors[name] = "Please enter a date like 2026-06-15."
    if row["from_date"] and row["to_date"] and row["from_date"] > row["to_date"]:
        errors["to_date"] = "End Date must follow Start Date."
    if row["coupon"] and visit.one("SELECT 1 FROM cart_rule WHERE coupon = ? AND id != ?", row["coupon"], own):
        errors["coupon"] = "Coupon with the same code already exists."
    return row, errors


def new_rule_page(visit: Visit) -> Response:
    return rule_form(visit, "New Cart Price Rule", {"active": "1"})


def new_rule(visit: Visit) -> Response:
    row, errors = checked(visit)
    if errors:
        return rule_form(visit, "New Cart Price Rule", visit.form, 400, errors)
    marks = ", ".join("?" * len(row))
    visit.change(f"INSERT INTO cart_rule ({', '.join(row)}) VALUES ({marks})", *row.values())
    return visit.redirect(RULES, "You saved the rule.")


def rule_page(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    row = visit.require("SELECT * FROM cart_rule WHERE id = ?", row_id(visit))
    amount = str(row["amount"]) if row["action"] == "by_percent" else dollars(row["amount"])
    form = visit.form or {**dict(row), "amount": amount, "minimum": dollars(row["minimum"])}
    return rule_form(visit, row["name"], form, status, errors)


def edit_rule(visit: Visit) -> Response:
    number = visit.require("SELECT id FROM cart_rule WHERE id = ?", row_id(visit))["id"]
    row, errors = checked(visit, number)
    if errors:
        return rule_page(visit, 400, errors)
    sets = ", ".join(f"{name} = ?" for name in row)
    visit.change(f"UPDATE cart_rule SET {sets} WHERE id = ?", *row.values(), number)
    return visit.redirect(RULES, "You saved the rule.")


def terms(visit: Visit) -> Response:
    return grid(visit, "Search Terms", "search_term", TERM_COLUMNS, TERM_FILTERS, sort="uses")


def pages(visit: Visit) -> Response:
    return grid(visit, "Pages", "cms_page", PAGE_COLUMNS, edit="/admin/cms/page/edit/page_id/", descending=False)


def page_page(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    row = visit.require("SELECT * FROM cms_page WHERE id = ?", row_id(visit))
    return visit.page(
        "shopping_admin/page.html", status, text=row, form=visit.form or dict(row), errors=errors or {}, states=ACTIVE
    )


def edit_page(visit: Visit) -> Response:
    row, form = visit.require("SELECT id FROM cms_page WHERE id = ?", row_id(visit)), visit.form
    errors = missing(form, ("title",))
    active = whole(form.get("active", ""), 0, 1)
    if active is None:
        errors["active"] = "Please choose an option."
    if errors:
        return page_page(visit, 400, errors)
    sql = "UPDATE cms_page SET title = ?, body = ?, active = ?, updated_at = ? WHERE id = ?"
    visit.change(sql, form["title"], form.get("body", ""), active, visit.now(), row["id"])
    return visit.redirect("/admin/cms/page", "You saved the page.")
