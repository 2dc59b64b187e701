"""Tasks on the back office; `parts` is what they share."""

from oneiro_web.sites.shopping_admin.tasks import catalogue, marketing, orders, pages, questions

TEMPLATES = (
    *questions.TEMPLATES,
    *pages.TEMPLATES,
    *catalogue.TEMPLATES,
    *orders.TEMPLATES,
    *marketing.TEMPLATES,
)
"""In the order in which they are drawn."""
