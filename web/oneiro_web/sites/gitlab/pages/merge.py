"""Merge requests with their comments."""

from __future__ import annotations

import sqlite3
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.gitlab.pages.access import (
    Errors,
    Project,
    add_comment,
    asked_project,
    check_title,
    member_names,
    next_iid,
    show,
    tell,
    touch,
)
from oneiro_web.sites.lists import chosen, paged

ROWS_A_PAGE = 15
STATES = ("opened", "merged", "closed", "all")
FILTERS = (("author_username", "author"), ("assignee_username", "assignee"), ("reviewer_username", "reviewer"))


def listing(visit: Visit, scope: str, scope_values: list[Any]) -> dict[str, Any]:
    """A page of merge requests in a scope with the counts of each state."""
    state = chosen(visit, "state", STATES, "opened")
    where, values = scope, list(scope_values)
    for name, column in FILTERS:
        if wanted := visit.query.get(name, ""):
            where, values = f"{where} AND merge_request.{column} = ?", [*values, wanted]
    if words := visit.query.get("search", "").strip()[:100]:
        where, values = f"{where} AND instr(lower(merge_request.title), lower(?))", [*values, words]
    count = f"SELECT state, count(*) FROM merge_request WHERE {where} GROUP BY state"
    counts = {row[0]: row[1] for row in visit.rows(count, *values)}
    counts["all"] = sum(counts.values())
    part = paged(visit, counts.get(state, 0), ROWS_A_PAGE)
    if state != "all":
        where, values = f"{where} AND merge_request.state = ?", [*values, state]
    sql = (
        "SELECT merge_request.*, project.namespace, project.path, (SELECT count(*) FROM note WHERE kind = "
        "'merge_request' AND target = merge_request.id) AS notes FROM merge_request JOIN project ON project.id = "
        "merge_request.project "
        f"WHERE {where} ORDER BY merge_request.created DESC, merge_request.id DESC LIMIT ? OFFSET ?"
    )
    rows = visit.rows(sql, *values, part.size, part.offset)
    return {"requests": rows, "part": part, "state": state, "counts": counts}


def requests(visit: Visit) -> Response:
    """A project's merge requests."""
    project = asked_project(visit)
    return show(visit, "requests.html", project, names=member_names(visit, project),
                **listing(visit, "merge_request.project = ?", [project.id]))  # fmt: skip


def asked_request(visit: Visit, project: Project) -> sqlite3.Row:
    """The merge request in the path."""
    return visit.require("SELECT * FROM merge_request WHERE project = ? AND iid = ?", project.id, visit.path["iid"])


def request_page(visit: Visit, project: Project, row: sqlite3.Row, errors: Errors, status: int = 200) -> Response:
    notes = visit.rows("SELECT * FROM note WHERE kind = 'merge_request' AND target = ? ORDER BY created, id", row["id"])
    sql = "SELECT * FROM revision WHERE project = ? AND branch = ? ORDER BY created DESC, id DESC LIMIT 10"
    commits = visit.rows(sql, project.id, row["source"])
    return show(visit, "request.html", project, status, request=row, notes=notes, commits=commits, errors=errors,
                names=member_names(visit, project), may_close=may_close(visit, project, row))  # fmt: skip


def may_close(visit: Visit, project: Project, row: sqlite3.Row) -> bool:
    """The author and developers upwards close and reopen."""
    return bool(visit.user) and (row["author"] == visit.user or project.may("developer"))


def request(visit: Visit) -> Response:
    """A merge request with its comments."""
    project = asked_project(visit)
    return request_page(visit, project, asked_request(visit, project), {})


FIELDS = ("title", "description", "source", "target", "assignee", "reviewer")


def form_page(visit: Visit, project: Project, form: dict[str, str], errors: Errors, status: int = 200) -> Response:
    names = [row["name"] for row in visit.rows("SELECT name FROM branch WHERE project = ? ORDER BY name", project.id)]
    return show(visit, "request_form.html", project, status, form=form, errors=errors, branches=names,
                names=member_names(visit, project))  # fmt: skip


def show_new_request(visit: Visit) -> Response:
    """The form for a new merge request."""
    project = asked_project(visit)
    project.need("developer")
    source = visit.query.get("source", "")
    return form_page(
        visit, project, {**dict.fromkeys(FIELDS, ""), "source": source, "target": project.row["branch"]}, {}
    )


def new_request(visit: Visit) -> Response:
    """A new merge request between two branches."""
    project = asked_project(visit)
    project.need("developer")
    form = {name: visit.form.get(name, "") for name in FIELDS}
    errors = check_title(form["title"])
    for side in ("source", "target"):
        if not visit.one("SELECT 1 FROM branch WHERE project = ? AND name = ?", project.id, form[side]):
            errors[side] = "Choose a branch."
    if "source" not in errors and form["source"] == form["target"]:
        errors["source"] = "Choose two different branches."
    for person in ("assignee", "reviewer"):
        if form[person] not in ("", *member_names(visit, project)):
            errors[person] = "Choose a member."
    if errors:
        return form_page(visit, project, form, errors, 422)
    now, iid = visit.now(), next_iid(visit, "merge_request", project)
    sql = (
        "INSERT INTO merge_request (project, iid, title, description, author, assignee, reviewer, source, target, "
        "state, created, updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'opened', ?, ?)"
    )
    number = visit.change(sql, project.id, iid, form["title"], form["description"], visit.user, form["assignee"],
                          form["reviewer"], form["source"], form["target"], now, now)  # fmt: skip
    tell(visit, form["assignee"], "assigned you", "merge_request", number, now)
    tell(visit, form["reviewer"], "requested a review of", "merge_request", number, now)
    return visit.redirect(f"{project.url}/-/merge_requests/{iid}", "The merge request was created.")


def comment_request(visit: Visit) -> Response:
    """A comment on a merge request."""
    project = asked_project(visit)
    row = asked_request(visit, project)
    body = visit.form.get("body", "")
    if not body:
        return request_page(visit, project, row, {"body": "Write something first."}, 422)
    return add_comment(visit, project, "merge_request", row, body)


def assign_request(visit: Visit) -> Response:
    """Another assignee and reviewer, by developers upwards."""
    project = asked_project(visit)
    project.need("developer")
    row = asked_request(visit, project)
    people = {person: visit.form.get(person, "") for person in ("assignee", "reviewer")}
    known = ("", *member_names(visit, project))
    errors = {person: "Choose a member." for person, name in people.items() if name not in known}
    if errors:
        return request_page(visit, project, row, errors, 422)
    now = touch(visit, "merge_request", row["id"])
    sql = "UPDATE merge_request SET assignee = ?, reviewer = ? WHERE id = ?"
    visit.change(sql, people["assignee"], people["reviewer"], row["id"])
    if people["assignee"] != row["assignee"]:
        tell(visit, people["assignee"], "assigned you", "merge_request", row["id"], now)
    if people["reviewer"] != row["reviewer"]:
        tell(visit, people["reviewer"], "requested a review of", "merge_request", row["id"], now)
    return visit.redirect(f"{project.url}/-/merge_requests/{row['iid']}", "The merge request was changed.")


MOVES = {"close": ("opened", "closed"), "reopen": ("closed", "opened"), "merge": ("opened", "merged")}


def move_request(visit: Visit) -> Response:
    """Close, reopen or merge."""
    project = asked_project(visit)
    row = asked_request(visit, project)
    move = visit.path["move"]
    if move not in MOVES:
        raise HTTPException(404)
    if not may_close(visit, project, row) or (move == "merge" and not project.may("maintainer")):
        raise HTTPException(403)
    before, after = MOVES[move]
    address = f"{project.url}/-/merge_requests/{row['iid']}"
    if row["state"] != before:
        return visit.redirect(address, f"The merge request is {row['state']}.")
    touch(visit, "merge_request", row["id"])
    visit.change("UPDATE merge_request SET state = ? WHERE id = ?", after, row["id"])
    return visit.redirect(address, f"The merge request is now {after}.")
