"""Every template of our own tasks, and the oracle's script of a task."""

from functools import cache
from importlib import import_module

from oneiro_web.errors import WebError
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
"""Every written template by name, in the order in which they are drawn."""
COMPOSED_SITES = ("shopping_admin", "gitlab", "map", "reddit", "shopping")


@cache
def composed_templates() -> dict[str, Template]:
    """Every template that is composed from a site's schema, by name."""
    from oneiro_web.templates.compose import compose

    entities = [import_module(f"oneiro_web.sites.{site}.tasks.composed").ENTITIES for site in COMPOSED_SITES]
    return {template.name: template for site in entities for template in compose(site)}


def template_named(name: str) -> Template | None:
    """A template, written or composed."""
    return TEMPLATES.get(name) or (composed_templates().get(name) if "." in name else None)


def template_of(task: Task) -> Template:
    """The template of one of our own tasks."""
    template = template_named(task.spec.template_id) if task.spec is not None else None
    if template is None:
        raise WebError(f"task {task.task_id} is of no template of ours")
    return template


def script_of(task: Task, see: View) -> Script:
    """The oracle's script of one of our own tasks; nothing for a task from elsewhere."""
    template = template_named(task.spec.template_id) if task.spec is not None else None
    if template is not None and task.spec is not None:
        yield from template.script(see, task.spec.slots)
