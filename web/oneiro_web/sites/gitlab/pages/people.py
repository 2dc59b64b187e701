"""People and groups of the code host: profiles, the own settings, to-dos, dashboards."""

from __future__ import annotations

import re
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.gitlab.content import ROLES
from oneiro_web.sites.gitlab.pages import issues, merge
from oneiro_web.sites.gitlab.pages.access import SEEN, Errors
from oneiro_web.sites.lists import chosen, paged

PROJECTS_A_PAGE = 15
SORTS = {
    "latest_activity": ("Last updated", "project.updated DESC, project.id"),
    "stars_desc": ("Most stars", "project.stars DESC, project.id"),
    "created_desc": ("Newest", "project.created DESC, project.id"),
    "name_asc": ("Name", "project.title COLLATE NOCASE, project.id"),
}
PROFILE = ("full_name", "bio", "location", "website")
MAX_PROFILE_CHARS = 250  # of each field of a profile
TEAM_PATH = re.compile(r"[a-z0-9][a-z0-9_\-]{1,40}")
RESERVED = {"explore", "dashboard", "projects", "groups", "users", "static", "-"}


def projects(visit: Visit, scope: str, values: list[Any]) -> dict[str, Any]:
    """A page of projects that the user may see."""
    sort = chosen(visit, "sort", tuple(SORTS), "latest_activity")
    where, values = f"{scope} AND {SEEN}", [*values, visit.user]
    if words := visit.query.get("name", "").strip()[:100]:
        text = "lower(project.namespace || '/' || project.path || ' ' || project.title || ' ' || project.description)"
        where, values = f"{where} AND instr({text}, lower(?))", [*values, words]
    part = paged(visit, visit.value(f"SELECT count(*) FROM project WHERE {where}", *values), PROJECTS_A_PAGE)
    sql = f"SELECT * FROM project WHERE {where} ORDER BY {SORTS[sort][1]} LIMIT ? OFFSET ?"
    return {"projects": visit.rows(sql, *values, part.size, part.offset), "part": part, "sort": sort, "words": words,
            "sorts": [(key, value[0]) for key, value in SORTS.items()]}  # fmt: skip


def home(visit: Visit) -> Response:
    """The dashboard for who is logged in, else all projects."""
    return own_projects(visit) if visit.user else explore(visit)


def own_projects(visit: Visit) -> Response:
    """The projects the user is a member of, or has starred."""
    tab = "starred" if visit.request.url.path.endswith("/starred") else "yours"
    table = "star" if tab == "starred" else "member"
    scope = f"project.id IN (SELECT project FROM {table} WHERE user = ?)"
    return visit.page("gitlab/projects.html", tab=tab, **projects(visit, scope, [visit.user]))


def explore(visit: Visit) -> Response:
    """All projects."""
    return visit.page("gitlab/projects.html", tab="explore", **projects(visit, "1", []))


def own_issues(visit: Visit) -> Response:
    """Issues of all projects; without a filter those assigned to the user."""
    filtered = any(visit.query.get(name) for name in ("assignee_username", "author_username"))
    values = [] if filtered else [visit.user]
    scope = f"issue.project IN (SELECT id FROM project WHERE {SEEN})" + ("" if filtered else " AND issue.assignee = ?")
    return visit.page("gitlab/own_issues.html", **issues.listing(visit, scope, [visit.user, *values]))


def own_requests(visit: Visit) -> Response:
    """Merge requests of all projects; without a filter those assigned to the user."""
    filtered = any(visit.query.get(name) for name, _ in merge.FILTERS)
    values = [] if filtered else [visit.user]
    scope = f"merge_request.project IN (SELECT id FROM project WHERE {SEEN})"
    scope += "" if filtered else " AND merge_request.assignee = ?"
    return visit.page("gitlab/own_requests.html", **merge.listing(visit, scope, [visit.user, *values]))


def todos(visit: Visit) -> Response:
    """What waits for the user."""
    state = chosen(visit, "state", ("pending", "done"), "pending")
    numbers = visit.rows("SELECT state, count(*) FROM todo WHERE user = ? GROUP BY state", visit.user)
    counts = {"pending": 0, "done": 0, **{row[0]: row[1] for row in numbers}}
    part = paged(visit, counts[state], PROJECTS_A_PAGE)
    sql = (
        "SELECT todo.*, project.namespace, project.path, coalesce(issue.title, merge_request.title) AS title, "
        "coalesce(issue.iid, merge_request.iid) AS iid FROM todo "
        "LEFT JOIN issue ON todo.kind = 'issue' AND issue.id = todo.target "
        "LEFT JOIN merge_request ON todo.kind = 'merge_request' AND merge_request.id = todo.target "
        "JOIN project ON project.id = coalesce(issue.project, merge_request.project) "
        "WHERE todo.user = ? AND todo.state = ? ORDER BY todo.created DESC, todo.id DESC LIMIT ? OFFSET ?"
    )
    rows = visit.rows(sql, visit.user, state, part.size, part.offset)
    return visit.page("gitlab/todos.html", todos=rows, part=part, state=state, counts=counts)


def finish_todo(visit: Visit) -> Response:
    """One to-do is done."""
    row = visit.require("SELECT id FROM todo WHERE id = ? AND user = ?", visit.path["id"], visit.user)
    visit.change("UPDATE todo SET state = 'done' WHERE id = ?", row["id"])
    return visit.redirect("/dashboard/todos", "The to-do is done.")


def finish_todos(visit: Visit) -> Response:
    """All to-dos are done."""
    visit.change("UPDATE todo SET state = 'done' WHERE user = ? AND state = 'pending'", visit.user)
    return visit.redirect("/dashboard/todos", "All to-dos are done.")


def namespace(visit: Visit) -> Response:
    """A person's or a group's page."""
    name = visit.path["namespace"]
    team = visit.one("SELECT * FROM team WHERE path = ?", name)
    shown = projects(visit, "project.namespace = ?", [name])
    if team:
        inside = visit.one("SELECT 1 FROM team_member WHERE team = ? AND user = ?", name, visit.user)
        if team["visibility"] == "private" and not inside:
            raise HTTPException(404)
        sql = (
            "SELECT team_member.*, user.full_name FROM team_member JOIN user ON user.name = team_member.user "
            "WHERE team = ? ORDER BY since, user"
        )
        return visit.page("gitlab/team.html", team=team, members=visit.rows(sql, name), **shown)
    person = visit.require("SELECT * FROM user WHERE name = ?", name)
    follows = visit.one("SELECT 1 FROM follow WHERE user = ? AND followed = ?", visit.user, name) is not None
    counts = (visit.value("SELECT count(*) FROM follow WHERE followed = ?", name),
              visit.value("SELECT count(*) FROM follow WHERE user = ?", name))  # fmt: skip
    return visit.page("gitlab/person.html", person=person, follows=follows, counts=counts, **shown)


def follow(visit: Visit) -> Response:
    """Follow somebody."""
    name = visit.require("SELECT name FROM user WHERE name = ?", visit.path["user"])["name"]
    if name != visit.user:
        visit.change("INSERT OR IGNORE INTO follow VALUES (?, ?)", visit.user, name)
    return visit.redirect(f"/{name}")


def unfollow(visit: Visit) -> Response:
    """Follow somebody no more."""
    name = visit.require("SELECT name FROM user WHERE name = ?", visit.path["user"])["name"]
    visit.change("DELETE FROM follow WHERE user = ? AND followed = ?", visit.user, name)
    return visit.redirect(f"/{name}")


def people(visit: Visit) -> Response:
    """Search for people by name."""
    words = visit.query.get("search", "").strip()[:100]
    where, values = "instr(lower(name || ' ' || full_name), lower(?))", [words]
    part = paged(visit, visit.value(f"SELECT count(*) FROM user WHERE {where}", *values), 20)
    sql = f"SELECT name, full_name, bio FROM user WHERE {where} ORDER BY full_name, name LIMIT ? OFFSET ?"
    return visit.page(
        "gitlab/people.html", people=visit.rows(sql, *values, part.size, part.offset), part=part, words=words
    )


def show_profile(visit: Visit) -> Response:
    """The own profile as a form."""
    row = visit.require("SELECT * FROM user WHERE name = ?", visit.user)
    return visit.page("gitlab/profile.html", form=dict(row), errors={})


def edit_profile(visit: Visit) -> Response:
    """New values for the own profile."""
    form = {name: visit.form.get(name, "") for name in (*PROFILE, "status")}
    errors = {name: f"At most {MAX_PROFILE_CHARS} characters." for name in form if len(form[name]) > MAX_PROFILE_CHARS}
    if not form["full_name"]:
        errors["full_name"] = "A name is needed."
    if form["website"] and not re.fullmatch(r"https?://[^\s/]+\.[^\s]+", form["website"]):
        errors["website"] = "An address begins with http:// or https://."
    if errors:
        return visit.page("gitlab/profile.html", 422, form=form, errors=errors)
    sql = "UPDATE user SET full_name = ?, bio = ?, location = ?, website = ?, status = ? WHERE name = ?"
    visit.change(sql, *form.values(), visit.user)
    return visit.redirect("/-/profile", "Your profile was updated.")


def groups(visit: Visit) -> Response:
    """All groups."""
    sql = (
        "SELECT team.*, (SELECT count(*) FROM project WHERE namespace = team.path) AS projects, "
        "(SELECT count(*) FROM team_member WHERE team = team.path) AS members, "
        "(SELECT role FROM team_member WHERE team = team.path AND user = ?) AS role FROM team "
        "WHERE team.visibility = 'public' OR role IS NOT NULL ORDER BY title COLLATE NOCASE, path"
    )
    return visit.page("gitlab/groups.html", teams=visit.rows(sql, visit.user))


def show_new_group(visit: Visit) -> Response:
    """The form for a new group."""
    return visit.page(
        "gitlab/new_group.html", form={"title": "", "path": "", "description": "", "visibility": "private"}, errors={}
    )


def new_group(visit: Visit) -> Response:
    """A new group, owned by who made it."""
    form = {name: visit.form.get(name, "") for name in ("title", "path", "description", "visibility")}
    form["path"] = form["path"] or re.sub(r"[^a-z0-9]+", "-", form["title"].lower()).strip("-")
    errors: Errors = {}
    if not form["title"] or len(form["title"]) > 100:
        errors["title"] = "A name of at most 100 characters is needed."
    if not TEAM_PATH.fullmatch(form["path"]):
        errors["path"] = "2 to 41 small letters, digits, dashes or underscores."
    elif (
        form["path"] in RESERVED
        or visit.one("SELECT 1 FROM team WHERE path = ?", form["path"])
        or visit.one("SELECT 1 FROM user WHERE name = ?", form["path"])
    ):
        errors["path"] = "This address is taken."
    if form["visibility"] not in ("private", "public"):
        errors["visibility"] = "Choose who can see it."
    if errors:
        return visit.page("gitlab/new_group.html", 422, form=form, errors=errors)
    now = visit.now()
    visit.change(
        "INSERT INTO team VALUES (?, ?, ?, ?, ?)",
        form["path"],
        form["title"],
        form["description"],
        form["visibility"],
        now,
    )
    visit.change("INSERT INTO team_member VALUES (?, ?, 'owner', ?)", form["path"], visit.user, now)
    return visit.redirect(f"/{form['path']}", "The group was created.")


def invite_to_group(visit: Visit) -> Response:
    """A new member of a group, by its owners."""
    name = visit.path["namespace"]
    team = visit.require("SELECT path FROM team WHERE path = ?", name)["path"]
    role = visit.value("SELECT role FROM team_member WHERE team = ? AND user = ?", team, visit.user)
    user = visit.one("SELECT name FROM user WHERE name = ?", visit.form.get("username", "").removeprefix("@"))
    wanted = visit.form.get("role", "")
    if role != "owner":
        return visit.redirect(f"/{team}", "Only owners invite people.")
    if user is None or wanted not in ROLES:
        return visit.redirect(f"/{team}", "There is no such user or role.")
    visit.change("INSERT OR REPLACE INTO team_member VALUES (?, ?, ?, ?)", team, user["name"], wanted, visit.now())
    return visit.redirect(f"/{team}", f"{user['name']} is now {wanted}.")
