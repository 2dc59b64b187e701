"""Tasks that change customers, price rules and the store's own pages."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.shopping_admin.tasks.parts import open_customer, some_customer
from oneiro_web.sites.store.orders import GROUPS
from oneiro_web.sites.store.tasks import last_id, row_of
from oneiro_web.templates.base import Content, Slots, one_of, quoted
from oneiro_web.templates.table import Change, by, choose, click, refill, write

CUSTOMER_COLUMNS = ("email", "first_name", "last_name", "phone", "group_name")
RULE_COLUMNS = (
    "name", "description", "customer_group", "coupon", "action", "amount", "minimum", "from_date", "to_date", "active",
)  # fmt: skip
WORDS = load_words("store")["tasks"]


def customer_and_group(content: Content, rng: np.random.Generator) -> Slots | None:
    group = one_of(rng, GROUPS)
    row = some_customer(content, rng, f"group_name != {quoted(group)}")
    if row is None:
        return None
    expected = row_of(content, "customer", row["id"], CUSTOMER_COLUMNS, group_name=group)
    return {"customer": row["name"], "group": group, "id": row["id"], "row": expected}


def new_rule(content: Content, rng: np.random.Generator) -> Slots | None:
    rule, coupon = one_of(rng, WORDS["rules"])
    amount = int(rng.integers(1, 9)) * 5
    return {
        "rule": rule,
        "coupon": f"{coupon}{amount}",
        "amount": amount,
        "group": one_of(rng, GROUPS),
        "last": last_id(content, "cart_rule"),
    }


def active_rule(content: Content, rng: np.random.Generator) -> Slots | None:
    row = content.pick(rng, "SELECT id, name FROM cart_rule WHERE active = 1 ORDER BY id")
    if row is None:
        return None
    return {
        "rule": row["name"],
        "id": row["id"],
        "row": row_of(content, "cart_rule", row["id"], RULE_COLUMNS, active=0),
    }


def page_and_title(content: Content, rng: np.random.Generator) -> Slots | None:
    page = one_of(rng, list(WORDS["titles"]))
    title = one_of(rng, WORDS["titles"][page])
    number = content.value("SELECT id FROM cms_page WHERE title = ?", page)
    if not number:
        return None
    row = row_of(content, "cms_page", number, ("slug", "title", "body", "active"), title=title)
    return {"page": page, "title": title, "id": number, "row": row}


TEMPLATES = (
    Change(
        "shopping_admin/customer-group",
        "Move the customer {customer} to the group {group}.",
        "{customer} now belongs to the customer group {group}. Change the record.",
        skills="filter form edit",
        draw=customer_and_group,
        way=[by(open_customer, "{customer}"), choose("Group", "{group}"), click("button", "Save Customer")],
        edits="customer id",
    ),
    Change(
        "shopping_admin/create-rule",
        'Create a cart price rule "{rule}" for {group} customers: the coupon {coupon} gives {amount} percent off.',
        'Set up the price rule "{rule}": coupon code {coupon}, {amount}% discount, customer group {group}.',
        skills="form write create",
        draw=new_rule,
        way=[
            click("link", "Cart Price Rules"),
            click("link", "Add New Rule"),
            write("Rule Name", "{rule}"),
            choose("Customer Group", "{group}"),
            write("Coupon Code (empty: no coupon needed)", "{coupon}"),
            write("Discount Amount", "{amount}"),
            click("button", "Save"),
        ],
        rows={
            "SELECT name, coupon, customer_group, action, amount, active, minimum, from_date, to_date, "
            "description FROM cart_rule WHERE id > :last": (
                ":rule",
                ":coupon",
                ":group",
                "by_percent",
                ":amount",
                1,
                0,
                "",
                "",
                "",
            )
        },
        changes={"cart_rule": "id > :last"},
    ),
    Change(
        "shopping_admin/end-rule",
        'Make the cart price rule "{rule}" inactive.',
        'The offer "{rule}" is over. Switch its cart price rule to inactive.',
        skills="form status",
        draw=active_rule,
        way=[
            click("link", "Cart Price Rules"),
            click("link", "Edit", within="{rule}"),
            choose("Status", "Inactive"),
            click("button", "Save"),
        ],
        edits="cart_rule id",
    ),
    Change(
        "shopping_admin/page-title",
        'Rename the page "{page}" to "{title}".',
        'Change the title of the page "{page}" to "{title}" and leave its content alone.',
        skills="form edit",
        draw=page_and_title,
        way=[
            click("link", "Pages"),
            click("link", "Edit", within="{page}"),
            refill("Page Title", "{title}"),
            click("button", "Save"),
        ],
        edits="cms_page id",
    ),
)
