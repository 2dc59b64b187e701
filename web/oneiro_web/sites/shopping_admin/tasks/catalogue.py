"""Tasks that change products and reviews."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.shopping_admin.tasks.parts import open_product, open_review, some_review
from oneiro_web.sites.store.tasks import last_id, row_of, some_product
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of
from oneiro_web.templates.script import Script, View
from oneiro_web.templates.table import Change, Step, by, choose, click, literal, refill, write

PRODUCT_COLUMNS = (
    "name", "sku", "brand", "price", "special_price", "stock", "status", "category_id",
    "short_description", "description",
)  # fmt: skip
REVIEW_COLUMNS = ("status", "stars", "nickname", "title", "text")
WORDS = load_words("store")["tasks"]


def edited(content: Content, row: sqlite3.Row, said: Slots, **new: Any) -> Slots:
    """Slots of a product whose columns become these, with what the intent says of it."""
    expected = row_of(content, "product", row["id"], PRODUCT_COLUMNS, **new)
    return {"product": row["name"], "id": row["id"], **said, "row": expected}


def new_price(content: Content, rng: np.random.Generator) -> Slots | None:
    row = some_product(content, rng)
    if row is None:
        return None
    price = row["price"] // 100 * 100 + int(rng.integers(1, 16)) * 100 + 50
    return edited(content, row, {"price": f"{price / 100:.2f}"}, price=price)


def special_price(content: Content, rng: np.random.Generator) -> Slots | None:
    row = some_product(content, rng, "special_price IS NULL")
    if row is None:
        return None
    price = row["price"] * int(rng.integers(60, 90)) // 10000 * 100 + 90
    return edited(content, row, {"price": f"{price / 100:.2f}"}, special_price=price)


def delivery(content: Content, rng: np.random.Generator) -> Slots | None:
    row = some_product(content, rng)
    if row is None:
        return None
    count = int(rng.integers(1, 13)) * 5
    return edited(content, row, {"count": count}, stock=row["stock"] + count)


def disabled(content: Content, rng: np.random.Generator) -> Slots | None:
    row = some_product(content, rng)
    return edited(content, row, {}, status="disabled") if row else None


def new_product(content: Content, rng: np.random.Generator) -> Slots | None:
    product, sku = one_of(rng, WORDS["products"])
    return {
        "product": product,
        "sku": f"{sku}-{int(rng.integers(10, 100))}",
        "price": f"{int(rng.integers(8, 90))}.95",
        "stock": int(rng.integers(2, 20)) * 5,
        "last": last_id(content, "product"),
    }


def review_and_status(content: Content, rng: np.random.Generator) -> Slots | None:
    review = some_review(content, rng, "r.status = 'pending'")
    if review is None:
        return None
    status = one_of(rng, ("Approved", "Not Approved"))
    row = row_of(content, "review", review["id"], REVIEW_COLUMNS, status=status.lower())
    return {**review, "status": status, "row": row}


def pending_reviews(content: Content, rng: np.random.Generator) -> Slots | None:
    row = content.pick(
        rng,
        "SELECT p.id, p.name FROM review r JOIN product p ON p.id = r.product_id WHERE r.status = 'pending' "
        "GROUP BY p.id HAVING count(*) BETWEEN 2 AND 6 ORDER BY p.id",
    )
    if row is None:
        return None
    sql = "SELECT id FROM review WHERE product_id = ? AND status = 'pending' ORDER BY id"
    reviews = [review[0] for review in content.rows(sql, row["id"])]
    return {"product": row["name"], "action": one_of(rng, ("Approve", "Reject")), "reviews": reviews}


def judged(slots: Slots) -> list[Check]:
    status = "approved" if slots["action"] == "Approve" else "not approved"
    query = literal("SELECT id, status FROM review WHERE id IN (:reviews)", slots)
    return [holds("shopping_admin", query, *((number, status) for number in slots["reviews"]))]


def judge_all(see: View, slots: Slots) -> Script:
    yield see.click("link", "Reviews")
    yield see.select("Status", "Pending")
    yield see.type("Product", slots["product"])
    yield see.click("button", "Apply Filters")
    for number in slots["reviews"]:
        yield see.click("checkbox", f"Select {number}")
    yield see.select("Action", slots["action"])
    yield see.click("button", "Submit")


def on_form(step: Step) -> list[Step]:
    """To a product's form, a field of it, and save."""
    return [by(open_product, "{product}"), step, click("button", "Save")]


TEMPLATES = (
    Change(
        "shopping_admin/change-price",
        'Change the price of the "{product}" to ${price}.',
        'The regular price of the "{product}" is ${price} from now on. Update it.',
        skills="filter form edit",
        draw=new_price,
        way=on_form(refill("Price", "{price}")),
        edits="product id",
    ),
    Change(
        "shopping_admin/special-price",
        'Put the "{product}" on offer with a special price of ${price}.',
        'Give the "{product}" a special price: ${price}.',
        skills="filter form edit",
        draw=special_price,
        way=on_form(write("Special Price", "{price}")),
        edits="product id",
    ),
    Change(
        "shopping_admin/restock",
        'A delivery of {count} pieces of the "{product}" has come in. Add them to the quantity we have in stock.',
        'Raise the stock quantity of the "{product}" by {count}.',
        skills="filter form edit count",
        draw=delivery,
        way=on_form(refill("Quantity", "{row[stock]}")),
        edits="product id",
    ),
    Change(
        "shopping_admin/disable-product",
        'Disable the product "{product}" so that it no longer shows in the store.',
        'Take the "{product}" out of the store by disabling it.',
        skills="filter form edit",
        draw=disabled,
        way=on_form(choose("Enable Product", "Disabled")),
        edits="product id",
    ),
    Change(
        "shopping_admin/create-product",
        'Add a new product "{product}" with the SKU {sku}, a price of ${price} and a quantity of {stock}.',
        'Create the product "{product}": SKU {sku}, price ${price}, {stock} pieces in stock.',
        skills="form write create",
        held_out=True,
        draw=new_product,
        way=[
            click("link", "Products"),
            click("link", "Add Product"),
            write("Product Name", "{product}"),
            write("SKU", "{sku}"),
            write("Price", "{price}"),
            refill("Quantity", "{stock}"),
            click("button", "Save"),
        ],
        rows={
            "SELECT name, sku, price, special_price, stock, status, brand, short_description, description FROM product "
            "WHERE id > :last": (
                ":product",
                ":sku",
                lambda slots: int(slots["price"].replace(".", "")),
                None,
                ":stock",
                "enabled",
                "",
                "",
                "",
            )
        },
        changes={"product": "id > :last"},
    ),
    Change(
        "shopping_admin/judge-review",
        'Set the status of the review that {nickname} wrote about the "{product}" to {status}.',
        'The review of the "{product}" by {nickname} should be {status}. Change its status.',
        skills="filter form status",
        draw=review_and_status,
        way=[open_review, choose("Status", "{status}"), click("button", "Save Review")],
        edits="review id",
    ),
    Change(
        "shopping_admin/judge-all",
        '{action} all pending reviews of the "{product}".',
        'Go through the pending reviews of the "{product}". {action} every one of them.',
        skills="filter form status count",
        draw=pending_reviews,
        way=[judge_all],
        rows=judged,
        changes={"review(status)": "id IN (:reviews)"},
    ),
    Change(
        "shopping_admin/delete-review",
        'Delete the review "{title}" that {nickname} wrote about the "{product}".',
        '{nickname} asks us to remove the review of the "{product}" with the title "{title}". Delete it.',
        skills="filter delete",
        held_out=True,
        draw=partial(some_review, where="1"),
        way=[open_review, click("button", "Delete Review")],
        rows={"SELECT count(*) FROM review WHERE id = :id": (0,)},
        changes={"review": "id = :id"},
    ),
)
