"""Questions that the code host answers."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from oneiro_web.sites.gitlab.tasks.parts import (
    LEAST,
    ME,
    MINE,
    PROJECT,
    SEEN,
    open_project,
    part,
    pick_row,
    some_months,
    some_project,
    some_row,
    tab,
    to_the_end,
)
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.script import Script, View
from oneiro_web.templates.table import Question, add, by, choose, click, enter, pick, split


def commit_months(content: Content, rng: np.random.Generator) -> Slots | None:
    row = content.pick(
        rng,
        f"SELECT {PROJECT}, p.id, author FROM revision r JOIN project p ON p.id = r.project "
        f"WHERE r.branch = 'main' AND {SEEN} GROUP BY p.id, author HAVING count(*) > 3 ORDER BY p.id, author",
    )
    table = "revision WHERE branch = 'main' AND project = ? AND author = ?"
    months = row and some_months(content, rng, table, row["id"], row["author"])
    return {"project": row["project"], "author": row["author"], **months} if row and months else None


def issue_months(content: Content, rng: np.random.Generator) -> Slots | None:
    project = some_project(content, rng, f"{SEEN} AND (SELECT count(*) FROM issue WHERE project = p.id) > 8")
    months = project and some_months(content, rng, "issue WHERE project = ?", project["number"])
    return {**project, **months} if project and months else None


def row_limit(content: Content, rng: np.random.Generator) -> Slots | None:
    row = content.pick(
        rng,
        f"SELECT {PROJECT}, f.path AS file, f.text FROM file f JOIN project p ON p.id = f.project "
        f"WHERE f.path LIKE 'src/%' AND {SEEN} ORDER BY p.id, f.path",
    )
    limit = row and re.search(r"Limit: (\d+) rows", row["text"])
    if row is None or limit is None or int(limit[1]) < 50:
        return None
    return {"project": row["project"], "file": row["file"], "rows": int(limit[1])}


def open_file(see: View, project: str, file: str) -> Script:
    yield from open_project(see, project)
    for name in file.split("/"):
        yield see.click("link", name)


def merge_state(content: Content, rng: np.random.Generator) -> Slots | None:
    row = some_row(content, rng, "merge_request", SEEN)
    if row is None:
        return None
    merged = row["state"] == "merged"
    return {"project": row["name"], "title": row["title"], "merged": merged, "day": row["created"][:10]}


PROJECTS = ("project", "other", "third")


def own_issues(content: Content, rng: np.random.Generator) -> Slots | None:
    rows = content.rows(
        f"SELECT {PROJECT}, count(*) AS issues FROM issue t JOIN project p ON p.id = t.project "
        f"WHERE t.state = 'opened' AND t.assignee = {ME} AND {SEEN} GROUP BY p.id ORDER BY p.id",
    )
    drawn = [rows[number] for number in rng.permutation(len(rows))[:3]]
    counts = [row["issues"] for row in drawn]
    if len(drawn) < 3 or sum(counts) < LEAST:
        return None
    return {**{name: row["project"] for name, row in zip(PROJECTS, drawn, strict=True)}, "counts": counts}


PLACES = {"most": 0, "second most": 1, "third most": 2, "fewest": -1}


def starred(content: Content, rng: np.random.Generator) -> Slots | None:
    """A project of a group by its place, where no two have as many stars."""
    team = content.pick(rng, "SELECT path, title FROM team ORDER BY path")
    place = one_of(rng, list(PLACES))
    if team is None:
        return None
    rows = content.rows(
        f"SELECT path, stars FROM project p WHERE namespace = ? AND {SEEN} ORDER BY 2 DESC", team["path"]
    )
    if len(rows) < 2 or PLACES[place] >= len(rows) or len({row["stars"] for row in rows}) < len(rows):
        return None
    return {"group": team["title"], "place": place, "name": rows[PLACES[place]]["path"]}


TEMPLATES = (
    Question(
        "gitlab/star-count",
        "How many stars does the project {project} have?",
        "Tell me the number of stars of {project}.",
        skills="search read",
        draw=add(  # not one of the user's own, which the first page lists
            partial(some_project, where=f"{SEEN} AND NOT {MINE} AND stars > 50"),
            "SELECT stars FROM project WHERE id = :number",
        ),
        way=[enter("Search projects", "{project}")],
        answer="number stars",
    ),
    Question(
        "gitlab/label-count",
        'How many open and how many closed issues of {project} have the label "{label}"? Answer with two numbers, the '
        "open ones first.",
        'Count the issues in {project} that are labelled "{label}": first the open ones, then the closed ones. Answer '
        "with two numbers.",
        skills="search read filter count",
        draw=pick(
            f"SELECT {PROJECT}, l.name AS label, sum(issue.state = 'opened') || ' ' || sum(issue.state = 'closed') "
            "AS counts FROM label l JOIN issue_label ON issue_label.label = l.id "
            "JOIN issue ON issue.id = issue_label.issue JOIN project p ON p.id = l.project "
            f"WHERE {SEEN} GROUP BY l.id HAVING count(*) >= {LEAST} ORDER BY l.id",
            counts=lambda text: [*map(int, text.split())],
        ),
        way=[part("Labels"), click("link", "{label}")],
        answer="counts counts",
    ),
    Question(
        "gitlab/commits-in-month",
        "How many commits did {author} make to the main branch of {project} in {month}, how many in {other}, and how "
        "many in {third}? Answer with three numbers in this order.",
        "Count the commits of the user {author} on main in {project}, first in {month}, then in {other}, then in "
        "{third}. Answer with three numbers.",
        skills="search filter page count",
        draw=commit_months,
        way=[part("Commits"), choose("Author", "{author}"), click("button", "Filter"), by(to_the_end)],
        answer="counts counts",
    ),
    Question(
        "gitlab/top-contributor",
        "Who has made the most commits to the main branch of {project}? Give the user name.",
        "Give the user name of the most active contributor to main in {project}.",
        skills="search compare read",
        draw=add(
            some_project,
            "SELECT author, count(*) AS rank FROM revision WHERE project = :number AND branch = 'main' "
            "GROUP BY author ORDER BY rank DESC",
        ),
        way=[part("Contributors")],
        answer="text author",
    ),
    Question(
        "gitlab/oldest-issue",
        "What is the title of the oldest open issue of {project}?",
        "Which open issue of the project {project} was created first? Give its title.",
        skills="search sort read",
        draw=add(
            some_project,
            "SELECT title, created AS rank FROM issue WHERE project = :number AND state = 'opened' ORDER BY rank",
        ),
        way=[part("Issues"), choose("Sort by", "Oldest first"), click("button", "Filter")],
        answer="text title",
    ),
    Question(
        "gitlab/issue-assignee",
        'Who is assigned to the issue "{title}" of {project}? Give the user name.',
        'Give the user name of the assignee of the open issue "{title}" in {project}.',
        skills="search read",
        draw=pick_row("issue", f"t.state = 'opened' AND t.assignee != '' AND {SEEN}", "title", "assignee"),
        way=[part("Issues"), enter("Search", "{title}")],
        answer="text assignee",
    ),
    Question(
        "gitlab/members-with-role",
        "Which members of {project} have the role {role}? List their user names.",
        "List the user names of everybody who is {role} in the project {project}.",
        skills="search read compare",
        draw=pick(
            f"SELECT {PROJECT}, role, group_concat(user) AS users FROM member m JOIN project p ON p.id = m.project "
            f"WHERE {SEEN} GROUP BY p.id, role HAVING count(*) > 1 ORDER BY p.id, role",
            users=split(","),
        ),
        way=[part("Members")],
        answer="names users",
    ),
    Question(
        "gitlab/row-limit",
        "The file {file} of {project} begins with a comment about a limit. How many rows is it?",
        "Look into {file} in the project {project}: which limit of rows does the comment name?",
        skills="search read",
        draw=row_limit,
        way=[by(open_file, "{project}", "{file}")],
        answer="number rows",
    ),
    Question(
        "gitlab/milestone-due",
        'When is the milestone "{milestone}" of {project} due?',
        'On which date does the milestone "{milestone}" in {project} end?',
        skills="search read",
        draw=pick(
            f"SELECT {PROJECT}, m.title AS milestone, m.due FROM milestone m JOIN project p ON p.id = m.project "
            f"WHERE m.due != '' AND {SEEN} ORDER BY m.id"
        ),
        way=[part("Milestones")],
        answer="date due",
    ),
    Question(
        "gitlab/issues-in-month",
        "How many issues of {project}, open or closed, were created in {month}, how many in {other}, and how many in "
        "{third}? Answer with three numbers in this order.",
        "Count all the issues, whether open or not, that were reported to {project}, first in {month}, then in "
        "{other}, then in {third}. Answer with three numbers.",
        skills="search filter page count",
        held_out=True,
        draw=issue_months,
        way=[part("Issues"), by(tab, "All"), by(to_the_end)],
        answer="counts counts",
    ),
    Question(
        "gitlab/most-starred",
        "Which project of the group {group} has the {place} stars? Answer with the project's name, without the group.",
        "Name the project with the {place} stars in the group {group}, without the group's own name.",
        skills="read compare",
        start="/projects/new",  # the first page lists projects
        held_out=True,
        draw=starred,
        way=[click("link", "Groups"), click("link", "{group}")],
        answer="text name",
    ),
    Question(
        "gitlab/was-merged",
        'Has the merge request "{title}" of {project} been merged? Answer yes or no, and add the day it was created.',
        'Tell me whether the merge request "{title}" in {project} is merged, yes or no, and its creation date.',
        skills="search filter read",
        held_out=True,
        draw=merge_state,
        way=[part("Merge requests"), by(tab, "All"), enter("Search", "{title}")],
        answer="yes_no merged, date day",
    ),
    Question(
        "gitlab/own-issues",
        "How many open issues are assigned to me in {project}, how many in {other}, and how many in {third}? Answer "
        "with three numbers in this order.",
        "Count the open issues that I am assigned to, first in {project}, then in {other}, then in {third}. Answer "
        "with three numbers.",
        skills="read count account",
        draw=own_issues,
        way=[click("link", "Issues"), by(to_the_end)],
        answer="counts counts",
    ),
)
