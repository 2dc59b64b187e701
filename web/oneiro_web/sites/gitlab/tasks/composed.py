"""The code host's lists, as templates are composed from them."""

from __future__ import annotations

from collections.abc import Sequence

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.gitlab.tasks.parts import ME, SEEN, may, menu, tab
from oneiro_web.templates.schema import Act, Entity, Field, Filter, Row, Sort
from oneiro_web.templates.table import by, choose, click, write

WORDS = load_words("gitlab")["tasks"]
SITE = "gitlab"
PROJECT = "p.namespace || '/' || p.path AS project"
NOTED = f"author = {ME} AND body = :text"
OF = (" of {project}", " in the project {project}")
FILTER = (click("button", "Filter"),)


def day(stamp: str) -> str:
    return stamp[:10]


def person(name: str, label: str, *phrases: str) -> Filter:
    return Filter(name, phrases, "choice", label, param=f"{name}_username", narrow=True)


def comment(kind: str) -> Act:
    return Act(
        "comment",
        ('Comment "{text}" on {row}.', 'Write the comment "{text}" under {row}.'),
        (write("Comment", "{text}"), click("button", "Comment")),
        texts=tuple(WORDS["remarks"]),
        rows={f"SELECT kind, target FROM note WHERE {NOTED}": (kind, ":rowid")},
        changes={"note": NOTED, f"{kind}(updated)": "id = :rowid"},
    )


def move(name: str, kind: str, state: str, button: str, *phrases: str) -> Act:
    return Act(
        name,
        phrases,
        (click("button", button),),
        lambda row: bool(row["may"]),
        rows={f"SELECT state FROM {kind} WHERE id = :rowid": (state,)},
        changes={f"{kind}(state, updated)": "id = :rowid"},
    )


def issues(state: str, word: str, *acts: Act) -> Entity:
    return Entity(
        f"{word}-issues",
        f"{word} issue",
        SITE,
        f"SELECT t.id, t.iid, t.title, t.description, t.author, t.assignee, t.due, t.created, {PROJECT}, "
        f"{may('reporter')} AS may, m.title AS milestonetitle, (SELECT min(l.name) FROM "
        "issue_label il JOIN label l ON l.id = il.label WHERE il.issue = t.id) AS label, (SELECT '|' || "
        "group_concat(l.name, '|') || '|' FROM issue_label il JOIN label l ON l.id = il.label WHERE il.issue = t.id) "
        "AS labels FROM issue t JOIN project p ON p.id = t.project LEFT JOIN milestone m ON m.id = t.milestone "
        f"WHERE t.state = '{state}' AND {SEEN} ORDER BY t.created DESC, t.id DESC",
        Field("title", "title"),
        (by(menu, "Issues"), *(() if state == "opened" else (by(tab, "Closed"),))),
        submit=FILTER,
        scope=("project",),
        of=OF,
        start="/{project}",
        fields=(Field("author", "author"), Field("created", "creation date", "date", day)),
        filters=(
            LabelFilter("label", ('with the label "{label}"', 'labelled "{label}"'), "choice", "Label",
                        param="label_name", narrow=True),
            person("assignee", "Assignee", "assigned to {assignee}", "with the assignee {assignee}"),
            person("author", "Author", "created by {author}", "with the author {author}"),
            Filter("milestone", ('of the milestone "{milestone}"', 'in the milestone "{milestone}"'), "choice",
                   "Milestone", "milestonetitle", "milestone_title", narrow=True),
            Filter("title", ('"{title}"', 'with the title "{title}"'), label="Search", param="search",
                   searched=("title", "description"), unique=True),
        ),
        pairs=("label+author", "label+assignee", "assignee+author"),
        sorts=(
            Sort("oldest", ("that is the oldest", "that was created first"), "created",
                 (choose("Sort by", "Oldest first"),), down=False, in_form=True),
            Sort("first-due", ("that is due first", "with the earliest due date"), "due",
                 (choose("Sort by", "Due date"),), down=False, in_form=True),
        ),
        sorted=("label", "author"),
        acts=(comment("issue"), *acts),
        page="/{project}/-/issues",
        fixed={"state": state},
        open=(click("link", "{rowtitle}"),),
        row_page="/{project}/-/issues/{rowiid}",
        size=15,
    )  # fmt: skip


class LabelFilter(Filter):
    """An issue has many labels; tasks name the first."""

    def matching(self, rows: Sequence[Row], value: str) -> list[Row]:
        return [row for row in rows if f"|{value}|" in (row["labels"] or "")]


def requests(state: str, word: str, *acts: Act) -> Entity:
    return Entity(
        f"{word}-requests",
        f"{word} merge request",
        SITE,
        f"SELECT t.id, t.iid, t.title, t.author, t.assignee, t.reviewer, t.source, t.created, {PROJECT}, "
        f"{may('maintainer')} AS may FROM merge_request t JOIN project p ON p.id = t.project "
        f"WHERE t.state = '{state}' AND {SEEN} ORDER BY t.created DESC, t.id DESC",
        Field("title", "title", but=("Update dependencies", "Correct a typo in the README")),
        (by(menu, "Merge requests"), *(() if state == "opened" else (by(tab, word.capitalize()),))),
        submit=FILTER,
        scope=("project",),
        of=OF,
        start="/{project}",
        fields=(
            Field("author", "author"),
            *((Field("created", "creation date", "date", day),) if state != "closed" else ()),
            Field("source", "source branch", on_page=True),
        ),
        filters=(
            person("author", "Author", "created by {author}", "with the author {author}"),
            person("assignee", "Assignee", "assigned to {assignee}", "with the assignee {assignee}"),
            person("reviewer", "Reviewer", "with the reviewer {reviewer}", "that {reviewer} reviews"),
            Filter("title", ('"{title}"', 'with the title "{title}"'), label="Search", param="search", unique=True),
        ),
        acts=(comment("merge_request"), *acts),
        page="/{project}/-/merge_requests",
        fixed={"state": state},
        open=(click("link", "{rowtitle}"),),
        row_page="/{project}/-/merge_requests/{rowiid}",
        size=15,
    )


STARRED = f"user = {ME} AND project = :rowid"
PROJECTS = Entity(
    "projects",
    "project",
    SITE,
    f"SELECT p.*, {PROJECT}, p.namespace || ' / ' || p.path AS link, p.namespace || '/' || p.path || ' ' || p.title "
    f"|| ' ' || p.description AS text, p.id IN (SELECT project FROM star WHERE user = {ME}) AS starred "
    f"FROM project p WHERE {SEEN} ORDER BY p.updated DESC",
    Field("link", "name"),
    (),
    start="/projects/new",  # the first page lists projects
    fields=(
        Field("stars", "number of stars", "number", least=20),
    ),
    filters=(
        Filter("project", ("{project}", "with the name {project}"), label="Search projects", param="name",
               searched=("text",), unique=True),
        Filter("description", ('described as "{description}"', 'with the description "{description}"'),
               label="Search projects", param="name", searched=("text",)),
    ),
    acts=(
        Act("star", ("Star {row}.", "Give {row} a star from me."), (click("button", "Star"),),
            lambda row: not row["starred"], rows={f"SELECT count(*) FROM star WHERE {STARRED}": (1,)},
            changes={"star": STARRED, "project(stars)": "id = :rowid"}),
    ),
    page="/explore/projects",
    open=(click("link", "{rowlink}"),),
    row_page="/{rowproject}",
    size=15,
)  # fmt: skip

COMMITS = Entity(
    "commits",
    "commit",
    SITE,
    f"SELECT r.id, r.sha, r.author, r.message, r.created, {PROJECT} FROM revision r JOIN project p ON p.id = r.project "
    f"WHERE r.branch = 'main' AND {SEEN} ORDER BY r.created DESC",
    Field("message", "message"),
    (by(menu, "Commits"),),
    submit=FILTER,
    scope=("project",),
    of=tuple(f" to the main branch{of}" for of in OF),
    start="/{project}",
    filters=(
        Filter("author", ("by {author}", "that {author} made"), "choice", "Author", param="author"),
        Filter("day", ("of {day}", "made on {day}"), label="Day", column="created", param="date", read=day,
               searched=("created",)),
    ),
    fields=(Field("author", "author"),),
    page="/{project}/-/commits/main",
    open=(click("link", "{rowmessage}"),),
    row_page="/{project}/-/commit/{rowsha}",
    size=20,
)  # fmt: skip

MILESTONES = Entity(
    "milestones",
    "milestone",
    SITE,
    f"SELECT m.id, m.title, m.due, {PROJECT} FROM milestone m JOIN project p ON p.id = m.project "
    f"WHERE {SEEN} ORDER BY m.id",
    Field("title", "title"),
    (by(menu, "Milestones"),),
    scope=("project",),
    of=OF,
    start="/{project}",
    fields=(Field("due", "due date", "date"),),
    filters=(Filter("title", ('"{title}"', 'named "{title}"'), "named"),),
)

MEMBERS = Entity(
    "people",
    "person",
    SITE,
    "SELECT *, name AS id, full_name || ' ' || name AS text, name IN (SELECT followed FROM follow WHERE user = "
    f"{ME}) AS followed FROM user WHERE name != {ME} ORDER BY full_name",
    Field("full_name", "full name"),
    (click("link", "People"),),
    many="people",
    fields=(Field("name", "user name"),),
    filters=(
        Filter("person", ("called {person}", "with the full name {person}"), label="Name", column="full_name",
               searched=("text",), param="search", unique=True, tells=("name",)),
        Filter("user", ("with the user name {user}", "who is @{user}"), label="Name", column="name",
               searched=("text",), param="search", unique=True, tells=("full_name",)),
    ),
    acts=(
        Act("follow", ("Follow {row}.", "I want to follow {row}."), (click("button", "Follow"),),
            lambda row: not row["followed"],
            rows={f"SELECT count(*) FROM follow WHERE user = {ME} AND followed = :rowid": (1,)},
            changes={"follow": f"user = {ME} AND followed = :rowid"}),
    ),
    page="/explore/users",
    open=(click("link", "{rowfullname}"),),
    row_page="/{rowname}",
)  # fmt: skip

ENTITIES = (
    issues("opened", "open", move("close", "issue", "closed", "Close issue", "Close {row}.", "Mark {row} as closed.")),
    issues("closed", "closed", move("reopen", "issue", "opened", "Reopen issue", "Reopen {row}.", "Open {row} again.")),
    requests(
        "opened", "open",
        move("close", "merge_request", "closed", "Close merge request", "Close {row}.", "Mark {row} as closed."),
        move("merge", "merge_request", "merged", "Merge", "Merge {row}.", "Accept and merge {row}."),
    ),
    requests("merged", "merged"),
    requests(
        "closed", "closed",
        move("reopen", "merge_request", "opened", "Reopen merge request", "Reopen {row}.", "Open {row} again."),
    ),
    PROJECTS, COMMITS, MILESTONES, MEMBERS,
)  # fmt: skip
