"""Tasks that create and change issues."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.gitlab.content import USER
from oneiro_web.sites.gitlab.tasks.parts import (
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
    some_day,
    some_issue,
    some_member,
    some_project,
    told,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Slots, holds, one_of, quoted
from oneiro_web.templates.script import Script, View

WORDS = load_words("gitlab")["tasks"]


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
        title, text = one_of(rng, WORDS["reports"])
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
        return None if found is None else {**found, "text": one_of(rng, WORDS["remarks"])}

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


TEMPLATES = (
    CreateIssue(),
    CommentIssue(),
    CloseIssue(),
    AssignIssue(),
    LabelIssue(),
    IssueDue(),
    CloseLabelled(),
)
