"""Questions that the code host answers."""

from __future__ import annotations

import re

import numpy as np

from oneiro_web.sites.gitlab.tasks.parts import (
    ME,
    MINE,
    SEEN,
    GitLab,
    listed,
    open_part,
    open_project,
    some_months,
    some_project,
    some_row,
    tab,
    to_the_end,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Question, Slots, counts, says
from oneiro_web.templates.script import Script, View


class StarCount(Question, GitLab):
    name = "gitlab/star-count"
    intents = ("How many stars does the project {project} have?", "Tell me the number of stars of {project}.")
    skills = ("search", "read")
    answer = ("number", "stars")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        others = f"{SEEN} AND NOT {MINE} AND stars > 50"  # the first page lists those of the user
        found = some_project(content, rng, others)
        return (
            None
            if found is None
            else {**found, "stars": content.value("SELECT stars FROM project WHERE id = ?", found["number"])}
        )

    def look_up(self, see: View, slots: Slots) -> Script:
        yield see.type("Search projects", slots["project"], enter=True)


class LabelCount(GitLab):
    name = "gitlab/label-count"
    intents = (
        'How many open and how many closed issues of {project} have the label "{label}"? Answer with two numbers, the '
        "open ones first.",
        'Count the issues in {project} that are labelled "{label}": first the open ones, then the closed ones. Answer '
        "with two numbers.",
    )
    skills = ("search", "read", "filter", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT p.namespace || '/' || p.path AS project, l.name AS label, sum(issue.state = 'opened') AS open, "
            "sum(issue.state = 'closed') AS closed FROM label l "
            "JOIN issue_label ON issue_label.label = l.id JOIN issue ON issue.id = issue_label.issue "
            f"JOIN project p ON p.id = l.project WHERE {SEEN} GROUP BY l.id HAVING count(*) > 2 ORDER BY l.id",
        )
        return (
            None
            if row is None
            else {"project": row["project"], "label": row["label"], "counts": [row["open"], row["closed"]]}
        )

    def checks(self, slots: Slots) -> list[Check]:
        return [counts(*slots["counts"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Labels")
        yield see.click("link", slots["label"])
        yield see.stop(listed(slots))


class CommitsInMonth(GitLab):
    name = "gitlab/commits-in-month"
    intents = (
        "How many commits did {author} make to the main branch of {project} in {month}, and how many in {other}? "
        "Answer with two numbers in this order.",
        "Count the commits of the user {author} on main in {project}, first in {month}, then in {other}. Answer with "
        "two numbers.",
    )
    skills = ("search", "filter", "page", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT p.namespace || '/' || p.path AS project, p.id, author FROM revision r JOIN project p "
            f"ON p.id = r.project WHERE r.branch = 'main' AND {SEEN} GROUP BY p.id, author HAVING count(*) > 3 "
            "ORDER BY p.id, author",
        )
        months = row and some_months(
            content, rng, "revision WHERE branch = 'main' AND project = ? AND author = ?", row["id"], row["author"]
        )
        return {"project": row["project"], "author": row["author"], **months} if row and months else None

    def checks(self, slots: Slots) -> list[Check]:
        return [counts(*slots["counts"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Commits")
        yield see.select("Author", slots["author"])
        yield see.click("button", "Filter")
        yield from to_the_end(see)
        yield see.stop(listed(slots))


class TopContributor(Question, GitLab):
    name = "gitlab/top-contributor"
    intents = (
        "Who has made the most commits to the main branch of {project}? Give the user name.",
        "Give the user name of the most active contributor to main in {project}.",
    )
    skills = ("search", "compare", "read")
    answer = ("text", "author")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng)
        if found is None:
            return None
        rows = content.rows(
            "SELECT author, count(*) AS commits FROM revision WHERE project = ? AND branch = 'main' GROUP BY author "
            "ORDER BY commits DESC LIMIT 2",
            found["number"],
        )
        if len(rows) < 2 or rows[0]["commits"] == rows[1]["commits"]:
            return None
        return {**found, "author": rows[0]["author"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Contributors")


class OldestIssue(Question, GitLab):
    name = "gitlab/oldest-issue"
    intents = (
        "What is the title of the oldest open issue of {project}?",
        "Which open issue of the project {project} was created first? Give its title.",
    )
    skills = ("search", "sort", "read")
    answer = ("text", "title")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng)
        if found is None:
            return None
        rows = content.rows(
            "SELECT title, created FROM issue WHERE project = ? AND state = 'opened' ORDER BY created LIMIT 2",
            found["number"],
        )
        return (
            None if len(rows) < 2 or rows[0]["created"] == rows[1]["created"] else {**found, "title": rows[0]["title"]}
        )

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Issues")
        yield see.select("Sort by", "Oldest first")
        yield see.click("button", "Filter")


class IssueAssignee(Question, GitLab):
    name = "gitlab/issue-assignee"
    intents = (
        'Who is assigned to the issue "{title}" of {project}? Give the user name.',
        'Give the user name of the assignee of the open issue "{title}" in {project}.',
    )
    skills = ("search", "read")
    answer = ("text", "assignee")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_row(content, rng, "issue", f"t.state = 'opened' AND t.assignee != '' AND {SEEN}")
        return None if row is None else {"project": row["name"], "title": row["title"], "assignee": row["assignee"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Issues")
        yield see.type("Search", slots["title"], enter=True)


class MembersWithRole(Question, GitLab):
    name = "gitlab/members-with-role"
    intents = (
        "Which members of {project} have the role {role}? List their user names.",
        "List the user names of everybody who is {role} in the project {project}.",
    )
    skills = ("search", "read", "compare")
    answer = ("names", "users")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT p.namespace || '/' || p.path AS project, role, group_concat(user) AS users FROM member m "
            f"JOIN project p ON p.id = m.project WHERE {SEEN} GROUP BY p.id, role "
            "HAVING count(*) > 1 ORDER BY p.id, role",
        )
        return (
            None
            if row is None
            else {"project": row["project"], "role": row["role"], "users": sorted(row["users"].split(","))}
        )

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Members")


class RowLimit(Question, GitLab):
    name = "gitlab/row-limit"
    intents = (
        "The file {file} of {project} begins with a comment about a limit. How many rows is it?",
        "Look into {file} in the project {project}: which limit of rows does the comment name?",
    )
    skills = ("search", "read")
    answer = ("number", "rows")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT p.namespace || '/' || p.path AS project, f.path AS file, f.text FROM file f JOIN project p "
            f"ON p.id = f.project WHERE f.path LIKE 'src/%' AND {SEEN} ORDER BY p.id, f.path",
        )
        limit = row and re.search(r"Limit: (\d+) rows", row["text"])
        if row is None or limit is None or int(limit[1]) < 50:
            return None
        return {"project": row["project"], "file": row["file"], "rows": int(limit[1])}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_project(see, slots["project"])
        for part in slots["file"].split("/"):
            yield see.click("link", part)


class MilestoneDue(Question, GitLab):
    name = "gitlab/milestone-due"
    intents = (
        'When is the milestone "{milestone}" of {project} due?',
        'On which date does the milestone "{milestone}" in {project} end?',
    )
    skills = ("search", "read")
    answer = ("date", "due")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT p.namespace || '/' || p.path AS project, m.title, m.due FROM milestone m JOIN project p "
            f"ON p.id = m.project WHERE m.due != '' AND {SEEN} ORDER BY m.id",
        )
        return None if row is None else {"project": row["project"], "milestone": row["title"], "due": row["due"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Milestones")


class IssuesInMonth(GitLab):
    name = "gitlab/issues-in-month"
    intents = (
        "How many issues of {project}, open or closed, were created in {month}, and how many in {other}? Answer with "
        "two numbers in this order.",
        "Count all the issues, whether open or not, that were reported to {project}, first in {month}, then in "
        "{other}. Answer with two numbers.",
    )
    skills = ("search", "filter", "page", "count")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng, f"{SEEN} AND (SELECT count(*) FROM issue WHERE project = p.id) > 8")
        months = found and some_months(content, rng, "issue WHERE project = ?", found["number"])
        return {**found, **months} if found and months else None

    def checks(self, slots: Slots) -> list[Check]:
        return [counts(*slots["counts"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Issues")
        yield tab(see, "All")
        yield from to_the_end(see)
        yield see.stop(listed(slots))


class MostStarred(Question, GitLab):
    name = "gitlab/most-starred"
    intents = (
        "Which project of the group {group} has the most stars? Answer with the project's name, without the group.",
        "Name the project with the most stars in the group {group}, without the group's own name.",
    )
    skills = ("read", "compare")
    start = "/projects/new"  # the first page lists projects
    held_out = True
    answer = ("text", "name")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        team = content.pick(rng, "SELECT path, title FROM team ORDER BY path")
        if team is None:
            return None
        rows = content.rows(
            f"SELECT path, stars FROM project p WHERE namespace = ? AND {SEEN} ORDER BY stars DESC LIMIT 2",
            team["path"],
        )
        if len(rows) < 2 or rows[0]["stars"] == rows[1]["stars"]:
            return None
        return {"group": team["title"], "name": rows[0]["path"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Groups")
        yield see.click("link", slots["group"])


class WasMerged(GitLab):
    name = "gitlab/was-merged"
    intents = (
        'Has the merge request "{title}" of {project} been merged? Answer yes or no, and add the day it was created.',
        'Tell me whether the merge request "{title}" in {project} is merged, yes or no, and its creation date.',
    )
    skills = ("search", "filter", "read")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_row(content, rng, "merge_request", SEEN)
        if row is None:
            return None
        merged = row["state"] == "merged"
        return {"project": row["name"], "title": row["title"], "merged": merged, "day": row["created"][:10]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("yes_no", slots["merged"]), says("date", slots["day"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Merge requests")
        yield tab(see, "All")
        yield see.type("Search", slots["title"], enter=True)
        yield see.stop(f"{'Yes' if slots['merged'] else 'No'}, {slots['day']}")


class OwnIssues(GitLab):
    name = "gitlab/own-issues"
    intents = (
        "How many open issues of {project} are assigned to me, and how many of {other}? Answer with two numbers in "
        "this order.",
        "Count the open issues that I am assigned to, first in {project}, then in {other}. Answer with two numbers.",
    )
    skills = ("read", "count", "account")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        rows = content.rows(
            "SELECT p.namespace || '/' || p.path AS project, count(*) AS issues FROM issue t JOIN project p "
            f"ON p.id = t.project WHERE t.state = 'opened' AND t.assignee = {ME} AND {SEEN} "
            "GROUP BY p.id ORDER BY p.id",
        )
        if len(rows) < 2:
            return None
        one, other = (rows[number] for number in rng.permutation(len(rows))[:2])
        return {"project": one["project"], "other": other["project"], "counts": [one["issues"], other["issues"]]}

    def checks(self, slots: Slots) -> list[Check]:
        return [counts(*slots["counts"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Issues")
        yield from to_the_end(see)
        yield see.stop(listed(slots))


TEMPLATES = (
    StarCount,
    LabelCount,
    CommitsInMonth,
    TopContributor,
    OldestIssue,
    IssueAssignee,
    MembersWithRole,
    RowLimit,
    MilestoneDue,
    IssuesInMonth,
    MostStarred,
    WasMerged,
    OwnIssues,
)
