"""What a shop sells, and what its customers want: read from WebShop's files, or made up.

A file of products holds one row each, either WebShop's raw items or the indexed documents (`id`, `contents`,
`product`). A file of instructions maps a product's id to its attributes and, for some, an instruction with the
attributes it asks for.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import read_json
from oneiro.runtime.seeds import generator
from oneiro.worlds.levels import read_rows

CATALOGUE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("catalogue.yaml").read_text(encoding="utf-8"))
NO_ATTRIBUTE = "DUMMY_ATTR"
"""What WebShop's files write where a product has no attributes."""


@dataclass(frozen=True)
class ShopWish:
    """What somebody asked for: the words, the attributes and options meant, and the most to pay (0: not said)."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()
    limit: float = 0.0


@dataclass(frozen=True)
class Product:
    """One thing for sale."""

    id: str
    title: str
    description: str
    features: tuple[str, ...]
    categories: frozenset[str]
    """The names along its category path."""
    query: str
    """The search it was found by: its kind of product."""
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    """Each kind of option with its values."""
    price: float
    wishes: tuple[ShopWish, ...] = ()
    """What people who want this product have said."""

    @property
    def words(self) -> str:
        """Everything a search looks at."""
        values = (value for _, values in self.options for value in values)
        return " ".join([self.title, self.description, *self.features, *values])


def load(products: Path, instructions: Path | None) -> tuple[Product, ...]:
    """The products of a file, with attributes and wishes from the file of instructions where there is one."""
    known = read_json(instructions) if instructions is not None else {}
    if not isinstance(known, dict):
        raise OneiroError(f"{instructions} must map product ids to attributes and instructions")
    rows = (row.get("product", row) for row in read_rows(products))
    by_id = {product.id: product for row in rows if (product := _product(row)) is not None}
    if not by_id:
        raise OneiroError(f"{products} holds no product with an id (`asin`) and a `name`")
    return tuple(_add_instructions(product, known.get(product.id)) for product in by_id.values())


def _product(row: dict[str, Any]) -> Product | None:
    title = _raw(row.get("Title") or row.get("name"))
    if not row.get("asin") or not title.strip():
        return None
    return Product(
        id=str(row["asin"]),
        title=title,
        description=_raw(row.get("Description") or row.get("full_description")),
        features=tuple(_raw(line) for line in _lines(row.get("BulletPoints") or row.get("small_description"))),
        categories=frozenset(part.strip() for part in _raw(row.get("product_category")).split("›")),
        query=_text(row.get("query")).lower(),
        attributes=_attributes(row.get("Attributes")),
        options=_options(row),
        price=_price(row.get("pricing")),
        wishes=tuple(_wishes(_list(row.get("instructions")))),
    )


def _add_instructions(product: Product, entry: Any) -> Product:
    """A product with what the file of instructions knows about it."""
    if not isinstance(entry, dict):
        return product
    return replace(
        product,
        attributes=_attributes(entry.get("attributes")) or product.attributes,
        wishes=(*product.wishes, *_wishes([entry])),
    )


def _wishes(entries: Iterable[Any]) -> Iterable[ShopWish]:
    for entry in entries:
        if isinstance(entry, dict) and entry.get("instruction") and entry.get("instruction_attributes"):
            options = tuple(_raw(option) for option in _list(entry.get("instruction_options")) if option)
            yield ShopWish(_text(entry["instruction"]), _attributes(entry["instruction_attributes"]), options)


def _attributes(value: Any) -> tuple[str, ...]:
    return tuple(_raw(name) for name in _list(value) if name and name != NO_ATTRIBUTE)


def _options(row: dict[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Options as `{kind: [value, ...]}` or in the raw form, where a value is an object."""
    options = row.get("options") or row.get("customization_options") or {}
    if not isinstance(options, dict):
        return ()
    kinds = []
    for kind, values in options.items():
        plain = [value.get("value") if isinstance(value, dict) else value for value in _list(values)]
        cleaned = dict.fromkeys(_text(value).replace("/", " | ").lower() for value in plain if value)
        if cleaned:
            kinds.append((_text(kind).lower(), tuple(cleaned)))
    return tuple(kinds)


def _price(value: Any) -> float:
    """One price; for a range, its middle. 100 where there is none, as WebShop assumes."""
    parts = _list(value) if not isinstance(value, str) else value.replace(",", "").replace("$", " ").split()
    numbers = []
    for part in parts:
        try:
            numbers.append(float(part))
        except (TypeError, ValueError):
            continue
    span = numbers[:2]
    return round(sum(span) / len(span), 2) if span else 100.0


def _text(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _raw(value: Any) -> str:
    """A text as the file has it: what the reward compares may not be tidied up."""
    return value if isinstance(value, str) else ""


def _lines(value: Any) -> list[Any]:
    """A list of lines, or one line."""
    return [value] if isinstance(value, str) else _list(value)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


# Finding products by words: BM25 (Robertson and Zaragoza 2009), as the original shop's index is set -------------------

K1, B = 0.9, 0.4  # of BM25, as Anserini has them, which WebShop searches with
MAX_QUERY_CHARS = 300
"""Characters of a query that are read: it is what a model wrote."""

STOPWORDS = frozenset(CATALOGUE["stopwords"])


def terms(text: str) -> list[str]:
    """The words that count: lower case, no stopwords, a plural s taken off."""
    words = (word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in STOPWORDS)
    return [word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in words]


class Index:
    """An inverted index over documents; results are their numbers."""

    def __init__(self, documents: Sequence[str]) -> None:
        counts = [Counter(terms(document)) for document in documents]
        lengths = [count.total() for count in counts]
        mean = sum(lengths) / max(1, len(lengths)) or 1.0
        self._weights: dict[str, list[tuple[int, float]]] = defaultdict(list)
        frequency = Counter(term for count in counts for term in count)
        for number, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            for term, times in count.items():
                rarity = log(1 + (len(documents) - frequency[term] + 0.5) / (frequency[term] + 0.5))
                weight = rarity * times * (K1 + 1) / (times + K1 * (1 - B + B * length / mean))
                self._weights[term].append((number, weight))

    def search(self, query: str, limit: int) -> list[int]:
        """The best documents first; equals in the order of the documents."""
        scores: dict[int, float] = defaultdict(float)
        for term, times in Counter(terms(query[:MAX_QUERY_CHARS])).items():
            for number, weight in self._weights.get(term, ()):
                scores[number] += times * weight
        return sorted(scores, key=lambda number: (-scores[number], number))[:limit]


@dataclass(frozen=True)
class ProductKind:
    """A kind of product: what it may be called, have, come in and cost."""

    path: Sequence[str]
    """Its categories."""
    nouns: Sequence[str]
    attributes: Sequence[str]
    option: str
    """The kind of option it has beside colour."""
    values: Sequence[str]
    prices: Sequence[int]


KINDS = {name: ProductKind(**kind) for name, kind in CATALOGUE["kinds"].items()}


def make_products(count: int) -> tuple[Product, ...]:
    """`count` products, always the same."""
    return tuple(_make_product(generator("webshop", "catalogue", number), number) for number in range(count))


def _make_product(rng: np.random.Generator, number: int) -> Product:
    query = list(KINDS)[number % len(KINDS)]
    kind = KINDS[query]
    noun, brand = str(rng.choice(kind.nouns)), str(rng.choice(CATALOGUE["brands"]))
    own = tuple(str(name) for name in rng.choice(kind.attributes, 3, replace=False))
    model = f"{'ABCDEFGHKLMNPRSTUVWXYZ'[int(rng.integers(22))]}{int(rng.integers(10, 100))}"
    colours = tuple(sorted(str(colour) for colour in rng.choice(CATALOGUE["colours"], 3, replace=False)))
    values = tuple(value for value in kind.values if rng.random() < 0.7) or tuple(kind.values[:1])
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
