"""What tasks on the code host share: projects, issues and merge requests to ask about, and the ways to their pages."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import Any

import numpy as np

from oneiro_web.actions import Action
from oneiro_web.sites.base import TODAY
from oneiro_web.sites.gitlab.content import ROLES, USER
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, quoted
from oneiro_web.templates.script import Lost, Script, View
from oneiro_web.templates.table import Draw, Step, by

ME = quoted(USER)
MINE = f"p.id IN (SELECT project FROM member WHERE user = {ME})"
SEEN = f"(p.visibility = 'public' OR {MINE})"
"""Conditions on projects: the user is a member, the user may look at it."""

PROJECT = "p.namespace || '/' || p.path AS project"
"""A column with a project's whole name."""

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def may(least: str) -> str:
    """A condition on projects: the user has at least this role."""
    roles = ", ".join(quoted(role) for role, rank in ROLES.items() if rank >= ROLES[least])
    return f"p.id IN (SELECT project FROM member WHERE user = {ME} AND role IN ({roles}))"


def month_name(month: str) -> str:
    """`March 2026` for `2026-03`."""
    return f"{MONTHS[int(month[5:]) - 1]} {month[:4]}"


# What to ask about ---------------------------------------------------------------------------------------------------


def some_project(content: Content, rng: np.random.Generator, where: str = SEEN) -> Slots | None:
    """A project by its whole name, and its number."""
    row = content.pick(rng, f"SELECT id, namespace || '/' || path AS name FROM project p WHERE {where} ORDER BY id")
    return {"project": row["name"], "number": row["id"]} if row else None


def some_row(content: Content, rng: np.random.Generator, table: str, where: str) -> sqlite3.Row | None:
    """An issue or a merge request `t` of a project `p`, which has no other with this title."""
    return content.pick(
        rng,
        f"SELECT t.*, p.namespace || '/' || p.path AS name FROM {table} t JOIN project p ON p.id = t.project "
        f"WHERE (SELECT count(*) FROM {table} u WHERE u.project = t.project AND u.title = t.title) = 1 AND {where} "
        "ORDER BY t.id",
    )


def pick_row(table: str, where: str, *columns: str) -> Draw:
    """Such a row as slots: its project and some columns."""

    def draw(content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_row(content, rng, table, where)
        return {"project": row["name"], **{column: row[column] for column in columns}} if row else None

    return draw


ISSUE = ("title", "description", "author", "assignee", "milestone", "state", "due")
"""What an issue says; the rest are numbers and times."""


def some_issue(content: Content, rng: np.random.Generator, where: str) -> Slots | None:
    """An open issue, with what it says before the task."""
    row = some_row(content, rng, "issue", f"t.state = 'opened' AND {where}")
    if row is None:
        return None
    labels = [
        label[0] for label in content.rows("SELECT label FROM issue_label WHERE issue = ? ORDER BY label", row["id"])
    ]
    return {
        "project": row["name"],
        "number": row["project"],
        "title": row["title"],
        "issue": row["id"],
        "before": {name: row[name] for name in ISSUE},
        "labels": labels,
    }


LEAST = 6
"""What the counts of an answer add up to at least: smaller ones are too easily guessed."""


def some_months(content: Content, rng: np.random.Generator, table: str, *values: str | int) -> Slots | None:
    """Three months in which something was created, and how often; `table` with its conditions."""
    sql = f"SELECT substr(created, 1, 7) AS month, count(*) AS times FROM {table} GROUP BY month ORDER BY month"
    rows = content.rows(sql, *values)
    drawn = [rows[number] for number in rng.permutation(len(rows))[:3]]
    counts = [row["times"] for row in drawn]
    if len(drawn) < 3 or sum(counts) < LEAST or len({*counts}) == 1:
        return None
    months = {name: month_name(row["month"]) for name, row in zip(("month", "other", "third"), drawn, strict=True)}
    return {**months, "counts": counts}


def issue_holds(slots: Slots, labels: list[int] | None = None, **changed: Any) -> list[Check]:
    """The issue says what it said before but for what has changed, and has these labels, or those that it had."""
    number, values = slots["issue"], {**slots["before"], **changed}
    tags = [(label,) for label in (slots["labels"] if labels is None else labels)]
    return [
        holds("gitlab", f"SELECT {', '.join(values)} FROM issue WHERE id = {number}", tuple(values.values())),
        holds("gitlab", f"SELECT label FROM issue_label WHERE issue = {number}", *tags),
    ]


def told(user: str, kind: str, target: str) -> str:
    """The to-do that somebody gets by an action of the user; `user` is a slot, `target` a slot or a query."""
    return f"user = {user} AND author = {ME} AND kind = {quoted(kind)} AND target IN ({target})"


def some_member(content: Content, rng: np.random.Generator, project: int, but: str = "") -> str | None:
    """Somebody else in a project."""
    row = content.pick(
        rng, "SELECT user FROM member WHERE project = ? AND user NOT IN (?, ?) ORDER BY user", project, USER, but
    )
    return row["user"] if row else None


def some_day(rng: np.random.Generator) -> str:
    """A day in the coming half year."""
    return (TODAY + timedelta(days=int(rng.integers(10, 180)))).strftime("%Y-%m-%d")


# Ways ----------------------------------------------------------------------------------------------------------------


def open_project(see: View, project: str) -> Script:
    """From any page to a project's."""
    yield see.type("Search projects", project, enter=True)
    yield see.click("link", project.replace("/", " / "))


def menu(see: View, name: str) -> Action:
    """A link of the project's own menu; the main menu has some of the same name."""
    return see.click("link", name, within="Contributors")


def tab(see: View, name: str) -> Action:
    """A tab that says how many rows it holds."""
    link = next((node for node in see.nodes("link") if node.name.startswith(f"{name} (")), None)
    if link is None:
        raise Lost(f"no tab {name!r}")
    return see.click("link", link.name)


def open_part(see: View, project: str, name: str) -> Script:
    """From any page to a part of a project that its menu names."""
    yield from open_project(see, project)
    yield menu(see, name)


def part(name: str) -> Step:
    """The same for the slot `project`, in a table."""
    return by(open_part, "{project}", name)


def open_issue(see: View, slots: Slots) -> Script:
    """From any page to an open issue's, by its title."""
    yield from open_part(see, slots["project"], "Issues")
    yield see.type("Search", slots["title"], enter=True)
    yield see.click("link", slots["title"])


def to_the_end(see: View) -> Script:
    """Every page of a list."""
    while see.has("link", "Next"):
        yield see.click("link", "Next")
