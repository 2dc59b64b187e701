"""The code host: its content, every change through its forms, roles, hostile input."""

from __future__ import annotations

import pytest

from oneiro_web.sites.gitlab.content import PASSWORD, USER
from oneiro_web.sites.web import original
from web.tests.visitor import HOSTILE, Visitor, crawl, fingerprint


@pytest.fixture
def host() -> Visitor:
    return Visitor("gitlab")


def project(host: Visitor, role: str) -> tuple[int, str]:
    """A project in which the user has this role ('' for none): id and address."""
    held = "SELECT role FROM member WHERE project = project.id AND user = ?"
    sql = (
        f"SELECT id, '/' || namespace || '/' || path FROM project WHERE coalesce(({held}), '') = ? AND visibility "
        "= 'public'"
    )
    number, url = host.db.execute(sql, (USER, role)).fetchone()
    return number, url


@pytest.mark.parametrize("seed", [0, 5])
def test_the_content_has_the_promised_sizes(seed: int) -> None:
    host = Visitor("gitlab", seed)
    sizes = {"project": 30, "issue": 300, "merge_request": 80, "revision": 600, "user": 40}
    assert {table: host.value(f"SELECT count(*) FROM {table}") for table in sizes} == sizes
    assert {row[0] for row in host.db.execute("SELECT DISTINCT role FROM member")} == {
        "guest", "reporter", "developer", "maintainer", "owner"}  # fmt: skip
    teams = host.value("SELECT count(*) FROM project WHERE namespace IN (SELECT path FROM team)")
    assert (
        5 <= teams <= 25
        and host.value("SELECT count(*) FROM project WHERE namespace IN (SELECT name FROM user)") == 30 - teams
    )  # type: ignore[operator]
    assert host.value("SELECT count(*) FROM todo WHERE user = ? AND state = 'pending'", USER)
    for table, column in (
        ("issue", "author"),
        ("issue", "assignee"),
        ("merge_request", "reviewer"),
        ("revision", "author"),
    ):
        strangers = f"SELECT count(*) FROM {table} WHERE {column} != '' AND NOT EXISTS (SELECT 1 FROM member WHERE member.project = {table}.project AND user = {column})"  # noqa: E501
        assert not host.value(strangers)
    assert not host.value(
        "SELECT count(*) FROM issue WHERE title LIKE '%{%' OR updated < created OR updated > '2026-06-15 09:00'"
    )


def test_a_seed_always_gives_the_same_rows_and_another_seed_others() -> None:
    first = fingerprint("gitlab", 3)
    original.cache_clear()
    assert fingerprint("gitlab", 3) == first != fingerprint("gitlab", 4)


def test_every_link_within_reach_answers(host: Visitor) -> None:
    assert crawl(host, 300) == 300


def test_a_new_project_has_a_readme_an_owner_and_one_commit(host: Visitor) -> None:
    form = {
        "title": "Awesome LLM reading",
        "namespace": USER,
        "path": "awesome_llm",
        "visibility": "private",
        "readme": "yes",
    }
    changed = host.changes(lambda: host.follow(host.post("/projects/new", **form)))
    assert changed == {"project": (0, 1), "member": (0, 1), "file": (0, 1), "branch": (0, 1), "revision": (0, 1)}
    row = host.db.execute("SELECT * FROM project WHERE path = 'awesome_llm'").fetchone()
    assert (row["namespace"], row["title"], row["visibility"]) == (USER, "Awesome LLM reading", "private")
    assert "# Awesome LLM reading" in host.text(f"/{USER}/awesome_llm")
    assert "A project with this name exists." in host.post("/projects/new", **form).body.decode()
    for wrong in ({"title": ""}, {"path": "no/slash"}, {"namespace": "openalmanac-x"}, {"visibility": "secret"}):
        assert host.changes(lambda wrong=wrong: host.post("/projects/new", **{**form, "path": "new", **wrong})) == {}
    guest = Visitor("gitlab", logged_in=False)
    secret = guest.value("SELECT '/' || namespace || '/' || path FROM project WHERE visibility = 'private'")
    assert guest.get(str(secret)).status == 404 and str(secret) not in guest.text("/explore/projects?p=2")


def test_a_new_group_is_owned_and_takes_projects(host: Visitor) -> None:
    changed = host.changes(
        lambda: host.follow(host.post("/groups/new", title="Night Sailors", path="", visibility="public"))
    )
    assert changed == {"team": (0, 1), "team_member": (0, 1)}
    assert host.value("SELECT role FROM team_member WHERE team = 'night-sailors' AND user = ?", USER) == "owner"
    form = {"title": "Log book", "namespace": "night-sailors", "path": "", "visibility": "public"}
    host.follow(host.post("/projects/new", **form))
    assert "/night-sailors/log-book" in host.text("/night-sailors")
    for path in ("night-sailors", USER, "explore", "Bad Path"):
        assert host.post("/groups/new", title="x", path=path, visibility="public").status == 422
    name = host.value("SELECT name FROM user WHERE name != ?", USER)
    host.post("/groups/night-sailors/members", username=name, role="developer")
    assert host.value("SELECT role FROM team_member WHERE team = 'night-sailors' AND user = ?", name) == "developer"


def test_an_issue_is_created_with_people_labels_and_a_day(host: Visitor) -> None:
    number, url = project(host, "owner")
    labels = [row[0] for row in host.db.execute("SELECT id FROM label WHERE project = ? LIMIT 2", (number,))]
    other = host.value("SELECT user FROM member WHERE project = ? AND user != ?", number, USER)
    before = host.value("SELECT max(iid) FROM issue WHERE project = ?", number)
    form = {
        "title": "404 for many URLs",
        "description": "See <b>log</b>",
        "assignee": other,
        "due": "2030-01-03",
        "labels": labels,
    }
    changed = host.changes(lambda: host.follow(host.post(f"{url}/-/issues/new", **form)))
    assert changed == {"issue": (0, 1), "issue_label": (0, 2), "todo": (0, 1)}
    row = host.db.execute("SELECT * FROM issue ORDER BY id DESC").fetchone()
    assert (row["iid"], row["author"], row["assignee"], row["due"], row["state"]) == (
        before + 1,
        USER,
        other,
        "2030-01-03",
        "opened",
    )  # type: ignore[operator]
    assert "See &lt;b&gt;log" in host.text(f"{url}/-/issues/{row['iid']}")
    for wrong in ({"title": ""}, {"assignee": "nobody"}, {"due": "3 Jan"}, {"labels": "99999"}, {"milestone": "x"}):
        reply = host.post(f"{url}/-/issues/new", **{**form, **wrong})
        assert reply.status == 422 and 'class="error"' in reply.body.decode()


def test_guests_report_and_comment_but_neither_assign_nor_push(host: Visitor) -> None:
    number, url = project(host, "guest")
    label = host.value("SELECT id FROM label WHERE project = ?", number)
    host.follow(host.post(f"{url}/-/issues/new", title="From a guest", assignee=USER, labels=label))
    row = host.db.execute("SELECT * FROM issue ORDER BY id DESC").fetchone()
    assert row["assignee"] == "" and not host.value("SELECT 1 FROM issue_label WHERE issue = ?", row["id"])
    other = host.value("SELECT iid FROM issue WHERE project = ? AND author != ?", number, USER)
    refused = [
        (f"{url}/-/issues/{other}/close", {}), (f"{url}/-/issues/{other}/edit", {"title": "x"}),
        (f"{url}/-/issues/{other}/assign", {}),
        (f"{url}/-/edit/main/README.md", {"content": "x", "message": "x"}), (f"{url}/-/new/main", {"path": "x",
        "message": "x"}),
        (f"{url}/-/branches", {"name": "x"}), (f"{url}/-/labels", {"name": "x", "colour": "#000000"}),
        (f"{url}/-/milestones", {"title": "x"}), (f"{url}/-/merge_requests/new", {"title": "x"}),
        (f"{url}/-/project_members", {"username": USER, "role": "owner"}),
    ]  # fmt: skip
    for path, form in refused:
        assert host.changes(lambda path=path, form=form: host.post(path, **form)) == {}, path
        assert host.post(path, **form).status == 403, path
    assert host.get(f"{url}/-/edit/main/README.md").status == 403
    assert host.changes(lambda: host.post(f"{url}/-/issues/{other}/notes", body="Same here")) == {
        "note": (0, 1),
        "issue": (1, 1),
    }


def test_an_issue_is_closed_reopened_assigned_edited_and_discussed(host: Visitor) -> None:
    number, url = project(host, "owner")
    iid, key = host.db.execute("SELECT iid, id FROM issue WHERE project = ? AND state = 'opened'", (number,)).fetchone()
    path = f"{url}/-/issues/{iid}"
    assert host.changes(lambda: host.post(f"{path}/close")) == {"issue": (1, 1)}
    assert host.value("SELECT state FROM issue WHERE id = ?", key) == "closed" and "Reopen issue" in host.text(path)
    assert host.changes(lambda: host.post(f"{path}/close")) == {}
    host.post(f"{path}/reopen")
    assert host.value("SELECT state FROM issue WHERE id = ?", key) == "opened"
    assert host.changes(lambda: host.post(f"{path}/assign", assignee=USER)) == {"issue": (1, 1)}
    assert host.value("SELECT assignee FROM issue WHERE id = ?", key) == USER
    assert host.post(f"{path}/assign", assignee="nobody").status == 422
    assert host.post(f"{path}/notes", body="").status == 422
    assert "Good &amp; true" in host.follow(host.post(f"{path}/notes", body="Good & true"))
    label = host.value("SELECT id FROM label WHERE project = ?", number)
    host.follow(host.post(f"{path}/edit", title="New title", description="", labels=label))
    assert [row[0] for row in host.db.execute("SELECT label FROM issue_label WHERE issue = ?", (key,))] == [label]
    assert host.value("SELECT title FROM issue WHERE id = ?", key) == "New title"


def test_issue_filters_give_exactly_the_rows_of_a_query(host: Visitor) -> None:
    number, url = host.db.execute("SELECT project.id, '/' || namespace || '/' || path FROM project JOIN issue ON "
    "issue.project = "
                                  "project.id WHERE visibility = 'public' GROUP BY project.id ORDER BY count(*) "
                                  "DESC").fetchone()  # fmt: skip
    row = host.db.execute(
        "SELECT * FROM issue WHERE project = ? AND assignee != '' AND milestone NOT NULL", (number,)
    ).fetchone()
    label = host.value(
        "SELECT label.name FROM issue_label JOIN label ON label.id = label WHERE label.project = ?", number
    )
    milestone = host.value("SELECT title FROM milestone WHERE id = ?", row["milestone"])
    labelled = "id IN (SELECT issue FROM issue_label JOIN label ON label.id = label WHERE name = ?)"
    cases = [
        ({"state": "all"}, "1", ()), ({"state": "closed"}, "state = 'closed'", ()), ({}, "state = 'opened'", ()),
        ({"state": "all", "assignee_username": row["assignee"]}, "assignee = ?", (row["assignee"],)),
        ({"state": "all", "assignee_username": "None"}, "assignee = ''", ()),
        ({"state": "all", "author_username": row["author"]}, "author = ?", (row["author"],)),
        ({"state": "all", "label_name": label}, labelled, (label,)),
        ({"state": "all", "milestone_title": milestone}, "milestone = ?", (row["milestone"],)),
        ({"state": "all", "search": "CRASH"}, "lower(title || description) LIKE '%crash%'", ()),
    ]  # fmt: skip
    for query, where, values in cases:
        wanted = host.db.execute(
            f"SELECT iid FROM issue WHERE project = ? AND {where} ORDER BY created DESC, id DESC", (number, *values)
        )
        numbers = [found[0] for found in wanted]
        shown = host.text(f"{url}/-/issues", **query)
        assert [f'/-/issues/{iid}"' in shown for iid in numbers[:15]] == [True] * len(numbers[:15]), query
        assert shown.count('<h3><a href="') == len(numbers[:15]), query


def test_labels_and_milestones_are_created_once(host: Visitor) -> None:
    _, url = project(host, "owner")
    assert host.changes(lambda: host.follow(host.post(f"{url}/-/labels", name="urgent", colour="#ff0000"))) == {
        "label": (0, 1)
    }
    assert host.post(f"{url}/-/labels", name="urgent", colour="#ff0000").status == 422
    assert host.post(f"{url}/-/labels", name="other", colour="red").status == 422
    assert host.changes(lambda: host.post(f"{url}/-/milestones", title="Version 9", due="2026-09-01")) == {
        "milestone": (0, 1)
    }
    assert host.post(f"{url}/-/milestones", title="Version 9").status == 422
    assert "Version 9" in host.text(f"{url}/-/milestones") and "urgent" in host.text(f"{url}/-/labels")


def test_a_merge_request_is_created_discussed_and_merged(host: Visitor) -> None:
    number, url = project(host, "owner")
    source = host.value("SELECT name FROM branch WHERE project = ? AND name != 'main'", number)
    reviewer = host.value("SELECT user FROM member WHERE project = ? AND user != ?", number, USER)
    form = {"title": "Redesign", "source": source, "target": "main", "reviewer": reviewer}
    assert host.changes(lambda: host.follow(host.post(f"{url}/-/merge_requests/new", **form))) == {
        "merge_request": (0, 1),
        "todo": (0, 1),
    }
    row = host.db.execute("SELECT * FROM merge_request ORDER BY id DESC").fetchone()
    assert (row["source"], row["target"], row["reviewer"], row["author"]) == (source, "main", reviewer, USER)
    for wrong in ({"title": ""}, {"source": "main"}, {"source": "none"}, {"reviewer": "nobody"}):
        assert host.post(f"{url}/-/merge_requests/new", **{**form, **wrong}).status == 422
    path = f"{url}/-/merge_requests/{row['iid']}"
    assert host.changes(lambda: host.post(f"{path}/notes", body="Good idea")) == {
        "note": (0, 1),
        "merge_request": (1, 1),
    }
    states = []
    for move in ("close", "reopen", "merge", "reopen"):
        host.follow(host.post(f"{path}/{move}"))
        states.append(host.value("SELECT state FROM merge_request WHERE id = ?", row["id"]))
    assert states == ["closed", "opened", "merged", "merged"]
    assert host.post(f"{path}/explode").status == 404
    assert source in host.text(path)


def test_members_are_invited_changed_and_removed_by_maintainers(host: Visitor) -> None:
    number, url = project(host, "maintainer")
    inside = "SELECT user FROM member WHERE project = ?"
    name = host.value(f"SELECT name FROM user WHERE name NOT IN ({inside})", number)
    role = ("SELECT role FROM member WHERE project = ? AND user = ?", number, name)
    assert host.changes(lambda: host.post(f"{url}/-/project_members", username=name, role="guest")) == {
        "member": (0, 1)
    }
    assert host.value(*role) == "guest"
    assert host.changes(lambda: host.post(f"{url}/-/project_members", username=f"@{name}", role="reporter")) == {
        "member": (1, 1)
    }
    owner = host.value("SELECT user FROM member WHERE project = ? AND role = 'owner'", number)
    for form in ({"username": "nobody", "role": "guest"}, {"username": name, "role": "owner"}, {"username": name,
    "role": "king"},
                 {"username": owner, "role": "guest"}):  # fmt: skip
        assert host.post(f"{url}/-/project_members", **form).status == 422
    assert host.changes(lambda: host.post(f"{url}/-/project_members/{name}/remove")) == {"member": (1, 0)}
    assert host.value(*role) is None
    assert host.post(f"{url}/-/project_members/{owner}/remove").status == 403


def test_stars_and_forks_are_counted(host: Visitor) -> None:
    sql = (
        "SELECT id, '/' || namespace || '/' || path FROM project WHERE visibility = 'public' AND namespace != ? "
        "AND id NOT IN (SELECT project FROM star)"
    )
    number, url = host.db.execute(sql, (USER,)).fetchone()
    stars = host.value("SELECT stars FROM project WHERE id = ?", number)
    assert host.changes(lambda: host.post(f"{url}/-/star")) == {"star": (0, 1), "project": (1, 1)}
    assert host.changes(lambda: host.post(f"{url}/-/star")) == {}
    assert host.value("SELECT stars FROM project WHERE id = ?", number) == stars + 1  # type: ignore[operator]
    assert url in host.text("/dashboard/projects/starred")
    assert host.changes(lambda: host.post(f"{url}/-/unstar")) == {"star": (1, 0), "project": (1, 1)}
    page = host.follow(host.post(f"{url}/-/forks"))
    assert "Forked from" in page
    fork = host.db.execute("SELECT * FROM project ORDER BY id DESC").fetchone()
    assert (fork["namespace"], fork["forked_from"], fork["stars"]) == (USER, number, 0)
    for table in ("file", "branch", "revision"):
        counts = [host.value(f"SELECT count(*) FROM {table} WHERE project = ?", key) for key in (number, fork["id"])]
        assert counts[0] == counts[1] != 0
    assert host.changes(lambda: host.post(f"{url}/-/forks")) == {}


def test_a_file_is_changed_by_a_commit(host: Visitor) -> None:
    number, url = project(host, "developer")
    form = {"content": "# New <text>\n\nHello", "message": "Rewrite README"}
    page = ""

    def act() -> None:
        nonlocal page
        page = host.follow(host.post(f"{url}/-/edit/main/README.md", **form))

    assert host.changes(act) == {"file": (1, 1), "revision": (0, 1), "project": (1, 1)}
    assert "# New &lt;text&gt;" in page and "Rewrite README" in host.text(f"{url}/-/commits/main")
    assert host.value("SELECT author FROM revision WHERE project = ? ORDER BY id DESC", number) == USER
    assert host.post(f"{url}/-/edit/main/README.md", content="x", message="").status == 422
    host.follow(host.post(f"{url}/-/new/main", path="car/urls.txt", content="one", message="Add"))
    assert "urls.txt" in host.text(f"{url}/-/tree/main/car")
    for path in ("README.md", "../secret", "a b", ""):
        assert host.post(f"{url}/-/new/main", path=path, content="x", message="m").status == 422


def test_a_branch_is_created_once_by_developers(host: Visitor) -> None:
    number, url = project(host, "developer")
    assert host.changes(lambda: host.follow(host.post(f"{url}/-/branches", name="fix/tides"))) == {"branch": (0, 1)}
    for name in ("fix/tides", "no spaces", ""):
        assert host.post(f"{url}/-/branches", name=name).status == 422
    assert host.value("SELECT count(*) FROM branch WHERE project = ? AND name = 'fix/tides'", number) == 1


def test_contributors_and_commit_filters_count_as_a_query_does(host: Visitor) -> None:
    number, url = project(host, "owner")
    rows = host.db.execute("SELECT author, count(*) FROM revision WHERE project = ? AND branch = 'main' GROUP BY "
    "author "
                           "ORDER BY count(*) DESC, author", (number,)).fetchall()  # fmt: skip
    page = host.text(f"{url}/-/graphs/main")
    places = [page.index(f'<a href="/{name}">{name}</a></td>') for name, _ in rows]
    assert places == sorted(places)
    shown = host.text(f"{url}/-/commits/main", author=rows[0][0])
    assert f"{rows[0][1]} commit" in shown
    day = host.value("SELECT substr(created, 1, 10) FROM revision WHERE project = ? AND branch = 'main'", number)
    counted = host.value(
        "SELECT count(*) FROM revision WHERE project = ? AND branch = 'main' AND created LIKE ?", number, f"{day}%"
    )
    assert f'<p class="soft">{counted} commit' in host.text(f"{url}/-/commits/main", date=day)


def test_profile_todos_and_follows_are_the_own_ones(host: Visitor) -> None:
    form = {
        "full_name": "Nora T",
        "bio": "Sails",
        "location": "Old Tern",
        "website": "https://egg.example",
        "status": "Enjoying life",
    }
    assert host.changes(lambda: host.follow(host.post("/-/profile", **form))) == {"user": (1, 1)}
    assert "Status: Enjoying life" in host.text(f"/{USER}")
    assert host.post("/-/profile", **{**form, "website": "javascript:alert(1)"}).status == 422
    assert host.post("/-/profile", **{**form, "full_name": ""}).status == 422
    waiting = host.value("SELECT id FROM todo WHERE user = ? AND state = 'pending'", USER)
    assert host.changes(lambda: host.post(f"/dashboard/todos/{waiting}/done")) == {"todo": (1, 1)}
    host.post("/dashboard/todos/done")
    assert host.value("SELECT count(*) FROM todo WHERE user = ? AND state = 'pending'", USER) == 0
    assert "Nothing is waiting for you." in host.text("/dashboard/todos")
    name = host.value("SELECT name FROM user WHERE name NOT IN (SELECT followed FROM follow) AND name != ?", USER)
    assert host.changes(lambda: host.post(f"/users/{name}/follow")) == {"follow": (0, 1)}
    assert host.changes(lambda: host.post(f"/users/{name}/unfollow")) == {"follow": (1, 0)}


def test_two_episodes_do_not_see_each_other(host: Visitor) -> None:
    other = Visitor("gitlab")
    host.post("/-/profile", full_name="Only Here")
    assert "Only Here" in host.text(f"/{USER}") and "Only Here" not in other.text(f"/{USER}")


def test_who_is_not_logged_in_is_sent_to_sign_in() -> None:
    guest = Visitor("gitlab", logged_in=False)
    _, url = project(guest, "")
    assert guest.get("/dashboard/todos").header("location") == "/users/sign_in?next=%2Fdashboard%2Ftodos"
    assert guest.changes(lambda: guest.post(f"{url}/-/star")) == {}
    reply = guest.post("/users/sign_in", username=USER, password=PASSWORD, next="/dashboard/todos")
    assert reply.header("location") == "/dashboard/todos"
    assert guest.post("/users/sign_in", username="'", password="'").status == 422


def test_unknown_things_are_not_found(host: Visitor) -> None:
    _, url = project(host, "owner")
    for path in ("/nobody", "/nobody/nothing", f"{url}/-/issues/99999", f"{url}/-/issues/999999999999999999",
    f"{url}/-/tree/none",
                 f"{url}/-/tree/main/none", f"{url}/-/blob/main/none", f"{url}/-/commits/none", f"{url}/-/commit/0",
                 f"{url}/-/other"):  # fmt: skip
        assert host.get(path).status == 404, path
    assert host.get("/static/gitlab.css").status == 200


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_input_is_shown_as_text_and_breaks_nothing(host: Visitor, text: str) -> None:
    _, url = project(host, "owner")
    query = dict.fromkeys(
        ("p", "search", "sort", "state", "label_name", "author_username", "milestone_title", "name", "author", "date"),
        text,
    )
    for path in ("/explore/projects", "/explore/users", "/dashboard/issues", "/dashboard/todos",
    "/dashboard/merge_requests",
                 f"{url}/-/issues", f"{url}/-/merge_requests", f"{url}/-/commits/main"):  # fmt: skip
        assert "<script>alert" not in host.text(path, **query)
    page = host.follow(host.post(f"{url}/-/issues/new", title=f"t {text}", description=text))
    assert "<script>alert" not in page
    assert host.post(f"{url}/-/issues/new", title="t", labels=text, milestone=text).status == 422
    host.post(f"{url}/-/new/main", path=text, content=text, message=text)
    host.post("/projects/new", title=text, path=text, namespace=text, visibility=text)
    host.post("/groups/new", title=text, path=text, visibility=text)
    assert "<script>alert" not in host.text("/dashboard/projects") + host.text(f"{url}/-/commits/main")
