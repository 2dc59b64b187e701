"""Tasks that create and change issues."""

from __future__ import annotations

from functools import partial

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.gitlab.content import USER
from oneiro_web.sites.gitlab.tasks.parts import (
    ME,
    PROJECT,
    SEEN,
    issue_holds,
    may,
    menu,
    open_issue,
    open_project,
    part,
    some_day,
    some_issue,
    some_member,
    some_project,
    told,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of
from oneiro_web.templates.script import Script, View
from oneiro_web.templates.table import Allowed, Change, choose, click, literal, refill, write

WORDS = load_words("gitlab")["tasks"]

NEW = "project = :number AND title = :title"
NEW_IDS = f"SELECT id FROM issue WHERE {NEW} AND author = {ME}"
NOTE = f"author = {ME} AND body = :text"
ISSUE = {
    "issue(title, description, assignee, milestone, state, due, updated)": "id = :issue",
    "issue_label": "issue = :issue",
}
"""Its rows. The edit form writes the labels anew even if they stay the same."""
CLOSED_COLUMNS = "id, title, description, author, assignee, milestone, due"


def new_issue(content: Content, rng: np.random.Generator) -> Slots | None:
    project = some_project(content, rng, may("reporter"))
    if project is None:
        return None
    label = content.pick(rng, "SELECT name FROM label WHERE project = ? ORDER BY name", project["number"])
    assignee = some_member(content, rng, project["number"])
    if label is None or assignee is None:
        return None
    title, text = one_of(rng, WORDS["reports"])
    values = {"title": title, "text": text, "label": label["name"], "assignee": assignee}
    return {**project, **values, "due": some_day(rng)}


def remark(content: Content, rng: np.random.Generator) -> Slots | None:
    issue = some_issue(content, rng, SEEN)
    return issue and {**issue, "text": one_of(rng, WORDS["remarks"])}


def remarked(slots: Slots) -> list[Check]:
    query = literal(f"SELECT kind, target FROM note WHERE {NOTE}", slots)
    return [holds("gitlab", query, ("issue", slots["issue"])), *issue_holds(slots)]


def assignment(content: Content, rng: np.random.Generator) -> Slots | None:
    issue = some_issue(content, rng, may("reporter"))
    assignee = issue and some_member(content, rng, issue["number"], issue["before"]["assignee"])
    return {**issue, "assignee": assignee} if issue and assignee else None


def new_label(content: Content, rng: np.random.Generator) -> Slots | None:
    issue = some_issue(content, rng, may("reporter"))
    if issue is None:
        return None
    row = content.pick(
        rng,
        "SELECT id, name FROM label WHERE project = ? "
        "AND id NOT IN (SELECT label FROM issue_label WHERE issue = ?) ORDER BY id",
        issue["number"],
        issue["issue"],
    )
    return {**issue, "label": row["name"], "added": row["id"]} if row else None


def new_due(content: Content, rng: np.random.Generator) -> Slots | None:
    issue, due = some_issue(content, rng, may("reporter")), some_day(rng)
    return {**issue, "due": due} if issue and issue["before"]["due"] != due else None


def labelled_issues(content: Content, rng: np.random.Generator) -> Slots | None:
    row = content.pick(
        rng,
        f"SELECT {PROJECT}, l.id, l.name FROM label l JOIN project p ON p.id = l.project "
        "JOIN issue_label ON issue_label.label = l.id JOIN issue ON issue.id = issue_label.issue "
        f"WHERE issue.state = 'opened' AND {may('reporter')} GROUP BY l.id HAVING count(*) BETWEEN 2 AND 4 "
        "ORDER BY l.id",
    )
    if row is None:
        return None
    issues = content.rows(
        f"SELECT issue.{CLOSED_COLUMNS} FROM issue JOIN issue_label ON issue_label.issue = issue.id "
        "WHERE label = ? AND state = 'opened' ORDER BY issue.id",
        row["id"],
    )
    if len({issue["title"] for issue in issues}) < len(issues):
        return None
    return {"project": row["project"], "label": row["name"], "issues": [tuple(issue) for issue in issues]}


def labelled(slots: Slots) -> Allowed:
    return {"issue(state, updated)": f"id IN ({', '.join(str(issue[0]) for issue in slots['issues'])})"}


def all_closed(slots: Slots) -> list[Check]:
    query = f"SELECT {CLOSED_COLUMNS}, state FROM issue WHERE {labelled(slots)['issue(state, updated)']}"
    return [holds("gitlab", query, *((*issue, "closed") for issue in slots["issues"]))]


def close_all(see: View, slots: Slots) -> Script:
    yield from open_project(see, slots["project"])
    for issue in slots["issues"]:
        yield menu(see, "Labels")
        yield see.click("link", slots["label"])
        yield see.click("link", issue[1])
        yield see.click("button", "Close issue")


TEMPLATES = (
    Change(
        "gitlab/create-issue",
        'Create an issue in {project} with the title "{title}", the description "{text}" and the label "{label}". '
        "Assign it to {assignee} and set the due date {due}.",
        'Report an issue to {project}: title "{title}", description "{text}", label "{label}", assignee {assignee}, '
        "due on {due}.",
        skills="search form write create label assign",
        draw=new_issue,
        way=[
            part("Issues"),
            click("link", "New issue"),
            write("Title", "{title}"),
            write("Description", "{text}"),
            choose("Assignee", "{assignee}"),
            click("checkbox", "{label}"),
            write("Due date (YYYY-MM-DD)", "{due}"),
            click("button", "Create issue"),
        ],
        rows={
            f"SELECT description, author, assignee, milestone, state, due FROM issue WHERE {NEW}": (
                ":text",
                USER,
                ":assignee",
                None,
                "opened",
                ":due",
            ),
            "SELECT label.name FROM issue_label JOIN label ON label.id = issue_label.label "
            f"WHERE issue_label.issue IN (SELECT id FROM issue WHERE {NEW})": (":label",),
        },
        changes={
            "issue": f"{NEW} AND author = {ME}",
            "issue_label": f"issue IN ({NEW_IDS})",
            "todo": told(":assignee", "issue", NEW_IDS),
        },
    ),
    Change(
        "gitlab/comment-issue",
        'Comment "{text}" on the issue "{title}" of {project}.',
        'Write the comment "{text}" under the issue "{title}" in the project {project}.',
        skills="search write",
        draw=remark,
        way=[open_issue, write("Comment", "{text}"), click("button", "Comment")],
        rows=remarked,
        changes={**ISSUE, "note": NOTE},
    ),
    Change(
        "gitlab/close-issue",
        'Close the issue "{title}" of {project}.',
        'The issue "{title}" in {project} is done. Close it.',
        skills="search form close",
        draw=partial(some_issue, where=f"{SEEN} AND ({may('reporter')} OR t.author = {ME})"),
        way=[open_issue, click("button", "Close issue")],
        rows=partial(issue_holds, state="closed"),
        changes=ISSUE,
    ),
    Change(
        "gitlab/assign-issue",
        'Assign the issue "{title}" of {project} to {assignee}.',
        'Make {assignee} the assignee of the issue "{title}" in {project}.',
        skills="search form assign",
        draw=assignment,
        way=[open_issue, choose("Assign to", "{assignee}"), click("button", "Assign")],
        rows=lambda slots: issue_holds(slots, assignee=slots["assignee"]),
        changes={**ISSUE, "todo": told(":assignee", "issue", ":issue")},
    ),
    Change(
        "gitlab/label-issue",
        'Add the label "{label}" to the issue "{title}" of {project}.',
        'Put the label "{label}" on the issue "{title}" in {project}. Keep its other labels.',
        skills="search edit label",
        draw=new_label,
        way=[open_issue, click("link", "Edit"), click("checkbox", "{label}"), click("button", "Save changes")],
        rows=lambda slots: issue_holds(slots, [*slots["labels"], slots["added"]]),
        changes=ISSUE,
    ),
    Change(
        "gitlab/issue-due",
        'Set the due date of the issue "{title}" of {project} to {due}.',
        'The issue "{title}" in {project} must be done by {due}. Enter that as its due date.',
        skills="search edit form",
        held_out=True,
        draw=new_due,
        way=[
            open_issue,
            click("link", "Edit"),
            refill("Due date (YYYY-MM-DD)", "{due}"),
            click("button", "Save changes"),
        ],
        rows=lambda slots: issue_holds(slots, due=slots["due"]),
        changes=ISSUE,
    ),
    Change(
        "gitlab/close-labelled",
        'Close all open issues of {project} that have the label "{label}".',
        'Every open issue labelled "{label}" in {project} is done. Close them all.',
        skills="search filter close",
        held_out=True,
        draw=labelled_issues,
        way=[close_all],
        rows=all_closed,
        changes=labelled,
    ),
)
