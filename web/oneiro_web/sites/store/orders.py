"""Customers of the store, their addresses, orders, carts and wish lists, from a seed."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import Any

from oneiro_web.sites.base import TODAY, insert
from oneiro_web.sites.dice import stamp
from oneiro_web.sites.store.people import WORDS, Draw

SHOPPER = "shopper@onestopmarket.com"
"""Who is logged in at the store when an episode begins; the name differs between seeds."""
PASSWORD = "shopper-1"

CUSTOMERS = 60
ORDERS = 250
OWN_ORDERS = 35
"""Orders of the shopper."""

STANDARD, EXPRESS, FREE = "Standard Delivery", "Express Delivery", "Free Delivery"
SHIPPING = {STANDARD: 500, EXPRESS: 1500, FREE: 0}
"""Shipping methods with their prices in cents; free delivery needs a subtotal of `FREE_FROM`."""
FREE_FROM = 15_000
PAYMENTS = ("Check / Money Order", "Bank Transfer", "Cash on Delivery")
CARRIERS = ("UPS", "FedEx", "DHL", "USPS")
RECENT = stamp(TODAY - timedelta(days=25))
"""Orders from here on are on their way."""
GROUPS = ("General", "Wholesale", "Retailer")


def days_ago(draw: Draw, least: int, most: int) -> str:
    """A moment between `most` and `least` days before the episode begins."""
    return stamp(TODAY - timedelta(days=draw.number(least, most), minutes=draw.number(1, 1400)))


def fill_customers(db: sqlite3.Connection, draw: Draw) -> list[dict[str, Any]]:
    """Customers with one to three addresses; the first is the shopper."""
    rows: list[dict[str, Any]] = []
    addresses: list[dict[str, Any]] = []
    taken: set[tuple[str, str]] = set()
    while len(rows) < CUSTOMERS:
        first, last = draw.person()
        if (first, last) in taken:
            continue
        taken.add((first, last))
        email = f"{first}.{last}@{draw.pick(WORDS['mail_hosts'])}".lower() if rows else SHOPPER
        row = {
            "id": len(rows) + 1,
            "email": email,
            "password": f"pass-{draw.number(10_000, 99_999)}" if rows else PASSWORD,
            "first_name": first,
            "last_name": last,
            "phone": draw.phone(),
            "group_name": draw.pick(("General",) * 8 + GROUPS) if rows else "General",
            "created_at": days_ago(draw, 731, 1400),
        }
        for place in range(draw.pick((1, 1, 2)) if rows else 3):
            default = int(place == 0)
            owner = {"customer_id": row["id"], "first_name": first, "last_name": last, "phone": row["phone"]}
            addresses.append({**owner, **draw.address(), "default_billing": default, "default_shipping": default})
        rows.append(row)
    insert(db, "customer", rows)
    insert(db, "address", addresses)
    subscribed = [row for row in rows[1:] if draw.chance(0.4)]
    insert(
        db,
        "subscriber",
        [{"email": row["email"], "customer_id": row["id"], "status": "subscribed"} for row in subscribed],
    )
    for row in rows:
        row["address"] = next(address for address in addresses if address["customer_id"] == row["id"])
    return rows


def fill_orders(
    db: sqlite3.Connection, draw: Draw, products: list[dict[str, Any]], customers: list[dict[str, Any]]
) -> None:
    """Orders of the last two years, numbered by date; the shopper's wish list."""
    buyers = [customers[0]] * OWN_ORDERS + [
        customers[1 + int(len(customers[1:]) * draw.uniform() ** 1.6)] for _ in range(ORDERS - OWN_ORDERS)
    ]
    moments = [days_ago(draw, 0, 24) if draw.chance(0.12) else days_ago(draw, 5, 730) for _ in buyers]
    drafts = sorted(zip(moments, range(ORDERS), buyers, strict=True), key=lambda draft: draft[:2])
    orders, items, comments, shipments = [], [], [], []
    for number, (created, _, buyer) in enumerate(drafts, 1):
        bought = basket(draw, number, products)
        order = head(draw, number, created, buyer, sum(item["price"] * item["quantity"] for item in bought))
        orders.append(order)
        items += bought
        comments.append({"order_id": number, "created_at": created, "status": "pending", "text": "Order received."})
        if order["status"] == "complete":
            shipments.append(
                {
                    "order_id": number,
                    "created_at": created,
                    "carrier": draw.pick(CARRIERS),
                    "tracking": f"{draw.number(10**9, 10**10 - 1)}",
                }
            )
        if order["status"] == "canceled":
            text = draw.pick(("Canceled by the customer.", "Payment did not arrive.", "Item was no longer available."))
            comments.append({"order_id": number, "created_at": created, "status": "canceled", "text": text})
    for table, rows in (
        ("sales_order", orders),
        ("order_item", items),
        ("order_comment", comments),
        ("shipment", shipments),
    ):
        insert(db, table, rows)
    wished = draw.some([row for row in products if row["status"] == "enabled"], 4)
    insert(
        db,
        "wishlist_item",
        [{"customer_id": 1, "product_id": row["id"], "added_at": days_ago(draw, 3, 90)} for row in wished],
    )


def basket(draw: Draw, order: int, products: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items of one order; some products sell more than others."""
    bought: dict[int, dict[str, Any]] = {}
    for _ in range(draw.pick((1, 1, 2, 2, 3, 4))):
        row = products[int(len(products) * draw.uniform() ** 1.5) * 7 % len(products)]
        chosen = [draw.pick([pair for pair in row["options"] if pair[0] == key]) for key in row["shelf"].options]
        bought[row["id"]] = {
            "order_id": order,
            "product_id": row["id"],
            "sku": row["sku"],
            "name": row["name"],
            "options": ", ".join(f"{key}: {value}" for key, value in chosen),
            "price": row["price"],
            "quantity": draw.pick((1, 1, 1, 1, 2, 3)),
        }
    return list(bought.values())


def head(draw: Draw, number: int, created: str, buyer: dict[str, Any], subtotal: int) -> dict[str, Any]:
    """An order without its items. Recent ones are on their way, old ones are complete or canceled."""
    if created > RECENT:
        status = draw.pick(("pending", "pending", "processing", "processing", "complete", "canceled"))
    else:
        status = draw.pick(("complete",) * 7 + ("canceled",) * 2 + ("processing",))
    method = FREE if subtotal >= FREE_FROM else draw.pick((STANDARD, STANDARD, STANDARD, EXPRESS))
    coupon = "SPRING" if draw.chance(0.08) else ""
    discount = subtotal // 10 if coupon else 0
    place = buyer["address"]
    return {
        "id": number,
        "number": f"{number:09d}",
        "customer_id": buyer["id"],
        "customer_name": f"{buyer['first_name']} {buyer['last_name']}",
        "customer_email": buyer["email"],
        "status": status,
        "created_at": created,
        "subtotal": subtotal,
        "discount": discount,
        "shipping": SHIPPING[method],
        "total": subtotal - discount + SHIPPING[method],
        "coupon": coupon,
        "shipping_method": method,
        "payment_method": draw.pick(PAYMENTS),
        "ship_name": f"{place['first_name']} {place['last_name']}",
        **{f"ship_{key}": place[key] for key in ("street", "city", "region", "postcode", "country", "phone")},
    }
