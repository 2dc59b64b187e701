"""Products and reviews in the back office."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.shopping_admin.pages.grid import Column, Filter, grid
from oneiro_web.sites.store.content import slug
from oneiro_web.sites.store.forms import cents, dollars, missing, row_id, whole

ENABLED = (("enabled", "Enabled"), ("disabled", "Disabled"))
REVIEW_STATUSES = (("approved", "Approved"), ("pending", "Pending"), ("not approved", "Not Approved"))
ACTIONS = (("approved", "Approve"), ("not approved", "Reject"), ("pending", "Set to pending"), ("delete", "Delete"))
STARS = tuple((n, f"{n} star{'s' if n > 1 else ''}") for n in range(5, 0, -1))
PRODUCT_COLUMNS = (
    Column("id", "ID"),
    Column("name", "Name"),
    Column("sku", "SKU"),
    Column("brand", "Brand"),
    Column("price", "Price", "money"),
    Column("stock", "Quantity"),
    Column("status", "Status", "status"),
)
PRODUCT_FILTERS = (
    Filter("name", "Name", "name"),
    Filter("sku", "SKU", "sku"),
    Filter("brand", "Brand", "brand"),
    Filter("status", "Status", "status", "choice", ENABLED),
    Filter("price", "Price", "price", "money"),
    Filter("stock", "Quantity", "stock", "number"),
)
REVIEW_SOURCE = "(SELECT r.*, p.name AS product FROM review r JOIN product p ON p.id = r.product_id)"
REVIEW_COLUMNS = (
    Column("id", "ID"),
    Column("created_at", "Created"),
    Column("status", "Status", "status"),
    Column("stars", "Stars"),
    Column("title", "Title"),
    Column("nickname", "Nickname"),
    Column("text", "Review"),
    Column("product", "Product"),
)
REVIEW_FILTERS = (
    Filter("status", "Status", "status", "choice", REVIEW_STATUSES),
    Filter("title", "Title", "title"),
    Filter("nickname", "Nickname", "nickname"),
    Filter("text", "Review", "text"),
    Filter("product", "Product", "product"),
    Filter("stars", "Stars", "stars", "number"),
    Filter("created_at", "Created", "created_at", "day"),
)


def products(visit: Visit) -> Response:
    return grid(
        visit, "Products", "product", PRODUCT_COLUMNS, PRODUCT_FILTERS, edit="/admin/catalog/product/edit/id/",
        descending=False, new=("/admin/catalog/product/new", "Add Product"),
    )  # fmt: skip


def product_form(visit: Visit, title: str, form: Any, status: int = 200, **values: Any) -> Response:
    """The form for a product, new or old."""
    categories = [
        (row["id"], row["path"].replace("/", " / "))
        for row in visit.rows("SELECT id, path FROM category ORDER BY path")
    ]
    values = {"errors": {}, "product": None, "attributes": (), **values}
    return visit.page(
        "shopping_admin/product.html", status, title=title, form=form, categories=categories, statuses=ENABLED, **values
    )


def checked(visit: Visit, own: int = 0) -> tuple[dict[str, Any], dict[str, str]]:
    """The columns of a product from its form, and what is wrong with them."""
    form = visit.form
    errors = missing(form, ("name", "sku", "price", "stock"))
    row: dict[str, Any] = {
        key: form.get(key, "") for key in ("name", "sku", "brand", "status", "short_description", "description")
    }
    row["price"], row["stock"] = cents(form.get("price", "")), whole(form.get("stock", ""), 0, 10**6)
    row["special_price"] = cents(form.get("special_price", ""))
    row["category_id"] = whole(form.get("category_id", ""))
    for name in ("price", "special_price"):
        if form.get(name) and row[name] is None:
            errors[name] = "Please enter a valid price."
    if form.get("stock") and row["stock"] is None:
        errors["stock"] = "Please enter a valid number in this field."
    if visit.one("SELECT 1 FROM product WHERE sku = ? AND id != ?", row["sku"], own):
        errors["sku"] = "The value of attribute \"SKU\" must be unique."  # fmt: skip
    if row["status"] not in dict(ENABLED):
        errors["status"] = "Please choose a status."
    if not visit.one("SELECT 1 FROM category WHERE id = ?", row["category_id"]):
        errors["category_id"] = "Please choose a category."
    return row, errors


def options_text(visit: Visit, product: int) -> str:
    """Options as the form shows them: a line for each, `Color: Black, White`."""
    options: dict[str, list[str]] = {}
    for row in visit.rows("SELECT name, value FROM product_option WHERE product_id = ? ORDER BY id", product):
        options.setdefault(row["name"], []).append(row["value"])
    return "\n".join(f"{name}: {', '.join(values)}" for name, values in options.items())


def write_options(visit: Visit, product: int) -> None:
    """Options from the form's lines, where they differ from what is there."""
    wanted: list[tuple[str, str]] = []
    for line in visit.form.get("options", "").splitlines()[:10]:
        name, _, values = line.partition(":")
        pairs = [(name.strip(), value.strip()) for value in values.split(",")[:30]]
        wanted += [pair for pair in pairs if all(pair) and pair not in wanted]
    rows = visit.rows("SELECT name, value FROM product_option WHERE product_id = ? ORDER BY id", product)
    if wanted != [(row["name"], row["value"]) for row in rows]:
        visit.change("DELETE FROM product_option WHERE product_id = ?", product)
        for name, value in wanted:
            visit.change("INSERT INTO product_option (product_id, name, value) VALUES (?, ?, ?)", product, name, value)


def new_page(visit: Visit) -> Response:
    return product_form(visit, "New Product", {"status": "enabled", "stock": "0"})


def new(visit: Visit) -> Response:
    row, errors = checked(visit)
    if errors:
        return product_form(visit, "New Product", visit.form, 400, errors=errors)
    number = visit.value("SELECT max(id) FROM product") + 1
    path = slug(row["name"])[:100] or "product"
    if visit.one("SELECT 1 FROM product WHERE slug = ? UNION SELECT 1 FROM category WHERE path = ?", path, path):
        path = f"{path}-{number}"
    row |= {"id": number, "slug": path, "position": number, "created_at": visit.now()}
    marks = ", ".join("?" * len(row))
    visit.change(f"INSERT INTO product ({', '.join(row)}) VALUES ({marks})", *row.values())
    write_options(visit, number)
    return visit.redirect(f"/admin/catalog/product/edit/id/{number}", "You saved the product.")


def edit_page(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    product = visit.require("SELECT * FROM product WHERE id = ?", row_id(visit))
    form = visit.form or {
        **dict(product),
        "price": dollars(product["price"]),
        "special_price": dollars(product["special_price"]),
        "options": options_text(visit, product["id"]),
    }
    attributes = visit.rows("SELECT name, value FROM product_attribute WHERE product_id = ? ORDER BY id", product["id"])
    return product_form(
        visit, product["name"], form, status, errors=errors or {}, product=product, attributes=attributes
    )


def edit(visit: Visit) -> Response:
    product = visit.require("SELECT id FROM product WHERE id = ?", row_id(visit))["id"]
    row, errors = checked(visit, product)
    if errors:
        return edit_page(visit, 400, errors)
    sets = ", ".join(f"{name} = ?" for name in row)
    visit.change(f"UPDATE product SET {sets} WHERE id = ?", *row.values(), product)
    write_options(visit, product)
    return visit.redirect(f"/admin/catalog/product/edit/id/{product}", "You saved the product.")


def reviews(visit: Visit) -> Response:
    return grid(
        visit,
        "Reviews",
        REVIEW_SOURCE,
        REVIEW_COLUMNS,
        REVIEW_FILTERS,
        edit="/admin/review/product/edit/id/",
        mass=ACTIONS,
    )


def change_reviews(visit: Visit) -> Response:
    """One action for all reviews that are ticked."""
    action = visit.form.get("action", "")
    chosen = [number for text in visit.form.get("chosen", "").split(",")[:100] if (number := whole(text)) is not None]
    known = [number for number in chosen if visit.one("SELECT 1 FROM review WHERE id = ?", number)]
    if action not in dict(ACTIONS) or not known:
        return visit.redirect("/admin/review/product", "Please select reviews and an action.")
    for number in known:
        if action == "delete":
            visit.change("DELETE FROM review WHERE id = ?", number)
        else:
            visit.change("UPDATE review SET status = ? WHERE id = ?", action, number)
    done = "deleted" if action == "delete" else "updated"
    return visit.redirect("/admin/review/product", f"A total of {len(known)} record(s) have been {done}.")


def review_page(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    row = visit.require(f"SELECT * FROM {REVIEW_SOURCE} WHERE id = ?", row_id(visit))
    form = visit.form or dict(row)
    return visit.page(
        "shopping_admin/review.html",
        status,
        review=row,
        form=form,
        errors=errors or {},
        statuses=REVIEW_STATUSES,
        stars=STARS,
    )


def edit_review(visit: Visit) -> Response:
    row, form = visit.require("SELECT id FROM review WHERE id = ?", row_id(visit)), visit.form
    errors = missing(form, ("nickname", "title", "text"))
    stars = whole(form.get("stars", ""), 1, 5)
    if stars is None:
        errors["stars"] = "Please choose a rating."
    if form.get("status") not in dict(REVIEW_STATUSES):
        errors["status"] = "Please choose a status."
    if errors:
        return review_page(visit, 400, errors)
    visit.change(
        "UPDATE review SET nickname = ?, title = ?, text = ?, stars = ?, status = ? WHERE id = ?",
        form["nickname"], form["title"], form["text"], stars, form["status"], row["id"],
    )  # fmt: skip
    return visit.redirect("/admin/review/product", "You saved the review.")


def delete_review(visit: Visit) -> Response:
    number = row_id(visit)
    if not visit.one("SELECT 1 FROM review WHERE id = ?", number):
        raise HTTPException(404)
    visit.change("DELETE FROM review WHERE id = ?", number)
    return visit.redirect("/admin/review/product", "The review has been deleted.")
