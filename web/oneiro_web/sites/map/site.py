"""The map: its pages and their addresses."""

from __future__ import annotations

from oneiro_web.sites.base import Site, route
from oneiro_web.sites.map import pages
from oneiro_web.sites.map.content import STORE

SITE = Site(
    name="map",
    title="Waymark",
    host="openstreetmap.org",
    home="/",
    store=STORE,
    user="",
    pages=[
        route("/", pages.home),
        route("/search", pages.search),
        route("/categories", pages.categories),
        route("/place/{id:id}", pages.place),
        route("/nearest", pages.nearest),
        route("/directions", pages.directions),
    ],
)
