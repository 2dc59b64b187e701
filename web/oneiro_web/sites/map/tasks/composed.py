"""The map's list of places, as templates are composed from it."""

from __future__ import annotations

from collections.abc import Sequence

from oneiro_web.templates.schema import Entity, Field, Filter, Row
from oneiro_web.templates.table import click


class Words(Filter):
    """The map looks for each word anywhere in what it knows of a place."""

    def matching(self, rows: Sequence[Row], value: str) -> list[Row]:
        words = value.lower().split()
        return [row for row in rows if all(word in row["text"].lower() for word in words)]


SOURCE = (
    "SELECT *, name || ' ' || category || ' ' || address || ' ' || town || ' ' || postcode AS text FROM place "
    "ORDER BY name COLLATE NOCASE"
)
FIELDS = (
    Field("address", "street address"),
    Field("postcode", "postcode", on_page=True),
    Field("phone", "phone number", on_page=True),
)
CATEGORY = Filter("category", ("of the category {category}", 'under "{category}"'), "choice", "Category",
                  shown=str.capitalize)  # fmt: skip
TOWN = Filter("town", ("in {town}", "in the town {town}"), "choice", "Town")
OPEN = (click("link", "{rowname}"),)

PLACES = Entity(
    "places",
    "place",
    "map",
    SOURCE,
    Field("name", "name"),
    (click("link", "All places"),),
    submit=(click("button", "Search"),),
    fields=FIELDS,
    filters=(
        Words("postcode", ("with the postcode {postcode}", "in the postcode {postcode}"), label="Name or address",
              param="query"),
        CATEGORY,
        TOWN,
    ),
    pairs=("postcode+category",),
    page="/search",
    open=OPEN,
    row_page="/place/{rowid}",
    size=20,
)  # fmt: skip
"""By the form on the list of all places."""

FOUND = Entity(
    "found-places",
    "place",
    "map",
    SOURCE,
    Field("name", "name"),
    (),
    fields=FIELDS,
    filters=(
        Words("name", ("called {name}", 'named "{name}"'), label="Search", param="query", unique=True),
        Words("address", ("at {address}", "with the address {address}"), label="Search", param="query"),
    ),
    page="/search",
    open=OPEN,
    row_page="/place/{rowid}",
)
"""By the search on every page."""

IN_TOWN = Entity(
    "town-places",
    "place",
    "map",
    SOURCE,
    Field("name", "name"),
    (click("link", "{town}"),),
    submit=(click("button", "Search"),),
    scope=("town",),
    of=(" in {town}", " of the town {town}"),
    fields=FIELDS,
    filters=(
        Words("address", ("at {address}", "with the address {address}"), label="Name or address", param="query"),
        Words("postcode", ("with the postcode {postcode}", "in the postcode {postcode}"), label="Name or address",
              param="query"),
        CATEGORY,
    ),
    pairs=("postcode+category",),
    open=OPEN,
    row_page="/place/{rowid}",
)  # fmt: skip
"""By the links of the first page."""

ENTITIES = (PLACES, FOUND, IN_TOWN)
