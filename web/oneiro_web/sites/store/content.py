"""The database that the store and its back office share: tables, and content from a seed."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from typing import Any

from oneiro_web.sites.base import Store, insert
from oneiro_web.sites.dice import load_words
from oneiro_web.sites.store.orders import CUSTOMERS, days_ago, fill_customers, fill_orders
from oneiro_web.sites.store.people import Draw

PRODUCTS = 300
REVIEWS = 400

WORDS = load_words("store")

SCHEMA = """
CREATE TABLE category (
  id INTEGER PRIMARY KEY, parent_id INTEGER REFERENCES category, name TEXT NOT NULL, path TEXT NOT NULL UNIQUE,
  level INTEGER NOT NULL, top_id INTEGER NOT NULL, position INTEGER NOT NULL);
CREATE TABLE product (
  id INTEGER PRIMARY KEY, sku TEXT NOT NULL UNIQUE, name TEXT NOT NULL, slug TEXT NOT NULL UNIQUE, brand TEXT NOT NULL,
  category_id INTEGER NOT NULL REFERENCES category, price INTEGER NOT NULL, special_price INTEGER,
  stock INTEGER NOT NULL, status TEXT NOT NULL DEFAULT 'enabled', short_description TEXT NOT NULL DEFAULT '',
  description TEXT NOT NULL DEFAULT '', position INTEGER NOT NULL, created_at TEXT NOT NULL);
CREATE INDEX product_listing ON product (category_id, status, position, name, price, special_price);
CREATE INDEX product_search ON product (status, name, sku, position, price, special_price);
CREATE INDEX product_offer ON product (position) WHERE special_price IS NOT NULL;
CREATE TABLE product_attribute (
  id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product, name TEXT NOT NULL, value TEXT NOT NULL);
CREATE INDEX product_attribute_product ON product_attribute (product_id);
CREATE TABLE product_option (
  id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product, name TEXT NOT NULL, value TEXT NOT NULL);
CREATE INDEX product_option_product ON product_option (product_id);
CREATE TABLE customer (
  id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE, password TEXT NOT NULL, first_name TEXT NOT NULL,
  last_name TEXT NOT NULL, phone TEXT NOT NULL DEFAULT '', group_name TEXT NOT NULL DEFAULT 'General',
  created_at TEXT NOT NULL);
CREATE TABLE address (
  id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer, first_name TEXT NOT NULL,
  last_name TEXT NOT NULL, street TEXT NOT NULL, city TEXT NOT NULL, region TEXT NOT NULL, postcode TEXT NOT NULL,
  country TEXT NOT NULL, phone TEXT NOT NULL, default_billing INTEGER NOT NULL DEFAULT 0,
  default_shipping INTEGER NOT NULL DEFAULT 0);
CREATE INDEX address_customer ON address (customer_id);
CREATE TABLE subscriber (
  id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE, customer_id INTEGER REFERENCES customer, status TEXT NOT NULL);
CREATE TABLE cart (customer_id INTEGER PRIMARY KEY REFERENCES customer, coupon TEXT NOT NULL DEFAULT '');
CREATE TABLE cart_item (
  id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer,
  product_id INTEGER NOT NULL REFERENCES product,
  options TEXT NOT NULL DEFAULT '', quantity INTEGER NOT NULL, UNIQUE (customer_id, product_id, options));
CREATE TABLE wishlist_item (
  id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer,
  product_id INTEGER NOT NULL REFERENCES product,
  comment TEXT NOT NULL DEFAULT '', added_at TEXT NOT NULL, UNIQUE (customer_id, product_id));
CREATE TABLE sales_order (
  id INTEGER PRIMARY KEY, number TEXT NOT NULL UNIQUE, customer_id INTEGER NOT NULL REFERENCES customer,
  customer_name TEXT NOT NULL, customer_email TEXT NOT NULL, status TEXT NOT NULL,
  held_status TEXT NOT NULL DEFAULT '', created_at TEXT NOT NULL, subtotal INTEGER NOT NULL, discount INTEGER NOT NULL,
  shipping INTEGER NOT NULL, total INTEGER NOT NULL, coupon TEXT NOT NULL DEFAULT '', shipping_method TEXT NOT NULL,
  payment_method TEXT NOT NULL, ship_name TEXT NOT NULL, ship_street TEXT NOT NULL, ship_city TEXT NOT NULL,
  ship_region TEXT NOT NULL, ship_postcode TEXT NOT NULL, ship_country TEXT NOT NULL, ship_phone TEXT NOT NULL);
CREATE INDEX sales_order_status ON sales_order (status);
CREATE INDEX sales_order_customer ON sales_order (customer_id);
CREATE INDEX sales_order_created ON sales_order (created_at, status, total);
CREATE TABLE order_item (
  id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES sales_order, product_id INTEGER NOT NULL,
  sku TEXT NOT NULL, name TEXT NOT NULL, options TEXT NOT NULL DEFAULT '', price INTEGER NOT NULL,
  quantity INTEGER NOT NULL);
CREATE INDEX order_item_order ON order_item (order_id, product_id, quantity);
CREATE TABLE order_comment (
  id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES sales_order, created_at TEXT NOT NULL,
  status TEXT NOT NULL, text TEXT NOT NULL, notified INTEGER NOT NULL DEFAULT 0);
CREATE INDEX order_comment_order ON order_comment (order_id);
CREATE TABLE shipment (
  id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES sales_order, created_at TEXT NOT NULL,
  carrier TEXT NOT NULL DEFAULT '', tracking TEXT NOT NULL DEFAULT '');
CREATE INDEX shipment_order ON shipment (order_id);
CREATE TABLE review (
  id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL REFERENCES product, customer_id INTEGER REFERENCES customer,
  nickname TEXT NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL, stars INTEGER NOT NULL, created_at TEXT NOT NULL,
  status TEXT NOT NULL);
CREATE INDEX review_product ON review (product_id, status, stars);
CREATE TABLE search_term (
  id INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE, results INTEGER NOT NULL, uses INTEGER NOT NULL);
CREATE TABLE cart_rule (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, description TEXT NOT NULL DEFAULT '', active INTEGER NOT NULL,
  customer_group TEXT NOT NULL DEFAULT 'All', coupon TEXT NOT NULL DEFAULT '', action TEXT NOT NULL,
  amount INTEGER NOT NULL, minimum INTEGER NOT NULL DEFAULT 0, from_date TEXT NOT NULL DEFAULT '',
  to_date TEXT NOT NULL DEFAULT '');
CREATE TABLE cms_page (
  id INTEGER PRIMARY KEY, slug TEXT NOT NULL UNIQUE, title TEXT NOT NULL, body TEXT NOT NULL,
  active INTEGER NOT NULL DEFAULT 1, updated_at TEXT NOT NULL);
CREATE TABLE contact_message (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL, phone TEXT NOT NULL, message TEXT NOT NULL,
  created_at TEXT NOT NULL);
CREATE TABLE admin_user (username TEXT PRIMARY KEY, password TEXT NOT NULL, name TEXT NOT NULL);
CREATE VIEW listed AS
  SELECT p.*, coalesce(p.special_price, p.price) AS final_price,
    (SELECT top_id FROM category WHERE id = p.category_id) AS top_id,
    (SELECT avg(stars) FROM review WHERE product_id = p.id AND status = 'approved') AS rating,
    (SELECT count(*) FROM review WHERE product_id = p.id AND status = 'approved') AS reviews
  FROM product p;
"""


@dataclass(frozen=True)
class Shelf:
    """The products of one lowest category."""

    path: tuple[str, ...]
    """Category names from the top."""
    kinds: tuple[str, ...]
    extras: tuple[str, ...]
    """What a product's name may end with."""
    price: tuple[int, int]
    """Lowest and highest price in dollars."""
    aspects: tuple[str, ...]
    """What reviews talk about."""
    attributes: tuple[str, ...] = ()
    """Attributes besides colour and material, by their names in `values` of the words."""
    options: tuple[str, ...] = ()
    """What a customer chooses."""


SHELVES = tuple(Shelf(**{**row, "path": tuple(row["path"])}) for row in WORDS["shelves"])


RULE_COLUMNS = ("name", "description", "active", "customer_group", "coupon", "action", "amount", "minimum", "from_date",
                "to_date")  # fmt: skip


def price_rules(welcome: int, spring: int, wholesale: int, number: int) -> list[dict[str, str | int]]:
    """The price rules that a store begins with, as rows."""
    rows: tuple[tuple[str | int, ...], ...] = (
        ("Welcome discount", "For a first order.", 1, "All", f"WELCOME{welcome}", "by_percent", welcome, 0, "", ""),
        (f"${spring} off large orders", "Orders of $200 and more.", 1, "All", f"SAVE{spring}", "cart_fixed",
         spring * 100, 20_000, "", ""),
        ("Wholesale discount", "For wholesale customers.", 1, "Wholesale", "", "by_percent", wholesale, 0, "", ""),
        ("Spring sale", "Over since May.", 0, "All", "SPRING", "by_percent", 10, 0, "2026-03-20", "2026-05-01"),
        ("Newsletter thank you", "Sent to subscribers.", 1, "All", f"THANKS{number}", "cart_fixed", 500, 2_500,
         "2026-01-01", ""),
    )  # fmt: skip
    return [dict(zip(RULE_COLUMNS, row, strict=True)) for row in rows]


def slug(text: str) -> str:
    """A name as a part of an address."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def fill(db: sqlite3.Connection, seed: int) -> None:
    """The content of one seed."""
    categories = fill_categories(db)
    products = fill_products(db, Draw("web", "store", seed, "products"), categories)
    customers = fill_customers(db, Draw("web", "store", seed, "customers"))
    fill_reviews(db, Draw("web", "store", seed, "reviews"), products, customers)
    fill_orders(db, Draw("web", "store", seed, "orders"), products, customers)
    fill_marketing(db, Draw("web", "store", seed, "marketing"), products)


def fill_categories(db: sqlite3.Connection) -> dict[tuple[str, ...], int]:
    """Every category of the shelves and those above; their ids by path."""
    ids: dict[tuple[str, ...], int] = {}
    rows = []
    paths = dict.fromkeys(shelf.path[:depth] for depth in (1, 2, 3) for shelf in SHELVES)
    for path in paths:
        ids[path] = len(ids) + 1
        rows.append(
            {
                "id": ids[path],
                "parent_id": ids.get(path[:-1]),
                "name": path[-1],
                "path": "/".join(map(slug, path)),
                "level": len(path),
                "top_id": ids[path[:1]],
                "position": next(i for i, shelf in enumerate(SHELVES) if shelf.path[: len(path)] == path),
            }
        )
    insert(db, "category", rows)
    return ids


def fill_products(db: sqlite3.Connection, draw: Draw, categories: dict[tuple[str, ...], int]) -> list[dict[str, Any]]:
    """Products over all shelves, with attributes and options."""
    tops = sorted({shelf.path[0] for shelf in SHELVES})
    brands = draw.some(WORDS["brands"], len(WORDS["brands"]))
    share = len(brands) // len(tops)
    own = {top: brands[i * share : (i + 1) * share] for i, top in enumerate(tops)}
    rows: list[dict[str, Any]] = []
    names: set[str] = set()
    while len(rows) < PRODUCTS:
        shelf = SHELVES[len(rows) % len(SHELVES)]
        kind, brand = draw.pick(shelf.kinds), draw.pick(own[shelf.path[0]])
        name = f"{brand} {draw.pick(WORDS['series'])} {kind} {draw.pick(shelf.extras)}"
        if name not in names:
            names.add(name)
            rows.append(product(draw, shelf, kind, brand, name, len(rows) + 1, categories[shelf.path]))
    hidden = ("shelf", "kind", "attributes", "options")
    insert(db, "product", [{key: value for key, value in row.items() if key not in hidden} for row in rows])
    for table, key in (("product_attribute", "attributes"), ("product_option", "options")):
        pairs = [(row["id"], name, value) for row in rows for name, value in row[key]]
        insert(db, table, [{"product_id": owner, "name": name, "value": value} for owner, name, value in pairs])
    return rows


def product(draw: Draw, shelf: Shelf, kind: str, brand: str, name: str, number: int, category: int) -> dict[str, Any]:
    """One product; the keys that are not columns are for the tables beside it."""
    low, high = shelf.price
    price = (low + int((high - low) * draw.uniform() ** 2)) * 100 + draw.pick((0, 49, 95, 99))
    attributes = [("Brand", brand)]
    if shelf.path[0] in WORDS["materials"]:
        attributes.append(("Material", draw.pick(WORDS["materials"][shelf.path[0]])))
        if "Color" not in shelf.options:
            attributes.append(("Color", draw.pick(WORDS["values"]["Color"])))
    attributes += [(key, draw.pick(WORDS["values"][key])) for key in shelf.attributes]
    options = []
    for key in shelf.options:
        values = WORDS["values"][key]
        chosen = set(draw.some(values, min(len(values), draw.number(3, 5))))
        options += [(key, value) for value in values if value in chosen]
    one, two = draw.some(shelf.aspects, 2)
    fact = ", ".join(f"{key.lower()} {value}" for key, value in attributes)
    return {
        "id": number,
        "sku": f"{slug(shelf.path[-1])[:3].upper()}-{draw.number(1000, 9999)}-{number:03d}",
        "name": name,
        "slug": slug(name),
        "brand": brand,
        "category_id": category,
        "price": price,
        "special_price": price * draw.pick((70, 75, 80, 85, 90)) // 100 if draw.chance(0.12) else None,
        "stock": 0 if draw.chance(0.04) else draw.number(1, 9) if draw.chance(0.12) else draw.number(10, 240),
        "status": "disabled" if draw.chance(0.03) else "enabled",
        "short_description": f"{kind} made for {draw.pick(WORDS['purposes'])}, with attention to {one} and {two}.",
        "description": f"The {name} was made for {draw.pick(WORDS['purposes'])}. Details: {fact}. "
        f"We spent most of our time on the {one}, and you notice it from the first day. {draw.pick(WORDS['promises'])}",
        "position": number,
        "created_at": days_ago(draw, 200, 900),
        "shelf": shelf,
        "kind": kind,
        "attributes": attributes,
        "options": options,
    }


def fill_reviews(
    db: sqlite3.Connection, draw: Draw, products: list[dict[str, Any]], customers: list[dict[str, Any]]
) -> None:
    """Reviews, some products with many and some without."""
    popular = draw.some(products, 110)
    rows = []
    for _ in range(REVIEWS):
        item = popular[int(len(popular) * draw.uniform() ** 2)]
        stars = draw.pick((5, 5, 5, 4, 4, 4, 3, 2, 1, 1))
        customer = draw.pick(customers)
        first, second = draw.some(item["shelf"].aspects, 2)
        praise, blame = draw.some(WORDS["praise"], 2), draw.some(WORDS["blame"], 2)
        parts = [(praise if stars > 2 else blame)[0], (praise if stars > 3 else blame)[1]]
        ending = draw.pick(
            WORDS["good_endings"] if stars > 3 else WORDS["mixed_endings"] if stars == 3 else WORDS["bad_endings"]
        )
        sentences = [part.format(aspect=aspect) for part, aspect in zip(parts, (first, second), strict=True)]
        sentences = sentences if draw.chance(0.6) else sentences[:1]
        rows.append(
            {
                "product_id": item["id"],
                "customer_id": customer["id"] if draw.chance(0.7) else None,
                "nickname": nickname(draw, customer),
                "title": draw.pick(WORDS["titles"][str(stars)]).format(kind=item["kind"].lower()),
                "text": f"{'. '.join(sentences)}. {ending}",
                "stars": stars,
                "created_at": days_ago(draw, 0, 700),
                "status": draw.pick(("approved",) * 16 + ("pending",) * 3 + ("not approved",)),
            }
        )  # fmt: skip
    insert(db, "review", sorted(rows, key=lambda row: (row["created_at"], row["nickname"])))


def nickname(draw: Draw, customer: dict[str, Any]) -> str:
    """What a customer signs a review with."""
    if draw.chance(0.5):
        return f"{customer['first_name']} {customer['last_name'][0]}."
    return f"{draw.pick(('', 'the_real_', 'shop'))}{customer['first_name'].lower()}{draw.number(2, 99)}"


def fill_marketing(db: sqlite3.Connection, draw: Draw, products: list[dict[str, Any]]) -> None:
    """Search terms, price rules, pages, the administrator."""
    kinds = sorted({row["kind"].lower() for row in products} | {row["brand"].lower() for row in products})
    terms = sorted({*WORDS["searches"], *draw.some(kinds, 28)})
    names = [row["name"].lower() for row in products]
    rows = [{"term": term, "results": count_matches(names, term), "uses": draw.number(1, 60)} for term in terms]
    insert(db, "search_term", rows)
    welcome, spring, wholesale = draw.pick((10, 15)), draw.pick((20, 25, 30)), draw.pick((5, 8, 12))
    rules = price_rules(welcome, spring, wholesale, draw.number(100, 999))
    insert(db, "cart_rule", rules)
    insert(
        db,
        "cms_page",
        [
            {"slug": path, "title": title, "body": body, "updated_at": days_ago(draw, 30, 600)}
            for path, title, body in WORDS["pages"]
        ],
    )
    insert(db, "admin_user", [{"username": "admin", "password": "admin1234", "name": " ".join(draw.person())}])


def count_matches(names: list[str], term: str) -> int:
    """How many names have every word of a search term in them."""
    for word in term.split():
        names = [name for name in names if word in name]
    return len(names)


MENU = tuple((name, f"/{slug(name)}.html") for name in dict.fromkeys(shelf.path[0] for shelf in SHELVES))
"""The top categories and their addresses, in every seed."""

STORE = Store("store", SCHEMA, fill)

__all__ = ["CUSTOMERS", "MENU", "PRODUCTS", "REVIEWS", "STORE", "slug"]
