"""Tasks that change orders in the back office."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.shopping_admin.tasks.parts import (
    Admin,
    found_once,
    open_order,
    some_order,
)
from oneiro_web.sites.store.orders import CARRIERS
from oneiro_web.sites.store.tasks import (
    EditsRow,
    canceled,
    canceling,
    holds_row,
    last_id,
    returned,
    row_of,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of
from oneiro_web.templates.script import Script, View

ORDER_COLUMNS = (
    "status", "ship_name", "ship_street", "ship_city", "ship_region", "ship_postcode", "ship_country", "ship_phone",
)  # fmt: skip

OPEN = "status IN ('pending', 'processing')"


WORDS = load_words("store")["tasks"]


def with_row(content: Content, order: Slots | None, **new: str) -> Slots | None:
    """An order, and what its row must be at the end: as it is, but for the new values."""
    return order and {**order, "row": row_of(content, "sales_order", order["order"], ORDER_COLUMNS, **new)}


class HoldOrder(EditsRow, Admin):
    name = "shopping_admin/hold-order"
    intents = ("Put order {number} on hold.", "Something is wrong with order {number}. Set it on hold for now.")
    skills = ("filter", "status")
    table = "sales_order"
    number = "order"

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return with_row(content, some_order(content, rng, OPEN), status="on hold")

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.click("button", "Hold")
        yield see.stop()


class CancelOrder(Admin):
    name = "shopping_admin/cancel-order"
    intents = (
        "Cancel the pending order of {customer}.",
        "{customer} does not want the order that is still pending. Cancel it.",
    )
    skills = ("filter", "status")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT id, number, customer_name FROM sales_order WHERE status = 'pending' GROUP BY customer_name "
            "HAVING count(*) = 1 ORDER BY id",
        )
        if row is None or not found_once(content, row["customer_name"]):
            return None
        order = {"customer": row["customer_name"], "number": row["number"], "order": row["id"]}
        return with_row(content, {**order, "stocks": returned(content, row["id"])}, status="canceled")

    def checks(self, slots: Slots) -> list[Check]:
        return [*canceled(self.site, slots), holds_row(self.site, "sales_order", slots["order"], slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return canceling(slots)

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Orders")
        yield see.type("Customer", slots["customer"])
        yield see.select("Status", "Pending")
        yield see.click("button", "Apply Filters")
        yield see.click("link", "View", within=slots["number"])
        yield see.click("button", "Cancel")
        yield see.stop()


class ShipOrder(Admin):
    name = "shopping_admin/ship-order"
    intents = (
        "Order {number} went out with {carrier}, tracking number {tracking}. Record the shipment.",
        "Ship order {number}: carrier {carrier}, tracking number {tracking}.",
    )
    skills = ("filter", "form", "status")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        order = with_row(content, some_order(content, rng, OPEN), status="complete")
        tracking = str(int(rng.integers(10**9, 10**10)))
        return order and {
            **order,
            "carrier": one_of(rng, CARRIERS),
            "tracking": tracking,
            "last": last_id(content, "shipment"),
        }

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT order_id, carrier, tracking FROM shipment WHERE id > {slots['last']}"
        return [
            holds(self.site, query, (slots["order"], slots["carrier"], slots["tracking"])),
            holds_row(self.site, "sales_order", slots["order"], slots["row"]),
        ]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"shipment": f"id > {slots['last']}", "sales_order": f"id = {slots['order']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.select("Carrier", slots["carrier"])
        yield see.type("Tracking Number", slots["tracking"])
        yield see.click("button", "Ship")
        yield see.stop()


class OrderNote(Admin):
    name = "shopping_admin/order-note"
    intents = (
        'Add the comment "{text}" to order {number}, {notify}.',
        'Leave a note on order {number}, {notify}: "{text}"',
    )
    skills = ("filter", "form", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        order = some_order(content, rng)
        notify = one_of(rng, ("and notify the customer by email", "without notifying the customer"))
        return order and {
            **order,
            "text": one_of(rng, WORDS["notes"]),
            "notify": notify,
            "told": int(notify.startswith("and")),
            "last": last_id(content, "order_comment"),
        }

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT order_id, text, notified FROM order_comment WHERE id > {slots['last']}"
        return [holds(self.site, query, (slots["order"], slots["text"], slots["told"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"order_comment": f"id > {slots['last']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.type("Comment", slots["text"])
        if slots["told"]:
            yield see.click("checkbox", "Notify Customer by Email")
        yield see.click("button", "Submit Comment")
        yield see.stop()


class OrderAddress(EditsRow, Admin):
    name = "shopping_admin/order-address"
    intents = (
        "In the shipping address of order {number}, change the street to {street}.",
        "The street of order {number} is wrong. It must go to {street}; city and the rest are right.",
    )
    skills = ("filter", "form", "edit")
    held_out = True
    table = "sales_order"
    number = "order"

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        street = one_of(rng, WORDS["addresses"])[0]
        order = with_row(content, some_order(content, rng, OPEN), ship_street=street)
        return order and {**order, "street": street}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_order(see, slots["number"])
        yield see.click("link", "Edit")
        yield from see.fill("Street Address", slots["street"])
        yield see.click("button", "Save Order Address")
        yield see.stop()


TEMPLATES = (
    HoldOrder(),
    CancelOrder(),
    ShipOrder(),
    OrderNote(),
    OrderAddress(),
)
