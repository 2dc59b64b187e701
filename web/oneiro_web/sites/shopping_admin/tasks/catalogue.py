"""Tasks that change products and reviews."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from typing import Any

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.shopping_admin.tasks.parts import (
    Admin,
    open_product,
    open_review,
    some_review,
)
from oneiro_web.sites.store.tasks import (
    EditsRow,
    last_id,
    listed,
    row_of,
    some_product,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of
from oneiro_web.templates.script import Script, View

PRODUCT_COLUMNS = (
    "name", "sku", "brand", "price", "special_price", "stock", "status", "category_id",
    "short_description", "description",
)  # fmt: skip

REVIEW_COLUMNS = ("status", "stars", "nickname", "title", "text")


WORDS = load_words("store")["tasks"]


class EditProduct(EditsRow, Admin):
    """One product changes in one column."""

    skills: tuple[str, ...] = ("filter", "form", "edit")
    table = "product"

    @abstractmethod
    def edit(self, see: View, slots: Slots) -> Script:
        """What is filled in on the product's form."""

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["product"])
        yield from self.edit(see, slots)
        yield see.click("button", "Save")
        yield see.stop()


def edited(content: Content, row: sqlite3.Row, said: Slots, **new: Any) -> Slots:
    """Slots of a product whose columns become these, with what the intent says of it."""
    expected = row_of(content, "product", row["id"], PRODUCT_COLUMNS, **new)
    return {"product": row["name"], "id": row["id"], **said, "row": expected}


class ChangePrice(EditProduct):
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
        return edited(content, row, {"price": f"{price / 100:.2f}"}, price=price)

    def edit(self, see: View, slots: Slots) -> Script:
        yield from see.fill("Price", slots["price"])


class SpecialPrice(EditProduct):
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
        return edited(content, row, {"price": f"{price / 100:.2f}"}, special_price=price)

    def edit(self, see: View, slots: Slots) -> Script:
        yield see.type("Special Price", slots["price"])


class Restock(EditProduct):
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
        return edited(content, row, {"count": count}, stock=row["stock"] + count)

    def edit(self, see: View, slots: Slots) -> Script:
        yield from see.fill("Quantity", str(slots["row"]["stock"]))


class DisableProduct(EditProduct):
    name = "shopping_admin/disable-product"
    intents = (
        'Disable the product "{product}" so that it no longer shows in the store.',
        'Take the "{product}" out of the store by disabling it.',
    )

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng)
        return edited(content, row, {}, status="disabled") if row else None

    def edit(self, see: View, slots: Slots) -> Script:
        yield see.select("Enable Product", "Disabled")


class CreateProduct(Admin):
    name = "shopping_admin/create-product"
    intents = (
        'Add a new product "{product}" with the SKU {sku}, a price of ${price} and a quantity of {stock}.',
        'Create the product "{product}": SKU {sku}, price ${price}, {stock} pieces in stock.',
    )
    skills = ("form", "write", "create")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        product, sku = one_of(rng, WORDS["products"])
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


class JudgeReview(EditsRow, Admin):
    name = "shopping_admin/judge-review"
    intents = (
        'Set the status of the review that {nickname} wrote about the "{product}" to {status}.',
        'The review of the "{product}" by {nickname} should be {status}. Change its status.',
    )
    skills = ("filter", "form", "status")
    table = "review"

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        review = some_review(content, rng, "r.status = 'pending'")
        if review is None:
            return None
        status = one_of(rng, ("Approved", "Not Approved"))
        row = row_of(content, "review", review["id"], REVIEW_COLUMNS, status=status.lower())
        return {**review, "status": status, "row": row}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_review(see, slots)
        yield see.select("Status", slots["status"])
        yield see.click("button", "Save Review")
        yield see.stop()


class JudgeAll(Admin):
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


class DeleteReview(Admin):
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


TEMPLATES = (
    ChangePrice(),
    SpecialPrice(),
    Restock(),
    DisableProduct(),
    CreateProduct(),
    JudgeReview(),
    JudgeAll(),
    DeleteReview(),
)
