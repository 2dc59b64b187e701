"""Who may see and change what on the code host."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.gitlab.content import ROLES

Errors = dict[str, str]

MAX_TITLE_CHARS = 200


@dataclass(frozen=True)
class Project:
    """The project in the path and what the user is in it."""

    row: sqlite3.Row
    role: str
    """'' for somebody who is no member."""

    @property
    def id(self) -> int:
        """Its number."""
        return int(self.row["id"])

    @property
    def url(self) -> str:
        """Its address."""
        return f"/{self.row['namespace']}/{self.row['path']}"

    def may(self, least: str) -> bool:
        """Whether the user has at least this role."""
        return ROLES.get(self.role, 0) >= ROLES[least]

    def need(self, least: str) -> None:
        """Refuse who has less than this role."""
        if not self.may(least):
            raise HTTPException(403)


def asked_project(visit: Visit) -> Project:
    """The project in the path; a private one exists for its members only."""
    sql = "SELECT * FROM project WHERE namespace = ? AND path = ?"
    row = visit.require(sql, visit.path["namespace"], visit.path["project"])
    role = visit.value("SELECT role FROM member WHERE project = ? AND user = ?", row["id"], visit.user) or ""
    if row["visibility"] == "private" and not role:
        raise HTTPException(404)
    return Project(row, role)


def show(visit: Visit, template: str, project: Project, status: int = 200, **values: Any) -> Response:
    """A page of a project, with its menu."""
    return visit.page(f"gitlab/{template}", status, project=project, row=project.row, **values)


SEEN = (
    "(project.visibility = 'public' "
    "OR EXISTS (SELECT 1 FROM member WHERE member.project = project.id AND member.user = ?))"
)
"""A condition: projects that the user may see."""


def check_title(title: str) -> Errors:
    """What is wrong with a title."""
    if not title:
        return {"title": "A title is needed."}
    return {"title": f"At most {MAX_TITLE_CHARS} characters."} if len(title) > MAX_TITLE_CHARS else {}


def member_names(visit: Visit, project: Project) -> list[str]:
    """Everybody in a project."""
    return [row["user"] for row in visit.rows("SELECT user FROM member WHERE project = ? ORDER BY user", project.id)]


def next_iid(visit: Visit, table: str, project: Project) -> int:
    """The number of a project's next issue or merge request."""
    return int(visit.value(f"SELECT coalesce(max(iid), 0) + 1 FROM {table} WHERE project = ?", project.id))


def touch(visit: Visit, table: str, number: int) -> str:
    """Mark a row as changed now."""
    now = visit.now()
    visit.change(f"UPDATE {table} SET updated = ? WHERE id = ?", now, number)
    return now


def add_comment(visit: Visit, project: Project, table: str, row: sqlite3.Row, body: str) -> Response:
    """Somebody's comment on an issue or a merge request, and back to its page."""
    sql = "INSERT INTO note (kind, target, author, body, created) VALUES (?, ?, ?, ?, ?)"
    visit.change(sql, table, row["id"], visit.user, body, touch(visit, table, row["id"]))
    return visit.redirect(f"{project.url}/-/{table}s/{row['iid']}", "Your comment was added.")


def tell(visit: Visit, user: str, action: str, kind: str, target: int, now: str) -> None:
    """A to-do for somebody else."""
    if user and user != visit.user:
        sql = (
            "INSERT INTO todo (user, author, action, kind, target, created, state) VALUES (?, ?, ?, ?, ?, ?, 'pending')"
        )
        visit.change(sql, user, visit.user, action, kind, target, now)
