"""Every template of our own tasks, and the oracle's script of a task."""

from oneiro_web.sites.gitlab import tasks as gitlab
from oneiro_web.sites.map import tasks as map_
from oneiro_web.sites.reddit import tasks as reddit
from oneiro_web.sites.shopping import tasks as shopping
from oneiro_web.sites.shopping_admin import tasks as shopping_admin
from oneiro_web.tasks import Task
from oneiro_web.templates.base import Template
from oneiro_web.templates.script import Script, View

TEMPLATES: dict[str, Template] = {
    template.name: template for site in (shopping, shopping_admin, reddit, gitlab, map_) for template in site.TEMPLATES
}
"""Every template by name, in the order in which they are drawn."""


def script_of(task: Task, see: View) -> Script:
    """The oracle's script of one of our own tasks; nothing for a task from elsewhere."""
    if task.spec is not None and task.spec.template_id in TEMPLATES:
        yield from TEMPLATES[task.spec.template_id].script(see, task.spec.slots)
