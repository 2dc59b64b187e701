"""What a purchase is worth (WebShop, Yao et al. 2022, section 3 and appendix A; the numbers of its released code).

    reward = type * (attributes matched + options matched + [price within the limit]) / (attributes + options + 1)

`type` is 1, 0.5, 0.1 or 0: how far the thing bought is the kind of thing asked for, by search, category and title.
Titles are compared by their content words; the original takes their nouns from a tagger. Everything else is equal to
the original, its list of colours and its fuzzy matching (thefuzz 0.19 on Python's own difflib) included.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from oneiro.worlds.shop.products import Product, ShopWish, terms

ALIKE = 85
"""Two phrases match above this token-set ratio."""
MAX_PHRASE_CHARS = 1000
"""Characters of a phrase that are compared; catalogues are read from files of others."""
BASIC_COLOURS = (
    *("alabaster", "apricot", "aqua", "ash", "asphalt", "azure", "banana", "beige", "black", "blue", "blush"),
    *("bordeaux", "bronze", "brown", "burgundy", "camel", "camo", "caramel", "champagne", "charcoal", "cheetah"),
    *("chestnut", "chocolate", "christmas", "coffee", "cognac", "copper", "coral", "cranberry", "cream", "crystal"),
    *("dark", "denim", "eggplant", "elephant", "espresso", "fuchsia", "gold", "granite", "grape", "graphite"),
    *("grass", "gray", "green", "grey", "heather", "indigo", "ivory", "ivy", "khaki", "lavender", "lemon", "leopard"),
    *("light", "lilac", "lime", "magenta", "maroon", "mauve", "merlot", "midnight", "mint", "mocha", "multicolor"),
    *("mushroom", "mustard", "natural", "navy", "nude", "olive", "orange", "peach", "pewter", "pink", "plum"),
    *("purple", "rainbow", "red", "rose", "royal", "rust", "sand", "sapphire", "seashell", "silver", "skull"),
    *("slate", "steel", "stone", "stonewash", "sunflower", "tan", "taupe", "teal", "tiger", "turquoise", "violet"),
    *("walnut", "wheat", "white", "wine", "yellow"),
)
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
