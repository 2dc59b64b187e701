"""The pages of the shop: what each shows, what can be clicked on it, and where a click leads. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oneiro.worlds.shop.products import Product

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
