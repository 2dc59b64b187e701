"""Tasks that add something to a project: a label, a milestone, a member, a merge request."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.gitlab.content import USER
from oneiro_web.sites.gitlab.tasks.parts import (
    GitLab,
    may,
    open_part,
    some_day,
    some_member,
    some_project,
    told,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of, quoted
from oneiro_web.templates.script import Script, View

WORDS = load_words("gitlab")["tasks"]


class CreateLabel(GitLab):
    name = "gitlab/create-label"
    intents = (
        'Create the label "{label}" with the colour {colour} in {project}.',
        'Add a new label to {project}: name "{label}", colour {colour}.',
    )
    skills = ("search", "form", "create", "label")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng, may("reporter"))
        label, colour = one_of(rng, WORDS["new_labels"])
        return None if found is None else {**found, "label": label, "colour": colour}

    def checks(self, slots: Slots) -> list[Check]:
        where = f"project = {slots['number']} AND name = {quoted(slots['label'])}"
        query = f"SELECT lower(colour), description FROM label WHERE {where}"
        return [holds(self.site, query, (slots["colour"], ""))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"label": f"project = {slots['number']} AND name = {quoted(slots['label'])}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Labels")
        yield see.type("Name", slots["label"])
        yield from see.fill("Colour", slots["colour"])
        yield see.click("button", "Create label")
        yield see.stop()


class CreateMilestone(GitLab):
    name = "gitlab/create-milestone"
    intents = (
        'Create the milestone "{title}" in {project}, due on {due}.',
        'Add a milestone named "{title}" to the project {project} with the due date {due}.',
    )
    skills = ("search", "form", "create")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng, may("reporter"))
        return None if found is None else {**found, "title": one_of(rng, WORDS["new_milestones"]), "due": some_day(rng)}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT title, due, state FROM milestone WHERE {self.new(slots)}"
        return [holds(self.site, query, (slots["title"], slots["due"], "active"))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"milestone": self.new(slots)}

    def new(self, slots: Slots) -> str:
        """A condition on the row to add."""
        return f"project = {slots['number']} AND title = {quoted(slots['title'])}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Milestones")
        yield see.type("Title", slots["title"])
        yield see.type("Due date (YYYY-MM-DD)", slots["due"])
        yield see.click("button", "Create milestone")
        yield see.stop()


class InviteMember(GitLab):
    name = "gitlab/invite"
    intents = (
        "Invite {user} to the project {project} as {role}.",
        "Add the user {user} to {project} with the role {role}.",
    )
    skills = ("search", "form", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng, may("maintainer"))
        if found is None:
            return None
        sql = "SELECT name FROM user WHERE name NOT IN (SELECT user FROM member WHERE project = ?) ORDER BY name"
        row = content.pick(rng, sql, found["number"])
        role = one_of(rng, ("reporter", "developer", "maintainer"))  # the form proposes a guest
        return None if row is None else {**found, "user": row["name"], "role": role}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT role FROM member WHERE {self.new(slots)}", (slots["role"],))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"member": self.new(slots)}

    def new(self, slots: Slots) -> str:
        """A condition on the row to add."""
        return f"project = {slots['number']} AND user = {quoted(slots['user'])}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Members")
        yield see.type("User name", slots["user"])
        yield see.select("Role", slots["role"].capitalize())
        yield see.click("button", "Invite")
        yield see.stop()


class CreateRequest(GitLab):
    name = "gitlab/create-request"
    intents = (
        'In {project}, create a merge request from the branch {branch} into main with the title "{title}" and ask '
        "{reviewer} to review it.",
        'Open a merge request in {project}: source {branch}, target main, title "{title}", reviewer {reviewer}.',
    )
    skills = ("search", "form", "write", "create")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng, may("developer"))
        if found is None:
            return None
        branch = content.pick(
            rng, "SELECT name FROM branch WHERE project = ? AND name != 'main' ORDER BY name", found["number"]
        )
        reviewer = some_member(content, rng, found["number"])
        if branch is None or reviewer is None:
            return None
        return {**found, "branch": branch["name"], "title": one_of(rng, WORDS["requests"]), "reviewer": reviewer}

    def checks(self, slots: Slots) -> list[Check]:
        said = "source, target, description, author, assignee, reviewer, state"
        row = (slots["branch"], "main", "", USER, "", slots["reviewer"], "opened")
        return [holds(self.site, f"SELECT {said} FROM merge_request WHERE {self.new(slots)}", row)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        ids = f"SELECT id FROM merge_request WHERE {self.new(slots)}"
        return {"merge_request": self.new(slots), "todo": told(slots["reviewer"], "merge_request", ids)}

    def new(self, slots: Slots) -> str:
        """A condition on the row to add."""
        return f"project = {slots['number']} AND title = {quoted(slots['title'])}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Merge requests")
        yield see.click("link", "New merge request")
        yield see.select("Source branch", slots["branch"])
        yield see.type("Title", slots["title"])
        yield see.select("Reviewer", slots["reviewer"])
        yield see.click("button", "Create merge request")
        yield see.stop()


TEMPLATES = (
    CreateLabel(),
    CreateMilestone(),
    InviteMember(),
    CreateRequest(),
)
