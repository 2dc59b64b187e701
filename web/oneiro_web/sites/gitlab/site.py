"""The code host: projects with files, commits, issues and merge requests, people and groups."""

from __future__ import annotations

from starlette.routing import Route

from oneiro_web.sites.base import Endpoint, Site, route
from oneiro_web.sites.gitlab.content import STORE, USER
from oneiro_web.sites.gitlab.pages import issues, merge, people, project
from oneiro_web.sites.lists import account_routes

LOGIN = "/users/sign_in"
PROJECT = "/{namespace}/{project}"


def own(path: str, endpoint: Endpoint) -> Route:
    """A page for who is logged in."""
    return route(path, endpoint, login=LOGIN)


def change(path: str, endpoint: Endpoint) -> Route:
    """A form for who is logged in."""
    return route(path, endpoint, post=True, login=LOGIN)


SITE = Site(
    name="gitlab",
    title="Forgeyard",
    host="gitlab.com",
    home="/",
    store=STORE,
    user=USER,
    account=("tidewright", "compass-2026"),
    pages=[
        *account_routes(LOGIN, "/users/sign_out"),
        route("/", people.home),
        own("/dashboard/projects", people.own_projects),
        own("/dashboard/projects/starred", people.own_projects),
        own("/dashboard/issues", people.own_issues),
        own("/dashboard/merge_requests", people.own_requests),
        own("/dashboard/todos", people.todos),
        change("/dashboard/todos/done", people.finish_todos),
        change("/dashboard/todos/{id:id}/done", people.finish_todo),
        route("/explore/projects", people.explore),
        route("/explore/groups", people.groups),
        route("/explore/users", people.people),
        own("/projects/new", project.show_new_project),
        change("/projects/new", project.new_project),
        own("/groups/new", people.show_new_group),
        change("/groups/new", people.new_group),
        own("/-/profile", people.show_profile),
        change("/-/profile", people.edit_profile),
        change("/users/{user}/follow", people.follow),
        change("/users/{user}/unfollow", people.unfollow),
        change("/groups/{namespace}/members", people.invite_to_group),
        route(f"{PROJECT}/-/tree/{{branch}}", project.tree),
        route(f"{PROJECT}/-/tree/{{branch}}/{{path:path}}", project.tree),
        route(f"{PROJECT}/-/blob/{{branch}}/{{path:path}}", project.blob),
        own(f"{PROJECT}/-/edit/{{branch}}/{{path:path}}", project.show_edit_file),
        change(f"{PROJECT}/-/edit/{{branch}}/{{path:path}}", project.edit_file),
        own(f"{PROJECT}/-/new/{{branch}}", project.show_new_file),
        change(f"{PROJECT}/-/new/{{branch}}", project.new_file),
        route(f"{PROJECT}/-/commits/{{branch:path}}", project.commits),
        route(f"{PROJECT}/-/commit/{{sha}}", project.one_commit),
        route(f"{PROJECT}/-/graphs/main", project.contributors),
        route(f"{PROJECT}/-/branches", project.branches),
        change(f"{PROJECT}/-/branches", project.new_branch),
        route(f"{PROJECT}/-/project_members", project.members),
        change(f"{PROJECT}/-/project_members", project.invite),
        change(f"{PROJECT}/-/project_members/{{user}}/remove", project.remove_member),
        change(f"{PROJECT}/-/star", project.star),
        change(f"{PROJECT}/-/unstar", project.unstar),
        change(f"{PROJECT}/-/forks", project.fork),
        route(f"{PROJECT}/-/issues", issues.issues),
        own(f"{PROJECT}/-/issues/new", issues.show_new_issue),
        change(f"{PROJECT}/-/issues/new", issues.new_issue),
        route(f"{PROJECT}/-/issues/{{iid:id}}", issues.issue),
        own(f"{PROJECT}/-/issues/{{iid:id}}/edit", issues.show_edit_issue),
        change(f"{PROJECT}/-/issues/{{iid:id}}/edit", issues.edit_issue),
        change(f"{PROJECT}/-/issues/{{iid:id}}/notes", issues.comment_issue),
        change(f"{PROJECT}/-/issues/{{iid:id}}/close", issues.close_issue),
        change(f"{PROJECT}/-/issues/{{iid:id}}/reopen", issues.reopen_issue),
        change(f"{PROJECT}/-/issues/{{iid:id}}/assign", issues.assign_issue),
        route(f"{PROJECT}/-/labels", issues.labels),
        change(f"{PROJECT}/-/labels", issues.new_label),
        route(f"{PROJECT}/-/milestones", issues.milestones),
        change(f"{PROJECT}/-/milestones", issues.new_milestone),
        route(f"{PROJECT}/-/merge_requests", merge.requests),
        own(f"{PROJECT}/-/merge_requests/new", merge.show_new_request),
        change(f"{PROJECT}/-/merge_requests/new", merge.new_request),
        route(f"{PROJECT}/-/merge_requests/{{iid:id}}", merge.request),
        change(f"{PROJECT}/-/merge_requests/{{iid:id}}/notes", merge.comment_request),
        change(f"{PROJECT}/-/merge_requests/{{iid:id}}/assign", merge.assign_request),
        change(f"{PROJECT}/-/merge_requests/{{iid:id}}/{{move}}", merge.move_request),
        route(PROJECT, project.home),
        route("/{namespace}", people.namespace),
    ],
)
