"""Tasks that star, fork and create projects."""

from __future__ import annotations

from functools import partial

import numpy as np

from oneiro_web.sites.dice import load_words, slug
from oneiro_web.sites.gitlab.content import USER
from oneiro_web.sites.gitlab.tasks.parts import ME, SEEN, open_project, some_project
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.table import Change, by, choose_capital, click, write

WORDS = load_words("gitlab")["tasks"]

STARRED = f"user = {ME} AND project = :number"
FORK = f"namespace = {ME} AND forked_from = :number"
IN_FORK = f"project IN (SELECT id FROM project WHERE {FORK})"
NEW = f"namespace = {ME} AND title = :title"
IN_NEW = f"project IN (SELECT id FROM project WHERE {NEW})"


def new_project(content: Content, rng: np.random.Generator) -> Slots | None:
    title, text = one_of(rng, WORDS["new_projects"])
    taken = content.value("SELECT count(*) FROM project WHERE path = ?", slug(title))
    return None if taken else {"title": title, "text": text, "visibility": one_of(rng, ("private", "public"))}


TEMPLATES = (
    Change(
        "gitlab/star",
        "Star the project {project}.",
        "Give the project {project} a star from me.",
        skills="search form",
        draw=partial(some_project, where=f"{SEEN} AND p.id NOT IN (SELECT project FROM star WHERE user = {ME})"),
        way=[by(open_project, "{project}"), click("button", "Star")],
        rows={f"SELECT count(*) FROM star WHERE {STARRED}": (1,)},
        changes={"star": STARRED, "project(stars)": "id = :number"},
    ),
    Change(
        "gitlab/fork",
        "Fork the project {project}.",
        "Make a fork of {project} under my own name.",
        skills="search form",
        held_out=True,
        draw=partial(some_project, where=f"{SEEN} AND p.path NOT IN (SELECT path FROM project WHERE namespace = {ME})"),
        way=[by(open_project, "{project}"), click("button", "Fork")],
        rows={
            f"SELECT path FROM project WHERE {FORK}": (lambda slots: slots["project"].split("/")[1],),
            f"SELECT count(*) FROM project WHERE {FORK} AND (title, description, visibility) = "
            "(SELECT title, description, visibility FROM project WHERE id = :number)": (1,),
            f"SELECT user, role FROM member WHERE {IN_FORK}": (USER, "owner"),
            f"SELECT count(*) FROM file WHERE {IN_FORK} AND (path, text) NOT IN "
            "(SELECT path, text FROM file WHERE project = :number)": (0,),
        },
        changes={
            "project(forks)": "id = :number",
            "project": FORK,
            **dict.fromkeys(("member", "file", "branch", "revision"), IN_FORK),
        },
    ),
    Change(
        "gitlab/create-project",
        'Create a {visibility} project named "{title}" with the description "{text}" under my own name.',
        'I need a new {visibility} project of mine: call it "{title}" and describe it as "{text}".',
        skills="form write create",
        draw=new_project,
        way=[
            click("link", "New project"),
            write("Project name", "{title}"),
            write("Description", "{text}"),
            choose_capital("Visibility", "visibility"),
            click("button", "Create project"),
        ],
        rows={
            f"SELECT path, visibility, description FROM project WHERE {NEW}": (
                lambda slots: slug(slots["title"]),
                ":visibility",
                ":text",
            ),
            f"SELECT count(*) <= 1 FROM revision WHERE {IN_NEW}": (1,),
        },
        changes={
            "project": NEW,
            "member": f"{IN_NEW} AND user = {ME} AND role = 'owner'",
            "branch": f"{IN_NEW} AND name = 'main'",
            "file": f"{IN_NEW} AND path = 'README.md'",
            "revision": f"{IN_NEW} AND author = {ME}",
        },
    ),
)
