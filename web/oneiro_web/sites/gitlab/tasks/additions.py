"""Tasks that add something to a project: a label, a milestone, a member, a merge request."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.gitlab.content import USER
from oneiro_web.sites.gitlab.tasks.parts import may, part, some_day, some_member, some_project, told
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.table import Change, choose, choose_capital, click, refill, write

WORDS = load_words("gitlab")["tasks"]

NEW_LABEL = "project = :number AND name = :label"
NEW_TITLE = "project = :number AND title = :title"
NEW_MEMBER = "project = :number AND user = :user"


def label(content: Content, rng: np.random.Generator) -> Slots | None:
    project = some_project(content, rng, may("reporter"))
    name, colour = one_of(rng, WORDS["new_labels"])
    return project and {**project, "label": name, "colour": colour}


def milestone(content: Content, rng: np.random.Generator) -> Slots | None:
    project = some_project(content, rng, may("reporter"))
    return project and {**project, "title": one_of(rng, WORDS["new_milestones"]), "due": some_day(rng)}


def member(content: Content, rng: np.random.Generator) -> Slots | None:
    project = some_project(content, rng, may("maintainer"))
    if project is None:
        return None
    sql = "SELECT name FROM user WHERE name NOT IN (SELECT user FROM member WHERE project = ?) ORDER BY name"
    row = content.pick(rng, sql, project["number"])
    role = one_of(rng, ("reporter", "developer", "maintainer"))  # the form proposes a guest
    return {**project, "user": row["name"], "role": role} if row else None


def request(content: Content, rng: np.random.Generator) -> Slots | None:
    project = some_project(content, rng, may("developer"))
    if project is None:
        return None
    sql = "SELECT name FROM branch WHERE project = ? AND name != 'main' ORDER BY name"
    branch = content.pick(rng, sql, project["number"])
    reviewer = some_member(content, rng, project["number"])
    if branch is None or reviewer is None:
        return None
    return {**project, "branch": branch["name"], "title": one_of(rng, WORDS["requests"]), "reviewer": reviewer}


TEMPLATES = (
    Change(
        "gitlab/create-label",
        'Create the label "{label}" with the colour {colour} in {project}.',
        'Add a new label to {project}: name "{label}", colour {colour}.',
        skills="search form create label",
        draw=label,
        way=[part("Labels"), write("Name", "{label}"), refill("Colour", "{colour}"), click("button", "Create label")],
        rows={f"SELECT lower(colour), description FROM label WHERE {NEW_LABEL}": (":colour", "")},
        changes={"label": NEW_LABEL},
    ),
    Change(
        "gitlab/create-milestone",
        'Create the milestone "{title}" in {project}, due on {due}.',
        'Add a milestone named "{title}" to the project {project} with the due date {due}.',
        skills="search form create",
        held_out=True,
        draw=milestone,
        way=[
            part("Milestones"),
            write("Title", "{title}"),
            write("Due date (YYYY-MM-DD)", "{due}"),
            click("button", "Create milestone"),
        ],
        rows={f"SELECT title, due, state FROM milestone WHERE {NEW_TITLE}": (":title", ":due", "active")},
        changes={"milestone": NEW_TITLE},
    ),
    Change(
        "gitlab/invite",
        "Invite {user} to the project {project} as {role}.",
        "Add the user {user} to {project} with the role {role}.",
        skills="search form write",
        draw=member,
        way=[
            part("Members"),
            write("User name", "{user}"),
            choose_capital("Role", "role"),
            click("button", "Invite"),
        ],
        rows={f"SELECT role FROM member WHERE {NEW_MEMBER}": (":role",)},
        changes={"member": NEW_MEMBER},
    ),
    Change(
        "gitlab/create-request",
        'In {project}, create a merge request from the branch {branch} into main with the title "{title}" and ask '
        "{reviewer} to review it.",
        'Open a merge request in {project}: source {branch}, target main, title "{title}", reviewer {reviewer}.',
        skills="search form write create",
        draw=request,
        way=[
            part("Merge requests"),
            click("link", "New merge request"),
            choose("Source branch", "{branch}"),
            write("Title", "{title}"),
            choose("Reviewer", "{reviewer}"),
            click("button", "Create merge request"),
        ],
        rows={
            "SELECT source, target, description, author, assignee, reviewer, state FROM merge_request "
            f"WHERE {NEW_TITLE}": (":branch", "main", "", USER, "", ":reviewer", "opened")
        },
        changes={
            "merge_request": NEW_TITLE,
            "todo": told(":reviewer", "merge_request", f"SELECT id FROM merge_request WHERE {NEW_TITLE}"),
        },
    ),
)
