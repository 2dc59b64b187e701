"""Tasks that fill the cart and the wish list."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.shopping.tasks.parts import (
    OWN,
    Shopping,
    open_product,
    put_in_cart,
    some_purchase,
    with_coupon,
)
from oneiro_web.sites.store.tasks import (
    click_after,
    some_product,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, says
from oneiro_web.templates.script import Script, View


class AddToCart(Shopping):
    name = "shopping/add-to-cart"
    intents = (
        'Put {quantity} of the "{product}"{wish} into my cart.',
        'I want to buy the "{product}"{wish}. Add {quantity} to the cart, but do not order yet.',
    )
    skills = ("search", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_purchase(content, rng)

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT product_id, options, quantity FROM cart_item WHERE {OWN}"
        return [holds(self.site, query, (slots["id"], slots["chosen"], slots["quantity"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"cart_item": f"{OWN} AND product_id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from put_in_cart(see, slots)
        yield see.stop()


class CartCoupon(Shopping):
    name = "shopping/cart-coupon"
    intents = (
        'Put {quantity} of the "{product}"{wish} into my cart and use the discount code {coupon} there.',
        'Add {quantity} of the "{product}"{wish} to the cart, then apply the code {coupon}. I will order later.',
    )
    skills = ("search", "form", "cart")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return with_coupon(content, rng, some_purchase(content, rng))

    def checks(self, slots: Slots) -> list[Check]:
        items = f"SELECT product_id, options, quantity FROM cart_item WHERE {OWN}"
        return [
            holds(self.site, items, (slots["id"], slots["chosen"], slots["quantity"])),
            holds(self.site, f"SELECT coupon FROM cart WHERE {OWN}", (slots["coupon"],)),
        ]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"cart_item": f"{OWN} AND product_id = {slots['id']}", "cart": OWN}

    def script(self, see: View, slots: Slots) -> Script:
        yield from put_in_cart(see, slots)
        yield see.click("link", f"My Cart ({slots['quantity']})")
        yield see.type("Discount code", slots["coupon"])
        yield see.click("button", "Apply Discount")
        yield see.stop()


class Wish(Shopping):
    name = "shopping/wish"
    intents = (
        'Add the "{product}" to my wish list.',
        'I like the "{product}". Keep it on my wish list for later.',
    )
    skills = ("search", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng, not_wished())
        return {"product": row["name"], "id": row["id"]} if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return [wished(slots["id"], 1)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"wishlist_item": f"{OWN} AND product_id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["product"])
        yield see.click("button", "Add to Wish List")
        yield see.stop()


def not_wished() -> str:
    return f"id NOT IN (SELECT product_id FROM wishlist_item WHERE {OWN})"


def wished(product: int, count: int) -> Check:
    """How often the product is on the wish list."""
    query = f"SELECT count(*) FROM wishlist_item WHERE {OWN} AND product_id = {product}"
    return holds("shopping", query, (count,))


class WishCheaper(Shopping):
    name = "shopping/wish-cheaper"
    intents = (
        'Is the "{one}" cheaper than the "{other}"? Answer yes or no, and put the cheaper one on my wish list.',
        'Compare the prices of the "{one}" and the "{other}". Add the cheaper one to my wish list and tell me, yes or '
        "no, whether it is the first of the two.",
    )
    skills = ("search", "compare", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        one = some_product(content, rng, not_wished())
        if one is None:
            return None
        where = f"category_id = {one['category_id']} AND final_price != {one['final_price']} AND {not_wished()}"
        other = some_product(content, rng, where)
        if other is None:
            return None
        first = one["final_price"] < other["final_price"]
        cheap, dear = (one, other) if first else (other, one)
        names = {"one": one["name"], "other": other["name"], "cheap": cheap["name"], "dear": dear["name"]}
        return {**names, "answer": "yes" if first else "no", "id": cheap["id"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("yes_no", slots["answer"]), wished(slots["id"], 1)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"wishlist_item": f"{OWN} AND product_id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["dear"])
        yield from open_product(see, slots["cheap"])
        yield see.click("button", "Add to Wish List")
        yield see.stop(slots["answer"])


class Unwish(Shopping):
    name = "shopping/unwish"
    intents = (
        'Remove the "{product}" from my wish list.',
        'I no longer want the "{product}". Take it off my wish list.',
    )
    skills = ("account", "delete")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng, f"NOT ({not_wished()})")
        return {"product": row["name"], "id": row["id"]} if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return [wished(slots["id"], 0)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"wishlist_item": f"{OWN} AND product_id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "My Wish List")
        yield click_after(see, slots["product"], "button", "Remove")
        yield see.stop()


TEMPLATES = (
    AddToCart(),
    CartCoupon(),
    Wish(),
    WishCheaper(),
    Unwish(),
)
