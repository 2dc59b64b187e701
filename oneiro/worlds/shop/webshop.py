"""WebShop: somebody says what they want; search for it, look at products, choose options, buy.

The pages and the reward are those of WebShop (Yao et al. 2022); the engine is a few pure functions over an index, so it
needs no browser, no server and no Java. It reads the published product files, and makes up a catalogue without.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from oneiro.worlds.base import Step, World, WorldConfig, draw_level, in_split, level_key
from oneiro.worlds.shop.products import CATALOGUE, Index, Product, ShopWish, load, make_products, terms

# The pages: what each shows, what can be clicked on it, and where a click leads; pure functions ----------------------

SEARCH, RESULTS, ITEM, DETAIL, DONE = "search", "results", "item", "detail", "done"
BACK, NEXT, PREVIOUS, BUY = "Back to Search", "Next >", "< Prev", "Buy Now"
DETAILS = ("Description", "Features")
WINDOW = 10
"""Products on a page of results."""
MAX_DESCRIPTION_CHARS = 600
"""Characters of a description that are shown: published ones run to pages, which no prompt has room for."""


@dataclass(frozen=True)
class ShopVisit:
    """Where a customer is."""

    page: str = SEARCH
    results: tuple[int, ...] = ()
    """Numbers of the products found."""
    first: int = 0
    """The first result shown."""
    item: int = -1
    """The product looked at."""
    chosen: tuple[tuple[str, str], ...] = ()
    """Options chosen: kind and value."""
    detail: str = ""


def show(visit: ShopVisit, products: tuple[Product, ...]) -> str:
    """The page as text."""
    if visit.page == SEARCH:
        return "Search page."
    if visit.page == RESULTS:
        shown = [products[number] for number in visit.results[visit.first : visit.first + WINDOW]]
        head = (
            f"Results {visit.first + 1} to {visit.first + len(shown)} of {len(visit.results)}."
            if shown
            else "No results."
        )
        return "\n".join([head, *(f"{product.id} {_line(product.title)} (${product.price:.2f})" for product in shown)])
    product = products[visit.item]
    if visit.page == DONE:
        return f"Bought {product.id} {_line(product.title)}."
    if visit.page == DETAIL:
        text = _line(product.description if visit.detail == DETAILS[0] else " ".join(product.features))
        return f"{visit.detail}: {text[:MAX_DESCRIPTION_CHARS] or 'none.'}"
    chosen = dict(visit.chosen)
    lines = [f"{product.id} {_line(product.title)}", f"Price: ${product.price:.2f}"]
    for kind, values in product.options:
        marked = (f"({value})" if chosen.get(kind) == value else value for value in values)
        lines.append(f"{kind}: {', '.join(marked)}")
    return "\n".join(lines)


def _line(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())


def choices(visit: ShopVisit, products: tuple[Product, ...]) -> list[str]:
    """What can be clicked on the page."""
    if visit.page == RESULTS:
        shown = visit.results[visit.first : visit.first + WINDOW]
        turns = [PREVIOUS] if visit.first else []
        turns += [NEXT] if visit.first + WINDOW < len(visit.results) else []
        return [BACK, *turns, *(products[number].id for number in shown)]
    if visit.page == ITEM:
        values = dict.fromkeys(value for _, values in products[visit.item].options for value in values)
        return [BACK, PREVIOUS, *DETAILS, BUY, *values]
    return [BACK, PREVIOUS] if visit.page == DETAIL else []


def click(visit: ShopVisit, choice: str, products: tuple[Product, ...]) -> ShopVisit | None:
    """The page after a click, named in lower case; None if there is no such thing to click."""
    name = next((known for known in choices(visit, products) if known.lower() == choice), None)
    if name is None:
        return None
    if name == BACK:
        return ShopVisit()  # a new search forgets results and options
    if visit.page == RESULTS:
        if name in (NEXT, PREVIOUS):
            return replace(visit, first=visit.first + (WINDOW if name == NEXT else -WINDOW))
        item = next(number for number in visit.results if products[number].id == name)
        return replace(visit, page=ITEM, item=item, chosen=())
    if name == PREVIOUS:
        return replace(visit, page=ITEM, detail="") if visit.page == DETAIL else replace(visit, page=RESULTS, item=-1)
    if name in DETAILS:
        return replace(visit, page=DETAIL, detail=name)
    if name == BUY:
        return replace(visit, page=DONE)
    kind = next(kind for kind, values in products[visit.item].options if name in values)
    # Of one kind only the last choice counts, as radio buttons work.
    kept = tuple(pair for pair in visit.chosen if pair[0] != kind)
    return replace(visit, chosen=(*kept, (kind, name)))


# The world ------------------------------------------------------------------------------------------------------------

RESULTS_KEPT = 50
LIMITS = tuple(10.0 * tens for tens in range(1, 100))
"""Price limits a wish can name."""


class WebShopConfig(WorldConfig):
    """Settings of the shop."""

    max_actions: int = Field(default=9, ge=1)
    products: Path | None = None
    """WebShop's product file, JSONL or JSON, also .gz; a made-up catalogue without."""
    instructions: Path | None = None
    """WebShop's `items_ins` file, for attributes and instructions by product id."""
    catalogue: int = Field(default=400, ge=16)
    """Products in the made-up catalogue."""
    binary: bool = False
    """Pay 1 for a perfect purchase and 0 for any other."""

    @model_validator(mode="after")
    def _together(self) -> WebShopConfig:
        if self.instructions is not None and self.products is None:
            raise ValueError("instructions need a products file")
        return self


@dataclass(frozen=True)
class Goal:
    """Who wants what: a product, its number in the shop, and the wish it fulfils."""

    number: int
    product: Product
    wish: ShopWish

    @property
    def key(self) -> str:
        """Wishes for one product share a split."""
        return level_key(f"webshop {self.wish.text}", self.product.id)


class WebShop(World):
    """One errand."""

    name = "webshop"
    Config = WebShopConfig
    variants: ClassVar = {"long": {"max_actions": 15}, "binary": {"binary": True}}
    config: WebShopConfig

    def __init__(self, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        chosen = self.config
        self.products, self.index = open_shop(chosen.products, chosen.instructions, chosen.catalogue)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        self.goal, key = draw_level(self.name, self.seed, self.split, self._draw, lambda goal: goal.key)
        self.visit, self.paid = ShopVisit(), 0.0
        self.query = self._query()
        return self.render(), {"key": key, "optimum": self._way(self.visit)}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.paid == 1.0)
        after = self._after(self.visit, action)
        if after is None:
            return self.outcome(0.0, valid=False, effective=False)
        before, self.visit = self.visit, after
        bought = after.page == DONE
        raw = self._worth(after) if bought else 0.0
        self.paid = float(raw == 1.0) if self.config.binary else raw
        return self.outcome(self.paid, done=bought, success=raw == 1.0, effective=after != before, score=raw)

    def render(self, view: str | None = None) -> str:
        clicks = ", ".join(f"click[{choice}]" for choice in choices(self.visit, self.products))
        search = "search[words]" if self.visit.page == SEARCH else ""
        shown = f"Wanted: {self.goal.wish.text}\n{show(self.visit, self.products)}"
        return shown if self.visit.page == DONE else f"{shown}\nActions: {search or clicks}"

    @property
    def instruction(self) -> str:
        return (
            "You shop for a customer. Find a product that is what they want, with the attributes, options and price "
            "they name, choose its options and buy it.\n"
            "Actions: search[words] on the search page; elsewhere click[...] with one of the things shown: a product "
            "id, an option, a button. Buying ends the errand. "
            f"You have {self.config.max_actions} actions."
        )

    def random_action(self, rng: np.random.Generator) -> str:
        """A search with the customer's own words, and then any click."""
        if self.visit.page == SEARCH:
            return f"search[{self.goal.wish.text}]"
        offered = choices(self.visit, self.products) or [BACK]
        return f"click[{offered[int(rng.integers(len(offered)))]}]"

    def ceiling(self) -> float:
        """Whether the product itself can still be bought as wished."""
        if self.over:
            return float(self.paid == 1.0)
        way = self._way(self.visit)
        return float(way is not None and way <= self.remaining)

    def oracle(self) -> str | None:
        return self._towards(self.visit) if not self.over and self.ceiling() else None

    def _after(self, visit: ShopVisit, action: str) -> ShopVisit | None:
        """The page an action leads to; None if it is no action on this page."""
        # Cut before it is matched: an action is what a model wrote, of any length.
        match = re.fullmatch(r"\s*(search|click)\s?\[(.{1,400})\]\s*", action[:500], re.IGNORECASE | re.DOTALL)
        if match is None:
            return None
        if match[1].lower() == "click":
            return click(visit, match[2].strip().lower(), self.products)
        if visit.page != SEARCH:
            return None
        return replace(visit, page=RESULTS, results=tuple(self.index.search(match[2], RESULTS_KEPT)), first=0)

    def _worth(self, visit: ShopVisit) -> float:
        chosen = tuple(value for _, value in visit.chosen)
        return reward(self.products[visit.item], chosen, self.goal.product, self.goal.wish)

    def _towards(self, visit: ShopVisit) -> str | None:
        """The next action of a customer who knows the product; None if no search finds it."""
        wanted = self.goal.number
        if visit.page == SEARCH:
            return None if self.query is None else f"search[{self.query}]"
        if visit.page == RESULTS and wanted in visit.results:
            place = visit.results.index(wanted) - visit.first
            turn = NEXT if place >= WINDOW else PREVIOUS if place < 0 else None
            return f"click[{turn or self.goal.product.id}]"
        if visit.page == ITEM and visit.item == wanted:
            chosen = {value for _, value in visit.chosen}
            missing = [value for value in self._values() if value not in chosen]
            return f"click[{missing[0] if missing else BUY}]"
        if visit.page in (RESULTS, ITEM) and wanted not in visit.results:
            return f"click[{BACK}]"
        return f"click[{PREVIOUS}]"

    def _way(self, visit: ShopVisit) -> int | None:
        """Actions until the product is bought as wished; None if it cannot be."""
        for actions in range(100):  # a bound, should a way lead in circles
            if visit.page == DONE:
                return actions if self._worth(visit) == 1.0 else None
            action = self._towards(visit)
            after = self._after(visit, action) if action is not None else None
            if after is None or after == visit:
                return None
            visit = after
        return None

    def _query(self) -> str | None:
        """Words that find the product, best on the first page of results."""
        product = self.goal.product
        words = (product.title, f"{product.title} {product.query}", f"{product.title} {product.description}")
        ranks = {query: _rank(self.index.search(query, RESULTS_KEPT), self.goal.number) for query in words}
        query, rank = min(ranks.items(), key=lambda item: item[1])
        # Brackets would end the action, and an action is read up to 400 characters.
        return query.replace("[", " ").replace("]", " ")[:390] if rank < RESULTS_KEPT else None

    def _values(self) -> list[str]:
        """The product's own option values that fulfil the wish."""
        values = [value for _, values in self.goal.product.options for value in values]
        wished = (option.lower() for option in self.goal.wish.options)
        return [option if option in values else _nearest_value(option, values) for option in wished]

    def _draw(self, rng: np.random.Generator) -> Goal | None:
        number = int(rng.integers(len(self.products)))
        product = self.products[number]
        if not (product.wishes or product.attributes) or not in_split(level_key(product.id), self.split):
            return None
        return Goal(number, product, make_wish(rng, product))


def make_wish(rng: np.random.Generator, product: Product) -> ShopWish:
    """A wish for this product: one of its own, or its attributes; with options, where it names none, and a limit."""
    wishes = product.wishes or (
        ShopWish(
            f"Find me {product.query or product.title.lower()} with {', '.join(product.attributes[:2])}",
            product.attributes[:2],
        ),
    )
    wish = wishes[int(rng.integers(len(wishes)))]
    if not wish.options:
        chosen = [(kind, values[int(rng.integers(len(values)))]) for kind, values in product.options]
        wording = "".join(f", {kind}: {value}" for kind, value in chosen)
        wish = replace(wish, text=f"{wish.text}{wording}", options=tuple(value for _, value in chosen))
    # A limit near the price tells products apart; one far above it would be met by any.
    affordable = [limit for limit in LIMITS if limit > product.price][:4]
    if affordable:
        limit = affordable[int(rng.integers(len(affordable)))]
        wish = replace(wish, text=f"{wish.text}, and price lower than {limit:.2f} dollars", limit=limit)
    return wish


@lru_cache(maxsize=4)
def open_shop(products: Path | None, instructions: Path | None, catalogue: int) -> tuple[tuple[Product, ...], Index]:
    """The shop's products and their index, made once for all worlds."""
    goods = load(products, instructions) if products is not None else make_products(catalogue)
    return goods, Index([product.words for product in goods])


def _rank(results: list[int], wanted: int) -> int:
    return results.index(wanted) if wanted in results else RESULTS_KEPT


def _nearest_value(option: str, values: list[str]) -> str:
    """The option value that is meant where a wish names it in other words; the wish's own words if none is."""
    return next((value for value in values if option in value or value in option), option)


# The reward -----------------------------------------------------------------------------------------------------------

# What a purchase is worth (WebShop, Yao et al. 2022, section 3 and appendix A; the numbers of its released code).
#
#   reward = type * (attributes matched + options matched + [price within the limit]) / (attributes + options + 1)
#
# `type` is 1, 0.5, 0.1 or 0: how far the thing bought is the kind of thing asked for, by search, category and title.
# Titles are compared by their content words; the original takes their nouns from a tagger. Everything else is equal
# to the original, its list of colours and its fuzzy matching (thefuzz 0.19 on Python's own difflib) included.


ALIKE = 85
"""Two phrases match above this token-set ratio."""
MAX_PHRASE_CHARS = 1000
"""Characters of a phrase that are compared; catalogues are read from files of others."""
BASIC_COLOURS: tuple[str, ...] = tuple(CATALOGUE["basic colours"])
"""Names that stand for an option's colour; the first of them counts, in alphabetical order."""
_LATIN = dict.fromkeys(range(128, 256))


def reward(bought: Product, chosen: tuple[str, ...], wanted: Product, wish: ShopWish) -> float:
    """The score of buying `bought` with these option values for somebody who wanted `wanted`; 1 is perfect."""
    attributes = sum(_has_attribute(bought, attribute) for attribute in wish.attributes)
    options = sum(any(alike(_colour(value), _colour(option)) for value in chosen) for option in wish.options)
    affordable = wish.limit <= 0 or bought.price <= wish.limit
    matched = attributes + options + affordable
    return type_score(bought, wanted) * matched / (len(wish.attributes) + len(wish.options) + 1)


def type_score(bought: Product, wanted: Product) -> float:
    """Whether this is the kind of thing that was asked for."""
    words = terms(wanted.title)
    shared = len(set(words) & set(terms(bought.title))) / len(words) if words else 0.2
    if shared == 0:
        return 0.0
    if shared < 0.1:
        return 0.1
    same_search = bought.query == wanted.query
    return 1.0 if same_search or len(bought.categories & wanted.categories) >= 2 or shared > 0.2 else 0.5


def alike(a: str, b: str) -> bool:
    """Whether two phrases share their words, or nearly (the token-set ratio of fuzzy matching, above 85)."""
    first, second = (words(text) for text in (a, b))
    if not first or not second:
        return False
    common = " ".join(sorted(first & second))
    one, other = (f"{common} {' '.join(sorted(words - (first & second)))}".strip() for words in (first, second))
    pairs = [(common, one), (common, other), (one, other)] if common else [(one, other)]
    return max(round(100 * SequenceMatcher(None, x, y).ratio()) for x, y in pairs) > ALIKE


def words(phrase: str) -> set[str]:
    """The words of a phrase as fuzzy matching sees them: no accented letters, other signs are gaps, lower case."""
    return set(re.sub(r"\W", " ", phrase[:MAX_PHRASE_CHARS].translate(_LATIN)).lower().split())


def _has_attribute(product: Product, attribute: str) -> bool:
    if any(alike(own, attribute) for own in product.attributes):
        return True
    return any(attribute in text.lower() for text in (product.title, product.description, " ".join(product.features)))


def _colour(value: str) -> str:
    """A colour under a fancier name as its plain colour; anything else as it is."""
    return next((colour for colour in BASIC_COLOURS if colour in value), value)
