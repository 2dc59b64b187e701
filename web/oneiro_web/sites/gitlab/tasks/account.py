"""Tasks on what is the user's own: to-dos, status, whom to follow."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.gitlab.tasks.parts import ME, PROJECT
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.script import Script, View
from oneiro_web.templates.table import Change, by, click, enter, pick, refill

WORDS = load_words("gitlab")["tasks"]
FOLLOWS = f"user = {ME} AND followed = :user"


def todo(content: Content, rng: np.random.Generator) -> Slots | None:
    rows = content.rows(
        f"SELECT t.id, t.kind, {PROJECT}, coalesce(i.title, m.title) AS title "
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


def turn_to_todo(see: View, title: str) -> Script:
    yield see.click("link", "To-Do List")
    yield from see.turn_pages_to("link", title)


def status(content: Content, rng: np.random.Generator) -> Slots | None:
    return {"text": one_of(rng, WORDS["statuses"])}


TEMPLATES = (
    Change(
        "gitlab/finish-todo",
        'Mark the to-do about "{title}" in {project} as done.',
        'On my to-do list, tick off the entry for "{title}" ({project}).',
        skills="page form account",
        draw=todo,
        way=[by(turn_to_todo, "{title}"), click("button", "Mark as done", within="{title}")],
        rows={"SELECT state FROM todo WHERE id = :todo": ("done",)},
        changes={"todo(state)": "id = :todo"},
    ),
    Change(
        "gitlab/status",
        'Set my status to "{text}".',
        'Let people see "{text}" as the status on my profile.',
        skills="form edit account",
        draw=status,
        way=[
            click("link", "Edit profile"),
            refill("Your status", "{text}"),
            click("button", "Update profile settings"),
        ],
        rows={f"SELECT status FROM user WHERE name = {ME}": (":text",)},
        changes={"user(status)": f"name = {ME}"},
    ),
    Change(
        "gitlab/follow",
        "Follow {person}.",
        "I want to follow the user whose name is {person}.",
        skills="search form",
        draw=pick(
            f"SELECT full_name AS person, name AS user FROM user WHERE name != {ME} "
            f"AND name NOT IN (SELECT followed FROM follow WHERE user = {ME}) ORDER BY name"
        ),
        way=[click("link", "People"), enter("Name", "{person}"), click("link", "{person}"), click("button", "Follow")],
        rows={f"SELECT count(*) FROM follow WHERE {FOLLOWS}": (1,)},
        changes={"follow": FOLLOWS},
    ),
)
