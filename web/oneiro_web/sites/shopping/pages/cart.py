"""The store's cart, checkout and wish list."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from oneiro_web.sites.base import TODAY, Visit
from oneiro_web.sites.shopping.pages.catalogue import CARD, customer, product_options, product_page, show
from oneiro_web.sites.store.content import slug
from oneiro_web.sites.store.forms import missing, row_id, whole
from oneiro_web.sites.store.orders import FREE, FREE_FROM, PAYMENTS, SHIPPING

MOST = 999
ADDRESS_FIELDS = ("first_name", "last_name", "street", "city", "region", "postcode", "country", "phone")
LABELS = (
    ("first_name", "First Name"),
    ("last_name", "Last Name"),
    ("street", "Street Address"),
    ("city", "City"),
    ("region", "State/Province"),
    ("postcode", "Zip/Postal Code"),
    ("country", "Country"),
    ("phone", "Phone Number"),
)


@dataclass(frozen=True)
class Basket:
    """What somebody is about to buy, in cents."""

    items: list[sqlite3.Row]
    subtotal: int
    discount: int
    coupon: str

    @property
    def methods(self) -> dict[str, int]:
        """The shipping methods that this order may have."""
        return {name: price for name, price in SHIPPING.items() if name != FREE or self.subtotal >= FREE_FROM}


def basket(visit: Visit, owner: sqlite3.Row) -> Basket:
    """The cart with its prices and discounts of today."""
    items = visit.rows(
        "SELECT i.id, i.product_id, i.options, i.quantity, p.name, p.slug, p.sku, p.stock, c.top_id,"
        " coalesce(p.special_price, p.price) AS price"
        " FROM cart_item i JOIN product p ON p.id = i.product_id JOIN category c ON c.id = p.category_id"
        " WHERE i.customer_id = ? ORDER BY i.id",
        owner["id"],
    )
    subtotal = sum(item["price"] * item["quantity"] for item in items)
    coupon = visit.value("SELECT coupon FROM cart WHERE customer_id = ?", owner["id"]) or ""
    discount = 0
    for rule in rules(visit, owner["group_name"], coupon):
        if subtotal >= rule["minimum"]:
            discount += subtotal * rule["amount"] // 100 if rule["action"] == "by_percent" else rule["amount"]
    return Basket(items, subtotal, min(discount, subtotal), coupon)


def rules(visit: Visit, group: str, coupon: str) -> list[sqlite3.Row]:
    """The price rules that hold today: those without a coupon, and the one of this coupon."""
    today = TODAY.date().isoformat()
    return visit.rows(
        "SELECT * FROM cart_rule WHERE active = 1 AND customer_group IN ('All', ?) AND coupon IN ('', ?)"
        " AND (from_date = '' OR from_date <= ?) AND (to_date = '' OR to_date >= ?) ORDER BY id",
        group, coupon, today, today,
    )  # fmt: skip


def cart(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    return show(visit, "cart", status, basket=basket(visit, customer(visit)), errors=errors or {}, form=visit.form)


def add(visit: Visit) -> Response:
    """Into the cart from a product's page; options and stock are checked there."""
    product = visit.require(
        "SELECT * FROM product WHERE id = ? AND status = 'enabled'", whole(visit.form.get("product", ""))
    )
    owner = customer(visit)
    errors, chosen = {}, []
    for name, values in product_options(visit, product["id"]).items():
        value = visit.form.get(f"option_{slug(name)}", "")
        if value in values:
            chosen.append(f"{name}: {value}")
        else:
            errors[f"option_{slug(name)}"] = "You need to choose options for your item."
    quantity = whole(visit.form.get("qty", "1"), 1, MOST)
    if quantity is None:
        errors["qty"] = "Please enter a quantity greater than 0."
    elif not errors and in_cart(visit, owner["id"], product["id"]) + quantity > product["stock"]:
        errors["qty"] = "The requested qty is not available"
    if errors or quantity is None:
        return product_page(visit, product["slug"], 400, errors=errors)
    put(visit, owner["id"], product["id"], ", ".join(chosen), quantity)
    return visit.redirect(f"/{product['slug']}.html", f"You added {product['name']} to your shopping cart.")


def in_cart(visit: Visit, owner: int, product: int) -> int:
    """How many of a product are in the cart already."""
    sql = "SELECT total(quantity) FROM cart_item WHERE customer_id = ? AND product_id = ?"
    return int(visit.value(sql, owner, product))


def put(visit: Visit, owner: int, product: int, options: str, quantity: int) -> None:
    """More of a product in the cart."""
    visit.change(
        "INSERT INTO cart_item (customer_id, product_id, options, quantity) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (customer_id, product_id, options) DO UPDATE SET quantity = quantity + excluded.quantity",
        owner, product, options, quantity,
    )  # fmt: skip


def update(visit: Visit) -> Response:
    """New quantities for all items; 0 removes one."""
    items = basket(visit, customer(visit)).items
    errors, wanted = {}, {}
    for item in items:
        key = f"qty_{item['id']}"
        wanted[item["id"]] = quantity = whole(visit.form.get(key, str(item["quantity"])), 0, MOST)
        if quantity is None:
            errors[key] = "Please enter a number of 0 or more."
        elif quantity > item["stock"]:
            errors[key] = "The requested qty is not available"
    if errors:
        return cart(visit, 400, errors)
    for item, quantity in wanted.items():
        if quantity:
            visit.change("UPDATE cart_item SET quantity = ? WHERE id = ?", quantity, item)
        else:
            visit.change("DELETE FROM cart_item WHERE id = ?", item)
    return visit.redirect("/checkout/cart", "The shopping cart was updated.")


def remove(visit: Visit) -> Response:
    sql = "SELECT id FROM cart_item WHERE id = ? AND customer_id = ?"
    item = visit.require(sql, whole(visit.form.get("item", "")), customer(visit)["id"])
    visit.change("DELETE FROM cart_item WHERE id = ?", item["id"])
    return visit.redirect("/checkout/cart", "The item was removed from your cart.")


def coupon(visit: Visit) -> Response:
    """Apply a coupon; an empty field takes it back."""
    owner, code = customer(visit), visit.form.get("coupon_code", "")
    known = [rule["coupon"] for rule in rules(visit, owner["group_name"], code) if rule["coupon"]]
    if code and not known:
        return cart(visit, 400, {"coupon_code": f'The coupon code "{code}" is not valid.'})
    visit.change(
        "INSERT INTO cart VALUES (?, ?) ON CONFLICT (customer_id) DO UPDATE SET coupon = excluded.coupon",
        owner["id"], code,
    )  # fmt: skip
    return visit.redirect(
        "/checkout/cart", f'You used coupon code "{code}".' if code else "You canceled the coupon code."
    )


def addresses_of(visit: Visit, owner: int) -> list[sqlite3.Row]:
    """An address book, the default for shipping first."""
    return visit.rows("SELECT * FROM address WHERE customer_id = ? ORDER BY default_shipping DESC, id", owner)


def checkout(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    """Address, shipping and payment on one page."""
    owner = customer(visit)
    bought = basket(visit, owner)
    if not bought.items:
        return visit.redirect("/checkout/cart", "You have no items in your shopping cart.")
    known = [
        (row["id"], ", ".join(row[key] for key in ("street", "city", "region", "postcode")))
        for row in addresses_of(visit, owner["id"])
    ]
    return show(
        visit, "checkout", status, basket=bought, addresses=known, labels=LABELS, payments=PAYMENTS,
        errors=errors or {}, form=visit.form, owner=owner,
    )  # fmt: skip


def place(visit: Visit) -> Response:
    """The order: its rows, less stock, an empty cart."""
    owner, form = customer(visit), visit.form
    bought = basket(visit, owner)
    if not bought.items:
        return visit.redirect("/checkout/cart", "You have no items in your shopping cart.")
    known = {str(row["id"]): row for row in addresses_of(visit, owner["id"])}
    target: Any = known.get(form.get("address", ""))
    errors = {}
    if target is None:
        errors = missing(form, ADDRESS_FIELDS)
        target = form
    method, payment = form.get("shipping_method", ""), form.get("payment_method", "")
    if method not in bought.methods:
        errors["shipping_method"] = "Please choose a shipping method."
    if payment not in PAYMENTS:
        errors["payment_method"] = "Please choose a payment method."
    short = [item["name"] for item in bought.items if item["quantity"] > item["stock"]]
    if short:
        errors["items"] = f"Not enough in stock: {', '.join(short)}."
    if errors:
        return checkout(visit, 400, errors)
    order = write_order(visit, owner, bought, method, payment, {key: target[key] for key in ADDRESS_FIELDS})
    return visit.redirect(f"/checkout/success/{order}")


def write_order(
    visit: Visit, owner: sqlite3.Row, bought: Basket, method: str, payment: str, target: dict[str, str]
) -> int:
    """The id of the new order."""
    now, shipping = visit.now(), SHIPPING[method]
    number = visit.value("SELECT max(id) FROM sales_order") + 1
    visit.change(
        "INSERT INTO sales_order (id, number, customer_id, customer_name, customer_email, status, created_at, subtotal,"
        " discount, shipping, total, coupon, shipping_method, payment_method, ship_name, ship_street, ship_city,"
        " ship_region, ship_postcode, ship_country, ship_phone)"
        " VALUES (?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        number, f"{number:09d}", owner["id"], f"{owner['first_name']} {owner['last_name']}", owner["email"], now,
        bought.subtotal, bought.discount, shipping, bought.subtotal - bought.discount + shipping, bought.coupon,
        method, payment, f"{target['first_name']} {target['last_name']}",
        *(target[key] for key in ADDRESS_FIELDS[2:]),
    )  # fmt: skip
    for item in bought.items:
        visit.change(
            "INSERT INTO order_item (order_id, product_id, sku, name, options, price, quantity)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            number, item["product_id"], item["sku"], item["name"], item["options"], item["price"], item["quantity"],
        )  # fmt: skip
        visit.change("UPDATE product SET stock = stock - ? WHERE id = ?", item["quantity"], item["product_id"])
    visit.change(
        "INSERT INTO order_comment (order_id, created_at, status, text) VALUES (?, ?, 'pending', 'Order received.')",
        number,
        now,
    )
    visit.change("DELETE FROM cart_item WHERE customer_id = ?", owner["id"])
    visit.change("DELETE FROM cart WHERE customer_id = ?", owner["id"])
    return int(number)


def success(visit: Visit) -> Response:
    sql = "SELECT id, number FROM sales_order WHERE id = ? AND customer_id = ?"
    return show(visit, "success", order=visit.require(sql, row_id(visit), customer(visit)["id"]))


def wishlist(visit: Visit) -> Response:
    sql = (
        f"SELECT l.*, w.id AS item FROM wishlist_item w JOIN ({CARD}) l ON l.id = w.product_id"
        " WHERE w.customer_id = ? ORDER BY w.id DESC"
    )
    return show(visit, "wishlist", products=visit.rows(sql, customer(visit)["id"]))


def wish(visit: Visit) -> Response:
    product = visit.require(
        "SELECT * FROM product WHERE id = ? AND status = 'enabled'", whole(visit.form.get("product", ""))
    )
    owner = customer(visit)["id"]
    if not visit.one("SELECT 1 FROM wishlist_item WHERE customer_id = ? AND product_id = ?", owner, product["id"]):
        sql = "INSERT INTO wishlist_item (customer_id, product_id, added_at) VALUES (?, ?, ?)"
        visit.change(sql, owner, product["id"], visit.now())
    return visit.redirect("/wishlist", f"{product['name']} has been added to your Wish List.")


def wished(visit: Visit) -> sqlite3.Row:
    """The wish list item that a form names."""
    sql = (
        "SELECT w.id, w.product_id, p.name, p.slug, p.stock FROM wishlist_item w JOIN product p ON p.id = w.product_id"
        " WHERE w.id = ? AND w.customer_id = ?"
    )
    return visit.require(sql, whole(visit.form.get("item", "")), customer(visit)["id"])


def unwish(visit: Visit) -> Response:
    item = wished(visit)
    visit.change("DELETE FROM wishlist_item WHERE id = ?", item["id"])
    return visit.redirect("/wishlist", f"{item['name']} has been removed from your Wish List.")


def wish_to_cart(visit: Visit) -> Response:
    """From the wish list into the cart; a product with options is chosen on its own page."""
    item, owner = wished(visit), customer(visit)["id"]
    if product_options(visit, item["product_id"]):
        return visit.redirect(f"/{item['slug']}.html", "You need to choose options for your item.")
    if in_cart(visit, owner, item["product_id"]) + 1 > item["stock"]:
        return visit.redirect("/wishlist", f"{item['name']} is out of stock.")
    put(visit, owner, item["product_id"], "", 1)
    visit.change("DELETE FROM wishlist_item WHERE id = ?", item["id"])
    return visit.redirect("/wishlist", f"You added {item['name']} to your shopping cart.")
