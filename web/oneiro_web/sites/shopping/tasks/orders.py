"""Tasks that place, cancel and repeat orders at the store."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from oneiro_web.sites.shopping.tasks.parts import (
    OWN,
    open_order,
    put_in_cart,
    some_order,
    some_purchase,
    with_coupon,
)
from oneiro_web.sites.store.orders import EXPRESS, PAYMENTS, SHIPPING, STANDARD
from oneiro_web.sites.store.tasks import SHOPPER_ID, canceled, canceling, last_id, money, returned
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of
from oneiro_web.templates.script import Script, View
from oneiro_web.templates.table import Allowed, Change, by, click

SHIP = ("street", "city", "region", "postcode", "country", "phone")


def shipped(slots: Slots, place: int) -> Any:
    return slots["ship"][place]


def with_delivery(content: Content, rng: np.random.Generator, purchase: Slots | None) -> Slots | None:
    """A purchase, and where and how it is to be sent and paid."""
    if purchase is None:
        return None
    place = content.pick(
        rng,
        f"SELECT * FROM address a WHERE {OWN} AND (SELECT count(*) FROM address WHERE {OWN} AND city = a.city) = 1 "
        "ORDER BY id",
    )
    if place is None:
        return None
    return {
        **purchase,
        "city": place["city"],
        "street": place["street"],
        "place": ", ".join(place[key] for key in ("street", "city", "region", "postcode")),
        "ship": [f"{place['first_name']} {place['last_name']}", *(place[key] for key in SHIP)],
        "method": one_of(rng, (STANDARD, EXPRESS)),
        "payment": one_of(rng, PAYMENTS),
        "coupon": "",
        "last": last_id(content, "sales_order"),
    }


def purchase(content: Content, rng: np.random.Generator) -> Slots | None:
    return with_delivery(content, rng, some_purchase(content, rng))


def purchase_with_coupon(content: Content, rng: np.random.Generator) -> Slots | None:
    return with_coupon(content, rng, purchase(content, rng))


def ordered(slots: Slots) -> Allowed:
    new = slots["last"] + 1
    return {
        "sales_order": f"id = {new}",
        "order_item": f"order_id = {new}",
        "order_comment": f"order_id = {new} AND text = 'Order received.'",
        "product(stock)": f"id = {slots['id']}",
    }


def check_out(see: View, slots: Slots) -> Script:
    yield from put_in_cart(see, slots)
    yield see.click("link", f"My Cart ({slots['quantity']})")
    if slots["coupon"]:
        yield see.type("Discount code", slots["coupon"])
        yield see.click("button", "Apply Discount")
    yield see.click("link", "Proceed to Checkout")
    yield see.select("Ship to", slots["place"])
    yield see.click("radio", f"{slots['method']} {money(SHIPPING[slots['method']])}")
    yield see.click("radio", slots["payment"])
    yield see.click("button", "Place Order")


def own_pending_order(content: Content, rng: np.random.Generator) -> Slots | None:
    order = some_order(content, rng, "status = 'pending'")
    return order and {**order, "stocks": returned(content, order["order"])}


def order_to_repeat(content: Content, rng: np.random.Generator) -> Slots | None:
    order = some_order(content, rng)
    if order is None or content.value(f"SELECT count(*) FROM cart_item WHERE {OWN}"):
        return None
    rows = content.rows(
        "SELECT i.product_id, i.options, i.quantity, p.stock, p.status FROM order_item i "
        "JOIN product p ON p.id = i.product_id WHERE i.order_id = ? ORDER BY i.id",
        order["order"],
    )
    if any(row["status"] != "enabled" or row["quantity"] > row["stock"] for row in rows):
        return None
    return {**order, "items": [list(row)[:3] for row in rows]}


def in_cart(slots: Slots) -> list[Check]:
    query = f"SELECT product_id, options, quantity FROM cart_item WHERE {OWN}"
    return [holds("shopping", query, *(tuple(item) for item in slots["items"]))]


PLACED = {
    "SELECT customer_id, status, subtotal, coupon, shipping_method, payment_method, ship_name, "
    f"{', '.join(f'ship_{key}' for key in SHIP)} FROM sales_order WHERE id > :last": (
        SHOPPER_ID,
        "pending",
        lambda slots: slots["price"] * slots["quantity"],
        ":coupon",
        ":method",
        ":payment",
        *(partial(shipped, place=place) for place in range(len(SHIP) + 1)),
    ),
    "SELECT product_id, options, quantity FROM order_item WHERE order_id > :last": (":id", ":chosen", ":quantity"),
    "SELECT stock FROM product WHERE id = :id": (lambda slots: slots["stock"] - slots["quantity"],),
}
"""A new order, its one item, and what is left in stock."""

TEMPLATES = (
    Change(
        "shopping/checkout",
        'Order {quantity} of the "{product}"{wish}. Send it to my address in {city} by {method}, and pay by {payment}.',
        'Buy {quantity} of the "{product}"{wish} for me: ship to {city}, {method}, payment method {payment}.',
        skills="search form cart checkout",
        draw=purchase,
        way=[check_out],
        rows=PLACED,
        changes=ordered,
    ),
    Change(
        "shopping/checkout-coupon",
        'With the discount code {coupon}, order {quantity} of the "{product}"{wish}. Send it to my address in {city} '
        "by {method}, and pay by {payment}.",
        'Buy {quantity} of the "{product}"{wish} and use my code {coupon}: ship to {city}, {method}, payment method '
        "{payment}.",
        skills="search form cart checkout",
        held_out=True,
        draw=purchase_with_coupon,
        way=[check_out],
        rows=PLACED,
        changes=ordered,
    ),
    Change(
        "shopping/cancel-order",
        "Cancel my order {number}.",
        "I do not need order number {number} any more. Please cancel it.",
        skills="account page status",
        draw=own_pending_order,
        way=[by(open_order, "{number}"), click("button", "Cancel Order")],
        rows=partial(canceled, "shopping"),
        changes=canceling,
    ),
    Change(
        "shopping/reorder",
        "Put everything from my order {number} into the cart once more.",
        "I want the same things as in order {number} again. Fill my cart with them, but do not order yet.",
        skills="account page cart",
        held_out=True,
        draw=order_to_repeat,
        way=[by(open_order, "{number}"), click("button", "Reorder")],
        rows=in_cart,
        changes={"cart_item": OWN},
    ),
)
