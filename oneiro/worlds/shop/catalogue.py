"""A made-up catalogue for when there is no product file: a few hundred things with attributes, options and prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oneiro.runtime.seeds import generator
from oneiro.worlds.shop.products import Product, ShopWish

BRANDS = ("Alder", "Brightway", "Corvo", "Dunmore", "Elmfield", "Fenwick", "Halden", "Juniper", "Marlow", "Northbay")
COLOURS = ("black", "white", "blue", "green", "red", "grey", "brown", "pink", "yellow", "purple")


@dataclass(frozen=True)
class ProductKind:
    """A kind of product: what it may be called, have, come in and cost."""

    path: tuple[str, ...]
    """Its categories."""
    nouns: tuple[str, ...]
    attributes: tuple[str, ...]
    option: str
    """The kind of option it has beside colour."""
    values: tuple[str, ...]
    prices: tuple[int, int]


KINDS = {
    "running shoes": ProductKind(
        path=("Clothing", "Shoes", "Athletic"),
        nouns=("running shoe", "trail shoe", "training sneaker"),
        attributes=("arch support", "non slip", "rubber sole", "machine washable", "memory foam", "light weight"),
        option="size",
        values=("6", "7", "8", "9", "10", "11"),
        prices=(25, 120),
    ),
    "desk lamps": ProductKind(
        path=("Home", "Lighting", "Lamps"),
        nouns=("desk lamp", "reading lamp", "table lamp"),
        attributes=(
            "energy efficient",
            "touch control",
            "eye caring",
            "easy assemble",
            "usb charging",
            "dimmable light",
        ),
        option="style",
        values=("clamp", "stand", "wall mount"),
        prices=(12, 80),
    ),
    "water bottles": ProductKind(
        path=("Sports", "Outdoor", "Hydration"),
        nouns=("water bottle", "drinking flask", "sports bottle"),
        attributes=("leak proof", "bpa free", "stainless steel", "double wall", "easy clean", "dishwasher safe"),
        option="capacity",
        values=("12 ounce", "18 ounce", "24 ounce", "32 ounce"),
        prices=(8, 45),
    ),
    "throw blankets": ProductKind(
        path=("Home", "Bedding", "Blankets"),
        nouns=("throw blanket", "fleece blanket", "bed cover"),
        attributes=("machine washable", "super soft", "long lasting", "fade resistant", "queen size", "all season"),
        option="size",
        values=("50x60 inch", "60x80 inch", "90x90 inch"),
        prices=(15, 90),
    ),
    "wireless headphones": ProductKind(
        path=("Electronics", "Audio", "Headphones"),
        nouns=("wireless headphone", "bluetooth earbud set", "over ear headset"),
        attributes=(
            "noise cancelling",
            "fast charging",
            "water resistant",
            "hands free",
            "long battery",
            "stereo sound",
        ),
        option="case",
        values=("soft pouch", "hard case", "no case"),
        prices=(20, 250),
    ),
    "face creams": ProductKind(
        path=("Beauty", "Skin Care", "Face"),
        nouns=("face cream", "day lotion", "night balm"),
        attributes=(
            "fragrance free",
            "cruelty free",
            "natural ingredients",
            "hyaluronic acid",
            "sensitive skin",
            "tea tree",
        ),
        option="size",
        values=("1 ounce", "2 ounce", "4 ounce"),
        prices=(9, 60),
    ),
    "protein bars": ProductKind(
        path=("Grocery", "Snacks", "Bars"),
        nouns=("protein bar", "energy bar", "oat bar"),
        attributes=("gluten free", "low sugar", "plant based", "dairy free", "high fiber", "nut free"),
        option="pack",
        values=("pack of 6", "pack of 12", "pack of 24"),
        prices=(10, 55),
    ),
    "office chairs": ProductKind(
        path=("Home", "Furniture", "Chairs"),
        nouns=("office chair", "task chair", "swivel stool"),
        attributes=("lumbar support", "height adjustable", "heavy duty", "easy assemble", "high density", "mesh back"),
        option="armrest",
        values=("fixed arms", "flip arms", "no arms"),
        prices=(60, 400),
    ),
}


def make_products(count: int) -> tuple[Product, ...]:
    """`count` products, always the same."""
    return tuple(_product(generator("webshop", "catalogue", number), number) for number in range(count))


def _product(rng: np.random.Generator, number: int) -> Product:
    query = list(KINDS)[number % len(KINDS)]
    kind = KINDS[query]
    noun, brand = str(rng.choice(kind.nouns)), str(rng.choice(BRANDS))
    own = tuple(str(name) for name in rng.choice(kind.attributes, 3, replace=False))
    model = f"{'ABCDEFGHKLMNPRSTUVWXYZ'[int(rng.integers(22))]}{int(rng.integers(10, 100))}"
    colours = tuple(sorted(str(colour) for colour in rng.choice(COLOURS, 3, replace=False)))
    values = tuple(value for value in kind.values if rng.random() < 0.7) or kind.values[:1]
    wanted = own[: int(rng.integers(1, 3))]
    return Product(
        id=f"P{number:05d}",
        title=f"{brand} {model} {own[0].title()} {noun.title()}",
        description=f"A {noun} by {brand}, {own[1]} and {own[2]}.",
        features=tuple(f"{name.capitalize()}." for name in own),
        categories=frozenset(kind.path),
        query=query,
        attributes=own,
        options=(("color", colours), (kind.option, values)),
        price=round(float(rng.uniform(*kind.prices)), 2),
        wishes=(ShopWish(f"Find me {query} with {', '.join(wanted)}", wanted),),
    )
