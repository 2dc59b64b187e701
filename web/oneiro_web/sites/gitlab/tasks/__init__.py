"""Tasks on the code host; `parts` is what they share."""

from oneiro_web.sites.gitlab.tasks import account, additions, issues, pages, projects, questions

TEMPLATES = (
    *questions.TEMPLATES,
    *pages.TEMPLATES,
    *projects.TEMPLATES,
    *issues.TEMPLATES,
    *additions.TEMPLATES,
    *account.TEMPLATES,
)
"""In the order in which they are drawn."""
