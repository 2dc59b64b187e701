"""Tasks that change customers, price rules and the store's own pages."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.shopping_admin.tasks.parts import (
    Admin,
    open_customer,
    some_customer,
)
from oneiro_web.sites.store.orders import GROUPS
from oneiro_web.sites.store.tasks import (
    EditsRow,
    last_id,
    row_of,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of, quoted
from oneiro_web.templates.script import Script, View

RULE_COLUMNS = (
    "name", "description", "customer_group", "coupon", "action", "amount", "minimum", "from_date", "to_date", "active",
)  # fmt: skip


WORDS = load_words("store")["tasks"]


class CustomerGroup(EditsRow, Admin):
    name = "shopping_admin/customer-group"
    intents = (
        "Move the customer {customer} to the group {group}.",
        "{customer} now belongs to the customer group {group}. Change the record.",
    )
    skills = ("filter", "form", "edit")
    table = "customer"

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        group = one_of(rng, GROUPS)
        row = some_customer(content, rng, f"group_name != {quoted(group)}")
        columns = ("email", "first_name", "last_name", "phone", "group_name")
        return (
            {
                "customer": row["name"],
                "group": group,
                "id": row["id"],
                "row": row_of(content, "customer", row["id"], columns, group_name=group),
            }
            if row
            else None
        )

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_customer(see, slots["customer"])
        yield see.select("Group", slots["group"])
        yield see.click("button", "Save Customer")
        yield see.stop()


class CreateRule(Admin):
    name = "shopping_admin/create-rule"
    intents = (
        'Create a cart price rule "{rule}" for {group} customers: the coupon {coupon} gives {amount} percent off.',
        'Set up the price rule "{rule}": coupon code {coupon}, {amount}% discount, customer group {group}.',
    )
    skills = ("form", "write", "create")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        rule, coupon = one_of(rng, WORDS["rules"])
        amount = int(rng.integers(1, 9)) * 5
        return {
            "rule": rule,
            "coupon": f"{coupon}{amount}",
            "amount": amount,
            "group": one_of(rng, GROUPS),
            "last": last_id(content, "cart_rule"),
        }

    def checks(self, slots: Slots) -> list[Check]:
        columns = "name, coupon, customer_group, action, amount, active, minimum, from_date, to_date"
        wanted = (slots["rule"], slots["coupon"], slots["group"], "by_percent", slots["amount"], 1, 0, "", "")
        return [holds(self.site, f"SELECT {columns} FROM cart_rule WHERE id > {slots['last']}", wanted)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"cart_rule": f"id > {slots['last']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Cart Price Rules")
        yield see.click("link", "Add New Rule")
        yield see.type("Rule Name", slots["rule"])
        yield see.select("Customer Group", slots["group"])
        yield see.type("Coupon Code (empty: no coupon needed)", slots["coupon"])
        yield see.type("Discount Amount", str(slots["amount"]))
        yield see.click("button", "Save")
        yield see.stop()


class EndRule(EditsRow, Admin):
    name = "shopping_admin/end-rule"
    intents = (
        'Make the cart price rule "{rule}" inactive.',
        'The offer "{rule}" is over. Switch its cart price rule to inactive.',
    )
    skills = ("form", "status")
    table = "cart_rule"

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(rng, "SELECT id, name FROM cart_rule WHERE active = 1 ORDER BY id")
        return (
            {
                "rule": row["name"],
                "id": row["id"],
                "row": row_of(content, "cart_rule", row["id"], RULE_COLUMNS, active=0),
            }
            if row
            else None
        )

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Cart Price Rules")
        yield see.click("link", "Edit", within=slots["rule"])
        yield see.select("Status", "Inactive")
        yield see.click("button", "Save")
        yield see.stop()


class PageTitle(EditsRow, Admin):
    name = "shopping_admin/page-title"
    intents = (
        'Rename the page "{page}" to "{title}".',
        'Change the title of the page "{page}" to "{title}" and leave its content alone.',
    )
    skills = ("form", "edit")
    table = "cms_page"

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        page = one_of(rng, list(WORDS["titles"]))
        title = one_of(rng, WORDS["titles"][page])
        number = content.value("SELECT id FROM cms_page WHERE title = ?", page)
        return number and {
            "page": page,
            "title": title,
            "id": number,
            "row": row_of(content, "cms_page", number, ("slug", "title", "body", "active"), title=title),
        }

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Pages")
        yield see.click("link", "Edit", within=slots["page"])
        yield from see.fill("Page Title", slots["title"])
        yield see.click("button", "Save")
        yield see.stop()


TEMPLATES = (
    CustomerGroup(),
    CreateRule(),
    EndRule(),
    PageTitle(),
)
