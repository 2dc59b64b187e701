"""Tasks that star, fork and create projects."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.dice import load_words, slug
from oneiro_web.sites.gitlab.tasks.parts import (
    ME,
    SEEN,
    GitLab,
    open_project,
    some_project,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of, quoted
from oneiro_web.templates.script import Script, View

WORDS = load_words("gitlab")["tasks"]


class StarProject(GitLab):
    name = "gitlab/star"
    intents = ("Star the project {project}.", "Give the project {project} a star from me.")
    skills = ("search", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_project(content, rng, f"{SEEN} AND p.id NOT IN (SELECT project FROM star WHERE user = {ME})")

    def checks(self, slots: Slots) -> list[Check]:
        where = f"user = {ME} AND project = {slots['number']}"
        return [holds(self.site, f"SELECT count(*) FROM star WHERE {where}", (1,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"star": f"user = {ME} AND project = {slots['number']}", "project": f"id = {slots['number']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_project(see, slots["project"])
        yield see.click("button", "Star")
        yield see.stop()


class ForkProject(GitLab):
    name = "gitlab/fork"
    intents = ("Fork the project {project}.", "Make a fork of {project} under my own name.")
    skills = ("search", "form")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_project(content, rng, f"{SEEN} AND p.path NOT IN (SELECT path FROM project WHERE namespace = {ME})")

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT path FROM project WHERE namespace = {ME} AND forked_from = {slots['number']}"
        return [holds(self.site, query, (slots["project"].split("/")[1],))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        new = f"namespace = {ME} AND forked_from = {slots['number']}"
        inside = f"project IN (SELECT id FROM project WHERE {new})"
        parts = dict.fromkeys(("member", "file", "branch", "revision"), inside)
        return {"project": f"id = {slots['number']} OR {new}", **parts}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_project(see, slots["project"])
        yield see.click("button", "Fork")
        yield see.stop()


class CreateProject(GitLab):
    name = "gitlab/create-project"
    intents = (
        'Create a {visibility} project named "{title}" with the description "{text}" under my own name.',
        'I need a new {visibility} project of mine: call it "{title}" and describe it as "{text}".',
    )
    skills = ("form", "write", "create")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        title, text = one_of(rng, WORDS["new_projects"])
        taken = content.value("SELECT count(*) FROM project WHERE path = ?", slug(title))
        return None if taken else {"title": title, "text": text, "visibility": one_of(rng, ("private", "public"))}

    def checks(self, slots: Slots) -> list[Check]:
        query = (
            f"SELECT visibility, description FROM project WHERE namespace = {ME} AND title = {quoted(slots['title'])}"
        )
        return [holds(self.site, query, (slots["visibility"], slots["text"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        new = f"namespace = {ME} AND title = {quoted(slots['title'])}"
        inside = f"project IN (SELECT id FROM project WHERE {new})"
        first = {"file": f"{inside} AND path = 'README.md'", "revision": f"{inside} AND author = {ME}"}
        return {"project": new, "member": f"{inside} AND user = {ME}", "branch": f"{inside} AND name = 'main'", **first}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "New project")
        yield see.type("Project name", slots["title"])
        yield see.type("Description", slots["text"])
        yield see.select("Visibility", slots["visibility"].capitalize())
        yield see.click("button", "Create project")
        yield see.stop()


TEMPLATES = (
    StarProject(),
    ForkProject(),
    CreateProject(),
)
