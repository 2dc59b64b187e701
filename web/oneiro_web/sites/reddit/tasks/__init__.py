"""Tasks on the forum; `parts` is what they share."""

from oneiro_web.sites.reddit.tasks import changes, questions

TEMPLATES = (
    *questions.TEMPLATES,
    *changes.TEMPLATES,
)
"""In the order in which they are drawn."""
