"""Issues with their comments, labels and milestones."""

from __future__ import annotations

import re
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
STATES = ("opened", "closed", "all")
SORTS = {
    "created_date": ("Created date", "issue.created DESC, issue.id DESC"),
    "created_asc": ("Oldest first", "issue.created, issue.id"),
    "updated_desc": ("Updated date", "issue.updated DESC, issue.id DESC"),
    "due_date": ("Due date", "issue.due = '', issue.due, issue.id DESC"),
    "title": ("Title", "issue.title COLLATE NOCASE, issue.id"),
}
DAY = re.compile(r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


def matching(visit: Visit) -> tuple[str, list[Any]]:
    """The filters of the query as a condition on `issue`."""
    clauses, values = ["1"], []
    for name, column in (("author_username", "issue.author"), ("assignee_username", "issue.assignee")):
        if wanted := visit.query.get(name, ""):
            clauses.append(f"{column} = ?")
            values.append("" if wanted == "None" else wanted)
    if label := visit.query.get("label_name", ""):
        clauses.append("issue.id IN (SELECT issue_label.issue FROM issue_label JOIN label ON label.id = "
        "issue_label.label "
                       "WHERE label.name = ?)")  # fmt: skip
        values.append(label)
    if milestone := visit.query.get("milestone_title", ""):
        clauses.append("issue.milestone IN (SELECT id FROM milestone WHERE title = ?)")
        values.append(milestone)
    if words := visit.query.get("search", "").strip()[:100]:
        clauses.append("(instr(lower(issue.title), lower(?)) OR instr(lower(issue.description), lower(?)))")
        values += [words, words]
    return " AND ".join(clauses), values


def listing(visit: Visit, scope: str, scope_values: list[Any]) -> dict[str, Any]:
    """A page of issues in a scope with the counts of each state."""
    state, sort = chosen(visit, "state", STATES, "opened"), chosen(visit, "sort", tuple(SORTS), "created_date")
    where, values = matching(visit)
    where, values = f"{scope} AND {where}", [*scope_values, *values]
    counts = {
        row[0]: row[1] for row in visit.rows(f"SELECT state, count(*) FROM issue WHERE {where} GROUP BY state", *values)
    }
    counts["all"] = sum(counts.values())
    part = paged(visit, counts.get(state, 0), ROWS_A_PAGE)
    if state != "all":
        where, values = f"{where} AND issue.state = ?", [*values, state]
    sql = (
        "SELECT issue.*, project.namespace, project.path, milestone.title AS milestone_title, "
        "(SELECT count(*) FROM note WHERE kind = 'issue' AND target = issue.id) AS notes, "
        "(SELECT group_concat(name, '\t') FROM (SELECT label.name FROM issue_label JOIN label ON label.id = "
        "issue_label.label WHERE issue_label.issue = issue.id ORDER BY label.name)) AS labels "
        "FROM issue JOIN project ON project.id = issue.project LEFT JOIN milestone ON milestone.id = issue.milestone "
        f"WHERE {where} ORDER BY {SORTS[sort][1]} LIMIT ? OFFSET ?"
    )
    return {"issues": visit.rows(sql, *values, part.size, part.offset), "part": part, "state": state, "sort": sort,
            "counts": counts, "sorts": [(key, value[0]) for key, value in SORTS.items()]}  # fmt: skip


def options(visit: Visit, project: Project) -> dict[str, Any]:
    """What the forms of a project's issues offer."""
    labels = visit.rows("SELECT * FROM label WHERE project = ? ORDER BY name", project.id)
    milestones = visit.rows("SELECT * FROM milestone WHERE project = ? ORDER BY title", project.id)
    return {"labels": labels, "milestones": milestones, "names": member_names(visit, project)}


def issues(visit: Visit) -> Response:
    """A project's issues."""
    project = asked_project(visit)
    authors = visit.rows("SELECT DISTINCT author FROM issue WHERE project = ? ORDER BY author", project.id)
    return show(visit, "issues.html", project, authors=[row[0] for row in authors], **options(visit, project),
                **listing(visit, "issue.project = ?", [project.id]))  # fmt: skip


def asked_issue(visit: Visit, project: Project) -> sqlite3.Row:
    """The issue in the path."""
    return visit.require("SELECT * FROM issue WHERE project = ? AND iid = ?", project.id, visit.path["iid"])


def may_edit(visit: Visit, project: Project, row: sqlite3.Row) -> bool:
    """The author and reporters upwards change an issue."""
    return bool(visit.user) and (row["author"] == visit.user or project.may("reporter"))


def editable(visit: Visit) -> tuple[Project, sqlite3.Row]:
    """The issue in the path, for those who may change it."""
    project = asked_project(visit)
    row = asked_issue(visit, project)
    if not may_edit(visit, project, row):
        raise HTTPException(403)
    return project, row


def issue_page(visit: Visit, project: Project, row: sqlite3.Row, errors: Errors, status: int = 200) -> Response:
    sql = (
        "SELECT label.* FROM issue_label JOIN label ON label.id = issue_label.label WHERE issue = ? ORDER BY label.name"
    )
    notes = visit.rows("SELECT * FROM note WHERE kind = 'issue' AND target = ? ORDER BY created, id", row["id"])
    milestone = visit.one("SELECT * FROM milestone WHERE id = ?", row["milestone"])
    return show(visit, "issue.html", project, status, issue=row, tags=visit.rows(sql, row["id"]), notes=notes,
                milestone=milestone, editable=may_edit(visit, project, row), errors=errors, **options(visit,
                project))  # fmt: skip


def issue(visit: Visit) -> Response:
    """An issue with its comments."""
    project = asked_project(visit)
    return issue_page(visit, project, asked_issue(visit, project), {})


FIELDS = ("title", "description", "assignee", "milestone", "due", "labels")


def form_page(visit: Visit, project: Project, row: sqlite3.Row | None, form: dict[str, Any], errors: Errors,
              status: int = 200) -> Response:  # fmt: skip
    return show(
        visit, "issue_form.html", project, status, issue=row, form=form, errors=errors, **options(visit, project)
    )


def show_new_issue(visit: Visit) -> Response:
    """The form for a new issue."""
    return form_page(visit, asked_project(visit), None, {**dict.fromkeys(FIELDS, ""), "labels": []}, {})


def read_issue(visit: Visit, project: Project) -> tuple[dict[str, Any], Errors]:
    """The fields of the form, and what is wrong with them."""
    form: dict[str, Any] = {name: visit.form.get(name, "") for name in FIELDS}
    form["labels"] = [name for name in form["labels"].split(",") if name]
    known = options(visit, project)
    errors = check_title(form["title"])
    if form["assignee"] not in ("", *known["names"]):
        errors["assignee"] = "Only members can be assigned."
    if form["milestone"] not in ("", *(str(row["id"]) for row in known["milestones"])):
        errors["milestone"] = "There is no such milestone."
    if not set(form["labels"]) <= {str(row["id"]) for row in known["labels"]}:
        errors["labels"] = "There is no such label."
    if form["due"] and not DAY.fullmatch(form["due"]):
        errors["due"] = "Write the day as YYYY-MM-DD."
    return form, errors


def set_labels(visit: Visit, number: int, labels: list[str]) -> None:
    """Exactly these labels on an issue."""
    visit.change("DELETE FROM issue_label WHERE issue = ?", number)
    for label in sorted(map(int, labels)):
        visit.change("INSERT OR IGNORE INTO issue_label VALUES (?, ?)", number, label)


def new_issue(visit: Visit) -> Response:
    """A new issue. Only reporters upwards assign it or give it labels, a milestone or a day."""
    project = asked_project(visit)
    form, errors = read_issue(visit, project)
    if errors:
        return form_page(visit, project, None, form, errors, 422)
    if not project.may("reporter"):
        form = {**form, "assignee": "", "milestone": "", "due": "", "labels": []}
    now, iid = visit.now(), next_iid(visit, "issue", project)
    sql = (
        "INSERT INTO issue (project, iid, title, description, author, assignee, milestone, state, due, created, "
        "updated) VALUES (?, ?, ?, ?, ?, ?, ?, 'opened', ?, ?, ?)"
    )
    milestone = int(form["milestone"]) if form["milestone"] else None
    number = visit.change(sql, project.id, iid, form["title"], form["description"], visit.user, form["assignee"],
    milestone,
                          form["due"], now, now)  # fmt: skip
    set_labels(visit, number, form["labels"])
    tell(visit, form["assignee"], "assigned you", "issue", number, now)
    return visit.redirect(f"{project.url}/-/issues/{iid}", "The issue was created.")


def show_edit_issue(visit: Visit) -> Response:
    """The form for an issue."""
    project, row = editable(visit)
    labels = visit.rows("SELECT label FROM issue_label WHERE issue = ? ORDER BY label", row["id"])
    form = {**dict(row), "milestone": row["milestone"] or "", "labels": [str(label[0]) for label in labels]}
    return form_page(visit, project, row, form, {})


def edit_issue(visit: Visit) -> Response:
    """New values for an issue; authors below reporter change the texts only."""
    project, row = editable(visit)
    form, errors = read_issue(visit, project)
    if errors:
        return form_page(visit, project, row, form, errors, 422)
    now = touch(visit, "issue", row["id"])
    visit.change(
        "UPDATE issue SET title = ?, description = ? WHERE id = ?", form["title"], form["description"], row["id"]
    )
    if project.may("reporter"):
        milestone = int(form["milestone"]) if form["milestone"] else None
        visit.change("UPDATE issue SET assignee = ?, milestone = ?, due = ? WHERE id = ?", form["assignee"], milestone,
                     form["due"], row["id"])  # fmt: skip
        set_labels(visit, row["id"], form["labels"])
        if form["assignee"] != row["assignee"]:
            tell(visit, form["assignee"], "assigned you", "issue", row["id"], now)
    return visit.redirect(f"{project.url}/-/issues/{row['iid']}", "The issue was changed.")


def comment_issue(visit: Visit) -> Response:
    """A comment on an issue."""
    project = asked_project(visit)
    row = asked_issue(visit, project)
    body = visit.form.get("body", "")
    if not body:
        return issue_page(visit, project, row, {"body": "Write something first."}, 422)
    return add_comment(visit, project, "issue", row, body)


def close_issue(visit: Visit) -> Response:
    """Done, or not to be done."""
    return set_state(visit, "closed")


def reopen_issue(visit: Visit) -> Response:
    """Not done after all."""
    return set_state(visit, "opened")


def set_state(visit: Visit, state: str) -> Response:
    project, row = editable(visit)
    if row["state"] != state:
        touch(visit, "issue", row["id"])
        visit.change("UPDATE issue SET state = ? WHERE id = ?", state, row["id"])
    words = "closed" if state == "closed" else "reopened"
    return visit.redirect(f"{project.url}/-/issues/{row['iid']}", f"The issue was {words}.")


def assign_issue(visit: Visit) -> Response:
    """Give an issue to a member, or to nobody."""
    project = asked_project(visit)
    project.need("reporter")
    row = asked_issue(visit, project)
    name = visit.form.get("assignee", "")
    if name not in ("", *member_names(visit, project)):
        return issue_page(visit, project, row, {"assignee": "Only members can be assigned."}, 422)
    now = touch(visit, "issue", row["id"])
    visit.change("UPDATE issue SET assignee = ? WHERE id = ?", name, row["id"])
    tell(visit, name, "assigned you", "issue", row["id"], now)
    return visit.redirect(f"{project.url}/-/issues/{row['iid']}", "The assignee was changed.")


def labels_page(visit: Visit, project: Project, form: dict[str, str], errors: Errors, status: int = 200) -> Response:
    sql = (
        "SELECT label.*, (SELECT count(*) FROM issue_label JOIN issue ON issue.id = issue_label.issue "
        "WHERE issue_label.label = label.id AND issue.state = 'opened') AS issues FROM label WHERE project = ? ORDER "
        "BY name"
    )
    return show(visit, "labels.html", project, status, labels=visit.rows(sql, project.id), form=form, errors=errors)


def labels(visit: Visit) -> Response:
    """A project's labels."""
    return labels_page(visit, asked_project(visit), {"name": "", "colour": "#0b57d0", "description": ""}, {})


def new_label(visit: Visit) -> Response:
    """A new label."""
    project = asked_project(visit)
    project.need("reporter")
    form = {name: visit.form.get(name, "") for name in ("name", "colour", "description")}
    errors: Errors = {}
    if not form["name"] or len(form["name"]) > 50 or "," in form["name"]:
        errors["name"] = "A name of at most 50 characters without commas is needed."
    elif visit.one("SELECT 1 FROM label WHERE project = ? AND name = ?", project.id, form["name"]):
        errors["name"] = "A label with this name exists."
    if not COLOUR.fullmatch(form["colour"]):
        errors["colour"] = "A colour looks like #0b57d0."
    if errors:
        return labels_page(visit, project, form, errors, 422)
    visit.change(
        "INSERT INTO label (project, name, colour, description) VALUES (?, ?, ?, ?)", project.id, *form.values()
    )
    return visit.redirect(f"{project.url}/-/labels", "The label was created.")


def milestones_page(
    visit: Visit, project: Project, form: dict[str, str], errors: Errors, status: int = 200
) -> Response:
    sql = (
        "SELECT milestone.*, (SELECT count(*) FROM issue WHERE issue.milestone = milestone.id) AS issues, "
        "(SELECT count(*) FROM issue WHERE issue.milestone = milestone.id AND state = 'closed') AS closed "
        "FROM milestone WHERE project = ? ORDER BY due = '', due, id"
    )
    return show(
        visit, "milestones.html", project, status, milestones=visit.rows(sql, project.id), form=form, errors=errors
    )


def milestones(visit: Visit) -> Response:
    """A project's milestones."""
    return milestones_page(visit, asked_project(visit), {"title": "", "due": ""}, {})


def new_milestone(visit: Visit) -> Response:
    """A new milestone."""
    project = asked_project(visit)
    project.need("reporter")
    form = {name: visit.form.get(name, "") for name in ("title", "due")}
    errors = check_title(form["title"])
    if visit.one("SELECT 1 FROM milestone WHERE project = ? AND title = ?", project.id, form["title"]):
        errors["title"] = "A milestone with this title exists."
    if form["due"] and not DAY.fullmatch(form["due"]):
        errors["due"] = "Write the day as YYYY-MM-DD."
    if errors:
        return milestones_page(visit, project, form, errors, 422)
    sql = "INSERT INTO milestone (project, title, due, state) VALUES (?, ?, ?, 'active')"
    visit.change(sql, project.id, form["title"], form["due"])
    return visit.redirect(f"{project.url}/-/milestones", "The milestone was created.")
