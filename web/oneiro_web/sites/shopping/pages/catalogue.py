"""The store's public pages: home, categories, search, products, reviews."""

from __future__ import annotations

import sqlite3
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.store.content import MENU, slug
from oneiro_web.sites.store.forms import cents, like, missing, paged, row_id, whole

PER_PAGE = 12
REVIEWS_PER_PAGE = 10
SORTS = (("position", "Position"), ("name", "Product Name"), ("price", "Price"), ("rating", "Rating"))
DIRECTIONS = (("asc", "Ascending"), ("desc", "Descending"))
COLUMNS = {
    "position": "position",
    "name": "name COLLATE NOCASE",
    "price": "final_price",
    "rating": "coalesce(rating, 0)",
}
CARD = "SELECT id, name, slug, brand, final_price, price, special_price, stock, top_id, rating, reviews FROM listed"
APPROVED = """
SELECT * FROM review WHERE product_id = ? AND status = 'approved' ORDER BY created_at DESC, id DESC LIMIT ? OFFSET ?"""
STARS = tuple((n, f"{n} star{'s' if n > 1 else ''}") for n in range(5, 0, -1))


def show(visit: Visit, template: str, status: int = 200, **values: Any) -> Response:
    """A page of the store with its menu and the number of things in the cart."""
    in_cart = 0
    if visit.user:
        sql = "SELECT total(quantity) FROM cart_item WHERE customer_id = (SELECT id FROM customer WHERE email = ?)"
        in_cart = int(visit.value(sql, visit.user))
    return visit.page(f"shopping/{template}.html", status, menu=MENU, in_cart=in_cart, **values)


def customer(visit: Visit) -> sqlite3.Row:
    """Who is logged in."""
    return visit.require("SELECT * FROM customer WHERE email = ?", visit.user)


def home(visit: Visit) -> Response:
    sold = "+status = 'enabled' AND stock > 0"  # the plus keeps SQLite from reading all that is enabled
    offers = visit.rows(f"{CARD} WHERE special_price IS NOT NULL AND {sold} ORDER BY position LIMIT 4")
    best = visit.rows(
        "SELECT product_id FROM review WHERE status = 'approved' GROUP BY product_id HAVING count(*) >= 4"
        " ORDER BY avg(stars) DESC, product_id LIMIT 12"
    )
    marks = ", ".join("?" * len(best))
    sql = f"{CARD} WHERE id IN ({marks}) AND {sold} ORDER BY rating DESC, id LIMIT 8"
    loved = visit.rows(sql, *(row[0] for row in best))
    return show(visit, "home", offers=offers, loved=loved)


def listing(visit: Visit, where: str, values: list[Any], template: str, **more: Any) -> Response:
    """A page of product cards: sorted, filtered by price, paged."""
    order = visit.query.get("product_list_order", "")
    order = order if order in COLUMNS else "position"
    direction = "desc" if visit.query.get("product_list_dir") == "desc" else "asc"
    where = f"status = 'enabled' AND {where}"
    for name, comparison in (("price_from", ">="), ("price_to", "<=")):
        limit = cents(visit.query.get(name, ""))
        if limit is not None:
            where, values = f"{where} AND final_price {comparison} ?", [*values, limit]
    # in two steps: what a card shows is worked out for one page only
    by = f"ORDER BY {COLUMNS[order]} {direction}, id"
    ids = [row[0] for row in visit.rows(f"SELECT id FROM listed WHERE {where} {by}", *values)]
    page, pages, offset = paged(visit, len(ids), PER_PAGE)
    shown = ids[offset : offset + PER_PAGE]
    cards = {row["id"]: row for row in visit.rows(f"{CARD} WHERE id IN ({', '.join('?' * len(shown))})", *shown)}
    return show(
        visit, template, products=[cards[number] for number in shown], count=len(ids), page=page, pages=pages,
        first=offset + 1, order=order, direction=direction, sorts=SORTS, directions=DIRECTIONS, **more,
    )  # fmt: skip


def listing_or_product(visit: Visit) -> Response:
    """Categories and products share one kind of address, `NAME.html`."""
    path = visit.path["path"]
    category = visit.one("SELECT * FROM category WHERE path = ?", path)
    return category_page(visit, category) if category else product_page(visit, path)


def category_page(visit: Visit, category: sqlite3.Row) -> Response:
    where = "category_id IN (SELECT id FROM category WHERE path = ? OR path BETWEEN ? AND ?)"
    path = category["path"]
    parts = path.split("/")
    trail = [
        visit.require("SELECT name, path FROM category WHERE path = ?", "/".join(parts[:i]))
        for i in range(1, len(parts))
    ]
    children = visit.rows("SELECT name, path FROM category WHERE parent_id = ? ORDER BY position", category["id"])
    return listing(
        visit, where, [path, f"{path}/", f"{path}/~"], "category", category=category, trail=trail, children=children
    )


def search(visit: Visit) -> Response:
    """Products with every word in their name, brand or number."""
    text = visit.query.get("q", "").strip()[:100]
    where, values = ["1"], []
    for word in text.split()[:8]:
        where.append("(name LIKE ? ESCAPE '!' OR sku LIKE ? ESCAPE '!')")
        values += [like(word)] * 2
    return listing(visit, " AND ".join(where if text else ["0"]), values, "search", text=text)


def advanced(visit: Visit) -> Response:
    return show(visit, "advanced")


def advanced_result(visit: Visit) -> Response:
    where, values = ["1"], []
    for name in ("name", "sku", "brand", "short_description", "description"):
        text = visit.query.get(name, "").strip()
        if text:
            where.append(f"{name} LIKE ? ESCAPE '!'")
            values.append(like(text))
    return listing(visit, " AND ".join(where), values, "advanced_result")


def product_options(visit: Visit, product: int) -> dict[str, list[str]]:
    """What a customer chooses, by the name of the option."""
    options: dict[str, list[str]] = {}
    for row in visit.rows("SELECT name, value FROM product_option WHERE product_id = ? ORDER BY id", product):
        options.setdefault(row["name"], []).append(row["value"])
    return options


def product_page(visit: Visit, path: str, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    product = visit.require("SELECT * FROM listed WHERE slug = ? AND status = 'enabled'", path)
    category = visit.require("SELECT * FROM category WHERE id = ?", product["category_id"])
    parts = category["path"].split("/")
    trail = [
        visit.require("SELECT name, path FROM category WHERE path = ?", "/".join(parts[: i + 1]))
        for i in range(len(parts))
    ]
    options = [(name, f"option_{slug(name)}", rest) for name, rest in product_options(visit, product["id"]).items()]
    number, shelf = product["id"], product["category_id"]
    related = f"{CARD} WHERE category_id = ? AND id != ? AND status = 'enabled' ORDER BY position LIMIT 4"
    return show(
        visit, "product", status, product=product, trail=trail, options=options,
        attributes=visit.rows("SELECT name, value FROM product_attribute WHERE product_id = ? ORDER BY id", number),
        related=visit.rows(related, shelf, number), latest=visit.rows(APPROVED, number, 3, 0),
        errors=errors or {}, form=visit.form,
    )  # fmt: skip


def reviews(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    """Approved reviews of a product, newest first, and the form for another."""
    product = visit.require("SELECT * FROM listed WHERE id = ? AND status = 'enabled'", row_id(visit))
    page, pages, offset = paged(visit, product["reviews"], REVIEWS_PER_PAGE)
    rows = visit.rows(APPROVED, product["id"], REVIEWS_PER_PAGE, offset)
    return show(
        visit, "reviews", status, product=product, rows=rows, page=page, pages=pages, errors=errors or {},
        form=visit.form, stars=STARS,
    )  # fmt: skip


def post_review(visit: Visit) -> Response:
    """A new review waits until the back office approves it."""
    form = visit.form
    product = visit.require("SELECT id, slug FROM product WHERE id = ? AND status = 'enabled'", row_id(visit))
    errors = missing(form, ("nickname", "title", "detail"))
    stars = whole(form.get("rating", ""), 1, 5)
    if stars is None:
        errors["rating"] = "Please select one of each of the ratings above."
    if errors:
        return reviews(visit, 400, errors)
    author = visit.value("SELECT id FROM customer WHERE email = ?", visit.user)
    visit.change(
        "INSERT INTO review (product_id, customer_id, nickname, title, text, stars, created_at, status)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'pending')",
        product["id"], author, form["nickname"], form["title"], form["detail"], stars, visit.now(),
    )  # fmt: skip
    return visit.redirect(f"/{product['slug']}.html", "You submitted your review for moderation.")


def information(visit: Visit) -> Response:
    """A page that the back office writes."""
    page = visit.require("SELECT * FROM cms_page WHERE slug = ? AND active = 1", visit.path["slug"])
    if page["slug"] == "home":
        raise HTTPException(404)
    return show(visit, "information", text=page)
