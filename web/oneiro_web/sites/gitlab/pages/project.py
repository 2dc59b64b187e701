"""A project: its home, files, commits, contributors, branches, members, stars and forks."""

from __future__ import annotations

import re

from starlette.exceptions import HTTPException
from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.dice import slug
from oneiro_web.sites.gitlab.content import ROLES, sha_of
from oneiro_web.sites.gitlab.pages.access import Errors, Project, asked_project, show
from oneiro_web.sites.lists import paged

COMMITS_A_PAGE = 20
PATH = re.compile(r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*")
PROJECT_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
VISIBILITIES = [("private", "Private"), ("public", "Public")]


def home(visit: Visit) -> Response:
    """A project's first page: counts, files, README."""
    project = asked_project(visit)
    number = project.id
    counts = {
        "commits": visit.value(
            "SELECT count(*) FROM revision WHERE project = ? AND branch = ?", number, project.row["branch"]
        ),
        "branches": visit.value("SELECT count(*) FROM branch WHERE project = ?", number),
        "issues": visit.value("SELECT count(*) FROM issue WHERE project = ? AND state = 'opened'", number),
        "requests": visit.value("SELECT count(*) FROM merge_request WHERE project = ? AND state = 'opened'", number),
    }
    last = visit.one("SELECT * FROM revision WHERE project = ? AND branch = ? ORDER BY created DESC, id DESC LIMIT 1",
                     number, project.row["branch"])  # fmt: skip
    origin = visit.one("SELECT namespace, path FROM project WHERE id = ?", project.row["forked_from"])
    starred = visit.one("SELECT 1 FROM star WHERE user = ? AND project = ?", visit.user, number) is not None
    readme = visit.value("SELECT text FROM file WHERE project = ? AND path = 'README.md'", number)
    return show(visit, "project.html", project, counts=counts, last=last, origin=origin, starred=starred, readme=readme,
                entries=entries(visit, project, ""))  # fmt: skip


def entries(visit: Visit, project: Project, folder: str) -> list[tuple[str, str, bool]]:
    """Name, path and whether it is a folder, for what lies in a folder: folders first."""
    head = f"{folder}/" if folder else ""
    rows: dict[str, tuple[str, str, bool]] = {}
    for row in visit.rows("SELECT path FROM file WHERE project = ? ORDER BY path", project.id):
        path: str = row["path"]
        if path.startswith(head):
            name, _, rest = path[len(head) :].partition("/")
            rows[name] = (name, head + name, bool(rest))
    return sorted(rows.values(), key=lambda entry: (not entry[2], entry[0].lower()))


def need_branch(visit: Visit, project: Project) -> None:
    """Files are kept for the default branch."""
    if visit.path["branch"] != project.row["branch"]:
        raise HTTPException(404)


def tree(visit: Visit) -> Response:
    """What lies in a folder."""
    project = asked_project(visit)
    need_branch(visit, project)
    folder = visit.path.get("path", "").strip("/")
    inside = entries(visit, project, folder)
    if folder and not inside:
        raise HTTPException(404)
    return show(visit, "tree.html", project, folder=folder, entries=inside)


def blob(visit: Visit) -> Response:
    """A file's text."""
    project = asked_project(visit)
    need_branch(visit, project)
    sql = "SELECT * FROM file WHERE project = ? AND path = ?"
    return show(visit, "blob.html", project, file=visit.require(sql, project.id, visit.path["path"]))


def file_page(
    visit: Visit, project: Project, path: str, form: dict[str, str], errors: Errors, status: int = 200
) -> Response:
    return show(visit, "file_form.html", project, status, path=path, form=form, errors=errors)


def pusher(visit: Visit) -> Project:
    """The project in the path, for those who may push."""
    project = asked_project(visit)
    project.need("developer")
    need_branch(visit, project)
    return project


def show_edit_file(visit: Visit) -> Response:
    """The form for a file's text."""
    project = pusher(visit)
    file = visit.require("SELECT * FROM file WHERE project = ? AND path = ?", project.id, visit.path["path"])
    return file_page(visit, project, file["path"], {"content": file["text"], "message": f"Update {file['path']}"}, {})


def edit_file(visit: Visit) -> Response:
    """A commit with a file's new text."""
    project = pusher(visit)
    file = visit.require("SELECT * FROM file WHERE project = ? AND path = ?", project.id, visit.path["path"])
    form = {"content": visit.form.get("content", ""), "message": visit.form.get("message", "")}
    if not form["message"]:
        return file_page(visit, project, file["path"], form, {"message": "A commit message is needed."}, 422)
    commit(visit, project, file["path"], form["content"], form["message"])
    return visit.redirect(
        f"{project.url}/-/blob/{project.row['branch']}/{file['path']}", "Your changes were committed."
    )


def show_new_file(visit: Visit) -> Response:
    """The form for a new file."""
    return file_page(visit, pusher(visit), "", {"path": "", "content": "", "message": "Add new file"}, {})


def new_file(visit: Visit) -> Response:
    """A commit with a new file."""
    project = pusher(visit)
    form = {name: visit.form.get(name, "") for name in ("path", "content", "message")}
    errors: Errors = {}
    if not PATH.fullmatch(form["path"]) or len(form["path"]) > 100 or ".." in form["path"]:
        errors["path"] = "Letters, digits, dots, dashes and slashes only."
    elif visit.one("SELECT 1 FROM file WHERE project = ? AND path = ?", project.id, form["path"]):
        errors["path"] = "A file with this name exists."
    if not form["message"]:
        errors["message"] = "A commit message is needed."
    if errors:
        return file_page(visit, project, "", form, errors, 422)
    commit(visit, project, form["path"], form["content"], form["message"])
    return visit.redirect(f"{project.url}/-/blob/{project.row['branch']}/{form['path']}", "The file was created.")


def commit(visit: Visit, project: Project, path: str, text: str, message: str) -> None:
    """Write a file and the commit that says so."""
    now, branch = visit.now(), project.row["branch"]
    visit.change("INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?)", project.id, path, text, now)
    visit.change("INSERT OR IGNORE INTO branch VALUES (?, ?, ?)", project.id, branch, now)
    sql = "INSERT INTO revision (project, branch, sha, author, message, created) VALUES (?, ?, ?, ?, ?, ?)"
    visit.change(sql, project.id, branch, sha_of(project.id, path, text, message, now), visit.user, message, now)
    visit.change("UPDATE project SET updated = ? WHERE id = ?", now, project.id)


def commits(visit: Visit) -> Response:
    """A branch's commits, newest first, perhaps of one author or day."""
    project = asked_project(visit)
    branch = visit.require("SELECT name FROM branch WHERE project = ? AND name = ?", project.id, visit.path["branch"])[
        "name"
    ]
    author, day = visit.query.get("author", ""), visit.query.get("date", "")
    where, values = "project = ? AND branch = ?", [project.id, branch]
    if author:
        where, values = where + " AND author = ?", [*values, author]
    if day:
        where, values = where + " AND substr(created, 1, 10) = ?", [*values, day]
    part = paged(visit, visit.value(f"SELECT count(*) FROM revision WHERE {where}", *values), COMMITS_A_PAGE)
    sql = f"SELECT * FROM revision WHERE {where} ORDER BY created DESC, id DESC LIMIT ? OFFSET ?"
    authors = visit.rows("SELECT DISTINCT author FROM revision WHERE project = ? ORDER BY author", project.id)
    return show(visit, "commits.html", project, branch=branch, commits=visit.rows(sql, *values, part.size, part.offset),
                part=part, author=author, day=day, authors=[("", "Any author"), *((row[0],
                row[0]) for row in authors)])  # fmt: skip


def one_commit(visit: Visit) -> Response:
    """A commit."""
    project = asked_project(visit)
    row = visit.require("SELECT * FROM revision WHERE project = ? AND sha = ?", project.id, visit.path["sha"])
    return show(visit, "commit.html", project, commit=row)


def contributors(visit: Visit) -> Response:
    """Who made how many commits."""
    project = asked_project(visit)
    sql = (
        "SELECT revision.author, user.full_name, user.email, count(*) AS commits, max(revision.created) AS last FROM "
        "revision JOIN user ON user.name = revision.author WHERE project = ? AND branch = ? GROUP BY revision.author "
        "ORDER BY commits DESC, revision.author"
    )
    return show(visit, "contributors.html", project, rows=visit.rows(sql, project.id, project.row["branch"]))


def branches_page(visit: Visit, project: Project, name: str, errors: Errors, status: int = 200) -> Response:
    sql = (
        "SELECT branch.*, (SELECT count(*) FROM revision WHERE revision.project = branch.project AND "
        "revision.branch = branch.name) AS commits FROM branch WHERE project = ? ORDER BY name"
    )
    rows = visit.rows(sql, project.id)
    return show(visit, "branches.html", project, status, branches=rows, errors=errors, name=name)


def branches(visit: Visit) -> Response:
    """All branches."""
    return branches_page(visit, asked_project(visit), "", {})


def new_branch(visit: Visit) -> Response:
    """A new branch."""
    project = asked_project(visit)
    project.need("developer")
    name = visit.form.get("name", "")
    errors: Errors = {}
    if not PATH.fullmatch(name) or len(name) > 100:
        errors["name"] = "Letters, digits, dots, dashes and slashes only."
    elif visit.one("SELECT 1 FROM branch WHERE project = ? AND name = ?", project.id, name):
        errors["name"] = "A branch with this name exists."
    if errors:
        return branches_page(visit, project, name, errors, 422)
    visit.change("INSERT INTO branch VALUES (?, ?, ?)", project.id, name, visit.now())
    return visit.redirect(f"{project.url}/-/branches", f"The branch {name} was created.")


def members_page(visit: Visit, project: Project, form: dict[str, str], errors: Errors, status: int = 200) -> Response:
    sql = (
        "SELECT member.*, user.full_name FROM member JOIN user ON user.name = member.user WHERE project = ? "
        "ORDER BY member.since, member.user"
    )
    return show(visit, "members.html", project, status, members=visit.rows(sql, project.id), form=form, errors=errors,
                roles=[(role, role.capitalize()) for role in ROLES])  # fmt: skip


def members(visit: Visit) -> Response:
    """Everybody in a project, with roles."""
    return members_page(visit, asked_project(visit), {"username": "", "role": "guest"}, {})


def invite(visit: Visit) -> Response:
    """A new member, or a new role for one."""
    project = asked_project(visit)
    project.need("maintainer")
    form = {name: visit.form.get(name, "") for name in ("username", "role")}
    user = visit.one("SELECT name FROM user WHERE name = ?", form["username"].removeprefix("@"))
    errors: Errors = {}
    if user is None:
        errors["username"] = "There is no such user."
    if form["role"] not in ROLES or not project.may(form["role"]):
        errors["role"] = "You cannot give this role."
    held = visit.value(
        "SELECT role FROM member WHERE project = ? AND user = ?", project.id, form["username"].removeprefix("@")
    )
    if held == "owner":
        errors["username"] = "This user owns the project."
    if errors or user is None:
        return members_page(visit, project, form, errors, 422)
    if held:
        visit.change(
            "UPDATE member SET role = ? WHERE project = ? AND user = ?", form["role"], project.id, user["name"]
        )
    else:
        visit.change("INSERT INTO member VALUES (?, ?, ?, ?)", project.id, user["name"], form["role"], visit.now())
    return visit.redirect(f"{project.url}/-/project_members", f"{user['name']} is now {form['role']}.")


def remove_member(visit: Visit) -> Response:
    """Somebody leaves a project, or is removed by a maintainer."""
    project = asked_project(visit)
    name = visit.path["user"]
    row = visit.require("SELECT role FROM member WHERE project = ? AND user = ?", project.id, name)
    if name != visit.user:
        project.need("maintainer")
    if row["role"] == "owner":
        raise HTTPException(403)
    visit.change("DELETE FROM member WHERE project = ? AND user = ?", project.id, name)
    onward = f"{project.url}/-/project_members" if name != visit.user else "/dashboard/projects"
    return visit.redirect(onward, f"{name} is no longer a member of {project.row['title']}.")


def star(visit: Visit) -> Response:
    """Star a project."""
    return set_star(visit, True)


def unstar(visit: Visit) -> Response:
    """Take the star back."""
    return set_star(visit, False)


def set_star(visit: Visit, wanted: bool) -> Response:
    project = asked_project(visit)
    now = visit.one("SELECT 1 FROM star WHERE user = ? AND project = ?", visit.user, project.id) is not None
    if wanted and not now:
        visit.change("INSERT INTO star VALUES (?, ?)", visit.user, project.id)
        visit.change("UPDATE project SET stars = stars + 1 WHERE id = ?", project.id)
    if now and not wanted:
        visit.change("DELETE FROM star WHERE user = ? AND project = ?", visit.user, project.id)
        visit.change("UPDATE project SET stars = stars - 1 WHERE id = ?", project.id)
    return visit.redirect(project.url)


def fork(visit: Visit) -> Response:
    """A copy of a project in the user's own namespace: files, branches and commits."""
    project = asked_project(visit)
    if visit.one("SELECT 1 FROM project WHERE namespace = ? AND path = ?", visit.user, project.row["path"]):
        return visit.redirect(project.url, "You have a project with this name already.")
    now = visit.now()
    sql = (
        "INSERT INTO project (namespace, path, title, description, visibility, language, branch, stars, forks, "
        "forked_from, created, updated) SELECT ?, path, title, description, visibility, language, branch, 0, 0, id, "
        "?, ? FROM "
        "project WHERE id = ?"
    )
    number = visit.change(sql, visit.user, now, now, project.id)
    visit.change("INSERT INTO member VALUES (?, ?, 'owner', ?)", number, visit.user, now)
    visit.change("INSERT INTO file SELECT ?, path, text, updated FROM file WHERE project = ?", number, project.id)
    visit.change("INSERT INTO branch SELECT ?, name, created FROM branch WHERE project = ?", number, project.id)
    copied = "SELECT ?, branch, sha, author, message, created FROM revision WHERE project = ? ORDER BY id"
    visit.change(f"INSERT INTO revision (project, branch, sha, author, message, created) {copied}", number, project.id)
    visit.change("UPDATE project SET forks = forks + 1 WHERE id = ?", project.id)
    return visit.redirect(f"/{visit.user}/{project.row['path']}", "The project was forked.")


def owned_namespaces(visit: Visit) -> list[tuple[str, str]]:
    """Where the user may create projects."""
    sql = "SELECT team FROM team_member WHERE user = ? AND role IN ('maintainer', 'owner', 'developer') ORDER BY team"
    return [(visit.user, visit.user), *((row[0], row[0]) for row in visit.rows(sql, visit.user))]


def new_page(visit: Visit, form: dict[str, str], errors: Errors, status: int = 200) -> Response:
    return visit.page("gitlab/new_project.html", status, form=form, errors=errors, namespaces=owned_namespaces(visit),
                      visibilities=VISIBILITIES)  # fmt: skip


def show_new_project(visit: Visit) -> Response:
    """The form for a new project."""
    namespace = visit.query.get("namespace", visit.user)
    return new_page(visit, {"title": "", "namespace": namespace, "path": "", "description": "", "visibility": "private",
                            "readme": "yes"}, {})  # fmt: skip


def new_project(visit: Visit) -> Response:
    """A new project, owned by who made it."""
    form = {
        name: visit.form.get(name, "") for name in ("title", "namespace", "path", "description", "visibility", "readme")
    }
    path = form["path"] or slug(form["title"])
    errors: Errors = {}
    if not form["title"] or len(form["title"]) > 100:
        errors["title"] = "A name of at most 100 characters is needed."
    if not PROJECT_PATH.fullmatch(path) or len(path) > 80:
        errors["path"] = "Letters, digits, dots, dashes and underscores only."
    if form["namespace"] not in dict(owned_namespaces(visit)):
        errors["namespace"] = "Choose one of your namespaces."
    elif visit.one("SELECT 1 FROM project WHERE namespace = ? AND path = ? COLLATE NOCASE", form["namespace"], path):
        errors["path"] = "A project with this name exists."
    if form["visibility"] not in dict(VISIBILITIES):
        errors["visibility"] = "Choose who can see it."
    if errors:
        return new_page(visit, form, errors, 422)
    now = visit.now()
    sql = (
        "INSERT INTO project (namespace, path, title, description, visibility, language, branch, stars, forks, "
        "created, updated) VALUES (?, ?, ?, ?, ?, '', 'main', 0, 0, ?, ?)"
    )
    number = visit.change(
        sql, form["namespace"], path, form["title"], form["description"], form["visibility"], now, now
    )
    visit.change("INSERT INTO member VALUES (?, ?, 'owner', ?)", number, visit.user, now)
    if form["readme"]:
        row = visit.require("SELECT * FROM project WHERE id = ?", number)
        text = f"# {form['title']}\n\n{form['description']}\n".replace("\n\n\n", "\n")
        commit(visit, Project(row, "owner"), "README.md", text, "Initial commit")
    return visit.redirect(f"/{form['namespace']}/{path}", "The project was created.")
