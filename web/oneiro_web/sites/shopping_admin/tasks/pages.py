"""Tasks that end on a page of the back office."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.shopping_admin.tasks.parts import (
    Admin,
    open_order,
)
from oneiro_web.templates.base import Content, Slots
from oneiro_web.templates.script import Script, View


class OpenBuyer(Admin):
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

    def url(self, slots: Slots) -> str:
        return f"/admin/customer/index/edit/id/{slots['id']}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.click("link", slots["customer"])
        yield see.stop()


class OpenProduct(Admin):
    name = "shopping_admin/open-product"
    intents = ("Open the product with the SKU {sku} for editing.", "Go to the edit page of the product {sku}.")
    skills = ("filter", "navigate")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(rng, "SELECT id, sku FROM product ORDER BY id")
        return dict(row) if row else None

    def url(self, slots: Slots) -> str:
        return f"/admin/catalog/product/edit/id/{slots['id']}"

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Products")
        yield see.type("SKU", slots["sku"], enter=True)
        yield see.click("link", "Edit", within=slots["sku"])
        yield see.stop()


TEMPLATES = (OpenBuyer, OpenProduct)
