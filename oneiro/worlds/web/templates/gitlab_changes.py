"""Tasks on the code host that change something."""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from oneiro.worlds.web.sites.base import TODAY
from oneiro.worlds.web.sites.gitlab_content import USER
from oneiro.worlds.web.sites.words import slug
from oneiro.worlds.web.tasks import Check
from oneiro.worlds.web.templates.base import Content, Slots, holds, quoted
from oneiro.worlds.web.templates.gitlab_parts import (
    ME,
    SEEN,
    GitLab,
    issue_changes,
    issue_holds,
    may,
    menu,
    open_issue,
    open_part,
    open_project,
    some_issue,
    some_member,
    some_project,
    told,
)
from oneiro.worlds.web.templates.script import Script, View
from oneiro.worlds.web.templates.words import one_of
from oneiro.worlds.web.templates.words_code import (
    NEW_LABELS,
    NEW_MILESTONES,
    NEW_PROJECTS,
    REMARKS,
    REPORTS,
    REQUESTS,
    STATUSES,
)


def some_day(rng: np.random.Generator) -> str:
    """A day in the coming half year."""
    return (TODAY + timedelta(days=int(rng.integers(10, 180)))).strftime("%Y-%m-%d")


class StarProject(GitLab):
    name = "gitlab/star"
    intents = ("Star the project {project}.", "Give the project {project} a star from me.")
    skills = ("search", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_project(content, rng, f"{SEEN} AND p.id NOT IN (SELECT project FROM star WHERE user = {ME})")

    def checks(self, slots: Slots) -> list[Check]:
        where = f"user = {ME} AND project = {slots['number']}"
        return [holds(self.site, f"SELECT count(*) FROM star WHERE {where}", (1,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"star": f"user = {ME} AND project = {slots['number']}", "project": f"id = {slots['number']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_project(see, slots["project"])
        yield see.click("button", "Star")
        yield see.stop()


class ForkProject(GitLab):
    name = "gitlab/fork"
    intents = ("Fork the project {project}.", "Make a fork of {project} under my own name.")
    skills = ("search", "form")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_project(content, rng, f"{SEEN} AND p.path NOT IN (SELECT path FROM project WHERE namespace = {ME})")

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT path FROM project WHERE namespace = {ME} AND forked_from = {slots['number']}"
        return [holds(self.site, query, (slots["project"].split("/")[1],))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        new = f"namespace = {ME} AND forked_from = {slots['number']}"
        inside = f"project IN (SELECT id FROM project WHERE {new})"
        parts = dict.fromkeys(("member", "file", "branch", "revision"), inside)
        return {"project": f"id = {slots['number']} OR {new}", **parts}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_project(see, slots["project"])
        yield see.click("button", "Fork")
        yield see.stop()


class CreateProject(GitLab):
    name = "gitlab/create-project"
    intents = (
        'Create a {visibility} project named "{title}" with the description "{text}" under my own name.',
        'I need a new {visibility} project of mine: call it "{title}" and describe it as "{text}".',
    )
    skills = ("form", "write", "create")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        title, text = one_of(rng, NEW_PROJECTS)
        taken = content.value("SELECT count(*) FROM project WHERE path = ?", slug(title))
        return None if taken else {"title": title, "text": text, "visibility": one_of(rng, ("private", "public"))}

    def checks(self, slots: Slots) -> list[Check]:
        query = (
            f"SELECT visibility, description FROM project WHERE namespace = {ME} AND title = {quoted(slots['title'])}"
        )
        return [holds(self.site, query, (slots["visibility"], slots["text"]))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        new = f"namespace = {ME} AND title = {quoted(slots['title'])}"
        inside = f"project IN (SELECT id FROM project WHERE {new})"
        first = {"file": f"{inside} AND path = 'README.md'", "revision": f"{inside} AND author = {ME}"}
        return {"project": new, "member": f"{inside} AND user = {ME}", "branch": f"{inside} AND name = 'main'", **first}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "New project")
        yield see.type("Project name", slots["title"])
        yield see.type("Description", slots["text"])
        yield see.select("Visibility", slots["visibility"].capitalize())
        yield see.click("button", "Create project")
        yield see.stop()


class CreateIssue(GitLab):
    name = "gitlab/create-issue"
    intents = (
        'Create an issue in {project} with the title "{title}", the description "{text}" and the label "{label}". '
        "Assign it to {assignee} and set the due date {due}.",
        'Report an issue to {project}: title "{title}", description "{text}", label "{label}", assignee {assignee}, '
        "due on {due}.",
    )
    skills = ("search", "form", "write", "create", "label", "assign")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng, may("reporter"))
        if found is None:
            return None
        number = found["number"]
        label = content.pick(rng, "SELECT name FROM label WHERE project = ? ORDER BY name", number)
        assignee = some_member(content, rng, number)
        if label is None or assignee is None:
            return None
        title, text = one_of(rng, REPORTS)
        return {
            **found,
            "title": title,
            "text": text,
            "label": label["name"],
            "assignee": assignee,
            "due": some_day(rng),
        }

    def checks(self, slots: Slots) -> list[Check]:
        new = f"project = {slots['number']} AND title = {quoted(slots['title'])}"
        said = f"SELECT description, author, assignee, milestone, state, due FROM issue WHERE {new}"
        tags = (
            "SELECT label.name FROM issue_label JOIN label ON label.id = issue_label.label "
            f"WHERE issue_label.issue IN (SELECT id FROM issue WHERE {new})"
        )
        return [
            holds(self.site, said, (slots["text"], USER, slots["assignee"], None, "opened", slots["due"])),
            holds(self.site, tags, (slots["label"],)),
        ]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        new = f"project = {slots['number']} AND title = {quoted(slots['title'])} AND author = {ME}"
        ids = f"SELECT id FROM issue WHERE {new}"
        return {"issue": new, "issue_label": f"issue IN ({ids})", "todo": told(slots["assignee"], "issue", ids)}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Issues")
        yield see.click("link", "New issue")
        yield see.type("Title", slots["title"])
        yield see.type("Description", slots["text"])
        yield see.select("Assignee", slots["assignee"])
        yield see.click("checkbox", slots["label"])
        yield see.type("Due date (YYYY-MM-DD)", slots["due"])
        yield see.click("button", "Create issue")
        yield see.stop()


class CommentIssue(GitLab):
    name = "gitlab/comment-issue"
    intents = (
        'Comment "{text}" on the issue "{title}" of {project}.',
        'Write the comment "{text}" under the issue "{title}" in the project {project}.',
    )
    skills = ("search", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_issue(content, rng, SEEN)
        return None if found is None else {**found, "text": one_of(rng, REMARKS)}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT kind, target FROM note WHERE author = {ME} AND body = {quoted(slots['text'])}"
        return [holds(self.site, query, ("issue", slots["issue"])), *issue_holds(slots)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {**issue_changes(slots), "note": f"author = {ME} AND body = {quoted(slots['text'])}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_issue(see, slots)
        yield see.type("Comment", slots["text"])
        yield see.click("button", "Comment")
        yield see.stop()


class CloseIssue(GitLab):
    name = "gitlab/close-issue"
    intents = ('Close the issue "{title}" of {project}.', 'The issue "{title}" in {project} is done. Close it.')
    skills = ("search", "form", "close")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return some_issue(content, rng, f"{SEEN} AND ({may('reporter')} OR t.author = {ME})")

    def checks(self, slots: Slots) -> list[Check]:
        return issue_holds(slots, state="closed")

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return issue_changes(slots)

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_issue(see, slots)
        yield see.click("button", "Close issue")
        yield see.stop()


class AssignIssue(GitLab):
    name = "gitlab/assign-issue"
    intents = (
        'Assign the issue "{title}" of {project} to {assignee}.',
        'Make {assignee} the assignee of the issue "{title}" in {project}.',
    )
    skills = ("search", "form", "assign")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_issue(content, rng, may("reporter"))
        assignee = found and some_member(content, rng, found["number"], found["before"]["assignee"])
        return {**found, "assignee": assignee} if found and assignee else None

    def checks(self, slots: Slots) -> list[Check]:
        return issue_holds(slots, assignee=slots["assignee"])

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {**issue_changes(slots), "todo": told(slots["assignee"], "issue", str(slots["issue"]))}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_issue(see, slots)
        yield see.select("Assign to", slots["assignee"])
        yield see.click("button", "Assign")
        yield see.stop()


class LabelIssue(GitLab):
    name = "gitlab/label-issue"
    intents = (
        'Add the label "{label}" to the issue "{title}" of {project}.',
        'Put the label "{label}" on the issue "{title}" in {project}. Keep its other labels.',
    )
    skills = ("search", "edit", "label")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_issue(content, rng, may("reporter"))
        if found is None:
            return None
        row = content.pick(
            rng,
            "SELECT id, name FROM label WHERE project = ? "
            "AND id NOT IN (SELECT label FROM issue_label WHERE issue = ?) ORDER BY id",
            found["number"],
            found["issue"],
        )
        return None if row is None else {**found, "label": row["name"], "added": row["id"]}

    def checks(self, slots: Slots) -> list[Check]:
        return issue_holds(slots, [*slots["labels"], slots["added"]])

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return issue_changes(slots)

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_issue(see, slots)
        yield see.click("link", "Edit")
        yield see.click("checkbox", slots["label"])
        yield see.click("button", "Save changes")
        yield see.stop()


class IssueDue(GitLab):
    name = "gitlab/issue-due"
    intents = (
        'Set the due date of the issue "{title}" of {project} to {due}.',
        'The issue "{title}" in {project} must be done by {due}. Enter that as its due date.',
    )
    skills = ("search", "edit", "form")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found, due = some_issue(content, rng, may("reporter")), some_day(rng)
        return {**found, "due": due} if found and found["before"]["due"] != due else None

    def checks(self, slots: Slots) -> list[Check]:
        return issue_holds(slots, due=slots["due"])

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return issue_changes(slots)

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_issue(see, slots)
        yield see.click("link", "Edit")
        yield from see.fill("Due date (YYYY-MM-DD)", slots["due"])
        yield see.click("button", "Save changes")
        yield see.stop()


class CloseLabelled(GitLab):
    name = "gitlab/close-labelled"
    intents = (
        'Close all open issues of {project} that have the label "{label}".',
        'Every open issue labelled "{label}" in {project} is done. Close them all.',
    )
    skills = ("search", "filter", "close")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT p.namespace || '/' || p.path AS project, l.id, l.name FROM label l "
            "JOIN project p ON p.id = l.project JOIN issue_label ON issue_label.label = l.id "
            "JOIN issue ON issue.id = issue_label.issue "
            f"WHERE issue.state = 'opened' AND {may('reporter')} GROUP BY l.id "
            "HAVING count(*) BETWEEN 2 AND 4 ORDER BY l.id",
        )
        if row is None:
            return None
        issues = content.rows(
            "SELECT issue.id, title, description, author, assignee, milestone, due FROM issue JOIN issue_label "
            "ON issue_label.issue = issue.id WHERE label = ? AND state = 'opened' ORDER BY issue.id",
            row["id"],
        )
        if len({issue["title"] for issue in issues}) < len(issues):
            return None
        return {"project": row["project"], "label": row["name"], "issues": [tuple(issue) for issue in issues]}

    def checks(self, slots: Slots) -> list[Check]:
        said = "id, title, description, author, assignee, milestone, due, state"
        rows = [(*issue, "closed") for issue in slots["issues"]]
        return [holds(self.site, f"SELECT {said} FROM issue WHERE {self.meant(slots)}", *rows)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"issue": self.meant(slots)}

    def meant(self, slots: Slots) -> str:
        """A condition on the issues to close."""
        return f"id IN ({', '.join(str(issue[0]) for issue in slots['issues'])})"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_project(see, slots["project"])
        for issue in slots["issues"]:
            yield menu(see, "Labels")
            yield see.click("link", slots["label"])
            yield see.click("link", issue[1])
            yield see.click("button", "Close issue")
        yield see.stop()


class CreateLabel(GitLab):
    name = "gitlab/create-label"
    intents = (
        'Create the label "{label}" with the colour {colour} in {project}.',
        'Add a new label to {project}: name "{label}", colour {colour}.',
    )
    skills = ("search", "form", "create", "label")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng, may("reporter"))
        label, colour = one_of(rng, NEW_LABELS)
        return None if found is None else {**found, "label": label, "colour": colour}

    def checks(self, slots: Slots) -> list[Check]:
        where = f"project = {slots['number']} AND name = {quoted(slots['label'])}"
        query = f"SELECT lower(colour), description FROM label WHERE {where}"
        return [holds(self.site, query, (slots["colour"], ""))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"label": f"project = {slots['number']} AND name = {quoted(slots['label'])}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Labels")
        yield see.type("Name", slots["label"])
        yield from see.fill("Colour", slots["colour"])
        yield see.click("button", "Create label")
        yield see.stop()


class CreateMilestone(GitLab):
    name = "gitlab/create-milestone"
    intents = (
        'Create the milestone "{title}" in {project}, due on {due}.',
        'Add a milestone named "{title}" to the project {project} with the due date {due}.',
    )
    skills = ("search", "form", "create")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng, may("reporter"))
        return None if found is None else {**found, "title": one_of(rng, NEW_MILESTONES), "due": some_day(rng)}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT title, due, state FROM milestone WHERE {self.new(slots)}"
        return [holds(self.site, query, (slots["title"], slots["due"], "active"))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"milestone": self.new(slots)}

    def new(self, slots: Slots) -> str:
        """A condition on the row to add."""
        return f"project = {slots['number']} AND title = {quoted(slots['title'])}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Milestones")
        yield see.type("Title", slots["title"])
        yield see.type("Due date (YYYY-MM-DD)", slots["due"])
        yield see.click("button", "Create milestone")
        yield see.stop()


class InviteMember(GitLab):
    name = "gitlab/invite"
    intents = (
        "Invite {user} to the project {project} as {role}.",
        "Add the user {user} to {project} with the role {role}.",
    )
    skills = ("search", "form", "write")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng, may("maintainer"))
        if found is None:
            return None
        sql = "SELECT name FROM user WHERE name NOT IN (SELECT user FROM member WHERE project = ?) ORDER BY name"
        row = content.pick(rng, sql, found["number"])
        role = one_of(rng, ("reporter", "developer", "maintainer"))  # the form proposes a guest
        return None if row is None else {**found, "user": row["name"], "role": role}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT role FROM member WHERE {self.new(slots)}", (slots["role"],))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"member": self.new(slots)}

    def new(self, slots: Slots) -> str:
        """A condition on the row to add."""
        return f"project = {slots['number']} AND user = {quoted(slots['user'])}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Members")
        yield see.type("User name", slots["user"])
        yield see.select("Role", slots["role"].capitalize())
        yield see.click("button", "Invite")
        yield see.stop()


class CreateRequest(GitLab):
    name = "gitlab/create-request"
    intents = (
        'In {project}, create a merge request from the branch {branch} into main with the title "{title}" and ask '
        "{reviewer} to review it.",
        'Open a merge request in {project}: source {branch}, target main, title "{title}", reviewer {reviewer}.',
    )
    skills = ("search", "form", "write", "create")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = some_project(content, rng, may("developer"))
        if found is None:
            return None
        branch = content.pick(
            rng, "SELECT name FROM branch WHERE project = ? AND name != 'main' ORDER BY name", found["number"]
        )
        reviewer = some_member(content, rng, found["number"])
        if branch is None or reviewer is None:
            return None
        return {**found, "branch": branch["name"], "title": one_of(rng, REQUESTS), "reviewer": reviewer}

    def checks(self, slots: Slots) -> list[Check]:
        said = "source, target, description, author, assignee, reviewer, state"
        row = (slots["branch"], "main", "", USER, "", slots["reviewer"], "opened")
        return [holds(self.site, f"SELECT {said} FROM merge_request WHERE {self.new(slots)}", row)]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        ids = f"SELECT id FROM merge_request WHERE {self.new(slots)}"
        return {"merge_request": self.new(slots), "todo": told(slots["reviewer"], "merge_request", ids)}

    def new(self, slots: Slots) -> str:
        """A condition on the row to add."""
        return f"project = {slots['number']} AND title = {quoted(slots['title'])}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Merge requests")
        yield see.click("link", "New merge request")
        yield see.select("Source branch", slots["branch"])
        yield see.type("Title", slots["title"])
        yield see.select("Reviewer", slots["reviewer"])
        yield see.click("button", "Create merge request")
        yield see.stop()


class FinishTodo(GitLab):
    name = "gitlab/finish-todo"
    intents = (
        'Mark the to-do about "{title}" in {project} as done.',
        'On my to-do list, tick off the entry for "{title}" ({project}).',
    )
    skills = ("page", "form", "account")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        rows = content.rows(
            "SELECT t.id, t.kind, p.namespace || '/' || p.path AS project, coalesce(i.title, m.title) AS title "
            "FROM todo t LEFT JOIN issue i ON t.kind = 'issue' AND i.id = t.target "
            "LEFT JOIN merge_request m ON t.kind = 'merge_request' AND m.id = t.target "
            f"JOIN project p ON p.id = coalesce(i.project, m.project) "
            f"WHERE t.user = {ME} AND t.state = 'pending' ORDER BY t.id"
        )
        titles = [row["title"] for row in rows]
        alone = [row for row in rows if sum(row["title"] in title for title in titles) == 1]
        if not alone:
            return None
        row = one_of(rng, alone)
        return {"todo": row["id"], "title": row["title"], "project": row["project"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT state FROM todo WHERE id = {slots['todo']}", ("done",))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"todo": f"id = {slots['todo']}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "To-Do List")
        yield from see.turn_pages_to("link", slots["title"])
        yield see.click("button", "Mark as done", within=slots["title"])
        yield see.stop()


class SetStatus(GitLab):
    name = "gitlab/status"
    intents = ('Set my status to "{text}".', 'Let people see "{text}" as the status on my profile.')
    skills = ("form", "edit", "account")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        (row,) = content.rows(f"SELECT full_name, email, bio, location, website FROM user WHERE name = {ME}")
        return {"text": one_of(rng, STATUSES), "before": dict(row)}

    def checks(self, slots: Slots) -> list[Check]:
        query = f"SELECT status, {', '.join(slots['before'])} FROM user WHERE name = {ME}"
        return [holds(self.site, query, (slots["text"], *slots["before"].values()))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"user": f"name = {ME}"}

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "Edit profile")
        yield from see.fill("Your status", slots["text"])
        yield see.click("button", "Update profile settings")
        yield see.stop()


class FollowUser(GitLab):
    name = "gitlab/follow"
    intents = ("Follow {person}.", "I want to follow the user whose name is {person}.")
    skills = ("search", "form")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            f"SELECT name, full_name FROM user WHERE name != {ME} AND name NOT IN (SELECT followed FROM follow "
            f"WHERE user = {ME}) ORDER BY name",
        )
        return None if row is None else {"person": row["full_name"], "user": row["name"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [holds(self.site, f"SELECT count(*) FROM follow WHERE {self.new(slots)}", (1,))]

    def changes(self, slots: Slots) -> dict[str, str | None]:
        return {"follow": self.new(slots)}

    def new(self, slots: Slots) -> str:
        """A condition on the row to add."""
        return f"user = {ME} AND followed = {quoted(slots['user'])}"

    def script(self, see: View, slots: Slots) -> Script:
        yield see.click("link", "People")
        yield see.type("Name", slots["person"], enter=True)
        yield see.click("link", slots["person"])
        yield see.click("button", "Follow")
        yield see.stop()


TEMPLATES = (
    StarProject, ForkProject, CreateProject, CreateIssue, CommentIssue, CloseIssue, AssignIssue, LabelIssue, IssueDue,
    CloseLabelled, CreateLabel, CreateMilestone, InviteMember, CreateRequest, FinishTodo, SetStatus, FollowUser,
)  # fmt: skip
