"""Tasks that end on a page of the code host."""

from __future__ import annotations

from urllib.parse import urlencode

from oneiro_web.sites.gitlab.content import USER
from oneiro_web.sites.gitlab.tasks.parts import PROJECT, SEEN, part, pick_row, tab
from oneiro_web.templates.base import Slots, one_of
from oneiro_web.templates.script import Script, View
from oneiro_web.templates.table import ShowPage, by, choose, click, pick

LISTS = {
    "closed issues that I created": ("Issues", "Created by me", "Closed", "issues?author_username"),
    "closed issues that are assigned to me": ("Issues", "Assigned to me", "Closed", "issues?assignee_username"),
    "merge requests of mine that were merged": (
        "Merge requests", "Created by me", "Merged", "merge_requests?author_username"
    ),
    "closed merge requests that I was asked to review": (
        "Merge requests", "Review requests for me", "Closed", "merge_requests?reviewer_username"
    ),
}  # fmt: skip


def own_list(slots: Slots) -> str:
    _, _, state, path = LISTS[slots["what"]]
    return f"/dashboard/{path}={USER}&state={state.lower()}"


def open_own_list(see: View, what: str) -> Script:
    link, whose, state, _ = LISTS[what]
    yield see.click("link", link)
    yield see.click("link", whose)
    yield tab(see, state)


TEMPLATES = (
    ShowPage(
        "gitlab/show-labelled",
        'Show the closed issues of {project} that have the label "{label}".',
        'Open the list of closed issues labelled "{label}" in the project {project}.',
        skills="search filter navigate",
        draw=pick(
            f"SELECT DISTINCT {PROJECT}, l.name AS label FROM label l JOIN issue_label ON issue_label.label = l.id "
            "JOIN issue ON issue.id = issue_label.issue JOIN project p ON p.id = l.project "
            f"WHERE issue.state = 'closed' AND {SEEN} ORDER BY l.id"
        ),
        way=[part("Issues"), by(tab, "Closed"), choose("Label", "{label}"), click("button", "Filter")],
        page=lambda slots: (
            f"/{slots['project']}/-/issues?{urlencode({'state': 'closed', 'label_name': slots['label']})}"
        ),
    ),
    ShowPage(
        "gitlab/open-request",
        'Open the page of the merge request "{title}" of {project}.',
        'Take me to the open merge request "{title}" in the project {project}.',
        skills="search navigate",
        draw=pick_row("merge_request", f"t.state = 'opened' AND {SEEN}", "title", "iid"),
        way=[part("Merge requests"), click("link", "{title}")],
        page="/{project}/-/merge_requests/{iid}",
    ),
    ShowPage(
        "gitlab/show-own",
        "Show me all {what}, from all projects.",
        "Open the list of {what} in any project.",
        skills="filter navigate account",
        draw=lambda content, rng: {"what": one_of(rng, list(LISTS))},
        way=[by(open_own_list, "{what}")],
        page=own_list,
    ),
)
