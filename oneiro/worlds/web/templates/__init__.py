"""Our own tasks: templates over the five sites, each with slots from the content, checks and an oracle script."""

from oneiro.worlds.web.tasks import Task
from oneiro.worlds.web.templates import admin, gitlab, maps, reddit, shopping
from oneiro.worlds.web.templates.base import Template
from oneiro.worlds.web.templates.script import Script, View

TEMPLATES: dict[str, Template] = {
    kind.name: kind() for module in (shopping, admin, reddit, gitlab, maps) for kind in module.TEMPLATES
}
"""Every template by name."""


def script_of(task: Task, see: View) -> Script:
    """The oracle's script of one of our own tasks; nothing for a task from elsewhere."""
    if task.spec is not None and task.spec.template_id in TEMPLATES:
        yield from TEMPLATES[task.spec.template_id].script(see, task.spec.slots)
