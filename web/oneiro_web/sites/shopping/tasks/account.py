"""Tasks that write to the store: reviews, messages, the customer's account."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.shopping.tasks.parts import OWN, open_product
from oneiro_web.sites.store.tasks import SHOPPER_ID, click_after, last_id, row_of, some_product
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.table import Change, by, choose, click, pick, refill, write

OWNER = ("first_name", "last_name", "phone")
PLACE = ("street", "city", "region", "postcode")
DEFAULTS = ("default_billing", "default_shipping")
NEW_COLUMNS = (*OWNER, *PLACE, *DEFAULTS)
ADDRESS_COLUMNS = ("first_name", "last_name", *PLACE, "country", "phone", *DEFAULTS)
WORDS = load_words("store")["tasks"]


def review(content: Content, rng: np.random.Generator) -> Slots | None:
    row = some_product(content, rng)
    title, text = one_of(rng, WORDS["reviews"])
    if row is None:
        return None
    return {
        "product": row["name"],
        "id": row["id"],
        "stars": int(rng.integers(2, 6)),
        "nickname": one_of(rng, WORDS["nicknames"]),
        "title": title,
        "text": text,
        "last": last_id(content, "review"),
    }


def message(content: Content, rng: np.random.Generator) -> Slots | None:
    sql = "SELECT email, first_name || ' ' || last_name AS name, phone FROM customer WHERE id = ?"
    (sender,) = content.rows(sql, SHOPPER_ID)
    return {"text": one_of(rng, WORDS["messages"]), **dict(sender), "last": last_id(content, "contact_message")}


def phone(content: Content, rng: np.random.Generator) -> Slots | None:
    number = f"{int(rng.integers(201, 990))}-555-{int(rng.integers(10_000)):04d}"
    columns = ("email", "password", "first_name", "last_name", "phone")
    return {"phone": number, "row": row_of(content, "customer", SHOPPER_ID, columns, phone=number)}


def new_address(content: Content, rng: np.random.Generator) -> Slots | None:
    parts = dict(zip(PLACE, one_of(rng, WORDS["addresses"]), strict=True))
    row = {**row_of(content, "customer", SHOPPER_ID, OWNER), **parts, **dict.fromkeys(DEFAULTS, 0)}
    return {**parts, "row": row, "last": last_id(content, "address")}


def new_value(slots: Slots, name: str) -> Any:
    return slots["row"][name]


def new_street(content: Content, rng: np.random.Generator) -> Slots | None:
    street = one_of(rng, WORDS["addresses"])[0]
    number = content.value(f"SELECT id FROM address WHERE {OWN} AND default_shipping = 1")
    if not number:
        return None
    return {"street": street, "id": number, "row": row_of(content, "address", number, ADDRESS_COLUMNS, street=street)}


TEMPLATES = (
    Change(
        "shopping/write-review",
        'Review the "{product}" with {stars} stars as {nickname}. Summary: "{title}". Text: "{text}"',
        'Write a review of the "{product}": {stars} stars, nickname {nickname}, summary "{title}", review "{text}"',
        skills="search form write",
        draw=review,
        way=[
            by(open_product, "{product}"),
            click("link", "Read and write reviews"),
            choose("Your Rating", "{stars} stars"),
            write("Nickname", "{nickname}"),
            write("Summary", "{title}"),
            write("Review", "{text}"),
            click("button", "Submit Review"),
        ],
        rows={
            "SELECT product_id, stars, nickname, title, text FROM review WHERE id > :last": (
                ":id",
                ":stars",
                ":nickname",
                ":title",
                ":text",
            )
        },
        changes={"review": f"id > :last AND product_id = :id AND customer_id = {SHOPPER_ID} AND status = 'pending'"},
    ),
    Change(
        "shopping/contact",
        'Write to the shop through its contact form: "{text}"',
        'Use the contact form to send the shop exactly this message: "{text}"',
        skills="form write",
        draw=message,
        way=[click("link", "Contact Us"), write("What’s on your mind?", "{text}"), click("button", "Submit")],
        rows={
            "SELECT email, name, phone, message FROM contact_message WHERE id > :last": (
                ":email",
                ":name",
                ":phone",
                ":text",
            )
        },
        changes={"contact_message": "id > :last"},
    ),
    Change(
        "shopping/phone",
        "Change the phone number in my account information to {phone}.",
        "I have a new phone number, {phone}. Update my account information, but leave my addresses as they are.",
        skills="account form edit",
        draw=phone,
        way=[
            click("link", "My Account"),
            click("link", "Account Information"),
            refill("Phone Number", "{phone}"),
            click("button", "Save"),
        ],
        edits=f"customer {SHOPPER_ID}",
    ),
    Change(
        "shopping/new-address",
        "Add {street}, {city}, {region} {postcode} to my address book.",
        "Save a new address in my address book: {street}, {city}, {region}, zip {postcode}.",
        skills="account form create",
        draw=new_address,
        way=[
            click("link", "My Account"),
            click("link", "Address Book"),
            click("link", "Add New Address"),
            write("Street Address", "{street}"),
            write("City", "{city}"),
            write("State/Province", "{region}"),
            write("Zip/Postal Code", "{postcode}"),
            click("button", "Save Address"),
        ],
        rows={
            f"SELECT customer_id, {', '.join(NEW_COLUMNS)} FROM address WHERE id > :last": (
                SHOPPER_ID,
                *(partial(new_value, name=name) for name in NEW_COLUMNS),
            )
        },
        changes={"address": "id > :last"},
    ),
    Change(
        "shopping/move-address",
        "I moved within town. In my default shipping address, change the street to {street}.",
        "Correct my default shipping address: the street is {street}, the rest stays as it is.",
        skills="account form edit",
        draw=new_street,
        way=[
            click("link", "My Account"),
            click("link", "Change Shipping Address"),
            refill("Street Address", "{street}"),
            click("button", "Save Address"),
        ],
        edits="address id",
    ),
    Change(
        "shopping/delete-address",
        "Delete the address in {city} from my address book.",
        "I no longer live in {city}. Remove that address from my address book.",
        skills="account delete",
        draw=pick(
            f"SELECT id, city, street FROM address a WHERE {OWN} AND default_billing + default_shipping = 0 AND "
            f"(SELECT count(*) FROM address WHERE {OWN} AND city = a.city) = 1 ORDER BY id"
        ),
        way=[
            click("link", "My Account"),
            click("link", "Address Book"),
            by(click_after, "{street}", "button", "Delete"),
        ],
        rows={"SELECT count(*) FROM address WHERE id = :id": (0,)},
        changes={"address": "id = :id"},
    ),
)
