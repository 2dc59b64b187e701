"""Texts that tasks on the store and its back office ask to be written."""

from __future__ import annotations

REVIEWS = (
    ("Better than the old one", "It does what it should, and it looks good next to the rest of my things."),
    ("Good, with one flaw", "I like it, but the box was far too big for what was inside."),
    ("Would buy again", "My sister tried it for a day and ordered one of her own."),
    ("Not for me", "It is well made, but I had imagined something else from the pictures."),
    ("Fine for the price", "You get what you pay for, no more and no less."),
    ("A nice surprise", "I bought it as a stopgap and now I use it every day."),
    ("Too fragile", "One corner broke off in the first week."),
    ("Second one already", "The first one lasted three years, so I did not look for anything else."),
)
NICKNAMES = (
    "tea_at_four", "Norah P.", "bluekettle", "J. from upstate", "two_left_shoes", "MapReader", "Ivo K.", "late_bloomer",
)  # fmt: skip
MESSAGES = (
    "The parcel arrived with a torn corner. Is that covered?",
    "Do you ship to mailboxes as well?",
    "I would like an invoice for my last order.",
    "When will the sold out pillows be back?",
    "Please remove the second newsletter, I get every one of them twice.",
    "Can I pick up an order at your warehouse?",
    "The manual was missing from the box. Where do I find it?",
    "May I change the size after ordering?",
)
ADDRESSES = (
    ("14 Ferry Lane", "Burlington", "Vermont", "05401"), ("702 Garden Street", "Madison", "Wisconsin", "53703"),
    ("55 Old Mill Court", "Ithaca", "New York", "14850"), ("2180 Quarry Road", "Duluth", "Minnesota", "55802"),
    ("9 Lantern Square", "Savannah", "Georgia", "31401"), ("331 Poplar Avenue", "Boulder", "Colorado", "80302"),
    ("1204 Riverside Drive", "Austin", "Texas", "78701"), ("68 Foundry Street", "Pittsburgh", "Pennsylvania", "15222"),
)  # fmt: skip
NOTES = (
    "The customer asked for delivery after 5 pm.", "Payment was checked by hand.",
    "Please pack this one with extra paper.",
    "The parcel comes back to us, the street was wrong.", "One item is late and follows next week.",
    "Gift: leave the invoice out of the box.", "We called the customer about the color.",
    "The carrier reported a delay of two days.",
)  # fmt: skip
RULES = (
    ("Summer picnic", "PICNIC"), ("Back to school", "PENCIL"), ("Rainy day offer", "UMBRELLA"),
    ("Friends and family", "FAMILY"), ("Inventory clearance", "LASTCALL"),
    ("Anniversary sale", "CANDLES"), ("Early bird", "EARLYBIRD"), ("Moving week", "BOXES"),
)  # fmt: skip
PRODUCTS = (
    ("Harrow & Finch Copper Watering Can", "HF-CAN"), ("Tallow Street Beeswax Candle", "TS-CANDLE"),
    ("Bramble Wool Throw", "BR-THROW"), ("Pinto Folding Stool", "PI-STOOL"), ("Osprey Point Enamel Mug", "OP-MUG"),
    ("Greyfield Picture Frame", "GF-FRAME"), ("Little Anchor Door Mat", "LA-MAT"), ("Solstice Desk Fan", "SO-FAN"),
)  # fmt: skip
TITLES = {
    "About Us": ("Who We Are", "Our Story", "About One Stop Market"),
    "Customer Service": ("Help and Contact", "How Can We Help?", "Service Desk"),
    "Privacy and Cookie Policy": ("Your Data", "Privacy", "How We Treat Your Data"),
    "Shipping and Delivery": ("Delivery Times", "How We Ship", "Shipping Costs and Times"),
}
"""New titles of the written pages, by their old ones."""
