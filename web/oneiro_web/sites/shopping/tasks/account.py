"""Tasks that write to the store: reviews, messages, the customer's account."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.shopping.tasks.parts import (
    OWN,
    Shopping,
    open_product,
)
from oneiro_web.sites.store.tasks import (
    SHOPPER_ID,
    EditsRow,
    click_after,
    holds_row,
    last_id,
    row_of,
    some_product,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of
from oneiro_web.templates.script import Script, View

ADDRESS_COLUMNS = ("first_name", "last_name", "street", "city", "region", "postcode", "country", "phone")


WORDS = load_words("store")["tasks"]


class WriteReview(Shopping):
    name = "shopping/write-review"
    intents = (
        'Review the "{product}" with {stars} stars as {nickname}. Summary: "{title}". Text: "{text}"',
        'Write a review of the "{product}": {stars} stars, nickname {nickname}, summary "{title}", review "{text}"',
    )
    skills = ("search", "form", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_product(content, rng)
        title, text = one_of(rng, WORDS["reviews"])
        return (
            {
                "product": row["name"],
                "id": row["id"],
                "stars": int(rng.integers(2, 6)),
                "nickname": one_of(rng, WORDS["nicknames"]),
                "title": title,
                "text": text,
                "last": last_id(content, "review"),
            }
            if row
            else None
        )

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT product_id, stars, nickname, title, text FROM review WHERE id > {slots['last']}"
        return [holds(self.site, query, tuple(slots[key] for key in ("id", "stars", "nickname", "title", "text")))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"review": f"id > {slots['last']} AND product_id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_product(see, slots["product"])
        yield see.click("link", "Read and write reviews")
        yield see.select("Your Rating", f"{slots['stars']} stars")
        yield see.type("Nickname", slots["nickname"])
        yield see.type("Summary", slots["title"])
        yield see.type("Review", slots["text"])
        yield see.click("button", "Submit Review")
        yield see.stop()


class Contact(Shopping):
    name = "shopping/contact"
    intents = (
        'Write to the shop through its contact form: "{text}"',
        'Use the contact form to send the shop exactly this message: "{text}"',
    )
    skills = ("form", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        email = content.value("SELECT email FROM customer WHERE id = ?", SHOPPER_ID)
        return {"text": one_of(rng, WORDS["messages"]), "email": email, "last": last_id(content, "contact_message")}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT email, message FROM contact_message WHERE id > {slots['last']}"
        return [holds(self.site, query, (slots["email"], slots["text"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"contact_message": f"id > {slots['last']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Contact Us")
        yield see.type("What’s on your mind?", slots["text"])
        yield see.click("button", "Submit")
        yield see.stop()


class Phone(Shopping):
    name = "shopping/phone"
    intents = (
        "Change the phone number in my account information to {phone}.",
        "I have a new phone number, {phone}. Update my account information, but leave my addresses as they are.",
    )
    skills = ("account", "form", "edit")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        phone = f"{int(rng.integers(201, 990))}-555-{int(rng.integers(10_000)):04d}"
        columns = ("email", "password", "first_name", "last_name", "phone")
        return {"phone": phone, "row": row_of(content, "customer", SHOPPER_ID, columns, phone=phone)}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds_row(self.site, "customer", SHOPPER_ID, slots["row"])]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"customer": f"id = {SHOPPER_ID}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "My Account")
        yield see.click("link", "Account Information")
        yield from see.fill("Phone Number", slots["phone"])
        yield see.click("button", "Save")
        yield see.stop()


class NewAddress(Shopping):
    name = "shopping/new-address"
    intents = (
        "Add {street}, {city}, {region} {postcode} to my address book.",
        "Save a new address in my address book: {street}, {city}, {region}, zip {postcode}.",
    )
    skills = ("account", "form", "create")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        parts = dict(zip(("street", "city", "region", "postcode"), one_of(rng, WORDS["addresses"]), strict=True))
        owner = row_of(content, "customer", SHOPPER_ID, ("first_name", "last_name", "phone"))
        row = {**owner, **parts, "default_billing": 0, "default_shipping": 0}
        return {**parts, "row": row, "last": last_id(content, "address")}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT customer_id, {', '.join(slots['row'])} FROM address WHERE id > {slots['last']}"
        return [holds(self.site, query, (SHOPPER_ID, *slots["row"].values()))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"address": f"id > {slots['last']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "My Account")
        yield see.click("link", "Address Book")
        yield see.click("link", "Add New Address")
        yield see.type("Street Address", slots["street"])
        yield see.type("City", slots["city"])
        yield see.type("State/Province", slots["region"])
        yield see.type("Zip/Postal Code", slots["postcode"])
        yield see.click("button", "Save Address")
        yield see.stop()


class MoveAddress(EditsRow, Shopping):
    name = "shopping/move-address"
    intents = (
        "I moved within town. In my default shipping address, change the street to {street}.",
        "Correct my default shipping address: the street is {street}, the rest stays as it is.",
    )
    skills = ("account", "form", "edit")
    table = "address"

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        street = one_of(rng, WORDS["addresses"])[0]
        number = content.value(f"SELECT id FROM address WHERE {OWN} AND default_shipping = 1")
        columns = (*ADDRESS_COLUMNS, "default_billing", "default_shipping")
        return number and {
            "street": street,
            "id": number,
            "row": row_of(content, "address", number, columns, street=street),
        }

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "My Account")
        yield see.click("link", "Change Shipping Address")
        yield from see.fill("Street Address", slots["street"])
        yield see.click("button", "Save Address")
        yield see.stop()


class DeleteAddress(Shopping):
    name = "shopping/delete-address"
    intents = (
        "Delete the address in {city} from my address book.",
        "I no longer live in {city}. Remove that address from my address book.",
    )
    skills = ("account", "delete")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            f"SELECT id, city, street FROM address a WHERE {OWN} AND default_billing + default_shipping = 0 AND "
            f"(SELECT count(*) FROM address WHERE {OWN} AND city = a.city) = 1 ORDER BY id",
        )
        return dict(row) if row else None

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT count(*) FROM address WHERE id = {slots['id']}", (0,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"address": f"id = {slots['id']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "My Account")
        yield see.click("link", "Address Book")
        yield click_after(see, slots["street"], "button", "Delete")
        yield see.stop()


TEMPLATES = (
    WriteReview(),
    Contact(),
    Phone(),
    NewAddress(),
    MoveAddress(),
    DeleteAddress(),
)
