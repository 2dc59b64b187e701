"""Tasks on what is the user's own: to-dos, status, whom to follow."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.gitlab.tasks.parts import (
    ME,
    GitLab,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of, quoted
from oneiro_web.templates.script import Script, View

WORDS = load_words("gitlab")["tasks"]


class FinishTodo(GitLab):
    name = "gitlab/finish-todo"
    intents = (
        'Mark the to-do about "{title}" in {project} as done.',
        'On my to-do list, tick off the entry for "{title}" ({project}).',
    )
    skills = ("page", "form", "account")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        rows = content.rows(
            "SELECT t.id, t.kind, p.namespace || '/' || p.path AS project, coalesce(i.title, m.title) AS title "
            "FROM todo t LEFT JOIN issue i ON t.kind = 'issue' AND i.id = t.target "
            "LEFT JOIN merge_request m ON t.kind = 'merge_request' AND m.id = t.target "
            f"JOIN project p ON p.id = coalesce(i.project, m.project) "
            f"WHERE t.user = {ME} AND t.state = 'pending' ORDER BY t.id"
        )
        titles = [row["title"] for row in rows]
        alone = [row for row in rows if sum(row["title"] in title for title in titles) == 1]
        if not alone:
            return None
        row = one_of(rng, alone)
        return {"todo": row["id"], "title": row["title"], "project": row["project"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT state FROM todo WHERE id = {slots['todo']}", ("done",))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"todo": f"id = {slots['todo']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "To-Do List")
        yield from see.turn_pages_to("link", slots["title"])
        yield see.click("button", "Mark as done", within=slots["title"])
        yield see.stop()


class SetStatus(GitLab):
    name = "gitlab/status"
    intents = ('Set my status to "{text}".', 'Let people see "{text}" as the status on my profile.')
    skills = ("form", "edit", "account")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        (row,) = content.rows(f"SELECT full_name, email, bio, location, website FROM user WHERE name = {ME}")
        return {"text": one_of(rng, WORDS["statuses"]), "before": dict(row)}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT status, {', '.join(slots['before'])} FROM user WHERE name = {ME}"
        return [holds(self.site, query, (slots["text"], *slots["before"].values()))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"user": f"name = {ME}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Edit profile")
        yield from see.fill("Your status", slots["text"])
        yield see.click("button", "Update profile settings")
        yield see.stop()


class FollowUser(GitLab):
    name = "gitlab/follow"
    intents = ("Follow {person}.", "I want to follow the user whose name is {person}.")
    skills = ("search", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            f"SELECT name, full_name FROM user WHERE name != {ME} AND name NOT IN (SELECT followed FROM follow "
            f"WHERE user = {ME}) ORDER BY name",
        )
        return None if row is None else {"person": row["full_name"], "user": row["name"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT count(*) FROM follow WHERE {self.new(slots)}", (1,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"follow": self.new(slots)}

    def new(self, slots: Slots) -> str:
        """A condition on the row to add."""
        return f"user = {ME} AND followed = {quoted(slots['user'])}"

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "People")
        yield see.type("Name", slots["person"], enter=True)
        yield see.click("link", slots["person"])
        yield see.click("button", "Follow")
        yield see.stop()


TEMPLATES = (
    FinishTodo(),
    SetStatus(),
    FollowUser(),
)
