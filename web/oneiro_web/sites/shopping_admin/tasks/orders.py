"""Tasks that change orders in the back office."""

from __future__ import annotations

from functools import partial

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.shopping_admin.tasks.parts import found_once, open_order, some_order
from oneiro_web.sites.store.orders import CARRIERS
from oneiro_web.sites.store.tasks import canceled, canceling, last_id, returned, row_of
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.script import Script, View
from oneiro_web.templates.table import Change, by, choose, click, refill, write

ORDER_COLUMNS = (
    "status", "ship_name", "ship_street", "ship_city", "ship_region", "ship_postcode", "ship_country", "ship_phone",
)  # fmt: skip
OPEN = "status IN ('pending', 'processing')"
WORDS = load_words("store")["tasks"]


def with_row(content: Content, order: Slots | None, **new: str) -> Slots | None:
    """An order, and what its row must be at the end: as it is, but for the new values."""
    return order and {**order, "row": row_of(content, "sales_order", order["order"], ORDER_COLUMNS, **new)}


def hold(content: Content, rng: np.random.Generator) -> Slots | None:
    return with_row(content, some_order(content, rng, OPEN), status="on hold")


def pending_order(content: Content, rng: np.random.Generator) -> Slots | None:
    row = content.pick(
        rng,
        "SELECT id, number, customer_name FROM sales_order WHERE status = 'pending' GROUP BY customer_name "
        "HAVING count(*) = 1 ORDER BY id",
    )
    if row is None or not found_once(content, row["customer_name"]):
        return None
    order = {"customer": row["customer_name"], "number": row["number"], "order": row["id"]}
    return with_row(content, {**order, "stocks": returned(content, row["id"])}, status="canceled")


def shipment(content: Content, rng: np.random.Generator) -> Slots | None:
    order = with_row(content, some_order(content, rng, OPEN), status="complete")
    tracking = str(int(rng.integers(10**9, 10**10)))
    if order is None:
        return None
    carrier = one_of(rng, CARRIERS)
    return {**order, "carrier": carrier, "tracking": tracking, "last": last_id(content, "shipment")}


def note(content: Content, rng: np.random.Generator) -> Slots | None:
    order = some_order(content, rng)
    notify = one_of(rng, ("and notify the customer by email", "without notifying the customer"))
    return order and {
        **order,
        "text": one_of(rng, WORDS["notes"]),
        "notify": notify,
        "told": int(notify.startswith("and")),
        "last": last_id(content, "order_comment"),
    }


def write_note(see: View, slots: Slots) -> Script:
    yield from open_order(see, slots["number"])
    yield see.type("Comment", slots["text"])
    if slots["told"]:
        yield see.click("checkbox", "Notify Customer by Email")
    yield see.click("button", "Submit Comment")


def new_street(content: Content, rng: np.random.Generator) -> Slots | None:
    street = one_of(rng, WORDS["addresses"])[0]
    order = with_row(content, some_order(content, rng, OPEN), ship_street=street)
    return order and {**order, "street": street}


TEMPLATES = (
    Change(
        "shopping_admin/hold-order",
        "Put order {number} on hold.",
        "Something is wrong with order {number}. Set it on hold for now.",
        skills="filter status",
        draw=hold,
        way=[by(open_order, "{number}"), click("button", "Hold")],
        edits="sales_order order",
    ),
    Change(
        "shopping_admin/cancel-order",
        "Cancel the pending order of {customer}.",
        "{customer} does not want the order that is still pending. Cancel it.",
        skills="filter status",
        draw=pending_order,
        way=[
            click("link", "Orders"),
            write("Customer", "{customer}"),
            choose("Status", "Pending"),
            click("button", "Apply Filters"),
            click("link", "View", within="{number}"),
            click("button", "Cancel"),
        ],
        rows=partial(canceled, "shopping_admin"),
        changes=canceling,
        edits="sales_order order",
    ),
    Change(
        "shopping_admin/ship-order",
        "Order {number} went out with {carrier}, tracking number {tracking}. Record the shipment.",
        "Ship order {number}: carrier {carrier}, tracking number {tracking}.",
        skills="filter form status",
        draw=shipment,
        way=[
            by(open_order, "{number}"),
            choose("Carrier", "{carrier}"),
            write("Tracking Number", "{tracking}"),
            click("button", "Ship"),
        ],
        rows={"SELECT order_id, carrier, tracking FROM shipment WHERE id > :last": (":order", ":carrier", ":tracking")},
        changes={"shipment": "id > :last"},
        edits="sales_order order",
    ),
    Change(
        "shopping_admin/order-note",
        'Add the comment "{text}" to order {number}, {notify}.',
        'Leave a note on order {number}, {notify}: "{text}"',
        skills="filter form write",
        draw=note,
        way=[write_note],
        rows={"SELECT order_id, text, notified FROM order_comment WHERE id > :last": (":order", ":text", ":told")},
        changes={"order_comment": "id > :last"},
    ),
    Change(
        "shopping_admin/order-address",
        "In the shipping address of order {number}, change the street to {street}.",
        "The street of order {number} is wrong. It must go to {street}; city and the rest are right.",
        skills="filter form edit",
        held_out=True,
        draw=new_street,
        way=[
            by(open_order, "{number}"),
            click("link", "Edit"),
            refill("Street Address", "{street}"),
            click("button", "Save Order Address"),
        ],
        edits="sales_order order",
    ),
)
