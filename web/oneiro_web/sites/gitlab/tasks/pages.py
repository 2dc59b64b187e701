"""Tasks that end on a page of the code host."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import urlencode

import numpy as np

from oneiro_web.sites.gitlab.content import USER
from oneiro_web.sites.gitlab.tasks.parts import (
    SEEN,
    GitLab,
    open_part,
    some_row,
    tab,
)
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.script import Script, View


class ShowLabelled(GitLab):
    name = "gitlab/show-labelled"
    intents = (
        'Show the closed issues of {project} that have the label "{label}".',
        'Open the list of closed issues labelled "{label}" in the project {project}.',
    )
    skills = ("search", "filter", "navigate")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = content.pick(
            rng,
            "SELECT DISTINCT p.namespace || '/' || p.path AS project, l.name AS label FROM label l "
            "JOIN issue_label ON issue_label.label = l.id JOIN issue ON issue.id = issue_label.issue "
            f"JOIN project p ON p.id = l.project WHERE issue.state = 'closed' AND {SEEN} ORDER BY l.id",
        )
        return None if row is None else {"project": row["project"], "label": row["label"]}

    def url(self, slots: Slots) -> str:
        return f"/{slots['project']}/-/issues?{urlencode({'state': 'closed', 'label_name': slots['label']})}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Issues")
        yield tab(see, "Closed")
        yield see.select("Label", slots["label"])
        yield see.click("button", "Filter")
        yield see.stop()


class OpenRequest(GitLab):
    name = "gitlab/open-request"
    intents = (
        'Open the page of the merge request "{title}" of {project}.',
        'Take me to the open merge request "{title}" in the project {project}.',
    )
    skills = ("search", "navigate")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        row = some_row(content, rng, "merge_request", f"t.state = 'opened' AND {SEEN}")
        return None if row is None else {"project": row["name"], "title": row["title"], "iid": row["iid"]}

    def url(self, slots: Slots) -> str:
        return f"/{slots['project']}/-/merge_requests/{slots['iid']}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_part(see, slots["project"], "Merge requests")
        yield see.click("link", slots["title"])
        yield see.stop()


class ShowOwn(GitLab):
    name = "gitlab/show-own"
    intents = ("Show me all {what}, from all projects.", "Open the list of {what} in any project.")
    skills = ("filter", "navigate", "account")

    LISTS: ClassVar = {
        "closed issues that I created": ("Issues", "Created by me", "Closed", "issues?author_username"),
        "closed issues that are assigned to me": ("Issues", "Assigned to me", "Closed", "issues?assignee_username"),
        "merge requests of mine that were merged": (
            "Merge requests", "Created by me", "Merged", "merge_requests?author_username"
        ),
        "closed merge requests that I was asked to review": (
            "Merge requests", "Review requests for me", "Closed", "merge_requests?reviewer_username"
        ),
    }  # fmt: skip

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        return {"what": one_of(rng, list(self.LISTS))}

    def url(self, slots: Slots) -> str:
        _, _, state, path = self.LISTS[slots["what"]]
        return f"/dashboard/{path}={USER}&state={state.lower()}"

    def script(self, see: View, slots: Slots) -> Script:
        link, whose, state, _ = self.LISTS[slots["what"]]
        yield see.click("link", link)
        yield see.click("link", whose)
        yield tab(see, state)
        yield see.stop()


TEMPLATES = (ShowLabelled, OpenRequest, ShowOwn)
