"""Our own tasks: templates over the five sites, each with slots from the content, checks and an oracle script.

Each site has a module of what its tasks share (`SITE_parts`) and modules of templates.
"""

from oneiro_web.tasks import Task
from oneiro_web.templates import (
    admin_catalogue,
    admin_marketing,
    admin_orders,
    admin_pages,
    admin_questions,
    gitlab_account,
    gitlab_additions,
    gitlab_issues,
    gitlab_pages,
    gitlab_projects,
    gitlab_questions,
    maps_pages,
    maps_questions,
    reddit_changes,
    reddit_questions,
    shopping_account,
    shopping_cart,
    shopping_orders,
    shopping_pages,
    shopping_questions,
)
from oneiro_web.templates.base import Template
from oneiro_web.templates.script import Script, View

MODULES = (
    shopping_questions, shopping_pages, shopping_cart, shopping_orders, shopping_account,
    admin_questions, admin_pages, admin_catalogue, admin_orders, admin_marketing,
    reddit_questions, reddit_changes,
    gitlab_questions, gitlab_pages, gitlab_projects, gitlab_issues, gitlab_additions, gitlab_account,
    maps_questions, maps_pages,
)  # fmt: skip
"""Where the templates are, in the order in which they are drawn."""

TEMPLATES: dict[str, Template] = {kind.name: kind() for module in MODULES for kind in module.TEMPLATES}
"""Every template by name."""


def script_of(task: Task, see: View) -> Script:
    """The oracle's script of one of our own tasks; nothing for a task from elsewhere."""
    if task.spec is not None and task.spec.template_id in TEMPLATES:
        yield from TEMPLATES[task.spec.template_id].script(see, task.spec.slots)
