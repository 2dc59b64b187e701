"""Tasks on the map; `parts` is what they share."""

from oneiro_web.sites.map.tasks import pages, questions

TEMPLATES = (
    *questions.TEMPLATES,
    *pages.TEMPLATES,
)
"""In the order in which they are drawn."""
