"""Tasks on the store; `parts` is what they share."""

from oneiro_web.sites.shopping.tasks import account, cart, orders, pages, questions

TEMPLATES = (
    *questions.TEMPLATES,
    *pages.TEMPLATES,
    *cart.TEMPLATES,
    *orders.TEMPLATES,
    *account.TEMPLATES,
)
"""In the order in which they are drawn."""
