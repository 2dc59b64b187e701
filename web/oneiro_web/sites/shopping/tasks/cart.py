"""Tasks that fill the cart and the wish list."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.shopping.tasks.parts import OWN, open_product, put_in_cart, some_purchase, with_coupon
from oneiro_web.sites.store.tasks import click_after, some_product
from oneiro_web.templates.base import Content, Slots
from oneiro_web.templates.table import Change, Draw, by, click, write

NOT_WISHED = f"id NOT IN (SELECT product_id FROM wishlist_item WHERE {OWN})"
WISH = f"{OWN} AND product_id = :id"
WISHED = f"SELECT count(*) FROM wishlist_item WHERE {WISH}"
"""How often the product is on the wish list."""
IN_CART = {f"SELECT product_id, options, quantity FROM cart_item WHERE {OWN}": (":id", ":chosen", ":quantity")}


def purchase_with_coupon(content: Content, rng: np.random.Generator) -> Slots | None:
    return with_coupon(content, rng, some_purchase(content, rng))


def product(where: str) -> Draw:
    def draw(content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng, where)
        return {"product": row["name"], "id": row["id"]} if row else None

    return draw


def two_products(content: Content, rng: np.random.Generator) -> Slots | None:
    one = some_product(content, rng, NOT_WISHED)
    if one is None:
        return None
    where = f"category_id = {one['category_id']} AND final_price != {one['final_price']} AND {NOT_WISHED}"
    other = some_product(content, rng, where)
    if other is None:
        return None
    first = one["final_price"] < other["final_price"]
    cheap, dear = (one, other) if first else (other, one)
    names = {"one": one["name"], "other": other["name"], "cheap": cheap["name"], "dear": dear["name"]}
    return {**names, "answer": "yes" if first else "no", "id": cheap["id"]}


TEMPLATES = (
    Change(
        "shopping/add-to-cart",
        'Put {quantity} of the "{product}"{wish} into my cart.',
        'I want to buy the "{product}"{wish}. Add {quantity} to the cart, but do not order yet.',
        skills="search form",
        draw=some_purchase,
        way=[put_in_cart],
        rows=IN_CART,
        changes={"cart_item": WISH},
    ),
    Change(
        "shopping/cart-coupon",
        'Put {quantity} of the "{product}"{wish} into my cart and use the discount code {coupon} there.',
        'Add {quantity} of the "{product}"{wish} to the cart, then apply the code {coupon}. I will order later.',
        skills="search form cart",
        draw=purchase_with_coupon,
        way=[
            put_in_cart,
            click("link", "My Cart ({quantity})"),
            write("Discount code", "{coupon}"),
            click("button", "Apply Discount"),
        ],
        rows={**IN_CART, f"SELECT coupon FROM cart WHERE {OWN}": (":coupon",)},
        changes={"cart_item": WISH, "cart": OWN},
    ),
    Change(
        "shopping/wish",
        'Add the "{product}" to my wish list.',
        'I like the "{product}". Keep it on my wish list for later.',
        skills="search form",
        draw=product(NOT_WISHED),
        way=[by(open_product, "{product}"), click("button", "Add to Wish List")],
        rows={WISHED: (1,)},
        changes={"wishlist_item": WISH},
    ),
    Change(
        "shopping/wish-cheaper",
        'Is the "{one}" cheaper than the "{other}"? Answer yes or no, and put the cheaper one on my wish list.',
        'Compare the prices of the "{one}" and the "{other}". Add the cheaper one to my wish list and tell me, yes or '
        "no, whether it is the first of the two.",
        skills="search compare form",
        draw=two_products,
        way=[by(open_product, "{dear}"), by(open_product, "{cheap}"), click("button", "Add to Wish List")],
        answer="yes_no answer",
        rows={WISHED: (1,)},
        changes={"wishlist_item": WISH},
    ),
    Change(
        "shopping/unwish",
        'Remove the "{product}" from my wish list.',
        'I no longer want the "{product}". Take it off my wish list.',
        skills="account delete",
        draw=product(f"NOT ({NOT_WISHED})"),
        way=[click("link", "My Wish List"), by(click_after, "{product}", "button", "Remove")],
        rows={WISHED: (0,)},
        changes={"wishlist_item": WISH},
    ),
)
